"""One process or several, as started by torchrun, and what they agree on."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from exactrun.progress import announce

PATIENCE = timedelta(minutes=10)  # for the slowest rank: the first batch, a compilation, a checkpoint

Value = TypeVar("Value")


class Ranks:
    """This process among `world`: `rank` is its number among all machines, `local_rank` its number on this one.

    A single process has no process group, and every method returns at once. With several, each method except `main` is
    a collective: every rank must call it, in the same order.
    """

    def __init__(self, rank: int = 0, world: int = 1, local_rank: int = 0, group: Any = None) -> None:
        self.rank = rank
        self.world = world
        self.local_rank = local_rank
        self.group = group

    @classmethod
    def start(cls, device_type: str) -> Ranks:
        """Join the process group that torchrun's RANK, WORLD_SIZE, and LOCAL_RANK describe; without them, one process.

        `device_type`: "cuda" or "cpu". GPU tensors use NCCL and CPU tensors gloo, so that ranks can agree without
        waiting for their GPUs. Raises SystemExit with one sentence if torchrun's variables are incomplete. Source: https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
        """
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if world == 1:
            return cls()
        missing = [name for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
        if missing:
            raise SystemExit(f"WORLD_SIZE is {world}, but {', '.join(missing)} is not set: start with torchrun.")
        rank = int(os.environ["RANK"])
        local_rank = int(os.environ["LOCAL_RANK"])
        if device_type == "cuda":
            if local_rank >= torch.cuda.device_count():
                found = f"PyTorch finds {torch.cuda.device_count()}"
                raise SystemExit(f"There is no GPU for process {local_rank} of this machine ({found}): start fewer.")
            torch.cuda.set_device(local_rank)
        backend = "cpu:gloo,cuda:nccl" if device_type == "cuda" else "gloo"
        with announce(f"Waiting for all {world} processes", shown=rank == 0):
            dist.init_process_group(backend, rank=rank, world_size=world, timeout=PATIENCE)
        return cls(rank, world, local_rank)

    @classmethod
    def joined(cls) -> Ranks:
        """The process group that the script has joined; without one, a single process.

        Raises SystemExit with one sentence if there will be a group, but it does not exist yet.
        """
        if not (dist.is_available() and dist.is_initialized()):
            if int(os.environ.get("WORLD_SIZE", "1")) > 1:
                raise SystemExit("Run needs the process group: call init_process_group before Run(...).")
            return cls()
        # Ranks agree with CPU tensors, which NCCL does not support.
        group = None if "gloo" in str(dist.get_backend_config()) else dist.new_group(backend="gloo")
        local_rank = int(os.environ.get("LOCAL_RANK", dist.get_rank()))
        return cls(dist.get_rank(), dist.get_world_size(), local_rank, group)

    @property
    def main(self) -> bool:
        """Whether this is rank 0, which writes files and prints."""
        return self.rank == 0

    def any(self, flag: bool) -> bool:
        """Whether `flag` is true on any rank."""
        return bool(self._agreed(int(flag), dist.ReduceOp.MAX)) if self.world > 1 else flag

    def least(self, value: float) -> float:
        """The smallest value of all ranks."""
        return self._agreed(value, dist.ReduceOp.MIN) if self.world > 1 else value

    def _agreed(self, value: float, how: Any) -> Any:
        tensor = torch.tensor(value, dtype=torch.int64 if isinstance(value, int) else torch.float64)
        dist.all_reduce(tensor, how, group=self.group)
        return tensor.item()

    def share(self, value: Value) -> Value:
        """Broadcast rank 0's object to all ranks, with pickle."""
        if self.world == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.group, device=torch.device("cpu"))
        return box[0]

    def gather(self, value: Value) -> list[Value]:
        """The objects of all ranks, on every rank; sent with pickle."""
        values = [value] * self.world
        if self.world > 1:
            dist.all_gather_object(values, value, group=self.group)
        return values

    def barrier(self) -> None:
        """Wait until every rank has called this."""
        self.any(False)
