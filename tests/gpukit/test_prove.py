"""`plan --prove`, with the recorded output of real tools (tests/data/prove.json): no Triton and no GPU."""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
import threading
from pathlib import Path

import pytest

from gpukit.findings.causes import PROJECT
from gpukit.findings.finding import FAIL, PASS, SKIP, WARN, Finding, exit_code, in_words
from gpukit.host.queue import born
from gpukit.plan import prove
from tests.conftest import until

RECORDED = json.loads(Path(__file__).parents[1].joinpath("data/prove.json").read_text(encoding="utf-8"))
# A Python whose Triton answers as recorded; and the same for cuobjdump. OLD_PTXAS stands for an old one.
PYTHON = """\
#!{python} -IS
import json, os, sys
recorded = json.load(open({file!r}))
assert "TRITON_INTERPRET" not in os.environ
if sys.argv[1] == "-c":
    print("triton", recorded["version"])
    print("a warning at exit", file=sys.stderr)
    sys.exit(recorded.get("import", 0))
assert not os.path.exists(os.environ["TRITON_CACHE_DIR"])
answer = recorded["old"] if "TRITON_PTXAS_BLACKWELL_PATH" in os.environ else recorded["kernels"]
answer = answer[" ".join(sys.argv[2:])]
sys.stdout.write(answer["output"])
sys.exit(answer["code"] % 256)
"""
CUOBJDUMP = """\
#!{python} -IS
import json, sys
name = "/".join(sys.argv[-1].split("/")[-2:])
answer = next(each for path, each in json.load(open({file!r})).items() if path.endswith(name))
lines = [answer.get("output", "")]
for each, times in answer.get("counts", {{}}).items():
    kind, architecture = each.split()
    suffix = "cubin" if kind == "ELF" else "ptx"
    lines += [f"{{kind}} file {{number:4}}: library.{{number}}.{{architecture}}.{{suffix}}" for number in range(times)]
print("\\n".join(lines))
sys.exit(answer["code"])
"""


