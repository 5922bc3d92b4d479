"""CPU time per step of a training loop, compared with a hand-written loop and other engines: python benchmarks/step.py

- --what loops: with the loader. The worst case is first: small images in small batches without workers, cropped and
  flipped by `random`, with noise from torch, so that exactrun seeds two generators.
- --what alone: the batches come from the same DataLoader for every engine.
- --what seeding: the cost of seeding a sample that does nothing else, first one that draws from three generators.

Every engine trains the same model on the same data with fused AdamW and gradient clipping, a few steps at a time, in
turn, in one thread. The CPU time of workers counts: before and after a turn, they have loaded all the batches that they
may load ahead. Requires benchmarks/requirements.txt.
"""

from __future__ import annotations

import gc
import io
import logging
import os
import random
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy
import torch
from harness import Benchmark, ratio
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}

import lightning
import transformers
from accelerate import Accelerator
from lightning.fabric import Fabric

from exactrun.data import Keyed
from exactrun.run import Run
from exactrun.seeds import mix
from gpukit.script.batches import Order
from tests.train.memory_tasks import Basic

CLIP = 1.0  # maximum norm of the gradient
BATCHES = 20_000  # of each data set, so that no loop needs a second epoch
KEPT = 512  # samples that the data sets contain; further ones are the same again
SETTLE = 3  # first steps of a run, which are not measured


# Data


class Samples(Dataset):
    """Rows of numbers, and what other data sets are made of."""

    def __init__(self, batch: int, width: int = 64) -> None:
        made = torch.Generator().manual_seed(0)
        self.length = batch * BATCHES
        self.images = torch.randint(0, 256, (KEPT, 3, 32, 32), dtype=torch.uint8, generator=made)
        self.rows = torch.randn(KEPT, width, generator=made)
        self.labels = torch.randint(0, 10, (KEPT,), generator=made).tolist()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.rows[index % KEPT], self.labels[index % KEPT]


class Images(Samples):
    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index % KEPT].float(), self.labels[index % KEPT]


Drawn = tuple[int, int, bool, Any]  # left, top, flip, and noise


def random_and_torch() -> Drawn:
    return random.randint(0, 8), random.randint(0, 8), random.random() < 0.5, torch.randn(3, 32, 32)


def only_torch() -> Drawn:
    left, top = torch.randint(0, 9, (2,)).tolist()
    return left, top, torch.rand(()).item() < 0.5, torch.randn(3, 32, 32)


def only_random() -> Drawn:
    return random.randint(0, 8), random.randint(0, 8), random.random() < 0.5, random.gauss(0, 1)


def by_numpy(source: Any) -> Drawn:
    left, top = (int(9 * one) for one in source.random(2))
    noise = torch.from_numpy(source.standard_normal((3, 32, 32))).float()
    return left, top, source.random() < 0.5, noise


class Augmented(Samples):
    """Images of 32 x 32 pixels with 4 of padding, a random crop, a random flip, and noise."""

    def __init__(self, batch: int, draw: Callable[..., Drawn], *source: Any) -> None:
        super().__init__(batch)
        self.draw, self.source = draw, source

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        left, top, flip, noise = self.draw(*self.source)
        image = functional.pad(self.images[index % KEPT].float().div_(255), (4, 4, 4, 4))
        image = image[:, top : top + 32, left : left + 32]
        if flip:
            image = image.flip(2)
        return image + 0.05 * noise, self.labels[index % KEPT]


class Jpeg(Samples):
    """JPEG files of 256 x 256 pixels in memory, decoded and reduced to 32 x 32 pixels, with a random flip."""

    def __init__(self, batch: int) -> None:
        super().__init__(batch)
        self.files = []
        for image in self.images[:32]:
            file = io.BytesIO()
            large = Image.fromarray(image.permute(1, 2, 0).numpy()).resize((256, 256), Image.Resampling.BICUBIC)
            large.save(file, "JPEG")
            self.files.append(file.getvalue())

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = Image.open(io.BytesIO(self.files[index % 32])).convert("RGB").resize((32, 32))
        pixels = torch.from_numpy(numpy.array(image)).permute(2, 0, 1).float().div_(255)
        return pixels.flip(2) if torch.rand(()).item() < 0.5 else pixels, self.labels[index % KEPT]


# Models


