"""The catalogue against its schemas, and against what PyTorch and NVIDIA say (tests/data/torch_arch_flags.json)."""

from __future__ import annotations

import copy
import datetime
import importlib.util
import itertools
import json
import re
from pathlib import Path

import jinja2
import jsonschema
import pytest
import yaml

from catalogue import check, combine, data, document, questions, support

ROOT = Path(__file__).resolve().parents[1]
FILES = support.FILES
HARDWARE = support.load("hardware")["hardware"]
RELEASES = support.load("images")["releases"]
PACKAGES = support.load("packages")
USE_CASES = PACKAGES["use_cases"]
ORACLE = json.loads((ROOT / "tests/data/torch_arch_flags.json").read_text())
IDS = list(HARDWARE)
BLACKWELL = ["rtx-50", "rtx-pro-blackwell", "b200", "gb200", "b300", "gb300", "dgx-spark", "jetson-thor"]
EVERY_RELEASE = [(base, name) for base, releases in RELEASES.items() for name in releases]
MACHINE = {"amd64": "x86_64", "arm64": "aarch64"}


# ---------------------------------------------------------------------------------------------------------------------
# The files


def errors(name: str, document: object) -> list[str]:
    """What a schema of the catalogue finds wrong in a document."""
    schema = json.loads((ROOT / f"catalogue/schemas/{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


@pytest.mark.parametrize("name", FILES)
def test_schema(name):
    assert errors(name, support.load(name)) == []


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("hardware", ("hardware", "rtx-50", "capability"), 12.0),
        ("hardware", ("hardware", "rtx-50", "sass"), []),
        ("hardware", ("hardware", "cpu", "min_cuda"), "12.8"),
        ("hardware", ("hardware", "a100", "driver", "first"), "R450"),
        ("hardware", ("hardware", "a100", "vram"), 80),
        ("hardware", ("hardware", "a100", "checked"), "yesterday"),
        ("images", ("releases", "ngc", "25.11", "torch"), "2.10.0"),
        ("images", ("releases", "wheel", "2.13.0-cu130", "index"), "https://example.org/simple"),
        ("images", ("releases", "wheel", "2.13.0-cu130", "source"), None),
        ("packages", ("use_cases", "llm", "torch"), "any"),
        ("packages", ("tools",), ["ruff; rm -rf /"]),
    ],
)
def test_schema_refuses(name, path, value):
    document = copy.deepcopy(support.load(name))
    *way, last = path
    place = document
    for step in way:
        place = place[step]
    place[last] = value
    assert errors(name, document) != []


@pytest.mark.parametrize("name", FILES)
def test_versions_are_quoted(name):
    """A bare 12.10 is the number 12.1, a bare date an object, a bare `on` true: none of that in the catalogue."""
    text = (ROOT / f"catalogue/{name}.yml").read_text()

    def walk(node: yaml.Node, key: str = ""):
        if isinstance(node, yaml.MappingNode):
            for left, right in node.value:
                assert left.tag == "tag:yaml.org,2002:str", (
                    f"line {left.start_mark.line + 1}: quote the key {left.value}"
                )
                walk(right, left.value)
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                walk(item, key)
        elif node.tag.endswith((":float", ":timestamp")):
            assert key == "fraction", f"line {node.start_mark.line + 1}: quote {node.value}"

    walk(yaml.compose(text))


def test_the_files_are_small_and_plain():
    """Jinja renders what is made of them, catalogue.json, on every copy."""
    texts = [(ROOT / f"catalogue/{name}.yml").read_text() for name in FILES]
    assert (ROOT / "catalogue/catalogue.json").stat().st_size < 120_000
    assert not any(mark in text for mark in ("{{", "{%", "{#") for text in texts)


def test_nothing_is_wrong_in_it():
    assert check.faults() == []


def without(document: dict, *path: str) -> None:
    *way, last = path
    for step in way:
        document = document[step]
    del document[last]


