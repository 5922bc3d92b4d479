"""Further training loops of other libraries for resume.py; what they share is in tests/train/library_loops.py."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import harness  # noqa: F401 (it finds the package tests)

from tests.train.library_loops import (
    Lines,
    Script,
    arguments,
    hugging_face,
    lightning,
    logging,
    network,
    newest,
    samples,
    states,
)


def trl(folder: Path, workers: int, accumulate: int) -> None:
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    from exactrun.adapters.huggingface import exact
    from gpukit.script.tiny import conversations, make_model

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


def prepared(workers: int, accumulate: int, **options: Any) -> list[Any]:
    """accelerate's accelerator with these options, and a model, its optimizer, loader, and scheduler."""
    import torch
    from accelerate import Accelerator
    from accelerate.utils import set_seed
    from torch.utils.data import DataLoader

    set_seed(2)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate, **options)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.9)
    loader = DataLoader(samples(), batch_size=4, shuffle=True, num_workers=workers)
    return [accelerator, *accelerator.prepare(model, optimizer, loader, scheduler)]


def accelerate(folder: Path, workers: int, accumulate: int) -> None:
    from exactrun.run import Run

    lines = Lines(folder)
    accelerator, model, optimizer, loader, scheduler = prepared(workers, accumulate)
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


def accelerate_alone(folder: Path, workers: int, accumulate: int) -> None:
    """save_state, load_state, skip_first_batches, and the seedable sampler."""
    from accelerate.utils import DataLoaderConfiguration, ProjectConfiguration

    lines = Lines(folder)
    naming = ProjectConfiguration(project_dir=folder, automatic_checkpoint_naming=True, total_limit=2)
    sampling = DataLoaderConfiguration(use_seedable_sampler=True)
    accelerator, model, optimizer, loader, scheduler = prepared(
        workers, accumulate, project_config=naming, dataloader_config=sampling
    )
    saved = newest(folder, "checkpoints/checkpoint_*/step")
    step = 0
    if saved:
        accelerator.load_state(str(saved.parent))
        step = int(saved.read_text())
        accelerator.project_configuration.iteration = int(saved.parent.name.split("_")[1]) + 1
    begun, skip = divmod(step, len(loader))
    for epoch in range(begun, 5):
        loader.set_epoch(epoch)
        for batch in accelerator.skip_first_batches(loader, skip) if skip else loader:
            with accelerator.accumulate(model):
                loss = model(**batch)["loss"]
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            step += 1
            lines(step, loss=loss, rate=scheduler.get_last_lr()[0])
            if step % 5 == 0:
                place = Path(accelerator.save_state())
                (place / "step").write_text(str(step))
        skip = 0
    lines.end(**states(model, optimizer, scheduler.state_dict()))


def stateful(folder: Path, workers: int, accumulate: int) -> None:
    """torchdata's StatefulDataLoader in a plain loop, which also saves the random states of the main process."""
    import numpy
    import torch
    from torchdata.stateful_dataloader import StatefulDataLoader

    lines = Lines(folder)
    torch.manual_seed(2)
    random.seed(2)
    numpy.random.seed(2)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    loader = StatefulDataLoader(samples(), batch_size=4, shuffle=True, num_workers=workers)
    file = folder / "state.pt"
    step = 0
    if file.exists():
        state = torch.load(file, weights_only=False)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
        torch.set_rng_state(state["torch"])
        numpy.random.set_state(state["numpy"])
        random.setstate(state["random"])
        step = state["step"]
    while step < 5 * len(loader):
        for batch in loader:
            loss = model(**batch)["loss"]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            lines(step, loss=loss)
            if step % 5 == 0:
                state = {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "loader": loader.state_dict(),
                    "torch": torch.get_rng_state(),
                    "numpy": numpy.random.get_state(),
                    "random": random.getstate(),
                    "step": step,
                }
                torch.save(state, file.with_suffix(".new"))
                file.with_suffix(".new").replace(file)
    lines.end(**states(model, optimizer, None))


BY_GPUKIT: dict[str, Script] = {
    "Hugging Face Trainer": hugging_face,
    "TRL SFTTrainer": trl,
    "Lightning": lightning,
    "accelerate": accelerate,
}
# What each script has for gpukit besides the import: counted above, where they say so.
LINES = {"Hugging Face Trainer": 1, "TRL SFTTrainer": 1, "Lightning": 3, "accelerate": 5}
ALONE: dict[str, Script] = {
    "torchdata StatefulDataLoader": stateful,
    "accelerate": accelerate_alone,
    "Hugging Face Trainer": partial(hugging_face, by_gpukit=False),
    "Lightning": partial(lightning, by_gpukit=False),
}
