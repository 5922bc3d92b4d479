"""DataLoader workers, and ranks that sum up their tensors. Runs in the worker."""

from __future__ import annotations

import datetime
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

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
        "seconds": time.monotonic() - started,
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
