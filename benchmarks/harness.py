"""Shared by the benchmarks: options, a project from a clean clone, alternatives measured in turn, and the result file.

Each program is one command. `--rounds 1` is its smallest sample, and with `--print` it writes no file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from document import result_row

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "gpukit/src"), str(ROOT / "exactrun/src")]

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


def say(*words: object) -> None:
    """Progress, which is not part of the result."""
    print(*words, file=sys.stderr, flush=True)


def copier(*arguments: str | Path, env: dict[str, str] | None = None) -> str:
    return run(sys.executable, "-m", "copier", *arguments, env=env)


def commit(folder: Path) -> None:
    """Commit all files of a folder, which is made a repository if it is none."""
    run("git", "init", "--quiet", cwd=folder)
    run("git", "add", "--all", cwd=folder)
    run("git", "-c", "user.name=nobody", "-c", "user.email=nobody@example.org", "commit", "-qm", "files", cwd=folder)


def children() -> float:
    """CPU time in seconds (user and system) of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def in_turn(
    steps: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each step in each round.

    Every round runs all steps, every other one backwards, so that other load on the machine affects all of them.
    """
    seconds: dict[str, list[float]] = {what: [] for what in steps}
    for number in range(rounds + 1):
        order = list(steps) if number % 2 else list(reversed(steps))
        for what in order:
            started = clock()
            steps[what]()
            if number:  # the first round fills caches
                seconds[what].append(clock() - started)
        say(f"round {number} of {rounds}" + " (not counted)" * (not number))
    return seconds


def ratio(seconds: list[float], base: list[float]) -> float:
    """The median of the ratios within the rounds."""
    return statistics.median(one / other for one, other in zip(seconds, base, strict=True))


def machine() -> dict[str, Any]:
    """The class of this machine, without anything that identifies it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        system = platform.system()
    return {
        "class": f"{os.cpu_count()} CPUs ({platform.machine()}), {memory:.0f} GB of memory, {system}",
        "user": "root" if os.getuid() == 0 else "regular user",
    }


def load() -> float:
    """The number of processes that run or want to, mean of the last minute."""
    return round(os.getloadavg()[0], 1)


class Benchmark:
    """The options of a program, a spare folder, and its result, which is written when the `with` block ends.

    `packages` are the measured libraries; if there are none, the template's own tools are measured, with the `engine`
    if it is true. `options` are further options of the command line, with their defaults.
    """

    def __init__(
        self,
        title: str,
        description: str,
        rounds: int,
        engine: bool = False,
        packages: tuple[str, ...] = (),
        **options: str,
    ) -> None:
        self.name = Path(sys.argv[0]).stem
        self.title = title
        self.engine = engine
        self.packages = packages
        parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--rounds", type=int, default=rounds, help=f"how often each is measured ({rounds})")
        parser.add_argument("--print", action="store_true", help="print the result, and write no file")
        for name, value in options.items():
            parser.add_argument(f"--{name}", default=value, help=value or "all")
        self.given = parser.parse_args()
        self.rounds: int = self.given.rounds
        self.load = load()
        self.columns: list[str] = []
        self.rows: list[list[Any]] = []
        self.figures: list[dict[str, Any]] = []
        self.results: list[dict[str, Any]] = []
        self.notes: list[str] = []

    def __enter__(self) -> Benchmark:
        self.spare = Path(tempfile.mkdtemp(prefix="benchmark-"))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        shutil.rmtree(self.spare, ignore_errors=True)
        if kind is None:
            self.write()

    def template(self) -> Path:
        """A clean clone of this repository, tagged as a release, as a user's first `copier copy` gets it."""
        folder = self.spare / "template"
        if not folder.exists():
            run("git", "clone", "--quiet", ROOT, folder)
            run("git", "tag", TAG, cwd=folder)
        return folder

    def project(self, name: str = "project", **answers: str) -> Path:
        """A generated project, without its checks."""
        template = self.template()
        to = self.spare / name
        data = [part for key, value in answers.items() for part in ("--data", f"{key}={value}")]
        copier("copy", "--trust", "--defaults", "--quiet", "--skip-tasks", *data, template, to)
        vendor.put(writer.for_project(template / "gpukit"), to)
        return to

    def figure(self, what: str, seconds: list[float]) -> None:
        """Seconds of each round."""
        median = round(statistics.median(seconds), 3)
        self.figures.append({"what": what, "median": median, "seconds": [round(one, 3) for one in seconds]})

    def result(
        self,
        what: str,
        value: float | None,
        unit: str = "",
        at_most: float | None = None,
        at_least: float | None = None,
        digits: int | None = 2,
    ) -> None:
        """A value, rounded to `digits`, and perhaps its goal. None: it was not measured, or is not rounded."""
        rounded = value if value is None or digits is None else round(value, digits)
        found: dict[str, Any] = {"what": what, "value": rounded}
        if unit:
            found["unit"] = unit
        if at_most is not None:
            found["at_most"] = at_most
        if at_least is not None:
            found["at_least"] = at_least
        self.results.append(found)

    def row(self, *cells: Any) -> None:
        say(*cells)
        self.rows.append(list(cells))

    def command(self) -> str:
        """How to measure this again, without the addresses of this machine's mirrors."""
        mirrors = []
        if self.engine:
            mirrors = [f"{key}={os.environ[key]}" for key in ("BASE_IMAGE", "UV_INDEX") if key in os.environ]
        python = ["python"] if self.packages else ["uv", "run", "python"]
        words = [*mirrors, *python, f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]
        return re.sub(r"\w+://\S+", "URL", shlex.join(words))

    def versions(self) -> dict[str, str]:
        found = {"python": platform.python_version()}
        for name in self.packages or ("copier",):
            found[name] = version(name)
        if not self.packages:
            found["git"] = run("git", "--version").split()[2]
        if self.engine:
            found["docker"] = run("docker", "version", "--format={{.Server.Version}}").strip()
            found["buildx"] = run("docker", "buildx", "version").split()[1]
        return found

    def write(self) -> None:
        """Print the results; write them to results/, and update docs/benchmarks.md."""
        for one in self.results:
            print(*result_row(one), sep=": ")
        if self.given.print:
            return
        document = {
            "benchmark": self.name,
            "date": date.today().isoformat(),
            "commit": run("git", "rev-parse", "--short", "HEAD", cwd=ROOT).strip(),
            "command": self.command(),
            "machine": {**machine(), "load": self.load, "load_at_end": load()},
            "versions": self.versions(),
            "title": self.title,
            "repeats": self.rounds,
        }
        if self.figures:
            document["figures"] = self.figures
        if self.rows:
            document["table"] = {"columns": self.columns, "rows": self.rows}
        text = json.dumps({**document, "results": self.results, "notes": self.notes}, indent=2) + "\n"
        for private in (str(Path.home()), str(ROOT), tempfile.gettempdir(), socket.gethostname()):
            if re.search(rf"{re.escape(private)}\b", text):
                sys.exit(f"The result contains {private}, which belongs to this machine. It was not written.")
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{document['date']}-{self.name}.json").write_text(text, encoding="utf-8")
        run(sys.executable, Path(__file__).with_name("document.py"))
