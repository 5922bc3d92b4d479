"""Read package indexes for another platform, without downloading any package.

The simple repository API, as JSON or HTML, and a wheel's metadata, from the file beside it or from its end:
https://packaging.python.org/en/latest/specifications/simple-repository-api/ (2026-11-24).
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import html.parser
import http.client
import io
import json
import netrc
import re
import time
import urllib.parse
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from gpukit.host.client import Client, Response
from gpukit.host.registry import why
from gpukit.image.guard import normalised
from gpukit.project.messages import RefusalError

SECONDS = 20  # for one answer
TRIES = 3  # a proxy may drop a connection
JSON = "application/vnd.pypi.simple.v1+json"
DATED = f"{JSON}, text/html;q=0.1"
PAGE = "text/html, */*;q=0.1"  # a quarter smaller than JSON, which alone has sizes and dates
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
OLD_NAMES = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
METADATA_LIMIT = 16 << 20  # bytes of the end of a wheel; torch's table of contents has about 1 MB
SHA256 = re.compile(r"(?:^|#sha256=)([0-9a-f]{64})$")  # what JSON says of a file, or the fragment of its URL
PRE_RELEASE = re.compile(r"\d[-_.]?(?:a|b|c|rc|alpha|beta|pre|preview|dev)[-_.]?\d*", re.IGNORECASE)


@dataclass(frozen=True)
class Platform:
    """Where wheels are to be installed: `arch` (amd64, arm64), CPython's version, and the glibc of the system."""

    arch: str
    python: tuple[int, ...]
    glibc: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.arch} and Python {self.python[0]}.{self.python[1]}"

    def fits(self, file: File) -> bool:
        """Whether a wheel's tags say that it can be installed here."""
        python, abi, system = (tags.split(".") for tags in file.tags)
        return any(map(self._system, system)) and any(self._python(py, each) for py in python for each in abi)

    def _system(self, tag: str) -> bool:
        found = re.fullmatch(rf"(manylinux\w*?|linux)(?:_(\d+)_(\d+))?_{MACHINES[self.arch]}", tag)
        if tag == "any" or not found:
            return tag == "any"
        least = (int(found[2]), int(found[3])) if found[2] else OLD_NAMES.get(found[1], (0, 0))
        return least <= self.glibc

    def _python(self, tag: str, abi: str) -> bool:
        found = re.fullmatch(r"(cp|py)(\d)(\d*)", tag)
        if not found:
            return False
        least = (int(found[2]), int(found[3] or 0))
        if abi in ("none", "abi3"):  # for this version or, unless it names CPython's without an ABI, a newer one
            exact = found[1] == "cp" and abi == "none" and found[3]
            return least == self.python if exact else least[0] == self.python[0] and least <= self.python
        return abi == tag and least == self.python


@dataclass(frozen=True)
class File:
    """One file of a package: a wheel with its three tags, or a source archive."""

    version: str
    url: str
    tags: tuple[str, ...] = ()
    size: int = 0
    requires_python: str = ""
    yanked: bool = False
    uploaded: str = ""
    sha256: str = ""  # empty if the index does not tell it

    @property
    def filename(self) -> str:
        return filename(self.url)


@dataclass(frozen=True)
class Release:
    """What an index has of one version: the wheel that fits, the source archive, and whether others have wheels."""

    version: str
    wheel: File | None = None
    source: File | None = None
    other: File | None = None  # a wheel for another platform
    compiled: bool = False  # whether wheels for other platforms contain compiled code
    yanked: bool = False
    uploaded: str = ""

    @property
    def file(self) -> File | None:
        return self.wheel or self.source


