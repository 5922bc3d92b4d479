"""`add`: refuse what plan knows cannot be built here, before anything is built; then install it."""

from __future__ import annotations

from dataclasses import replace

from gpukit.findings.checks import status_line
from gpukit.host import stacks
from gpukit.host.project import Project
from gpukit.launch import add as adding
from gpukit.launch import native as without_docker
from gpukit.launch.environment import machine
from gpukit.plan import main as plan
from gpukit.plan import packages as planned
from gpukit.project.messages import RefusalError, say
from gpukit.project.stack import StackError, load

# uv reports all else as well as plan does.
REFUSED = ("package-needs-torch-to-build", "flash-attn-to-build", "package-not-for-this-cpu")


def add(project: Project, packages: list[str], native: bool) -> int:
    def judge(new: list[str]) -> None:
        with status_line() as show:
            show(f"Looking for wheels of {', '.join(new)}")
            try:
                findings = look(project, new, native)
            except (RefusalError, StackError):  # no uv on this host, or an index that does not respond
                return
        for finding in findings:
            if finding.cause_id in REFUSED:
                sentence = f"{', '.join(new)} cannot be added: {finding.cause} {finding.remedy}"
                raise RefusalError(sentence, kind="uv", id=finding.cause_id)
        for finding in findings:
            if finding.cause_id == "package-from-source":
                say(f"{finding.title} has no wheel for this machine, so it is built from source, which can take long.")

    names = [package.strip() for package in packages]
    return without_docker.add(project, names, judge) if native else adding.add(project, names, judge)


def look(project: Project, packages: list[str], native: bool) -> list[planned.Finding]:
    """What plan finds about these packages and all that they need, on a machine like this one."""
    stack = stacks.natively(load(project.root / "stack.json")) if native else load(project.root / "stack.json")
    targets = list(stack.targets.values())
    target = next((each for each in targets if each.arch == machine()), replace(targets[0], arch=machine()))
    if project.gpus is None:
        target = replace(target, capability=None)
    question = planned.question(stack, target, packages, project.root, native)
    answer, _ = planned.answer(question, refresh=False, received={})
    return [plan.finish(finding, stack, native) for finding in planned.judge(answer, question)]
