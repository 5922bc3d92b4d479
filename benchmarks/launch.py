"""The cost of `./launch`: uv run python benchmarks/launch.py

`./launch run -- true` compared with the same `docker run`, as printed by `./launch --dry-run`. The project has no GPU,
so any engine can run it; launch does the same work with a GPU. BASE_IMAGE and UV_INDEX name mirrors, as in a project.

`./launch --help`, in CPU time, from the wheel and from the unpacked wheel, compared with `python3 -c pass`. All use the
interpreter itself, not a wrapper such as pyenv's shims, which takes longer than everything else. PATH contains it as
distributions install it, as python3 and for example python3.11. If only python3 exists, launch starts it once more to
get its version.
"""

from __future__ import annotations

import resource
import shlex
import shutil
import statistics
import tempfile
import zipfile
from pathlib import Path

from measure import clone, figure, generate, machine, options, run, side_by_side, write

HELP = 25  # rounds of `--help`, which takes milliseconds
RUN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from gpukit.cli.main import main; sys.exit(main())"


def cpu() -> float:
    """CPU time in seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def startup(project: Path, spare: Path) -> dict[str, list[float]]:
    """CPU time in seconds of `--help` and of Python itself, measured in turn."""
    python = next(path for path in ("/usr/bin/python3", shutil.which("python3")) if path and Path(path).exists())
    tools = spare / "bin"
    tools.mkdir()
    versioned = Path(python).resolve().name  # python3.11
    for tool, path in {"sh": "sh", "dirname": "dirname", "python3": python, versioned: python}.items():
        (tools / tool).symlink_to(shutil.which(path) or path)
    wheel = next((project / "vendor").glob("gpukit-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(spare / "unpacked")
    env = {"PATH": str(tools), "HOME": str(spare)}
    commands = {
        "`python3 -c pass`": [python, "-c", "pass"],
        "`--help`, unpacked": [python, "-I", "-S", "-c", RUN, str(spare / "unpacked"), "--help"],
        "`--help`, from the wheel": [python, "-I", "-S", "-c", RUN, str(wheel), "--help"],
        "`./launch --help`": [str(project / "launch"), "--help"],
    }
    seconds: dict[str, list[float]] = {what: [] for what in commands}
    for number in range(HELP + 1):
        for what, command in commands.items():
            before = cpu()
            run(*command, env=env)
            if number:
                seconds[what].append(cpu() - before)
    return seconds


def main() -> None:
    given = options(__doc__, base="wheel")
    load = machine()["load"]
    with tempfile.TemporaryDirectory(prefix="benchmark-") as spare:
        template = clone(Path(spare) / "template")
        answers = {"project_name": "Benchmark of launch", "hardware": "cpu", "workflow": "scripts", "base": given.base}
        project = generate(template, Path(spare) / "project", **answers)
        launch = project / "launch"
        print("building the image ...", flush=True)
        run(launch, "run", "--", "true")  # this also creates the mounted folders
        by_hand = shlex.split(run(launch, "--dry-run", "run", "--", "true").strip().splitlines()[-1])
        tag = by_hand[-2]
        try:
            steps = {
                "`docker run` with the same flags": lambda: run(*by_hand, cwd=project),
                "`./launch run -- true`": lambda: run(launch, "run", "--", "true"),
            }
            seconds = side_by_side(steps, given.times)
        finally:
            run("docker", "image", "rm", "--force", tag)
        help_seconds = startup(project, Path(spare))
    hand, launched = (statistics.median(one) for one in seconds.values())
    python, unpacked, wheel, whole = (statistics.median(one) for one in help_seconds.values())
    write(
        "launch",
        load,
        engine=True,
        title="Starting a container",
        repeats=given.times,
        figures=[figure(what, one) for what, one in {**seconds, **help_seconds}.items()],
        results=[
            {"what": "added by `./launch run`", "value": round(launched - hand, 2), "unit": "s", "at_most": 0.3},
            {"what": "`--help` from the wheel / unpacked", "value": round(wheel / unpacked, 2), "at_most": 1.25},
            {"what": "`./launch --help` / `python3 -c pass`", "value": round(whole / python, 2), "at_most": 3.5},
        ],
        notes=["`docker run` and `./launch run`: elapsed time. The other rows: CPU time."],
    )


if __name__ == "__main__":
    main()
