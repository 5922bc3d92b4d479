"""What each of two processes does for test_ranks.py; prints one line of JSON."""

from __future__ import annotations

import json
import os

import torch

from exactrun.ranks import Ranks


def agreements(ranks: Ranks) -> dict[str, object]:
    return {
        "any": ranks.any(ranks.rank == 1),
        "none": ranks.any(False),
        "sum": [ranks.sum(3 + ranks.rank), ranks.sum(0.5)],
        "least": ranks.least(5 - ranks.rank),
        "shared": ranks.share({"rank": ranks.rank}),
        "gathered": ranks.gather(ranks.rank),
    }


def main() -> None:
    torch.set_num_threads(1)
    with Ranks.start("cpu") as ranks:
        print(json.dumps({"main": ranks.main, **agreements(ranks)}), flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # as a training run ends with several ranks (gpukit/script/errors.py): gloo may abort the exit
