"""A task that is found by its name, and read with the settings that it asks for."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gpukit.script import task

MODULE = """
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    width: int = 8


def build(settings: Settings, device: object) -> object:
    return settings.width


def bare(settings, device):
    pass
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose package is `demo`."""
    package = tmp_path / "src/demo"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "train.py").write_text(MODULE, encoding="utf-8")
    (package / "broken.py").write_text("import not_installed_anywhere\n", encoding="utf-8")
    monkeypatch.setenv("GPUKIT_PROJECT", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield package.parent
    for name in [name for name in sys.modules if name.partition(".")[0] == "demo"]:
        del sys.modules[name]


def test_by_its_name(sources: Path):
    build, settings = task.load_task("demo.train:build", ["--width", "16"])
    assert build(settings, None) == 16


def test_the_projects_own(sources: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(task, "load", lambda: SimpleNamespace(package="demo"))
    build, settings = task.load_task(None, [])
    assert build(settings, None) == 8


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("nowhere.train:build", "There is no module 'nowhere.train'"),
        ("demo.elsewhere:build", "There is no module 'demo.elsewhere'"),
        ("demo.train:make", "demo.train has no function 'make'"),
        ("demo.train:bare", "must annotate its settings"),
    ],
)
def test_what_is_not_there_is_one_sentence(sources: Path, spec: str, sentence: str):
    with pytest.raises(SystemExit, match=sentence):
        task.load_task(spec, [])


def test_another_rate_reaches_schedulers_within_one():
    from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

    from gpukit.script.task import scale_lr

    def rates(lr: float, factor: float) -> list[float]:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
        inner = [LinearLR(optimizer, 0.1, total_iters=4), CosineAnnealingLR(optimizer, 20)]
        scheduler, found = SequentialLR(optimizer, inner, [4]), []
        for step in range(12):
            if step == 2:
                scale_lr(factor, optimizer, scheduler)
            optimizer.step()
            scheduler.step()
            found.append(optimizer.param_groups[0]["lr"])
        return found[2:]

    assert rates(0.1, 3) == pytest.approx(rates(0.3, 1))


def test_what_a_module_lacks_itself_is_told_as_it_is(sources: Path):
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        task.load_task("demo.broken:build", [])


def test_without_a_stack_there_is_no_projects_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("GPUKIT_PROJECT", str(tmp_path))
    with pytest.raises(SystemExit, match="--task"):
        task.load_task(None, [])
