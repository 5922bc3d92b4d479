"""Rules about the Dockerfile and .dockerignore: what a build refuses late, or gets wrong without a message."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gpukit.project.location import is_adopted, located, place
from gpukit.project.messages import alike
from gpukit.project.specification import INSTRUCTION_FLAGS, INSTRUCTIONS, RUN_MOUNT, RUN_MOUNT_TYPES
from gpukit.validate import secrets
from gpukit.validate.files import UNIX, other_torch
from gpukit.validate.formats import shell
from gpukit.validate.problem import DOCKERFILE, RESTORE, STACK, Problem

IGNORE = {".dockerignore": "the build", ".gitignore": "git"}
PREDEFINED = re.compile(
    r"(?i)(https?|ftp|no|all)_proxy|(TARGET|BUILD)(PLATFORM|OS|ARCH|VARIANT)|BUILDKIT_.*|SOURCE_DATE_.*"
)
# What the image needs to be this project's, and what it lacks otherwise.
ESSENTIAL = {
    "/layers/torch": "does not copy what says which PyTorch is installed",
    "python3 install.py": "does not install PyTorch as stack.json says",
    "/layers/dependencies/first.txt": "does not copy the dependencies that are built from source",
    "WORKDIR /etc/gpukit": "does not work in the folder that the variables of pip and uv name",
    "/layers/dependencies/all.txt": "does not copy the list of the dependencies",
    "-r all.txt": "does not install the dependencies in pyproject.toml",
    "gpukit.image.layers": "does not read stack.json and pyproject.toml",
    "guard.py check": "does not protect PyTorch's packages",
    "UV_CONSTRAINT=/etc/gpukit/protected.txt": "lets other packages replace PyTorch's",
    "/vendor/*.whl": "does not install gpukit, which verifies the container",
    "PYTHONPATH=/workspace/src": "does not let Python find the project's package",
}
STAGES = ("system", "tools", "torch", "dependencies")  # of the generated Dockerfile; no images have these names
BASE = re.compile(r"ARG\s+BASE_IMAGE=[\"']?([^\s\"']+)|\$\{BASE_IMAGE:-([^}]+)\}")
EXPANDED = ("ADD", "COPY", "ENV", "EXPOSE", "FROM", "LABEL", "USER", "VOLUME", "WORKDIR")  # BuildKit replaces variables
# How instructions begin, and what they need (BuildKit's frontend/dockerfile/instructions/parse.go, read 2026-11-27)
FORMS = {
    "EXPOSE": (r"\d|\S*\$", "the number of a port"),
    "HEALTHCHECK": (r"(?i)(--\S+\s+)*(none\s*$|cmd\s+\S)", "CMD before the command"),
    "SHELL": (r"\[", '["bash", "-c"]'),
    "WORKDIR": (r"\S", "a folder"),
}
WITHOUT_VALUE = "readonly ro readwrite rw required"  # fields of RUN --mount (commands_runmount.go there)
# What nobody but root can do: these refused it when tried (Debian 13's passwd and adduser, 2026-11-27)
ROOT = "addgroup adduser groupadd groupmod useradd usermod"
# What the base images do not have, and what to do instead
ABSENT = {"sudo": "remove it: RUN is root before the line with USER", "conda": "name the packages in pyproject.toml"}
ONLY_INSIDE = (
    "the server listens on 127.0.0.1, which is the container itself: nobody else reaches its port",
    "write `--host 0.0.0.0`: what is published decides who reaches it",
)
# Servers of one port that listen there unless an option says otherwise (their `--help`, and uvicorn.org/settings, read
# 2026-11-27); `fastapi run` listens everywhere, and for jupyter a file in its image may say where
SERVERS = r"(?:uvicorn|fastapi dev|mlflow (?:server|ui)|tensorboard|gpukit\.jobs\.serve)(?![\w.-])"
STARTS = r"(?:(?:\S*/)?(?:exec|uv run|(?:ba)?sh -l?c|python[\d.]*(?: -[A-Za-z])* -m) )*(?:\S*/)?"  # before a program
QUOTED = r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\""
UNENDED = "<<"  # in place of an instruction: a here-document without its end
CONTINUES = "\\"  # and one that runs into the next one
CONTINUED = re.compile(rf"({INSTRUCTIONS.replace(' ', '|')})\s")
COMMAND = r"(?:^(?:--\S+ )*|&&|\|\||;)\s*(?:\w+=\S+ )*"  # what stands before a command of RUN
ARCHITECTURES = re.compile(r"\bTORCH_CUDA_ARCH_LIST=[\"']?([^\"'\s]+)")


class Instruction(NamedTuple):
    line: int
    name: str
    rest: str


def at(step: Instruction, what: str, remedy: str) -> Problem:
    return Problem(DOCKERFILE, f"line {step.line}", what, remedy)


def instructions(text: str) -> list[Instruction]:
    """The instructions of a Dockerfile, with continued lines joined, and without comments and heredocs."""
    found: list[Instruction] = []
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        joined = line
        while joined.rstrip().endswith("\\") and not joined.lstrip().startswith("#"):
            following = next(lines, (0, " "))[1]  # the end of the file ends it too
            if CONTINUED.match(following):
                found.append(Instruction(number, CONTINUES, following.split()[0]))
            skipped = not following or following.lstrip().startswith("#")
            joined = joined.rstrip()[:-1] + ("\\" if skipped else f" {following}")
        if not joined.strip() or joined.lstrip().startswith("#"):
            continue
        for end in re.findall(r"(?<![<\w])<<-?[\"']?([A-Za-z_]\w*)", joined):
            while (following := next(lines, (0, None))[1]) is not None and following.strip() != end:
                pass
            if following is None:
                found.append(Instruction(number, UNENDED, end))
        name, _, rest = joined.strip().partition(" ")
        found.append(Instruction(number, name.upper(), rest.strip()))
    return found


def dockerfile(project: Path, args: Mapping[str, list[str]], stack: Mapping[str, Any]) -> Iterator[Problem]:
    """`args`: the build arguments that the configurations pass, each with the files that do."""
    steps = instructions(located(DOCKERFILE, project).read_text(encoding="utf-8-sig"))
    if problem := mistake(steps):
        yield problem
        return
    yield from arguments(steps, args)
    if not any(BASE.search(f"{step.name} {step.rest}") for step in steps):
        wanted = stack.get("image", "IMAGE")
        yield Problem(DOCKERFILE, "", "has no default for BASE_IMAGE", f"write `FROM ${{BASE_IMAGE:-{wanted}}}`")
    last = [step for step in steps if step.name in ("USER", "FROM")][-1]
    if last.name == "FROM" or last.rest.split(":")[0] in ("root", "0"):
        what = "the image runs as root, and what root writes to the workspace belongs to root on the host"
        yield at(last, what, "end it with `USER ${USER_UID}`")
    serves = any(step.name in ("EXPOSE", "HEALTHCHECK") for step in steps)
    made = " ".join(f"{step.name} {step.rest}" for step in steps)
    folder = "/layers/dependencies/"
    both = made.replace(f"{folder} ", f"{folder}first.txt {folder}all.txt")  # copied as a folder
    lacks = [fragment for fragment in ESSENTIAL if fragment not in both]
    if is_adopted(project):  # the repository's own package is installed, if it is one
        lacks = [fragment for fragment in lacks if "PYTHONPATH" not in fragment]
    if lacks:  # a removed part is one cause
        what = " and ".join(ESSENTIAL[fragment] for fragment in lacks)
        yield Problem(DOCKERFILE, "", what, f"add the line with `{lacks[0]}` again, or `git checkout` the file")
    for target in [*stack.get("mounts", []), *stack.get("read_only", [])]:
        if target.startswith("/home/") and not re.search(rf"{re.escape(target)}(?=[\"'\s/]|$)", made):
            what = f"does not create {target}, so that Docker creates it as root when it is mounted"
            yield Problem(DOCKERFILE, "", what, "add it to the `mkdir -p` before `chown`")
    for step in steps:
        for name, value in re.findall(r"(\w+)=[\"']?([^\s\"']+)", step.rest) if step.name in ("ENV", "ARG") else ():
            yield from secrets.secret(DOCKERFILE, f"line {step.line}", name, value, secrets.IN_THE_IMAGE)
        if step.name == "CMD" and serves and only_inside(step.rest) and "UVICORN_" not in made:
            yield at(step, *ONLY_INSIDE)
    yield from entrypoint(steps)
    yield from copies(project, steps, stack)
    yield from search_path(steps)
    yield from packages(project, steps)
    yield from installs(steps, stack)
    yield from architectures(steps, stack)


def mistake(steps: list[Instruction]) -> Problem | None:
    """The first thing for which a build refuses a Dockerfile, whatever it is for."""
    checks = (misspelled, wrong_form, wrong_flag, unreadable, wrong_stage, undefined)
    return next(filter(None, (check(steps) for check in checks)), None)


def misspelled(steps: list[Instruction]) -> Problem | None:
    for step in steps:
        if step.name == UNENDED:
            what = f"the here-document has no line `{step.rest}`, which ends it"
            return at(step, what, f"add the line `{step.rest}`")
        if step.name == CONTINUES:
            what = f"the instruction runs into the next one, `{step.rest}`"
            return at(step, what, "remove the `\\` at the end of its last line")
        if step.name not in INSTRUCTIONS.split():
            meant = alike(step.name, INSTRUCTIONS.split())
            remedy = f"did you mean `{meant}`?" if meant else "restore the file with `git checkout`"
            return at(step, f"`{step.name}` is not an instruction", remedy)
    return None


def wrong_form(steps: list[Instruction]) -> Problem | None:
    """A list that is not JSON, which a shell would run as a text, and COPY without a place to copy to."""
    for step in steps:
        words = [word for word in step.rest.split() if not word.startswith("--")]
        # A shell's test has a space after its bracket, and a file's name may begin with a bracket.
        start = {"COPY": "[\"']", "ADD": "[\"']"}.get(step.name, r"[^\s\[]")
        if step.name in ("CMD", "COPY", "ADD", "ENTRYPOINT", "SHELL") and re.match(rf"\[{start}", step.rest):
            try:
                program = json.loads(step.rest)[:1]
            except ValueError:
                return at(step, f"the list of {step.name} is not JSON", 'write it as ["one", "two"]')
            if step.name not in ("COPY", "ADD") and " -" in "".join(program):
                return at(step, f"{step.name} has a program with a space in its name", 'write it as ["bash", "-c"]')
        elif step.name in EXPANDED and re.search(r"\s#(\s|$)", re.sub(QUOTED, "", step.rest)):
            return at(step, f"the comment is part of {step.name}", "give it a line of its own, above")
        elif step.name in EXPANDED and '"' in re.sub(rf"{QUOTED}|<<.*", "", step.rest):
            return at(step, f"{step.name} has a quote without its end", "end it")
        elif step.name in ("ENV", "LABEL") and spaced(step.rest):
            return at(step, f"{step.name} has a space beside its =, or in a value without quotes", 'write NAME="VALUE"')
        elif step.name == "FROM" and not re.fullmatch(r"(--\S+\s+)*\S+(\s+(?i:as)\s+\S+)?", step.rest):
            return at(step, "FROM has a space in its image", "write FROM IMAGE AS NAME")
        elif step.name in ("COPY", "ADD") and len(words) < 2 and not step.rest.startswith("["):
            return at(step, f"{step.name} needs what it copies and where to", "add the place, such as `./`")
        elif step.name in ("COPY", "ADD") and len(words) > 2 and not re.search(r"[/$\"'\]}]$|^\.\.?$|<<", words[-1]):
            return at(step, f"{step.name} of several files needs a folder", f"write `{words[-1]}/`")
        elif step.name in FORMS and not re.match(FORMS[step.name][0], step.rest):
            return at(step, f"{step.name} is {step.rest or 'empty'}", f"write {FORMS[step.name][1]}")
    return None


def spaced(pairs: str) -> bool:
    """Whether not all words are NAME=VALUE, as they must be if the first one is. Otherwise, all are one value."""
    first, *others = re.sub(QUOTED, "x", pairs).split() or ["="]
    if "=" in first:
        return not all("=" in word[1:] for word in others)
    return others != [] and (others[0].startswith("=") or any(re.match(r"[A-Z_]\w*=", word) for word in others[1:]))


def unreadable(steps: list[Instruction]) -> Problem | None:
    """Commands that the shell cannot read, unless the image has another shell. A here-document is not looked into."""
    runs = [step for step in steps if step.name == "RUN" and "<<" not in step.rest and not step.rest.startswith("[")]
    commands = {step: re.sub(r"^(?:--\S+\s+)*", "", step.rest) for step in runs}
    if any(step.name == "SHELL" for step in steps):
        return None
    for step, command in commands.items():
        if re.search(r"(^|&&|;)\s*source\s", re.sub(r"'[^']*'|\"[^\"]*\"", "", command)):
            return at(step, "`source` is a command of bash, and RUN uses sh", "write `. FILE`")
    try:
        shell(" ;\n".join(commands.values()), "sh")  # all at once: each takes time
    except ValueError:
        for step, command in commands.items():
            try:
                shell(command, "sh")
            except ValueError as error:
                return at(step, str(error), "correct the command")
    return None


def wrong_flag(steps: list[Instruction]) -> Problem | None:
    """A flag of an instruction, or a field of `RUN --mount`, that resembles one, and a type that does not exist."""
    for step in steps:
        given = re.match(r"(?:--\S+\s+)*", step.rest)[0].split() if step.name in INSTRUCTION_FLAGS else []
        for flag in given:
            name, _, value = flag[2:].partition("=")
            pairs = [field.partition("=")[::2] for field in value.split(",")] if name == "mount" else []
            fields = dict(pairs)
            lacks = [field for field, given in pairs if not given and "$" not in field]
            if lacks and lacks[0] not in WITHOUT_VALUE.split():
                what = f"the field {lacks[0] or 'after a comma, or after --mount,'} of a mount has no value"
                return at(step, what, "write --mount=NAME=VALUE,NAME=VALUE, without spaces")
            asked = [(name, INSTRUCTION_FLAGS[step.name], f"{step.name} has no flag --{name}")]
            asked += [(key, RUN_MOUNT, f"a mount has no field `{key}`") for key in fields]
            for word, known, what in asked:
                meant = alike(word, known.split())
                if meant and word not in known.split():
                    return at(step, what, f"did you mean `{meant}`?")
            kind = fields.get("type", "bind")
            if kind not in RUN_MOUNT_TYPES.split() and "$" not in kind:
                meant = alike(kind, RUN_MOUNT_TYPES.split())
                remedy = f"did you mean `{meant}`?" if meant else f"write one of {', '.join(RUN_MOUNT_TYPES.split())}"
                return at(step, f"RUN has no mount of the type {kind}", remedy)
    return None


def undefined(steps: list[Instruction]) -> Problem | None:
    """A variable that only resembles one of ARG or ENV, or an ARG of another stage. Others of RUN are the shell's."""
    known: dict[str, Instruction] = {}
    for step in steps:
        if step.name in ("ARG", "ENV"):
            known = dict.fromkeys(re.findall(r"(?<!\S)(\w+)", step.rest), step) | known
    scope: set[str] = set()
    above = scope  # the first FROM, and seen by FROM only
    stages: dict[str, set[str]] = {}
    for step in steps:
        text = re.sub(r"'[^']*'", "", step.rest) if step.name == "RUN" else step.rest
        used = re.findall(r"\$\{?([A-Za-z_]\w*)", text) if step.name in (*EXPANDED, "RUN") else []
        for name in [name for name in used if not PREDEFINED.fullmatch(name)]:
            meant = alike(name, known, 0.9) if name not in known and step.name != "RUN" else ""
            of_shell = step.name == "RUN" and re.search(rf"(?<![\w${{]){name}\b", text)
            if meant:
                return at(step, f"there is no variable `{name}`", f"did you mean `{meant}`?")
            if step.name == "FROM" and name in known and name not in above:
                what = f"FROM does not see {name}, which a stage declares (line {known[name].line})"
                return at(step, what, f"write `ARG {name}` above the first FROM")
            if step.name != "FROM" and name in known and known[name].name == "ARG" and not (name in scope or of_shell):
                what = f"{name} is not declared in this stage, but in line {known[name].line}"
                return at(step, what, f"write `ARG {name}` in this stage, above")
        if step.name == "FROM":
            words = [word for word in step.rest.split() if not word.startswith("--")]
            scope = stages[words[-1]] = {*stages.get(words[0], ())}
        elif step.name in ("ARG", "ENV"):
            scope |= {*re.findall(r"(?<!\S)(\w+)", step.rest)}
    return None


