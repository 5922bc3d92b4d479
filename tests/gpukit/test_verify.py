"""Verify's judgement on what a container may look like."""

import errno
import os
import signal
from datetime import datetime

import jsonschema
import pytest

from gpukit.findings.checks import natively, run, select
from gpukit.findings.finding import to_json
from gpukit.image.guard import Change
from gpukit.verify import gpu
from gpukit.verify import main as verify
from gpukit.verify.hardware import LANE_GB_S
from gpukit.verify.machine import gigabytes
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
from gpukit.verify.requirements import Conflict, Import, Requirements, Unmet
from gpukit.verify.smi import Card, Smi, parse
from gpukit.verify.software import local_part
from gpukit.verify.torch_process import TorchError
from tests.gpukit.test_smi import RECORDED


def on(device="cuda:0", **answer):
    return Outcome(device, {"device": device, **answer})


GPU_CHECKS = {
    *("gpu", "card", "cap", "kernels", "ptxas", "health", "mode", "xid", "matmul", "convolution", "attention", "amp"),
    *("peers", "memory", "oom", "transfer", "gemm", "clocks"),
}
ON_CPU = {"tensor", "compile", "collective", "training"}  # where there is no GPU, and none is meant to be
NOT_COMPILED = (
    "CppCompileError: C++ compile error\n/tmp/x/main.cpp:4:10: fatal error: Python.h: No such file or directory"
)


def judged(probes, stack):
    return {finding.id: finding for finding in run(verify.CHECKS, probes, stack)}


def with_status(findings, *statuses):
    """The ids of findings with one of these statuses; what did not answer in time is UNKNOWN, and found like a FAIL."""
    return {id for id, finding in findings.items() if finding.status in statuses or not finding.completed}


def test_nothing_is_wrong_with_a_healthy_container(container, make_stack, findings_schema):
    findings = judged(container(), make_stack())
    assert with_status(findings, "FAIL", "WARN") == set()
    assert with_status(findings, "SKIP") == {"cap", "read-only", "xid", "peers", "tracking"}
    jsonschema.validate(to_json("verify", "demo", list(findings.values())), findings_schema)


def test_what_the_image_is_built_from(container, make_stack):
    """Without a digest on either side, or with an image of one's own, it is unknown, which is no fault."""
    other = f"mirror.example/python:3@sha256:{'b' * 64}"
    for probes, stack in (
        (container(base_image=""), make_stack()),
        (container(), make_stack(digest=None)),
        (container(base_image=other), make_stack()),
    ):
        assert judged(probes, stack)["base-image"].status == "SKIP"


NO_GPU = {
    "devices": Devices(),
    "gpu_nodes": [],
    "tensors": (on("cpu", equal=True),),
    "compiled": on("cpu", equal=True, compiled=True, seconds=9.0),
}


def test_the_container_without_a_gpu(container, make_stack):
    """The project's cpu configuration: any build of that torch, and GPU checks are skipped, never passed."""
    probes = container(environment={"GPUKIT_DEVICE": "cpu"}, torch=Torch("2.14.0+cpu"), **NO_GPU)
    findings = judged(probes, make_stack())
    assert with_status(findings, "FAIL", "WARN") == set()
    assert with_status(findings, "SKIP") == {*GPU_CHECKS, "cuda", "read-only", "tracking"}
    assert "cpu" in findings["tensor"].seen
    assert "cpu" in findings["compile"].seen

    other = container(environment={"GPUKIT_DEVICE": "cpu"}, torch=Torch("2.9.1+cpu"), python="3.13.1", **NO_GPU)
    findings = judged(other, make_stack())
    assert with_status(findings, "FAIL") == {"torch"}
    assert with_status(findings, "WARN") == {"python"}


def test_a_project_without_a_gpu(container, make_stack, cpu_only):
    findings = judged(container(torch=Torch("2.14.1+cpu"), **NO_GPU), make_stack(**cpu_only))
    assert with_status(findings, "FAIL", "WARN") == set()
    assert with_status(findings, "SKIP") == {*GPU_CHECKS, "read-only", "tracking"}
    findings = judged(container(torch=Torch("2.14.1+cu130", "13.0"), **NO_GPU), make_stack(**cpu_only))
    assert with_status(findings, "FAIL") == {"torch"}
    assert with_status(findings, "WARN") == {"cuda"}


@pytest.mark.parametrize("nodes", [[], ["/dev/nvidia0"]])
def test_a_build_for_cpus_fails_as_torch_cuda_and_python_and_nothing_else(container, make_stack, nodes):
    """What a stand-in for NVIDIA's image is, with a GPU that answers or without one."""
    probes = container(
        torch=Torch("2.13.0a0+standin.nv26.06"), python="3.11.2", protected=None, **{**NO_GPU, "gpu_nodes": nodes}
    )
    stack = make_stack(base="ngc", torch="2.13.0a0+8145d630e8.nv26.06", cuda="13.3")
    findings = judged(probes, stack)
    assert with_status(findings, "FAIL", "WARN") == {"torch", "cuda", "python"}
    assert with_status(findings, "SKIP") == {*GPU_CHECKS, *ON_CPU, "read-only", "protected", "tracking"}
    assert findings["gpu"].status == findings["compile"].status == "SKIP"

    stack = make_stack(base="ngc", torch="2.13.0a0+standin.nv26.06", cuda=None, python="3.11")
    findings = judged(probes, stack)
    assert with_status(findings, "FAIL", "WARN") == set()
    assert with_status(findings, "PASS") >= {"torch", "cuda", "python", *ON_CPU}


@pytest.mark.parametrize(
    ("seen", "cuda", "expected", "status"),
    [
        ("2.14.1+cu130", "13.0", "2.14.1+cu130", "PASS"),
        ("2.14.3+cu130", "13.0", "2.14.1+cu130", "PASS"),  # a newer patch release
        ("2.15.0+cu130", "13.0", "2.14.1+cu130", "FAIL"),
        ("2.14.1+cu132", "13.2", "2.14.1+cu130", "FAIL"),
        ("2.14.1+cpu", None, "2.14.1+cu130", "FAIL"),
        ("2.14.1", None, "2.14.1+cu130", "FAIL"),
        ("2.10.0a0+b558c986e8.nv25.11", "13.0", "2.10.0a0+b558c986e8.nv25.11", "PASS"),
        ("2.10.0", "13.0", "2.10.0a0+b558c986e8.nv25.11", "FAIL"),  # what pip puts in its place
        ("2.9.0a0+50eac811a6.nv25.09", "13.0", "2.10.0a0+b558c986e8.nv25.11", "FAIL"),
    ],
)
def test_which_builds_of_torch_are_the_base_s(container, make_stack, seen, cuda, expected, status):
    assert judged(container(torch=Torch(seen, cuda)), make_stack(torch=expected))["torch"].status == status


