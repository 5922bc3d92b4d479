"""Messages to the user: progress on stderr, and a refusal in one sentence."""

from __future__ import annotations

import sys


class RefusalError(Exception):
    """The command cannot continue; the message is for the user, `code` the exit status.

    If it explains the error of another program: `kind` is what that is about, `id` its cause if known, `output` the
    program's own text.
    """

    def __init__(self, message: str, code: int = 1, kind: str = "", id: str = "", output: str = "") -> None:
        super().__init__(message)
        self.code, self.kind, self.id, self.output = code, kind, id, output


def say(message: str) -> None:
    """Print to stderr: stdout belongs to the program that runs."""
    print(message, file=sys.stderr, flush=True)
