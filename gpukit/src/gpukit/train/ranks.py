"""One process or several, as started by torchrun, and their collective operations.

Unlike in DistributedDataParallel, gradients are not reduced during backward: a rank that runs out of memory would leave
the others waiting in a collective. Here, all ranks first agree that none of them ran out, and reduce then.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import accumulate, takewhile
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gpukit.track.progress import announce

# Bytes: few collectives, with a small copy (DDP: https://arxiv.org/abs/2006.15704)
BUCKET = 32 << 20
PATIENCE = timedelta(minutes=10)  # for the slowest rank: the first batch, a compilation, a checkpoint

Value = TypeVar("Value")


class Ranks:
    """This process among `world`: `rank` is its number among all machines, `local_rank` its number on this one.

    A single process has no process group, and every method returns at once. With several, each method except `main` is
    a collective: every rank must call it, in the same order.
    """

    def __init__(self, rank: int = 0, world: int = 1, local_rank: int = 0, group: Any = None) -> None:
        self.rank, self.world, self.local_rank, self.group = rank, world, local_rank, group
        self._bucket: dict[tuple[torch.device, torch.dtype], Tensor] = {}

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
        rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
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

    def sum(self, value: float) -> float:
        """The sum over all ranks; exact for int."""
        return self._agreed(value, dist.ReduceOp.SUM) if self.world > 1 else value

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

    def same_start(self, model: nn.Module) -> None:
        """Copy the parameters and buffers of rank 0 to every rank, in place."""
        if self.world > 1:
            self._broadcast([*model.parameters(), *model.buffers()])

    def share_buffers(self, model: nn.Module) -> None:
        """Give every rank the buffers of rank 0 that a checkpoint holds, such as BatchNorm's running statistics.

        Each rank sees its own part of the batch; rank 0's are the model's, as with DistributedDataParallel.
        """
        if self.world > 1:
            self._broadcast([modules[name] for modules, name in state_buffers(model)])

    @torch.no_grad()
    def _broadcast(self, tensors: list[Tensor]) -> None:
        for part, flat in self._flat([tensor.detach() for tensor in tensors]):
            dist.broadcast(flat, src=0)
            _unflatten(flat, part)

    def reserve(self, parameters: Iterable[nn.Parameter]) -> None:
        """Allocate the memory that `reduce` needs, before one rank could run out while the others wait."""
        if self.world > 1:
            for _ in self._flat([parameter.detach() for parameter in parameters if parameter.requires_grad]):
                pass

    @torch.no_grad()
    def reduce(self, parameters: Iterable[nn.Parameter], *also: Tensor) -> None:
        """Sum the gradients over all ranks, in place, in flat buckets; call this after backward.

        A gradient that is None counts as zero; one that is None on every rank stays None, so that the optimizer skips
        its parameter as it would in one process. `also`: other tensors to sum, such as the loss. Every rank passes the
        same shapes in the same order. Raises SystemExit with one sentence for sparse gradients.
        """
        if self.world == 1:
            return
        parameters = [parameter for parameter in parameters if parameter.requires_grad]
        if self.any(any(parameter.grad is None for parameter in parameters)):
            parameters = self._used(parameters)
        gradients = [parameter.grad for parameter in parameters]
        if any(gradient.layout != torch.strided for gradient in gradients):
            raise SystemExit("Sparse gradients are not supported with several processes: use Embedding(sparse=False).")
        for part, flat in self._flat([*gradients, *also]):
            dist.all_reduce(flat)
            _unflatten(flat, part)

    def _used(self, parameters: list[nn.Parameter]) -> list[nn.Parameter]:
        used = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.int32)
        dist.all_reduce(used, dist.ReduceOp.MAX)
        parameters = [parameter for parameter, one in zip(parameters, used.tolist(), strict=True) if one]
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return parameters

    def _flat(self, tensors: list[Tensor]) -> Iterator[tuple[list[Tensor], Tensor]]:
        """Groups of tensors of one kind, each with a flat tensor that holds their values; a large one is its own."""
        kinds: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
        for tensor in tensors:
            kinds.setdefault((tensor.device, tensor.dtype), []).append(tensor)
        for kind, same in kinds.items():
            while same:
                sizes = takewhile(lambda size: size <= BUCKET, accumulate(tensor.nbytes for tensor in same))
                count = len([*sizes]) or 1
                part, same = same[:count], same[count:]
                if count == 1 and part[0].is_contiguous():
                    yield [], part[0].view(-1)
                    continue
                size = sum(tensor.numel() for tensor in part)
                if kind not in self._bucket or self._bucket[kind].numel() < size:
                    self._bucket[kind] = torch.empty(size, device=kind[0], dtype=kind[1])
                flat = self._bucket[kind][:size]
                torch.cat([tensor.reshape(-1) for tensor in part], out=flat)
                yield part, flat

    def barrier(self) -> None:
        """Wait until every rank has called this."""
        self.any(False)

    def stop(self) -> None:
        """Leave the process group; all ranks must call this."""
        if self.world > 1 and dist.is_initialized():
            gc.collect()  # an object that still uses the group, such as DistributedDataParallel, would abort the exit
            self.barrier()
            dist.destroy_process_group()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.stop()


def state_buffers(model: nn.Module) -> list[tuple[dict[str, Any], str]]:
    """Where a model keeps the buffers of its state_dict: the dictionary of a module, and a name in it.

    Buffers outside the state_dict (`persistent=False`) are constants.
    """
    return [
        (module._buffers, name)
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None and name not in module._non_persistent_buffers_set
    ]


def _unflatten(flat: Tensor, part: list[Tensor]) -> None:
    if part:
        pieces = flat.split([tensor.numel() for tensor in part])
        torch._foreach_copy_(part, [piece.view(tensor.shape) for piece, tensor in zip(pieces, part, strict=True)])
