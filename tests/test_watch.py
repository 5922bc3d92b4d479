"""The registry client and catalogue/watch.py: against a real registry on loopback, and answers of the public ones."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import yaml

from catalogue import support, watch
from gpukit.host import registry
from gpukit.host.registry import Registry
from gpukit.project.messages import RefusalError
from tests.conftest import ROOT, git
from tests.gpukit.web import serving
from tests.ports import free_port, listening
from tests.registry import running
from tests.test_pull_request import GH

OCI = "application/vnd.oci.image"
AMD64 = ("amd64",)
BOTH = ("amd64", "arm64")


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Server:
    """Debian's docker-registry; images are pushed over HTTP, as an engine does."""

    def __init__(self, host: str) -> None:
        self.host = host

    def ask(self, method: str, path: str, data: bytes = b"", kind: str = "application/octet-stream") -> str:
        address = path if "://" in path else f"http://{self.host}{path}"
        request = urllib.request.Request(address, data, {"Content-Type": kind}, method=method)
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.headers.get("Location") or ""

    def blob(self, repository: str, data: bytes) -> dict[str, object]:
        place = self.ask("POST", f"/v2/{repository}/blobs/uploads/")
        self.ask("PUT", f"{place}&digest={sha256(data)}", data)
        return {"digest": sha256(data), "size": len(data)}

    def push(self, name: str, architectures: tuple[str, ...] = BOTH, content: str = "") -> str:
        """Push an index, or a manifest for one architecture; its digest."""
        image = registry.parse(name)
        path = f"/v2/{image.repository}/manifests/"
        manifests = []
        for architecture in architectures:
            config = json.dumps({"os": "linux", "architecture": architecture, "content": content + image.tag}).encode()
            described = {"mediaType": f"{OCI}.config.v1+json", **self.blob(image.repository, config)}
            kind = f"{OCI}.manifest.v1+json"
            data = json.dumps({"schemaVersion": 2, "mediaType": kind, "config": described, "layers": []}).encode()
            self.ask("PUT", path + (sha256(data) if len(architectures) > 1 else image.tag), data, kind)
            platform = {"os": "linux", "architecture": architecture}
            manifests.append({"mediaType": kind, "digest": sha256(data), "size": len(data), "platform": platform})
        if len(architectures) > 1:
            kind = f"{OCI}.index.v1+json"
            data = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": manifests}).encode()
            self.ask("PUT", path + image.tag, data, kind)
        return sha256(data)

    def delete(self, name: str, digest: str) -> None:
        """By tag, the registry refuses it with status 400."""
        self.ask("DELETE", f"/v2/{registry.parse(name).repository}/manifests/{digest}")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("registry")) as host:
        yield Server(host)


@pytest.mark.program
def test_a_real_registry(server):
    """The digest is the index's, not a platform's; it changes with the tag, and is gone with it."""
    name = f"{server.host}/team/app:1.0"
    own = Registry(5)
    first = server.push(name)
    assert own.digest(name) == first == own.digest(f"{server.host}/team/app@{first}")
    assert own.platforms(name) == ("linux/amd64", "linux/arm64")
    second = server.push(name, content="again")
    assert own.digest(name) == second != first
    single = f"{server.host}/team/app:2.0"
    assert own.digest(single) == ""
    assert server.push(single, AMD64) == own.digest(single)
    assert own.platforms(single) == ("linux/amd64",)
    assert sorted(own.tags(name)) == ["1.0", "2.0"]
    with pytest.raises(urllib.error.HTTPError, match="400"):
        server.delete(name, "1.0")
    server.delete(name, second)
    assert (own.digest(name), own.tags(name)) == ("", ["2.0"])
    with pytest.raises(RefusalError) as caught:
        own.tags(f"{server.host}/team/nothing:1")
    assert caught.value.id == "registry-missing"


