"""`./launch add`: try a package beside what the base brings, and write it down only when it fits."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from pathlib import Path

from gpukit.errors.known import match_signs
from gpukit.findings import checks as running
from gpukit.host.project import Project
from gpukit.launch import image
from gpukit.launch.container import ask, enter, flags, start, workplaces
from gpukit.launch.found import Found
from gpukit.project import dependencies, pyproject
from gpukit.project.location import is_adopted
from gpukit.project.messages import RefusalError, say

# In the sticky folders of the image only its owner, root, may replace what the build installed.
MAY_REPLACE = """
import importlib.metadata, os, sys
sys.exit(not all(os.access(importlib.metadata.distribution(name)._path, os.W_OK) for name in sys.argv[1:]))
"""
FROM_INPUT = "--requirement=-"
INSTALL = ["uv", "pip", "install", FROM_INPUT]  # what the build installs, with the new packages
# Fail after two attempts of 5 seconds if the index cannot be connected to; one that is only slow keeps the defaults.
# https://docs.astral.sh/uv/reference/environment/ (2026-11-23)
AT_ONCE = {"UV_HTTP_RETRIES": "1", "UV_HTTP_CONNECT_TIMEOUT": "5"}
# The line of a build's output that says what is wrong: an exception, or a compiler's error.
BUILD_ERROR = re.compile(
    r"^(?:[\w.]+\.)?\w*(?:Error|Exception)\b: |\b(?:error|ERROR)\b: (?!Failed to build)|: not found$"
)
# What gives a container that runs the next build.
AGAIN = {
    "dev": "run `./launch stop`, then `{up}`",
    "notebook": "run `./launch stop`, then `{notebook}`",
    "vscode": 'choose "Rebuild Container" in VS Code',
}


Judge = Callable[[list[str]], None]  # refuses packages that cannot be installed here, before anything is built
# Runs a command where packages are to be installed, with this standard input: exit status, output, and errors.
Place = Callable[[list[str], bytes], tuple[int, str, str]]
Examine = Callable[[Place], None]  # refuses wheels there, before they are installed


def add(project: Project, packages: list[str], judge: Judge, examine: Examine) -> int:
    path = project.root / dependencies.edited(project.root)
    text = pyproject.read(path)
    edited = apply(project, text, packages)
    if edited == text:
        return 0
    wanted = requirements(project, edited, packages)
    if not project.dry:
        judge(packages)
    found = [] if project.dry else workplaces(project)
    name = f"{project.tag}-add-{secrets.token_hex(2)}"
    if not found:
        throwaway = ["--detach", "--rm", *flags(project, name, "add"), project.tag, "sleep", "infinity"]
        if project.show_start("run", *throwaway):
            project.show(*inside(project, Found(name, True, "add"), INSTALL), stdin=wanted)
            return 0
        image.make_ready(project)
        start(project, *throwaway)
    try:
        first, *others = found or [Found(name, True, "add")]
        without = {first: attempt(project, first, packages, wanted, examine)}
        write(path, text, edited)
        for other in others:
            try:
                without[other] = attempt(project, other, packages, wanted)
            except RefusalError as refusal:
                without[other] = str(refusal)
    finally:
        if not found:
            project.engine.call("rm", "--force", name)
    having = [one.name for one in found if not without[one]]
    says = f" and to {', '.join(having)}, and to the next build" if having else "; the next build installs it"
    say(f"Added {named(packages)} to {dependencies.edited(project.root)}{says}.")
    for one, why in without.items():
        if why:
            again = AGAIN.get(one.role, AGAIN["dev"])
            again = again.format(up=project.launch("up"), notebook=project.launch("notebook"))
            say(f"{one.name} does not have it yet ({why.rstrip('.')}): {again}.")
    if (project.root / "requirements.txt").is_file() and not is_adopted(project.root):
        say("requirements.txt does not pin them yet: run `./launch pin`.")
    return 0


def apply(project: Project, text: str, packages: list[str], native: bool = False) -> str:
    """The edited text; refuses by name what the base brings, and natively also the environment's PyTorch.

    A requirement of an address replaces all others for its package.
    """
    without_docker = project.stack.get("native", {}).get("protected", []) if native else []
    addresses: dict[str, list[str]] = {}
    for package in packages:
        name = pyproject.name_of(package)
        if pyproject.matches(name, without_docker):
            raise RefusalError(f"{name} is part of the environment's PyTorch, which only `./launch update` changes.")
        if pyproject.matches(name, project.stack.get("protected", [])):
            why = "comes with the base image and cannot be changed: choose another base to get another version"
            if native:
                file = dependencies.edited(project.root)
                why = (
                    f"is part of the image, which installs the same {file}: choose another base to get another version"
                )
            raise RefusalError(f"{name} {why}.")
        present = [
            value for value in dependencies.editor(project.root, text).values() if pyproject.name_of(value) == name
        ]
        if present and pyproject.canonical(package) in (name, *map(pyproject.canonical, present)):
            say(f"{name} is already in {dependencies.edited(project.root)}, as {present[0]!r}.")
        if "@" in package:
            addresses.setdefault(name, []).append(package)
        elif not present or pyproject.canonical(package) not in (name, *map(pyproject.canonical, present)):
            text = dependencies.editor(project.root, text).set(package)
    for lines in addresses.values():
        text = dependencies.editor(project.root, text).only(lines)
    return text


def named(packages: list[str]) -> str:
    """The packages in a sentence: of a requirement with an address, only the name."""
    return ", ".join(dict.fromkeys(pyproject.name_of(each) if "@" in each else each for each in packages))


def write(path: Path, before: str, after: str) -> None:
    """Write pyproject.toml, unless somebody has changed it since it was read."""
    if pyproject.read(path) != before:
        raise RefusalError(
            f"{path.name} was changed meanwhile, so nothing was added to it: run the same command again.",
            id="changed-meanwhile",
        )
    pyproject.write(path, after)


def requirements(project: Project, text: str, packages: list[str]) -> str:
    """What is installed from this text of pyproject.toml, one requirement a line; a pin of a package counts too."""
    return "".join(f"{line}\n" for line in dict.fromkeys([*dependencies.wanted(project.root, text), *packages]))


def inside(
    project: Project, found: Found, command: list[str], env: dict[str, str] | None = None, reads: bool = True
) -> list[str]:
    """`docker exec`; `reads`: requirements on standard input. Without that, it is not attached.

    Podman 5.4 loses the output of some programs that end without reading it (4 of 30 calls of `cat`, 2026-11-26).
    """
    arguments = enter(project, found, command, interactive=False)
    arguments[1:1] = ["--interactive"] * reads + [f"--env={name}={value}" for name, value in (env or {}).items()]
    # a throw-away container may replace packages, as the build may
    return ["exec", "--user=0:0", *arguments[1:]] if found.role == "add" else arguments


def attempt(project: Project, found: Found, packages: list[str], wanted: str, examine: Examine = lambda _: None) -> str:
    """Resolve, then install; why this container, which runs, cannot take it, or a refusal with nothing changed."""

    def place(command: list[str], stdin: bytes) -> tuple[int, str, str]:
        return ask(project, False, *inside(project, found, command, reads=bool(stdin)), stdin=stdin)

    def call(*command: str, **env: str) -> tuple[int, str, str]:
        reads = FROM_INPUT in command
        stdin = wanted.encode() if reads else b""
        return ask(project, False, *inside(project, found, list(command), env, reads), stdin=stdin)

    replaced: list[str] = []
    # a container that stays may be older than pyproject.toml: then the new packages alone may still fit it
    for way in [INSTALL] if found.role == "add" else [INSTALL, ["uv", "pip", "install", *packages]]:
        with running.status_line() as show:
            show(f"Resolving {named(packages)}")
            code, plan = resolve(lambda way=way, **env: call(*way, "--dry-run", **env))
        if code and way is INSTALL:
            raise refusal(project, plan, packages, call("cat", "/etc/gpukit/protected.txt")[1])
        changed = re.findall(r"^ [-~] ([\w.-]+)==", plan, re.MULTILINE)
        if code or (found.role != "add" and changed and call("python", "-c", MAY_REPLACE, *changed)[0]):
            replaced = replaced or changed
            continue
        examine(place)
        code, errors, _ = ask(project, True, *inside(project, found, way), stdin=wanted.encode())
        if code:
            raise refusal(project, errors, packages, "")
        return ""
    return (
        f"it replaces {', '.join(replaced)}, which a running container may not" if replaced else "it is not compatible"
    )


def resolve(ask: Callable[..., tuple[int, str, str]]) -> tuple[int, str]:
    """The status and the plan of uv's resolution, which `ask` runs with these variables."""
    code, _, plan = ask(**AT_ONCE)
    if code and match_signs(plan, "uv-unreachable") and "client error (Connect)" not in plan:
        code, _, plan = ask()
    return code, plan


