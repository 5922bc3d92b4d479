"""Checks of what an exact resume and an exact gradient rest on: samples that repeat, state that is restored, losses
that add up.

Every check restores what it touches: generators, the attributes of data sets and modules, and buffers.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import math
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from exactrun import parts
from exactrun.seeds import SAMPLE, generators, mix, restore, seed_these, snapshot, walk

WHOLE = ", so it cannot be computed in parts."
ENOUGH = 64  # samples that show how a loss combines them
MANY, LARGE = 10_000, 1 << 28  # longer lists contain samples; more bytes of frozen weights are not copied


@dataclasses.dataclass(frozen=True)
class Checked:
    """The result of a check: "ok", "unknown", or the id of what was found; `text` says it in a sentence."""

    id: str
    text: str = ""


OK = Checked("ok")


def first_sample(dataset: Any, *, key: int = 0) -> tuple[float, ...]:
    """The `outline` of the first sample, read with fixed seeds; empty if there is none, or it cannot be read."""
    try:
        if not len(dataset):
            return ()
    except TypeError:
        return ()
    owned = generators(dataset)
    with _unchanged(_objects(dataset), owned):
        try:
            seed_these(owned, mix(SAMPLE, key, 0))
            return outline(dataset[0])
        except Exception:  # training raises it where its traceback helps
            return ()


def outline(sample: Any) -> tuple[float, ...]:
    """A checksum of the structure, shapes, integers, and texts of a sample, and some of its other numbers, which may
    differ in their last digits between two machines."""
    numbers, rest, left = [], [], [_few(sample)]
    for one in left:  # grows
        if isinstance(one, (list, tuple)):
            left.extend(one)
        else:
            (numbers if isinstance(one, float) else rest).append(one)
    return (float(zlib.crc32(repr(rest).encode())), *numbers[: ENOUGH - 2])


def alike(one: Any, other: Any) -> bool:
    """Whether two outlines are of the same sample; True if there is none."""
    if not one or not other:
        return True
    close = len(one) == len(other) and numpy.allclose(one[1:], other[1:], rtol=1e-3, atol=1e-3, equal_nan=True)
    return close and one[0] == other[0]


def digest(batch: Any) -> int:
    """A checksum of a few numbers and words from each part of a batch."""
    return zlib.crc32(repr(_few(batch)).encode())


def _few(value: Any) -> Any:
    if isinstance(value, (Tensor, numpy.ndarray)):
        if isinstance(value, Tensor) and (value.layout != torch.strided or value.device.type != "cpu"):
            return value.shape
        flat = value.reshape(-1)
        return value.shape, flat[:: max(1, len(flat) // 64)].tolist()
    if isinstance(value, Mapping):
        return [(key, _few(value[key])) for key in list(value)[:64]]
    if isinstance(value, (list, tuple)):
        return len(value), [_few(each) for each in value[:: max(1, len(value) // 16)]]
    if value is None or isinstance(value, (bool, int, float, complex)):
        return value
    return value[:256] if isinstance(value, (str, bytes)) else type(value).__name__


def restored(name: str, one: Any, saved: Any) -> Checked:
    """Whether `one.state_dict()`, after loading `saved`, is the same, bit for bit; id: state-not-restored."""
    now = one.state_dict()
    where = difference(saved, now)
    if where is None or difference(now, one.state_dict()) is not None:  # the second: it never repeats
        return OK
    loads = place(type(one).load_state_dict)
    return Checked("state-not-restored", f"`{name}{where}` is not what was saved: {loads} does not restore it.")


def strangers(objects: Mapping[str, Any], others: Iterable[torch.optim.Optimizer] = ()) -> Checked:
    """Whether optimizers update parameters that no kept module (or tensor) has, or `others` those of a kept one; or a
    scheduler of a kept optimizer is not kept; ids: parameters-not-kept, optimizer-not-kept, scheduler-not-kept."""
    known = {id(one) for one in objects.values() if isinstance(one, Tensor)}
    modules = [one for one in objects.values() if isinstance(one, nn.Module)]
    known.update(id(parameter) for module in modules for parameter in module.parameters())
    for name, one in objects.items():
        if isinstance(one, torch.optim.Optimizer) and known:
            updated = [id(parameter) for group in one.param_groups for parameter in group["params"]]
            if missing := len(set(updated) - known):
                text = f"`{name}` updates {missing} of {len(updated)} parameters that are in no kept module"
                remedy = "keep their module too, and create the optimizer after the final model"
                return Checked("parameters-not-kept", f"{text}, so a resume loses them: {remedy}.")
    for one in others:
        if known & {id(parameter) for group in one.param_groups for parameter in group["params"]}:
            text = f"The {type(one).__name__} optimizer that updates kept parameters is not kept itself"
            remedy = "use `run.keep(optimizer=...)`"
            return Checked("optimizer-not-kept", f"{text}, so a resumed run starts without its state: {remedy}.")
    steppers = [one for _, one in walk(list(objects.values()), code=False) if hasattr(one, "step")]
    scheduled = {id(getattr(one, "optimizer", None)) for one in steppers}
    for name, one in objects.items():
        inner = getattr(one, "optimizer", one)  # accelerate wraps it
        wrapped = isinstance(one, torch.optim.Optimizer) and getattr(inner.step, "_wrapped_by_lr_sched", False)
        if wrapped and not {id(one), id(inner)} & scheduled:
            text = f"`{name}` has a scheduler that is not kept, so a resumed run starts it from its beginning"
            return Checked("scheduler-not-kept", f"{text}: use `run.keep(scheduler=...)`.")
    return OK


def check(loss: Callable[[nn.Module, Any], Any], model: nn.Module, batch: Any, *, declared: str = "mean") -> Checked:
    """Whether `loss(model, batch)` is the "mean" over the samples of a batch, or their "sum", as `declared`; so that it
    can be computed in parts.

    ids: ok; mean or sum: it is that instead; weighted: it is a mean over something else; mixes: it compares samples
    with one another; noise: it draws random numbers, so the parts cannot be compared; solid: the batch cannot be split;
    unknown: its losses are 0, NaN, or an error, or it is a single sample.

    The model is in eval mode and without autocast, since dropout, BatchNorm, and bf16 deviate more than real faults. It
    is not copied in float64: it may be large, and a loss can use other modules. Therefore a bit more than half of the
    digits of its type must agree: rounding errors stay below that, and faults above.
    """
    try:
        total = parts.samples(batch)
        size = min(total, ENOUGH)
        if size < 2 or any(is_lazy(one) for one in model.parameters()):
            return Checked("unknown", "one sample cannot be split" if size < 2 else "the model has lazy parameters")
        whole = parts.split(batch, [size, total - size])[0] if size < total else batch
        used = [one for _, one in walk([loss, model]) if isinstance(one, nn.Module)]  # a criterion, a teacher
        modules, owned = [each for one in used for each in one.modules()], generators([loss, model])
        with _unchanged({str(id(each)): each for each in modules}, owned):
            for each in modules:
                each.training = False
            kind = _kind(functools.partial(_value, loss, model, owned), whole, size, model)
    except parts.SplitError as error:
        return Checked("solid", f"{error}{WHOLE}")
    except Exception as error:  # the step itself raises it where its traceback helps
        return Checked("unknown", str(error))
    where = place(loss)
    text = {
        "unknown": f"{where} returns 0 or NaN",
        "sum": f"{where} returns the sum over a batch, not its mean: add its parts up without their share.",
        "mean": f"{where} returns the mean over a batch, not the sum: the losses of its parts add up if each is "
        "multiplied by its share.",
        "weighted": f"{where} returns a mean, but not over its samples: the share of a part is its part of what the "
        "mean is divided by.",
        "mixes": f"{where} compares the samples of a batch with one another, or adds a term once for each batch{WHOLE}",
        "noise": f"{where} draws random numbers, so it was not checked that it returns the {declared} over a batch.",
    }[kind]
    return OK if kind == declared else Checked(kind, text)


def _kind(value: Callable[..., float], whole: Any, size: int, model: nn.Module) -> str:
    """sum, mean, weighted, mixes, noise, or unknown."""
    types = [one.dtype for one in model.parameters() if one.is_floating_point()]
    tolerance = max([torch.finfo(one).eps for one in types], default=2**-23)
    if any(one.device.type == "cuda" for one in model.parameters()):
        tolerance = max(tolerance, 2**-10)  # TF32
    tolerance **= 0.6

    def equal(one: float, terms: list[float]) -> bool:
        return abs(one - sum(terms)) <= tolerance * max(abs(one), sum(map(abs, terms)))

    def mean(losses: list[float]) -> list[float]:
        return [number / size * loss for number, loss in zip(sizes, losses, strict=True)]

    sizes = [max(1, size // 6), max(1, size // 3)] if size > 2 else [1]
    sizes.append(size - sum(sizes))
    three = parts.split(whole, sizes)
    result, losses = value(whole, 1), [value(part, 2) for part in three]
    if not all(map(math.isfinite, (result, *losses))) or not any((result, *losses)):
        return "unknown"
    if equal(result, losses):
        return "sum"
    if equal(result, mean(losses)):
        return "mean"
    rows = [[result, *losses], *([value(one, seed) for one in (whole, *three)] for seed in (3, 4))]
    spread = [max(column) - min(column) for column in zip(*rows, strict=True)]
    if max(spread) > tolerance * max(map(abs, rows[0])):
        # With noise, only a large error is certain: a third of the sum, where the mean is within the noise.
        third = all(0.25 < one / (sum(others) or 1) < 0.45 for one, *others in rows)
        off = max(abs(one - sum(mean(others))) for one, *others in rows)
        sure = len(three) == 3 and third and abs(result - sum(losses)) > 3 * math.hypot(*spread)
        return "mean" if sure and off <= 3 * max(spread) else "noise"
    if len(three) < 3:
        return "mixes"
    # The weights of a mean follow from pairs of parts, and predict the whole.
    a, b, c = losses
    ab = value(parts.split(whole, [size - sizes[2], sizes[2]])[0], 2)
    bc = value(parts.split(whole, [sizes[0], size - sizes[0]])[1], 2)
    second = (a - ab) / (ab - b) if ab != b else 0
    third = second * (b - bc) / (bc - c) if bc != c else 0
    weighted = [weight / (1 + second + third) * loss for weight, loss in ((1, a), (second, b), (third, c))]
    return "weighted" if second > 0 and third > 0 and equal(result, weighted) else "mixes"


def _value(loss: Any, model: nn.Module, owned: list[Any], part: Any, seed: int) -> float:
    """The loss of a part, the first of what the function returns; without gradients, unless it computes some itself."""
    kind = next((one.device.type for one in model.parameters()), "cpu")
    for gradients in (False, True):
        compiled = "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance")
        eager = torch.compiler.set_stance("force_eager") if compiled else contextlib.nullcontext()
        torch.manual_seed(seed)
        seed_these(owned, seed)
        try:
            with eager, torch.set_grad_enabled(gradients), torch.autocast(kind, enabled=False):
                found = loss(model, part)
                return (found[0] if isinstance(found, (tuple, list)) else found).item()
        except RuntimeError:
            if gradients:
                raise
    raise AssertionError


def place(function: Any) -> str:
    """The name of a function or module, its file, and its line: `loss` (task.py:12)."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, nn.Module):
        function = type(function).forward
    code = getattr(inspect.unwrap(function), "__code__", None)
    name = getattr(function, "__qualname__", type(function).__name__).replace("<locals>.", "")
    return f"`{name}` ({_line(code.co_filename, code.co_firstlineno)})" if code else f"`{name}`"


