"""What is chosen for a device, and the memory it is said to have. GPUs are made up; their figures have a source."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from gpukit.host import limits
from gpukit.script import device as module
from gpukit.script.device import Budget, budget, choose, fastest, limit

ROOT = Path(__file__).resolve().parents[2]
GIB = 1 << 30
CPU = torch.device("cpu")
CUDA = torch.device("cuda:0")


@dataclass(frozen=True)
class Card:
    """What CUDA says of a GPU."""

    name: str
    capability: tuple[int, int]
    total: int
    free: int
    integrated: int = 0
    allocated: int = 0
    reserved: int = 0
    fraction: float = 1.0


# From CUDA out of memory errors: github.com/vllm-project/vllm/issues/27508, AlphaGPU/leetgpu-challenges/issues/52.
H100 = Card("NVIDIA H100", (9, 0), int(79.11 * GIB), 141 << 20, allocated=int(68.83 * GIB), reserved=int(69.15 * GIB))
T4 = Card("Tesla T4", (7, 5), int(14.56 * GIB), int(3.24 * GIB), allocated=int(8.4 * GIB), reserved=int(11.2 * GIB))
P4 = Card("Tesla P4", (6, 1), 8 * GIB, 8 * GIB)  # its memory does not matter here
# A DGX Spark whose page cache is full: github.com/llamastash/llamastash/issues/80 (cudaMemGetInfo 2.77 GiB free, while
# MemAvailable is 52 GiB, of 121.69 GiB).
GB10 = Card("NVIDIA GB10", (12, 1), int(121.69 * GIB), int(2.77 * GIB), integrated=1)
GB10_AVAILABLE = 52 * GIB


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch):
    """`card(H100, count=2)`: what torch.cuda says from now on; the fractions that are set are collected."""

    def put(what: Card, count: int = 1) -> list[float]:
        fractions: list[float] = []
        says = {
            "is_available": lambda: True,
            "device_count": lambda: count,
            "get_device_capability": lambda device=None: what.capability,
            "get_device_name": lambda device=None: what.name,
            "get_device_properties": lambda device=None: SimpleNamespace(is_integrated=what.integrated),
            "mem_get_info": lambda device=None: (what.free, what.total),
            "memory_allocated": lambda device=None: what.allocated,
            "memory_reserved": lambda device=None: what.reserved,
            "get_per_process_memory_fraction": lambda device=None: fractions[-1] if fractions else what.fraction,
            "set_per_process_memory_fraction": lambda fraction, device=None: fractions.append(fraction),
        }
        for name, answer in says.items():
            monkeypatch.setattr(torch.cuda, name, answer)
        return fractions

    return put


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`files({"proc/meminfo": "..."})`: what the kernel says from now on, with 64 GiB of which 40 are available."""

    def put(changes: dict[str, str] | None = None) -> None:
        usual = {
            "proc/meminfo": meminfo(64 * GIB, 40 * GIB),
            "proc/self/cgroup": "0::/\n",
            "proc/self/statm": "1000 500 100 1 0 400 0\n",
        }
        for name, text in (usual | (changes or {})).items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, encoding="ascii")

    monkeypatch.setattr(limits, "ROOT", tmp_path)
    return put


def meminfo(total: int, available: int) -> str:
    """Lines as in proc(5)."""
    sizes = {"MemTotal": total, "MemFree": 1 << 20, "MemAvailable": available}
    return "".join(f"{name}: {size >> 10:>14} kB\n" for name, size in sizes.items()) + "HugePages_Total:       0\n"


@pytest.mark.parametrize(
    ("what", "dtype", "channels_last", "words"),
    [
        (H100, torch.bfloat16, True, "NVIDIA H100 (cuda:0): bfloat16, compute capability 9.0, TF32, channels-last."),
        (GB10, torch.bfloat16, True, "NVIDIA GB10 (cuda:0): bfloat16"),
        (T4, torch.float16, True, "Tesla T4 (cuda:0): float16, compute capability 7.5, channels-last."),
        (P4, torch.float32, False, "Tesla P4 (cuda:0): float32, compute capability 6.1."),
    ],
    ids=lambda value: value.name if isinstance(value, Card) else None,
)
def test_each_card_gets_what_it_computes_fast(
    card: Any, what: Card, dtype: torch.dtype, channels_last: bool, words: str
):
    card(what)
    chosen = choose()
    assert (chosen.device, chosen.dtype) == (CUDA, dtype)
    assert (chosen.memory_format == torch.channels_last) == channels_last
    assert words in chosen.line
    assert choose(scaled=False).dtype == (torch.float32 if dtype == torch.float16 else dtype)


def test_the_catalogue_says_the_same():
    """By capability: which cards compute in bfloat16, and which only in fp16."""
    known = yaml.safe_load((ROOT / "catalogue/hardware.yml").read_text(encoding="utf-8"))["hardware"]
    for name, facts in known.items():
        if capability := facts.get("capability"):
            major, minor = capability.rstrip("af").split(".")
            best = next((one for one in ("bf16", "fp16") if one in facts["precisions"]), "fp32")
            assert fastest((int(major), int(minor)), scaled=True) == best, name


def test_every_choice_can_be_overridden(card: Any):
    card(H100, count=4)
    chosen = choose(dtype="fp32", local_rank=2)
    assert (chosen.dtype, chosen.device.index) == (torch.float32, 2)
    assert choose(dtype="fp16").dtype == torch.float16
    assert choose(device="cpu").device == CPU


