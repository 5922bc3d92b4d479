"""Random numbers computed from counters: a hash, and generators seeded with it."""

from __future__ import annotations

import ctypes
import functools
import random
from collections.abc import Callable, Iterable
from types import FunctionType, MethodType
from typing import Any

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
    """Seed torch's CPU generator, `random` and NumPy's legacy functions from an integer, modulo 2**64; about 6 us."""
    seed_these([], seed)


def seed_these(these: list[Any], number: int) -> None:
    """Seed the global generators, as `seed_all` does, and these."""
    for seed in map(_seeder, range(len(GLOBAL) + len(these)), (*GLOBAL, *these)):
        seed(number & WORD)


def snapshot() -> tuple[Any, ...]:
    """The states of this process's global generators: torch's for the CPU, that of `random`, NumPy's legacy one."""
    return tuple(map(_state, GLOBAL))


def restore(states: tuple[Any, ...]) -> None:
    """Restore the states from `snapshot`."""
    for generator, state in zip(GLOBAL, states, strict=True):
        _set_state(generator, state)


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
        self.root, self.known, self.drawn = root, list[Any](), list[int]()
        self.seeders: list[Callable[[int], object]] = []
        self.find()

    def find(self) -> None:
        """Look for generators again, since `root` may have created some."""
        drawn = {id(self.known[place]) for place in self.drawn}
        self.known = [*GLOBAL, *generators(self.root)]
        self._notice(place for place, each in enumerate(self.known) if id(each) in drawn)

    def _notice(self, places: Iterable[int]) -> None:
        self.drawn = list(places)
        self.seeders = [_seeder(place, self.known[place]) for place in self.drawn]

    def call(self, code: Callable[[Callable[[int], None]], Any]) -> Any:
        """The result of `code`, which is passed a function that seeds. In a process that is not a worker, the
        generators keep their state, so that a training loop draws the same numbers with and without workers."""
        before = list(map(_state, self.known))
        try:
            while True:
                result = code(self._seed)
                quiet = (place for place in range(len(self.known)) if place not in self.drawn)
                noticed = [place for place in quiet if not _same(before[place], _state(self.known[place]))]
                if not noticed:
                    return result
                self._notice([*self.drawn, *noticed])
        finally:
            if get_worker_info() is None:
                for place in self.drawn:
                    _set_state(self.known[place], before[place])

    def _seed(self, number: int) -> None:
        for seed in self.seeders:
            seed(number)


def _seeder(place: int, generator: Any) -> Callable[[int], object]:
    """A function that seeds a generator from a 64-bit number. `place` makes equal generators draw other numbers."""
    if generator is GLOBAL[0]:
        return generator.manual_seed
    if generator is GLOBAL[1]:
        return generator.seed
    if isinstance(generator, torch.Generator):
        return lambda number: generator.manual_seed(mix(place, state=number))
    if isinstance(generator, numpy.random.Generator):
        return _bits_seeder(place, generator.bit_generator)
    return lambda number: generator.seed(mix(place, state=number) >> 32)


def _bits_seeder(place: int, bits: Any) -> Callable[[int], object]:
    """The same for a Generator. The state of a PCG64 (the default) is set directly: a new one takes 7 us."""
    state = type(bits)(0).state
    if "inc" not in state["state"]:
        return lambda number: setattr(bits, "state", type(bits)(mix(place, state=number)).state)

    def seed(number: int) -> None:
        state["state"]["state"] = mix(place, state=number) << 64 | number
        bits.state = state

    return seed


def _state(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, numpy.random.Generator):
        return generator.bit_generator.state
    return _numpy_state() if generator is GLOBAL[2] else generator.get_state(legacy=False)


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, numpy.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, torch.Tensor):
        return one.numpy().tobytes() == other.numpy().tobytes()
    if isinstance(one, dict):
        return all(_same(value, other[key]) for key, value in one.items())
    return numpy.array_equal(one, other) if isinstance(one, numpy.ndarray) else one == other


_numpy: tuple[bytes, dict[str, Any]] = (b"", {})  # what was last seen of NumPy's legacy generator


def _numpy_state() -> dict[str, Any]:
    """The state of NumPy's legacy generator. `get_state` takes 28 us; its words in memory, which take 0.3 us, show
    whether it has changed. Source: https://numpy.org/doc/stable/reference/random/bit_generators (ctypes), 2026-11-23"""
    global _numpy
    bits = GLOBAL[2]._bit_generator
    if not isinstance(bits, numpy.random.MT19937):
        return GLOBAL[2].get_state(legacy=False)
    words = ctypes.string_at(bits.ctypes.state_address, 2500)  # 624 words and a position
    if (
        words != _numpy[0] or _numpy[1]["has_gauss"]
    ):  # it also keeps every second normal number, and uses it without a change
        _numpy = words, GLOBAL[2].get_state(legacy=False)
    return _numpy[1]


def generators(root: Any) -> list[Any]:
    """The random generators that an object references, at any depth: in attributes, its class, short containers, and
    closures, and as globals of its functions."""
    found, seen, left, code = [], set(map(id, GLOBAL)), [root], []  # code comes last: much of it belongs to libraries
    while (left or code) and len(seen) < 10_000:
        one = left.pop() if left else code.pop()
        if id(one) in seen or isinstance(one, str | bytes | int | float | type | torch.Tensor | numpy.ndarray):
            continue
        seen.add(id(one))
        if isinstance(one, KINDS):
            system = isinstance(one, random.SystemRandom)
            if not system and getattr(one, "device", torch.device("cpu")).type == "cpu":
                found.append(one)
        elif isinstance(one, dict | list | tuple):
            if len(one) <= 100:  # short lists may contain transforms; long ones contain samples
                left.extend(one.values() if isinstance(one, dict) else one)
        elif isinstance(one, FunctionType):
            left.extend(getattr(cell, "cell_contents", None) for cell in one.__closure__ or ())
            named = [one.__globals__.get(name) for name in one.__code__.co_names]
            code.extend(each for each in named if isinstance(each, (*KINDS, FunctionType)))
        elif isinstance(one, MethodType | functools.partial):
            left.extend([one.__self__] if isinstance(one, MethodType) else [one.func, one.args, one.keywords])
        else:
            left.extend(getattr(one, "__dict__", {}).values())
            for kind in type(one).__mro__:
                slots = vars(kind).get("__slots__", ())
                left.extend(getattr(one, name, None) for name in ((slots,) if isinstance(slots, str) else slots))
                code.extend(each for each in vars(kind).values() if isinstance(each, (*KINDS, FunctionType)))
    return found
