"""`./launch try`: train the project's example for about a minute, with the best that this machine has.

It is the only command that chooses by itself where a program runs, and it says what it chose and why.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gpukit.host import facts, uv
from gpukit.host.engine import Engine
from gpukit.host.preflight import refusal
from gpukit.host.project import Project
from gpukit.host.refusals import lacks_gpu
from gpukit.launch import container, native
from gpukit.launch.environment import Environment
from gpukit.project.location import is_adopted
from gpukit.project.messages import RefusalError, announced, say

MINUTES = 1  # of training, at most; as said in `Way`
ANSWER = 5.0  # seconds for each answer of the engine
INTERRUPTED = 130, 143  # the exit status after Ctrl-C, and when it was terminated
# of the plot
WIDTH = 60
HEIGHT = 10


class Way(NamedTuple):
    """A way to train on this machine; `why`: what rules out a better one."""

    project: Project
    native: bool
    why: tuple[str, ...]

    def __str__(self) -> str:
        why = "; ".join(self.why) or "as requested"
        place = "natively" if self.native else "in a container"
        device = "GPU" if self.gpu else "CPU"
        return f"{why[0].upper()}{why[1:]}: training {place}, on the {device}, for at most a minute."

    @property
    def gpu(self) -> bool:
        return self.project.gpus is not None

    @property
    def launch(self) -> str:
        """How other commands do the same."""
        return "./launch" + " --native" * self.native + " --cpu" * self.project.cpu

    def train(self, command: list[str]) -> int:
        """The exit status of the training. Raises RefusalError if it cannot start."""
        if self.native:
            return native.run_and_return(self.project, command)
        return container.run(self.project, command, trial=True)


def first_run(root: Path, cpu: bool, gpus: str, only_native: bool, dry: bool) -> int:
    """Train in the first of the ways that works."""
    here = Path.cwd()  # before a native run changes it
    best = Project(root, os.environ, cpu, gpus)
    best.refuse_another_gpukit()
    package = best.stack["package"]
    if not (root / "src" / package / "train.py").is_file() or is_adopted(root):
        example = f"no src/{package}/train.py" if not is_adopted(root) else "no example of ours in this repository"
        raise RefusalError(f"There is {example} to try: run your program with `./launch run -- ...`.")
    if Path("/etc/gpukit").is_dir():
        raise RefusalError(f"This is the inside of the container: run `python -m {package}.train`.")
    name = time.strftime("try-%Y%m%d-%H%M%S")
    options = [f"--name={name}", f"--max-minutes={MINUTES}", *best.stack.get("trial", [])]
    command = ["python", "-m", f"{package}.train", *options]
    failed: RefusalError | None = None
    for way in ways(best, Project(root, os.environ, cpu=True), only_native):
        if failed:
            say(str(failed))
            way = way._replace(why=("since that failed",))
        say(str(way))
        way.project.dry = way.project.engine.dry = dry
        try:
            code = way.train(command)
        except RefusalError as refused:
            failed = refused
            continue
        if code in INTERRUPTED:
            resume = f"{way.launch} run -- {shlex.join(command)}"
            say(f"Interrupted. To resume this run: `{resume}`; `./launch try` starts a new one.")
        elif code:
            remedy = "`./launch explain` lists likely causes of a message that is pasted into it"
            raise RefusalError(f"Training failed with exit status {code}, for the reason above: {remedy}.", code)
        elif not dry:
            report(way, package, root / "outputs" / name, here)
        return code
    assert failed
    raise failed


def ways(best: Project, without: Project, only_native: bool) -> Iterator[Way]:
    """The ways to train here, the best first. Raises RefusalError if there is none."""
    why: list[str] = []
    docker = not only_native
    if docker and (problem := of_engine(best)):
        docker = False
        why.append(problem)
    if best.gpus == "":
        why.append("GPUS names no GPU, as `GPUS=0 ./launch try` does")
    elif best.gpus is not None:
        refused = of_gpu(best) if docker else None
        docker = docker and not (refused and refused.kind == "engine")
        if docker and not refused:
            yield Way(best, False, (*why, "Docker grants the GPU"))
        problem = of_driver(best)
        if not problem:
            yield Way(best, True, (*why, *([reason(refused)] if refused else []), "there is a GPU"))
        none = lacks_gpu(refused) if refused else facts.no_gpu()
        why.append("no NVIDIA GPU here" if none else reason(refused) if refused else problem)
    if docker:
        yield Way(without, False, tuple(why))
    if not uv.find(best.env):
        if docker:
            return  # why the container failed helps more than how to install uv
        if not only_native:
            say(f"{why[0][0].upper()}{why[0][1:]}. Without a container, uv is needed.")
    uv.program(best.env)
    yield Way(without, True, tuple(why))


def of_engine(project: Project) -> str:
    """Why no container can be started here, as far as that is known before; "" if nothing is known."""
    try:
        with announced("Waiting for Docker ..."):
            Engine(project.env).check(ANSWER)
    except RefusalError as refused:
        return reason(refused)
    return ""


def of_gpu(project: Project) -> RefusalError | None:
    """Why no container can be started here with the GPU."""
    try:
        with announced("Asking Docker for the GPU ..."):
            return refusal(project)
    except RefusalError as refused:  # it did not respond
        return refused


def of_driver(project: Project) -> str:
    """Why this machine's GPU cannot be used without a container; "" if it can."""
    try:
        uv.program(project.env)
        native.gpu_serves(Environment(project), facts.driver(), facts.jetson_release())
    except RefusalError as refused:
        return reason(refused)
    return ""