@pytest.mark.parametrize(
    ("file", "change", "line"),
    [
        (
            "hardware",
            lambda it: without(it, "hardware", "h100", "driver"),
            "catalogue/hardware.yml: hardware.h100: driver is missing",
        ),
        (
            "hardware",
            lambda it: it["hardware"]["h100"].update(capability="3.0", sass=["3.0"]),
            "catalogue/hardware.yml: hardware.h100: no confirmed release serves capability 3.0 on amd64",
        ),
        (
            "hardware",
            lambda it: it["hardware"]["rtx-50"]["cards"][0].update(driver="550.54.14"),
            'catalogue/hardware.yml: hardware.rtx-50.driver.first: write "550.54.14"',
        ),
        (
            "hardware",
            lambda it: it["hardware"].update({"rtx-60": {"label": "GeForce RTX 60 series"}}),
            "catalogue/hardware.yml: hardware.rtx-60: architecture, cards, ",
        ),
        (
            "images",
            lambda it: it["releases"]["wheel"]["2.14.1-cu130"].update(cuda=13.0),
            "catalogue/images.yml: releases.wheel.2.14.1-cu130.cuda: 13.0 is a number: quote it",
        ),
        (
            "packages",
            lambda it: it["use_cases"]["vision"].update(torhc=">=2"),
            "catalogue/packages.yml: use_cases.vision: unknown: torhc; the fields are",
        ),
    ],
)
def test_each_fault_is_one_line(monkeypatch, file, change, line):
    documents = {name: copy.deepcopy(support.load(name)) for name in FILES}
    change(documents[file])
    monkeypatch.setattr(support, "load", documents.__getitem__)
    (found,) = check.faults()
    assert found.startswith(line)
    assert "\n" not in found


def test_every_figure_has_a_source_and_a_date():
    def walk(node: object, path: str) -> int:
        if isinstance(node, list):
            return sum(walk(item, path) for item in node)
        if not isinstance(node, dict):
            return 0
        if "checked" in node:
            assert datetime.date.fromisoformat(node["checked"]) >= datetime.date(2026, 11, 1), path
            assert node.get("source") or (node["memory"] and node["drivers"]), path
        return ("checked" in node) + sum(walk(value, f"{path}.{key}") for key, value in node.items())

    assert walk([support.load(name) for name in FILES], "") > 100


@pytest.mark.parametrize("name", IDS)
def test_machine(name):
    machine = HARDWARE[name]
    assert machine.get("compiles", "99.0") == "99.0" or support.number(machine["compiles"]) > support.number(
        machine["min_cuda"]
    )
    assert machine["unified_memory"] == (machine["memory"] == "unified")
    assert (machine["status"] == "ended") == bool(machine["max_cuda"]) == bool(machine["driver"]["last"])
    assert (machine["status"] == "experimental") == name.startswith("jetson")
    assert machine["request"]["devices"] == {"gb300": "0", "cpu": ""}.get(name, "all")
    assert support.current(machine["base"]["recommended"], [name]), "the recommended base has nothing for it"


@pytest.mark.parametrize("name", IDS)
def test_kernel_modules(name):
    """NVIDIA's rule: before Turing none but the proprietary ones, for Grace Hopper and Blackwell none but the open."""
    machine = HARDWARE[name]
    capability = support.number(machine["capability"] or "0")
    required = capability >= support.number("10.0") or (machine["architecture"], machine["arch"]) == ("Hopper", "arm64")
    kinds = {True: "open", False: "proprietary" if capability < support.number("7.5") else "either"}
    expected = None if name == "cpu" or machine["status"] == "experimental" else kinds[required]
    assert machine["driver"]["modules"] == expected


CARDS = [(name, card) for name, machine in HARDWARE.items() for card in machine["cards"]]
LISTED = {  # by NVIDIA's list of GPUs, where neither the card's name nor what it is in between makes it up
    "A800 PCIe": "NVIDIA A800 80GB PCIe",
    "A800 SXM4 80GB": "NVIDIA A800-SXM4-80GB",
    "A800 SXM4 40GB": "NVIDIA A800-SXM4-40GB",
    "H100 SXM": "NVIDIA H100 80GB HBM3",
    "GH200": "GH200 480GB",
    "GB200": "HGX GB200",
    "B300": "NVIDIA B300 SXM6 AC",
    "RTX PRO 6000 Blackwell Max-Q": "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    "RTX PRO 6000D Blackwell": "NVIDIA RTX PRO 6000D Blackwell Workstation Edition",
}


