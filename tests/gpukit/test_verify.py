"""Verify's judgement on what a container may look like."""

import errno
import os
import signal

import jsonschema
import pytest

from gpukit.findings.checks import natively, run
from gpukit.findings.finding import to_json
from gpukit.host.health import XIDS
from gpukit.host.smi import Card, Smi, parse
from gpukit.image.guard import Change
from gpukit.verify import main as verify
from gpukit.verify.hardware import LANE_GB_S
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
from gpukit.verify.requirements import Conflict, Requirements, Unmet
from gpukit.verify.torch_process import TorchError
from tests.gpukit.conftest import CPU_ONLY
from tests.gpukit.test_smi import RECORDED


def on(device="cuda:0", **answer):
    return Outcome(device, {"device": device, **answer})


GPU_CHECKS = {
    *("gpu", "card", "cap", "kernels", "health", "xid", "matmul", "convolution", "attention"),
    *("peers", "memory", "transfer", "gemm", "clocks"),
}
ON_CPU = {"tensor", "compile", "collective", "training"}  # where there is no GPU, and none is meant to be
DECLARED = {each.id: each.causes for each in verify.CHECKS}
NOT_COMPILED = (
    "CppCompileError: C++ compile error\n/tmp/x/main.cpp:4:10: fatal error: Python.h: No such file or directory"
)


def named(value):
    """For the ids of cases: only the texts."""
    return value if isinstance(value, str) else ""


def judged(probes, stack):
    return {finding.id: finding for finding in run(verify.CHECKS, probes, stack)}


def with_status(findings, *statuses):
    """The ids of findings with one of these statuses; what did not answer in time is UNKNOWN, and found like a FAIL."""
    return {id for id, finding in findings.items() if finding.status in statuses or not finding.completed}


def test_nothing_is_wrong_with_a_healthy_container(container, make_stack, findings_schema):
    findings = judged(container(), make_stack())
    assert with_status(findings, "FAIL", "WARN") == set()
    assert with_status(findings, "SKIP") == {"cap", "xid", "peers"}
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
    assert with_status(findings, "SKIP") == {*GPU_CHECKS, "cuda"}
    assert "cpu" in findings["tensor"].seen
    assert "cpu" in findings["compile"].seen


def test_a_project_without_a_gpu(container, make_stack):
    findings = judged(container(torch=Torch("2.14.1+cpu"), **NO_GPU), make_stack(**CPU_ONLY))
    assert with_status(findings, "FAIL", "WARN") == set()
    assert with_status(findings, "SKIP") == GPU_CHECKS


@pytest.mark.parametrize("nodes", [[], ["/dev/nvidia0"]])
def test_a_build_for_cpus_fails_as_torch_cuda_and_python_and_nothing_else(container, make_stack, nodes):
    """What a stand-in for NVIDIA's image is, with a GPU that answers or without one."""
    probes = container(
        torch=Torch("2.13.0a0+standin.nv26.06"), python="3.11.2", protected=None, **{**NO_GPU, "gpu_nodes": nodes}
    )
    stack = make_stack(base="ngc", torch="2.13.0a0+8145d630e8.nv26.06", cuda="13.3")
    findings = judged(probes, stack)
    assert with_status(findings, "FAIL", "WARN") == {"torch", "cuda", "python"}
    assert with_status(findings, "SKIP") == {*GPU_CHECKS, *ON_CPU, "protected"}
    assert findings["gpu"].status == findings["compile"].status == "SKIP"

    stack = make_stack(base="ngc", torch="2.13.0a0+standin.nv26.06", cuda=None, python="3.11")
    findings = judged(probes, stack)
    assert with_status(findings, "FAIL", "WARN") == set()
    assert with_status(findings, "PASS") >= {"torch", "cuda", "python", *ON_CPU}


def build(version, cuda=None, index="", **more):
    return {"torch": Torch(version, cuda, index=index), **more}


