"""The settings of a run. Every field is a command-line option: `--batch-size 512`.

Those that every run has, such as --name, are in gpukit.script.settings; `--help` lists them all.
"""

from dataclasses import dataclass

from gpukit.script.settings import RunSettings


@dataclass(frozen=True)
class Settings(RunSettings):
    """Train the model. Run the same command again to resume, with the settings that the run had."""

    width: int = 128
    """Width of the hidden layers."""
    dropout: float = 0.1
    """Dropout rate."""
    jitter: float = 0.02
    """Standard deviation of the noise added to each point in each epoch."""
    max_steps: int = 1000
    """Stop after this many steps, counted from the beginning of the run."""
    batch_size: int = 256
    """Samples per step, over all processes."""
    lr: float = 3e-3
    """Learning rate after the warm-up."""
    warmup_steps: int = 20
    """Steps over which the learning rate increases to its full value."""
    clip: float | None = 1.0
    """Maximum gradient norm. None: no clipping."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "width")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and less than 1, not {self.dropout}")
