"""A server on loopback that answers as package indexes and registries do."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.ports import listening


@dataclass
class Web:
    """What is served, and what was asked for. `pages`: instead of `answers`, for who asks for HTML; `dropped`: how many
    connections are cut before an answer; `ranges`: whether parts can be asked for; `status`: of all answers, if given.
    """

    answers: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    pages: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    dropped: int = 0
    ranges: bool = False
    status: int = 0
    url: str = ""

    def package(self, name: str, *files: str, **requires: list[str]) -> None:
        """A page with files such as `1.0-py3-none-any`, or `1.0` for a source archive; `v1_0`: what it requires."""
        listed = []
        for each in files:
            version, _, tags = each.partition("-")
            wheel = f"{name.replace('-', '_')}-{version}-{tags}.whl"
            filename = wheel if tags else f"{name}-{version}.tar.gz"
            needs = requires.get(f"v{version.replace('.', '_')}", [])
            text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            text += "".join(f"Requires-Dist: {need}\n" for need in needs)
            self.answers[f"/files/{filename}.metadata"] = ("text/plain", text.encode())
            self.answers[f"/files/{filename}"] = ("application/zip", b"0" * 1000)
            year = 2026 if version >= "2" else 2023
            listed.append(
                {"filename": filename, "url": f"/files/{filename}", "size": 1000, "upload-time": f"{year}-01-01T00:00Z"}
            )
        page = {"meta": {"api-version": "1.1"}, "name": name, "files": listed}
        self.answers[f"/simple/{name}/"] = ("application/vnd.pypi.simple.v1+json", json.dumps(page).encode())
        links = [f'<a href="{each["url"]}#sha256=0">{each["filename"]}</a>' for each in listed]
        self.pages[f"/simple/{name}/"] = "\n".join(links).encode()

    def image(self, name: str, *archs: str) -> str:
        """An image with a layer of 1000 bytes for each architecture."""
        kind = "application/vnd.oci.image.manifest.v1+json"
        manifests = []
        for arch in archs:
            body = json.dumps({"mediaType": kind, "layers": [{"size": 1000}], "arch": arch}).encode()
            digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
            self.answers[f"/v2/{name}/manifests/{digest}"] = (kind, body)
            manifests.append({"digest": digest, "platform": {"os": "linux", "architecture": arch}})
        index = "application/vnd.oci.image.index.v1+json"
        self.answers[f"/v2/{name}/manifests/1"] = (index, json.dumps({"manifests": manifests}).encode())
        return f"{self.url.removeprefix('http://')}/{name}:1"


@contextlib.contextmanager
def serving() -> Iterator[Web]:
    served = Web()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            served.asked.append(self.path if self.command == "GET" else f"{self.command} {self.path}")
            if served.dropped:
                served.dropped -= 1
                self.close_connection = True
                return
            kind, body = served.answers.get(self.path, ("", None))
            if body and self.path in served.pages and (self.headers["Accept"] or "").startswith("text/html"):
                kind = "text/html"
                body = served.pages[self.path]
            part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"] or "") if served.ranges else None
            self.send_response(served.status or (404 if body is None else 206 if part else 200))
            if served.ranges:
                self.send_header("Accept-Ranges", "bytes")
            if body and part:
                body = body[int(part[1]) : int(part[2]) + 1]
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body or b"")

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with listening(Handler) as server:
        served.url = f"http://127.0.0.1:{server.server_port}"
        yield served
