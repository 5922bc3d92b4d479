"""Random numbers computed from counters: a hash, and generators seeded with it."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from types import CellType, FunctionType, MemberDescriptorType, MethodType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple
from weakref import ProxyTypes

import numpy
import torch

WORD = 0xFFFF_FFFF_FFFF_FFFF
# The purpose is mixed into each number, so that an order and a dropout mask with equal counters are unrelated.
ORDER = 1
SAMPLE = 2
COLLATE = 3
# The generators behind the functions of torch (on the CPU), `random`, and numpy.random. (`torch.manual_seed` seeds
# every backend and takes 80 us; a sample is loaded on the CPU and needs one.)
GLOBAL = (torch.default_generator, random.seed.__self__, numpy.random.mtrand._rand)
WORDS = super(random.Random, GLOBAL[1])  # that of `random` without its Python code, which takes a third of the time
KINDS = (torch.Generator, numpy.random.Generator, numpy.random.RandomState, random.Random)
# What references nothing else. Proxies are first: a question to one whose object is gone raises an error.
PLAIN = (*ProxyTypes, str, bytes, int, float, complex, type, type(None), ModuleType, torch.Tensor, numpy.ndarray)
FOLLOWED = (*KINDS, FunctionType, torch.nn.Module)
EMPTY = CellType()  # of a closure, whose variable has no value yet
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


def snapshot() -> tuple[Any, ...]:
    """The states of this process's global generators: torch's for the CPU, that of `random`, NumPy's legacy one."""
    return tuple(one.state() for one in _GLOBAL)


def restore(states: Iterable[Any]) -> None:
    """Restore the states from `snapshot`."""
    for one, state in zip(_GLOBAL, states, strict=True):
        one.restore(state)


class Seeds:
    """The global generators, and others, that some code draws from.

    with seeds.apart():
        seeds.seed(5)
        ...                 # draws what follows from 5
    """

    def __init__(self, also: Iterable[Any] = ()) -> None:
        self.also = [*map(source, also, count(len(GLOBAL)))]

    def seed(self, number: int) -> None:
        """Seed all of them from a number of 64 bits; about 7 us for the global ones.

        Torch and NumPy use 32 bits for the same algorithm: not the same ones, or their numbers would be related.
        """
        GLOBAL[0].manual_seed(number)
        WORDS.seed(number)
        GLOBAL[1].gauss_next = None
        GLOBAL[2].seed(number >> 32)
        for one in self.also:
            one.seed(number)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """They have the same state after the block as before, whatever it seeds or draws."""
        kept = self.set_aside()
        try:
            yield
        finally:
            self.put_back(kept)

    def set_aside(self) -> Any:
        """What `put_back` needs; about 15 us. Afterwards they must be seeded.

        To read and set the 624 words of NumPy's global generator takes 90 us, so it gets other words for the time.
        """
        legacy = GLOBAL[2]
        words = legacy._bit_generator
        legacy._bit_generator = _NORMAL
        normal = dict(legacy.get_state(legacy=False))
        numpy.random.set_bit_generator(numpy.random.MT19937(0) if words is _SPARE else _SPARE)
        others = [one.state() for one in self.also]
        return words, normal, GLOBAL[0].get_state(), WORDS.getstate(), GLOBAL[1].gauss_next, others

    def put_back(self, kept: Any) -> None:
        """Restore what was set aside."""
        legacy = GLOBAL[2]
        (words, normal, first, second, gauss, also) = kept
        numpy.random.set_bit_generator(words)
        legacy._bit_generator = _NORMAL
        legacy.set_state(normal)
        legacy._bit_generator = words
        GLOBAL[0].set_state(first)
        WORDS.setstate(second)
        GLOBAL[1].gauss_next = gauss
        for one, state in zip(self.also, also):
            one.restore(state)


