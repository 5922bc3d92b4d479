"""Wheels of packages with CUDA code: what their names mean, which of them fit a project, and what is pinned."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gpukit.cli import add
from gpukit.findings.causes import PROJECT
from gpukit.findings.finding import in_words, problem
from gpukit.host import stacks
from gpukit.host.cards import data
from gpukit.plan import extensions, wheels
from gpukit.plan.index import MACHINES
from gpukit.plan.wheels import Need, allowed, misfit, read
from gpukit.project import pyproject
from gpukit.project.messages import RefusalError
from gpukit.project.stack import Stack, minor, version

from .web import Web

NAMES = json.loads((Path(__file__).parents[1] / "data/wheel_names.json").read_text(encoding="utf-8"))
RELEASES = data("stacks")["releases"]


@pytest.mark.parametrize("file", NAMES)
def test_what_names_say(file: str) -> None:
    """As a person read them. `understood`: false for what nobody can know; such a wheel fits no project."""
    built = read(file)
    means = NAMES[file]
    assert built is not None
    if not means.get("understood", True):
        assert built.unknown
        return
    assert not built.unknown
    found = {
        "version": built.version,
        "torch": built.torch,
        "cuda": built.cuda,
        **({"other": built.other} if built.other else {}),
        **({"sass": list(built.sass)} if built.sass else {}),
        **({"or_newer": True} if built.or_newer else {}),
        **({"old_abi": True} if built.old_abi else {}),
    }
    assert found == means


def need(**changes: object) -> Need:
    stack = stacks.stack(["rtx-50"])
    return replace(extensions.needs(stack)["amd64"], torch="2.14.1+cu130", cuda="13.0", **changes)


@pytest.mark.parametrize(
    ("local", "tags", "why"),
    [
        ("cu130torch2.14", "cp312-cp312-manylinux_2_28_x86_64", ""),
        ("cu13torch2.14.0cxx11abiTRUE", "cp39-abi3-linux_x86_64", ""),
        ("cu130torch2.9andhigher", "cp312-cp312-linux_x86_64", ""),
        ("cu130torch2.15andhigher", "cp312-cp312-linux_x86_64", "torch"),
        ("cu130torch2.13", "cp312-cp312-linux_x86_64", "torch"),
        ("cu130torch2.14cxx11abiFALSE", "cp312-cp312-linux_x86_64", "abi"),
        ("cu126torch2.14", "cp312-cp312-linux_x86_64", "cuda"),
        ("cu132torch2.14", "cp312-cp312-linux_x86_64", "cuda"),
        ("cu130torch2.14", "cp312-cp312-linux_aarch64", "platform"),
        ("cu130torch2.14", "cp311-cp311-linux_x86_64", "platform"),
        ("cu130torch2.14", "cp312-cp312-manylinux_2_41_x86_64", "platform"),
        ("cu130torch2.14", "cp312-cp312-win_amd64", "platform"),
        ("cu130sm89torch2.14", "cp312-cp312-linux_x86_64", "capability"),
        ("cu130sm120torch2.14", "cp312-cp312-linux_x86_64", ""),
        ("cputorch2.14", "cp312-cp312-linux_x86_64", "accelerator"),
        ("rocm7.0torch2.14", "cp312-cp312-linux_x86_64", "accelerator"),
        ("cu130torch2.14.0a0", "cp312-cp312-linux_x86_64", "unknown"),
        ("cu130torch2.14gfx942", "cp312-cp312-linux_x86_64", "unknown"),
    ],
)
def test_what_fits_a_project(local: str, tags: str, why: str) -> None:
    built = read(f"some-1.0+{local}-{tags}.whl")
    assert built and misfit(built, need()) == why


def test_a_cuda_that_is_too_old_for_a_target() -> None:
    built = read("some-1.0+cu126torch2.14-cp312-cp312-linux_x86_64.whl")
    assert built and misfit(built, replace(need(least_cuda="12.6"), cuda="12.8")) == ""
    assert misfit(built, replace(need(least_cuda="12.8"), cuda="12.8")) == "cuda"


@pytest.mark.parametrize(
    ("text", "specifier", "meets"),
    [
        ("2.8.3.post1", "", True),
        ("2.8.3.post1", "==2.8.3", False),
        ("2.8.3.post1", ">2.8.3", False),
        ("2.8.3.post2", ">2.8.3.post1", True),
        ("2.8.3", "==2.8.3+cu130", True),
        ("2.8.3.post1", ">=2.8.3,<3", True),
        ("2.8.3", "==2.8.*", True),
        ("2.8", "==2.8.0", True),
        ("2.8.3", "~=2.7", True),
        ("2.8.3", "~=2.7.1", False),
        ("2.8.3", "!=2.8.3", False),
        ("3.0.0b1", ">=2", False),
        ("3.0.0b1", "==3.0.0b1", True),
        ("4.0.0rc1", "", False),
    ],
)
def test_versions_that_a_requirement_allows(text: str, specifier: str, meets: bool) -> None:
    assert allowed(text, specifier) is meets


# On an index


@dataclass
class Index:
    """Files of `name version+local-tags` on the page of a package, in JSON, or in HTML."""

    web: Web

    def has(self, page: str, *wheels: str, html: bool = False, hashed: bool = True, yanked: bool = False) -> None:
        listed = []
        for wheel in wheels:
            file = f"{wheel}.whl"
            body = file.encode()
            digest = hashlib.sha256(body).hexdigest()
            self.web.answers[f"/{file}"] = ("application/zip", body)
            self.web.answers.setdefault(f"/{file}.metadata", ("text/plain", b"Name: x\nRequires-Dist: torch\n"))
            each = {"filename": file, "url": f"/{file}", "size": len(body), "yanked": yanked}
            listed.append({**each, "hashes": {"sha256": digest} if hashed else {}})
        kind = "application/vnd.pypi.simple.v1+json"
        body = json.dumps({"files": listed}).encode()
        if html:
            links = [
                f'<a href="{each["url"].replace("+", "%2B")}'
                f'{"#sha256=" + each["hashes"]["sha256"] if hashed else ""}">{each["filename"]}</a>'
                for each in listed
            ]
            kind = "text/html"
            body = "\n".join(links).encode()
        self.web.answers[page] = (kind, body)


@pytest.fixture
def index(web: Web) -> Index:
    return Index(web)


TAGS = {"amd64": "cp312-cp312-manylinux_2_28_x86_64", "arm64": "cp312-cp312-manylinux_2_28_aarch64"}


def project(*ids: str, base: str = "", release: str = "") -> Stack:
    """The stack of a project for these targets, on a base, and its `current` release unless one is given."""
    stack = stacks.stack(ids)
    base = base or stack.base
    release = release or stacks.releases_for(base, ids, stack.use_case)[0]
    fields = {name: RELEASES[base][release][name] for name in ("torch", "cuda", "python")}
    fields["protected"] = stack.protected if base == stack.base else ("torch", "nvidia-*")
    return replace(stack, base=base, release=release, **fields)


def local(stack: Stack, form: str = "cu.{cuda}.torch.{torch}") -> str:
    return form.format(cuda=stack.cuda, torch=minor(stack.torch))


def page(stack: Stack, name: str) -> str:
    return f"/astral/simple/cu{(stack.cuda or '').replace('.', '')}/{name}/"


PROJECTS = {
    "rtx-50": project("rtx-50"),
    "h100": project("h100"),
    "v100": project("v100"),
    "gh200 on wheels": project("gh200", base="wheel"),
    "spark on wheels": project("dgx-spark", base="wheel"),
    "both CPUs": project("h100", "gh200", base="wheel"),
}
PACKAGES = [name for name, each in data("extensions")["extensions"].items() if each["indexes"][:1] == ["astral"]]
FOR_ALL_CARDS = [name for name in PACKAGES if {*data("extensions")["extensions"][name]} <= {"indexes", "jit"}]


@pytest.mark.parametrize("html", [False, True], ids=["json", "html"])
@pytest.mark.parametrize("which", PROJECTS)
def test_each_project_gets_its_own_file_for_each_architecture(index: Index, which: str, html: bool) -> None:
    stack = PROJECTS[which]
    others = [each for each in PROJECTS.values() if each.cuda != PROJECTS[which].cuda]
    archs = sorted({target.arch for target in stack.targets.values()})
    assert len(FOR_ALL_CARDS) >= 8
    for name in FOR_ALL_CARDS:
        file = name.replace("-", "_")
        wrong = [f"{file}-9.0+cu130torch2.10-{TAGS[arch]}" for arch in archs]
        wrong += [f"{file}-9.0+{local(other)}-{TAGS[arch]}" for arch in archs for other in others]
        right = {arch: f"{file}-1.1+{local(stack)}-{TAGS[arch]}" for arch in archs}
        older = [f"{file}-1.0+{local(stack)}-{TAGS[arch]}" for arch in archs]
        index.has(page(stack, name), *wrong, *right.values(), *older, html=html)
        found = extensions.find(name, stack)
        assert {each.arch: each.file.filename for each in found.wheels} == {a: f"{w}.whl" for a, w in right.items()}
        for arch, line in zip(archs, found.lines):
            assert pyproject.name_of(line) == name and f"platform_machine == '{MACHINES[arch]}'" in line
            assert f"#sha256={hashlib.sha256(f'{right[arch]}.whl'.encode()).hexdigest()} " in line
        if len(archs) == 2:  # both or nothing
            index.has(page(stack, name), *wrong, right["amd64"], html=html)
            assert not extensions.find(name, stack).wheels


def missing(name: str, stack: Stack) -> dict[str, str]:
    found = extensions.find(name, stack)
    assert found.missing and not found.wheels and not found.lines
    return {"cause": found.missing.cause_id, "answers": found.missing.values.get("answers", "")}


@pytest.mark.parametrize(
    ("html", "yanked", "hashed"), [(False, True, True), (False, False, False), (True, False, False)]
)
def test_what_is_yanked_or_has_no_hash_is_refused(index: Index, html: bool, yanked: bool, hashed: bool) -> None:
    stack = PROJECTS["h100"]
    wheel = f"mamba_ssm-2.0+{local(stack)}-{TAGS['amd64']}"
    index.has(page(stack, "mamba-ssm"), wheel, html=html, hashed=hashed, yanked=yanked)
    assert missing("mamba-ssm", stack)["cause"] == ("extension-nowhere" if yanked else "extension-unhashed")


def test_a_pre_release_has_to_be_named(index: Index) -> None:
    stack = PROJECTS["h100"]
    index.has(page(stack, "flash-attn-3"), f"flash_attn_3-3.0.0b1+{local(stack)}-{TAGS['amd64']}")
    assert missing("flash-attn-3", stack)["cause"] == "extension-pre-release"
    assert extensions.find("flash-attn-3==3.0.0b1", stack).wheels
    assert extensions.find("flash-attn-3==4", stack).unknown_version


def test_packages_for_some_gpus_only(index: Index) -> None:
    for name, facts in data("extensions")["extensions"].items():
        limits = facts.get("capabilities", {})
        for stack in PROJECTS.values():
            own = [target.capability for target in stack.targets.values()]
            outside = [
                each
                for each in own
                if version(each) < version(limits.get("from", "0")) or each not in limits.get("only", [each])
            ]
            if outside:
                assert missing(name, stack)["cause"] == "extension-not-for-gpu"
    assert index.web.asked == []


def test_a_name_without_torch_counts_by_its_metadata(index: Index) -> None:
    stack = PROJECTS["h100"]
    name = f"mmcv-2.2.0-{TAGS['amd64']}"
    index.has(page(stack, "mmcv"), name)
    torch = stack.torch.partition("+")[0]
    for requires, fits in (
        ("torch", False),
        ("torch>=2", False),
        (f"torch=={torch}", True),
        (f"torch (=={minor(torch)}.*)", True),
        ("torch==2.12.*", False),
    ):
        text = f"Metadata-Version: 2.1\nName: mmcv\nVersion: 2.2.0\nRequires-Dist: {requires}\n"
        index.web.answers[f"/{name}.whl.metadata"] = ("text/plain", text.encode())
        assert bool(extensions.find("mmcv", stack).wheels) is fits, requires


def test_a_name_for_another_torch_is_refused_whatever_metadata_says(index: Index) -> None:
    stack = PROJECTS["h100"]
    index.has(page(stack, "mamba-ssm"), f"mamba_ssm-2.0+cu.13.0.torch.2.12-{TAGS['amd64']}")
    assert missing("mamba-ssm", stack)["cause"] == "extension-nowhere"


@pytest.mark.parametrize("which", PROJECTS)
def test_another_release_is_one_that_serves_all_targets(index: Index, which: str) -> None:
    """The newest that has a wheel: none of another CUDA than the targets' own, as 13.0 for a V100."""
    stack = PROJECTS[which]
    served = [name for name in stacks.releases_for("wheel", stack.targets, "minimal") if name != stack.release]
    archs = sorted({target.arch for target in stack.targets.values()})
    for name, release in RELEASES["wheel"].items():
        if release["cuda"] and name not in served:
            other = replace(stack, torch=release["torch"], cuda=release["cuda"])
            if (minor(other.torch), other.cuda) != (minor(stack.torch), stack.cuda):
                wheels = [f"mamba_ssm-2.0+{local(other)}-{TAGS[arch]}" for arch in archs]
                index.has(page(other, "mamba-ssm"), *wheels)
    had = {path: answer for path, answer in index.web.answers.items() if path.endswith("/mamba-ssm/")}
    assert missing("mamba-ssm", stack) == {"cause": "extension-nowhere", "answers": ""}
    older = [each for each in served if minor(RELEASES["wheel"][each]["torch"]) != minor(stack.torch)]
    index.web.answers.update(had)
    for name in older[-1:]:
        release = RELEASES["wheel"][name]
        other = replace(stack, torch=release["torch"], cuda=release["cuda"])
        index.has(page(other, "mamba-ssm"), *(f"mamba_ssm-2.0+{local(other)}-{TAGS[arch]}" for arch in archs))
        found = missing("mamba-ssm", stack)
        chosen = found["answers"].partition("release=")[2]
        assert found["cause"] == "extension-other-release" and chosen in served
        assert (RELEASES["wheel"][chosen]["torch"], RELEASES["wheel"][chosen]["cuda"]) == (other.torch, other.cuda)


