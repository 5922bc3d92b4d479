"""The cap on PyTorch's part of memory that CPU and GPU share."""

from __future__ import annotations

import pytest

from gpukit.host import facts, memory

SPARK = {"capability": "12.1", "unified_memory": True}
H100 = {"capability": "9.0", "unified_memory": False}
CPU = {"capability": None, "unified_memory": False}
MEMINFO = "MemTotal: {} kB\nMemFree: 1024 kB\nMemAvailable: {} kB\n"


@pytest.fixture
def free(tmp_path, monkeypatch):
    """`free(0.5)`: half of the memory is available."""

    def write(part: float) -> None:
        path = tmp_path / "meminfo"
        path.write_text(MEMINFO.format(1 << 27, int(part * (1 << 27))), encoding="ascii")
        monkeypatch.setattr(memory, "MEMINFO", path)

    return write


def stack(*targets, fraction=0.8):
    return {"memory": {"fraction": fraction}, "targets": dict(enumerate(targets))}


@pytest.mark.parametrize(("part", "expected"), [(1.0, 0.8), (0.86, 0.8), (0.5, 0.45), (0.056, 0.01), (0.0, 0.01)])
def test_at_most_what_is_free_without_a_reserve(free, part, expected):
    free(part)
    assert memory.fraction(stack(SPARK)) == expected
    assert memory.fraction(stack(SPARK, CPU)) == expected


def test_nothing_to_cap(free, tmp_path, monkeypatch):
    free(0.5)
    assert memory.fraction(stack(H100, fraction=None)) is None
    assert memory.fraction({"targets": {}}) is None
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "missing")
    assert memory.fraction(stack(SPARK)) is None


@pytest.mark.parametrize(("here", "expected"), [(True, 0.45), (False, 1.0)])
def test_where_targets_differ_the_machine_decides(free, monkeypatch, here, expected):
    free(0.5)
    monkeypatch.setattr(memory, "unified", lambda: here)
    assert memory.fraction(stack(H100, SPARK)) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({facts.FASTOS: 'NAME="DGX SPARK FASTOS"'}, True),
        ({facts.TEGRA: "# R38 (release), REVISION: 2.0", facts.MODEL: "NVIDIA Jetson AGX Thor"}, True),
        ({}, False),
    ],
)
def test_a_machine_is_known_by_its_files(monkeypatch, files, expected):
    monkeypatch.setattr(facts, "text", files.get)
    monkeypatch.setattr(facts, "arch", lambda: "arm64")
    monkeypatch.setattr(facts, "CARDS", "/missing")
    assert memory.unified() is expected
