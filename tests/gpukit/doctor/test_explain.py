"""Error texts of public threads, as people paste them: named with the right cause, or shown as they are."""

from __future__ import annotations

import io
import re

import pytest

from gpukit.cli.explain import explain
from gpukit.errors.diagnose import diagnose, distinct, next_to_look_at, plainly
from gpukit.errors.rules import RULES
from tests.gpukit.doctor.conftest import FAULTS


def texts(name):
    blocks = re.split(r"^=== ", (FAULTS / f"{name}.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return [tuple(re.fullmatch(r"(\S+)\norigin: (.+)\n([\s\S]+)", block.strip()).groups()) for block in blocks]


@pytest.mark.parametrize(("id", "origin", "text"), texts("texts"), ids=lambda value: value[:50])
def test_a_text_from_a_public_thread(id, origin, text):
    known = diagnose(text)
    assert known and known.id == id
    assert known.cause and known.remedy and known.look and "{" not in known.why


@pytest.mark.parametrize(("id", "origin", "text"), texts("unknown"), ids=lambda value: value[:50])
def test_a_text_that_nobody_knows_is_shown_as_it_is(id, origin, text, capsys, monkeypatch):
    assert diagnose(text) is None
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert explain("-") == 2
    said = capsys.readouterr().out
    shown = [" ".join(line.split()) for line in said.splitlines() if line.startswith("  ")]
    assert shown and all(line in " ".join(plainly(text).split()) for line in shown)
    assert said.strip().splitlines()[-1] == next_to_look_at(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", "first traceback above"),
        ('process "/bin/sh -c make" did not complete successfully: exit code: 2', "output of that step"),
        ("Error: Command failed: docker inspect x", "repeats what failed"),
        ("Segmentation fault (core dumped)", "faulthandler"),
        ("Error response from daemon: the moon is full", "`./launch doctor`"),
        ("cudnn says something new", "CUDA_LAUNCH_BLOCKING=1"),
        ("KeyError: 'labels'", "a file of yours"),
        ("it does not work", "everything they can"),
    ],
)
def test_an_unknown_text_comes_with_what_to_look_at_next(text, said):
    assert said in next_to_look_at(text)


def test_ids_are_unique():
    assert len({rule.id for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_is_found_by_its_own_words(rule):
    assert diagnose(rule.says).id == rule.id
    assert rule.cause.endswith(".") and rule.remedy and rule.look
    assert diagnose(rule.cause) is None or diagnose(rule.cause).id == rule.id
    groups = any(re.compile(pattern).groups for pattern in rule.when)
    assert groups or "{0}" not in rule.cause


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.maybe], ids=lambda rule: rule.id)
def test_a_doubt_lists_what_it_may_be_and_what_tells_it(rule):
    assert len(rule.maybe) >= 2 and all(what and told for what, told in rule.maybe)
    assert not re.search(r"\b(?:mostly|often|perhaps|probably)\b", rule.cause), "a doubt's cause says what is certain"


def test_what_names_a_cause_comes_before_what_leaves_it_open():
    assert diagnose("RuntimeError: CUDA error: unknown error").maybe
    named = diagnose(
        "RuntimeError: CUDA error: unknown error\nNVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus."
    )
    assert named.id == "gpu-lost" and not named.maybe


@pytest.mark.parametrize(
    ("text", "id"),
    [
        (
            "401 Client Error. Repository Not Found for url: https://huggingface.co/api/models/a/b. "
            "Invalid username or password.",
            "hub-name",
        ),
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'\n"
            "ERROR: Could not find a version that satisfies the requirement torch (from versions: none)",
            "network-breaks",
        ),
        ("RuntimeError: The size of tensor a (0) must match the size of tensor b (8)", "empty-tensor"),
        ("nvidia-container-cli: detection error: cuda error: invalid device ordinal", "tools-cannot-look"),
        ("NVIDIA-SMI 550.54.14 Driver Version: 550.54.14 CUDA Version: ERR!", "cuda-version-unseen"),
        ("MemoryError: std::bad_alloc", "bad-alloc"),
    ],
)
def test_words_beside_which_another_cause_shows(text, id):
    assert diagnose(text).id == id


def test_a_doubt_is_told_as_one(tmp_path, capsys):
    log = tmp_path / "log"
    log.write_text("Killed\n", encoding="utf-8")
    assert explain(str(log)) == 2
    said = capsys.readouterr().out
    assert "several possible causes" in said and "docker stop" in said and "ran out" in said and "cause   " not in said
    found = diagnose("Killed")
    assert all(what in found.why and told in found.why for what, told in found.maybe)


def test_the_first_of_lines_that_differ_in_numbers_counts_too():
    text = "make: *** [Makefile:15: run] Error 137\nmake: *** [Makefile:24: run] Error 2\n"
    assert diagnose(text).id == "ended-from-outside"
    steps = "\n".join(f"step {number}: loss 0.{number}" for number in range(9))
    assert distinct(steps) == "step 0: loss 0.0\nstep 8: loss 0.8"


@pytest.mark.parametrize(
    "text",
    [
        "java.net.ConnectException: Connection refused\n\tat com.foo.Bar.run(Bar.java:12)",
        "npm ERR! Error: EACCES: permission denied, mkdir '/usr/local/lib/node_modules/foo'",
        'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space\n\tat a.B.run(B.java:3)',
        "panic: out of memory\ngoroutine 7 [running]:",
        "redis.exceptions.ResponseError: OOM command not allowed when used memory > 'maxmemory'.",
        "mysqld: [ERROR] Bind on TCP/IP port: size mismatch",
        "AssertionError: dimension mismatch in ledger: 3 != 4",
        "KeyError: 'LABEL_MAP'",
        "TypeError: greet() missing 1 required positional argument: 'name'",
        "IndexError: list index out of range",
        "AttributeError: 'NoneType' object has no attribute 'group'",
        "error[E0382]: borrow of moved value\nerror: could not compile `foo` due to previous error",
    ],
)
def test_what_is_of_another_field_is_not_known(text):
    assert diagnose(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "docker: Error response from daemon: the moon is full",
        "ValueError: not enough values to unpack (expected 2, got 1)",
        "KeyError: 'labels'",
        'ERROR: failed to solve: process "/bin/sh -c make" did not complete successfully: exit code: 2',
        "Segmentation fault (core dumped)",
        "I trained for 802 steps and then for 804 more, on /dev/nvidia0",
        "nvidia-container-cli: something entirely new",
    ],
)
def test_what_nobody_knows_is_not_guessed(text):
    assert diagnose(text) is None


def test_telling(tmp_path, capsys, monkeypatch):
    log = tmp_path / "log"
    log.write_text("\x1b[31mmodprobe: FATAL: Module nvidia not found.\x1b[0m\n", encoding="utf-8")
    assert explain(str(log)) == 0
    said = capsys.readouterr().out
    assert "seen    modprobe: FATAL: Module nvidia not found." in said
    assert "dkms" in said
    monkeypatch.setattr("sys.stdin", io.StringIO("step 1\nOops: error 17 with hf_abcdefghijklmnopqrstuvwxyz012345\n"))
    assert explain("-") == 2
    said = capsys.readouterr().out
    assert "  Oops: error 17 with ***" in said
    assert explain(str(tmp_path / "none")) == 2
    assert "neither a file" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO(" \n"))
    assert explain("-") == 2
