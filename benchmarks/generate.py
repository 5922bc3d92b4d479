"""CPU time of `copier copy` relative to `copier --help`, which only imports Copier.

uv run python benchmarks/generate.py

CPU time is the user and system time of all processes. The template is a clean clone in a local folder with a release
tag, so the network does not matter. Copier's bytecode is cached, as from a user's second run on. For comparison, a
template with the same number of files and without Jinja shows Copier's own share.
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
        ours = ("GPU_TEMPLATE_", "PYTHONDONTWRITEBYTECODE")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(ours)}

        def copy(*flags: str, smoke: str = "", source: Path = template) -> None:
            shutil.rmtree(project, ignore_errors=True)
            env = {**environment, **({"GPU_TEMPLATE_SMOKE": smoke} if smoke else {})}
            copier("copy", "--trust", "--defaults", "--quiet", *flags, source, project, env=env)

        copy("-T")
        files = sum(path.is_file() for path in project.rglob("*"))
        plain = plain_template(project, Path(spare) / "plain")
        steps = {
            "`copier --help`": lambda: copier("--help", env=environment),
            f"a template of {files} files without Jinja": lambda: copy(source=plain),
            "`copier copy -T`, without hooks": lambda: copy("-T"),
            "`copier copy`, with wheel and validation": lambda: copy(smoke="off"),
            "`copier copy`, with wheel, validation, and smoke": lambda: copy(),
        }
        seconds = side_by_side(steps, given.times, children)
    floor, least, bare, validated, whole = (statistics.median(one) for one in seconds.values())
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
            f"CPU time (user and system). The project has {files} files, not counting the wheel; all answers are "
            "defaults.",
            f"Any template of {files} files takes {least / floor:.2f} times as long as `copier --help`, because Copier "
            "starts git for each file.",
            f"The hooks take {validated - bare:.2f} s, half of which is the import of jsonschema. `smoke` adds "
            f"{whole - validated:.2f} s.",
        ],
    )


def plain_template(project: Path, folder: Path) -> Path:
    """A template with the files of `project` and without questions."""
    shutil.copytree(project, folder / "template", ignore=shutil.ignore_patterns(".copier-answers.yml"))
    (folder / "copier.yml").write_text("_subdirectory: template\n", encoding="utf-8")
    for command in (["init", "-q"], ["add", "-Af"], [*NOBODY, "commit", "-qm", "files"], ["tag", "v1.0.0"]):
        run("git", *command, cwd=folder)
    return folder


def ratio(what: str, seconds: float, floor: float, most: float) -> dict[str, object]:
    return {"what": what, "value": round(seconds / floor, 2), "unit": "times", "at_most": most}


if __name__ == "__main__":
    main()
