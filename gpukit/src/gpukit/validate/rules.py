"""Rules about devcontainer.json: alone, and against stack.json, README.md, and compose.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpukit.host.cards import data
from gpukit.host.kernels import runs
from gpukit.host.podman import KEEP_ID
from gpukit.project import flags
from gpukit.project.devcontainer import Config
from gpukit.project.messages import alike
from gpukit.project.specification import BUILD_TOO, KINDS
from gpukit.validate import values
from gpukit.validate.container import BY_NAME, Container
from gpukit.validate.problem import CPU, MAIN, PODMAN, RESTORE, STACK, Problem, quoted

CREDENTIALS = re.compile(
    r"/(\.aws(?!/sso/cache$)|\.azure|\.config/gcloud|\.kaggle|\.netrc|\.ssh|\.docker|\.gnupg)(/|$)"
)
# https://containers.dev/implementors/json_reference/#variables-in-devcontainerjson (read 2026-11-26)
VARIABLES = (
    "localEnv containerEnv localWorkspaceFolder containerWorkspaceFolder localWorkspaceFolderBasename "
    "containerWorkspaceFolderBasename devcontainerId"
)
HIDES = {"GPUKIT_DEVICE": ("cpu",), "CUDA_VISIBLE_DEVICES": ("", "-1"), "NVIDIA_VISIBLE_DEVICES": ("", "none", "void")}
ENDS = ("source", "target")  # of a mount
GPUS = '"--gpus=\\"device=${{localEnv:GPUS:{}}}\\""'
REGULAR_USER = "name the image's regular user: files that root writes to the workspace belong to root on the host"
# The facts in the table at the top of README.md. A table that its owner has rewritten is not checked.
README = {
    "image": r"^\| Base \|.*`([^`]+)`",
    "torch": r"^\| Contents \|.*\bPyTorch ([^\s,;]+)",
    "cuda": r"^\| Contents \|.*\bCUDA (\d+\.\d+)",
    "python": r"^\| Contents \|.*\bPython (\d+\.\d+)",
}


def has_gpu(stack: Mapping[str, Any]) -> bool:
    return any(target["capability"] for target in stack["targets"].values())


def targets(stack: Mapping[str, Any]) -> Iterator[Problem]:
    """Each target must be hardware that gpukit knows, and torch must have a kernel for it."""
    known = data("cards")
    for id, target in stack["targets"].items():
        place = f"/targets/{id}"
        kernels = stack["kernels"].get(target["arch"]) or {"sass": [], "ptx": []}
        if id not in known:
            meant = alike(id, known)
            remedy = f"did you mean `{meant}`?" if meant else RESTORE
            yield Problem(STACK, place, "is not hardware that gpukit knows", remedy)
        elif target["capability"] and not runs(target["capability"], tuple(kernels["sass"]), tuple(kernels["ptx"])):
            what = f"/kernels have no code for {target['arch']} and {target['capability']}"
            yield Problem(STACK, place, what, RESTORE)


# One configuration


def flags_and_mounts(name: str, config: Config) -> Iterator[Problem]:
    """Variables and flags that do not exist, and values that no engine accepts."""
    texts = [*config.run_args, *config.build_args.values()]
    texts += [str(mount[key]) for mount in (config.workspace_mount, *config.mounts) if mount for key in ENDS]
    left = [word for text in texts for word in re.findall(r"\$\{(\w+)", text)]  # of those that are replaced, none is
    for word in dict.fromkeys(left):
        meant = "localEnv:NAME" if word == "localEnv" else alike(word, VARIABLES.split())
        if meant and (word == "localEnv" or word not in VARIABLES.split()):
            yield Problem(name, "", f"there is no variable `${{{word}}}`", f"did you mean `${{{meant}}}`?")
            return
    if "/usr/bin" not in config.container_env.get("PATH", "/usr/bin"):
        what = "the programs of the image are not on this PATH, and no variable has theirs here"
        yield Problem(name, "/containerEnv/PATH", what, 'write it under remoteEnv, as "/opt/bin:${containerEnv:PATH}"')
    for what, remedy in flags.mistakes(config.run_args):
        yield Problem(name, "/runArgs", what, remedy)
    for option in flags.read(config.run_args):
        what = "" if option.wrong else values.wrong(option.name, option.value)
        if what:
            yield Problem(name, "/runArgs", what, "correct it, or remove it")
    mounts = {"/workspaceMount": config.workspace_mount} if config.workspace_mount else {}
    mounts |= {f"/mounts/{number}": mount for number, mount in enumerate(config.mounts)}
    for place, mount in mounts.items():
        if what := values.wrong_mount(mount):
            yield Problem(name, place, what, 'write "type=bind,source=...,target=/..."')
    targets = [mount["target"].rstrip("/") for mount in mounts.values()]
    for target in [target for target in dict.fromkeys(targets) if targets.count(target) > 1]:
        yield Problem(name, "/mounts", f"two mounts have the target {target}", "remove one of them")


def safe(name: str, raw: Mapping[str, Any], container: Container) -> Iterator[Problem]:
    if name != PODMAN and raw.get("updateRemoteUserUID") is False:
        remedy = "remove it: without it, files created inside are not the host user's"
        yield Problem(name, "/updateRemoteUserUID", "must be true", remedy)
    if not {"containerUser", "remoteUser"} & {*raw}:
        yield Problem(name, "/containerUser", "is missing", REGULAR_USER)
    elif container.user in ("root", "0"):
        yield Problem(name, "/runArgs", "--user makes the container run as root", "remove it")
    for variable in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        options = re.sub(r"\[[^]]*\]", "", container.env.get(variable) or "").split(",")
        if wrong := next((option for option in options if option.strip() and ":" not in option), ""):
            yield Problem(name, f"/containerEnv/{variable}", f"{wrong} is not OPTION:VALUE", "write it with a colon")
    for variable, value in (raw.get("containerEnv") or {}).items():
        path = container.env.get(variable) or ""
        inside = any(f"{path}/".startswith(f"{target}/") for target in container.mounts)
        told = re.search("HOST|LOCAL", variable)  # programs in the container are told a path of the host
        if re.match(r"\$\{(?:localEnv:HOME|localWorkspaceFolder)\}/", value) and not inside and not told:
            what = "is a path of the host, and nothing is mounted there in the container"
            yield Problem(name, f"/containerEnv/{variable}", what, "write the path in the container")
    for option in raw["build"].get("options") or []:
        flag = option.partition("=")[0]
        if flag.startswith("--") and flag[2:] in " ".join(KINDS.values()).split() and flag[2:] not in BUILD_TOO.split():
            what = f"docker build has no option {flag}"
            yield Problem(name, "/build/options", what, "move it to runArgs: docker run has it")
    for target, mount in container.mounts.items():
        if CREDENTIALS.search(target) and not mount.read_only:
            what = f"credentials are mounted writable at {target}"
            yield Problem(name, "/mounts", what, "add `readonly`: no training needs to change them")
    for port in container.ports:
        if not re.match(r"(\d+\.\d+\.\d+\.\d+|\[[\da-fA-F:]+\]):", port):  # an address is a choice
            remedy = "publish it as 127.0.0.1:PORT:PORT, or leave it to VS Code and ./launch"
            yield Problem(name, "/runArgs", f"port {port} is open to the network", remedy)


def without_gpu(raw: Mapping[str, Any], container: Container) -> Iterator[Problem]:
    """The CPU configuration must request no GPU, and override the Dockerfile's defaults, which are for the GPU."""
    if container.gpu or container.runtime == "nvidia":
        yield Problem(CPU, "/runArgs", "a GPU is requested in the configuration without one", "remove the request")
    if container.env.get("GPUKIT_DEVICE") != "cpu":
        remedy = 'write "GPUKIT_DEVICE": "cpu", so that programs look for no GPU'
        yield Problem(CPU, "/containerEnv/GPUKIT_DEVICE", "is not cpu", remedy)
    if raw["build"]["args"].get("TORCH_BACKEND") != "cpu":
        remedy = 'write "TORCH_BACKEND": "cpu", so that torch is installed without CUDA'
        yield Problem(CPU, "/build/args/TORCH_BACKEND", "is not cpu", remedy)