def entrypoint(steps: list[Instruction]) -> Iterator[Problem]:
    """An ENTRYPOINT that does not run the command it is given: in the shell's form, or an interpreter."""
    last = next((step for step in reversed(steps) if step.name == "ENTRYPOINT"), None)
    if not last:
        return
    try:
        program = json.loads(last.rest)
    except ValueError:
        program = None
    alone = isinstance(program, list) and len(program) == 1
    interprets = alone and re.search(r"(?:^|/)(?:python[\d.]*|\w*sh)$", str(program[0]))
    module = isinstance(program, list) and program[1:2] == ["-m"]
    own = [str(part) for part in program or [] if re.fullmatch(r"/[\w.-]+\.sh", str(part))]  # images have theirs deeper
    if own and not any(Path(own[0]).name in step.rest for step in steps if step.name != "ENTRYPOINT"):
        yield at(last, f"nothing copies {own[0]} to the image", "add a COPY of it")
    elif program is None or interprets or module:
        what = "this ENTRYPOINT does not run the command that ./launch and VS Code give to the container"
        yield at(last, what, 'remove it, or end it with a script that runs `exec "$@"`')


def wrong_stage(steps: list[Instruction]) -> Problem | None:
    """`--from=NAME` and `FROM NAME`, where NAME resembles a stage that exists, or is none and no image either."""
    names: list[str] = []
    for step in steps:
        words = [word for word in step.rest.split() if not word.startswith("--")]
        sources = words[:1] if step.name == "FROM" else re.findall(r"--from=(\S+)", step.rest)
        for source in sources:
            meant = alike(source, names)
            if source in names or re.search(r"[/:$@]|^\d+$|^scratch$", source) or not (meant or source in STAGES):
                continue
            remedy = f"did you mean `{meant}`?" if meant else "restore the file with `git checkout`"
            return at(step, f"no stage before this line is named `{source}`", remedy)
        if step.name == "FROM" and len(words) == 3:
            names.append(words[2])
    return None if any(step.name == "FROM" for step in steps) else Problem(DOCKERFILE, "", "has no FROM", RESTORE)


