"""Check a project's generated files: each against its schema, and the files against each other.

The schemas are in schemas/, the rules in the other modules. Nothing is written, and values of variables are not
printed, because they could be secrets. The schemas need jsonschema and compose.yaml needs PyYAML, which uv provides;
without them, everything else is still checked. Each cause is reported once: a file is compared with others only if
nothing is wrong in it.
"""

from __future__ import annotations

import json
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpukit.host import uv
from gpukit.project import devcontainer, keys
from gpukit.project.messages import RefusalError, say
from gpukit.validate import files, image, rules, secrets
from gpukit.validate.container import Container, from_devcontainer
from gpukit.validate.problem import COMPOSE, COMPOSE_CPU, CPU, HOST_ENV, MAIN, RESTORE, STACK, Problem
from gpukit.validate.schema import schema_problems

PASSED, FAILED, SKIPPED = 0, 10, 11  # Python and uv exit with 1 or 2 on their own errors, which must differ from FAILED
# The host environment for which both files are read. They are compared for each way to set GPUS.
HOST = {"HOME": "/home/you", "USER": "you", "BASE_IMAGE": "mirror/base:1", "UV_INDEX": "pytorch=https://mirror/whl"}
CHOICES = ({}, {"GPUS": "0"}, {"GPUS": "0,1"}, {"GPUS": "GPU-8f7c2d31"})


def command(project: Path | None) -> int:
    """`./launch validate`: 0 if nothing is wrong, 1 if a file is, 2 if something could not be checked."""
    if project is None:
        raise RefusalError("This is not a generated project: no folder from here upward has stack.json.")
    missing = [module for module in needed(project) if not uv.importable(module)]
    code = None
    if missing:
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}  # a folder, or the wheel
        code = uv.python(missing, ["-m", "gpukit.validate", str(project)], lambda text: say(f"validate: {text}"), env)
    if code not in (PASSED, FAILED, SKIPPED):
        code = run(project)
    return {PASSED: 0, FAILED: 1}.get(code, 2)


def needed(project: Path) -> list[str]:
    """The packages for checking this project. Each takes time to import, so only those."""
    return ["jsonschema", *["yaml"] * (project / COMPOSE).exists()]


def run(project: Path, wheel: bool = True) -> int:
    """Print the problems, or one line if there are none, and return PASSED, FAILED, or SKIPPED."""
    validation = Validation(project, wheel)
    problems = validation.problems()
    for problem in problems:
        print(f"validate: {problem}", file=sys.stderr)
    skipped = f"; not checked: {' and '.join(validation.skipped)}" if validation.skipped else ""
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        print(f"validate: {count}; nothing was changed{skipped}.", file=sys.stderr, flush=True)
        return FAILED
    print(f"validate: {', '.join(validation.read)} are complete and agree{skipped}.", flush=True)
    for notice in validation.notices:
        print(f"validate: notice: {notice}", flush=True)
    return SKIPPED if validation.skipped else PASSED


