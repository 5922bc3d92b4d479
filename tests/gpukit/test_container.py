"""Verify's probes: a torch that misbehaves, the real one where it is installed, and this machine's folders."""

import json
import os
import subprocess
import sys
import textwrap
import time
from types import SimpleNamespace

import pytest

from gpukit.host.smi import Card, Smi
from gpukit.image import guard
from gpukit.project.stack import load
from gpukit.verify import main as verify
from gpukit.verify import probes as module
from gpukit.verify import software
from gpukit.verify.container import Container
from gpukit.verify.torch_process import TorchError, TorchProcess
from gpukit.wheel import writer
from tests.gpukit.conftest import ROOT
from tests.gpukit.test_verify_packages import distribution


@pytest.fixture
def fake_torch(tmp_path, monkeypatch):
    """A module `torch` with this text, found before any other."""

    def write(text):
        (tmp_path / "fake").mkdir(exist_ok=True)
        (tmp_path / "fake/torch.py").write_text(textwrap.dedent(text), encoding="utf-8")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fake"))

    return write


GOOD = """
    class version: cuda = None
    __version__ = "2.14.1+cpu"
"""


@pytest.fixture
def process():
    processes = []

    def start():
        processes.append(TorchProcess())
        return processes[-1]

    yield start
    for each in processes:
        each.close()


def refused(process, limit=20):
    with pytest.raises(TorchError) as refusal:
        process.call("facts", limit=limit)
    return refusal.value


def test_answers_come_through_whatever_is_printed(fake_torch, process):
    fake_torch(
        'import os, sys\nprint("noise")\nos.write(1, b"more\\n")\nsys.stderr.write("x" * 200000)'
        + textwrap.dedent(GOOD)
    )
    assert process().call("facts", limit=20)["version"] == "2.14.1+cpu"


@pytest.mark.parametrize("packed", [False, True], ids=["installed", "run from the wheel"])
def test_a_file_of_the_project_does_not_hide_gpukit(fake_torch, tmp_path, packed):
    """The current directory may hold the user's own gpukit.py, and a folder gpukit."""
    fake_torch(GOOD)
    project = tmp_path / "project"
    (project / "gpukit").mkdir(parents=True)
    for name in ("gpukit.py", "gpukit/__init__.py", "json.py"):
        (project / name).write_text("raise ImportError('the wrong one')\n", encoding="utf-8")
    source = ROOT / "gpukit/src"
    place = writer.write(writer.for_project(ROOT / "gpukit"), tmp_path / "vendor") if packed else source
    ask = (
        f"import sys; sys.path[0] = {str(place)!r}; from gpukit.verify.torch_process import TorchProcess; "
        "process = TorchProcess(); print(process.call('facts', limit=20)['version']); process.end()"
    )
    done = subprocess.run([sys.executable, "-c", ask], cwd=project, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("2.14.1+cpu\n", "")


def test_an_exception_is_reported_and_the_process_lives_on(fake_torch, process):
    fake_torch('raise ImportError("libcudart.so.13: cannot open shared object file")')
    asked = process()
    error = refused(asked)
    assert (error.kind, error.text) == ("ImportError", "libcudart.so.13: cannot open shared object file")
    assert refused(asked).kind == "ImportError"


def test_a_crash_is_reported_and_the_next_request_gets_a_new_process(fake_torch, process):
    fake_torch('import os, sys\nprint("last words", file=sys.stderr, flush=True)\nos.kill(os.getpid(), 11)')
    asked = process()
    error = refused(asked)
    assert (error.kind, error.text) == ("Death", "was ended by SIGSEGV")
    assert "last words" in error.log
    fake_torch(GOOD)
    assert asked.call("facts", limit=20)["version"] == "2.14.1+cpu"


def test_after_an_error_of_cudas_the_next_gets_a_new_process(fake_torch, stack_file):
    """A poisoned one would end every later check with the same error."""
    fake_torch(
        textwrap.dedent(GOOD) + 'def Generator():\n    raise RuntimeError("CUDA error: an illegal memory access")\n'
    )
    with Container(load(stack_file())) as probes:
        probes.devices = SimpleNamespace(found=[None])
        (result,) = probes.tensors
        assert "illegal memory access" in result.error.text
        assert probes._torch._process.returncode is not None
        assert probes._torch.call("facts", limit=20)["version"] == "2.14.1+cpu"


def test_where_torch_is_from(fake_torch, stack_file, tmp_path, monkeypatch):
    fake_torch(GOOD)
    monkeypatch.setattr(guard, "TORCH_INDEX", tmp_path / "torch-index.txt")
    for index in ("", "package index"):
        if index:
            guard.TORCH_INDEX.touch()
        with Container(load(stack_file())) as probes:
            assert probes.torch.index == index


def test_gpukit_is_compared_with_the_wheel_in_vendor(fake_torch, stack_file, tmp_path, monkeypatch):
    """Whatever is on sys.path: the installed one counts."""
    fake_torch(GOOD)
    monkeypatch.setenv("GPUKIT_PROJECT", str(tmp_path))
    site = tmp_path / "site"
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(site))
    seen = []
    for make in (
        lambda: None,
        lambda: (tmp_path / "vendor").mkdir(),
        lambda: (tmp_path / "vendor/gpukit-0.2.0+h0123456789ab-py3-none-any.whl").touch(),
        lambda: distribution(site, "gpukit", "0.2.0"),
        lambda: (tmp_path / "vendor/gpukit-0.3.0-py3-none-any.whl").touch(),
    ):
        make()
        with Container(load(stack_file())) as probes:
            seen.append((probes.gpukit.installed, probes.gpukit.vendored, bool(probes.gpukit.reason)))
    assert seen == [
        (None, None, True),
        (None, None, True),
        (None, "0.2.0+h0123456789ab", False),
        ("0.2.0", "0.2.0+h0123456789ab", False),
        ("0.2.0", None, True),
    ]


