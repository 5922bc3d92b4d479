"""A server that records what trackers ask it, and refuses everything."""

from __future__ import annotations

import base64
import contextlib
import gzip
import http.server
import json
from collections.abc import Iterator

from tests.ports import listening


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        given = base64.b64decode(given).decode() if kind == "Basic" else given
        self.server.asked.append((self.path, given, body.decode(errors="replace")))
        answer = json.dumps({"error_code": "INVALID_PARAMETER_VALUE", "message": "no", "errors": [{"message": "no"}]})
        self.send_response(400)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())

    do_GET = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None: ...


@contextlib.contextmanager
def recorder(host: str = "127.0.0.1") -> Iterator[http.server.HTTPServer]:
    """`asked`: (path, user:password, body) of each request, in order."""
    with listening(_Handler, host) as server:
        server.asked = []
        server.place = f"{host}:{server.server_port}"
        yield server
