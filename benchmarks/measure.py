"""Shared by the benchmarks: a project from a clean clone, measuring alternatives in turn, and writing results."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from document import result_row

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "gpukit/src"))

from gpukit.wheel import vendor, writer  # noqa: E402

RESULTS = Path(__file__).resolve().parent / "results"
TAG = "v9999.0.0"  # the tag of the clone's last commit, from which projects are copied


def run(*argv: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """The output of a command; if it fails, exit with the end of its output."""
    command = [str(part) for part in argv]
    done = subprocess.run(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        sys.exit(f"{shlex.join(command)}\n{done.stdout[-3000:]}\nexited with status {done.returncode}.")
    return done.stdout


def clone(folder: Path) -> Path:
    """A clean clone of this repository's last commit, tagged as a release, as a user's first `copier copy` gets it."""
    run("git", "clone", "--quiet", ROOT, folder)
    run("git", "tag", TAG, cwd=folder)
    return folder


def copier(*arguments: str | Path, env: dict[str, str] | None = None) -> str:
    return run(sys.executable, "-m", "copier", *arguments, env=env)


def generate(template: Path, to: Path, **answers: str) -> Path:
    """Generate a project without running its checks."""
    data = [part for key, value in answers.items() for part in ("--data", f"{key}={value}")]
    copier("copy", "--trust", "--defaults", "--quiet", "--skip-tasks", *data, template, to)
    vendor.put(writer.from_source(template / "gpukit"), to)
    return to


def children() -> float:
    """CPU time in seconds (user and system) of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def side_by_side(
    steps: dict[str, Callable[[], object]], times: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each step. Every round runs all steps, so that other load on the machine affects all of them."""
    seconds: dict[str, list[float]] = {what: [] for what in steps}
    for number in range(times + 1):
        for what, step in steps.items():
            started = clock()
            step()
            if number:  # the first round fills caches
                seconds[what].append(clock() - started)
        print(f"round {number} of {times}" + " (not counted)" * (not number), file=sys.stderr, flush=True)
    return seconds


def machine() -> dict[str, Any]:
    """The class of this machine, without anything that identifies it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        system = platform.system()
    return {
        "class": f"{os.cpu_count()} CPUs ({platform.machine()}), {memory:.0f} GB of memory, {system}",
        "load": round(os.getloadavg()[0], 1),
        "user": "root" if os.getuid() == 0 else "regular user",
    }


def versions(engine: bool, packages: tuple[str, ...] = ()) -> dict[str, str]:
    found = {"python": platform.python_version()}
    if packages:
        return found | {name: version(name) for name in packages}
    found |= {"copier": version("copier"), "git": run("git", "--version").split()[2]}
    if engine:
        found["docker"] = run("docker", "version", "--format={{.Server.Version}}").strip()
        found["buildx"] = run("docker", "buildx", "version").split()[1]
    return found


def options(description: str, **defaults: str) -> argparse.Namespace:
    """The command line: the number of rounds, and other options with their defaults."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--times", type=int, default=5, help="measured rounds (5)")
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", default=value, help=f"{value}" if value else "from the catalogue")
    return parser.parse_args()


def figure(what: str, seconds: list[float]) -> dict[str, Any]:
    return {"what": what, "median": round(statistics.median(seconds), 3), "seconds": [round(one, 3) for one in seconds]}


def write(name: str, load: float, engine: bool, packages: tuple[str, ...] = (), **result: Any) -> None:
    """Write a result to results/, and update docs/benchmarks.md.

    `packages` are the measured libraries; if there are none, the template's own tools were measured. Each of `results`
    has `value`, and can have `at_most` or `at_least`. Optionally, a `table` has `columns` and `rows`.
    """
    named = [key for key in ("BASE_IMAGE", "UV_INDEX") if engine and key in os.environ]
    mirrors = [f"{key}={os.environ[key]}" for key in named]
    document = {
        "benchmark": name,
        "date": date.today().isoformat(),
        "commit": run("git", "rev-parse", "--short", "HEAD", cwd=ROOT).strip(),
        "command": shlex.join(
            [
                *mirrors,
                *([] if packages else ["uv", "run"]),
                "python",
                f"benchmarks/{Path(sys.argv[0]).name}",
                *sys.argv[1:],
            ]
        ),
        "machine": {**machine(), "load": load},
        "versions": versions(engine, packages),
        **result,
    }
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{document['date']}-{name}.json"
    file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    for one in result["results"]:
        print(*result_row(one), sep=": ")
    run(sys.executable, Path(__file__).with_name("document.py"))
