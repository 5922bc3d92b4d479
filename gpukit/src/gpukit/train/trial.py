"""A trial of the batch finder: a few steps of the project's own training, and their peak memory.

It runs as a separate process (`python -m gpukit.train.trial`), so that a crash does not end the finder, and so that one
trial's memory does not affect the next. The first line of JSON on stdin says what to build, each further line what to
try; it answers each with one line.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pickle
import resource
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import default_collate

from gpukit.project.stack import Stack, StackError, load
from gpukit.train.batch import Step, is_oom
from gpukit.train.data import length
from gpukit.train.device import Device, budget, choose, limit
from gpukit.train.task import Task

PROBES = 64  # samples that are looked at for the largest
PROBE_SECONDS = 5.0
OPTIONS = ("device", "dtype", "tf32", "channels_last")  # settings that choose the device, where a project has them


class HostMemory:
    """The CPU's memory that this process takes, in bytes above what it took when this was made.

    More than the budget is refused to it from then on (RLIMIT_DATA), so that the kernel has nobody to kill. What the
    kernel counts for RLIMIT_AS has a highest value, VmPeak. What it counts for RLIMIT_DATA has none: there it is what
    is counted now, and what has been given back since memory in use (VmHWM, which can be set back) was at its highest.
    Sources: proc_pid_status(5), proc_pid_clear_refs(5), getrlimit(2).
    """

    def __init__(self, device: Device, most: int | None, shared_by: int) -> None:
        found = budget(device)
        self.before = _process()
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        rooms = {found.how: found.free // (1 if found.how == "ulimit -v" else shared_by)}
        if soft != resource.RLIM_INFINITY:
            rooms["ulimit -d"] = soft - self.before["VmData"]
        if most is not None:
            rooms["as set"] = most
        self.how, self.budget = min(rooms.items(), key=lambda each: each[1])
        self.addresses = self.how == "ulimit -v"
        if not self.addresses:
            resource.setrlimit(resource.RLIMIT_DATA, (self.before["VmData"] + max(self.budget, 0), hard))

    def start(self) -> None:
        """Set back what can be; VmPeak cannot, so that sizes must come in ascending order."""
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    def peak(self) -> int:
        """Most bytes since `start`, above what there was at the beginning."""
        now = _process()
        if self.addresses:
            return now["VmPeak"] - self.before["VmSize"]
        return now["VmData"] - self.before["VmData"] + now["VmHWM"] - now["VmRSS"]

    def thrashed(self) -> bool:
        """Never: the CPU has no allocator that gives back its cache."""
        return False


class GpuMemory:
    """The GPU's memory that this process takes: what PyTorch's allocator holds, and what libraries take beside it."""

    def __init__(self, device: Device, most: int | None, shared_by: int) -> None:
        found = budget(device)
        self.device, self.how, self.budget = device.device, found.how, found.free
        self.shared = torch.cuda.get_device_properties(self.device).is_integrated  # free memory is not only ours there
        if most is not None and most < found.free:
            self.how, self.budget = "as set", most
            torch.cuda.set_per_process_memory_fraction(most / found.total, self.device)
        self.room = self._room()

    def start(self) -> None:
        """Start a trial: empty the cache and reset the peaks."""
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)
        self.retries = self._retries()

    def peak(self) -> int:
        """Most bytes since `start`: reserved by PyTorch's allocator, and what libraries have taken beside it.

        Source: torch.cuda.max_memory_reserved, torch.cuda.mem_get_info.
        """
        torch.cuda.synchronize(self.device)
        beside = 0 if self.shared else max(0, self.room - self._room())
        return torch.cuda.max_memory_reserved(self.device) + beside

    def thrashed(self) -> bool:
        """Whether the allocator had to give back its cache and ask again: it fits, and slowly."""
        return self._retries() > self.retries

    def _room(self) -> int:
        return torch.cuda.mem_get_info(self.device)[0] + torch.cuda.memory_reserved(self.device)

    def _retries(self) -> int:
        return torch.cuda.memory_stats(self.device).get("num_alloc_retries", 0)


class Samples:
    """Batches of any size, made of up to 64 samples that lie evenly in the data set, over and over.

    Where their sizes differ, of the largest alone: with samples padded to the longest of their batch, none takes more.
    Samples that are larger still may exist where the data set is longer: `Step` splits their batches.
    """

    def __init__(self, task: Task) -> None:
        total = length(task.dataset)
        count = min(total, PROBES)
        samples, since = [], time.monotonic()
        for number in range(count):
            samples.append(task.dataset[number * total // count])
            if time.monotonic() - since > PROBE_SECONDS and number >= 2:
                break
        sizes = [_bytes(sample) for sample in samples]
        self.samples = [each for each, size in zip(samples, sizes) if size == max(sizes)]
        self.collate = task.collate or default_collate
        alike = "all of equal size" if len(self.samples) == len(samples) else "the largest is used"
        self.how = f"{total} samples, {len(samples)} examined, {alike}"

    def batch(self, size: int) -> Any:
        """`size` samples, collated, as the loader would give them."""
        return self.collate([self.samples[number % len(self.samples)] for number in range(size)])


class Bench:
    """A task, ready to be stepped."""

    def __init__(self, request: dict[str, Any]) -> None:
        spec, settings = pickle.loads(base64.b64decode(request["task"]))
        module, _, name = spec.partition(":")
        build = getattr(importlib.import_module(module), name)
        stack = _stack()
        options = {name: getattr(settings, name) for name in OPTIONS if hasattr(settings, name)}
        self.device = choose(**options, compile=request["compile"], local_rank=request["local_rank"], stack=stack)
        if getattr(settings, "deterministic", False):
            torch.use_deterministic_algorithms(True)
            torch.backends.cudnn.benchmark = False
        limit(self.device, stack)
        meter = GpuMemory if self.device.device.type == "cuda" else HostMemory
        self.memory = meter(self.device, request["limit"], request["shared_by"])
        self.task = build(settings, self.device)
        self.samples = Samples(self.task)
        clip, microbatch = getattr(settings, "clip", None), getattr(settings, "microbatch", None)
        self.step = Step(self.task, self.device, clip=clip, microbatch=microbatch)

    def about(self) -> dict[str, Any]:
        """The first answer: the budget in bytes, what sets it, the device, and the samples."""
        return {
            "budget": self.memory.budget,
            "how": self.memory.how,
            "device": str(self.device.device),
            "samples": len(self.task.dataset),
            "data": self.samples.how,
        }

    def trial(self, size: int, steps: int) -> dict[str, Any]:
        """Train `steps` times on a batch of `size`."""
        self.memory.start()
        failed = ceiling = ""
        try:
            peak = self.steps(size, steps)
        except (Exception, SystemExit) as error:  # its frames hold tensors until this block is left
            text = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
            failed, ceiling = ("out of memory", "") if is_oom(error) else ("", text)
        if not failed and not ceiling and self.memory.thrashed():
            failed = "the allocator had to free its cache"
        if failed or ceiling:
            return {"fits": False, "ceiling": bool(ceiling), "why": failed or ceiling}
        self.task.optimizer.zero_grad()
        gc.collect()
        return {"fits": True, "peak_bytes": peak}

    def steps(self, size: int, steps: int) -> int:
        """The highest use of memory, in bytes. What still grows after the second step, as memory in pieces does, is
        taken to grow as much again."""
        for seed in range(steps):
            batch = self.samples.batch(size)  # the last one is still there, as in a loop over a loader
            loss = self.step(batch, seed)
            if self.step.retries:  # the step has split the batch and gone on
                raise torch.OutOfMemoryError("out of memory in the whole batch")
            if seed == 1:
                early = self.memory.peak()
        loss.item()
        peak = self.memory.peak()
        return 2 * peak - early


def _process() -> dict[str, int]:
    """Figures of this process, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    fields = (line.partition(":") for line in lines if line.startswith("Vm"))
    return {name: int(value.split()[0]) * 1024 for name, _, value in fields}


def _bytes(sample: Any) -> int:
    """The size of a sample: bytes of tensors and arrays in it, and lengths of texts and of lists of numbers."""
    if hasattr(sample, "nbytes"):
        return sample.nbytes
    if isinstance(sample, (str, bytes)):
        return len(sample)
    if isinstance(sample, dict):
        return _bytes(list(sample.values()))
    if isinstance(sample, Iterable):
        return sum(_bytes(each) for each in sample)
    return 1


def _stack() -> Stack | None:
    try:
        return load()
    except StackError:
        return None


def main() -> None:
    """The process of trials: a line of JSON in, a line of JSON out, until there are no more."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: not without the finder
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not be taken for an answer
    bench = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if bench is None:
                bench = Bench(request)
                answer = bench.about()
            else:
                answer = bench.trial(**request)
        except (Exception, SystemExit) as error:
            kind = "memory" if is_oom(error) else "error"
            answer = {kind: f"{type(error).__name__}: {error}".strip()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
