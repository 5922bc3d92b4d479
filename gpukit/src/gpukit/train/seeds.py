"""Random numbers computed from counters: a hash, and generators seeded with it."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from functools import partial
from itertools import compress, count
from types import FunctionType, MethodType
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
_WORDS = 2500  # bytes: 624 words of the Mersenne Twister, and a position
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
    for one in (*_GLOBAL, *map(_source, these, count(len(_GLOBAL)))):
        one.seed(number & WORD)


def snapshot() -> tuple[Any, ...]:
    """The states of this process's global generators: torch's for the CPU, that of `random`, NumPy's legacy one."""
    return tuple(one.state() for one in _GLOBAL)


def restore(states: tuple[Any, ...]) -> None:
    """Restore the states from `snapshot`."""
    for one, state in zip(_GLOBAL, states, strict=True):
        one.restore(state)


def generator_state(generator: Any) -> Any:
    """The state of a generator: of torch (on the CPU), `random`, or NumPy."""
    return _source(generator, 0).state()


def restore_generator(generator: Any, state: Any) -> None:
    """Restore the state from `generator_state`."""
    _source(generator, 0).restore(state)


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


def _source(generator: Any, place: int) -> _Source:
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
    words = None
    if isinstance(generator, random.Random):
        get, put, kept = generator.getstate, generator.setstate, 2
        if generator is GLOBAL[1]:
            words = id(generator) + object.__basicsize__
    else:
        get, put, kept = partial(generator.get_state, legacy=False), generator.set_state, "has_gauss"
        if generator is GLOBAL[2] and isinstance(generator._bit_generator, numpy.random.MT19937):
            words = generator._bit_generator.ctypes.state_address
    if words:
        get, put = (known := _Known(words, get, put, kept)).state, known.restore
    return _Source(generator, lambda number: generator.seed(number + shift & 0xFFFF_FFFF), get, put)


class _Known:
    """The state of Python's or NumPy's global generator, which takes 6 or 28 us to read. It is read only if the
    generator's words in memory have changed since: these take 0.3 us.

    Source: https://numpy.org/doc/stable/reference/random/bit_generators/generated/numpy.random.MT19937.ctypes.html
    """

    def __init__(self, words: int, get: Callable[[], Any], put: Callable[[Any], object], kept: Any) -> None:
        self.memory, self.get, self.put, self.kept = (ctypes.c_char * _WORDS).from_address(words), get, put, kept
        self.words, self.last = self.memory.raw, get()

    def state(self) -> Any:
        words = self.memory.raw
        # Both keep every second normal number, and return it without a change of their words.
        if words != self.words or self.last[self.kept]:
            self.words, self.last = words, self.get()
        return self.last

    def restore(self, state: Any) -> None:
        self.put(state)
        self.words, self.last = self.memory.raw, state


def same(one: Any, other: Any) -> bool:
    """Whether two states are equal."""
    if one is other:
        return True
    if isinstance(one, dict):
        return all(same(value, other[key]) for key, value in one.items())
    return numpy.array_equal(one, other) if isinstance(one, numpy.ndarray) else one == other


_GLOBAL = tuple(map(_source, GLOBAL, count()))


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
        elif isinstance(one, MethodType | partial):
            left.extend([one.__self__] if isinstance(one, MethodType) else [one.func, one.args, one.keywords])
        else:
            left.extend(getattr(one, "__dict__", {}).values())
            for kind in type(one).__mro__:
                slots = vars(kind).get("__slots__", ())
                left.extend(getattr(one, name, None) for name in ((slots,) if isinstance(slots, str) else slots))
                code.extend(each for each in vars(kind).values() if isinstance(each, (*KINDS, FunctionType)))
    return found
