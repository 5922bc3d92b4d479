"""What an error text means: `./launch explain FILE`, or `-` for a pasted text."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from gpukit.errors.refusals import VAGUE, classify
from gpukit.errors.rules import GENERAL, OPEN, PARTICULAR, Words

LONGEST = 1_000_000  # characters of a log that are read, from its end
DISTINCT = 80_000  # and that are looked at, once lines that differ in numbers only stand once
ENGINE = re.compile(
    r"docker|podman|daemon|container|OCI runtime|nvidia-c|failed to solve|buildx|compose|\bCDI\b|runc|"
    r"runtime (?:specified|name)|rlimit|toomanyrequests|device driver \"|--gpus",
    re.I,
)
GPU = re.compile(r"nvidia|cuda|\bGPUs?\b|\bCDI\b|libnvidia|--gpus", re.I)
ELSEWHERE = re.compile(  # how other languages' programs show where they failed
    r"^\s*at [\w$.<>/]+\([\w$]+\.(?:java|kt|scala|groovy):\d+\)|Caused by: [\w.]+Exception|"
    r"Exception in thread \"|^npm (?:ERR!|error)|goroutine \d+ \[|\.rb:\d+:in |PHP (?:Fatal|Warning|Parse)|"
    r"^\s+at [^\n]+\.(?:js|ts|mjs|cs|php):(?:line )?\d+|BUILD FAILED in |error\[E\d{4}\]|error (?:CS|TS)\d{4}",
    re.M,
)
OURS = re.compile(
    r"nvidia|cuda|\bGPUs?\b|torch|docker|podman|containerd|\brunc\b|python|\.py\b|\bpip\b|conda\b|\buv\b|hugging|"
    r"wandb|mlflow|jupyter|\bnccl|devcontainer|vscode|\bapt\b|\bdpkg\b|\bWSL\b|Xid",
    re.I,
)
NEXT = (  # what of an unknown text says where its cause is to be found, and where
    (
        r"ChildFailedError|exitcode\s*:|multiprocessing\.api:failed|mpirun noticed|Engine core init",
        "This only says that a process failed. The cause is the first traceback above, of the rank that failed first "
        "(torchrun --tee 3 --log-dir outputs/ranks keeps each rank's own).",
    ),
    (
        r"did not complete successfully: exit code|returned a non-zero code|executor failed running|failed to solve",
        "This only says that a step of the build failed. The cause is in the output of that step above; "
        "`./launch build` prints them all.",
    ),
    (
        r"Command failed: |postCreateCommand|vscode|devcontainer|Shell server|extension host",
        "VS Code repeats what failed: the message of the engine or the command is some lines above. "
        "`./launch up` starts the same container with less output, and `./launch doctor` checks the machine.",
    ),
    (
        r"Segmentation fault|SIGSEGV|exit(?:ed)?(?: with)? code:? 139|core dumped|Aborted",
        "`python -X faulthandler` shows the line that was running; `./launch verify` checks whether the compiled "
        "packages are compatible.",
    ),
    (
        r"Error response from daemon|docker|podman|crun|runc|containerd|OCI runtime|nvidia-ctk|nvidia-container|NVRM|"
        r"modprobe|dmesg|systemd",
        "`./launch doctor` checks this machine and its engine; then search the web for that exact line.",
    ),
    (
        r"CUDA error|illegal|cudnn|cublas|nvrtc|triton|nccl|ptxas",
        "Run it once with CUDA_LAUNCH_BLOCKING=1, and with NCCL_DEBUG=INFO for several GPUs, to find the right place; "
        "`./launch verify` checks PyTorch and the GPU in the container; then search the web for that exact line.",
    ),
    (
        r"Traceback|\w+(?:Error|Exception): |\.py\"?[:,] ",
        "Look at the last frame above that line that is in a file of yours; `./launch verify` checks whether PyTorch "
        "and the GPU work; then search the web for that exact line.",
    ),
    (
        r"",
        "`./launch doctor` and `./launch verify` check everything they can; then search the web for that exact line.",
    ),
)
TELLING = re.compile(r"\b\w*(?:error|exception|failed|failure|fatal|denied|refused)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Diagnosis:
    id: str
    cause: str
    remedy: str
    look: str
    line: str  # of the text, where it stands
    maybe: tuple[tuple[str, str], ...] = ()  # the causes that its words leave open, each with what it is told by

    @property
    def why(self) -> str:
        """The cause in one piece, with what it may be where it is open."""
        open_ = "; or ".join(f"{what} ({told})" for what, told in self.maybe)
        return f"{self.cause} It may be that {open_}." if open_ else self.cause


def diagnose(text: str) -> Diagnosis | None:
    """The cause that a text names; None where nobody knows it. Never a guess.

    What names one cause comes before what leaves several open, wherever in the text it stands.
    """
    text = distinct(plainly(text))
    if ELSEWHERE.search(text) and not OURS.search(text):
        return None  # the same words from a program that this project has nothing to do with
    return _named(text, PARTICULAR) or _engine(text) or _named(text, OPEN) or _named(text, GENERAL)


def _named(text: str, rules: tuple[Words, ...]) -> Diagnosis | None:
    for said in (text, re.sub(r"\s*\n\s*", " ", text)):  # the second where a terminal or a mail broke the lines
        for rule in rules:
            found = rule.find(said)
            if found:
                part = next((group for group in found.groups() if group), "")
                line = _line(said, found.start())
                return Diagnosis(rule.id, _cause(rule, part), rule.remedy, rule.look, line, rule.maybe)
    return None


def _cause(rule: Words, part: str) -> str:
    """The rule's sentence with what the text names in it, or fit to be read where it names nothing."""
    if part:
        return rule.cause.replace("{0}", part)
    cause = rule.cause.replace(" ({0})", "")
    if cause.startswith("{0}"):
        return cause.replace("{0}", "What that line names")
    return re.sub(r"\b(package|library|variable) \{0\}", r"\1", cause).replace("{0}", "what that line names")