def arguments(steps: list[Instruction], args: Mapping[str, list[str]]) -> Iterator[Problem]:
    declared = {word.partition("=")[0] for step in steps if step.name == "ARG" for word in step.rest.split()}
    missing: list[str] = []
    for arg, names in {**args, "USER_UID": [], "USER_GID": []}.items():
        if arg in declared or PREDEFINED.fullmatch(arg):
            continue
        if len(names) == 1:
            what = "is not declared in the Dockerfile, so that it has no effect"
            yield Problem(names[0], f"/build/args/{arg}", what, f"add `ARG {arg}` there, or remove it")
        else:
            missing.append(arg)
    if missing:
        what = f"does not declare the build argument {' and '.join(missing)}, which a start passes"
        yield Problem(DOCKERFILE, "", what, f"add `ARG {missing[0]}` to the stage that uses it")


def ignored(project: Path) -> Iterator[Problem]:
    """.env, with its secrets, must reach neither the build nor git."""
    for name, where in IGNORE.items():
        if not excluded(".env", patterns(located(name, project))):
            yield Problem(name, "", f"does not keep .env, with its secrets, from {where}", "add the line `/.env` again")


def copies(project: Path, steps: list[Instruction], stack: Mapping[str, Any]) -> Iterator[Problem]:
    """What COPY takes from the project must be there, and must not be kept from the build by .dockerignore."""
    rules = patterns(located(".dockerignore", project))
    package = f"src/{stack.get('package')}"
    kept: list[tuple[str, int]] = []
    for step in steps:
        if step.name not in ("COPY", "ADD") or "--from=" in step.rest or step.rest.startswith("["):
            continue
        for source in [word for word in step.rest.split() if not word.startswith("--")][:-1]:
            pattern = source.removeprefix("./").strip("/")
            if re.search(r"\$|://|<<|\[", pattern):
                continue  # a variable, an address, or a file that may be missing (`requirements.tx[t]`)
            if pattern.startswith(f"{package}/") and not (project / package).is_dir():
                continue  # the package is renamed, which is reported
            if pattern.startswith("../"):
                what = f"{source} is outside of the project, and a build can only copy from inside it"
                yield at(step, what, "copy it into the project, or mount it")
            elif not (project / re.sub(r"[^/]*[*?].*", "", pattern)).exists() and pattern != "vendor/*.whl":
                yield Problem(pattern, "", f"is missing, and the Dockerfile copies it (line {step.line})", RESTORE)
            elif excluded(pattern.replace("*", "x"), rules):
                kept.append((source, step.line))
    if kept:  # often by one rule
        names = ", ".join(source for source, _ in kept)
        what = f"keeps {names} from the build, and the Dockerfile copies it (line {kept[0][1]})"
        again = ", ".join(f"`!{source}`" for source, _ in kept)
        yield Problem(".dockerignore", "", what, f"add at its end, one per line: {again}")


