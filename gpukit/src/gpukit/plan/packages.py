"""The project's packages on a target: what would be installed, and what has no wheel there."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import asdict, fields, replace
from datetime import date
from pathlib import Path

from gpukit.findings.finding import Finding, count, map_texts, passed, problem, skipped, unknown
from gpukit.host import uv
from gpukit.host.cards import data
from gpukit.image.guard import TORCH, normalised
from gpukit.plan import cache
from gpukit.plan.index import PRE_RELEASE, Platform
from gpukit.plan.resolve import Answer, Package, Question, resolve
from gpukit.project.location import is_adopted
from gpukit.project.messages import RefusalError, plain
from gpukit.project.pyproject import NAME
from gpukit.project.stack import Stack, Target, version

GLIBC = {"container": (2, 39), "native": (2, 28)}  # Ubuntu 24.04's, the oldest of the bases; natively PyTorch's wheels'
OLD_DAYS = 365
CAUSES = (
    "torch-not-in-index",
    "requirements-conflict",
    "requires-other-torch",
    "project-requires-other-torch",
    "package-not-found",
    "package-for-other-python",
    "package-not-for-this-cpu",
    "package-from-source",
    "package-needs-torch-to-build",
    "package-not-in-index",
    "package-fell-back",
    "package-held-back",
    "package-withdrawn",
)


def indexes(folder: Path) -> tuple[str, ...]:
    """The addresses of the indexes that uv uses for a project, in the order in which it asks them.

    What an adopted repository tells uv is not read, as in the image.
    """
    folder = Path(folder.resolve().anchor) if is_adopted(folder) else folder
    command = [uv.program(), "pip", "compile", "--emit-index-url", "--no-header", "--quiet", "--offline", "-"]
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run(command, cwd=folder, env=environment, input="", capture_output=True, text=True)
    others = re.findall(r"(?m)^--extra-index-url (\S+)", done.stdout)
    default = re.findall(r"(?m)^--index-url (\S+)", done.stdout)
    if done.returncode or not default:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise RefusalError(f"uv does not tell its indexes: {plain(last)}", id="uv-fails")
    return (*others, *default)


def question(stack: Stack, target: Target, requirements: list[str], folder: Path, native: bool = False) -> Question:
    """What a build for this target would install."""
    known = data("stacks")
    base = "wheel" if native else stack.base
    brings = set(known["brings"].get(base, ())) - {"jupyterlab", "tensorboard"}  # which can be replaced
    names = {line: normalised(found[0]) if (found := re.match(NAME, line.strip())) else "" for line in requirements}
    numpy = known["releases"].get(base, {}).get(stack.release, {}).get("numpy", "") if "numpy" in brings else ""
    provided = dict.fromkeys(brings - {"numpy"}, "")
    if "torch" in provided:
        provided["torch"] = stack.torch
    torch = [line for line, name in names.items() if name == "torch" or (name in TORCH and name not in provided)]
    release = version(stack.torch)
    requirement = f"torch>={release[0]}.{release[1]},<{release[0]}.{release[1] + 1}"
    index = os.environ.get("UV_INDEX", "").split(" ")[0].rpartition("=")[2] or pytorch_index(stack, target)
    return Question(
        Platform(target.arch, version(stack.python)[:2], GLIBC["native" if native else "container"]),
        tuple(line for line, name in names.items() if name not in TORCH),
        tuple(dict.fromkeys([*torch, "torch" if "torch" in provided else requirement])),
        index,
        stack.torch,
        provided,
        (f"numpy{numpy}",) if numpy else (),
        indexes(folder),
    )


def pytorch_index(stack: Stack, target: Target) -> str:
    """PyTorch's index for the build that the stack names: the suffix of its torch, as in 2.14.1+cu130."""
    own = stack.native.get("index", "")
    backend = stack.torch.partition("+")[2] if target.capability else "cpu"
    return re.sub(r"[^/]+$", backend, own) if re.fullmatch(r"cu\d+|cpu", backend) else own


def answer(question: Question, refresh: bool, received: dict[object, object]) -> tuple[Answer, float]:
    known = [each.name for kind in (Package, Answer) for each in fields(kind)]  # to the version that asks
    inputs = {**asdict(question), "fields": known}
    found, asked = cache.kept("packages", inputs, lambda: resolve(question, received).to_json(), refresh)
    return Answer.from_json(found), asked


