"""Planted secrets appear nowhere: not in the table, the JSON, the report, nor on stderr."""

import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from gpukit.cli.main import main
from gpukit.findings.checks import check, command
from gpukit.findings.finding import passed, problem
from gpukit.findings.private import Mask, mask
from gpukit.wheel.vendor import put
from gpukit.wheel.writer import running
from tests.conftest import ROOT

SOURCE = ROOT / "gpukit/src"
# As in the image: `gpukit verify` elsewhere starts a container.
VERIFY = [sys.executable, "-c", "import sys; from gpukit.verify.main import main; sys.exit(main())"]
PLANTED = {
    "environment": "hunter2-in-the-environment",
    "pass": "a-word-for-the-registry",
    "connection": "c0nnection-account-key==",
    "several lines": "first-line-of-a-private-key\nsecond-line-of-a-private-key",
    "json in a variable": "key-inside-of-a-json-variable",
    "a file that is named": "content-of-a-file-that-is-named",
    "a shape": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz",
    "dotenv": "s3cr3t-of-the-dotenv-file",
    "jupyter": "0f1e2d3c4b5a69788796a5b4c3d2e1f0a1b2",
    "hub": "token-of-the-hub-in-its-cache",
    "netrc": "netrc-passw0rd-value",
    "proxy": "pr0xy-passw0rd",
    "slash": "pass/w0rd/with/slashes",
    "address": "tok3n-as-the-user",
    "query": "s1gnature-in-a-query",
    "git": "oauth-in-the-remote-of-git",
    "git header": "aGVhZGVyOm9mLWdpdHM=",
    "pip": "password-of-pips-index",
    "pyproject": "password-in-pyproject",
    "uv": "password-for-uvs-index",
    "docker": base64.b64encode(b"me:docker-password").decode(),
    "docker, unwrapped": "docker-password",
    "kaggle": "kaggle-k3y-value",
    "gh": "oauth-token-of-the-gh-tool",
    "npm": "npm-auth-token-value",
}
ENVIRONMENT = {
    "USER": "ada.lovelace",
    "HOSTNAME": "enchantress7",
    "MY_SERVICE_TOKEN": PLANTED["environment"],
    "REGISTRY_PASS": PLANTED["pass"],
    "STORAGE_CONNECTION_STRING": PLANTED["connection"],
    "DEPLOY_PRIVATE_KEY": PLANTED["several lines"],
    "SERVICE_ACCOUNT": json.dumps({"client": "x", "private_key": PLANTED["json in a variable"]}),
    "HTTPS_PROXY": f"http://ada:{PLANTED['proxy']}@proxy.example.org:3128",
    "UV_INDEX": f"https://{PLANTED['address']}@packages.example.org/simple",
    "UV_INDEX_INTERNAL_PASSWORD": PLANTED["uv"],
}
PROJECT = {
    ".env": f"WANDB_API_KEY='{PLANTED['dotenv']}'  # mine\nPORT=8888\n",
    ".launch/jupyter-token": PLANTED["jupyter"] + "\n",
    ".git/config": f'[remote "origin"]\n\turl = https://ada:{PLANTED["git"]}@git.example.org/ada/project.git\n',
    "uv.toml": f'[[index]]\nurl = "https://ada:{PLANTED["pyproject"]}@packages.example.org/simple"\n',
}
HOME = {
    ".netrc": f"machine api.wandb.ai login user password {PLANTED['netrc']}\n",
    ".cache/huggingface/token": PLANTED["hub"],
    ".gitconfig": f'[http "https://x"]\n\textraheader = AUTHORIZATION: basic {PLANTED["git header"]}\n',
    ".config/pip/pip.conf": f"[global]\nindex-url = https://ada:{PLANTED['pip']}@packages.example.org/simple\n",
    ".docker/config.json": json.dumps({"auths": {"nvcr.io": {"auth": PLANTED["docker"]}}}),
    ".kaggle/kaggle.json": json.dumps({"username": "ada", "key": PLANTED["kaggle"]}),
    ".config/gh/hosts.yml": f"github.com:\n    oauth_token: {PLANTED['gh']}\n",
    ".npmrc": f"//registry.example.org/:_authToken={PLANTED['npm']}\n",
    "named": PLANTED["a file that is named"] + "\n",
}


def plant(project, home, monkeypatch):
    """Secrets in all the places, and a person and a machine with names."""
    for folder, files in ((project, PROJECT), (home, HOME)):
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    path = os.environ["PATH"]
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in {**ENVIRONMENT, "HOME": str(home), "PATH": path}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SIGNING_TOKEN_FILE", str(home / "named"))


