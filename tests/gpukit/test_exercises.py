"""The tolerances of verify's products against what hardware does to them, bit by bit, without any hardware."""

from __future__ import annotations

import math
import random

import pytest

from gpukit.verify import exercises
from gpukit.verify.exercises import SIZE, TOLERANCES

ENTRIES = 60


def rounded(number: float, digits: int, least: int = -126) -> float:
    """To that many binary digits after the first, half to even; `least` is the exponent where the steps end."""
    if number == 0:
        return 0.0
    step = math.ldexp(1.0, max(math.frexp(number)[1] - 1, least) - digits)
    return round(number / step) * step


def cut(number: float, step: float) -> float:
    return math.trunc(number / step) * step


def factors(digits: int, least: int = -126) -> list[tuple[list[float], list[float]]]:
    """A row and a column for each entry, as that format holds them."""
    numbers = random.Random(11)
    return [
        tuple([rounded(numbers.gauss(0, 1), digits, least) for _ in range(SIZE)] for _ in range(2))
        for _ in range(ENTRIES)
    ]


def added(products: list[float], bits: int, group: int = 32) -> float:
    """As tensor cores add: a group at a time, each product and the sum so far cut off at the largest one's exponent."""
    total = 0.0
    for start in range(0, len(products), group):
        part = [*products[start : start + group], total]
        step = math.ldexp(1.0, math.frexp(max(map(abs, part)))[1] - 1 - bits)
        total = sum(cut(number, step) for number in part)
    return total


def off(pairs, bits: int, digits: int, broken=lambda products: products) -> float:
    worst = 0.0
    for row, column in pairs:
        products = [one * other for one, other in zip(row, column)]
        seen = rounded(added(broken(products), bits), digits)
        worst = max(worst, abs(seen - math.fsum(products)) / math.fsum(map(abs, products)))
    return worst


# Digits after the first of the factors and of the result, the bits that the hardware keeps while it adds (13 for fp8 on
# Hopper and Ada, 23 and more for the others), and the factors' least exponent.
FORMATS = {"fp8": (3, 7, 13, -6), "bf16": (7, 7, 23, -126), "fp16": (10, 10, 23, -14), "tf32": (10, 23, 23, -126)}


@pytest.mark.parametrize("name", FORMATS)
def test_healthy_results_are_within_the_tolerance(name):
    digits, result, bits, least = FORMATS[name]
    seen = off(factors(digits, least), bits, result)
    assert seen < TOLERANCES[name] / 2


def test_three_bits_fewer_would_still_pass_for_fp8():
    """What the hardware keeps is known from measurements only."""
    assert off(factors(3, -6), 10, 7) < TOLERANCES["fp8"]


BROKEN = {
    "a group left out": lambda products: products[32:],
    "a sign": lambda products: [-2 * number if index % 16 == 5 else number for index, number in enumerate(products)],
    "an exponent": lambda products: [
        2 * number if index % 32 == 5 else number for index, number in enumerate(products)
    ],
    "a scale": lambda products: [2 * number for number in products],
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("fault", BROKEN)
def test_broken_results_exceed_the_tolerance(name, fault):
    digits, result, bits, least = FORMATS[name]
    assert off(factors(digits, least), bits, result, BROKEN[fault]) > 3 * TOLERANCES[name]


def test_the_exercises_on_the_cpu():
    """Where torch is installed: in all precisions, and within the same tolerances."""
    pytest.importorskip("torch")
    for result in exercises.matmul("cpu", "9.0")["results"]:
        assert result["error"] <= result["tolerance"], result
    for output in (
        exercises.convolution("cpu"),
        exercises.attention("cpu", "bf16"),
        exercises.attention("cpu", "fp16"),
    ):
        assert max(output["error"], *output.get("ways", {0: 0}).values()) <= output["tolerance"]
