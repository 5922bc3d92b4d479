"""A batch that runs out of memory in its middle ends as if it had not: same gradient, buffers, and random numbers."""

from __future__ import annotations

import gc
import math
import random
import subprocess
import sys
import textwrap
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from exactrun.errors import TrainingError, is_oom
from exactrun.fits import Fits
from exactrun.run import Run

HERE = Path(__file__).parent
BLOCKS = [block.split("\n") for block in (HERE / "oom-words.txt").read_text(encoding="utf-8").strip().split("\n\n")[1:]]
KINDS = {
    "torch.OutOfMemoryError": torch.OutOfMemoryError,
    "torch.AcceleratorError": torch.AcceleratorError,
    "torch.distributed.DistBackendError": torch.distributed.DistBackendError,
    "RuntimeError": RuntimeError,
    "ValueError": ValueError,
    "MemoryError": MemoryError,
}


@pytest.mark.parametrize(("verdict", "kind", "origin", "words"), BLOCKS, ids=[block[3][:50] for block in BLOCKS])
def test_errors_that_say_that_memory_ran_out(verdict: str, kind: str, origin: str, words: str) -> None:
    assert is_oom(KINDS[kind](words)) == (verdict == "yes"), origin


class Fails(torch.autograd.Function):
    """The identity, whose backward asks `gauge`."""

    @staticmethod
    def forward(context: Any, x: Tensor, gauge: Gauge) -> Tensor:
        context.gauge = gauge
        context.rows = len(x)
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        context.gauge.measure(context.rows, "backward")
        return gradient, None


class Gauge(nn.Module):
    """Raises where more than `room` samples come at once, or the next `failures` times, in forward or in backward."""

    def __init__(self, room: int = 1 << 30, failures: int = 0, where: str = "forward", after: int = 0) -> None:
        super().__init__()
        self.room = room
        self.failures = failures
        self.where = where
        self.after = after
        self.seen: list[int] = []

    def measure(self, rows: int, where: str) -> None:
        if where != self.where:
            return
        self.seen.append(rows)
        self.after -= 1
        if rows > self.room or (self.failures and self.after < 0):
            self.failures = max(0, self.failures - 1)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    def forward(self, x: Tensor) -> Tensor:
        self.measure(len(x), "forward")
        return Fails.apply(x, self)


class Model(nn.Module):
    """Inputs (batch, 6) to logits (batch, 5), in float64, with a gauge in its middle."""

    def __init__(self, gauge: Gauge | None = None, dropout: float = 0.0, norm: bool = False) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.body = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16) if norm else nn.Tanh(), nn.Dropout(dropout))
        self.head = nn.Linear(16, 5)
        self.gauge = gauge or Gauge()
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        self.seen = self.seen + len(x)  # another tensor in its place
        return self.head(self.gauge(self.body(x)))


def batch_of(size: int) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(size)
    return torch.randn(size, 6, generator=source).double(), torch.randint(0, 5, (size,), generator=source)


def loss_of(fits: Fits, batch: tuple[Tensor, Tensor]) -> float:
    fits.model.zero_grad()
    for attempt in fits(*batch):
        with attempt:
            total = 0.0
            for share, (inputs, labels) in attempt:
                loss = share * cross_entropy(fits.model(inputs), labels)
                loss.backward()
                total += loss.item()
    return total


def gradients(model: nn.Module) -> Tensor:
    return torch.cat([one.grad.flatten() for one in model.parameters()])


