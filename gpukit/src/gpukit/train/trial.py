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

PROBES = 64  # samples among which the largest is chosen
PROBE_SECONDS = 5.0
OPTIONS = ("device", "dtype", "tf32", "channels_last")  # settings for `choose`, if the project has them


class HostMemory:
    """The host memory of this process, in bytes above its memory when this object was created.

    RLIMIT_DATA limits the process to the budget, so that the kernel does not kill it. For RLIMIT_AS, the kernel records
    the peak (VmPeak). For RLIMIT_DATA it does not: the peak is estimated as the current value, plus the memory released
    since the resident memory was highest (VmHWM, which can be reset).
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
        """Reset the peak. VmPeak cannot be reset, so sizes must be tried in ascending order."""
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    def peak(self) -> int:
        """The peak in bytes since `start`, above the memory at the beginning."""
        now = _process()
        if self.addresses:
            return now["VmPeak"] - self.before["VmSize"]
        return now["VmData"] - self.before["VmData"] + now["VmHWM"] - now["VmRSS"]

    def cache_was_freed(self) -> bool:
        """Never: the CPU's allocator has no cache to free."""
        return False


class GpuMemory:
    """The GPU memory of this process: of PyTorch's allocator, and of libraries that allocate their own."""

    def __init__(self, device: Device, most: int | None, shared_by: int) -> None:
        found = budget(device)
        self.device, self.how, self.budget = device.device, found.how, found.free
        self.shared = torch.cuda.get_device_properties(self.device).is_integrated  # the CPU uses that memory too
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
        """The peak in bytes since `start`: of PyTorch's allocator, and of libraries that allocate their own.

        Source: torch.cuda.max_memory_reserved, torch.cuda.mem_get_info.
        """
        torch.cuda.synchronize(self.device)
        beside = 0 if self.shared else max(0, self.room - self._room())
        return torch.cuda.max_memory_reserved(self.device) + beside

    def cache_was_freed(self) -> bool:
        """Whether the allocator had to free its cache and retry: the batch fits, but training is slow."""
        return self._retries() > self.retries

    def _room(self) -> int:
        return torch.cuda.mem_get_info(self.device)[0] + torch.cuda.memory_reserved(self.device)

    def _retries(self) -> int:
        return torch.cuda.memory_stats(self.device).get("num_alloc_retries", 0)


class Samples:
    """Batches of any size that repeat up to 64 samples, which are evenly spaced in the data set.

    If their sizes differ, only the largest is repeated: since samples are padded to the longest of their batch, no
    other batch takes more. If the data set has larger samples, `Step` splits their batches.
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
    """A task that is ready to train."""

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
        if not failed and not ceiling and self.memory.cache_was_freed():
            failed = "the allocator had to free its cache"
        if failed or ceiling:
            return {"fits": False, "ceiling": bool(ceiling), "why": failed or ceiling}
        self.task.optimizer.zero_grad()
        gc.collect()
        return {"fits": True, "peak_bytes": peak}

    def steps(self, size: int, steps: int) -> int:
        """Train; return the peak memory in bytes. Growth after the second step, such as from fragmentation, is
        assumed to happen once more."""
        for seed in range(steps):
            batch = self.samples.batch(size)  # the previous batch still exists, as in a loop over a loader
            loss = self.step(batch, seed)
            if self.step.retries:  # the step has split the batch
                raise torch.OutOfMemoryError("out of memory in the whole batch")
            if seed == 1:
                early = self.memory.peak()
        loss.item()
        peak = self.memory.peak()
        return 2 * peak - early


def _process() -> dict[str, int]:
    """Memory figures of this process, in bytes."""
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
    """Answer each line of JSON on stdin with one on stdout, until stdin ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the finder
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of libraries must not be mistaken for an answer
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
