"""Wheels of packages with CUDA code, from the indexes in catalogue/extensions.yml: which fit all targets of a project.

They are pinned by URL and hash in pyproject.toml, one line for each CPU architecture: image, VS Code, Compose, native
environments, and Slurm all install from there, and read no other settings of uv's.
"""

from __future__ import annotations

import email.parser
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpukit.findings.finding import Finding, problem, skipped
from gpukit.host import stacks
from gpukit.host.cards import data
from gpukit.plan import wheels
from gpukit.plan.index import DATED, MACHINES, PRE_RELEASE, File, Indexes, Platform, Release, files, without_fragment
from gpukit.plan.packages import GLIBC
from gpukit.plan.wheels import Built, Need, Pinned, pinned
from gpukit.project import dependencies, pyproject, versions
from gpukit.project.location import located
from gpukit.project.messages import RefusalError
from gpukit.project.stack import Stack, StackError, load, minor, version

# for an answer of such an index: who calls `add` waits for it
SECONDS = 3.5
TRIES = 2
Received = dict  # answers of indexes, see Indexes
CAUSES = (
    "pinned-wheel-does-not-fit",
    "pinned-wheel-not-understood",
    "extension-has-wheel",
    "extension-other-release",
    "extension-nowhere",
    "extension-in-base",
    "extension-not-for-gpu",
    "extension-without-gpu",
    "extension-unhashed",
    "extension-pre-release",
)
# What `add` may have something better for.
REMEDIED = (
    "package-needs-torch-to-build",
    "package-not-for-this-cpu",
    "package-not-in-index",
    "package-from-source",
    "pinned-wheel-does-not-fit",
)


@dataclass(frozen=True)
class Wheel:
    """A wheel that fits the targets of one CPU architecture."""

    arch: str
    built: Built
    file: File
    publisher: str = ""

    def line(self, extras: str = "") -> str:
        """The requirement that pins it."""
        address = f"{without_fragment(self.file.url)}#sha256={self.file.sha256}"
        marker = f"sys_platform == 'linux' and platform_machine == '{MACHINES[self.arch]}'"
        return f"{self.built.name}{extras} @ {address} ; {marker}"


@dataclass(frozen=True)
class Found:
    """The wheels of a package and its parts for all targets, or the finding that says why there are none.

    `lines`: of pyproject.toml. `unknown_version`: the indexes have the package, but no version that the requirement
    allows.
    """

    wheels: tuple[Wheel, ...] = ()
    lines: tuple[str, ...] = ()
    missing: Finding | None = None
    unknown_version: bool = False


def facts_of(requirement: str) -> dict[str, Any] | None:
    """The catalogue's facts about the package of a requirement without an address; None if it has none."""
    match = pyproject.REQUIREMENT.fullmatch(requirement.strip())
    by_version = match and not (match[3] or "").startswith("@")
    return data("extensions")["extensions"].get(pyproject.canonical(match[1])) if match and by_version else None


def find(requirement: str, stack: Stack, received: Received | None = None) -> Found:
    """Look for wheels that fit all targets of a stack that have a GPU. The catalogue has the package.

    Raises:
        RefusalError: an index does not respond.
    """
    search = _Search(requirement, {} if received is None else received)
    try:
        return search.found(stack)
    finally:
        search.indexes.client.close()


