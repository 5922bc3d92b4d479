"""CPU time of `copier copy` relative to `copier --help`, which only imports Copier.

uv run python benchmarks/generate.py

CPU time is user and system time of all processes. The template is a clean, released clone in a local folder, so the
network does not count. Python's bytecode of Copier is cached, as from a user's second run on. A template of as many
files, all copied as they are, shows which part of it Copier needs for itself.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from pathlib import Path

from measure import children, clone, copier, figure, machine, options, run, side_by_side, write

NOBODY = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")


def main() -> None:
    given = options(__doc__)
    load = machine()["load"]
    with tempfile.TemporaryDirectory(prefix="benchmark-") as spare:
        template, project = clone(Path(spare) / "template"), Path(spare) / "project"
        output: dict[str, str] = {}
        ours = ("GPU_TEMPLATE_", "PYTHONDONTWRITEBYTECODE")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(ours)}

        def copy(what: str, *flags: str, smoke: str = "", source: Path = template) -> None:
            shutil.rmtree(project, ignore_errors=True)
            env = {**environment, **({"GPU_TEMPLATE_SMOKE": smoke} if smoke else {})}
            output[what] = copier("copy", "--trust", "--defaults", "--quiet", *flags, source, project, env=env)

        copy("bare", "-T")
        files = sum(path.is_file() for path in project.rglob("*"))
        plain = as_it_is(project, Path(spare) / "plain")
        steps = {
            "`copier --help`": lambda: copier("--help", env=environment),
            f"a template of {files} files without Jinja": lambda: copy("plain", source=plain),
            "`copier copy -T`, without hooks": lambda: copy("bare", "-T"),
            "`copier copy`, with wheel and validation": lambda: copy("validated", smoke="off"),
            "`copier copy`, with wheel, validation, and smoke": lambda: copy("whole"),
        }
        seconds = side_by_side(steps, given.times, children)
    floor, least, bare, validated, whole = (statistics.median(one) for one in seconds.values())
    smoke = next((line for line in output["whole"].splitlines() if line.startswith("smoke: ")), "nothing")
    write(
        "generate",
        load,
        engine=False,
        title="Generating a project",
        repeats=given.times,
        figures=[figure(what, one) for what, one in seconds.items()],
        results=[
            ratio("with wheel and validation / `copier --help`", validated, floor, 1.7),
            ratio("with `-T` / `copier --help`", bare, floor, 1.45),
        ],
        notes=[
            f"CPU time, user and system. {files} files without the wheel, all answers at their defaults.",
            f"With `-T`: {bare / floor:.2f} times, of which {least / floor:.2f} for any template of {files} files, "
            "since Copier starts git for each file.",
            f"Hooks take {validated - bare:.2f} s, of which importing jsonschema is half.",
            f"Smoke adds {whole - validated:.2f} s. It printed: {smoke.partition('. ')[0].rstrip('.')}",
        ],
    )


def as_it_is(project: Path, folder: Path) -> Path:
    """A template that has the project's files as its own, with no questions."""
    shutil.copytree(project, folder / "template", ignore=shutil.ignore_patterns(".copier-answers.yml"))
    (folder / "copier.yml").write_text("_subdirectory: template\n", encoding="utf-8")
    for command in (["init", "-q"], ["add", "-Af"], [*NOBODY, "commit", "-qm", "files"], ["tag", "v1.0.0"]):
        run("git", *command, cwd=folder)
    return folder


def ratio(what: str, seconds: float, floor: float, most: float) -> dict[str, object]:
    return {"what": what, "value": round(seconds / floor, 2), "unit": "times", "at_most": most}


if __name__ == "__main__":
    main()
