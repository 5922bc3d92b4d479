"""The gradients, the parameters, and the buffers of one model in several processes.

Unlike in DistributedDataParallel, gradients are not reduced during backward: a rank that runs out of memory would leave
the others waiting in a collective. Here, all ranks first agree that none of them ran out, and reduce then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, takewhile
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from exactrun.ranks import Ranks

# Bytes: few collectives, with a small copy (DDP: https://arxiv.org/abs/2006.15704)
BUCKET = 32 << 20


class Reduction:
    """Collective operations on tensors: every rank must call each, in the same order. One process does nothing."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self._bucket: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def same_start(self, model: nn.Module) -> None:
        """Copy the parameters and buffers of rank 0 to every rank, in place."""
        if self.ranks.world > 1:
            self._broadcast([*model.parameters(), *model.buffers()])

    def share_buffers(self, model: nn.Module) -> None:
        """Give every rank the buffers of rank 0 that a checkpoint holds, such as BatchNorm's running statistics.

        Each rank sees its own part of the batch; rank 0's are the model's, as with DistributedDataParallel.
        """
        if self.ranks.world > 1:
            self._broadcast([modules[name] for modules, name in state_buffers(model)])

    @torch.no_grad()
    def _broadcast(self, tensors: list[Tensor]) -> None:
        for part, flat in self._flat([tensor.detach() for tensor in tensors]):
            dist.broadcast(flat, src=0)
            _unflatten(flat, part)

    def reserve(self, parameters: Iterable[nn.Parameter]) -> None:
        """Allocate the memory that `reduce` needs, before one rank could run out while the others wait."""
        if self.ranks.world > 1:
            for _ in self._flat([parameter.detach() for parameter in parameters if parameter.requires_grad]):
                pass

    @torch.no_grad()
    def reduce(self, parameters: Iterable[nn.Parameter], *also: Tensor) -> None:
        """Sum the gradients over all ranks, in place, in flat buckets; call this after backward.

        A gradient that is None counts as zero; one that is None on every rank stays None, so that the optimizer skips
        its parameter as it would in one process. `also`: other tensors to sum, such as the loss. Every rank passes the
        same shapes in the same order. Raises SystemExit with one sentence for sparse gradients.
        """
        if self.ranks.world == 1:
            return
        parameters = [parameter for parameter in parameters if parameter.requires_grad]
        if self.ranks.any(any(parameter.grad is None for parameter in parameters)):
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
