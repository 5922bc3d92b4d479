"""kill -9 at random times, resume, compare bit by bit, with the loops of other libraries: python benchmarks/adapters.py

Hugging Face's Trainer, TRL's SFTTrainer, and Lightning's Trainer with gpukit.train.adapters, and a loop of accelerate
with gpukit.train.Run: dropout, random augmentation, a shuffled order, 0 and 2 workers, with and without accumulation,
several epochs with validation in between. A run is killed up to twice. Compared are all logged values of each step, the
weights, the optimizer, the scheduler, and the generators. Requires benchmarks/requirements.txt.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing.connection
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "gpukit/src")]
PATIENCE = 180  # seconds for one run
PROCESSES = multiprocessing.get_context("forkserver")
# Hold it to start a process of multiprocessing or to read an exit code, where threads do: a start polls all processes,
# and an exit code that two threads read at once is lost.
POLLING = threading.Lock()
LIBRARIES = ["tests.train.torchvision_anyway", "trl.trainer.sft_trainer", "lightning.pytorch", "accelerate"]
# What each library's script has besides the import: counted in the scripts below, where they say so.
LINES = {"Hugging Face Trainer": 1, "TRL SFTTrainer": 1, "Lightning": 3, "accelerate": 5}


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


# The scripts. Each writes a line of JSON for each logged step, and one with the digests at its end.


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


def hugging_face(folder: Path, workers: int, accumulate: int) -> None:
    from transformers import Trainer, TrainingArguments

    from gpukit.train.adapters.huggingface import exact

    lines = Lines(folder)
    settings = arguments(
        TrainingArguments, folder, workers, accumulate, num_train_epochs=5, per_device_train_batch_size=4
    )
    trainer = exact(Trainer)(  # the only line that differs
        model=network(), args=settings, train_dataset=samples(), eval_dataset=samples(8), callbacks=[logging(lines)]
    )
    trainer.train()
    lines.end(**states(trainer.model, trainer.optimizer, trainer.lr_scheduler.state_dict()))


def trl(folder: Path, workers: int, accumulate: int) -> None:
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    from gpukit.script.tiny import conversations, make_model
    from gpukit.train.adapters.huggingface import exact

    if not (folder / "tiny").exists():
        make_model(folder / ".tiny")
        (folder / ".tiny").rename(folder / "tiny")
    lines = Lines(folder)
    options = {"max_steps": 36, "per_device_train_batch_size": 4, "max_length": 64}
    settings = arguments(SFTConfig, folder, workers, accumulate, **options)
    data = Dataset.from_list(list(conversations(50)))
    torch.manual_seed(1)
    trainer = exact(SFTTrainer)(  # the only line that differs
        model=AutoModelForCausalLM.from_pretrained(folder / "tiny"),
        args=settings,
        train_dataset=data,
        eval_dataset=data.select(range(8)),
        processing_class=AutoTokenizer.from_pretrained(folder / "tiny"),
        peft_config=LoraConfig(r=4, lora_dropout=0.1, target_modules="all-linear"),
        callbacks=[logging(lines)],
    )
    trainer.train()
    lines.end(**states(trainer.model, trainer.optimizer, trainer.lr_scheduler.state_dict()))


def lightning(folder: Path, workers: int, accumulate: int) -> None:
    import logging as messages
    import warnings

    import torch
    from lightning.pytorch import LightningModule, Trainer, seed_everything
    from lightning.pytorch.callbacks import EarlyStopping
    from torch.utils.data import DataLoader

    from gpukit.train.adapters.lightning import ExactResume

    warnings.filterwarnings("ignore")
    messages.getLogger("lightning.pytorch").setLevel(messages.ERROR)
    lines = Lines(folder)
    seed_everything(1, verbose=False)

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

    exact = ExactResume(folder / "run", every=5)  # 1
    module = Module()
    trainer = Trainer(
        max_epochs=5,
        accumulate_grad_batches=accumulate,
        val_check_interval=7,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[EarlyStopping("held_out", patience=100), exact],  # 2
    )
    train = DataLoader(samples(), batch_size=4, shuffle=True, num_workers=workers)
    trainer.fit(module, exact.loader(train), DataLoader(samples(8), batch_size=4))  # 3
    stopping = trainer.callbacks[0].state_dict()
    schedulers = [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs]
    lines.end(**states(module, module.optimizers(), [stopping, schedulers]))


def accelerate(folder: Path, workers: int, accumulate: int) -> None:
    import torch
    from accelerate import Accelerator
    from accelerate.utils import set_seed
    from torch.utils.data import DataLoader

    from gpukit.train.run import Run

    lines = Lines(folder)
    set_seed(2)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.9)
    loader = DataLoader(samples(), batch_size=4, shuffle=True, num_workers=workers)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    run = Run(folder / "run", save_steps=5)  # 1
    run.keep(model=model, optimizer=optimizer, scheduler=scheduler)  # 2
    step = 0
    for epoch in run.epochs(range(5)):  # 3
        for number, batch in run.enumerate(loader):  # 4
            with accelerator.accumulate(model):
                loss = model(**batch)["loss"]
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            step = epoch * len(loader) + number + 1
            lines(step, loss=loss, rate=scheduler.get_last_lr()[0])
            run.step(loss=loss)  # 5
    lines.end(**states(model, optimizer, scheduler.state_dict()))


SCRIPTS: dict[str, Callable[[Path, int, int], None]] = {
    "Hugging Face Trainer": hugging_face,
    "TRL SFTTrainer": trl,
    "Lightning": lightning,
    "accelerate": accelerate,
}


def started(script: str, folder: Path, workers: int, accumulate: int) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    process = PROCESSES.Process(target=_run, args=(script, folder, workers, accumulate))
    with POLLING:
        process.start()
    return process


def exit_code(process: Any) -> int | None:
    with POLLING:
        return process.exitcode


def _run(script: str, folder: Path, workers: int, accumulate: int) -> None:
    os.setpgid(0, 0)
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    multiprocessing.set_start_method("fork", force=True)  # as in a process of its own
    import torch

    torch.set_num_threads(1)
    SCRIPTS[script](folder, workers, accumulate)


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
    file, found = folder / "lines.jsonl", {}
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            values = json.loads(line)
        except ValueError:
            continue  # cut off by a kill
        key = "/".join(str(values.get(name, "")) for name in ("step", "epoch", "batch"))
        found.setdefault(key, {}).update(values)
    return found


def killed(script: str, folder: Path, workers: int, accumulate: int, steps: int, draw: random.Random) -> int:
    """Run it, killed once or twice; return the number of kills."""
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
    finished(started(script, folder, workers, accumulate), folder)
    return kills


def compare(script: str, workers: int, accumulate: int, kills: int, spare: Path) -> list[Any]:
    """A row: the setting, kills after which everything is equal, and what differed."""
    name = f"{script}, {workers} workers, accumulation {accumulate}"
    spare = spare / name.replace(" ", "-").replace(",", "")
    finished(started(script, spare / "whole", workers, accumulate), spare / "whole")
    whole = read(spare / "whole")
    draw = random.Random(f"{name}")
    done = equal = number = 0
    different: set[str] = set()
    while done < kills:
        number += 1
        folder = spare / str(number)
        count = killed(script, folder, workers, accumulate, len(whole) - 1, draw)
        found = read(folder)
        wrong = {
            f"{part} of step {step}" if step != "end//" else part
            for step, values in whole.items()
            for part, value in values.items()
            if found.get(step, {}).get(part) != value
        }
        different |= {part.partition(" of ")[0] for part in wrong}
        done, equal = done + count, equal + count * (not wrong)
        print(f"{name}: {done} kills, {sorted(wrong)[:4] or 'equal'}", file=sys.stderr, flush=True)
    return [script, LINES[script], workers, accumulate, f"{equal} of {done}", ", ".join(sorted(different)) or "-"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10, help="kills in each setting (10)")
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, default=list(SCRIPTS), help="some of the libraries")
    given = parser.parse_args()
    from measure import machine, write

    load = machine()["load"]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])  # for the processes
    PROCESSES.set_forkserver_preload(LIBRARIES)
    settings = [(script, workers, accumulate) for script in given.only for workers in (0, 2) for accumulate in (1, 2)]
    with tempfile.TemporaryDirectory(prefix="benchmark-") as spare, ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(lambda setting: compare(*setting, given.kills, Path(spare)), settings))
    total = [sum(int(row[4].split()[at]) for row in rows) for at in (0, 2)]
    write(
        "adapters",
        load,
        engine=False,
        packages=("torch", "transformers", "trl", "accelerate", "lightning"),
        title="Resuming the loops of other libraries after kill -9",
        results=[{"what": "kills after which all is equal", "value": total[0], "unit": "kills", "at_least": total[1]}],
        table={
            "columns": ["loop", "lines besides the import", "workers", "accumulation", "kills, all equal", "different"],
            "rows": rows,
        },
        notes=["Each run of 5 epochs is killed once or twice at random times, also while it saves."],
    )


if __name__ == "__main__":
    main()
