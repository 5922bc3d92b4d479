"""What a wheel with CUDA code was built for, by its file name, and whether that fits a project.

Nothing standardizes these names. catalogue/extensions.yml has the patterns of their parts; a name with any other part
is not understood, and such a wheel is never chosen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from gpukit.host.cards import data
from gpukit.host.kernels import from_arch_list, runs
from gpukit.image.guard import normalised
from gpukit.plan.index import MACHINES, PRE_RELEASE, SHA256, File, Platform, filename, parse
from gpukit.project import versions
from gpukit.project.pyproject import NAME
from gpukit.project.stack import minor, version

PINNED = re.compile(rf"\s*({NAME})\s*(\[[^\]]*\])?\s*@\s*(https?://\S+?\.whl(?:#\S*)?)\s*(;.*)?")
LARGEST_MINOR = 30  # torch211 is 2.11, and torch251 is 2.5.1
TWO_DIGITS_FROM = (12, 6)  # the oldest CUDA that 2.10 was built for: torch210cu121 is 2.1.0
OLD_ABI_UNTIL = (2, 6)  # from 2.7 on, all of PyTorch's wheels have the new C++ ABI: pytorch/pytorch#149044


@dataclass(frozen=True)
class Built:
    """A wheel as its name describes it. What the name does not say is empty.

    `version`: without the local part; `torch`: 2.12, or 2.5.1; `cuda`: 13.0, or 13; `or_newer`: also for newer PyTorch;
    `sass`: capabilities; `other`: an accelerator that is not CUDA; `unknown`: the part that is not understood.
    """

    name: str
    version: str
    file: str
    tags: tuple[str, ...]
    torch: str = ""
    cuda: str = ""
    or_newer: bool = False
    old_abi: bool = False
    sass: tuple[str, ...] = ()
    other: str = ""
    unknown: str = ""

    def __str__(self) -> str:
        said = [f"torch {self.torch}" if self.torch else "", f"CUDA {self.cuda}" if self.cuda else "", self.other]
        said += [f"capability {each}" for each in self.sass]
        return ", ".join([*filter(None, said), f"{self.tags[0]} {self.tags[2].partition('.')[0]}"])


@dataclass(frozen=True)
class Need:
    """What a wheel has to fit: the targets of one CPU architecture.

    `torch`: as torch.__version__ has it; `capabilities`: of the targets; `least_cuda`: the oldest that supports them.
    """

    platform: Platform
    torch: str
    cuda: str
    capabilities: tuple[str, ...]
    least_cuda: str = "0"

    def __str__(self) -> str:
        return f"torch {minor(self.torch)}, CUDA {self.cuda}, and {self.platform}"


def read(file: str) -> Built | None:
    """A wheel by its file name; None if it is not one of a wheel."""
    parts = file[: -len(".whl")].split("-")
    if not file.endswith(".whl") or len(parts) not in (5, 6):
        return None
    public, _, local = parts[1].lower().partition("+")
    name = normalised(parts[0])
    tags = tuple(parts[-3:])
    said, unknown = _parts(local.replace("_", "."))
    if len(parts) == 6 and not parts[2].isdigit():  # a build tag that says something
        unknown = unknown or parts[2]
    if in_name := re.search(r"-cu(\d{2,3})$", name):
        said.setdefault("cuda", []).append(in_name[1])
    cudas = {_cuda(each) for each in said.get("cuda", [])}
    cuda = max(cudas, key=len, default="")  # cu12torch2.8+cu129: the name says it twice
    torches = {_torch(each, version(cuda)) for each in said.get("torch", [])}
    if len(torches) > 1 or any(not cuda.startswith(each) for each in cudas):
        unknown = unknown or local
    return Built(
        name,
        public,
        file,
        tags,
        next(iter(torches), ""),
        cuda,
        "newer" in said,
        said.get("abi", ["1"])[0] in ("false", "0"),
        from_arch_list([f"sm_{each}" for each in said.get("sass", [])])[0],
        " ".join(said.get("other", [])),
        unknown,
    )


@dataclass(frozen=True)
class Pinned:
    """A wheel that a requirement names by URL. `arch`: the CPU architecture in its marker; empty if it names none."""

    line: str
    built: Built
    file: File
    extras: str
    arch: str
    by_version: str  # the same requirement, as if an index had the wheel


def pinned(line: str) -> Pinned | None:
    """The wheel of a requirement such as `name @ https://.../x.whl#sha256=... ; marker`; None for others."""
    match = PINNED.fullmatch(line)
    built = read(filename(match[3])) if match else None
    if not match or built is None or built.name != normalised(match[1]):
        return None
    text, tags = parse(built.name, built.file) or ("", ())
    hashed = SHA256.search(match[3])
    machine = re.search(r"platform_machine\s*==\s*['\"](\w+)['\"]", match[4] or "")
    arch = next((arch for arch, name in MACHINES.items() if machine and machine[1] == name), "")
    file = File(text, match[3], tags, sha256=hashed[1] if hashed else "")
    extras = match[2] or ""
    return Pinned(line, built, file, extras, arch, f"{match[1]}{extras}=={text} {match[4] or ''}".strip())


@cache
def _patterns() -> list[re.Pattern[str]]:
    return [re.compile(each) for each in data("extensions")["names"]]


def _parts(local: str) -> tuple[dict[str, list[str]], str]:
    """What the parts of a local version say, by the names of the patterns' groups, and the rest from the first part
    that is not understood.
    """
    said: dict[str, list[str]] = {}
    at = 0
    while at < len(local):
        found = next((match for each in _patterns() if (match := each.match(local, at))), None)
        if found is None or found.end() == at:
            return said, local[at:]
        for name, value in found.groupdict().items():
            if value:
                said.setdefault(name, []).append(value)
        at = found.end()
    return said, ""


def _torch(text: str, cuda: tuple[int, ...]) -> str:
    """2.10.0, or digits alone: 28 is 2.8, 211 is 2.11, and 251 is 2.5.1."""
    if "." in text:
        return text
    major = text[0]
    rest = text[1:]
    two = rest[:2]
    older = major == "2" and len(cuda) > 1 and cuda < TWO_DIGITS_FROM
    digits = 2 if len(two) == 2 and two[0] != "0" and int(two) <= LARGEST_MINOR and not older else 1
    return ".".join(filter(None, [major, rest[:digits], rest[digits:]]))


def _cuda(text: str) -> str:
    """13.0, or digits alone: 130 is 13.0, 12 is all of 12, and 92 is 9.2."""
    if "." not in text:
        digits = 1 if len(text) == 2 and text[0] != "1" else 2
        text = ".".join(filter(None, [text[:digits], text[digits : digits + 1]]))
    return ".".join(text.split(".")[:2])


def misfit(built: Built, need: Need) -> str:
    """Why a wheel does not fit, in a word; empty if nothing in its name is against it."""
    own = version(need.torch)[:2]
    cuda = version(built.cuda)
    if built.unknown:
        return "unknown"
    if built.other:
        return "accelerator"
    if not need.platform.fits(File(built.version, built.file, built.tags)):
        return "platform"
    if built.torch and not (version(built.torch)[:2] == own or (built.or_newer and version(built.torch) <= own)):
        return "torch"
    if built.torch and PRE_RELEASE.search(need.torch.partition("+")[0]):  # whose interfaces are those of no release
        return "torch"
    if built.old_abi and own > OLD_ABI_UNTIL:
        return "abi"
    if cuda and (cuda[:1] != version(need.cuda)[:1] or cuda > version(need.cuda)[: len(cuda)]):
        return "cuda"
    if len(cuda) > 1 and cuda < version(need.least_cuda):
        return "cuda"
    if built.sass and not all(runs(each, built.sass, ()) for each in need.capabilities):
        return "capability"
    return ""


def preference(built: Built) -> tuple:
    """Of the wheels of one version that fit, the greatest: for the nearest CUDA, and with a stated glibc."""
    return version(built.cuda), bool(built.torch), "manylinux" in built.tags[2]


def allowed(text: str, specifier: str) -> bool:
    """Whether a version satisfies a specifier such as `>=2.8,<3`. Pre-releases only if `==` names them."""
    public = re.sub(r"\+[\w.]+", "", specifier)
    named = any(sign.startswith("==") for sign, _ in versions.clauses(public))
    return versions.allows(public, text) and (named or not PRE_RELEASE.search(text))
