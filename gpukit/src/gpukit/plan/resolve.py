"""Resolve a project's packages for another platform with uv, which asks an index that this process serves on loopback.

So no package is downloaded: uv alone would fetch source archives, and whole wheels from indexes that lack their
metadata. To uv, each version is a wheel for any platform, whether its file is a wheel that fits, a source archive, or
neither; this module chooses which versions uv sees.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import urllib.parse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpukit.host import uv
from gpukit.host.cards import data
from gpukit.host.client import CONNECTIONS
from gpukit.image.guard import normalised
from gpukit.plan import wheels
from gpukit.plan.index import DATED, JSON, PAGE, File, Indexes, Platform, Release, releases_of
from gpukit.project import versions
from gpukit.project.messages import RefusalError
from gpukit.project.pyproject import NAME
from gpukit.project.stack import version

FROM_PYTORCH = ("torch", "torchvision", "torchaudio", "triton", "pytorch-triton")
PROTECTED = re.compile(rf"(?:{'|'.join(FROM_PYTORCH)})$|nvidia-|cuda-")
SECONDS = 120  # for one resolution
NAMES = {"amd64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}  # uv's, for markers only
# A requirement that an index has, rather than one from a URL or a path.
FROM_INDEX = re.compile(rf"\s*{NAME}\s*(?:\[[^\]]*\]\s*)?(?:[(<>=!~][^@;]*)?(?:;.*)?")
NEVER = "; sys_platform == 'never'"
LEADING_ZEROS = re.compile(r"(?<![0-9a-z])0+(?=\d+(?:\.|$))")


@dataclass(frozen=True)
class Question:
    """What to resolve. `torch`: PyTorch's own requirements. `provided`: packages of the base and their versions, "" if
    it is unknown. `indexes`: this machine's; `torch_index`: the one that is asked first for PyTorch's packages.
    """

    platform: Platform
    requirements: tuple[str, ...]
    torch: tuple[str, ...]
    torch_index: str
    torch_version: str
    provided: dict[str, str]
    constraints: tuple[str, ...]
    indexes: tuple[str, ...]


@dataclass
class Package:
    """One package of the result. `newest`: the newest version that the project's own range allows; "" if the project
    does not name the package. `kind`: of what is installed (wheel, source, base); `newest_kind`: of `newest`, which may
    be none. `uploaded`, `newest_uploaded`: the days, only where `newest` is another version. `required_by`: packages of
    the project that lead to it; "" if the project names it.
    """

    version: str
    kind: str
    size: int = 0
    file: str = ""
    compiled: bool = False
    uploaded: str = ""
    yanked: bool = False
    newest: str = ""
    newest_kind: str = ""
    newest_uploaded: str = ""
    required_by: str = ""


@dataclass
class Answer:
    """The packages by name, or `error`: uv's message. `unfetched`: requirements from git, paths, or URLs of archives,
    which are not resolved. `absent`: packages with wheels elsewhere (catalogue/extensions.yml), which no index has.
    `unread`: packages whose requirements could not be read. `without_pytorch`: why PyTorch's own index could not
    be asked. `without_torch`: which index has no torch of the project's release. `bytes`: received from indexes.
    """

    packages: dict[str, Package] = field(default_factory=dict)
    error: str = ""
    unfetched: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    without_pytorch: str = ""
    without_torch: str = ""
    bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Answer:
        return cls(**{**data, "packages": {name: Package(**each) for name, each in data["packages"].items()}})


def resolve(question: Question, received: dict[object, object] | None = None) -> Answer:
    """Resolve once as it is installed. Where versions were withheld because no file of theirs can be installed, resolve
    with them too, to name the packages that fall back to others. `received`: see Indexes.

    Raises:
        RefusalError: an index cannot be queried, or uv is not installed.
    """
    answer = Answer()
    named = [line for line in question.requirements if FROM_INDEX.fullmatch(line)]
    pinned = [pin for pin in map(wheels.pinned, question.requirements) if pin]
    answer.unfetched = [line for line in question.requirements if line not in (*named, *(pin.line for pin in pinned))]
    named += [pin.by_version for pin in pinned]
    torch = list(question.torch)
    with serving(question, received) as index:
        for pin in pinned:
            index.given.setdefault(pin.built.name, []).append(pin.file)
        answer.absent = [name for name in map(elsewhere, named) if name and not index.has(name)]
        named = [line for line in named if elsewhere(line) not in answer.absent]
        if "torch" not in question.provided:
            try:
                index.torch_index = (question.torch_index,)
                index.of("torch")
            except RefusalError as error:
                answer.without_pytorch = str(error)
                index.torch_index = ()
        local = [] if index.torch_index or "torch" in question.provided else [public(question.torch_version)]
        index.constraints = [*question.constraints, *(f"torch=={each}" for each in local)]
        skipped = [*(unfetched_name(line) for line in answer.unfetched), *answer.absent]
        index.overrides = [f"{name} {NEVER}" for name, given in question.provided.items() if not given]
        index.overrides += [f"{name} {NEVER}" for name in skipped if name]
        if "torch" not in question.provided:  # its layer is installed before the rest, which cannot replace it
            if index.lacks_torch():
                host = (
                    urllib.parse.urlsplit(question.torch_index).hostname if index.torch_index else "the package index"
                )
                answer.without_torch = f"{host} has no torch {public(question.torch_version)} for {question.platform}"
                answer.error = answer.without_torch
                return answer
            _, first = index.run("fit", torch)
            index.raise_failures()
            kept = {name: pin for name, pin in pins(first).items() if PROTECTED.match(name)}
            index.constraints += [f"{name}=={pin}" for name, pin in kept.items()]
        code, output = index.run("fit", [*torch, *named])
        index.raise_failures()
        alone_code, alone = index.run("all", [*torch, *named], "--no-deps")
        index.raise_failures()
        newest = pins(alone) if alone_code == 0 else {}
        if code:
            answer.error = output
        resolved = pins(output) if code == 0 else {}
        ideal = {}
        if any(index.withheld_above(name, pin) for name, pin in resolved.items()):
            ideal_code, ideal_output = index.run("all", [*torch, *named])
            index.raise_failures()
            ideal = pins(ideal_output) if ideal_code == 0 else {}
        if code:  # what the project names, so that a version without a wheel can be told from a conflict
            resolved = newest
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            best = [newest.get(name) or ideal.get(name, "") for name in resolved]
            answer.packages = dict(zip(resolved, pool.map(index.package, resolved, resolved.values(), best)))
        for name, roots in required_by(output if code == 0 else "").items():
            answer.packages[name].required_by = ", ".join(roots)
        answer.unread = sorted(index.unread)
        answer.bytes = index.indexes.client.bytes
    return answer


def unfetched_name(requirement: str) -> str:
    found = re.match(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*@", requirement)
    return normalised(found[1]) if found else ""


def elsewhere(requirement: str) -> str:
    """The package of a requirement, if catalogue/extensions.yml says that its wheels are elsewhere."""
    found = re.match(NAME, requirement.strip())
    name = normalised(found[0]) if found else ""
    return name if name in data("extensions")["extensions"] else ""


def public(text: str) -> str:
    return text.partition("+")[0]


def same(text: str) -> str:
    """A version as uv prints it, normalized: 2013b as 2013b0, 0.9.10dev as 0.9.10.dev0."""
    first, _, local = text.lower().lstrip("v").partition("+")
    found = versions.VERSION.fullmatch(first)
    if not found:
        return text.lower()
    epoch, release, stage, number, dashed, post, posted, dev, devs = found.groups()
    normal = f"{int(epoch)}!" if epoch and int(epoch) else ""
    normal += ".".join(str(int(part)) for part in release.split("."))
    normal += f"{versions.SHORT.get(stage, stage)}{int(number or 0)}" if stage else ""
    normal += f".post{int(dashed or posted or 0)}" if dashed or post else ""
    normal += f".dev{int(devs or 0)}" if dev else ""
    return f"{normal}+{LEADING_ZEROS.sub('', re.sub('[-_]', '.', local))}" if local else normal


def pins(output: str) -> dict[str, str]:
    found = re.findall(r"(?m)^([a-z0-9][a-z0-9._-]*)==([^\s;]+)", output)
    return {normalised(name): pin for name, pin in found}


def required_by(output: str) -> dict[str, list[str]]:
    """For each package that the project does not name: those that it names and that lead to it, from uv's comments."""
    found = re.findall(r"(?m)^([a-z0-9][a-z0-9._-]*)==\S+.*?# via (.+)$", output)
    direct = {normalised(name): {*re.split(r",\s*", via)} for name, via in found}
    named = {name for name, via in direct.items() if "-r in.txt" in via}

    def roots(name: str, seen: set[str]) -> set[str]:
        above = {normalised(each) for each in direct.get(name, ()) if not each.startswith("-")} - seen
        return {root for each in above for root in ({each} if each in named else roots(each, seen | above))}

    return {name: sorted(roots(name, {name})) for name in direct if name not in named}


