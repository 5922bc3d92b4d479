"""The training loop, yours to change. `Run` saves its state; the same command resumes with the same numbers.

Several GPUs: `torchrun --nproc-per-node 2 -m plate_reader.train`.
"""

from dataclasses import asdict
from itertools import count
from pathlib import Path

import torch
import torch.distributed as dist
from exactrun import Run, TrainingError
from gpukit.script.errors import report_errors
from gpukit.script.settings import parse
from gpukit.script.start import Start, finish, start
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW
from torch.utils.data import DataLoader, DistributedSampler, Subset

from .config import Settings
from .data import held_out_data, training_data
from .model import build_model


def train(settings: Settings) -> Path:
    """Train to `max_steps`; return the folder with the checkpoints and metrics."""
    here = start(settings)  # the device, the processes of torchrun, and the folder
    device = here.device
    torch.manual_seed(settings.seed + here.rank)

    model = build_model(settings).to(device, memory_format=here.memory_format)
    optimizer = AdamW(model.parameters(), fused=True)  # the loop sets its learning rate
    parallel = torch.compile(model) if settings.compile else model
    if here.world > 1:
        parallel = DistributedDataParallel(parallel)

    data = training_data(settings)
    held_out = held_out_data(settings)
    if here.batch_size > len(data) // here.world:
        raise TrainingError(f"--batch-size {settings.batch_size} is larger than the data set ({len(data)} samples).")
    sampler = DistributedSampler(data, seed=settings.seed) if here.world > 1 else None
    options = {"batch_size": here.batch_size, "num_workers": settings.workers, "pin_memory": device.type == "cuda"}
    loader = DataLoader(data, shuffle=sampler is None, sampler=sampler, drop_last=True, **options)
    mine = Subset(held_out, range(here.rank, len(held_out), here.world))
    held_out_loader = DataLoader(mine, generator=torch.Generator(), **options)  # not the loop's generator

    with Run(here.folder, settings=asdict(settings), best="held_out_loss", **here.options) as run:
        run.keep(model=model, optimizer=optimizer)
        for epoch in run.epochs(count()):  # until `max_steps`
            if sampler is not None:
                sampler.set_epoch(epoch)
            for _, (inputs, labels) in run.enumerate(loader):
                inputs = inputs.to(device, memory_format=here.memory_format, non_blocking=True)
                labels = labels.to(device, non_blocking=True)
                step = run.completed + 1
                for group in optimizer.param_groups:
                    group["lr"] = settings.lr * min(1.0, step / max(settings.warmup_steps, 1))
                optimizer.zero_grad()
                loss = torch.zeros((), device=device)
                most = settings.microbatch or len(labels)
                for part in zip(inputs.split(most), labels.split(most), strict=True):  # accumulate gradients
                    with torch.autocast(device.type, here.dtype, enabled=here.mixed):
                        share = compute_loss(parallel, part) * (len(part[1]) / len(labels))
                    share.backward()
                    loss += share.detach()
                if settings.clip is not None:
                    clip_grad_norm_(model.parameters(), settings.clip)
                optimizer.step()
                scores = {}
                if step % settings.eval_steps == 0 or step == run.last:
                    scores = evaluate(model, held_out_loader, here)
                run.step(loss=loss, **scores)
        finish(run)
    if here.world > 1:
        del parallel  # it may wait forever for a group that is destroyed first (pytorch#56297)
        dist.destroy_process_group()
    return here.folder


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The mean over the batch."""
    inputs, labels = batch
    return cross_entropy(model(inputs), labels)


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, here: Start) -> dict[str, float]:
    """Loss and accuracy on held-out data, over all processes."""
    sums = torch.zeros(3, device=here.device)
    model.eval()
    for inputs, labels in loader:
        inputs = inputs.to(here.device)
        labels = labels.to(here.device)
        with torch.autocast(here.device.type, here.dtype, enabled=here.mixed):
            logits = model(inputs)
        sums[0] += cross_entropy(logits.float(), labels, reduction="sum")
        sums[1] += (logits.argmax(dim=1) == labels).sum()
        sums[2] += len(labels)
    model.train()
    if here.world > 1:
        dist.all_reduce(sums)
    loss, correct, samples = sums.tolist()
    return {"held_out_loss": loss / samples, "held_out_accuracy": correct / samples}


if __name__ == "__main__":
    with report_errors():
        train(parse(Settings, prog=f"python -m {__package__}.train"))
