"""A step that runs out of memory in its middle ends as if it had not: same gradient, same buffers, no sample lost."""

from __future__ import annotations

import copy
import functools
import gc
import random
import re
import subprocess
import sys
import textwrap
import types
import warnings
import weakref
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gpukit.script.device import Device, choose
from gpukit.script.step import Step, is_oom
from gpukit.script.task import Task

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
CPU = choose(device="cpu")
NONE = -100  # cross_entropy's ignored label


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """More would only wait for each other in models as small as these."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("verdict", "kind", "origin", "words"), BLOCKS, ids=[block[3][:50] for block in BLOCKS])
def test_errors_that_say_that_memory_ran_out(verdict: str, kind: str, origin: str, words: str):
    assert is_oom(KINDS[kind](words)) == (verdict == "yes"), origin


def test_an_error_that_was_caused_by_one():
    try:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        except torch.OutOfMemoryError as cause:
            raise ValueError("this batch failed") from cause
    except ValueError as error:
        assert is_oom(error)
    assert is_oom(OSError(12, "Cannot allocate memory")) and not is_oom(OSError(28, "No space left on device"))


class Fails(torch.autograd.Function):
    """The identity, whose backward asks `gauge`."""

    @staticmethod
    def forward(context: Any, x: Tensor, gauge: Gauge) -> Tensor:
        context.gauge, context.rows = gauge, len(x)
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        context.gauge.measure(context.rows, "backward")
        return gradient, None


class Gauge(nn.Module):
    """Raises where more than `room` samples come at once, or the next `failures` times, in forward or in backward."""

    def __init__(self, room: int = 1 << 30, failures: int = 0, where: str = "forward", after: int = 0) -> None:
        super().__init__()
        self.room, self.failures, self.where, self.after = room, failures, where, after
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


class Tagger(nn.Module):
    """Tokens (batch, 6) to logits (batch, 6, 5), in float64, with a gauge in its middle."""

    def __init__(self, gauge: Gauge | None = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.body = nn.Sequential(nn.Linear(8, 16), nn.Tanh())
        self.gauge = gauge or Gauge()
        self.head = nn.Linear(16, 5)
        self.double()

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.gauge(self.body(self.embedding(tokens))))


def batch_of(size: int, seed: int = 0) -> dict[str, Tensor]:
    """Sentences of 1 to 6 words; the labels of the padding, and a few more, do not count."""
    random = torch.Generator().manual_seed(1000 * seed + size)
    tokens = torch.randint(0, 11, (size, 6), generator=random)
    labels = torch.randint(0, 5, (size, 6), generator=random)
    length = torch.randint(1, 7, (size, 1), generator=random)
    labels[torch.arange(6) >= length] = NONE
    return {"tokens": tokens, "labels": labels}


def valid(batch: dict[str, Tensor]) -> int:
    return int((batch["labels"] != NONE).sum())


def summed(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits = model(batch["tokens"])
    return functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=NONE, reduction="sum")


def tagger(gauge: Gauge | None = None, lr: float = 0.0, **step: Any) -> Step:
    torch.manual_seed(5)
    model = Tagger(gauge)
    return Step(Task(model, torch.optim.SGD(model.parameters(), lr), None, summed, valid), CPU, **step)


def expected(batch: dict[str, Tensor]) -> tuple[list[Tensor], Tensor]:
    """Gradients and loss of the whole batch at once, as one writes it by hand."""
    torch.manual_seed(5)
    model = Tagger()
    loss = functional.cross_entropy(
        model(batch["tokens"]).flatten(0, 1), batch["labels"].flatten(), ignore_index=NONE, reduction="mean"
    )
    loss.backward()
    return [parameter.grad for parameter in model.parameters()], loss.detach()


def furthest(gradients: list[Tensor], wanted: list[Tensor]) -> float:
    """Largest difference, relative to the norm of the whole gradient."""
    norm = torch.cat([each.flatten() for each in wanted]).norm()
    return max(((one - other).abs().max() / norm).item() for one, other in zip(gradients, wanted, strict=True))


def test_the_gradient_is_that_of_the_full_batch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gc, "collect", lambda: 0)  # a tenth of a second, some 300 times
    for size in range(1, 129):
        gauge = Gauge(failures=1 + size % 3 * (size > 4), where="forward" if size % 2 else "backward")
        step, batch = tagger(gauge), batch_of(size)
        loss = step(batch, seed=size)
        wanted, wanted_loss = expected(batch)
        assert step.retries == 1 + size % 3 * (size > 4)
        assert furthest([each.grad for each in step.parameters], wanted) < 1e-12
        assert abs(loss - wanted_loss) < 1e-12
        assert sum(gauge.seen[-len(step._parts(batch, size, 1)) :]) == size  # every sample, once


def test_it_halves_until_the_batch_fits_and_stays_there():
    gauge = Gauge(room=10)
    step = tagger(gauge)
    step(batch_of(100), seed=0)
    assert step.microbatch == 6 and step.retries == 4  # 100, 50, 25, 12: too much
    gauge.seen.clear()
    step(batch_of(100), seed=1)
    assert step.retries == 4 and set(gauge.seen) == {5, 6} and sum(gauge.seen) == 100
    assert step.notes[0].startswith("Out of memory with 100 samples (CUDA out of memory.") and len(step.notes) == 4


def test_a_single_sample_that_does_not_fit_ends_in_one_sentence():
    step = tagger(Gauge(room=0))
    before = copy.deepcopy(step.task.model.state_dict())
    with pytest.raises(SystemExit) as ending:
        step(batch_of(4), seed=0)
    assert "\n" not in str(ending.value) and "1 sample at a time" in str(ending.value)
    assert is_oom(ending.value)
    assert all(torch.equal(before[name], value) for name, value in step.task.model.state_dict().items())


def test_other_errors_are_not_caught():
    step = tagger()
    step.task.loss = lambda model, batch: model(batch["no such column"])
    with pytest.raises(KeyError):
        step(batch_of(4), seed=0)
    assert step.retries == 0


def test_the_failed_attempt_leaves_no_tensor_behind():
    kept: list[weakref.ref] = []
    alive: list[int] = []

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        alive.append(sum(each() is not None for each in kept))
        hidden = model.body(model.embedding(batch["tokens"]))
        kept.append(weakref.ref(hidden))
        return summed(model, batch)

    step = tagger(Gauge(room=4))
    step.task.loss = loss
    gc.disable()  # a cycle of references would keep them
    try:
        step(batch_of(8), seed=0)
    finally:
        gc.enable()
    assert alive[:2] == [0, 0]


def test_dropout_follows_from_the_seed_whatever_happened_before():
    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gauge, self.linear, self.drop = Gauge(), nn.Linear(6, 5), nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            return self.gauge(self.linear(self.drop(x)))

    def run(failures: int, microbatch: int | None) -> tuple[float, Tensor]:
        torch.manual_seed(3)
        model = Dropped()
        model.gauge.failures, model.gauge.where = failures, "backward"
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        step = Step(Task(model, optimizer, None, lambda model, x: model(x).square().sum()), CPU, microbatch=microbatch)
        torch.rand(7 * (1 + failures))  # what ran before does not matter
        return step(torch.ones(16, 6), seed=11).item(), model.linear.weight.detach().clone()

    plain, split, again = run(0, None), run(0, 8), run(1, None)
    assert again[0] == split[0] and torch.equal(again[1], split[1])
    assert plain[0] != split[0]  # other masks, as the docstring says


class Normed(nn.Module):
    def __init__(self, gauge: Gauge) -> None:
        super().__init__()
        self.norm, self.gauge, self.head = nn.BatchNorm1d(6), gauge, nn.Linear(6, 2)
        self.register_buffer("mask", torch.ones(6), persistent=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.seen = self.seen + len(x)  # another tensor in its place
        return self.head(self.gauge(self.norm(x) * self.mask))


def normed(gauge: Gauge, **options: Any) -> Step:
    torch.manual_seed(2)
    model = Normed(gauge)
    task = Task(model, torch.optim.SGD(model.parameters(), 0.1), None, lambda model, x: model(x).square().sum())
    return Step(task, CPU, **options)


def test_random_and_numpy_follow_from_the_seed_too():
    drawn = []

    def loss(model, batch):
        drawn.append((random.random(), numpy.random.rand()))
        return model(batch).sum()

    model = nn.Sequential(nn.Linear(3, 1))
    step = Step(Task(model, torch.optim.SGD(model.parameters(), 0.1), [], loss), choose(device="cpu"), check=False)
    for seed in (1, 2, 1):
        step(torch.ones(4, 3), seed)
    assert drawn[0] == drawn[2] != drawn[1]
    model.append(Gauge(failures=1))
    step(torch.ones(4, 3), 2)  # in two parts, after a failure
    assert drawn[3:4] == drawn[1:2] == drawn[4:5] and len(drawn) == 6


def test_buffers_count_each_sample_once():
    x = torch.randn(12, 6)
    failed, clean = normed(Gauge(failures=1, where="backward")), normed(Gauge(), microbatch=6)
    for step in (failed, clean):
        step(x, seed=0)
        step(x + 1, seed=1)
    states = [step.task.model.state_dict() for step in (failed, clean)]
    assert states[0]["norm.num_batches_tracked"] == 4 and states[0]["seen"] == 24
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert any("BatchNorm" in note for note in failed.notes)


def test_batch_norm_is_never_given_a_single_sample():
    step = normed(Gauge(), microbatch=2)
    step(torch.randn(7, 6), seed=0)
    assert step.task.model.gauge.seen == [3, 2, 2]
    with pytest.raises(SystemExit, match="BatchNorm needs 2"):
        normed(Gauge(room=2))(torch.randn(7, 6), seed=0)
    step.task.model.eval()
    step.task.model.gauge.seen.clear()
    step(torch.randn(3, 6), seed=0)
    assert step.task.model.gauge.seen == [2, 1]


def test_it_grows_back_and_waits_longer_after_each_failure():
    gauge = Gauge(room=4)
    step = tagger(gauge, grow_after=3)
    tried = []
    for number in range(50):
        step(batch_of(16), seed=number)
        tried.append(step.microbatch)
        if number == 30:
            gauge.room = 1 << 30
    assert tried[:4] == [4, 4, 8, 4]  # after the third clean step it tries 8, which fails in the fourth
    assert tried.index(8, 3) == 8 and tried[9] == 4  # six clean steps, the fourth among them
    assert tried.index(8, 10) == 20 and tried[21] == 4  # twelve
    assert tried.index(8, 22) == 44 and tried[-1] == 8  # twenty-four, and now there is room
    for number in range(50, 100):
        step(batch_of(16), seed=number)
    assert step.microbatch is None
    assert "trying the whole batch" in step.notes[-1]


def test_it_never_grows_beyond_what_was_given():
    gauge = Gauge(failures=1)
    step = tagger(gauge, microbatch=6, grow_after=1)
    for number in range(10):
        step(batch_of(16), seed=number)
    assert step.microbatch == 6 and max(gauge.seen[3:]) == 6  # the first three are of the check of the loss


def test_a_given_microbatch_wins_over_the_checkpoints():
    """Otherwise the remedy of an error, `--microbatch 4`, would be overwritten when the run is resumed."""

    def resumed(given: int | None, saved: Step) -> int | None:
        step = tagger(microbatch=given, grow_after=1)
        step.load_state_dict(saved.state_dict())
        found = step.microbatch
        for number in range(8):  # it may grow, but not beyond what was given, or the batch
            step(batch_of(12), seed=number)
            assert (step.microbatch or 12) <= (given or 12)
        return found

    given, shrunk = tagger(microbatch=8), tagger(Gauge(room=3), microbatch=8)
    shrunk(batch_of(12), seed=0)
    assert shrunk.microbatch == 3
    assert resumed(8, given) == 8 and resumed(4, given) == 4 and resumed(10, given) == 10
    assert resumed(8, shrunk) == 3  # the same command splits as the run that was interrupted
    assert resumed(2, shrunk) == 2 and resumed(6, shrunk) == 6 and resumed(None, shrunk) == 3


def test_a_resumed_step_splits_as_the_unbroken_one():
    def steps(step: Step, first: int, last: int) -> list[Any]:
        return [(step(batch_of(16, number), seed=number).item(), step.microbatch) for number in range(first, last)]

    unbroken = tagger(Gauge(room=4), lr=0.1, grow_after=5)
    whole = steps(unbroken, 0, 20)
    first = tagger(Gauge(room=4), lr=0.1, grow_after=5)
    begun = steps(first, 0, 8)
    second = tagger(Gauge(room=4), lr=0.1, grow_after=5)
    second.task.model.load_state_dict(first.task.model.state_dict())
    second.load_state_dict(first.state_dict())
    assert begun + steps(second, 8, 20) == whole


def test_a_batch_without_a_valid_target_changes_nothing():
    step, batch = tagger(lr=0.1), batch_of(4)
    batch["labels"][:] = NONE
    before = copy.deepcopy(step.task.model.state_dict())
    assert step(batch, seed=0).item() == 0
    assert all(torch.equal(before[name], value) for name, value in step.task.model.state_dict().items())


def test_a_part_without_a_valid_target_is_passed_over():
    batch = batch_of(8)
    batch["labels"][2:4] = NONE
    step = tagger(microbatch=2)

    def mean_times_count(model: nn.Module, part: dict[str, Tensor]) -> Tensor:
        loss = functional.cross_entropy(model(part["tokens"]).flatten(0, 1), part["labels"].flatten())
        return loss * valid(part)  # nan times 0, without a target

    step.task.loss = mean_times_count
    loss = step(batch, seed=0)
    wanted, wanted_loss = expected(batch)
    assert abs(loss - wanted_loss) < 1e-12 and furthest([each.grad for each in step.parameters], wanted) < 1e-12


class Forgetful(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.00 GiB.")


def test_the_optimizers_own_memory_is_another_sentence():
    model = Tagger()
    step = Step(Task(model, Forgetful(model.parameters()), None, summed, valid), CPU)
    with pytest.raises(SystemExit, match="Out of memory in the optimizer"):
        step(batch_of(4), seed=0)
    assert step.retries == 0


def test_a_memory_error_without_words():
    def step(self: Any, closure: Any = None) -> None:
        raise MemoryError

    model = Tagger()
    optimizer = type("Small", (torch.optim.SGD,), {"step": step})(model.parameters())
    with pytest.raises(SystemExit, match=r"Out of memory in the optimizer \(MemoryError\)"):
        Step(Task(model, optimizer, None, summed, valid), CPU)(batch_of(4), seed=0)


@pytest.mark.parametrize("check", [True, False])
def test_a_batch_that_cannot_be_split_is_trained_as_a_whole(check: bool):
    """It is known from the first batch, not when memory runs out."""
    gauge = Gauge()
    model = nn.Sequential(nn.Linear(6, 2), gauge)
    task = Task(model, torch.optim.SGD(model.parameters(), 0.1), None, lambda model, batch: model(batch[0]).sum())
    step, batch = Step(task, CPU, microbatch=2, check=check), (torch.zeros(4, 6), torch.zeros(23, 6))
    step(batch, seed=0)
    reason = "batch[1] has 23 rows for 4 samples"
    assert step.notes == [f"{reason}, so batches are not split: if memory runs out, training stops."]
    gauge.room = 2
    with pytest.raises(SystemExit, match=rf"cannot be split, since {re.escape(reason)}: use a smaller batch"):
        step(batch, seed=1)
    assert gauge.seen[-3:] == [4, 4, 4]


def test_clipping_is_of_the_whole_gradient():
    step, batch = tagger(clip=0.01, microbatch=3), batch_of(8)
    step(batch, seed=0)
    wanted, _ = expected(batch)
    norm = torch.cat([each.flatten() for each in wanted]).norm()
    assert furthest([each.grad for each in step.parameters], [each * 0.01 / norm for each in wanted]) < 1e-6


def test_layers_that_are_unfrozen_later_are_trained():
    model = Tagger()
    optimizer = torch.optim.SGD(model.head.parameters(), 0.1)
    step = Step(Task(model, optimizer, None, summed, valid), CPU)
    step(batch_of(4), seed=0)
    optimizer.add_param_group({"params": model.body.parameters()})
    before = model.body[0].weight.detach().clone()
    step(batch_of(4), seed=1)
    assert not torch.equal(before, model.body[0].weight) and len(step.parameters) == 4


def half(scale: float) -> Step:
    """fp16 autocast and a loss scale, on the CPU, which has both."""
    torch.manual_seed(1)
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    task = Task(model, optimizer, None, lambda model, x: model(x).float().square().sum(), scheduler=scheduler)
    step = Step(task, choose(device="cpu", dtype="fp16"))
    step.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    return step


def test_fp16_steps_that_overflow_are_left_out():
    step, x = half(2.0**40), torch.ones(6, 8)
    weight = step.task.model.weight.detach().clone()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the scheduler must not step before the optimizer has
        step(x, seed=0)
    assert torch.equal(weight, step.task.model.weight) and step.task.scheduler.last_epoch == 0
    assert step.state_dict()["scaler"]["scale"] == 2.0**39
    for number in range(1, 40):
        step(x, seed=number)
    assert not torch.equal(weight, step.task.model.weight) and step.task.scheduler.last_epoch > 0
    other = half(2.0**16)
    other.load_state_dict(step.state_dict())
    assert other.scaler.get_scale() == step.scaler.get_scale() < 2.0**40


def test_fp16_survives_running_out_of_memory():
    plain, failing = half(2.0**10), half(2.0**10)
    x = torch.randn(6, 8)
    losses = [plain(x, seed=0).item()]
    loss, gauge = failing.task.loss, Gauge(failures=1)

    def hungry(model: nn.Module, part: Tensor) -> Tensor:
        gauge(part)
        return loss(model, part)

    failing.task.loss = hungry
    losses.append(failing(x, seed=0).item())
    assert failing.retries == 1 and losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert torch.allclose(plain.task.model.weight, failing.task.model.weight, rtol=1e-3, atol=1e-4)


def test_a_compiled_model_is_not_compiled_for_every_size(monkeypatch: pytest.MonkeyPatch):
    compiled: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(1)
        return graph.forward

    torch.manual_seed(0)
    torch.compiler.reset()  # another test may have shown it that sizes vary
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    device = Device(torch.device("cpu"), compile=True)
    model = device.prepare(nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2)))
    task = Task(model, torch.optim.SGD(model.parameters(), 0.1), None, lambda model, x: model(x).square().sum())
    step = Step(task, device)
    for number, (size, microbatch) in enumerate([(64, None), (64, 32), (64, 12), (61, 7), (50, 5), (64, None)]):
        step.microbatch = microbatch
        step(torch.randn(size, 6), seed=number)
    assert len(compiled) == 2  # one for the first size, one for all others


def test_memory_that_really_runs_out(tmp_path: Path):
    """A bound on this process's address space; a batch that needs several times that much."""
    script = tmp_path / "hungry.py"
    script.write_text(
        textwrap.dedent("""
            import resource, torch
            from torch import nn
            from gpukit.script.step import Step
            from gpukit.script.device import choose
            from gpukit.script.task import Task

            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(16, 1024), *[nn.Tanh() for _ in range(10)], nn.Linear(1024, 4))
            optimizer = torch.optim.SGD(model.parameters(), 1e-6)
            task = Task(model, optimizer, None, lambda model, x: model(x).square().sum())
            step = Step(task, choose(device="cpu"))
            x = torch.randn(8192, 16)  # 32 MiB for each of twelve layers
            step(x[:4], seed=0)
            used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + (120 << 20), resource.RLIM_INFINITY))
            losses = [step(x, seed=number).item() for number in range(3)]
            print(step.retries, step.microbatch, losses[0] > losses[2])
        """),
        encoding="utf-8",
    )
    run = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=100, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert run.returncode == 0, run.stderr
    retries, microbatch, learned = run.stdout.split()
    assert int(retries) >= 1 and 1 <= int(microbatch) < 8192 and learned == "True"


def test_autocast_is_the_devices():
    seen = []
    model = nn.Linear(4, 2)

    def loss(model: nn.Module, x: Tensor) -> Tensor:
        out = model(x)
        seen.append(out.dtype)
        return out.sum()

    task = Task(model, torch.optim.SGD(model.parameters(), 0.1), None, loss)
    value = Step(task, Device(torch.device("cpu"), dtype=torch.bfloat16), check=False)(torch.ones(3, 4), seed=0)
    assert seen == [torch.bfloat16] and value.dtype == torch.float32


def test_a_batch_that_cannot_be_counted_is_no_empty_one():
    """Nothing would be trained, and the run be called done."""
    model = nn.Linear(2, 1)
    task = Task(model, torch.optim.SGD(model.parameters(), lr=0.1), [0], lambda model, batch: model(batch.x).sum())
    task.collate = lambda samples: types.SimpleNamespace(x=torch.ones(len(samples), 2))
    with pytest.raises(
        SystemExit, match=r"in this SimpleNamespace cannot be determined\. `collate` must return tensors"
    ):
        Step(task, CPU)(task.collate([0, 0]), 0)