def listed(card: dict) -> str | None:
    """The first driver that NVIDIA's list has a card in; None where it is older than all that matter."""
    first = json.loads((ROOT / "tests/data/first_drivers.json").read_text())["first"]
    laptop = card.get("form") == "laptop"
    ends = [" Generation Laptop GPU", " Laptop GPU"] if laptop else ["", " Generation", " Edition"]
    names = [f"NVIDIA {series}{card['name']}{end}" for series in ("GeForce ", "") for end in ends]
    names = [*([LISTED[card["name"]]] if card["name"] in LISTED else []), *names]
    return next((first[name] for name in names if name in first), None)


def test_one_card_is_under_one_id():
    cards = [(card["name"], card.get("form"), size) for _, card in CARDS for size in card["memory_gb"]]
    assert len(cards) == len(set(cards)) > 180
    names = [card["name"] for _, card in CARDS]
    for _, card in CARDS:
        both = names.count(card["name"]) > 1
        assert both == ("form" in card) or card.get("form") == "laptop", (
            f"{card}: `form` is for a laptop's card, and for a desktop card whose name a laptop's has too"
        )


@pytest.mark.parametrize(
    ("name", "form", "sizes"),
    [
        ("RTX 5070 Ti", "desktop", {16}),
        ("RTX 5070 Ti", "laptop", {12}),
        ("RTX 3060", "desktop", {8, 12}),
        ("RTX 3080", "laptop", {8, 16}),
        ("RTX 3050", "laptop", {4, 6}),
        ("RTX 2060", None, {6, 12}),
        ("GTX 1060", None, {3, 6}),
        ("Jetson Orin Nano", None, {4, 8}),
        ("A100", None, {40, 80}),
    ],
)
def test_sizes_of_a_name(name, form, sizes):
    found = [card["memory_gb"] for _, card in CARDS if (card["name"], card.get("form")) == (name, form)]
    assert [set(item) for item in found] == [sizes]


def test_first_drivers_are_those_that_list_the_card():
    known = {"DGX Station GB300": "590.48.01"}  # NVIDIA's guide for it asks for more than the GPU's first
    for id, card in CARDS:
        if HARDWARE[id]["specs"]["drivers"].startswith("https://github.com/NVIDIA/open-gpu-kernel-modules"):
            first = known.get(card["name"], listed(card))
            if first is None and "source" in card:
                continue  # newer than the recorded lists
            assert card["driver"] == first, (
                f"{id}: {card}: give it a `source`, if its driver is not in the recorded lists"
            )


def test_what_is_uncertain_decides_nothing():
    for name, machine in HARDWARE.items():
        for field in set(machine.get("uncertain", ())) & {"capability", "sass", "min_cuda", "max_cuda", "driver"}:
            assert field == "driver", f"{name}: {field} is uncertain, and decides what is offered"
            assert machine["driver"]["first"] is machine["driver"]["last"] is None, name
    for base, releases in RELEASES.items():
        for targets in itertools.combinations(IDS, 1):
            chosen = support.current(base, targets)
            assert not chosen or releases[chosen]["status"] == "confirmed"


