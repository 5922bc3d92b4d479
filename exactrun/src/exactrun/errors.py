"""The error of a run that cannot continue, and what other errors mean."""

from __future__ import annotations

import re
from collections.abc import Iterable

import torch

from exactrun.ranks import Ranks


class TrainingError(Exception):
    """Training cannot continue; the message is one sentence for the user, with the remedy."""


# What gloo, NCCL, and the store report in the other processes of a run after one of them has ended.
LOST_RANK = re.compile(
    r"gloo|nccl|Connection (?:closed|reset) by (?:remote )?peer|Broken pipe|Failed to recv, got 0 bytes|"
    r"remote server shutdown|RendezvousClosedError|collective operation timeout",
    re.IGNORECASE,
)


def lost_rank(error: BaseException) -> bool:
    """Whether an error means that another process of the run has ended or does not respond."""
    return bool(LOST_RANK.search(str(error)))


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
