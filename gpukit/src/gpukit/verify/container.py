"""The container: the probes, and the answers of the processes in which torch and the project's imports run."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from gpukit.errors.known import match_signs
from gpukit.host import smi
from gpukit.image import guard
from gpukit.project.location import find_root
from gpukit.project.stack import Stack
from gpukit.verify.probes import Device, Devices, Imported, Outcome, Probes, Torch, found
from gpukit.verify.torch_process import TorchError, TorchProcess

IMPORT_LIMIT = 120  # seconds
DEVICE_LIMIT = 60
COMPILE_LIMIT = 180
LOAD_LIMIT = 120
PROCESSES_LIMIT = 90
OFFLINE = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline"}  # an import must not use the network

_HEADS = "import torch; x = torch.randn(1, 128, 4, 64, dtype=torch.float16, device='cuda')"
ON_GPU = {  # packages that are tested on the GPU, by the name that is imported, and the test
    "bitsandbytes": (
        "import torch; from bitsandbytes import functional as f; "
        "f.dequantize_4bit(*f.quantize_4bit(torch.ones(64, 64, dtype=torch.float16, device='cuda')))"
    ),
    "flash_attn": f"{_HEADS}; from flash_attn import flash_attn_func as f; f(x, x, x, causal=True)",
    "unsloth": "",
    "xformers": f"{_HEADS}; from xformers.ops import memory_efficient_attention as f; f(x, x, x)",
}
NEED_GPU = ON_GPU.keys() - {"bitsandbytes"}  # cannot be imported without one
NOT_MODULES = {"tests", "test", "docs", "doc", "examples", "benchmarks", "scripts", "tools"}


def _asked(what: str, arguments: Callable[[Container], list[Any]], limit: float) -> cached_property[Outcome]:
    """The worker's answer to one question, of which the first argument is the device."""
    return cached_property(lambda it: it._ask(it._torch, what, *arguments(it), limit=limit))


