"""Verify's judgement on what a container may look like."""

import jsonschema
import pytest
from gpukit import verify
from gpukit.checks import run
from gpukit.finding import to_json
from gpukit.guard import Change
from gpukit.verify.build import local_part
from gpukit.verify.container import Device, Devices, Person, Place, Result, Torch
from gpukit.verify.several import gigabytes
from gpukit.verify.torch_process import TorchError

GPU_CHECKS = {
    *("gpu", "card", "kernels", "ptxas", "health", "xid", "matmul", "convolution", "attention", "amp"),
    *("memory", "oom", "transfer", "gemm", "clocks"),
}
ON_CPU = {"tensor", "compile", "collective", "training"}  # where there is no GPU, and none is meant to be
NOT_COMPILED = (
    "CppCompileError: C++ compile error\n/tmp/x/main.cpp:4:10: fatal error: Python.h: No such file or directory"
)


def judged(saw, stack):
    return {finding.id: finding for finding in run(verify.CHECKS, saw, stack)}


def with_status(findings, *statuses):
    return {id for id, finding in findings.items() if finding.status in statuses}


def test_nothing_is_wrong_with_a_healthy_container(container, make_stack, findings_schema):
    findings = judged(container(), make_stack())
    assert with_status(findings, "FAIL", "WARN") == set()
    assert with_status(findings, "SKIP") == {"read-only", "xid"}
    jsonschema.validate(to_json("verify", "demo", list(findings.values())), findings_schema)


NO_GPU = {
    "devices": Devices(),
    "gpu_nodes": [],
    "tensors": (Result("cpu", equal=True),),
    "compiled": Result("cpu", equal=True, seconds=9.0),
}


def test_the_container_without_a_gpu(container, make_stack):
    """The project's cpu configuration: any build of that torch, and GPU checks are skipped, never passed."""
    saw = container(environment={"GPUKIT_DEVICE": "cpu"}, torch=Torch("2.14.0+cpu"), **NO_GPU)
    findings = judged(saw, make_stack())
    assert with_status(findings, "FAIL", "WARN") == set()
    assert with_status(findings, "SKIP") == {*GPU_CHECKS, "cuda", "read-only"}
    assert "cpu" in findings["tensor"].seen
    assert "cpu" in findings["compile"].seen

    other = container(environment={"GPUKIT_DEVICE": "cpu"}, torch=Torch("2.9.1+cpu"), python="3.13.1", **NO_GPU)
    findings = judged(other, make_stack())
    assert with_status(findings, "FAIL") == {"torch"}
    assert with_status(findings, "WARN") == {"python"}


def test_a_project_without_a_gpu(container, make_stack, cpu_only):
    findings = judged(container(torch=Torch("2.14.1+cpu"), **NO_GPU), make_stack(**cpu_only))
    assert with_status(findings, "FAIL", "WARN") == set()
    assert with_status(findings, "SKIP") == {*GPU_CHECKS, "read-only"}
    findings = judged(container(torch=Torch("2.14.1+cu130", "13.0"), **NO_GPU), make_stack(**cpu_only))
    assert with_status(findings, "FAIL") == {"torch"}
    assert with_status(findings, "WARN") == {"cuda"}


@pytest.mark.parametrize("nodes", [[], ["/dev/nvidia0"]])
def test_a_build_for_cpus_fails_as_torch_cuda_and_python_and_nothing_else(container, make_stack, nodes):
    """What a stand-in for NVIDIA's image is, with a GPU that answers or without one."""
    saw = container(
        torch=Torch("2.13.0a0+standin.nv26.06"), python="3.11.2", recorded=None, **{**NO_GPU, "gpu_nodes": nodes}
    )
    stack = make_stack(base="ngc", torch="2.13.0a0+8145d630e8.nv26.06", cuda="13.3")
    findings = judged(saw, stack)
    assert with_status(findings, "FAIL", "WARN") == {"torch", "cuda", "python"}
    assert with_status(findings, "SKIP") == {*GPU_CHECKS, *ON_CPU, "read-only", "protected"}
    assert findings["gpu"].cause == findings["compile"].cause == "`cuda` failed, and this depends on it."

    stack = make_stack(base="ngc", torch="2.13.0a0+standin.nv26.06", cuda=None, python="3.11")
    findings = judged(saw, stack)
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


