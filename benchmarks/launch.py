"""The cost of `./launch`, beside `docker run`: uv run python benchmarks/launch.py

`./launch run -- true` compared with the same `docker run`, as printed by `./launch --dry-run`. The project has no GPU,
so any engine can run it; launch does the same work with a GPU. BASE_IMAGE and UV_INDEX name mirrors, as in a project.

`./launch --help`, in CPU time, compared with `python3 -c pass`. The worst case is a PATH with only python3: launch
starts it once more to get its version. Otherwise, PATH contains it as distributions install it, as python3 and for
example python3.11. All use the interpreter itself, not a wrapper such as pyenv's shims, which takes longer than
everything else.
"""

from __future__ import annotations

import shlex
import shutil
import statistics
import zipfile
from pathlib import Path

from harness import Benchmark, children, in_turn, ratio, run, say

HELP = 25  # rounds of `--help`, which takes milliseconds
CALL = "import sys; sys.path.insert(0, sys.argv.pop(1)); from gpukit.cli.main import main; sys.exit(main())"


def docker_run(project: Path) -> list[str]:
    """The command that `./launch run -- true` runs."""
    return shlex.split(run(project / "launch", "--dry-run", "run", "--", "true").strip().splitlines()[-1])


def environment(spare: Path, name: str, python: str, *called: str) -> dict[str, str]:
    """One whose PATH has nothing else but what ./launch needs, and Python under these names."""
    folder = spare / name
    folder.mkdir()
    for tool in ("sh", "dirname"):
        (folder / tool).symlink_to(shutil.which(tool))
    for each in called:
        (folder / each).symlink_to(python)
    return {"PATH": str(folder), "HOME": str(spare)}


def startup(project: Path, spare: Path, rounds: int) -> dict[str, list[float]]:
    """CPU time in seconds of `--help` and of Python itself."""
    python = next(path for path in ("/usr/bin/python3", shutil.which("python3")) if path and Path(path).exists())
    only = environment(spare, "only", python, "python3")
    env = environment(spare, "both", python, "python3", Path(python).resolve().name)  # python3.11
    wheel = next((project / "vendor").glob("gpukit-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(spare / "unpacked")
    steps = {
        "only python3 in PATH": lambda: run(project / "launch", "--help", env=only),
        "`./launch --help`": lambda: run(project / "launch", "--help", env=env),
        "`--help`, from the wheel": lambda: run(python, "-I", "-S", "-c", CALL, wheel, "--help", env=env),
        "`--help`, unpacked": lambda: run(python, "-I", "-S", "-c", CALL, spare / "unpacked", "--help", env=env),
        "`python3 -c pass`": lambda: run(python, "-c", "pass", env=env),
    }
    return in_turn(steps, rounds, children)


def main() -> None:
    with Benchmark("Starting a container", __doc__, rounds=9, engine=True, base="wheel") as bench:
        answers = {"project_name": "Benchmark of launch", "hardware": "cpu", "workflow": "scripts"}
        answers["base"] = bench.given.base
        project = bench.project(**answers)
        say("building the image ...")
        run(project / "launch", "run", "--", "true")  # this also creates the mounted folders
        by_hand = docker_run(project)
        steps = {
            "`docker run` with the same flags": lambda: run(*by_hand, cwd=project),
            "`./launch run -- true`": lambda: run(project / "launch", "run", "--", "true"),
        }
        try:
            elapsed = in_turn(steps, bench.rounds)
            used = in_turn(steps, bench.rounds, children)
        finally:
            run("docker", "image", "rm", "--force", by_hand[-2])
        helped = startup(project, bench.spare, min(HELP, 5 * bench.rounds))

        for what, seconds in elapsed.items():
            bench.figure(f"{what}, elapsed", seconds)
        for what, seconds in {**used, **helped}.items():
            bench.figure(f"{what}, CPU time", seconds)
        hand, ours = elapsed.values()
        added = statistics.median(ours) - statistics.median(hand)
        bench.result("added by `./launch run`", added, "s", at_most=0.3)
        hand, ours = used.values()
        added = statistics.median(ours) - statistics.median(hand)
        bench.result("added by `./launch run`, CPU time", added, "s", at_most=0.3)
        only, ours, wheel, unpacked, python = helped.values()
        bench.result("`./launch --help` / `python3 -c pass`, only python3 in PATH", ratio(only, python), "times")
        bench.result("`--help` from the wheel / unpacked", ratio(wheel, unpacked), "times", at_most=1.25)
        bench.result("`./launch --help` / `python3 -c pass`", ratio(ours, python), "times", at_most=3.5)
        bench.notes = [
            "Ratios are medians of those within each round. Other load on the machine adds to the elapsed time.",
            "The CPU time of `docker run` is that of the client: the engine's own is not counted in any row.",
        ]


if __name__ == "__main__":
    main()