def test_nvidias_image_brings_some_and_its_torch_takes_no_others(index: Index) -> None:
    spark = project("dgx-spark", base="ngc")
    wheel = project("dgx-spark", base="wheel")
    index.has(page(wheel, "mamba-ssm"), f"mamba_ssm-2.0+{local(wheel)}-{TAGS['arm64']}")
    index.has(page(spark, "mamba-ssm"), f"mamba_ssm-2.0+{local(spark)}-{TAGS['arm64']}")
    assert missing("mamba-ssm", spark)["answers"] == "--answers base=wheel"
    assert missing("transformer-engine-torch", spark)["cause"] == "extension-in-base"
    index.has(page(wheel, "flash-attn"))
    assert missing("flash-attn", wheel)["answers"] == "--answers base=ngc"


def test_parts_are_of_one_version(index: Index) -> None:
    stack = PROJECTS["both CPUs"]
    parts = [each.format(cuda="13") for each in data("extensions")["extensions"]["transformer-engine"]["parts"]]
    wheels = {part: [] for part in parts}
    for part in parts:
        for number in ("2.16.0", "2.17.0") if part != "transformer-engine-torch" else ("2.15.0", "2.16.0"):
            wheels[part] += [f"{part.replace('-', '_')}-{number}+{local(stack)}-{TAGS[arch]}" for arch in TAGS]
    core = parts[1].replace("-", "_")  # is not linked with torch
    wheels[parts[1]] = [
        f"{core}-{n}+cu.13.0-py3-none-{TAGS[a].split('-')[2]}" for n in ("2.16.0", "2.17.0") for a in TAGS
    ]
    for part, files in wheels.items():
        index.has(page(stack, part), *files)
    found = extensions.find("transformer-engine[pytorch]", stack)
    assert {each.built.version for each in found.wheels} == {"2.16.0"} and len(found.lines) == 6
    assert sum("transformer-engine[pytorch] @" in line for line in found.lines) == 2
    index.has(page(stack, parts[1]), *(file for file in wheels[parts[1]] if "2.17" in file))
    assert not extensions.find("transformer-engine", stack).wheels


