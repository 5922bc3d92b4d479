"""Memory and speed of the GPUs, and copies and sums between them."""

from __future__ import annotations

from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem, skipped
from gpukit.host.cards import reference_tflops
from gpukit.host.health import SLOWED, slowed
from gpukit.project.stack import Stack
from gpukit.verify.gpu import without_device, without_gpu
from gpukit.verify.torch_process import COMMON, TorchError, torch_check

# A lane of PCI Express, in GB/s and one direction, after the encoding of the line (PCI-SIG).
LANE_GB_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
# A healthy machine reaches this share of the link's bandwidth: headers take 10 to 20 %, another socket or a virtual
# machine up to 50 %. Less means another load, or a slow host.
MIN_LINK_SHARE = 0.3
# Well-tuned libraries reach 70 to 90 % of the data sheet on a healthy GPU; tuning does not explain less than half.
MIN_SPEED_SHARE = 0.5
# GPUs of one model in one machine differ by about 10 %, warm ones a little more.
MIN_EVENNESS = 0.75


def _joined(figures: list[str]) -> str:
    """The figures of one GPU; of several, each with its index."""
    if len(figures) == 1:
        return figures[0]
    return "; ".join(f"{index}: {text}" for index, text in enumerate(figures))


@torch_check("memory", "GPU memory", needs="tensor", causes=("gpu-memory-wrong", *COMMON), skip=without_gpu)
def memory(probes: Any, stack: Stack) -> Finding:
    """A pattern is written and read back: 1 GiB or 10 % of the free memory, whichever is less. With --stress: 80 % of
    the free memory (50 % if CPU and GPU share it), unless a display or another process uses the GPU."""
    figures = []
    for answer in (outcome.result() for outcome in probes.memory_patterns):
        if answer["wrong"]:
            seen = f"{answer['device']}: blocks {answer['wrong']} of 64 MiB differ"
            return problem("gpu-memory-wrong", seen, "the values written")
        shared = " (shared with the CPU)" if answer["shared"] else ""
        figures.append(f"{answer['bytes'] / 2**30:.2g} of {answer['free'] / 2**30:.3g} GiB free{shared}")
    note = f"; no stress, because {probes.in_use_by} uses the GPU" if probes.stress and probes.in_use_by else ""
    return passed(f"correct: {_joined(figures)}{note}")


@torch_check(
    "transfer",
    "Host-GPU copies",
    needs="tensor",
    causes=("os-refused-cuda", "slow-copies", *COMMON),
    level="full",
    skip=without_gpu,
)
def transfer(probes: Any, stack: Stack) -> Finding:
    """Speed of copies from and to pinned memory, against the bandwidth of the PCIe link during the copies."""
    figures = []
    for answer in (outcome.result() for outcome in probes.transfers):
        if not answer["pinned"]:
            return problem("os-refused-cuda", "not pinned", "pinned memory")
        seen = f"{answer['to']:.3g} GB/s to the GPU, {answer['from']:.3g} back"
        card = answer["card"]
        if card and not card["mig"] and card["gen"] in LANE_GB_S and card["width"]:
            carries = LANE_GB_S[card["gen"]] * card["width"]
            seen += f", of {carries:.3g}"
            if min(answer["to"], answer["from"]) < MIN_LINK_SHARE * carries:
                expected = f"{MIN_LINK_SHARE:.0%} of PCIe {card['gen']} x{card['width']}"
                return problem("slow-copies", f"{answer['device']}: {seen}", expected)
        figures.append(seen)
    return passed(_joined(figures))


def _not_judged(answer: dict[str, Any]) -> str:
    """Why the speed is not judged: a MIG slice, reduced clocks, or another process."""
    card = answer["card"] or {}
    if card.get("mig"):
        return "a MIG slice"
    if answer.get("others"):
        return "with another process"
    return "reduced clocks" if card.get("slowed") else ""


