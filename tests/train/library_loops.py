"""Training loops of other libraries, with exactrun and as their own documentation resumes them (others are in
benchmarks/library_loops_more.py).

Each script writes a line of JSON for each logged step, and one with digests at its end: of the weights, the optimizer,
the scheduler, and the generators. They have dropout, samples that draw random numbers, a shuffled order, and several
epochs with validation in between. Here is also what starts them in a process of their own, kills it, and resumes.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing.connection
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE = 180  # seconds for one run
PROCESSES = multiprocessing.get_context("forkserver")
# Hold it to start a process of multiprocessing or to read an exit code, where threads do: a start polls all processes,
# and an exit code that two threads read at once is lost.
POLLING = threading.Lock()
LIBRARIES = ["tests.train.torchvision_anyway", "trl.trainer.sft_trainer", "lightning.pytorch", "accelerate"]
Script = Callable[[Path, int, int], None]  # trains in a folder, with workers and accumulation; resumes if it can


def digest(value: Any) -> str:
    """Of nested state: tensors, arrays, and plain values."""
    total = hashlib.sha256()

    def walk(one: Any) -> None:
        if hasattr(one, "detach"):
            one = one.detach().cpu().contiguous().view(-1).numpy()
        if hasattr(one, "tobytes"):
            total.update(one.tobytes())
        elif isinstance(one, dict):
            for key, each in one.items():
                total.update(repr(key).encode())
                walk(each)
        elif isinstance(one, list | tuple):
            for each in one:
                walk(each)
        else:
            total.update(repr(one).encode())

    walk(value)
    return total.hexdigest()


class Lines:
    """What a script logs."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lines.jsonl"

    def __call__(self, step: int | str, **values: Any) -> None:
        plain = {name: float(value).hex() if not isinstance(value, str) else value for name, value in values.items()}
        with self.path.open("a") as file:
            file.write(json.dumps({"step": step, **plain}) + "\n")

    def end(self, **objects: Any) -> None:
        import numpy
        import torch

        generators = [torch.get_rng_state(), random.getstate(), numpy.random.get_state()]
        self("end", **{name: digest(each) for name, each in {**objects, "generators": generators}.items()})


def samples(count: int = 62) -> Any:
    """A data set whose samples draw from three generators."""
    import numpy
    import torch

    class Samples(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return count

        def __getitem__(self, index: int) -> dict[str, Any]:
            noise = 0.1 * torch.randn(8) + random.random() + float(numpy.random.rand())
            return {"inputs": torch.full((8,), index / count) + noise, "labels": torch.tensor(index % 3)}

    return Samples()


def network() -> Any:
    import torch
    from torch import nn

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Dropout(0.3), nn.ReLU(), nn.Linear(32, 3)
            self.layers = nn.Sequential(*layers)

        def forward(self, inputs: Any, labels: Any = None) -> dict[str, Any]:
            logits = self.layers(inputs)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    torch.manual_seed(1)
    return Network()


def states(model: Any, optimizer: Any, others: Any) -> dict[str, Any]:
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()["state"], "others": others}


def arguments(kind: Any, folder: Path, workers: int, accumulate: int, **options: Any) -> Any:
    return kind(
        str(folder / "run"),
        gradient_accumulation_steps=accumulate,
        dataloader_num_workers=workers,
        logging_steps=1 if accumulate == 1 else 3,
        save_steps=5,
        save_total_limit=2,
        eval_strategy="steps",
        eval_steps=7,
        learning_rate=0.01,
        lr_scheduler_type="cosine",
        warmup_steps=3,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=3,
        **options,
    )


