"""The CPU time of `explain`: uv run python benchmarks/explain.py

For one short message, for 10 MB of a training log with an error in the middle, and for 10 MB of distinct lines of words
that occur in error messages. Each run is a separate process with an empty machine file, so that probing this machine
does not count.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import ROOT, children, figure, machine, options, side_by_side, write

SIZE = 10_000_000
ERROR = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
WORDS = (
    "error failed cuda device driver docker container memory not found cannot open shared object file permission "
    "denied module version import torch kernel worker process killed network timeout loss step epoch batch value of in"
)


def log() -> str:
    steps = "".join(f"step {number} loss 0.{number % 997} lr 0.0003 2.1 it/s\n" for number in range(250_000))
    return steps[: SIZE // 2] + ERROR + steps[SIZE // 2 : SIZE]


def noise() -> str:
    words, chance = WORDS.split(), random.Random(0)
    return "\n".join(" ".join(chance.choices(words, k=12)) for _ in range(160_000))[:SIZE]


def main() -> None:
    given = options(__doc__)
    load = machine()["load"]
    with tempfile.TemporaryDirectory(prefix="benchmark-") as spare:
        empty = Path(spare, "machine.json")
        empty.write_text("{}", encoding="utf-8")
        texts = {"one message": ERROR, "10 MB of log": log(), "10 MB of noise": noise()}
        files = {what: Path(spare, what.replace(" ", "-")) for what in texts}
        for what, text in texts.items():
            files[what].write_text(text, encoding="utf-8")
        env = {**os.environ, "PYTHONPATH": str(ROOT / "gpukit/src")}
        seconds: dict[str, list[float]] = {what: [] for what in texts}

        def explain(what: str) -> None:
            before = children()
            argv = [sys.executable, "-m", "gpukit", "explain", str(files[what]), "--machine", str(empty)]
            subprocess.run(argv, env=env, cwd=spare, capture_output=True, check=False)
            seconds[what].append(children() - before)

        side_by_side({what: lambda what=what: explain(what) for what in texts}, given.times)
    limits = {"one message": 0.5, "10 MB of log": 2, "10 MB of noise": 2}
    write(
        "explain",
        load,
        engine=False,
        title="Explaining an error message",
        repeats=given.times,
        figures=[figure(f"{what}, CPU time", one) for what, one in seconds.items()],
        results=[
            {"what": f"{what}, fastest round", "value": round(min(one), 2), "unit": "s", "at_most": limits[what]}
            for what, one in seconds.items()
        ],
        notes=[
            "The log is from training, with an error in the middle. The noise is lines of words that also occur in "
            "error messages."
        ],
    )


if __name__ == "__main__":
    main()