def _line(file: str, line: int) -> str:
    path, here = Path(file), Path.cwd()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{line}"


def difference(one: Any, other: Any, where: str = "") -> str | None:
    """The path of the first difference between two values, bit for bit, such as "['step']"; None if they are equal.

    Objects that cannot be compared count as equal.
    """
    if one is other or where.count("[") + where.count(".") > 50:
        return None
    if isinstance(one, (Tensor, numpy.ndarray, numpy.generic)):
        return None if type(other) is type(one) and _same(one, other) else where
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if one.keys() != other.keys():
            return f"{where}[{next(iter(one.keys() ^ other.keys()))!r}]"
        pairs = ((f"{where}[{key!r}]", one[key], other[key]) for key in one)
    elif isinstance(one, (list, tuple, deque)) and isinstance(other, (list, tuple, deque)):
        if len(one) != len(other):
            return where
        pairs = ((f"{where}[{index}]", *pair) for index, pair in enumerate(zip(one, other, strict=True)))
    elif callable(one) and callable(other):
        return None
    elif type(one).__eq__ is object.__eq__ or dataclasses.is_dataclass(one):
        if type(one) is not type(other):
            return where
        mine, theirs = getattr(one, "__dict__", {}), getattr(other, "__dict__", {})
        pairs = ((f"{where}.{key}", mine[key], theirs.get(key)) for key in mine)
    else:
        with contextlib.suppress(Exception):
            return None if bool(one == other) or (one != one and other != other) else where
        return None
    return next((found for each in pairs if (found := difference(each[1], each[2], each[0])) is not None), None)


