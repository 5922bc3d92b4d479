"""`plan` for packages with their own code for GPUs: which of it runs on the target, from the facts in the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpukit.findings.finding import Finding, passed, problem
from gpukit.host.cards import data
from gpukit.host.kernels import runs
from gpukit.plan.prove import Code, nearest
from gpukit.project.stack import version

ALL_BELOW = "10.0"  # every Triton that we have facts about compiles for older GPUs
CAUSES = ("kernels-for-other-cuda", "kernels-not-for-capability", "kernels-only-ptx", "triton-not-for-capability")
TRANSFORMER_ENGINE = ("transformer-engine", "transformer-engine-torch")


def kernels(
    packages: Mapping[str, str], capability: str, arch: str, cuda: str, required_by: Mapping[str, str] | None = None
) -> list[Finding]:
    """Findings about the packages with code for GPUs that the target will have: versions by normalized name.

    `required_by`: which packages that the project names lead to those that it does not name.

    Nothing is said of releases older than the one that was examined. A version with a local part, such as
    0.0.35+cu130, is another build.
    """
    if not capability:
        return []
    known = data("kernels")
    found = []
    for package, facts in known["packages"].items():
        libraries = facts.get(arch)
        installed = packages.get(package, "")
        if libraries and "+" not in installed and version(installed) >= version(facts["version"]):
            named = (required_by or {}).get(package) or package
            judged = _judged(package, installed, facts, libraries, capability, cuda, named)
            found.append(replace(judged, id=f"runs-{package}", title=f"Kernels of {package}"))
    triton = packages.get("triton", "")
    since = [each for each in known["triton"] if version(each) <= version(triton)]
    if since and "+" not in triton:
        judged = _triton(triton, known["triton"][max(since, key=version)], capability)
        found.append(replace(judged, id="runs-triton", title="Triton's compiler"))
    if any(name in packages for name in TRANSFORMER_ENGINE):
        judged = passed(f"recipes on {capability} with CUDA {cuda}: {_recipes(known['recipes'], capability, cuda)}")
        found.append(replace(judged, id="runs-transformer-engine", title="Transformer Engine"))
    return found


def _judged(
    package: str,
    installed: str,
    facts: dict[str, Any],
    libraries: dict[str, list[str]],
    capability: str,
    cuda: str,
    named: str,
) -> Finding:
    names = {"package": package, "version": installed, "capability": capability, "cuda": cuda, "named": named}
    library = nearest(cuda, libraries)
    sass = tuple(libraries.get(library, ()))
    ptx = tuple(facts.get("ptx", ()))
    kind = runs(capability, sass, ptx) if library else None
    seen = f"{package} {facts['version']} has {Code(sass, ptx)}" if library else f"for CUDA {', '.join(libraries)}"
    optional = facts.get("optional", False)
    if kind == "sass" or (kind and optional):
        return passed(f"{seen}, which runs on {capability}")
    if optional:
        return passed(f"{seen}: none of it runs on {capability} with CUDA {cuda}. Only functions that need it fail.")
    if not library:
        return problem("kernels-for-other-cuda", seen, f"CUDA {cuda}", built=" and ".join(libraries), **names)
    id = "kernels-only-ptx" if kind else "kernels-not-for-capability"
    return problem(id, seen, f"code for {capability}", **names)


def _triton(installed: str, compiles: list[str], capability: str) -> Finding:
    if version(capability) < version(ALL_BELOW) or capability in compiles:
        return passed(f"triton {installed} compiles for {capability}")
    seen = f"of {ALL_BELOW} and newer, triton {installed} compiles for {', '.join(compiles) or 'none'}"
    return problem("triton-not-for-capability", seen, capability, version=installed, capability=capability)


def _recipes(known: list[dict[str, str]], capability: str, cuda: str) -> str:
    """The low-precision recipes that Transformer Engine accepts there."""
    own = version(capability)
    found = []
    for each in known:
        above = each["below"] and own >= version(each["below"])
        if own >= version(each["from"]) and not above and version(cuda) >= version(each["cuda"]):
            partial = each["partial"] and own >= version(each["partial"])
            found.append(f"{each['recipe']} (partial: {each['why']})" if partial else each["recipe"])
    return ", ".join(found) or "none"
