"""The project's imports, and the results of importing them in a separate process."""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path

from gpukit.verify.probes.machine import Machine
from gpukit.verify.probes.software import Software, found
from gpukit.verify.torch_process import TorchError, TorchProcess

LIMIT = 120
OFFLINE = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline"}  # an import must not use the network


@dataclass(frozen=True)
class OnGpu:
    """A package that is tested on the GPU. `imports_without_gpu`: it can be imported without one. `call`: a test."""

    call: str = ""
    imports_without_gpu: bool = False


_HEADS = "import torch; x = torch.randn(1, 128, 4, 64, dtype=torch.float16, device='cuda')"
ON_GPU = {  # by the name that is imported
    "bitsandbytes": OnGpu(
        "import torch; from bitsandbytes import functional as f; "
        "f.dequantize_4bit(*f.quantize_4bit(torch.ones(64, 64, dtype=torch.float16, device='cuda')))",
        imports_without_gpu=True,
    ),
    "flash_attn": OnGpu(f"{_HEADS}; from flash_attn import flash_attn_func as f; f(x, x, x, causal=True)"),
    "unsloth": OnGpu(),
    "xformers": OnGpu(f"{_HEADS}; from xformers.ops import memory_efficient_attention as f; f(x, x, x)"),
}
NOT_MODULES = {"tests", "test", "docs", "doc", "examples", "benchmarks", "scripts", "tools"}


@dataclass(frozen=True)
class Imported:
    """`place`: the file with the import, or pyproject.toml. `called`: it was imported, and failed on the GPU."""

    module: str
    statement: str = ""
    place: str = ""
    error: TorchError | None = None
    called: bool = False
    skipped: bool = False


class Imports(Machine, Software):
    _importer: TorchProcess | None = None
    _importing: Future[list[Imported]] | None = None
    _leaving = False

    @cached_property
    def _to_import(self) -> dict[str, list[tuple[str, str]]]:
        """Module -> statements and their places. Packages tested on the GPU come last: they change other packages."""
        statements: dict[str, list[tuple[str, str]]] = {}
        for each in self.imports:
            if not each.lazy or found(each.module):
                statements.setdefault(each.module, []).append((each.statement, each.place))
        needed = self.requirements.needed
        for name in sorted(self.requirements.direct & self._distributions.keys()):
            for module in modules(self._distributions[name]):
                statements.setdefault(module, [(f"import {module}", "pyproject.toml")])
        for module in ON_GPU:
            if module.replace("_", "-") in needed and found(module):
                statements.setdefault(module, [(f"import {module}", "pyproject.toml")])
        return dict(sorted(statements.items(), key=lambda item: item[0] in ON_GPU))

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
            package = ON_GPU.get(module)
            on_gpu = package is not None and bool(self.devices.found) and not self.exclusive
            if package is not None and not package.imports_without_gpu and not on_gpu:
                done.append(Imported(module, skipped=True))
                continue
            if self._importer is None:
                # If only one process can use the GPU, it is not this one.
                hidden = {"CUDA_VISIBLE_DEVICES": ""} if self.gpu_nodes and self.exclusive else {}
                self._importer = TorchProcess({**OFFLINE, **hidden})
            done.append(self._one(module, package.call if package is not None and on_gpu else ""))
        return done

    def _one(self, module: str, call: str) -> Imported:
        statements = self._to_import[module]
        statement, place = statements[0]
        try:
            answer = self._importer.call("imports", [text for text, _ in statements], call, limit=LIMIT)
        except TorchError as error:
            return Imported(module, statement, place, error)
        number = answer.get("failed")
        if number is None:
            return Imported(module, statement, place)
        called = number == len(statements)
        if not called:
            statement, place = statements[number]
        return Imported(module, statement, place, TorchError(answer["kind"], answer["text"], answer["log"]), called)


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