@pytest.mark.parametrize(("base", "name"), EVERY_RELEASE)
def test_release_agrees_with_itself(base, name):
    release = RELEASES[base][name]
    if base == "ngc":
        assert f":{name}-py3" in release["image"]
        assert release["torch"].endswith(f".nv{name}")
        return
    torch, build = release["torch"].split("+")
    assert release["index"].endswith(f"/{build}")
    assert release["cuda"] == (None if build == "cpu" else f"{build[2:4]}.{build[4:]}")
    assert (release["driver"] is None) == (release["cuda"] is None)
    if base == "wheel":
        assert name == f"{torch}-{build}"
    else:
        toolkit = re.fullmatch(r"nvidia/cuda:([\d.]+)-devel-ubuntu24\.04", release["image"]).group(1)
        assert name == f"{toolkit}-torch-{torch}"
        # torch builds extensions with any toolkit of its own major version that is not older
        assert support.number(toolkit)[0] == support.number(release["cuda"])[0]
        assert support.number(toolkit) >= support.number(release["cuda"])
    exact = f"torch=={torch}"
    span = release["requirement"].removeprefix("torch")
    assert release["requirement"] == exact or support.outside(release, span) == ""
    if release["requirement"] != exact and release["status"] == "confirmed":
        assert support.outside({"torch": "2.13.0"}, span) == "", "a mirror that lags behind has nothing to serve"


# ---------------------------------------------------------------------------------------------------------------------
# The oracle: torch's own rules and flags, NVIDIA's tables. None of these functions reads the catalogue's kernels, sass,
# min_cuda or max_cuda.


def tens(version: str) -> int:
    """ "12.0" -> 120"""
    major, minor = version.split(".")
    return int(major) * 10 + int(minor)


def rules(cuda: str) -> dict[str, dict]:
    later = support.number(cuda) >= (13, 2)
    return {**ORACLE["rules"]["code"], **(ORACLE["rules"]["from_cuda_13_2"] if later else {})}


def code_runs(code: int, device: int, cuda: str) -> bool:
    """Whether code compiled for one capability runs on a device of another: what torch warns about at start."""
    rule = rules(cuda)[str(code)]
    if "only" in rule:
        return device in rule["only"]
    return device // 10 == code // 10 and device >= rule["start"] and device not in rule.get("exclude", ())


def flags(base: str, name: str, arch: str) -> tuple[list[int], list[int]] | None:
    """SASS and PTX that the oracle knows of in a release, on one architecture; None where it knows of no build."""
    if base == "ngc":
        for image in ORACLE["images"]["builds"]:
            if image["arch"] == arch and image["from"] <= name <= image["to"]:
                listed = [tens(item.removesuffix("+PTX")) for item in image["list"].split()]
                return listed, [tens(item.removesuffix("+PTX")) for item in image["list"].split() if "+PTX" in item]
        return None
    torch, build = re.search(r"(2\.\d+\.\d+)\+(\w+)", RELEASES[base][name]["torch"]).groups()
    if build == "cpu":
        return [], []
    cuda = f"{build[2:4]}.{build[4:]}"
    for wheel in ORACLE["wheels"]["builds"]:
        if (wheel["torch"], wheel["cuda"], wheel["arch"]) == (torch, cuda, arch):
            return wheel["sass"], wheel["ptx"]
    table = ORACLE["tables"].get("2.14.1" if support.number(torch) >= (2, 14) else torch, {})
    listed = table.get(cuda, {}).get(MACHINE[arch])
    return (listed, []) if listed else None


def oracle_says(machine: dict, base: str, name: str) -> bool:
    """Whether a release runs on a machine, from the oracle alone."""
    known = flags(base, name, machine["arch"])
    if known is None:
        return False
    if machine["capability"] is None:
        return True
    sass, ptx = known
    cuda = RELEASES[base][name]["cuda"]
    device = tens(machine["capability"])
    if cuda is None:
        return False
    toolkit = ORACLE["toolkits"]["capabilities"][str(device)]
    major = str(support.number(cuda)[0])
    in_time = support.number(toolkit["first"]) <= support.number(cuda) <= support.number(toolkit.get("last", "99.0"))
    driven = int(ORACLE["drivers"]["cuda"][major]) <= int(toolkit.get("driver", "999"))
    compiled = any(code_runs(code, device, cuda) for code in sass)
    return in_time and driven and (compiled or any(code <= device for code in ptx))


