"""Which release has the PyTorch that a repository asks for, and runs on its hardware."""

from __future__ import annotations

from typing import NamedTuple

from gpukit.host import stacks
from gpukit.host.cards import data
from gpukit.project import versions
from gpukit.project.dependencies import Line
from gpukit.project.location import EXTRA
from gpukit.project.messages import RefusalError


class Choice(NamedTuple):
    """`answers`: for base and release; none if the template's own choice fits."""

    base: str
    release: str
    torch: str
    answers: dict[str, str]


# The release that is built for torch 2.0; each later minor release is for the next one of torch.
# https://github.com/pytorch/vision#installation, https://docs.pytorch.org/audio/2.11.0/installation.html (2026-11-26)
BUILT = {"torchvision": (0, 15), "torchaudio": (2, 0)}
STABLE = {"torchaudio": 11}  # from 2.11 on, it works with every later torch, too (the same page)


def asked(lines: list[Line], python: str = "3.12") -> list[tuple[Line, str]]:
    """The requirements that say which PyTorch, and its range in each."""
    applying = [line for line in lines if versions.applies(line.text, python)]
    found = [(line, line.text if line.name == "torch" else paired(line)) for line in applying]
    return [(line, text) for line, text in found if text]


def paired(line: Line) -> str:
    """The range of torch 2 that a range of torchvision or torchaudio is built for."""
    bounds = []
    stable = STABLE.get(line.name, 1000)
    for sign, bound in versions.clauses(line.text) if line.name in BUILT else ():
        major, minor, patch = [*versions.key(bound)[0], 0, 0, 0][:3]
        first = BUILT[line.name]
        if sign == "!=" or major > first[0]:
            continue
        torch = minor - first[1] if major == first[0] else -1
        same = sign in ("==", "===", "<=") or (sign == "~=" and bound.count(".") > 1)
        above = torch + (same or patch > 0)  # the first that it is not for
        if (same or sign == "<") and above <= stable:
            bounds.append(f"<2.{max(above, 0)}")
        if sign not in ("<", "<=") and torch >= 0:
            bounds.append(f">=2.{min(torch, stable)}.dev0")  # NVIDIA's builds are pre-releases
    return f"torch{','.join(bounds)}" if bounds else ""


def choose(ids: list[str], lines: list[Line], given: dict[str, str]) -> Choice:
    """The template's own choice if it fits; otherwise the newest that does. `given`: base and release, if answered.

    Raises:
        RefusalError: none fits; it names the lines, and the nearest release.
    """
    wanted = asked(lines)
    possible = candidates(ids, given)
    if not possible:
        raise RefusalError(f"No release of PyTorch runs on all of {', '.join(ids)}: adopt it for one of them.")
    for base, name, torch in possible:
        if all(versions.allows(text, torch) for _, text in wanted):
            first = (base, name) == possible[0][:2]
            return Choice(base, name, torch, {} if first else {"base": base, "release": name})
    shown = " and ".join(f"{line.text} ({line.file})" for line, _ in wanted)
    others = "".join(
        f" --extra {name}" for name in dict.fromkeys(line.name for line, _ in wanted if line.name in BUILT)
    )
    confirmed = [each for each in possible if data("stacks")["releases"][each[0]][each[1]]["confirmed"]]
    near = nearest(confirmed or possible, [text for _, text in wanted])
    if near is None:
        raise RefusalError(
            f"No PyTorch fits both: {shown}. A line such as `torch` in {EXTRA} replaces them: `gpukit adopt "
            f"--extra torch{others}`.",
            id="torch-ranges-contradict",
        )
    version = ".".join(near.split("+")[0].split(".")[:2])
    raise RefusalError(
        f"No release of PyTorch for {', '.join(ids)} fits {shown}; the nearest is {near.split('+')[0]}. If that "
        f"serves, `gpukit adopt --extra 'torch>={version}'{others}` replaces that, in {EXTRA}.",
        id="torch-range-unavailable",
    )


def candidates(ids: list[str], given: dict[str, str]) -> list[tuple[str, str, str]]:
    """Base, release, and torch of all that support the hardware, the template's own choice first."""
    releases = data("stacks")["releases"]
    own = data("stacks")["stacks"][ids[0]]["base"]
    found = []
    for base in dict.fromkeys([own, *releases]):
        confirmed = stacks.releases_for(base, ids, "minimal")
        others = [name for name, each in releases[base].items() if set(ids) <= {*each["hardware"]}]
        for name in dict.fromkeys([*confirmed, *others]):
            if given.get("base", base) == base and given.get("release", "current") in ("current", name):
                found.append((base, name, releases[base][name]["torch"]))
    return found


def nearest(possible: list[tuple[str, str, str]], wanted: list[str]) -> str | None:
    """The release that is nearest to these ranges; None if no version at all is in all of them."""
    bounds = [bound for text in wanted for _, bound in versions.clauses(text)]
    tried = [*bounds, *(f"{major}.{minor}.{patch}" for major in (1, 2) for minor in range(30) for patch in range(3))]
    if not any(all(versions.allows(text, each.rstrip(".*")) for text in wanted) for each in tried):
        return None
    middle = max(map(versions.key, bounds))

    def distance(torch: str) -> float:
        parts = [*versions.key(torch)[0], 0, 0][:2]
        there = [*middle[0], 0, 0][:2]
        return abs((parts[0] - there[0]) * 100 + parts[1] - there[1])

    return min((torch for _, _, torch in possible), key=distance)
