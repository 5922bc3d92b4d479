"""The probes of verify."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from gpukit.project.stack import Stack
from gpukit.verify.probes.folders import Folders
from gpukit.verify.probes.imported import Imports
from gpukit.verify.probes.seen import Result
from gpukit.verify.probes.torch_answers import TorchAnswers
from gpukit.verify.torch_process import TorchProcess


class Container(TorchAnswers, Folders, Imports):
    """The container (or other environment) in which verify runs."""

    def __init__(self, stack: Stack, environment: Mapping[str, str] = os.environ) -> None:
        self._stack = stack
        self.environment = environment
        self.stress = False
        self._torch = TorchProcess()
        self._second: TorchProcess | None = None
        self._threads = ThreadPoolExecutor(3)  # nvidia-smi, compiling, and importing
        self._compiling: Future[Result] | None = None
        self._compile_early = False

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
        self.stress, checks = stress, list(checks)
        self._compile_early = "compile" in checks
        if self.gpu_nodes:
            self.query_smi()
        elif self._compile_early:
            self._compile("cpu")
        if "imports" in checks:
            self.start_imports()
