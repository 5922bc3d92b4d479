"""The settings of a run. Every field is a command-line option: `--batch-size 512`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Settings:
    """Train the model. Run the same command again to resume."""

    max_steps: int = 1000
    """Stop after this many steps, counted from the beginning of the run."""
    batch_size: int | Literal["auto"] = 256
    """Samples per step, over all processes. auto: the largest batch that fits in memory, measured before training."""
    lr: float = 3e-3
    """Learning rate after the warm-up."""
    warmup_steps: int = 20
    """Steps over which the learning rate increases to its full value."""
    clip: float | None = 1.0
    """Maximum gradient norm. None: no clipping."""
    width: int = 128
    """Width of the hidden layers."""
    dropout: float = 0.1
    """Dropout rate."""
    jitter: float = 0.02
    """Standard deviation of the noise added to each point in each epoch."""
    seed: int = 0
    """Determines the data, its order and augmentation, the initial weights, and dropout."""

    resume: bool = True
    """Continue from the newest valid checkpoint, if there is one."""
    name: str = ""
    """Name of the run and its folder. Default: the latest run without a name, or a new one named after the time."""
    output_dir: Path = ROOT / "outputs"
    """Folder of all runs, with their checkpoints and metrics."""
    save_steps: int = 200
    """Evaluate and save a checkpoint every this many steps, and after the last one."""
    keep: int = 3
    """Number of newest checkpoints to keep, in addition to the best one."""
    log_steps: int = 50
    """Report loss and speed every this many steps."""

    device: str = "auto"
    """auto, cpu, cuda, or cuda:N."""
    dtype: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Number format of the forward pass (autocast)."""
    tf32: bool | None = None
    """Use TF32 for fp32 matrix products. None: if the GPU supports it."""
    cudnn_benchmark: bool = False
    """Let cuDNN benchmark its convolution algorithms and use the fastest."""
    compile: bool = False
    """Compile the model with torch.compile."""
    deterministic: bool = False
    """Use deterministic algorithms, for bit-identical results on a GPU; slower."""
    microbatch: int | None = None
    """Maximum number of samples processed at once. None: as many as fit in memory."""
    workers: int | Literal["auto"] = "auto"
    """Data loader processes. auto: the fastest number, measured during the first steps."""

    def __post_init__(self) -> None:
        for name in ("max_steps", "batch_size", "save_steps", "log_steps", "keep", "microbatch", "width"):
            value = getattr(self, name)
            if isinstance(value, int) and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        for name in ("lr", "clip"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be greater than 0, not {value}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and less than 1, not {self.dropout}")
        if isinstance(self.workers, int) and self.workers < 0:
            raise ValueError(f"workers must be at least 0, not {self.workers}")
        if self.name in (".", "..") or "/" in self.name:
            raise ValueError(f"name must be a folder name without a slash, not {self.name!r}")
