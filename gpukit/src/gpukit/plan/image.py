"""The base image: whether the registry has it for the target's CPU, and what it is to download."""

from __future__ import annotations

import os
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem
from gpukit.host.registry import Registry
from gpukit.plan import cache
from gpukit.project.messages import RefusalError
from gpukit.project.stack import Stack

SECONDS = 10  # for one answer of a registry


def name(stack: Stack) -> str:
    """The image that a build uses."""
    return os.environ.get("BASE_IMAGE") or (f"{stack.image}@{stack.digest}" if stack.digest else stack.image)


def ask(stack: Stack, arch: str, refresh: bool = False) -> tuple[dict[str, Any], float]:
    """The image's digest, the platforms that it is built for, and its compressed bytes for this one."""
    image = name(stack)

    def found() -> dict[str, Any]:
        registry = Registry(SECONDS)
        digest = registry.digest(image)
        if not digest:
            return {"image": image, "digest": "", "platforms": [], "bytes": 0}
        size = registry.download(image, f"linux/{arch}")
        return {"image": image, "digest": digest, "platforms": registry.platforms(image), "bytes": size}

    return cache.kept("image", [image, arch], found, refresh)


@check("image", "Base image", causes=("image-withdrawn", "image-not-for-this-cpu"))
def image(probes: Any, stack: Stack) -> Finding:
    """The build downloads the base image for the CPU of the machine that it runs on."""
    arch = probes.target.arch
    found = probes.image
    if isinstance(found, RefusalError):
        if found.id == "registry-missing":
            return problem("image-withdrawn", name(stack))
        return probes.not_asked(found)
    if not found["digest"]:
        return problem("image-withdrawn", found["image"])
    if not found["bytes"]:
        built = ", ".join(each.partition("/")[2] for each in found["platforms"]) or "other systems"
        return problem("image-not-for-this-cpu", found["image"], f"linux/{arch}", built=built, arch=arch)
    bare = found["image"].partition("@")[0]
    seen = (
        f"{bare} {found['digest'][:19]}, {found['bytes'] / 1e9:.1f} GB to download, {stack.size_gb:g} GB with packages"
    )
    return passed(seen + probes.as_of("image"))