@pytest.mark.parametrize(("base", "name"), EVERY_RELEASE)
def test_kernels_are_those_of_the_build(base, name):
    for arch in MACHINE:
        known = flags(base, name, arch)
        claimed = RELEASES[base][name]["kernels"].get(arch)
        assert (claimed is None) == (known is None), f"{arch}: claimed {claimed}, known {known}"
        if claimed:
            assert ([tens(item) for item in claimed["sass"]], [tens(item) for item in claimed["ptx"]]) == known


@pytest.mark.parametrize("name", [name for name in IDS if HARDWARE[name]["capability"]])
def test_sass_follows_torch(name):
    machine = HARDWARE[name]
    device = tens(machine["capability"])
    expected = {int(code) for code in ORACLE["rules"]["code"] if code_runs(int(code), device, machine["min_cuda"])}
    assert {tens(item) for item in machine["sass"]} == expected
    toolkit = ORACLE["toolkits"]["capabilities"][str(device)]
    assert (machine["min_cuda"], machine["max_cuda"]) == (toolkit["first"], toolkit.get("last"))
    assert machine["driver"]["last"] == toolkit.get("driver")


@pytest.mark.parametrize("name", IDS)
def test_offered_exactly_where_it_runs(name):
    for base, release in EVERY_RELEASE:
        reason = support.supports(HARDWARE[name], RELEASES[base][release])
        assert (reason == "") == oracle_says(HARDWARE[name], base, release), f"{base} {release}: {reason or 'offered'}"


@pytest.mark.parametrize("name", [name for name in IDS if HARDWARE[name]["capability"]])
def test_what_is_offered_for_llm_has_kernels_of_bitsandbytes(name):
    """By torch's rule too, with the library that bitsandbytes loads for the CUDA of each release."""
    machine = HARDWARE[name]
    offered = 0
    for base, release in EVERY_RELEASE:
        if not support.refused(RELEASES[base][release], [name], "llm"):
            cuda = RELEASES[base][release]["cuda"]
            codes = support.loaded(cuda, PACKAGES["kernels"]["bitsandbytes"][machine["arch"]])
            assert any(code_runs(tens(code), tens(machine["capability"]), cuda) for code in codes), (base, release)
            offered += 1
    assert offered


@pytest.mark.parametrize(
    ("cuda", "library"), [("12.6", "12.6"), ("13.4", "13.2"), ("13.1", "13.0"), ("12.0", "12.6"), ("11.8", None)]
)
def test_library_that_is_loaded(cuda, library):
    libraries = {version: [version] for version in PACKAGES["kernels"]["bitsandbytes"]["amd64"]}
    assert support.loaded(cuda, libraries) == ([library] if library else [])


@pytest.mark.parametrize("name", [name for name in IDS if HARDWARE[name]["capability"]])
def test_recipes_follow_transformer_engine(name):
    """quantization.py of 2.20.2: what is_fp8_available and its like answer, and get_default_recipe."""
    device = tens(HARDWARE[name]["capability"])
    answers = {"fp8": device >= 89, "fp8 blocks": device >= 90, "mxfp8": 100 <= device < 120, "nvfp4": device >= 100}
    default = ("mxfp8" if device < 120 else "fp8") if device >= 100 else "fp8" if device >= 89 else ""
    shown = document.recipes(HARDWARE[name]["capability"])
    accepted = [part.strip("*").removesuffix(" (partial)") for part in shown.split(", ")]
    assert accepted == ([recipe for recipe, yes in answers.items() if yes] or ["none"])
    assert re.findall(r"\*\*(.+?)\*\*", shown) == ([default] if default else [])
    assert ("nvfp4 (partial)" in shown) == (device >= 120)
    assert ("fp8" in HARDWARE[name]["precisions"], "fp4" in HARDWARE[name]["precisions"]) == (
        answers["fp8"],
        answers["nvfp4"],
    )


