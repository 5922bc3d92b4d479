"""What an error text means: `./launch doctor --about FILE`, or `--about -` for what is pasted."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from gpukit.doctor.words import RULES
from gpukit.launcher.errors import classify

LONGEST = 1_000_000  # characters of a log that are looked at, from its end
VAGUE = ("The image cannot be built", "The NVIDIA driver does not answer", "The container has no")
TELLING = re.compile(r"\b\w*(?:error|exception|failed|failure|fatal|denied|refused)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Diagnosis:
    id: str
    cause: str
    remedy: str
    look: str
    line: str  # of the text, where it stands


def diagnose(text: str) -> Diagnosis | None:
    """The cause that a text names; None where nobody knows it. Never a guess."""
    text = plainly(text)
    for said in (text, re.sub(r"\s*\n\s*", " ", text)):  # the second where a terminal or a mail broke the lines
        for rule in RULES:
            found = re.search(rule.pattern, said, re.IGNORECASE | re.MULTILINE)
            if found:
                part = next((group for group in found.groups() if group), "")
                cause = rule.cause.replace("{0}", part).replace(" ()", "")
                return Diagnosis(rule.id, cause, rule.remedy, rule.look, _line(said, found.start()))
    known = classify(text)
    if known and not _vague(known[1]):
        cause, colon, remedy = known[1].partition(": ")
        if colon:
            remedy = remedy[:1].upper() + remedy[1:]
            return Diagnosis(known[0], f"{cause.rstrip('.')}.", remedy, "./launch doctor", _last(text))
    return None


def plainly(text: str) -> str:
    """Without a terminal's colours, and with the lines of a quotation as they were."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", text[-LONGEST:])
    return re.sub(r"^[ \t]*>[ \t]?", "", text, flags=re.MULTILINE)


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
    if re.search(r"Error response from daemon|docker|containerd|OCI runtime|nvidia-ctk|nvidia-container", text, re.I):
        return "`./launch doctor` looks at this machine and its engine."
    if re.search(r"cuda|torch|nccl|cudnn|Traceback|nvrtc|triton", text, re.I):
        return "`./launch verify` looks at PyTorch and the GPU inside; then search for that line as it is."
    return "`./launch doctor` and `./launch verify` look at what can be seen; then search for that line as it is."


def tell(source: str) -> int:
    """Print what is known. Exit code 0 where it is, 2 where it is not."""
    from gpukit.doctor.host import PROJECT
    from gpukit.finding import plain
    from gpukit.private import mask

    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        print(f"doctor: {source} cannot be read: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    hidden = mask(PROJECT).report  # what is printed here is often pasted elsewhere
    known = diagnose(text)
    if known:
        rows = (("seen", known.line), ("cause", known.cause), ("remedy", known.remedy), ("more", known.look))
        for name, said in rows:
            print(f"{name:<8}{hidden(plain(said))[:500]}")
        return 0
    lines = telling(text)
    if not lines:
        print("doctor: the text is empty", file=sys.stderr)
        return 2
    print("This text is not known here. Its most telling lines:")
    for line in lines:
        print(f"  {hidden(plain(line))[:500]}")
    print(next_to_look_at(text))
    return 2
