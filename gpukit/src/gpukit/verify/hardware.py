"""Memory, speed and health of the GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, count, passed, skipped
from gpukit.project.stack import Stack
from gpukit.verify.compute import ECC_STATE, FAILS
from gpukit.verify.device import without
from gpukit.verify.references import reference
from gpukit.verify.remedies import DOCTOR
from gpukit.verify.torch_errors import COMMON, diagnose

# A lane of PCI Express, in GB/s and one direction, after the encoding of the line (PCI-SIG).
LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
# Of what the link carries, this much arrives on a healthy machine: headers take a tenth to a fifth, the way by another
# processor or out of a virtual machine up to half. Less is another load, or a host that cannot keep up.
LINK = 0.3
# Well-tuned libraries reach 70 to 90 % of the data sheet on a healthy card; half is no question of tuning any more.
SPEED = 0.5
# Cards of one kind in one machine differ by a tenth, the warmer one a little more.
SPREAD = 0.75

# What holds clocks back under load. A power cap is how a card works at its limit, and no trouble.
SLOW_HEAT = ("hw_thermal_slowdown", "sw_thermal_slowdown")
SLOW_POWER = ("hw_power_brake_slowdown", "hw_slowdown")
# Those that NVIDIA's list gives to hardware; a program's own mistakes (13, 31, 43, 45) are not among them.
XIDS = {
    48: "a memory error that cannot be corrected",
    63: "memory rows were taken out of use",
    64: "a memory row could not be taken out of use",
    74: "an error of NVLink",
    79: "the GPU fell off the bus",
    94: "a contained memory error",
    95: "a memory error that was not contained",
    119: "the GPU's system processor does not answer",
    120: "an error of the GPU's system processor",
}

READS_BACK = Cause("The GPU's memory gives back other values than were written.", ECC_STATE)
NOT_CAUGHT = Cause("More memory than there is was granted: torch's limit or the driver's is not at work.", DOCTOR)
NOT_BACK = Cause("After an out-of-memory error the GPU does not work on, or keeps the memory.", DOCTOR)
NOT_PINNED = Cause(
    "Memory of the host cannot be pinned, which every fast copy to the GPU needs.",
    DOCTOR,
    says=("CUDA error: OS call failed", "cudaHostAlloc", "pin_memory"),
)
SLOW_LINK = Cause(
    "Copies reach less than a third of what the negotiated link carries: another load is on it, or the host is slow.",
    "Look at it with nothing else running; then on the host: nvidia-smi -q -d PERFORMANCE",
    status=WARN,
)
SLOW = Cause(
    "The card computes at less than half of what its data sheet says, and nothing holds its clocks back.",
    "On the host: nvidia-smi -q -d PERFORMANCE,POWER,CLOCK while it runs",
    status=WARN,
)
UNEVEN = Cause(
    "GPUs of one kind differ in speed by more than a quarter, and the slowest sets the pace of all.",
    "On the host: nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE while it runs, for the slow one",
    status=WARN,
)
HOT = Cause(
    "The card slows down because it is too hot.", "Look at its fans and at the air that reaches it.", status=WARN
)
BRAKED = Cause(
    "The card is slowed down from outside: too little power reaches it.",
    "Look at its power cables and at the power supply.",
    status=WARN,
)
UNCORRECTED = Cause(
    "Memory errors occurred that ECC could not correct: results since then may be wrong.",
    "Restart the host; if they come back, the card has to be replaced",
    says=("uncorrectable ECC error encountered", "Xid 48"),
)
NO_SPARES = Cause(
    "A broken row of the card's memory could not be replaced: no spare is left.",
    "Have the card replaced.",
    says=("Xid 64",),
)
PENDING = Cause(
    "Broken rows of the card's memory are to be taken out of use, which waits for a reset.",
    "Restart the host, or reset the card there: sudo nvidia-smi --gpu-reset",
    status=WARN,
    says=("Xid 63",),
)
RECOVERY = Cause(
    "The driver asks for a recovery: {action}.",
    "Restart the host, or reset the card there: sudo nvidia-smi --gpu-reset",
    status=WARN,
)
XID = Cause(
    "The driver reported trouble with the hardware: {what}.",
    "On the host: sudo dmesg | grep Xid, then restart it",
    status=WARN,
    says=("NVRM: Xid",),
)
EXCLUSIVE = Cause(
    "Only one process at a time may compute on this GPU: a notebook and a training shut each other out.",
    "On the host: sudo nvidia-smi -c DEFAULT",
    status=WARN,
    says=("CUDA-capable device(s) is/are busy or unavailable",),
)
NO_SMI = "nvidia-smi does not answer in here"

Judge = Callable[[dict[str, Any]], "Finding | None"]


def _each(outcomes: Any, judge: Judge, causes: tuple[Cause, ...] = ()) -> Finding | None:
    """The first trouble on any GPU."""
    for outcome in outcomes:
        if outcome.error:
            return diagnose(outcome.error, (*causes, *COMMON), FAILS, f"on {outcome.device}", "")
        if finding := judge(outcome.answer):
            return finding
    return None


def _list(outcomes: Any, text: Callable[[dict[str, Any]], str]) -> str:
    """For one GPU its figures; for more, each with its number."""
    if len(outcomes) == 1:
        return text(outcomes[0].answer)
    return "; ".join(f"{index}: {text(outcome.answer)}" for index, outcome in enumerate(outcomes))


@check("health", "Card's health", needs=("gpu",), causes=(UNCORRECTED, NO_SPARES, PENDING, RECOVERY))
def health(saw: Any, stack: Stack) -> Finding:
    """ECC's errors, rows taken out of use, and what the driver asks for, as nvidia-smi says."""
    if missing := without(saw, stack):
        return missing
    if not saw.smi.cards:
        return skipped(f"{NO_SMI}: {saw.smi.message or 'it names no card'}.")
    for card in saw.smi.cards:
        if card.failure:
            return NO_SPARES(f"{card.name}: no spare row left", "none failed")
        if card.uncorrected:
            return UNCORRECTED(f"{card.name}: {count(card.uncorrected, 'uncorrected error')}", "none")
    for card in saw.smi.cards:
        if card.pending:
            return PENDING(f"{card.name}: rows or pages pending", "none")
        if card.recovery:
            return RECOVERY(f"{card.name}: {card.recovery}", "none", action=card.recovery)
    ecc = {0: "no memory errors", None: "memory without ECC, or unknown"}
    states = dict.fromkeys(ecc[card.uncorrected] for card in saw.smi.cards)
    heat = [str(card.temperature) for card in saw.smi.cards if card.temperature is not None]
    return passed(", ".join(states) + (f"; {', '.join(heat)} °C" if heat else ""))


