"""The settings of a run. Every field is a command-line option: `--batch-size 512`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Settings:
    """Train the model. Run the same command again to resume."""

    model: str = "Qwen/Qwen3-0.6B"
    """A language model on Hugging Face, or a folder with one. tiny: a generated model with random weights."""
    data: str = "trl-lib/Capybara"
    """Hugging Face data set, .csv, .tsv, .parquet, or .jsonl file, or folder, of `messages`, `text`, or `prompt` and
    `completion`; or tiny."""
    columns: str = ""
    """Columns to use, by name or number: `prompt=0,completion=1`, `text=body`, or, for chats, `user=0,assistant=1`."""
    header: bool | None = None
    """Whether a .csv or .tsv file begins with names. None: unless --columns has numbers."""
    eval_data: str = ""
    """Held-out data, like `data`. Default: 5 % of the data, at most 500 samples."""
    packing: bool = False
    """Combine short samples into rows of at most max_length tokens; a batch is that many rows, without padding."""
    max_length: int = 1024
    """Maximum number of tokens per sample; longer samples are truncated."""
    rank: int = 16
    """LoRA rank."""
    dropout: float = 0.05
    """LoRA dropout."""
    four_bit: bool = False
    """Load the base model in 4 bits (QLoRA); needs bitsandbytes and a GPU."""
    fsdp: bool = False
    """Shard the model across the processes of torchrun (FSDP), if it is too large for one GPU."""
    merge: bool = False
    """Also save the whole model with the adapter merged into it."""
    max_steps: int = 300
    """Stop after this many steps, counted from the beginning of the run."""
    batch_size: int | Literal["auto"] = 16
    """Samples per step, over all processes. auto: the largest batch that fits in memory, measured before training."""
    lr: float = 2e-4
    """Learning rate after the warm-up."""
    warmup_steps: int = 20
    """Steps over which the learning rate increases to its full value."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Of the learning rate after the warm-up. cosine: to 0 at --max-steps, so a run should not be extended."""
    weight_decay: float = 0.0
    """Weight decay of AdamW."""
    clip: float | None = 1.0
    """Maximum gradient norm. None: no clipping."""
    seed: int = 0
    """Determines the held-out split, the order of the data, the initial weights, and dropout."""

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
    compile: bool = False
    """Compile the model with torch.compile."""
    deterministic: bool = False
    """Use deterministic algorithms, for bit-identical results on a GPU; slower."""
    microbatch: int | None = None
    """Maximum number of samples processed at once. None: as many as fit in memory."""

    def __post_init__(self) -> None:
        for name in ("max_steps", "batch_size", "save_steps", "log_steps", "keep", "microbatch", "max_length", "rank"):
            value = getattr(self, name)
            if isinstance(value, int) and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        for name in ("lr", "clip"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be greater than 0, not {value}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and less than 1, not {self.dropout}")
        if self.name in (".", "..") or "/" in self.name:
            raise ValueError(f"name must be a folder name without a slash, not {self.name!r}")
