"""The supported distributions and the vendors' package repositories: data, with sources.

Read on 2026-11-20:
  Docker    https://docs.docker.com/engine/install/ubuntu/ and /debian/ (github.com/docker/docs, content/manuals/engine)
  toolkit   https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html
  driver    https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/ (releases 595 to 620)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gpukit.host.cards import data
from gpukit.project.messages import RefusalError

READ_ON = "2026-11-20"
DOCKER = "https://docs.docker.com/engine/install"
TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
DRIVER = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide"


@dataclass(frozen=True)
class Repository:
    """An apt repository, with the file names from its vendor's own instructions.

    Following those instructions later changes the same files, so that apt never finds two keys for one address.
    """

    vendor: str
    address: str
    key: str  # the address of the key
    fingerprint: str  # the only primary key that the file may contain
    keyring: str
    file: str
    entry: str
    pin: tuple[str, str] = ("", "")  # a file of apt's preferences, and its contents


@dataclass(frozen=True)
class System:
    """A supported distribution."""

    name: str
    id: str
    suite: str
    cuda: Mapping[str, str]  # processor: its folder in NVIDIA's repository of drivers
    cuda_key: tuple[str, str]  # file name and fingerprint
    exclude: tuple[str, ...]  # packages that conflict with Docker's own


# Sources of the fingerprints. docker: docker/docs, engine/install/ubuntu.md until 2022. toolkit: computed from
# NVIDIA/nvidia-docker, gpgkey. 3bf863cc: NVIDIA/cuda-repo-management, SIGNATURES.md. 8793F200 is the name of the key
# for Debian 13 in NVIDIA's repository; its full fingerprint is only in public code, in several repositories that
# agree. A wrong fingerprint here rejects the key; it never accepts another one.
CUDA_KEY = ("3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC")
CUDA_KEY_13 = ("8793F200.pub", "02182E60104FCDC26EAE1B8597A5D4CB8793F200")
DEBIAN_CONFLICTS = ("docker.io", "docker-compose", "docker-doc", "podman-docker", "containerd", "runc")
UBUNTU_CONFLICTS = (*DEBIAN_CONFLICTS, "docker-compose-v2")
CUDA_FOLDERS = {"amd64": "{folder}/x86_64", "arm64": "{folder}/sbsa"}


def _cuda(folder: str, *processors: str) -> dict[str, str]:
    return {processor: CUDA_FOLDERS[processor].format(folder=folder) for processor in processors}


SYSTEMS = {
    ("ubuntu", "22.04"): System(
        "Ubuntu 22.04", "ubuntu", "jammy", _cuda("ubuntu2204", "amd64", "arm64"), CUDA_KEY, UBUNTU_CONFLICTS
    ),
    ("ubuntu", "24.04"): System(
        "Ubuntu 24.04", "ubuntu", "noble", _cuda("ubuntu2404", "amd64", "arm64"), CUDA_KEY, UBUNTU_CONFLICTS
    ),
    ("debian", "12"): System("Debian 12", "debian", "bookworm", _cuda("debian12", "amd64"), CUDA_KEY, DEBIAN_CONFLICTS),
    ("debian", "13"): System(
        "Debian 13", "debian", "trixie", _cuda("debian13", "amd64"), CUDA_KEY_13, DEBIAN_CONFLICTS
    ),
}
REPOSITORIES = {
    "docker": Repository(
        "Docker",
        "https://download.docker.com/linux/{id}",
        "{address}/gpg",
        "9DC858229FC7DD38854AE2D88D81803C0EBFCD88",
        "/etc/apt/keyrings/docker.asc",
        "/etc/apt/sources.list.d/docker.sources",
        "Types: deb\nURIs: {address}\nSuites: {suite}\nComponents: stable\nArchitectures: {arch}\nSigned-By: {keyring}",
    ),
    "toolkit": Repository(
        "NVIDIA",
        "https://nvidia.github.io/libnvidia-container/stable/deb",
        "https://nvidia.github.io/libnvidia-container/gpgkey",
        "C95B321B61E88C1809C4F759DDCAE044F796ECB0",
        "/usr/share/keyrings/nvidia-container-toolkit-keyring.gpg",
        "/etc/apt/sources.list.d/nvidia-container-toolkit.list",
        "deb [signed-by={keyring}] {address}/$(ARCH) /",
    ),
    "driver": Repository(
        "NVIDIA",
        "https://developer.download.nvidia.com/compute/cuda/repos/{cuda}",
        "{address}/{cuda_key}",
        "{cuda_fingerprint}",
        "/usr/share/keyrings/cuda-archive-keyring.gpg",
        "/etc/apt/sources.list.d/cuda-{cuda_name}.list",
        "deb [signed-by={keyring}] {address}/ /",
        (
            "/etc/apt/preferences.d/cuda-repository-pin-600",
            "Package: *\nPin: release l=NVIDIA CUDA\nPin-Priority: 600",
        ),
    ),
}
# Docker's installation pages for other distributions, by ID or ID_LIKE in /etc/os-release.
DOCKER_PAGES = {
    **{name: f"{DOCKER}/{name}/" for name in ("fedora", "rhel", "centos", "sles", "ubuntu", "debian")},
    "arch": "https://wiki.archlinux.org/title/Docker",
    "": f"{DOCKER}/",
}
# Systems that include driver, Docker, and toolkit, by a file that identifies them.
PREINSTALLED = {
    "/etc/fastos-release": ("DGX OS", "https://docs.nvidia.com/dgx/dgx-spark/"),
    "/etc/dgx-release": ("DGX OS", "https://docs.nvidia.com/dgx/dgx-os-7-user-guide/"),
    "/etc/nv_tegra_release": ("JetPack", "https://docs.nvidia.com/jetson/jetpack/install-setup/index.html"),
}
# The version that the image is built with, and the SHA-256 of its wheels.
UV = data("stacks")["uv"]["version"]
UV_HASHES = data("stacks")["uv"]["sha256"]
REPLACEABLE = ("address", "key", "fingerprint")


def docker_page(release: Mapping[str, str]) -> str:
    """Docker's installation page for a distribution that setup does not support."""
    names = [release.get("ID", ""), *release.get("ID_LIKE", "").split(), ""]
    return next(DOCKER_PAGES[name] for name in names if name in DOCKER_PAGES)