# ---------------------------------------------------------------------------------------------------------------------
# Answers of public registries, all on 2026-11-23:
#   challenge   of Docker Hub: https://distribution.github.io/distribution/spec/auth/token/
#   query       of nvcr.io, whose realm has a query: apache/mesos, src/tests/http_tests.cpp (MESOS-9968)
#   limit       of Docker Hub: https://github.com/docker/hub-feedback/issues/2464, and Retry-After:
#               https://docs.docker.com/docker-hub/usage/
#   denied      of Docker Hub, for a private or missing repository: the errors of the distribution specification
#   html        a login page in between, made up; trickle: a slow server, made up
HUB = 'Bearer realm="http://{host}/token",service="registry.docker.io",scope="repository:library/python:pull"'
NVCR = 'Bearer realm="http://{host}/token?scope=repository:nvidia/pytorch:pull,push"'
LIMIT = {
    "code": "TOOMANYREQUESTS",
    "message": "You have reached your unauthenticated pull rate limit. https://www.docker.com/increase-rate-limit",
}
DENIED = {"code": "UNAUTHORIZED", "message": "authentication required", "detail": None}
INDEX = {"schemaVersion": 2, "mediaType": registry.INDEXES[1], "manifests": []}


class Public(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        host = self.headers["Host"]
        path = urllib.parse.urlsplit(self.path)
        self.server.asked.append(self.path)
        case = path.path.split("/")[2] if path.path.startswith("/v2/") else "token"
        self.json = {}
        signed = self.headers.get("Authorization") == "Bearer anonymous"
        if case == "token":
            scope = urllib.parse.parse_qs(path.query)["scope"]
            return self.send(200, {"token": "anonymous"} if len(scope) == 1 else {})
        if case in ("challenge", "query") and not signed:
            challenge = (HUB if case == "challenge" else NVCR).format(host=host)
            return self.send(401, {"errors": [DENIED]}, {"WWW-Authenticate": challenge})
        if case == "denied":
            return self.send(401, {"errors": [DENIED]}, {"WWW-Authenticate": HUB.format(host=host)})
        if case == "limit":
            return self.send(429, {"errors": [LIMIT]}, {"Retry-After": "3600"})
        if case == "later":
            return self.send(429, {"errors": [LIMIT]}, {"Retry-After": "Mon, 23 Nov 2026 23:00:00 GMT"})
        if case == "html":
            return self.send(200, "<!DOCTYPE html><title>Sign in</title>", {"Content-Type": "text/html; charset=utf-8"})
        if case == "broken":
            return self.send(503, "no backend")
        if case == "slow":
            time.sleep(1)
            return None
        if case == "trickle":
            return self.send(200, "x" * 40, pause=0.05)
        if "/manifests/" in path.path:
            return self.send(200, INDEX, {"Content-Type": registry.INDEXES[1]})
        if "last=b" in path.query:
            return self.send(200, {"tags": ["c"]})
        link = f'</v2/{case}/x/tags/list?last=b&n=1000>; rel="next"'
        return self.send(200, {"tags": ["a", "b"]}, {"Link": link})

    do_HEAD = do_GET  # noqa: N815

    def send(self, status: int, body: object, headers: dict[str, str] | None = None, pause: float = 0) -> None:
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        for start in range(0, len(data), 1 if pause else len(data)):
            if self.command == "GET":
                self.wfile.write(data[start : start + (1 if pause else len(data))])
                self.wfile.flush()
                time.sleep(pause)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def public():
    with listening(Public) as server:
        server.asked = []
        yield server


@pytest.mark.parametrize("case", ["challenge", "query", "open"])
def test_tokens_and_pages(public, case):
    own = Registry(5)
    name = f"127.0.0.1:{public.server_port}/{case}/x:1"
    public.asked.clear()
    assert own.tags(name) == ["a", "b", "c"]
    assert own.digest(name) == sha256(json.dumps(INDEX).encode()), "without the header, it is that of the content"
    assert sum(path.startswith("/token") for path in public.asked) == (case != "open")


@pytest.mark.parametrize(
    ("case", "id", "remedy"),
    [
        ("denied", "registry-denied", "check the name"),
        ("limit", "registry-limit", "in 3600 seconds"),
        ("later", "registry-limit", "after 2026-11-23 23:00 UTC"),
        ("html", "registry-not-json", "text/html"),
        ("broken", "registry-broken", "503"),
        ("slow", "registry-slow", "0.3 seconds"),
        ("trickle", "registry-slow", "0.3 seconds"),
    ],
)
def test_an_answer_that_is_an_error(public, case, id, remedy):
    for ask in (Registry(0.3).tags, Registry(0.3).digest):
        if case == "trickle" and ask.__name__ == "digest":
            continue  # has no body
        with pytest.raises(RefusalError) as caught:
            ask(f"127.0.0.1:{public.server_port}/{case}/x:1")
        assert caught.value.id == id
        assert remedy in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1


def test_no_network_and_no_image():
    host = f"127.0.0.1:{free_port()}"
    with pytest.raises(RefusalError) as caught:
        Registry(5).digest(f"{host}/x/y:1")
    assert caught.value.id == "registry-unreachable"
    with pytest.raises(RefusalError):
        registry.parse("Not An Image")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("python:3.12-slim", (registry.HUB, "library/python", "3.12-slim", "")),
        ("nvidia/cuda:13.0.3-devel-ubuntu24.04", (registry.HUB, "nvidia/cuda", "13.0.3-devel-ubuntu24.04", "")),
        ("nvcr.io/nvidia/pytorch:26.07-py3", ("nvcr.io", "nvidia/pytorch", "26.07-py3", "")),
        ("localhost:5000/a", ("localhost:5000", "a", "latest", "")),
        (f"a/b:1@sha256:{'0' * 64}", (registry.HUB, "a/b", "1", f"sha256:{'0' * 64}")),
    ],
)
def test_parts_of_a_name(name, parts):
    image = registry.parse(name)
    assert (image.host, image.repository, image.tag, image.digest) == parts