NGC = "2.10.0a0+b558c986e8.nv25.11"
CPU = {"environment": {"GPUKIT_DEVICE": "cpu"}, **NO_GPU}
INDEX = "package index"
# What is installed, what stack.json expects otherwise, and the checks that do not pass.
BUILDS = [
    (build("2.14.3+cu130", "13.0"), {}, set()),  # a newer patch release
    (build("2.15.0+cu130", "13.0"), {}, {"torch"}),
    (build("2.14.1+cu132", "13.2"), {}, {"torch", "cuda"}),
    (build("2.14.1+cpu"), {}, {"torch", "cuda"}),
    (build("2.14.1"), {}, {"torch", "cuda"}),
    (build(NGC, "13.0"), {"torch": NGC}, set()),
    (build("2.10.0", "13.0"), {"torch": NGC}, {"torch"}),  # what pip puts in its place
    (build("2.9.0a0+50eac811a6.nv25.09", "13.0"), {"torch": NGC}, {"torch"}),
    # From the package index, any build for the expected CUDA is accepted; its only build for a CPU has CUDA.
    (build("2.14.1", "13.0", INDEX), {}, set()),
    (build("2.14.1+cu130", "13.0", INDEX), {}, set()),
    (build("2.14.1", "12.8", INDEX), {}, {"cuda"}),
    (build("2.14.1+cpu", None, INDEX), {}, {"torch", "cuda"}),
    (build("2.15.0", "13.0", INDEX), {}, {"torch"}),
    (build("2.14.1", "13.0", INDEX, **CPU), {}, set()),
    (build("2.14.1", "13.0", INDEX, **NO_GPU), CPU_ONLY, set()),
    (build("2.9.1", "13.0", INDEX, **NO_GPU), CPU_ONLY, {"torch"}),
    (build("2.9.1+cpu", python="3.13.1", **CPU), {}, {"torch", "python"}),
    (build("2.14.1+cu130", "13.0", **NO_GPU), CPU_ONLY, {"torch", "cuda"}),
    ({"gpukit": Versions("0.2.0", "0.2.0")}, {}, set()),
    ({"gpukit": Versions("0.2.0+h0123456789ab", "0.2.0")}, {}, {"gpukit"}),
    ({"gpukit": Versions("0.2.0", None, "vendor/ has no gpukit wheel.")}, {}, set()),
    ({"gpukit": Versions(None, "0.2.0")}, {}, set()),
]


@pytest.mark.parametrize(("seen", "expected", "wrong"), BUILDS)
def test_which_builds_are_accepted(container, make_stack, seen, expected, wrong):
    probes = container(**seen)
    findings = judged(probes, make_stack(**expected))
    assert with_status(findings, "FAIL", "WARN") == wrong
    assert not probes.torch.index or INDEX in findings["torch"].seen


def test_remedies_without_a_container(container, make_stack):
    """The environment of --native is not an image, and launch itself updates it."""
    checks = [natively(each, verify.native_stack) for each in verify.CHECKS]
    findings = run(checks, container(gpukit=Versions("1", "2")), make_stack())
    gpukit = next(finding for finding in findings if finding.id == "gpukit")
    assert (gpukit.status, gpukit.cause_id) == ("FAIL", "image-older-than-wheel")
    assert "`./launch --native build`" in gpukit.remedy


def devices(message="", found=(), arch_list=("sm_75", "sm_120")):
    return {"devices": Devices(found, arch_list, message)}


CAPLESS = devices(found=(Device("RTX 5090", "12.0", shared=True),))
SEGMENTS = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def place(path="/workspace", there=True, mounted=True, error=None, **more):
    return (Place(path, there, mounted, problem=os.strerror(error) if error else "", error=error, **more),)


# The attribute of the probes in which a check sees an error of torch.
PROBES = {
    "matmul": "matmuls", "convolution": "convolution", "attention": "attention", "peers": "peers",
    "memory": "memory_patterns", "transfer": "transfers", "gemm": "gemms", "tensor": "tensors",
    "loader": "loader", "compile": "compiled", "training": "training",
}  # fmt: skip


def erring(id, kind="", text="", log="", device="cuda:0", status=None):
    """What a check sees of an exception in torch, or of how its process ended."""
    error = TorchError(kind, text, log, status)
    if id == "import":
        return {"torch": Torch(error=error)}
    outcome = Outcome(device, error=error)
    several = id in ("memory", "transfer", "gemm", "tensor", "training")
    return {**(TWO if id == "peers" else {}), PROBES[id]: (outcome,) if several else outcome}


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
    return {"gemms": (on(kind="bf16", tflops=tflops, others=others, card=card),), **found}


