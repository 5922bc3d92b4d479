"""The GPU: whether torch finds it, whether it is a target, whether torch has kernels for it, and its health."""

from __future__ import annotations

from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem, skipped
from gpukit.host import health as judge
from gpukit.host.kernels import from_arch_list, runs
from gpukit.host.memory import CAP, usual
from gpukit.project.stack import Stack, version
from gpukit.verify.torch_process import TorchError, torch_check


def on_cpu(probes: Any, stack: Stack) -> bool:
    """Whether this container is meant to run without a GPU."""
    return probes.environment.get("GPUKIT_DEVICE") == "cpu" or stack.cuda is None or not stack.gpu


def without_gpu(probes: Any, stack: Stack) -> Finding | None:
    """SKIP if there is no GPU."""
    if probes.devices.found:
        return None
    return skipped("no-gpu-requested" if on_cpu(probes, stack) else "no-gpu-visible")


def without_device(probes: Any, stack: Stack) -> Finding | None:
    """SKIP if there is no GPU, and this container is not meant to run without one."""
    return None if on_cpu(probes, stack) else without_gpu(probes, stack)


@torch_check(
    "gpu",
    "GPU",
    "cuda-does-not-start",
    needs="import cuda",
    causes=(
        "gpu-hidden gpu-not-given device-denied driver-library-not-given gpu-mode-prohibited fabric-manager "
        "driver-updated cuda-compat-geforce driver-too-old gpu-exclusive gpu-memory-fault gpu-memory-taken "
        "container-lost-gpu gpu-not-started cuda-does-not-start"
    ),
)
def gpu(probes: Any, stack: Stack) -> Finding:
    """torch finds a GPU; if not, the step between the host and CUDA at which access to it fails."""
    if on_cpu(probes, stack):
        return skipped("no-gpu-requested")
    found = probes.devices.found
    if found:
        seen = ", ".join(device.name for device in found)
        there = len(probes.smi.cards)
        return passed(f"{seen}; {len(found)} of {there} on this machine" if len(found) < there else seen)
    message = probes.devices.message
    chosen = probes.environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None and (not chosen.strip() or chosen.strip().startswith("-")):
        return problem("gpu-hidden", f"CUDA_VISIBLE_DEVICES={chosen!r}", "a GPU")
    if not probes.gpu_nodes:
        return problem("gpu-not-given", "no GPU device in /dev", "a GPU")
    if probes.inaccessible_nodes:
        return problem(
            "device-denied",
            f"{', '.join(probes.inaccessible_nodes)}: permission denied",
            "a GPU",
            node=probes.inaccessible_nodes[0],
        )
    if not probes.cuda_library:
        return problem("driver-library-not-given", "libcuda.so.1 does not load", "a GPU")
    if any(card.mode == "Prohibited" for card in probes.smi.cards):
        return problem("gpu-mode-prohibited", message or "none", "a GPU")
    raise TorchError("", message or "none")


@check("card", "Target GPU", needs="gpu", causes="card-not-a-target", project=True, skip=without_gpu)
def card(probes: Any, stack: Stack) -> Finding:
    """The compute capability is that of one of the project's targets."""
    seen = ", ".join(f"{device.name} ({device.capability})" for device in probes.devices.found)
    expected = "compute capability " + " or ".join(stack.capabilities)
    if all(device.capability in stack.capabilities for device in probes.devices.found):
        return passed(seen, expected)
    return problem("card-not-a-target", seen, expected)


@check(
    "cap",
    "Unified memory",
    needs="gpu",
    causes="memory-cap-missing memory-cap-overridden memory-cap-not-possible",
    skip=without_gpu,
)
def cap(probes: Any, stack: Stack) -> Finding:
    """Where CPU and GPU share their memory: how much of it torch's allocator may use in one process."""
    shared = [device for device in probes.devices.found if device.shared]
    if not shared:
        return skipped("gpu-has-own-memory")
    share = max(device.fraction for device in shared)
    most = stack.memory.fraction or usual()
    seen = f"up to {share:.0%} for each process"
    expected = f"at most {most:.0%}"
    if share <= most + 0.005:
        return passed(seen, expected)
    if CAP not in probes.environment.get("PYTORCH_CUDA_ALLOC_CONF", CAP):
        return problem("memory-cap-overridden", seen, expected, most=most)
    if version(probes.torch.version) < (2, 10) or (
        version(probes.torch.version) < (2, 11) and not stack.memory.allocator_cap
    ):
        return problem("memory-cap-not-possible", f"{seen}; torch {probes.torch.version}", expected, most=most)
    return problem("memory-cap-missing", seen, expected, most=most)


@check("kernels", "Kernels", needs="gpu", causes="no-kernel only-ptx", skip=without_gpu)
def kernels(probes: Any, stack: Stack) -> Finding:
    """Compiled code (SASS) runs on its own major version; the driver compiles PTX at first use; nothing else runs.
    torch warns if the GPU is newer than its newest kernels, such as GB10 (12.1). With compiled code of the same major
    version, that warning is harmless."""
    sass, ptx = from_arch_list(list(probes.devices.arch_list))
    seen = " ".join(probes.devices.arch_list) or "none"
    how = {device: runs(device.capability, sass, ptx) for device in probes.devices.found}
    for device, kind in how.items():
        if kind is None:
            return problem("no-kernel", seen, f"kernels for {device.capability} ({device.name})")
    for device, kind in how.items():
        if kind == "ptx":
            return problem("only-ptx", seen, f"compiled kernels for {device.capability} ({device.name})")
    if "cuda capability" in probes.devices.message.lower():
        own = probes.devices.found[0].capability
        have = [name for name in sass if runs(own, (name,), ())] or [own]
        seen += f"; torch's warning about its maximum capability is harmless: code for {have[-1]} runs on {own}"
    return passed(seen)


health = check("health", "GPU health", needs="gpu", causes=judge.HEALTH, skip=without_gpu)(judge.health)
xid = check("xid", "Xid errors", needs="gpu", causes=judge.XID, skip=without_gpu)(judge.xid)
