"""How a run keeps objects: what is saved of each, in values that a checkpoint can hold, and how it is put back.

    kept = values(capture(optimizer, "optimizer"), "optimizer")
    put_back(optimizer, restored(kept), "optimizer")

An object is a module, an optimizer, a scheduler, or anything else with `state_dict` and `load_state_dict`; a random
generator; a tensor, an array, a list, a dict, a set, or a deque; or an object whose attributes are such values. Lists,
dicts, and attributes may contain such objects, which are restored in place. Functions, classes, and other constants in
them are not saved; they must be the same when the state is restored.
"""

from __future__ import annotations

import copy
import sys
from collections import deque, namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cache, partial
from operator import length_hint
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import Optimizer

from exactrun import shards
from exactrun.checkpoint import CheckpointError
from exactrun.seeds import KINDS, restore, snapshot, source

# The keys of what stands for other types.
ARRAY = "numpy.ndarray"
QUEUE = "collections.deque"
SCALAR = "numpy.generic"
NAMED = "collections.namedtuple"
CODE = "python.constant"  # the key of a constant's name
KIND = "python.type"  # the key of the name of an object's class
CONSTANTS = (FunctionType, BuiltinFunctionType, MethodType, ModuleType, type, partial, numpy.dtype, Enum)
COMPILED = "_orig_mod."  # torch.compile's prefix
STATEFUL = ("state_dict", "load_state_dict")


def has(value: Any, *names: str) -> bool:
    """Whether it has these attributes. Its `__getattr__` may raise anything, as that of wandb's summary."""
    try:
        return all(hasattr(value, name) for name in names)
    except Exception:
        return False


def unwrapped(module: nn.Module) -> nn.Module:
    """The module inside of torch.compile, DistributedDataParallel, and DataParallel."""
    while True:
        if isinstance(module, (DistributedDataParallel, DataParallel)):
            module = module.module
        elif isinstance(getattr(module, "_orig_mod", None), nn.Module):
            module = module._orig_mod
        else:
            return module


def capture(kept: Any, name: str, around: tuple[int, ...] = ()) -> Any:
    """The state of an object. It shares memory with the object."""

    def inside(one: Any, where: str) -> Any:
        return capture(one, where, (*around, id(kept))) if _in_place(one) else one

    if id(kept) in around:
        raise CheckpointError(f"{name} contains itself: keep its parts instead.")
    if isinstance(kept, nn.Module):
        inner = unwrapped(kept)
        state = {key.replace(COMPILED, ""): value for key, value in inner.state_dict().items()}
        return state | {path: {key: getattr(one, key) for key in _sums(one)} for path, one in _metrics(inner)}
    if isinstance(kept, KINDS):
        return source(kept).state()
    if around and isinstance(kept, CONSTANTS):
        return {CODE: _name(kept)}
    if hasattr(type(kept), "consolidate_state_dict"):  # torch's ZeroRedundancyOptimizer
        raise CheckpointError(
            f"{name} is a {type(kept).__name__}, whose state is spread over the processes: use `fully_shard` instead, "
            "which also shards the state of an ordinary optimizer."
        )
    if has(kept, *STATEFUL):
        return kept.state_dict()
    if kept is None or isinstance(kept, (Tensor, numpy.ndarray, set)):
        return kept
    if isinstance(kept, (list, deque)) or (isinstance(kept, tuple) and _in_place(kept)):
        return [inside(one, f"{name}[{number}]") for number, one in enumerate(kept)] if _in_place(kept) else kept
    if isinstance(kept, dict):
        return {key: inside(one, f"{name}[{key!r}]") for key, one in kept.items()}
    if has(kept, "__dict__") and not isinstance(kept, CONSTANTS):
        kind = {KIND: _name(type(kept))} if around else {}
        held = {key: one for key, one in vars(kept).items() if not isinstance(one, Iterator) or length_hint(one, 1)}
        return kind | {key: inside(one, f"{name}.{key}") for key, one in held.items()}  # not iterators at their end
    raise CheckpointError(
        f"{name} is a {type(kept).__name__}, which cannot be restored in place: keep the object that holds it, or use "
        "`run.state`."
    )