@contextlib.contextmanager
def serving(question: Question, received: dict[object, object] | None) -> Iterator[Index]:
    index = Index(question, received)
    thread = threading.Thread(target=index.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield index
    finally:
        index.server.shutdown()
        index.server.server_close()
        index.folder.cleanup()
        index.indexes.client.close()


class Index:
    """The index on loopback, with two views of each package: `fit` has what can be installed, `all` every version."""

    def __init__(self, question: Question, received: dict[object, object] | None) -> None:
        self.uv = uv.program()
        self.question = question
        self.indexes = Indexes(question.indexes, question.platform, received)
        self.torch_index: tuple[str, ...] = ()
        self.given: dict[str, list[File]] = {}  # the wheels that requirements name by URL
        self.failures: list[RefusalError] = []
        self.unread: set[str] = set()
        self.constraints: list[str] = []
        self.overrides: list[str] = []
        self.folder = tempfile.TemporaryDirectory(prefix="gpukit-plan-")
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        self.server.daemon_threads = True

    def raise_failures(self) -> None:
        if self.failures:
            raise self.failures[0]

    def of(self, name: str, accept: str = PAGE) -> dict[str, Release]:
        """The versions of a package, by their names in uv's output. `accept`: see Indexes.releases."""
        given = self.question.provided.get(name)
        if given:
            return {same(given): Release(given)}
        if name in self.given:
            found = releases_of(self.given[name], self.indexes.platform)
        else:
            found = self.indexes.releases(name, self.torch_index if name in FROM_PYTORCH else (), accept)
        return {same(each): release for each, release in found.items()}

    def has(self, name: str) -> bool:
        """Whether the base or an index has a version of a package that was not withdrawn."""
        return name in self.question.provided or not all(each.yanked for each in self.of(name).values())

    def lacks_torch(self) -> bool:
        """Whether no file of the project's minor release of torch can be installed, from the index that has torch."""
        minor = version(self.question.torch_version)[:2]
        return not any(each.file and version(each.version)[:2] == minor for each in self.of("torch").values())

    def withheld_above(self, name: str, pin: str) -> bool:
        """Whether no file of a newer version can be installed."""
        if name in self.question.provided:
            return False
        return any(not each.file and version(each.version) > version(pin) for each in self.of(name).values())

    def page(self, view: str, name: str) -> dict[str, Any]:
        """The page of a package: one pretended wheel for each version."""
        listed = []
        for each, release in self.of(name).items():
            installable = release.file is not None or name in self.question.provided
            if not installable and view == "fit":
                continue
            file = release.file or release.other
            listed.append(
                {
                    "filename": f"{name.replace('-', '_')}-{each}-py3-none-any.whl",
                    "url": f"/file/{name}/{urllib.parse.quote(each)}",
                    "hashes": {},
                    "core-metadata": True,
                    "yanked": release.yanked,
                    **({"requires-python": file.requires_python} if file and file.requires_python else {}),
                }
            )
        return {"meta": {"api-version": "1.1"}, "name": name, "files": listed}

    def metadata(self, name: str, pin: str) -> bytes:
        release = self.of(name)[pin]
        plain = f"Metadata-Version: 2.1\nName: {name}\nVersion: {release.version}\n".encode()
        if name in self.question.provided:
            return plain
        try:
            return self.indexes.metadata(name, release)
        except RefusalError as error:
            if error.id != "index-no-parts" and name not in self.given:  # one address is no reason to check nothing
                raise
            self.unread.add(name)
            return plain

    def package(self, name: str, pin: str, newest: str) -> Package:
        releases = self.of(name)
        dates = self.dates(name) if newest and newest != pin else {}
        release = releases.get(same(pin))
        best = releases.get(same(newest)) if newest else None
        file = release.file if release else None
        return Package(
            pin,
            self.kind(name, release),
            self.indexes.size(file) if file else 0,
            file.filename if file else "",
            release.compiled if release else False,
            dates.get(same(pin), ""),
            release.yanked if release else False,
            newest,
            self.kind(name, best) if newest else "",
            dates.get(same(newest), ""),
        )

    def dates(self, name: str) -> dict[str, str]:
        """When the versions were uploaded; {} if the index does not tell."""
        with contextlib.suppress(RefusalError):
            return {each: release.uploaded for each, release in self.of(name, DATED).items()}
        return {}

    def kind(self, name: str, release: Release | None) -> str:
        if name in self.question.provided:
            return "base"
        if release is None or release.file is None:
            return "none"
        return "wheel" if release.wheel else "source"

    def run(self, view: str, requirements: list[str], *options: str) -> tuple[int, str]:
        """uv's exit status, and its pins or its message."""
        folder = Path(self.folder.name)
        for name, lines in (
            ("in.txt", requirements),
            ("constraints.txt", self.constraints),
            ("overrides.txt", self.overrides),
        ):
            (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        python = ".".join(map(str, self.question.platform.python))
        command = [self.uv, "pip", "compile", "--quiet", "--no-header", "--no-config", "--color=never"]
        command += [f"--default-index=http://127.0.0.1:{self.server.server_port}/{view}", f"--python-version={python}"]
        command += [f"--python-platform={NAMES[self.question.platform.arch]}", f"--cache-dir={folder / 'cache' / view}"]
        command.append(f"--python={sys.executable}")  # or uv starts each Python that it finds, which takes seconds
        command += ["--annotation-style=line", "--constraint=constraints.txt", "--override=overrides.txt"]
        command += [*options, "in.txt"]
        keep = {name: value for name, value in os.environ.items() if not re.match(r"UV_|PIP_", name)}
        environment = {**keep, "UV_PYTHON_DOWNLOADS": "never", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, errors="replace", timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            raise RefusalError(f"uv needed more than {SECONDS} s to resolve the packages.", id="uv-slow") from None
        return done.returncode, done.stdout if done.returncode == 0 else done.stderr


def handler(index: Index) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).strip("/").split("/")
            try:
                if parts[0] == "file" and len(parts) == 3 and parts[2].endswith(".metadata"):
                    self.answer(index.metadata(parts[1], parts[2][: -len(".metadata")]), "text/plain")
                elif parts[0] in ("fit", "all") and len(parts) == 2:
                    page = index.page(parts[0], parts[1])
                    self.answer(json.dumps(page).encode() if page["files"] else None, JSON)
                else:
                    self.answer(None, "")
            except RefusalError as error:
                index.failures.append(error)
                self.answer(None, "")

        def answer(self, body: bytes | None, kind: str) -> None:
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Type", kind or "text/plain")
            self.send_header("Content-Length", str(len(body or b"")))
            with contextlib.suppress(ConnectionError):  # uv has ended, because of another answer
                self.end_headers()
                self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            pass

    return Handler