@check("mode", "Compute mode", needs=("gpu",), causes=(EXCLUSIVE,))
def mode(saw: Any, stack: Stack) -> Finding:
    """Whether several processes may compute on a GPU at the same time, as notebooks beside a training do."""
    if missing := without(saw, stack):
        return missing
    modes = list(dict.fromkeys(card.mode for card in saw.smi.cards if card.mode not in ("", "N/A")))
    if not modes:
        return skipped("nvidia-smi does not tell.")
    if any(mode.startswith("Exclusive") for mode in modes):
        return EXCLUSIVE(", ".join(modes), "Default")
    return passed(", ".join(modes))


@check("xid", "Driver's messages", needs=("gpu",), causes=(XID,))
def xid(saw: Any, stack: Stack) -> Finding:
    """Xid messages of the driver in the kernel's log, which a container may seldom read."""
    if missing := without(saw, stack):
        return missing
    if saw.xids is None:
        return skipped("The kernel's log is not to be read in here; on the host: sudo dmesg | grep Xid.")
    for bus, number in saw.xids:
        if number in XIDS:
            return XID(f"Xid {number} of {bus}", "none of the hardware's", what=XIDS[number])
    return passed(f"none of the hardware's{f', {len(saw.xids)} of programs' if saw.xids else ''}")


@check("memory", "GPU memory", needs=("tensor",), causes=(READS_BACK, *COMMON, FAILS))
def memory(saw: Any, stack: Stack) -> Finding:
    """A pattern is written and read back: 1 GiB or a tenth of what is free, whichever is less. With --stress 80 % of
    what is free, half of it where CPU and GPU share memory, unless a display or another process holds the card."""
    if missing := without(saw, stack):
        return missing

    def judge(answer: dict[str, Any]) -> Finding | None:
        if answer["wrong"]:
            return READS_BACK(f"{answer['device']}: blocks {answer['wrong']} of 64 MiB differ", "what was written")
        return None

    if found := _each(saw.memory_patterns, judge):
        return found
    note = f"; no stress, since {saw.in_use_by} holds the GPU" if saw.stress and saw.in_use_by else ""
    figures = _list(
        saw.memory_patterns,
        lambda answer: (
            f"{answer['bytes'] / 2**30:.2g} of {answer['free'] / 2**30:.3g} GiB free"
            f"{' (shared with the CPU)' if answer['shared'] else ''}"
        ),
    )
    return passed(f"read back right: {figures}{note}")


