"""The memory that training needs at a batch size, computed without a GPU.

    python -m gpukit.script.memory --batch-size 64         # for this project, with the options of train.py
    needed = estimate(build, settings, 64)                # for others: `build(device)` returns a Traced

Two real steps run on PyTorch's meta device, whose tensors have shapes but no data, under a mode that counts the
storages that are alive. Only the weights are made, on the CPU, and dropped before. A project's step has
`build_model(settings)` of model.py, AdamW, `training_data(settings)` of data.py, and `compute_loss(model, batch)` of
train.py; if train.py has `make_trainer`, it is TRL's.

What is as on a GPU: autocast, the optimizer's foreach and fused kernels, flash attention, checkpointing, microbatches.
What is not counted: workspaces within a kernel (cuDNN, cuBLAS), fragmentation, what torch.compile saves, and the loss
scaling of fp16. Not traced: RNN, LSTM, and GRU, since only cuDNN knows, on the GPU, how much they keep.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import json
import os
import socket
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn
from torch.library import Library, fallthrough_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only
from torch.utils.data import Dataset, default_collate

from exactrun.errors import first_line
from exactrun.fits import even, samples, split
from gpukit.project.location import root
from gpukit.project.stack import StackError, load
from gpukit.script.device import DTYPES, Device
from gpukit.script.start import Start

# The allocator rounds each size up to this. Source: kMinBlockSize in c10/cuda/CUDACachingAllocator.cpp and its copy in
# torch/distributed/_tools/mem_tracker.py, PyTorch 2.13, 2026-11-24.
BLOCK = 512
# An estimate, since it depends on the GPU, the driver, and the kernels in use: 426 MiB were measured on an RTX 6000 Ada
# with PyTorch 2.10 and CUDA 13.0 (https://github.com/unslothai/unsloth-zoo/pull/1053, 2026-08-12), about 400 MB is what
# https://github.com/pytorch/pytorch/issues/109888 says of CUDA 11.7 and newer. Rounded up. It is not part of `bytes`.
CONTEXT = 512 * 2**20
PARTS = ("weights", "gradients", "optimizer", "activations", "data")
META = torch.device("meta")
READ = torch.ops.aten._local_scalar_dense.default
INDEX = torch.ops.aten.index.Tensor
NEEDS_VALUES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
FEW = 64  # samples that are read
MOST_KNOWN = 2**22  # elements of a tensor whose values are computed
# What autocast computes in the lower format, and what in float32, as far as it makes a difference to the memory.
# Source: https://docs.pytorch.org/docs/2.13/amp.html#cuda-op-specific-behavior
LOWER = (
    "linear matmul mm bmm addmm mv addmv baddbmm addbmm conv1d conv2d conv3d conv_transpose1d conv_transpose2d.input"
)
LOWER += " conv_transpose3d.input prelu"
HIGHER = "layer_norm group_norm softmax.int log_softmax.int nll_loss nll_loss_nd mse_loss l1_loss smooth_l1_loss kl_div"
HIGHER += " binary_cross_entropy_with_logits exp log pow.Tensor_Scalar rsqrt sum sum.dim_IntList cumsum softplus prod"
ATTENTION = "scaled_dot_product_attention"
AUTOCAST = torch._C.DispatchKey.AutocastPrivateUse1  # no kernels of PyTorch's own; meta tensors have no such key


class TraceError(Exception):
    """The step cannot be traced; the message says why, in one sentence."""


class Traced(NamedTuple):
    """The parts of a training step: the model, its optimizer, its data, `loss(model, batch)` with the batch on the
    device, and how samples make a batch (None: as a DataLoader does)."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    dataset: Dataset
    loss: Callable[[nn.Module, Any], Tensor]
    collate: Callable[[list[Any]], Any] | None = None

    def step(self, batch: Any, *, clip: float | None = None, microbatch: int | None = None) -> None:
        """A training step, as the scripts make it."""
        self.optimizer.zero_grad()
        for part in split(batch, even(samples(batch), microbatch)) if microbatch else [batch]:
            self.loss(self.model, part).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_([one for group in self.optimizer.param_groups for one in group["params"]], clip)
        self.optimizer.step()


@dataclass(frozen=True)
class Needed:
    """`bytes`: the peak, the sum of `parts`; `per_sample` and `fixed`: of the line through two batch sizes."""

    batch_size: int
    bytes: int
    parts: dict[str, int]
    per_sample: int
    fixed: int
    dtype: str
    context: int = CONTEXT