@pytest.mark.parametrize(
    ("versions", "status"),
    [
        (Versions("0.2.0", "0.2.0"), "PASS"),
        (Versions("0.2.0+h0123456789ab", "0.2.0"), "FAIL"),
        (Versions("0.2.0", None, "vendor/ has no gpukit wheel."), "SKIP"),
        (Versions(None, "0.2.0"), "SKIP"),
    ],
)
def test_gpukit_in_the_image_against_vendor(container, make_stack, versions, status):
    findings = judged(container(gpukit=versions), make_stack())
    assert next(iter(findings)) == "gpukit"
    assert findings["gpukit"].status == status
    assert with_status(findings, "FAIL", "WARN") == ({"gpukit"} if status == "FAIL" else set())


@pytest.mark.parametrize(
    ("torch", "failed"),
    [
        (Torch("2.14.1", "13.0", index="package index"), set()),
        (Torch("2.14.1+cu130", "13.0", index="package index"), set()),
        (Torch("2.14.1", "12.8", index="package index"), {"cuda"}),
        (Torch("2.14.1+cpu", None, index="package index"), {"torch", "cuda"}),
        (Torch("2.15.0", "13.0", index="package index"), {"torch"}),
    ],
)
def test_torch_from_the_package_index(container, make_stack, torch, failed):
    """Any build for the expected CUDA is accepted, and the findings show where it is from."""
    findings = judged(container(torch=torch), make_stack())
    assert with_status(findings, "FAIL", "WARN") == failed
    assert all("package index" in findings[id].seen for id in ("torch", "cuda"))


def test_torch_from_the_package_index_without_a_gpu(container, make_stack, cpu_only):
    """The package index's only build has CUDA."""
    torch = Torch("2.14.1", "13.0", index="package index")
    for probes, stack in (
        (container(environment={"GPUKIT_DEVICE": "cpu"}, torch=torch, **NO_GPU), make_stack()),
        (container(torch=torch, **NO_GPU), make_stack(**cpu_only)),
    ):
        findings = judged(probes, stack)
        assert with_status(findings, "FAIL", "WARN") == set()
        assert findings["torch"].status == "PASS"
        assert "package index" in findings["torch"].seen
    torch = Torch("2.9.1", "13.0", index="package index")
    assert with_status(judged(container(torch=torch, **NO_GPU), make_stack(**cpu_only)), "FAIL") == {"torch"}


def test_remedies_without_a_container(container, make_stack):
    """The environment of --native is not an image, and launch itself updates it."""
    checks = [natively(each, verify.native_stack) for each in verify.CHECKS]
    findings = run(checks, container(gpukit=Versions("1", "2")), make_stack())
    gpukit = next(finding for finding in findings if finding.id == "gpukit")
    assert (gpukit.status, gpukit.cause_id) == ("FAIL", "image-older-than-wheel")
    assert "`./launch --native build`" in gpukit.remedy


def test_local_parts():
    assert [local_part(version) for version in ("2.14.1+cu130", "2.14.1", "2.14.1+cpu")] == ["cu130", "cpu", "cpu"]
    assert local_part("2.13.0a0+8145d630e8.nv26.06") == local_part("2.13.0a0+other.nv26.6") == "nv26.06"


def lacks(kind="ImportError", text="", log=""):
    return {"torch": Torch(error=TorchError(kind, text, log))}


def fails(kind, text="", log="", **more):
    return {"compiled": Outcome("cuda:0", error=TorchError(kind, text, log)), **more}


def devices(message="", found=(), arch_list=("sm_75", "sm_120")):
    return {"devices": Devices(found, arch_list, message)}


SHARED = Device("RTX 5090", "12.0", shared=True)


def place(path="/workspace", there=True, mounted=True, error=None, **more):
    return (Place(path, there, mounted, problem=os.strerror(error) if error else "", error=error, **more),)