TWO = {
    "devices": Devices((Device("NVIDIA GeForce RTX 5090", "12.0"),) * 2, ("sm_120",)),
    "tensors": (on("cuda:0", equal=True), on("cuda:1", equal=True)),
}


def gemms(*speeds):
    card = {"gen": 4, "width": 16, "slowed": [], "mig": False}
    output = {"kind": "bf16", "others": False, "card": card}
    return {**TWO, "gemms": tuple(on(f"cuda:{index}", tflops=speed, **output) for index, speed in enumerate(speeds))}


def ranks(**changes):
    healthy = {"kind": "nccl", "ranks": 2, "silent": [], "wrong": [], "message": "", "ended": [0, 0]}
    return {"collective": on("", **{**healthy, **changes})}


def card(**changes):
    return {"smi": Smi("580.95.05", (Card("NVIDIA H100 80GB HBM3", "GPU-1", **changes),))}


def losses(values=None, again=None, start=5):
    values = values or [1.4 - 0.02 * step for step in range(10)]
    return {"training": (on(start=0, losses=values), on(start=start, losses=again or values[5:]))}


def unmet(requirement, package, seen, **more):
    found = Unmet(requirement, "pyproject.toml", package, seen, **more)
    return {"requirements": Requirements(12, (found,), frozenset({"torch"}))}


def conflict(package, wanted, seen):
    return {"conflicts": (Conflict(package, wanted, seen, f"The package `{package}` ..."),)}


def imported(kind, text, **more):
    error = TorchError(kind, text, f"{kind}: {text}")
    return {"imported": [Imported("torch"), Imported("datasets", error, **more)]}


RIGHT = {"error": 1e-4, "tolerance": 1e-2}
WRONG = {"error": 0.5, "tolerance": 1e-2}
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
CUBLAS = (  # https://github.com/QwenLM/Qwen/issues/120
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"
)
PTXAS = (  # https://github.com/triton-inference-server/server/issues/8632
    "No valid triton configs. PTXASError: PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\n"
    "ptxas-blackwell fatal   : Value 'sm_110a' is not defined for option 'gpu-name'"
)
OOM = "CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 15.47 GiB"  # CUDACachingAllocator

