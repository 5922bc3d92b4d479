"""Hosts as setup sees them: doctor's machine, and what setup looks at beyond it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpukit.doctor.host import Result, Toolkit
from gpukit.host.facts import PciDevice
from gpukit.setup.steps import Context
from gpukit.setup.systems import SYSTEMS, repositories
from tests.gpukit.doctor.conftest import machine, target

MORE = {
    "release": {"ID": "debian", "VERSION_ID": "12", "PRETTY_NAME": "Debian GNU/Linux 12 (bookworm)"},
    "packages": frozenset({"docker-ce", "docker-ce-cli"}),
    "unfinished": False,
    "sources": {},
    "root": False,
    "user": "me",
    "in_group": True,
    "systemd": True,
    "sudo": True,
    "uv": True,
    "next_driver": "580.95.05",
}


def bare(**changes: Any) -> dict[str, Any]:
    """What is different on a host that has a card and nothing else."""
    return {
        "client": Result(None),
        "info": Result(None),
        "server": Result(None),
        "cards": Result(None),
        "module": "",
        "pci": (PciDevice("gpu", ""),),
        "toolkit": Toolkit(),
        "packages": frozenset(),
        "in_group": False,
        "uv": False,
        "next_driver": "",
        **changes,
    }


@pytest.fixture
def make_context(make_stack):
    """`make_context(("debian", "12"), targets=["v100"], root=True, ...)`: that host, otherwise healthy."""

    def make(
        distribution: tuple[str, str] = ("debian", "12"),
        targets: tuple[str, ...] = ("rtx-50",),
        hardware: str = "",
        wanted: tuple[str, ...] = (),
        interrupted: tuple[str, ...] = (),
        mirrors: dict[str, dict[str, str]] | None = None,
        **changes: Any,
    ):
        more = {**MORE, **{name: changes.pop(name) for name in [*changes] if name in MORE}}
        probes = machine(**changes)
        vars(probes).update(more)
        data = {name: target(name) for name in targets}
        gpu = any(each["capability"] for each in data.values())
        stack = make_stack(targets=data, driver="580" if gpu else None)
        found = repositories(SYSTEMS[distribution], probes.arch, mirrors or {})
        return Context(probes, stack, SYSTEMS[distribution], found, stack.targets.get(hardware), wanted, interrupted)

    return make


@pytest.fixture
def mirrors_file(tmp_path: Path):
    def write(output: Any) -> str:
        path = tmp_path / "mirrors.json"
        path.write_text(output if isinstance(output, str) else json.dumps(output), encoding="utf-8")
        return str(path)

    return write