@check("oom", "Out of memory", needs=("memory",), causes=(NOT_CAUGHT, NOT_BACK, *COMMON, FAILS))
def oom(saw: Any, stack: Stack) -> Finding:
    """More is asked for than there is: an error that a program can catch, and all of it given back."""
    if missing := without(saw, stack):
        return missing

    def judge(answer: dict[str, Any]) -> Finding | None:
        if not answer["caught"]:
            return NOT_CAUGHT("granted", "an error")
        if not answer["works"] or answer["kept"] > 0:
            return NOT_BACK(f"{answer['kept'] >> 20} MiB kept", "all given back")
        return None

    return _each((saw.out_of_memory,), judge) or passed("caught, and given back")


@check("transfer", "Host to GPU", needs=("tensor",), causes=(NOT_PINNED, SLOW_LINK, *COMMON, FAILS), level="full")
def transfer(saw: Any, stack: Stack) -> Finding:
    """Pinned memory, copied both ways, against what the link carries that is negotiated meanwhile."""
    if missing := without(saw, stack):
        return missing

    def link(answer: dict[str, Any]) -> float | None:
        card = answer["card"]
        known = card and not card["mig"] and card["gen"] in LANE and card["width"]
        return LANE[card["gen"]] * card["width"] if known else None

    def text(answer: dict[str, Any]) -> str:
        figures = f"{answer['to']:.3g} GB/s there, {answer['from']:.3g} back"
        return f"{figures}, of {link(answer):.3g}" if link(answer) else figures

    def judge(answer: dict[str, Any]) -> Finding | None:
        if not answer["pinned"]:
            return NOT_PINNED("not pinned", "pinned memory")
        carries = link(answer)
        if carries and min(answer["to"], answer["from"]) < LINK * carries:
            card = answer["card"]
            return SLOW_LINK(
                f"{answer['device']}: {text(answer)}", f"{LINK:.0%} of PCIe {card['gen']} x{card['width']}"
            )
        return None

    return _each(saw.transfers, judge, (NOT_PINNED,)) or passed(_list(saw.transfers, text))


def _unjudged(answer: dict[str, Any]) -> str:
    """Why a speed says nothing of the card: it is a part of one, held back, or not alone."""
    card = answer["card"] or {}
    if card.get("mig"):
        return "a slice"
    if answer.get("others"):
        return "beside another process"
    return "held back" if card.get("slowed") else ""


@check("gemm", "Speed", needs=("matmul",), causes=(SLOW, UNEVEN, *COMMON, FAILS), level="full")
def gemm(saw: Any, stack: Stack) -> Finding:
    """Two seconds of large products in half precision, against the card's data sheet where it is known here; for other
    cards the figure alone, and none of them is judged while another process or a limit holds it back."""
    if missing := without(saw, stack):
        return missing
    names = {f"cuda:{index}": device.name for index, device in enumerate(saw.devices.found)}
    speeds: dict[str, list[float]] = {}

    def judge(answer: dict[str, Any]) -> Finding | None:
        name = names[answer["device"]]
        expected = reference(name)
        if _unjudged(answer):
            return None
        speeds.setdefault(name, []).append(answer["tflops"])
        if expected and answer["tflops"] < SPEED * expected:
            return SLOW(f"{name}: {answer['tflops']:.0f} TFLOPS", f"at least {SPEED:.0%} of {expected:g}")
        return None

    def text(answer: dict[str, Any]) -> str:
        expected, why = reference(names[answer["device"]]), _unjudged(answer)
        beside = f" ({why})" if why else f" of {expected:g}" if expected else ""
        return f"{answer['tflops']:.3g} TFLOPS in {answer['kind']}{beside}"

    if found := _each(saw.gemms, judge):
        return found
    seen = _list(saw.gemms, text)
    if any(min(each) < SPREAD * max(each) for each in speeds.values()):
        return UNEVEN(seen, f"within {1 - SPREAD:.0%} of each other")
    return passed(seen)


@check("clocks", "Clocks under load", needs=("gemm",), causes=(HOT, BRAKED), level="full")
def clocks(saw: Any, stack: Stack) -> Finding:
    """What holds the clocks back while the card computes. Its power limit is how it works, and no trouble."""
    if missing := without(saw, stack):
        return missing
    cards = [outcome.answer.get("card") for outcome in saw.gemms]
    if not any(cards):
        return skipped(f"{NO_SMI}.")
    for card in filter(None, cards):
        for reasons, cause in ((SLOW_HEAT, HOT), (SLOW_POWER, BRAKED)):
            if active := [reason for reason in reasons if reason in card["slowed"]]:
                return cause(", ".join(active), "none")
    limited = any("sw_power_cap" in card["slowed"] for card in filter(None, cards))
    return passed("at its power limit, as it should be under load" if limited else "not held back")