@pytest.fixture
def planted(tmp_path, monkeypatch):
    project = tmp_path / "project"
    plant(project, tmp_path / "home" / "ada.lovelace", monkeypatch)
    monkeypatch.setenv("GPUKIT_PROJECT", str(project))
    return project


def leaks(text):
    return [name for name, value in PLANTED.items() if value in text]


LEAKY = " ".join(
    [
        *(value for name, value in PLANTED.items() if name not in ("slash", "query")),  # those: only where they stand
        f"http://me:{PLANTED['slash']}@host/x",
        f"https://bucket.example.org/a?X-Amz-Signature={PLANTED['query']}&b=1",
        "password=swordfish99 Authorization: Bearer abcdef123456",
    ]
)


@pytest.mark.parametrize("argv", [[], ["--json"]])
def test_planted_secrets_appear_nowhere(planted, stack_file, capsys, argv):
    @check("leaky", "Leaky", causes=("mount-source-missing",))
    def judge(probes, stack):
        return problem("mount-source-missing", LEAKY, LEAKY, name=LEAKY)

    @check("broken", "Broken")
    def broken(probes, stack):
        raise RuntimeError(LEAKY)

    report = planted / "report.md"
    argv = [*argv, "--report", str(report), "--stack", str(stack_file())]
    assert command("verify", "", (judge, broken), lambda stack: contextlib.nullcontext(SimpleNamespace()), argv) == 1
    output = capsys.readouterr()
    text = report.read_text(encoding="utf-8")
    for where in (output.out, output.err, text):
        assert leaks(where) == []
        assert "swordfish99" not in where and "abcdef123456" not in where


def test_report_has_no_names_of_users_or_machines(planted, stack_file, capsys):
    @check("names", "Names")
    def names(probes, stack):
        return passed(
            f"dev of ada.lovelace on enchantress7, {os.environ['HOME']}/x, /home/somebody/y, 10.1.2.3:22, "
            "me@example.org, GPU-529b3263-c96d-b557-bc75-697f04917eda, driver 580.95.05"
        )

    report = planted / "outputs" / "verify-report.md"
    argv = ["--report", "--stack", str(stack_file())]
    assert command("verify", "", (names,), lambda stack: contextlib.nullcontext(SimpleNamespace()), argv) == 0
    text = report.read_text(encoding="utf-8")
    for name in ("lovelace", "enchantress7", "somebody", "10.1.2.3", "example.org", "529b3263"):
        assert name not in text, name
    assert "580.95.05" in text and "dev of" in text
    assert str(report) not in capsys.readouterr().err.replace(str(report), "", 1)


def test_a_report_that_cannot_be_written_is_exit_code_2(planted, stack_file, capsys):
    argv = ["--report", "/proc/none/report.md", "--stack", str(stack_file())]
    fine = check("fine", "Fine")(lambda probes, stack: passed("fine"))
    assert command("verify", "", (fine,), lambda stack: contextlib.nullcontext(SimpleNamespace()), argv) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("https://me:pw@host/x", "https://***@host/x"),
        ("https://me:p/w@host/x", "https://***@host/x"),
        ("ssh://ubuntu@rack", "ssh://***@rack"),
        ("?token=abc&x=1", "?token=***&x=1"),
        ("api_key: 'abcdef'", "api_key: '***'"),
        ("ghp_" + "a" * 36, "***"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.sig", "***"),
        ("nvidia-smi -q; torch 2.14.1+cu130; sm_120", "nvidia-smi -q; torch 2.14.1+cu130; sm_120"),
        ("HF_TOKEN is set, WANDB_API_KEY is not", "HF_TOKEN is set, WANDB_API_KEY is not"),
        ("JUPYTER_TOKEN_FILE=/workspace/.launch/jupyter-token", "JUPYTER_TOKEN_FILE=/workspace/.launch/jupyter-token"),
    ],
)
def test_where_secrets_stand(text, hidden):
    assert Mask()(text) == hidden


def test_words_that_are_no_secret_stay(tmp_path):
    """Above all the folder that a shell is in: every finding about the workspace would lose its name."""
    environment = {
        "HOME": str(tmp_path),
        "PWD": str(tmp_path),
        "OLDPWD": "/no/longer/there",
        "MAX_NEW_TOKENS": "131072",
        "CREDENTIALS_DIRECTORY": "/run/credentials/me",
        "SSL_KEY": str(tmp_path),  # where something is
        "PIP_FIND_LINKS": "git+https://github.com/o/repository@v1 http://localhost:8888/lab@x",
        "TOKENIZERS_PARALLELISM": "false",
        "SSH_AUTH_SOCK": "/run/agent",
        "A_KEY": "abc",
    }
    text = f"false /run/agent abc 131072 /no/longer/there {tmp_path}/outputs /run/credentials/me github.com localhost"
    assert mask(tmp_path, environment)(text) == text