# ---------------------------------------------------------------------------------------------------------------------
# watch.py. The images are those of the catalogue, on the registry on loopback.

# As PyTorch's index lists its files, as NVIDIA's pages list theirs, and the fields of releases.json that are read:
# https://download.pytorch.org/whl/torch/, https://developer.download.nvidia.com/compute/cuda/redist/ and
# https://docs.nvidia.com/datacenter/tesla/drivers/releases.json. The versions are made up.
BUILDS = """<a href="/whl/{flavor}/torch-{version}%2B{flavor}-cp312-cp312-manylinux_2_28_x86_64.whl#sha256=0">\
torch-{version}+{flavor}-cp312-cp312-manylinux_2_28_x86_64.whl</a><br/>"""
REDIST = "<a href='redistrib_{0}.json'>redistrib_{0}.json</a>"
TODAY = "2026-11-30"
LATER = "2026-12-07"


class Sources:
    """What the sources answer, to be changed by a test."""

    def __init__(self) -> None:
        images = support.load("images")
        known = {release["torch"] for base in ("wheel", "cuda") for release in images["releases"][base].values()}
        self.builds = sorted(known)
        self.toolkits = {f"{version}.0": {} for version in images["toolkits"]["drivers"]}
        self.drivers = {each["branch"]: [each["newest"] or "100.10.10"] for each in images["branches"]}
        self.packages = {"torch": "2.14.1"}
        self.down: set[str] = set()

    def get(self, address: str) -> str:
        if address in self.down:
            raise watch.SourceError("it answered with status 503")
        if address == watch.TORCH:
            parts = [build.split("+") for build in self.builds]
            return "".join(BUILDS.format(version=version, flavor=flavor) for version, flavor in parts)
        if address == watch.TOOLKITS:
            return "".join(REDIST.format(version) for version in self.toolkits)
        if address == watch.DRIVERS:
            each = {
                branch: {
                    "type": "production branch",
                    "driver_info": [{"release_version": one, "release_date": "2026-11-20"} for one in versions],
                }
                for branch, versions in self.drivers.items()
            }
            return json.dumps(each)
        return json.dumps(self.toolkits[re.search(r"redistrib_(.*)\.json", address)[1]])

    def newest(self, names: list[str]) -> dict[str, str]:
        if watch.INDEX in self.down:
            raise watch.SourceError("uv found no versions")
        return {name: version for name, version in self.packages.items() if name in names}


