"""`gpukit speed`: times the project's training step in each precision, memory layout, attention, compilation, and size.

One candidate after the other, in this process, each with a fresh task from the same initial weights. First its losses
over a few steps on one batch are compared with those of fp32, because a setting that is fast and wrong is no gain.
"""

from __future__ import annotations

import gc
import itertools
import json
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils.data import default_collate
from tqdm import tqdm

from exactrun.seeds import seed_all
from gpukit.project.stack import StackError, load
from gpukit.script.device import Device, _compile, choose, limit
from gpukit.script.step import is_oom
from gpukit.script.task import load_task

PARITY_STEPS = 3
# The largest relative difference to the losses in fp32. Reordered sums in fp32; else four times the spacing of the
# format's numbers at 1 (TF32 has the 10 bits of fp16).
TOLERANCE = {"fp32": 1e-4} | dict.fromkeys(("tf32", "fp16"), 4 * 2**-10) | {"bf16": 4 * 2**-7}
WARM_UP, TIMED_SECONDS, MOST_STEPS = 2, 1.0, 50
SAMPLES = 64  # different samples in a batch; larger ones repeat them
SIMPLER = 0.95  # a simpler candidate is recommended if it reaches this share of the fastest
TIMES = (2, 4)  # the batch size of the settings
ATTENTION = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}


@dataclass(frozen=True)
class Candidate:
    """`attention`: a key of ATTENTION, or "" for PyTorch's own choice."""

    precision: str
    batch_size: int
    channels_last: bool = False
    attention: str = ""
    compile: bool = False

    def __str__(self) -> str:
        layout = ["channels-last"] * self.channels_last + [f"{self.attention} attention"] * bool(self.attention)
        return ", ".join([self.precision, *layout, *["compiled"] * self.compile, f"batch {self.batch_size}"])


@dataclass
class Row:
    """`difference`: the largest relative one of the losses. `problem`: why it cannot be used, or is not the same."""

    candidate: Candidate
    samples_per_second: float = 0.0
    memory_gb: float | None = None
    difference: float | None = None
    problem: str = ""


class _Over(BaseException):
    """The time limit. Not an Exception, which torch.compile would report as its own."""


