"""Check a generated or updated project: each file against its schema, and the files against each other.

The schemas are in schemas/, the rules in rules.py and secrets.py. Nothing is written, and values of variables are
not printed, because they could be secrets. The schemas need jsonschema and compose.yaml needs PyYAML; without them,
everything else is still checked.
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
from gpukit.project import devcontainer
from gpukit.project.messages import say
from gpukit.project.specification import correct, correct_keys
from gpukit.validate import rules, secrets
from gpukit.validate.container import Container, from_devcontainer
from gpukit.validate.problem import COMPOSE, COMPOSE_CPU, CPU, HOST_ENV, MAIN, MISSING, STACK, Problem
from gpukit.validate.schema import schema_problems

PASSED, FAILED, SKIPPED = 0, 10, 11
# The host environment for which both files are read. They are compared for each way to set GPUS.
HOST = {"HOME": "/home/you", "USER": "you", "BASE_IMAGE": "mirror/base:1", "UV_INDEX": "pytorch=https://mirror/whl"}
LISTS = ("", "/runArgs", "/mounts", "/services/dev/volumes")  # places where more than one thing can be wrong
CHOICES = ({}, {"GPUS": "0"}, {"GPUS": "0,1"}, {"GPUS": "GPU-8f7c2d31"})


def command(project: Path) -> int:
    """`./launch validate`: 0 if nothing is wrong, 1 if a file is, 2 if something could not be checked."""
    missing = [module for module in ("jsonschema", "yaml") if not uv.importable(module)]
    code = None
    if missing:
        package = str(Path(__file__).parents[2])  # a folder, or the wheel
        env = {**os.environ, "PYTHONPATH": package}
        code = uv.python(missing, ["-m", "gpukit.validate", str(project)], say, env)
    if code not in (PASSED, FAILED, SKIPPED):
        code = run(project)
    return {PASSED: 0, FAILED: 1, SKIPPED: 2}[code]


def run(project: Path) -> int:
    """Print the problems, or one line if there are none, and return PASSED, FAILED, or SKIPPED."""
    validation = Validation(project)
    problems = validation.problems()
    for problem in problems:
        print(f"validate: {problem}", file=sys.stderr)
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        print(f"validate: {count}; nothing was changed.", file=sys.stderr, flush=True)
        return FAILED
    skipped = f"; not checked: {' and '.join(validation.skipped)}" if validation.skipped else ""
    print(f"validate: {', '.join(validation.read)} are complete and agree{skipped}.", flush=True)
    for notice in validation.notices:
        print(f"validate: notice: {notice}", flush=True)
    return SKIPPED if validation.skipped else PASSED


class Validation:
    """One check of one project: what was read, what was found, and what could not be checked."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.read: list[str] = []
        self.skipped: list[str] = []
        self.reading = ""
        self.found: list[Problem] = []
        self.notices: list[str] = []
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
        configs = {}
        for name in (MAIN, CPU):
            if name == CPU and not (self.project / CPU).exists():
                if gpu:
                    self.found.append(Problem(CPU, "", MISSING, "restore it: laptops and CI have no GPU"))
                continue
            raw = self.file(name, lambda path: self.corrected(devcontainer.read(path)), "devcontainer")
            if raw is not None:
                configs[name] = raw
                self.apply_rule(secrets.devcontainer_secrets, name, raw)
                self.apply_rule(rules.flag_values, name, self.container_arguments(name))
                self.apply_rule(rules.safe, name, self.container(name))
        if stack is not None:
            ending = self.apply_rule(rules.ending, stack)
            self.notices += [ending] if ending else []
            self.apply_rule(rules.dockerfile, self.project / "Dockerfile", stack)
            if not self.has_problem("Dockerfile"):  # the same difference, once
                self.apply_rule(rules.readme, self.project / "README.md", stack)
            for name, raw in configs.items():
                self.apply_rule(rules.user_and_mounts, name, raw, self.container(name), stack)
            if CPU in configs:
                self.apply_rule(rules.without_cuda, configs[CPU])
            if MAIN in configs and not self.has_problem(MAIN, "/runArgs"):
                self.apply_rule(rules.gpu_and_memory, self.container(MAIN), self.container(MAIN, {"GPUS": "0"}), stack)
        self.apply_rule(rules.instructions, self.project / "Dockerfile")
        self.apply_rule(rules.files, self.project, configs)
        self.compose(configs)
        self.apply_rule(secrets.env_file_secrets, self.project, HOST_ENV)
        for name in (MAIN, CPU, HOST_ENV, COMPOSE, COMPOSE_CPU, "Dockerfile", ".env.example"):
            self.apply_rule(secrets.secret_values, self.project, name)
        return self.one_for_each_cause()

    def corrected(self, raw: Any) -> Any:
        """The content of devcontainer.json as it was meant; what is misspelled in it is a problem."""
        if not isinstance(raw, dict):
            return raw
        content, mistakes, unknown = correct(raw)
        self.found += [Problem(self.reading, mistake.place, mistake.what, mistake.remedy) for mistake in mistakes]
        self.notices += [f"{self.reading}: no tool is known that reads `{key}`" for key in unknown]
        return content

    def has_problem(self, file: str, place: str = "") -> bool:
        return any(problem.file == file and problem.place.startswith(place) for problem in self.found)

    def one_for_each_cause(self) -> list[Problem]:
        """Without what follows from another problem: if a key is missing, so is all that it should contain."""
        missing = {(problem.file, problem.place) for problem in self.found if problem.what == MISSING}

        def follows(problem: Problem) -> bool:
            above = [(file, place) for file, place in missing if file == problem.file and problem.what != MISSING]
            return any(problem.place.startswith(place) for _, place in above)

        first: dict[object, Problem] = {}  # of each key; several items of a list can be wrong
        for problem in self.found:
            several = problem.place in LISTS or problem.place.startswith("line ")
            first.setdefault(problem if several else (problem.file, problem.place), problem)
        return [problem for problem in first.values() if not follows(problem)]

    def compose(self, configs: Mapping[str, Any]) -> None:
        if not (self.project / COMPOSE).exists():
            return
        try:
            from gpukit.validate import compose
        except ImportError:
            self.skipped.append("compose.yaml (no PyYAML here)")
            return
        base = self.file(COMPOSE, compose.read, "compose")
        if base is None:
            return
        self.apply_rule(secrets.compose_secrets, COMPOSE, base)
        self.apply_rule(rules.references, COMPOSE, base)
        # What is wrong in devcontainer.json would be a difference too.
        if MAIN in configs and not self.has_problem(MAIN):
            self.agreement(MAIN, COMPOSE, base)
        if CPU in configs and not self.has_problem(CPU):
            override = self.file(COMPOSE_CPU, compose.read)
            if override is not None:
                self.apply_rule(secrets.compose_secrets, COMPOSE_CPU, override)
                self.agreement(CPU, COMPOSE_CPU, compose.merged(base, override))

    def agreement(self, config: str, file: str, content: Mapping[str, Any]) -> None:
        """Compare the service `dev` with the configuration, for each way to set GPUS. A difference is reported once."""
        from gpukit.validate.compose import service

        for choice in CHOICES:
            here = self.apply_rule(service, content, self.project, {**HOST, **choice})
            there = self.container(config, choice)
            if here is None or there is None:
                return
            reported = {problem.place for problem in self.found if problem.file == COMPOSE != file}
            problems = list(rules.differences(file, here, config, there, choice.get("GPUS", "unset")))
            problems = [problem for problem in problems if problem.place not in reported]
            self.found += problems
            if problems:
                return

    def container_arguments(self, name: str) -> list[str] | None:
        try:
            return devcontainer.load(self.project / name, HOST).run_args
        except devcontainer.ConfigError:
            return None

    def container(self, name: str, choice: Mapping[str, str] | None = None) -> Container | None:
        try:
            config = devcontainer.load(self.project / name, {**HOST, **(choice or {})})
        except devcontainer.ConfigError as error:
            what = str(error).replace(f"{self.project / name}: ", "").rstrip(".")
            self.found.append(Problem(name, "", what, "`git diff` shows what changed"))
            return None
        return self.apply_rule(from_devcontainer, config)

    def file(self, name: str, read: Callable[[Path], Any], schema: str = "") -> Any:
        """The contents of a file, or None if it cannot be read or is not a mapping; both are problems."""
        path = self.project / name
        self.reading = name
        try:
            content = read(path)
        except FileNotFoundError:
            self.found.append(Problem(name, "", MISSING, "restore it with `git checkout`, or generate again"))
            return None
        except (OSError, ValueError, devcontainer.ConfigError) as error:
            if not path.exists():
                return self.file(name, Path.read_bytes)
            text = " ".join(str(error).split()).replace(f"{path} ", "").rstrip(".")
            line = re.search(r"\(?line (\d+)", text)
            what = re.sub(r":? \(?line \d+.*", "", text)
            place = f"line {line[1]}" if line else ""
            self.found.append(Problem(name, place, what, "correct that line, or restore the file with `git checkout`"))
            return None
        self.read.append(name)
        if not isinstance(content, dict):
            self.found.append(Problem(name, "", "is not a mapping", "restore it with `git checkout`"))
            return None
        if schema and self.validator:
            definition = json.loads(pkgutil.get_data(__package__, f"schemas/{schema}.schema.json") or b"")
            if schema == "stack":
                content, mistakes = correct_keys(content, definition["properties"])
                self.found += [Problem(name, *mistake) for mistake in mistakes]
            for error in self.validator(definition).iter_errors(content):
                self.found += schema_problems(name, error, definition)
        return content

    def apply_rule(self, rule: Callable[..., Any], *arguments: Any) -> Any:
        """Apply a rule. An exception is ignored if a problem that explains it was already reported."""
        if any(argument is None for argument in arguments):
            return None
        try:
            result = rule(*arguments)
            if not isinstance(result, Iterator):
                return result
            self.found += result
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            if not self.found:
                raise
        return None