def refusal(
    project: Project, output: str, packages: list[str], protected: str, holder: str = "the base"
) -> RefusalError:
    """uv's explanation in one sentence: which package of `holder` would have to change, or what else is wrong."""
    text = re.sub(r"\s+", " ", re.sub(r"[^\x00-\x7f]", " ", output)).strip()
    which = named(packages)
    for line in protected.split():
        name, _, version = line.partition("==")
        asked = re.findall(rf"(?<![\w.-]){re.escape(name)}((?:[<>=!~]=|[<>])[^\s;]*[^\s;,.])", text)
        asked = [one for one in asked if one not in (f"=={version}", f"<{version}", f">{version}")]
        if asked:
            need = f"it needs {name}{asked[0]}, and {holder} has {name} {version}"
            return RefusalError(f"{which} cannot be added: {need}.")
    missing = match_signs(text, "not-in-index")
    if missing:
        name = next(filter(None, missing.groups()))
        return RefusalError(f"{which} cannot be added: there is no package {name}.", kind="uv", id="not-in-index")
    unreachable = match_signs(text, "uv-unreachable")
    if unreachable:
        index = unreachable[1] or "the package index"
        return RefusalError(
            f"{which} cannot be added: {index} does not respond; check the network, and `HTTPS_PROXY` behind a proxy.",
            kind="uv",
            id="uv-unreachable",
        )
    because = re.search(r"Because .*", text)
    if because:  # uv's own words, without a sentence that would be cut
        words = re.sub(r"hint: .*", "", because[0][:700]).strip()
        words = words if len(because[0]) <= 700 else words[: words.rfind(". ") + 1] or words
        pinned = " `./launch pin --remove` unpins the others." * (project.root / "requirements.txt").is_file()
        return RefusalError(f"{which} cannot be added: {words[0].lower()}{words[1:]}{pinned}")
    return not_built(output, which) or project.engine.explain(output, f"{which} cannot be added")


def not_built(output: str, which: str) -> RefusalError | None:
    """The last error of a build, and what it means; None if the text is not about a build."""
    failed = re.search(r"Failed to (?:build|download and build) `?([\w.-]+)", output)
    if not failed:
        return None
    text = output[failed.start() :].partition("\nhint: ")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines[1:] if BUILD_ERROR.search(line)] or lines[-1:]
    from gpukit.errors.diagnose import diagnose  # many patterns, and seldom needed
    from gpukit.findings.causes import PROJECT

    causes = diagnose("\n".join([lines[0], *errors])).causes
    words = causes[0].words(PROJECT) if causes else None
    meaning = f" {words.why} {words.remedy}" if words else ""
    sentence = f"{which} cannot be added: the build of {failed[1]} failed with `{errors[-1]}`.{meaning}"
    return RefusalError(sentence, kind="uv", id=causes[0].cause.id if causes else "", output=output)
