"""Models that are sharded across processes (FSDP2): checkpoints contain whole tensors.

A checkpoint is therefore the same with and without shards, and any number of processes can load it. Tensors are put
together one after the other, in the memory of the first process. All processes call these functions, except `local`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer


def is_shard(one: Any) -> bool:
    """Whether this is a DTensor, whose module takes a second to import."""
    return isinstance(one, Tensor) and hasattr(one, "full_tensor")


def whole(state: Any, main: bool = True) -> Any:
    """The state with whole tensors on the CPU instead of shards; unless `main`, with None instead of shards."""

    def gather(one: Any) -> Tensor | None:
        found = one.full_tensor()
        return found.cpu() if main else None

    return _mapped(state, gather)


def local(state: Any) -> Any:
    """The state with the shards of this process as ordinary tensors."""
    return _mapped(state, lambda one: one.to_local())


def like(value: Any, present: Any) -> Any:
    """A whole tensor, sharded as `present` is."""
    if not is_shard(present):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(present.device), present.device_mesh, present.placements)


def spread(optimizer: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """The whole state of an optimizer, sharded as its parameters are."""
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    if not any(map(is_shard, parameters)):
        return state
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    of = dict(zip(numbers, parameters, strict=True))

    def shard(value: Any, parameter: Tensor) -> Any:
        same = isinstance(value, Tensor) and value.shape == parameter.shape
        return like(value, parameter) if same else value

    kept = {
        number: {name: shard(value, of[number]) for name, value in values.items()}
        for number, values in state["state"].items()
    }
    return state | {"state": kept}


def _mapped(state: Any, change: Callable[[Any], Any]) -> Any:
    if is_shard(state):
        return change(state.detach())
    if isinstance(state, dict):
        return {key: _mapped(one, change) for key, one in state.items()}
    return [_mapped(one, change) for one in state] if type(state) is list else state