def _same(one: Any, other: Any) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if not isinstance(one, Tensor):
        return numpy.array_equal(one, other) if one.dtype.hasobject else one.tobytes() == other.tobytes()
    return one.layout is not torch.strided or one.is_quantized or one.is_nested or torch.equal(_bits(one), _bits(other))


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1).view(torch.uint8)


def _objects(root: Any) -> dict[str, Any]:
    """A data set and the objects in its attributes, such as other data sets and transforms, by their paths."""
    found = {}
    for path, one in islice(walk(root, type(root).__name__, code=False), 1000):
        own = type(one).__module__.partition(".")[0] not in sys.stdlib_module_names
        if own and hasattr(one, "__dict__") and not inspect.isroutine(one):
            found[path] = one
    return found


@contextlib.contextmanager
def _unchanged(objects: Mapping[Any, Any], owned: list[Any]) -> Iterator[None]:
    """Put back what the block changes: these objects, these generators, and the global ones."""
    also = [*torch.cuda.default_generators, *owned]
    kept, states = _Kept(objects), snapshot(also)
    try:
        yield
    finally:
        kept.put_back()
        restore(states, also)


class _Kept:
    """The attributes of objects, by their paths, and the numbers in the buffers of modules, to be put back."""

    def __init__(self, objects: Mapping[Any, Any]) -> None:
        self.copies: list[tuple[str, Any, Any]] = []  # path, what may change, and a copy
        modules = [one for one in objects.values() if isinstance(one, nn.Module)]
        frozen = [one for each in modules for one in each._parameters.values() if one is not None]
        few = sum(one.nbytes for one in frozen if not one.requires_grad) <= LARGE
        for path, one in objects.items():
            held = {"": vars(one)} | {f".{name}": value for name, value in vars(one).items()}
            most = MANY
            if isinstance(one, nn.Module):  # a momentum encoder is frozen
                inner, most = one._buffers | (one._parameters if few else {}), math.inf
                held |= {f".{name}": value for name, value in inner.items()}
            for name, value in held.items():
                if isinstance(value, (list, dict, set, deque)) and len(value) <= MANY:
                    self.copies.append((path + name, value, copy.copy(value)))
                elif isinstance(value, Tensor) and not value.requires_grad and value.nbytes <= most:
                    self.copies.append((path + name, value, value.clone()))

    @torch.no_grad()
    def put_back(self) -> None:
        for _, live, kept in self.copies:
            if isinstance(live, dict):  # it is never empty, since a thread may read it
                live.update(kept)
                for key in live.keys() - kept.keys():
                    del live[key]
            elif isinstance(live, (list, set, deque)):
                live.clear()
                (live.update if isinstance(live, set) else live.extend)(kept)
            elif not _same(live, kept):
                live.copy_(kept)