class Validation:
    """One check of one project: what was read, what was found, and what could not be checked."""

    def __init__(self, project: Path, wheel: bool = False) -> None:
        self.project, self.wheel = project, wheel
        self.read: list[str] = []
        self.skipped: list[str] = []
        self.found: list[Problem] = []
        self.notices: list[str] = []
        self.misspelled: list[Problem] = []  # the same problems, at the place that was meant
        self.validator: Any = None
        try:
            from jsonschema.validators import Draft202012Validator
        except ImportError:
            self.skipped.append("the schemas (no jsonschema here)")
        else:
            self.validator = Draft202012Validator

    def problems(self) -> list[Problem]:
        stack = self.file(STACK, lambda path: json.loads(path.read_text(encoding="utf-8")), "stack")
        gpu = stack is not None and self.apply_rule(rules.has_gpu, stack)
        if self.clean(STACK):
            self.apply_rule(rules.targets, stack)
        if not self.clean(STACK):
            stack = None
        self.apply_rule(files.scripts, self.project)
        if self.wheel:
            self.apply_rule(files.wheel, self.project)
        self.apply_rule(files.environment, self.project)
        configs = self.configurations(gpu)
        for name, raw in configs.items():
            self.configuration(name, raw, gpu)
        passed = [(name, raw) for name, raw in configs.items() if self.clean(name, "/build")]
        args: dict[str, list[str]] = {}
        for name, raw in passed:
            for arg in raw["build"]["args"]:
                args.setdefault(arg, []).append(name)
        self.apply_rule(image.dockerfile, self.project, args, stack or {})
        self.apply_rule(files.pyproject, self.project, stack or {})
        if stack is not None:
            self.notices += filter(None, [self.apply_rule(rules.ending, stack)])
            self.compare_with_stack(configs, stack, gpu)
        self.compose(configs)
        self.apply_rule(secrets.env_file_secrets, self.project, HOST_ENV)
        for name in (MAIN, CPU, HOST_ENV, COMPOSE, COMPOSE_CPU, "Dockerfile", ".env.example"):
            self.apply_rule(secrets.secret_values, self.project, name)
        return list(dict.fromkeys(self.found))

    def configurations(self, gpu: bool) -> dict[str, Any]:
        """The contents of both devcontainer.json, as far as they can be read."""
        found = {}
        for name in (MAIN, CPU):
            if name == CPU and not (self.project / CPU).exists():
                if gpu:
                    self.found.append(Problem(CPU, "", "is missing", f"{RESTORE}: laptops and CI have no GPU"))
                continue
            raw = self.file(name, devcontainer.read, "devcontainer")
            if raw is not None:
                found[name] = raw
        return found

    def configuration(self, name: str, raw: Mapping[str, Any], gpu: bool) -> None:
        """What can be checked in one devcontainer.json alone."""
        self.apply_rule(secrets.devcontainer_secrets, name, raw)
        self.apply_rule(rules.options, name, raw)
        self.apply_rule(rules.regular_user, name, raw)
        self.apply_rule(files.env_files, self.project, name, raw)
        self.apply_rule(files.initialize, self.project, name, raw, gpu)
        config = self.config(name, {"GPUS": "0,1"})
        self.apply_rule(rules.values, config, name)
        self.apply_rule(files.build, self.project, name, config)
        self.apply_rule(rules.safe, name, self.container(name))
        if name == CPU:
            self.apply_rule(rules.without_gpu, raw, self.container(name))

    def compare_with_stack(self, configs: Mapping[str, Any], stack: Mapping[str, Any], gpu: bool) -> None:
        """The files that must agree with stack.json. Where several disagree in the same way, stack.json is wrong."""
        if MAIN in configs:
            first = self.container(MAIN, {"GPUS": "0"})
            self.apply_rule(rules.gpu_request, self.container(MAIN), first, stack)
            self.apply_rule(files.mount_sources, self.project, configs[MAIN], self.config(MAIN), stack)
        for rule in (rules.memory, rules.user, rules.mounts):
            found = [self.applied(rule, name, raw, self.container(name), stack) for name, raw in configs.items()]
            self.found += blamed(found)
        self.found += blamed([self.applied(rule, self.project, stack) for rule in (image.base, rules.readme)])

    def compose(self, configs: Mapping[str, Any]) -> None:
        if not (self.project / COMPOSE).exists():
            if (self.project / COMPOSE_CPU).exists():
                self.found.append(Problem(COMPOSE, "", "is missing", RESTORE))
            return
        try:
            from gpukit.validate import compose
        except ImportError:
            self.skipped.append("compose.yaml (no PyYAML here)")
            return
        base = self.file(COMPOSE, compose.read, "compose")
        self.apply_rule(secrets.compose_secrets, COMPOSE, base)
        sound = base is not None and self.clean(COMPOSE)
        if sound:
            self.apply_rule(compose.references, COMPOSE, base, self.project)
        if sound and MAIN in configs and self.clean(MAIN):
            self.agreement(MAIN, COMPOSE, base)
        if CPU not in configs:
            return
        override = self.file(COMPOSE_CPU, compose.read, "compose.cpu")
        self.apply_rule(secrets.compose_secrets, COMPOSE_CPU, override)
        if not sound or not self.clean(COMPOSE_CPU):
            return
        both = compose.merged(base, override)
        self.apply_schema(COMPOSE_CPU, both, "compose")
        if self.clean(CPU) and self.clean(COMPOSE_CPU):
            self.agreement(CPU, COMPOSE_CPU, both)

    def agreement(self, config: str, file: str, content: Mapping[str, Any]) -> None:
        """Compare the service `dev` with the configuration, for each way to set GPUS. A difference is reported once."""
        from gpukit.validate.compose import service

        for choice in CHOICES:
            here = self.apply_rule(service, content, self.project, {**HOST, **choice})
            there = self.container(config, choice)
            if here is None or there is None:
                return
            problems = rules.differences(file, here, config, there, choice.get("GPUS", "unset"))
            problems = [problem for problem in problems if self.clean(COMPOSE, problem.place)]
            self.found += problems
            if problems:
                return

    def clean(self, file: str, *places: str) -> bool:
        """Whether no problem was found in a file, or at these places in it, or below or above them."""
        found = [problem.place for problem in self.found + self.misspelled if problem.file == file]
        return not any(f"{one}/".startswith(f"{two}/") for at in places or [""] for one, two in pairs(at, found))

    def config(self, name: str, choice: Mapping[str, str] | None = None) -> devcontainer.Config | None:
        """launch's reading of a devcontainer.json; None if it cannot be read, which is a problem."""
        try:
            return self.apply_rule(devcontainer.load, self.project / name, {**HOST, **(choice or {})})
        except devcontainer.ConfigError as error:
            if not self.found:
                what = str(error).replace(f"{self.project / name}: ", "").rstrip(".")
                self.found.append(Problem(name, "", what, "`git diff` shows what changed"))
            return None

    def container(self, name: str, choice: Mapping[str, str] | None = None) -> Container | None:
        return self.apply_rule(from_devcontainer, self.config(name, choice))

    def file(self, name: str, read: Callable[[Path], Any], schema: str) -> Any:
        """The contents of a file, or None if it cannot be read or is not a mapping; both are problems."""
        path = self.project / name
        try:
            content = read(path)
        except FileNotFoundError:
            self.found.append(Problem(name, "", "is missing", RESTORE))
            return None
        except (OSError, ValueError, devcontainer.ConfigError) as error:
            if not path.exists():
                return self.file(name, Path.read_bytes, schema)
            self.found.append(unreadable(name, path, error))
            return None
        self.read.append(name)
        if not isinstance(content, dict):
            self.found.append(Problem(name, "", "is not a mapping", "restore it with `git checkout`"))
            return None
        self.unknown_keys(name, content, schema)
        self.apply_schema(name, content, schema)
        return content

    def apply_schema(self, name: str, content: Mapping[str, Any], schema: str) -> None:
        """Report what does not meet a schema, once for each place."""
        if not self.validator:
            return
        definition = json.loads(pkgutil.get_data("gpukit.validate", f"schemas/{schema}.schema.json") or b"")
        errors = sorted(self.validator(definition).iter_errors(content), key=lambda error: error.validator != "type")
        for problem in (problem for error in errors for problem in schema_problems(name, error, definition)):
            if self.clean(name, problem.place):
                self.found.append(problem)

    def unknown_keys(self, name: str, content: Mapping[str, Any], schema: str) -> None:
        """Report the keys that are in no specification."""
        if schema == "devcontainer":
            mistakes = keys.mistakes(content)
        elif schema.startswith("compose"):
            from gpukit.validate import compose

            mistakes = keys.mistakes(content, compose.KEYS)
        else:
            return  # its schema knows all keys
        old = [mistake.place[1:] for mistake in mistakes if mistake.meant.startswith("build.")]
        for mistake in mistakes:
            what = f"is not in the specification of {'Compose' if schema != 'devcontainer' else 'dev containers'}"
            if not mistake.meant:
                self.notices.append(f"{name}: {mistake.place} {what}.")
                continue
            meant = f"{mistake.place.rpartition('/')[0]}/{mistake.meant.replace('.', '/')}"
            self.misspelled.append(Problem(name, meant, what, mistake.remedy))
            if mistake.place[1:] in old[1:]:
                continue
            if old and mistake.place[1:] == old[0]:
                instead = ", ".join(f"`{keys.ELSEWHERE[each]}`" for each in old)
                mistake = mistake._replace(remedy=f"write {', '.join(old)} as {instead}")
            self.found.append(Problem(name, mistake.place, what, mistake.remedy))

    def applied(self, rule: Callable[..., Any], *arguments: Any) -> list[Problem]:
        """The problems that a rule finds, without adding them."""
        before, self.found = self.found, list(self.found)
        self.apply_rule(rule, *arguments)
        added, self.found = self.found[len(before) :], before
        return added

    def apply_rule(self, rule: Callable[..., Any], *arguments: Any) -> Any:
        """Apply a rule. An exception is ignored if something explains it: a reported problem, or no schemas."""
        if any(argument is None for argument in arguments):
            return None
        try:
            result = rule(*arguments)
            if not isinstance(result, (Iterator, list)):
                return result
            self.found += [problem for problem in list(result) if self.clean(problem.file, problem.place)]
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            if not self.found and self.validator:
                raise
        return None