def podman(raw: Mapping[str, Any], container: Container, main: Container) -> Iterator[Problem]:
    """Podman's configuration must run the same container as the main one, as the image's user."""
    given = [f"{name}={value}" for name, value in flags.options(raw.get("runArgs") or [])]
    if KEEP_ID not in given:
        what = f"{KEEP_ID} is missing, so that the project's folder is not writable"
        yield Problem(PODMAN, "/runArgs", what, "add it")
    if raw.get("updateRemoteUserUID") is not False:
        what = "is not false, so that VS Code builds a user whom the engine cannot have"
        yield Problem(PODMAN, "/updateRemoteUserUID", what, 'write "updateRemoteUserUID": false')
    ours = container.settings()
    theirs = main.settings()
    for place in sorted({*ours, *theirs} - {"deploy"}):  # the GPU, in Podman's own words
        if ours.get(place) != theirs.get(place):
            what = f"{place} is {quoted(ours.get(place))}, but {quoted(theirs.get(place))} in {MAIN}"
            yield Problem(PODMAN, "", what, "make both the same")


# Against stack.json. Each problem is given with the key of stack.json that the file disagrees with.


def gpu_request(default: Container, first: Container, stack: Mapping[str, Any]) -> Iterator[Problem]:
    """The GPU in stack.json; `default` is the container with GPUS unset, `first` with GPUS=0."""
    names = ", ".join(stack["targets"])
    devices = stack["request"]["devices"] or "all"
    asks = "runtime" if first.runtime == "nvidia" else "gpus" if first.gpu else "none"
    wanted = stack["request"]["kind"] if has_gpu(stack) else "none"
    seen = {"runtime": "the GPU is requested by --runtime", "gpus": "the GPU is requested by --gpus"}
    spelled = {
        "gpus": GPUS.format("all"),
        "runtime": '"--runtime=nvidia" with NVIDIA_VISIBLE_DEVICES in containerEnv',
    }
    if wanted == "none" and asks != "none":
        yield Problem(MAIN, "/runArgs", f"a GPU is requested, and {STACK} names none ({names})", "remove the request")
    elif asks != wanted:
        what = f"{seen.get(asks, 'no GPU is requested')}, and {STACK} is for {names}"
        yield Problem(MAIN, "/runArgs", what, f"request it by {spelled[wanted]}")
    elif default.gpu == "all" and devices != "all":
        yield Problem(MAIN, "/runArgs", f"all GPUs are requested, which {names} does not allow", GPUS.format(devices))
    elif wanted == "runtime" and "NVIDIA_VISIBLE_DEVICES" not in first.env:
        remedy = f'write "NVIDIA_VISIBLE_DEVICES": "${{localEnv:GPUS:{devices}}}"'
        yield Problem(MAIN, "/containerEnv/NVIDIA_VISIBLE_DEVICES", "is missing: no GPU would be visible", remedy)
    for name, hiding in HIDES.items():
        if wanted != "none" and first.env.get(name) in hiding:
            what = f"is {quoted(first.env[name])}, so that programs do not use the GPU that is requested"
            yield Problem(MAIN, f"/containerEnv/{name}", what, "remove it")
    cap = first.env.get("PYTORCH_ALLOC_CONF") or ""
    fraction = re.search(r"per_process_memory_fraction\s*:\s*(\d+(\.\d*)?)", cap)
    if stack["memory"]["fraction"] and fraction and float(fraction[1]) > 1:
        what = f"the fraction of the memory is {fraction[1]}, which is not between 0 and 1"
        yield Problem(MAIN, "/containerEnv/PYTORCH_ALLOC_CONF", what, f"write {stack['memory']['fraction']}")
    elif stack["memory"]["fraction"] and "per_process_memory_fraction" not in cap:
        what = "sets no per_process_memory_fraction, and too large an allocation freezes a machine with unified memory"
        yield Problem(MAIN, "/containerEnv/PYTORCH_ALLOC_CONF", what, RESTORE)


