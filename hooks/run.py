"""What Copier starts once a project is written: the wheel, then validate, then smoke. Standard library only.

    python hooks/run.py            in the project's folder

Exit code 1 means "what was generated is wrong" and nothing else: on a first copy it makes Copier delete the project.
Whatever only keeps a check from running (no Docker, no network, no uv, a merge conflict, a crash of ours) is one line
and exit code 0, or 1 where GPU_TEMPLATE_STRICT is set. GPU_TEMPLATE_SMOKE is auto, build or off (see smoke.py).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

NEEDS = {"jsonschema": "jsonschema>=4.23,<5", "yaml": "pyyaml>=6.0.2,<7", "docker": "docker>=7.1,<8"}
TEMPLATE = Path(__file__).resolve().parents[1]
sys.path.insert(1, str(TEMPLATE / "gpukit/src"))  # after this folder
FINE, WRONG, SKIPPED = (
    0,
    10,
    11,
)  # a run's own codes: a failing Python or uv ends with 1 or 2 and must not look like WRONG
CHECKED = [".devcontainer/devcontainer.json", ".devcontainer/cpu/devcontainer.json", "compose.yaml", "compose.cpu.yaml"]
CHECKED += ["Dockerfile", "README.md", "stack.json", "pyproject.toml"]
COMMAND = "uvx --with jsonschema --with docker copier"


def main() -> int:
    # An import from the project, or from the template's clone, must leave nothing behind there.
    sys.dont_write_bytecode = True
    project = Path.cwd()
    try:
        if "--here" in sys.argv[1:]:  # the second process, which uv gave the packages
            return guarded(check, project)
        code = guarded(start, project)
    except KeyboardInterrupt:
        say("hooks", "stopped; the project itself is complete.")
        return (
            0 if "COPIER_OPERATION" in os.environ else 130
        )  # Copier has its own Ctrl-C, and must not take ours for wrong
    return 1 if code == WRONG or (code != FINE and os.environ.get("GPU_TEMPLATE_STRICT")) else 0


def guarded(step: Callable[[Path], int], project: Path) -> int:
    try:
        return step(project)
    except Exception as error:  # a mistake in a hook says nothing about the project
        if os.environ.get("GPU_TEMPLATE_DEBUG"):
            traceback.print_exc()
        lines = str(error).splitlines() or [""]
        say("hooks", f"could not run: {type(error).__name__}: {lines[0]} (GPU_TEMPLATE_DEBUG=1 shows where).")
        return SKIPPED


def put_wheel(project: Path) -> int:
    """Write this template's gpukit to vendor/. A failure is only a notice: exit code 1 would delete the project."""
    from gpukit.wheel import vendor, writer

    try:
        vendor.put(writer.from_source(TEMPLATE / "gpukit"), project)
    except OSError as error:
        say("wheel", f"not written: {error.strerror or error}; `./launch` prints the command that writes it.")
        return SKIPPED
    return FINE


def start(project: Path) -> int:
    """Write the wheel, then check where the packages are: in this interpreter, else in one that uv makes, else as much as goes without."""
    written = put_wheel(project)
    conflicts = unmerged(project)
    if conflicts:
        say("validate", f"not run: merge conflicts in {listed(conflicts)}. Resolve them, then run ./launch verify.")
        return SKIPPED
    missing = [module for module in needed(project) if not importable(module)]
    code = with_uv(missing) if missing else None
    return max(written, check(project) if code is None else code)


def check(project: Path) -> int:
    import smoke
    import validate

    code = validate.run(project)
    if code == WRONG:
        return code  # what does not agree is not worth starting
    return max(code, smoke.run(project))


def needed(project: Path) -> list[str]:
    """The packages that this project's checks import; each costs time, so none without need."""
    import smoke

    modules = ["jsonschema"]
    if (project / "compose.yaml").exists():
        modules.append("yaml")
    if smoke.plan(project).container:
        modules.append("docker")
    return modules


def importable(module: str) -> bool:
    spec = importlib.util.find_spec(module)
    return spec is not None and spec.origin is not None  # without an origin: a mere folder of that name


def with_uv(missing: list[str]) -> int | None:
    """Run this file where uv provides the packages; None if it cannot (it is absent, or there is no network)."""
    uv = os.environ.get("UV") or shutil.which("uv")
    names = listed(missing)
    if not uv:
        say("hooks", f"no uv here to bring {names}. To have every check: {COMMAND} ...")
        return None
    packages = [part for requirement in NEEDS.values() for part in ("--with", requirement)]
    # --isolated: an environment that happens to be active must neither help nor hinder.
    command = [uv, "run", "-qq", "--isolated", "--no-project", "--python", sys.executable, *packages, "python"]
    environment = {"UV_HTTP_TIMEOUT": "15", **os.environ}
    try:
        with subprocess.Popen([*command, __file__, "--here"], env=environment) as process:
            try:
                process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                say("hooks", f"fetching {names} with uv ...")
                process.wait()
            code = process.returncode
    except OSError as error:
        code = error.strerror
    if code in (FINE, WRONG, SKIPPED):
        return code
    say("hooks", f"uv could not provide {names} (offline?). To have every check: {COMMAND} ...")
    return None


def unmerged(project: Path) -> list[str]:
    """Files that the merge of `copier update` left in conflict, by git's index or by the marks in them."""
    if os.environ.get("COPIER_OPERATION") == "copy":
        return []
    names = {name for name in CHECKED if marked(project / name)}
    try:
        listing = subprocess.run(["git", "ls-files", "-u", "-z"], cwd=project, capture_output=True, text=True).stdout
    except OSError:  # no git: the marks say enough
        listing = ""
    names.update(entry.partition("\t")[2] for entry in listing.split("\0") if entry)
    rejected = project.glob("*.rej"), project.glob(".devcontainer/**/*.rej"), project.glob("cluster/*.rej")
    names.update(str(path.relative_to(project)) for paths in rejected for path in paths)
    return sorted(names)


def marked(path: Path) -> bool:
    try:
        return any(line.startswith(b"<<<<<<< ") for line in path.read_bytes().splitlines())
    except OSError:
        return False


def listed(names: list[str], most: int = 5) -> str:
    shown = [*names[:most], *([f"{len(names) - most} more"] if len(names) > most else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def say(hook: str, text: str) -> None:
    print(f"{hook}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
