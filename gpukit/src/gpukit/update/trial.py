"""Copier, and the copy of the project that it updates: nothing of the project itself is touched."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from gpukit.host import uv
from gpukit.host.git import Result, attempt, environment, git, last_line, run
from gpukit.project.location import ADOPTED, is_adopted
from gpukit.project.messages import RefusalError, say
from gpukit.project.stack import version
from gpukit.update.summary import Summary
from gpukit.update.template import Template

LEAST = "9.19.0"  # as in copier.yml
WITH = ("--with", "jsonschema>=4.23,<5", "--with", "docker>=7.1,<8")  # what the template's checks need
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "gpukit"), ("EMAIL", "gpukit"))
}
CONVERSIONS = r"^(core\.(autocrlf|eol|safecrlf|filemode|symlinks|excludesfile|attributesfile)|filter\..*)$"
# The hook's own codes, which it writes to the file that this variable names; hooks/run.py
RESULT = "GPU_TEMPLATE_RESULT"
FAILED = "10"
SECRETS = ("GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")  # not for code that is tested


@dataclass
class Look:
    """What an update would do, found on a copy of the project."""

    template: Template
    commit: str  # the template's, to which the project is updated
    name: str  # the same as Copier stores it
    old: str  # the template's commit that the project has
    old_name: str
    copy: Path
    valid: bool  # whether the hook found the result complete and consistent
    summary: Summary
    conflicts: list[str]  # entries of the index


def pairs(answers: list[str]) -> dict[str, str]:
    """The answers that are given as NAME=VALUE."""
    wrong = next((pair for pair in answers if not re.match(r"\w+=", pair)), "")
    if wrong:
        raise RefusalError(f"{wrong} is not an answer: write it as NAME=VALUE.", id="not-an-answer")
    return dict(pair.split("=", 1) for pair in answers)


def copier(folder: Path) -> list[str]:
    """The command that runs Copier: an installed one that is new enough, otherwise uv's."""
    installed = shutil.which("copier")
    if installed:
        answer = run([installed, "--version"], folder).out.split()
        if answer and version(answer[-1]) >= version(LEAST):
            return [installed]
    return [uv.program(), "tool", "run", "--from", f"copier>={LEAST},<10", *WITH, "copier"]


def duplicate(project: Path, folder: Path) -> Path:
    """A repository whose one commit is the project's last, in `folder`. It reads the project's objects in place."""
    copy = folder / "project"
    prefix = git(project, "rev-parse", "--show-prefix").strip("\n").rstrip("/")
    tree = git(project, "rev-parse", f"HEAD:{prefix}").strip()
    common = Path(project, git(project, "rev-parse", "--git-common-dir").strip("\n")).resolve()
    git(folder, "init", "-q", "--template=", str(copy))
    (copy / ".git/info").mkdir()
    (copy / ".git/objects/info").mkdir(exist_ok=True)
    (copy / ".git/objects/info/alternates").write_text(f"{common / 'objects'}\n", encoding="utf-8")
    for name in ("info/exclude", "shallow"):
        if (common / name).is_file():
            shutil.copyfile(common / name, copy / ".git" / name)
    for entry in attempt(project, "config", "--local", "-z", "--get-regexp", CONVERSIONS).out.split("\0"):
        if entry:
            git(copy, "config", *entry.partition("\n")[::2])
    commit = git(copy, "commit-tree", tree, "-m", "before the update", **IDENTITY).strip()
    git(copy, "update-ref", "HEAD", commit)
    git(copy, "reset", "-q", "--hard")
    return copy


def update(copy: Path, template: Template, commit: str, answers: list[str] | None) -> bool:
    """Let Copier update the copy; returns whether the hook found the result complete and consistent.

    `answers`: NAME=VALUE; an empty list: ask the questions; None: keep the answers.
    """
    result = copy.parent / "result"
    command = [*copier(copy.parent), "update", "--trust", "--quiet", f"--vcs-ref={commit}"]
    if is_adopted(copy):
        command.append(f"--answers-file={ADOPTED['.copier-answers.yml']}")
    for pair in answers or []:
        command += ["--data", pair]
    if answers == []:
        command.append(str(copy))
        variables = {**environment(), **settings(result), **template.redirected}
        code = subprocess.run(command, env=without_secrets(variables), check=False).returncode
        error = ""
    else:
        note = "Copier updates a copy of the project ..."
        variables = {**settings(result), **template.redirected, **blanked()}
        done = quietly([*command, "--defaults", str(copy)], copy.parent, note, variables)
        code = done.code
        error = last_line(done)
    if code:
        reason = sentence(error) or "its message is above"
        raise RefusalError(f"Copier could not update, and nothing was changed: {reason}", id="copier-failed")
    try:
        return result.read_text(encoding="utf-8").strip() != FAILED
    except OSError:  # the hook did not run
        return True


def quietly(command: list[str], folder: Path, note: str, variables: dict[str, str]) -> Result:
    """Run Copier, and say only what the hook reports."""
    done = run(command, folder, note, **variables)
    for line in (done.err + done.out).splitlines():
        if line.startswith(("validate: ", "hooks: ", "wheel: ")):
            say(line)
    return done


def sentence(error: str) -> str:
    """The template's own sentence about a wrong answer, without the words that Copier puts around it."""
    match = re.fullmatch(r"""'None' has no attribute ('.*'|".*")""", error)
    return str(ast.literal_eval(match[1])) if match else error


def settings(result: Path) -> dict[str, str]:
    return {RESULT: str(result), "GPU_TEMPLATE_SMOKE": "off", "PYTHONDONTWRITEBYTECODE": "1"}


def without_secrets(variables: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name not in SECRETS}


def blanked() -> dict[str, str]:
    return dict.fromkeys((name for name in SECRETS if name in os.environ), "")
