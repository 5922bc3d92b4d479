"""What `./launch up` costs with MLflow, when nothing is built: uv run python benchmarks/services.py

The project's image and MLflow's are built and started, until MLflow responds: the first start on a machine, which is
the slowest. Each round stands on base images with another layer, so that no later one is in the engine's cache (another
label is not enough: BuildKit compares layers); the packages are in uv's cache, which the first round fills. The project
has no GPU, so that any engine will do. BASE_IMAGE and UV_INDEX name mirrors, as in a project.
"""

from __future__ import annotations

import os
import re
import secrets
import statistics
import time

from harness import Benchmark, run

FROM = re.compile(r"(?<=FROM )\S+")
TAG = "benchmark-services"


def main() -> None:
    with Benchmark("Starting services", __doc__, rounds=1, engine=True) as bench:
        project = bench.project(
            project_name="Benchmark of services", hardware="cpu", workflow="scripts", tracking="[mlflow]"
        )
        launch = project / "launch"
        compose = project / "compose.yaml"
        text = compose.read_text(encoding="utf-8")
        service = FROM.search(text)[0]
        bases = {"project": os.environ.get("BASE_IMAGE") or service, "service": service}
        env = {**os.environ, "MLFLOW_PORT": "5999", "BASE_IMAGE": f"{TAG}:project"}

        def another_base() -> None:
            for name, image in bases.items():
                dockerfile = bench.spare / "Dockerfile"
                dockerfile.write_text(f"FROM {image}\nRUN echo {secrets.token_hex(8)} >/benchmark\n", encoding="utf-8")
                run("docker", "build", "--quiet", f"--tag={TAG}:{name}", f"--file={dockerfile}", project / "tests")
            compose.write_text(FROM.sub(f"{TAG}:service", text), encoding="utf-8")

        seconds = []
        try:
            for number in range(bench.rounds + 1):
                another_base()
                started = time.perf_counter()
                run(launch, "up", env=env)
                if number:  # the first round fills uv's cache
                    seconds.append(time.perf_counter() - started)
                run(launch, "stop", env=env)
                run(launch, "clean", "--yes", env=env)
        finally:
            run(launch, "stop", env=env)
            run("docker", "image", "rm", "--force", f"{TAG}:project", f"{TAG}:service")
        bench.figure("`./launch up` with MLflow, nothing built, packages in uv's cache", seconds)
        bench.result("until MLflow responds", statistics.median(seconds), "s", at_most=60, digits=1)
        bench.notes = ["With pip and without a cache, MLflow's image alone took 192 and 210 s to build."]


if __name__ == "__main__":
    main()