def test_local_parts():
    assert [local_part(version) for version in ("2.14.1+cu130", "2.14.1", "2.14.1+cpu")] == ["cu130", "cpu", "cpu"]
    assert local_part("2.13.0a0+8145d630e8.nv26.06") == local_part("2.13.0a0+other.nv26.6") == "nv26.06"


def lacks(kind="ImportError", text="", log=""):
    return {"torch": Torch(error=TorchError(kind, text, log))}


def fails(kind, text="", log="", **more):
    return {"compiled": Result("cuda:0", error=TorchError(kind, text, log)), **more}


def devices(complaint="", found=(), arch_list=("sm_75", "sm_120")):
    return {"devices": Devices(found, arch_list, complaint)}


def place(path="/workspace", there=True, mounted=True, **more):
    return (Place(path, there, mounted, **more),)


# What is seen -> the one check that is in trouble, and a part of its cause and of its remedy.
FAULTS = {
    "another Python": ({"python": "3.13.1"}, "python", "another Python", "Rebuild"),
    "a virtual environment": ({"prefixes": ("/workspace/.venv", "/usr")}, "venv", "virtual environment", "deactivate"),
    "no torch": (lacks("ModuleNotFoundError", "No module named 'torch'"), "import", "not installed", "Rebuild"),
    "a library gone": (lacks("ImportError", "libcudart.so.13: cannot open shared"), "import", "A library", "Rebuild"),
    "a crash": (lacks("Death", "was ended by SIGSEGV"), "import", "ended by SIGSEGV while", "Rebuild"),
    "a hang": (lacks("Timeout", "no answer in 120 s"), "import", "does not come to an end", "Rebuild"),
    "a broken torch": (lacks("SyntaxError", "invalid"), "import", "broken", "Rebuild"),
    "replaced torch": ({"torch": Torch("2.15.0+cu130", "13.0")}, "torch", "another torch", "Rebuild"),
    "another CUDA": ({"torch": Torch("2.14.1+cu130", "12.8")}, "cuda", "another CUDA", "Rebuild"),
    "a package moved": ({"changes": [Change("torch", "2.14.1", "2.15.0")]}, "protected", "installed over", "pyproject"),
    "no GPU given": ({**devices(), "gpu_nodes": []}, "gpu", "started without a GPU", "./launch doctor"),
    "hidden": ({**devices(), "environment": {"CUDA_VISIBLE_DEVICES": ""}}, "gpu", "hides every GPU", "unset"),
    "no libcuda": ({**devices(), "cuda_library": False}, "gpu", "`compute`", "./launch doctor"),
    "802": (devices("Error 802: system not yet initialized"), "gpu", "Fabric Manager", "nvidia-fabricmanager"),
    "803": (devices("Error 803: system has unsupported display driver"), "gpu", "driver was updated", "Restart"),
    "804": (devices("Error 804: forward compatibility was attempted"), "gpu", "forward-compat", "install the driver"),
    "old driver": (devices("The NVIDIA driver on your system is too old"), "gpu", "too old", "install the driver"),
    "lost": (devices("CUDA unknown error - this may be due to"), "gpu", "lost its GPU", "Restart the container"),
    "no device": (devices("No CUDA-capable device is detected"), "gpu", "finds no GPU", "./launch doctor"),
    "new words": (devices("Error 999: something"), "gpu", "not known here", "./launch doctor"),
    "another card": (devices(found=(Device("RTX 2080", "7.5"),)), "card", "not made for this GPU", "also_on"),
    "PTX only": (
        devices(found=(Device("RTX 5090", "12.0"),), arch_list=("sm_90", "compute_90")),
        "kernels",
        "only PTX",
        "also_on",
    ),
    "no kernels": (
        devices(found=(Device("RTX 5090", "12.0"),), arch_list=("sm_80", "sm_90")),
        "kernels",
        "no kernel image",
        "also_on",
    ),
    "wrong numbers": ({"tensors": (Result("cuda:0"),)}, "tensor", "computes wrongly", "ECC"),
    "no numbers": (
        {"tensors": (Result("cuda:0", error=TorchError("AcceleratorError", "CUDA error: x\nhint")),)},
        "tensor",
        "fails",
        "./launch doctor",
    ),
    "no compiler": (fails("InvalidCxxCompiler", "No working C++ compiler", compiler=None), "compile", "C++", "g++"),
    "no headers": (fails("CppCompileError", NOT_COMPILED), "compile", "headers are missing", "python3-dev"),
    "no headers, in the log": (
        fails("CalledProcessError", "gcc failed", "main.c:5:10: fatal error: Python.h: No such file"),
        "compile",
        "headers are missing",
        "python3-dev",
    ),
    "old ptxas": (fails("PTXASError", "ptxas fatal: Value 'sm_121a' is not defined"), "compile", "assembler", "update"),
    "compiler hangs": (fails("Timeout", "no answer in 180 s"), "compile", "hangs", "top"),
    "unknown to compile": (fails("BackendCompilerFailed", "?"), "compile", "not known here", "Rebuild"),
    "switched off": (
        {"compiled": Result("cuda:0", equal=True, compiled=False)},
        "compile",
        "switched off",
        "unset TORCH_COMPILE_DISABLE",
    ),
    "wrong when compiled": ({"compiled": Result("cuda:0")}, "compile", "wrong", "copier update"),
    "root": ({"person": Person(0, 0, "root", "/workspace", 1000)}, "user", "would be root's", "./launch up"),
    "somebody else": ({"person": Person(1001, 1001, "x", "/workspace", 1000)}, "user", "somebody else's", "up"),
    "nobody": ({"person": Person(1000, 1000, None, "/workspace", 1000)}, "user", "no entry in passwd", "Rebuild"),
    "not mounted": ({"mounts": place(there=False)}, "mounts", "not mounted", "./launch up"),
    "not writable": ({"mounts": place(problem="Permission denied")}, "mounts", "somebody else", "./launch doctor"),
    "lost with it": ({"mounts": place(mounted=False)}, "mounts", "lost with the container", "./launch up"),
    "not readable": ({"read_only": place("/data", problem="Permission denied")}, "read-only", "somebody", "doctor"),
    "data not mounted": ({"read_only": place("/data", mounted=False)}, "read-only", "not mounted", "./launch up"),
    "data writable": ({"read_only": place("/data")}, "read-only", "lacks `readonly`", "readonly"),
    "root's cache": ({"caches": place("/home/dev/.cache", problem="Permission denied")}, "caches", "else", "Rebuild"),
    "small shm": ({"shm_gb": 0.0625}, "shm", "bus error", "./launch up"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_and_nothing_else_fails_beside_it(container, make_stack, findings_schema, name):
    seen, id, cause, remedy = FAULTS[name]
    findings = judged(container(**seen), make_stack())
    assert with_status(findings, "FAIL", "WARN") == {id}
    assert cause in findings[id].cause
    assert remedy in findings[id].remedy
    assert findings[id].looked
    jsonschema.validate(to_json("verify", "demo", list(findings.values())), findings_schema)


def test_root_is_right_where_the_workspace_is_root_s(container, make_stack):
    saw = container(person=Person(0, 0, "root", "/workspace", 0))
    assert judged(saw, make_stack())["user"].status == "PASS"


def test_every_device_computes(container, make_stack):
    two = (Result("cuda:0", equal=True), Result("cuda:1"))
    tensor = judged(container(tensors=two), make_stack())["tensor"]
    assert (tensor.status, tensor.seen) == ("FAIL", "on cuda:1: a wrong matrix product")


@pytest.mark.parametrize(
    ("promised", "there", "status"),
    [("16gb", 16.0, "PASS"), ("16gb", 0.0625, "WARN"), ("2gb", 2.0, "PASS"), (None, 1.0, "PASS"), (None, None, "SKIP")],
)
def test_shared_memory_against_the_policy(container, make_stack, promised, there, status):
    stack = make_stack(memory={"ipc": "private", "shm_size": promised, "fraction": None})
    assert judged(container(shm_gb=there), stack)["shm"].status == status


def test_sizes():
    assert [gigabytes(size) for size in ("16gb", "512m", "1g", "2048k")] == [16, 0.5, 1, 2048 / 2**20]
