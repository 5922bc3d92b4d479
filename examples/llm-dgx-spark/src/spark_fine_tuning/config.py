"""The settings of a run. Every field is a command-line option: `--batch-size 512`.

Those that every run has, such as --name, are in gpukit.script.settings; `--help` lists them all.
"""

from dataclasses import dataclass
from typing import Literal

from gpukit.script.settings import RunSettings


@dataclass(frozen=True)
class Settings(RunSettings):
    """Train the model. Run the same command again to resume, with the settings that the run had."""

    model: str = "Qwen/Qwen3-0.6B"
    """A language model on Hugging Face, or a folder with one. tiny: a generated model with random weights."""
    data: str = "trl-lib/Capybara"
    """Hugging Face data set, .csv, .parquet, or .jsonl file, or folder, of `messages`, `text`, or `prompt` and
    `completion`; or tiny."""
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
    batch_size: int = 16
    """Samples per step, over all processes."""
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

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "max_length", "rank")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and less than 1, not {self.dropout}")
        if self.fsdp and self.four_bit:
            raise ValueError("fsdp does not support four_bit")
