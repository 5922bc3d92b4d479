"""Messages to the user: progress on stderr, a refusal in one sentence, and "did you mean"."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence

ANNOUNCED = 2.0  # seconds after which the user should know what a command waits for
CALLED = "GPUKIT_CALLED"  # how launch was called, where `./launch --host` on another machine called it


class RefusalError(Exception):
    """The command cannot continue; the message is for the user, `code` the exit status.

    If it explains the error of another program: `kind` is what that is about, `id` its cause if known, `output` the
    program's own text.
    """

    def __init__(self, message: str, code: int = 1, kind: str = "", id: str = "", output: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.kind = kind
        self.id = id
        self.output = output


def say(message: str) -> None:
    """Print to stderr: stdout belongs to the program that runs."""
    print(as_called(message), file=sys.stderr, flush=True)


def enumerated(names: list[str]) -> str:
    """As a sentence names them: "a", "a and b", "a, b, and c"."""
    return ", ".join([*names[:-1], f"and {names[-1]}"]) if len(names) > 2 else " and ".join(names)


def some(names: Sequence[str], most: int = 5) -> str:
    """As a sentence names the first of many: "a, b and 7 more"."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(question: str, usual: bool = False) -> bool:
    """Whether the user answers yes; Enter is the usual answer, the end of the input (Ctrl-D) is no."""
    print(f"{question} {'[Y/n]' if usual else '[y/N]'} ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        print(file=sys.stderr)
    return usual if answer == "\n" else answer.strip().lower() in ("y", "yes")


@contextlib.contextmanager
def announced(what: str) -> Iterator[None]:
    """Say `what` if the block takes longer than two seconds: "Asking Docker ..."."""
    import threading  # here, because few commands need it

    timer = threading.Timer(ANNOUNCED, say, [what])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def simple(name: str) -> str:
    """The letters and digits of a name, by which two spellings are compared."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def alike(word: str, known: Iterable[str], least: float = 0.8) -> str:
    """The one of the known words that `word` was probably meant to be, or nothing."""
    from difflib import SequenceMatcher  # here, because only a mistake needs it

    def likeness(other: str) -> float:
        same = SequenceMatcher(None, simple(word), simple(other)).ratio()
        return same + 0.08 if simple(word)[:1] == simple(other)[:1] else same  # the first letter is seldom mistyped

    best = max(known, key=likeness, default="")
    return best if best and likeness(best) >= least else ""


def plain(text: str) -> str:
    """The output of a tool as one line, without control characters and without passwords in URLs."""
    text = " ".join(re.sub(r"\033\[[0-9;]*[A-Za-z]", "", text).split())
    text = "".join(character for character in text if character.isprintable())
    return re.sub(r"(?<=://)[^/@\s]+@", "***@", text)


def as_called(text: str, project: bool = True) -> str:
    """A text with our commands as they are called here: `./launch doctor` in a project, `gpukit doctor` outside one.

    And with our files where they are: apt.txt, in an adopted repository, is `.gpukit/apt.txt`.
    """
    called = os.environ.get(CALLED, "./launch") if project else "gpukit"
    from gpukit.project.location import named  # here, because it is slow, and few commands have something to say

    text = named(text)
    return text if called == "./launch" else re.sub(r"\./launch\b", lambda _: called, text)
