"""Every command of ours in a sentence works where it is printed, in a project and outside of one.

The commands are taken from all sentences: the causes of doctor, verify, and the error texts, and what else is printed.
"""

from __future__ import annotations

import ast
import io
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import pytest
import yaml
from packaging.requirements import Requirement

from gpukit.cli.main import parse
from gpukit.cli.table import COMMANDS
from gpukit.doctor import main as doctor
from gpukit.errors.signs import NOTE, signs
from gpukit.findings import causes
from gpukit.findings import checks as findings
from gpukit.findings.causes import NATIVE, PROJECT, STANDALONE
from gpukit.host import stacks
from gpukit.host.cards import data
from gpukit.host.refusals import BUILD_KINDS
from gpukit.project.location import ADOPTED
from gpukit.project.messages import as_called
from gpukit.project.pyproject import matches
from gpukit.verify import main as verify
from tests.conftest import ROOT

SOURCE = ROOT / "gpukit/src/gpukit"
HARDWARE = list(data("cards"))
OURS = re.compile(r"`((?:\w+=\S+ )*(?:\./launch|gpukit|copier|uvx)(?: [^`]*)?)`")
OUTSIDE = ("adopt", "doctor", "plan", "verify", "setup", "explain", "vendor")  # vendor: by an installed gpukit
CHECKS = {"doctor": doctor.CHECKS, "verify": verify.CHECKS}
# Blanks in sentences that stand for one word; {answers} and {install} are filled in for each hardware.
BLANK = re.compile(r"\{[^}]*\}")


class Sentence(NamedTuple):
    where: str
    text: str
    project: bool

    @property
    def commands(self) -> list[str]:
        return OURS.findall(self.text)


def of_causes(project: bool, natively: bool = False) -> Iterator[Sentence]:
    """As explain, doctor, and verify print them."""
    place = (NATIVE if natively else PROJECT) if project else STANDALONE
    known = data("knowledge")
    for id in known["causes"] if project else outside():
        found = causes.cause(id)
        for text in (found.why, found.remedy, found.check):
            yield Sentence(id, causes.worded(text, place), project)
    for look in known["looks"].values():
        yield Sentence("look", causes.worded(look, place), project)
    for step in known["steps"]:
        yield Sentence("next step", causes.worded(step["look"], place), project)


def outside() -> set[str]:
    """The causes that can be printed outside of a project."""
    of_texts = {cause.id for sign in signs() for cause in sign.causes}
    return of_texts.union(*(each.causes for tool in CHECKS for each in checks(tool, project=False)))


