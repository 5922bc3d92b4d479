"""What a script's state is between two steps: every value by its name, so that two runs can be compared.

`kept` is what the run saves; `variables` is everything else that can be reached from the running functions and from the
user's own modules. A value is its `repr`, or a checksum of all bits; of a large tensor that is not kept, of a part.
"""

from __future__ import annotations

import sys
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from enum import Enum
from functools import cache, partial
from gc import get_referents
from operator import length_hint
from pathlib import Path, PurePath
from site import getsitepackages, getusersitepackages
from sysconfig import get_paths
from types import BuiltinFunctionType, FrameType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from exactrun.checkpoint import CheckpointError
from exactrun.seeds import KINDS, source
from exactrun.shards import local
from exactrun.state import STATEFUL, capture, generators_now, has, modes, unwrapped

PART = 1 << 16  # numbers of a large tensor that is not kept: the first ones, and as many of the rest
SHORT = 30  # items of a container that are looked at one by one
LONG = 1000  # the same, if they are plain values
MOST = 20_000  # values of a script
DEEP = 8  # names in a path
CONSTANT = (torch.dtype, torch.device, torch.layout, numpy.dtype, PurePath, Enum, date, timedelta, range, slice)
CODE = (type, ModuleType, BuiltinFunctionType, FrameType)
PLAIN = (type(None), bool, int, float, complex, str, bytes, Tensor, numpy.ndarray, numpy.generic, *CONSTANT)
CONTAINERS = (list, tuple, deque, set, frozenset, Mapping)
# Attributes that are looked at, of objects of these types; of others, all of `vars`.
PARTS = {MethodType: ("__self__",), partial: ("func", "args", "keywords")}
OF_LOADER = ("sampler", "batch_sampler", "generator", "dataset", "collate_fn")
# Libraries that show or record what the script does, and have no part in it; of Python's own, two hold settings.
SHOWN = {"tqdm", "wandb", "mlflow", "tensorboard", "rich", "matplotlib", "exactrun", "gpukit"}
SHOWN |= sys.stdlib_module_names - {"types", "argparse", "__main__"}
INSTALLED = (*getsitepackages(), getusersitepackages(), str(Path(torch.__file__).parents[1]))
LIBRARIES = (*INSTALLED, *(get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")))
OURS = str(Path(__file__).parents[1])
RUNNER = str(Path(__file__).with_name("process.py"))  # below it are the frames of the rehearsal itself
BASE = {*vars(nn.Module()), "training"}
READ = "read it with `run.enumerate`"


class Value(NamedTuple):
    """What a value is, and how it is kept."""

    text: str
    remedy: str = ""


class Place(NamedTuple):
    """A value to look at: its name, how it is kept, and whether that also keeps what is inside of it."""

    name: str
    value: Any
    remedy: str
    whole: bool
    depth: int


def kept(run: Any) -> dict[str, Value]:
    """Everything that the run keeps, to the last bit."""
    found: dict[str, Value] = {}
    for name, one in run._objects.items():
        walk = _Walk(found, exact=True)
        try:
            state = capture(one, name)
        except CheckpointError as error:
            state = str(error)
        if isinstance(one, nn.Module):
            walk.add(f"the modes of {name}", modes(one), "")
        for key, each in state.items() if isinstance(state, Mapping) else [("", state)]:
            walk.add(f"{name}.{key}" if key else name, each, "")
        walk.all()
    walk = _Walk(found, exact=True)
    for one in run._values.values():
        for name, value in one.now().items():
            walk.add(name, value, "")
    walk.all()
    return found


def generators() -> dict[str, Value]:
    """The states of the global generators."""
    states = generators_now()
    names = ("torch's generator", "Python's generator", "NumPy's generator")
    found = {name: Value(_state(state)) for name, state in zip(names, states["cpu"])}
    cuda = {f"the generator of GPU {number}": Value(_tensor(one)) for number, one in enumerate(states["cuda"])}
    return found | cuda


def variables(run: Any, frame: FrameType | None) -> dict[str, Value]:
    """What can be reached from the running functions and the user's modules, and is not kept."""
    found: dict[str, Value] = {}
    walk = _Walk(found, exact=False)
    for one in run._objects.values():
        walk.known(one)
    for _, view in run._sources.views.values():  # generators of loaders, which the run restores when it reads them
        for one in view.generators:
            walk.known(one)
    for loop in run._loops:  # a stream that the run continues itself
        stream = getattr(loop.batches, "source", None)
        walk.known(stream)
        walk.known(getattr(stream, "dataset", None))
        if view := getattr(loop.batches, "view", None):
            walk.sampler(view.order.sampler)
    walk.values = {(id(one.space), name) for one in run._values.values() for name in one.names}
    inner = set[str]()  # names of running functions: they are others than those of the functions around them
    while frame is not None and frame.f_code.co_filename != RUNNER:
        code = frame.f_code
        if own(code.co_filename) and code.co_name != "<module>":
            for name, value in dict(frame.f_locals).items():
                shown = f"{code.co_name}.{name}" if name in inner else name
                walk.add(shown, value, f"`state = run.state({name}={name})` before the loop, and use `state.{name}`")
            inner.update(code.co_varnames, code.co_cellvars)
        frame = frame.f_back
    for module in list(sys.modules.values()):
        space = getattr(module, "__dict__", {})
        if own(space.get("__file__")):
            main = module.__name__ == "__main__"
            for name, value in list(space.items()):
                if not name.startswith("__") and (id(space), name) not in walk.values:
                    where = "globals()" if main else f"vars({module.__name__})"
                    shown = f"{module.__name__}.{name}" if not main or name in inner else name
                    walk.add(shown, value, f'`run.variables({where}, "{name}")`')
                    if isinstance(value, type) and value.__module__ == module.__name__:
                        walk.of_class(shown, value)
    walk.all()
    return found


@cache
def own(file: str | None) -> bool:
    """Whether a file is the user's, and not of a library."""
    return bool(file) and not file.startswith((OURS, "<", *LIBRARIES))


def library(module: Any) -> bool:
    """Whether a module is of an installed library, outside of Python's own."""
    file = getattr(module, "__dict__", {}).get("__file__")
    return isinstance(file, str) and file.startswith(INSTALLED)


class _Walk:
    """Looks at values, those with the shortest names first, each object once."""

    def __init__(self, found: dict[str, Value], exact: bool) -> None:
        self.found = found
        self.exact = exact
        self.left = deque[Place]()
        self.loose = deque[Place]()
        self.seen = dict[int, Any]()  # with the objects, so that an id stays theirs
        self.values = set[tuple[int, str]]()  # that the run keeps: of which namespace, and their names

    def known(self, one: Any) -> None:
        """Leave out what is kept: the object itself, or of a module its parameters and what its state_dict has."""
        if isinstance(one, nn.Module):
            inner = unwrapped(one)
            parts = [*inner.parameters(), *inner.state_dict(keep_vars=True).values()]
        else:
            parts = [one, getattr(one, "optimizer", one) if isinstance(one, Optimizer) else one]  # accelerate's
        self.seen |= {id(part): part for part in parts}

    def add(self, name: str, value: Any, remedy: str, whole: bool = False, depth: int = 0) -> None:
        if depth <= DEEP and not isinstance(value, CODE):
            loose = isinstance(value, Tensor) and not depth and not self.exact  # another object may have it: last
            (self.loose if loose else self.left).append(Place(name, value, remedy, whole, depth))

    def of_class(self, name: str, kind: type) -> None:
        for key, one in dict(vars(kind)).items():
            if isinstance(one, (*PLAIN, *CONTAINERS)) and not key.startswith("__"):
                self.add(f"{name}.{key}", one, f"`state = run.state({key}=...)`, and use `state.{key}`", True, 1)

    def sampler(self, sampler: Any) -> None:
        """What the sampler of a loader that is read has: it may be made again in the loop's body, from other values."""
        inner = getattr(sampler, "sampler", sampler)
        for name, one in _attributes(inner).items():
            if isinstance(one, (*PLAIN, *CONTAINERS)) and name not in ("data_source", "dataset"):
                remedy = f"`state = run.state({name}=...)` directly before the loop, and use `state.{name}`"
                self.loose.append(Place(f"sampler.{name}", one, remedy, True, 1))

    def put(self, name: str, value: Value) -> None:
        self.found.setdefault(name, value)  # the innermost function's

    def all(self) -> None:
        """Look at everything."""
        for places in (self.left, self.loose):
            while places and (self.exact or len(self.found) < MOST):
                self.look(places.popleft())

    def look(self, place: Place) -> None:
        value = place.value
        text = plain(value, self.exact)
        if text is None or isinstance(value, (Tensor, numpy.ndarray)):
            if id(value) in self.seen:
                return
            self.seen[id(value)] = value
        if text is not None:
            self.put(place.name, Value(text, place.remedy))
            return
        if not place.whole and _can_be_kept(value):
            place = place._replace(remedy=_keep(place), whole=True)
        if isinstance(value, KINDS):
            self.put(place.name, Value(_state(source(value).state()), place.remedy))
        elif isinstance(value, CONTAINERS):
            self.container(place)
        elif isinstance(value, nn.Module):
            self.module(place, unwrapped(value))
        elif isinstance(value, FunctionType):
            self.closure(place)
        elif isinstance(value, _BaseDataLoaderIter):
            self.put(place.name, Value(f"after {value._num_yielded} batches", READ))
        elif isinstance(value, Iterator) and type(value).__module__ in ("builtins", "itertools"):
            self.iterator(place)
        else:
            self.object(place)

    def container(self, place: Place) -> None:
        value = place.value
        if isinstance(value, (set, frozenset)):
            self.put(place.name, Value(_sum(repr(sorted(map(repr, value))).encode()), place.remedy))
            return
        pairs = list(value.items() if isinstance(value, Mapping) else enumerate(value))
        self.put(f"len({place.name})", Value(repr(len(pairs)), place.remedy))
        if len(pairs) > SHORT and not self.exact:
            some = pairs if len(pairs) <= LONG else [*pairs[:LONG], *pairs[-LONG:]]
            texts = [plain(one, False) for _, one in some]
            if len(pairs) > LONG or None not in texts:
                self.put(place.name, Value(_sum(repr(texts).encode()), place.remedy))
                return
        for number, (key, one) in enumerate(pairs):
            shown = repr(key) if isinstance(key, (str, int, float, tuple)) and len(repr(key)) < 80 else number
            self.add(f"{place.name}[{shown}]", one, place.remedy, place.whole, place.depth + 1)

    def module(self, place: Place, module: nn.Module) -> None:
        """Its parameters and buffers, except those that are kept; and its attributes, if its class is not torch's."""
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        saved = module.state_dict(keep_vars=True)
        for name, one in tensors.items():
            remedy = place.remedy if name in saved else _register(name)
            self.add(f"{place.name}.{name}", one, remedy, True, place.depth + 1)
        for path, each in module.named_modules(prefix=place.name):
            self.seen[id(each)] = each
            for name, one in vars(each).items():
                if name not in BASE and not name.startswith("__") and not callable(one):  # "__": of FSDP
                    inner = path.removeprefix(place.name)[1:]
                    owner = f'{place.name}.get_submodule("{inner}")' if inner else place.name
                    how = _register(name) if isinstance(one, Tensor) else f'`run.variables(vars({owner}), "{name}")`'
                    self.add(f"{path}.{name}", one, how, True, place.depth + 1)

    def closure(self, place: Place) -> None:
        function = place.value
        if own(function.__code__.co_filename):
            for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
                remedy = f"`state = run.state({name}={name})`, and use `state.{name}`"
                self.add(name, getattr(cell, "cell_contents", None), remedy, False, place.depth + 1)

    def iterator(self, place: Place) -> None:
        """One of Python's own, and those that it reads; or a generator function, with its variables."""
        value = place.value
        if not isinstance(value, GeneratorType):
            if (left := length_hint(value, -1)) >= 0:
                self.put(place.name, Value(f"{left} items before its end", READ))
            for one in get_referents(value):
                if isinstance(one, Iterator):
                    self.add(place.name, one, READ, True, place.depth + 1)
        elif value.gi_frame is not None and own(value.gi_code.co_filename):
            self.put(place.name, Value(f"at line {value.gi_frame.f_lineno}", READ))
            for name, one in dict(value.gi_frame.f_locals).items():
                self.add(f"{place.name}: {name}", one, READ, True, place.depth + 1)

    def object(self, place: Place) -> None:
        """What is in its state_dict, or its attributes."""
        value = place.value
        inside: dict[Any, Any] = {}
        if has(value, *STATEFUL) and not isinstance(value, DataLoader):  # one of torchdata would start to read
            try:
                state = value.state_dict()
            except Exception:  # of a class of the user
                return
            inside = dict(state) if isinstance(state, Mapping) else {"state": state}
        names = PARTS.get(type(value), OF_LOADER if isinstance(value, DataLoader) else ())
        if names or not inside:
            inside |= {name: getattr(value, name, None) for name in names or _attributes(value)}
            space = id(_space(value))
            inside = {name: one for name, one in inside.items() if (space, name) not in self.values}
        if isinstance(value, DataLoader) and value.persistent_workers:
            inside.pop("generator")  # drawn from once, when the workers start
        for name, one in inside.items():
            whole = place.whole
            remedy = place.remedy if whole or names else f'`run.variables(vars({place.name}), "{name}")`'
            shown = f"{place.name}.{name}" if isinstance(name, str) else f"{place.name}[{name!r}]"
            self.add(place.name if name == "__self__" else shown, one, remedy, whole, place.depth + 1)


def plain(value: Any, exact: bool) -> str | None:
    """A value as a text; None if it has parts to look at."""
    if isinstance(value, (str, bytes)):
        return repr(value) if len(value) < 100 else f"{value[:40]!r}... {_sum(repr(value).encode())}"
    if isinstance(value, numpy.ndarray):
        if value.dtype.kind not in "biufc" or not value.dtype.isnative:
            return f"array {value.shape} {value.dtype}"
        value = torch.from_numpy(numpy.ascontiguousarray(value))
    if isinstance(value, Tensor):
        return _tensor(value, exact)
    return repr(value) if isinstance(value, PLAIN) else None


def _tensor(value: Tensor, exact: bool = True) -> str:
    kind = f"tensor{list(value.shape)} {value.dtype}"
    value = local(value).detach()
    try:
        value = value if value.layout is torch.strided else value.to_dense()
        if value.numel() and not value.untyped_storage().nbytes():  # FSDP has freed it
            return kind
        if value.numel() == 1 and value.dtype.is_floating_point:
            return f"{kind} {value.double().item()!r}"
        flat = value.resolve_conj().resolve_neg().reshape(-1)
        if not exact and flat.numel() > 2 * PART:
            flat = torch.cat([flat[:PART], flat[:: flat.numel() // PART]])
        copy = flat.to("cpu", copy=True)  # FSDP could not resize a storage that NumPy shares
        return f"{kind} {_sum(memoryview(copy.contiguous().view(torch.uint8).numpy()))}"
    except (RuntimeError, NotImplementedError):  # a quantized, nested, or meta tensor
        return kind


def _state(state: Any) -> str:
    """A checksum of a generator's state."""
    parts = []
    left = [state]
    while left:
        one = left.pop()
        if isinstance(one, (tuple, dict)) and not (one and isinstance(one, tuple) and type(one[-1]) is int):
            left.extend(one.values() if isinstance(one, dict) else one)
        else:
            parts.append(one.tobytes() if isinstance(one, numpy.ndarray) else one)
    return _sum(repr(parts).encode())


def _sum(data: Any) -> str:
    return f"#{zlib.crc32(data):08x}"


def _can_be_kept(value: Any) -> bool:
    """Whether `run.keep` keeps the value with all that is in it."""
    if isinstance(value, CONTAINERS):
        return not isinstance(value, (tuple, frozenset)) and not _has_objects(value)
    if isinstance(value, (nn.Module, *KINDS)) or has(value, *STATEFUL):
        return True
    held = _attributes(value)
    return bool(held) and not any(map(_has_objects, held.values()))


def _has_objects(value: Any) -> bool:
    """Whether a container has more than plain values in it."""
    if isinstance(value, CONTAINERS):
        return any(map(_has_objects, list(value.values() if isinstance(value, Mapping) else value)[:LONG]))
    return not isinstance(value, PLAIN)


def _space(value: Any) -> dict[str, Any]:
    return vars(value) if has(value, "__dict__") else {}


def _attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object, unless it is of a library that only shows something."""
    module = type(value).__module__
    if module.partition(".")[0] in SHOWN or module.startswith("torch.utils.tensorboard"):
        return {}
    return {name: one for name, one in _space(value).items() if not name.startswith("__")}


def _keep(place: Place) -> str:
    name = place.name.rpartition(".")[2]
    return f"`run.keep({name if name.isidentifier() else 'state'}={place.name})`"


def _register(name: str) -> str:
    return f"`register_buffer`, so that the module's state_dict has `{name.rpartition('.')[2]}`"
