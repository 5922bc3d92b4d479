"""Rules about the files themselves: that they are there and can be read, and what a start needs of them."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import shlex
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpukit.host import git
from gpukit.host.project import GPU
from gpukit.host.project import dotenv as read_dotenv
from gpukit.project import dependencies, flags, pyproject
from gpukit.project.devcontainer import Config
from gpukit.project.keys import values
from gpukit.project.location import ADOPTED, EXTRA, is_adopted, located, place
from gpukit.project.messages import RefusalError, alike
from gpukit.project.pyproject import REQUIREMENT, Requirements, canonical
from gpukit.project.specification import SBATCH, SBATCH_SHORT, WORKFLOW
from gpukit.project.versions import allows
from gpukit.validate import secrets
from gpukit.validate.formats import QUOTED, shell
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

ANSWERS = ".copier-answers.yml"
LAUNCH = "launch"
WHEELS = ("vendor", ".gpukit")
APT = "apt.txt"
DOTENV = ".env"
PINS = "requirements.txt"  # the versions of all packages, if the project has it
REQUIRED = (MAIN, INITIALIZE, STACK, DOCKERFILE, ".dockerignore", ".gitignore", LAUNCH, PYPROJECT)
STARTED_WITH = (CPU, PODMAN, HOST_ENV, COMPOSE, COMPOSE_CPU, APT, ANSWERS)
OPTIONAL = (*STARTED_WITH, ".env.example", ".gitattributes", "README.md")
NEEDED = (*REQUIRED, *STARTED_WITH)  # to start a clone, and to update it
SLURM = "cluster/train.sbatch"
SCHEMAS = {"cluster/job.yaml": "kubernetes", "cluster/sky.yaml": "skypilot", "monitoring/alerts.yml": "prometheus"}
SCRIPTS = {LAUNCH: "sh", INITIALIZE: "sh", SLURM: "bash"}
PATTERNS = (SLURM, *SCHEMAS, ".vscode/*.json", ".github/workflows/*.yml", ".devcontainer/*.sh")
STARTED = (LAUNCH, SLURM)  # by their first line; initialize.sh is given to sh
UNIX = (*SCRIPTS, APT)  # no program reads these with the line ends of Windows
# The start of a command that runs or reads a file of the project, unless `||` allows for the file to be missing
OWN_FILE = re.compile(
    r"(?:(?:bash|sh|python3?|jupyter execute|(?:uv )?pip3? install -r) |--(?:config|env-file|file)[ =]|(?=[\w.-]+/))"
    r"(?:\./)?([\w.-][\w./-]*\.(?:sh|py|ipynb|txt|json|ya?ml|toml|env))(?=\s|$)(?!.*\|\|)"
)
BASH = re.compile(r"(?m)(?:^|[;&|!]|\b(?:if|while|then|do|else)\b)[ \t]*(source|\[\[|set -\w*o pipefail)(?=\s|$)")
# A command of initialize.sh, outside of conditions, that fails if its result is there
ONCE = re.compile(r"(?m)(?<![\\|&]\n)^(mkdir|ln)(?!.*(?:\s-\w*[pf]|--parents|--force|\|\|))[ \t](?:.*[ \t])?(\S+)$")
ELSEWHERE = re.compile(r"\b(cd|pushd|clone|download|repository)\b")  # after these, files are not the project's
# What a workflow's own token must be allowed for these commands, unless they may use another one
# (https://docs.github.com/actions/how-tos/write-workflows/choose-what-workflows-do/use-github_token, read 2026-11-27)
WRITES = {
    "contents": re.compile(r"launch update .*--pull-request|(?m:^\s*git push( -\S+)*( origin\b.*)?$)"),
    "pull-requests": re.compile(r"launch update .*--pull-request|\bgh pr create\b"),
}
OTHER_TOKEN = re.compile(r"secrets\.(?!GITHUB_TOKEN)|\.outputs\.|token'|ssh")
# The marks that pytest has (`pytest --markers`, 9.1.1), and that of a plugin which other packages bring
MARKS = "anyio filterwarnings parametrize skip skipif usefixtures xfail"
PROSE = ("README.md", STACK, ANSWERS)  # these, and what is of each project, have no lines of the template
NO_MARK = (*UNIX, STACK, PYPROJECT)  # nor these with a byte order mark


def generated(project: Path) -> list[str]:
    """The text files that are there, generated or beside generated ones, by their names in a generated project."""
    names = [*required(project), *OPTIONAL]
    if is_adopted(project):
        names = [name for name in names if name == LAUNCH or name in ADOPTED]
    else:
        names += [path.relative_to(project).as_posix() for each in PATTERNS for path in sorted(project.glob(each))]
    return [name for name in dict.fromkeys(names) if located(name, project).is_file()]


def required(project: Path) -> list[str]:
    """The files without which a project cannot be used."""
    return [name for name in REQUIRED if name != PYPROJECT or not is_adopted(project)]


def texts(project: Path) -> Iterator[Problem]:
    """What makes a file unreadable for the programs that read it, and tokens."""
    there = generated(project)
    for name in required(project):
        if name not in there:
            yield Problem(name, "", "is missing", RESTORE)
    for name in there:
        content = located(name, project).read_bytes()
        problem = unreadable(name, content)
        if problem:
            yield problem
            continue
        for number, line in enumerate(content.splitlines(), 1):
            if secrets.VALUE.search(line):
                remedy = "remove it, revoke it where it was created, and pass it by name"
                yield Problem(name, f"line {number}", "this looks like a secret token", remedy)


def unreadable(name: str, content: bytes) -> Problem | None:
    if name in REQUIRED and not content.strip():
        return Problem(name, "", "is empty", RESTORE)
    marker = re.search(rb"^<<<<<<< ", content, re.MULTILINE)
    if marker:
        return Problem(name, line_of(content, marker.start()), "has a merge conflict", "resolve it")
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        return Problem(name, line_of(content, error.start), "is not UTF-8", "save it as UTF-8")
    if name in NO_MARK and content.startswith(b"\xef\xbb\xbf"):
        return Problem(name, "line 1", "begins with a byte order mark", "save it as UTF-8 without one (no BOM)")
    if name in UNIX and b"\r\n" in content:
        return Problem(name, "", "has the line ends of Windows", f"run `sed -i 's/\\r$//' {name}`")
    return None


def line_of(content: bytes, position: int) -> str:
    number = content.count(b"\n", 0, position) + 1
    return f"line {number}"


def scripts(project: Path) -> list[str]:
    return [name for name in generated(project) if name in SCRIPTS or name.endswith(".sh")]


def script(project: Path, name: str) -> Iterator[Problem]:
    path = located(name, project)
    program = SCRIPTS.get(name, "bash")
    if name == LAUNCH and os.name == "posix" and not os.access(path, os.X_OK):
        yield Problem(name, "", "is not executable", f"run `chmod +x {name}`")
    text = path.read_text(encoding="utf-8")
    try:
        shell(text, program)
    except ValueError as error:
        yield Problem(name, "", str(error), f"correct it, or {RESTORE}")
        return
    of_bash = BASH.search(QUOTED.sub("x", text)) if program == "sh" else None
    if of_bash:
        what = f"`{of_bash[1]}` is of bash, and sh runs this file, which is another shell on Debian and Ubuntu"
        yield Problem(name, "", what, "leave it out, or write it for sh")
    once = ONCE.search(text) if name == INITIALIZE and re.search(r"(?m)^set -\w*e", text) else None
    if once:
        what = f"`{once[1]}` fails from the second start on, when {once[2]} is there"
        yield Problem(name, "", what, f"write `{'mkdir -p' if once[1] == 'mkdir' else 'ln -sfn'}`")
    words = text.splitlines()[0].removeprefix("#!").split()
    interpreter = text.startswith("#!") and words and (Path(words[0]).exists() or os.name != "posix")
    if name in STARTED and not (interpreter and any(word.endswith("sh") for word in words)):
        what = "does not begin with the shell that runs it"
        yield Problem(name, "line 1", what, f"write `#!/usr/bin/env {program}`")


def batch_options(text: str) -> dict[str, str]:
    """The #SBATCH lines by the long names of their options, of which sbatch also accepts the beginnings.

    Raises:
        ValueError: sbatch would not read one of them.
    """
    found: dict[str, str] = {}
    begun = False
    for number, line in enumerate(text.splitlines(), 1):
        begun = begun or bool(line.strip() and not line.startswith("#"))
        match = re.match(r"#([A-Z]+)\s+(-.*)", line)
        if not match:
            continue
        if match[1] != "SBATCH":
            if not begun and alike(match[1], ["SBATCH"]):
                raise ValueError(f"`#{match[1]}` is only a comment; did you mean `#SBATCH`? (line {number})")
        elif begun:
            raise ValueError(f"Slurm does not read an option below the first command (line {number})")
        else:
            words = shlex.split(match[2], comments=True)
            for word, following in zip(words, [*words[1:], ""]):
                option = re.match(r"(--[\w-]+|-\w)=?(.*)", word)
                if not option:
                    continue
                name = option[1].removeprefix("--")
                begins = [each for each in SBATCH.split() if each.startswith(name)]
                name = name if name in begins else begins[0] if begins else SBATCH_SHORT.get(name, name)
                if not name.startswith("-"):
                    found[name] = option[2] or (following if not following.startswith("-") else "")
    return found


def batch(project: Path, options: Mapping[str, str]) -> Iterator[Problem]:
    """A folder for the log, and one task on each node: torchrun starts the processes of a node."""
    folder = options.get("output", "").rpartition("/")[0]
    only_on_cluster = folder.startswith("/")
    if "%" not in folder and not only_on_cluster and not (project / folder).is_dir():
        what = f"Slurm does not create the folder {folder}, and without it, the job fails and has no log"
        yield Problem(SLURM, "/output", what, "write cluster/%j.log, or create the folder and a file in it for git")
    tasks = options.get("ntasks-per-node", "1")
    script = re.sub(r"(?m)(^|\s)#.*", "", (project / SLURM).read_text(encoding="utf-8"))
    if tasks != "1" and "torchrun" in script and not re.search(r"\bsrun\b.* (--ntasks|-n)", script):
        what = f"is {tasks}, and each task runs torchrun, which starts a process for each GPU"
        yield Problem(SLURM, "/ntasks-per-node", what, "write 1")
    requests = [name for name in options if name.startswith(("gpus", "gres", "tres", "exclusive"))]
    if "PROCESSES:-gpu" in script and not requests:
        remedy = "add `#SBATCH --gpus-per-node=8`, with the number of your nodes, and no space after the #"
        yield Problem(SLURM, "", "requests no GPU, so that Slurm gives none to the job", remedy)


def system_packages(project: Path) -> Iterator[Problem]:
    """apt.txt, as the Dockerfile reads it: names of packages, perhaps with versions, and options of apt-get."""
    for number, line in enumerate(located(APT, project).read_text(encoding="utf-8").splitlines(), 1):
        words = line.partition("#")[0].split()
        if "install" in words:
            yield Problem(APT, f"line {number}", "is a command", "write only the names of the packages")
            return
        for word in words:
            if not re.fullmatch(r"-.+|[a-z\d][a-z\d.+*-]*(:[a-z\d-]+)?([=/][\w.+:~*-]+)?", word):
                yield Problem(APT, f"line {number}", f"`{word}` is not the name of a package", "correct or remove it")
                return


def actions(project: Path, name: str, content: Mapping[str, Any]) -> Iterator[Problem]:
    """The project's own actions and workflows that a workflow uses. Other folders may come from another checkout."""
    for used in [*values(content, "/jobs/*/steps/*/uses"), *values(content, "/jobs/*/uses")]:
        if used.startswith("./.github/") and not (project / used).exists():
            yield Problem(name, "", f"{used} does not exist", "correct the path, or create it")
    extras = None
    with contextlib.suppress(RefusalError):  # it is not there, or cannot be read, which is reported
        table = dependencies.parsed(dependencies.text_of(project, PYPROJECT), PYPROJECT).get("project")
        if isinstance(table, dict) and "optional-dependencies" not in str(table.get("dynamic")):
            extras = {canonical(extra) for extra in table.get("optional-dependencies", {})}
    for job, entry in content["jobs"].items():
        before = f"{content.get('defaults')} {entry.get('defaults')}"
        granted = entry.get("permissions", content.get("permissions", "write-all"))  # GitHub's default is a setting
        if isinstance(granted, dict) and not OTHER_TOKEN.search(f"{content.get('env')} {entry}"):
            script = "\n".join(step.get("run", "") for step in entry.get("steps") or [])
            lacks = [name for name, use in WRITES.items() if granted.get(name) != "write" and use.search(script)]
            if lacks:
                what = f"its steps change the repository, and its token has no {' and no '.join(lacks)}: write"
                yield Problem(name, f"/jobs/{job}/permissions", what, "add it")
        for step in entry.get("steps") or []:
            options = [key for key in step if key not in WORKFLOW["/jobs/*/steps/*"].split()]
            if options and "uses" in step and "with" not in step:
                what = f"has {options[0]} in a step"
                yield Problem(name, f"/jobs/{job}/steps", what, f"add `with:` above {options[0]}")
            for what, remedy in lost(project, step, before):
                yield Problem(name, f"/jobs/{job}/steps", what, remedy)
            for extra in (
                re.findall(rf"{PYPROJECT}.*--extra[ =]([\w-]+)", step.get("run", "")) if extras is not None else ()
            ):
                if canonical(extra) not in extras:
                    what = f"installs the extra {extra}, which {PYPROJECT} does not have"
                    yield Problem(name, f"/jobs/{job}/steps", what, "name one of [project.optional-dependencies]")
            before += str(step)


