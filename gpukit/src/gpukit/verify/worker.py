"""The process in which torch runs, so that a crash, a hang, or a GPU error ends this process and not verify.

It reads one request per line from standard input and answers each with one line of JSON. torch_process.py starts it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from gpukit.verify import cases, exercises, processes, stress, tracking


def facts() -> dict[str, Any]:
    import torch

    return {"version": str(torch.__version__), "cuda": torch.version.cuda, "file": torch.__file__}


def devices() -> dict[str, Any]:
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
        message = ""
        if not available:
            try:
                torch.cuda.init()
            except Exception as error:  # any exception: its text is reported
                message = str(error)
    text = " ".join([message, *(str(warning.message) for warning in caught)]).strip()
    cards = []
    for index in range(torch.cuda.device_count() if available else 0):
        properties = torch.cuda.get_device_properties(index)
        cards.append(
            {
                "name": properties.name,
                "capability": f"{properties.major}.{properties.minor}",
                "shared": bool(getattr(properties, "is_integrated", False)),
                "fraction": stress.fraction(index),
            }
        )
    return {"devices": cards, "message": text, "arch_list": torch.cuda.get_arch_list() if available else []}


def tensor(device: str) -> dict[str, Any]:
    """Products of small integers are exact in every precision that a float32 product can use, including TF32."""
    import torch

    generator = torch.Generator().manual_seed(20)
    left, right = (torch.randint(-4, 5, (512, 512), generator=generator) for _ in range(2))
    started = time.monotonic()
    product = left.float().to(device) @ right.float().to(device)
    result = product.cpu()
    return {
        "device": str(product.device),
        "equal": bool(torch.equal(result.long(), left @ right)),
        "seconds": time.monotonic() - started,
    }


def compile(device: str) -> dict[str, Any]:
    """With an empty cache: a cached result would hide a missing compiler."""
    with tempfile.TemporaryDirectory(prefix="gpukit-compile-") as cache:
        os.environ.update(TORCHINDUCTOR_CACHE_DIR=cache, TRITON_CACHE_DIR=f"{cache}/triton")
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # one kernel needs no pool of compilers
        # Saves six compilations that only detect the CPU's vector width.
        os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")
        import torch
        from torch._inductor import config

        if hasattr(config, "cpp_cache_precompile_headers"):
            config.cpp_cache_precompile_headers = False  # only pays off from the second kernel on

        def wave(x: Any) -> Any:
            return torch.sin(x) * 2 + torch.cos(x)

        # Few enough for one thread: of two, the first sine on a CPU may be wrong (pytorch/pytorch#188792).
        x = torch.linspace(-3, 3, 1024, device=device)
        started = time.monotonic()
        result = torch.compile(wave, fullgraph=True)(x)
        seconds = time.monotonic() - started
        compiled = any(files for _, _, files in os.walk(cache))
        equal = bool(torch.allclose(result, wave(x), rtol=1e-5, atol=1e-5))
    return {"device": str(x.device), "equal": equal, "compiled": compiled, "seconds": seconds}


def imports(statements: list[str], call: str) -> dict[str, Any]:
    """Run import statements, then `call`: the number of the one that fails, and its error. In an empty folder, since
    some packages write into the current one."""
    with tempfile.TemporaryDirectory(prefix="gpukit-imports-") as folder:
        before = Path.cwd()
        os.chdir(folder)
        try:
            for number, statement in enumerate([*statements, *([call] if call else [])]):
                try:
                    exec(statement, {})
                except (Exception, SystemExit) as error:
                    log = traceback.format_exc()
                    return {"failed": number, "kind": type(error).__name__, "text": str(error), "log": log}
        finally:
            os.chdir(before)
    return {}


REQUESTS = {
    "imports": imports,
    "facts": facts,
    "devices": devices,
    "tensor": tensor,
    "compile": compile,
    "matmul": exercises.matmul,
    "convolution": exercises.convolution,
    "attention": exercises.attention,
    "amp": exercises.amp,
    "train": exercises.train,
    "replay": cases.replay,
    "pinned": cases.pinned,
    "scaler": cases.scaler,
    "pattern": stress.pattern,
    "oom": stress.out_of_memory,
    "transfer": stress.transfer,
    "gemm": stress.gemm,
    "peers": stress.peers,
    "dry-run": tracking.dry_run,
    "loader": processes.loader,
    "collective": processes.collective,
}


def _before(error: BaseException) -> str:
    """The exceptions before it: only there does a DataLoader name the signal that ended its worker."""
    lines = []
    earlier = error.__cause__ or error.__context__
    while earlier is not None and len(lines) < 8:
        lines.append(f"{type(earlier).__name__}: {earlier}\n")
        earlier = earlier.__cause__ or earlier.__context__
    return "".join(lines)


def main() -> None:
    # Libraries print to standard output, so the answers use a copy of it and the rest goes to standard error.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"answer": REQUESTS[request["do"]](*request["with"])}
        except Exception as error:
            answer = {"error": type(error).__name__, "text": str(error), "before": _before(error)}
        print(json.dumps(answer), file=answers, flush=True)
