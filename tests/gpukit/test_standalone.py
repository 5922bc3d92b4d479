"""gpukit without a project: what it asks this machine, what it says of a card, and that its remedies work there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

from gpukit.cli.table import COMMANDS
from gpukit.doctor import main
from gpukit.doctor.needs import report
from gpukit.errors.machine import Card, Engine, Machine, from_json
from gpukit.findings.checks import run
from gpukit.findings.finding import FAIL, PASS, SKIP, WARN
from gpukit.host import facts, stacks
from gpukit.host.cards import data, hardware_of_chip
from gpukit.host.process import Result
from gpukit.setup.steps import IDS
from gpukit.verify import main as verify
from gpukit.wheel import writer
from tests.conftest import ROOT
from tests.gpukit.doctor.conftest import machine as host

WITH_GPU = [id for id, known in data("cards").items() if known["capability"]]
SOURCE = ROOT / "gpukit/src"


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GPUKIT_PROJECT", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def programs(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch):
    """`programs(nvidia_smi="...")`: a PATH with these shell scripts and nothing else of the machine's engine or GPU."""

    def write(**scripts: str) -> None:
        folder = tmp_path_factory.mktemp("bin")
        for name, script in {"docker": "exit 1", "nvidia_smi": "exit 9", "nvidia_ctk": "exit 1", **scripts}.items():
            path = folder / name.replace("_", "-")
            path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
            path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    return write


def smi(name: str, driver: str, capability: str) -> str:
    """A script that answers as nvidia-smi does."""
    return f"""case "$*" in
*memory.total*) echo "{name}, {driver}, {capability}, 24564";;
*compute_cap*) echo "{name}, {driver}, {capability}";;
*mode*|*fabric*) echo "[N/A]";;
-L) echo "GPU 0: {name} (UUID: GPU-1)";;
esac"""


def judged(probes: SimpleNamespace, stack, cpu: bool = False) -> dict:
    checks = [each for each in main.adapted(main.CHECKS, cpu) if not (stack.standalone and each.project)]
    return {finding.id: finding for finding in run(checks, probes, stack)}


# What this machine is


def test_facts_are_read_back_from_json(nowhere, programs) -> None:
    programs(nvidia_smi=smi("NVIDIA GeForce RTX 4090", "580.95.05", "8.9"))
    machine = facts.local(None)
    assert machine.gpus == (Card("NVIDIA GeForce RTX 4090", "8.9", 24.0),)
    assert (machine.driver, machine.unified_memory, machine.targets) == ("580.95.05", False, None)
    document = json.loads(json.dumps({"machine": facts.to_json(machine)}))
    assert from_json(document) == machine
    assert facts.hardware(machine) == ["rtx-40"]


def test_facts_of_a_project_are_its_stacks(generate) -> None:
    machine = facts.local(generate(hardware="dgx-spark"))
    assert machine.targets == ("dgx-spark",)
    assert facts.container() or (".nv" in machine.torch.version and machine.torch.cuda)


def test_programs_that_hang_are_not_waited_for(nowhere, programs, monkeypatch) -> None:
    programs(docker="exec sleep 60", nvidia_smi="exec sleep 60", nvidia_ctk="exec sleep 60")
    monkeypatch.setattr(facts, "SHORT_TIMEOUT", 0.3)
    machine = facts.local(None)
    assert machine.engine.version is None and not machine.driver


def test_the_engine(nowhere, programs) -> None:
    output = {
        "ServerVersion": "29.1.2",
        "OperatingSystem": "Ubuntu Core 22",
        "DockerRootDir": "/var/snap/docker/common",
        "SecurityOptions": ["name=rootless"],
        "DiscoveredDevices": [{"ID": "nvidia.com/gpu=all"}],
    }
    programs(docker=f"echo '{json.dumps(output)}'", nvidia_ctk="echo NVIDIA Container Toolkit CLI version 1.19.1")
    found = facts.local(None).engine
    assert found == Engine("docker", "29.1.2", True, False, True, "1.19.1", True, True)


