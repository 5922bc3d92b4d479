"""Checkpoints: one file per saved step, never half written, the newest few kept."""

import os
from pathlib import Path

import torch

KEEP = 3


def save(folder: Path, step: int, state: dict) -> Path:
    """Write aside, force to disk, rename: a kill or a full disk leaves the earlier checkpoints as they were."""
    path, aside = folder / f"step-{step:08d}.pt", folder / "checkpoint.tmp"
    with aside.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    directory = os.open(folder, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    for old in sorted(folder.glob("step-*.pt"))[:-KEEP]:
        old.unlink()
    return path


def newest(folder: Path) -> Path | None:
    """The checkpoint with the highest step in a run's folder."""
    return max(folder.glob("step-*.pt"), default=None)


def load(path: Path) -> dict:
    """Tensors and plain values only: a checkpoint from elsewhere cannot run code."""
    return torch.load(path, map_location="cpu", weights_only=True)
