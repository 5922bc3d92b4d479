"""Data for fine-tuning a language model, in the columns that TRL reads: from files, folders, or Hugging Face."""

from __future__ import annotations

import csv
from pathlib import Path

from datasets import Dataset, Features, Value, load_dataset
from datasets.exceptions import DatasetGenerationError

from exactrun.errors import TrainingError

FORMATS = ({"messages"}, {"conversations"}, {"prompt", "completion"}, {"text"})  # that TRL reads
ROLES = ("system", "user", "assistant")  # of a chat, as names of columns
KINDS = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".json": "json", ".jsonl": "json"}
EXAMPLE = "--columns prompt=0,completion=1"


def read(name: str, columns: str = "", header: bool | None = None) -> Dataset:
    """A .csv, .tsv, .parquet, or .jsonl file, a folder of files, or a data set on Hugging Face; its split `train`.

    `columns`: which columns to use, by name or number (from 0), as "prompt=0,completion=1"; user, assistant, and
    system make chats, whose answers are learned. `header`: the first line of a .csv or .tsv file has names; None: it
    does unless `columns` has numbers. Fields of a .tsv file have no quotes (IANA, text/tab-separated-values).

    Raises:
        TrainingError: it cannot be read, or its columns are none of FORMATS.
    """
    wanted = _parsed(columns)
    try:
        data = _loaded(name, not any(each.isdecimal() for each in wanted.values()) if header is None else header)
    except (OSError, ValueError, DatasetGenerationError) as error:
        cause = (str(error.__cause__ or error).strip() or type(error).__name__).splitlines()[0]
        remedy = "use a .csv, .tsv, .parquet, or .jsonl file, a folder, or a name on Hugging Face, and set HF_TOKEN for"
        raise TrainingError(f"Cannot read the data {name} ({cause}): {remedy} private data.") from error
    if wanted:
        data = _chosen(name, data, wanted)
    if not any(each <= set(data.column_names) for each in FORMATS):
        known = "`messages`, `prompt` and `completion`, or `text`"
        raise TrainingError(
            f"{name} has the columns {', '.join(data.column_names)}, but TRL needs {known}: name them, as in {EXAMPLE}."
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


def _parsed(columns: str) -> dict[str, str]:
    pairs = [one.partition("=") for one in columns.split(",") if one.strip()]
    if any(not (name.strip() and source.strip()) for name, _, source in pairs):
        raise TrainingError(f"--columns {columns} must be pairs of a name and a column, as in {EXAMPLE}.")
    found = {name.strip(): source.strip() for name, _, source in pairs}
    if found.keys() & set(ROLES) and not {"user", "assistant"} <= found.keys():
        raise TrainingError(f"--columns {columns} must name both user and assistant for a chat.")
    return found


def _loaded(name: str, header: bool) -> Dataset:
    path = Path(name)
    if not path.is_file():
        return load_dataset(name, split="train")
    kind, options = KINDS.get(path.suffix.lower(), "json"), {}
    if kind == "csv":
        tabs = path.suffix.lower() == ".tsv"
        dialect = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if tabs else {}
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = next(csv.reader(file, **dialect), [])
        names = first if header else [str(number) for number in range(len(first))]
        options = {"sep": dialect.get("delimiter", ","), "quoting": dialect.get("quoting", csv.QUOTE_MINIMAL)}
        options |= {"names": names, "header": 0 if header else None, "encoding": "utf-8-sig"}
        # Every field is text: "007" is not a number, and "NA" is not missing.
        options |= {"features": Features(dict.fromkeys(names, Value("string"))), "keep_default_na": False}
    return load_dataset(kind, data_files=name, split="train", **options)


def _chosen(name: str, data: Dataset, wanted: dict[str, str]) -> Dataset:
    sources = {}
    for target, source in wanted.items():
        known = data.column_names
        number = int(source) if source.isdecimal() and source not in known else -1
        if source not in known and not 0 <= number < len(known):
            raise TrainingError(f"{name} has no column {source}: its columns are {', '.join(known)}.")
        sources[target] = known[number] if number >= 0 else source

    def renamed(sample: dict[str, object]) -> dict[str, object]:
        found = {target: sample[source] for target, source in sources.items()}
        chat = [{"role": role, "content": found.pop(role)} for role in ROLES if role in found]
        if chat:
            found |= {"prompt": chat[:-1], "completion": chat[-1:]}
        return found

    return data.map(renamed, remove_columns=data.column_names, desc="Choosing the columns")