def logging(lines: Lines) -> Any:
    from transformers import TrainerCallback

    class Logging(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
            timed = ("runtime", "per_second", "train_loss", "total_flos")
            lines(state.global_step, **{name: one for name, one in logs.items() if not name.endswith(timed)})

    return Logging()


def newest(folder: Path, pattern: str) -> Path | None:
    """The last checkpoint that a library has saved."""
    return max(folder.glob(pattern), key=lambda path: path.stat().st_mtime, default=None)


def hugging_face(folder: Path, workers: int, accumulate: int, by_gpukit: bool = True) -> None:
    from transformers import Trainer, TrainingArguments

    from exactrun.adapters.huggingface import exact

    lines = Lines(folder)
    kind = exact(Trainer) if by_gpukit else Trainer  # the only line that differs
    settings = arguments(
        TrainingArguments, folder, workers, accumulate, num_train_epochs=5, per_device_train_batch_size=4
    )
    trainer = kind(
        model=network(), args=settings, train_dataset=samples(), eval_dataset=samples(8), callbacks=[logging(lines)]
    )
    saved = None if by_gpukit else newest(folder, "run/checkpoint-*")
    trainer.train(resume_from_checkpoint=saved and str(saved))
    lines.end(**states(trainer.model, trainer.optimizer, trainer.lr_scheduler.state_dict()))


def lightning(folder: Path, workers: int, accumulate: int, by_gpukit: bool = True) -> None:
    import logging as messages
    import warnings

    import torch
    from lightning.pytorch import LightningModule, Trainer, seed_everything
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
    from torch.utils.data import DataLoader

    from exactrun.adapters.lightning import ExactResume

    warnings.filterwarnings("ignore")
    messages.getLogger("lightning.pytorch").setLevel(messages.ERROR)
    lines = Lines(folder)
    seed_everything(1, workers=not by_gpukit, verbose=False)

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = self.network(**batch)["loss"]
            rate = self.optimizers().param_groups[0]["lr"]
            lines(self.trainer.global_step, batch=batch_idx, epoch=self.current_epoch, loss=loss, rate=rate)
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("held_out", self.network(**batch)["loss"])

        def on_validation_epoch_end(self) -> None:
            held_out = self.trainer.callback_metrics["held_out"]
            lines(self.trainer.global_step, held_out=held_out)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), 0.01)
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.7)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "held_out"}}

    train = DataLoader(samples(), batch_size=4, shuffle=True, num_workers=workers)
    saved = None
    if by_gpukit:
        keep = ExactResume(folder / "run", every=5)  # 1
        train = keep.loader(train)  # 2
    else:
        from torchdata.stateful_dataloader import StatefulDataLoader

        keep = ModelCheckpoint(folder / "run", every_n_train_steps=5, save_top_k=-1, filename="{step}")
        train = StatefulDataLoader(samples(), batch_size=4, shuffle=True, num_workers=workers)
        saved = newest(folder, "run/*.ckpt")
    module = Module()
    trainer = Trainer(
        max_epochs=5,
        accumulate_grad_batches=accumulate,
        val_check_interval=7,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=not by_gpukit,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[EarlyStopping("held_out", patience=100), keep],  # 3
    )
    trainer.fit(module, train, DataLoader(samples(8), batch_size=4), ckpt_path=saved, weights_only=False)
    stopping = trainer.callbacks[0].state_dict()
    schedulers = [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs]
    lines.end(**states(module, module.optimizers(), [stopping, schedulers]))


# Processes


def started(script: Script, folder: Path, workers: int, accumulate: int) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    process = PROCESSES.Process(target=_run, args=(script, folder, workers, accumulate))
    with POLLING:
        process.start()
    return process


def exit_code(process: Any) -> int | None:
    with POLLING:
        return process.exitcode


def _run(script: Script, folder: Path, workers: int, accumulate: int) -> None:
    os.setpgid(0, 0)
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    multiprocessing.set_start_method("fork", force=True)  # as in a process of its own
    import torch

    torch.set_num_threads(1)
    script(folder, workers, accumulate)


def finished(process: Any, folder: Path) -> None:
    multiprocessing.connection.wait([process.sentinel], PATIENCE)
    if (code := exit_code(process)) != 0:
        kill(process)
        raise RuntimeError(f"{folder}: exit code {code}\n{(folder / 'log').read_text()[-3000:]}")


def kill(process: Any) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
    multiprocessing.connection.wait([process.sentinel])


def read(folder: Path) -> dict[str, dict[str, str]]:
    """The last values of each step, and the digests."""
    file = folder / "lines.jsonl"
    found = {}
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            values = json.loads(line)
        except ValueError:
            continue  # cut off by a kill
        key = "/".join(str(values.get(name, "")) for name in ("step", "epoch", "batch"))
        found.setdefault(key, {}).update(values)
    return found


def killed(
    script: Script,
    folder: Path,
    workers: int,
    accumulate: int,
    steps: int,
    draw: random.Random,
    again: tuple[int, ...] = (),
    read: Callable[[Path], dict[str, Any]] = read,
) -> int:
    """Run it, killed once or twice within `steps`; return the number of kills.

    `again`: numbers of workers, one of which it is resumed with. `read`: what it has logged in its folder.
    """
    kills = 0
    for at in sorted(draw.sample(range(2, steps), draw.choice((1, 2)))):
        process = started(script, folder, workers, accumulate)
        until = time.monotonic() + PATIENCE
        while len(read(folder)) < at and exit_code(process) is None and time.monotonic() < until:
            time.sleep(0.002)
        time.sleep(draw.uniform(0, 0.03))
        if exit_code(process) is None:
            kills += 1
            kill(process)
        workers = draw.choice(again or (workers,))
    finished(started(script, folder, workers, accumulate), folder)
    return kills