@pytest.mark.parametrize(
    ("what", "asked", "sentence"),
    [
        (T4, {"dtype": "bf16"}, "bfloat16 is not supported by a GPU of compute capability 7.5"),
        (H100, {"dtype": "fp16", "scaled": False}, "fp16 needs a gradient scaler"),
        (H100, {"local_rank": 1}, "PyTorch finds 1 GPU: start at most one process per GPU"),
    ],
)
def test_what_cannot_be_is_one_sentence(card: Any, what: Card, asked: dict[str, Any], sentence: str):
    card(what)
    with pytest.raises(SystemExit, match=sentence):
        choose(**asked)


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose().line.startswith("Training on the CPU, since PyTorch finds no GPU (")
    with pytest.raises(SystemExit, match=r"PyTorch finds no GPU: run `\./launch doctor`"):
        choose(device="cuda")


@pytest.mark.parametrize("what", [H100, T4], ids=lambda card: card.name)
def test_a_card_with_memory_of_its_own(card: Any, what: Card):
    fractions = card(what)
    cached = what.reserved - what.allocated  # is ours to use
    assert budget(CUDA) == Budget(what.free + cached, what.total, "cudaMemGetInfo")
    limit(CUDA)
    assert fractions == []


def test_a_fraction_that_was_set_for_this_process(card: Any):
    card(replace(T4, fraction=0.7))
    found = budget(CUDA)
    assert found.free == int(0.7 * T4.total) - T4.allocated and found.how == "the limit of 70% for this process"


@pytest.mark.parametrize(("available", "most"), [(GB10_AVAILABLE, None), (120 * GIB, 0.8)])
def test_unified_memory_is_bounded_by_what_the_kernel_can_give(
    card: Any, files: Any, available: int, most: float | None, monkeypatch: pytest.MonkeyPatch
):
    """And by the fraction of stack.json."""
    fractions = card(GB10)
    files({"proc/meminfo": meminfo(GB10.total, available)})
    monkeypatch.setattr(module, "load", lambda: SimpleNamespace(memory=SimpleNamespace(fraction=0.8)))
    free = available - int(0.05 * GB10.total)
    found = budget(CUDA)
    assert found.how == "MemAvailable" and found.total == GB10.total and abs(found.free - free) < 1 << 20
    limit(CUDA)
    assert fractions == [pytest.approx(most or free / GB10.total, abs=1e-4)]


def test_a_containers_limit_holds_on_unified_memory_too(card: Any, files: Any):
    card(GB10)
    files(
        {
            "proc/meminfo": meminfo(GB10.total, 100 * GIB),
            "sys/fs/cgroup/memory.max": f"{32 * GIB}\n",
            "sys/fs/cgroup/memory.current": f"{8 * GIB}\n",
            "sys/fs/cgroup/memory.stat": f"anon {4 * GIB}\nfile {4 * GIB}\ninactive_file {3 * GIB}\n",
        }
    )
    found = budget(CUDA)
    assert found.how == "the container's limit" and found.free == int(32 * GIB * 0.95) - 5 * GIB


def test_the_cpu_without_a_limit(files: Any):
    files()
    assert budget(CPU) == Budget(int(40 * GIB - 0.05 * 64 * GIB), 64 * GIB, "MemAvailable")


@pytest.mark.parametrize("mounted", ["as on the host", "as in a container"])
def test_the_cpu_under_a_cgroup_of_version_1(files: Any, mounted: str):
    """The path is the host's, and in a container there is only what it leads to (cgroup_namespaces(7))."""
    inside = "docker/c0ffee/" if mounted == "as on the host" else ""
    none = {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"} if inside else {}
    files(
        {
            "proc/self/cgroup": "9:cpu,cpuacct:/docker/c0ffee\n5:memory:/docker/c0ffee\n1:name=systemd:/\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{30 * GIB}\n",
            "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 0\n",
            **none,
            f"sys/fs/cgroup/memory/{inside}memory.limit_in_bytes": f"{4 * GIB}\n",
            f"sys/fs/cgroup/memory/{inside}memory.usage_in_bytes": f"{1 * GIB}\n",
            f"sys/fs/cgroup/memory/{inside}memory.stat": f"cache {GIB}\ntotal_inactive_file {GIB // 2}\n",
        }
    )
    assert budget(CPU) == Budget(int(4 * GIB * 0.95) - GIB // 2, 4 * GIB, "the container's limit")


def test_the_tightest_of_nested_cgroups_counts(files: Any):
    files(
        {
            "proc/self/cgroup": "0::/user.slice/job.scope\n",
            "sys/fs/cgroup/user.slice/memory.max": f"{2 * GIB}\n",
            "sys/fs/cgroup/user.slice/memory.current": "0\n",
            "sys/fs/cgroup/user.slice/memory.stat": "inactive_file 0\n",
            "sys/fs/cgroup/user.slice/job.scope/memory.max": "max\n",
            "sys/fs/cgroup/user.slice/job.scope/memory.current": "0\n",
            "sys/fs/cgroup/user.slice/job.scope/memory.stat": "inactive_file 0\n",
        }
    )
    assert budget(CPU).total == 2 * GIB


FIRST_CALLS = """
import os, sys, torch
if sys.argv[1:]:
    import exactrun.run
x, wrong = torch.linspace(0.01, 0.99, 8192), {}
for name in "acos asin atan cos erf erfc erfinv exp log log10 log2 sin sqrt tan tanh".split() * 8:
    child = os.fork()
    if not child:
        first, second = (getattr(x, name)() for _ in range(2))
        os._exit(int(not torch.equal(first, second)))
    wrong[name] = wrong.get(name, 0) + os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print({name: times for name, times in wrong.items() if times})
"""


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two CPUs")
def test_the_first_call_of_a_function_is_as_exact_as_the_second():
    """Without the import, 3 % of these 120 children compute the first otherwise (2 cores, torch 2.13.0+cpu)."""
    argv = [sys.executable, "-c", FIRST_CALLS, "import"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300)
    assert done.stdout == "{}\n", done.stdout + done.stderr
