"""The traced memory of a training step, compared with a real step on the CPU: python benchmarks/memory.py

The worst case is a model whose layers keep what the trace cannot see: an LSTM, which is refused. Then seven other
models (memory_tasks.py), with SGD and AdamW, with and without checkpointing. --rounds is the number of
batch sizes. Requires torch.
"""

from __future__ import annotations

import gc
import warnings

from harness import Benchmark, say
from memory_tasks import MODELS, Settings, measured, traced

SIZES = (2, 5, 16)
WAYS = [("SGD", False), ("SGD", True), ("AdamW", False), ("AdamW", True)]


def main() -> None:
    with Benchmark("The traced memory of a training step", __doc__, rounds=3, packages=("torch",)) as bench:
        warnings.simplefilter("ignore")
        errors = []
        sizes = SIZES[: bench.rounds]
        bench.columns = ["model", "SGD", "SGD, checkpointing", "AdamW", "AdamW, checkpointing"]
        for model in sorted(MODELS, key=lambda name: name != "LSTM"):
            cells = []
            for optimizer, checkpointing in WAYS:
                found = []
                for size in sizes:
                    settings = Settings(model, optimizer, checkpointing)
                    needed = traced(settings, size)
                    real = measured(settings, size)
                    gc.collect()
                    say(f"{model:20}{optimizer:8}{size:4}{real / 2**20:10.2f} MiB")
                    if needed:
                        errors.append(needed.bytes / real - 1)
                        found.append(f"{errors[-1]:+.2%}")
                    else:
                        found.append("cannot be traced")
                cells.append(" ".join(dict.fromkeys(found)))
            bench.row(model, *cells)
        within = sum(abs(error) <= 0.02 for error in errors)
        bench.result("largest difference from a real step", 100 * max(map(abs, errors)), "%", at_most=2)
        bench.result("cases within 2 %", 100 * within / len(errors), "%", at_least=100, digits=1)
        bench.result("cases that can be traced", len(errors))
        bench.notes = [
            f"Each cell: the difference for {', '.join(map(str, sizes))} samples in float32. The real step runs on the "
            "CPU, and PyTorch's MemTracker counts its tensors: workspaces within kernels count in neither. Not "
            "measured here: a GPU.",
            "To compare the same quantities, gpukit traces here with the CPU's attention kernel, and without rounding "
            "tensors up to the 512 bytes of the CUDA allocator.",
        ]


if __name__ == "__main__":
    main()