def only_inside(command: str) -> bool:
    """Whether the only program of a command is a server that listens on the container's own address."""
    named = re.search(r"--(?:host|ip|bind(?:-address)?)['\",=\s]+(127\.0\.0\.1|localhost|::1)(?![\w.])", command)
    by_default = serves(command) and not re.search(r"--(?:host|bind_all|uds|fd)\b|[\s'\"]-h\b", command)
    return bool(named or by_default) and not re.search(r"[;&|]", command)


def serves(command: str) -> bool:
    """Whether the only program of a command, which may be a list, is a server that listens on one port."""
    words = " ".join(re.findall(r"[^\s\[\]'\",]+", command))
    return bool(re.match(STARTS + SERVERS, words)) and not re.search(r"[;&|]", words)


def line_ends(project: Path) -> Iterator[Problem]:
    """What git checks out with the line ends of Windows, although no program reads it so."""
    rules = []
    for pattern, *given in [line.split() for line in patterns(project / ".gitattributes")]:
        ends = [each for each in given if each in ("eol=lf", "eol=crlf", "binary", "-text")]
        rules += [pattern if ends[-1] == "eol=crlf" else f"!{pattern}"] if ends else []
    changed = [name for name in UNIX if located(name, project).is_file() and excluded(place(project, name), rules)]
    if changed:
        what = f"gives {', '.join(changed)} the line ends of Windows"
        remedy = ", ".join(f"`{place(project, name)} eol=lf`" for name in changed)
        yield Problem(".gitattributes", "", what, f"end the file with {remedy}")