@contextlib.contextmanager
def trickling() -> Iterator[str]:
    """A server that never ends the first header of its answer."""
    listening = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def answer() -> None:
        connection, _ = listening.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not over.wait(0.05):
                connection.sendall(b"x")

    thread = threading.Thread(target=answer)
    thread.start()
    with listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/{{package}}/"
    over.set()
    thread.join()


@pytest.mark.parametrize("how", ["drops the connection", "sends a part now and then"])
def test_an_index_that_does_not_respond(monkeypatch: pytest.MonkeyPatch, web: Web, how: str) -> None:
    monkeypatch.setattr(extensions, "SECONDS", 0.2)
    web.dropped = 99
    with contextlib.ExitStack() as serving:
        if how != "drops the connection":
            monkeypatch.setitem(data("extensions")["indexes"]["astral"], "page", serving.enter_context(trickling()))
        with pytest.raises(RefusalError, match=r"127\.0\.0\.1 cannot be reached"):
            extensions.find("flash-attn", PROJECTS["h100"])


def test_an_index_that_answers_403_for_what_it_does_not_have(web: Web) -> None:
    web.status = 403
    assert missing("mamba-ssm", PROJECTS["h100"])["cause"] == "extension-nowhere"


def test_find_links_of_all_packages(index: Index) -> None:
    """One page has the files of many packages, and it is one of a release of PyTorch."""
    stack = PROJECTS["rtx-50"]
    own = f"pt{minor(stack.torch).replace('.', '')}cu130"
    path = f"/pyg/whl/torch-{minor(stack.torch)}.0+cu130.html"
    files = [f"{name}-1.6.3+{own}-cp312-cp312-linux_x86_64" for name in ("torch_sparse", "torch_cluster")]
    index.has(path, *files, html=True)
    (wheel,) = extensions.find("torch-cluster", stack).wheels
    assert wheel.file.filename == f"{files[1]}.whl" and wheel.publisher == "PyG"


