"""Ask a registry about an image, without an engine: its tags, its digest, and the platforms that it is built for.

Registry API v2 with anonymous tokens: https://github.com/opencontainers/distribution-spec/blob/main/spec.md and
https://distribution.github.io/distribution/spec/auth/token/ (2026-11-23).
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import ssl
import urllib.parse
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any

from gpukit.host.client import Client, Response
from gpukit.project.messages import RefusalError

HUB = "registry-1.docker.io"  # of images without a host: https://docs.docker.com/reference/api/registry/ (2026-11-23)
INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
LOCAL = re.compile(r"(?:localhost|127(?:\.\d+){3}|\[::1\])(?::\d+)?")  # without TLS, as Docker does
PAGES = 200  # of a list of tags


@dataclass(frozen=True)
class Image:
    host: str
    repository: str
    tag: str
    digest: str = ""

    @property
    def name(self) -> str:
        return f"{self.repository}:{self.tag}" if self.host == HUB else f"{self.host}/{self.repository}:{self.tag}"


def parse(name: str) -> Image:
    """The parts of an image's name. Without a host it is Docker Hub's, without a tag `latest`."""
    path, _, digest = name.partition("@")
    first, slash, rest = path.partition("/")
    host, path = (first, rest) if slash and re.search(r"[.:]|^localhost$", first) else (HUB, path)
    path, _, tag = path.partition(":")
    host = HUB if host in ("docker.io", "index.docker.io") else host
    if not re.fullmatch(r"[a-z0-9]+(?:[._/-]+[a-z0-9]+)*", path) or (digest and not DIGEST.fullmatch(digest)):
        raise RefusalError(f"{name!r} is not the name of an image: write it as in `nvcr.io/nvidia/pytorch:26.07-py3`.")
    return Image(host, path if "/" in path or host != HUB else f"library/{path}", tag or "latest", digest)


def bare(name: str) -> str:
    """An image's name without its digest."""
    return name.partition("@")[0]