def repositories(system: System, arch: str, mirrors: Mapping[str, Mapping[str, str]]) -> dict[str, Repository]:
    """The repositories for this system and architecture; without the driver's if NVIDIA has none for it."""
    cuda = system.cuda.get(arch, "")
    names = {
        "id": system.id,
        "suite": system.suite,
        "arch": arch,
        "cuda": cuda,
        "cuda_name": cuda.replace("/", "-"),
        "cuda_key": system.cuda_key[0],
        "cuda_fingerprint": system.cuda_key[1],
    }
    found = {}
    for name, repository in REPOSITORIES.items():
        if name == "driver" and not cuda:
            continue
        filled = replace(repository, **mirrors.get(name, {}))
        for field in ("address", "key", "fingerprint", "file", "entry"):
            try:
                filled = replace(filled, **{field: getattr(filled, field).format(**{**vars(filled), **names})})
            except (KeyError, ValueError, IndexError):
                known = ", ".join(f"{{{word}}}" for word in names)
                raise RefusalError(f"{name}.{field} has unknown names in braces; the known ones are {known}.") from None
        found[name] = filled
    return found


def read_mirrors(path: str) -> dict[str, dict[str, str]]:
    """Read a JSON file that replaces addresses and keys of REPOSITORIES: `{"docker": {"address": "https://..."}}`.

    A plain mirror keeps the vendor's key; one that signs the packages itself has its own.
    """
    if not path:
        return {}
    try:
        mirrors = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise RefusalError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise RefusalError(f"{path} is not JSON: {error}.") from None
    if not isinstance(mirrors, dict) or not all(isinstance(value, dict) for value in mirrors.values()):
        raise RefusalError(f'{path} must hold an object for each repository: {{"docker": {{"address": "..."}}}}.')
    for name, values in mirrors.items():
        for key, value in values.items():
            if name not in REPOSITORIES or key not in REPLACEABLE:
                known = f"{', '.join(REPOSITORIES)}, each with {', '.join(REPLACEABLE)}"
                raise RefusalError(f"{path} names {name}.{key}, which setup does not know: the names are {known}.")
            # The values become part of shell commands and apt's files.
            form = r"[0-9A-F]{40}" if key == "fingerprint" else r"(?:https?|file)://[\w.{}/:@%~+-]+"
            if not isinstance(value, str) or not re.fullmatch(form, value):
                what = "40 digits and letters A-F" if key == "fingerprint" else "an https:// address"
                raise RefusalError(f"{path}: {name}.{key} is {value!r}, and must be {what}.")
    return mirrors
