"""The answers of torch, which runs in a separate process."""

from __future__ import annotations

import importlib.util
import re
import tempfile
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from typing import Any

from gpukit.errors.known import match_signs
from gpukit.image import guard
from gpukit.project.location import find_root
from gpukit.verify.probes.machine import Machine
from gpukit.verify.probes.seen import Device, Devices, Outcome, Result, Torch
from gpukit.verify.probes.software import run
from gpukit.verify.torch_process import TorchError, TorchProcess
from gpukit.verify.tracking import MODULES

IMPORT_LIMIT, DEVICE_LIMIT, COMPILE_LIMIT = 120, 60, 180
LOAD_LIMIT, PROCESSES_LIMIT = 120, 90


class TorchAnswers(Machine):
    stress: bool
    _torch: TorchProcess
    _second: TorchProcess | None
    _compile_early: bool
    _compiling: Future[Result] | None

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
    def tensors(self) -> tuple[Result, ...]:
        results = tuple(self._compute(self._torch, "tensor", name, DEVICE_LIMIT) for name in self._device_names())
        if self._compile_early and not self.exclusive and all(result.equal for result in results):
            self._compile(self._device_names()[0])
        return results

    @cached_property
    def compiled(self) -> Result:
        return self._compile(self._device_names()[0]).result()

    def _compile(self, device: str) -> Future[Result]:
        if self._compiling is None:
            self._compiling = self._threads.submit(self._compute, self._other, "compile", device, COMPILE_LIMIT)
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

    def _compute(self, process: TorchProcess, what: str, device: str, limit: float) -> Result:
        try:
            return Result(**process.call(what, device, limit=limit))
        except TorchError as error:
            _restart_after_cuda_error(process, error)
            return Result(device=device, error=error)

    def _ask(self, process: TorchProcess, what: str, device: str, *arguments: Any, limit: float) -> Outcome:
        try:
            return Outcome(device, process.call(what, *arguments, limit=limit))
        except TorchError as error:
            _restart_after_cuda_error(process, error)
            return Outcome(device, error=error)

    def _on_each(self, what: str, *arguments: Any, limit: float = LOAD_LIMIT) -> tuple[Outcome, ...]:
        """One GPU after another, up to the first that fails: the next would only wait for the same error."""
        outcomes: list[Outcome] = []
        for index in range(len(self.devices.found)):
            name = f"cuda:{index}"
            outcomes.append(self._ask(self._torch, what, name, name, *arguments, limit=limit))
            if outcomes[-1].error:
                break
        return tuple(outcomes)

    def _half(self) -> str:
        """The half precision that the first GPU supports in hardware."""
        return "bf16" if int(self.devices.found[0].capability.partition(".")[0]) >= 8 else "fp16"

    @cached_property
    def matmuls(self) -> Outcome:
        first = self.devices.found[0]
        outcome = self._ask(self._torch, "matmul", "cuda:0", "cuda:0", first.capability, limit=DEVICE_LIMIT)
        for result in outcome.answer.get("results", ()):
            if result.get("message"):
                _restart_after_cuda_error(self._torch, TorchError("", result["message"]))
        return outcome

    @cached_property
    def convolution(self) -> Outcome:
        return self._ask(self._torch, "convolution", "cuda:0", "cuda:0", limit=DEVICE_LIMIT)

    @cached_property
    def attention(self) -> Outcome:
        return self._ask(self._torch, "attention", "cuda:0", "cuda:0", self._half(), limit=DEVICE_LIMIT)

    @cached_property
    def amp(self) -> Outcome:
        return self._ask(self._torch, "amp", "cuda:0", "cuda:0", limit=DEVICE_LIMIT)

    @cached_property
    def memory_patterns(self) -> tuple[Outcome, ...]:
        return self._on_each("pattern", self.stress and not self.in_use_by)

    @cached_property
    def out_of_memory(self) -> Outcome:
        return self._ask(self._torch, "oom", "cuda:0", "cuda:0", limit=DEVICE_LIMIT)

    @cached_property
    def transfers(self) -> tuple[Outcome, ...]:
        return self._on_each("transfer")

    @cached_property
    def gemms(self) -> tuple[Outcome, ...]:
        return self._on_each("gemm", self._half())

    @cached_property
    def collective(self) -> Outcome:
        process = self._other if len(self.devices.found) > 1 else self._torch
        return self._ask(process, "collective", "", len(self.devices.found), limit=PROCESSES_LIMIT)

    @cached_property
    def peers(self) -> Outcome:
        return self._ask(self._torch, "peers", "", len(self.devices.found), limit=PROCESSES_LIMIT)

    @cached_property
    def loader(self) -> Outcome:
        return self._ask(self._torch, "loader", "", 2, bool(self.devices.found), limit=PROCESSES_LIMIT)

    @cached_property
    def training(self) -> tuple[Outcome, Outcome | None]:
        """Ten steps, then the last five again in another process, from the checkpoint."""
        device = self._device_names()[0]
        try:
            with tempfile.TemporaryDirectory(prefix=".gpukit-", dir=find_root()) as folder:
                file = str(Path(folder, "checkpoint.pt"))
                whole = self._ask(self._torch, "train", device, device, file, False, limit=DEVICE_LIMIT)
                if whole.error:
                    return whole, None
                return whole, self._ask(self._other, "train", device, device, file, True, limit=DEVICE_LIMIT)
        except OSError as error:
            return Outcome(device, error=TorchError("OSError", str(error))), None

    @cached_property
    def library(self) -> tuple[Outcome, ...]:
        """gpukit.script's replay, loader, and scaler on the first GPU, up to the first that fails."""
        outcomes: list[Outcome] = []
        for what in ("replay", "pinned", "scaler"):
            outcomes.append(self._ask(self._torch, what, "cuda:0", "cuda:0", limit=LOAD_LIMIT))
            if outcomes[-1].error:
                break
        return tuple(outcomes)

    @cached_property
    def trackers(self) -> tuple[Outcome, ...]:
        there = [module for module in MODULES if importlib.util.find_spec(module)]
        return tuple(self._ask(self._torch, "dry-run", name, name, limit=DEVICE_LIMIT) for name in there)

    @cached_property
    def assembler(self) -> tuple[str, tuple[str, ...]] | None:
        """The ptxas that Triton uses for the first GPU, and the architectures that it supports; None without one."""
        blackwell = bool(self.devices.found) and int(self.devices.found[0].capability.partition(".")[0]) >= 10
        names = (["ptxas-blackwell"] if blackwell else []) + ["ptxas"]
        spec = importlib.util.find_spec("triton")
        folders = list(spec.submodule_search_locations or ()) if spec else []
        chosen = [self.environment.get(f"TRITON_{name.upper().replace('-', '_')}_PATH") for name in names]
        inside = [str(Path(folder, "backends/nvidia/bin", name)) for name in names for folder in folders]
        for path in filter(None, [*chosen, *inside]):
            answer = run(path, "--help")
            if answer is not None:
                return path, tuple(dict.fromkeys(re.findall(r"\bsm_\d+[af]?\b", answer)))
        return None


def _restart_after_cuda_error(process: TorchProcess, error: TorchError) -> None:
    """After a CUDA error, every later call in that process fails too: the next request gets a new process."""
    if match_signs(str(error), "cuda-call-failed", "gpu-memory-full", "cudnn-other-status", "cublas-other-status"):
        process.close()
