"""The duration of `verify` without a GPU: uv run python benchmarks/verify.py

In the native environment of a project for language models, whose packages take longest to import. Elapsed time of the
fastest round, because other load on the machine only adds to it. UV_INDEX names a mirror of PyTorch's index, as in a
project, and --torch a release that it has.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from measure import children, clone, figure, generate, machine, options, run, side_by_side, write


def main() -> None:
    given = options(__doc__, torch="")
    load = machine()["load"]
    with tempfile.TemporaryDirectory(prefix="benchmark-") as spare:
        template = clone(Path(spare) / "template")
        answers = {"project_name": "Benchmark of verify", "hardware": "cpu", "workflow": "scripts", "use_case": "llm"}
        project = generate(template, Path(spare) / "project", **answers)
        if given.torch:
            stack = json.loads((project / "stack.json").read_text(encoding="utf-8"))
            stack["native"].update(requirement=f"torch=={given.torch}", torch=f"{given.torch}+cpu")
            (project / "stack.json").write_text(json.dumps(stack), encoding="utf-8")
        env = {**os.environ, "GPUKIT_NATIVE": str(Path(spare) / "native")}
        launch = [project / "launch", "--native"]
        print("creating the environment ...", flush=True)
        run(*launch, "build", env=env)
        commands = {"`verify --quick`": ["--quick"], "`verify`": []}
        steps = {what: lambda more=more: run(*launch, "verify", *more, env=env) for what, more in commands.items()}
        cpu = {}
        seconds = side_by_side(steps, given.times)
        for what, step in steps.items():
            cpu[what] = -children()
            step()
            cpu[what] += children()
    quick, whole = (min(one) for one in seconds.values())
    write(
        "verify",
        load,
        engine=False,
        title="Checking an environment",
        repeats=given.times,
        figures=[figure(what, one) for what, one in seconds.items()],
        results=[
            {"what": "`verify --quick`, fastest round", "value": round(quick, 1), "unit": "s", "at_most": 15},
            {"what": "`verify`, fastest round", "value": round(whole, 1), "unit": "s", "at_most": 30},
            *({"what": f"{what}, CPU time", "value": round(one, 1), "unit": "s"} for what, one in cpu.items()),
        ],
        notes=[
            "In a native environment with the packages of `use_case=llm`, without a GPU. Elapsed time; other load on "
            "the machine slows down some rounds."
        ],
    )


if __name__ == "__main__":
    main()
