"""Machines that are not here: what the probes would see on a healthy one, to be changed case by case."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpukit.host.cards import data
from gpukit.host.smi import Card, Smi
from gpukit.project.stack import load
from gpukit.verify.probes import (
    Device,
    Devices,
    Imported,
    Kernel,
    Outcome,
    Place,
    Processors,
    Ram,
    Torch,
    User,
    Versions,
)
from gpukit.verify.requirements import Requirements

from .web import Web, serving

ROOT = Path(__file__).resolve().parents[2]

DATA: dict[str, Any] = {
    "schema": 1,
    "project": "demo",
    "package": "demo",
    "use_case": "minimal",
    "trial": [],
    "tracking": [],
    "targets": {
        "rtx-50": {
            "label": "GeForce RTX 50 series",
            "capability": "12.0",
            "arch": "amd64",
            "driver": "570.86.16",
            "unified_memory": False,
            "precisions": ["fp16", "bf16"],
        }
    },
    "base": "wheel",
    "release": "2.14.1-cu130",
    "channel": "current",
    "image": "python:3.12-slim-trixie",
    "digest": f"sha256:{'a' * 64}",
    "python": "3.12",
    "torch": "2.14.1+cu130",
    "cuda": "13.0",
    "kernels": {"amd64": {"sass": ["7.5", "8.0", "8.6", "9.0", "10.0", "12.0"], "ptx": []}},
    "driver": "580",
    "end_of_life": None,
    "torch_install": {
        "requirement": "torch==2.14.1",
        "index": "https://download.pytorch.org/whl",
        "package_index": True,
    },
    "protected": ["torch", "nvidia-*"],
    "request": {"kind": "gpus", "devices": "all"},
    "memory": {
        "ipc": "host",
        "shm_size": None,
        "fraction": None,
        "allocator_cap": True,
        "ulimits": {"memlock": -1, "stack": 8 << 20},
    },
    "size_gb": 9,
    "user": "dev",
    "mounts": ["/workspace", "/home/dev/.cache/huggingface"],
    "read_only": [],
    "native": {
        "torch": "2.14.1+cu130",
        "requirement": "torch>=2.11,<2.15",
        "index": "https://download.pytorch.org/whl/cu130",
        "cpu_index": "https://download.pytorch.org/whl/cpu",
        "package_index": True,
        "cuda": "13.0",
        "python": "3.12",
        "pythons": ["3.11", "3.12", "3.13", "3.14"],
        "allocator_cap": True,
        "driver": "580",
        "protected": ["torch", "nvidia-*"],
        "size_gb": 8,
    },
}
CPU_ONLY = {
    "targets": {"cpu": {**DATA["targets"]["rtx-50"], "label": "No GPU", "capability": None, "driver": None}},
    "torch": "2.14.1+cpu",
    "cuda": None,
    "driver": None,
}


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """An index and registry on loopback, also in the place of the indexes with wheels of extensions."""
    with serving() as served:
        for name, index in data("extensions")["indexes"].items():
            page = re.sub("^https://[^/]+", f"{served.url}/{name}", index["page"])
            monkeypatch.setitem(index, "page", page)
        yield served


@pytest.fixture
def stack_data():
    """`stack_data(python="3.11")`: the content of a stack.json."""
    return lambda **changes: {**json.loads(json.dumps(DATA)), **changes}


@pytest.fixture
def stack_file(tmp_path, stack_data):
    def write(**changes: Any) -> Path:
        path = tmp_path / "stack.json"
        path.write_text(json.dumps(stack_data(**changes)), encoding="utf-8")
        return path

    return write


@pytest.fixture
def make_stack(stack_file):
    return lambda **changes: load(stack_file(**changes))


@pytest.fixture
def cpu_only() -> dict[str, Any]:
    return CPU_ONLY


@pytest.fixture
def container():
    """`container(python="3.11.2")`: a healthy container with that card, except for these values."""
    off = {"error": 1e-6, "tolerance": 1e-3}
    room = {"free": 15 << 30, "total": 16 << 30, "shared": False}
    link = {"gen": 5, "width": 16, "slowed": ["sw_power_cap"], "mig": False}
    losses = [1.4 - 0.02 * step for step in range(10)]

    def on(device: str, **output: Any) -> Outcome:
        return Outcome(device, {"device": device, **output})

    def probes(**changes: Any) -> SimpleNamespace:
        seen = {
            "base_image": f"{DATA['image']}@{DATA['digest']}",
            "stress": False,
            "workspace_venv": "",
            "in_use_by": "",
            "assembler": ("/usr/local/lib/python3.12/site-packages/triton/ptxas", ("sm_75", "sm_120", "sm_120a")),
            "smi": Smi("580.95.05", (Card("NVIDIA GeForce RTX 5070 Ti", "GPU-1", temperature=41, mode="Default"),)),
            "xids": None,
            "temporary": (Place("/tmp", True, free_gb=50.0),),
            "limits": {"memlock": -1, "stack": 64 << 20, "nofile": 1048576},
            "processors": Processors(16, 16),
            "ram": Ram(64.0, 50.0, None, 8.0),
            "requirements": Requirements(12, (), frozenset({"torch", "transformers"})),
            "conflicts": (),
            "unknown_imports": [],
            "imported": [Imported("torch"), Imported("transformers")],
            "inaccessible_nodes": [],
            "peers": on("", pairs=2, direct=2, wrong=[]),
            "kernel": Kernel("python3", "/usr/local/bin/python", "/usr/local"),
            "matmuls": on(
                "cuda:0", results=[{"name": name, **off} for name in ("fp32", "fp16", "tf32", "bf16", "fp8")]
            ),
            "convolution": on("cuda:0", **off, cudnn=91300, enabled=True),
            "attention": on("cuda:0", kind="bf16", **off, ways={"flash": 1e-4, "math": 1e-4}),
            "loader": on("", workers=2, equal=True, seconds=0.4),
            "collective": on("", kind="gloo", ranks=2, silent=[], wrong=[], message="", ended=[0, 0], seconds=0.5),
            "training": (
                on("cuda:0", start=0, losses=losses, again=losses),
                on("cuda:0", start=5, losses=losses[5:], again=[]),
            ),
            "memory_patterns": (on("cuda:0", bytes=1 << 30, wrong=[], others=0, seconds=0.2, **room),),
            "transfers": (on("cuda:0", pinned=True, to=52.0, **{"from": 53.0}, card=link),),
            "gemms": (on("cuda:0", kind="bf16", size=8192, tflops=92.0, others=False, card=link),),
            "environment": {},
            "gpukit": Versions("0.2.0", "0.2.0"),
            "python": "3.12.12",
            "prefixes": ("/usr/local", "/usr/local"),
            "torch": Torch("2.14.1+cu130", "13.0"),
            "protected": {"torch": "2.14.1+cu130", "nvidia-nccl-cu13": "2.28.9"},
            "protected_changes": [],
            "devices": Devices((Device("NVIDIA GeForce RTX 5070 Ti", "12.0"),), ("sm_75", "sm_90", "sm_120")),
            "gpu_nodes": ["/dev/nvidia0"],
            "cuda_library": True,
            "compiler": "/usr/bin/g++",
            "python_header": True,
            "shm_gb": (31.0, 30.0),
            "tensors": (on("cuda:0", equal=True),),
            "compiled": on("cuda:0", equal=True, compiled=True, seconds=4.0),
            "user": User(1000, "dev", "/workspace", 1000),
            "mounts": (Place("/workspace", True, True), Place("/home/dev/.cache/huggingface", True, True)),
            "read_only": (),
            "caches": (Place("/home/dev/.cache", True),),
        }
        return SimpleNamespace(**{**seen, **changes})

    return probes


@pytest.fixture
def findings_schema():
    return json.loads((ROOT / "gpukit/src/gpukit/findings/findings.schema.json").read_text(encoding="utf-8"))


@pytest.fixture
def stack_schema():
    return json.loads((ROOT / "gpukit/src/gpukit/validate/schemas/stack.schema.json").read_text(encoding="utf-8"))