class Container(Probes):
    """The container (or other environment) in which verify runs."""

    def __init__(self, stack: Stack, environment: Mapping[str, str] = os.environ) -> None:
        self._stack = stack
        self.environment = environment
        self.stress = False
        self._torch = TorchProcess()
        self._second: TorchProcess | None = None
        self._threads = ThreadPoolExecutor(3)  # nvidia-smi, compiling, and importing
        self._compiling: Future[Outcome] | None = None
        self._compile_early = False
        self._importer: TorchProcess | None = None
        self._importing: Future[list[Imported]] | None = None
        self._leaving = False

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        self._torch.end()
        if self._second is not None:
            self._second.end()
        self._leaving = True
        if self._importer is not None:
            self._importer.end()
        self._threads.shutdown()

    def prepare(self, checks: Iterable[str], stress: bool = False) -> None:
        """Start the slow probes in the background: imports, compiling on the CPU, and nvidia-smi if there is a GPU."""
        self.stress = stress
        checks = list(checks)
        self._compile_early = "compile" in checks
        if self.gpu_nodes:
            self._smi_query = self._threads.submit(smi.look)  # any process that it lists now is not ours
        elif self._compile_early:
            self._compile("cpu")
        if "imports" in checks:
            self.start_imports()

    @cached_property
    def torch(self) -> Torch:
        try:
            answer = self._torch.call("facts", limit=IMPORT_LIMIT)
        except TorchError as error:
            return Torch(error=error)
        index = "package index" if guard.TORCH_INDEX.is_file() else ""
        return Torch(answer["version"], answer["cuda"], index=index)

    @cached_property
    def devices(self) -> Devices:
        try:
            answer = self._torch.call("devices", limit=DEVICE_LIMIT)
        except TorchError as error:
            return Devices(message=str(error))
        return Devices(
            tuple(Device(**device) for device in answer["devices"]), tuple(answer["arch_list"]), answer["message"]
        )

    @cached_property
    def tensors(self) -> tuple[Outcome, ...]:
        names = self._device_names()
        results = tuple(self._ask(self._torch, "tensor", name, limit=DEVICE_LIMIT) for name in names)
        if self._compile_early and not self.exclusive and all(result.answer.get("equal") for result in results):
            self._compile(names[0])
        return results

    @cached_property
    def compiled(self) -> Outcome:
        return self._compile(self._device_names()[0]).result()

    def _compile(self, device: str) -> Future[Outcome]:
        if self._compiling is None:
            self._compiling = self._threads.submit(self._ask, self._other, "compile", device, limit=COMPILE_LIMIT)
        return self._compiling

    @property
    def _other(self) -> TorchProcess:
        """A second process; if only one process can use the GPU, the first one restarted."""
        if self.gpu_nodes and self.exclusive:
            self._torch.close()
            return self._torch
        if self._second is None:
            self._second = TorchProcess()
        return self._second

    def _device_names(self) -> list[str]:
        return [f"cuda:{index}" for index in range(len(self.devices.found))] or ["cpu"]

    def _ask(self, process: TorchProcess, what: str, device: str, *arguments: Any, limit: float) -> Outcome:
        """`device` is the first argument, if there is one."""
        try:
            answer = process.call(what, *([device] if device else []), *arguments, limit=limit)
            return Outcome(device, {"device": device, **answer})
        except TorchError as error:
            _restart_after_cuda_error(process, error)
            return Outcome(device, error=error)

    def _on_each(self, what: str, *arguments: Any) -> tuple[Outcome, ...]:
        """One GPU after another, up to the first that fails: the next would only wait for the same error."""
        outcomes: list[Outcome] = []
        for index in range(len(self.devices.found)):
            name = f"cuda:{index}"
            outcomes.append(self._ask(self._torch, what, name, *arguments, limit=LOAD_LIMIT))
            if outcomes[-1].error:
                break
        return tuple(outcomes)

    def _half(self) -> str:
        """The half precision that the first GPU supports in hardware."""
        return "bf16" if int(self.devices.found[0].capability.partition(".")[0]) >= 8 else "fp16"

    @cached_property
    def matmuls(self) -> Outcome:
        first = self.devices.found[0]
        outcome = self._ask(self._torch, "matmul", "cuda:0", first.capability, limit=DEVICE_LIMIT)
        for result in outcome.answer.get("results", ()):
            if result.get("message"):
                _restart_after_cuda_error(self._torch, TorchError("", result["message"]))
        return outcome

    convolution = _asked("convolution", lambda it: ["cuda:0"], DEVICE_LIMIT)
    attention = _asked("attention", lambda it: ["cuda:0", it._half()], DEVICE_LIMIT)
    peers = _asked("peers", lambda it: ["", len(it.devices.found)], PROCESSES_LIMIT)
    loader = _asked("loader", lambda it: ["", 2, bool(it.devices.found)], PROCESSES_LIMIT)
    memory_patterns = cached_property(lambda it: it._on_each("pattern", it.stress and not it.in_use_by))
    transfers = cached_property(lambda it: it._on_each("transfer"))
    gemms = cached_property(lambda it: it._on_each("gemm", it._half()))

    @cached_property
    def collective(self) -> Outcome:
        process = self._other if len(self.devices.found) > 1 else self._torch
        return self._ask(process, "collective", "", len(self.devices.found), limit=PROCESSES_LIMIT)

    @cached_property
    def training(self) -> tuple[Outcome, ...]:
        """Ten steps, then the last five again in another process, from the checkpoint."""
        device = self._device_names()[0]
        try:
            with tempfile.TemporaryDirectory(prefix=".gpukit-", dir=find_root()) as folder:
                file = str(Path(folder, "checkpoint.pt"))
                whole = self._ask(self._torch, "train", device, file, False, limit=DEVICE_LIMIT)
                if whole.error:
                    return (whole,)
                return whole, self._ask(self._other, "train", device, file, True, limit=DEVICE_LIMIT)
        except OSError as error:
            return (Outcome(device, error=TorchError("OSError", str(error))),)

    @cached_property
    def _to_import(self) -> list[str]:
        """The modules of the dependencies. Those tested on the GPU come last: they change other packages."""
        direct = sorted(self.requirements.direct & self._distributions.keys())
        names = [module for name in direct for module in modules(self._distributions[name])]
        names += [name for name in ON_GPU if name.replace("_", "-") in self.requirements.needed and found(name)]
        return sorted(dict.fromkeys(names), key=lambda module: module in ON_GPU)

    def start_imports(self) -> None:
        """Import the packages that need no GPU, in a second thread."""
        self._importing = self._threads.submit(self._import, [each for each in self._to_import if each not in ON_GPU])

    @cached_property
    def imported(self) -> list[Imported]:
        if self._importing is None:
            self.start_imports()
        done = self._importing.result()
        done += self._import([each for each in self._to_import if each in ON_GPU])
        if self._importer is not None:
            self._importer.end()
        return done

    def _import(self, names: Iterable[str]) -> list[Imported]:
        done = []
        for module in names:
            if self._leaving:
                break
            on_gpu = module in ON_GPU and bool(self.devices.found) and not self.exclusive
            if module in NEED_GPU and not on_gpu:
                done.append(Imported(module, skipped=True))
                continue
            if self._importer is None:
                # If only one process can use the GPU, it is not this one.
                hidden = {"CUDA_VISIBLE_DEVICES": ""} if self.gpu_nodes and self.exclusive else {}
                self._importer = TorchProcess({**OFFLINE, **hidden})
            done.append(self._one(module, ON_GPU[module] if on_gpu else ""))
        return done

    def _one(self, module: str, call: str) -> Imported:
        try:
            answer = self._importer.call("imports", module, call, limit=IMPORT_LIMIT)
        except TorchError as error:
            return Imported(module, error)
        if not answer:
            return Imported(module)
        error = TorchError(answer["kind"], answer["text"], answer["log"])
        return Imported(module, error, called=answer["failed"] == call)


def _restart_after_cuda_error(process: TorchProcess, error: TorchError) -> None:
    """After a CUDA error, every later call in that process fails too: the next request gets a new process."""
    if match_signs(str(error), "cuda-call-failed", "gpu-memory-full", "cudnn-other-status", "cublas-other-status"):
        process.close()


def modules(distribution: metadata.Distribution) -> list[str]:
    """The names to import that a distribution brings: the one with its own name, if there is one."""
    top = (distribution.read_text("top_level.txt") or "").split()
    top = top or sorted({_first(str(file)) for file in distribution.files or ()} - {""})
    own = re.sub(r"[-_.]+", "_", distribution.metadata["Name"]).lower()
    names = [name for name in top if name.lower() == own]
    return names or [name for name in top if name[:1] != "_" and name not in NOT_MODULES]


def _first(file: str) -> str:
    """The module of a file in site-packages; empty for what is not imported, such as scripts and metadata."""
    parts = Path(file).parts
    if len(parts) == 1:
        return parts[0].partition(".")[0] if re.search(r"\.(py|so)$", parts[0]) else ""
    whole = len(parts) == 2 and parts[1] == "__init__.py"
    return parts[0] if whole and parts[0].isidentifier() else ""
