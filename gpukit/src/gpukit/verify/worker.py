"""The process in which torch runs, so that a crash, a hang, or a GPU error ends this process and not verify.

It reads one request per line from standard input and answers each with one line of JSON. torch_process.py starts it.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpukit.verify import exercises


def facts() -> dict[str, Any]:
    import torch

    return {"version": str(torch.__version__), "cuda": torch.version.cuda}


def devices() -> dict[str, Any]:
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
        message = ""
        if not available:
            try:
                torch.cuda.init()
            except Exception as error:  # any exception: its text is reported
                message = str(error)
    text = " ".join([message, *(str(warning.message) for warning in caught)]).strip()
    cards = []
    for index in range(torch.cuda.device_count() if available else 0):
        properties = torch.cuda.get_device_properties(index)
        cards.append(
            {
                "name": properties.name,
                "capability": f"{properties.major}.{properties.minor}",
                "shared": bool(getattr(properties, "is_integrated", False)),
                "fraction": exercises.fraction(index),
            }
        )
    return {"devices": cards, "message": text, "arch_list": torch.cuda.get_arch_list() if available else []}


def tensor(device: str) -> dict[str, Any]:
    """Products of small integers are exact in every precision that a float32 product can use, including TF32."""
    import torch

    generator = torch.Generator().manual_seed(20)
    left, right = (torch.randint(-4, 5, (512, 512), generator=generator) for _ in range(2))
    product = left.float().to(device) @ right.float().to(device)
    result = product.cpu()
    return {"device": str(product.device), "equal": bool(torch.equal(result.long(), left @ right))}


def compile(device: str) -> dict[str, Any]:
    """With an empty cache: a cached result would hide a missing compiler."""
    with tempfile.TemporaryDirectory(prefix="gpukit-compile-") as cache:
        os.environ.update(TORCHINDUCTOR_CACHE_DIR=cache, TRITON_CACHE_DIR=f"{cache}/triton")
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # one kernel needs no pool of compilers
        # Saves six compilations that only detect the CPU's vector width.
        os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")
        import torch
        from torch._inductor import config

        if hasattr(config, "cpp_cache_precompile_headers"):
            config.cpp_cache_precompile_headers = False  # only pays off from the second kernel on

        def wave(x: Any) -> Any:
            return torch.sin(x) * 2 + torch.cos(x)

        # Few enough for one thread: of two, the first sine on a CPU may be wrong (pytorch/pytorch#188792).
        x = torch.linspace(-3, 3, 1024, device=device)
        started = time.monotonic()
        result = torch.compile(wave, fullgraph=True)(x)
        seconds = time.monotonic() - started
        compiled = any(files for _, _, files in os.walk(cache))
        equal = bool(torch.allclose(result, wave(x), rtol=1e-5, atol=1e-5))
    return {"device": str(x.device), "equal": equal, "compiled": compiled, "seconds": seconds}


def imports(module: str, call: str) -> dict[str, Any]:
    """Import a module, then run `call`: which of them fails, and its error. In an empty folder, since some packages
    write into the current one."""
    with tempfile.TemporaryDirectory(prefix="gpukit-imports-") as folder:
        before = Path.cwd()
        os.chdir(folder)
        try:
            for step in (f"import {module}", call):
                try:
                    exec(step, {})
                except (Exception, SystemExit) as error:
                    log = traceback.format_exc()
                    return {"failed": step, "kind": type(error).__name__, "text": str(error), "log": log}
        finally:
            os.chdir(before)
    return {}


LIMIT = 30  # seconds; torch's default for a rank that hangs is half an hour


def loader(workers: int, pinned: bool) -> dict[str, Any]:
    """Sixteen batches of a quarter megabyte through shared memory, and their sum."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    numbers = torch.arange(16 * 65536, dtype=torch.float32).reshape(1024, 1024) % 97
    started = time.monotonic()
    batches = DataLoader(TensorDataset(numbers), 64, num_workers=workers, pin_memory=pinned, timeout=LIMIT)
    iterator = iter(batches)
    try:
        total = sum(float(batch.double().sum()) for (batch,) in iterator)
    except (RuntimeError, OSError, EOFError) as error:
        # For a worker that ends early, the message is often only "exited unexpectedly" or a broken connection: its exit
        # code has the signal.
        workers_there = getattr(iterator, "_workers", ())
        for worker in workers_there:
            worker.join(0.5)
        killed = next((worker for worker in workers_there if (worker.exitcode or 0) < 0), None)
        if killed is None:
            raise
        name = signal.strsignal(-killed.exitcode)  # in the words of torch's own message
        raise RuntimeError(f"DataLoader worker (pid {killed.pid}) is killed by signal: {name}. {error}") from error
    return {"workers": workers, "equal": total == float(numbers.double().sum()), "seconds": time.monotonic() - started}