def test_tables_agree_with_the_releases():
    """What documents show of versions, flavors and toolkits is what the releases are made of."""
    images = support.load("images")
    for base, name in EVERY_RELEASE:
        release = RELEASES[base][name]
        if base == "ngc":
            assert name not in images["contents"]["images"], "offered and not offered"
            continue
        torch, build = release["torch"].split("+")
        version = images["wheels"]["versions"][".".join(torch.split(".")[:2])]
        assert release["torchvision"] == version["torchvision"]
        if build != "cpu":
            assert build in version["flavors"]
            assert release.get("package_index", False) == (release["cuda"] == version["pypi"])
            spans = [item for item in images["flavors"]["builds"] if item["flavor"] == build]
            spans = [item for item in spans if covers(item["torch"], torch)]
            assert [item[arch] for item in spans for arch in release["kernels"]] == [
                kernels["sass"] for kernels in release["kernels"].values()
            ]
        if base == "cuda":
            toolkit = ".".join(name.split(".")[:2])
            assert release["driver"] == images["toolkits"]["drivers"][toolkit]


def test_every_release_has_an_end_or_a_rule():
    """No date is made up: it is that of the driver branch, or of Debian and Python; else the base's rule holds."""
    images = support.load("images")
    branches = {item["branch"]: item["end"] or "" for item in images["branches"]}
    for base, name in EVERY_RELEASE:
        release = RELEASES[base][name]
        rule = images["bases"][base]["support"]["rule"]
        end = release["end_of_life"]
        if rule == "newest-minor":
            ends = images["ends"]
            assert end == min(ends["distributions"][release["distribution"]], ends["pythons"][release["python"]])
        elif rule == "driver-branch":
            month = branches.get(release["driver"].split(".")[0], "")
            assert (end or "")[:7] == month
            assert not end or (datetime.date.fromisoformat(end) + datetime.timedelta(1)).day == 1, "a month's last day"
        else:
            assert rule == "newest" and end is None
    assert [name for name in RELEASES["ngc"] if not support.superseded("ngc", name)] == ["26.09", "26.08", "26.07"]
    assert support.superseded("wheel", "2.10.0-cu128") and not support.superseded("wheel", "2.14.1-cu126")
    assert not support.superseded("cuda", "12.8.2-torch-2.10.0")  # it has a date


def covers(span: str, torch: str) -> bool:
    first, _, last = span.partition(" to ")
    return support.number(first) <= support.number(torch) <= support.number(last or first)


def test_what_an_older_toolkit_compiles_for(generate):
    """nvcc 12.8 does not know B300's own 10.3: extensions are built for 10.0, which runs there."""
    for base, release in EVERY_RELEASE:
        toolkit = RELEASES[base][release]["image"].split(":")[1] if base == "cuda" else ""
        if toolkit and not support.refused(RELEASES[base][release], ["b300"]):
            older = support.number(toolkit) < support.number(HARDWARE["b300"]["compiles"])
            project = generate(hardware="b300", advanced=True, base=base, release=release)
            listed = re.search(r'TORCH_CUDA_ARCH_LIST="([^"]*)"', (project / "Dockerfile").read_text())[1]
            assert listed == ("10.0" if older else "10.3")


def test_environment_of_a_machine_is_in_its_container(generate):
    """Without it, torch.linalg fails on a T4 (MAGMA has no code for it)."""
    for name, machine in HARDWARE.items():
        if "environment" in machine:
            project = generate(hardware=name)
            container = json.loads((project / ".devcontainer/devcontainer.json").read_text())["containerEnv"]
            assert machine["environment"]["variables"].items() <= container.items()


@pytest.mark.parametrize(("base", "name"), EVERY_RELEASE)
def test_driver_floor_is_not_below_the_toolkits(base, name):
    release = RELEASES[base][name]
    if release["cuda"]:
        assert support.number(release["driver"]) >= support.number(
            ORACLE["drivers"]["cuda"][release["cuda"].split(".")[0]]
        )


