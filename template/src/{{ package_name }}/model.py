"""The model: a small network that tells the two spirals apart."""

from torch import nn


def build_model(width: int = 128) -> nn.Module:
    """Takes points (batch, 2), gives logits (batch, 2)."""
    return nn.Sequential(
        nn.Linear(2, width),
        nn.GELU(),
        nn.Linear(width, width),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.Linear(width, 2),
    )