def lost(project: Path, step: Mapping[str, Any], before: str) -> Iterator[tuple[str, str]]:
    """The folder, and the files, of a step that are not there, and that nothing before it may write."""
    script = step.get("run", "")
    folder = str(step.get("working-directory", ".")).removeprefix("./").rstrip("/")
    if not re.match(r"[$~/]", folder) and not (project / folder).is_dir() and Path(folder).name not in before:
        yield f"there is no folder {folder}", "correct working-directory, or create it"
    if folder != "." or "working-directory" in before or ELSEWHERE.search(before + script):
        return
    for line in script.splitlines():
        for match in filter(None, (OWN_FILE.match(line, word.start()) for word in re.finditer(r"\S+", line))):
            first = Path(match[1]).parts[0]
            ours = not line[: match.start()].strip() or (re.search("[ =]", match[0]) and (project / first).is_dir())
            reported = match[1] in NEEDED
            if ours and not reported and first not in before and not (project / match[1]).exists():
                yield f"{match[1]} does not exist", "correct the path, or create the file"
        before += line


def kept_out(project: Path) -> Iterator[Problem]:
    """Files that git ignores although a clone needs them, by the rule that is to blame."""
    wheels = [f"{each}/gpukit-NEXT.whl" for each in WHEELS if any((project / each).glob("gpukit-*.whl"))]  # of updates
    names = [place(project, name) for name in generated(project) if name in NEEDED] + wheels
    with contextlib.suppress(RefusalError):  # without git
        command = ("check-ignore", "--verbose", "-z", "--stdin")
        found = git.attempt(project, *command, data="\0".join([".", *names]), GIT_LITERAL_PATHSPECS="0").out.split("\0")
        rules: dict[str, list[str]] = {}
        for source, line, pattern, name in zip(found[0::4], found[1::4], found[2::4], found[3::4]):
            if not pattern.startswith("!"):
                name = name.replace("NEXT", "*")
                rules.setdefault(f"`{pattern}` ({source}, line {line})", []).append(name)
        if any("." in ignored for ignored in rules.values()):
            return  # the project is in a repository that ignores it, such as a home directory's
        for rule, ignored in rules.items():
            what = f"{rule} keeps {', '.join(ignored)} out of git, and a clone needs it"
            folders = [f"{each.as_posix()}/" for name in ignored for each in reversed(Path(name).parents) if each.name]
            again = ", ".join(f"`!/{each}`" for each in dict.fromkeys((*folders, *ignored)))
            yield Problem(".gitignore", "", what, f"remove that line, or end .gitignore with {again}")


