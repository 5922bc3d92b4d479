"""Planted secrets appear nowhere: not in the table, the JSON, the report, nor in what is said on stderr."""

import base64
import contextlib
import json
import os
from types import SimpleNamespace

import pytest

from gpukit import checks
from gpukit.checks import check, command
from gpukit.finding import Cause, passed
from gpukit.private import Mask, mask

PLANTED = {
    "environment": "hunter2-in-the-environment",
    "a shape": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz",
    "dotenv": "s3cr3t-of-the-dotenv-file",
    "jupyter": "0f1e2d3c4b5a69788796a5b4c3d2e1f0a1b2",
    "netrc": "netrc-passw0rd-value",
    "proxy": "pr0xy-passw0rd",
    "slash": "pass/w0rd/with/slashes",
    "address": "tok3n-as-the-user",
    "query": "s1gnature-in-a-query",
    "docker": base64.b64encode(b"me:docker-password").decode(),
    "kaggle": "kaggle-k3y-value",
}


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A project and a home with secrets in all the places, and a person and a machine with names."""
    project, home = tmp_path / "project", tmp_path / "home" / "ada.lovelace"
    (project / ".launch").mkdir(parents=True)
    (home / ".docker").mkdir(parents=True)
    (home / ".kaggle").mkdir()
    (project / ".env").write_text(f"WANDB_API_KEY='{PLANTED['dotenv']}'\nPORT=8888\n", encoding="utf-8")
    (project / ".launch/jupyter-token").write_text(PLANTED["jupyter"] + "\n", encoding="utf-8")
    (home / ".netrc").write_text(f"machine api.wandb.ai login user password {PLANTED['netrc']}\n", encoding="utf-8")
    auths = {"auths": {"nvcr.io": {"auth": PLANTED["docker"]}}}
    (home / ".docker/config.json").write_text(json.dumps(auths), encoding="utf-8")
    kaggle = {"username": "ada", "key": PLANTED["kaggle"]}
    (home / ".kaggle/kaggle.json").write_text(json.dumps(kaggle), encoding="utf-8")
    environment = {
        "HOME": str(home),
        "USER": "ada.lovelace",
        "HOSTNAME": "enchantress7",
        "MY_SERVICE_TOKEN": PLANTED["environment"],
        "HTTPS_PROXY": f"http://ada:{PLANTED['proxy']}@proxy.example.org:3128",
        "UV_INDEX": f"https://{PLANTED['address']}@pypi.example.org/simple",
        "PATH": os.environ["PATH"],
    }
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(checks, "ROOT", project)
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
    leaky = Cause("It said {words}.", "Try {words} again.")

    @check("leaky", "Leaky", causes=(leaky,))
    def judge(saw, stack):
        return leaky(LEAKY, LEAKY, words=LEAKY)

    @check("broken", "Broken")
    def broken(saw, stack):
        raise RuntimeError(LEAKY)

    report = planted / "report.md"
    argv = [*argv, "--report", str(report), "--stack", str(stack_file())]
    assert command("verify", "", (judge, broken), lambda stack: contextlib.nullcontext(SimpleNamespace()), argv) == 1
    said = capsys.readouterr()
    text = report.read_text(encoding="utf-8")
    for where in (said.out, said.err, text):
        assert leaks(where) == []
        assert "swordfish99" not in where and "abcdef123456" not in where


def test_a_report_names_neither_person_nor_machine(planted, stack_file, capsys):
    @check("names", "Names")
    def names(saw, stack):
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
    fine = check("fine", "Fine")(lambda saw, stack: passed("fine"))
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
    environment = {
        "HOME": str(tmp_path),
        "TOKENIZERS_PARALLELISM": "false",
        "SSH_AUTH_SOCK": "/run/agent",
        "A_KEY": "abc",
    }
    assert mask(tmp_path, environment)("false /run/agent abc") == "false /run/agent abc"
