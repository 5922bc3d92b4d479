"""What the benchmarks share: a project from a clean clone, medians measured side by side, and the file of a result."""

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
TAG = "v9999.0.0"  # the release under which the clone's last commit is copied from


def run(*argv: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """The output of a command that must succeed; where it fails, the end of what it said."""
    command = [str(part) for part in argv]
    done = subprocess.run(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        sys.exit(f"{shlex.join(command)}\n{done.stdout[-3000:]}\nended with exit status {done.returncode}.")
    return done.stdout


def clone(folder: Path) -> Path:
    """The last commit of this repository, clean and released: what somebody's first `copier copy` gets."""
    run("git", "clone", "--quiet", ROOT, folder)
    run("git", "tag", TAG, cwd=folder)
    return folder


def copier(*arguments: str | Path, env: dict[str, str] | None = None) -> str:
    return run(sys.executable, "-m", "copier", *arguments, env=env)


def generate(template: Path, to: Path, **answers: str) -> Path:
    """A project without its checks, which other benchmarks measure."""
    data = [part for key, value in answers.items() for part in ("--data", f"{key}={value}")]
    copier("copy", "--trust", "--defaults", "--quiet", "--skip-tasks", *data, template, to)
    vendor.put(writer.from_source(template / "gpukit"), to)
    return to


def children() -> float:
    """Seconds of CPU time, user and system, of the processes that were started from here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def side_by_side(
    steps: dict[str, Callable[[], object]], times: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each step, one after the other in every round, so that whatever else runs here meets all of them."""
    seconds: dict[str, list[float]] = {what: [] for what in steps}
    for number in range(times + 1):
        for what, step in steps.items():
            begun = clock()
            step()
            if number:  # the first round fills caches
                seconds[what].append(clock() - begun)
        print(f"round {number} of {times}" + " (not counted)" * (not number), file=sys.stderr, flush=True)
    return seconds


def machine() -> dict[str, Any]:
    """The class of this machine, in words that hold for any other of its kind."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        system = platform.system()
    return {
        "class": f"{os.cpu_count()} CPUs ({platform.machine()}), {memory:.0f} GB of memory, {system}",
        "load": round(os.getloadavg()[0], 1),
        "user": "root" if os.getuid() == 0 else "ordinary user",
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
    """The command line: how many rounds, and on which base."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--times", type=int, default=5, help="rounds that count (5)")
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", default=value, help=f"{value}" if value else "from the catalogue")
    return parser.parse_args()


def figure(what: str, seconds: list[float]) -> dict[str, Any]:
    return {"what": what, "median": round(statistics.median(seconds), 3), "seconds": [round(one, 3) for one in seconds]}


def write(name: str, load: float, engine: bool, packages: tuple[str, ...] = (), **result: Any) -> None:
    """Put a result where docs/benchmarks.md is made from, and make that.

    `packages` are the libraries measured; without any it is the template's own tools. A result has `value` and
    `at_most` or `at_least`; a `table` of `columns` and `rows` may stand above.
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
