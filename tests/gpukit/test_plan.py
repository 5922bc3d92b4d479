"""plan against an index and a registry on loopback: what would be installed elsewhere, without downloading it."""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpukit.cli import main as cli
from gpukit.findings.causes import PROJECT
from gpukit.findings.finding import in_words
from gpukit.host import stacks, uv
from gpukit.host.cards import data
from gpukit.plan import main as plan
from gpukit.plan import memory, packages
from gpukit.plan.index import File, Platform, parse
from gpukit.plan.resolve import FROM_INDEX, Question, resolve, same
from gpukit.project.messages import RefusalError
from gpukit.project.pyproject import wanted
from tests.conftest import ROOT

from .web import Web

AMD64 = Platform("amd64", (3, 12), (2, 39))
ARM64 = replace(AMD64, arch="arm64")
ANY = "py3-none-any"
X86 = "cp312-cp312-manylinux_2_28_x86_64"


@pytest.fixture
def ask(web: Web) -> Callable[..., tuple[dict[str, Any], Any]]:
    """The findings by id, and the answer, for requirements on a platform; torch 2.14.1 comes with the base."""
    if uv.find() is None:
        pytest.fail("uv is not installed")

    def asked(*requirements: str, platform: Platform = AMD64, **more: Any) -> tuple[dict[str, Any], Any]:
        question = Question(
            platform, requirements, ("torch",), "", "2.14.1", {"torch": "2.14.1"}, (), (f"{web.url}/simple",)
        )
        question = replace(question, **more)
        answer = resolve(question)
        return {finding.id: in_words(finding, PROJECT) for finding in packages.judge(answer, question)}, answer

    return asked


def alarms(found: dict[str, Any]) -> dict[str, str]:
    return {
        id: each.status if each.status == "SKIP" else each.cause_id
        for id, each in found.items()
        if each.status != "PASS"
    }


def test_a_project_with_wheels_for_everything_has_no_alarm_and_no_body_is_fetched(web: Web, ask: Callable) -> None:
    web.package("one", f"1.0-{ANY}", f"2.0-{ANY}", v2_0=["two>=1", "torch>=2.14", "extra; extra == 'more'"])
    web.package("two", f"1.0-{X86}", "1.0")
    web.package("extra", f"1.0-{ANY}")
    found, answer = ask("one[more]", "absent; sys_platform == 'win32'")
    assert alarms(found) == {}
    assert {name: each.version for name, each in answer.packages.items()} == {
        "one": "2.0",
        "two": "1.0",
        "extra": "1.0",
        "torch": "2.14.1",
    }
    assert [path for path in web.asked if path.startswith("/") and path.endswith((".whl", ".gz"))] == []


@pytest.mark.parametrize(
    ("requirement", "files", "expected"),
    [
        ("one", [f"1.0-{X86}", "1.0"], {"package-one": "package-from-source"}),
        ("one", [f"1.0-{X86}"], {"packages": "SKIP", "package-one": "package-not-for-this-cpu"}),
        ("one", [f"1.0-{ANY}", f"2.0-{X86}"], {"package-one": "package-fell-back"}),
        ("one>=0.dev0", [f"1.0.dev3-{ANY}", f"2.0-{X86}"], {"package-one": "package-fell-back"}),
    ],
)
def test_what_has_no_wheel_for_the_target_is_named(
    web: Web, ask: Callable, requirement: str, files: list[str], expected: dict[str, str]
) -> None:
    web.package("one", *files)
    found, _ = ask(requirement, platform=ARM64)
    assert alarms(found) == expected
    assert found["package-one"].remedy
    assert alarms(ask(requirement)[0]) == {}


def test_a_package_that_needs_torch_to_be_built(web: Web, ask: Callable) -> None:
    for name in ("flash-attn", "torch-scatter"):
        web.package(name, "2.8")
    found, _ = ask("flash-attn", "torch-scatter", "detectron2 @ git+https://host/it", "mamba-ssm @ https://host/it.whl")
    assert alarms(found) == {
        "package-flash-attn": "package-needs-torch-to-build",
        "package-torch-scatter": "package-needs-torch-to-build",
        "package-detectron2": "package-needs-torch-to-build",
        "package-mamba-ssm": "SKIP",
    }
    assert "ngc" not in found["package-torch-scatter"].remedy


