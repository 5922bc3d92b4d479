"""The folders that the container is given, and the caches that libraries fill."""

from __future__ import annotations

from typing import Any

from gpukit.checks import check
from gpukit.finding import Finding, count, failed, passed, skipped, warned
from gpukit.stack import Stack
from gpukit.verify.remedies import DOCTOR, REBUILD, START


@check("mounts", "Mounts", needs=("user",))
def mounts(saw: Any, stack: Stack) -> Finding:
    """There, writable, and really mounted: what is written into a folder of the container is lost with it."""
    for place in saw.mounts:
        if not place.there:
            return failed(f"{place.path}: not there", "a mounted folder", cause="It was not mounted.", remedy=START)
        if place.problem:
            return failed(
                f"{place.path}: {place.problem}",
                "writable",
                cause="Its source on the host belongs to somebody else, or is mounted read-only.",
                remedy=DOCTOR,
            )
    for place in saw.mounts:
        if not place.mounted:
            return warned(
                f"{place.path}: a folder of the container",
                "mounted",
                cause="What is written there is lost with the container.",
                remedy=START,
            )
    return passed(f"{count(len(saw.mounts), 'folder')}, writable")


@check("read-only", "Read-only mounts", needs=("user",))
def read_only(saw: Any, stack: Stack) -> Finding:
    """Data and credentials: readable, and not to be spoilt from in here."""
    if not saw.read_only:
        return skipped("This project mounts nothing read-only.")
    for place in saw.read_only:
        if place.problem:
            return failed(
                f"{place.path}: {place.problem}",
                "readable",
                cause="On the host it may be read by somebody else only.",
                remedy=DOCTOR,
            )
    for place in saw.read_only:
        if not place.mounted:
            return warned(f"{place.path}: not mounted", "mounted", cause="It was not mounted.", remedy=START)
        if not place.read_only:
            return warned(
                f"{place.path}: writable",
                "read-only",
                cause="The mount lacks `readonly`: what is changed there is changed on the host.",
                remedy="Add `readonly` to it in devcontainer.json, then rebuild.",
            )
    return passed(f"{count(len(saw.read_only), 'folder')}, readable")


@check("caches", "Caches", needs=("user",))
def caches(saw: Any, stack: Stack) -> Finding:
    """Model hubs, compilers and plotting fill folders below ~/.cache; one that is root's stops them."""
    for place in saw.caches:
        if place.problem:
            return failed(
                f"{place.path}: {place.problem}",
                "writable",
                cause="It belongs to somebody else, or is read-only.",
                remedy=REBUILD,
            )
    return passed(", ".join(place.path for place in saw.caches))
