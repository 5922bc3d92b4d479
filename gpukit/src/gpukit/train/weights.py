"""Weights in a safetensors file: a list of names, types, and shapes, then the numbers. It cannot contain code.

The package `safetensors` is not used, because checkpoints are hashed while they are written, without a second copy of
the weights in memory, and record which weights are tied. Any program that supports the format can read the files.
Source: https://huggingface.co/docs/safetensors, "Format".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.complex64: "C64",
}
TYPES = {name: dtype for dtype, name in NAMES.items()}
ALIGNED = 16  # bytes of the widest type, complex128: views must start at a multiple of the size of their numbers


def plain(tensor: Any) -> bool:
    """Whether it is an ordinary tensor: not sparse, quantized, of a subclass, or on the meta device."""
    return (
        type(tensor) in (Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        and tensor.device.type != "meta"
    )


def size(weights: Mapping[str, Tensor]) -> int:
    """Bytes of the numbers; shared ones count once. The header takes some hundred bytes more per tensor."""
    kept = set(_kept(weights).values())
    return sum(weights[name].nbytes for name in kept)


def write(weights: Mapping[str, Tensor], put: Callable[[memoryview | bytes], object]) -> None:
    """Pass the bytes of the file to `put`, in order, copying one tensor at a time from the GPU.

    Tied weights, which are the same numbers under several names, are written once and listed as shared.
    """
    kept = _kept(weights)
    order = sorted(dict.fromkeys(kept.values()), key=lambda name: -weights[name].itemsize)  # ALIGNED holds for all
    starts, end = {}, 0
    for name in order:
        starts[name], end = end, end + weights[name].nbytes
    shared = {name: one for name, one in kept.items() if name != one}
    unnamed = {name: str(weights[name].dtype)[6:] for name in starts if weights[name].dtype not in NAMES}
    header: dict[str, Any] = {
        "__metadata__": {"format": "pt", "shared": json.dumps(shared), "dtypes": json.dumps(unnamed)}
    }
    for name in kept:  # in the order of the weights
        if name in starts:
            tensor = weights[name]
            header[name] = {
                "dtype": NAMES.get(tensor.dtype, "U8"),
                "shape": [*tensor.shape, *([tensor.itemsize] if name in unnamed else [])],
                "data_offsets": [starts[name], starts[name] + tensor.nbytes],
            }
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % ALIGNED)
    put(len(text).to_bytes(8, "little") + text)
    for name in order:
        put(_bytes(weights[name]))


def read(data: Tensor) -> dict[str, Tensor]:
    """The weights in a file written by `write`, as views of its bytes, `data` (uint8, one dimension).

    Tied weights are tied again. The caller must have verified the bytes.
    """
    start = 8 + int.from_bytes(bytes(data[:8].tolist()), "little")
    header = json.loads(data[8:start].numpy().tobytes())
    metadata = header.pop("__metadata__")
    unnamed = json.loads(metadata["dtypes"])
    weights = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        dtype, shape = TYPES[entry["dtype"]], entry["shape"]
        if name in unnamed:
            dtype, shape = getattr(torch, unnamed[name]), shape[:-1]
        weights[name] = data[start + begin : start + end].view(dtype).reshape(shape)
    return weights | {name: weights[one] for name, one in json.loads(metadata["shared"]).items()}


def _kept(weights: Mapping[str, Tensor]) -> dict[str, str]:
    """Each name -> the first name of the same memory. Tensors that overlap only partly count as different."""
    first: dict[Any, str] = {}
    kept = {}
    for name, tensor in weights.items():
        place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        same = (*place, tensor.is_conj(), tensor.is_neg()) if tensor.numel() else name
        kept[name] = first.setdefault(same, name)
    return kept


def _bytes(tensor: Tensor) -> memoryview:
    whole = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return memoryview(whole.reshape(-1).view(torch.uint8).numpy())
