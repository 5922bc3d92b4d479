"""`./launch update` between synthetic releases: every example, clean, edited, and in conflict.

uv run python benchmarks/update.py

The worst case is a release that changes everything, and a project in conflict with it. Others change one thing: the
base, the driver floor, a package's range, a question, a file, gpukit. Checked are the lines of the summary, the exit
code, the files in conflict, that `--check` changes nothing, and that `--undo` leaves the tree byte-identical. Copier
runs as for a user, in a process of its own. --rounds is the number of examples.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import yaml
from harness import NOBODY, ROOT, TAG, Benchmark, copier, run

from gpukit.cli.main import parse
from gpukit.update import main as launch
from gpukit.wheel import vendor, writer

COMMAND = ('CMD ["bash"]', 'CMD ["bash", "-l"]')
STATES = ("conflict", "edited", "clean")


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    if old not in text:
        raise SystemExit(f"{path} does not contain {old!r}.")
    path.write_text(text.replace(old, new), encoding="utf-8")


def base(template: Path) -> None:
    replace(template / "fragments/facts.jinja", "'image': item.image,", "'image': item.image ~ '.1',")


def floor(template: Path) -> None:
    facts = template / "fragments/facts.jinja"
    replace(facts, "'driver': item.driver if gpu else none", "'driver': '700.10' if gpu else none")
    replace(facts, "  'driver': item.driver,", "  'driver': '700.10',")


def package(template: Path) -> None:
    path = template / "template/pyproject.toml.jinja"
    replace(path, "dependencies = [\n", 'dependencies = [\n    "einops>=0.8",\n')


def question(template: Path) -> None:
    added = "\npager:\n  type: str\n  help: Which?\n  default: less\n\nadvanced:\n"
    replace(template / "copier.yml", "\nadvanced:\n", added)


def file(template: Path) -> None:
    (template / "template/extra.txt").write_text("extra\n")


def gpukit(template: Path) -> None:
    with (template / "gpukit/src/gpukit/doctor/driver.py").open("a", encoding="utf-8") as module:
        module.write("\n\ndef added() -> None:\n    pass\n")


def everything(template: Path) -> None:
    for change in (base, floor, package, question, file, gpukit):
        change(template)


RELEASES: dict[Callable[[Path], None], set[str]] = {
    everything: {"base", "driver", "packages", "answers", "files", "gpukit"},
    base: {"base", "files"},
    floor: {"driver", "files"},
    package: {"packages", "files"},
    question: {"answers"},
    file: {"files"},
    gpukit: {"gpukit"},
}


def commit(folder: Path) -> None:
    run("git", "add", "-A", cwd=folder)
    run("git", *NOBODY, "commit", "-qm", "x", cwd=folder)


def release(template: Path) -> None:
    """Tag a release for each change, with and without one that conflicts with the user's."""
    for change in RELEASES:
        for conflict in (False, True):
            run("git", "checkout", "-q", "--detach", TAG, cwd=template)
            change(template)
            if conflict:
                replace(template / "template/Dockerfile.jinja", *COMMAND)
            commit(template)
            run("git", "tag", f"{change.__name__}-{conflict}", cwd=template)
    run("git", "checkout", "-q", TAG, cwd=template)


def tree(folder: Path) -> dict[str, tuple]:
    paths = [path for path in folder.rglob("*") if path.relative_to(folder).parts[0] != ".git"]
    return {str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"") for path in paths}


def update(project: Path, *arguments: str) -> tuple[int, str]:
    os.environ["GPUKIT_PROJECT"] = str(project)
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
        code = launch.update(project, parse(["update", *arguments]))
    return code, output.getvalue()


def case(project: Path, change: Callable[[Path], None], state: str, gpu: bool, seconds: list[float]) -> list[str]:
    """Everything that is wrong about one update."""
    wrong = []
    before = tree(project)
    tag = f"{change.__name__}-{state == 'conflict'}"
    code, text = update(project, "--check", "--to", tag) if change is everything else (0, "")
    if tree(project) != before:
        wrong.append("--check changed files")
    started = time.perf_counter()
    code, text = update(project, "--to", tag)
    seconds.append(time.perf_counter() - started)
    lines = dict(line.split(maxsplit=1) for line in text.splitlines())
    expected = {"template", "next", *RELEASES[change]} | ({"conflicts"} if state == "conflict" else set())
    if not gpu:
        expected -= {"driver"}
    if change is floor and not gpu:
        expected -= {"files"}
    if set(lines) != expected or len(lines) > 10:
        wrong.append(f"the summary has {sorted(lines)}")
    if (code, lines.get("conflicts", "")) != ((1, "Dockerfile") if state == "conflict" else (0, "")):
        wrong.append(f"exit code {code}, conflicts {lines.get('conflicts')}")
    update(project, "--undo")
    if tree(project) != before or run("git", "status", "--porcelain", cwd=project):
        wrong.append("--undo left differences")
    return wrong


def copy(template: Path, answers: Path, state: str, project: Path) -> None:
    """A project in one of the states, in git."""
    data = ("--data-file", answers, "--vcs-ref", TAG)
    copier("copy", "--trust", "--defaults", "--quiet", "--skip-tasks", *data, template, project)
    vendor.put(writer.for_project(template / "gpukit"), project)
    if state != "clean":
        replace(project / "README.md", "## Start\n", "## What for\n\nPlates.\n\n## Start\n")
        (project / "own.txt").write_text("mine\n")
    if state == "conflict":
        replace(project / "Dockerfile", COMMAND[0], 'CMD ["zsh"]')
    run("git", "init", "-q", cwd=project)
    commit(project)


def main() -> None:
    with Benchmark("Updating a project", __doc__, rounds=5) as bench:
        seconds: list[float] = []
        good = 0
        release(bench.template())
        os.environ["GPU_TEMPLATE_SMOKE"] = "off"
        bench.columns = ["example", "updates with the expected summary, exit code, and undo"]
        for answers in sorted((ROOT / "examples").glob("*.yml"))[: bench.rounds]:
            gpu = yaml.safe_load(answers.read_text(encoding="utf-8")).get("hardware", "") != "cpu"
            right = 0
            for state in STATES:
                project = bench.spare / f"{answers.stem}-{state}"
                copy(bench.template(), answers, state, project)
                for change in RELEASES:
                    wrong = case(project, change, state, gpu, seconds)
                    right += not wrong
                    for what in wrong:
                        print(f"{answers.stem}, {state}, {change.__name__}: {what}")
                shutil.rmtree(project)
            good += right
            bench.row(f"`{answers.stem}`", f"{right} of {len(RELEASES) * len(STATES)}")
        bench.rounds = len(seconds)
        bench.figure("`./launch update`, with Copier", seconds)
        bench.result(f"updates of {len(seconds)} that are as expected", good, at_least=len(seconds))
        bench.notes = [
            "Each release changes one thing (base, driver floor, package, question, file, gpukit), the last one all. "
            "The projects are clean, edited, or in conflict with the release."
        ]


if __name__ == "__main__":
    main()
