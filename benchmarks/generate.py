"""How long `copier copy` takes, beside `copier --help`, which only imports Copier: uv run python benchmarks/generate.py

Copied from a clean, released clone in a folder of this machine, so the network counts in neither.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from pathlib import Path

from measure import clone, copier, figure, machine, options, side_by_side, write


def main() -> None:
    given = options(__doc__)
    load = machine()["load"]
    with tempfile.TemporaryDirectory(prefix="benchmark-") as spare:
        template, project = clone(Path(spare) / "template"), Path(spare) / "project"
        said: dict[str, str] = {}

        def copy(what: str, *flags: str, smoke: str = "") -> None:
            shutil.rmtree(project, ignore_errors=True)
            env = {key: value for key, value in os.environ.items() if not key.startswith("GPU_TEMPLATE_")}
            env.update({"GPU_TEMPLATE_SMOKE": smoke} if smoke else {})
            said[what] = copier("copy", "--trust", "--defaults", "--quiet", *flags, template, project, env=env)

        steps = {
            "`copier --help`": lambda: copier("--help"),
            "`copier copy -T`, without hooks": lambda: copy("bare", "-T"),
            "`copier copy`, with validation": lambda: copy("validated", smoke="off"),
            "`copier copy`, with validation and smoke": lambda: copy("whole"),
        }
        seconds = side_by_side(steps, given.times)
        files = sum(path.is_file() for path in project.rglob("*"))
    floor, bare, validated, whole = (statistics.median(one) for one in seconds.values())
    smoke = next((line for line in said["whole"].splitlines() if line.startswith("smoke: ")), "nothing")
    write(
        "generate",
        load,
        engine=False,
        title="Making a project",
        repeats=given.times,
        figures=[figure(what, one) for what, one in seconds.items()],
        results=[
            {
                "what": "with validation / `copier --help`",
                "value": round(validated / floor, 2),
                "unit": "times",
                "at_most": 1.8,
            },
        ],
        notes=[
            f"{files} files, all answers at their defaults.",
            f"Hooks take {validated - bare:.2f} s of it; everything but Copier's own import {validated - floor:.2f} s.",
            f"Smoke adds {whole - validated:.2f} s. It said: {smoke.partition('. ')[0].rstrip('.')}",
        ],
    )


if __name__ == "__main__":
    main()