def convolutions() -> nn.Module:
    layers: list[nn.Module] = []
    for wide, out in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(wide, out, 3, 2, 1), nn.BatchNorm2d(out), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def perceptron(inputs: int = 64, width: int = 256) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def resnet() -> nn.Module:
    """ResNet-18 for images of 32 x 32 pixels, with half the channels."""
    layers, width = [nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()], 32
    for out, stride in ((32, 1), (64, 2), (128, 2), (256, 2)):
        layers += [Basic(width, out, stride), Basic(out, out, 1)]
        width = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


@dataclass
class Kind:
    """Data of batches of a size, a model, the steps in a turn, and the largest ratio to the hand-written loop.

    `alone`: only the step is compared, so every engine gets its batches from the same DataLoader. Then `microseconds`
    can be the goal, and the engines that only offer a complete loop run for `alone` steps.
    """

    make: Callable[[int], Dataset]
    batch: int
    build: Callable[[], nn.Module]
    turn: int
    goal: float | None
    alone: int = 0
    microseconds: float | None = None

    def start(self) -> None:
        torch.manual_seed(0)
        self.model, self.dataset = self.build(), self.make(self.batch)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)

    def loader(self, workers: int = 0) -> DataLoader:
        return DataLoader(self.dataset, self.batch, shuffle=not self.alone, num_workers=workers)