class Source(NamedTuple):
    """How a generator of torch, `random`, or NumPy is seeded from 64 bits, and its state is read and restored."""

    generator: Any
    seed: Callable[[int], object]
    state: Callable[[], Any]
    restore: Callable[[Any], object]


def source(generator: Any, place: int = 0) -> Source:
    """`place`: generators in different places draw different numbers for the same seed."""
    shift = place * 0x9E3779B97F4A7C15
    if isinstance(generator, numpy.random.Generator):
        bits = generator.bit_generator

        def seed_bits(number: int) -> None:
            bits.state = type(bits)(number + shift & WORD).state

        return Source(generator, seed_bits, lambda: bits.state, partial(setattr, bits, "state"))
    if isinstance(generator, torch.Generator):
        return Source(
            generator,
            lambda number: generator.manual_seed(number + shift & WORD),
            generator.get_state,
            generator.set_state,
        )
    if isinstance(generator, random.Random):
        seed_any = lambda number: generator.seed(number + shift & WORD)  # noqa: E731
        return Source(generator, seed_any, generator.getstate, generator.setstate)
    get = partial(generator.get_state, legacy=False)
    return Source(generator, lambda number: generator.seed(number + shift & 0xFFFF_FFFF), get, generator.set_state)


_GLOBAL = [*map(source, GLOBAL)]
_SPARE = numpy.random.MT19937(0)
# Instead of a RandomState's words: `get_state` and `set_state` then only take the normal number that it has kept, since
# it computes two at a time. Source: https://github.com/numpy/numpy/blob/v2.3.0/numpy/random/mtrand.pyx (2026-11-26)
_NORMAL = SimpleNamespace(state={"bit_generator": "none", "state": None})


def generators(root: Any) -> list[Any]:
    """The random generators of the CPU that an object references, except the global ones."""
    found = [one for one in walk(root) if isinstance(one, KINDS) and not isinstance(one, random.SystemRandom)]
    return [one for one in found if getattr(one, "device", CPU) == CPU and not any(one is each for each in GLOBAL)]


def walk(root: Any, code: bool = True) -> Iterator[Any]:
    """An object and those that it references, at any depth: in attributes, short containers, methods, and closures;
    with `code`, also the generators, modules, and functions that its functions name and its class has."""
    seen = set[int]()
    left = [root]
    last = []  # code: much of it belongs to libraries
    while (left or last) and len(seen) < 10_000:
        one = left.pop() if left else last.pop()
        if id(one) in seen or isinstance(one, PLAIN):
            continue
        seen.add(id(one))
        yield one
        if isinstance(one, dict | list | tuple | deque):
            if len(one) <= 100:  # short lists may contain transforms; long ones contain samples
                left += one.values() if isinstance(one, dict) else one
        elif isinstance(one, FunctionType):
            left += [cell.cell_contents for cell in one.__closure__ or () if cell != EMPTY]
            named = [one.__globals__.get(name) for name in one.__code__.co_names] if code else ()
            last += [each for each in named if isinstance(each, FOLLOWED)]
        elif isinstance(one, MethodType | partial):
            left += [one.__self__] if isinstance(one, MethodType) else [one.func, one.args, one.keywords]
        elif not isinstance(one, KINDS):
            left += _attributes(one)
            if code:
                of_class = [each for kind in type(one).__mro__ for each in vars(kind).values()]
                last += [each for each in of_class if isinstance(each, FOLLOWED)]


def _attributes(one: Any) -> list[Any]:
    """The values of an object's attributes and slots. The object itself is not asked: its `__getattr__` may raise
    anything, as that of wandb's summary."""
    found = []
    with suppress(AttributeError):  # it has only slots
        found += object.__getattribute__(one, "__dict__").values()
    for kind in type(one).__mro__:
        for slot in vars(kind).values():
            if isinstance(slot, MemberDescriptorType):
                with suppress(AttributeError):  # it has no value yet
                    found.append(slot.__get__(one))
    return found