# In pyproject.toml


LINE = "{name} @ https://host/{file}-{version}+{local}-{tags}.whl#sha256={hash} ; platform_machine == '{machine}'"


def pinned(name: str, stack: Stack, arch: str) -> str:
    facts = {"file": name.replace("-", "_"), "version": "1.0", "local": local(stack), "tags": TAGS[arch]}
    return LINE.format(name=name, **facts, hash="0" * 64, machine=MACHINES[arch])


def test_what_is_pinned_is_judged_for_each_target() -> None:
    h100 = PROJECTS["h100"]
    both = PROJECTS["both CPUs"]
    v100 = PROJECTS["v100"]
    lines = [pinned("mamba-ssm", h100, "amd64"), pinned("other", v100, "amd64"), "some @ https://host/some-1.0.tar.gz"]
    found = extensions.judge(lines, h100)
    assert [(each.title, each.cause_id) for each in found] == [("other", "pinned-wheel-does-not-fit")]
    assert extensions.judge([pinned("mamba-ssm", v100, "arm64")], h100) == []
    assert [each.title for each in extensions.judge([pinned("one", v100, "arm64")], both)] == ["one"]
    unknown = "x @ https://host/x-1.0+cu13nn-cp312-cp312-linux_x86_64.whl"
    assert [each.status for each in extensions.judge([unknown], h100)] == ["SKIP"]