class Bench:
    """What all candidates share: the settings, one batch, and the losses in fp32."""

    def __init__(self, build: Callable[..., Any], settings: Any) -> None:
        self.build, self.settings, self.stack = build, settings, None
        with suppress(StackError):
            self.stack = load()
        size = getattr(settings, "batch_size", 32)
        self.batch_size = size if isinstance(size, int) else 32
        self.initial: dict[str, Tensor] = {}
        self.losses: list[float] = []
        self.noisy = self.images = self.attends = False

    def device(self, one: Candidate) -> Device:
        """Raises SystemExit if it is not supported here."""
        return choose(
            device=getattr(self.settings, "device", "auto"),
            dtype="fp32" if one.precision == "tf32" else one.precision,
            tf32=one.precision == "tf32" if one.precision in ("fp32", "tf32") else None,
            channels_last=one.channels_last,
            compile=one.compile,
            stack=self.stack,
        )

    def task(self, one: Candidate, device: Device) -> Any:
        """A fresh task with the initial weights of the first one."""
        names = {field.name for field in fields(self.settings)} if is_dataclass(self.settings) else set()
        changed = {"dtype": one.precision.replace("tf32", "fp32"), "compile": one.compile}
        seed_all(getattr(self.settings, "seed", 0))
        task = self.build(replace(self.settings, **{name: changed[name] for name in names & set(changed)}), device)
        trained = {name: each for name, each in task.model.named_parameters() if each.requires_grad}
        if not self.initial:
            self.initial = {name: each.detach().cpu().clone() for name, each in trained.items()}
        for name, each in trained.items():
            each.data.copy_(self.initial[name])
        if one.compile and task.model._compiled_call_impl is None:
            _compile(task.model)
        task.model.train()
        return task

    def batch(self, task: Any, size: int) -> Any:
        count = min(len(task.dataset), SAMPLES)
        seed_all(0)
        samples = [task.dataset[number * len(task.dataset) // count] for number in range(min(count, size))]
        return (task.collate or default_collate)([samples[number % len(samples)] for number in range(size)])

    def measure(self, one: Candidate, first: bool = False) -> Row:
        """A row for the candidate; `first`: it defines the losses of the others."""
        row = Row(one)
        try:
            self._measure(one, row, first)
        except (Exception, SystemExit) as error:  # its frames hold tensors until this block is left
            text = str(error).strip().partition("\n")[0][:120] or type(error).__name__
            row.problem = "out of memory" if is_oom(error) else text
        if one.compile:
            torch._dynamo.reset()
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        return row

    def _measure(self, one: Candidate, row: Row, first: bool) -> None:
        device = self.device(one)
        gpu = device.device if device.device.type == "cuda" else None
        if first:
            limit(device, self.stack)
        if gpu:
            torch.cuda.reset_peak_memory_stats(gpu)
        with sdpa_kernel(ATTENTION[one.attention]) if one.attention else nullcontext():
            task = self.task(one, device)
            batch = self.batch(task, one.batch_size)
            step = _Step(task, device, batch, one.batch_size)
            if first:
                self._learn(task, step)
                task = self.task(one, device)
                step = _Step(task, device, batch, one.batch_size)
            if one.batch_size == self.batch_size:
                self._compare(task, step, row, first)
            row.samples_per_second = one.batch_size / self._seconds(step, gpu)
            row.memory_gb = torch.cuda.max_memory_allocated(gpu) / 1e9 if gpu else None

    def _learn(self, task: Any, step: _Step) -> None:
        """What there is to choose from, and whether the model draws random numbers, as dropout does."""
        with _Watch() as watch:
            step(0)
        self.attends, self.images = watch.attends, any(each.ndim == 4 for each in task.model.parameters())
        with torch.no_grad():
            self.noisy = len({float(step.loss(seed)) for seed in (1, 2, 3)}) > 1

    def _compare(self, task: Any, step: _Step, row: Row, first: bool) -> None:
        """In eval mode if there is dropout, whose masks differ between kernels."""
        task.model.train(not self.noisy)
        losses = [float(step(number)) for number in range(PARITY_STEPS)]
        self.losses = losses if first else self.losses
        task.model.train()
        if not all(map(math.isfinite, losses)):
            row.problem = "the loss is NaN or infinite"
            return
        pairs = zip(losses, self.losses, strict=True)
        row.difference = max(abs(mine - known) / max(abs(known), 1e-12) for mine, known in pairs)
        if row.difference > TOLERANCE[row.candidate.precision]:
            row.problem = f"other losses than fp32 (at most {TOLERANCE[row.candidate.precision]:.1g})"

    def _seconds(self, step: _Step, gpu: torch.device | None) -> float:
        """Of a step: the fastest of three rounds."""

        def timed(steps: int) -> float:
            begun = time.perf_counter()
            for number in range(steps):
                step(number)
            if gpu:
                torch.cuda.synchronize(gpu)
            return (time.perf_counter() - begun) / steps

        timed(WARM_UP)
        steps = max(1, min(MOST_STEPS, round(TIMED_SECONDS / 3 / timed(1))))
        return min(timed(steps) for _ in range(3))


class _Step:
    """A plain training step on one batch, without the recovery that would hide a lack of memory."""

    def __init__(self, task: Any, device: Device, batch: Any, size: int) -> None:
        self.task, self.device, self.batch = task, device, device.move(batch)
        self.count = float(task.targets(batch)) if task.targets is not None else size
        self.scaler = torch.amp.GradScaler(device.device.type, 1024.0, enabled=device.scaler)

    def loss(self, seed: int) -> Tensor:
        torch.manual_seed(seed)
        with self.device.autocast():
            return self.task.loss(self.task.model, self.batch).float() / self.count

    def __call__(self, seed: int) -> Tensor:
        self.task.optimizer.zero_grad()
        loss = self.loss(seed)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.task.optimizer)
        self.scaler.update()
        return loss.detach()


class _Watch(TorchFunctionMode):
    attends = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.attends |= func is scaled_dot_product_attention
        return func(*args, **(kwargs or {}))


def speed(
    build: Callable[..., Any], settings: Any, *, seconds: float = 180.0, say: Callable[[str], object] = print
) -> tuple[list[Row], str]:
    """Measure until all is measured, `seconds` are over, or Ctrl-C is pressed; return the rows, and why it ended early.

    `say` receives a line before and after each candidate.
    """
    bench, rows, begun = Bench(build, settings), list[Row](), time.monotonic()
    try:
        with _time_limit(seconds):
            for one in _candidates(bench, rows):
                say(f"[{tqdm.format_interval(time.monotonic() - begun)} of {tqdm.format_interval(seconds)}] {one} ...")
                rows.append(bench.measure(one, first=not rows))
                if len(rows) == 1 and rows[0].problem:
                    break
        return rows, ""
    except (_Over, KeyboardInterrupt) as stopped:
        return rows, "the time limit" if isinstance(stopped, _Over) else "Ctrl-C"


def _candidates(bench: Bench, rows: list[Row]) -> Iterator[Candidate]:
    """Eager ones, these compiled, fastest first, and the fastest with larger batches; each depends on earlier rows."""
    size = bench.batch_size
    yield Candidate("fp32", size)
    gpu = bench.device(rows[0].candidate).device.type == "cuda"
    precisions = ("fp32", "tf32", "bf16", "fp16") if gpu else ("fp32", "bf16")
    kinds = [name for name in ATTENTION if gpu or name in ("flash", "math")] if bench.attends else []
    layouts = [{}, *[{"channels_last": True}] * bench.images, *({"attention": name} for name in kinds)]
    plain = [Candidate(precision, size, **layout) for layout in layouts for precision in precisions]
    yield from plain[1:]
    for row in _good(rows):
        yield replace(row.candidate, compile=True)
    for row, times in itertools.product(_good(rows)[:2], TIMES):
        yield replace(row.candidate, batch_size=times * size)


def _good(rows: list[Row]) -> list[Row]:
    return sorted((row for row in rows if not row.problem), key=lambda row: -row.samples_per_second)


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def over(*_: Any) -> None:
        raise _Over

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def recommended(rows: list[Row]) -> Row | None:
    """The fastest with the batch size of the settings, or a simpler one that is nearly as fast."""
    good = [row for row in _good(rows) if row.candidate.batch_size == rows[0].candidate.batch_size]

    def effort(row: Row) -> tuple[bool, bool, bool, bool]:
        one = row.candidate
        return one.compile, bool(one.attention), one.channels_last, one.precision != "fp32"

    if not good:
        return None
    near = [row for row in good if row.samples_per_second >= SIMPLER * good[0].samples_per_second]
    return min(near, key=lambda row: (effort(row), -row.samples_per_second))


def flags(one: Candidate, settings: Any) -> tuple[str, list[str]]:
    """The options of train.py for a candidate, and what has no option, as code."""
    number = one.precision.replace("tf32", "fp32")
    wanted: dict[str, Any] = {"dtype": number}
    if number == "fp32" and torch.cuda.is_available():
        wanted["tf32"] = one.precision == "tf32"
    wanted |= {name: True for name in ("channels_last", "compile") if getattr(one, name)}
    types = {field.name: str(field.type) for field in fields(settings)} if is_dataclass(settings) else {}
    options = [
        # as tyro has them: an option with `None` takes a value
        f"--{name.replace('_', '-')}" + f" {value}" * (value is not True or "None" in types[name])
        for name, value in wanted.items()
        if name in types
    ]
    code = [f"choose(..., {name}={value!r})" for name, value in wanted.items() if name not in types]
    if one.attention:
        code.append(f"torch.nn.attention.sdpa_kernel(SDPBackend.{ATTENTION[one.attention].name}) around the loop")
    return " ".join(options), code


def table(rows: list[Row]) -> str:
    """A line per candidate, the fastest first; those without a speed last."""
    lines = [("candidate", "samples/s", "x fp32", "memory", "loss difference", "")]
    for row in sorted(rows, key=lambda row: -row.samples_per_second):
        rate = row.samples_per_second
        memory = "-" if row.memory_gb is None else f"{row.memory_gb:.2f} GB"
        difference = "-" if row.difference is None else f"{row.difference:.1e}"
        times = f"{rate / rows[0].samples_per_second:.2f}" if rate else "-"
        lines.append((str(row.candidate), f"{rate:,.0f}" if rate else "-", times, memory, difference, row.problem))
    first, *widths = (max(len(line[place]) for line in lines) for place in range(5))
    rows_of_cells = ([line[0].ljust(first), *map(str.rjust, line[1:5], widths), line[5]] for line in lines)
    return "\n".join("  ".join(cells).rstrip() for cells in rows_of_cells)


def report(rows: list[Row], settings: Any, ended: str) -> str:
    """The table, and what to use."""
    lines, best = [table(rows)], recommended(rows)
    lines.append(f"Loss difference: the largest in {PARITY_STEPS} steps, relative to fp32 on the same batch.")
    if ended:
        lines.append(f"Ended by {ended}: other candidates were not measured.")
    if best is None:
        return "\n".join([*lines, f"The training step does not work in fp32: {rows[0].problem}."])
    options, code = flags(best.candidate, settings)
    lines.append(f"Fastest with the same losses: {best.candidate}: use {options or 'the defaults'}")
    lines += [f"In the code: {line}" for line in code]
    larger = _good(rows)[0]
    if larger.samples_per_second > best.samples_per_second / SIMPLER and larger.candidate != best.candidate:
        times = larger.samples_per_second / best.samples_per_second
        lines.append(f"{times:.2f} times as fast: {larger.candidate}. A larger batch changes training: adjust --lr.")
    return "\n".join(lines)


def main(task: str | None, arguments: list[str], minutes: float, as_json: bool) -> int:
    """Run the command; return its exit status. `arguments`: options of the training script."""
    build, settings = load_task(task, arguments)
    begin, end = ("\r\033[K", "") if sys.stderr.isatty() else ("", "\n")

    def say(text: str) -> None:
        print(f"{begin}{text}", end=end, file=sys.stderr, flush=True)

    rows, ended = speed(build, settings, seconds=60 * minutes, say=say)
    print(begin, end="", file=sys.stderr, flush=True)
    best = recommended(rows)
    if as_json:
        options, code = flags(best.candidate, settings) if best else ("", [])
        found = {"rows": [asdict(row) for row in rows], "flags": options, "code": code, "ended_by": ended}
        print(json.dumps({**found, "tolerance": TOLERANCE}, indent=2))
    elif rows:
        print(report(rows, settings, ended))
    return 130 if ended == "Ctrl-C" else 0 if best else 1
