"""The catalogue's facts about torch on the default package index agree with the recorded metadata."""

from __future__ import annotations

import json
from pathlib import Path

INDEX = json.loads((Path(__file__).parent / "data/torch_package_index.json").read_text(encoding="utf-8"))["torch"]


def test_package_index_and_pythons(catalogue: dict[str, dict]) -> None:
    releases = catalogue["images"]["releases"]
    for name, release in [*releases["wheel"].items(), *releases["cuda"].items()]:
        there = INDEX[release["torch"].partition("+")[0]]
        same = {there["cuda"][arch] for arch in release["kernels"]} == {release["cuda"]}
        assert release.get("package_index", False) == (same and release["cuda"] is not None), name
        assert release["pythons"] == there["pythons"] and release["python"] in release["pythons"], name
