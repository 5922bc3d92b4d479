"""How a run keeps objects: what is saved of each, in values that a checkpoint can hold, and how it is put back.

    kept = values(capture(optimizer, "optimizer"), "optimizer")
    put_back(optimizer, restored(kept), "optimizer")

An object is a module, an optimizer, a scheduler, or anything else with `state_dict` and `load_state_dict`; a random
generator; a tensor, an array, a list, a dict, a set, or a deque; or an object whose attributes are such values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import Optimizer

from gpukit.train.checkpoint import CheckpointError
from gpukit.train.seeds import KINDS, generator_state, restore, restore_generator, snapshot

ARRAY, QUEUE, SCALAR = "numpy.ndarray", "collections.deque", "numpy.generic"  # keys of what stands for other types
COMPILED = "_orig_mod."  # torch.compile's prefix


def unwrapped(module: nn.Module) -> nn.Module:
    """The module inside of torch.compile, DistributedDataParallel, and DataParallel."""
    while True:
        if isinstance(module, (DistributedDataParallel, DataParallel)):
            module = module.module
        elif isinstance(getattr(module, "_orig_mod", None), nn.Module):
            module = module._orig_mod
        else:
            return module


def capture(kept: Any, name: str) -> Any:
    """The state of an object. It shares memory with the object."""
    if isinstance(kept, nn.Module):
        return {key.replace(COMPILED, ""): value for key, value in unwrapped(kept).state_dict().items()}
    if isinstance(kept, KINDS):
        return generator_state(kept)
    if hasattr(kept, "state_dict") and hasattr(kept, "load_state_dict"):
        return kept.state_dict()
    if kept is None or isinstance(kept, (Tensor, numpy.ndarray, list, set, dict, deque)):
        return kept
    if hasattr(kept, "__dict__") and not callable(kept):
        return dict(vars(kept))
    raise CheckpointError(
        f"{name} is a {type(kept).__name__}, which cannot be restored in place: keep the object that holds it, or use "
        "`run.variables`."
    )


def put_back(kept: Any, state: Any, name: str) -> None:
    """Restore an object from its captured state; CheckpointError if they do not match."""
    try:
        _put_back(kept, state)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise CheckpointError(
            f"{name} does not match its saved state ({reason}): resume with the same {name}, or start a new run."
        ) from error


def _put_back(kept: Any, state: Any) -> None:
    if isinstance(kept, nn.Module):
        inner = unwrapped(kept)
        inner.load_state_dict({key: state[key.replace(COMPILED, "")] for key in inner.state_dict()})
    elif isinstance(kept, KINDS):
        restore_generator(kept, state)
    elif hasattr(kept, "state_dict") and hasattr(kept, "load_state_dict"):
        kept.load_state_dict(state)
        if isinstance(kept, Optimizer):
            kept._opt_called = True  # otherwise, a scheduler that is stepped next warns that no step was made before
    elif isinstance(kept, Tensor):
        with torch.no_grad():
            kept.copy_(state)
    elif isinstance(kept, numpy.ndarray):
        if kept.shape != state.shape:
            raise ValueError(f"shape {list(kept.shape)} instead of {list(state.shape)}")
        kept[...] = state
    elif isinstance(kept, (list, deque, set)):
        kept.clear()
        (kept.update if isinstance(kept, set) else kept.extend)(state)
    elif isinstance(kept, dict):
        kept.clear()
        kept.update(state)
    elif kept is not None:
        for key, value in state.items():
            setattr(kept, key, value)


def generators_now() -> dict[str, Any]:
    """The states of the global generators of torch (CPU and every GPU in use), `random`, and NumPy."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return {"cpu": snapshot(), "cuda": cuda}


def set_generators(states: dict[str, Any]) -> None:
    """Restore the states from `generators_now`."""
    restore(tuple(states["cpu"]))
    for number, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(state, number)


def values(state: Any, where: str) -> Any:
    """The state with arrays as tensors, and queues as lists, which torch.load(weights_only=True) accepts."""
    if isinstance(state, numpy.ndarray):
        if state.dtype.kind not in "biufc":
            raise CheckpointError(f"{where} is an array of {state.dtype}, but checkpoints contain only numbers.")
        return {ARRAY: torch.from_numpy(state.copy())}
    if isinstance(state, numpy.generic):
        return {SCALAR: state.item(), "type": state.dtype.str}
    if isinstance(state, deque):
        return {QUEUE: [values(one, f"{where}[{number}]") for number, one in enumerate(state)], "most": state.maxlen}
    if isinstance(state, Mapping):
        return {key: values(one, f"{where}[{key!r}]") for key, one in state.items()}
    if type(state) in (list, tuple):
        return type(state)(values(one, f"{where}[{number}]") for number, one in enumerate(state))
    return state


def restored(state: Any) -> Any:
    """The reverse of `values`; arrays and tensors are copies."""
    if isinstance(state, Tensor):
        return state.clone()
    if isinstance(state, dict):
        if ARRAY in state:
            return state[ARRAY].numpy().copy()
        if SCALAR in state:
            return numpy.dtype(state["type"]).type(state[SCALAR])
        if QUEUE in state:
            return deque(map(restored, state[QUEUE]), state["most"])
        return {key: restored(one) for key, one in state.items()}
    return type(state)(map(restored, state)) if type(state) in (list, tuple) else state


def like(value: Any, present: Any) -> Any:
    """A restored value on the device of the present one."""
    if isinstance(value, Tensor):
        return value.to(present.device) if isinstance(present, Tensor) else value
    if type(value) in (list, tuple) and type(present) is type(value) and len(present) == len(value):
        return type(value)(like(one, other) for one, other in zip(value, present))
    if isinstance(value, dict) and isinstance(present, dict):
        return {key: like(one, present.get(key)) for key, one in value.items()}
    return value
