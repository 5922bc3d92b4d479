"""Machines as doctor's probes see them: a healthy one, to be changed, and recorded ones, read from text files."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpukit.doctor.host import Config, Folder, Merge, Result, Specification, Toolkit, containers
from gpukit.host import smi
from gpukit.host.cards import data
from gpukit.host.facts import PciDevice
from gpukit.host.health import xids
from gpukit.host.memory import parse
from gpukit.host.refusals import explain

FAULTS = Path(__file__).with_name("faults")
INFO = {
    "ServerVersion": "29.1.2",
    "OperatingSystem": "Ubuntu 24.04.3 LTS",
    "OSType": "linux",
    "Driver": "overlay2",
    "DriverStatus": [["Backing Filesystem", "extfs"]],
    "DockerRootDir": "/var/lib/docker",
    "CgroupDriver": "systemd",
    "CgroupVersion": "2",
    "Runtimes": {"runc": {}, "nvidia": {"path": "nvidia-container-runtime"}},
    "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
    "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=all"}],
    "SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin", "name=cgroupns"],
}


def machine(**changes: Any) -> SimpleNamespace:
    """A workstation with an RTX 5070 Ti and Docker 29, except for these values."""
    texts = changes.pop("texts", {})
    seen = {
        "client": Result(0, "Docker version 29.1.2, build 890dcca"),
        "info": Result(0, json.dumps({**INFO, **changes.pop("engine", {})})),
        "server": Result(0, '{"Platform":{"Name":"Docker Engine - Community"}}'),
        "endpoint": "unix:///var/run/docker.sock",
        "engine_name": "docker",
        "for_podman": False,
        "system": "linux",
        "arch": "amd64",
        "cards": Result(0, "NVIDIA GeForce RTX 5070 Ti, 580.95.05, 12.0\n"),
        "mig": Result(0, "[N/A]\n"),
        "listed": Result(0, "GPU 0: NVIDIA GeForce RTX 5070 Ti (UUID: GPU-11111111-2222-3333-4444-555555555555)\n"),
        "fabric": Result(0, "[N/A]\n"),
        "fabric_manager": "inactive",
        "module": "580.95.05",
        "pci": (PciDevice("gpu", "nvidia"),),
        "secure_boot": False,
        "toolkit": Toolkit("1.19.1", True, (Specification("/var/run/cdi/nvidia.yaml", "580.95.05"),)),
        "gpus": "all",
        "refusal": None,
        "config": Config((Folder("/home/me/demo", "/workspace", False, "folder", True),)),
        "merge": Merge(),
        "containers": (),
        "inside": None,
        "ports": (),
        "built": False,
        "text": texts.get,
        "exists": {"/dev/nvidiactl", *changes.pop("files", ())}.__contains__,
        "free_gb": lambda folder: 200.0,
        "today": date(2026, 11, 20),
        "local": None,
        "meminfo": {},
        "smi": smi.Smi("580.95.05", (smi.Card("NVIDIA GeForce RTX 5070 Ti", used=2, memory=16303),)),
        "log": "",
        "special_places": (),
        "native": False,
        "native_folders": ["/home/me/.local/share", "/home/me/.cache/uv"],
        "created": False,
    }
    seen["given"] = len(changes.get("cards", seen["cards"]).out.splitlines())
    seen["xids"] = xids(changes.get("log", ""))
    unknown = set(changes) - set(seen)
    assert not unknown, unknown
    return SimpleNamespace(**{**seen, **changes})


@pytest.fixture
def host():
    return machine


@dataclass
class Record:
    """One block of a file in faults/: what was seen, where that was recorded, and what doctor must say of it."""

    name: str
    about: dict[str, str]
    sections: list[tuple[str, str]] = field(default_factory=list)

    @property
    def probes(self) -> SimpleNamespace:

        changes: dict[str, Any] = {}
        for title, text in self.sections:
            kind, *words = title.split()
            if kind in ("client", "server", "cards", "mig", "listed", "fabric", "inside") or kind == "info":
                code = None if words[:1] in (["missing"], ["late"]) else int(words[0]) if words else 0
                changes[kind] = Result(code, text, timed_out=words == ["late"])
            elif kind == "smi":
                log = f"<nvidia_smi_log><driver_version>580.95.05</driver_version>{text}</nvidia_smi_log>"
                failed = Result(None if words == ["late"] else 15, err=text, timed_out=words == ["late"])
                changes[kind] = smi.read(failed if words else Result(0, log))
            elif kind == "log":
                changes[kind] = text if not words else None
            elif kind == "stderr":
                changes[words[0]] = Result(int(words[1]), "", text)
            elif kind == "engine":
                changes["engine"] = json.loads(text)
            elif kind == "refused":
                changes["refusal"] = explain(text, "The engine could not be asked")
            elif kind == "file":
                changes.setdefault("texts", {})[words[0]] = text.strip()
                if words[0] == "/proc/meminfo":
                    changes["meminfo"] = parse(text)
            elif kind == "containers":
                changes["containers"] = tuple(containers(text))
            elif kind == "probes":
                changes.update(_plain(text))
            elif kind == "toolkit":
                parts = dict(re.split(r":\s*", line, maxsplit=1) for line in text.strip().splitlines())
                paths = [part.split("=") for part in parts.get("specifications", "").split()]
                changes["toolkit"] = Toolkit(
                    parts.get("version", ""),
                    parts.get("runtime") == "yes",
                    tuple(Specification(*path) for path in paths),
                )
            else:
                raise AssertionError(title)
        return machine(**changes)


def _plain(text: str) -> dict[str, Any]:
    """Lines such as `system: wsl`, `pci: gpu nouveau`."""

    found: dict[str, Any] = {}
    for line in text.strip().splitlines():
        name, _, value = (part.strip() for part in line.partition(":"))
        if name == "pci":
            found[name] = tuple(PciDevice(*[*part.split(" "), ""][:2]) for part in value.split(", ") if part)
        elif name == "files":
            found[name] = tuple(value.split())
        elif name == "gone":
            found["exists"] = ({"/dev/nvidiactl"} - set(value.split())).__contains__
        elif name == "given":
            found[name] = int(value)
        elif name == "special_places":
            found[name] = tuple(value.split())
        elif name in ("secure_boot", "built"):
            found[name] = value == "yes"
        elif name == "free_gb":
            free, _, only = value.partition(" in ")
            found[name] = lambda folder, free=float(free), only=only: free if folder.startswith(only) else 200.0
        else:
            found[name] = value
    return found


def records(name: str) -> list[Record]:
    """The blocks of a file: `=== name`, then `key: value` lines, then `--- name` with its output."""
    blocks = re.split(r"^=== ", (FAULTS / f"{name}.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    found = []
    for block in blocks:
        head, *parts = re.split(r"^--- ", block, flags=re.MULTILINE)
        title, *lines = head.strip().splitlines()
        about = dict(line.split(": ", 1) for line in lines)
        sections = [(part.partition("\n")[0].strip(), part.partition("\n")[2].rstrip("\n")) for part in parts]
        found.append(Record(f"{name}: {title}", about, sections))
    return found


def with_stack(record: Record, make_stack: Any) -> Any:
    """The stack that the record asks for: hardware ids of the catalogue, and other values as JSON."""
    changes = json.loads(record.about.get("stack", "{}"))
    if "targets" in record.about:
        changes["targets"] = {id: target(id) for id in record.about["targets"].split()}
        kernels = {"sass": ["7.5", "8.0", "8.6", "9.0", "10.0", "12.0"], "ptx": []}
        changes.setdefault("kernels", {target["arch"]: kernels for target in changes["targets"].values()})
    return make_stack(**changes)


def target(id: str) -> dict[str, Any]:
    """A target of stack.json, as the catalogue has it."""
    known = data("cards")[id]
    fields = ("label", "capability", "arch", "driver", "last_driver", "modules", "unified_memory", "precisions")
    return {field: known[field] for field in fields}