def test_the_gradient_is_that_of_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "collect", lambda: 0)  # a tenth of a second each time
    for most in (None, 2):
        assert math.isnan(loss_of(Fits(Model(), most=most), batch_of(0)))  # as in PyTorch
    for size in range(4, 65, 3):
        gauge = Gauge(failures=1 + (size > 15), where="forward" if size % 2 else "backward", after=size % 4 // 2)
        fits = Fits(Model(gauge), most=(size + 1) // 2)
        plain = Model()
        batch = batch_of(size)
        loss = loss_of(fits, batch)
        wanted = cross_entropy(plain(batch[0]), batch[1])
        wanted.backward()
        assert gauge.failures == 0 and loss == pytest.approx(wanted.item(), rel=1e-12)
        assert (gradients(fits.model) - gradients(plain)).norm() < 1e-12 * gradients(plain).norm()
        assert fits.model.seen == size


def test_it_halves_until_the_batch_fits_and_stays_there(capsys: pytest.CaptureFixture) -> None:
    gauge = Gauge(room=10)
    fits = Fits(Model(gauge))
    loss_of(fits, batch_of(100))
    assert fits.most == 7 and len(capsys.readouterr().err.splitlines()) == 4  # 100, 50, 25, 13: too much
    gauge.seen.clear()
    loss_of(fits, batch_of(100))
    assert set(gauge.seen) == {6, 7} and sum(gauge.seen) == 100
    again = Fits(Model(Gauge()), most=4)
    again.load_state_dict(fits.state_dict())
    assert again.most == 4, "a number that is given applies if it is smaller"


def test_what_cannot_be_helped_is_said() -> None:
    with pytest.raises(TrainingError, match="single sample"):
        loss_of(Fits(Model(Gauge(room=0))), batch_of(4))
    with pytest.raises(KeyError):
        for attempt in Fits(Model())(*batch_of(4)):
            with attempt:
                raise KeyError("no such column")


def test_with_others_that_would_wait_it_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(TrainingError, match="most=4"):
        loss_of(Fits(Model(Gauge(failures=1))), batch_of(8))


def test_the_failed_attempt_leaves_no_tensor_behind() -> None:
    kept = list[weakref.ref]()
    alive = list[int]()

    def forward(x: Tensor) -> Tensor:
        alive.append(sum(each() is not None for each in kept))
        hidden = model.body(x)
        kept.append(weakref.ref(hidden))
        return model.head(model.gauge(hidden))

    model = Model(Gauge(room=4))
    model.forward = forward
    gc.disable()  # a cycle of references would keep them
    try:
        loss_of(Fits(model), batch_of(8))
    finally:
        gc.enable()
    assert alive[:2] == [0, 0]


@pytest.mark.parametrize("after", [0, 1, 2])
def test_numbers_depend_on_the_parts_but_not_on_the_attempt_before(after: int) -> None:
    """Dropout, the global generators, and BatchNorm's buffers, wherever it failed."""
    found = []
    for gauge, most in ((Gauge(failures=1, where="backward", after=after), 12), (Gauge(), 6)):
        fits = Fits(Model(gauge, dropout=0.5, norm=True), most)
        fits.most = most
        random.seed(7), torch.manual_seed(3)
        loss = loss_of(fits, batch_of(48))
        found.append((loss, random.random(), torch.rand(()).item(), fits.most))
        found.append([gradients(fits.model), *fits.model.buffers()])
    assert found[0] == found[2]
    assert all(torch.equal(*pair) for pair in zip(found[1], found[3], strict=True))


def test_a_resumed_run_has_the_same_parts(tmp_path: Path) -> None:
    def losses(folder: Path, steps: int, room: int = 5) -> list[float]:
        model = Model(Gauge(room), dropout=0.5)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        fits = Fits(model)
        found = []
        with Run(folder, save_steps=1, progress=False) as run:
            torch.manual_seed(run.completed)
            run.keep(model=model, optimizer=optimizer, fits=fits)
            for _, size in run.enumerate([12, 16, 8, 20, 9, 11]):
                found.append(loss_of(fits, batch_of(size)))
                optimizer.step()
                run.step(loss=found[-1])
                if run.completed == steps:
                    return found
        return found

    whole = losses(tmp_path / "whole", 6)
    assert losses(tmp_path / "parts", 3) + losses(tmp_path / "parts", 6, room=1 << 30) == whole


def test_memory_that_really_runs_out(tmp_path: Path) -> None:
    """A bound on this process's address space; a batch that needs several times that much."""
    script = tmp_path / "hungry.py"
    script.write_text(
        textwrap.dedent("""
            import resource, torch
            from torch import nn
            from exactrun.fits import Fits

            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(16, 1024), *[nn.Tanh() for _ in range(10)], nn.Linear(1024, 4))
            optimizer, fits = torch.optim.SGD(model.parameters(), 1e-3), Fits(model)

            def step(x):
                optimizer.zero_grad()
                for attempt in fits(x):
                    with attempt:
                        total = 0.0
                        for share, (part,) in attempt:
                            loss = share * model(part).square().mean()
                            loss.backward()
                            total += loss.item()
                optimizer.step()
                return total

            x = torch.randn(8192, 16)  # 32 MiB for each of twelve layers
            step(x[:4])
            used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + (120 << 20), resource.RLIM_INFINITY))
            losses = [step(x) for _ in range(3)]
            print(fits.most, losses[0] > losses[2])
        """),
        encoding="utf-8",
    )
    run = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=100, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert run.returncode == 0, run.stderr
    most, learned = run.stdout.split()
    assert 1 <= int(most) < 8192 and learned == "True"
