"""The settings of a run. Every field is a command-line option: `--batch-size 512`.

Those that every run has, such as --name, are in gpukit.script.settings; `--help` lists them all.
"""

from dataclasses import dataclass
from pathlib import Path

from gpukit.script.settings import RunSettings

SHAPES = Path(__file__).resolve().parents[2] / "data" / "shapes"


@dataclass(frozen=True)
class Settings(RunSettings):
    """Train the model. Run the same command again to resume, with the settings that the run had."""

    model: str = "resnet18"
    """Name of an image classifier in timm."""
    pretrained: bool = False
    """Start from timm's pretrained weights, which are downloaded once."""
    data: Path = SHAPES
    """Folder with one subfolder of images per class, or with `train` and `val` folders. Default: generated shapes."""
    image_size: int = 96
    """Width and height of the model's input. 224 is usual for photographs."""
    max_steps: int = 500
    """Stop after this many steps, counted from the beginning of the run."""
    batch_size: int = 64
    """Samples per step, over all processes."""
    lr: float = 1e-3
    """Learning rate after the warm-up."""
    warmup_steps: int = 20
    """Steps over which the learning rate increases to its full value."""
    clip: float | None = 1.0
    """Maximum gradient norm. None: no clipping."""
    workers: int = 4
    """Data loader processes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "image_size")