class Registry:
    """Answers of registries. `seconds`: for one answer, from the request to its last byte."""

    def __init__(self, seconds: float = 20) -> None:
        self.seconds = seconds
        self.tokens: dict[tuple[str, str], str] = {}
        self.client = Client(seconds)

    def tags(self, name: str) -> list[str]:
        """All tags of the image's repository, of as many pages as it takes."""
        image = parse(name)
        found: list[str] = []
        path: str | None = f"/v2/{image.repository}/tags/list?n=1000"
        for _ in range(PAGES):
            response = self.ask(image, "GET", path)
            data = self.json(image, response)
            found += [str(tag) for tag in data.get("tags") or []]  # null if the last one was deleted
            following = re.search(r'<([^>]+)>\s*;\s*rel="?next"?', response.headers.get("Link") or "")
            if not following:
                return found
            address = urllib.parse.urlsplit(urllib.parse.urljoin(origin(image.host) + path, following[1]))
            path = f"{address.path}?{address.query}"  # of the same host, whatever the link names
        raise broken(image, f"its list of tags has more than {PAGES} pages")

    def digest(self, name: str) -> str:
        """The digest of the index, or of the manifest if the image is for one platform; "" if there is no such tag."""
        image = parse(name)
        reference = image.digest or image.tag
        response = self.ask(image, "HEAD", f"/v2/{image.repository}/manifests/{reference}", missing=True)
        if response.status == 404:
            return ""
        if kind(response) not in (*INDEXES, *MANIFESTS):
            raise not_json(image, response)
        found = response.headers.get("Docker-Content-Digest") or ""
        return found if DIGEST.fullmatch(found) else self.manifest(image)[0]

    def platforms(self, name: str) -> tuple[str, ...]:
        """What the image is built for: `linux/amd64`, `linux/arm64`."""
        image = parse(name)
        _, data = self.manifest(image)
        if "manifests" in data:
            listed = [entry.get("platform") or {} for entry in data["manifests"]]
        else:
            config = (data.get("config") or {}).get("digest", "")
            listed = [self.json(image, self.ask(image, "GET", f"/v2/{image.repository}/blobs/{config}"))]
        found = {f"{entry.get('os')}/{entry.get('architecture')}" for entry in listed}
        return tuple(sorted(each for each in found if re.fullmatch(r"(?!unknown)\w+/(?!unknown)\w+", each)))

    def download(self, name: str, platform: str) -> int:
        """The compressed bytes of the image's layers for a platform, such as `linux/arm64`; 0 if it is for others."""
        image = parse(name)
        _, data = self.manifest(image)
        if "manifests" in data:
            of = {
                f"{each.get('os')}/{each.get('architecture')}": entry.get("digest", "")
                for entry in data["manifests"]
                for each in [entry.get("platform") or {}]
            }
            if not DIGEST.fullmatch(of.get(platform, "")):
                return 0
            _, data = self.manifest(replace(image, digest=of[platform]))
        elif platform not in self.platforms(name):
            return 0
        return sum(int(layer.get("size") or 0) for layer in data.get("layers") or [])

    def manifest(self, image: Image) -> tuple[str, dict[str, Any]]:
        """The digest and the content of the index or the manifest."""
        response = self.ask(image, "GET", f"/v2/{image.repository}/manifests/{image.digest or image.tag}")
        return f"sha256:{hashlib.sha256(response.body).hexdigest()}", self.json(image, response)

    def ask(self, image: Image, method: str, path: str, missing: bool = False) -> Response:
        """One answer, with a token if the registry wants one. `missing`: whether 404 is an answer too."""
        address = origin(image.host) + path
        accept = ", ".join((*INDEXES, *MANIFESTS) if "/manifests/" in path else ("*/*",))
        scope = (image.host, image.repository)
        for _ in range(2):
            headers = {"Authorization": f"Bearer {self.tokens[scope]}"} if scope in self.tokens else {}
            response = self.request(image, method, address, {"Accept": accept, **headers})
            if response.status != 401 or not self.sign_in(image, response):
                break
        if response.status < 300 or (missing and response.status == 404):
            return response
        raise refused(image, response)

    def sign_in(self, image: Image, response: Response) -> bool:
        """Get an anonymous token for what the registry asks; False if it has none to give."""
        scheme, _, rest = (response.headers.get("WWW-Authenticate") or "").partition(" ")
        given = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        realm = given.pop("realm", "")
        scope = (image.host, image.repository)
        if scheme.lower() != "bearer" or not realm or scope in self.tokens:
            return False
        if not realm.startswith("https://") and not LOCAL.fullmatch(urllib.parse.urlsplit(realm).netloc):
            raise broken(image, "it asks for a token over a connection without encryption")
        address = urllib.parse.urlsplit(realm)  # nvcr.io's has a query of its own
        query = {"scope": f"repository:{image.repository}:pull", **dict(urllib.parse.parse_qsl(address.query)), **given}
        query.pop("error", None)
        address = address._replace(query=urllib.parse.urlencode(query))
        answer = self.request(image, "GET", address.geturl(), {})
        if answer.status in (401, 403, 404):
            return False
        if answer.status >= 300:
            raise refused(image, answer)
        data = self.json(image, answer)
        token = data.get("token") or data.get("access_token")
        if not isinstance(token, str):
            return False
        self.tokens[scope] = token
        return True

    def request(self, image: Image, method: str, address: str, headers: dict[str, str]) -> Response:
        try:
            return self.client.ask(method, address, {"User-Agent": "gpukit", "Connection": "close", **headers})
        except TimeoutError:
            raise RefusalError(
                f"{image.host} did not respond within {self.seconds:g} seconds: try again later.",
                kind="network",
                id="registry-slow",
            ) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RefusalError(
                f"{image.host} cannot be reached ({why(error)}): check the network, and HTTPS_PROXY if it needs one.",
                kind="network",
                id="registry-unreachable",
            ) from None

    def json(self, image: Image, response: Response) -> dict[str, Any]:
        try:
            data = json.loads(response.body)
        except ValueError:
            raise not_json(image, response) from None
        if not isinstance(data, dict):
            raise not_json(image, response)
        return data


def origin(host: str) -> str:
    return f"http://{host}" if LOCAL.fullmatch(host) else f"https://{host}"


def kind(response: Response) -> str:
    return (response.headers.get("Content-Type") or "").partition(";")[0].strip().lower()


def why(reason: object) -> str:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {reason.verify_message}"
    return getattr(reason, "strerror", None) or str(reason) or type(reason).__name__


def wait(response: Response) -> str:
    """When to ask again, from Retry-After: seconds or a date."""
    value = (response.headers.get("Retry-After") or "").strip()
    if value.isdigit():
        return f"in {int(value)} seconds"
    try:
        return f"after {parsedate_to_datetime(value):%Y-%m-%d %H:%M} UTC"
    except (TypeError, ValueError, IndexError):
        return "in an hour"


def refused(image: Image, response: Response) -> RefusalError:
    """The refusal for an answer that is an error."""
    if response.status in (401, 403):
        sentence = f"{image.host} does not show {image.name} without an account, or it does not exist: check the name."
        return RefusalError(sentence, kind="image", id="registry-denied")
    if response.status == 404:
        sentence = f"{image.host} has no {image.name}: check the name and the tag."
        return RefusalError(sentence, kind="image", id="registry-missing")
    if response.status == 429:
        sentence = f"{image.host} refuses further requests from this address for now: try again {wait(response)}."
        return RefusalError(sentence, kind="network", id="registry-limit")
    return broken(image, f"it answered with status {response.status}")


def not_json(image: Image, response: Response) -> RefusalError:
    sentence = (
        f"{image.host} answered with {kind(response) or 'something'} instead of a registry's data: check whether a "
        "proxy or a login page of this network is in between."
    )
    return RefusalError(sentence, kind="network", id="registry-not-json")


def broken(image: Image, what: str) -> RefusalError:
    return RefusalError(f"{image.host} cannot be used, because {what}: try again later.", id="registry-broken")
