"""Check a project's generated files: each against its schema, and the files against each other.

Nothing is written, and values of variables are not printed, because they could be secrets. uv provides the packages
that this needs; without them, everything else is still checked. Each cause is reported once: if something is wrong in a
file, it is not compared with others.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import posixpath
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from gpukit.host import uv
from gpukit.project import devcontainer, keys, specification, support
from gpukit.project.location import ADOPTED, is_adopted, located, place, renamed
from gpukit.project.messages import RefusalError, say
from gpukit.validate import files, image, rules, secrets, source, written
from gpukit.validate.container import from_devcontainer
from gpukit.validate.problem import (
    COMPOSE,
    COMPOSE_CPU,
    CPU,
    DOCKERFILE,
    HOST_ENV,
    INITIALIZE,
    MAIN,
    PODMAN,
    PYPROJECT,
    RESTORE,
    STACK,
    Problem,
)
from gpukit.validate.schema import errors, schema_problems

# Python and uv exit with 1 or 2 on their own errors, which must differ from FAILED
PASSED = 0
FAILED = 10
SKIPPED = 11
TOML = "tomllib" if sys.version_info >= (3, 11) else "tomli"
# What is imported, and what cannot be checked without it.
PARTS = {"jsonschema": "the schemas", "yaml": "the YAML files", TOML: PYPROJECT}
# The formats for which there is a table of keys, and their names.
KEYS = {
    "devcontainer": (specification.DEVCONTAINER, "dev containers"),
    "compose": (specification.COMPOSE, "Compose"),
    "compose.cpu": (specification.COMPOSE, "Compose"),
    "workflow": (specification.WORKFLOW, "GitHub's workflows"),
    "kubernetes": (specification.KUBERNETES, "Kubernetes"),
    "skypilot": (specification.SKYPILOT, "SkyPilot"),
    "prometheus": (specification.PROMETHEUS, "Prometheus"),
    "sbatch": ({"": specification.SBATCH}, "sbatch"),
}
# The host environment for which both files are read. They are compared for each way to set GPUS.
HOST = {"HOME": "/home/you", "USER": "you", "PATH": "/usr/local/bin:/usr/bin:/bin"}
HOST.update({"BASE_IMAGE": "mirror/base:1", "UV_INDEX": "pytorch=https://mirror/whl"})
CHOICES = ({}, {"GPUS": "0"}, {"GPUS": "0,1"}, {"GPUS": "GPU-8f7c2d31"})


def command(project: Path | None) -> int:
    """`./launch validate`: 0 if nothing is wrong, 1 if a file is, 2 if something could not be checked."""
    if project is None:
        raise RefusalError("This is not a generated project: no folder from here upward has stack.json.")
    missing = [module for module in PARTS if not uv.importable(module)]
    code = None
    if missing:
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}  # a folder, or the wheel
        code = uv.python(missing, ["-m", "gpukit.validate", str(project)], lambda text: say(f"validate: {text}"), env)
    if code not in (PASSED, FAILED, SKIPPED):
        code = run(project)
    return {PASSED: 0, FAILED: 1}.get(code, 2)


def run(project: Path, wheel: bool = True, brief: bool = False) -> int:
    """Print the problems, or one line if there are none, and return PASSED, FAILED, or SKIPPED.

    `brief`: not that line, if everything was checked.
    """
    validation = Validation(project, wheel)
    problems = validation.problems()
    for problem in problems:
        print(f"validate: {relocated(str(problem), project)}", file=sys.stderr)
    skipped = f"; not checked: {' and '.join(validation.skipped)}" if validation.skipped else ""
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        print(f"validate: {count}; nothing was changed{skipped}.", file=sys.stderr, flush=True)
        return FAILED
    if skipped or not brief:
        print(f"validate: {len(validation.read)} files are complete and agree{skipped}.", flush=True)
    for notice in validation.notices:
        print(f"validate: notice: {relocated(notice, project)}", flush=True)
    return SKIPPED if validation.skipped else PASSED


def relocated(text: str, project: Path) -> str:
    """A sentence with the files where this project has them."""
    return renamed(text, ADOPTED) if is_adopted(project) else text


class Validation:
    """One check of one project: what was read, what was found, and what could not be checked."""

    def __init__(self, project: Path, wheel: bool = False, unreadable: Iterable[str] = ()) -> None:
        self.project = project.absolute()
        self.wheel = wheel
        self.read: list[str] = []
        self.skipped: list[str] = []
        self.found: list[Problem] = []
        self.notices: list[str] = []
        self.unreadable = {*unreadable}
        self.loaded: dict[tuple[str, ...], Any] = {}
        modules = {name: self.module(name, what) for name, what in PARTS.items()}
        self.jsonschema = modules["jsonschema"]
        self.yaml = modules["yaml"]
        self.toml = modules[TOML]

    def module(self, name: str, what: str) -> Any:
        try:
            return importlib.import_module(name)
        except ImportError:
            self.skipped.append(f"{what} (no {name} here)")
            return None

    def problems(self) -> list[Problem]:
        self.add(files.texts, self.project)
        self.unreadable |= {problem.file for problem in self.found}
        self.scripts()
        stack = self.content(STACK, devcontainer.strict, "stack")
        self.add(rules.targets, stack)
        stack = self.sound(STACK, stack)
        self.others(stack)
        configs = self.configurations(stack)
        self.dockerfile(configs, stack)
        self.add(image.ignored, self.project)
        self.add(image.line_ends, self.project)
        pyproject = None
        if is_adopted(self.project):
            self.add(files.adopted_requirements, self.project, stack)
        else:
            scripts = source.scripts(self.project, stack) if stack else {}
            known = len(self.found)
            self.add(source.modules, self.project, stack)
            if len(self.found) == known:  # otherwise, what others start is often what they import
                self.add(source.imports, self.project, stack, scripts)
            self.add(files.kept_out, self.project)  # `adopt` says how to add what the repository's own rules ignore
            pyproject = self.content(PYPROJECT, self.toml and self.toml.loads, "pyproject")
        if pyproject is not None:
            self.add(files.requirements, self.project, pyproject)
            self.add(files.marks, self.project, pyproject)
            self.notices += source.undeclared(self.project, pyproject, scripts)
        self.compare_with_stack(configs, pyproject, stack)
        if self.yaml and not is_adopted(self.project):
            self.compose(configs)
        self.mistyped()
        return list({same_cause(problem): problem for problem in reversed(self.found)}.values())[::-1]

    # Reading

    def path(self, name: str) -> Path:
        """Where the project has a file; all rules name files as a generated project has them."""
        return located(name, self.project)

    def content(self, name: str, parse: Callable[[str], Any] | None, schema: str = "") -> Any:
        """The content of a file; None if there is no parser for it, or if something is wrong in it."""
        path = self.path(name)
        if parse is None or name in self.unreadable or not path.is_file():
            return None
        try:
            content = parse(path.read_text(encoding="utf-8-sig"))
        except ValueError as error:
            self.found.append(syntax_error(name, error))
            return None
        self.read.append(name)
        if not isinstance(content, dict):
            self.found.append(Problem(name, "", "is not a mapping", RESTORE))
            return None
        self.apply_schema(name, content, schema, self.unknown_keys(name, content, schema) if schema in KEYS else [])
        return self.sound(name, content)

    def unknown_keys(self, name: str, content: Mapping[str, Any], schema: str) -> list[tuple[str, Problem]]:
        """The keys that are in no specification, each with the place that it was meant for. Others are notices."""
        table, format = KEYS[schema]
        found = []
        mistakes = keys.mistakes(content, table)
        old = [mistake for mistake in mistakes if mistake.meant.startswith("build.")]
        for mistake in mistakes:
            what = f"is not in the specification of {format}"
            if not mistake.meant:
                self.notices.append(f"{name}: {mistake.place} {what}.")
                continue
            meant = posixpath.join(posixpath.dirname(mistake.place), mistake.meant.replace(".", "/"))
            instead = " and ".join(f"{each.place[1:]} as `{each.meant}`" for each in old)
            first = old[0] if mistake in old else mistake  # the keys of the old format are one problem
            remedy = f"write {instead}" if mistake in old else mistake.remedy
            moved = remedy.startswith("move") and remedy in [problem.remedy for _, problem in found]
            if not moved:  # with the one before: their indentation is wrong
                found.append((meant, Problem(name, first.place, what, remedy)))
        return found

    def apply_schema(self, name: str, content: Any, schema: str, unknown: Iterable[tuple[str, Problem]] = ()) -> None:
        """Report what does not meet a schema, and the unknown keys, once for each place."""
        definition = self.definition(schema)
        structure: list[tuple[str, Problem]] = []
        rest: list[tuple[str, Problem]] = []
        found = list(errors(self.jsonschema, definition, content)) if definition else []
        wrong_type = any(error.validator == "type" for error in found)
        for error in found:
            if error.validator == "declared" and wrong_type:
                continue  # the names may be in what has another type
            kind = structure if error.validator in ("additionalProperties", "type") else rest
            kind += schema_problems(name, error, definition)
        seen = [problem.place for problem in self.found if problem.file == name]
        for meant, problem in [*structure, *unknown, *rest]:
            if not any(within(problem.place, place) or within(place, problem.place) for place in seen):
                self.found.append(problem)
                seen += [problem.place, meant]
            elif problem.place in seen:  # another key of the old format
                seen.append(meant)

    def definition(self, schema: str) -> Any:
        """A schema; nothing if only the keys of a file are known, or without jsonschema."""
        if not self.jsonschema or not schema:
            return None
        try:
            return json.loads(pkgutil.get_data("gpukit.validate", f"schemas/{schema}.schema.json") or b"{}")
        except OSError:
            return None

    def sound(self, name: str, content: Any) -> Any:
        """The content, if nothing is wrong in the file."""
        return None if any(problem.file == name for problem in self.found) else content

    # The files

    def scripts(self) -> None:
        for name in files.scripts(self.project):
            if name not in self.unreadable:
                self.add(files.script, self.project, name)
        if self.wheel:
            self.add(files.wheel, self.project)
        if self.path(files.APT).is_file() and files.APT not in self.unreadable:
            self.add(files.system_packages, self.project)
        if self.path(files.DOTENV).is_file():
            self.add(files.dotenv, self.project)
        if self.path(HOST_ENV).is_file() and HOST_ENV not in self.unreadable:
            self.add(files.host_env, self.project)
            self.add(secrets.host_env, self.project, place(self.project, HOST_ENV))

    def others(self, stack: Any) -> None:
        """The answers, the workflows, and the other files in YAML and JSON."""
        if not self.path(files.ANSWERS).is_file():
            texts = [path.read_text(errors="replace") for path in self.project.glob(".github/workflows/*.yml")]
            what = "is missing, and ./launch update needs it"
            problem = Problem(files.ANSWERS, "", what, "restore it with `git checkout`")
            if any("launch update" in text for text in texts):
                self.found.append(problem)
            else:  # an owner may give updates up
                self.notices.append(f"{problem}.")
        for name in files.generated(self.project):
            if name.startswith(".vscode/"):
                self.content(name, devcontainer.parse)
            elif name == files.SLURM:
                self.add(files.batch, self.project, self.content(name, files.batch_options, "sbatch"))
            elif name.endswith((".yml", ".yaml")) and name not in (COMPOSE, COMPOSE_CPU) and self.yaml:
                from gpukit.validate import compose

                schema = "workflow" if name.startswith(".github/") else files.SCHEMAS.get(name, "")
                kind = "SafeLoader" if name in files.SCHEMAS else "BaseLoader"
                content = self.content(name, partial(compose.parse, kind=kind, several=schema == "kubernetes"), schema)
                if content and schema == "workflow":
                    self.add(files.actions, self.project, name, content)
                    self.add(compose.numbers, name, self.yaml.compose(self.path(name).read_text(encoding="utf-8-sig")))
                if name == files.ANSWERS:
                    self.add(files.answers, content, stack)

    def configurations(self, stack: Any) -> dict[str, tuple[Any, devcontainer.Config]]:
        """The configurations in which nothing is wrong, as JSON and as launch reads them."""
        gpu = stack is not None and rules.has_gpu(stack)
        if gpu and not self.path(CPU).exists():
            self.found.append(Problem(CPU, "", "is missing", f"{RESTORE}: laptops and CI have no GPU"))
        found = {}
        for name in (MAIN, CPU, PODMAN):
            raw = self.content(name, devcontainer.parse, "devcontainer")
            self.add(rules.flags_and_mounts, name, self.config(name, raw, CHOICES[2]))
            raw = self.sound(name, raw)
            config = self.config(name, raw, CHOICES[0])
            container = self.container(name, raw)
            self.add(rules.safe, name, raw, container)
            self.add(secrets.devcontainer, name, raw)
            self.add(files.env_files, self.project, name, config)
            self.add(files.initialize, self.project, name, raw, gpu)
            self.add(files.lifecycle, self.project, name, raw)
            self.add(files.build, self.project, name, config)
            if name == CPU:
                self.add(rules.without_gpu, raw, container)
            if name == PODMAN and MAIN in found:
                self.add(rules.podman, raw, container, self.container(MAIN, found[MAIN][0]))
            if self.sound(name, raw):
                found[name] = (raw, config)
        return found

    def dockerfile(self, configs: Mapping[str, Any], stack: Any) -> None:
        args: dict[str, list[str]] = {}
        for name, (raw, _) in configs.items():
            for arg in raw["build"]["args"]:
                args.setdefault(arg, []).append(name)
        if DOCKERFILE not in self.unreadable:
            self.add(image.dockerfile, self.project, args, stack or {})

    def compare_with_stack(self, configs: Mapping[str, Any], pyproject: Any, stack: Any) -> None:
        """The files that must agree with stack.json."""
        if stack is None:
            return
        if stack["channel"] == "pin" and (ending := support.notice(stack, date.today())):
            self.notices.append(ending)
        disagreements: list[tuple[str, Problem]] = []
        for name, (raw, _) in configs.items():
            disagreements += rules.container(name, raw, self.container(name, raw), stack)
        if self.sound(DOCKERFILE, True):
            disagreements += image.base(self.project, stack)
        if self.sound("README.md", True) and not is_adopted(self.project):
            disagreements += rules.readme(self.project, stack)
        if pyproject is not None:
            disagreements += files.versions(self.project, pyproject, stack)
        self.add(rules.blamed, disagreements)
        if not any(key == "torch" for key, _ in disagreements):
            place = "/torch_install/requirement"
            self.add(files.other_torch, stack["torch_install"]["requirement"], STACK, place, stack, RESTORE)
        if MAIN in configs and self.sound(STACK, True):
            raw, config = configs[MAIN]
            self.add(rules.gpu_request, self.container(MAIN, raw), self.container(MAIN, raw, CHOICES[1]), stack)
            if INITIALIZE not in self.unreadable:
                self.add(files.mount_sources, self.project, raw, config, stack)

    def mistyped(self) -> None:
        """Mistyped words of the template where nothing else is wrong. What others say without these files is kept."""
        causes = []
        for name in files.generated(self.project):
            if name in files.PROSE or name in self.unreadable or not self.sound(name, True):
                continue
            found = written.mistyped(self.path(name).read_text(encoding="utf-8-sig"))
            if found:
                number, what, remedy = found
                causes.append(Problem(name, f"line {number}", what, remedy))
        if causes:
            self.found = Validation(self.project, self.wheel, {each.file for each in causes}).problems() + causes

    def compose(self, configs: Mapping[str, Any]) -> None:
        from gpukit.validate import compose

        if not (self.project / COMPOSE).exists():
            if (self.project / COMPOSE_CPU).exists():
                self.found.append(Problem(COMPOSE, "", "is missing", RESTORE))
            return
        base = self.content(COMPOSE, compose.parse, "compose")
        self.add(compose.unended, COMPOSE, base)
        self.add(secrets.compose, COMPOSE, base)
        if base is not None and INITIALIZE not in self.unreadable:
            self.add(compose.rules, base, self.project)
        base = self.sound(COMPOSE, base)
        if base is not None and "extends" in base["services"]["dev"]:
            return  # another file has the rest
        self.agreement(MAIN, configs, COMPOSE, base)
        base = self.sound(COMPOSE, base)
        if CPU not in configs:
            return
        if not (self.project / COMPOSE_CPU).exists():
            self.found.append(Problem(COMPOSE_CPU, "", "is missing", RESTORE))
        over = self.content(COMPOSE_CPU, compose.parse, "compose.cpu")
        if base is None or over is None:
            return
        self.add(compose.unended, COMPOSE_CPU, over)
        self.add(secrets.compose, COMPOSE_CPU, over)
        self.add(compose.added, over, base)
        both = self.sound(COMPOSE_CPU, compose.merged(base, over))
        self.apply_schema(COMPOSE_CPU, both, "compose")
        self.add(compose.without_gpu, self.sound(COMPOSE_CPU, both), base)
        self.notices += compose.notices(base, both) if self.sound(COMPOSE_CPU, both) else []
        self.agreement(CPU, configs, COMPOSE_CPU, self.sound(COMPOSE_CPU, both))

    def agreement(self, name: str, configs: Mapping[str, Any], file: str, content: Any) -> None:
        """Compare the service `dev` with a configuration, for each way to set GPUS. A difference is reported once."""
        from gpukit.validate import compose

        if content is None or name not in configs or not self.sound(name, True):
            return
        for choice in CHOICES:
            here = compose.service(content, self.project, {**HOST, **choice})
            there = self.container(name, configs[name][0], choice)
            gpus = f"GPUS={choice['GPUS']}" if choice else "GPUS unset"
            self.add(rules.differences, file, here, name, there, gpus)
            if not self.sound(file, True):
                return

    def config(self, name: str, raw: Any, choice: Mapping[str, str]) -> Any:
        """launch's reading of a configuration, for one way to set GPUS; None if something is wrong in it."""
        key = (name, *choice.values())
        if raw and key not in self.loaded:
            self.loaded[key] = devcontainer.load(self.path(name), {**HOST, **choice})
        return raw and self.loaded[key]

    def container(self, name: str, raw: Any, choice: Mapping[str, str] = CHOICES[0]) -> Any:
        return raw and from_devcontainer(self.config(name, raw, choice))

    def add(self, rule: Callable[..., Iterable[Problem]], *arguments: Any) -> None:
        """Add what a rule finds. Without its arguments, it finds nothing; nor does it in a file that is unreadable."""
        if any(argument is None for argument in arguments):
            return
        self.found += [problem for problem in rule(*arguments) if problem.file not in self.unreadable]


def same_cause(problem: Problem) -> tuple[str, ...]:
    """Equal for problems with one cause: in items of a list, and in services that share what is written once."""
    place = re.sub(r"^/services/[^/]+/", "", problem.place)
    remedy = re.sub(r"/services/[^/]+/", "", problem.remedy)
    return (*problem._replace(place=re.sub(r"/\d+(?=/|$)", "/*", place), remedy=remedy),)


def within(place: str, other: str) -> bool:
    """Whether a place is another, or in it."""
    return f"{place}/".startswith(f"{other}/")


REWRITE = "correct that line, or restore the file with `git checkout`"


def syntax_error(name: str, error: ValueError) -> Problem:
    text = " ".join(str(error).split()).rstrip(".")
    line = re.search(r"line (\d+)", text)
    what = re.sub(r":? ?\(?(at )?line \d+.*", "", text)
    return Problem(name, f"line {line[1]}" if line else "", f"cannot be read: {what}", REWRITE)