def test_a_wrong_entry_is_found():
    """The comparison has teeth: kernels that a build does not have, and a GPU that would take any code."""
    machine = HARDWARE["rtx-50"]
    release = copy.deepcopy(RELEASES["wheel"]["2.14.1-cu126"])
    assert support.supports(machine, release)
    assert not oracle_says(machine, "wheel", "2.14.1-cu126")
    release["kernels"]["amd64"]["sass"].append("12.0")
    release["cuda"] = "12.8"
    assert not support.supports(machine, release), "claimed kernels decide"
    assert [tens(item) for item in release["kernels"]["amd64"]["sass"]] != flags("wheel", "2.14.1-cu126", "amd64")[0]


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed here: its recorded rules are used"
)
def test_recorded_rules_are_those_of_an_installed_torch():
    import torch

    if not hasattr(torch.cuda, "DEVICE_REQUIREMENT"):
        pytest.skip(f"torch {torch.__version__} does not say what runs where")
    for code, requirement in torch.cuda.DEVICE_REQUIREMENT.items():
        if code not in (110, 101):  # 2.13 and before knew 11.0 only as an interval
            assert {device for device in range(50, 130) if device in requirement} == {
                device for device in range(50, 130) if code_runs(code, device, "13.0")
            }


# ---------------------------------------------------------------------------------------------------------------------
# What follows from it


@pytest.mark.parametrize(
    ("name", "base", "release", "reason"),
    [
        ("jetson-orin", "wheel", "2.14.1-cu130", "CUDA 13.0 is older than the 13.2 that Jetson Orin needs"),
        ("jetson-orin", "wheel", "2.14.1-cu132", ""),
        ("b300", "wheel", "2.14.1-cu130", ""),  # by sm_100
        ("dgx-spark", "ngc", "25.11", ""),  # by sm_120
        ("dgx-spark", "wheel", "2.10.0-cu128", "no arm64 build"),
        ("rtx-50", "wheel", "2.14.1-cu126", "CUDA 12.6 is older than the 12.8 that GeForce RTX 50 series needs"),
        ("rtx-50", "wheel", "2.14.1-cpu", "no CUDA"),
        ("v100", "wheel", "2.10.0-cu128", ""),
        ("v100", "ngc", "25.03", "no kernels for V100, TITAN V"),
        ("gtx-10", "wheel", "2.10.0-cu128", "no kernels for GeForce GTX 10 series, P40"),
        ("gtx-10", "ngc", "25.11", "CUDA 13.0 no longer supports GeForce GTX 10 series, P40"),
        ("gh200", "wheel", "2.14.1-cu126", ""),
        ("cpu", "ngc", "26.07", ""),
    ],
)
def test_supports(name, base, release, reason):
    assert support.supports(HARDWARE[name], RELEASES[base][release]) == reason


def test_driver_that_no_longer_exists():
    release = {**RELEASES["wheel"]["2.14.1-cu126"], "driver": "590"}
    assert support.supports(HARDWARE["v100"], release) == "no driver from 590 on supports V100, TITAN V"
    assert support.supports(HARDWARE["h100"], release) == ""


def test_ptx_runs_on_its_own_capability_and_above():
    release = copy.deepcopy(RELEASES["wheel"]["2.10.0-cu128"])
    release["kernels"] = {"amd64": {"sass": [], "ptx": ["9.0"]}}
    assert support.supports(HARDWARE["h100"], release) == ""
    assert support.supports(HARDWARE["rtx-50"], release) == ""
    assert support.supports(HARDWARE["rtx-40"], release) == "no kernels for GeForce RTX 40 series"


@pytest.mark.parametrize("name", IDS)
def test_two_bases_where_support_goes_on(name):
    machine = HARDWARE[name]
    if machine["arch"] == "amd64" and machine["status"] == "supported":
        assert len(support.bases([name])) >= 2
    assert support.bases([name]), "no base has anything for it"


@pytest.mark.parametrize("name", BLACKWELL)
def test_no_build_carries_pascal_and_blackwell(name):
    assert support.bases(["gtx-10", name]) == {}
    for base, releases in RELEASES.items():
        for release in releases.values():
            assert support.refused(release, ["gtx-10", name]), base


def test_volta_and_blackwell_meet_in_one_build():
    assert support.bases(["v100", "rtx-50"]) == {"wheel": "2.10.0-cu128"}


