"""Read an error text from a file or pipe of any size, and remove what terminals and issue forms add."""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Iterator
from typing import BinaryIO

CHUNK = 1 << 20  # bytes read at a time
MAX_LINE = 4_000  # characters of a line that are kept, half from each end
MAX_SHAPES = 10_000  # lines that differ in more than digits; after that, only lines that report an error are kept
MAX_ERRORS = 5_000  # of these and the lines after them; the last ones are kept
AFTER_ERROR = 2  # lines that are kept with one that reports an error
LAST_LINES = 500  # lines at the end that are always kept
MAX_TEXT = 90_000  # characters in all

DIGITS = bytes.maketrans(b"123456789", b"000000000")
ERRORS = re.compile(b"error|exception|fail|fatal|denied|refused|cannot|traceback|killed|xid|invalid|not found|unable")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\u2500-\u257f\u200b\ufeff]")
PREFIX = r"(?:[ \t]*>(?!>>)[ \t]?|\[rank\d+\]: ?|E {3}(?=\s|\S+: )|\([\w=, ]+\) ERROR \d\d-\d\d [\d:]+ \[\S+\] ?)+"
QUOTES = str.maketrans("\u2018\u2019\u201c\u201d\u00a0", "''\"\" ")


class NotTextError(Exception):
    """The input is not a text; the message is for the user."""


def read(stream: BinaryIO) -> str:
    """Read a stream in bounded memory: of lines that differ only in digits, the first and the last are kept.

    Raises:
        NotTextError: it is a binary file
    """
    first: dict[bytes, tuple[int, bytes]] = {}
    last: dict[bytes, tuple[int, bytes]] = {}
    errors: deque[tuple[int, bytes]] = deque(maxlen=MAX_ERRORS)
    end: deque[tuple[int, bytes]] = deque(maxlen=LAST_LINES)
    number = 0  # of the line
    for lines in _chunks(stream):
        others = []
        for line in lines:
            number += 1
            if len(line) > MAX_LINE:
                line = line[: MAX_LINE // 2] + b" ... " + line[-MAX_LINE // 2 :]
            shape = line.translate(DIGITS)
            if shape in first:
                last[shape] = (number, line)
            elif len(first) < MAX_SHAPES:
                first[shape] = (number, line)
            else:
                others.append((number, line))
        errors.extend(_last_errors(others))
        end.extend(others)
    kept = sorted({*first.values(), *last.values(), *errors, *end})
    return _relevant([line for _, line in kept]).decode("utf-8", "replace")


def _last_errors(lines: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """The last lines that report an error, each with those after it, in order."""
    found: list[tuple[int, bytes]] = []
    for place in reversed(range(len(lines))):
        if len(found) >= MAX_ERRORS:
            break
        if ERRORS.search(lines[place][1].lower()):
            found += reversed(lines[place : place + 1 + AFTER_ERROR])
    return found[::-1]


def _relevant(lines: list[bytes]) -> bytes:
    """If a text is too long: the lines that report an error with the next two, and the start and the end."""
    text = b"\n".join(lines)
    if len(text) > MAX_TEXT:
        errors = [number for number, line in enumerate(lines) if ERRORS.search(line.lower())]
        near = {number + more for number in errors for more in range(1 + AFTER_ERROR)}
        near |= {*range(LAST_LINES), *range(len(lines) - LAST_LINES, len(lines))}
        text = b"\n".join(line for number, line in enumerate(lines) if number in near)
    if len(text) > MAX_TEXT:
        start = text[: MAX_TEXT // 3].rpartition(b"\n")[0]
        end = text[-(MAX_TEXT - MAX_TEXT // 3) :].partition(b"\n")[2]
        text = start + b"\n" + end
    return text


def _chunks(stream: BinaryIO) -> Iterator[list[bytes]]:
    """The lines of a stream as UTF-8, whatever its encoding, some at a time; very long lines are split."""
    chunk = stream.read(CHUNK)
    encoding = _encoding(chunk)
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace") if encoding else None
    rest = b""
    while chunk:
        data = rest + (decoder.decode(chunk).encode("utf-8", "replace") if decoder else chunk)
        *lines, rest = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        if len(rest) > CHUNK:
            lines.append(rest)
            rest = b""
        yield lines
        # A short read is the end: on a terminal, another read would wait for a second Ctrl-D.
        chunk = stream.read(CHUNK) if len(chunk) == CHUNK else b""
    if rest:
        yield [rest]


def _encoding(start: bytes) -> str:
    """The encoding by the first bytes: UTF-16, which Windows' terminals write; empty for UTF-8.

    Raises:
        NotTextError: it is a binary file
    """
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    head = start[:4096]
    if head.startswith(b"\x1f\x8b"):
        raise NotTextError("it is compressed: `gunzip -c FILE | gpukit explain -`")
    nulls = [head[place::2].count(0) * 2 for place in (0, 1)]
    if len(head) >= 4 and max(nulls) > 0.6 * len(head) and min(nulls) < 0.1 * len(head):
        return "utf-16-be" if nulls[0] > nulls[1] else "utf-16-le"
    controls = len(re.findall(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]", head))
    if head.count(0) > 2 or controls > 0.1 * len(head) > 1:
        raise NotTextError("it is a binary file, not a text")
    return ""


def plain(text: str) -> str:
    """Remove colors, frames, and what launchers and issue forms put before lines, and straighten quotation marks."""
    text = ESCAPES.sub("", text).translate(QUOTES)
    return re.sub(rf"^{PREFIX}|[ \t]+$", "", text, flags=re.MULTILINE)[-MAX_TEXT:]


RECORD = re.compile(  # the start of a new record: the line before does not continue here
    r"\s*(?:\[|\(|#\d|\d{4}-\d\d|\w{3} \d+ \d\d:|File \"|Traceback|>>>|\^|\$ |- |\* |\w+(?:Error|Exception|Warning): |"
    r"(?:ERROR|WARNING|INFO|DEBUG|error|warning|note|hint)\b)|\s*$"
)


def joined(text: str) -> list[str]:
    """The text with lines joined that a terminal or an issue form may have wrapped, in one or two variants."""
    lines = text.split("\n")
    if not 2 <= len(lines) <= 500:
        return []
    if len(lines) <= 12:
        return [re.sub(r"\s*\n\s*", " ", text), re.sub(r"\n[ \t]*", "", text)]
    width = max((len(line) for line in lines if len(line) <= 240), default=0)
    if width < 50:
        return []
    results = []
    for glue, enough in ((" ", 0.7 * width), ("", width)):
        pieces = [lines[0]]
        for before, line in zip(lines, lines[1:]):
            if len(before) >= enough and not RECORD.match(line):
                pieces[-1] = pieces[-1].rstrip(" " * bool(glue)) + glue + line.strip()
            else:
                pieces.append(line)
        results.append("\n".join(pieces))
    return [each for each in dict.fromkeys(results) if each != text]