# What is seen, the one check that reports it, its cause, and what the cause or the remedy is filled in with.
FAULTS = {
    "an image older than vendor/": (
        {"gpukit": Versions("0.2.0", "0.3.0+h0123456789ab")},
        "gpukit",
        "image-older-than-wheel",
    ),
    "a moved base": (
        {"base_image": f"python:3.12-slim-trixie@sha256:{'b' * 64}"},
        "base-image",
        "base-moved",
    ),
    "another Python": ({"python": "3.13.1"}, "python", "python-other-version"),
    "a virtual environment": ({"prefixes": ("/workspace/.venv", "/usr")}, "venv", "venv-active"),
    "no torch": (lacks("ModuleNotFoundError", "No module named 'torch'"), "import", "torch-not-installed"),
    "a library gone": (lacks("ImportError", "libcudart.so.13: cannot open shared"), "import", "torch-library-missing"),
    "a crash": (lacks("Death", "was ended by SIGSEGV"), "import", "torch-import-crashes", "SIGSEGV"),
    "a hang": (lacks("Timeout", "no answer in 120 s"), "import", "torch-import-hangs"),
    "a broken torch": (lacks("SyntaxError", "invalid"), "import", "torch-broken"),
    "replaced torch": ({"torch": Torch("2.15.0+cu130", "13.0")}, "torch", "torch-other-version"),
    "another CUDA": ({"torch": Torch("2.14.1+cu130", "12.8")}, "cuda", "torch-other-cuda"),
    "a package moved": (
        {"protected_changes": [Change("torch", "2.14.1", "2.15.0")]},
        "protected",
        "protected-changed",
    ),
    "no GPU given": ({**devices(), "gpu_nodes": []}, "gpu", "gpu-not-given"),
    "hidden": ({**devices(), "environment": {"CUDA_VISIBLE_DEVICES": ""}}, "gpu", "gpu-hidden"),
    "no libcuda": ({**devices(), "cuda_library": False}, "gpu", "driver-library-not-given"),
    "802": (devices("Error 802: system not yet initialized"), "gpu", "fabric-manager"),
    "803": (
        devices("Error 803: system has unsupported display driver / cuda driver combination"),
        "gpu",
        "driver-updated",
    ),
    "804": (
        devices("Error 804: forward compatibility was attempted on non supported HW"),
        "gpu",
        "cuda-compat-geforce",
    ),
    "old driver": (devices("The NVIDIA driver on your system is too old"), "gpu", "driver-too-old"),
    "lost": (
        devices("CUDA unknown error - this may be due to an incorrectly set up environment"),
        "gpu",
        "container-lost-gpu",
    ),
    "no device": (devices("No CUDA-capable device is detected"), "gpu", "gpu-not-started"),
    "new words": (devices("Error 31: something"), "gpu", "cuda-does-not-start"),
    "another card": (devices(found=(Device("RTX 2080", "7.5"),)), "card", "card-not-a-target"),
    "shared memory without a cap": (
        {**devices(found=(SHARED,)), "torch": Torch("2.14.1+cu130", "13.0")},
        "cap",
        "memory-cap-missing",
        "per_process_memory_fraction:0.8",
    ),
    "a cap that another variable overrides": (
        {**devices(found=(SHARED,)), "environment": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}},
        "cap",
        "memory-cap-overridden",
        "unset PYTORCH_CUDA_ALLOC_CONF",
    ),
    "PTX only": (
        devices(found=(Device("RTX 5090", "12.0"),), arch_list=("sm_90", "compute_90")),
        "kernels",
        "only-ptx",
    ),
    "no kernels": (
        devices(found=(Device("RTX 5090", "12.0"),), arch_list=("sm_80", "sm_90")),
        "kernels",
        "no-kernel",
    ),
    "wrong numbers": ({"tensors": (on("cuda:0", equal=False, compiled=True),)}, "tensor", "gpu-results-wrong"),
    "no numbers": (
        {"tensors": (Outcome("cuda:0", error=TorchError("AcceleratorError", "?")),)},
        "tensor",
        "gpu-computing-fails",
    ),
    "no compiler": (
        fails("InvalidCxxCompiler", "No working C++ compiler", compiler=None),
        "compile",
        "no-cpp-compiler",
    ),
    "no headers": (fails("CppCompileError", NOT_COMPILED), "compile", "no-python-headers"),
    "no headers, in the log": (
        fails("CalledProcessError", "gcc failed", "main.c:5:10: fatal error: Python.h: No such file"),
        "compile",
        "no-python-headers",
    ),
    "old ptxas": (fails("PTXASError", "ptxas fatal: Value 'sm_121a' is not defined"), "compile", "ptxas-too-old"),
    "compiler hangs": (fails("Timeout", "no answer in 180 s"), "compile", "compiler-hangs"),
    "unknown to compile": (fails("BackendCompilerFailed", "?"), "compile", "torch-compile-fails"),
    "switched off": (
        {"compiled": on("cuda:0", equal=True, compiled=False)},
        "compile",
        "compile-disabled",
    ),
    "wrong when compiled": (
        {"compiled": on("cuda:0", equal=False, compiled=True)},
        "compile",
        "compiled-results-wrong",
    ),
    "root": ({"user": User(0, "root", "/workspace", 1000)}, "user", "runs-as-root"),
    "somebody else": ({"user": User(1001, "x", "/workspace", 1000)}, "user", "user-other-uid"),
    "nobody": ({"user": User(1000, None, "/workspace", 1000)}, "user", "no-such-user"),
    "not mounted": ({"mounts": place(there=False)}, "mounts", "folder-not-mounted"),
    "not writable": ({"mounts": place(error=errno.EACCES)}, "mounts", "mount-source-not-yours"),
    "lost with it": ({"mounts": place(mounted=False)}, "mounts", "folder-not-kept"),
    "not readable": ({"read_only": place("/data", error=errno.EACCES)}, "read-only", "mount-source-not-readable"),
    "data not mounted": ({"read_only": place("/data", mounted=False)}, "read-only", "data-not-mounted"),
    "data writable": ({"read_only": place("/data")}, "read-only", "data-writable"),
    "root's cache": ({"caches": place("/home/dev/.cache", error=errno.EACCES)}, "caches", "cache-owned-by-other"),
    "small shm": ({"shm_gb": (0.0625, 0.05)}, "shm", "shared-memory-small"),
}


def broken(kind, text="", log="", device="cuda:0"):
    return Outcome(device, error=TorchError(kind, text, log))


def products(**errors):
    known = {"fp32": 1e-6, "fp16": 1e-4, "tf32": 1e-4, "bf16": 1e-3, "fp8": 1e-3}
    results = [{"name": name, "error": error, "tolerance": 2e-3} for name, error in {**known, **errors}.items()]
    return {"matmuls": on(results=results)}


def transfer(**changes):
    card = {"gen": 4, "width": 16, "slowed": [], "mig": False}
    return {"transfers": (on(**{"pinned": True, "to": 25.0, "from": 26.0, "card": card, **changes}),)}


def gemm(tflops=92.0, name="NVIDIA GeForce RTX 5070 Ti", others=False, **card):
    card = {"gen": 4, "width": 16, "slowed": [], "mig": False, **card}
    found = {"devices": Devices((Device(name, "12.0"),), ("sm_120",))}
    return {"gemms": (on(kind="bf16", size=8192, tflops=tflops, others=others, card=card),), **found}


TWO = {
    "devices": Devices((Device("NVIDIA GeForce RTX 5090", "12.0"),) * 2, ("sm_120",)),
    "tensors": (on("cuda:0", equal=True), on("cuda:1", equal=True)),
}


def gemms(*speeds):
    card = {"gen": 4, "width": 16, "slowed": [], "mig": False}
    output = {"kind": "bf16", "size": 8192, "others": False, "card": card}
    return {**TWO, "gemms": tuple(on(f"cuda:{index}", tflops=speed, **output) for index, speed in enumerate(speeds))}