@torch_check(
    "gemm", "Matrix speed", needs="matmul", causes=("slow-gpu", "uneven-gpus", *COMMON), level="full", skip=without_gpu
)
def gemm(probes: Any, stack: Stack) -> Finding:
    """Two seconds of large matrix products in half precision, against the data sheet of known GPUs. The speed of other
    GPUs is only shown, and none is judged if another process or a limit slows it down."""
    names = {f"cuda:{index}": device.name for index, device in enumerate(probes.devices.found)}
    speeds: dict[str, list[float]] = {}
    figures = []
    for answer in (outcome.result() for outcome in probes.gemms):
        name = names[answer["device"]]
        speed = answer["tflops"]
        beside = _not_judged(answer)
        expected = reference_tflops(name)
        if not beside:
            speeds.setdefault(name, []).append(speed)
            if expected and speed < MIN_SPEED_SHARE * expected:
                share = f"at least {MIN_SPEED_SHARE:.0%} of {expected:g}"
                return problem("slow-gpu", f"{name}: {speed:.0f} TFLOPS", share)
        of = f" ({beside})" if beside else f" of {expected:g}" if expected else ""
        figures.append(f"{speed:.3g} TFLOPS in {answer['kind']}{of}")
    seen = _joined(figures)
    if any(min(each) < MIN_EVENNESS * max(each) for each in speeds.values()):
        return problem("uneven-gpus", seen, f"within {1 - MIN_EVENNESS:.0%} of each other")
    return passed(seen)


@check("clocks", "Clocks under load", needs="gemm", causes=SLOWED, level="full", skip=without_gpu)
def clocks(probes: Any, stack: Stack) -> Finding:
    """What reduces the clocks while the GPU computes. Its power limit is normal."""
    cards = [outcome.answer.get("card") for outcome in probes.gemms]
    if not any(cards):
        return skipped("nvidia-smi-unusable")
    for card in filter(None, cards):
        if found := slowed(card["slowed"]):
            return found
    limited = any("sw_power_cap" in card["slowed"] for card in filter(None, cards))
    return passed("at the power limit, which is normal under load" if limited else "not reduced")


@torch_check(
    "peers", "GPU-GPU copies", needs="tensor", causes=("peer-copies-wrong", *COMMON), level="full", skip=without_gpu
)
def peers(probes: Any, stack: Stack) -> Finding:
    """Copies from each GPU to each other GPU are correct, with peer-to-peer access or through host memory."""
    if len(probes.devices.found) < 2:
        return skipped("one-gpu")
    answer = probes.peers.result()
    if answer["wrong"]:
        first, second = answer["wrong"][0]
        return problem("peer-copies-wrong", f"from {first} to {second}: wrong values", "the values sent")
    way = "directly" if answer["direct"] == answer["pairs"] else "through the host" if not answer["direct"] else "mixed"
    return passed(f"correct, {way}")


@torch_check(
    "collective",
    "Ranks",
    "ranks-fail",
    needs="import room gpu kernels tensor peers",
    causes="shared-memory ranks-interface peer-access ranks-hang ranks-fail collective-results-wrong",
    level="full",
    skip=without_device,
)
def collective(probes: Any, stack: Stack) -> Finding:
    """all_reduce over all GPUs with NCCL; with fewer than two GPUs, over two processes on the CPU with gloo."""
    result = probes.collective.result()
    expected = "a sum over all ranks"
    ranks = f"{result['ranks']} {'GPUs' if result['kind'] == 'nccl' else 'processes on the CPU'}, {result['kind']}"
    if result["message"]:
        raise TorchError("", result["message"], device=ranks)
    if result["silent"]:
        return problem("ranks-hang", f"{ranks}: no response from {result['silent']}", expected)
    if result["wrong"]:
        return problem("collective-results-wrong", f"{ranks}: a wrong sum at {result['wrong']}", expected)
    if any(result["ended"]):
        return problem("ranks-fail", f"{ranks}: ended with {result['ended']}", expected)
    return passed(f"{ranks}: correct sum")