Disagreements = Iterator[tuple[str, Problem]]


def container(name: str, raw: Mapping[str, Any], found: Container, stack: Mapping[str, Any]) -> Disagreements:
    """The memory policy, the user, and the mounts."""
    policy = stack["memory"]
    wanted = {"--ipc": policy["ipc"], "--shm-size": flags.size(policy["shm_size"])}
    wanted.update({f"--ulimit {limit}": flags.ulimit(value) for limit, value in policy["ulimits"].items()})
    here = {"--ipc": found.ipc, "--shm-size": found.shm_size}
    here.update({f"--ulimit {limit}": value for limit, value in found.ulimits.items()})
    differing = [flag for flag in wanted if not enough(here.get(flag), wanted[flag])]
    if differing:
        seen = ", ".join(f"{flag} is {quoted(here.get(flag))}" for flag in differing)
        what = f"{seen}, and the memory policy in {STACK} says {', '.join(quoted(wanted[flag]) for flag in differing)}"
        yield "memory", Problem(name, "/runArgs", what, "change the flags to match the policy")
    key = "remoteUser" if "remoteUser" in raw else "containerUser"
    if raw[key] != stack["user"]:
        what = f"{quoted(raw[key])}, and the image's user is {quoted(stack['user'])} ({STACK})"
        yield "user", Problem(name, f"/{key}", what, f"write {quoted(stack['user'])}")
    for target in [*stack["mounts"], *stack["read_only"]]:
        mount = found.mounts.get(target)
        read_only = target in stack["read_only"]
        if mount is None:
            what = f"nothing is mounted at {target}, which {STACK} expects"
            remedy = f'add "type=bind,source=...,target={target}{",readonly" * read_only}"'
            yield "mounts", Problem(name, "/mounts", what, remedy)
        elif mount.read_only != read_only:
            modes = ("read-only", "writable") if mount.read_only else ("writable", "read-only")
            what = f"{target} is mounted {modes[0]}, and {STACK} has it {modes[1]}"
            yield "mounts", Problem(name, "/mounts", what, f"{'add' if read_only else 'remove'} `readonly`")


