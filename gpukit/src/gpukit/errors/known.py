"""What a check does not know itself may be among the error texts that `./launch explain` knows."""

from __future__ import annotations

from dataclasses import replace

from gpukit.findings.finding import Cause


def known(text: str, otherwise: Cause) -> Cause:
    """The cause that a text names, with the status of `otherwise`; that one itself where nobody knows the words.

    What a user's program does wrong is no cause here: the programs are the checks' own.
    """
    from gpukit.errors.diagnose import diagnose  # many patterns, and seldom needed

    found = diagnose(text)
    if found is None or found.cause.startswith("The program itself"):
        return otherwise
    return replace(otherwise, why=found.why, remedy=found.remedy)
