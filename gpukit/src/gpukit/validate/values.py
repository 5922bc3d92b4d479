"""Values of docker run's options and of mounts that no engine accepts.

Checked are the form that each kind of value has, and what the options of this template mean. Whether an engine has a
capability, a security option, or a driver, only it can say.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from typing import Any

from gpukit.project import flags
from gpukit.project.flags import KIND
from gpukit.project.messages import alike
from gpukit.project.specification import LIMITS, MOUNT, MOUNT_TYPES

LEAST = {"--memory": 6 << 20, "--shm-size": 4096}  # bytes: what Docker accepts, and a page; 0 is no limit
SHELL = re.compile(r"^~|(?:^|/)\$[A-Za-z_]\w*(?=[/:]|$)")  # a whole part of the path: others may be a name
UNREPLACED = "has ~ or $NAME, which only a shell replaces: write ${localEnv:HOME} or ${localEnv:NAME}"
PORTS = r"\d{1,5}(?:-\d{1,5})?"
ADDRESS = r"\[[\da-f:.]+\]|[\d.]+|[\da-f]*:[\da-f:]+|localhost"
# The form of values: a pattern, and what it stands for.
FORMS = {
    "bytes": (r"-1|\d+(?:\.\d+)? ?[kmgt]?(?:i?b)?", "a size, such as 16gb"),
    "decimal": (r"\d+(?:\.\d*)?|\.\d+", "a number"),
    "duration": (r"0|(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+", "a duration, such as 30s"),
    "int": (r"[+-]?\d+", "a whole number"),
    "uint16": (r"\d{1,5}", "a whole number"),
    "": (r"1|t|true|0|f|false", "true or false"),
    "--ipc": (r"|none|private|shareable|host|container:.+|ns:.+", "host, private, shareable, none, or container:NAME"),
    "--env": (r"[^=]+(?:=.*)?", "NAME or NAME=VALUE"),
    "--cpuset-cpus": (r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*", "CPUs as in 0-7 or 0,2"),
    "--name": (r"[\da-z][\w.-]+", "letters, digits, _, . and - only"),
    "--add-host": (r"[^:=]+[:=].+", "NAME:ADDRESS"),
    "--device": (r"/[^:]+(?::/[^:]+)?(?::[rwm]+)?|[\w.-]+/[\w.-]+=[^,]+", "/dev/NAME, or nvidia.com/gpu=0"),
    "--publish": (
        rf".*=.*|(?:(?:(?:{ADDRESS}):)?(?:{PORTS})?:)?{PORTS}(?:/(?:tcp|udp|sctp))?",
        "127.0.0.1:PORT:PORT",
    ),
}


def wrong(option: str, value: str) -> str:
    """Why no engine accepts this value of an option; nothing if one may."""
    if value != value.strip():
        return f"{option} is {value!r}, which begins or ends with a space"
    special = {
        "--gpus": wrong_gpus,
        "--ulimit": wrong_limit,
        "--mount": lambda text: wrong_mount(flags.long_mount(text)),
        "--volume": wrong_volume,
    }
    if option in special:
        return special[option](value)
    pattern, meaning = FORMS.get(option) or FORMS.get(KIND.get(option, "string")) or ("", "")
    if meaning and not re.fullmatch(pattern, value, re.IGNORECASE):
        return f"{option} is {value or 'empty'}, which is not {meaning}"
    if value.isdecimal() and 0 < int(value) < LEAST.get(option, 0):
        return f"{option} is {value} bytes; write the unit, as in {value}gb"
    return ""


def wrong_gpus(value: str) -> str:
    fields = [field.partition("=") for field in next(csv.reader([value]), [])]
    given = {key if equals else "count": text if equals else key for key, equals, text in fields}
    unknown = [key for key in given if key not in ("count", "device", "driver", "capabilities", "options")]
    if unknown:
        return f"--gpus has no field `{unknown[0]}`"
    if {"count", "device"} <= {*given}:
        return f'--gpus is {value}, which names devices and a number: quote several devices, as in \\"device=0,1\\"'
    if not re.fullmatch(r"all|-1|\d+", given.get("count", "all")):
        return f"--gpus is {value}, which is not `all`, a number, or device=ID"
    if not re.fullmatch(r"[\w.,:/=-]*", given.get("device", "")):
        return f"--gpus is {value}, which is not `all`, indexes as in 0,1, or the UUID of a GPU"
    return "" if {"count", "device"} & {*given} else f"--gpus is {value or 'empty'}, which requests no GPU"


def wrong_limit(value: str) -> str:
    name, _, limits = value.partition("=")
    if value == "host":  # Podman's
        return ""
    if name not in LIMITS.split():
        return f"--ulimit {name}: there is no such limit{suggestion(name, LIMITS)}"
    match = re.fullmatch(r"(-?\d+)(?::(-?\d+))?", limits)
    if not match:
        return f"--ulimit {name} is {limits or 'empty'}, which is not a number, or two as SOFT:HARD"
    soft = int(match[1])
    hard = int(match[2] or match[1])
    if hard != -1 and (soft == -1 or soft > hard):
        return f"--ulimit {name} is {limits}, and the soft limit exceeds the hard limit"
    return ""


def wrong_mount(mount: Mapping[str, Any]) -> str:
    """Why no engine accepts a mount."""
    unknown = [
        field for field in (option.partition("=")[0] for option in mount["options"]) if field not in MOUNT.split()
    ]
    if unknown:
        return f"a mount has no field `{unknown[0]}`{suggestion(unknown[0], MOUNT)}"
    if mount["type"] not in MOUNT_TYPES.split():
        return f"a mount has the type {mount['type']}{suggestion(mount['type'], MOUNT_TYPES)}"
    source = mount["source"]
    target = mount["target"]
    if not target.startswith("/"):
        return f"a mount has the target {target}, which is not a path that begins with /" if target else NO_TARGET
    if mount["type"] == "bind" and not source:
        return f"the mount at {target} has no source"
    if SHELL.search(source):
        return f"the source of the mount at {target} {UNREPLACED}"
    if mount["type"] == "bind" and not re.match(r"[/$.]|[A-Za-z]:[\\/]", source):
        return f"the mount at {target} has the source {source}, which is not a path that begins with /"
    if mount["type"] == "volume" and source.startswith(("/", ".")):
        return f"the mount at {target} has a path as its source, but not the type bind"
    return ""


NO_TARGET = "a mount has no target"


def wrong_volume(value: str) -> str:
    parts = re.sub(r"^[A-Za-z]:(?=\\)", "", value).split(":")  # a path of Windows
    target = parts[min(1, len(parts) - 1)]
    if len(parts) > 3:
        return f"--volume is {value}, which has more than SOURCE:TARGET:OPTIONS"
    if SHELL.search(value):
        return f"--volume {value} {UNREPLACED}"
    return "" if target.startswith("/") else f"--volume is {value}, and its target is not a path that begins with /"


def suggestion(word: str, known: str) -> str:
    meant = alike(word, known.split())
    return f" (did you mean `{meant}`?)" if meant else ""
