"""The batch finder on memory models, compared with accelerate and Lightning: python benchmarks/finder_models.py

The models are in benchmarks/memory_kinds.py: 19 kinds, the worst of which have noise, and fail at random. Each finder
runs its own code. --rounds is the number of models of each kind. Requires benchmarks/requirements.txt.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import accelerate  # noqa: F401
import lightning.pytorch  # noqa: F401
from harness import Benchmark, say
from memory_kinds import HUGE, Answer, Simulated, models, ours, race

SEEDS = 3  # runs on each model with noise


def of_accelerate(start: int) -> Callable[[Simulated], int]:
    def find(device: Simulated) -> int:
        from accelerate.utils import find_executable_batch_size

        def train(batch_size: int) -> int:
            device.run(batch_size)
            return batch_size

        return find_executable_batch_size(train, starting_batch_size=start)()

    return find


def of_lightning(mode: str) -> Callable[[Simulated], int]:
    def find(device: Simulated) -> int:
        import torch
        from lightning.pytorch import LightningModule, Trainer
        from lightning.pytorch.tuner import Tuner
        from torch.utils.data import DataLoader, Dataset

        class Numbers(Dataset):
            def __len__(self) -> int:
                return HUGE

            def __getitems__(self, indices: list[int]) -> list[int]:
                return indices[:1]

        class Module(LightningModule):
            batch_size = 2
            ran = 0

            def __init__(self) -> None:
                super().__init__()
                self.one = torch.nn.Parameter(torch.zeros(()))

            def train_dataloader(self) -> DataLoader:
                self.ran = 0
                return DataLoader(Numbers(), batch_size=self.batch_size, collate_fn=torch.tensor)

            def training_step(self, batch: Any, index: int) -> Any:
                if index == 0:  # all steps of a trial at once, so that it counts as one
                    device.run(self.batch_size)
                return self.one * 0

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), 0.1)

        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(
                default_root_dir=folder,
                accelerator="cpu",
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                max_steps=3,
            )
            return Tuner(trainer).scale_batch_size(Module(), mode=mode)

    return find


FINDERS: dict[str, Callable[[Simulated], int]] = {
    "gpukit": ours,
    "accelerate from 128": of_accelerate(128),
    "accelerate from 8192": of_accelerate(8192),
    "Lightning, power": of_lightning("power"),
    "Lightning, binsearch": of_lightning("binsearch"),
}


def cell(answers: list[Answer]) -> str:
    above = sum(each.share > 1 for each in answers)
    share, trials = (statistics.mean(row) for row in zip(*((min(each.share, 1), each.trials) for each in answers)))
    return f"{share:.1%}, {trials:.1f}" + (f", **{above}** above" if above else "")


def main() -> None:
    packages = ("accelerate", "lightning", "torch", "numpy")
    with Benchmark("The batch finder on memory models", __doc__, rounds=10, packages=packages) as bench:
        for name in ("lightning.pytorch", "lightning.pytorch.utilities.rank_zero", "lightning.fabric"):
            logging.getLogger(name).setLevel(logging.ERROR)
        gc.freeze()  # both collect garbage around each trial, which would include all of PyTorch's objects
        made = models(bench.rounds, seed=0)
        answers: dict[str, dict[str, list[Answer]]] = {name: {} for name in FINDERS}
        with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            for number, model in enumerate(made, 1):
                for name, find in FINDERS.items():
                    answers[name].setdefault(model.kind, []).extend(race(model, find, SEEDS))
                if number % 10 == 0:
                    say(f"{number} of {len(made)} models")
        every = {name: [answer for some in found.values() for answer in some] for name, found in answers.items()}
        bench.columns = ["memory use of a batch", *FINDERS]
        for kind in answers["gpukit"]:
            bench.row(kind, *(cell(answers[name][kind]) for name in FINDERS))
        bench.row("**all**", *(cell(every[name]) for name in FINDERS))

        found = every["gpukit"]
        shares = [each.share for each in found]
        bench.result("mean share of the true maximum", 100 * statistics.mean(shares), "%", at_least=85)
        bench.result("answers above the true maximum", sum(share > 1 for share in shares), at_most=0)
        enough = statistics.mean(share >= 0.85 for share in shares)
        bench.result("answers of at least 85 % of it", 100 * enough, "%", digits=1)
        most = max(each.trials for each in found)
        bench.result("most sizes, each in a process of its own", most, at_most=9)
        bench.result("mean number of sizes", statistics.mean(each.trials for each in found), digits=1)
        bench.notes = [
            "Each cell: mean share of the true maximum, mean number of sizes that were tried, and how many answers are "
            f"above it, if any (these count as 100 %). {len(made)} models; those with noise are run {SEEDS} times: "
            f"{len(found)} answers of each finder.",
            "The true maximum is the largest size that fits even with the highest possible noise. Compared with the "
            "largest size that fits without noise, gpukit's answers reach "
            f"{statistics.mean(each.mild for each in found):.1%} on average, and "
            f"{sum(each.mild > 1 for each in found)} of them are above it.",
            "A finder that ends with an error counts as 0 %, as the libraries do if a kernel has a maximum size. All "
            "finders use their defaults: Lightning tries at most 8192; accelerate starts at the given size.",
        ]


if __name__ == "__main__":
    main()
