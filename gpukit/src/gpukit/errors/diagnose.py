"""Find the causes of an error text: the only matcher of the rules."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from gpukit.errors.evidence import Case
from gpukit.errors.machine import Machine, machine_in_text
from gpukit.errors.reading import joined, plain
from gpukit.errors.rule import BROAD, GENERAL, NOTE, SPECIFIC, Rule
from gpukit.errors.rules import RULES
from gpukit.findings.finding import Cause

CERTAIN, LIKELY, UNKNOWN, NOTHING = "certain", "likely", "unknown", "nothing"
MAX_CAUSES = 3  # in a likely diagnosis

# Lines that report no error, whatever they contain.
NO_ERROR_LINE = re.compile(
    r"\bNCCL (?:INFO|VERSION)\b|^I\d{4} \d\d:|\bPASSED\b|^\[(?:pip3|conda)\] |Unable to register cu\w+ "
    r"factory|debconf: |"
    r"^\s*(?:Collecting|Downloading|Requirement already satisfied|Using cached|Successfully|Get:\d|Hit:\d|Setting up|"
    r"Preparing to unpack|Unpacking|Selecting previously)\b|"
    r"^(?:Is )?[\w -]+ (?:version|used to build \w+|available|models and configuration|platform)(?: \(.*\))?: "
)
# Lines that a program logs as information. They count only in a short text that has no other lines.
INFO_LINE = re.compile(
    r"^\[I \d|(?:^|[\s\[|(])(?:INFO|DEBUG)[\s:\]|)-]|level=\"?(?:info|debug)|\"level\": ?\"(?:info|debug)\"",
    re.IGNORECASE,
)
ERROR_IN_INFO = re.compile(r"Traceback|\b\w*Error: |no space left|permission denied|connection refused", re.IGNORECASE)
# Lines that report an error, to decide whether a text has one.
ERROR_LINE = re.compile(
    r"^\s*(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt|Exit)\b(?:: |$)|Traceback \(most "
    r"recent|\b(?:fatal|error|panic)\b ?(?:\[\w+\])?: |"
    r"^E: |^Stacktrace:|\bERROR\b|\bFATAL\b|\bCRITICAL\b|core dumped|Segmentation fault|Killed\b|Aborted|Bus error|"
    r"(?:exit(?:ed)?(?: with)?(?: code| status)|exitcode ?:|returned) (?:non-zero|-?[1-9])|"
    r"\b(?:failed|cannot|could not|couldn't|unable to|denied|refused|not found|no such|invalid|unsupported|mismatch)\b",
    re.IGNORECASE,
)
ZERO_ERRORS = re.compile(
    r"\b0 (?:errors?|failed|failures)|(?:errors?|failed|failures)[:=] ?0\b|\bno errors?\b", re.IGNORECASE
)
# Output of a program that continues, or ends successfully.
PROGRESS = re.compile(
    r"\b(?:step|epoch|iter(?:ation)?)s?\b[ :=\[]*\d+.*\b(?:loss|lr|acc|it/s|s/it)|\d+%\|.*\d+/\d+|"
    r"'(?:train_)?loss': |\bloss[=: ]+\d|\d(?:\.\d+)? ?(?:it/s|s/it|tok(?:ens)?/s)|\"(?:GET|POST) \S+ HTTP/[\d.]+\" "
    r"2\d\d",
    re.IGNORECASE,
)
SUCCESS = re.compile(
    r"\b(?:training|run|fit|job|evaluation|build|test(?:s|ing)?|export|generation)\b.{0,30}\b(?:finished|completed?|"
    r"done|succeeded|successful)|"
    r"(?:saved?|saving|wrote|written)\b.{0,60}(?:checkpoint|model|weights|adapter|\.pt\b|\.safetensors|to "
    r")|`?Trainer\.fit` stopped:|"
    r"'train_runtime':|\b\d+ passed\b(?!.*\bfailed)|Successfully (?:built|installed|tagged)|exit(?:ed)?(?: with)? "
    r"(?:code|status):? 0\b|"
    r"\b100%\|.*(\d+)/\1\b|^\s*(?:done|finished|success|ok)[.!]?\s*$|synced \d+ W&B file|writing image sha256",
    re.IGNORECASE,
)
NOT_SUCCESS = re.compile(r"\bnot\b|error|fail|unsuccessful", re.IGNORECASE)
# Stack traces of other languages, whose errors are not covered unless the text mentions GPU software.
OTHER_LANGUAGES = re.compile(
    r"^\s*at [\w$.<>/]+\([\w$]+\.(?:java|kt|scala|groovy):\d+\)|Caused by: [\w.]+Exception|"
    r"Exception in thread \"|^npm (?:ERR!|error)|goroutine \d+ \[|\.rb:\d+:in |PHP (?:Fatal|Warning|Parse)|"
    r"^\s+at [^\n]+\.(?:js|ts|mjs|cs|php):(?:line )?\d+|BUILD FAILED in |error\[E\d{4}\]|error (?:CS|TS)\d{4}",
    re.MULTILINE,
)
GPU_SOFTWARE = re.compile(
    r"nvidia|cuda|\bGPUs?\b|torch|tensorflow|\bjax\b|triton|docker|podman|containerd|\brunc\b|\bcrun\b|buildx|"
    r"devcontainer|vscode|"
    r"transformers|hugging|\bhf_|diffusers|accelerate|deepspeed|vllm|sglang|unsloth|\bpeft\b|\btrl\b|lightning|"
    r"flash.?attn|xformers|"
    r"wandb|mlflow|jupyter|\bnccl|\bWSL\b|Xid|NVRM|tegra|jetson|\bnvcc\b|nvml|cudnn|cublas|slurm|DataLoader|"
    r"safetensors|"
    r"response from daemon|OCI runtime|exec format|^E: "
    r"|debconf|apt-get|\bpip\b|\bpip3\b|conda\b|\buv\b|site-packages|\bapt\b|\bdpkg\b|dkms|modprobe|mokutil|nouveau|"
    r"dracut|\bkernel "
    r"module\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Found:
    """A possible cause, with its placeholders filled in. `decided`: the fact that supports it."""

    cause: Cause
    why: str
    remedy: str
    standalone: str
    tell: str
    decided: str
    rule: Rule
    line: str


@dataclass(frozen=True)
class Diagnosis:
    """`causes`: one if certain, up to three if likely, the most likely first. `line`: the line that matched.

    If the text reports no error, `causes` has its warnings.
    """

    confidence: str
    causes: tuple[Found, ...] = ()
    line: str = ""
    program: bool = False  # the error is in the user's program, its data, or a server


@dataclass(frozen=True)
class Hit:
    rule: Rule
    match: re.Match[str]
    line: str
    number: int  # of the line


class Text:
    """An error text, prepared for searching."""

    def __init__(self, text: str) -> None:
        self.text, self.lower = text, text.lower()
        self.lines = text.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.quiet = [bool(NO_ERROR_LINE.search(line)) for line in self.lines]
        informs = [bool(INFO_LINE.search(line) and not ERROR_IN_INFO.search(line)) for line in self.lines]
        if len(self.lines) > 12 or not all(
            map(any, zip(self.quiet, informs, (not line.strip() for line in self.lines)))
        ):
            self.quiet = [any(pair) for pair in zip(self.quiet, informs)]

    def number(self, place: int) -> int:
        return bisect_right(self.starts, place) - 1

    def hit(self, rule: Rule) -> Hit | None:
        match = rule.find(self.text, self.lower, lambda place: self.quiet[self.number(place)])
        if match is None:
            return None
        number = self.number(match.start())
        return Hit(rule, match, self.lines[number].strip(), number)

    def alarms(self) -> list[int]:
        """The numbers of the lines that report an error."""
        return [
            number
            for number, line in enumerate(self.lines)
            if not self.quiet[number] and ERROR_LINE.search(line) and not ZERO_ERRORS.search(line)
        ]


def diagnose(text: str, machine: Machine | None = None, kinds: Collection[str] | None = None) -> Diagnosis:
    """The possible causes of a text on a machine. Facts in the text itself take precedence over `machine`.

    Args:
        kinds: use only rules of these kinds, for commands that handle errors of an engine or uv
    """
    whole, hits, named = _read(text, None if kinds is None else frozenset(kinds))
    text = whole.text
    case = Case(text, named.over(machine or Machine()))
    if kinds is None and OTHER_LANGUAGES.search(text) and not GPU_SOFTWARE.search(text):
        return Diagnosis(UNKNOWN, program=True)
    possible = [(hit, causes) for hit in hits if hit.rule.level != NOTE and (causes := _possible(hit, case))]
    if kinds is None and _succeeded(whole, [hit for hit, _ in possible]):
        return Diagnosis(NOTHING, tuple(found for hit in hits for found in _possible(hit, case)[:1]))
    if possible:
        return _answer(possible, text)
    notes = tuple(found for hit in hits for found in _possible(hit, case)[:1])
    return Diagnosis(NOTHING, notes) if notes and not _others(whole, hits) else Diagnosis(UNKNOWN)


@lru_cache(maxsize=2)  # the same text is diagnosed again with other answers of the user
def _read(text: str, kinds: frozenset[str] | None) -> tuple[Text, list[Hit], Machine]:
    """The plain text, the rules that match it, and the facts about the machine in it."""
    whole = Text(plain(text))
    hits = _hits(whole, [rule for rule in RULES if kinds is None or rule.kind in kinds])
    return whole, hits, machine_in_text(whole.text)


def _hits(whole: Text, rules: list[Rule]) -> list[Hit]:
    """The matches, in the order of the rules. If no specific rule matches, the text with joined lines counts too."""
    found = {rule.id: hit for rule in rules if (hit := whole.hit(rule))}
    if not any(hit.rule.level == SPECIFIC for hit in found.values()):
        spoken = "\n".join(line for line, quiet in zip(whole.lines, whole.quiet) if not quiet)
        for each in joined(spoken):
            other = Text(each)
            for rule in rules:
                if rule.id not in found and rule.level in (SPECIFIC, BROAD) and (hit := other.hit(rule)):
                    found[rule.id] = replace(hit, number=whole.number(max(0, whole.text.find(hit.line[:30]))))
    return [found[rule.id] for rule in rules if rule.id in found]


def _possible(hit: Hit, case: Case) -> list[Found]:
    """The causes of a rule that are not ruled out; those with supporting evidence first."""
    decided: list[tuple[int, Found]] = []
    excluded = ""
    for cause in hit.rule.causes:
        verdict = cause.given.test(case) if cause.given else None
        if verdict is False:
            excluded = excluded or cause.given.reason(case)
        else:
            decided.append((0 if verdict else 1, _found(hit, cause, cause.given.reason(case) if verdict else "")))
    if excluded and len(decided) == 1 and not decided[0][1].decided:
        decided = [(1, _found(hit, decided[0][1].cause, excluded))]
    return [found for _, found in sorted(decided, key=lambda pair: pair[0])]


def _found(hit: Hit, cause: Cause, decided: str) -> Found:
    part = next((group for group in hit.match.groups() if group), "")
    texts = [_filled(text, part) for text in (cause.why, cause.remedy, cause.standalone, cause.tell)]
    return Found(cause, *texts, decided, hit.rule, hit.line)


def _filled(sentence: str, part: str) -> str:
    """Fill in the placeholder with the matched part of the text, or with a generic expression if it is empty."""
    if "{0}" not in sentence:
        return sentence
    if part:
        return sentence.replace("{0}", " ".join(part.split()).strip().rstrip("."))
    sentence = sentence.replace(" ({0})", "")
    if sentence.startswith("{0}"):
        return sentence.replace("{0}", "What that line names")
    return re.sub(r"\b(package|library|variable|image|file) `?\{0\}`?", r"\1", sentence).replace(
        "{0}", "what that line names"
    )


def _answer(possible: list[tuple[Hit, list[Found]]], text: str) -> Diagnosis:
    (first, causes), *rest = possible
    specific = [hit.rule.level == SPECIFIC for hit, _ in rest]
    program = first.rule.program or (first.rule.level == GENERAL and not GPU_SOFTWARE.search(text))
    if first.rule.certain and len(causes) == 1 and not any(specific):
        return Diagnosis(CERTAIN, (causes[0],), first.line, program)
    others = [found[0] for hit, found in rest if hit.rule.level in (SPECIFIC, first.rule.level)]
    elsewhere = [found for found in others if found.line != first.line and found.rule.level == SPECIFIC]
    order = [*causes[: MAX_CAUSES - bool(elsewhere)], *elsewhere[:1], *causes, *others]
    chosen: dict[str, Found] = {}
    for found in order:  # includes the other error of a text
        chosen.setdefault(found.cause.id, found)
    return Diagnosis(LIKELY, tuple(chosen.values())[:MAX_CAUSES], first.line, program)


def _succeeded(whole: Text, hits: list[Hit]) -> bool:
    """Whether the program continued to its end after what looks like an error."""
    last = max((hit.number for hit in hits), default=-1)
    after = [line for line in whole.lines[last + 1 :] if line.strip()]
    if not after or (last >= 0 and any(number > last for number in whole.alarms())):
        return False
    if last < 0 and whole.alarms():
        return any(map(_reports_success, after[-3:])) and not _traceback(after)
    goes_on = any(map(_reports_success, after[-8:])) or sum(1 for line in after if PROGRESS.search(line)) >= 2
    return goes_on or (last < 0 and (any(whole.quiet) or len(after) >= 5))


def _reports_success(line: str) -> bool:
    return bool(SUCCESS.search(line)) and not NOT_SUCCESS.search(line)


def _traceback(lines: list[str]) -> bool:
    return any("Traceback (most recent" in line for line in lines[-40:])


def _others(whole: Text, hits: list[Hit]) -> bool:
    """Whether the text reports an error in addition to these warnings."""
    known = {hit.number for hit in hits}
    return any(number not in known for number in whole.alarms())


def relevant(text: str) -> Iterator[str]:
    """The most relevant lines of an unknown text."""
    whole = Text(plain(text))
    alarms = whole.alarms()
    strong = [
        n
        for n in alarms
        if re.search(r"\b\w*(?:Error|Exception)\b|\b(?:fatal|failed|denied|refused)\b", whole.lines[n])
    ]
    chosen = (strong or alarms or [n for n, line in enumerate(whole.lines) if line.strip()])[-3:]
    return (whole.lines[number].strip() for number in chosen)