@pytest.fixture
def sources(monkeypatch, server):
    found = Sources()
    monkeypatch.setattr(registry, "origin", lambda host: f"http://{server.host}")
    monkeypatch.setattr(watch, "get", found.get)
    monkeypatch.setattr(watch, "newest_versions", found.newest)
    monkeypatch.setattr(watch, "wheel_sources", lambda *_: {})
    return found


@pytest.fixture(scope="module")
def pushed(server):
    """The catalogue's images are on the registry."""
    releases = [each for base in support.load("images")["releases"].values() for each in base.values()]
    return {name: server.push(name) for name in sorted({registry.bare(release["image"]) for release in releases})}


def leads(text: str) -> list[tuple[str, str, str]]:
    return [(each["change"], each["kind"], each["name"]) for each in yaml.safe_load(text).get("leads", [])]


@pytest.mark.program
def test_watch(server, pushed, sources, tmp_path):
    """First run, no change, new, moved, gone, and unreachable: each is told from the others."""
    images = tmp_path / "images.yml"
    images.write_text((ROOT / "catalogue/images.yml").read_text())

    def run(today: str = TODAY) -> tuple[str, list[str], dict[str, str]]:
        before = images.read_text()
        text, news, silent = watch.watch(images, watch.PACKAGES, today)
        images.write_text(text)
        assert (text == before) == (not news), news
        return text, news, silent

    text, news, silent = run()
    assert silent == {}
    assert leads(text) == []
    assert len([line for line in news if line.startswith("digest recorded")]) == len(pushed)
    for base in yaml.safe_load(text)["releases"].values():
        assert all(release["digest"] == pushed[release["image"]] for release in base.values())
    added = [line for line in text.splitlines() if line.startswith("      digest: ")]
    assert [line for line in text.splitlines() if line not in added] == [
        line
        for line in (ROOT / "catalogue/images.yml").read_text().splitlines()
        if not line.startswith("      digest: ")
    ], "nothing else has changed, comments included"
    assert run(LATER)[1] == []

    server.push("nvcr.io/nvidia/pytorch:27.01-py3")
    server.push("nvidia/cuda:13.0.4-devel-ubuntu24.04", AMD64)
    server.push("nvidia/cuda:13.0.4-runtime-ubuntu24.04")
    server.push("nvidia/cuda:13.1.2-devel-ubuntu24.04")  # 13.2.1 is newer
    moved = "nvcr.io/nvidia/pytorch:26.07-py3"
    gone = "nvcr.io/nvidia/pytorch:25.09-py3"
    other = server.push(moved, AMD64, content="again")
    server.delete(gone, pushed[gone])
    sources.builds += ["2.16.0+cu132", "2.16.0+cu140", "2.14.0+cu130"]
    sources.builds.remove("2.9.1+cu128")
    sources.toolkits["13.9.1"] = {"release_date": "2026-11-20", "nvidia_driver": {"version": "630.10.01"}}
    sources.drivers["580"].append("580.999.01")
    sources.drivers["630"] = ["630.10.01"]
    sources.packages.update({"torch": "2.16.0", "transformers": "6.0.1", "numpy": "2.5.0"})
    sources.packages.update({"vllm": "0.1", "timm": "1.0"})  # older than what the catalogue has
    text, _, silent = run()
    assert silent == {}
    assert sorted(leads(text)) == sorted(
        [
            ("new", "image", "nvcr.io/nvidia/pytorch:27.01-py3"),
            ("new", "image", "nvidia/cuda:13.0.4-devel-ubuntu24.04"),
            ("moved", "image", moved),
            ("gone", "image", f"{moved} for linux/arm64"),
            ("gone", "image", gone),
            ("new", "torch", "2.16.0+cu132"),
            ("new", "torch", "2.16.0+cu140"),
            ("gone", "torch", "2.9.1+cu128"),
            ("new", "toolkit", "13.9.1"),
            ("new", "driver", "580.999.01"),
            ("new", "driver", "630.10.01"),
            ("new", "package", "torch 2.16.0"),
            ("new", "package", "transformers 6.0.1"),
        ]
    )
    found = yaml.safe_load(text)
    assert found["releases"]["ngc"]["26.07"]["digest"] == other
    assert found["releases"]["ngc"]["25.09"]["digest"] == pushed[gone], "what it was stays on record"
    by_name = {(each["change"], each["name"]): each for each in found["leads"]}
    assert by_name["moved", moved]["found"] == f"{pushed[moved]} to {other}"
    assert by_name["new", "nvidia/cuda:13.0.4-devel-ubuntu24.04"]["found"] == "linux/amd64"
    assert by_name["new", "13.9.1"]["found"] == "released 2026-11-20, driver 630.10.01"
    assert {each["checked"] for each in found["leads"]} == {TODAY}
    assert run(LATER)[1] == []

    # A source that does not answer changes nothing of its own; the others go on.
    ngc = "https://nvcr.io/v2/nvidia/pytorch/tags/list"
    sources.down = {watch.TORCH, watch.INDEX, watch.TOOLKITS, watch.DRIVERS}
    registry.origin = lambda host: "http://127.0.0.1:9" if host == "nvcr.io" else f"http://{server.host}"
    _, news, silent = run(LATER)
    assert news == []
    assert set(silent) == {*sources.down, ngc}
    registry.origin = lambda host: f"http://{server.host}"

    # A dismissed lead stays as it is; one that no longer applies goes; what is back is no longer gone.
    sources.down = set()
    images.write_text(text.replace('name: "13.9.1"', 'dismissed: "no wheels", name: "13.9.1"'))
    sources.toolkits["13.9.1"]["release_date"] = "2026-11-21"
    sources.builds.append("2.9.1+cu128")
    server.push(gone, content="back")
    text, news, _ = run(LATER)
    assert ("gone", "torch", "2.9.1+cu128") not in leads(text)
    assert ("gone", "image", gone) not in leads(text)
    assert ("moved", "image", gone) in leads(text), "it came back with other content"
    assert not any("13.9.1" in line for line in news)

    (tmp_path / "whole").mkdir()
    passes_the_catalogues_tests(text, tmp_path / "whole")


