"""A tiny language model and data, to try a script without a download: `--model tiny --data tiny`."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from gpukit.project.location import root

WORDS = ["a", "red", "green", "small", "large", "cat", "dog", "bird", "sees", "likes", "follows", "and", "then"]
TEMPLATE = """{% for message in messages %}<|{{ message.role }}|>{{ message.content }}</s>{% endfor %}\
{% if add_generation_prompt %}<|assistant|>{% endif %}"""


def tiny_model() -> str:
    """The folder of the model, in the project's folder data; created if it does not exist."""
    return _made(root() / "data" / "tiny" / "model", make_model)


def tiny_data() -> str:
    """The file of the data, in the project's folder data; created if it does not exist."""
    return _made(root() / "data" / "tiny" / "data.jsonl", make_data)


def _made(path: Path, make: Callable[[Path], None]) -> str:
    several = dist.is_initialized()
    if not path.exists() and not (several and dist.get_rank()):  # transformers saves a model on the first rank only
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{os.getpid()}-{path.name}")
        make(temporary)
        try:
            temporary.rename(path)
        except OSError:  # another process created the same
            shutil.rmtree(temporary)
    if several:
        dist.all_reduce(torch.zeros(()))  # the others wait
    return str(path)


def make_model(folder: Path) -> None:
    """A Llama with 30,000 random weights, and a tokenizer for letters and the words above."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "</s>", "<pad>", "<|user|>", "<|assistant|>"]
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(special_tokens=special, initial_alphabet=letters, vocab_size=400, show_progress=False)
    tokenizer.train_from_iterator([" ".join(WORDS)], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)

    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    )
    # The script has set its seed, and the next run finds this model. It is made on the CPU: no GPU is initialized here.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)


def make_data(path: Path) -> None:
    """80 conversations, one JSON object per line."""
    path.write_text("".join(f"{json.dumps(one)}\n" for one in conversations(80)), encoding="utf-8")


def conversations(count: int) -> Iterator[dict[str, Any]]:
    """Conversations of different lengths."""
    generator = random.Random(0)
    for _ in range(count):
        question, answer = (" ".join(generator.choices(WORDS, k=generator.randint(3, 20))) for _ in range(2))
        yield {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}
