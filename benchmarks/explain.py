"""What `explain` takes: uv run python benchmarks/explain.py

CPU time of one short text, of 10 MB of a training log with an error in its middle, and of 10 MB of lines that are all
different and made of words that error texts use. Each run is a process of its own, with a machine file, so that what
is asked of this machine does not count.
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
        texts = {"one text": ERROR, "10 MB of log": log(), "10 MB of noise": noise()}
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
    limits = {"one text": 0.5, "10 MB of log": 2, "10 MB of noise": 2}
    write(
        "explain",
        load,
        engine=False,
        title="Explaining an error text",
        repeats=given.times,
        figures=[figure(f"{what}, CPU time", one) for what, one in seconds.items()],
        results=[
            {"what": f"{what}, the best round", "value": round(min(one), 2), "unit": "s", "at_most": limits[what]}
            for what, one in seconds.items()
        ],
        notes=[],
    )


if __name__ == "__main__":
    main()