class _Search:
    """One package, looked for in several stacks; each page is asked for once."""

    def __init__(self, requirement: str, received: Received) -> None:
        match = pyproject.REQUIREMENT.fullmatch(requirement.strip())
        self.name = pyproject.canonical(match[1])  # type: ignore[index]
        self.extras = match[2] or ""  # type: ignore[index]
        self.specifier = match[3] or ""  # type: ignore[index]
        self.facts = data("extensions")["extensions"][self.name]
        self.indexes = Indexes([], Platform("amd64", (), (0, 0)), received, SECONDS, TRIES)  # asked for pages alone
        self.versions: set[str] = set()
        self.almost: dict[str, str] = {}  # why a file is refused although its name fits: its version
        self.newest = ""  # the newest PyTorch of those that fit but for it

    def found(self, stack: Stack) -> Found:
        chosen = self.fitting(stack)
        if chosen:
            sized = (replace(each.file, size=self.indexes.size(each.file)) for each in chosen)
            chosen = tuple(replace(each, file=file) for each, file in zip(chosen, sized))
            lines = tuple(each.line(self.extras if each.built.name == self.name else "") for each in chosen)
            return Found(chosen, lines)
        unknown = bool(self.versions) and not any(wheels.allowed(each, self.specifier) for each in self.versions)
        return Found(missing=self.missing(stack), unknown_version=unknown)

    def fitting(self, stack: Stack) -> tuple[Wheel, ...]:
        """Of the first index that has them for all architectures; () if none has."""
        by_arch = needs(stack)
        if not by_arch or lacking(self.facts, stack) or (builds_own_torch(stack) and self.facts.get("torch", True)):
            return ()
        for id in self.facts["indexes"]:
            index = data("extensions")["indexes"][id]
            candidates = {
                (part, arch): self.candidates(part, index, need)
                for part in self.parts(stack)
                for arch, need in by_arch.items()
            }
            if chosen := self.chosen(candidates):
                return tuple(replace(each, publisher=index["publisher"]) for each in chosen)
        return ()

    def parts(self, stack: Stack) -> list[str]:
        major = (stack.cuda or "").partition(".")[0]
        return [part.format(cuda=major) for part in self.facts.get("parts", [self.name])]

    def candidates(self, part: str, index: dict[str, Any], need: Need) -> dict[str, Wheel]:
        """The best file of each version that fits."""
        found: dict[str, Wheel] = {}
        for file in self.listed(part, index, need):
            built = wheels.read(file.filename)
            if built is None or built.name != part:
                continue
            self.versions.add(built.version)
            why = wheels.misfit(built, need)
            if why == "torch" and not wheels.misfit(replace(built, torch=""), need):
                self.newest = max(self.newest, built.torch, key=version)
            if why or not self.accepts(file, built, need):
                continue
            best = found.get(built.version)
            if best is None or wheels.preference(built) > wheels.preference(best.built):
                found[built.version] = Wheel(need.platform.arch, built, file)
        return found

    def accepts(self, file: File, built: Built, need: Need) -> bool:
        """Whether a file whose name fits may be pinned."""
        if file.yanked:
            return False
        if not wheels.allowed(built.version, self.specifier):
            if PRE_RELEASE.search(built.version):
                self.almost["pre-release"] = built.version
            return False
        if not file.sha256:
            self.almost["unhashed"] = built.version
            return False
        linked = data("extensions")["extensions"].get(built.name, {}).get("torch", True)
        return bool(built.torch) or not linked or built.tags[2] == "any" or self.requires_torch(file, need)

    def requires_torch(self, file: File, need: Need) -> bool:
        """Whether METADATA requires exactly the project's release of PyTorch, of which the name says nothing."""
        text = self.indexes.metadata(self.name, Release(file.filename, file)).decode("utf-8", "replace")
        own = need.torch.partition("+")[0]
        for line in email.parser.HeaderParser().parsestr(text).get_all("Requires-Dist") or []:
            exactly = re.fullmatch(r"torch\s*\(?\s*==\s*(\d+\.\d+)(\.\d+|\.\*)?[^,]*", line.strip())
            if exactly:
                return exactly[1] == minor(own) and exactly[2] in (None, ".*", own[len(minor(own)) :])
        return False

    def listed(self, part: str, index: dict[str, Any], need: Need) -> list[File]:
        """The files on the index's pages for the project's CUDA, and for older ones of its major version."""
        own = version(need.cuda)[:2]
        fitting = [each for each in index["cuda"] if version(each)[:1] == own[:1] and version(each) <= own]
        release = need.torch.partition("+")[0]
        torches = dict.fromkeys([release, f"{minor(release)}.0"]) if "{torch}" in index["page"] else [""]
        found: dict[str, File] = {}
        for cuda in sorted(fitting, key=version, reverse=True):
            for torch in torches:
                page = index["page"].format(cuda=cuda.replace(".", ""), torch=torch, package=part)
                for file in self.page(page, part):
                    found.setdefault(file.filename, file)
        return list(found.values())

    def page(self, address: str, part: str) -> list[File]:
        try:
            answer = self.indexes.ask(address, {"Accept": DATED}, missing=True)
        except RefusalError as error:
            if error.id != "index-refused":  # some answer 403 for a page that they do not have
                raise
            answer = None
        return files(part, address, answer) if answer else []

    def chosen(self, candidates: dict[tuple[str, str], dict[str, Wheel]]) -> list[Wheel]:
        """One version of all parts, and for all architectures if they have one in common."""
        if common := set.intersection(*(set(each) for each in candidates.values())):
            newest = max(common, key=versions.key)
            return [each[newest] for each in candidates.values()]
        if "parts" in self.facts or not all(candidates.values()):
            return []
        return [each[max(each, key=versions.key)] for each in candidates.values()]

    def missing(self, stack: Stack) -> Finding:
        """Why there are none, and what helps."""
        facts = {"torch": minor(stack.torch), "cuda": stack.cuda, "instead": self.facts.get("instead", "")}
        facts |= {"package": self.name, "newest": self.newest}
        if pyproject.matches(self.name, list(stack.protected)):
            return problem("extension-in-base", self.name, **facts)
        if not needs(stack):
            return problem("extension-without-gpu", self.name, **facts)
        if ids := lacking(self.facts, stack):
            return problem("extension-not-for-gpu", self.name, ids=", ".join(ids), **facts)
        almost = dict(self.almost)
        if answers := self.other_release(stack):
            return problem("extension-other-release", self.name, answers=answers, **facts)
        for why, found in almost.items():
            return problem(f"extension-{why}", self.name, version=found, **facts)
        return problem("extension-nowhere", self.name, **facts)

    def other_release(self, stack: Stack) -> str:
        """The answers for the newest release in the catalogue that has the package, by the catalogue's own rules."""
        known = data("stacks")
        for base in dict.fromkeys([stack.base, "wheel", *known["releases"]]):
            releases = known["releases"][base]
            names = stacks.releases_for(base, stack.targets, stack.use_case)
            other_base = [f"base={base}"] * (base != stack.base)
            if names and {self.name, *self.facts.get("parts", ())} & {*known["brings"][base]}:
                return " ".join(["--answers", *other_base])
            for name in sorted(names, key=lambda each: version(releases[each]["torch"]), reverse=True):
                fields = {field: releases[name][field] for field in ("torch", "cuda", "python")}
                if self.fitting(replace(stack, base=base, release=name, **fields)):
                    current = other_base and name == names[0] and stack.channel == "current"
                    return " ".join(["--answers", *other_base, *([] if current else [f"release={name}"])])
        return ""


