"""The main job on three bases with two workflows: start, train, Ctrl-C, resume, notebook, JupyterLab, verify."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import ANSWERS, Project

TRAIN = ("python", "-m", "engine_tests.train")


@pytest.fixture(scope="module", params=[f"{base}-{flow}" for base in ANSWERS for flow in ("notebook", "scripts")])
def standing(request: pytest.FixtureRequest, project: Callable[..., Project]) -> Iterator[Project]:
    """A project whose container was started by the Dev Containers CLI."""
    found = project(*request.param.split("-"))
    found.up()
    yield found
    found.stop()


# Tests that do not depend on both use one of them, because tests with an engine take long.
notebooks = pytest.mark.parametrize("standing", [f"{base}-notebook" for base in ANSWERS], indirect=True)


def checkpoints(project: Project, run: str) -> list[str]:
    return sorted(path.name for path in (project.path / "outputs" / run).glob("checkpoints/step-*"))


def test_training(standing: Project) -> None:
    done = standing.inside(*TRAIN, "--name=ten", "--max-steps=10", "--save-steps=5")
    assert done.returncode == 0, done.stderr
    assert "Done: step 10" in done.stdout
    assert checkpoints(standing, "ten") == ["step-00000005", "step-00000010"]
    assert {path.lstat().st_uid for path in (standing.path / "outputs").rglob("*")} == {standing.user.uid}


@pytest.mark.parametrize(
    ("standing", "terminal"),
    [(f"{base}-scripts", base == "wheel") for base in ANSWERS],
    indirect=["standing"],
    ids=[f"{base}-scripts" for base in ANSWERS],
)
def test_ctrl_c_saves_and_resume_continues(standing: Project, terminal: bool) -> None:
    """Ctrl-C on a terminal; otherwise, a signal to launch only, as sent by a scheduler."""
    run = "--name=stopped"
    forever = ("--max-steps=100000", "--save-steps=100000", "--eval-steps=100000", "--log-steps=5")
    command = ["./launch", "run", "--", *TRAIN, run, *forever]
    if terminal:
        master, slave = pty.openpty()
        tty = {"stdin": slave, "stdout": slave, "stderr": slave, "text": False}
        process = standing.start("setsid", "--ctty", "--wait", *command, **tty)
        os.close(slave)
    else:
        process = standing.start(*command)
        master = process.stdout.fileno()
    output = read(master, until=r"\d+/100000")
    if terminal:
        os.write(master, b"\x03")
    else:
        process.send_signal(signal.SIGINT)
    output += read(master)
    assert process.wait(60) == 130, output
    os.close(master) if terminal else process.communicate()
    saved = re.search(r"saved step (\d+) in", output)
    assert saved, output
    assert len(checkpoints(standing, "stopped")) == 1
    assert standing.containers("--all", "--filter=label=gpukit.role=run") == []
    more = int(saved[1]) + 5
    output = standing.launched("run", "--", *TRAIN, run, f"--max-steps={more}")
    assert f"at step {saved[1]}." in output
    assert f"Done: step {more}" in output


def read(descriptor: int, until: str = "(?!)") -> str:
    """The output, up to a pattern or the end, for at most two minutes."""
    output = ""
    deadline = time.monotonic() + 120
    while not re.search(until, output):
        if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise AssertionError(f"neither {until!r} nor the end: {output}")
        try:
            data = os.read(descriptor, 65536)
        except OSError:  # the end of a terminal's output
            break
        if not data:
            break
        output += data.decode(errors="replace")
    return output


@notebooks
def test_verify(standing: Project) -> None:
    """Everything passes for the substitute base; for the real base, exactly torch, CUDA, and Python are wrong."""
    versions = "import platform, importlib.metadata as m; print(m.version('torch'), platform.python_version())"
    torch, python = standing.launched("run", "--", "python", "-c", versions).split()
    standing.write("standin.json", json.dumps({**standing.stack, "torch": torch, "cuda": None, "python": python}))

    done = standing.launch("verify", "--json", "--stack=standin.json")
    found = findings(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    looked = {"torch", "cuda", "python", "protected", "tensor", "compile", "mounts", "user"}
    assert {check: found.get(check) for check in looked} == dict.fromkeys(looked, "PASS")

    done = standing.launch("verify", "--json", "--only=torch,cuda,python,protected")
    found = findings(done.stdout)
    assert done.returncode == 1
    assert {check for check, status in found.items() if status == "FAIL"} == {"torch", "cuda", "python"}


def findings(output: str) -> dict[str, str]:
    return {finding["id"]: finding["status"] for finding in json.loads(output)["findings"]}


@pytest.mark.parametrize("standing", ["wheel-scripts"], indirect=True)
def test_torch_compile(standing: Project) -> None:
    """In the CLI's container; verify's own check is run in launch's, on each base.

    Both are compared with double precision, so that a failure shows which is wrong. The tensors have fewer than 2048
    numbers, which one thread computes: with two threads, the first sine of a process can have half the precision
    (pytorch/pytorch#188792).
    """
    code = (
        "import torch; g = lambda x: (x.sin() + x.cos()).relu(); x = torch.randn(32, 32); y = g(x.double()).float();"
        "torch.testing.assert_close(g(x), y, msg=lambda m: 'eager: ' + m);"
        "torch.testing.assert_close(torch.compile(g)(x), y, msg=lambda m: 'compiled: ' + m); print('compiled')"
    )
    done = standing.inside("python", "-c", code)
    assert done.stdout.strip() == "compiled", done.stderr[-3000:]


@pytest.mark.parametrize("standing", ["ngc-notebook"], indirect=True)
def test_the_notebook_runs_from_top_to_bottom(standing: Project) -> None:
    """With the image's own Python and PyTorch; tests/train/test_script.py runs it in an environment."""
    nbconvert = ("jupyter", "nbconvert", "--to=notebook", "--execute", "--output-dir=outputs")
    done = standing.inside(*nbconvert, "notebooks/quickstart.ipynb")
    assert done.returncode == 0, done.stderr[-3000:]
    cells = json.loads((standing.path / "outputs/quickstart.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in code)
    assert any("image/png" in output.get("data", {}) for cell in code for output in cell["outputs"])


@notebooks
def test_the_cap_on_shared_memory(standing: Project) -> None:
    """In every program's environment, on a machine whose CPU and GPU share their memory, and nowhere else."""
    expected = "ngc" in standing.path.name
    show = ("python", "-c", "import os; print(os.environ.get('PYTORCH_ALLOC_CONF', 'none'), flush=True)")
    wanted = "per_process_memory_fraction:0.8" if expected else "none"
    assert standing.inside(*show).stdout.split() == [wanted]
    assert standing.inside("torchrun", "--nproc-per-node=2", "--no-python", *show).stdout.split() == [wanted] * 2
    kernel = (
        "import sys; from jupyter_client.manager import start_new_kernel;"
        "_, client = start_new_kernel(); client.execute_interactive(sys.argv[1])"
    )
    assert standing.inside("python", "-c", kernel, show[-1]).stdout.split() == [wanted]
    (name,) = standing.containers()
    assert standing.engine.get("exec", name, *show).split() == [wanted]

    started = standing.launched("run", "--", *show).strip()  # of what is free now
    assert started.startswith("per_process_memory_fraction:0.") if expected else started == "none"
    free = {"GPUKIT_MEMORY_FRACTION": "0.3"}
    assert standing.launched("run", "--", *show, **free).strip() == (wanted.replace("0.8", "0.3"))


@notebooks
def test_jupyterlab_answers_with_its_token(standing: Project) -> None:
    url = standing.launched("notebook").strip()
    address, _, token = url.partition("/lab/tree/notebooks/quickstart.ipynb?token=")
    assert len(token) >= 32
    assert [get(f"{address}/api/contents{query}") for query in (f"?token={token}", "", "?token=0")] == [200, 403, 403]
    (name,) = standing.containers("--filter=label=gpukit.role=notebook")
    ports = standing.engine.inspect(name)["HostConfig"]["PortBindings"].values()
    assert [binding["HostIp"] for bindings in ports for binding in bindings] == ["127.0.0.1"]
    assert Path(standing.path / ".launch/jupyter-token").stat().st_mode & 0o777 == 0o600
    assert token not in standing.engine.get("logs", name)
    assert standing.launched("notebook").strip() == url  # already running: the same address
    standing.engine.get("rm", "--force", name)
    again, _, same = re.split("(/lab.*token=)", standing.launched("notebook").strip())  # and after it was taken away
    assert same == token and get(f"{again}/api/contents?token={token}") == 200  # where another took the port meanwhile


def get(url: str) -> int:
    for _ in range(3):
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=20) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except urllib.error.URLError:
            time.sleep(1)
    return 0