def pairs(place: str, others: list[str]) -> Iterator[tuple[str, str]]:
    for other in others:
        yield from ((place, other), (other, place))


def blamed(found: list[list[Problem]]) -> list[Problem]:
    """The problems that several files have with stack.json. What all of them say is one problem, of stack.json."""
    shared = set.intersection(*({problem.what for problem in problems} for problems in found))
    result = []
    for problem in (problem for problems in found for problem in problems):
        if len(found) > 1 and problem.what in shared:
            others = " and ".join(problems[0].file for problems in found)
            remedy = "restore it with `git checkout`, or run `./launch update`"
            problem = Problem(STACK, "", f"does not agree with {others}: {problem.what}", remedy)
        result.append(problem)
    return result


def unreadable(name: str, path: Path, error: Exception) -> Problem:
    """A file with a syntax error or a merge conflict, with the line."""
    lines = path.read_bytes().splitlines() if path.is_file() else []
    for number, line in enumerate(lines, 1):
        if line.startswith(b"<<<<<<< "):
            return Problem(name, f"line {number}", "has a merge conflict", "resolve it, then run this again")
    text = " ".join(str(error).split()).replace(f"{path} ", "").rstrip(".")
    line = re.search(r"\(?line (\d+)", text)
    what = re.sub(r":? \(?line \d+.*", "", text)
    place = f"line {line[1]}" if line else ""
    return Problem(name, place, what, "correct that line, or restore the file with `git checkout`")