class Trace(TorchDispatchMode):
    """Counts the bytes of the meta tensors that are alive; `parts` is what they were at the peak.

    Masks, lengths, and other integers of a batch, and what is computed from them alone, have their values beside them
    (`known`, on the CPU), since models ask for them. A float that the loss function reads after the model, as for a
    metric, is 1.
    """

    in_model = False

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, tuple[str, int, Any]] = {}
        self.now = dict.fromkeys(PARTS, 0)
        self.parts = dict(self.now)
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name.startswith("aten::_fused_") and func._schema.name.endswith("_"):
            return None  # a fused optimizer allocates nothing, and not all of them have a meta kernel
        kwargs = kwargs or {}
        given = _on_meta((args, kwargs))
        known = all(hasattr(one, "known") for one in given)
        if func is READ and not known and given[0].is_floating_point() and not self.in_model:
            return 1.0
        if func is INDEX:
            args = (args[0], [each for one in args[1] for each in _positions(one)])
        needs = bool(NEEDS_VALUES & {*func.tags})
        values = _values(func, args, kwargs) if given and known and needs else None
        try:
            result = (
                func(*args, **kwargs) if values is None else tree_map_only(Tensor, lambda one: one.to(META), values)
            )
        except RuntimeError as error:
            if needs:
                raise ValueError(f"{func} needs a value that the model computes") from error
            raise
        created = _on_meta(result)
        if values is None and known and created and max(one.numel() for one in created) <= MOST_KNOWN:
            values = _values(func, args, kwargs) if given or not created[0].is_floating_point() else None
        for one, value in zip(created, tree_leaves(values) if values is not None else [], strict=False):
            one.known = value
        if not known and func._schema.is_mutable:
            for one in created:
                vars(one).pop("known", None)
        self.mark("activations", result, again=False)
        return result

    def mark(self, part: str, tensors: Any, again: bool = True) -> None:
        """Count the storages of these tensors as `part`; `again`: also those that are another part."""
        for tensor in tree_leaves(tensors):
            if not isinstance(tensor, Tensor) or tensor.device != META:
                continue
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key in self.alive:
                old, size, reference = self.alive[key]
                if again:
                    self.now[old] -= size
                    self.now[part] += size
                    self.alive[key] = (part, size, reference)
                continue
            size = -(-storage.nbytes() // BLOCK) * BLOCK
            self.alive[key] = (part, size, weakref.ref(storage, lambda _, key=key: self._freed(key)))
            self.now[part] += size
        if (total := sum(self.now.values())) >= self.peak:
            self.peak, self.parts = total, dict(self.now)

    def moved(self, value: Any) -> Any:
        """A batch on the meta device, which counts as data."""
        if isinstance(value, Mapping):
            return {name: self.moved(one) for name, one in value.items()}
        return tree_map_only(Tensor, self._moved, value)

    def _moved(self, one: Tensor) -> Tensor:
        there = torch.empty_like(one, device=META)
        if one.device != META and not one.is_floating_point():
            there.known = one
        self.mark("data", there)
        return there

    def _freed(self, key: int) -> None:
        part, size, _ = self.alive.pop(key)
        self.now[part] -= size


def _on_meta(values: Any) -> list[Tensor]:
    return [one for one in tree_leaves(values) if isinstance(one, Tensor) and one.device == META]


def _values(func: Any, args: Any, kwargs: Any) -> Any:
    """The result on the CPU, from the values of all tensors."""
    there, named = tree_map_only(Tensor, lambda one: getattr(one, "known", one), (args, kwargs))
    return func(*there, **(named | ({"device": "cpu"} if "device" in named else {})))


def _positions(index: Tensor | None) -> list[Tensor | None]:
    """The positions that a mask of known values selects; any other index as it is."""
    if index is None or index.dtype != torch.bool or not hasattr(index, "known"):
        return [index]
    return [each.to(META) for each in index.known.nonzero(as_tuple=True)]


def peak(traced: Traced, dtype: torch.dtype, batch_size: int, **limits: Any) -> dict[str, int]:
    """The bytes of each part at the peak of two steps with `batch_size` samples, which are the data set's first."""
    few = [traced.dataset[number] for number in range(min(FEW, len(traced.dataset)))]
    model = traced.model
    chosen = [few[number % len(few)] for number in range(batch_size)]
    batch = (traced.collate or default_collate)(chosen)
    trace = Trace()
    hooks = []
    trace.mark("weights", [*model.parameters(), *model.buffers()])
    trace.mark("optimizer", _state(traced.optimizer))
    for one in model.parameters():
        if one.requires_grad:
            hooks.append(one.register_post_accumulate_grad_hook(lambda one: trace.mark("gradients", one.grad)))
    hooks.append(model.register_forward_pre_hook(lambda *_: setattr(trace, "in_model", True)))
    hooks.append(model.register_forward_hook(lambda *_: setattr(trace, "in_model", False)))
    hooks.append(traced.optimizer.register_step_post_hook(lambda *_: trace.mark("optimizer", _state(traced.optimizer))))
    try:
        with _as_on_gpu(), _kernels(dtype), trace:
            for _ in range(2):  # the second with the optimizer's state
                traced.step(trace.moved(batch), **limits)
    finally:
        traced.optimizer.zero_grad()
        for hook in hooks:
            hook.remove()
    return trace.parts


def _state(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [list(state.values()) for state in optimizer.state.values()]


@contextlib.contextmanager
def _as_on_gpu() -> Iterator[None]:
    """Meta tensors get the optimizer kernels that tensors on a GPU get."""
    names = [
        "torch.optim.optimizer._get_foreach_kernels_supported_devices",
        "torch.optim.optimizer._get_fused_kernels_supported_devices",
        "torch.utils._foreach_utils._get_foreach_kernels_supported_devices",
    ]
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(mock.patch(name, lambda: ["cuda", "cpu", "meta"]))
        yield


@contextlib.contextmanager
def _kernels(dtype: torch.dtype) -> Iterator[None]:
    """Autocast to `dtype`, and the attention of a GPU: for meta tensors, PyTorch has neither.

    The dispatch key of an autocast that is not in use is switched on, with kernels for it.
    """
    asked = torch.is_autocast_enabled

    def enabled(device: str | None = None) -> bool:  # models ask for the device of their tensors, and PyTorch refuses
        return False if device == "meta" else asked(*[device] * (device is not None))

    keys = torch._C.DispatchKeySet(AUTOCAST)
    library = Library("aten", "IMPL")
    others = Library("_", "IMPL")
    others.fallback(fallthrough_kernel, AUTOCAST.name)

    def kernel(name: str, to: torch.dtype | None) -> Callable[..., Any]:
        packet, _, overload = name.partition(".")
        operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
        operator = _attention if name == ATTENTION else operator

        def cast(one: Any) -> Any:
            floating = isinstance(one, Tensor) and one.device == META and one.is_floating_point()
            return one.to(to) if to and floating and one.dtype != torch.float64 else one

        def call(*args: Any, **named: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(keys):
                return operator(*tree_map(cast, args), **tree_map(cast, named))

        return call

    lower = None if dtype == torch.float32 else dtype
    library.impl(ATTENTION, kernel(ATTENTION, lower), AUTOCAST.name)
    for names, to in ((LOWER, lower), (HIGHER, torch.float32)) if lower else ():
        for name in names.split():
            library.impl(name, kernel(name, to), AUTOCAST.name)
    try:
        torch._C._dispatch_tls_set_dispatch_key_excluded(AUTOCAST, False)
        with torch._C._IncludeDispatchKeyGuard(AUTOCAST), mock.patch("torch.is_autocast_enabled", enabled):
            yield
    finally:
        torch._C._dispatch_tls_set_dispatch_key_excluded(AUTOCAST, True)
        library._destroy()
        others._destroy()


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """As on a GPU: flash attention, or the memory-efficient one for float32 and masks."""
    aten = torch.ops.aten
    if query.device != META or query.ndim != 4:
        options = {"scale": scale, "enable_gqa": enable_gqa}
        return aten.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal, **options)
    if enable_gqa:
        key, value = (one.repeat_interleave(query.shape[1] // one.shape[1], 1) for one in (key, value))
    if mask is None and query.dtype != torch.float32:
        return aten._scaled_dot_product_flash_attention(query, key, value, dropout, is_causal, scale=scale)[0]
    if mask is not None:
        mask = mask.to(META, query.dtype).expand(*query.shape[:3], key.shape[2])
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, query.requires_grad, dropout, is_causal, scale=scale
    )[0]


def built(build: Callable[[Device], Traced], dtype: torch.dtype) -> Traced:
    """With weights on the meta device, after they were built on the CPU; TraceError if that is not possible."""
    try:  # fp16 needs a GPU; bf16 is as large
        with _as_on_gpu():
            traced = build(Device(torch.device("cpu"), torch.bfloat16 if dtype == torch.float16 else dtype))
    except (Exception, SystemExit) as error:
        raise TraceError(f"The model cannot be built: {first_line(error)}") from error
    moved: dict[nn.Parameter, nn.Parameter] = {}  # of weights that are tied, one
    for module in traced.model.modules():
        for name, one in module._parameters.items():
            if one is not None:
                module._parameters[name] = moved.setdefault(one, nn.Parameter(one.detach().to(META), one.requires_grad))
        for name, one in module._buffers.items():
            module._buffers[name] = None if one is None else one.to(META)
    for group in traced.optimizer.param_groups:
        group["params"] = [moved.get(one, one) for one in group["params"]]
    return traced


def estimate(build: Callable[[Device], Traced], settings: Any, batch_size: int, dtype: str = "auto") -> Needed:
    """The memory for `batch_size` samples per step; TraceError if it cannot be traced.

    `settings`: its dtype, clip, and microbatch count, if it has them. `dtype`: of autocast where the settings leave it
    open; auto: what the project's first target trains in.
    """
    if (chosen := getattr(settings, "dtype", "auto")) != "auto":
        dtype = chosen
    elif dtype == "auto":
        dtype = _first_target()
    traced = built(build, DTYPES[dtype])
    if recurrent := next((one for one in traced.model.modules() if isinstance(one, nn.RNNBase)), None):
        raise TraceError(f"Only cuDNN knows, on the GPU, how much memory {type(recurrent).__name__} keeps.")
    limits = {name: getattr(settings, name, None) for name in ("clip", "microbatch")}
    other = batch_size // 2 or 2
    try:
        less, parts = (peak(traced, DTYPES[dtype], size, **limits) for size in (other, batch_size))
    except (Exception, SystemExit) as error:
        raise TraceError(f"The step cannot be traced without data: {first_line(error)}") from error
    total = sum(parts.values())
    per_sample = round((total - sum(less.values())) / (batch_size - other))
    return Needed(batch_size, total, parts, per_sample, total - batch_size * per_sample, dtype)


def of_project(arguments: list[str]) -> tuple[Callable[[Device], Traced], Any]:
    """What builds the step of this project, and its settings from command-line arguments."""
    import tyro

    package = load().package
    if str(root() / "src") not in sys.path:
        sys.path.insert(0, str(root() / "src"))
    config, train = (importlib.import_module(f"{package}.{name}") for name in ("config", "train"))
    settings = tyro.cli(config.Settings, args=arguments)

    def build(device: Device) -> Traced:
        if hasattr(train, "make_trainer"):
            here = Start(device.device, device.dtype, torch.contiguous_format, 0, 1, 1, settings.output_dir, {})
            return train.make_trainer(settings, here).traced()
        model = importlib.import_module(f"{package}.model").build_model(settings).to(device.device)
        data = importlib.import_module(f"{package}.data").training_data(settings)
        return Traced(model, torch.optim.AdamW(model.parameters(), fused=True), data, train.compute_loss)

    return build, settings


def _first_target() -> str:
    with contextlib.suppress(StackError):
        return next((each.autocast for each in load().targets.values()), "fp32")
    return "fp32"


def main() -> int:
    """Print the estimate as JSON, or {"why"} with exit code 3 if the step cannot be traced."""
    about = "The memory that training needs, without a GPU. Accepts all options of the training script."
    parser = argparse.ArgumentParser("python -m gpukit.script.memory", description=about, allow_abbrev=False)
    parser.add_argument("--batch-size", type=int, help="samples per step (default: the project's)")
    parser.add_argument(
        "--autocast", default="auto", choices=sorted(DTYPES), help="the format that `--dtype auto` means"
    )
    given, rest = parser.parse_known_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    try:
        with mock.patch.object(socket, "getaddrinfo", _refuse), contextlib.redirect_stdout(sys.stderr):
            build, settings = of_project(rest)
            size = given.batch_size or settings.batch_size
            needed = estimate(build, settings, size, given.autocast)
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and isinstance(error.code, int | None):
            raise  # --help, or options that tyro refused
        print(json.dumps({"why": first_line(error)}))
        return 3
    print(json.dumps(dataclasses.asdict(needed)))
    return 0


def _refuse(*_: Any, **__: Any) -> Any:
    raise OSError("nothing is downloaded to compute memory: the model and the data must be in the cache")


if __name__ == "__main__":
    sys.exit(main())
