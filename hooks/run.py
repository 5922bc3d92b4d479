"""Copier runs this in a generated project: write the wheel, validate, smoke test. Standard library only.

    python hooks/run.py [MESSAGE]      MESSAGE is printed at the end; Copier does not print its own with --quiet

Exit code 1 means "what was generated is wrong" and nothing else: on a first copy it makes Copier delete the project.
If a check cannot run (no Docker, no network, no uv, a merge conflict, a crash in a hook), one line reports it and the
exit code is 0, or 1 if GPU_TEMPLATE_STRICT is set. GPU_TEMPLATE_SMOKE is auto, build, or off (see smoke.py).
After an update, a summary is printed. `./launch update` prints its own: it sets GPU_TEMPLATE_RESULT to a file, to which
the internal code is written; the exit code is then 0.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

TEMPLATE = Path(__file__).resolve().parents[1]
sys.path.insert(1, str(TEMPLATE / "gpukit/src"))  # after this folder
# Internal codes: Python and uv exit with 1 or 2 on their own errors, which must differ from FAILED.
PASSED = 0
FAILED = 10
SKIPPED = 11
RESULT = "GPU_TEMPLATE_RESULT"
CHILD = "--child"  # set in the second process, for which uv provides the packages


def main() -> int:
    sys.dont_write_bytecode = True  # imports must leave nothing in the project or in the template's clone
    project = Path.cwd()
    message = next((argument for argument in sys.argv[1:] if argument != CHILD), "")
    try:
        if CHILD in sys.argv[1:]:
            return guarded(check, project)
        code = max(guarded(put_wheel, project), guarded(start, project), key=[PASSED, SKIPPED, FAILED].index)
    except KeyboardInterrupt:
        if CHILD not in sys.argv[1:]:  # Ctrl-C reaches both processes, and one of them answers
            say("hooks", "interrupted. If the wheel is missing, `./launch` prints the command that adds it.")
        return 0 if "COPIER_OPERATION" in os.environ else 130  # Copier handles Ctrl-C itself
    if os.environ.get(RESULT):
        Path(os.environ[RESULT]).write_text(str(code), encoding="utf-8")
        return 0
    if os.environ.get("COPIER_OPERATION") == "update":
        guarded(summarize, project)
    if code == FAILED:
        return 1
    if message:
        print(f"\n{message.strip()}", file=sys.stderr, flush=True)
    return 1 if code != PASSED and os.environ.get("GPU_TEMPLATE_STRICT") else 0


def guarded(step: Callable[[Path], int], project: Path) -> int:
    try:
        return step(project)
    except Exception as error:  # a defect in a hook is not a defect in the project
        if os.environ.get("GPU_TEMPLATE_DEBUG"):
            import traceback

            traceback.print_exc()
        lines = str(error).splitlines() or [""]
        say("hooks", f"could not run: {type(error).__name__}: {lines[0]} (GPU_TEMPLATE_DEBUG=1 shows where).")
        return SKIPPED


def put_wheel(project: Path) -> int:
    """Write this template's gpukit to vendor/. A failure is only reported: exit code 1 would delete the project."""
    from gpukit.wheel import vendor, writer

    try:
        vendor.put(writer.for_project(TEMPLATE / "gpukit"), project)
    except OSError as error:
        say("wheel", f"not written: {error.strerror or error}. `./launch` prints the command that adds it.")
        return SKIPPED
    return PASSED


def summarize(project: Path) -> int:
    """Print what the update has changed."""
    from gpukit.host import facts
    from gpukit.project.messages import RefusalError
    from gpukit.update import summary

    with contextlib.suppress(RefusalError):  # no git
        print(summary.compare(project, facts.driver(), facts.jetson_release()).text("hook"), flush=True)
    return PASSED


def start(project: Path) -> int:
    """Run the checks with the packages of this interpreter, or of one that uv provides, or without them."""
    conflicts = unmerged(project)
    if conflicts:
        from gpukit.project.messages import some

        say("validate", f"not run: merge conflicts in {some(conflicts)}. Resolve them, then run ./launch validate.")
        return SKIPPED
    from gpukit.host import uv

    missing = [module for module in needed(project) if not uv.importable(module)]
    code = uv.python(missing, [__file__, CHILD], lambda text: say("hooks", text)) if missing else None
    return code if code in (PASSED, FAILED, SKIPPED) else check(project)


def check(project: Path) -> int:
    from gpukit.validate import main as validation

    # put_wheel has reported what is wrong with the wheel; who reads the result needs no line that all is well
    code = validation.run(project, wheel=False, brief=RESULT in os.environ)
    if code == FAILED or not smoke_enabled():
        return code  # do not start a project that failed validation
    import smoke

    return max(code, smoke.run(project))


def smoke_enabled() -> bool:
    return os.environ.get("GPU_TEMPLATE_SMOKE") != "off"


def needed(project: Path) -> list[str]:
    """The packages that the checks of this project import. Each takes time, so only those."""
    from gpukit.validate import main as validation

    modules = list(validation.PARTS)
    if smoke_enabled():
        import smoke

        if smoke.plan(project).container:
            modules.append("docker")
    return modules


def unmerged(project: Path) -> list[str]:
    """Files that `copier update` left in conflict, according to git's index or by the conflict markers in them."""
    if os.environ.get("COPIER_OPERATION") == "copy":
        return []
    import subprocess

    from gpukit.project.location import located
    from gpukit.validate import files

    names = {name for name in files.generated(project) if b"\n<<<<<<< " in b"\n" + located(name, project).read_bytes()}
    try:
        listing = subprocess.run(["git", "ls-files", "-u", "-z"], cwd=project, capture_output=True, text=True).stdout
    except OSError:  # no git: the markers are enough
        listing = ""
    names.update(entry.partition("\t")[2] for entry in listing.split("\0") if entry)
    rejected = project.glob("*.rej"), project.glob(".devcontainer/**/*.rej"), project.glob("cluster/*.rej")
    names.update(str(path.relative_to(project)) for paths in rejected for path in paths)
    return sorted(names)


def say(hook: str, text: str) -> None:
    print(f"{hook}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