def wheel(project: Path) -> Iterator[Problem]:
    """The one wheel from which ./launch runs, and which the image installs."""
    wheels = [path for folder in WHEELS for path in (project / folder).glob("gpukit-*.whl")]
    if len(wheels) != 1:
        what = "has more than one gpukit wheel" if wheels else "has no gpukit wheel"
        yield Problem("vendor/", "", what, "`./launch` prints the command that writes it")
        return
    try:
        with zipfile.ZipFile(wheels[0]) as archive:
            version = wheels[0].name.split("-")[1]
            damaged = archive.testzip() or f"gpukit-{version}.dist-info/METADATA" not in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        damaged = True
    if damaged:
        what = "is damaged, or is another version than its name says"
        yield Problem(wheels[0].relative_to(project).as_posix(), "", what, "restore it with `git checkout`")


def answers(content: Mapping[str, Any], stack: Mapping[str, Any]) -> Iterator[Problem]:
    """What `./launch update` needs; an answer is changed by an update, not in the file."""
    if "_src_path" not in content:
        yield Problem(ANSWERS, "/_src_path", "is missing, and ./launch update needs it", RESTORE)
    answered = [content.get("hardware"), *(content.get("also_on") or [])]
    hardware = list(dict.fromkeys(answered))  # the main machine may be among the others
    if hardware != [*stack["targets"]]:
        what = f"the hardware is {', '.join(map(str, hardware))}, and {STACK} is for {', '.join(stack['targets'])}"
        remedy = "restore it with `git checkout`; `./launch update --answers hardware=...` changes it everywhere"
        yield Problem(ANSWERS, "/hardware", what, remedy)


