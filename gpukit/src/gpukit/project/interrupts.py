"""Ctrl-C raises KeyboardInterrupt, as usual, and is remembered.

Python ignores exceptions in callbacks, and its imports have some (importlib, CPython 3.11): under load, one of twelve
interrupts while gpukit was being imported had no effect (2026-11-26).
"""

from __future__ import annotations

_arrived: list[int] = []


def watch() -> None:
    import signal  # here, because it is slow

    def arrive(number: int, _frame: object) -> None:
        _arrived.append(number)
        raise KeyboardInterrupt

    _arrived.clear()
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as nohup sets it
        signal.signal(signal.SIGINT, arrive)


def check() -> None:
    """Raise KeyboardInterrupt if there was one: call it before something starts."""
    if _arrived:
        raise KeyboardInterrupt