def test_each_finding_gets_a_command_that_works(index: Index) -> None:
    """For a package that would be built, or whose pinned wheel does not fit; without an index, its own remedy stays."""
    stack = PROJECTS["both CPUs"]
    index.has(page(stack, "mamba-ssm"), *(f"mamba_ssm-2.0+{local(stack)}-{TAGS[arch]}" for arch in TAGS))
    names = [*data("stacks")["torch_to_build"], "einops"]
    values = {"platform": "x", "version": "1", "newest": "1"}
    asked = [
        replace(problem("package-needs-torch-to-build", each, package=each, named=each, **values), title=each)
        for each in names
    ]
    found = {each.title: each for each in extensions.remedied(asked, stack, {})}
    assert found["mamba-ssm"].cause_id == "extension-has-wheel"
    assert in_words(found["mamba-ssm"], PROJECT).remedy.startswith("`./launch add mamba-ssm`")
    (wrong,) = extensions.judge([pinned("mamba-ssm", PROJECTS["v100"], "amd64")], PROJECTS["h100"])
    (renewed,) = extensions.remedied([wrong], stack, {})
    assert renewed.cause_id == wrong.cause_id == "pinned-wheel-does-not-fit"
    assert "`./launch add mamba-ssm`" in in_words(renewed, PROJECT).remedy
    assert "add" not in in_words(wrong, PROJECT).remedy
    assert found["einops"].cause_id == "package-needs-torch-to-build"
    assert {each.cause_id for name, each in found.items() if name != "einops"} <= set(extensions.CAUSES)
    index.web.dropped = 99
    again = {each.title: each.cause_id for each in extensions.remedied(asked, stack, {})}
    assert again["mamba-ssm"] == "package-needs-torch-to-build"
    assert index.web.dropped > 99 - 2 * extensions.TRIES, "the first silence is enough"


