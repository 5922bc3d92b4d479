"""Random numbers computed from counters: a hash, and generators seeded with it."""

from __future__ import annotations

import ctypes
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import compress, count
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy
import torch
from torch.utils.data import get_worker_info

WORD = 0xFFFF_FFFF_FFFF_FFFF
# The purpose is mixed into each number, so that an order and a dropout mask with equal counters are unrelated.
ORDER, SAMPLE, COLLATE, STEP = 1, 2, 3, 4
# The generators behind the functions of torch (on the CPU), `random`, and numpy.random. (`torch.manual_seed` seeds
# every backend and takes 80 us; a sample is loaded on the CPU and needs one.)
GLOBAL = (torch.default_generator, random.seed.__self__, numpy.random.mtrand._rand)
KINDS = (torch.Generator, numpy.random.Generator, numpy.random.RandomState, random.Random)
PLAIN = (str, bytes, int, float, complex, type, type(None), ModuleType, torch.Tensor, numpy.ndarray)
FOLLOWED = (*KINDS, FunctionType, torch.nn.Module)
CPU = torch.device("cpu")


def mix(*numbers: int, state: int = 0) -> int:
    """A 64-bit hash of integers (each taken modulo 2**64), the same on every platform and in every version.

    Method: a finalizer of splitmix64 for each number (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
    Generators, OOPSLA 2014), chained: `mix(a, b)` is `mix(b, state=mix(a))`. Counters that differ in one bit give
    unrelated results; 0.3 us for each number.
    """
    for number in numbers:
        state = (state + 0x9E3779B97F4A7C15 ^ number) & WORD
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & WORD
        state = (state ^ state >> 27) * 0x94D049BB133111EB & WORD
        state ^= state >> 31
    return state


def seed_step(seed: int, step: int, rank: int) -> int:
    """The 64-bit seed for the randomness of a step (dropout); different on each rank."""
    return mix(STEP, seed, step, rank)


def seed_all(seed: int) -> None:
    """Seed torch's CPU generator, `random` and NumPy's legacy functions from an integer, modulo 2**64; about 7 us."""
    seed_these((), seed)


def seed_these(these: Iterable[Any], number: int) -> None:
    """Seed the global generators, as `seed_all` does, and these."""
    for one in (*_GLOBAL, *map(_source, these, count(len(_GLOBAL)))):
        one.seed(number & WORD)


def snapshot(also: Iterable[Any] = ()) -> tuple[Any, ...]:
    """The states of this process's global generators: torch's for the CPU, that of `random`, NumPy's legacy one; then
    those of other generators."""
    return tuple(one.state() for one in (*_GLOBAL, *map(_source, also)))


def restore(states: Iterable[Any], also: Iterable[Any] = ()) -> None:
    """Restore the states from `snapshot`."""
    for one, state in zip((*_GLOBAL, *map(_source, also)), states, strict=True):
        one.restore(state)


def generator_state(generator: Any) -> Any:
    """The state of a generator: of torch, `random`, or NumPy."""
    return _source(generator).state()


def restore_generator(generator: Any, state: Any) -> None:
    """Restore the state from `generator_state`."""
    _source(generator).restore(state)


def numpy_generator() -> numpy.random.Generator:
    """A NumPy Generator for one sample, derived from its seed: to be created inside `dataset[index]`.

    `numpy.random.default_rng()` would use a seed from the operating system, so runs could not be repeated.
    """
    return numpy.random.default_rng(numpy.random.randint(0, 2**63, dtype=numpy.int64))


class Draws:
    """Makes the random numbers that some code draws follow from seeds: those of the global generators, and of those
    that `root` references.

        result = draws.call(lambda seed: (seed(1), sample(1)))

    Seeding takes 1 to 7 us for each generator, so only those are seeded that the code was seen to draw from. The others
    are compared before and after each call: if one has changed, the call is repeated with this one seeded as well.
    A result therefore never depends on when that was noticed, nor in which process.
    """

    def __init__(self, root: Any) -> None:
        self.root, self.drawn, self.quiet = root, list[_Source](), list(_GLOBAL)
        self.find()

    def find(self) -> None:
        """Look for generators again, since `root` may have created some."""
        known = [id(one.generator) for one in self.drawn]
        found = [*_GLOBAL, *map(_source, generators(self.root), count(len(_GLOBAL)))]
        self.drawn = [one for one in found if id(one.generator) in known]
        self.quiet = [one for one in found if id(one.generator) not in known]

    def call(self, code: Callable[[Callable[[int], object]], Any]) -> Any:
        """The result of `code`, which is passed a function that seeds; in one thread, as in a worker, since sums of
        large tensors differ in their last bits with the number of threads.

        In a process that is not a worker, the generators keep their state, so that a training loop draws the same
        numbers with and without workers.
        """
        kept = [(one, one.state()) for one in self.drawn]
        before = [one.state() for one in self.quiet]
        if (threads := torch.get_num_threads()) > 1:
            torch.set_num_threads(1)
        try:
            while True:
                result = code(self.drawn[0].seed if len(self.drawn) == 1 else self._seed)
                noticed = [not same(state, one.state()) for one, state in zip(self.quiet, before, strict=True)]
                if not any(noticed):
                    return result
                kept += compress(zip(self.quiet, before, strict=True), noticed)
                before = [state for state, was in zip(before, noticed, strict=True) if not was]
                self.quiet = [one for one, was in zip(self.quiet, noticed, strict=True) if not was]
                self.drawn = [one for one, _ in kept]
        finally:
            if threads > 1:
                torch.set_num_threads(threads)
            if kept and get_worker_info() is None:
                for one, state in kept:
                    one.restore(state)

    def _seed(self, number: int) -> None:
        for one in self.drawn:
            one.seed(number)


