"""What a run can be told. Every field is an option on the command line: `--batch-size 512`."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Settings:
    """Train the model."""

    max_steps: int = 1000
    """Stop after this many steps, counted from the very start of the run."""
    save_steps: int = 200
    """Write a checkpoint every so many steps; the last step always writes one."""
    log_steps: int = 50
    """Report loss and speed every so many steps."""
    batch_size: int = 256
    """Samples per step."""
    lr: float = 3e-3
    """Learning rate."""
    seed: int = 0
    """Decides the data, their order, the first weights and dropout."""
    resume: bool = False
    """Continue from the newest checkpoint of `--name`, or of the latest run."""
    name: str = ""
    """Name of the run, a folder in the output directory. Without one: the time of its start."""
    output_dir: Path = ROOT / "outputs"
    """Where runs keep their checkpoints and figures."""

    def __post_init__(self) -> None:
        for name in ("max_steps", "save_steps", "log_steps", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