def augmented(batch: int, *draw: Any) -> Kind:
    return Kind(lambda batch: Augmented(batch, *draw), batch, convolutions, max(1, 64 // batch), 1.05)


KINDS = {
    "batch 32, augmentation with `random` and torch": augmented(32, random_and_torch),
    "batch 256, augmentation with `random`": augmented(256, only_random),
    "batch 256, augmentation with torch": augmented(256, only_torch),
    "batch 256, augmentation with numpy.random": augmented(256, by_numpy, numpy.random),
    "batch 256, augmentation with a NumPy Generator": augmented(256, by_numpy, numpy.random.default_rng(0)),
    "batch 32, JPEG": Kind(Jpeg, 32, convolutions, 1, 1.05),
    "batch 256, plain": Kind(Samples, 256, perceptron, 20, 1.15),
    "batch 32, plain": Kind(Samples, 32, perceptron, 60, 1.15),
    "step alone, width 32, batch 8": Kind(
        lambda batch: Samples(batch, 32), 8, lambda: perceptron(32, 32), 20, None, alone=200, microseconds=20
    ),
    "step alone, ResNet-18 with half the channels, batch 16": Kind(Images, 16, resnet, 1, 1.01, alone=6),
}


# Engines


def by_hand(kind: Kind, workers: int) -> Iterator[None]:
    kind.start()
    for inputs, labels in kind.loader(workers):
        kind.optimizer.zero_grad()
        loss = functional.cross_entropy(kind.model(inputs), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(kind.model.parameters(), CLIP)
        kind.optimizer.step()
        yield


def exactrun(kind: Kind, workers: int) -> Iterator[None]:
    kind.start()
    with TemporaryDirectory() as folder, Run(folder) as run:
        run.keep(model=kind.model, optimizer=kind.optimizer)
        for _, (inputs, labels) in run.enumerate(kind.loader(workers)):
            kind.optimizer.zero_grad()
            loss = functional.cross_entropy(kind.model(inputs), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(kind.model.parameters(), CLIP)
            kind.optimizer.step()
            run.step(loss=loss)
            yield


def accelerate(kind: Kind, workers: int) -> Iterator[None]:
    kind.start()
    engine = Accelerator(cpu=True)
    model, optimizer, batches = engine.prepare(kind.model, kind.optimizer, kind.loader(workers))
    for inputs, labels in batches:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(inputs), labels)
        engine.backward(loss)
        engine.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        yield


def fabric(kind: Kind, workers: int) -> Iterator[None]:
    kind.start()
    engine = Fabric(accelerator="cpu", devices=1)
    model, optimizer = engine.setup(kind.model, kind.optimizer)
    for inputs, labels in engine.setup_dataloaders(kind.loader(workers)):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(inputs), labels)
        engine.backward(loss)
        engine.clip_gradients(model, optimizer, max_norm=CLIP)
        optimizer.step()
        yield


class Clock:
    """CPU time of the measured steps of a run."""

    def __init__(self) -> None:
        self.done, self.begun, self.ended = 0, 0.0, 0.0

    def tick(self) -> None:
        self.done += 1
        self.ended = time.process_time()
        if self.done == SETTLE:
            self.begun = self.ended

    def per_step(self) -> float:
        return (self.ended - self.begun) / (self.done - SETTLE)


class Ticks(transformers.TrainerCallback):
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.clock.tick()


class WithLoss(nn.Module):
    """The same model as HF's Trainer wants it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.model(x)
        return {"loss": functional.cross_entropy(logits, labels), "logits": logits}


def named(samples: list[tuple[Tensor, int]]) -> dict[str, Tensor]:
    """A batch as HF's Trainer wants it."""
    inputs, labels = zip(*samples, strict=True)
    return {"x": torch.stack(inputs), "labels": torch.tensor(labels)}


def hf_trainer(kind: Kind, spare: Path) -> Iterator[float]:
    """CPU seconds per step of complete runs."""
    kind.start()
    schedule = torch.optim.lr_scheduler.ConstantLR(kind.optimizer, 1.0)
    arguments = transformers.TrainingArguments(
        str(spare / "hf"),
        max_steps=kind.alone + SETTLE,
        per_device_train_batch_size=kind.batch,
        max_grad_norm=CLIP,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    while True:
        clock = Clock()
        trainer = transformers.Trainer(
            WithLoss(kind.model),
            arguments,
            data_collator=named,
            train_dataset=kind.dataset,
            optimizers=(kind.optimizer, schedule),
            callbacks=[Ticks(clock)],
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        yield clock.per_step()


class Module(lightning.LightningModule):
    """The same model as a LightningModule."""

    def __init__(self, kind: Kind, clock: Clock) -> None:
        super().__init__()
        self.model, self.optimizer, self.clock = kind.model, kind.optimizer, clock

    def training_step(self, batch: list[Tensor]) -> Tensor:
        return functional.cross_entropy(self.model(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.optimizer

    def on_train_batch_end(self, *_: Any) -> None:
        self.clock.tick()


def lightning_trainer(kind: Kind, spare: Path) -> Iterator[float]:
    """CPU seconds per step of complete runs."""
    kind.start()
    while True:
        clock = Clock()
        lightning.Trainer(
            default_root_dir=spare,
            accelerator="cpu",
            devices=1,
            max_steps=kind.alone + SETTLE,
            gradient_clip_val=CLIP,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        ).fit(Module(kind, clock), kind.loader())
        yield clock.per_step()


TITLES = {"loops": "A loop with its loader", "alone": "Time per step", "seeding": "Seeding samples"}
HAND = "hand-written loop"
LOOPS = {HAND: by_hand, "exactrun": exactrun, "accelerate": accelerate, "Fabric": fabric}
TRAINERS = {"HF Trainer": hf_trainer, "Lightning": lightning_trainer}


# Measuring


def threads_of(pids: set[int]) -> float:
    """CPU time of all threads of these processes, in seconds."""
    total = 0
    for pid in pids:
        for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with suppress(OSError):
                total += int(file.read_text().split()[0])
    return total / 1e9


def settled(pids: set[int]) -> float:
    """The CPU time of these processes, once they wait."""
    before, same = 0.0, 0
    while pids and same < 3:
        time.sleep(0.04)
        now = threads_of(pids)
        same = same + 1 if now - before < 1e-4 else 0
        before = now
    return before


def workers_now() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def measured(kind: Kind, workers: int, rounds: int, spare: Path) -> dict[str, list[float]]:
    """CPU seconds per step of each engine in each round."""
    loops, pids = {}, {}
    for name, loop in LOOPS.items():
        others = workers_now()
        loops[name] = loop(kind, workers)
        for _ in range(max(SETTLE, kind.turn)):
            next(loops[name])
        pids[name] = workers_now() - others
    trainers = {name: run(kind, spare) for name, run in TRAINERS.items()} if kind.alone else {}
    found: dict[str, list[float]] = {name: [] for name in (*loops, *trainers)}
    for number in range(rounds):
        gc.collect()
        for name in list(loops) if number % 2 else list(reversed(loops)):
            before = settled(pids[name])
            begun = time.process_time()
            for _ in range(kind.turn):
                next(loops[name])
            took = time.process_time() - begun
            found[name].append((took + settled(pids[name]) - before) / kind.turn)
        for name, run in trainers.items():
            found[name].append(next(run) if number % 20 == 0 else found[name][-1])
    for loop in loops.values():
        loop.close()
    return found


def compare(bench: Benchmark, name: str, kind: Kind, workers: int) -> None:
    """A row, and a result."""
    found = measured(kind, workers, bench.rounds, bench.spare)
    hand = found[HAND]
    cells = [f"{ratio(seconds, hand):.2f}" for engine, seconds in found.items() if engine != HAND]
    bench.row(name, workers, f"{1e3 * statistics.median(hand):.2f}", *cells)
    what = name if kind.alone else f"{name}, {workers} workers"
    if kind.microseconds:
        more = statistics.median(one - other for one, other in zip(found["exactrun"], hand, strict=True))
        bench.result(f"{what}: added to a step", 1e6 * more, "µs", at_most=kind.microseconds)
    else:
        bench.result(what, ratio(found["exactrun"], hand), "times", at_most=kind.goal, digits=3)


# Seeding

SEEDED = 64  # samples in a batch
GENERATOR = numpy.random.default_rng()
DRAWS: dict[str, Callable[[], object]] = {
    "torch, `random`, and numpy.random": lambda: (torch.rand(()), random.random(), numpy.random.random()),
    "`random`": random.random,
    "numpy.random": numpy.random.random,
    "a NumPy Generator": GENERATOR.random,
    "torch": lambda: torch.rand(()),
    "no generator": lambda: None,
}
BY_HAND = "torch, by `torch.manual_seed`"


class Drawing(Dataset):
    """Samples that cost nothing else, so that only the seeding is measured."""

    def __init__(self, draw: Callable[[], object]) -> None:
        self.draw = draw

    def __getitem__(self, index: int) -> object:
        return self.draw()


def cpu(what: Callable[[], object], loops: int = 20) -> float:
    begun = time.process_time()
    for _ in range(loops):
        what()
    return (time.process_time() - begun) / loops


def seeding(bench: Benchmark) -> None:
    """Microseconds for a sample, beyond those of the same sample without seeds; and the order of an epoch."""
    keys = [(1, index) for index in range(SEEDED)]
    plain = {name: Drawing(draw) for name, draw in DRAWS.items()}
    keyed = {name: Keyed(dataset) for name, dataset in plain.items()}

    def by_manual_seed() -> None:
        for key, index in keys:
            torch.manual_seed(mix(key, index))
            plain["torch"][index]

    bench.columns = ["samples draw from", f"µs for each, median of {20 * bench.rounds}"]
    found: dict[str, list[float]] = {name: [] for name in (*DRAWS, BY_HAND)}
    for _ in range(20 * bench.rounds):
        for name in DRAWS:
            seeded = cpu(lambda name=name: keyed[name].__getitems__(keys))
            found[name].append(seeded - cpu(lambda name=name: [plain[name][index] for _, index in keys]))
        without = cpu(lambda: [plain["torch"][index] for _, index in keys])
        found[BY_HAND].append(cpu(by_manual_seed) - without)
    for name, seconds in found.items():
        bench.row(name, round(1e6 * statistics.median(seconds) / SEEDED, 2))
    bench.result("seeding torch, random, and NumPy for a sample", bench.rows[0][1], "µs", at_most=10, digits=1)
    orders = [cpu(lambda: Order(100_000_000, SEEDED, 0).epoch(1), 1) for _ in range(min(3, bench.rounds))]
    bench.result("an order of 1e8 samples, fastest", min(orders), "s", at_most=5)
    bench.notes = [f"Of a sample in a batch of {SEEDED}, without workers, minus the time of the sample itself."]


def main() -> None:
    packages = ("torch", "numpy", "pillow", "accelerate", "lightning", "transformers")
    with Benchmark("", __doc__, rounds=60, packages=packages, what="loops", only="") as bench:
        what = bench.given.what
        bench.name, bench.title = f"step_{what}", TITLES[what]
        torch.set_num_threads(1)
        warnings.filterwarnings("ignore")
        for name in ("lightning.pytorch", "lightning.fabric"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        if what == "seeding":
            seeding(bench)
            return
        bench.columns = [
            "loop",
            "workers",
            "hand-written, ms",
            *list(LOOPS)[1:],
            *(TRAINERS if what == "alone" else ()),
        ]
        for name, kind in KINDS.items():
            if bench.given.only in name and bool(kind.alone) == (what == "alone"):
                for workers in (0,) if kind.alone else (0, 2):
                    compare(bench, name, kind, workers)
        bench.notes = [
            "CPU time per step of the process and its workers. The other columns are relative to the hand-written "
            "loop, whose augmentation cannot be repeated: medians of the ratios within each round.",
        ]
        if what == "loops":
            bench.notes += [
                "exactrun: `Run` around the hand-written loop. Images have 32 x 32 pixels, and the model three "
                "convolutions; plain samples have 64 numbers, and the model three layers of 256.",
            ]
        else:
            bench.notes += [
                "Every engine has the same DataLoader. HF Trainer and Lightning only offer a complete loop, which runs "
                "once in 20 rounds. Logging, checkpoints, and progress bars are off.",
            ]


if __name__ == "__main__":
    main()
