"""All runs compute with the same code of MKL's vector functions."""

from __future__ import annotations

import torch

# What PyTorch computes with MKL's vector functions on x86 (aten/src/ATen/cpu/vml.h, 2.13).
FUNCTIONS = (
    *("acos", "asin", "atan", "cos", "erf", "erfc", "erfinv", "exp"),
    *("log", "log10", "log2", "sin", "sqrt", "tan", "tanh"),
)


def settle() -> None:
    """Call each function of FUNCTIONS in one thread, so that MKL chooses its code for it now; about 1 ms.

    It chooses at a function's first call. If that comes from two threads at once, one of them may compute with 12 good
    bits instead of 24, that once (pytorch/pytorch#188792; oneMKL 2024.2, as in the wheels of 2.13): 2 to 10 % of
    processes on two cores, and their runs then differ from all others. So call it before any data or model is made.
    """
    for dtype in (torch.float32, torch.float64):
        one = torch.full((1,), 0.5, dtype=dtype)
        for name in FUNCTIONS:
            getattr(one, name)()