def ranks(**changes):
    healthy = {"kind": "nccl", "ranks": 2, "silent": [], "wrong": [], "message": "", "ended": [0, 0], "seconds": 3.0}
    return {"collective": on("", **{**healthy, **changes})}


def card(**changes):
    return {"smi": Smi("580.95.05", (Card("NVIDIA H100 80GB HBM3", "GPU-1", **changes),))}


def losses(values=None, again=None, start=5):
    values = values or [1.4 - 0.02 * step for step in range(10)]
    whole = on(start=0, losses=values, again=values)
    return {"training": (whole, on(start=start, losses=again or values[5:], again=[]))}


def unmet(requirement, package, seen, **more):
    found = Unmet(requirement, "pyproject.toml", package, seen, **more)
    return {"requirements": Requirements(12, (found,), frozenset({"torch"}))}


def conflict(package, wanted, seen):
    return {"conflicts": (Conflict(package, wanted, seen, f"The package `{package}` ..."),)}


def imported(kind, text, **more):
    error = TorchError(kind, text, f"{kind}: {text}")
    return {"imported": [Imported("torch"), Imported("datasets", "import datasets", "pyproject.toml", error, **more)]}


LIMITS = {"memlock": -1, "stack": 64 << 20, "nofile": 1048576}
# Texts as recorded; beside each where it comes from.
BUS_ERROR = (  # https://github.com/pytorch/pytorch/issues/108861
    "DataLoader worker (pid 11011) is killed by signal: Bus error. It is possible that dataloader's workers are out of "
    "shared memory. Please try to raise your shared memory limit."
)
KILLED = "DataLoader worker (pid 4021) is killed by signal: Killed. "  # torch/csrc/DataLoader.cpp
ANCDATA = "received 0 items of ancdata"  # multiprocessing/reduction.py, recvfds
SHM_SEGMENT = (  # https://github.com/NVIDIA/nccl-tests/issues/166
    "ubuntu:9621:9691 [6] misc/shmutils.cc:112 NCCL WARN Error while creating shared memory segment "
    "/dev/shm/nccl-fjwOOB (size 5967872)"
)
SUBLIBRARY = "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH"  # https://github.com/pytorch/pytorch/issues/185512
CUBLAS = (  # https://github.com/QwenLM/Qwen/issues/120
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"
)
PTXAS = (  # https://github.com/triton-inference-server/server/issues/8632
    "No valid triton configs. PTXASError: PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\n"
    "ptxas-blackwell fatal   : Value 'sm_110a' is not defined for option 'gpu-name'"
)
OOM = "CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 15.47 GiB"  # CUDACachingAllocator

