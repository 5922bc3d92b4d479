"""Computations with torch, and the expected results. Runs in the worker; in the tests also on the CPU."""

from __future__ import annotations

from typing import Any

from gpukit.errors.known import match_signs

SIZE = 512  # of the matrices: each entry is a sum of this many products
HALF = {"fp16": 2.0**-11, "bf16": 2.0**-8}  # the unit of rounding

# The maximum error of an entry, relative to the sum of its terms' absolute values, so that cancellation does not count.
# Broken hardware has errors of 1 % or more.
TOLERANCES = {
    # Each of the 512 additions rounds once, by 2^-24 at most; that bound holds for any order of summation.
    "fp32": SIZE * 2.0**-24,
    # Both factors are cut to 10 bits before they are multiplied: 2^-10 each, for hardware that truncates.
    "tf32": 2 * 2.0**-10 + SIZE * 2.0**-24,
    # The factors are exact and the products too; tensor cores add in fp32, truncating (2^-23), and the result is
    # rounded once. The flag that allows sums in half precision is switched off, or a split sum would round more often.
    "bf16": HALF["bf16"] + SIZE * 2.0**-23,
    "fp16": HALF["fp16"] + SIZE * 2.0**-23,
    # Products of e4m3 are exact. Hopper's and Ada's tensor cores add them with 13 fractional bits, truncated relative
    # to the largest of each 32. Emulating that over all 512, without intermediate fp32 sums, gives an error of at most
    # 0.0009 with the rounding to bf16, and 0.0038 with three bits fewer. A wrong sign or exponent gives 0.02 or more.
    "fp8": 2.0**-8,
}
# The lowest compute capability that supports it in hardware.
MIN_CAPABILITY = {"fp32": (0, 0), "fp16": (0, 0), "tf32": (8, 0), "bf16": (8, 0), "fp8": (8, 9)}


def matmul(device: str, capability: str) -> dict[str, Any]:
    """A product in each precision, against fp64 on the CPU with the same rounded factors."""
    import torch

    has = tuple(int(part) for part in capability.split("."))
    results = []
    before = torch.get_float32_matmul_precision()
    flags = torch.backends.cuda.matmul
    for name in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"):
        setattr(flags, name, False)
    for name in (name for name, least in MIN_CAPABILITY.items() if has >= least):
        try:
            error = _relative_error(name, device)
        except Exception as message:
            results.append({"name": name, "message": f"{type(message).__name__}: {message}"})
        else:
            results.append({"name": name, "error": error, "tolerance": TOLERANCES[name]})
        finally:
            torch.set_float32_matmul_precision(before)
    return {"device": device, "results": results}


def _relative_error(name: str, device: str) -> float:
    import torch

    kinds = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp8": getattr(torch, "float8_e4m3fn", None)}
    kind = kinds.get(name, torch.float32)
    generator = torch.Generator().manual_seed(11)
    left, right = (torch.randn(SIZE, SIZE, generator=generator).to(kind) for _ in range(2))
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    if name == "fp8":
        twice, quarter = (torch.tensor(scale, device=device) for scale in (2.0, 0.25))  # one for each tensor
        columns = right.float().t().contiguous().to(kind).to(device).t()  # what cuBLAS asks of the second factor
        product = torch._scaled_mm(left.to(device), columns, scale_a=twice, scale_b=quarter, out_dtype=torch.bfloat16)
        product = 2 * (product[0] if isinstance(product, tuple) else product)
    else:
        product = left.to(device) @ right.to(device)
    left, right = left.double() if name != "fp8" else left.float().double(), right.float().double()
    off = (product.cpu().double() - left @ right).abs() / (left.abs() @ right.abs())
    return float(off.max()) if bool(off.isfinite().all()) else float("inf")


