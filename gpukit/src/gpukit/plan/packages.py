"""The project's packages on a target: what would be installed, and what has no wheel there."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import asdict, fields, replace
from datetime import date
from pathlib import Path

from gpukit.findings.finding import WARN, Cause, Finding, count, map_texts, passed, skipped
from gpukit.host import uv
from gpukit.host.cards import data
from gpukit.image.guard import TORCH, normalised
from gpukit.plan import cache
from gpukit.plan.index import Platform
from gpukit.plan.resolve import PRE_RELEASE, Answer, Package, Question, resolve
from gpukit.project.messages import RefusalError, plain
from gpukit.project.pyproject import NAME
from gpukit.project.stack import Stack, Target, version

GLIBC = {"container": (2, 39), "native": (2, 28)}  # Ubuntu 24.04's, the oldest of the bases; natively PyTorch's wheels'
OLD_DAYS = 365
CONFLICT = Cause(
    "requirements-conflict",
    "The project's requirements cannot all be met.",
    "Change one of these requirements in pyproject.toml.",
    ("No solution found when resolving dependencies", "ResolutionImpossible"),
)
TORCH_CONFLICT = Cause(
    "requires-other-torch",
    "A package requires another PyTorch than this base's {torch}.",
    "Use a release of that package for this PyTorch, or install it in an image of its own.",
)
OWN_TORCH = Cause(
    "project-requires-other-torch",
    "pyproject.toml requires another PyTorch than this base's {torch}.",
    "In pyproject.toml, require `torch` without a version: the base determines it.",
)
NOT_FOUND = Cause(
    "package-not-found",
    "No index has a package named {package}.",
    "Correct its name in pyproject.toml, or name its index: `UV_INDEX=NAME=URL`",
)
OTHER_PYTHON = Cause(
    "package-for-other-python",
    "{package} has no release for Python {python}.",
    "Allow another release of {package} in pyproject.toml, one that supports Python {python}.",
)
NO_FILE = Cause(
    "package-not-for-this-cpu",
    "{package} {version} has neither a wheel for {platform} nor a source archive.",
    "Require a release of {package} that has one, or do without {named}.",
)
FROM_SOURCE = Cause(
    "package-from-source",
    "{package} {version} has no wheel for {platform}: the image builds it from source, which can take long, and fails "
    "without the compilers and libraries that it needs.",
    "Add to apt.txt what its build needs, such as build-essential, or remove {named} from pyproject.toml.",
    status=WARN,
    standalone="Install what its build needs, such as a C compiler, or remove {named} from pyproject.toml.",
)
TORCH_TO_BUILD = Cause(
    "package-needs-torch-to-build",
    "{package} would be built from source for {platform}, and its build needs PyTorch and CUDA's compiler.",
    "Require a wheel that its authors built for this PyTorch, `{package} @ URL`, or do without {named}.",
)
FLASH_ATTN = Cause(
    "flash-attn-to-build",
    TORCH_TO_BUILD.why,
    "Use `scaled_dot_product_attention`, which is in PyTorch, or NVIDIA's image, the base `ngc`, which has flash-attn.",
)
FELL_BACK = Cause(
    "package-fell-back",
    "{package} {newest} has no wheel for {platform}: {version}, {what}, would be installed instead.",
    "Require a release of {package} that has a wheel there, or remove {named} from pyproject.toml.",
    status=WARN,
)
HELD_BACK = Cause(
    "package-held-back",
    "{package} would be {version}{date}, although {newest} is allowed: another requirement holds it back.",
    "Require {package}>={newest} in pyproject.toml: `./launch plan` then names the requirement in the way.",
    status=WARN,
)
YANKED = Cause(
    "package-withdrawn",
    "{package} {version} was withdrawn by its authors.",
    "Allow another release of {package} in pyproject.toml.",
    status=WARN,
)
CAUSES = (
    CONFLICT,
    TORCH_CONFLICT,
    OWN_TORCH,
    NOT_FOUND,
    OTHER_PYTHON,
    NO_FILE,
    FROM_SOURCE,
    TORCH_TO_BUILD,
    FLASH_ATTN,
    FELL_BACK,
    HELD_BACK,
    YANKED,
)


def indexes(folder: Path) -> tuple[str, ...]:
    """The addresses of the indexes that uv uses in a folder, in the order in which it asks them."""
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
    inputs = {**asdict(question), "fields": [each.name for each in fields(Package)]}  # of the version that asks
    found, asked = cache.kept("packages", inputs, lambda: resolve(question, received).to_json(), refresh)
    return Answer.from_json(found), asked


def judge(answer: Answer, question: Question) -> list[Finding]:
    """One finding about all packages, and one for each that would not be installed as the project expects."""
    platform = str(question.platform)
    own = [(name, package) for name, package in answer.packages.items() if package.kind != "base"]
    found: list[Finding] = []
    causes = {**dict.fromkeys(data("stacks")["torch_to_build"], TORCH_TO_BUILD), "flash-attn": FLASH_ATTN}
    for name, package in own:
        facts = {"package": name, "version": package.version, "newest": package.newest, "platform": platform}
        facts["named"] = package.required_by or name
        seen = f"{package.version}, {package.kind}"
        if package.kind == "none" or (answer.error and package.newest_kind == "none"):
            found.append(_of(name, NO_FILE(seen, "a wheel", **facts)))
        elif package.kind == "source" and name in causes:
            found.append(_of(name, causes[name](package.file or seen, "a wheel", **facts)))
        elif held_back(package):
            date = f" of {package.uploaded}" if package.uploaded else ""
            found.append(_of(name, HELD_BACK(seen, package.newest, date=date, **facts)))
        elif package.kind == "source":
            found.append(_of(name, FROM_SOURCE(package.file or seen, "a wheel", **facts)))
        elif package.newest and package.newest != package.version and package.newest_kind == "none":
            what = (
                "a pre-release"
                if PRE_RELEASE.search(package.version)
                else f"of {package.uploaded or 'an earlier date'}"
            )
            found.append(_of(name, FELL_BACK(seen, package.newest, what=what, **facts)))
        if package.yanked and not answer.error:
            found.append(_of(name, YANKED(seen, **facts)))
        if package.required_by:
            found = [_required_by(each, package) if each.title == name else each for each in found]
    for line in answer.unfetched:
        name = (re.match(NAME, line) or [line])[0]
        finding = skipped(f"`{line}` is not looked up: its requirements are known only after a download.")
        if normalised(name) in causes and ".whl" not in line:
            finding = causes[normalised(name)](line, "a wheel", package=name, named=name, platform=platform)
        found.append(_of(name, finding))
    for name in answer.unread:
        found.append(_of(name, skipped("The index does not tell what this package requires before it is downloaded.")))
    if answer.without_pytorch:
        reason = f"{answer.without_pytorch} The other packages were resolved with the package index's torch."
        unasked = replace(skipped(reason, remedy="`./launch plan --refresh`"), completed=False)
        found.append(replace(unasked, id="pytorch-index", title="PyTorch's index"))
    without_file = [each.title for each in found if each.cause_id == NO_FILE.id]
    return [_overall(answer, question, own, without_file), *found]


def _overall(answer: Answer, question: Question, own: list, without_file: list[str]) -> Finding:
    if answer.error and without_file:
        finding = skipped(f"This depends on {', '.join(without_file)}, which cannot be installed.")
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
    python = ".".join(map(str, question.platform.python))
    if missing := re.search(r"Because (\S+) was not found in the package registry", text):
        return NOT_FOUND(text, package=missing[1])
    if other := re.search(r"does not satisfy Python\S* and (\S+?)[=<>!~]\S* depends on Python", text):
        return OTHER_PYTHON(text, package=other[1], python=python)
    if "depend" not in text and re.search(r"you require torch[=<>!~]", text):
        return OWN_TORCH(text, torch=question.torch_version)
    if re.search(r"(?:depends? on|requires?) torch[=<>!~]", text):
        return TORCH_CONFLICT(text, torch=question.torch_version)
    return CONFLICT(text)


def _required_by(finding: Finding, package: Package) -> Finding:
    return replace(finding, seen=f"{finding.seen}, required by {package.required_by}")


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