def test_add_refuses_what_cannot_be_built_before_it_downloads_it(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "demo"
    shutil.copytree(ROOT / "examples/vision-rtx-5070ti", folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GPUKIT_PROJECT", str(folder))
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{web.url}/simple")
    monkeypatch.setenv("UV_INDEX", f"pytorch={web.url}/torch")
    web.package("torch", f"2.14.1-{X86}")
    before = (folder / "pyproject.toml").read_text()
    name = data("stacks")["torch_to_build"][-1]
    web.package(name, "2.8")
    web.package("needs-it", f"1.0-{ANY}", v1_0=[name])
    for way, package in (([], name), (["--native"], "needs-it")):
        assert cli.main([*way, "--cpu", "add", package]) == 1
        said = capsys.readouterr().err
        assert f"{package} cannot be added: " in said and name in said and "Traceback" not in said
    assert [path for path in web.asked if path.startswith("/") and path.endswith((".whl", ".gz"))] == []
    assert (folder / "pyproject.toml").read_text() == before


def test_a_transitive_package_that_falls_back_is_named(web: Web, ask: Callable) -> None:
    web.package("one", f"1.0-{ANY}", v1_0=["two"])
    web.package("two", f"1.0-{ANY}", f"2.0-{X86}", v1_0=["three"])
    web.package("three", "1.0", v1_0=["two"])
    found, answer = ask("one", platform=ARM64)
    assert alarms(found) == {"package-two": "package-fell-back", "package-three": "package-from-source"}
    assert [answer.packages[name].required_by for name in ("one", "two", "three")] == ["", "one", "one"]
    assert all("one" in found[f"package-{name}"].remedy.split() for name in ("two", "three"))
    assert "required by one" in found["package-three"].seen


def test_a_version_of_years_ago_that_another_requirement_forces(web: Web, ask: Callable) -> None:
    web.package("one", f"1.0-{ANY}", f"2.0-{ANY}")
    web.package("two", f"1.0-{ANY}", v1_0=["one<2"])
    found, answer = ask("one>=1", "two")
    assert alarms(found) == {"package-one": "package-held-back"}
    assert answer.packages["one"].uploaded == "2023-01-01" and answer.packages["one"].size == 1000


def test_a_newer_version_that_pins_another_torch_is_not_hidden_by_an_old_one(web: Web, ask: Callable) -> None:
    web.package("one", "1.0", f"2.0-{ANY}", v2_0=["torch==2.13.0"])
    found, _ = ask("one")
    assert alarms(found) == {"package-one": "package-held-back"} and "one>=2.0" in found["package-one"].remedy
    assert alarms(ask("one>=2.0")[0]) == {"packages": "requires-other-torch"}


@pytest.mark.parametrize(
    ("requirements", "expected"),
    [
        (("one==1.0", "two"), "requirements-conflict"),
        (("three",), "requires-other-torch"),
        (("torch<2.14",), "project-requires-other-torch"),
        (("nowhere",), "package-not-found"),
    ],
)
def test_requirements_that_cannot_be_met(web: Web, ask: Callable, requirements: tuple[str, ...], expected: str) -> None:
    web.package("one", f"1.0-{ANY}", f"2.0-{ANY}")
    web.package("two", f"1.0-{ANY}", v1_0=["one>=2"])
    web.package("three", f"1.0-{ANY}", v1_0=["torch==2.13.0"])
    found, _ = ask(*requirements)
    assert alarms(found) == {"packages": expected}
    assert found["packages"].remedy


def test_an_index_that_lacks_the_torch_of_the_project_contradicts_nothing(web: Web, ask: Callable) -> None:
    web.package("torch", f"2.13.0+cpu-{X86.replace('312', '311')}", f"2.13.1+cpu-{X86}")
    web.package("one", f"1.0-{ANY}", v1_0=["torch==2.0"])
    mirror = {"provided": {}, "torch": ("torch==2.14.1", "torch>=2.14,<2.15"), "torch_index": f"{web.url}/simple"}
    found, _ = ask("one", **mirror)
    assert alarms(found) == {"packages": "torch-not-in-index"} and "127.0.0.1" in found["packages"].cause


def test_torch_is_installed_before_the_rest_which_cannot_replace_it(web: Web, ask: Callable) -> None:
    """Neither it nor what it requires, as in the image."""
    web.package("torch", f"2.14.0-{ANY}", f"2.14.1-{ANY}", v2_14_1=["nvidia-one"])
    web.package("nvidia-one", f"1.0-{ANY}", f"2.0-{ANY}")
    web.package("one", f"1.0-{ANY}", v1_0=["torch==2.14.0"])
    web.package("two", f"1.0-{ANY}", v1_0=["nvidia-one<2"])
    range_of_torch = {"provided": {}, "torch": ("torch>=2.14,<2.15",), "torch_index": f"{web.url}/simple"}
    assert alarms(ask("one", **range_of_torch)[0]) == {"packages": "requires-other-torch"}
    assert alarms(ask("two", **range_of_torch)[0]) == {"packages": "requires-other-torch"}
    assert ask(**range_of_torch)[1].packages["torch"].version == "2.14.1"


def test_a_pre_release_of_torch_in_the_base_is_used(web: Web, ask: Callable) -> None:
    web.package("one", f"1.0-{ANY}", v1_0=["torch>=2.4"])
    given = "2.13.0a0+9186a08.nv26.07"
    found, answer = ask("one", provided={"torch": given}, torch_version=given, constraints=(f"torch=={given}",))
    assert alarms(found) == {} and answer.packages["torch"].kind == "base"


def test_sources_that_are_not_an_index_are_reported_and_never_fetched(web: Web, ask: Callable, tmp_path: Path) -> None:
    web.package("one", f"1.0-{ANY}", v1_0=["two"])
    found, answer = ask("one", f"two @ git+{web.url}/two.git", f"three @ file://{tmp_path}")
    assert alarms(found) == {"package-two": "SKIP", "package-three": "SKIP"}
    assert "two" not in answer.packages and not any("two" in path for path in web.asked)


def test_a_wheel_that_is_named_by_its_url_is_resolved_as_one_on_an_index(web: Web, ask: Callable) -> None:
    """By its name and its metadata, without downloading it."""
    version = "1.0+cu130torch2.14"
    web.package("two", f"1.0-{ANY}")

    def asked(*requires: str, marker: str = "", platform: Platform = AMD64) -> tuple[dict[str, Any], Any]:
        web.package("one", f"{version}-{X86}", **{f"v{version.replace('.', '_')}": list(requires)})
        del web.answers["/simple/one/"]
        return ask(f"one @ {web.url}/files/one-{version}-{X86}.whl#sha256={'0' * 64} {marker}", platform=platform)

    found, answer = asked("two", "torch")
    assert alarms(found) == {} and {*answer.packages} == {"one", "two", "torch"} and answer.unfetched == []
    assert alarms(asked("torch==2.13.*")[0]) == {"packages": "requires-other-torch"}
    assert alarms(asked("two", platform=ARM64)[0])["package-one"] == "package-not-for-this-cpu"
    found, answer = asked("two", marker="; platform_machine == 'x86_64'", platform=ARM64)
    assert alarms(found) == {} and "one" not in answer.packages
    assert [path for path in web.asked if path.startswith("/") and path.endswith(".whl")] == []


def test_a_package_whose_wheels_are_elsewhere_hides_no_other(web: Web, ask: Callable) -> None:
    web.package("one", f"1.0-{ANY}", v1_0=["pyg-lib"])
    found, answer = ask("one", "pyg-lib", "detectron2>=0.6")
    assert alarms(found) == dict.fromkeys(("package-pyg-lib", "package-detectron2"), "package-not-in-index")
    assert answer.packages["one"].version == "1.0"


@pytest.mark.parametrize("line", [" one>=1", "one (>=1)", "one>=1,", "one [more] ~= 1.0 ; python_version > '3'", "one"])
def test_requirements_in_other_spellings_are_looked_up(web: Web, ask: Callable, line: str) -> None:
    web.package("one", f"1.0-{ANY}")
    found, answer = ask(line)
    assert alarms(found) == {} and answer.packages["one"].version == "1.0"


@pytest.mark.parametrize("line", ["./one", "one@https://host/one.whl", "-e .", "https://host/one.whl", "one/"])
def test_what_is_no_name_is_not_given_to_uv(line: str) -> None:
    assert not FROM_INDEX.fullmatch(line)


def test_a_proxy_that_drops_connections_costs_only_retries(web: Web, ask: Callable) -> None:
    web.package("one", f"1.0-{ANY}")
    web.dropped = 2
    assert alarms(ask("one")[0]) == {}


def test_an_index_that_cannot_be_reached_is_a_refusal(ask: Callable) -> None:
    with pytest.raises(RefusalError) as refused:
        ask("one", indexes=("http://127.0.0.1:9/simple",))
    assert refused.value.kind == "network"


def test_a_private_index_comes_first_and_its_html_and_password_are_used(web: Web, ask: Callable) -> None:
    name = f"one-3.0-{ANY}.whl"
    web.answers["/private/one/"] = ("text/html", f'<a href="/files/{name}#sha256=0">{name}</a>'.encode())
    web.answers[f"/files/{name}.metadata"] = ("text/plain", b"Metadata-Version: 2.1\nName: one\nVersion: 3.0\n")
    web.package("one", f"1.0-{ANY}")
    private = web.url.replace("http://", "http://user:word@")
    found, answer = ask("one", indexes=(f"{private}/private", f"{web.url}/simple"))
    assert alarms(found) == {} and answer.packages["one"].version == "3.0"
    assert "/simple/one/" not in web.asked


def test_metadata_that_the_index_does_not_have_is_not_replaced_by_the_wheel(web: Web, ask: Callable) -> None:
    web.package("one", f"1.0-{ANY}")
    web.answers = {path: answer for path, answer in web.answers.items() if not path.endswith(".metadata")}
    assert alarms(ask("one")[0]) == {"package-one": "SKIP"}


@pytest.mark.parametrize("others", [0, 9000])
def test_metadata_is_read_out_of_parts_of_a_wheel(web: Web, ask: Callable, others: int) -> None:
    web.package("one", f"1.0-{ANY}")
    web.package("two", f"1.0-{ANY}")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as wheel:
        for number in range(others):
            wheel.writestr(f"one/{number}.py", os.urandom(300))
        text = "Metadata-Version: 2.1\nName: one\nVersion: 1.0\nRequires-Dist: two\n"
        wheel.writestr("one-1.0.dist-info/METADATA", text)
    web.answers[f"/files/one-1.0-{ANY}.whl"] = ("application/zip", file.getvalue())
    del web.answers[f"/files/one-1.0-{ANY}.whl.metadata"]
    web.ranges = True
    found, answer = ask("one")
    assert alarms(found) == {} and answer.packages["two"].version == "1.0"
    assert answer.bytes < max(1 << 11, len(file.getvalue()) // 3)


@pytest.mark.parametrize(
    ("tags", "fits"),
    [
        (("py3", "none", "any"), True),
        (("py2.py3", "none", "any"), True),
        (("cp312", "cp312", "manylinux_2_28_aarch64"), True),
        (("cp38", "abi3", "manylinux2014_aarch64.manylinux_2_17_aarch64"), True),
        (("cp313", "abi3", "manylinux2014_aarch64"), False),
        (("cp313", "cp313", "manylinux_2_28_aarch64"), False),
        (("cp312", "cp312t", "manylinux_2_28_aarch64"), False),
        (("cp312", "cp312", "manylinux_2_40_aarch64"), False),
        (("cp312", "cp312", "musllinux_1_2_aarch64"), False),
        (("cp312", "cp312", "manylinux_2_28_x86_64"), False),
        (("py2", "none", "any"), False),
        (("py3", "none", "macosx_11_0_arm64"), False),
    ],
)
def test_which_wheels_fit(tags: tuple[str, ...], fits: bool) -> None:
    assert ARM64.fits(File("1", "https://index/one.whl", tags)) is fits


def test_names_of_files() -> None:
    assert parse("one-two", "one_two-1.0-1-py3-none-any.whl") == ("1.0", ("py3", "none", "any"))
    assert parse("one-two", "one-two-1.0.post1.tar.gz") == ("1.0.post1", ())
    assert parse("one", "one-1.0.exe") is None


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("2013b", "2013b0"),
        ("0.9.10dev", "0.9.10.dev0"),
        ("1.0-1", "1.0.post1"),
        ("1.0.0.Beta.02", "1.0.0b2"),
        ("v1!01.0c1.rev2+CU_130", "1!1.0rc1.post2+cu.130"),
        ("2.13.0a0+9186a08.nv26.07", "2.13.0a0+9186a08.nv26.7"),
    ],
)
def test_versions_are_normalized_as_uv_does(web: Web, ask: Callable, name: str, version: str) -> None:
    assert same(name) == same(version)
    if not {"!", "-"} & {*name}:
        web.package("one", name)
        assert ask(f"one=={version}")[1].packages["one"].kind == "source"


@pytest.mark.parametrize("id", ["h100", "dgx-spark"])
def test_the_range_of_torch_in_a_project_counts_for_every_base(id: str, tmp_path: Path) -> None:
    """Also for a base whose image has torch."""
    stack = stacks.stack([id])
    for base in ("wheel", "ngc"):
        of = replace(stack, base=base)
        assert "torch<2.9" in packages.question(of, of.targets[id], ["torch<2.9", "torchvision"], tmp_path).torch


# The command


@pytest.fixture
def run(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, dict[str, Any]]]:
    """`gpukit plan --json` outside a project, in a folder with a pyproject.toml."""
    monkeypatch.chdir(tmp_path)
    for name in ("GPUKIT_PROJECT", "UV_INDEX", "UV_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{web.url}/simple")
    monkeypatch.setenv("UV_INDEX", f"pytorch={web.url}/torch")
    monkeypatch.setenv("BASE_IMAGE", web.image("base", "amd64"))
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "demo"\ndependencies = ["one"]\n')
    web.package("one", f"1.0-{ANY}", v1_0=["torch"])
    for backend in ("cpu", "cu126", "cu130"):
        web.answers[f"/torch/{backend}/torch/"] = ("text/html", b"")
    web.package("torch", f"2.10.0-{X86}", f"2.14.1-{X86}", f"2.14.1-{X86.replace('x86_64', 'aarch64')}")
    web.answers["/torch/torch/"] = web.answers["/simple/torch/"]

    def called(*ids: str, driver: str = "", refresh: bool = False) -> tuple[int, dict[str, Any]]:
        options = argparse.Namespace(
            targets=list(ids), driver=driver, refresh=refresh, prove=False, json=True, batch_size=None
        )
        code = plan.main(options)
        return code, json.loads(capsys.readouterr().out)

    return called


