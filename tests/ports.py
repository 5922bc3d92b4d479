"""Ports for servers that tests start."""

from __future__ import annotations

import contextlib
import os
import socket

# Below those that the system gives to any program, which it may do before a server uses one.
PORTS = range(10000, 32000)
given = os.getpid() * 101  # each process of the tests starts elsewhere


def free_port() -> int:
    """A port on which nothing listens, and which this process has not had before."""
    global given
    while True:
        given += 1
        port = PORTS[given % len(PORTS)]
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
