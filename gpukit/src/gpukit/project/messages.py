"""Messages to the user: progress on stderr, and a refusal in one sentence."""

from __future__ import annotations

import sys


class RefusalError(Exception):
    """The command cannot continue; the message is for the user, `code` the exit status, `kind` what it is about.

    `said` is the engine's own text where the refusal explains one.
    """

    def __init__(self, message: str, code: int = 1, kind: str = "", said: str = "") -> None:
        super().__init__(message)
        self.code, self.kind, self.said = code, kind, said


def say(message: str) -> None:
    """Print to stderr: stdout belongs to the program that runs."""
    print(message, file=sys.stderr, flush=True)
