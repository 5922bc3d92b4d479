"""What one more package costs: uv run python benchmarks/rebuild.py

`./launch build` after a line was added to pyproject.toml, beside `docker build` of a plain Dockerfile that installs the
same packages on the same base in one RUN line, as most guides write it. Both are built whole once, which does not
count; then, in each round, another package is added to both. BASE_IMAGE names the base, as in a project.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from measure import clone, figure, generate, machine, options, run, write

PACKAGES = [
    "einops",
    "humanize",
    "tabulate",
    "sortedcontainers",
    "more-itertools",
]  # small, and with nothing of their own
PLAIN = """\
FROM {base}
ENV PROJECT={name}
WORKDIR /workspace
RUN pip install --no-cache-dir {packages}
RUN python -m ipykernel install --user --name=project
EXPOSE 8888
CMD ["jupyter", "lab", "--ip=127.0.0.1", "--port=8888", "--no-browser"]
"""
SIZE = """
import importlib.metadata, sys
print(sum(file.locate().stat().st_size for file in importlib.metadata.files(sys.argv[1]) if file.locate().exists()))
"""


def layers(image: str) -> tuple[list[str], set[tuple[str, str, int]]]:
    """The digests of an image's layers, and what its history says of each: when, by what, how large."""
    digests = json.loads(run("docker", "image", "inspect", "--format={{json .RootFS.Layers}}", image))
    form = "--format={{json .CreatedAt}}\t{{json .CreatedBy}}\t{{.Size}}"
    lines = run("docker", "history", "--no-trunc", "--human=false", form, image).splitlines()
    rows = [line.split("\t") for line in lines]
    return digests, {(when, by, int(size)) for when, by, size in rows}


class Kind:
    """One of the two ways to build: its files, its command, what its rebuilds took and stored."""

    def __init__(self, folder: Path, command: list[str | Path], image: str) -> None:
        self.folder, self.command, self.image = folder, command, image
        self.seconds: list[float] = []
        self.new_bytes: list[int] = []
        self.new_layers: list[int] = []

    def build(self) -> float:
        begun = time.perf_counter()
        run(*self.command, cwd=self.folder)
        return time.perf_counter() - begun

    def rebuild(self, package: str, first: tuple[list[str], set[tuple[str, str, int]]]) -> None:
        self.seconds.append(self.build())
        digests, history = layers(self.image)
        size = int(run("docker", "run", "--rm", "--entrypoint=python", self.image, "-c", SIZE, package))
        self.new_bytes.append(sum(row[2] for row in history - first[1]) - size)
        self.new_layers.append(len(set(digests) - set(first[0])))


def main() -> None:
    given = options(__doc__, base="wheel", use_case="minimal", hardware="cpu")
    load = machine()["load"]
    with tempfile.TemporaryDirectory(prefix="benchmark-") as spare:
        template = clone(Path(spare) / "template")
        answers = {"hardware": given.hardware, "base": given.base, "use_case": given.use_case, "workflow": "notebook"}
        name = f"Benchmark of rebuild {time.time_ns()}"  # a new one, or the builder remembers the last run's layers
        project = generate(template, Path(spare) / "project", project_name=name, **answers)
        text = (project / "pyproject.toml").read_text(encoding="utf-8")
        stack = json.loads((project / "stack.json").read_text(encoding="utf-8"))
        table = tomllib.loads(text)["project"]
        wanted = [*table["dependencies"], *table["optional-dependencies"]["dev"]]
        with_torch = given.base == "ngc"  # the image has it, so both only leave it alone
        wanted = [one for one in wanted if not (with_torch and re.match(r"torch\b", one))]

        tag = run(project / "launch", "--dry-run", "run", "--", "true").split()[-2]
        ours = Kind(project, [project / "launch", "build"], tag)
        folder = Path(spare) / "plain"
        folder.mkdir()
        plain = Kind(folder, ["docker", "build", "--tag=benchmark-plain", "."], "benchmark-plain")

        def ask(extra: list[str]) -> None:
            added = "".join(f'    "{one}",\n' for one in extra)
            edited = text.replace("dependencies = [\n", "dependencies = [\n" + added, 1)
            (project / "pyproject.toml").write_text(edited, encoding="utf-8")
            packages = " ".join(f"'{one}'" for one in [*wanted, *extra])
            base = os.environ.get("BASE_IMAGE") or stack["image"]
            (folder / "Dockerfile").write_text(
                PLAIN.format(base=base, name=name.split()[-1], packages=packages), encoding="utf-8"
            )

        try:
            ask([])
            whole = {}
            for what, kind in ("plain", plain), ("ours", ours):
                print(f"building {what} whole ...", file=sys.stderr, flush=True)
                whole[what] = kind.build()
            before = {kind: layers(kind.image) for kind in (plain, ours)}
            for number, package in enumerate(PACKAGES[: given.times], 1):
                ask([package])
                for kind in (plain, ours):
                    kind.rebuild(package, before[kind])
                print(f"round {number}: {package} {plain.seconds[-1]:.1f} {ours.seconds[-1]:.1f}", file=sys.stderr)
        finally:
            run("docker", "image", "rm", "--force", tag, "benchmark-plain")
    plainly, here = statistics.median(plain.seconds), statistics.median(ours.seconds)
    megabytes = {kind: statistics.median(kind.new_bytes) / 1e6 for kind in (plain, ours)}
    write(
        "rebuild",
        load,
        engine=True,
        title="One more package",
        repeats=len(ours.seconds),
        figures=[figure("plain Dockerfile, rebuilt", plain.seconds), figure("`./launch build`, rebuilt", ours.seconds)],
        results=[
            {
                "what": "`./launch build` / plain Dockerfile",
                "value": round(here / plainly, 2),
                "unit": "times",
                "at_most": 0.33,
            },
            {"what": "new bytes beyond the package", "value": round(megabytes[ours], 3), "unit": "MB", "at_most": 50},
        ],
        notes=[
            f"The plain Dockerfile stores {megabytes[plain]:.0f} MB anew beside the package.",
            f"New layers: {statistics.median(ours.new_layers):g} here, {statistics.median(plain.new_layers):g} there.",
            f"Built whole, with warm caches of the machine: {whole['ours']:.0f} s here, {whole['plain']:.0f} s there.",
            f"{len(wanted)} packages asked for (`use_case={given.use_case}`, `workflow=notebook`), on `{given.base}`"
            f" ({os.environ.get('BASE_IMAGE') or stack['image']}).",
        ],
    )


if __name__ == "__main__":
    main()