def judge(answer: Answer, question: Question) -> list[Finding]:
    """One finding about all packages, and one for each that would not be installed as the project expects."""
    platform = str(question.platform)
    own = [(name, package) for name, package in answer.packages.items() if package.kind != "base"]
    found: list[Finding] = []
    causes = dict.fromkeys(data("stacks")["torch_to_build"], "package-needs-torch-to-build")
    for name, package in own:
        facts = {"package": name, "version": package.version, "newest": package.newest, "platform": platform}
        facts["named"] = package.required_by or name
        seen = f"{package.version}, {package.kind}"
        if package.kind == "none" or (answer.error and package.newest_kind == "none"):
            found.append(_of(name, problem("package-not-for-this-cpu", seen, "a wheel", **facts)))
        elif package.kind == "source" and name in causes:
            found.append(_of(name, problem(causes[name], package.file or seen, "a wheel", **facts)))
        elif held_back(package):
            date = f" of {package.uploaded}" if package.uploaded else ""
            found.append(_of(name, problem("package-held-back", seen, package.newest, date=date, **facts)))
        elif package.kind == "source":
            found.append(_of(name, problem("package-from-source", package.file or seen, "a wheel", **facts)))
        elif package.newest and package.newest != package.version and package.newest_kind == "none":
            what = (
                "a pre-release"
                if PRE_RELEASE.search(package.version)
                else f"of {package.uploaded or 'an earlier date'}"
            )
            found.append(_of(name, problem("package-fell-back", seen, package.newest, what=what, **facts)))
        if package.yanked and not answer.error:
            found.append(_of(name, problem("package-withdrawn", seen, **facts)))
        if package.required_by:
            by = f", required by {package.required_by}"
            found = [replace(each, seen=each.seen + by) if each.title == name else each for each in found]
    for line in answer.unfetched:
        name = (re.match(NAME, line) or [line])[0]
        finding = skipped("requirement-not-looked-up", line=line)
        if normalised(name) in causes and ".whl" not in line:
            finding = problem(causes[normalised(name)], line, "a wheel", package=name, named=name, platform=platform)
        found.append(_of(name, finding))
    for name in answer.absent:
        found.append(_of(name, problem("package-not-in-index", name, "a wheel", package=name, named=name)))
    for name in answer.unread:
        found.append(_of(name, skipped("requirements-unknown")))
    if answer.without_pytorch:
        unasked = unknown("pytorch-index-not-asked", reason=answer.without_pytorch)
        found.append(replace(unasked, id="pytorch-index", title="PyTorch's index"))
    without_file = [each.title for each in found if each.cause_id == "package-not-for-this-cpu"]
    return [_overall(answer, question, own, without_file), *found]


def _overall(answer: Answer, question: Question, own: list, without_file: list[str]) -> Finding:
    if answer.error and without_file:
        finding = skipped("needs-uninstallable", packages=", ".join(without_file))
    elif answer.error:
        finding = _unresolved(answer, question)
    else:
        size = sum(package.size for _, package in own)
        wheels = sum(package.kind == "wheel" for _, package in own)
        seen = f"{count(len(own), 'package')}, {wheels} as wheels, {size / 1e9:.1f} GB to download"
        finding = passed(seen)
    return map_texts(replace(finding, id="packages", title="Packages"), plain)


def _unresolved(answer: Answer, question: Question) -> Finding:
    text = re.sub(r"^.*?(?=Because )|\s*hint: .*$", "", plain(answer.error))
    if answer.without_torch:
        return problem("torch-not-in-index", text, reason=answer.without_torch)
    python = ".".join(map(str, question.platform.python))
    if missing := re.search(r"Because (\S+) was not found in the package registry", text):
        return problem("package-not-found", text, package=missing[1], python=python)
    if other := re.search(r"does not satisfy Python\S* and (\S+?)[=<>!~]\S* depends on Python", text):
        return problem("package-for-other-python", text, package=other[1], python=python)
    if "depend" not in text and re.search(r"you require torch[=<>!~]", text):
        return problem("project-requires-other-torch", text, torch=question.torch_version)
    if re.search(r"(?:depends? on|requires?) torch[=<>!~]", text):
        return problem("requires-other-torch", text, torch=question.torch_version)
    return problem("requirements-conflict", text)


def _of(name: str, finding: Finding) -> Finding:
    return map_texts(replace(finding, id=f"package-{name}", title=name), plain)


def held_back(package: Package) -> bool:
    """Whether it would be years old, or built from source, although the newest version could be installed."""
    if package.newest in ("", package.version) or package.newest_kind == "none":
        return False
    from_source = package.kind == "source" and package.newest_kind == "wheel"
    return from_source or days_between(package.uploaded, package.newest_uploaded) > OLD_DAYS


def days_between(older: str, newer: str) -> int:
    try:
        return (date.fromisoformat(newer) - date.fromisoformat(older)).days
    except ValueError:
        return 0
