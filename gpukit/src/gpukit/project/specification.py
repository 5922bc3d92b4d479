"""The keys of devcontainer.json and the options of `docker run`: finds those that do not exist.

Nothing reports a misspelled key: the tools ignore it, and the container starts without what it asked for.

Sources: https://containers.dev/implementors/json_schema/ and `docker run --help` of Docker 26.1 and 28.2, read on
2026-11-25. tests/gpukit/test_validate.py compares both lists with them, where they are available.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


KEYS = words(
    """$schema appPort build capAdd containerEnv containerUser context customizations dockerComposeFile dockerFile
    features forwardPorts hostRequirements image init initializeCommand mounts name onCreateCommand otherPortsAttributes
    overrideCommand overrideFeatureInstallOrder portsAttributes postAttachCommand postCreateCommand postStartCommand
    privileged remoteEnv remoteUser runArgs runServices secrets securityOpt service shutdownAction updateContentCommand
    updateRemoteUserUID userEnvProbe waitFor workspaceFolder workspaceMount"""
)
PARTS = {
    "build": frozenset({"args", "cacheFrom", "context", "dockerfile", "options", "target"}),
    "hostRequirements": frozenset({"cpus", "gpu", "memory", "storage"}),
}
# Keys of the format of 2019 to 2022, and where they are now. VS Code still reads some of them; launch does not.
MOVED = {
    "dockerFile": "build.dockerfile",
    "context": "build.context",
    "devPort": "customizations.vscode.devPort",
    "extensions": "customizations.vscode.extensions",
    "settings": "customizations.vscode.settings",
}
SWITCHES = words(
    """--detach --disable-content-trust --help --init --interactive --no-healthcheck --oom-kill-disable --privileged
    --publish-all --quiet --read-only --rm --sig-proxy --tty --use-api-socket"""
)
OPTIONS = SWITCHES | words(
    """--add-host --annotation --attach --blkio-weight --blkio-weight-device --cap-add --cap-drop --cgroup-parent
    --cgroupns --cidfile --cpu-count --cpu-percent --cpu-period --cpu-quota --cpu-rt-period --cpu-rt-runtime
    --cpu-shares --cpus --cpuset-cpus --cpuset-mems --detach-keys --device --device-cgroup-rule --device-read-bps
    --device-read-iops --device-write-bps --device-write-iops --dns --dns-opt --dns-option --dns-search --domainname
    --entrypoint --env --env-file --expose --gpus --group-add --health-cmd --health-interval --health-retries
    --health-start-interval --health-start-period --health-timeout --hostname --io-maxbandwidth --io-maxiops --ip --ip6
    --ipc --isolation --kernel-memory --label --label-file --link --link-local-ip --log-driver --log-opt --mac-address
    --memory --memory-reservation --memory-swap --memory-swappiness --mount --name --net --net-alias --network
    --network-alias --oom-score-adj --pid --pids-limit --platform --publish --pull --restart --runtime --security-opt
    --shm-size --stop-signal --stop-timeout --storage-opt --sysctl --tmpfs --ulimit --user --userns --uts --volume
    --volume-driver --volumes-from --workdir"""
)
LETTERS = {"a": "attach", "c": "cpu-shares", "d": "detach", "e": "env", "h": "hostname", "i": "interactive"}
LETTERS |= {"l": "label", "m": "memory", "p": "publish", "P": "publish-all", "q": "quiet", "t": "tty", "u": "user"}
LETTERS |= {"v": "volume", "w": "workdir"}


class Mistake(NamedTuple):
    place: str  # a JSON pointer
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place} {self.what}: {self.remedy}"


def similar(name: str, known: Collection[str]) -> str:
    """The known name that was probably meant; empty if none resembles it."""
    from difflib import get_close_matches  # only needed for what is wrong

    lower = {each.lower(): each for each in known}
    return lower[found[0]] if (found := get_close_matches(name.lower(), lower, 1, 0.8)) else ""


def correct_keys(content: Mapping[str, Any], known: Collection[str], place: str = "") -> tuple[dict, list[Mistake]]:
    """The content with misspelled keys corrected, and these keys; a key that resembles none stays."""
    corrected, found = {}, []
    for key, value in content.items():
        right = "" if key in known else similar(key, known)
        if right and right not in content:
            found.append(Mistake(f"{place}/{key}", "is not a key that anything reads", f"write `{right}`"))
        corrected[right if right and right not in content else key] = value
    return corrected, found


def correct_options(arguments: Iterable[Any]) -> tuple[list[Any], list[Mistake]]:
    """runArgs with misspelled options corrected, and these options."""
    corrected, found, value_follows = [], [], False
    for argument in arguments:
        text = str(argument)
        name = text.partition("=")[0]
        if value_follows:
            value_follows = False
        elif not text.startswith("-"):
            found.append(Mistake("/runArgs", f"{text!r} is neither an option nor a value of one", "remove it"))
            continue
        elif text.startswith("--") and name not in OPTIONS:
            right = similar(name, OPTIONS)
            remedy = f"write `{right}`" if right else "remove it"
            found.append(Mistake("/runArgs", f"{name} is not an option of `docker run`", remedy))
            if not right:
                continue
            text = argument = right + text[len(name) :]
            value_follows = "=" not in text and right not in SWITCHES
        elif text.startswith("--"):
            value_follows = "=" not in text and name not in SWITCHES
        elif text[1:2] not in LETTERS:
            found.append(Mistake("/runArgs", f"{text[:2]} is not an option of `docker run`", "remove it"))
            continue
        else:
            value_follows = len(text) == 2 and f"--{LETTERS[text[1]]}" not in SWITCHES
        corrected.append(argument)
    return corrected, found


def correct(raw: Mapping[str, Any]) -> tuple[dict[str, Any], list[Mistake], list[str]]:
    """The content of devcontainer.json as it was meant, what is wrong in it, and unknown keys that resemble nothing."""
    content, found = dict(raw), []
    for key in [key for key in content if key in MOVED and not (key == "context" and "dockerFile" in content)]:
        found.append(Mistake(f"/{key}", "is of an old format", f"move it to {MOVED[key]}"))
        del content[key]
    content, misspelled = correct_keys(content, KEYS)
    found += misspelled
    for key in [key for key in content if key not in KEYS]:
        option = "--" + re.sub(r"[A-Z_]", lambda letter: "-" + letter[0].strip("_").lower(), key)
        named = next((each for each in (option, option.rstrip("s")) if each in OPTIONS), "")
        if named:
            found.append(Mistake(f"/{key}", "is not a key that anything reads", f'write "{named}=..." in runArgs'))
            del content[key]
    for part, known in PARTS.items():
        if isinstance(content.get(part), Mapping):
            content[part], misspelled = correct_keys(content[part], known, f"/{part}")
            found += misspelled
    if isinstance(content.get("runArgs"), list):
        content["runArgs"], wrong = correct_options(content["runArgs"])
        found += wrong
    return content, found, [key for key in content if key not in KEYS]