def enough(seen: Any, wanted: Any) -> bool:
    """Whether a size or a limit is at least the wanted one, if any, as verify/ asks; -1 is unlimited."""
    if not re.fullmatch(r"[-\d:]+ [-\d:]+", f"{seen} {wanted}"):
        return wanted in (None, seen)
    pairs = zip(str(seen).split(":"), str(wanted).split(":"))
    return all(own == "-1" or (asked != "-1" and int(own) >= int(asked)) for own, asked in pairs)


def readme(project: Path, stack: Mapping[str, Any]) -> Disagreements:
    path = project / "README.md"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for number, line in enumerate(lines, 1):
        for key, pattern in README.items():
            match = re.search(pattern, line)
            if match and match[1] != stack[key]:
                what = f"{key} is {match[1]}, and {STACK} says {stack[key]}"
                yield key, Problem(path.name, f"line {number}", what, "make them the same")


def blamed(found: list[tuple[str, Problem]]) -> Iterator[Problem]:
    """The problems that files have with stack.json. Where two disagree with the same key, stack.json is wrong."""
    for key in dict.fromkeys(key for key, _ in found):
        problems = [problem for other, problem in found if other == key]
        names = list(dict.fromkeys(problem.file for problem in problems))
        if len(names) > 1:
            yield Problem(STACK, f"/{key}", f"does not agree with {' and '.join(names)}: {problems[0].what}", RESTORE)
        else:
            yield from problems


# Against compose.yaml


def differences(file: str, here: Container, other: str, there: Container, gpus: str) -> Iterator[Problem]:
    """Differences between the service `dev` and a configuration. Several in one section are one problem.

    `gpus`: how GPUS was set when both were read
    """
    mine = here.settings()
    theirs = there.settings()
    sections: dict[str, list[str]] = {}
    for place in sorted({*mine, *theirs}):
        by_name = place in mine and place in theirs and BY_NAME in (mine[place], theirs[place])
        both_named = place != "user" or place in mine
        if mine.get(place) != theirs.get(place) and both_named and not by_name:
            section = re.split(r"/(?!args)", place, maxsplit=1)[0]
            sections.setdefault(section, []).append(place)
    for section, places in sections.items():
        names = [place[len(section) + 1 :] for place in places]
        what = f"differs from {other}: {', '.join(names)}"
        if len(places) == 1:
            what = difference(places[0], mine, theirs, other)
        if section == "deploy":
            what = f"with {gpus}, {what}"
        place = section if len(places) > 1 or section == "volumes" else places[0]
        yield Problem(file, f"/services/dev/{place}", what, "make them the same")


def difference(place: str, mine: Mapping[str, Any], theirs: Mapping[str, Any], other: str) -> str:
    name = place.partition("/")[2] or place.replace("deploy", "the GPU")
    if place not in mine:
        return f"{name} is missing, and {other} has it"
    if place not in theirs:
        return f"{other} has no {name}"
    if place.startswith(("environment/", "build/args/")):  # a value could be a secret
        return f"has another value in {other}"
    return f"{name} is {quoted(mine[place])} here, and {quoted(theirs[place])} in {other}"