def status(document: dict[str, Any], id: str) -> dict[str, str]:
    findings = document["targets"][id]["findings"]
    return {each["id"]: each["cause_id"] or each["status"] for each in findings if each["id"] != "disk"}


def test_the_command_outside_a_project(web: Web, run: Callable, findings_schema: dict[str, Any]) -> None:
    _, document = run("h200")
    jsonschema.validate(document["targets"]["h100"], findings_schema)
    assert set(status(document, "h100").values()) == {"PASS"}
    assert document["targets"]["h100"]["packages"]["one"]["version"] == "1.0"


def test_faults_of_image_and_driver(web: Web, run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    code, document = run("h100", "gh200", driver="400")
    assert code == 1
    assert status(document, "h100")["driver"] == "driver-below-floor"
    assert status(document, "gh200")["image"] == "image-not-for-this-cpu"
    monkeypatch.setenv("BASE_IMAGE", f"{web.url.removeprefix('http://')}/base:2")
    _, document = run("h100")
    assert status(document, "h100")["image"] == "image-withdrawn"


def driver_finding(id: str, base: str, driver: str) -> Any:
    of = plan.for_target(replace(stacks.stack([id]), project="demo", base=base, driver="580"), id)
    return plan.checks.driver(plan.Probes(of, id, driver), of)


def test_an_older_driver_and_forward_compatibility() -> None:
    """On a data-center card NVIDIA's images may run with an older driver; the remedy names a release that fits it."""
    found = driver_finding("h100", "ngc", "570")
    assert found.status == "WARN" and found.cause_id == "driver-needs-forward-compatibility"
    name = re.search(r"release=([\w.-]+)", found.remedy)[1]
    assert name in data("stacks")["releases"]["ngc"] and "base=" not in found.remedy
    for id, base, driver in (("h100", "wheel", "570"), ("rtx-40", "ngc", "570"), ("h100", "ngc", "470")):
        assert driver_finding(id, base, driver).cause_id == "driver-below-floor"
    assert "release=" in driver_finding("rtx-40", "ngc", "570").remedy
    assert "release=" not in driver_finding("h100", "ngc", "470").remedy, "no release supports it"
    assert driver_finding("h100", "ngc", "580").status == "PASS"


def test_a_target_that_the_stack_has_no_kernels_for(run: Callable) -> None:
    stack = stacks.stack(["h100"])
    of = plan.for_target(replace(stack, project="demo"), "v100")
    finding = plan.checks.torch(plan.Probes(of, "v100", answers=stacks.update_answers(stack, "v100")), of)
    assert finding.cause_id == "torch-without-kernels" and re.search("launch update --answers", finding.remedy)


def test_a_target_that_needs_a_newer_cuda(run: Callable) -> None:
    of = plan.for_target(replace(stacks.stack(["dgx-spark"]), project="demo", cuda="12.8.2"), "dgx-spark")
    assert plan.checks.torch(plan.Probes(of, "dgx-spark"), of).cause_id == "cuda-below-floor"


def test_the_second_run_asks_nothing_and_works_offline(web: Web, run: Callable) -> None:
    first = run("h100")[1]
    web.asked.clear()
    second = run("h100")[1]
    assert web.asked == []
    assert status(first, "h100") == status(second, "h100")
    web.answers.clear()
    assert status(run("h100", refresh=True)[1], "h100")["packages"] == "torch-not-in-index"


def test_an_index_that_refuses_is_not_waited_for(web: Web, run: Callable) -> None:
    web.answers["/simple/one/"] = ("text/html", b"a login page")
    web.status = 401
    (finding,) = (each for each in run("h100")[1]["targets"]["h100"]["findings"] if each["id"] == "packages")
    assert finding["status"] == "SKIP" and "password" in finding["cause"] and not finding["remedy"]


def test_targets_of_one_run_share_what_the_index_sent(web: Web, run: Callable) -> None:
    """Another architecture is another resolution, of the same pages."""
    document = run("h100", "gh200")[1]
    assert document["targets"]["gh200"]["packages"]["one"]["version"] == "1.0"
    assert [each for each in web.asked if each.startswith("/simple/")] == ["/simple/one/"]


def test_cards_of_the_same_hardware_are_one_target() -> None:
    (id, cards), (same, others) = map(plan.identified, ("h200", "h100 nvl"))
    assert id == same == "h100" and not cards & others and cards | others < plan.memories("h100")


def test_hardware_that_is_not_known_is_refused(run: Callable) -> None:
    with pytest.raises(RefusalError):
        run("h900")
    with pytest.raises(RefusalError):
        run()


def test_what_is_installed_of_a_project(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "my_demo"\ndependencies = ["one>=1", "two"]\n'
        '[project.optional-dependencies]\ndev = ["my-demo[lint]", "pytest"]\nlint = ["ruff"]\n'
    )
    assert wanted(tmp_path) == ["one>=1", "two", "pytest", "ruff"]
    (tmp_path / "requirements.txt").write_text("# pins\none==1.5\nthree==3 # via two\n")
    assert wanted(tmp_path) == ["one==1.5", "three==3", "two", "pytest", "ruff"]


def test_a_pyproject_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "demo"\ndependencies = ["one" "two"]\n')
    if sys.version_info >= (3, 11):
        with pytest.raises(RefusalError, match="line 3"):
            wanted(tmp_path)


def test_a_requirement_that_begins_with_a_space_can_be_pinned(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "demo"\ndependencies = [" one", "./two"]\n')
    (tmp_path / "requirements.txt").write_text("one==1.5\n")
    assert wanted(tmp_path) == ["one==1.5", "./two"]


# Memory

TRACED = {"batch_size": 64, "bytes": 0, "fixed": 2**30, "per_sample": 2**28, "context": 2**29, "dtype": "bf16"}


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The finding about a target and its cards: 1.5 GiB and 0.25 for each sample, unless the trace says otherwise."""
    stack = replace(stacks.stack(["h100"]), project="demo")
    monkeypatch.setattr("gpukit.plan.memory.find_spec", lambda name: name)

    def found(given: str, **trace: Any) -> Any:
        id, cards = plan.identified(given)
        of = plan.for_target(stack, id)
        probes = plan.Probes(of, id, cards=cards)
        probes.trace = {**TRACED, **trace}
        return memory.memory(probes, of)

    return found


@pytest.mark.parametrize(
    ("card", "trace", "cause", "fits"),
    [
        ("h100", {}, "", 0),
        ("rtx 5090", {}, "", 0),
        ("rtx 5080", {}, "card-too-small", int((16 * 0.93 - 1.5) * 4)),
        ("rtx-50", {}, "some-cards-too-small", int((8 * 0.93 - 1.5) * 4)),
        ("dgx-spark", {"batch_size": 500}, "card-too-small", int((128 * 0.8 - 1.5) * 4)),
        ("rtx 5050", {"fixed": 2**33}, "model-too-large", 0),
        ("rtx-50", {"fixed": 2**33, "batch_size": 8}, "model-too-large-for-some-cards", 0),
        ("rtx-50", {"fixed": 2**33, "batch_size": 900}, "card-too-small", int((32 * 0.93 - 8.5) * 4)),
    ],
)
def test_each_card_is_compared_with_what_training_needs(
    traced: Callable, card: str, trace: dict[str, int], cause: str, fits: int
) -> None:
    finding = traced(card, **trace)
    assert finding.cause_id == cause
    assert not fits or f"--batch-size {fits}`" in finding.remedy


def test_the_memory_is_written_with_one_unit_and_separators(traced: Callable) -> None:
    seen = traced("h200", per_sample=2**10).seen
    assert "needs 1.5 GB in bf16; the largest batch that fits: 135,926,906 on 141 GB" in seen


def test_what_offers_of_machines_are_filtered_by() -> None:
    """CUDA, capability, memory, and disk; the memory that training needs replaces that of the smallest card."""
    for id, card in data("cards").items():
        of = plan.for_target(None, id)
        probes = plan.Probes(of, id)
        finding = memory.rent(probes, of)
        if not card["capability"]:
            assert finding.status == "SKIP"
            continue
        cuda, capability, gpu, disk = re.findall(r"\d+(?:\.\d+)?", finding.seen)
        assert of.cuda.startswith(cuda) and tuple(map(int, cuda.split("."))) >= tuple(
            map(int, (card["min_cuda"] or "0").split("."))
        )
        assert (capability, int(gpu)) == (card["capability"], min(plan.memories(id)))
        assert int(disk) >= of.size_gb
        probes.trace = TRACED
        assert re.search(r"(\d+) GB of GPU memory", memory.rent(probes, of).seen)[1] == str(math.ceil(17.5 / 0.93))


def test_what_cannot_be_traced_is_skipped_and_has_its_own_exit_code(
    traced: Callable, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "gpukit/script").mkdir(parents=True)
    for folder in ("gpukit", "gpukit/script"):
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "gpukit/script/memory.py").write_text('print(\'{"why": "It reads a value."}\')\nraise SystemExit(3)\n')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(memory, "root", lambda: tmp_path)
    memory.trace.cache_clear()
    answer = memory.trace("bf16", None)
    assert answer == {"why": "It reads a value.", "untraceable": True}
    assert traced("h100", **answer).status == "SKIP"
    assert plan.show({"h100": plan.Planned([], None, answer)}, [], "demo", True) == 2
    assert json.loads(capsys.readouterr().out)["exit_code"] == 2
    (tmp_path / "gpukit/script/memory.py").write_text("raise SystemExit('broken')\n")
    memory.trace.cache_clear()
    assert "untraceable" not in memory.trace("bf16", None)


def test_without_pytorch_the_command_that_brings_it_is_named(traced: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpukit.plan.memory.find_spec", lambda name: None)
    finding = traced("h100")
    assert finding.status == "SKIP" and "--native" in finding.remedy