LEAKING = """#!/bin/sh
cat {said} >&2
case "$0 $*" in
  *docker*--version) echo 'Docker version 29.1.2, build 890dcca' ;;
  *docker*info*) cat {info} ;;
  *docker*context*) echo unix:///var/run/docker.sock ;;
  *docker*ps*) echo 0123456789ab ;;
  *docker*inspect*) cat {containers} ;;
  *docker*run*) echo 'could not select device driver "" with capabilities: [[gpu]]' >&2; cat {said} >&2; exit 125 ;;
  *nvidia-smi*--query-gpu=name*) cat {said}; echo ', 580.95.05, 12.0' ;;
  *) exit 1 ;;
esac
"""


@pytest.fixture
def leaking(tmp_path, generate, monkeypatch):
    """A generated project with secrets all around it, and tools that repeat all of them."""
    project = tmp_path / "work" / "project"
    shutil.copytree(generate(hardware="rtx-50"), project, symlinks=True)
    put(running(), project)
    plant(project, tmp_path / "home" / "ada.lovelace", monkeypatch)
    tools = tmp_path / "bin"
    tools.mkdir()
    output = f"ada.lovelace on enchantress7 says {LEAKY} " + PLANTED["several lines"].replace("\n", " ")
    (tmp_path / "said").write_text(output, encoding="utf-8")
    info = {"ServerVersion": "29.1.2", "OSType": "linux", "OperatingSystem": output, "DockerRootDir": "/"}
    (tmp_path / "info").write_text(json.dumps({**info, "Runtimes": {"nvidia": {}}}), encoding="utf-8")
    state = {"Running": False, "Error": f"driver not loaded {output}"}
    host = {"RestartPolicy": {"Name": "always"}}
    (tmp_path / "containers").write_text(
        json.dumps([{"Name": "/demo", "State": state, "HostConfig": {**host, "DeviceRequests": [{}]}}]),
        encoding="utf-8",
    )
    for name in ("docker", "nvidia-smi", "nvidia-ctk", "systemctl", "git"):
        text = LEAKING.format(**{name: tmp_path / name for name in ("said", "info", "containers")})
        (tools / name).write_text(text, encoding="utf-8")
        (tools / name).chmod(0o755)
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/torch.py").write_text(
        f"import sys\nsaid = open({str(tmp_path / 'said')!r}).read()\nprint(said)\nprint(said, file=sys.stderr)\n"
        "raise ImportError(said)\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return project


def said_by(project, *argv, **environment):
    done = subprocess.run(
        argv, cwd=project, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout + done.stderr


DOCTOR = ["./launch", "doctor"]
RUNS = [(DOCTOR, option) for option in ("--quick", "--json", "--early")] + [(VERIFY, "--only=import")]


@pytest.mark.parametrize(("command", "option"), RUNS, ids=["doctor", "json", "early", "verify"])
def test_no_secret_is_repeated(leaking, tmp_path, command, option):
    output = said_by(leaking, *command, option, PYTHONPATH=f"{tmp_path}/torch:{SOURCE}")
    assert output or option == "--early"
    assert leaks(output) == [] and "swordfish99" not in output


def test_a_pasted_text_is_shown_without_names(planted, capsys):
    text = f"OSError: [Errno 30] Read-only file system: '{os.environ['HOME']}/x' for ada.lovelace with {PLANTED['hub']}"
    assert main(["explain", text]) in (0, 1)
    output = capsys.readouterr().out
    assert leaks(output) == [] and "lovelace" not in output


@pytest.mark.parametrize("tool", ["doctor", "verify"])
def test_reports_of_real_runs_hide_users_and_machines(leaking, tmp_path, tool):
    command = {"doctor": DOCTOR, "verify": [*VERIFY, "--record"]}[tool]
    output = said_by(leaking, *command, "--report", PYTHONPATH=f"{tmp_path}/torch:{SOURCE}")
    written = [path.read_text(encoding="utf-8") for path in (leaking / "outputs").iterdir() if path.is_file()]
    assert len(written) == 1  # nothing is recorded without a GPU
    assert leaks(output + written[0]) == []
    for name in ("lovelace", "enchantress7", socket.gethostname()):
        assert name.lower() not in written[0].lower(), name