def builds_own_torch(stack: Stack) -> bool:
    """Whether the base has a pre-release of PyTorch, which wheels for releases do not fit."""
    return bool(PRE_RELEASE.search(stack.torch.partition("+")[0]))


def needs(stack: Stack) -> dict[str, Need]:
    """By CPU architecture, what wheels for the project's GPUs have to fit."""
    found: dict[str, Need] = {}
    for arch in sorted({target.arch for target in stack.targets.values() if target.capability and stack.cuda}):
        targets = {id: each for id, each in stack.targets.items() if each.capability and each.arch == arch}
        least = [data("cards").get(id, {}).get("min_cuda") or "0" for id in targets]
        found[arch] = Need(
            Platform(arch, version(stack.python)[:2], GLIBC["container"]),
            stack.torch,
            stack.cuda or "",
            tuple(sorted({each.capability or "" for each in targets.values()}, key=version)),
            max(least, key=version),
        )
    return found


def lacking(facts: dict[str, Any], stack: Stack) -> list[str]:
    """The targets whose GPUs a package has no kernels for."""
    least, only = (facts.get("capabilities", {}).get(kind) for kind in ("from", "only"))
    targets = {id: target.capability for id, target in stack.targets.items() if target.capability}
    return [id for id, own in targets.items() if version(own) < version(least or "0") or (only and own not in only)]


# What pyproject.toml pins


def unfit(pin: Pinned, need: Need) -> str:
    """Why a pinned wheel does not fit an architecture, in a word of wheels.misfit; empty if it fits, or is not for it.

    Whether a wheel without a marker is for it, only its tags say.
    """
    if pin.arch not in ("", need.platform.arch):
        return ""
    why = wheels.misfit(pin.built, need)
    return "" if why == "platform" and not pin.arch else why


