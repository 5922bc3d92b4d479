"""Which compiled kernels run on which GPU: NVIDIA's rules for binary and PTX compatibility."""

from __future__ import annotations

import re

from gpukit.project.stack import version


def runs(capability: str, sass: tuple[str, ...], ptx: tuple[str, ...]) -> str | None:
    """`sass` if a compiled kernel runs directly, `ptx` if the driver compiles one at first use, otherwise None.

    Compiled code runs on the same major version with the same or a higher minor version. PTX runs on the same or a
    higher version. The suffix `a` means that chip only, `f` the same major version.
    """
    own = version(capability)
    for kind, names in (("sass", sass), ("ptx", ptx)):
        for name in names:
            number = version(name)
            suffix = name[-1]
            same_major = own[:1] == number[:1] and number <= own
            if suffix == "a":
                fits = number == own
            elif suffix == "f" or kind == "sass":
                fits = same_major
            else:
                fits = number <= own
            if fits:
                return kind
    return None


def from_arch_list(names: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """torch's names, such as sm_75, sm_120a, and compute_120, as capabilities: (SASS, PTX)."""
    found: dict[str, list[str]] = {"sm": [], "compute": []}
    for name in names:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", name)
        if match:
            kind, major, minor, suffix = match.groups()
            found[kind].append(f"{major}.{minor}{suffix}")
    return tuple(found["sm"]), tuple(found["compute"])