@pytest.mark.parametrize(
    ("base", "targets", "use_case"),
    [
        ("wheel", ["rtx-50"], "minimal"),
        ("wheel", ["cpu"], "minimal"),
        ("wheel", ["rtx-50", "cpu"], "vision"),
        ("wheel", ["v100"], "llm"),
        ("wheel", ["jetson-orin"], "llm"),
        ("ngc", ["dgx-spark"], "llm"),
        ("cuda", ["rtx-30"], "minimal"),
        ("cuda", ["gtx-10"], "minimal"),
    ],
)
def test_current_is_the_newest_confirmed_release_that_serves(base, targets, use_case):
    releases = RELEASES[base]
    current = support.current(base, targets, use_case)
    usable = [
        name
        for name, release in releases.items()
        if release["status"] == "confirmed" and not support.refused(release, targets, use_case)
    ]
    assert current == usable[0]
    kernels = releases[current]["kernels"]
    for machine in (HARDWARE[target] for target in targets if HARDWARE[target]["capability"]):
        assert set(machine["sass"]) & set(kernels[machine["arch"]]["sass"])


def test_no_release_is_current_where_none_serves():
    assert support.current("ngc", ["v100"], "minimal") == ""


@pytest.mark.parametrize(
    ("torch", "span", "reason"),
    [
        ("2.14.1+cu130", ">=2.4,<2.15", ""),
        ("2.15.0+cu132", ">=2.4,<2.15", "its torch is not <2.15"),
        ("2.10.0a0+b558c986e8.nv25.11", ">=2.10", ""),  # a pre-release counts as its release
        ("2.9.0a0+50eac811a6.nv25.09", ">=2.10", "its torch is not >=2.10"),
        ("2.14.1+cu130", "", ""),
    ],
)
def test_torch_in_range(torch, span, reason):
    assert support.outside({"torch": torch}, span) == reason


def test_what_copier_reads_is_the_catalogue():
    """catalogue.json is generated: the catalogue without sources, and what follows from it."""
    text = (ROOT / "catalogue/catalogue.json").read_text(encoding="utf-8")
    assert not re.search(r"\{[{%#]", text), "Jinja reads it"
    contents = json.loads(text)
    for id, machine in contents["hardware"].items():
        whole = support.bare(HARDWARE[id])
        assert {name: machine.get(name) for name in whole if name not in combine.OF_CARDS} == {
            name: value for name, value in whole.items() if name not in combine.OF_CARDS
        }
    for base, releases in contents["releases"].items():
        for id, release in releases.items():
            whole = support.bare(RELEASES[base][id])
            assert {name: release[name] for name in whole} == whole
    sections = {name for file in FILES for name in support.load(file)}
    assert {"leads", *sections} - set(contents) == {"sources", *combine.DOCUMENTED}  # there may be no leads
    assert "https://developer.nvidia.com/cuda-gpus" not in text, "nothing is rendered from a source"


def test_copier_decides_the_same():
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ROOT),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        extensions=["jinja2_ansible_filters.AnsibleCoreFiltersExtension"],
    )
    rule = environment.get_template("fragments/support.jinja").module
    contents = json.loads(combine.text())
    pairs = [[name] for name in IDS] + [list(pair) for pair in itertools.combinations(IDS, 2)]
    for targets, use_case in itertools.product(pairs, ["", "llm"]):
        keys = [*targets, USE_CASES[use_case]["torch"] if use_case else ""]
        for base, releases in contents["releases"].items():
            assert str(rule.current(releases, keys)).strip() == support.current(base, targets, use_case)
            for name, release in releases.items():
                reason = support.refused(RELEASES[base][name], targets, use_case)
                assert str(rule.refused(release, keys)) == reason, (targets, base, name)


@pytest.mark.parametrize("script", [combine, data, document, questions])
def test_what_is_written_from_it_is_fresh(script):
    stale = [path.name for path, text in script.files().items() if path.read_text(encoding="utf-8") != text]
    assert not stale, "run `uv run --group test python catalogue/refresh.py`"