def host_env(project: Path) -> Iterator[Problem]:
    """host.env as docker reads it: names, or NAME=VALUE."""
    for number, line in enumerate(located(HOST_ENV, project).read_text(encoding="utf-8-sig").splitlines(), 1):
        name, _, value = line.lstrip().partition("=")
        if name and not name.startswith("#") and not re.fullmatch(r"[A-Za-z_]\w*", name):
            what = "does not begin with the name of a variable, which has letters, digits, and _ only"
            yield Problem(HOST_ENV, f"line {number}", what, "write NAME or NAME=VALUE, without `export`")
        elif re.fullmatch(r"(['\"]).*\1\s*", value):
            yield Problem(HOST_ENV, f"line {number}", "docker makes the quotes part of the value", "remove them")
        elif "=" in line and not value.strip() and secrets.NAME.search(name):
            yield Problem(HOST_ENV, f"line {number}", f"empties {name}, instead of passing it", "remove the `=`")


def dotenv(project: Path) -> Iterator[Problem]:
    lines = located(DOTENV, project).read_text(encoding="utf-8-sig", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        value = re.match(r"\s*(?:export\s+)?\w+\s*=\s*(['\"])(.*)", line)
        if value and value[1] not in value[2] + "".join(lines[number:]):
            yield Problem(DOTENV, f"line {number}", "has a quote without its end, which Compose refuses", "end it")
            return
        if not re.match(r"\s*(#|$|(export\s+)?[A-Za-z_]\w*\s*(=|$))", line):  # a name alone: the caller's value
            yield Problem(DOTENV, f"line {number}", "is ignored by ./launch", "write NAME=VALUE, or remove it")
            return
    chosen = read_dotenv(located(DOTENV, project)).get("GPUS", "")
    if chosen and "$" not in chosen and not all(map(GPU.fullmatch, chosen.split(","))):
        what = f"is {chosen}, and must be `all`, indexes as in `0,1`, or the UUID of a GPU"
        yield Problem(DOTENV, "GPUS", what, "correct it, or remove it")


# What a configuration says of other files


def env_files(project: Path, name: str, config: Config) -> Iterator[Problem]:
    """The files of the project that --env-file names, and that host.env is one of them."""
    for path in config.env_file_paths:
        if not path.is_relative_to(project) or path.is_file():
            continue
        relative = path.relative_to(project).as_posix()
        if relative == place(project, HOST_ENV):
            yield Problem(HOST_ENV, "", "is missing", f"{RESTORE}: it may be empty, but it must exist")
        else:
            remedy = f"did you mean `{HOST_ENV}`?" if alike(relative, [HOST_ENV]) else "create it, or remove the flag"
            yield Problem(name, "/runArgs", f"--env-file names {relative}, which does not exist", remedy)
    if not config.env_file_paths and located(HOST_ENV, project).is_file():
        what = f"{HOST_ENV} is not passed, so that no variable of the host reaches the container"
        yield Problem(name, "/runArgs", what, f'add "--env-file=${{localWorkspaceFolder}}/{HOST_ENV}"')


def initialize(project: Path, name: str, raw: Mapping[str, Any], gpu: bool) -> Iterator[Problem]:
    """initializeCommand runs initialize.sh, which creates what is mounted, and tells it where there is no GPU."""
    command = raw["initializeCommand"]
    script = place(project, INITIALIZE)
    commands = command.values() if isinstance(command, dict) else [command]
    texts = [each if isinstance(each, str) else " ".join(each) for each in commands]
    run = next((text for text in texts if script in text), "")
    told = bool(re.search(r"initialize\.sh[\"']?\s+[\"']?cpu\b", run))
    what = ""
    if not run:
        what = f"does not run {INITIALIZE}, which creates the folders that are mounted"
    elif re.match(rf"(\./)?{re.escape(script)}", run) and not os.access(project / script, os.X_OK):
        what = f"{INITIALIZE} is not executable"
    elif gpu and name == CPU and not told:
        what = "does not tell initialize.sh that there is no GPU, so that it checks for one"
    elif gpu and name != CPU and told:
        what = "tells initialize.sh that there is no GPU, so that it does not check for one"
    if what:
        arguments = ["sh", script, *["cpu"] * (name == CPU)]
        yield Problem(name, "/initializeCommand", what, f"write {json.dumps(arguments)}")


def build(project: Path, name: str, config: Config) -> Iterator[Problem]:
    """The paths in `build`, which are relative to devcontainer.json."""
    wanted = {"dockerfile": located(DOCKERFILE, project).resolve(), "context": project.resolve()}
    given = {"dockerfile": config.dockerfile, "context": config.context}
    wrong = [key for key in wanted if given[key] != wanted[key]]
    if wrong:  # often both, for one cause
        what = f"is {os.path.relpath(given[wrong[0]], project.resolve())}, seen from the project's folder"
        folder = located(name, project).resolve().parent
        write = " and ".join(f'"{key}": "{os.path.relpath(wanted[key], folder)}"' for key in wrong)
        yield Problem(name, f"/build/{wrong[0]}", what, f"write {write}")
    text = located(DOCKERFILE, project).read_text(encoding="utf-8", errors="replace") if config.target else ""
    if text and config.target not in re.findall(r"(?im)^FROM\s.*\sAS\s+(\S+)\s*$", text):
        yield Problem(name, "/build/target", f"the Dockerfile has no stage {config.target}", "correct it, or remove it")


def lifecycle(project: Path, name: str, raw: Mapping[str, Any]) -> Iterator[Problem]:
    """The script, or the requirements, of the project with which a command of the configuration begins."""
    commands: list[tuple[str, str]] = []
    for key, value in raw.items():
        if key.endswith("Command") and key != "overrideCommand":
            for each in value.values() if isinstance(value, dict) else [value]:
                commands.append((key, each if isinstance(each, str) else " ".join(each)))
    for key, text in commands:
        file = OWN_FILE.match(text) if key != "initializeCommand" else None
        if file and not (project / file[1]).is_file():
            others = [other for _, other in commands if other != text]
            if not any(file[1] in other for other in others):  # which may write it
                yield Problem(name, f"/{key}", f"{file[1]} does not exist", "correct the path, or create the file")


def mount_sources(project: Path, raw: Mapping[str, Any], config: Config, stack: Mapping[str, Any]) -> Iterator[Problem]:
    """Docker refuses a bind mount whose source is missing: initialize.sh creates those that stack.json expects."""
    text = located(INITIALIZE, project).read_text(encoding="utf-8")
    for item, mount in zip(raw["mounts"], config.mounts):
        fields = next(csv.reader([item]), []) if isinstance(item, str) else [f"source={item['source']}"]
        source = flags.mount(fields)["source"]
        place = re.sub(r"^\$\{(localWorkspaceFolder|localEnv:HOME)\}/", "", source)
        expected = mount["target"] in [*stack["mounts"], *stack["read_only"]] and not place.startswith("/")
        ours = place.startswith(".launch/")  # other folders are this machine's
        if mount["type"] != "bind" or not (expected or ours) or re.search(r"[$\\`]", place) or creates(text, place):
            continue
        folder = source.replace("${localEnv:HOME}", "$HOME").replace("${localWorkspaceFolder}/", "")
        what = f"does not create {place}, which is mounted at {mount['target']}"
        yield Problem(INITIALIZE, "", what, f'add the line `folder "{folder}"`')
    for option, network in flags.options(config.run_args):
        shared = network.removesuffix("-you")  # by the user's name, which the configuration was read with
        if option == "--network" and network != shared and not re.search(rf"network.*{re.escape(shared)}", text):
            what = f"does not create the network {shared}-$USER, which the container joins"
            yield Problem(INITIALIZE, "", what, RESTORE)
    for variable, value in config.container_env.items():
        place = value.removeprefix("/workspace/")
        if place.startswith(".launch/") and not creates(text, place):
            yield Problem(INITIALIZE, "", f"does not create {place}, which {variable} names", RESTORE)


def creates(text: str, place: str) -> bool:
    """Whether initialize.sh names a path, and not only one below it."""
    return bool(re.search(rf"{re.escape(place)}(?=[\"'\s]|$)", text))


# pyproject.toml, or what else names the dependencies


def adopted_requirements(project: Path, stack: Mapping[str, Any]) -> Iterator[Problem]:
    """The requirements of an adopted repository: they can be read, and allow the image's PyTorch."""
    try:
        found = dependencies.lines(project, stack["dependencies"])
    except RefusalError as error:
        remedy = "correct the file, or `./launch update --answers dependencies=[...]`"
        yield Problem(STACK, "/dependencies", str(error).rstrip("."), remedy)
        return
    remedy = f"another line in {EXTRA} replaces it, or `./launch update --answers release=...` chooses another"
    for line in found:
        yield from other_torch(line.text, line.file, "", stack, remedy)


def other_torch(
    text: str, file: str, place: str, stack: Mapping[str, Any], remedy: str = "write its name, without a version"
) -> Iterator[Problem]:
    """A requirement that excludes the image's PyTorch."""
    if not dependencies.allowed(dependencies.Line(text, file), stack["torch"], stack["python"]):
        yield Problem(file, place, f"{text} excludes torch {stack['torch']}, which the image has ({STACK})", remedy)


def requirements(project: Path, content: Mapping[str, Any]) -> Iterator[Problem]:
    """The dependencies, as the image reads them, and those of the extras."""
    try:
        Requirements((project / PYPROJECT).read_text(encoding="utf-8")).values()
    except RefusalError as error:
        yield Problem(PYPROJECT, "", str(error).rstrip("."), RESTORE)
        return
    for where, line in listed(content):
        if not re.search(r"[@(]", line) and not REQUIREMENT.fullmatch(line.strip()):
            remedy = "write NAME @ URL" if "://" in line else "write NAME, or NAME>=VERSION"
            yield Problem(PYPROJECT, where, f"`{line}` is not a requirement", remedy)
            return
    plain = [(where, line) for where, line in listed(content) if not re.search(r"[;@+]", line)]
    for where, line in plain:
        exact = re.search(r"==\s*([\w.+!-]+)\s*$", line)
        together = [each for place, each in plain if place in (where, "/project/dependencies")]  # extras may be apart
        others = [each for each in together if pyproject.name_of(each) == pyproject.name_of(line)]
        other = next((each for each in others if not allows(each, exact[1])), "") if exact else ""
        if other:
            yield Problem(PYPROJECT, where, f"`{line}` and `{other}` exclude each other", "remove one of them")
            return


def listed(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The requirements, each with the place of its list."""
    extras = content["project"].get("optional-dependencies", {}).items()
    lists = {"dependencies": content["project"]["dependencies"]}
    lists |= {f"optional-dependencies/{name}": lines for name, lines in extras}
    return [(f"/project/{name}", line) for name, lines in lists.items() for line in lines]


def marks(project: Path, content: Mapping[str, Any]) -> Iterator[Problem]:
    """Marks of tests that pytest refuses because none has been declared, unless one of its plugins may have them."""
    options = content["tool"].get("pytest", {}).get("ini_options", {})
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(project.glob("tests/**/*.py"))]
    plugins = re.search(r"pytest[-_]\w", str(listed(content)) + "".join(texts))
    if plugins or "--strict-markers" not in str(options.get("addopts")) or "addinivalue_line" in "".join(texts):
        return
    declared = {*re.findall(r"\w+", str(options.get("markers"))), *MARKS.split()}
    used = {name for text in texts for name in re.findall(r"(?m)^[^#\n]*pytest\.mark\.(\w+)", text)}
    for name in sorted(used - declared):
        what = f"the tests have the mark {name}, which is not declared"
        yield Problem(PYPROJECT, "/tool/pytest/ini_options/markers", what, f'add "{name}: what it is for"')


def versions(project: Path, content: Mapping[str, Any], stack: Mapping[str, Any]) -> Iterator[tuple[str, Problem]]:
    """The versions of Python and PyTorch that the image has must be among those that the project accepts."""
    python = content["project"].get("requires-python", "")
    if not allows(python, stack["python"]):
        what = f"{python} excludes Python {stack['python']}, which the image has ({STACK})"
        remedy = f'write ">={stack["python"]}", or a lower version'
        yield "python", Problem(PYPROJECT, "/project/requires-python", what, remedy)
    with contextlib.suppress(RefusalError):  # `requirements` reports it
        own = pyproject.every(pyproject.read(project / PYPROJECT))
        for requirement in pyproject.wanted(project):
            where = (PYPROJECT, "/project/dependencies") if requirement in own else (PINS, "")
            yield from (("torch", problem) for problem in other_torch(requirement, *where, stack))