def final(steps: list[Instruction]) -> list[Instruction]:
    """The instructions of the last stage, after those of the stages on which it is based."""
    stages: dict[str, list[Instruction]] = {}
    found: list[Instruction] = []
    for step in steps:
        if step.name == "FROM":
            words = [word for word in step.rest.split() if not word.startswith("--")]
            found = [*stages.get(words[0], [])]
            stages[words[-1]] = found
        found.append(step)
    return found


def installs(steps: list[Instruction], stack: Mapping[str, Any]) -> Iterator[Problem]:
    """Requirements that are not in the image, and another torch than the image's, which pip or the guard refuses.

    Other environments may have any torch.
    """
    for step in final(steps) if stack else []:
        runs = step.name == "RUN" and not re.search(r"/activate\b|VIRTUAL_ENV", step.rest)
        for command in re.split(r"&&|\|\||[;|]", step.rest) if runs else ():
            match = re.fullmatch(r"\s*(?:--mount\S+\s+)*(?:uv |python3? -m )?pip3? install (.*)", command)
            for name in re.findall(r"(?:^|\s)(?:-r|--requirement)[\s=]+([\w./-]+)", match[1]) if match else ():
                ours = any(fragment.endswith(name) for fragment in ESSENTIAL)  # whose absence is reported
                if not ours and not arrives(name, step, final(steps)):
                    yield at(step, f"nothing copies {name} to the image", f"add `COPY {name} ./` above")
            if match and not re.search(r"--(python|target|prefix)\b", command):
                for word in match[1].split():
                    yield from other_torch(word.strip("\"'"), DOCKERFILE, f"line {step.line}", stack)


