"""Rules about the files that a start needs, and about what the configurations say of them."""

from __future__ import annotations

import contextlib
import csv
import os
import re
import subprocess
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpukit.project import flags
from gpukit.project.devcontainer import Config
from gpukit.project.messages import RefusalError, alike
from gpukit.project.pyproject import Requirements, name_of
from gpukit.validate.problem import CPU, HOST_ENV, INITIALIZE, RESTORE, STACK, Problem

LAUNCH, PYPROJECT, WHEELS = "launch", "pyproject.toml", ("vendor", ".gpukit")


def scripts(project: Path) -> Iterator[Problem]:
    """The two programs that run on the host."""
    for name in (LAUNCH, INITIALIZE):
        path = project / name
        if not path.is_file():
            yield Problem(name, "", "is missing", RESTORE)
        elif not path.read_bytes().strip():
            yield Problem(name, "", "is empty", RESTORE)
        elif name == LAUNCH and os.name == "posix" and not os.access(path, os.X_OK):
            yield Problem(name, "", "is not executable", f"run `chmod +x {name}`")
        else:
            yield from syntax(name, path)


def syntax(name: str, path: Path) -> Iterator[Problem]:
    with contextlib.suppress(OSError):  # without a shell
        done = subprocess.run(["sh", "-n", str(path)], capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            first = (done.stderr.strip().splitlines() or ["a syntax error"])[0]
            what = f"sh cannot read it: {first.replace(f'{path}: ', '')}"
            yield Problem(name, "", what, "correct it, or restore it with `git checkout`")


def wheel(project: Path) -> Iterator[Problem]:
    """The one wheel from which ./launch runs, and which the image installs."""
    wheels = [path for folder in WHEELS for path in (project / folder).glob("gpukit-*.whl")]
    if len(wheels) != 1:
        what = "has more than one gpukit wheel" if wheels else "has no gpukit wheel"
        yield Problem("vendor/", "", what, "`./launch` prints the command that writes it")
        return
    name = str(wheels[0].relative_to(project))
    try:
        with zipfile.ZipFile(wheels[0]) as archive:
            version = wheels[0].name.split("-")[1]
            damaged = archive.testzip() or f"gpukit-{version}.dist-info/METADATA" not in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        damaged = True
    if damaged:
        yield Problem(
            name, "", "is damaged, or is another version than its name says", "restore it with `git checkout`"
        )


def environment(project: Path) -> Iterator[Problem]:
    """host.env as docker reads it: names, or NAME=VALUE."""
    path = project / HOST_ENV
    lines = path.read_text(encoding="utf-8-sig").splitlines() if path.is_file() else []
    for number, line in enumerate(map(str.lstrip, lines), 1):
        name = line.partition("=")[0]
        if line and not line.startswith("#") and not re.fullmatch(r"[A-Za-z_]\w*", name):
            what = "the name of a variable has letters, digits, and _ only, and nothing stands before it"
            yield Problem(HOST_ENV, f"line {number}", what, "write NAME, or NAME=VALUE")


def env_files(project: Path, name: str, raw: Mapping[str, Any]) -> Iterator[Problem]:
    """The files that --env-file names, and that host.env is one of them."""
    named = [value for option, value in flags.options(raw["runArgs"]) if option == "--env-file"]
    paths = [value.replace("${localWorkspaceFolder}/", "").removeprefix("./") for value in named]
    for path in paths:
        if "$" not in path and not (project / path).is_file():
            if path == HOST_ENV:
                yield Problem(HOST_ENV, "", "is missing", f"{RESTORE}: it may be empty, but it must exist")
            else:
                remedy = f"did you mean `{HOST_ENV}`?" if alike(path, [HOST_ENV]) else "create it, or remove the flag"
                yield Problem(name, "/runArgs", f"--env-file names {path}, which does not exist", remedy)
    if not paths and (project / HOST_ENV).is_file():
        what = f"{HOST_ENV} is not passed, so that no variable of the host reaches the container"
        yield Problem(name, "/runArgs", what, f'add "--env-file=${{localWorkspaceFolder}}/{HOST_ENV}"')


def initialize(project: Path, name: str, raw: Mapping[str, Any], gpu: bool) -> Iterator[Problem]:
    """initializeCommand runs initialize.sh, which creates what is mounted, and tells it where there is no GPU."""
    command = raw.get("initializeCommand")
    if not command:
        return  # the schema reports it
    texts = [each if isinstance(each, str) else " ".join(each) for each in commands(command)]
    run = next((text for text in texts if INITIALIZE in text), None)
    written = f'["sh", "{INITIALIZE}"' + (', "cpu"]' if name == CPU else "]")
    if run is None:
        what = f"does not run {INITIALIZE}, which creates the folders that are mounted"
        yield Problem(name, "/initializeCommand", what, f"write {written}")
    elif re.match(rf"(\./)?{re.escape(INITIALIZE)}", run) and not os.access(project / INITIALIZE, os.X_OK):
        yield Problem(name, "/initializeCommand", f"{INITIALIZE} is not executable", f"write {written}")
    elif name == CPU and gpu and not re.search(r"initialize\.sh[\"']?\s+[\"']?cpu\b", run):
        what = "does not tell initialize.sh that there is no GPU, so that it checks for one"
        yield Problem(name, "/initializeCommand", what, f"write {written}")
    elif name != CPU and gpu and re.search(r"initialize\.sh[\"']?\s+[\"']?cpu\b", run):
        what = "tells initialize.sh that there is no GPU, so that it does not check for one"
        yield Problem(name, "/initializeCommand", what, f"write {written}")


def commands(command: Any) -> list[Any]:
    """The commands of a lifecycle key: a string, a list of strings, or an object of both."""
    return list(command.values()) if isinstance(command, dict) else [command]


def build(project: Path, name: str, config: Config) -> Iterator[Problem]:
    """The paths in `build`, which are relative to devcontainer.json."""
    for key, path, wanted in (
        ("dockerfile", config.dockerfile, project / "Dockerfile"),
        ("context", config.context, project),
    ):
        if path != wanted.resolve():
            relative = os.path.relpath(wanted.resolve(), (project / name).resolve().parent)
            what = f"is {os.path.relpath(path, project.resolve())}, seen from the project's folder"
            yield Problem(name, f"/build/{key}", what, f'write "{relative}"')
    if config.target and wanted_stage(project, config.target):
        yield Problem(name, "/build/target", f"the Dockerfile has no stage {config.target}", "correct it, or remove it")


def wanted_stage(project: Path, stage: str) -> bool:
    path = project / "Dockerfile"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return bool(text) and not re.search(rf"(?im)^\s*FROM\s+.*\sAS\s+{re.escape(stage)}\s*$", text)


def mount_sources(project: Path, raw: Mapping[str, Any], config: Config, stack: Mapping[str, Any]) -> Iterator[Problem]:
    """Docker refuses a bind mount whose source is missing: initialize.sh creates those that stack.json expects."""
    path = project / INITIALIZE
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    for item, mount in zip(raw.get("mounts") or [], config.mounts):
        if not text or mount["type"] != "bind" or mount["target"] not in [*stack["mounts"], *stack["read_only"]]:
            continue
        fields = next(csv.reader([item]), []) if isinstance(item, str) else [f"source={item['source']}"]
        source = next((part.partition("=")[2] for part in fields if re.match(r"(source|src)=", part)), "")
        place = re.sub(r"^\$\{(localWorkspaceFolder|localEnv:HOME)\}/", "", source)
        if re.search(r"[$\\`]", place) or creates(text, place):
            continue
        what = f"does not create {place}, which is mounted at {mount['target']}"
        folder = source.replace("${localEnv:HOME}", "$HOME").replace("${localWorkspaceFolder}/", "")
        yield Problem(INITIALIZE, "", what, f'add the line `folder "{folder}"`')

    network = next((value for name, value in flags.options(config.run_args) if name == "--network"), "")
    shared = network.removesuffix("-you")  # by the user's name, which the configuration was read with
    if text and network != shared and not re.search(rf"network.*{re.escape(shared)}", text):
        what = f"does not create the network {shared}-$USER, which the container joins"
        yield Problem(INITIALIZE, "", what, "restore it with `git checkout`")
    for variable, value in config.container_env.items():
        place = value.removeprefix("/workspace/")
        if text and place.startswith(".launch/") and not creates(text, place):
            yield Problem(INITIALIZE, "", f"does not create {place}, which {variable} names", RESTORE)


def creates(text: str, place: str) -> bool:
    """Whether initialize.sh names a path, and not only one below it."""
    return bool(re.search(rf"{re.escape(place)}(?=[\"'\s]|$)", text))


def pyproject(project: Path, stack: Mapping[str, Any]) -> Iterator[Problem]:
    """What the image installs from pyproject.toml, and that uv installs nothing elsewhere."""
    path = project / PYPROJECT
    if not path.is_file():
        return  # reported with the Dockerfile, which copies it
    text = path.read_text(encoding="utf-8")
    with contextlib.suppress(ImportError):  # before Python 3.11
        import tomllib

        try:
            content = tomllib.loads(text)
        except ValueError as error:
            line = re.search(r"line (\d+)", str(error))
            what = f"is not TOML: {re.sub(r' [(]at .*', '', str(error))}"
            remedy = "correct that line, or restore the file with `git checkout`"
            yield Problem(PYPROJECT, f"line {line[1]}" if line else "", what, remedy)
            return
        wrong = list(keys(content))
        yield from wrong
        if any(not problem.place.startswith("/tool") for problem in wrong):
            return
    try:
        lines = Requirements(text).values()
    except RefusalError as error:
        yield Problem(PYPROJECT, "", str(error).rstrip("."), "restore it with `git checkout`")
        return
    for requirement in lines:
        try:
            name_of(requirement)
        except RefusalError:
            if not re.search(r"[@(]", requirement):
                what = f"`{requirement}` is not a requirement"
                yield Problem(PYPROJECT, "/project/dependencies", what, "write it as `einops>=0.8`")
    python = re.search(r"(?m)^\s*requires-python\s*=\s*[\"']([^\"']+)", text)
    if python and stack and not allows(python[1], stack["python"]):
        what = f"{python[1]} excludes Python {stack['python']}, which the image has ({STACK})"
        yield Problem(PYPROJECT, "/project/requires-python", what, f'write ">={stack["python"]}", or a lower version')


TABLES = {
    "": "project tool build-system dependency-groups",
    "/project": "name version description readme requires-python license license-files authors maintainers keywords "
    "classifiers urls scripts gui-scripts entry-points dependencies optional-dependencies dynamic import-names "
    "import-namespaces",
}


def keys(content: Mapping[str, Any]) -> Iterator[Problem]:
    """Keys that are missing, misspelled, or of another type. PEP 621 allows no others in [project]."""
    project = content.get("project", {})
    misspelled = set()
    for place, table in (("", content), ("/project", project if isinstance(project, dict) else {})):
        for key in {*table} - {*TABLES[place].split()}:
            meant = alike(key, TABLES[place].split())
            misspelled.add(f"{place}/{meant}")
            remedy = f"did you mean `{meant}`?" if meant else "remove it, or move it to the table that it is of"
            if meant or place:
                yield Problem(PYPROJECT, f"{place}/{key}", "is not a key of pyproject.toml", remedy)
    if "/project" in misspelled:
        return
    if not project or not isinstance(project, dict):
        yield Problem(PYPROJECT, "/project", "is missing", "restore it with `git checkout`")
        return
    absent: list[str] = []
    for key, kind, what in (("name", str, "a string"), ("version", str, "a string"), ("dependencies", list, "a list")):
        place = f"/project/{key}"
        if key not in project:
            absent += [key] * (place not in misspelled and key not in project.get("dynamic", []))
        elif not isinstance(project[key], kind):
            yield Problem(PYPROJECT, place, f"is not {what}", "correct it, or restore it with `git checkout`")
    if absent:
        yield Problem(PYPROJECT, "/project", f"has no {', '.join(absent)}", "restore it with `git checkout`")
    tool = content.get("tool")
    uv = tool.get("uv") if isinstance(tool, dict) else None
    if "/tool" not in misspelled and (not isinstance(uv, dict) or uv.get("managed") is not False):
        what = "is not false, so that `uv run` creates a .venv beside the image's Python"
        yield Problem(PYPROJECT, "/tool/uv/managed", what, "write `managed = false` under [tool.uv]")


def allows(specifier: str, python: str) -> bool:
    """Whether a simple specifier such as `>=3.11,<3.14` allows a version; what is not simple is accepted."""
    here = [int(part) for part in python.split(".")]
    for clause in specifier.split(","):
        match = re.fullmatch(r"\s*(>=|<=|<|>|==|~=)\s*(\d+)(?:\.(\d+))?(?:\.\d+)?(?:\.\*)?\s*", clause)
        if not match:
            continue
        there = [int(match[2]), int(match[3] or 0)]
        short = here[: 2 if match[3] else 1]
        fits = {">=": here >= there, "~=": here >= there, "<": here < there, "==": short == there[: len(short)]}
        if not fits.get(match[1], short <= there[: len(short)]):
            return False
    return True
