"""Rules about the Dockerfile: what a build would refuse only after minutes, or would get wrong without a message."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gpukit.project.messages import alike
from gpukit.validate.problem import RESTORE, STACK, Problem

FILE, IGNORE = "Dockerfile", ".dockerignore"
INSTRUCTIONS = (
    "ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL MAINTAINER ONBUILD RUN SHELL STOPSIGNAL USER VOLUME "
    "WORKDIR"
)
PREDEFINED = re.compile(
    r"(?i)(https?|ftp|no|all)_proxy|(TARGET|BUILD)(PLATFORM|OS|ARCH|VARIANT)|BUILDKIT_.*|SOURCE_DATE_.*"
)
# What the image needs to be this project's, and what it lacks otherwise.
ESSENTIAL = {
    "python3 install.py": "does not install PyTorch as stack.json says",
    "gpukit.image.layers": "does not read stack.json and pyproject.toml",
    "guard.py check": "does not protect PyTorch's packages",
    "/vendor/*.whl": "does not install gpukit, which verifies the container",
}
STAGES = ("system", "tools", "torch", "dependencies")  # of the generated Dockerfile; no images have these names
BASE = re.compile(r"ARG\s+BASE_IMAGE=[\"']?([^\s\"']+)|\$\{BASE_IMAGE:-([^}]+)\}")
ARCHITECTURES = re.compile(r"\bTORCH_CUDA_ARCH_LIST=[\"']?([^\"'\s]+)")


class Instruction(NamedTuple):
    line: int
    name: str
    rest: str


def instructions(text: str) -> list[Instruction]:
    """The instructions of a Dockerfile, with continued lines joined, and without comments and heredocs."""
    found: list[Instruction] = []
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        joined = line
        while joined.rstrip().endswith("\\") and not joined.lstrip().startswith("#"):
            following = next(lines, (0, ""))[1]
            joined = joined.rstrip()[:-1] + ("\\" if following.lstrip().startswith("#") else f" {following}")
        if not joined.strip() or joined.lstrip().startswith("#"):
            continue
        for end in re.findall(r"<<-?[\"']?(\w+)[\"']?", joined):
            while next(lines, (0, end))[1].strip() != end:
                pass
        name, _, rest = joined.strip().partition(" ")
        found.append(Instruction(number, name, rest.strip()))
    return found


def dockerfile(project: Path, args: Mapping[str, list[str]], stack: Mapping[str, Any]) -> Iterator[Problem]:
    """`args`: the build arguments that the configurations pass, each with the files that do."""
    path = project / FILE
    if not path.is_file():
        yield Problem(FILE, "", "is missing", RESTORE)
        return
    steps = instructions(path.read_text(encoding="utf-8"))
    if not steps:
        yield Problem(FILE, "", "has no instructions", "restore it with `git checkout`")
        return
    for step in steps:
        if step.name.upper() not in INSTRUCTIONS.split():
            meant = alike(step.name, INSTRUCTIONS.split())
            remedy = f"did you mean `{meant}`?" if meant else "restore the file with `git checkout`"
            yield Problem(FILE, f"line {step.line}", f"`{step.name}` is not an instruction", remedy)
            return
    misnamed = list(stages(steps))
    if misnamed:
        yield from misnamed
        return
    lines = [step.rest for step in steps if step.name.upper() == "ARG"]
    declared = {each.partition("=")[0] for line in lines for each in line.split()}
    for arg, names in {**args, "USER_UID": ["every start"], "USER_GID": ["every start"]}.items():
        if arg in declared or PREDEFINED.fullmatch(arg):
            continue
        if arg in args and len(names) == 1:
            what = "is not declared in the Dockerfile, so that it has no effect"
            yield Problem(names[0], f"/build/args/{arg}", what, f"add `ARG {arg}` there, or remove it")
        else:
            what = f"does not declare the build argument {arg}, passed by {' and '.join(names)}"
            yield Problem(FILE, "", what, f"add `ARG {arg}` to the stage that uses it")
    if not any(BASE.search(f"{step.name} {step.rest}") for step in steps):
        wanted = stack.get("image", "IMAGE")
        yield Problem(FILE, "", "has no default for BASE_IMAGE", f"write `FROM ${{BASE_IMAGE:-{wanted}}}`")
    users = [step for step in steps if step.name.upper() in ("USER", "FROM")]
    if users[-1].name.upper() == "FROM" or users[-1].rest.split(":")[0] in ("root", "0"):
        what = "the image runs as root, and what root writes to the workspace belongs to root on the host"
        yield Problem(FILE, f"line {users[-1].line}", what, "end it with `USER ${USER_UID}`")
    for fragment, what in ESSENTIAL.items():
        if not any(fragment in step.rest for step in steps):
            yield Problem(FILE, "", what, f"add the line with `{fragment}` again, or `git checkout` the file")
    made = " ".join(step.rest for step in steps)
    targets = [each for each in [*stack.get("mounts", []), *stack.get("read_only", [])] if each.startswith("/home/")]
    absent = [each for each in targets if not re.search(rf"{re.escape(each)}(?=[\"'\s/]|$)", made)]
    if absent:
        what = f"does not create {', '.join(absent)}, so that Docker creates it as root when it is mounted"
        yield Problem(FILE, "", what, "add it to the `mkdir -p` before `chown`")
    yield from copies(project, steps)
    yield from architectures(steps, stack)


def stages(steps: list[Instruction]) -> Iterator[Problem]:
    """`--from=NAME` and `FROM NAME`, where NAME resembles a stage that exists, or is none and no image either."""
    names: list[str] = []
    for step in steps:
        sources = re.findall(r"--from=(\S+)", step.rest) if step.name.upper() in ("COPY", "RUN", "ADD") else []
        if step.name.upper() == "FROM":
            words = [word for word in step.rest.split() if not word.startswith("--")]
            sources = words[:1]
        for source in sources:
            if source in names or re.search(r"[/:$@]|^\d+$|^scratch$", source):
                continue
            meant = alike(source, names)
            if meant or source in STAGES:
                remedy = f"did you mean `{meant}`?" if meant else "restore the file with `git checkout`"
                yield Problem(FILE, f"line {step.line}", f"no stage before this line is named `{source}`", remedy)
                return
        if step.name.upper() == "FROM" and len(words) == 3:
            names.append(words[2])


def copies(project: Path, steps: list[Instruction]) -> Iterator[Problem]:
    """What COPY takes from the project must be there, and must not be kept from the build by .dockerignore."""
    ignore = project / IGNORE
    if not ignore.is_file():
        what = "is missing, so that a build sends all files, secrets and data too"
        yield Problem(IGNORE, "", what, RESTORE)
    lines = ignore.read_text(encoding="utf-8").splitlines() if ignore.is_file() else []
    rules = [line.strip().lstrip("/") for line in lines if line.strip() and not line.startswith("#")]
    if ignore.is_file() and not excluded(".env", rules):
        yield Problem(IGNORE, "", "does not keep .env, with its secrets, from the build", "begin it with the line `*`")
    for step in steps:
        if step.name.upper() not in ("COPY", "ADD") or "--from=" in step.rest or step.rest.startswith("["):
            continue
        for source in [word for word in step.rest.split() if not word.startswith("--")][:-1]:
            pattern = source.lstrip("/")
            if re.search(r"\$|://|<<|\[", pattern):
                continue  # a variable, an address, or a file that may be missing (`requirements.tx[t]`)
            if not re.search(r"[*?]", pattern) and not (project / pattern).exists():
                yield Problem(pattern, "", f"is missing, and the Dockerfile copies it (line {step.line})", RESTORE)
            elif excluded(pattern.replace("*", "x"), rules):
                what = f"keeps {source} from the build, and the Dockerfile copies it (line {step.line})"
                yield Problem(IGNORE, "", what, f"add the line `!{source}`")


def excluded(name: str, rules: list[str]) -> bool:
    """Whether .dockerignore keeps a file from the build: the last rule that matches it, or a folder of it, decides."""
    out = False
    for rule in rules:
        pattern = rule.lstrip("!").strip("/")
        parents = [name, *(str(parent) for parent in Path(name).parents if str(parent) != ".")]
        if any(fnmatch.fnmatchcase(each, pattern.replace("**/", "")) for each in parents):
            out = not rule.startswith("!")
    return out


def architectures(steps: list[Instruction], stack: Mapping[str, Any]) -> Iterator[Problem]:
    targets = stack.get("targets") or {}
    wanted = {target["capability"].rstrip("af") for target in targets.values() if target["capability"]}
    for step in steps:
        match = ARCHITECTURES.search(step.rest) if step.name.upper() == "ENV" else None
        listed = {each.replace("+PTX", "").rstrip("af") for each in re.split(r"[;\s]", match[1])} if match else set()
        if match and not wanted <= listed:
            what = f"compiles for {match[1]}, and {STACK} says {', '.join(sorted(wanted))}"
            yield Problem(FILE, f"line {step.line}", what, f'write TORCH_CUDA_ARCH_LIST="{";".join(sorted(wanted))}"')


def base(project: Path, stack: Mapping[str, Any]) -> Iterator[Problem]:
    """The base image of the Dockerfile, against the one in stack.json."""
    path, wanted = project / FILE, stack["image"]
    for step in instructions(path.read_text(encoding="utf-8")) if path.is_file() else []:
        match = BASE.search(f"{step.name} {step.rest}")
        if match:
            image = match[1] or match[2]
            if image != wanted and not re.fullmatch(re.escape(wanted) + r"@sha256:[0-9a-f]{64}", image):
                remedy = f"write {wanted} (a digest may follow: {wanted}@sha256:...), or run `./launch update`"
                yield Problem(FILE, f"line {step.line}", f"image is {image}, and {STACK} says {wanted}", remedy)
            return