def arrives(name: str, user: Instruction, steps: list[Instruction]) -> bool:
    """Whether a file that `user` reads may be there: copied, alone or in a folder, named elsewhere, or downloaded."""
    text = " ".join(step.rest for step in steps if step is not user) + user.rest.replace(name, "", 1)
    copied = [step.rest.split()[:-1] for step in steps if step.name in ("COPY", "ADD")]
    sources = [Path(word).name for words in copied for word in words if not word.startswith(("--", "/layers/"))]
    folder = any("." not in source.strip(".") for source in sources)
    downloaded = re.search(r"\b(clone|curl|wget|tar|unzip)\b", text)
    matched = any(fnmatch.fnmatchcase(Path(name).name, source) for source in sources)
    return folder or bool(downloaded) or matched or any(part in text for part in Path(name).parts)


def patterns(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return [line.strip().lstrip("/") for line in lines if line.strip() and not line.startswith("#")]


def excluded(name: str, rules: list[str]) -> bool:
    """Whether .dockerignore keeps a file from the build: the last rule that matches it, or a folder of it, decides."""
    out = False
    for rule in rules:
        pattern = rule.lstrip("!").strip("/").removesuffix("/**")
        parents = [name, *(str(parent) for parent in Path(name).parents if str(parent) != ".")]
        if any(fnmatch.fnmatchcase(each, pattern.replace("**/", "")) for each in parents):
            out = not rule.startswith("!")
    return out


def search_path(steps: list[Instruction]) -> Iterator[Problem]:
    for step in final(steps):
        if step.name == "ENV" and re.match(r"PATH[= ](?!.*(\$\{?PATH|/usr/bin))", step.rest):
            yield at(step, "the programs of the base image are not on this PATH", "end it with `:$PATH`")


def packages(project: Path, steps: list[Instruction]) -> Iterator[Problem]:
    """apt-get as a user, with a question, or without the lists of packages; the base images have no sudo or conda."""
    user = "root"
    has_lists = False
    defaults = dict(re.findall(r"(\w+)=(\S+)", " ".join(step.rest for step in steps if step.name == "ARG")))
    texts = [located(name, project) for name in ("apt.txt", ".env")]
    apt, env = [path.read_text(encoding="utf-8", errors="replace") if path.is_file() else "" for path in texts]
    own_base = re.search(r"(?m)^(export )?BASE_IMAGE=\S", env)
    named = [apt, *(re.sub(rf"{COMMAND}({'|'.join(ABSENT)})\b", "", step.rest) for step in steps)]
    for step in final(steps):
        if step.name == "USER":
            user = re.sub(r"\$\{?(\w+)\}?", lambda match: defaults.get(match[1], match[0]), step.rest)
            user = user.split(":")[0].strip("\"'")
        command = step.rest if step.name == "RUN" else ""
        own_lists = "/var/lib/apt/lists" in command  # removed at its end, or mounted
        # A script from the network that adds a source of packages reads the lists, too.
        updates = re.search(r"\bapt(-get)? .*\bupdate\b|\| *(sudo )?(-\S+ )*(ba)?sh\b", command)
        has_lists = has_lists or (bool(updates) and not own_lists)
        installs = re.search(rf"{COMMAND}apt(?:-get)? (?:-\S+ )*install\b(?!.*\.deb\b)[^&|;]*", command)
        other = re.search(rf"{COMMAND}({'|'.join(ABSENT)})\b", command)
        if other and not own_base and other[1] not in " ".join(named).lower():  # nor what installs it
            yield at(step, f"the image has no {other[1]}", ABSENT[other[1]])
            return
        what = ""
        as_root = installs or re.search(rf"{COMMAND}({ROOT.replace(' ', '|')})\b", command)
        if as_root and user not in ("root", "0"):
            what = f"{'apt-get' if installs else as_root[1]} needs root, and the user is {user} here"
        elif installs and not own_lists and not has_lists:
            what = "apt-get knows no packages without `apt-get update`"
        elif installs and not re.search(r"\s(-[a-z]*y|--yes|--assume-yes|-qq)|Assume-Yes|yes \|", command):
            what = "apt-get asks before it installs what these packages need, and a build cannot answer: it needs -y"
        if what:
            remedy = "list the packages in apt.txt" if installs else "do it above the line with USER"
            yield at(step, what, f"{remedy} instead")
            return


def architectures(steps: list[Instruction], stack: Mapping[str, Any]) -> Iterator[Problem]:
    targets = stack.get("targets") or {}
    wanted = {target["capability"].rstrip("af") for target in targets.values() if target["capability"]}
    machines = {target["arch"] for target in targets.values()}
    for step in steps:
        platform = re.match(r"--platform=linux/(amd64|arm64)\b", step.rest) if step.name == "FROM" else None
        if machines and platform and platform[1] not in machines:
            yield at(step, f"builds for {platform[1]}, and {STACK} says {', '.join(machines)}", "remove --platform")
        match = ARCHITECTURES.search(step.rest) if step.name == "ENV" else None
        listed = {each.replace("+PTX", "").rstrip("af") for each in re.split(r"[;\s]", match[1])} if match else set()
        if match and "$" not in match[1] and not wanted <= listed:
            what = f"compiles for {match[1]}, and {STACK} says {', '.join(sorted(wanted))}"
            yield at(step, what, f'write TORCH_CUDA_ARCH_LIST="{";".join(sorted(wanted))}"')


def base(project: Path, stack: Mapping[str, Any]) -> Iterator[tuple[str, Problem]]:
    """The base image of the Dockerfile, its user, and its build of torch, against those in stack.json."""
    wanted = stack["image"]
    text = located(DOCKERFILE, project).read_text(encoding="utf-8-sig")
    created = re.findall(r"\b(?:useradd|adduser)\s([^&|;]*)", text)
    if created and not any(re.search(rf"\b{re.escape(stack['user'])}\b|\$", each) for each in created):
        what = f"creates no user `{stack['user']}`, which {STACK} names"
        yield "user", Problem(DOCKERFILE, "", what, f"write {stack['user']} in `useradd`")
    backend = re.search(r"\+(cu\d+)$", stack["torch"])
    for step in instructions(text):
        build = re.match(r"TORCH_BACKEND=[\"']?(cu\d+)", step.rest)
        if backend and build and build[1] != backend[1]:
            what = f"TORCH_BACKEND is {build[1]}, and {STACK} says {backend[1]}"
            yield "torch", at(step, what, f"write TORCH_BACKEND={backend[1]}")
        match = BASE.search(f"{step.name} {step.rest}")
        if match:
            image = match[1] or match[2]
            mirror = rf"[\w-]+[.:][^/]*/(\S+/)?{re.escape(wanted.rpartition('/')[2])}"
            same = rf"({re.escape(wanted)}|{mirror})(@sha256:[0-9a-f]{{64}})?"
            if not re.fullmatch(same, image):
                remedy = f"write {wanted} (a digest may follow: {wanted}@sha256:...), or run `./launch update`"
                yield "image", at(step, f"image is {image}, and {STACK} says {wanted}", remedy)