def reason(refused: RefusalError) -> str:
    """What a refusal says before its remedy."""
    return str(refused).partition(": ")[0].partition(". ")[0].rstrip(".")


def report(way: Way, package: str, run: Path, here: Path) -> None:
    """The loss, its plot, and what to do next, for a user in the folder `here`."""
    rows = read(run / "metrics.jsonl")
    losses = [(row["step"], row["loss"]) for row in rows if is_number(row.get("loss"))]
    held_out = [(row["step"], row["held_out_loss"]) for row in rows if is_number(row.get("held_out_loss"))]
    if losses:
        on_held_out = f"; on held-out data: {held_out[-1][1]:.3g}" if held_out else ""
        first = losses[0]
        last = losses[-1]
        print(f"\nLoss: {first[1]:.3g} at step {first[0]}, {last[1]:.3g} at step {last[0]}{on_held_out}\n")
        print("\n".join(plot({"*": losses, "o": held_out})))
        print("\n  * training   o held-out data\n" if held_out else "")
    print(f"All of it is in {os.path.relpath(run, here)}.")
    if way.gpu and not seen_gpu(run):
        why = f"`{way.launch} verify` says why"
        print(f"The GPU was requested, but PyTorch found none and trained on the CPU: {why}.")
    further = f"{way.launch} run -- python -m {package}.train"
    if (way.project.root / "notebooks").is_dir():
        other = f"{way.launch} notebook"
        what = "JupyterLab, with notebooks/quickstart.ipynb"
    else:
        other = f"{way.launch} verify"
        what = "check everything that this project expects of this machine"
    print("\nNext:")
    if here != way.project.root:
        print(f"  cd {shlex.quote(os.path.relpath(way.project.root, here))}")
    print(f"  {further}   # a run of your own; the code is in src/{package}/")
    print(f"  {other.ljust(len(further))}   # {what}", flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl; those that cannot be read are left out."""
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        rows += [row] if isinstance(row, dict) and isinstance(row.get("step"), int) else []
    return rows


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def seen_gpu(run: Path) -> bool:
    """Whether PyTorch found a GPU; True if that is not known."""
    try:
        facts = json.loads((run / "run.json").read_text(encoding="utf-8"))
        return facts["starts"][-1]["versions"]["gpu"] is not None
    except (OSError, ValueError, LookupError, TypeError):
        return True


def plot(curves: dict[str, list[tuple[int, float]]]) -> list[str]:
    """Lines of text with these points; later curves are drawn over earlier ones."""
    points = [point for curve in curves.values() for point in curve]
    last = max(step for step, _ in points)
    low = min(value for _, value in points)
    high = max(value for _, value in points)
    rows = [[" "] * WIDTH for _ in range(HEIGHT)]
    for mark, curve in curves.items():
        for step, value in curve:
            across = round((WIDTH - 1) * step / last)
            down = round((HEIGHT - 1) * (high - value) / (high - low)) if high > low else HEIGHT - 1
            rows[down][across] = mark
    labels = [f"{high:.3g}", *[""] * (HEIGHT - 2), f"{low:.3g}"]
    lines = [f"{label:>9} |{''.join(row).rstrip()}" for label, row in zip(labels, rows)]
    return [*lines, f"{'':9} +{'-' * WIDTH}", f"{'':9}  0{f'step {last}':>{WIDTH - 1}}"]