def _in_place(value: Any) -> bool:
    """Whether a value has state of its own, so that it is not replaced by a saved one."""
    if isinstance(value, (list, tuple, deque, dict)):
        return any(map(_in_place, value.values() if isinstance(value, dict) else value))
    if isinstance(value, (nn.Module, *KINDS, *CONSTANTS)) or has(value, *STATEFUL):
        return True
    return has(value, "__dict__") and not isinstance(value, (Tensor, numpy.ndarray, numpy.generic))


def _metrics(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Metrics of torchmetrics, whose sums are in no state_dict, and the keys of their states."""
    for path, one in module.named_modules():
        if hasattr(type(one), "metric_state") and hasattr(one, "_update_count"):  # a collection has only the first
            yield f"{path}: torchmetrics", one


def _sums(metric: Any) -> list[str]:
    return [*metric.metric_state, "_update_count"]


def _name(constant: Any) -> str:
    named = constant.func if isinstance(constant, partial) else constant
    name = getattr(named, "__qualname__", None) or str(getattr(named, "__name__", named))
    return f"{getattr(named, '__module__', None) or ''}.{name}"


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
        present = inner.state_dict()
        inner.load_state_dict({key: shards.like(state[key.replace(COMPILED, "")], one) for key, one in present.items()})
        for path, one in _metrics(inner):
            for key, value in state[path].items():
                setattr(one, key, like(value, getattr(one, key)))
            one._computed = None
    elif isinstance(kept, KINDS):
        source(kept).restore(state)
    elif isinstance(kept, CONSTANTS):
        if state != {CODE: _name(kept)}:
            raise ValueError(f"{_name(kept)} was {state.get(CODE) if isinstance(state, dict) else state}")
    elif has(kept, *STATEFUL):
        groups = list(kept.param_groups) if isinstance(kept, Optimizer) else ()
        kept.load_state_dict(shards.spread(kept, state) if groups else state)
        for number, group in enumerate(groups):  # the script may hold them, or an optimizer that wraps this one
            new = dict(kept.param_groups[number])
            kept.param_groups[number] = group
            group.clear()
            group.update(new)
        if groups:
            kept._opt_called = True  # otherwise, a scheduler that is stepped next warns that no step was made before
    elif isinstance(kept, Tensor):
        with torch.no_grad():
            kept.copy_(state)
    elif isinstance(kept, numpy.ndarray):
        if kept.shape != state.shape:
            raise ValueError(f"shape {list(kept.shape)} instead of {list(state.shape)}")
        kept[...] = state
    elif isinstance(kept, tuple) or (isinstance(kept, (list, deque)) and _in_place(kept) and len(kept) == len(state)):
        for number, (one, saved) in enumerate(zip(kept, state, strict=True)):
            if _in_place(one):
                _put_back(one, saved)
            elif not isinstance(kept, tuple):
                kept[number] = _plain(saved)
    elif isinstance(kept, (list, deque, set)):
        kept.clear()
        (kept.update if isinstance(kept, set) else kept.extend)(_plain(state))
    elif isinstance(kept, dict):
        before = dict(kept)
        kept.clear()  # so that the order is the saved one
        _members(before, state, kept.__setitem__)
    elif kept is not None:
        _members(vars(kept), state, partial(object.__setattr__, kept))  # also of a frozen dataclass


def _members(kept: dict[str, Any], state: dict[str, Any], put: Callable[[str, Any], None]) -> None:
    for key, saved in state.items():
        if key == KIND:
            continue
        one = kept.get(key)
        if _in_place(one) or isinstance(one, deque):  # which has its length
            _put_back(one, saved)
            put(key, one)
        elif not isinstance(saved, dict) or CODE not in saved:  # else it is created when it is needed, as a cache
            put(key, like(_plain(saved), one))


def _plain(saved: Any) -> Any:
    """The saved value, with its dataclasses; ValueError if it held constants or objects that cannot be made again."""
    if isinstance(saved, dict):
        name = saved.get(CODE) or saved.get(KIND)
        kind = _found(*name.rsplit(".", 1)) if name and CODE not in saved else None
        if name and not (isinstance(kind, type) and is_dataclass(kind)):
            raise ValueError(f"{name} was added to it")
        if kind is None:
            saved.update((key, _plain(one)) for key, one in saved.items())
            return saved
        made = object.__new__(kind)
        _members({}, saved, partial(object.__setattr__, made))
        return made
    return type(saved)(map(_plain, saved)) if type(saved) in (list, tuple) else saved


def modes(module: nn.Module) -> list[list[str]]:
    """What no state_dict has: the names of frozen parameters, and of modules in eval mode."""
    inner = unwrapped(module)
    frozen = [name for name, one in inner.named_parameters() if not one.requires_grad]
    return [frozen, [name for name, one in inner.named_modules() if not one.training]]


def set_modes(module: nn.Module, saved: list[list[str]] | None) -> None:
    """Restore the result of `modes`."""
    if saved is not None and saved != modes(module):
        inner = unwrapped(module)
        for name, parameter in inner.named_parameters():
            parameter.requires_grad_(name not in saved[0])
        for name, one in inner.named_modules():
            one.training = name not in saved[1]


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
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        kept = [values(one, f"{where}.{name}") for name, one in zip(state._fields, state)]
        return {NAMED: kept, "type": [type(state).__module__, type(state).__qualname__, *state._fields]}
    if type(state) in (list, tuple):
        return type(state)(values(one, f"{where}[{number}]") for number, one in enumerate(state))
    return state


def restored(state: Any) -> Any:
    """The reverse of `values`; arrays and tensors are copies."""
    if isinstance(state, Tensor):
        return state.detach().clone()
    if isinstance(state, dict):
        if ARRAY in state:
            return state[ARRAY].numpy().copy()
        if SCALAR in state:
            return numpy.dtype(state["type"]).type(state[SCALAR])
        if NAMED in state:
            return _named(*state["type"])._make(map(restored, state[NAMED]))
        if QUEUE in state:
            return deque(map(restored, state[QUEUE]), state["most"])
        return {key: restored(one) for key, one in state.items()}
    return type(state)(map(restored, state)) if type(state) in (list, tuple) else state


def _found(module: str, name: str) -> Any:
    """What has that name in the script or an imported module."""
    return getattr(sys.modules.get(module), name, None)


@cache
def _named(module: str, name: str, *fields: str) -> Any:
    """The namedtuple of that name in the script or an imported module, or another one with its fields."""
    found = _found(module, name)
    same = isinstance(found, type) and issubclass(found, tuple) and getattr(found, "_fields", None) == fields
    return found if same else namedtuple(name.rpartition(".")[2], fields)


def like(value: Any, present: Any) -> Any:
    """A restored value with the type and on the device of the present one."""
    if isinstance(value, Tensor):
        if not isinstance(present, Tensor):
            return value
        value = value.to(present.device)
        if isinstance(present, nn.Parameter):
            return nn.Parameter(value, present.requires_grad)
        return value.requires_grad_(present.requires_grad and present.is_leaf)
    if isinstance(value, (list, tuple)) and type(present) is type(value) and len(present) == len(value):
        return getattr(value, "_make", type(value))(like(one, other) for one, other in zip(value, present))
    if isinstance(value, dict) and isinstance(present, dict):
        found = copy.copy(present)  # an OrderedDict, a defaultdict
        found.clear()
        for key, one in value.items():
            found[key] = like(one, present.get(key))
        return found
    return value