def collective(gpus: int) -> dict[str, Any]:
    """all_reduce over all GPUs with NCCL, or over two processes on the CPU with gloo."""
    from torch import multiprocessing

    kind, world = ("nccl", gpus) if gpus > 1 else ("gloo", 2)
    # Fork is fast and safe on the CPU; a forked process cannot use CUDA.
    context = multiprocessing.get_context("spawn" if kind == "nccl" else "fork")
    with tempfile.TemporaryDirectory(prefix="gpukit-ranks-") as folder:
        ranks = [context.Process(target=_rank, args=(rank, world, kind, folder), daemon=True) for rank in range(world)]
        started = time.monotonic()
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(max(0.1, started + 2 * LIMIT - time.monotonic()))
        silent = [index for index, rank in enumerate(ranks) if rank.is_alive()]
        for index in silent:
            ranks[index].kill()
        answers = [_read(Path(folder, str(rank))) for rank in range(world)]
    return {
        "kind": kind,
        "ranks": world,
        "silent": silent,
        "wrong": [index for index, answer in enumerate(answers) if answer == "wrong"],
        "message": next((answer for answer in answers if answer not in ("right", "wrong", "")), ""),
        "ended": [rank.exitcode for rank in ranks],
    }


def _rank(rank: int, world: int, kind: str, folder: str) -> None:
    answer = Path(folder, str(rank))
    try:
        import torch
        from torch import distributed

        device = f"cuda:{rank}" if kind == "nccl" else "cpu"
        if kind == "nccl":
            torch.cuda.set_device(rank)
        else:
            os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # the container's host name may not resolve
        distributed.init_process_group(
            kind,
            init_method=f"file://{folder}/meeting",
            rank=rank,
            world_size=world,
            timeout=datetime.timedelta(seconds=LIMIT),
        )
        numbers = torch.full((1024,), rank + 1.0, device=device)
        distributed.all_reduce(numbers)
        right = bool((numbers.cpu() == world * (world + 1) / 2).all())
        distributed.destroy_process_group()
        answer.write_text("right" if right else "wrong", encoding="utf-8")
    except Exception as error:
        answer.write_text(f"{type(error).__name__}: {error}", encoding="utf-8")


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""


def _function(name: str) -> Callable[..., dict[str, Any]]:
    return getattr(exercises, name, None) or globals()[name]


def _before(error: BaseException) -> str:
    """The exceptions before it: only there does a DataLoader name the signal that ended its worker."""
    lines = []
    earlier = error.__cause__ or error.__context__
    while earlier is not None and len(lines) < 8:
        lines.append(f"{type(earlier).__name__}: {earlier}\n")
        earlier = earlier.__cause__ or earlier.__context__
    return "".join(lines)


def main() -> None:
    # Libraries print to standard output, so the answers use a copy of it and the rest goes to standard error.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"answer": _function(request["do"])(*request["with"])}
        except Exception as error:
            answer = {"error": type(error).__name__, "text": str(error), "before": _before(error)}
        print(json.dumps(answer), file=answers, flush=True)