@pytest.mark.parametrize(("typed", "agreed"), [("y\n", True), ("n\n", False), ("", False)])
def test_add_asks_before_it_trusts_a_publisher(
    index: Index, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, agreed: bool
) -> None:
    stack = PROJECTS["h100"]
    index.has(page(stack, "mamba-ssm"), f"mamba_ssm-2.0+{local(stack)}-{TAGS['amd64']}")
    found = {"mamba-ssm": extensions.find("mamba-ssm", stack)}
    for stream in ("stdin", "stderr"):
        monkeypatch.setattr(getattr(sys, stream), "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdin, "readline", lambda: typed, raising=False)
    with contextlib.nullcontext() if agreed else pytest.raises(RefusalError, match="Nothing was changed"):
        add.confirm(found, False, ["mamba-ssm"], "pyproject.toml")
    said = capsys.readouterr().err
    assert all(each in said for each in ("mamba-ssm 2.0", "Astral", "0.0 MB", found["mamba-ssm"].wheels[0].file.url))


@pytest.fixture
def folder(tmp_path: Path, stack_data: Callable) -> Callable[..., Path]:
    def write(stack: Stack, *lines: str) -> Path:
        targets = {id: {**each.__dict__, "precisions": list(each.precisions)} for id, each in stack.targets.items()}
        facts = {
            "targets": targets,
            "torch": stack.torch,
            "cuda": stack.cuda,
            "python": stack.python,
            "base": stack.base,
        }
        (tmp_path / "stack.json").write_text(json.dumps(stack_data(**facts, release=stack.release)))
        items = "".join(f"    {json.dumps(line)},\n" for line in lines)
        text = f'[project]\nname = "demo"\ndependencies = [\n{items}]\n'
        (tmp_path / "pyproject.toml").write_text(text)
        return tmp_path

    return write


def test_an_update_looks_for_wheels_again(index: Index, folder: Callable[..., Path]) -> None:
    old = project("h100", release="2.11.0-cu130")
    new = PROJECTS["both CPUs"]
    mamba = pinned("mamba-ssm", old, "amd64").replace("mamba-ssm @", "mamba-ssm[dev] @")
    lines = ["torch", mamba, pinned("private", old, "amd64"), "einops"]
    where = folder(old, *lines)
    before = (where / "pyproject.toml").read_text()
    assert extensions.renew(where) == "" and index.web.asked == []
    index.has(page(new, "mamba-ssm"), *(f"mamba_ssm-2.0+{local(new)}-{TAGS[arch]}" for arch in TAGS))
    where = folder(new, *lines)
    said = extensions.renew(where)
    first, second = said.split("; ")
    assert "mamba-ssm 1.0 -> 2.0" in first and "private 1.0 fits no more" in second
    values = pyproject.Requirements((where / "pyproject.toml").read_text()).values()
    assert [pyproject.name_of(each) for each in values] == ["torch", "mamba-ssm", "private", "einops", "mamba-ssm"]
    renewed = [wheels.pinned(each) for each in values if "mamba" in each]
    assert all((each.built.torch, each.extras) == (minor(new.torch), "[dev]") for each in renewed)
    index.has(page(new, "mamba-ssm"))
    where = folder(new, *lines)
    assert "mamba-ssm 1.0 fits no more: `./launch add mamba-ssm`" in extensions.renew(where)
    assert (where / "pyproject.toml").read_text() == before
    assert not re.search(r"\bNone\b", said)