# What is seen, the one check that reports it, its cause, and what the cause or the remedy is filled in with.
FAULTS = [
    ("gpukit", "image-older-than-wheel", {"gpukit": Versions("0.2.0", "0.3.0+h0123456789ab")}),
    ("base-image", "base-moved", {"base_image": f"python:3.12-slim-trixie@sha256:{'b' * 64}"}),
    ("python", "python-other-version", {"python": "3.13.1"}),
    ("venv", "venv-active", {"prefixes": ("/workspace/.venv", "/usr")}),
    ("torch", "torch-other-version", {"torch": Torch("2.15.0+cu130", "13.0")}),
    ("cuda", "torch-other-cuda", {"torch": Torch("2.14.1+cu130", "12.8")}),
    ("protected", "protected-changed", {"protected_changes": [Change("torch", "2.14.1", "2.15.0")]}),
    ("gpu", "gpu-not-given", {**devices(), "gpu_nodes": []}),
    ("gpu", "gpu-hidden", {**devices(), "environment": {"CUDA_VISIBLE_DEVICES": ""}}),
    ("gpu", "driver-library-not-given", {**devices(), "cuda_library": False}),
    ("gpu", "fabric-manager", devices("Error 802: system not yet initialized")),
    ("gpu", "driver-updated", devices("Error 803: system has unsupported display driver / cuda driver combination")),
    ("gpu", "cuda-compat-geforce", devices("Error 804: forward compatibility was attempted on non supported HW")),
    ("gpu", "driver-too-old", devices("The NVIDIA driver on your system is too old")),
    ("gpu", "container-lost-gpu", devices("CUDA unknown error - this may be due to an incorrectly set up environment")),
    ("gpu", "gpu-not-started", devices("No CUDA-capable device is detected")),
    ("gpu", "cuda-does-not-start", devices("Error 31: something")),
    ("card", "card-not-a-target", devices(found=(Device("RTX 2080", "7.5"),))),
    ("cap", "memory-cap-missing", CAPLESS, "per_process_memory_fraction:0.8"),
    ("cap", "memory-cap-overridden", {**CAPLESS, "environment": SEGMENTS}, "unset PYTORCH_CUDA_ALLOC_CONF"),
    ("kernels", "only-ptx", devices(found=(Device("RTX 5090", "12.0"),), arch_list=("sm_90", "compute_90"))),
    ("kernels", "no-kernel", devices(found=(Device("RTX 5090", "12.0"),), arch_list=("sm_80", "sm_90"))),
    ("tensor", "gpu-results-wrong", {"tensors": (on("cuda:0", equal=True), on("cuda:1", equal=False))}, "cuda:1"),
    (
        "compile",
        "no-cpp-compiler",
        {**erring("compile", "InvalidCxxCompiler", "No working C++ compiler"), "compiler": None},
    ),
    ("compile", "compile-disabled", {"compiled": on("cuda:0", equal=True, compiled=False)}),
    ("compile", "compiled-results-wrong", {"compiled": on("cuda:0", equal=False, compiled=True)}),
    ("user", "runs-as-root", {"user": User(0, "root", "/workspace", 1000)}),
    ("user", "user-other-uid", {"user": User(1001, "x", "/workspace", 1000)}),
    ("user", "no-such-user", {"user": User(1000, None, "/workspace", 1000)}),
    ("mounts", "folder-not-mounted", {"mounts": place(there=False)}),
    ("mounts", "mount-source-not-yours", {"mounts": place(error=errno.EACCES)}),
    ("mounts", "folder-not-kept", {"mounts": place(mounted=False)}),
    ("mounts", "mount-source-not-readable", {"read_only": place("/data", error=errno.EACCES)}),
    ("mounts", "data-not-mounted", {"read_only": place("/data", mounted=False)}),
    ("mounts", "data-writable", {"read_only": place("/data")}),
    ("caches", "cache-owned-by-other", {"caches": place("/home/dev/.cache", error=errno.EACCES)}),
    ("shm", "shared-memory-small", {"shm_gb": (0.0625, 0.05)}),
    ("venv", "workspace-venv", {"workspace_venv": "/workspace/.venv"}),
    ("user", "files-mapped", {"user": User(1000, "dev", "/workspace", 1000, 65534)}),
    ("mounts", "read-only", {"mounts": place(error=errno.EROFS)}),
    ("mounts", "disk-full", {"mounts": place(error=errno.ENOSPC)}),
    ("mounts", "network-drive", {"mounts": place(error=errno.ENOTCONN)}),
    ("caches", "cache-owned-by-root", {"caches": place("/home/dev/.cache", error=errno.EACCES, owner=0)}),
    (
        "caches",
        "cache-read-only",
        {"caches": place("/hub", error=errno.EROFS), "environment": {"HF_HOME": "/hub"}},
        "HF_HOME",
    ),
    ("caches", "disk-full", {"caches": place("/c", error=errno.ENOSPC)}),
    ("room", "disk-full", {"temporary": place("/tmp", error=errno.ENOSPC)}),
    ("room", "no-temporary-folder", {"temporary": place("/tmp", error=errno.ENOENT)}),
    ("room", "temporary-space-low", {"temporary": place("/tmp", free_gb=0.2)}),
    ("shm", "shared-memory-leftovers", {"shm_gb": (31.0, 0.001)}),
    ("limits", "memlock-limit", {"limits": {**LIMITS, "memlock": 8 << 20}}),
    ("limits", "open-files-limit-low", {"limits": {**LIMITS, "nofile": 256}}),
    ("cpus", "cpu-quota-small", {"processors": Processors(64, 64, 2.0)}, "OMP_NUM_THREADS=2"),
    ("jupyter", "jupyter-other-python", {"kernel": Kernel("python3", "/opt/python", "/opt")}, "kernelspec"),
    ("jupyter", "jupyter-kernel", {"kernel": Kernel("python3", message="cannot import ipykernel")}),
    ("loader", "loader-results-wrong", {"loader": on("", workers=2, equal=False, seconds=1.0)}),
    ("collective", "shared-memory", ranks(message=SHM_SEGMENT)),
    ("collective", "ranks-hang", ranks(silent=[1])),
    ("collective", "collective-results-wrong", ranks(wrong=[0])),
    ("collective", "ranks-interface", ranks(message="Bootstrap : no socket interface found")),
    ("collective", "ranks-fail", ranks(ended=[0, -11])),
    ("gpu", "gpu-exclusive", devices("CUDA error: CUDA-capable device(s) is/are busy or unavailable")),
    ("matmul", "matmul-inexact", products(fp8=float("nan"))),
    ("matmul", "tf32-forced", {**products(fp32=2.5e-3), "environment": {"NVIDIA_TF32_OVERRIDE": "1"}}),
    ("convolution", "cudnn-not-found", {"convolution": on(error=0.0, tolerance=1e-4, cudnn=None, enabled=True)}),
    ("convolution", "convolution-results-wrong", {"convolution": on(**WRONG, cudnn=91300, enabled=True)}),
    ("attention", "attention-results-wrong", {"attention": on(kind="bf16", **RIGHT, ways={"flash": 0.4})}),
    ("training", "resumed-run-differs", losses(again=[9.0] * 5)),
    ("memory", "gpu-memory-wrong", {"memory_patterns": (on(bytes=1, wrong=[3], free=1, shared=False),)}),
    ("transfer", "os-refused-cuda", transfer(pinned=False)),
    ("transfer", "slow-copies", transfer(to=3.0)),
    ("gemm", "uneven-gpus", gemms(190.0, 120.0)),
    ("peers", "peer-copies-wrong", {**TWO, "peers": on("", pairs=2, direct=2, wrong=[[0, 1]])}),
    ("gpu", "gpu-mode-prohibited", {**devices(), **card(mode="Prohibited")}),
    (
        "gpu",
        "device-denied",
        {**devices("No CUDA GPUs are available"), "inaccessible_nodes": ["/dev/nvidiactl"]},
        "ls -l /dev/nvidiactl",
    ),
    ("health", "gpu-memory-no-spare-rows", card(uncorrected=0, failure=True)),
    ("ram", "memory-low", {"ram": Ram(64.0, 1.1, 8.0, 0.0)}),
    ("mounts", "checkpoint-space-low", {"mounts": place(free_gb=0.3)}),
    ("packages", "requirement-not-installed", unmet("einops>=0.8", "einops", None), "einops"),
    ("packages", "requirement-out-of-range", unmet("transformers<6", "transformers", "6.1"), "transformers"),
    ("conflicts", "torch-packages-mixed", conflict("torchvision", "torch==2.15.0", "2.14.1"), "torch==2.15.0"),
    ("conflicts", "packages-conflict", conflict("transformers", "tokenizers<0.23", "0.23.1"), "tokenizers<0.23"),
    ("conflicts", "packages-conflict-beside", conflict("gradio", "pillow<12", None), "./launch add gradio"),
    ("conflicts", "package-damaged", conflict("gradio", "", None), "gradio"),
    ("imports", "package-import-broken", imported("ModuleNotFoundError", "No module named 'pyarrow.lib'"), "datasets"),
    ("imports", "package-import-crashes", imported("Death", "was ended by SIGSEGV"), "datasets"),
    ("imports", "package-broken-on-gpu", imported("RuntimeError", "?", called=True), "datasets"),
    ("gemm", "slow-gpu", gemm(60, "NVIDIA GeForce RTX 4090")),
    ("clocks", "gpu-heat", gemm(60, slowed=["hw_thermal_slowdown", "hw_slowdown"])),
    ("clocks", "gpu-power-brake", gemm(60, slowed=["hw_power_brake_slowdown"])),
    ("health", "gpu-memory-fault", card(uncorrected=2)),
    ("health", "gpu-memory-rows-pending", card(uncorrected=0, pending=True)),
    ("health", "driver-requests-recovery", card(recovery="Reset"), "Reset"),
    ("health", "driver-hangs", {"smi": Smi(message="no answer", late=True)}),
    (
        "collective",
        "peer-access",
        ranks(message="failure 'peer access is not supported between these two devices'"),
    ),
    ("collective", "ranks-hang", ranks(message="Watchdog caught collective operation timeout")),
    ("limits", "stack-limit-low", {"limits": {**LIMITS, "stack": 1 << 20}}),
    ("mounts", "network-drive", {"read_only": place("/data", error=errno.ESTALE)}),
    ("training", "check-loss-not-finite", losses(values=[float("nan")] * 10)),
    ("xid", "gpu-reported", {"xids": (("0000:01:00", 79),)}, XIDS[79]),
]


