"""Which release has the PyTorch that a repository asks for, and runs on its hardware."""

from __future__ import annotations

import re

from gpukit.host import stacks
from gpukit.host.cards import data
from gpukit.project import versions
from gpukit.project.dependencies import TORCH, Line, built_for, fits
from gpukit.project.location import EXTRA
from gpukit.project.messages import RefusalError

# In uv's messages: what a package requires of torch.
REQUIRES = re.compile(r"([A-Za-z0-9][\w.-]*?)(?:[=<>!~]\S*)? depends? on torch([=<>!~]\S*[^\s,.])")


def choose(ids: list[str], lines: list[Line], given: dict[str, str]) -> dict[str, str]:
    """The answers for base and release: none if the template's own choice fits; otherwise the newest that does.
    `given`: base and release, if answered.

    Raises:
        RefusalError: none fits; it names the lines, and the nearest release.
    """
    wanted = [line for line in lines if line.name in TORCH and versions.applies(line.text, "3.12")]
    possible = candidates(ids, given)
    if not possible:
        raise RefusalError(f"No release of PyTorch runs on all of {', '.join(ids)}: adopt it for one of them.")
    for base, name, torch in possible:
        if all(fits(line, torch) for line in wanted):
            first = (base, name) == possible[0][:2]
            return {} if first else {"base": base, "release": name}
    wanted = [line for line in wanted if versions.clauses(line.text)]
    near = nearest(wanted, possible)
    shown = " and ".join(f"{line.text} ({line.file})" for line in wanted)
    others = "".join(f" --extra {name}" for name in TORCH[1:] if name in [line.name for line in wanted])
    raise RefusalError(
        f"No release of PyTorch for {', '.join(ids)} fits {shown}; the nearest is {near.split('+')[0]}. If that "
        f"serves, `gpukit adopt --extra '{series(near)}'{others}` replaces that, in {EXTRA}.",
        id="torch-range-unavailable",
    )


def for_packages(ids: list[str], text: str, given: dict[str, str]) -> str:
    """What helps if packages require another torch, as uv's message says; empty if it does not."""
    facts = re.sub(r"we can conclude that .*?(?=\. And because|$)", "", text)
    pins = [Line(f"torch{bounds}", name) for name, bounds in REQUIRES.findall(facts)]
    names = {line.file for line in pins}
    possible = candidates(ids, given)
    if not pins:
        return ""
    for _, _, torch in possible:
        if all(any(fits(line, torch) for line in pins if line.file == name) for name in names):
            return f"torch {torch.split('+')[0]} fits: `gpukit adopt --extra '{series(torch)}'`."
    near = nearest(pins, possible)
    return (
        f"The nearest torch for {', '.join(ids)} is {near.split('+')[0]}. To use it, with packages that fit it: "
        f"`gpukit adopt --extra '{series(near)}' --extra {' --extra '.join(sorted(names))}`."
    )


def nearest(wanted: list[Line], possible: list[tuple[str, str, str]]) -> str:
    """The torch, of the confirmed releases if there are any, that is nearest to what the lines name."""
    confirmed = [each for each in possible if data("stacks")["releases"][each[0]][each[1]]["confirmed"]]
    return min((torch for _, _, torch in confirmed or possible), key=lambda torch: distance(wanted, torch))


def series(torch: str) -> str:
    """The requirement that chooses the releases with this torch, whatever its last number."""
    return f"torch=={'.'.join(torch.split('.')[:2])}.*"


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


def distance(wanted: list[Line], torch: str) -> int:
    """How far a torch is from the newest that is named: in minor releases, of which a major one counts as 100."""
    far = []
    for line in wanted:
        newest = max(versions.key(bound)[0] for _, bound in versions.clauses(line.text))
        release = [*newest, 0, 0]  # the minor version may be left out
        here = built_for(line.name, torch)[-1]
        far.append(abs((here[0] - release[0]) * 100 + here[1] - release[1]))
    return max(far)
