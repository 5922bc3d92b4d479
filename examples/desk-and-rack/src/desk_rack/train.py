"""The training loop: `--max-steps` says how long, `--resume` goes on where a run ended, Ctrl-C saves first."""

import math
import os
import signal
import time
from pathlib import Path
from types import FrameType

import torch
import tyro
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from . import checkpoint
from .config import Settings
from .data import Batches, spirals
from .model import build_model
from .track import Tracker


class StopSignals:
    """Remembers Ctrl-C and SIGTERM for the loop, which saves and ends after the step; a second one ends at once."""

    number = 0

    def __enter__(self) -> "StopSignals":
        self.before = {number: signal.signal(number, self.remember) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def remember(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        signal.signal(number, signal.SIG_DFL)

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


def choose_device() -> torch.device:
    """The GPU if PyTorch can use one, and the reason where it cannot."""
    if torch.cuda.is_available():
        print(f"Training on {torch.cuda.get_device_name()}.")
        return torch.device("cuda")
    no_cuda = "this is a CPU build of PyTorch" if torch.version.cuda is None else "`./launch doctor` says why"
    print(f"Training on the CPU: PyTorch sees no GPU ({no_cuda}).")
    return torch.device("cpu")


def run_folder(settings: Settings) -> Path:
    """The folder of this run: the one named, the latest that can be resumed, or a new one."""
    runs = sorted(settings.output_dir.glob("*/step-*.pt"), key=lambda path: path.stat().st_mtime)
    if settings.name:
        folder = settings.output_dir / settings.name
    elif settings.resume and runs:
        folder = runs[-1].parent
    else:
        folder = settings.output_dir / time.strftime("%Y%m%d-%H%M%S")
    if not settings.resume and checkpoint.newest(folder):
        raise SystemExit(f"{folder} holds a run already: --resume continues it, another --name starts anew.")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset, device: torch.device) -> float:
    """Share of `data` that the model gets right."""
    points, arm = data.tensors
    model.eval()
    right = model(points.to(device)).argmax(dim=1) == arm.to(device)
    model.train()
    return right.float().mean().item()


def train(settings: Settings) -> Path:
    """Run the loop to `max_steps` and return the folder with checkpoints and metrics.jsonl."""
    with StopSignals() as stop:
        return loop(settings, stop)


def loop(settings: Settings, stop: StopSignals) -> Path:
    """What `train` does, between the signals that may stop it."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise SystemExit("This loop trains in one process: start it with --nproc-per-node 1.")
    device = choose_device()
    bf16 = device.type == "cuda" and torch.cuda.get_device_capability() >= (8, 0)
    folder = run_folder(settings)

    torch.manual_seed(settings.seed)
    model = build_model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr)
    step = 0
    if settings.resume and (latest := checkpoint.newest(folder)):
        state = checkpoint.load(latest)
        if (state["seed"], state["batch_size"]) != (settings.seed, settings.batch_size):
            same = f"--seed {state['seed']} --batch-size {state['batch_size']}"
            raise SystemExit(f"{latest} was made with {same}: resume with the same.")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        for group in optimizer.param_groups:
            group["lr"] = settings.lr
        step = state["step"]
        print(f"Resuming {folder} at step {step}.")
    elif settings.resume:
        print(f"Nothing to resume: starting {folder}.")

    data = spirals(8192, settings.seed)
    batches = Batches(len(data), settings.batch_size, settings.seed, first_step=step)
    loader = DataLoader(data, batch_sampler=batches, pin_memory=device.type == "cuda")

    with Tracker(folder, settings) as tracker:
        since, since_step = time.perf_counter(), step
        for points, arm in loader:
            if step >= settings.max_steps:
                break
            # Dropout depends on seed and step alone: a resumed run draws what an unbroken one would have drawn.
            torch.manual_seed(settings.seed * 1_000_003 + step)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
                logits = model(points.to(device, non_blocking=True))
                loss = nn.functional.cross_entropy(logits, arm.to(device, non_blocking=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1

            stopping = stop.number
            last = step == settings.max_steps or bool(stopping)
            if last or step % settings.log_steps == 0:
                value = loss.item()
                if not math.isfinite(value):
                    raise SystemExit(f"The loss is {value} at step {step}: try a smaller --lr.")
                speed = (step - since_step) * settings.batch_size / (time.perf_counter() - since)
                tracker.log(step, loss=value, samples_per_second=speed)
                print(f"step {step}/{settings.max_steps}  loss {value:.4f}  {speed:,.0f} samples/s", flush=True)
                since, since_step = time.perf_counter(), step
            if last or step % settings.save_steps == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                path = checkpoint.save(folder, step, state | {"seed": settings.seed, "batch_size": settings.batch_size})
            if stopping:
                print(f"{signal.Signals(stopping).name}: saved {path}; --resume continues there.", flush=True)
                raise SystemExit(128 + stopping)

        held_out = accuracy(model, spirals(2048, settings.seed + 1), device)
        tracker.log(step, held_out_accuracy=held_out)
        print(f"Done: step {step}, {held_out:.1%} of held-out points right, in {folder}", flush=True)
    return folder


if __name__ == "__main__":
    train(tyro.cli(Settings))