FAULTS.update(
    {
        # The machine as the container sees it
        "stale .venv": ({"workspace_venv": "/workspace/.venv"}, "venv", "workspace-venv"),
        "somebody maps": (
            {"user": User(1000, "dev", "/workspace", 1000, 65534)},
            "user",
            "files-mapped",
        ),
        "read-only mount": ({"mounts": place(error=errno.EROFS)}, "mounts", "read-only"),
        "full mount": ({"mounts": place(error=errno.ENOSPC)}, "mounts", "disk-full"),
        "gone mount": ({"mounts": place(error=errno.ENOTCONN)}, "mounts", "network-drive"),
        "root-owned cache": (
            {"caches": place("/home/dev/.cache", error=errno.EACCES, owner=0)},
            "caches",
            "cache-owned-by-root",
        ),
        "read-only cache": (
            {"caches": place("/hub", error=errno.EROFS), "environment": {"HF_HOME": "/hub"}},
            "caches",
            "cache-read-only",
            "HF_HOME",
        ),
        "full cache": ({"caches": place("/c", error=errno.ENOSPC)}, "caches", "disk-full"),
        "full tmpfs": (
            {"temporary": place("/tmp", error=errno.ENOSPC)},
            "room",
            "disk-full",
        ),
        "no temporary folder": (
            {"temporary": place("/tmp", error=errno.ENOENT)},
            "room",
            "no-temporary-folder",
        ),
        "tight tmpfs": ({"temporary": place("/tmp", free_gb=0.2)}, "room", "temporary-space-low"),
        "full shm": ({"shm_gb": (31.0, 0.001)}, "shm", "shared-memory-leftovers"),
        "low memlock": ({"limits": {**LIMITS, "memlock": 8 << 20}}, "limits", "memlock-limit"),
        "few files": ({"limits": {**LIMITS, "nofile": 256}}, "limits", "open-files-limit-low"),
        "a share of time": ({"processors": Processors(64, 64, 2.0)}, "cpus", "cpu-quota-small", "OMP_NUM_THREADS=2"),
        "another kernel": (
            {"kernel": Kernel("python3", "/opt/python", "/opt")},
            "jupyter",
            "jupyter-other-python",
            "kernelspec",
        ),
        "no kernel": (
            {"kernel": Kernel("python3", message="cannot import ipykernel")},
            "jupyter",
            "jupyter-kernel",
        ),
        # Processes
        "bus error": ({"loader": broken("RuntimeError", BUS_ERROR)}, "loader", "shared-memory"),
        "worker killed": ({"loader": broken("RuntimeError", KILLED)}, "loader", "worker-killed"),
        "worker crashed": (
            {"loader": broken("RuntimeError", "DataLoader worker (pid 7) is killed by signal: Segmentation fault. ")},
            "loader",
            "library-crashed",
        ),
        "worker gone": (  # https://github.com/michuanhaohao/reid-strong-baseline/issues/29
            {"loader": broken("RuntimeError", "DataLoader worker (pid(s) 15927) exited unexpectedly")},
            "loader",
            "worker-gone",
        ),
        "ancdata": ({"loader": broken("RuntimeError", ANCDATA)}, "loader", "open-files"),
        "pids": (
            {"loader": broken("BlockingIOError", "[Errno 11] Resource temporarily unavailable")},
            "loader",
            "process-limit",
        ),
        "loader hangs": ({"loader": broken("Timeout", "no answer in 90 s")}, "loader", "loader-timeout"),
        "loader, unknown": ({"loader": broken("RuntimeError", "?")}, "loader", "loader-fails"),
        "other numbers": ({"loader": on("", workers=2, equal=False, seconds=1.0)}, "loader", "loader-results-wrong"),
        "NCCL without shm": (ranks(message=SHM_SEGMENT), "collective", "shared-memory"),
        "NCCL hangs": (ranks(silent=[1]), "collective", "ranks-hang"),
        "NCCL adds wrongly": (ranks(wrong=[0]), "collective", "collective-results-wrong"),
        "NCCL finds no network": (
            ranks(message="Bootstrap : no socket interface found"),
            "collective",
            "ranks-interface",
        ),
        "a rank ends": (ranks(ended=[0, -11]), "collective", "ranks-fail"),
        # The GPU
        "an old assembler": (
            {"assembler": ("/triton/ptxas", ("sm_90a", "sm_100a"))},
            "ptxas",
            "ptxas-too-old",
        ),
        "ptxas in the log": (fails("NoTritonConfigsError", PTXAS), "compile", "ptxas-too-old"),
        "memory taken": (
            {"tensors": (Outcome("cuda:0", error=TorchError("OutOfMemoryError", OOM)),)},
            "tensor",
            "gpu-memory-taken",
        ),
        "cuBLAS": (
            {"tensors": (Outcome("cuda:0", error=TorchError("RuntimeError", CUBLAS)),)},
            "tensor",
            "gpu-memory-or-libraries",
        ),
        "exclusive": (
            devices("CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
            "gpu",
            "gpu-exclusive",
        ),
        "wrong in fp16": (products(fp16=0.3), "matmul", "matmul-inexact"),
        "not a number": (products(fp8=float("nan")), "matmul", "matmul-inexact"),
        "forced TF32": (
            {**products(fp32=2.5e-3), "environment": {"NVIDIA_TF32_OVERRIDE": "1"}},
            "matmul",
            "tf32-forced",
        ),
        "cuDNN mismatch": (
            {"convolution": broken("RuntimeError", SUBLIBRARY)},
            "convolution",
            "two-cudnn",
        ),
        "no cuDNN": (
            {"convolution": on(error=0.0, tolerance=1e-4, cudnn=None, enabled=True)},
            "convolution",
            "cudnn-not-found",
        ),
        "wrong convolution": (
            {"convolution": on(error=0.5, tolerance=1e-4, cudnn=91300, enabled=True)},
            "convolution",
            "convolution-results-wrong",
        ),
        "wrong attention": (
            {"attention": on(kind="bf16", error=1e-4, tolerance=1e-2, ways={"flash": 0.4})},
            "attention",
            "attention-results-wrong",
        ),
        "no learning": ({"amp": on(first=2.0, last=float("nan"), scale=1.0)}, "amp", "half-precision-fails"),
        "no checkpoint": ({"training": (broken("OSError", "[Errno 5] ?"),)}, "training", "checkpoint-fails"),
        "another resume": (losses(again=[9.0] * 5), "training", "resumed-run-differs"),
        "memory errs": (
            {"memory_patterns": (on(bytes=1, wrong=[3], free=1, shared=False),)},
            "memory",
            "gpu-memory-wrong",
        ),
        "too much granted": ({"out_of_memory": on(caught="", works=True, kept=0)}, "oom", "memory-limit-ineffective"),
        "memory kept": ({"out_of_memory": on(caught="x", works=True, kept=1 << 20)}, "oom", "memory-not-released"),
        "not pinned": (transfer(pinned=False), "transfer", "os-refused-cuda"),
        "a slow link": (transfer(to=3.0), "transfer", "slow-copies"),
        "one slow card of two": (gemms(190.0, 120.0), "gemm", "uneven-gpus"),
        "damaged between GPUs": (
            {**TWO, "peers": on("", pairs=2, direct=2, wrong=[[0, 1]])},
            "peers",
            "peer-copies-wrong",
        ),
        "exclusive mode": (card(mode="Exclusive_Process"), "mode", "gpu-mode-exclusive"),
        "prohibited mode": (
            {**devices(), **card(mode="Prohibited")},
            "gpu",
            "gpu-mode-prohibited",
        ),
        "closed devices": (
            {**devices("No CUDA GPUs are available"), "inaccessible_nodes": ["/dev/nvidiactl"]},
            "gpu",
            "device-denied",
            "ls -l /dev/nvidiactl",
        ),
        "rows that cannot be repaired": (card(uncorrected=0, failure=True), "health", "gpu-memory-no-spare-rows"),
        # The machine
        "little memory": ({"ram": Ram(64.0, 1.1, 8.0, 0.0)}, "ram", "memory-low"),
        "the other socket": (
            {"processors": Processors(64, 32, None, "", frozenset(range(32, 64)), ("0-31",))},
            "cpus",
            "cpus-far-from-gpu",
            "--cpuset-cpus=0-31",
        ),
        "a clock behind": (
            {"clock": (datetime(2024, 1, 1), datetime(2026, 11, 20))},
            "clock",
            "clock-wrong",
        ),
        "a full workspace": ({"mounts": place(free_gb=0.3)}, "mounts", "checkpoint-space-low"),
        "a package since the image was built": (
            unmet("einops>=0.8", "einops", None),
            "packages",
            "requirement-not-installed",
            "einops",
        ),
        "another version of a package": (
            unmet("transformers>=4.57.1,<6", "transformers", "4.56.2"),
            "packages",
            "requirement-out-of-range",
            "transformers",
        ),
        "an import of nothing": (
            {"unknown_imports": [Import("import einops", "einops", "src/demo/model.py:3")]},
            "packages",
            "import-not-installed",
            "src/demo/model.py:3",
            "./launch add einops",
        ),
        "torchvision of another torch": (
            conflict("torchvision", "torch==2.15.0", "2.14.1"),
            "conflicts",
            "torch-packages-mixed",
            "torchvision",
            "torch==2.15.0",
        ),
        "a conflict": (
            conflict("transformers", "tokenizers<0.23", "0.23.1"),
            "conflicts",
            "packages-conflict",
            "transformers",
            "tokenizers<0.23",
        ),
        "a conflict of another package": (
            conflict("gradio", "pillow<12", None),
            "conflicts",
            "packages-conflict-beside",
            "./launch add gradio",
        ),
        "half a package": (conflict("gradio", "", None), "conflicts", "package-damaged", "gradio"),
        "a broken import": (
            imported("ModuleNotFoundError", "No module named 'pyarrow.lib'"),
            "imports",
            "package-import-broken",
            "datasets",
        ),
        "an import that crashes": (
            imported("Death", "was ended by SIGSEGV"),
            "imports",
            "package-import-crashes",
            "datasets",
        ),
        "an import that does not compute": (
            imported("RuntimeError", "?", called=True),
            "imports",
            "package-broken-on-gpu",
            "datasets",
        ),
        "a tracker that breaks": (
            {"trackers": (broken("ImportError", "cannot import name 'x' from 'wandb'", device="wandb"),)},
            "tracking",
            "tracker-fails",
            "Weights & Biases",
        ),
        "a tracker that writes nothing": (
            {"trackers": (on("mlflow", files=0),)},
            "tracking",
            "tracker-writes-nothing",
            "MLflow",
        ),
        "never the same": (
            {
                "training": (
                    on(start=0, losses=[1.4] * 10, again=[1.4] * 9 + [1.5]),
                    on(start=5, losses=[1.4] * 5, again=[]),
                )
            },
            "training",
            "not-deterministic",
        ),
        "a slow card": (gemm(60, "NVIDIA GeForce RTX 4090"), "gemm", "slow-gpu"),
        "a hot card": (gemm(60, slowed=["hw_thermal_slowdown", "hw_slowdown"]), "clocks", "gpu-heat"),
        "a braked card": (gemm(60, slowed=["hw_power_brake_slowdown"]), "clocks", "gpu-power-brake"),
        "uncorrected errors": (card(uncorrected=2), "health", "gpu-memory-fault"),
        "no spare row": (card(uncorrected=1, failure=True), "health", "gpu-memory-no-spare-rows"),
        "a pending row": (card(uncorrected=0, pending=True), "health", "gpu-memory-rows-pending"),
        "recovery": (card(recovery="Reset"), "health", "driver-requests-recovery", "Reset"),
        "Xid 79": ({"xids": (("0000:01:00", 79),)}, "xid", "gpu-reported", gpu.XIDS[79]),
    }
)


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_the_only_failure(container, make_stack, findings_schema, name):
    seen, id, cause, *filled_in = FAULTS[name]
    findings = judged(container(**seen), make_stack())
    assert with_status(findings, "FAIL", "WARN") == {id}
    assert all(finding.completed for other, finding in findings.items() if other != id)
    assert reports(findings[id], cause)
    assert all(text in findings[id].cause + findings[id].remedy for text in filled_in)
    jsonschema.validate(to_json("verify", "demo", list(findings.values())), findings_schema)


def older_on_shared_memory(make_stack):
    """torch before 2.10 has no setting for the cap; its pre-releases may have none."""
    torch = "2.10.0a0+b558c986e8.nv25.11"
    memory = {"ipc": "host", "shm_size": None, "fraction": 0.8, "allocator_cap": False}
    return {**devices(found=(SHARED,)), "torch": Torch(torch, "13.0")}, make_stack(torch=torch, memory=memory)


def test_a_cap_that_this_torch_cannot_have(container, make_stack):
    seen, stack = older_on_shared_memory(make_stack)
    findings = judged(container(**seen), stack)
    assert with_status(findings, "FAIL", "WARN") == {"cap"} and reports(findings["cap"], "memory-cap-not-possible")
    capped = devices(found=(Device("RTX 5090", "12.0", True, 0.8), Device("RTX 5090", "12.0")))
    assert judged(container(**capped), make_stack())["cap"].status == "PASS"


def test_requirements_of_tools_are_warnings(container, make_stack):
    """Training works without them."""
    elsewhere = {"unknown_imports": [Import("import einops", "einops", "src/other/tool.py:1")]}
    for seen in (unmet("ruff>=0.12", "ruff", "0.1", tool=True), elsewhere):
        assert with_status(judged(container(**seen), make_stack()), "WARN") == {"packages"}


def test_packages_that_need_a_gpu_are_left_out_without_one(container, make_stack):
    probes = container(imported=[Imported("torch"), Imported("unsloth", skipped=True)])
    finding = judged(probes, make_stack())["imports"]
    assert finding.status == "PASS" and "unsloth" in finding.seen


def test_the_error_of_an_import_that_explain_knows(container, make_stack):
    """The package nearest to the error is named, and the cause of its text."""
    text = "libctranslate2.so.4: cannot enable executable stack as shared object requires: Invalid argument"
    near = Imported("cv2", "import cv2", "src/demo/data.py:1", TorchError("ImportError", text, f"ImportError: {text}"))
    far = Imported("timm", "import timm", "", TorchError("ImportError", text, f"{'x' * 99}\nImportError: {text}"))
    finding = judged(container(imported=[far, near]), make_stack())["imports"]
    assert (finding.cause_id, finding.expected) == ("executable-stack", "src/demo/data.py:1")
    assert "timm" in finding.seen


def test_root_is_right_where_the_workspace_is_root_s(container, make_stack):
    probes = container(user=User(0, "root", "/workspace", 0))
    assert judged(probes, make_stack())["user"].status == "PASS"


def test_every_device_computes(container, make_stack):
    two = (on("cuda:0", equal=True), on("cuda:1", equal=False, compiled=True))
    tensor = judged(container(tensors=two), make_stack())["tensor"]
    assert (tensor.status, tensor.seen) == ("FAIL", "on cuda:1: a wrong matrix product")


@pytest.mark.parametrize(
    ("promised", "there", "status"),
    [("16gb", 16.0, "PASS"), ("16gb", 0.0625, "WARN"), ("2gb", 2.0, "PASS"), (None, 1.0, "PASS"), (None, None, "SKIP")],
)
def test_shared_memory_against_the_policy(container, make_stack, promised, there, status):
    stack = make_stack(memory={"ipc": "private", "shm_size": promised, "fraction": None})
    assert judged(container(shm_gb=(there, there)), stack)["shm"].status == status


def test_sizes():
    assert [gigabytes(size) for size in ("16gb", "512m", "1g", "2048k")] == [16, 0.5, 1, 2048 / 2**20]


def test_each_cause_that_is_found_is_one_that_the_check_declares(container, make_stack):
    """So the page and `explain` name all that a check can say."""
    declared = {each.id: each.causes for each in verify.CHECKS}
    for seen, id, *_ in FAULTS.values():
        finding = judged(container(**seen), make_stack())[id]
        assert any(reports(finding, cause) for cause in declared[id]), finding


def reports(finding, id):
    return finding.cause_id == id and (finding.status in ("WARN", "FAIL") or not finding.completed)


# More errors of torch, compilers and NCCL, in their own words -> the cause.
COMPUTING = {
    "no kernel image is available for execution on the device": "no-kernel",
    "CUDA error: CUDA-capable device(s) is/are busy or unavailable": "gpu-exclusive",
    "CUDA error: uncorrectable ECC error encountered": "gpu-memory-fault",
    "CUDA error: unspecified launch failure": "kernel-crashed",
    "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.": "gpu-lost",
    "CUDA error: an illegal memory access was encountered": "kernel-crashed",
    "CUDA error: out of memory": "gpu-memory-taken",
    "CUDNN_STATUS_NOT_INITIALIZED": "gpu-memory-or-libraries",
    "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH": "two-cudnn",
    "something new": "gpu-computing-fails",
}
COMPILING = {  # https://github.com/pytorch/pytorch/issues: what torch.compile raised, by its last line
    "RuntimeError: Failed to find C compiler. Please specify via CC environment variable": "no-compiler",
    "/usr/bin/ld: cannot find -lcuda: No such file or directory": "libcuda-not-listed",
    "torch._inductor.exc.TritonMissing: Cannot find a working triton installation": "triton-mismatch",
    "KeyError: 'getpwuid(): uid not found: 4321'": "no-such-user",
    "OSError: [Errno 28] No space left on device: '/tmp/torchinductor_dev/x.cpp'": "disk-full",
    "ImportError: /tmp/x.so: failed to map segment from shared object": "temporary-folder-noexec",
}
TOGETHER = {
    "RuntimeError: CUDA failure 'peer access is not supported between these two devices'": "peer-access",
    "Call to posix_fallocate failed : No space left on device": "shared-memory",
    "Watchdog caught collective operation timeout": "ranks-hang",
}
SINGLE = {
    "matmul": lambda error: {"matmuls": Outcome("cuda:0", error=error)},
    "convolution": lambda error: {"convolution": Outcome("cuda:0", error=error)},
    "attention": lambda error: {"attention": Outcome("cuda:0", error=error)},
    "amp": lambda error: {"amp": Outcome("cuda:0", error=error)},
    "memory": lambda error: {"memory_patterns": (Outcome("cuda:0", error=error),)},
    "transfer": lambda error: {"transfers": (Outcome("cuda:0", error=error),)},
    "gemm": lambda error: {"gemms": (Outcome("cuda:0", error=error),)},
    "oom": lambda error: {"out_of_memory": Outcome("cuda:0", error=error)},
    "peers": lambda error: {**TWO, "peers": Outcome("", error=error)},
    "tensor": lambda error: {"tensors": (Outcome("cuda:0", error=error),)},
}
ENDS = (
    (TorchError("Death", "was ended by SIGKILL", status=-signal.SIGKILL), "host-memory-full"),
    (TorchError("Timeout", "no answer in 60 s"), "gpu-hangs"),
)
ERRORS = [
    *((id, see(TorchError("", text)), cause) for text, cause in COMPUTING.items() for id, see in SINGLE.items()),
    *((id, see(error), cause) for error, cause in ENDS for id, see in SINGLE.items()),
    *(("compile", fails("BackendCompilerFailed", text), cause) for text, cause in COMPILING.items()),
    *(("collective", ranks(message=text), cause) for text, cause in TOGETHER.items()),
    ("limits", {"limits": {**LIMITS, "stack": 1 << 20}}, "stack-limit-low"),
    ("read-only", {"read_only": place("/data", error=errno.ESTALE)}, "network-drive"),
    ("caches", {"caches": place("/c", error=errno.ENOTCONN)}, "network-drive"),
    ("training", losses(values=[float("nan")] * 10), "check-loss-not-finite"),
]  # fmt: skip


@pytest.mark.parametrize(("id", "seen", "cause"), ERRORS, ids=lambda value: value if isinstance(value, str) else "")
def test_an_error_has_the_same_cause_in_every_check(container, make_stack, id, seen, cause):
    stack = make_stack(memory={"ipc": "host", "shm_size": None, "fraction": None, "ulimits": {"stack": 8 << 20}})
    findings = judged(container(**seen), stack)
    assert with_status(findings, "FAIL", "WARN") == {id}
    assert reports(findings[id], cause)


@pytest.mark.parametrize(
    ("seen", "id"),
    [
        (
            fails("BackendCompilerFailed", "undefined symbol: __nvJitLinkAddData_12_1"),
            "compile",
        ),
        (
            ranks(message="Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 5000"),
            "collective",
        ),
        (
            devices("Unexpected error from cudaGetDeviceCount(). Error 500: named symbol not found"),
            "gpu",
        ),
    ],
    ids=["compile", "collective", "gpu"],
)
def test_error_texts_that_only_explain_knows(container, make_stack, seen, id):
    findings = judged(container(**seen), make_stack())
    assert with_status(findings, "FAIL", "WARN") == {id}
    declared = next(each.causes for each in verify.CHECKS if each.id == id)
    assert not any(reports(findings[id], cause) for cause in declared)


def test_a_mistake_of_a_program_is_not_reported_as_the_cause(container, make_stack):
    """`explain` knows this text as one; the programs that verify runs are its own."""
    probes = container(loader=broken("RuntimeError", "Cannot re-initialize CUDA in forked subprocess"))
    assert reports(judged(probes, make_stack())["loader"], "loader-fails")


def test_every_cause_is_found_by_some_fault(container, make_stack, cpu_only):
    """No cause stands on the page that no test has seen."""
    limited = make_stack(memory={"ipc": "host", "shm_size": None, "fraction": None, "ulimits": {"stack": 8 << 20}})
    found = [finding for seen, *_ in FAULTS.values() for finding in judged(container(**seen), make_stack()).values()]
    found += [finding for _, seen, _ in ERRORS for finding in judged(container(**seen), limited).values()]
    on_cpu = {"environment": {"GPUKIT_DEVICE": "cpu"}, **NO_GPU}
    broken_cpu = {"tensors": (Outcome("cpu", error=TorchError("Death", "was ended by SIGILL")),)}
    for seen, stack in (
        ({**on_cpu, "torch": Torch("2.9.1+cpu"), "python": "3.13.1"}, make_stack()),
        ({**NO_GPU, "torch": Torch("2.14.1+cu130", "13.0")}, make_stack(**cpu_only)),
        ({**NO_GPU, "torch": Torch("2.14.1+cpu")}, make_stack()),
        ({"torch": Torch("2.14.1+cu132", "13.2")}, make_stack()),
        older_on_shared_memory(make_stack),
        ({**on_cpu, "torch": Torch("2.14.1+cpu"), **broken_cpu}, make_stack()),
        ({**on_cpu, "torch": Torch("2.14.1+cpu"), "tensors": (on("cpu", equal=False, compiled=True),)}, make_stack()),
    ):
        found += judged(container(**seen), stack).values()
    causes = {cause for each in verify.CHECKS for cause in each.causes}
    assert {id for id in causes if not any(reports(finding, id) for finding in found)} == set()


def healthy(record, capability, speed, *, shared=False, link=None, kinds=("sm_80", "sm_90", "sm_120"), **changes):
    """A machine with one healthy card: recorded output of nvidia-smi, and the results of such a card."""
    output = parse(RECORDED[record][1])
    name = changes.pop("name", output.cards[0].name)
    gen, width = link or (output.cards[0].gen, output.cards[0].width)
    card = {"gen": gen, "width": width, "slowed": changes.pop("slowed", []), "mig": output.cards[0].mig}
    carries = LANE_GB_S[gen] * width
    seen = {
        "devices": Devices(
            (Device(name, capability, shared, 0.8 if shared else 1.0),), kinds, changes.pop("message", "")
        ),
        "smi": output,
        "gemms": (on(kind="bf16", size=8192, tflops=speed, others=changes.pop("others", False), card=card),),
        "transfers": (on(pinned=True, to=0.85 * carries, **{"from": 0.8 * carries}, card=card),),
        "assembler": ("/triton/ptxas", (f"sm_{capability.replace('.', '')}", f"sm_{capability.replace('.', '')}a")),
    }
    return {**seen, **changes}


SPARK = (
    "Found GPU0 NVIDIA GB10 which is of cuda capability 12.1. Minimum and Maximum cuda capability supported by "
    "this version of PyTorch is (8.0) - (12.0)"
)
HEALTHY = {
    "RTX 5090": healthy("RTX 5090", "12.0", 180.0, link=(5, 16), slowed=["sw_power_cap"]),
    "RTX 4090": {**healthy("RTX 4090 in WSL", "8.9", 150.0), "assembler": None},
    "RTX 3090 with a display": healthy("RTX 3090", "8.6", 66.0, link=(4, 16), in_use_by="a display"),
    "RTX 3090 at 200 W": healthy("RTX 3090", "8.6", 31.0, link=(4, 16), slowed=["sw_power_cap"]),
    "a laptop's RTX 4070": healthy("RTX 4070 Laptop", "8.9", 30.0, link=(4, 8), slowed=["sw_power_cap"]),
    "an old card": healthy("GTX 1070", "6.1", 0.1, link=(3, 16), kinds=("sm_60",)),
    "RTX PRO 6000": healthy("RTX PRO 6000", "12.0", 250.0, link=(4, 16)),
    "H100": healthy("H100", "9.0", 700.0, slowed=["sw_power_cap"]),
    "H100 behind the other processor": {
        **healthy("H100", "9.0", 700.0),
        "transfers": (on(pinned=True, to=26.0, **{"from": 22.0}, card={"gen": 5, "width": 16, "mig": False}),),
    },
    "H100 beside another's training": healthy("H100", "9.0", 300.0, others=True),
    "two cards": {**gemms(190.0, 175.0), "peers": on("", pairs=2, direct=0, wrong=[])},
    "a slice": healthy("A100 with MIG", "8.0", 40.0, name="NVIDIA A100-SXM4-80GB MIG 1g.10gb"),
    "a slice by its card's name": healthy("A100 with MIG", "8.0", 40.0),
    "DGX Spark": healthy(
        "DGX Spark", "12.1", 90.0, shared=True, message=SPARK,
        transfers=(on(pinned=True, to=60.0, **{"from": 60.0}, card={"gen": 1, "width": 1, "mig": False}),),
    ),
    "Jetson": {
        **healthy("RTX 3090", "8.7", 8.0, shared=True, link=(4, 16), name="Orin", kinds=("sm_87",)),
        "smi": Smi(message="nvidia-smi is not here"),
        **transfer(card=None),
        "gemms": (on(kind="bf16", size=4096, tflops=8.0, others=False, card=None),),
        "gpu_nodes": ["/dev/nvgpu/igpu0"],
    },
    "WSL": {**healthy("RTX 4090 in WSL", "8.9", 140.0), "gpu_nodes": ["/dev/dxg"], "in_use_by": "a display"},
    "stress beside a display": {"stress": True, "in_use_by": "a display"},
    "trackers": {"trackers": (on("tensorboard", files=1), on("wandb", files=5))},
    "little memory beside a limit that is not reached": {"ram": Ram(16.0, 3.0, 4.0, 0.0)},
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_machines(container, make_stack, name):
    seen = HEALTHY[name]
    capability = seen["devices"].found[0].capability if "devices" in seen else "12.0"
    targets = {"it": {**make_stack().targets["rtx-50"].__dict__, "capability": capability}}
    findings = judged(container(**seen), make_stack(targets=targets))
    assert with_status(findings, "FAIL", "WARN") == set()
    assert all(finding.completed for finding in findings.values())
    if name == "DGX Spark":
        assert "harmless" in findings["kernels"].seen
    if name == "stress beside a display":
        assert "no stress" in findings["memory"].seen


def test_quick_leaves_out_what_takes_long():
    quick = {each.id for each in select(verify.CHECKS, quick=True)}
    assert quick.isdisjoint({"compile", "training", "loader", "gemm", "imports"})
    assert quick >= {"gpu", "tensor", "memory", "packages", "conflicts"}
