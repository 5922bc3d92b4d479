"""Random numbers computed from counters: a hash, and generators seeded with it."""

from __future__ import annotations

import functools
import random
from types import FunctionType, MethodType
from typing import Any

import numpy
import torch

WORD = 0xFFFF_FFFF_FFFF_FFFF
# The purpose is mixed into each number, so that an order and a dropout mask with equal counters are unrelated.
ORDER, SAMPLE, COLLATE, STEP = 1, 2, 3, 4
QUIET = 0x5EED  # seed for samples that should draw nothing; the next number drawn shows whether they did


def mix(*numbers: int) -> int:
    """A 64-bit hash of integers (each taken modulo 2**64), the same on every platform and in every version.

    Method: a finalizer of splitmix64 for each number (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
    Generators, OOPSLA 2014), chained. Counters that differ in one bit give unrelated results; about 1 us.
    """
    state = 0
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
    """Seed torch's CPU generator, `random` and NumPy's legacy functions from an integer, modulo 2**64; about 6 us.

    `torch.manual_seed` seeds every backend and takes 80 us; a sample is loaded on the CPU and needs one generator.
    """
    seed &= WORD
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed & 0xFFFF_FFFF)


def snapshot() -> tuple[Any, ...]:
    """The states of this process's global generators: torch's for the CPU, that of `random`, NumPy's legacy one."""
    return torch.default_generator.get_state(), random.getstate(), numpy.random.get_state()


def restore(states: tuple[Any, ...]) -> None:
    """Restore the states from `snapshot`."""
    torch.default_generator.set_state(states[0])
    random.setstate(states[1])
    numpy.random.set_state(states[2])


def numpy_generator() -> numpy.random.Generator:
    """A NumPy Generator for one sample, derived from its seed: to be created inside `dataset[index]`.

    `numpy.random.default_rng()` would use a seed from the operating system, so runs could not be repeated.
    """
    return numpy.random.default_rng(numpy.random.randint(0, 2**63, dtype=numpy.int64))


def touched() -> bool:
    """Whether a random number was drawn since `seed_all(QUIET)`. It draws numbers itself: seed the generators again."""
    return _peek() != _untouched()


def _peek() -> tuple[int, float, float]:
    drawn = torch.empty((), dtype=torch.int64).random_(generator=torch.default_generator)
    return drawn.item(), random.random(), numpy.random.random_sample()


@functools.cache
def _untouched() -> tuple[int, float, float]:
    seed_all(QUIET)
    return _peek()


def generators(root: Any) -> list[Any]:
    """The random generators that an object references, at any depth: in attributes, its class, short containers, and
    closures, and as globals of its functions."""
    kinds = (torch.Generator, numpy.random.Generator, numpy.random.RandomState, random.Random)
    found, seen, left, code = [], set(), [root], []  # code comes last, since much of it belongs to libraries
    while (left or code) and len(seen) < 10_000:
        one = left.pop() if left else code.pop()
        if one is torch.default_generator or id(one) in seen:
            continue
        if isinstance(one, str | bytes | int | float | type | torch.Tensor | numpy.ndarray):
            continue
        seen.add(id(one))
        if isinstance(one, kinds):
            system = isinstance(one, random.SystemRandom)
            if not system and getattr(one, "device", torch.device("cpu")).type == "cpu":
                found.append(one)
        elif isinstance(one, dict | list | tuple):
            if len(one) <= 100:  # short lists may contain transforms; long ones contain samples
                left.extend(one.values() if isinstance(one, dict) else one)
        elif isinstance(one, FunctionType):
            left.extend(getattr(cell, "cell_contents", None) for cell in one.__closure__ or ())
            named = [one.__globals__.get(name) for name in one.__code__.co_names]
            code.extend(each for each in named if isinstance(each, (*kinds, FunctionType)))
        elif isinstance(one, MethodType | functools.partial):
            left.extend([one.__self__] if isinstance(one, MethodType) else [one.func, one.args, one.keywords])
        else:
            left.extend(getattr(one, "__dict__", {}).values())
            for kind in type(one).__mro__:
                slots = vars(kind).get("__slots__", ())
                left.extend(getattr(one, name, None) for name in ((slots,) if isinstance(slots, str) else slots))
                code.extend(each for each in vars(kind).values() if isinstance(each, (*kinds, FunctionType)))
    return found


def seed_these(these: list[Any], number: int) -> None:
    """Seed the global generators, as `seed_all` does, and these."""
    seed_all(number)
    for place, generator in enumerate(these):
        _reseed(generator, mix(number, place))


def _reseed(generator: Any, seed: int) -> None:
    if isinstance(generator, torch.Generator):
        generator.manual_seed(seed)
    elif isinstance(generator, numpy.random.Generator):
        generator.bit_generator.state = type(generator.bit_generator)(seed).state
    else:
        generator.seed(seed & 0xFFFF_FFFF)