def passes_the_catalogues_tests(text: str, folder: Path) -> None:
    shutil.copytree(ROOT / "catalogue", folder / "catalogue", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tests").mkdir()
    for name in ("tests/__init__.py", "tests/test_catalogue.py", "pyproject.toml", "copier.yml"):
        shutil.copy2(ROOT / name, folder / name)
    for name in ("tests/data", "gpukit", "docs", "fragments"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "catalogue/images.yml").write_text(text)
    subprocess.run([sys.executable, "catalogue/combine.py"], cwd=folder, check=True)
    tests = ["tests/test_catalogue.py", "-q", "-n0", "-pno:cacheprovider", "--import-mode=importlib"]
    only = ["-k", "schema or quoted or small or source_and_a_date or agrees_with_itself or copier_reads"]
    command = [sys.executable, "-m", "pytest", *tests, *only, f"--rootdir={folder}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_exit_status(monkeypatch, tmp_path, capsys):
    """0 if all have answered, 3 if one has not; --check writes nothing; a failed check of the catalogue is 1."""
    images = tmp_path / "images.yml"
    images.write_text("releases: {}\n")
    ran = []
    monkeypatch.setattr(watch, "IMAGES", images)
    monkeypatch.setattr(watch.refresh, "main", lambda: ran.append(1) or len(ran) - 1)
    answers = {"silent": {}}
    monkeypatch.setattr(watch, "watch", lambda *_: ("releases: {} # new\n", ["new: image x"], answers["silent"]))
    assert watch.main(["--check"]) == 0
    assert images.read_text() == "releases: {}\n"
    answers["silent"] = {"https://x": "it answered with status 503"}
    assert watch.main([]) == 3
    assert ran == [1]
    assert "https://x: it answered with status 503" in capsys.readouterr().out
    images.write_text("releases: {}\n")
    assert watch.main([]) == 1


def test_one_pull_request(monkeypatch, tmp_path):
    """A second run with other news updates it; the same news leave it; see test_pull_request."""
    root = tmp_path / "clone"
    remote = tmp_path / "remote.git"
    bin_folder = tmp_path / "bin"
    (root / "catalogue").mkdir(parents=True)
    (root / "catalogue/images.yml").write_text("a: 1\n")
    for folder in ("docs", "examples", "gpukit/src/gpukit/data"):
        (root / folder).mkdir(parents=True)
        (root / folder / "x").write_text("")
    git("init", "-q", "-b", "main", cwd=root)
    git("add", "-A", cwd=root)
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first", cwd=root)
    git("init", "-q", "--bare", str(remote), cwd=tmp_path)
    git("remote", "add", "origin", str(remote), cwd=root)
    git("push", "-q", "origin", "main", cwd=root)
    bin_folder.mkdir()
    (bin_folder / "gh").write_text(GH)
    (bin_folder / "gh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    for name in ("GH_TOKEN", "GITHUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    def requests() -> list[dict[str, object]]:
        return json.loads((bin_folder / "requests.json").read_text())

    def tip() -> str:
        return git("rev-parse", "refs/heads/catalogue-watch/main", cwd=remote).strip()

    (root / "catalogue/images.yml").write_text("a: 2\n")
    watch.propose(root, ["new: image x"], {"https://x": "it answered with status 503"})
    first = tip()
    assert [each["state"] for each in requests()] == ["OPEN"]
    assert "new: image x" in requests()[0]["body"] and "https://x" in requests()[0]["body"]
    assert git("show", f"{first}:catalogue/images.yml", cwd=remote) == "a: 2\n"
    assert git("status", "--short", cwd=root) == " M catalogue/images.yml\n", "the checkout is left as it was"
    watch.propose(root, ["new: image x"], {})
    assert tip() == first
    (root / "catalogue/images.yml").write_text("a: 3\n")
    watch.propose(root, ["new: image x", "new: image y"], {})
    assert len(requests()) == 1 and "image y" in requests()[0]["body"] and tip() != first

    known = requests()
    known[0]["state"] = "CLOSED"
    (bin_folder / "requests.json").write_text(json.dumps(known))
    watch.propose(root, ["new: image y", "new: image x"], {})
    assert [each["state"] for each in requests()] == ["CLOSED"], "a person has closed this"


@pytest.mark.network
def test_the_package_index_through_uv():
    """Every name that the catalogue knows is found at once, with uv's own configuration."""
    names = sorted(watch.wanted(support.load("images"), support.load("packages")))
    try:
        found = watch.newest_versions(names)
    except watch.SourceError as error:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(error))
    assert {"torch", "cuda-toolkit", "uv", "transformers"} <= set(names)
    assert set(found) == set(names)


def test_wheels_for_a_newer_torch_and_packages_that_are_gone():
    images = support.load("images")
    extensions = {"extensions": {}, "indexes": {}}
    with serving() as web:
        page = f"{web.url}/cu{{cuda}}/{{package}}/"
        extensions["indexes"] = {"own": {"page": page, "cuda": ["12.6", "13.0"]}}
        known = {"same": "2.12", "newer": "2.12", "first": None, "gone": "2.12", "pure": "2.12"}
        for name, seen in known.items():
            extensions["extensions"][name] = {"indexes": ["own"], **({"seen": seen} if seen else {})}
        for name, torches in {
            "same": ["2.11", "2.12"],
            "newer": ["2.12", "2.13.0"],
            "first": ["2.9"],
            "pure": [""],
        }.items():
            files = [f"{name}-1.0+cu130{f'torch{each}' * bool(each)}-cp312-cp312-linux_x86_64.whl" for each in torches]
            web.answers[f"/cu130/{name}/"] = (
                "text/html",
                "".join(f'<a href="{each}">x</a>' for each in files).encode(),
            )
        ((source, look),) = watch.wheel_sources(images, extensions).items()
        assert source == page
        assert [(each["change"], each["name"]) for each in look()] == [
            ("new", "newer for torch 2.13"),
            ("new", "first for torch 2.9"),
            ("gone", "gone"),
        ]
        web.status = 503
        with pytest.raises(RefusalError):
            list(next(iter(watch.wheel_sources(images, extensions).values()))())