def printed() -> Iterator[Sentence]:
    """All strings of the package that are not docstrings, as they stand in its source."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
                inner.add(id(node.body[0].value))
        for node in ast.walk(tree):
            if id(node) not in inner and isinstance(node, (ast.Constant, ast.JoinedStr)):
                parts = node.values if isinstance(node, ast.JoinedStr) else [node]
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
                yield Sentence(f"{path.relative_to(SOURCE)}:{node.lineno}", text, True)


def filled(command: str) -> Iterator[str]:
    """The command with real values in its blanks, for all hardware."""
    if re.search(r"\{answers?\}|launch update \{\}", command):
        yield from (BLANK.sub(lambda _, a=answer: a, command) for answer in pairs().values())
    elif "{next(" in command or re.search(r"--hardware (?:ID|\{\})", command):
        yield from (re.sub(r"(--hardware) \S+", rf"\1 {id}", command) for id in HARDWARE)
    else:
        command = command.replace("{version}", "1")
        yield BLANK.sub("x", re.sub(r"(?<=[a-z])\{[^}]*\}", "", command))  # options of their own, or none


@cache
def pairs() -> dict[tuple[str, str, str], str]:
    """What a project for one hardware must be answered for another, by pinned and current release."""
    found = {}
    for main in HARDWARE:
        for channel in ("current", "pin"):
            stack = replace(stacks.stack([main]), project="demo", channel=channel)
            for id in HARDWARE:
                if answer := stacks.update_answers(stack, id):
                    found[main, channel, id] = answer
    return found


@cache
def ids(tool: str, project: bool) -> set[str]:
    """The checks that there are here."""
    return {each.id for each in checks(tool, project)}


def checks(tool: str, project: bool) -> list[findings.Check]:
    return [each for each in CHECKS[tool] if (project or not each.project)]


@cache
def protected() -> list[str]:
    """What the base brings, of any hardware."""
    return sorted({name for id in HARDWARE for name in stacks.stack([id]).protected})


@cache
def why_not(command: str, project: bool) -> str:
    """Why the real parser refuses a command; empty if it does not."""
    words = shlex.split(command.replace("ID,..", "gpu"))
    while re.fullmatch(r"\w+=\S*", words[0]):
        words.pop(0)
    program, *arguments = words
    if program == "copier":
        return "" if project and arguments == ["recopy", "--trust"] else "`./launch update` runs Copier"
    if program == "uvx":
        return "" if "gpukit" in arguments else "not ours"
    if (program == "gpukit") is project and arguments[:1] != ["vendor"] and "explain" not in arguments:
        return f"not called {program} here"
    if arguments[-1:] == ["..."] and "run" not in arguments:
        arguments = [*arguments[:-1], "run", "--", "true"]
    if not arguments or arguments == ["--native"] or arguments == ["--help"]:
        return "" if project else "needs a project"
    errors = io.StringIO()
    try:
        with redirect_stderr(errors):
            options = parse(arguments)
            if not project and (options.command not in OUTSIDE or {"--cpu", "--native"} & {*arguments}):
                return "needs a project"
            if options.command in CHECKS:
                chosen = findings._parser(options.command, "", CHECKS[options.command], True).parse_args(options.rest)
                unknown = {*chosen.only, *chosen.skip} - ids(options.command, project)
                if unknown:
                    return f"no check {', '.join(unknown)}"
            if options.command == "update":
                return ", ".join({each.partition("=")[0] for each in options.answers or []} - {*questions()})
            if options.command == "add":
                for package in options.PKG:
                    name = Requirement(package.replace("VERSION", "1")).name
                    if matches(name, protected()):
                        return f"{name} comes with a base"
            if options.command == "setup" and options.hardware and options.hardware not in HARDWARE:
                return "no such hardware"
    except (SystemExit, ValueError) as error:
        return errors.getvalue() or str(error)
    return ""


@cache
def questions() -> dict:
    return yaml.safe_load((ROOT / "copier.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("project", "natively"), [(True, False), (True, True), (False, False)], ids=["project", "native", "standalone"]
)
def test_every_command_of_a_cause_is_accepted(project, natively) -> None:
    found = [(each.where, command) for each in of_causes(project, natively) for command in each.commands]
    assert len(found) > (200 if project else 50)
    assert [each for each in found if starts(each[1])[0] == "explain"] == []
    wrong = {
        (where, command, reason)
        for where, written in found
        for command in filled(written)
        if (reason := why_not(command, project))
    }
    assert sorted(wrong) == []


def test_every_command_that_is_printed_elsewhere_is_accepted() -> None:
    """Their modules speak of a project: outside of one, only what the test above covers is printed."""
    wrong = set()
    for each in printed():
        if each.where.startswith(("errors/", "findings/")) or not each.commands:
            continue
        for command in (real for written in each.commands for real in filled(written)):
            reason = why_not(command, not command.startswith("gpukit"))
            if reason:
                wrong.add((each.where, command, reason))
    assert sorted(wrong) == []


def test_native_commands_have_the_option() -> None:
    """In every sentence that explain and verify print in a native environment. apt.txt is for images."""
    with_option = {"build", "run", "shell", "notebook", "verify", "add", "logs", "stop"}
    found = list(of_causes(project=True, natively=True))
    commands = {command for each in found for command in each.commands if "./launch" in command}
    assert {each for each in commands if with_option & {*shlex.split(each)} and "--native" not in each} == set()
    assert [each for each in found if "to apt.txt and run" in each.text] == []


def test_outside_a_project_no_sentence_mentions_launch() -> None:
    assert [each for each in of_causes(project=False) if "./launch" in each.text] == []


def test_in_an_adopted_repository_sentences_name_its_files(tmp_path, monkeypatch) -> None:
    stack = tmp_path / ADOPTED["stack.json"]
    stack.parent.mkdir()
    stack.write_text('{"dependencies": ["pyproject.toml#dev", "more.txt"]}')
    monkeypatch.setenv("GPUKIT_PROJECT", str(tmp_path))
    forms = [text for each in data("knowledge")["causes"] for text in causes.cause(each)._asdict().values()]
    texts = [
        causes.worded(text, place) for text in forms if isinstance(text, (str, dict)) for place in (PROJECT, NATIVE)
    ]
    assert [text for text in texts if re.search(r"(?<![\w/])(apt\.txt|stack\.json|\.env(?![.\w])|vendor/)", text)] == []
    assert any(".gpukit/apt.txt" in text for text in texts)
    remedy = causes.cause("requirements-conflict").remedy
    assert "in pyproject.toml, more.txt or .gpukit/extra.txt" in causes.worded(remedy, PROJECT)
    assert (
        as_called("`A=1` in .env, not .env.example or x/apt.txt")
        == "`A=1` in .gpukit/.env, not .env.example or x/apt.txt"
    )
    stack.unlink()
    assert as_called("apt.txt") == "apt.txt"
    assert causes.worded(remedy, PROJECT).endswith("in pyproject.toml.")


# Remedies that lead back


def starts(command: str) -> tuple[str, set[str]]:
    """Which tool a command starts, and which of its checks."""
    words = shlex.split(command)
    tool = next((word for word in words if word in COMMANDS), "")
    if tool not in CHECKS:
        return tool, set()
    only = words[words.index("--only") + 1].split(",") if "--only" in words else ()
    return tool, {each.id for each in findings.select(CHECKS[tool], only)}


@pytest.mark.parametrize("project", [True, False], ids=["project", "standalone"])
def test_no_remedy_of_a_check_runs_that_check(project) -> None:
    wrong = []
    place = PROJECT if project else STANDALONE
    for tool in CHECKS:
        for check in checks(tool, project):
            for id in check.causes:
                remedy = causes.worded(causes.cause(id).remedy, place, {"source": "x", "answers": "x"})
                for command in OURS.findall(remedy):
                    if "--cpu" not in command and check.id in starts(command)[1] and starts(command)[0] == tool:
                        wrong.append((check.id, id, command))
    assert wrong == []


def test_remedies_of_signs_do_not_start_the_same_tool() -> None:
    """Signs of a kind are about engines, which doctor asks; those of verify are about what runs in the container."""
    wrong = []
    for sign in signs():
        for cause in sign.causes if sign.level != NOTE else ():
            for command in OURS.findall(causes.worded(cause.remedy, PROJECT)):
                tool, run = starts(command)
                if tool == "verify" or (tool == "doctor" and sign.kind and run & {"engine", "gpu", "running"}):
                    wrong.append((sign.id, cause.id, command))
                if sign.kind in BUILD_KINDS and command == "./launch build":
                    wrong.append((sign.id, cause.id, command))
    assert wrong == []


def test_a_look_asks_something_else_than_the_remedy() -> None:
    for place in causes.COMMANDS:
        for name, text in data("knowledge")["looks"].items():
            look = causes.worded(text, place)
            assert look or (place == STANDALONE and name == "build"), name
            assert starts(look.strip("`"))[0] != "explain"


# Copier's answers


def test_answers_are_accepted_by_the_rules_of_the_catalogue() -> None:
    """By what copier.yml asks: a release that is confirmed and serves all targets."""
    from catalogue import support

    assert all((main, "current", id) in pairs() for main in HARDWARE for id in HARDWARE if id not in (main, "cpu"))
    for (main, channel, id), answer in pairs().items():
        words = dict(part.split("=", 1) for part in shlex.split(answer) if part != "--answers")
        targets = [words.get("hardware", main), *yaml.safe_load(words.get("also_on", "[]"))]
        assert id in targets and len(targets) == len({*targets}), (main, channel, id, answer)
        base = words.get("base", stacks.stack([main]).base)
        assert support.current(base, targets, "minimal"), (main, id, answer)
        if channel == "current" and id != "cpu":  # the targets that there are stay, if a base supports both
            alone = main == "cpu" or not support.bases([main, id])
            assert alone == ("hardware" in words), (main, id, answer)


@pytest.mark.parametrize("hardware", HARDWARE)
def test_a_base_with_a_compiler_serves_all_hardware(hardware) -> None:
    assert stacks.releases_for("cuda", [hardware], "minimal")
