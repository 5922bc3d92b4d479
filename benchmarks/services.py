"""What `./launch up` costs with MLflow, when nothing is built: uv run python benchmarks/services.py

The project's image and MLflow's are built and started, until MLflow responds. Each round stands on base images with
another layer, so that no later one is in the engine's cache (another label is not enough: BuildKit compares layers);
the packages are in uv's cache, which the first round fills.
The project has no GPU, so that any engine will do. BASE_IMAGE and UV_INDEX name mirrors, as in a project.
"""

from __future__ import annotations

import os
import re
import secrets
import statistics
import tempfile
from pathlib import Path

from measure import clone, figure, generate, machine, options, run, side_by_side, write

FROM = re.compile(r"(?<=FROM )\S+")
TAG = "benchmark-services"


def main() -> None:
    given = options(__doc__)
    load = machine()["load"]
    with tempfile.TemporaryDirectory(prefix="benchmark-") as spare:
        template = clone(Path(spare) / "template")
        answers = {"project_name": "Benchmark of services", "hardware": "cpu", "workflow": "scripts"}
        project = generate(template, Path(spare) / "project", tracking="[mlflow]", **answers)
        launch, compose = project / "launch", project / "compose.yaml"
        text = compose.read_text(encoding="utf-8")
        service = FROM.search(text)[0]
        bases = {"project": os.environ.get("BASE_IMAGE") or service, "service": service}
        env = {**os.environ, "MLFLOW_PORT": "5999", "BASE_IMAGE": f"{TAG}:project"}

        def another_base() -> None:
            for name, image in bases.items():
                dockerfile = Path(spare) / "Dockerfile"
                dockerfile.write_text(f"FROM {image}\nRUN echo {secrets.token_hex(8)} >/benchmark\n", encoding="utf-8")
                run("docker", "build", "--quiet", f"--tag={TAG}:{name}", f"--file={dockerfile}", template / "docs")
            compose.write_text(FROM.sub(f"{TAG}:service", text), encoding="utf-8")

        def up() -> None:
            run(launch, "up", env=env)

        def down() -> None:
            run(launch, "stop", env=env)
            run(launch, "clean", "--yes", env=env)

        try:
            rounds = side_by_side(
                {"another base": another_base, "`./launch up` with MLflow": up, "down": down}, given.times
            )
        finally:
            run(launch, "stop", env=env)
            run("docker", "image", "rm", "--force", f"{TAG}:project", f"{TAG}:service")
    seconds = rounds["`./launch up` with MLflow"]
    write(
        "services",
        load,
        engine=True,
        title="Starting services",
        repeats=given.times,
        figures=[figure("`./launch up` with MLflow, nothing built, packages in uv's cache", seconds)],
        results=[
            {"what": "until MLflow responds", "value": round(statistics.median(seconds), 1), "unit": "s", "at_most": 60}
        ],
        notes=["With pip and without a cache, MLflow's image alone took 192 and 210 s to build."],
    )


if __name__ == "__main__":
    main()
