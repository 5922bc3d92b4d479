"""The error of a run that cannot continue, and what other errors mean."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from gpukit.errors.signs import named
from gpukit.train.ranks import Ranks


class TrainingError(Exception):
    """Training cannot continue; the message is one sentence for the user, with the remedy."""


# The signs of what the other processes of a run report after one of them has ended.
LOST_RANK = named(
    "gloo-waited", "nccl-aborted", "nccl-network", "nccl-system", "nccl-failed", "peer-gone", "rendezvous-left"
)


def lost_rank(error: BaseException) -> bool:
    """Whether an error means that another process of the run has ended or does not respond."""
    return any(sign.matches(str(error)) for sign in LOST_RANK)


def check_finite(
    what: str, tensors: Iterable[torch.Tensor], step: int, ranks: Ranks | None = None, *, infinite: bool = False
) -> None:
    """TrainingError if a tensor contains NaN or infinity, on any of `ranks`; all of them must call this.

    `infinite`: infinity is allowed, as in an attention mask.
    """
    valid = [(~one.isnan() if infinite else one.isfinite()).all() for one in tensors]
    failed = bool(valid) and not torch.stack(valid).all().item()
    if ranks.any(failed) if ranks else failed:
        raise TrainingError(
            f"Training diverged: {what} is NaN or infinite at step {step}. Resume from the last checkpoint with a "
            "smaller learning rate."
        )