class _Source(NamedTuple):
    """How a generator is seeded from a 64-bit number, and how its state is read and restored."""

    generator: Any
    seed: Callable[[int], object]
    state: Callable[[], Any]
    restore: Callable[[Any], object]


def _source(generator: Any, place: int = 0) -> _Source:
    """`place`: generators in different places draw different numbers for the same seed."""
    shift = place * 0x9E3779B97F4A7C15
    if isinstance(generator, numpy.random.Generator):
        bits = generator.bit_generator
        like = type(bits)(0).state

        def seed_bits(number: int) -> None:
            number = number + shift & WORD
            if "inc" in like["state"]:  # of a PCG64 (the default); to create one takes 7 us
                like["state"]["state"] = number << 64 | mix(number)
            bits.state = like if "inc" in like["state"] else type(bits)(number).state

        return _Source(generator, seed_bits, lambda: bits.state, partial(setattr, bits, "state"))
    if isinstance(generator, torch.Generator):
        return _Source(
            generator,
            lambda number: generator.manual_seed(number + shift & WORD),
            lambda: generator.get_state().numpy().tobytes(),
            lambda state: generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8)),
        )
    if isinstance(generator, random.Random):
        get, put = generator.getstate, generator.setstate
    else:
        get, put = partial(generator.get_state, legacy=False), generator.set_state
    return _Source(generator, lambda number: generator.seed(number + shift & 0xFFFF_FFFF), get, put)


def _watched(source: _Source, address: int, kept: Any) -> _Source:
    """Python's or NumPy's global generator, whose state takes 6 or 28 us to read. It is read only if the generator's
    words in memory have changed, which takes 0.1 us to find out. After `seed`, the state is that number.

    Source: https://numpy.org/doc/stable/reference/random/bit_generators/generated/numpy.random.MT19937.ctypes.html
    """
    memory = (ctypes.c_char * 2500).from_address(address)  # 624 words of the Mersenne Twister, and a position
    known, last = memory.raw, source.state()

    def seed(number: int) -> None:
        nonlocal known, last
        source.seed(number)
        known, last = memory.raw, number & 0xFFFF_FFFF

    def state() -> Any:
        nonlocal known, last
        words = memory.raw
        # Both keep every second normal number, and return it without a change of their words.
        if words != known or (type(last) is not int and last[kept]):
            known, last = words, source.state()
        return last

    def put_back(state: Any) -> None:
        nonlocal known, last
        if type(state) is int:
            seed(state)
        else:
            source.restore(state)
            known, last = memory.raw, state

    return _Source(source.generator, seed, state, put_back)


_GLOBAL = [*map(_source, GLOBAL, count())]
_GLOBAL[1] = _watched(_GLOBAL[1], id(GLOBAL[1]) + object.__basicsize__, 2)
if isinstance(GLOBAL[2]._bit_generator, numpy.random.MT19937):
    _GLOBAL[2] = _watched(_GLOBAL[2], GLOBAL[2]._bit_generator.ctypes.state_address, "has_gauss")


def same(one: Any, other: Any) -> bool:
    """Whether two states of a generator are equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one is other or all(same(value, other[key]) for key, value in one.items())
    return numpy.array_equal(one, other) if isinstance(one, numpy.ndarray) else one == other


def generators(root: Any) -> list[Any]:
    """The random generators of the CPU that an object references, except the global ones."""
    found = [one for _, one in walk(root) if isinstance(one, KINDS) and not isinstance(one, random.SystemRandom)]
    return [one for one in found if getattr(one, "device", CPU) == CPU and not any(one is each for each in GLOBAL)]


def walk(root: Any, path: str = "", code: bool = True) -> Iterator[tuple[str, Any]]:
    """An object and those that it references, at any depth, with their paths: in attributes, short containers, methods,
    and closures; with `code`, also the generators, modules, and functions that its functions name and its class has."""
    seen, left, last = set[int](), [(path, root)], []  # last comes code: much of it belongs to libraries
    while (left or last) and len(seen) < 10_000:
        path, one = left.pop() if left else last.pop()
        if id(one) in seen or isinstance(one, PLAIN):
            continue
        seen.add(id(one))
        yield path, one
        if isinstance(one, dict | list | tuple | deque):
            if len(one) <= 100:  # short lists may contain transforms; long ones contain samples
                pairs = one.items() if isinstance(one, dict) else enumerate(one)
                left += [(f"{path}[{key!r}]", each) for key, each in pairs]
        elif isinstance(one, FunctionType):
            left += [(path, getattr(cell, "cell_contents", None)) for cell in one.__closure__ or ()]
            named = [one.__globals__.get(name) for name in one.__code__.co_names] if code else ()
            last += [(path, each) for each in named if isinstance(each, FOLLOWED)]
        elif isinstance(one, MethodType | partial):
            inner = [one.__self__] if isinstance(one, MethodType) else [one.func, one.args, one.keywords]
            left += [(path, each) for each in inner]
        elif not isinstance(one, KINDS):
            left += [(f"{path}.{name}", each) for name, each in getattr(one, "__dict__", {}).items()]
            for kind in type(one).__mro__:
                slots = vars(kind).get("__slots__", ())
                names = (slots,) if isinstance(slots, str) else slots
                left += [(f"{path}.{name}", getattr(one, name, None)) for name in names]
                if code:
                    last += [(path, each) for each in vars(kind).values() if isinstance(each, FOLLOWED)]
