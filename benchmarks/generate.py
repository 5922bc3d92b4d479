"""CPU time of `copier copy` relative to `copier --help`, which only imports Copier.

uv run python benchmarks/generate.py

The worst case counts: the slowest of a project with everything that can be answered at once, the examples, which have
all three bases, and one with the defaults. CPU time is the user and system time of all processes. The template is a
clean clone in a local folder with a release tag, so the network does not matter. Copier's bytecode is cached, as from a
user's second run on. A template with the same files and without Jinja shows Copier's own share.
"""

from __future__ import annotations

import os
import shutil
import statistics
from pathlib import Path

import yaml
from harness import ROOT, Benchmark, children, commit, copier, in_turn, ratio, run

EVERYTHING = {
    "hardware": "rtx-40",
    "also_on": ["h100", "a100", "rtx-30"],
    "workflow": "notebook",
    "use_case": "llm",
    "tracking": ["mlflow", "tensorboard", "wandb"],
    "credentials": ["aws"],
    "cluster": ["slurm", "skypilot"],
    "services": ["jobs"],
    "base": "ngc",
}


def plain_template(project: Path, folder: Path) -> Path:
    """A template with the files of `project` and without questions."""
    shutil.copytree(project, folder / "template", ignore=shutil.ignore_patterns(".copier-answers.yml"))
    (folder / "copier.yml").write_text("_subdirectory: template\n", encoding="utf-8")
    commit(folder)
    run("git", "tag", "v1.0.0", cwd=folder)
    return folder


def main() -> None:
    with Benchmark("Generating a project", __doc__, rounds=9) as bench:
        project = bench.spare / "project"
        ours = ("GPU_TEMPLATE_", "PYTHONDONTWRITEBYTECODE")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(ours)}

        def copy(source: Path, *flags: str | Path, smoke: str = "off") -> None:
            shutil.rmtree(project, ignore_errors=True)
            env = {**environment, "GPU_TEMPLATE_SMOKE": smoke}
            copier("copy", "--trust", "--defaults", "--quiet", *flags, source, project, env=env)

        template = bench.template()
        everything = bench.spare / "everything.yml"
        everything.write_text(yaml.safe_dump(EVERYTHING), encoding="utf-8")
        answers = {"everything": everything}
        for file in sorted((ROOT / "examples").glob("*.yml")):
            answers[f"example `{file.stem}`"] = file
        defaults = bench.spare / "defaults.yml"
        defaults.write_text("{}\n", encoding="utf-8")
        answers["defaults"] = defaults
        copy(template, "-T", "--data-file", everything)
        files = sum(path.is_file() for path in project.rglob("*"))
        plain = plain_template(project, bench.spare / "plain")

        steps = {"help": lambda: copier("--help", env=environment), "plain": lambda: copy(plain)}
        for name, file in answers.items():
            steps[f"{name}, -T"] = lambda file=file: copy(template, "-T", "--data-file", file)
            steps[name] = lambda file=file: copy(template, "--data-file", file)
        steps["smoke"] = lambda: copy(template, "--data-file", everything, smoke="auto")
        seconds = in_turn(steps, bench.rounds, children)

        bench.columns = ["answers", "`copier copy -T`", "with wheel and validation", "relative to `copier --help`"]
        for name in answers:
            bare = statistics.median(seconds[f"{name}, -T"])
            whole = statistics.median(seconds[name])
            times = f"{ratio(seconds[f'{name}, -T'], seconds['help']):.2f}, {ratio(seconds[name], seconds['help']):.2f}"
            bench.row(name, f"{bare:.2f} s", f"{whole:.2f} s", times)
        floor = seconds["help"]
        whole = max(ratio(seconds[name], floor) for name in answers)
        bare = max(ratio(seconds[f"{name}, -T"], floor) for name in answers)
        bench.result("slowest, with wheel and validation / `copier --help`", whole, "times", at_most=1.7)
        bench.result("slowest, with `-T` / `copier --help`", bare, "times", at_most=1.45)
        bench.figure("`copier --help`", floor)
        bench.figure(f"a template of {files} files without Jinja", seconds["plain"])
        bench.figure("everything, with wheel, validation, and smoke", seconds["smoke"])
        hooks = statistics.median(seconds["everything"]) - statistics.median(seconds["everything, -T"])
        smoke = statistics.median(seconds["smoke"]) - statistics.median(seconds["everything"])
        bench.notes = [
            f"CPU time (user and system). The project with everything has {files} files, not counting the wheel: a "
            "notebook project for language models on four machines, with every service, cluster, and credential.",
            f"Any template of {files} files takes {ratio(seconds['plain'], floor):.2f} times as long as "
            "`copier --help`, because Copier starts git for each file.",
            f"The hooks take {hooks:.2f} s. `smoke` adds {smoke:.2f} s, here without the base image.",
        ]


if __name__ == "__main__":
    main()