class Indexes:
    """The indexes of this machine, in the order in which they are asked: the first one with a package counts."""

    def __init__(
        self,
        urls: Iterable[str],
        platform: Platform,
        received: dict[object, Response | None] | None = None,
        seconds: float = SECONDS,
        tries: int = TRIES,
    ) -> None:
        """`received`: answers that are not asked for again, of another platform in the same run. `seconds`: for each
        try to get an answer.
        """
        self.platform = platform
        self.received = {} if received is None else received
        self.tries = tries
        self.urls = [url.rstrip("/") for url in urls]
        self.client = Client(seconds)
        self.read: dict[tuple[str, str], bytes] = {}
        self.pages: dict[tuple[str, ...], dict[str, Release]] = {}

    def releases(self, name: str, first: tuple[str, ...] = (), accept: str = PAGE) -> dict[str, Release]:
        """All versions of a package, by version; empty if no index has it. `first`: indexes that are asked before;
        `accept`: DATED if dates are needed.
        """
        key = (accept, name, *first)
        if key not in self.pages:
            found: dict[str, Release] = {}
            for url in (*first, *self.urls):
                page = f"{url}/{name}/"
                answer = self.ask(page, {"Accept": accept}, missing=True)
                if answer is not None and (found := releases_of(files(name, page, answer), self.platform)):
                    break
            self.pages[key] = found
        return self.pages[key]

    def metadata(self, name: str, release: Release) -> bytes:
        """The same as `_metadata`, asked once."""
        key = (name, release.version)
        if key not in self.read:
            self.read[key] = self._metadata(name, release)
        return self.read[key]

    def _metadata(self, name: str, release: Release) -> bytes:
        """METADATA of a wheel of the release; of a source archive what the index knows, perhaps only its name."""
        file = release.wheel or release.other
        if file is None:
            return self._of_source(name, release)
        beside = self.ask(f"{without_fragment(file.url)}.metadata", {}, missing=True)
        return beside.body if beside else self._from_end(file)

    def _of_source(self, name: str, release: Release) -> bytes:
        """A source archive's requirements are known before it is built only where the index has read them."""
        requires: list[str] = []
        for url in self.urls:
            if url.endswith("/simple"):
                parts = (f"/{name}/{release.version}/json", f"/{name}/json")
                for part in parts:
                    answer = self.ask(f"{url[: -len('/simple')]}/pypi{part}", {}, missing=True)
                    with contextlib.suppress(ValueError, AttributeError, TypeError):
                        info = json.loads(answer.body)["info"] if answer else {}
                        if info.get("version") == release.version:
                            requires = [str(each) for each in info.get("requires_dist") or []]
                            break
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {release.version}"]
        return "\n".join([*lines, *(f"Requires-Dist: {each}" for each in requires), ""]).encode()

    def size(self, file: File) -> int:
        """What the page says, or else the file's server; 0 if neither does."""
        if file.size:
            return file.size
        with contextlib.suppress(RefusalError, ValueError):
            answer = self.head(without_fragment(file.url))
            return int(answer.headers.get("Content-Length") or 0) if answer else 0
        return 0

    def head(self, url: str) -> Response | None:
        return self.ask(url, {"Accept-Encoding": "identity"}, missing=True, method="HEAD")

    def _from_end(self, file: File) -> bytes:
        """METADATA out of the wheel itself, by requests for parts of it."""
        with zipfile.ZipFile(io.BufferedReader(_Parts(self, without_fragment(file.url)), 1 << 14)) as wheel:
            inside = next(each for each in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", each))
            return wheel.read(inside)

    def ask(self, url: str, headers: dict[str, str], missing: bool = False, method: str = "GET") -> Response | None:
        """One answer; None for 404 if that is an answer too.

        Raises:
            RefusalError: there is none.
        """
        parts = urllib.parse.urlsplit(url)
        shown = parts.hostname or url
        address = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
        headers = {"User-Agent": "gpukit", "Accept-Encoding": "gzip", **headers, **self._credentials(parts)}
        key = (method, address, headers.get("Range"), headers.get("Accept"))
        if key in self.received:
            return self.received[key]
        for left in reversed(range(self.tries)):
            try:
                answer = self.client.ask(method, address, headers)
                if answer.headers.get("Content-Encoding") == "gzip":
                    answer = replace(answer, body=gzip.decompress(answer.body))
            except (OSError, EOFError, http.client.HTTPException, ValueError) as error:
                if not left:
                    raise RefusalError(
                        f"{shown} cannot be reached ({why(error)}): check the network, and HTTPS_PROXY.",
                        kind="network",
                        id="index-unreachable",
                    ) from None
            else:
                if answer.status < 300:
                    return self.received.setdefault(key, answer)
                if missing and answer.status in (404, 410):
                    return self.received.setdefault(key, None)
                if answer.status < 500 and answer.status != 429:
                    break
            if left:
                time.sleep(0.5)
        raise RefusalError(
            f"{shown} answered with status {answer.status}: check the index's address, and its password if it has one.",
            kind="network",
            id="index-refused",
        )

    def _credentials(self, parts: urllib.parse.SplitResult) -> dict[str, str]:
        """The header for the user and password in the URL, in that of the server's index, or in ~/.netrc."""
        user = password = None
        for each in (parts, *map(urllib.parse.urlsplit, self.urls)):
            if each.username and each.hostname == parts.hostname:
                user = urllib.parse.unquote(each.username)
                password = urllib.parse.unquote(each.password or "")
                break
        else:
            with contextlib.suppress(OSError, netrc.NetrcParseError):
                user, _, password = netrc.netrc().authenticators(parts.hostname or "") or (None, None, None)
        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        return {"Authorization": f"Basic {pair}"} if user else {}


class _Parts(io.RawIOBase):
    """A file on a server, of which only the parts that are read are requested."""

    def __init__(self, indexes: Indexes, url: str) -> None:
        self.indexes = indexes
        self.url = url
        self.at = 0
        self.read_bytes = 0
        answer = indexes.head(url)
        self.size = int(answer.headers.get("Content-Length") or 0) if answer else 0
        if not self.size or (answer and answer.headers.get("Accept-Ranges", "").lower() != "bytes"):
            host = urllib.parse.urlsplit(url).hostname
            raise RefusalError(f"{host} has no metadata of this wheel, and sends no parts of it.", id="index-no-parts")

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = offset + (0, self.at, self.size)[whence]
        return self.at

    def tell(self) -> int:
        return self.at

    def readinto(self, buffer: Any) -> int:
        end = min(self.size, self.at + len(buffer))
        if end <= self.at:
            return 0
        self.read_bytes += end - self.at
        if self.read_bytes > METADATA_LIMIT:
            raise RefusalError("The metadata of this wheel is not near its end.", id="index-no-parts")
        headers = {"Range": f"bytes={self.at}-{end - 1}", "Accept-Encoding": "identity"}
        answer = self.indexes.ask(self.url, headers)
        if answer is None or answer.status != 206:
            raise RefusalError("The index sends whole wheels instead of parts.", id="index-no-parts")
        buffer[: len(answer.body)] = answer.body
        self.at += len(answer.body)
        return len(answer.body)


def releases_of(listed: Iterable[File], platform: Platform) -> dict[str, Release]:
    """Files by version, with the wheel that fits a platform."""
    versions: dict[str, list[File]] = {}
    for file in listed:
        versions.setdefault(file.version, []).append(file)
    return {version: _release(version, found, platform) for version, found in versions.items()}


def _release(version: str, listed: list[File], platform: Platform) -> Release:
    wheels = [file for file in listed if file.tags]
    fitting = [file for file in wheels if platform.fits(file)]
    fitting.sort(key=lambda file: file.tags[2] == "any")  # one for this platform alone before one for any
    return Release(
        version,
        next(iter(fitting), None),
        next((file for file in listed if not file.tags), None),
        next((file for file in wheels if file not in fitting), None),
        any(file.tags[2] != "any" for file in wheels),
        all(file.yanked for file in listed),
        max(file.uploaded for file in listed),
    )


def without_fragment(url: str) -> str:
    return url.partition("#")[0]


def filename(url: str) -> str:
    return urllib.parse.unquote(without_fragment(url).partition("?")[0].rpartition("/")[2])


def files(name: str, page: str, answer: Response) -> list[File]:
    """The files on a package's page whose names can be read."""
    kind = (answer.headers.get("Content-Type") or "").partition(";")[0].strip().lower()
    try:
        if kind.endswith("json"):
            listed = [
                {
                    **each,
                    "yanked": each.get("yanked") not in (None, False),
                    "sha256": (each.get("hashes") or {}).get("sha256"),
                }
                for each in json.loads(answer.body)["files"]
            ]
        else:
            reader = _Links()
            reader.feed(answer.body.decode("utf-8", "replace"))
            listed = reader.files
    except (ValueError, KeyError, TypeError, AttributeError):
        host = urllib.parse.urlsplit(page).hostname
        raise RefusalError(
            f"{host} does not answer as a package index: check whether a proxy or a login page is in between.",
            kind="network",
            id="index-not-readable",
        ) from None
    known_files = []
    for each in listed:
        url = str(each.get("url") or "")
        known = parse(name, filename(url))
        if known:
            version, tags = known
            known_files.append(
                File(
                    version,
                    url if url.startswith("https:") else urllib.parse.urljoin(page, url),
                    tags,
                    int(each.get("size") or 0),
                    str(each.get("requires-python") or ""),
                    bool(each["yanked"]),
                    str(each.get("upload-time") or "")[:10],
                    found[1] if (found := SHA256.search(str(each.get("sha256") or url))) else "",
                )
            )
    return known_files


def parse(name: str, filename: str) -> tuple[str, tuple[str, ...]] | None:
    """The version and tags of a file: (python, abi, platform) of a wheel, () of a source archive; None of others."""
    if filename.endswith(".whl"):
        parts = filename[:-4].split("-")
        return (parts[1].replace("_", "-"), tuple(parts[-3:])) if len(parts) in (5, 6) else None
    stem = next((filename[: -len(end)] for end in (".tar.gz", ".zip", ".tar.bz2") if filename.endswith(end)), "")
    for dash in re.finditer("-", stem):
        if normalised(stem[: dash.start()]) == name:
            return stem[dash.end() :], ()
    return None


class _Links(html.parser.HTMLParser):
    """The links of a page in HTML."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[dict[str, Any]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and given.get("href"):
            self.files.append(
                {
                    "url": given["href"],
                    "requires-python": given.get("data-requires-python"),
                    "yanked": "data-yanked" in given,
                }
            )
