"""What a run can be told. Every field is an option on the command line: `--batch-size 512`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Settings:
    """Train the model. Started again, a run goes on where it ended."""

    max_steps: int = 1000
    """Stop after this many steps, counted from the very start of the run."""
    batch_size: int | Literal["auto"] = 256
    """Samples per step, over all processes. auto: the most that fits, found in a process of its own."""
    lr: float = 3e-3
    """Learning rate, reached after the warm-up."""
    warmup_steps: int = 20
    """Steps in which the learning rate rises."""
    clip: float | None = 1.0
    """Longest gradient; a longer one is shortened to it. None: none is."""
    width: int = 128
    """Size of the network's layers."""
    dropout: float = 0.1
    """Share of activations left out while training."""
    jitter: float = 0.02
    """How far the points are moved at random, anew in each epoch."""
    seed: int = 0
    """Decides the data, their order and augmentation, the first weights and dropout."""

    resume: bool = True
    """Go on from the newest valid checkpoint, where there is one."""
    name: str = ""
    """Name of the run, a folder in the output directory. Without one: the latest that has none, or the time."""
    output_dir: Path = ROOT / "outputs"
    """Where runs keep their checkpoints and figures."""
    save_steps: int = 200
    """Look at held-out data and write a checkpoint every so many steps; the last step always does."""
    keep: int = 3
    """Checkpoints that stay, beside the best."""
    log_steps: int = 50
    """Report loss and speed every so many steps."""

    device: str = "auto"
    """cpu, cuda or cuda:1."""
    dtype: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Numbers that the forward pass computes with."""
    tf32: bool | None = None
    """Shorter numbers inside fp32 products; None: where the GPU has them."""
    channels_last: bool | None = None
    """Memory layout of images; None: where it is faster."""
    cudnn_benchmark: bool = False
    """Let cuDNN try which way of computing a convolution is fastest here."""
    compile: bool = False
    """torch.compile the model."""
    deterministic: bool = False
    """Bit-equal numbers on a GPU too; slower."""
    microbatch: int | None = None
    """Samples that are computed at once; None: as many as fit."""
    workers: int | Literal["auto"] = "auto"
    """Processes that load data. auto: as many as pay off here, measured."""

    def __post_init__(self) -> None:
        for name in ("max_steps", "batch_size", "save_steps", "log_steps", "keep", "microbatch", "width"):
            value = getattr(self, name)
            if isinstance(value, int) and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        for name in ("lr", "clip"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be more than 0, not {value}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and less than 1, not {self.dropout}")
        if isinstance(self.workers, int) and self.workers < 0:
            raise ValueError(f"workers must be at least 0, not {self.workers}")
        if self.name in (".", "..") or "/" in self.name:
            raise ValueError(f"name is that of a folder in the output directory, not {self.name!r}")
