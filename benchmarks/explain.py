"""The CPU time of `explain`: uv run python benchmarks/explain.py

The worst case is 10 MB of distinct lines of words that occur in error messages. Then 10 MB of a training log with an
error in the middle, and one short message. Each run is a separate process, from the wheel as `./launch` runs it, with
an empty machine file, so that probing this machine does not count.
"""

from __future__ import annotations

import random
import subprocess
import sys

from harness import ROOT, Benchmark, children, in_turn, writer

SIZE = 10_000_000
ERROR = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
WORDS = (
    "error failed cuda device driver docker container memory not found cannot open shared object file permission "
    "denied module version import torch kernel worker process killed network timeout loss step epoch batch value of in"
)


def noise() -> str:
    words = WORDS.split()
    chance = random.Random(0)
    return "\n".join(" ".join(chance.choices(words, k=12)) for _ in range(160_000))[:SIZE]


def log() -> str:
    steps = "".join(f"step {number} loss 0.{number % 997} lr 0.0003 2.1 it/s\n" for number in range(250_000))
    return steps[: SIZE // 2] + ERROR + steps[SIZE // 2 : SIZE]


def main() -> None:
    with Benchmark("Explaining an error message", __doc__, rounds=5) as bench:
        empty = bench.spare / "machine.json"
        empty.write_text("{}", encoding="utf-8")
        wheel = writer.write(writer.for_project(ROOT / "gpukit"), bench.spare)
        command = [sys.executable, "-I", "-S", str(wheel / "gpukit"), "explain", "--machine", str(empty)]

        def explain(what: str) -> None:
            file = str(bench.spare / what.replace(" ", "-"))
            subprocess.run([*command, file], cwd=bench.spare, capture_output=True, check=False)

        texts = {"10 MB of noise": noise(), "10 MB of log": log(), "one message": ERROR}
        for what, text in texts.items():
            (bench.spare / what.replace(" ", "-")).write_text(text, encoding="utf-8")
        found = in_turn({what: lambda what=what: explain(what) for what in texts}, bench.rounds, children)
        goals = {"10 MB of noise": 1.5, "10 MB of log": 1, "one message": 0.15}
        for what, seconds in found.items():
            bench.figure(f"{what}, CPU time", seconds)
            bench.result(f"{what}, fastest round", min(seconds), "s", at_most=goals[what])
        bench.notes = [
            "The log is from training, with an error in the middle. The noise is lines of words that also occur in "
            "error messages."
        ]


if __name__ == "__main__":
    main()
