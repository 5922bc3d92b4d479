"""The cost of a rebuild: uv run python benchmarks/rebuild.py

The worst case is the largest base, ngc. One more package: `./launch build` after adding a line to pyproject.toml,
compared with `docker build` of a plain
Dockerfile that installs the same packages on the same base in one RUN line, as most guides do. Both are first built
completely, which is not measured; each round then adds another package to both.

An update: `./launch build` with another gpukit in vendor/, with another stack.json, and with another driver floor,
compared with a build in which nothing has changed. BASE_IMAGE names the base, as in a project.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import sys
import time
import tomllib
from pathlib import Path

from harness import Benchmark, ratio, run, say

# small, and without dependencies
PACKAGES = ["einops", "humanize", "tabulate", "sortedcontainers", "more-itertools"]
PLAIN = """\
FROM {base}
ENV PROJECT={name}
WORKDIR /workspace
RUN pip install --no-cache-dir {packages}
RUN python -m ipykernel install --user --name=project
EXPOSE 8888
CMD ["jupyter", "lab", "--ip=127.0.0.1", "--port=8888", "--no-browser"]
"""
UPDATES = ("another gpukit", "another stack.json", "another driver floor")
SIZE = """
import importlib.metadata, sys
print(sum(file.locate().stat().st_size for file in importlib.metadata.files(sys.argv[1]) if file.locate().exists()))
"""


def layers(image: str) -> tuple[list[str], set[tuple[str, str, int]]]:
    """The digests of an image's layers, and the creation time, command, and size of each entry in its history."""
    digests = json.loads(run("docker", "image", "inspect", "--format={{json .RootFS.Layers}}", image))
    form = "--format={{json .CreatedAt}}\t{{json .CreatedBy}}\t{{.Size}}"
    lines = run("docker", "history", "--no-trunc", "--human=false", form, image).splitlines()
    rows = [line.split("\t") for line in lines]
    return digests, {(when, by, int(size)) for when, by, size in rows}


class Kind:
    """One of the two ways to build: its files, its command, and the time and storage of its rebuilds."""

    def __init__(self, folder: Path, command: list[str | Path], image: str) -> None:
        self.folder = folder
        self.command = command
        self.image = image
        self.seconds: list[float] = []
        self.new_bytes: list[int] = []
        self.new_layers: list[int] = []

    def build(self) -> float:
        started = time.perf_counter()
        run(*self.command, cwd=self.folder)
        return time.perf_counter() - started

    def rebuild(self, package: str, first: tuple[list[str], set[tuple[str, str, int]]]) -> None:
        self.seconds.append(self.build())
        digests, history = layers(self.image)
        size = int(run("docker", "run", "--rm", "--entrypoint=python", self.image, "-c", SIZE, package))
        self.new_bytes.append(sum(row[2] for row in history - first[1]) - size)
        self.new_layers.append(len(set(digests) - set(first[0])))


class Update:
    """The changes of an update, and the time and storage of the builds after each."""

    def __init__(self, project: Path, source: Path) -> None:
        self.stack = project / "stack.json"
        self.project = project
        self.source = source / "gpukit"
        self.before = json.loads(self.stack.read_text(encoding="utf-8"))
        self.seconds: dict[str, list[float]] = {}
        self.new_bytes: dict[str, list[int]] = {}

    def vendor(self) -> None:
        """Write gpukit from the template's folder to the project's vendor/."""
        env = {**os.environ, "PYTHONPATH": str(self.source / "src"), "GPUKIT_PROJECT": str(self.project)}
        run(sys.executable, "-m", "gpukit", "vendor", "--from", self.source, env=env)

    def write_stack(self, **changes: object) -> None:
        self.stack.write_text(json.dumps({**self.before, **changes}, indent=2) + "\n", encoding="utf-8")

    def change(self, what: str, number: int) -> None:
        if what == "another gpukit":
            with (self.source / "src/gpukit/__init__.py").open("a", encoding="utf-8") as file:
                file.write(f"# {number}\n")
            self.vendor()
        elif what == "another stack.json":
            self.write_stack(end_of_life=f"20{30 + number}-01-01", size_gb=100 + number)
        elif what == "another driver floor":
            self.write_stack(driver=str(900 + number))

    def measure(self, kind: Kind, number: int) -> None:
        for what in ("nothing changed", *UPDATES):
            before = layers(kind.image)
            self.change(what, number)
            self.seconds.setdefault(what, []).append(kind.build())
            _, history = layers(kind.image)
            self.new_bytes.setdefault(what, []).append(sum(row[2] for row in history - before[1]))
            say(f"round {number}: {what} {self.seconds[what][-1]:.1f} s")