def test_a_hang_ends_at_the_limit(fake_torch, process):
    fake_torch("import time\ntime.sleep(60)")
    started = time.monotonic()
    error = refused(process(), limit=0.5)
    assert (error.kind, error.text) == ("Timeout", "no answer in 0.5 s")
    assert time.monotonic() - started < 50


def test_a_whole_run_on_a_machine_without_torch_s_folders(
    fake_torch, stack_file, cpu_only, tmp_path, capsys, monkeypatch
):
    """Whatever this machine is like, each check ends in a finding, and none of them breaks."""
    fake_torch(GOOD)
    monkeypatch.setenv("HOME", str(tmp_path))
    stack = stack_file(**cpu_only, mounts=[str(tmp_path / "none")], read_only=[str(tmp_path)])
    assert verify.main(["--json", "--stack", str(stack), "--skip", "tensor,compile"]) == 1
    findings = {finding["id"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert all(finding["completed"] for finding in findings.values())
    assert findings["torch"]["status"] == "PASS"
    assert findings["mounts"]["status"] == "FAIL" or findings["user"]["status"] == "FAIL"


def test_folders_as_they_are(fake_torch, stack_file, tmp_path):
    fake_torch(GOOD)
    (tmp_path / "mine").mkdir()
    (tmp_path / "file").write_text("", encoding="utf-8")
    paths = [str(tmp_path / name) for name in ("mine", "file", "none/deeper")]
    environment = {"HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hub")}
    with Container(load(stack_file(mounts=[*paths, "/proc/self"], read_only=["/proc"])), environment) as probes:
        mine, file, none, proc = probes.mounts
        assert (mine.there, mine.mounted, mine.problem) == (True, False, "")
        assert not file.there
        assert (none.there, none.problem) == (False, "")
        assert proc.problem
        assert (probes.read_only[0].mounted, probes.read_only[0].problem) == (True, "")
        assert [cache.path for cache in probes.caches] == [str(tmp_path / ".cache"), str(tmp_path / "hub")]
        assert probes.user.uid == os.getuid()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "stack.json") == ["fake", "file", "mine"]


def test_the_machine_as_it_is(fake_torch, stack_file, tmp_path, monkeypatch):
    fake_torch(GOOD)
    monkeypatch.setenv("GPUKIT_PROJECT", str(tmp_path))
    with Container(load(stack_file())) as probes:
        assert 0 < probes.ram.free_gb <= probes.ram.total_gb
        assert probes.processors.allowed
        assert probes.inaccessible_nodes == [] or os.getuid() != 0


def test_where_only_one_process_may_compute_ours_take_turns(fake_torch, stack_file, monkeypatch):
    """The second asks in the first one's place, which has ended by then."""
    fake_torch(GOOD)
    with Container(load(stack_file())) as probes:
        probes.gpu_nodes = ["/dev/nvidia0"]
        probes.smi = Smi("580", (Card("x", mode="Exclusive_Process"),))
        assert probes.exclusive
        first = probes._torch._process.pid
        assert probes._other is probes._torch
        assert probes._torch._process.returncode is not None
        assert probes._torch.call("facts", limit=20)["version"] == "2.14.1+cpu"
        assert probes._torch._process.pid != first
        probes.smi = Smi("580", (Card("x", mode="Default"),))
        assert probes._other is not probes._torch


def test_the_real_torch_computes_and_compiles(process):
    pytest.importorskip("torch")
    asked = process()
    assert asked.call("facts", limit=120)["version"]
    assert isinstance(asked.call("devices", limit=60)["devices"], list)
    result = asked.call("tensor", "cpu", limit=60)
    assert (result["device"], result["equal"]) == ("cpu", True)
    result = asked.call("compile", "cpu", limit=180)
    assert (result["device"], result["equal"], result["compiled"]) == ("cpu", True, True)


def test_a_jupyter_that_does_not_answer_is_no_fault(stack_file, tmp_path, monkeypatch):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "jupyter").write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    (tools / "jupyter").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setattr(module, "COMMAND_LIMIT", 0.2)
    stack = load(stack_file())
    with Container(stack) as probes:
        found = software.jupyter(probes, stack)
    assert (found.status, found.completed, found.cause_id) == ("SKIP", False, "not-answered")