def convolution(device: str) -> dict[str, Any]:
    """Forward and backward. The tolerance is 1e-4: sums of 8192 products in fp32 have an error of about 1e-6, and the
    fast algorithms (Winograd, FFT) lose two more digits. TF32, with an error of 1e-3, is disabled."""
    import torch
    from torch.nn.functional import conv2d

    torch.backends.cudnn.allow_tf32 = False
    generator = torch.Generator().manual_seed(12)
    image, kernel = torch.randn(8, 16, 32, 32, generator=generator), torch.randn(32, 16, 3, 3, generator=generator)

    def both(image: Any, kernel: Any) -> list[Any]:
        image, kernel = (each.detach().requires_grad_() for each in (image, kernel))
        result = conv2d(image, kernel, padding=1)
        result.square().sum().backward()  # a first sine on a CPU may be wrong (pytorch/pytorch#188792)
        return [each.detach().cpu().double() for each in (result, image.grad, kernel.grad)]

    seen = both(image.to(device), kernel.to(device))
    expected = both(image.double(), kernel.double())
    off = max(float((one - other).norm() / other.norm()) for one, other in zip(seen, expected))
    cudnn = torch.backends.cudnn
    version = cudnn.version() if cudnn.is_available() else None
    return {"device": device, "error": off, "tolerance": 1e-4, "cudnn": version, "enabled": cudnn.enabled}


def attention(device: str, kind: str) -> dict[str, Any]:
    """Scaled dot product attention: torch's choice, then each of its implementations that supports it."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[kind]
    generator = torch.Generator().manual_seed(13)
    query, key, value = (torch.randn(2, 4, 128, 64, generator=generator).to(dtype) for _ in range(3))
    scores = query.double() @ key.double().transpose(-2, -1) / 8
    scores.masked_fill_(torch.ones(128, 128, dtype=torch.bool).triu(1), float("-inf"))
    expected = scores.softmax(-1) @ value.double()

    def off() -> float:
        inputs = [each.clone().to(device).requires_grad_() for each in (query, key, value)]
        result = scaled_dot_product_attention(*inputs, is_causal=True)
        result.float().sum().backward()
        if not all(bool(each.grad.isfinite().all()) for each in inputs):
            return float("inf")
        return float((result.detach().cpu().double() - expected).abs().max() / value.double().abs().max())

    answer = {"device": device, "kind": kind, "error": off(), "ways": {}}
    # Weights, result, and scores are rounded once each: an error of a score becomes an error of its weight.
    answer["tolerance"] = 4 * HALF[kind]
    for name in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH"):
        backend = getattr(SDPBackend, name, None)
        if backend is None:
            continue
        try:
            with sdpa_kernel(backend):
                answer["ways"][name.partition("_")[0].lower()] = off()
        except RuntimeError as error:
            if match_signs(str(error), "cuda-call-failed"):
                raise
    return answer


def amp(device: str) -> dict[str, Any]:
    """Twenty steps in fp16 with autocast and GradScaler: the loss must decrease."""
    import torch

    kind = device.partition(":")[0]
    torch.manual_seed(14)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler(kind)
    inputs = torch.randn(256, 32).to(device)
    wanted = inputs[:, :1] - inputs[:, 1:2]
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        with torch.autocast(kind, dtype=torch.float16):
            loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(float(loss))
    return {"device": device, "first": losses[0], "last": losses[-1], "scale": float(scaler.get_scale())}


def train(device: str, file: str, resume: bool) -> dict[str, Any]:
    """Ten steps with dropout and a checkpoint after the fifth, or the last five steps from that checkpoint.

    `again`: the losses of the same ten steps, repeated with the same seed.
    """
    losses = _steps(device, file, resume)
    return {
        "device": device,
        "start": 10 - len(losses),
        "losses": losses,
        "again": [] if resume else _steps(device, ""),
    }


def _steps(device: str, file: str, resume: bool = False) -> list[float]:
    import os
    from pathlib import Path

    import torch

    torch.manual_seed(15)
    data, wanted = torch.randn(640, 16), torch.randint(0, 4, (640,))
    layers = torch.nn
    model = layers.Sequential(layers.Linear(16, 64), layers.ReLU(), layers.Dropout(0.1), layers.Linear(64, 4))
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    start = 0
    if resume:
        state = torch.load(file, map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    losses = []
    for step in range(start, 10):
        torch.manual_seed(1000 + step)  # dropout depends on the step alone
        part = slice(64 * step, 64 * step + 64)
        loss = torch.nn.functional.cross_entropy(model(data[part].to(device)), wanted[part].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
        if step == 4 and file and not resume:
            aside = Path(f"{file}.tmp")
            with aside.open("wb") as stream:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 5}, stream)
                stream.flush()
                os.fsync(stream.fileno())
            aside.replace(file)
    return losses
