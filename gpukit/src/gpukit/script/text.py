"""Data for fine-tuning a language model, in the columns that TRL reads: from files, folders, or Hugging Face."""

from __future__ import annotations

from pathlib import Path

from datasets import Dataset, load_dataset
from datasets.exceptions import DatasetGenerationError

from exactrun.errors import TrainingError

FORMATS = ({"messages"}, {"conversations"}, {"prompt", "completion"}, {"text"})  # that TRL reads
TABLE = {"keep_default_na": False}  # "NA" is a text
KINDS = {
    ".csv": ("csv", TABLE),
    ".tsv": ("csv", TABLE | {"sep": "\t"}),
    ".parquet": ("parquet", {}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
}


def read(name: str) -> Dataset:
    """A .csv, .tsv, .parquet, or .jsonl file, a folder of files, or a data set on Hugging Face; its split `train`.

    Raises:
        TrainingError: it cannot be read, or its columns are none of FORMATS.
    """
    kind = name
    options = {}
    if Path(name).is_file():
        kind, options = KINDS.get(Path(name).suffix.lower(), ("json", {}))
        options = {"data_files": name, **options}
    try:
        data = load_dataset(kind, split="train", **options)
    except (OSError, ValueError, DatasetGenerationError) as error:
        cause = (str(error.__cause__ or error).strip() or type(error).__name__).splitlines()[0]
        remedy = "use a .csv, .tsv, .parquet, or .jsonl file, a folder, or a name on Hugging Face, and set HF_TOKEN for"
        raise TrainingError(f"Cannot read the data {name} ({cause}): {remedy} private data.") from error
    if not any(each <= set(data.column_names) for each in FORMATS):
        known = "`messages`, `prompt` and `completion`, or `text`"
        raise TrainingError(
            f"{name} has the columns {', '.join(data.column_names)}, but TRL needs {known}: rename them in data.py, as "
            "in `data.rename_column('question', 'prompt')`."
        )
    return data


def split(data: Dataset, seed: int, most: int = 500) -> tuple[Dataset, Dataset]:
    """Training data and held-out data: 5 %, at most `most` samples."""
    if len(data) < 2:
        raise TrainingError(f"The data has {len(data)} samples, but at least 2 are needed.")
    both = data.train_test_split(test_size=min(most, -(-len(data) // 20)), seed=seed)
    return both["train"], both["test"]


def is_chat(data: Dataset) -> bool:
    """Whether the samples need a chat template to become text."""
    return "text" not in data.column_names and any(
        isinstance(data[0].get(name), list) for name in ("messages", "conversations", "prompt")
    )