def main() -> None:
    options = {"base": "ngc", "use_case": "minimal", "hardware": "cpu"}
    with Benchmark("Rebuilding after a change", __doc__, rounds=3, engine=True, **options) as bench:
        answers = {"base": bench.given.base, "use_case": bench.given.use_case, "hardware": bench.given.hardware}
        name = f"Benchmark of rebuild {time.time_ns()}"  # unique, so that no layer of an earlier run is reused
        project = bench.project(project_name=name, workflow="notebook", **answers)
        update = Update(project, bench.template())
        update.vendor()
        text = (project / "pyproject.toml").read_text(encoding="utf-8")
        base = os.environ.get("BASE_IMAGE") or update.before["image"]
        table = tomllib.loads(text)["project"]
        wanted = [*table["dependencies"], *table["optional-dependencies"]["dev"]]
        if bench.given.base == "ngc":  # the image includes torch, so neither installs it
            wanted = [one for one in wanted if not re.match(r"torch\b", one)]

        tag = run(project / "launch", "--dry-run", "run", "--", "true").split()[-2]
        ours = Kind(project, [project / "launch", "build"], tag)
        folder = bench.spare / "plain"
        folder.mkdir()
        plain = Kind(folder, ["docker", "build", "--tag=benchmark-plain", "."], "benchmark-plain")

        def require(extra: list[str]) -> None:
            added = "".join(f'    "{one}",\n' for one in extra)
            edited = text.replace("dependencies = [\n", "dependencies = [\n" + added, 1)
            (project / "pyproject.toml").write_text(edited, encoding="utf-8")
            packages = " ".join(f"'{one}'" for one in [*wanted, *extra])
            recipe = PLAIN.format(base=base, name=name.split()[-1], packages=packages)
            (folder / "Dockerfile").write_text(recipe, encoding="utf-8")

        try:
            require([])
            say("building both completely ...")
            whole = {kind: kind.build() for kind in (plain, ours)}
            before = {kind: layers(kind.image) for kind in (plain, ours)}
            for package in PACKAGES[: bench.rounds]:
                require([package])
                for kind in (plain, ours):
                    kind.rebuild(package, before[kind])
                say(f"{package}: {plain.seconds[-1]:.1f} {ours.seconds[-1]:.1f}")
            for number in range(1, bench.rounds + 1):
                update.measure(ours, number)
        finally:
            run("docker", "image", "rm", "--force", tag, "benchmark-plain")

        bench.figure("plain Dockerfile, one more package", plain.seconds)
        bench.figure("`./launch build`, one more package", ours.seconds)
        for what, seconds in update.seconds.items():
            bench.figure(f"`./launch build`, {what}", seconds)
        bench.result("`./launch build` / plain Dockerfile", ratio(ours.seconds, plain.seconds), "times", at_most=0.33)
        stored = statistics.median(ours.new_bytes) / 1e6
        bench.result("stored in addition to the package", stored, "MB", at_most=50, digits=3)
        cached = statistics.median(update.seconds["nothing changed"])
        for what in UPDATES:
            added = statistics.median(update.seconds[what]) - cached
            bench.result(f"{what}, time added to a cached build", added, "s", at_most=10)
        most = max(max(update.new_bytes[what]) for what in UPDATES) / 1e6
        bench.result("stored after an update, at most", most, "MB", at_most=10, digits=3)
        bench.notes = [
            "The plain Dockerfile installs the same packages on the same base in one `RUN` line. It stores "
            f"{statistics.median(plain.new_bytes) / 1e6:.0f} MB again in addition to the package.",
            f"New layers: {statistics.median(ours.new_layers):g} with `./launch build`, "
            f"{statistics.median(plain.new_layers):g} with the plain Dockerfile.",
            f"Complete build with warm package caches: {whole[ours]:.0f} s with `./launch build`, "
            f"{whole[plain]:.0f} s with the plain Dockerfile.",
            f"{len(wanted)} packages (`use_case={bench.given.use_case}`, `workflow=notebook`) on `{bench.given.base}`"
            f" ({base}).",
        ]


if __name__ == "__main__":
    main()
