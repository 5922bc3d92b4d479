"""Values of docker run's options and of mounts that no engine accepts. Docker's and Podman's notations are accepted."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable

from gpukit.project.flags import KIND, gpus
from gpukit.project.messages import alike

LIMITS = "core cpu data fsize locks memlock msgqueue nice nofile nproc rss rtprio rttime sigpending stack"
CAPABILITIES = (
    "all audit_control audit_read audit_write block_suspend bpf checkpoint_restore chown dac_override dac_read_search "
    "fowner fsetid ipc_lock ipc_owner kill lease linux_immutable mac_admin mac_override mknod net_admin "
    "net_bind_service net_broadcast net_raw perfmon setfcap setgid setpcap setuid sys_admin sys_boot sys_chroot "
    "sys_module sys_nice sys_pacct sys_ptrace sys_rawio sys_resource sys_time sys_tty_config syslog wake_alarm"
)
PORTS = r"\d{1,5}(?:-\d{1,5})?"
PROTOCOL = r"(?:/(?:tcp|udp|sctp))?"
JOINED = r"|container:.+|ns:.+"  # the namespace of another container; Podman's path to one
# The values of options that are not free text: a pattern, and what it stands for.
PATTERNS = {
    "bytes": (r"-1|\d+(?:\.\d+)? ?[kmgt]?(?:i?b)?", "a size, such as 16gb"),
    "decimal": (r"\d+(?:\.\d*)?|\.\d+", "a number"),
    "duration": (r"0|(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+", "a duration, such as 30s"),
    "int": (r"[+-]?\d+", "a whole number"),
    "uint16": (r"\d{1,5}", "a whole number"),
    "": (r"1|t|true|0|f|false", "true or false"),
    "--ipc": (rf"|none|private|shareable|host{JOINED}", "host, private, shareable, none, or container:NAME"),
    "--pid": (rf"|private|host{JOINED}", "host, private, or container:NAME"),
    "--uts": (rf"|private|host{JOINED}", "host"),
    "--cgroupns": (rf"|private|host{JOINED}", "host or private"),
    "--userns": (rf"|private|host|nomap|auto(?::.*)?|keep-id(?::.*)?{JOINED}", "host, or Podman's keep-id"),
    "--pull": (r"always|missing|never|newer", "always, missing, or never"),
    "--restart": (r"|no|always|unless-stopped|on-failure(?::\d+)?", "no, always, unless-stopped, or on-failure"),
    "--env": (r"[^=]+(?:=.*)?", "NAME or NAME=VALUE"),
    "--label": (r"[^=]+(?:=.*)?", "NAME=VALUE"),
    "--sysctl": (r"[^=]+=.*", "NAME=VALUE"),
    "--publish": (
        rf".*=.*|(?:(?:(?:\[[\da-f:.]+\]|[\da-f:.]+|localhost):)?(?:{PORTS})?:)?{PORTS}{PROTOCOL}",
        "127.0.0.1:PORT:PORT",
    ),
    "--expose": (PORTS + PROTOCOL, "a port"),
    "--tmpfs": (r"/.*", "a path in the container"),
    "--workdir": (r"/.*", "a path in the container"),
    "--device": (
        r"/[^:]+(?::/[^:]+)?(?::[rwm]+)?|[\w.-]+/[\w.-]+=[^,]+",
        "/dev/NAME, or a CDI name such as nvidia.com/gpu=0",
    ),
    "--cpuset-cpus": (r"[\d,-]*", "a list of CPUs, such as 0-3"),
    "--cpuset-mems": (r"[\d,-]*", "a list, such as 0"),
    "--add-host": (r"[^:=]+[:=].+", "HOST:ADDRESS"),
    "--security-opt": (
        r"no-new-privileges.*|(?:apparmor|seccomp|label|systempaths|writable-cgroups|mask|unmask|proc-opts)[=:].+",
        "no-new-privileges, or NAME=VALUE with seccomp, apparmor, or label",
    ),
}
MOUNT_TYPES = "bind volume tmpfs npipe cluster image devpts glob ramfs artifact"
# What --mount takes besides type, source, and target: Docker's, then Podman's.
MOUNT_OPTIONS = (
    "readonly ro consistency bind-propagation bind-nonrecursive bind-recursive bind-create-src volume-subpath "
    "volume-nocopy volume-label volume-driver volume-opt image-subpath tmpfs-size tmpfs-mode "
    "rw readwrite U chown idmap relabel z Z subpath tmpcopyup notmpcopyup noswap uid gid mode max swap copy nocopy "
    "exec noexec dev nodev suid nosuid size no-dereference digest title name"
)


def wrong(name: str, value: str) -> str:
    """Why no engine accepts this value of an option; nothing if one may."""
    if name == "--gpus":
        return wrong_gpus(value)
    if name == "--ulimit":
        return wrong_limit(value)
    if name in ("--cap-add", "--cap-drop"):
        return wrong_capability(name, value)
    if name == "--mount":
        return wrong_mount(next(csv.reader([value]), []))
    if name == "--volume":
        return wrong_volume(value)
    pattern, meaning = PATTERNS.get(name) or PATTERNS.get(KIND.get(name, "string")) or ("", "")
    if meaning and not re.fullmatch(pattern, value, re.IGNORECASE):
        return f"{name} is {value or 'empty'}, which is not {meaning}"
    if name == "--publish" and any(int(port) > 65535 for port in re.findall(rf"(?<![\d.]){PORTS}$", value)):
        return f"{name} is {value}, and ports end at 65535"
    return ""


def wrong_gpus(value: str) -> str:
    fields = next(csv.reader([value]), [])
    keys = [field.partition("=")[0] if "=" in field else "count" for field in fields]
    if {"count", "device"} <= {*keys}:
        return f'--gpus is {value}, which names devices and a number: quote several devices, as in \\"device=0,1\\"'
    for key, field in zip(keys, fields):
        text = field.partition("=")[2] if "=" in field else field
        if key not in ("count", "device", "driver", "capabilities", "options"):
            meant = alike(key, ["count", "device", "driver", "capabilities", "options"])
            return f"--gpus has no field `{key}`" + (f" (did you mean `{meant}`?)" if meant else "")
        if key == "count" and not re.fullmatch(r"all|-1|\d+", text):
            return f"--gpus is {value}, which is not `all`, a number, or device=ID"
        if key == "device" and not re.fullmatch(r"[\w.,:/=-]*", text):
            return f"--gpus is {value}, which is not `all`, indexes as in 0,1, or the UUID of a GPU"
    return "" if gpus(value) or "device" in keys else f"--gpus is {value or 'empty'}, which requests no GPU"


def wrong_limit(value: str) -> str:
    name, _, limits = value.partition("=")
    if value == "host":  # Podman's
        return ""
    if name not in LIMITS.split():
        meant = alike(name, LIMITS.split())
        return f"--ulimit {name}: there is no such limit" + (f" (did you mean `{meant}`?)" if meant else "")
    match = re.fullmatch(r"(-?\d+)(?::(-?\d+))?", limits)
    if not match:
        return f"--ulimit {name} is {limits or 'empty'}, which is not a number, or two as SOFT:HARD"
    soft, hard = int(match[1]), int(match[2] or match[1])
    if hard != -1 and (soft == -1 or soft > hard):
        return f"--ulimit {name} is {limits}, and the soft limit exceeds the hard limit"
    return ""


def wrong_capability(name: str, value: str) -> str:
    plain = re.sub(r"^cap_", "", value.lower())
    if plain in CAPABILITIES.split():
        return ""
    meant = alike(plain, CAPABILITIES.split())
    return f"{name} is {value}, which is no capability" + (f" (did you mean {meant.upper()}?)" if meant else "")


def wrong_mount(fields: Iterable[str]) -> str:
    """Why no engine accepts the fields of a --mount, or of an item of `mounts`."""
    names = {"src": "source", "dst": "target", "destination": "target"}
    mount = {"type": "volume", "source": "", "target": ""}
    for field in fields:
        key, _, value = field.strip().partition("=")
        key = names.get(key, key)
        if key not in mount and key not in MOUNT_OPTIONS.split():
            meant = alike(key, [*mount, *names, *MOUNT_OPTIONS.split()])
            return f"a mount has no field `{key}`" + (f" (did you mean `{meant}`?)" if meant else "")
        if key in ("readonly", "ro") and value.lower() not in ("", "1", "t", "true", "0", "f", "false"):
            return f"`{key}` of a mount is {value}, which is not true or false"
        mount[key] = value
    target = mount["target"]
    if mount["type"] not in MOUNT_TYPES.split():
        meant = alike(mount["type"], MOUNT_TYPES.split())
        return f"a mount has the type {mount['type']}" + (f" (did you mean `{meant}`?)" if meant else "")
    if not target.startswith("/"):
        return f"a mount has the target {target}, which is not a path that begins with /" if target else NO_TARGET
    if mount["type"] == "bind" and not mount["source"]:
        return f"the mount at {target} has no source"
    if mount["type"] == "bind" and not re.match(r"[/$~.]|[A-Za-z]:[\\/]", mount["source"]):
        return f"the mount at {target} has the source {mount['source']}, which is not a path that begins with /"
    return ""


NO_TARGET = "a mount has no target"


def wrong_volume(value: str) -> str:
    parts = re.sub(r"^[A-Za-z]:(?=\\)", "", value).split(":")  # a path of Windows
    target = parts[min(1, len(parts) - 1)]
    if len(parts) > 3:
        return f"--volume is {value}, which has more than SOURCE:TARGET:OPTIONS"
    if not target.startswith("/"):
        return f"--volume is {value}, and its target is not a path that begins with /"
    return ""