def test_wsl_without_its_device_has_no_gpu(nowhere, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(facts, "system", lambda: "wsl")
    monkeypatch.setattr(facts, "CARDS", str(tmp_path / "none"))
    monkeypatch.setattr(facts, "WSL_DEVICE", str(tmp_path / "dxg"))
    assert facts.local(None).gpus == ()
    (tmp_path / "dxg").touch()
    assert facts.local(None).gpus is None  # Windows gives WSL a GPU, of an unknown vendor


def test_cards_on_the_bus_have_the_names_of_the_database(tmp_path, monkeypatch) -> None:
    device = tmp_path / "bus/0000:01:00.0"
    device.mkdir(parents=True)
    for name, content in (("class", "0x030000"), ("vendor", "0x10de"), ("device", "0x2684")):
        (device / name).write_text(f"{content}\n")
    names = tmp_path / "pci.ids"
    names.write_text("10dd  Other\n\t2684  Not this\n10de  NVIDIA Corporation\n\t2684  AD102 [GeForce RTX 4090]\n")
    monkeypatch.setattr(facts, "PCI", str(tmp_path / "bus"))
    monkeypatch.setattr(facts, "PCI_NAMES", (str(names),))
    assert facts._on_bus("amd64") == [Card("AD102 [GeForce RTX 4090]", "8.9")]
    assert facts.hardware(Machine(arch="amd64", gpus=tuple(facts._on_bus("amd64")))) == ["rtx-40"]
    monkeypatch.setattr(facts, "PCI_NAMES", ())
    assert facts._on_bus("amd64") == [Card("NVIDIA GPU")]


@pytest.mark.parametrize(
    ("name", "arch", "id"),
    [
        ("AD102GL [L40S]", "amd64", "l4-l40s"),
        ("GB202 [GeForce RTX 5090]", "amd64", "rtx-50"),
        ("GA102GL [RTX A6000]", "amd64", "a10-a40"),
        ("GH100 [GH200 120GB / 480GB]", "arm64", "gh200"),
        ("GP102 [GeForce GTX 1080 Ti]", "amd64", "gtx-10"),
        ("GM200 [GeForce GTX TITAN X]", "amd64", ""),
    ],
)
def test_chips(name, arch, id) -> None:
    assert hardware_of_chip(name, arch) == id


def test_an_installed_torch_is_found_without_importing_it(tmp_path, monkeypatch) -> None:
    packages = tmp_path / "lib/python3.12/site-packages"
    (packages / "torch").mkdir(parents=True)
    (packages / "torch/version.py").write_text("from typing import Optional\ncuda: Optional[str] = '13.0'\n")
    for name in ("torch-2.14.1", "some_thing-1.0", "flash_attn-2.8"):
        (packages / f"{name}.dist-info").mkdir()
    monkeypatch.setattr(facts, "environments", lambda: iter([packages]))
    machine = facts.local(None)
    assert (machine.torch.version, machine.torch.cuda, machine.python) == ("2.14.1", "13.0", "3.12")
    assert machine.packages == {"torch": "2.14.1", "flash-attn": "2.8"}


def test_every_field_stands_on_the_page() -> None:
    page = (ROOT / "docs/machine.md").read_text(encoding="utf-8")
    schema = json.loads((ROOT / "gpukit/src/gpukit/findings/findings.schema.json").read_text(encoding="utf-8"))
    known = facts.to_json(Machine(gpus=(Card(),)))
    flat = [*known, *(f"engine.{name}" for name in known["engine"]), *(f"torch.{name}" for name in known["torch"])]
    flat += [f"gpus[].{name}" for name in known["gpus"][0]]
    assert [name for name in flat if f"`{name}`" not in page and name not in ("engine", "torch")] == []
    assert schema["$defs"]["machine"]["properties"].keys() == known.keys()


# What a card needs


@pytest.mark.parametrize("id", WITH_GPU)
def test_advised_build_supports_the_card(id) -> None:
    known = data("cards")[id]
    stack = stacks.stack([id])
    assert (stack.standalone, stack.gpu, list(stack.targets)) == (True, True, [id])
    release = data("stacks")["releases"][stack.base][stack.release]
    assert release["confirmed"] and id in release["hardware"]
    wheel = stack.native
    assert re.fullmatch(
        r"pip install torch==[\d.]+ --index-url https://download\.pytorch\.org/whl/cu\d+", wheel["install"]
    )
    output = Machine(system="linux", arch=known["arch"], gpus=(Card(_name(id), known["capability"]),), driver="600.1")
    assert list(stacks.needs(output).targets) == [id]
    needs, text = report(output, stacks.needs(output))
    assert needs["hardware"] == [id] and wheel["install"] in text and stack.image in text
    assert needs["precisions"] == known["precisions"]
    assert ("share their memory" in text) == known["unified_memory"]


def _name(id: str) -> str:
    return f"NVIDIA {data('cards')[id]['name']} X"


def test_what_no_project_needs() -> None:
    none = Machine(system="linux", arch="arm64", gpus=())
    stack = stacks.needs(none)
    assert (stack.gpu, stack.targets["cpu"].arch) == (False, "arm64")
    assert "whl/cpu" in report(none, stack)[1]
    old = none._replace(arch="amd64", gpus=(Card("Tesla K80", "3.7"),))
    assert not stacks.needs(old).gpu
    similar = old._replace(gpus=(Card("Tesla P100", "6.0"),))
    assert stacks.needs(similar).native["torch"].endswith("cu126")
    unknown = none._replace(arch="amd64", gpus=(Card("NVIDIA GPU"),))
    needs, text = report(unknown, stacks.needs(unknown))
    assert needs["hardware"] == [] and "--hardware ID" in text


def test_older_build_for_an_older_driver_is_reported() -> None:
    stack = stacks.stack(["rtx-40"])
    probes = host(cards=Result(0, "NVIDIA GeForce RTX 4090, 550.54.14, 8.9\n"))
    found = judged(probes, stack)["driver"]
    assert found.cause_id == "driver-too-old"
    assert "580" in found.remedy and "whl/cu126" in found.remedy


def test_no_card_and_cards_that_nothing_serves() -> None:
    cpu = stacks.stack(["cpu"])
    found = judged(host(cards=Result(None), local=Machine(gpus=())), cpu)
    assert {found[id].status for id in ("driver", "card", "mig", "gpu")} == {SKIP}
    assert found["driver"].cause_id == "no-gpu-in-machine" and found["engine"].status == PASS
    found = judged(host(cards=Result(0, "Tesla K80, 470.1, 3.7"), local=Machine(gpus=(Card("Tesla K80", "3.7"),))), cpu)
    assert (found["card"].cause_id == "card-not-supported") and found["driver"].cause_id == "no-build-for-gpu"


def test_the_toolkit_is_judged_without_starting_anything() -> None:
    stack = stacks.stack(["rtx-50"])

    def gpu(**changes):
        return judged(host(**changes), stack)["gpu"]

    assert gpu().status == PASS
    from gpukit.doctor.host import Specification, Toolkit

    bare = {"engine": {"Runtimes": {}, "DiscoveredDevices": []}, "toolkit": Toolkit()}
    assert (gpu(**bare).status, gpu(**bare).cause_id) == (WARN, "toolkit-not-installed")
    stale = Toolkit("1.19", True, (Specification("/etc/cdi/nvidia.yaml", "550.1"),))
    assert gpu(toolkit=stale).cause_id == "cdi-stale"


def test_without_docker_the_rest_is_checked() -> None:
    found = judged(host(client=Result(None), info=Result(None)), stacks.stack(["rtx-50"]))
    assert found["client"].status == SKIP
    assert {found[id].status for id in main.ENGINE_CHECKS} == {SKIP}
    assert {found[id].status for id in ("driver", "card", "caches")} == {PASS}


def test_a_command_line_without_a_gpu_skips_what_the_gpu_needs(make_stack) -> None:
    probes = host(cards=Result(None), pci=(), module="")
    assert judged(probes, make_stack())["driver"].status == FAIL
    found = judged(probes, make_stack(), cpu=True)
    assert {found[id].status for id in ("driver", "card", "mig", "gpu", "reload", "running")} == {SKIP}
    assert not any("--cpu" in finding.remedy for finding in found.values())


def test_project_without_gpu_reports_how_to_use_one(make_stack, cpu_only) -> None:
    found = judged(host(), make_stack(**cpu_only))["card"]
    assert found.status == SKIP and "./launch update --answers hardware=rtx-50" in found.remedy


# The commands


def test_doctor_anywhere(nowhere, programs, capsys, findings_schema) -> None:
    programs(nvidia_smi=smi("NVIDIA H100 80GB HBM3", "580.95.05", "9.0"))
    main.main(["--json"])
    output = json.loads(capsys.readouterr().out)
    jsonschema.validate(output, findings_schema)
    assert output["project"] == "" and output["needs"]["hardware"] == ["h100"]
    assert from_json(output).gpus[0].capability == "9.0"
    assert "./launch" not in json.dumps(output)
    assert list(nowhere.iterdir()) == []
    assert main.main(["--only", "mounts"]) == 2
    assert "no check 'mounts' outside a project" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("python", ["3.9", "3.13"])
def test_a_wheel_that_is_not_unpacked(nowhere, tmp_path_factory, python) -> None:
    found = next(Path.home().glob(f".pyenv/versions/{python}.*/bin/python"), shutil.which(f"python{python}"))
    if not found:
        pytest.skip(f"no Python {python}")
    wheel = writer.write(writer.running(), tmp_path_factory.mktemp("wheel"))
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    nowhere.chmod(0o555)
    for arguments, codes in ((["doctor", "--json"], (0, 1)), (["setup"], (0, 1)), (["verify"], (2,))):
        done = subprocess.run(
            [found, f"{wheel}/gpukit", *arguments], env=environment, cwd=nowhere, capture_output=True, text=True
        )
        assert done.returncode in codes and "Traceback" not in done.stderr, done.stderr
    assert "pip install torch==" in done.stderr
    nowhere.chmod(0o755)
    assert list(nowhere.iterdir()) == []


def test_help_of_setup_lists_its_steps() -> None:
    assert re.findall(r"^  ([a-z]+) {2,}", COMMANDS["setup"].epilog.partition("examples")[0], re.MULTILINE) == list(IDS)


def test_setup_for_any_hardware(nowhere) -> None:
    from gpukit.project.messages import RefusalError
    from gpukit.setup.main import _stack

    stack = _stack(nowhere, "v100")
    assert stack.targets["v100"].last_driver == "580"
    with pytest.raises(RefusalError, match="There is no hardware rtx-1"):
        _stack(nowhere, "rtx-1")


# verify


def test_verify_judges_the_torch_that_is_installed(container) -> None:
    from gpukit.verify.probes import Device, Devices, Torch

    checks = [
        verify.standalone(each) for each in verify.CHECKS if each.id in ("import", "torch", "cuda", "gpu", "kernels")
    ]

    def found(**changes):
        return {each.id: each for each in run(checks, container(**changes), stacks.stack(["rtx-50"]))}

    assert {each.status for each in found(torch=Torch("2.9.1+cu128", "12.8")).values()} == {PASS}
    for_cpu = found(torch=Torch("2.14.1+cpu", None))["cuda"]
    assert for_cpu.status == FAIL and "whl/cu130" in for_cpu.remedy
    old = Devices((Device("NVIDIA GeForce RTX 5070 Ti", "12.0"),), ("sm_80", "sm_90"))
    no_kernels = found(torch=Torch("2.5.1+cu124", "12.4"), devices=old)["kernels"]
    assert no_kernels.status == FAIL and "whl/cu130" in no_kernels.remedy
    from gpukit.host.smi import Smi

    behind = found(smi=Smi("550.54.14", ()))["torch"]
    assert (behind.cause_id, behind.status) == ("driver-too-old", FAIL) and "580" in behind.remedy
    rented = found(smi=Smi("550.54.14", ()), special_places=("container",))["torch"]
    assert "Give this machine back" in rented.remedy and "580" in rented.remedy


def test_verify_without_torch_prints_the_install_command(nowhere, programs, capsys, monkeypatch) -> None:
    monkeypatch.setattr(verify.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(verify, "pythons", lambda: iter([]))
    programs(nvidia_smi=smi("NVIDIA GeForce RTX 5090", "580.95.05", "12.0"))
    assert verify.outside([]) == 2
    output = capsys.readouterr().err
    assert output.count("\n") == 1 and "pip install torch==" in output and "/cu130" in output
