"""Ports and servers of tests."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

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


@contextlib.contextmanager
def listening(handler: Callable[..., http.server.BaseHTTPRequestHandler], host: str = "127.0.0.1") -> Iterator:
    """An HTTP server in threads of this process, until the block ends."""
    with http.server.ThreadingHTTPServer((host, 0), handler) as server:
        server.daemon_threads = True
        server.handle_error = lambda *_: None  # a client that has gone
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


@contextlib.contextmanager
def files_of(folder: Path) -> Iterator[str]:
    """A server of a folder's files: its URL."""

    class Files(http.server.SimpleHTTPRequestHandler):
        def end_headers(self) -> None:
            self.send_header("Cache-Control", "no-cache")  # so that uv asks each time
            super().end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with listening(functools.partial(Files, directory=str(folder))) as server:
        yield f"http://127.0.0.1:{server.server_port}"