def _engine(text: str) -> Diagnosis | None:
    """What launch knows of an engine's errors; its rules are meant for such a text only."""
    known = classify(text) if ENGINE.search(text) else None
    if not known or _vague(known[1]) or (known[0] == "gpu" and not GPU.search(text)):
        return None
    cause, colon, remedy = known[1].partition(": ")
    if not colon:
        return None
    remedy = remedy[:1].upper() + remedy[1:]
    return Diagnosis(known[0], f"{cause.rstrip('.')}.", remedy, "./launch doctor", _last(text))


def plainly(text: str) -> str:
    """Without a terminal's colours, frames and curly quotes, and with the lines of a quotation as they were."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r|[\u2500-\u257f]", "", text[-LONGEST:])
    text = text.translate(str.maketrans("\u2018\u2019\u201c\u201d", "''\"\""))
    return re.sub(r"^[ \t]*>[ \t]?", "", text, flags=re.MULTILINE)


def distinct(text: str) -> str:
    """Of lines that differ in numbers only, the first and the last: a log of many steps comes down to what it says."""
    lines = text.splitlines()
    shapes = [re.sub(r"\d+", "0", line) for line in lines]
    last = {shape: number for number, shape in enumerate(shapes)}
    first: dict[str, int] = {}
    for number, shape in enumerate(shapes):
        first.setdefault(shape, number)
    kept = (line for number, line in enumerate(lines) if number in (first[shapes[number]], last[shapes[number]]))
    return "\n".join(kept)[-DISTINCT:]


def _vague(sentence: str) -> bool:
    """launch's sentences that say no more than that something failed."""
    return sentence.startswith(VAGUE)


def _line(text: str, position: int) -> str:
    start, end = text.rfind("\n", 0, position) + 1, text.find("\n", position)
    return text[start : end if end >= 0 else len(text)].strip()


def telling(text: str) -> list[str]:
    """The lines of an unknown text that are likely to say most, as they are."""
    lines = [line.strip() for line in plainly(text).splitlines() if line.strip()]
    return ([line for line in lines if TELLING.search(line)] or lines)[-3:]


def _last(text: str) -> str:
    lines = telling(text)
    return lines[-1] if lines else ""


def next_to_look_at(text: str) -> str:
    return next(advice for pattern, advice in NEXT if re.search(pattern, text, re.IGNORECASE))


def report(source: str) -> int:
    """Print what is known. The exit code is 0 for one cause, and 2 for none or several."""
    from gpukit.findings.finding import plain
    from gpukit.findings.private import mask
    from gpukit.project.location import root

    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        print(f"explain: {source} cannot be read: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    hidden = mask(root()).report  # what is printed here is often pasted elsewhere
    known = diagnose(text)
    if known and known.maybe:
        print(f"seen    {hidden(plain(known.line))[:500]}")
        print(f"certain {hidden(plain(known.cause))[:500]}")
        print("This text has several possible causes:")
        for what, told in known.maybe:
            print(f"  - {what}: {told}")
        print(f"first   {known.remedy}")
        print(f"more    {known.look}")
        return 2
    if known:
        rows = (("seen", known.line), ("cause", known.cause), ("remedy", known.remedy), ("more", known.look))
        for name, said in rows:
            print(f"{name:<8}{hidden(plain(said))[:500]}")
        return 0
    lines = telling(text)
    if not lines:
        print("explain: the text is empty", file=sys.stderr)
        return 2
    print("This text is unknown. Its most relevant lines:")
    for line in lines:
        print(f"  {hidden(plain(line))[:500]}")
    print(next_to_look_at(text))
    return 2
