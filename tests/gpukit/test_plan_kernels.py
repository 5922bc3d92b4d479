"""`plan` for packages with their own code for GPUs, for all hardware of the catalogue."""

from __future__ import annotations

import pytest

from catalogue import document, support
from gpukit.findings.causes import PROJECT
from gpukit.findings.finding import FAIL, PASS, WARN, Finding, in_words
from gpukit.plan.kernels import kernels

PACKAGES = support.load("packages")
HARDWARE = {id: one for id, one in support.load("hardware")["hardware"].items() if one["capability"]}
BITSANDBYTES = PACKAGES["kernels"]["bitsandbytes"]
NEWEST = {name: facts["version"] for name, facts in PACKAGES["kernels"].items()}


def found(packages: dict[str, str], capability: str, cuda: str = "12.8", arch: str = "amd64") -> dict[str, Finding]:
    return {each.id: each for each in kernels(packages, capability, arch, cuda)}


def status(package: str, capability: str, cuda: str, arch: str = "amd64", version: str = "") -> tuple[str, str]:
    (finding,) = found({package: version or NEWEST[package]}, capability, cuda, arch).values()
    worded = in_words(finding, PROJECT)
    assert bool(worded.remedy) is (finding.status != PASS) and "{" not in worded.cause + worded.remedy
    return finding.status, finding.cause_id


@pytest.mark.parametrize("id", HARDWARE)
def test_no_alarm_for_what_the_catalogue_offers(id) -> None:
    """bitsandbytes, which `llm` installs, for all releases on offer; Triton, by the torch of the release."""
    machine = HARDWARE[id]
    for base, releases in support.load("images")["releases"].items():
        for name, release in releases.items():
            if not support.refused(release, [id], "llm"):
                given = {"bitsandbytes": BITSANDBYTES["version"]}
                every = kernels(given, machine["capability"], machine["arch"], release["cuda"])
                assert [each.status for each in every] == [PASS], (base, name)


@pytest.mark.parametrize(
    ("package", "capability", "cuda", "arch", "cause"),
    [
        ("bitsandbytes", "7.0", "12.8", "amd64", ""),
        ("bitsandbytes", "7.0", "13.0", "amd64", "kernels-not-for-capability"),
        ("bitsandbytes", "6.1", "12.8", "amd64", "kernels-not-for-capability"),
        ("bitsandbytes", "12.0", "12.6", "amd64", "kernels-not-for-capability"),
        ("bitsandbytes", "12.1", "13.4", "arm64", ""),
        ("bitsandbytes", "8.6", "11.8", "amd64", "kernels-for-other-cuda"),
        ("flash-attn", "7.5", "13.0", "amd64", "kernels-not-for-capability"),
        ("flash-attn", "8.6", "12.6", "amd64", ""),
        ("flash-attn", "12.0", "12.6", "amd64", "kernels-not-for-capability"),
        ("flash-attn", "12.0", "12.8", "arm64", ""),
        ("xformers", "9.0", "12.8", "amd64", ""),
        ("xformers", "12.0", "12.9", "amd64", "kernels-only-ptx"),
        ("xformers", "7.0", "12.6", "amd64", "kernels-not-for-capability"),
        ("xformers", "9.0", "13.0", "amd64", "kernels-for-other-cuda"),
        ("torchao", "10.0", "13.0", "amd64", ""),
        ("torchao", "8.6", "13.0", "amd64", ""),  # optional
        ("torchao", "10.0", "12.8", "amd64", ""),
    ],
)
def test_which_code_runs_where(package, capability, cuda, arch, cause) -> None:
    expected = (PASS if not cause else WARN if cause == "kernels-only-ptx" else FAIL, cause)
    assert status(package, capability, cuda, arch) == expected


def test_the_package_that_the_project_names_is_to_be_removed() -> None:
    (finding,) = kernels({"xformers": NEWEST["xformers"]}, "9.0", "amd64", "13.0", {"xformers": "unsloth"})
    assert in_words(finding, PROJECT).remedy.endswith("remove unsloth.")


def test_the_optional_code_that_runs_is_told_from_the_one_that_does_not() -> None:
    def runs(capability: str, cuda: str = "13.0") -> bool:
        return "which runs" in found({"torchao": NEWEST["torchao"]}, capability, cuda)["runs-torchao"].seen

    assert runs("9.0") and runs("12.1") and not runs("8.6") and not runs("9.0", "12.8")


def test_nothing_is_said_without_facts() -> None:
    assert found({"numpy": "2.4.0", "torch": "2.14.1"}, "12.0") == {}
    assert found(NEWEST, "") == {}
    assert found({"bitsandbytes": "0.40.0", "xformers": "0.0.20", "triton": "2.1.0"}, "12.0") == {}
    assert found({"bitsandbytes": f"{NEWEST['bitsandbytes']}+local", "triton": "3.2.0+git12"}, "12.0") == {}
    assert found({"xformers": NEWEST["xformers"], "torchao": NEWEST["torchao"]}, "12.1", "13.0", "arm64") == {}


@pytest.mark.parametrize(
    ("version", "lacks"),
    [
        ("3.2.0", {"10.0", "10.3", "11.0", "12.0", "12.1"}),
        ("3.5.1", {"10.3", "11.0", "12.1"}),
        ("3.6.0", {"11.0"}),
        ("3.9.0", set()),
        ("3.10.0", set()),
    ],
)
def test_capabilities_that_triton_lacks(version, lacks) -> None:
    capabilities = {machine["capability"] for machine in HARDWARE.values()}
    every = {each: found({"triton": version}, each)["runs-triton"] for each in capabilities}
    assert {each for each, finding in every.items() if finding.cause_id == "triton-not-for-capability"} == lacks
    assert {finding.status for each, finding in every.items() if each not in lacks} == {PASS}


@pytest.mark.parametrize("id", HARDWARE)
@pytest.mark.parametrize("package", ["transformer-engine", "transformer-engine-torch"])
def test_recipes_are_those_of_the_documentation(id, package) -> None:
    """With a CUDA that has them all."""
    shown = document.recipes(HARDWARE[id]["capability"]).replace("**", "").replace(" (partial)", "")
    finding = found({package: "2.20.2+build"}, HARDWARE[id]["capability"], "13.0")["runs-transformer-engine"]
    listed = finding.seen.partition(": ")[2].partition(" (partial")[0]
    assert (finding.status, listed) == (PASS, shown)


def test_recipes_need_their_cuda() -> None:
    def recipes(cuda: str) -> str:
        return found({"transformer-engine": "2.20.2"}, "9.0", cuda)["runs-transformer-engine"].seen

    assert "fp8 blocks" in recipes("12.9") and "fp8 blocks" not in recipes("12.8") and "fp8" in recipes("12.8")