def elf(section: str) -> bytes:
    """An ELF file with one section, of this name, besides the table of names."""
    names = b"\0" + section.encode() + b"\0.shstrtab\0"
    table = 64 + len(names)
    header = struct.pack("<4sBBBB8xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0, 3, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 2, 1)
    entries = struct.pack("<IIQQQQIIQQ", 1, 1, 0, 0, 0, 0, 0, 0, 0, 0)
    entries += struct.pack("<IIQQQQIIQQ", 2, 3, 0, 0, 64, len(names), 0, 0, 1, 0)
    return header + names + entries


class Installed:
    """A folder of packages, the only one that this Python has."""

    def __init__(self, folder: Path) -> None:
        self.site = folder / "site-packages"
        self.tools = folder / "tools"
        self.site.mkdir()
        self.tools.mkdir()

    def package(self, name: str, *files: str, section: str = ".nv_fatbin") -> None:
        info = self.site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
        for file in files:
            (self.site / file).parent.mkdir(parents=True, exist_ok=True)
            (self.site / file).write_bytes(elf(section))

    def tool(self, path: Path, source: str, answers: dict) -> str:
        file = self.tools / f"{path.name}.json"
        file.write_text(json.dumps(answers))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source.format(python=os.path.realpath(sys.executable), file=str(file)))
        path.chmod(0o755)
        return str(path)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    found = Installed(tmp_path)
    monkeypatch.setattr(sys, "path", [str(found.site)])
    for name in ("triton", "torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in (*prove.PTXAS_VARIABLES, "TRITON_CUOBJDUMP_PATH"):
        monkeypatch.delenv(name, raising=False)
    return found


@pytest.fixture
def triton(installed: Installed, monkeypatch: pytest.MonkeyPatch):
    def install(version: str, **more: object) -> None:
        bin = installed.site / "triton/backends/nvidia/bin"
        installed.package("triton", "triton/__init__.py")
        answers = {"version": version, "kernels": RECORDED["triton"][version], **more}
        answers["old"] = RECORDED["triton"]["3.9.0 with ptxas of 3.2.0"]
        installed.tool(bin / "cuobjdump", CUOBJDUMP, RECORDED["cuobjdump"])
        monkeypatch.setattr(sys, "executable", installed.tool(installed.tools / "python", PYTHON, answers))

    return install


def by_id(findings: list[Finding]) -> dict[str, Finding]:
    assert len({each.id for each in findings}) == len(findings)
    return {each.id: in_words(each, PROJECT) for each in findings}


def causes(findings: list[Finding]) -> dict[str, str]:
    return {each.id: each.cause_id for each in findings if each.status in (WARN, FAIL)}


def test_a_new_triton_compiles_for_every_capability(triton) -> None:
    triton("3.9.0")
    findings = by_id(prove.prove(["12.0", "7.5", "8.6", "8.6"]))
    assert list(findings) == ["triton", "triton-7.5", "triton-8.6", "triton-12.0", "packages", "on-gpu"]
    assert [each.status for each in findings.values()] == [PASS] * 4 + [SKIP] * 2
    assert findings["triton"].seen == "triton 3.9.0" and "sm_120a" in findings["triton-12.0"].seen
    assert "bf16" in findings["triton-8.6"].seen and "bf16" not in findings["triton-7.5"].seen
    assert exit_code(list(findings.values())) == 0 and "triton" not in sys.modules


def test_an_old_triton_fails_by_its_assembler_or_by_itself(triton) -> None:
    triton("3.2.0")
    findings = prove.prove(["7.5", "8.6", "10.0", "12.0"])
    assert causes(findings) == {"triton-10.0": "ptxas-too-old", "triton-12.0": "triton-without-target"}
    assert "gpu-name" in by_id(findings)["triton-10.0"].seen and exit_code(findings) == 1
    assert all(each.remedy for each in by_id(findings).values() if each.status == FAIL)


@pytest.mark.parametrize("path", ["/old/ptxas", ""])
def test_an_old_ptxas_that_a_variable_selects(triton, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv("TRITON_PTXAS_BLACKWELL_PATH", path)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    triton("3.9.0")
    findings = prove.prove(["12.0"])
    assert causes(findings) == {"triton-12.0": "ptxas-variable"}
    assert "TRITON_PTXAS_BLACKWELL_PATH" in by_id(findings)["triton-12.0"].remedy


def test_an_old_ptxas_is_not_blamed_on_a_variable_that_changes_nothing(triton, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/old/ptxas")
    triton("3.2.0")
    assert causes(prove.prove(["10.0"])) == {"triton-10.0": "ptxas-too-old"}


def test_an_error_that_we_do_not_know(triton) -> None:
    triton("3.9.0", kernels={"fp32 8.6": {"code": 1, "output": "Traceback:\nIndexError: map::at\n"}})
    findings = prove.prove(["8.6"])
    assert causes(findings) == {"triton-8.6": "triton-does-not-compile"}
    assert by_id(findings)["triton-8.6"].seen == "fp32: IndexError: map::at"


def test_a_triton_that_cannot_be_imported_is_reported_once(triton) -> None:
    triton("3.9.0", **{"import": 1})
    assert causes(prove.prove(["8.6", "9.0"])) == {"triton": "triton-broken"}


@pytest.fixture
def hanging(triton, installed, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python whose Triton hangs in a child process, such as ptxas; the file gets the child's number."""
    triton("3.9.0")
    hang = "#!/bin/sh\n[ $1 = -c ] && echo triton 3.9.0 && exit\nsleep 600 &\n"
    hang += "echo $! > {file}.new\nmv {file}.new {file}\nwait\n"
    monkeypatch.setattr(sys, "executable", installed.tool(installed.tools / "hangs", hang, {}))
    file = installed.tools / "hangs.json"
    file.unlink()
    return file


def until_ended(file: Path) -> None:
    """The process whose number is in the file was killed; the kernel ends it a moment later."""
    until(lambda: not born(int(file.read_text())))


def test_a_process_that_hangs_is_killed_with_its_children(hanging, monkeypatch) -> None:
    monkeypatch.setattr(prove, "KERNEL_LIMIT", 3)
    finding = by_id(prove.prove(["8.6"]))["triton-8.6"]
    assert finding.status == SKIP and not finding.completed
    until_ended(hanging)


def test_interrupted_it_ends_what_it_started(hanging) -> None:
    def interrupt() -> None:
        until(hanging.exists)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        prove.prove(["8.6"])
    until_ended(hanging)


def test_without_triton_or_a_gpu_among_the_targets_nothing_is_checked(installed) -> None:
    for capabilities in (["8.6"], []):
        (finding,) = by_id(prove.prove(capabilities)).values()
        assert finding.status == SKIP and bool(finding.remedy) is bool(capabilities)


# Packages

TORCH = ("torch/lib/libtorch_cuda.so", "torch/lib/libtorch_cuda_linalg.so")
BITSANDBYTES = [f"bitsandbytes/libbitsandbytes_cuda{version}.so" for version in ("121", "128", "130")]


def torch(installed: Installed, cuda: str) -> None:
    installed.package("torch", *TORCH)
    (installed.site / "torch/version.py").write_text(f"debug = False\ncuda: Optional[str] = '{cuda}'\nhip = None\n")


def test_packages_with_kernels_for_all_targets(triton, installed) -> None:
    triton("3.9.0")
    torch(installed, "13.0")
    installed.package("bitsandbytes", *BITSANDBYTES)
    installed.package("torchvision", "torchvision/_C_stable.so")
    findings = by_id(prove.prove(["7.5", "8.6", "12.0"]))
    kernels = {id: each for id, each in findings.items() if id.startswith("kernels-")}
    assert list(kernels) == ["kernels-bitsandbytes", "kernels-torch", "kernels-torchvision"]
    assert {each.status for each in kernels.values()} == {PASS}
    assert "cuda130" in kernels["kernels-bitsandbytes"].seen and "cuda128" not in kernels["kernels-bitsandbytes"].seen
    assert "PTX 12.0" in kernels["kernels-torchvision"].seen
    # As in torch 2.14.1: no code for 7.5 in the library with linear algebra.
    assert "libtorch_cuda_linalg.so has none for 7.5" in kernels["kernels-torch"].seen


def judged(name: str, *files: str, capabilities: tuple[str, ...]) -> Finding:
    tool = RECORDED["cuobjdump"]
    codes = {}
    for file in files:
        counts = tool[file].get("counts", {})
        lines = [
            f"{each.split()[0]} file    1: x.{each.split()[1]}.{'ptx' if each[0] == 'P' else 'cubin'}"
            for each, times in counts.items()
            for _ in range(times)
        ]
        text = "\n".join(lines) or tool[file]["output"]
        codes[Path(file).name] = prove.code(tool[file]["code"], text, Path(file))
    return prove.judged(name, codes, list(capabilities))


@pytest.mark.parametrize(
    ("package", "files", "capability", "cause"),
    [
        ("torch", TORCH, "8.9", ""),  # runs the code for 8.6
        ("torch", TORCH, "12.1", ""),  # runs the code for 12.0
        ("torch", TORCH, "7.0", "installed-torch-without-kernels"),
        ("torch", TORCH, "6.1", "installed-torch-without-kernels"),
        ("torch", TORCH, "11.0", "installed-torch-without-kernels"),
        (
            "torch",
            (TORCH[0], BITSANDBYTES[1]),
            "7.0",
            "installed-torch-without-kernels",
        ),  # optional functions alone do not run a model
        ("bitsandbytes", BITSANDBYTES[2:], "7.0", "package-without-kernels"),
        ("bitsandbytes", BITSANDBYTES[1:2], "7.0", ""),
        ("torchvision", ["torchvision/_C_stable.so"], "12.1", ""),
        ("xformers", ["xformers/_C.so"], "9.0", ""),  # 9.0a runs on 9.0 itself
        ("xformers", ["xformers/_C.so"], "12.0", "package-only-ptx"),
        ("xformers", ["xformers/_C.so"], "7.0", "package-optional-kernels"),
        ("torchao", ["torchao/_C_cutlass_90a.abi3.so"], "9.0", ""),
        ("torchao", ["torchao/_C_cutlass_90a.abi3.so"], "10.0", "package-optional-kernels"),
    ],
)
def test_which_code_runs_where(package, files, capability, cause) -> None:
    finding = judged(package, *files, capabilities=(capability,))
    assert finding.cause_id == cause and (finding.status == PASS) is (not cause)


def test_code_for_a_few_kernels_does_not_count() -> None:
    """libtorch_cuda.so lists 475 times sm_86, and once sm_89 and sm_121a."""
    finding = judged("torch", TORCH[0], capabilities=("8.6",))
    assert "8.6" in finding.seen and "8.9" not in finding.seen and "12.1a" not in finding.seen


def test_a_library_that_cuobjdump_cannot_read_is_not_judged(triton, installed) -> None:
    triton("3.9.0")
    installed.package("bitsandbytes", BITSANDBYTES[0])  # that of CUDA 12.1, on which cuobjdump 13.1 stops
    findings = prove.prove(["8.6"])
    finding = by_id(findings)["kernels-bitsandbytes"]
    assert (finding.status, finding.completed) == (SKIP, False) and "Invalid ELF" in finding.cause
    assert exit_code(findings) == 2


def test_cuobjdump_does_not_take_more_memory_than_is_free(installed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prove, "meminfo", lambda: {"MemAvailable": 300_000 * 1024})
    tool = installed.tool(installed.tools / "cuobjdump", "#!/bin/sh\necho error: $(ulimit -v) KB\nexit 1\n", {})
    assert prove.read(tool, Path("library.so")).error == "error: 285000 KB"


def test_only_libraries_with_device_code_of_packages_other_than_cuda(triton, installed) -> None:
    triton("3.9.0")
    installed.package("numpy", "numpy/_core.so", section=".text")
    installed.package("nvidia-cublas", "nvidia/cu13/lib/libcublas.so.13")
    installed.package("torchvision", "torchvision.libs/libnvjpeg.4a0b5c81.so.13", "torchvision/_C_stable.so")
    assert {name: [path.name for path in paths] for name, paths in prove.libraries().items()} == {
        "torchvision": ["_C_stable.so"]
    }


@pytest.mark.parametrize(
    ("cuda", "chosen"),
    [("13.0", ["130"]), ("13.1", ["130"]), ("12.9", ["128"]), ("12.1", ["121"]), ("12.0", ["121"]), ("11.8", [])],
)
def test_of_libraries_for_several_versions_of_cuda_one_is_loaded(cuda, chosen) -> None:
    paths = [Path(path) for path in BITSANDBYTES]
    assert [path.stem[-3:] for path in prove.loaded(paths, cuda)] == chosen
