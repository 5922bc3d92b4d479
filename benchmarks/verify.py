"""The duration of `verify` without a GPU: uv run python benchmarks/verify.py

In the native environment of a project for language models, whose packages take longest to import. Elapsed time of the
fastest round, because other load on the machine only adds to it. UV_INDEX names a mirror of PyTorch's index, as in a
project, and --torch a release that it has.
"""

from __future__ import annotations

import json
import os

from harness import Benchmark, children, in_turn, run, say


def main() -> None:
    with Benchmark("Checking an environment", __doc__, rounds=5, torch="") as bench:
        project = bench.project(project_name="Benchmark of verify", hardware="cpu", workflow="scripts", use_case="llm")
        torch = bench.given.torch
        if torch:
            stack = json.loads((project / "stack.json").read_text(encoding="utf-8"))
            stack["native"].update(requirement=f"torch=={torch}", torch=f"{torch}+cpu")
            (project / "stack.json").write_text(json.dumps(stack), encoding="utf-8")
        env = {**os.environ, "GPUKIT_NATIVE": str(bench.spare / "native")}
        launch = [project / "launch", "--native"]
        say("creating the environment ...")
        run(*launch, "build", env=env)
        steps = {
            "`verify --quick`": lambda: run(*launch, "verify", "--quick", env=env),
            "`verify`": lambda: run(*launch, "verify", env=env),
        }
        elapsed = in_turn(steps, bench.rounds)
        used = in_turn(steps, 1, children)
        goals = {"`verify --quick`": 15, "`verify`": 30}
        for what, seconds in elapsed.items():
            bench.figure(what, seconds)
            bench.result(f"{what}, fastest round", min(seconds), "s", at_most=goals[what], digits=1)
        for what, seconds in used.items():
            bench.result(f"{what}, CPU time", seconds[0], "s", digits=1)
        bench.notes = [
            "In a native environment with the packages of `use_case=llm`, without a GPU. Elapsed time; other load on "
            "the machine slows down some rounds."
        ]


if __name__ == "__main__":
    main()
