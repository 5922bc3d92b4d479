"""`./launch add`: try a package beside what the base brings, and write it down only when it fits."""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from gpukit.errors.known import match_rules
from gpukit.host.project import Project
from gpukit.launch import image
from gpukit.launch.container import enter, flags, start, workplaces
from gpukit.launch.found import Found
from gpukit.project import pyproject
from gpukit.project.messages import RefusalError, say

# In the sticky folders of the image only its owner, root, may replace what the build installed.
MAY_REPLACE = """
import importlib.metadata, os, sys
sys.exit(not all(os.access(importlib.metadata.distribution(name)._path, os.W_OK) for name in sys.argv[1:]))
"""
# Fail after 5 seconds if the index cannot be connected to; one that is only slow keeps uv's timeouts and retries.
# https://docs.astral.sh/uv/reference/environment/ (2026-11-23)
AT_ONCE = {"UV_HTTP_RETRIES": "0", "UV_HTTP_CONNECT_TIMEOUT": "5"}
# What gives a container that runs the next build.
AGAIN = {
    "dev": "run `./launch stop`, then `./launch up`",
    "notebook": "run `./launch stop`, then `./launch notebook`",
    "vscode": 'choose "Rebuild Container" in VS Code',
}


def add(project: Project, packages: list[str]) -> int:
    path = project.root / "pyproject.toml"
    text = pyproject.read(path)
    edited = apply(project, text, packages)
    if edited == text:
        return 0
    found = [] if project.dry else workplaces(project)
    name = f"{project.tag}-add-{secrets.token_hex(2)}"
    launch_folder = project.root / ".launch"
    if not found:
        throwaway = ["--detach", "--rm", *flags(project, name, "add"), project.tag, "sleep", "infinity"]
        if project.show_start("run", *throwaway):
            project.show(*enter(project, Found(name, True, "add"), install(project, ".launch/add")))
            return 0
        project.prepare()
        image.ensure(project)
        start(project, *throwaway)
    launch_folder.mkdir(mode=0o700, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=launch_folder, prefix="add-"))
    try:
        (folder / "pyproject.toml").write_text(edited, encoding="utf-8")
        inside = f".launch/{folder.name}"
        first, *others = found or [Found(name, True, "add")]
        without = {first: attempt(project, first, packages, inside)}
        pyproject.write(path, edited)
        for other in others:
            try:
                without[other] = attempt(project, other, packages, inside)
            except RefusalError as refusal:
                without[other] = str(refusal)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if not found:
            project.engine.call("rm", "--force", name)
    having = [one.name for one in found if not without[one]]
    says = f" and to {', '.join(having)}, and to the next build" if having else "; the next build installs it"
    say(f"Added {', '.join(packages)} to pyproject.toml{says}.")
    for one, why in without.items():
        if why:
            say(f"{one.name} does not have it yet ({why.rstrip('.')}): {AGAIN.get(one.role, AGAIN['dev'])}.")
    if (project.root / "requirements.txt").is_file():
        say("requirements.txt does not pin them yet: run `./launch pin`.")
    return 0


def apply(project: Project, text: str, packages: list[str]) -> str:
    """The edited text; refuses by name what the base brings."""
    protected = project.stack.get("protected", [])
    for package in packages:
        name = pyproject.name_of(package)
        if pyproject.matches(name, protected):
            raise RefusalError(
                f"{name} comes with the base image and cannot be changed: choose another base to get another version."
            )
        requirements = pyproject.Requirements(text)
        present = {pyproject.name_of(value): value for value in requirements.values()}
        if name in present and pyproject.canonical(package) in (name, pyproject.canonical(present[name])):
            say(f"{name} is already in pyproject.toml, as {present[name]!r}.")
        else:
            text = requirements.set(package)
    return text


def install(project: Project, folder: str) -> list[str]:
    """The very command of the build, with the edited pyproject.toml."""
    pinned = ["--requirement=requirements.txt"] if (project.root / "requirements.txt").is_file() else []
    return ["uv", "pip", "install", *pinned, f"--requirement={folder}/pyproject.toml"]


def attempt(project: Project, found: Found, packages: list[str], folder: str) -> str:
    """Resolve, then install; why this container, which runs, cannot take it, or a refusal with nothing changed."""

    def inside(*command: str, **env: str) -> tuple[int, str, str]:
        arguments = enter(project, found, list(command), interactive=False)
        arguments[1:1] = [f"--env={name}={value}" for name, value in env.items()]
        # a throw-away container may replace packages, as the build may
        as_build = ["exec", "--user=0:0", *arguments[1:]] if found.role == "add" else arguments
        return project.engine.call(*as_build)

    whole = install(project, folder)
    replaced: list[str] = []
    # a container that stays may be older than pyproject.toml: then the new packages alone may still fit it
    for way in [whole] if found.role == "add" else [whole, ["uv", "pip", "install", *packages]]:
        code, plan = resolve(lambda way=way, **env: inside(*way, "--dry-run", **env))
        if code and way is whole:
            raise refusal(project, plan, packages, inside("cat", "/etc/gpukit/protected.txt")[1])
        changed = re.findall(r"^ [-~] ([\w.-]+)==", plan, re.MULTILINE)
        if code or (found.role != "add" and changed and inside("python", "-c", MAY_REPLACE, *changed)[0]):
            replaced = replaced or changed
            continue
        code, _, errors = inside(*way)
        if code:
            raise refusal(project, errors, packages, "")
        return ""
    return (
        f"it replaces {', '.join(replaced)}, which a running container may not" if replaced else "it is not compatible"
    )


def resolve(ask: Callable[..., tuple[int, str, str]]) -> tuple[int, str]:
    """The status and the plan of uv's resolution, which `ask` runs with these variables."""
    code, _, plan = ask(**AT_ONCE)
    if code and match_rules(plan, "uv-unreachable") and "client error (Connect)" not in plan:
        code, _, plan = ask()
    return code, plan


def refusal(project: Project, output: str, packages: list[str], protected: str) -> RefusalError:
    """uv's explanation in one sentence: which package of the base would have to change, or what else is wrong."""
    text = re.sub(r"\s+", " ", re.sub(r"[^\x00-\x7f]", " ", output)).strip()
    which = ", ".join(packages)
    for line in protected.split():
        name, _, version = line.partition("==")
        asked = re.findall(rf"(?<![\w.-]){re.escape(name)}((?:[<>=!~]=|[<>])[^\s;]*[^\s;,.])", text)
        asked = [one for one in asked if one not in (f"=={version}", f"<{version}", f">{version}")]
        if asked:
            need = f"it needs {name}{asked[0]}, and the base has {name} {version}"
            return RefusalError(f"{which} cannot be added: {need}.")
    missing = match_rules(text, "not-in-index")
    if missing:
        name = next(filter(None, missing.groups()))
        return RefusalError(f"{which} cannot be added: there is no package {name}.", kind="uv", id="not-in-index")
    unreachable = match_rules(text, "uv-unreachable")
    if unreachable:
        index = unreachable[1] or "the package index"
        return RefusalError(
            f"{which} cannot be added: {index} does not respond; check the network, and `HTTPS_PROXY` behind a proxy.",
            kind="uv",
            id="uv-unreachable",
        )
    because = re.search(r"(Because .*|Failed to .*|error: .*)", text, re.IGNORECASE)
    if because:
        pinned = " (`./launch pin --remove` unpins the others)" * (project.root / "requirements.txt").is_file()
        return RefusalError(f"{which} cannot be added: {because[1][0].lower()}{because[1][1:600]}{pinned}")
    return project.engine.explain(output, f"{which} cannot be added")
