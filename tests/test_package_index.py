"""What the catalogue says about the package index's wheels of torch, against what was read there."""

from __future__ import annotations

import json
from pathlib import Path

from gpukit.project.stack import version

DATA = Path(__file__).parent / "data"
INDEX = json.loads((DATA / "torch_package_index.json").read_text(encoding="utf-8"))["torch"]
ALLOCATOR = json.loads((DATA / "torch_allocator.json").read_text(encoding="utf-8"))["torch"]


def test_package_index_and_pythons(catalogue: dict[str, dict]) -> None:
    releases = catalogue["images"]["releases"]
    for name, release in [*releases["wheel"].items(), *releases["cuda"].items()]:
        there = INDEX[release["torch"].partition("+")[0]]
        same = {there["cuda"][arch] for arch in release["kernels"]} == {release["cuda"]}
        assert release.get("package_index", False) == (same and release["cuda"] is not None), name
        assert release["pythons"] == there["pythons"] and release["python"] in release["pythons"], name


def test_the_cap_is_set_only_where_this_torch_reads_it(catalogue: dict[str, dict]) -> None:
    """Another torch fails at CUDA's first use if it meets an unknown key."""
    has_key = {name: torch["per_process_memory_fraction"] for name, torch in ALLOCATOR.items()}
    oldest = min((version(name) for name, there in has_key.items() if there))
    for base, releases in catalogue["images"]["releases"].items():
        for name, release in releases.items():
            cap = release.get("allocator_cap")
            torch = release["torch"].partition("+")[0]
            if base == "ngc":  # its pre-releases of 2.10 may be older than the key
                assert cap == ("version" if version(torch)[:2] > oldest[:2] else None), name
            else:
                assert cap == ("header" if has_key[torch] and release["cuda"] else None), name