def judge(requirements: Iterable[str], stack: Stack) -> list[Finding]:
    """A finding for each pinned wheel whose name says that it was built for another PyTorch, CUDA, or GPU."""
    found = []
    for need in needs(stack).values():
        for pin in filter(None, map(pinned, requirements)):
            why = unfit(pin, need)
            if why and why != "platform":  # of which uv's resolution says more
                facts = {"package": pin.built.name, "built": str(pin.built), "has": str(need)}
                id = "pinned-wheel-not-understood" if why == "unknown" else "pinned-wheel-does-not-fit"
                finding = (skipped if why == "unknown" else problem)(id, pin.built.file, str(need), **facts)
                found.append(replace(finding, id=f"wheel-{pin.built.name}", title=pin.built.name))
    return found


def remedied(findings: Iterable[Finding], stack: Stack, received: Received) -> list[Finding]:
    """Findings about packages, with what `add` has for them, or what has to change so that it has something.

    `stack`: with all targets of the project, since `add` pins wheels for all or for none.
    """
    found = []
    silent = False
    for finding in findings:
        facts = facts_of(finding.title) if finding.cause_id in REMEDIED and not silent else None
        try:
            found.append(finding if facts is None else _remedied(finding, facts, stack, received))
        except RefusalError:  # what the findings say is still right; waiting for each of them would take minutes
            silent = True
            found.append(finding)
    return found


def _remedied(finding: Finding, facts: dict[str, Any], stack: Stack, received: Received) -> Finding:
    found = find(finding.title, stack, received)
    if found.missing and facts.get("jit") and not lacking(facts, stack):
        return finding
    other = found.missing
    if other is None:
        first = found.wheels[0]
        values = {"package": finding.title, "version": first.built.version, "publisher": first.publisher}
        values |= {"torch": minor(stack.torch), "cuda": stack.cuda or "", "lines": " and ".join(found.lines)}
        if finding.cause_id == "pinned-wheel-does-not-fit":
            return replace(finding, values={**finding.values, **values})
        other = problem("extension-has-wheel", finding.seen, finding.expected, **values)
    kept = {name: getattr(finding, name) for name in ("id", "title", "status", "seen", "expected")}
    return replace(other, **kept)


def renew(folder: Path) -> str:
    """Look again for the pinned wheels that do not fit the folder's stack.json, and pin those that do instead.

    Returns:
        what changed, and what fits no more, in one line; empty if all fit
    """
    path = folder / dependencies.edited(folder)
    try:
        stack = load(located("stack.json", folder))
        text = pyproject.read(path)
        pins = [pin for pin in map(pinned, dependencies.editor(folder, text).values()) if pin]
    except (StackError, RefusalError):
        return ""
    said: list[str] = []
    received: Received = {}
    by_arch = needs(stack)
    done = set[str]()
    before = text
    silent = False
    for name in dict.fromkeys(pin.built.name for pin in pins):
        own = [pin for pin in pins if pin.built.name == name]
        covered = {pin.arch for pin in own}
        fits = not any(unfit(pin, need) for pin in own for need in by_arch.values())
        if name in done or (fits and ("" in covered or covered >= set(by_arch))):
            continue
        known = facts_of(name) is not None
        found = Found()
        if known and not silent:
            try:
                found = find(f"{name}{own[0].extras}", stack, received)
            except RefusalError:
                silent = True
        for part in dict.fromkeys(each.built.name for each in found.wheels):
            text = dependencies.editor(folder, text).only([e for e in found.lines if pyproject.name_of(e) == part])
            done.add(part)
        if found.wheels:
            new = found.wheels[0]
            said.append(
                f"{name} {own[0].built.version} -> {new.built.version} (of {new.publisher}), "
                f"for torch {minor(stack.torch)} and CUDA {stack.cuda}"
            )
        else:
            help = f"`./launch add {name}` says what helps" if known else "pin another wheel, or remove it"
            said.append(f"{name} {own[0].built.version} fits no more: {help}")
    if text != before:
        pyproject.write(path, text)
    return "; ".join(said)
