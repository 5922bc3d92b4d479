"""How much `./launch run -- true` adds to the same `docker run` by hand: uv run python benchmarks/launch.py

The command by hand is the one that `./launch --dry-run` prints. The project has no GPU, so that any engine will do;
what launch does is the same with one. BASE_IMAGE and UV_INDEX name mirrors, as in a project.
"""

from __future__ import annotations

import shlex
import statistics
import tempfile
from pathlib import Path

from measure import clone, figure, generate, machine, options, run, side_by_side, write


def main() -> None:
    given = options(__doc__, base="wheel")
    load = machine()["load"]
    with tempfile.TemporaryDirectory(prefix="benchmark-") as spare:
        template = clone(Path(spare) / "template")
        answers = {"project_name": "Benchmark of launch", "hardware": "cpu", "workflow": "scripts", "base": given.base}
        project = generate(template, Path(spare) / "project", **answers)
        launch = project / "launch"
        print("building the image ...", flush=True)
        run(launch, "run", "--", "true")  # which also makes what is mounted
        by_hand = shlex.split(run(launch, "--dry-run", "run", "--", "true").strip().splitlines()[-1])
        tag = by_hand[-2]
        try:
            steps = {
                "the same `docker run` by hand": lambda: run(*by_hand, cwd=project),
                "`./launch run -- true`": lambda: run(launch, "run", "--", "true"),
            }
            seconds = side_by_side(steps, given.times)
        finally:
            run("docker", "image", "rm", "--force", tag)
    hand, launched = (statistics.median(one) for one in seconds.values())
    write(
        "launch",
        load,
        engine=True,
        title="Starting a container",
        repeats=given.times,
        figures=[figure(what, one) for what, one in seconds.items()],
        results=[{"what": "launch adds", "value": round(launched - hand, 2), "unit": "s", "at_most": 0.3}],
        notes=[],
    )


if __name__ == "__main__":
    main()
