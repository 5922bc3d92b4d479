"""`./launch update` to a synthetic release that changes everything: every example, clean, edited, and in conflict.

uv run python benchmarks/update.py

Checked are the lines of the summary, the exit code, the file in conflict, and that `--undo` leaves the tree
byte-identical; what each kind of change shows alone is in tests/test_launch_update.py. Copier runs as for a user, in a
process of its own. --rounds is the number of examples.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from pathlib import Path

from harness import ROOT, TAG, Benchmark, children, commit, copier, run

from gpukit.cli.main import parse
from gpukit.plan import extensions
from gpukit.update import main as launch
from gpukit.wheel import vendor, writer

COMMAND = ('CMD ["bash"]', 'CMD ["bash", "-l"]')
STATES = ("conflict", "edited", "clean")
NEW = "v9999.1.0"
QUESTION = "\npager:\n  type: str\n  help: Which?\n  default: less\n\nadvanced:\n"
LABELS = {"template", "answers", "packages", "files", "gpukit", "next"}


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    if old not in text:
        raise SystemExit(f"{path} does not contain {old!r}.")
    path.write_text(text.replace(old, new), encoding="utf-8")


def release(template: Path) -> None:
    """Another question, package, file, gpukit, and command of the image."""
    replace(template / "copier.yml", "\nadvanced:\n", QUESTION)
    requires = "dependencies = [\n"
    replace(template / "template/pyproject.toml.jinja", requires, f'{requires}    "einops>=0.8",\n')
    replace(template / "template/Dockerfile.jinja", *COMMAND)
    (template / "template/extra.txt").write_text("extra\n")
    with (template / "gpukit/src/gpukit/doctor/driver.py").open("a", encoding="utf-8") as module:
        module.write("\n\ndef added() -> None:\n    pass\n")
    run(sys.executable, "catalogue/combine.py", cwd=template)
    commit(template)
    run("git", "tag", NEW, cwd=template)


def tree(folder: Path) -> dict[str, tuple]:
    paths = [path for path in folder.rglob("*") if path.relative_to(folder).parts[0] != ".git"]
    return {str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"") for path in paths}


def update(project: Path, *arguments: str) -> tuple[int, str]:
    os.environ["GPUKIT_PROJECT"] = str(project)
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
        code = launch.update(project, parse(["update", *arguments]), extensions.renew)
    return code, output.getvalue()


def case(project: Path, state: str) -> tuple[float, list[str]]:
    """The CPU time of an update, with Copier's, and everything that is wrong about it."""
    wrong = []
    before = tree(project)
    begun = children() + time.process_time()
    code, text = update(project)
    seconds = children() + time.process_time() - begun
    lines = dict(line.split(maxsplit=1) for line in text.splitlines())
    conflicts = "Dockerfile" if state == "conflict" else ""
    if {*lines} != LABELS | ({"conflicts"} if conflicts else set()) or len(lines) > 10:
        wrong.append(f"the summary has {sorted(lines)}")
    if (code, lines.get("conflicts", "")) != (int(bool(conflicts)), conflicts):
        wrong.append(f"exit code {code}, conflicts {lines.get('conflicts')}")
    update(project, "--undo")
    if tree(project) != before or run("git", "status", "--porcelain", cwd=project):
        wrong.append("--undo left differences")
    return seconds, wrong


def copy(template: Path, answers: Path, state: str, project: Path) -> None:
    """A project in one of the states, in git."""
    data = ("--data-file", answers, "--vcs-ref", TAG)
    copier("copy", "--trust", "--defaults", "--quiet", "--skip-tasks", *data, template, project)
    vendor.put(writer.for_project(ROOT / "gpukit"), project)
    if state != "clean":
        replace(project / "README.md", "## Start\n", "## What for\n\nPlates.\n\n## Start\n")
        (project / "own.txt").write_text("mine\n")
    if state == "conflict":
        replace(project / "Dockerfile", COMMAND[0], 'CMD ["zsh"]')
    commit(project)


def main() -> None:
    with Benchmark("Updating a project", __doc__, rounds=5) as bench:
        template = bench.template()
        release(template)
        os.environ["GPU_TEMPLATE_SMOKE"] = "off"
        bench.columns = ["example", "updates with the expected summary, exit code, and undo"]
        taken = []
        good = 0
        for answers in sorted((ROOT / "examples").glob("*.yml"))[: bench.rounds]:
            right = 0
            for state in STATES:
                project = bench.spare / f"{answers.stem}-{state}"
                copy(template, answers, state, project)
                seconds, wrong = case(project, state)
                taken.append(seconds)
                right += not wrong
                for what in wrong:
                    print(f"{answers.stem}, {state}: {what}")
            good += right
            bench.row(f"`{answers.stem}`", f"{right} of {len(STATES)}")
        bench.rounds = len(taken)
        bench.figure("`./launch update`, with Copier, CPU time", taken)
        bench.result(f"updates of {len(taken)} that are as expected", good, at_least=len(taken))
        bench.notes = [
            "The release has another question, package, file, gpukit, and command. The projects are clean, "
            "edited, or in conflict with it."
        ]


if __name__ == "__main__":
    main()