# Errors of torch, of compilers, and of NCCL, in their own words: the kind of the exception, its text, and the output.
ERRORS = [
    ("import", "torch-not-installed", "ModuleNotFoundError", "No module named 'torch'"),
    ("import", "torch-library-missing", "ImportError", "libcudart.so.13: cannot open shared"),
    ("import", "torch-import-crashes", "Death", "was ended by SIGSEGV"),
    ("import", "torch-import-hangs", "Timeout", "no answer in 120 s"),
    ("import", "torch-broken", "SyntaxError", "invalid"),
    ("compile", "no-python-headers", "CppCompileError", NOT_COMPILED),
    ("compile", "no-python-headers", "CalledProcessError", "gcc failed", "main.c: fatal error: Python.h: No such file"),
    ("compile", "ptxas-too-old", "PTXASError", "ptxas fatal: Value 'sm_121a' is not defined"),
    ("compile", "compiler-hangs", "Timeout", "no answer in 180 s"),
    ("compile", "torch-compile-fails", "BackendCompilerFailed", "?"),
    ("loader", "shared-memory", "RuntimeError", BUS_ERROR),
    ("loader", "worker-killed", "RuntimeError", KILLED),
    ("loader", "library-crashed", "RuntimeError", KILLED.replace("Killed", "Segmentation fault")),
    # https://github.com/michuanhaohao/reid-strong-baseline/issues/29
    ("loader", "worker-gone", "RuntimeError", "DataLoader worker (pid(s) 15927) exited unexpectedly"),
    ("loader", "open-files", "RuntimeError", ANCDATA),
    ("loader", "process-limit", "BlockingIOError", "[Errno 11] Resource temporarily unavailable"),
    ("loader", "loader-timeout", "Timeout", "no answer in 90 s"),
    ("loader", "loader-fails", "RuntimeError", "?"),
    ("compile", "ptxas-too-old", "NoTritonConfigsError", PTXAS),
    ("training", "checkpoint-fails", "OSError", "[Errno 5] ?"),
    # https://github.com/pytorch/pytorch/issues: what torch.compile raised, by its last line
    ("compile", "no-compiler", "RuntimeError", "Failed to find C compiler. Please specify via CC environment variable"),
    ("compile", "libcuda-not-listed", "", "/usr/bin/ld: cannot find -lcuda: No such file or directory"),
    ("compile", "triton-mismatch", "TritonMissing", "Cannot find a working triton installation"),
    ("compile", "no-such-user", "KeyError", "'getpwuid(): uid not found: 4321'"),
    ("compile", "disk-full", "OSError", "[Errno 28] No space left on device: '/tmp/torchinductor_dev/x.cpp'"),
    ("compile", "temporary-folder-noexec", "", "ImportError: /tmp/x.so: failed to map segment from shared object"),
]
# Each has the same cause in every check that computes on the GPU.
ON_THE_GPU = [
    ("no-kernel", "", "no kernel image is available for execution on the device"),
    ("gpu-exclusive", "", "CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
    ("gpu-memory-fault", "", "CUDA error: uncorrectable ECC error encountered"),
    ("kernel-crashed", "", "CUDA error: unspecified launch failure"),
    ("gpu-lost", "", "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus."),
    ("gpu-memory-taken", "OutOfMemoryError", OOM),
    ("gpu-memory-or-libraries", "RuntimeError", CUBLAS),
    ("two-cudnn", "RuntimeError", "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH"),
    ("gpu-computing-fails", "", "something new"),
    ("host-memory-full", "Death", "was ended by SIGKILL", "", "cuda:0", -signal.SIGKILL),
    ("gpu-hangs", "Timeout", "no answer in 60 s"),
]
COMPUTING = ("matmul", "convolution", "attention", "memory", "transfer", "gemm", "peers", "tensor")
FAULTS += [(id, cause, erring(id, *error)) for id, cause, *error in ERRORS]
FAULTS += [(id, cause, erring(id, *error)) for cause, *error in ON_THE_GPU for id in COMPUTING]


@pytest.mark.parametrize(("id", "cause", "seen", "filled_in"), [(*row[:3], row[3:]) for row in FAULTS], ids=named)
def test_fault_is_the_only_failure(container, make_stack, findings_schema, id, cause, seen, filled_in):
    """The cause is one that the check declares, so the page and `explain` name all that a check can say."""
    assert cause in DECLARED[id]
    findings = judged(container(**seen), make_stack())
    assert with_status(findings, "FAIL", "WARN") == {id}
    assert all(finding.completed for other, finding in findings.items() if other != id)
    assert reports(findings[id], cause)
    assert all(text in findings[id].seen + findings[id].cause + findings[id].remedy for text in filled_in)
    jsonschema.validate(to_json("verify", "demo", list(findings.values())), findings_schema)


def older_on_shared_memory(make_stack):
    """torch before 2.10 has no setting for the cap; its pre-releases may have none."""
    torch = "2.10.0a0+b558c986e8.nv25.11"
    memory = {"ipc": "host", "shm_size": None, "fraction": 0.8, "allocator_cap": False}
    return {**CAPLESS, "torch": Torch(torch, "13.0")}, make_stack(torch=torch, memory=memory)


def test_a_cap_that_this_torch_cannot_have(container, make_stack):
    seen, stack = older_on_shared_memory(make_stack)
    findings = judged(container(**seen), stack)
    assert with_status(findings, "FAIL", "WARN") == {"cap"} and reports(findings["cap"], "memory-cap-not-possible")
    capped = devices(found=(Device("RTX 5090", "12.0", True, 0.8), Device("RTX 5090", "12.0")))
    assert judged(container(**capped), make_stack())["cap"].status == "PASS"


def test_requirements_of_tools_are_warnings(container, make_stack):
    """Training works without them."""
    seen = unmet("ruff>=0.12", "ruff", "0.1", tool=True)
    assert with_status(judged(container(**seen), make_stack()), "WARN") == {"packages"}


def test_packages_that_need_a_gpu_are_left_out_without_one(container, make_stack):
    probes = container(imported=[Imported("torch"), Imported("unsloth", skipped=True)])
    finding = judged(probes, make_stack())["imports"]
    assert finding.status == "PASS" and "unsloth" in finding.seen


def test_a_package_may_need_the_gpu_that_the_container_is_meant_to_be_without(container, make_stack):
    text = "Unsloth cannot find any torch accelerator? You need a GPU."  # unsloth_zoo 2026.10.7
    imported = [Imported("torch"), Imported("unsloth_zoo", TorchError("NotImplementedError", text, text))]
    finding = judged(container(imported=imported, environment={"GPUKIT_DEVICE": "cpu"}), make_stack())["imports"]
    assert finding.status == "PASS" and "unsloth_zoo" in finding.seen
    assert judged(container(imported=imported), make_stack())["imports"].status == "FAIL"


def test_an_import_that_does_not_end_is_no_cause(container, make_stack):
    """On a busy machine, peft took more than two minutes; an error of another package is reported all the same."""
    silent = Imported("peft", TorchError("Timeout", "no answer in 120 s"))
    finding = judged(container(imported=[Imported("torch"), silent]), make_stack())["imports"]
    assert not finding.completed and finding.cause_id == "not-answered"
    crashed = Imported("datasets", TorchError("Death", "was ended by SIGSEGV", "a\nlonger\nlog"))
    assert judged(container(imported=[silent, crashed]), make_stack())["imports"].status == "FAIL"


def test_the_error_of_an_import_that_explain_knows(container, make_stack):
    """The package nearest to the error is named, and the cause of its text."""
    text = "libctranslate2.so.4: cannot enable executable stack as shared object requires: Invalid argument"
    near = Imported("cv2", TorchError("ImportError", text, f"ImportError: {text}"))
    far = Imported("timm", TorchError("ImportError", text, f"{'x' * 99}\nImportError: {text}"))
    finding = judged(container(imported=[far, near]), make_stack())["imports"]
    assert (finding.cause_id, finding.seen[:5]) == ("executable-stack", "cv2: ")
    assert "timm" in finding.seen


@pytest.mark.parametrize(
    ("promised", "there", "status"),
    [
        ("16gb", 16.0, "PASS"),
        ("16gb", 0.0625, "WARN"),
        ("2gb", 2.0, "PASS"),
        ("512m", 0.5, "PASS"),
        (None, 1.0, "PASS"),
    ],
)
def test_shared_memory_against_the_policy(container, make_stack, promised, there, status):
    stack = make_stack(memory={"ipc": "private", "shm_size": promised, "fraction": None})
    assert judged(container(shm_gb=(there, there)), stack)["shm"].status == status


def reports(finding, id):
    return finding.cause_id == id and (finding.status in ("WARN", "FAIL") or not finding.completed)


@pytest.mark.parametrize(
    ("seen", "id"),
    [
        (erring("compile", "BackendCompilerFailed", "undefined symbol: __nvJitLinkAddData_12_1"), "compile"),
        (ranks(message="Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 5000"), "collective"),
        (devices("Unexpected error from cudaGetDeviceCount(). Error 500: named symbol not found"), "gpu"),
    ],
    ids=named,
)
def test_error_texts_that_only_explain_knows(container, make_stack, seen, id):
    findings = judged(container(**seen), make_stack())
    assert with_status(findings, "FAIL", "WARN") == {id}
    assert findings[id].cause_id not in DECLARED[id]


def test_a_mistake_of_a_program_is_not_reported_as_the_cause(container, make_stack):
    """`explain` knows this text as one; the programs that verify runs are its own."""
    probes = container(**erring("loader", "RuntimeError", "Cannot re-initialize CUDA in forked subprocess"))
    assert reports(judged(probes, make_stack())["loader"], "loader-fails")


def test_every_cause_is_found_by_some_fault(container, make_stack):
    """No cause stands on the page that no test has seen."""
    found = {cause for _, cause, *_ in FAULTS}
    cpu = build("2.14.1+cpu", **CPU)
    for seen, stack in (
        *((seen, make_stack(**expected)) for seen, expected, _ in BUILDS),
        (build("2.14.1+cpu", **NO_GPU), make_stack()),
        older_on_shared_memory(make_stack),
        ({**cpu, **erring("tensor", "Death", "was ended by SIGILL", device="cpu")}, make_stack()),
        ({**cpu, "tensors": (on("cpu", equal=False),)}, make_stack()),
    ):
        found |= {finding.cause_id for finding in judged(container(**seen), stack).values()}
    assert set().union(*DECLARED.values()) - found == set()


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
        "gemms": (on(kind="bf16", tflops=speed, others=changes.pop("others", False), card=card),),
        "transfers": (on(pinned=True, to=0.85 * carries, **{"from": 0.8 * carries}, card=card),),
    }
    return {**seen, **changes}


SPARK = (
    "Found GPU0 NVIDIA GB10 which is of cuda capability 12.1. Minimum and Maximum cuda capability supported by "
    "this version of PyTorch is (8.0) - (12.0)"
)
HEALTHY = {
    "RTX 5090": healthy("RTX 5090", "12.0", 180.0, link=(5, 16), slowed=["sw_power_cap"]),
    "RTX 4090": healthy("RTX 4090 in WSL", "8.9", 150.0),
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
        "gemms": (on(kind="bf16", tflops=8.0, others=False, card=None),),
        "gpu_nodes": ["/dev/nvgpu/igpu0"],
    },
    "WSL": {**healthy("RTX 4090 in WSL", "8.9", 140.0), "gpu_nodes": ["/dev/dxg"], "in_use_by": "a display"},
    "stress beside a display": {"stress": True, "in_use_by": "a display"},
    "root, and root's workspace": {"user": User(0, "root", "/workspace", 0)},
    "no /dev/shm": {"shm_gb": None},
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
