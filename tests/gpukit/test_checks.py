import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from types import SimpleNamespace

import jsonschema
import pytest

from gpukit.cli.main import main
from gpukit.doctor import main as doctor
from gpukit.errors.machine import Machine
from gpukit.errors.signs import signs
from gpukit.findings import checks
from gpukit.findings.checks import check, command, run, select
from gpukit.findings.finding import FAIL, PASS, SKIP, passed, problem, skipped
from gpukit.project.data import data
from gpukit.verify import main as verify


@check("first", "First")
def first(probes, stack):
    return passed("fine") if probes.first else problem("docker-down", "bad", "fine")


@check("second", "Second", needs="first")
def second(probes, stack):
    return passed(probes.second)


@check("third", "Third", needs="second")
def third(probes, stack):
    return skipped("one-gpu")


@check("fourth", "Fourth", needs="third")
def fourth(probes, stack):
    return passed("fine")


CHECKS = (first, second, third, fourth)


def look(**probes):
    return lambda stack: contextlib.nullcontext(SimpleNamespace(**probes))


@pytest.mark.parametrize(
    ("probes", "expected"),
    [
        ({"first": True, "second": "x"}, [PASS, PASS, SKIP, PASS]),  # a skip is no failure
        ({"first": False}, [FAIL, SKIP, SKIP, SKIP]),  # what depends on a failure is skipped
        ({"first": True}, [PASS, "AttributeError", SKIP, SKIP]),  # one that breaks neither passes nor fails
    ],
)
def test_checks_run_in_order(make_stack, probes, expected):
    findings = run(CHECKS, SimpleNamespace(**probes), make_stack())
    for finding, status in zip(findings, expected):
        assert finding.status == status if finding.completed else status in finding.cause
        assert finding.cause_id != "needed-check-failed" or "which did not pass" in finding.cause


def test_select_includes_required_checks():
    assert [each.id for each in select(CHECKS, only=["third"])] == ["first", "second", "third"]
    assert [each.id for each in select(CHECKS, only=["third"], skip=["first"])] == ["second", "third"]
    assert [each.id for each in select(CHECKS, skip=["second"])] == ["first", "third", "fourth"]


def test_command_prints_table_or_json(capsys, stack_file, findings_schema):
    argv = ["--stack", str(stack_file())]
    assert command("doctor", "", CHECKS, look(first=True, second="x"), argv) == 0
    assert capsys.readouterr().out.endswith("PASS: 3 checks passed. 1 check skipped.\n")
    assert command("doctor", "", CHECKS, look(first=False), [*argv, "--json"]) == 1
    output = json.loads(capsys.readouterr().out)
    jsonschema.validate(output, findings_schema)
    assert (output["tool"], output["project"], output["exit_code"]) == ("doctor", "demo", 1)
    assert output["counts"] == {"PASS": 0, "WARN": 0, "FAIL": 1, "SKIP": 3}
    assert [finding["link"] for finding in output["findings"][:2]] == ["./launch explain first", ""]


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        (["--skip", "first,second,third,fourth"], "no check is left"),
        (["--stack", "/nowhere/stack.json"], "/nowhere/stack.json"),
    ],
)
def test_command_reports_that_it_cannot_run(capsys, stack_file, findings_schema, argv, names):
    argv = argv if "--stack" in argv else [*argv, "--stack", str(stack_file())]
    assert command("verify", "", CHECKS, look(), argv) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert names in output.err
    assert command("verify", "", CHECKS, look(), [*argv, "--json"]) == 2
    jsonschema.validate(json.loads(capsys.readouterr().out), findings_schema)


SCRIPT = """
import contextlib, sys
from gpukit.findings.checks import check, command
from gpukit.findings.finding import passed
one = check("one", "The only one")(lambda saw, stack: passed("\\u00fc fine"))
sys.exit(command("verify", "", [one], lambda stack: contextlib.nullcontext(), sys.argv[1:]))
"""


@pytest.mark.parametrize(("extra", "colored"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_on_a_terminal_there_is_color_and_progress(stack_file, extra, colored):
    main, other = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": os.pathsep.join(sys.path), **extra}
    environment = {name: value for name, value in environment.items() if name != "NO_COLOR" or name in extra}
    argv = [sys.executable, "-c", SCRIPT, "--stack", str(stack_file())]
    code = subprocess.run(argv, stdout=other, stderr=other, env=environment, check=False).returncode
    os.close(other)
    output = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while data := os.read(main, 65536):
            output += data
    os.close(main)
    assert code == 0
    assert (b"\033[32mPASS" in output) == colored
    assert (b"[1/1] The only one ..." in output) == (extra.get("TERM") != "dumb")


def test_without_a_terminal_any_encoding_works(stack_file):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "ascii"}
    argv = [sys.executable, "-c", SCRIPT, "--stack", str(stack_file())]
    done = subprocess.run(argv, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"PASS  The only one  \\xfc fine")


@pytest.mark.parametrize(("id", "similar"), [("driverr", "driver"), ("port", "port-of-program"), ("qqqqqq", "--help")])
def test_explain_of_an_unknown_id_names_similar_ones(capsys, id, similar):
    assert main(["explain", id]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and id in shown.err and similar in shown.err and shown.err.count("\n") == 1


@pytest.fixture
def in_a_project(monkeypatch, tmp_path):
    monkeypatch.setattr("gpukit.cli.explain.find_root", lambda: tmp_path)
    monkeypatch.setattr("gpukit.cli.explain.this_machine", Machine)  # asking this one takes 0.1 s


WITHOUT_CAUSE = [sign for sign in signs() if sign.id not in data("knowledge")["causes"]]


@pytest.mark.parametrize("sign", WITHOUT_CAUSE[::20], ids=lambda sign: sign.id)
def test_explain_knows_every_error_text(capsys, sign, in_a_project):
    assert main(["explain", sign.id]) == 0
    shown = capsys.readouterr().out
    assert sign.example in shown and shown.count("remedy  ") >= len(sign.causes)


TOOLS = {"doctor": doctor, "verify": verify}
EVERY = [(tool, each) for tool, module in TOOLS.items() for each in module.CHECKS]


@pytest.mark.parametrize(("tool", "each"), EVERY, ids=lambda value: getattr(value, "id", value))
def test_explain_knows_every_check(capsys, tool, each, in_a_project):
    """With its causes, and with blanks that a reader can tell from text."""
    assert each.about, "say in its docstring what it looks at"
    assert main(["explain", each.id]) == 0
    output = checks.explain(each)
    assert output in capsys.readouterr().out
    assert output.startswith(f"{each.title} [{each.id}]")
    assert all(need in output for need in each.needs)
    assert len(re.findall(r"^  (?:FAIL|WARN|UNKNOWN)  ", output, re.MULTILINE)) == len(each.causes)
    assert len(re.findall(r"^ +remedy +\S", output, re.MULTILINE)) == len(each.causes)
    assert "{" not in output.replace("{libcudnn", "").replace("{{.Arch", "")


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("option", ["--only", "--skip"])
def test_an_unknown_check_is_named_with_those_that_there_are(capsys, findings_schema, tool, option):
    assert TOOLS[tool].main([option, "driverr"]) == 2
    output = capsys.readouterr()
    assert output.out == "" and "there is no check 'driverr'" in output.err
    assert all(each.id in output.err for each in TOOLS[tool].CHECKS if not each.project)
    assert TOOLS[tool].main([option, "driverr", "--json"]) == 2
    jsonschema.validate(json.loads(capsys.readouterr().out), findings_schema)


@pytest.mark.parametrize("tool", TOOLS)
def test_help_lists_the_checks_and_exit_codes(capsys, tool):
    with pytest.raises(SystemExit) as ended:
        TOOLS[tool].main(["--help"])
    output = capsys.readouterr().out
    assert ended.value.code == 0
    assert all(re.search(rf"^  {each.id} +\S", output, re.MULTILINE) for each in TOOLS[tool].CHECKS)
    assert "exit code: 0 " in output


@pytest.mark.parametrize("tool", TOOLS)
def test_ids_are_unique_and_a_check_stands_after_those_it_needs(tool):
    ids = [each.id for each in TOOLS[tool].CHECKS]
    assert len(set(ids)) == len(ids)
    for position, each in enumerate(TOOLS[tool].CHECKS):
        assert set(each.needs) <= set(ids[:position]), each.id


def test_quick_leaves_out_and_only_overrules(capsys, stack_file):
    slow = check("slow", "Slow", level="full")(lambda probes, stack: passed("slow"))
    argv = ["--stack", str(stack_file()), "--json"]

    def ids(*more):
        assert command("verify", "", [*CHECKS, slow], look(first=True, second="x"), [*argv, *more]) == 0
        return [finding["id"] for finding in json.loads(capsys.readouterr().out)["findings"]]

    assert ids() == ["first", "second", "third", "fourth", "slow"]
    assert ids("--quick") == ["first", "second", "third", "fourth"]
    assert ids("--quick", "--only", "slow") == ["slow"]


def test_probes_are_prepared_with_checks_and_stress(capsys, stack_file):
    calls = []
    probes = {"first": True, "second": "x", "prepare": lambda ids, stress: calls.append((ids, stress))}
    command("verify", "", CHECKS, look(**probes), ["--stack", str(stack_file()), "--stress", "--only", "second"])
    assert calls == [(["first", "second"], True)]


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--strict"], 3)])
def test_strict_makes_warnings_count(capsys, stack_file, options, code):
    warns = check("warns", "Warns")(lambda probes, stack: problem("checkpoint-space-low", "little"))
    argv = ["--stack", str(stack_file()), "--json", *options]
    assert command("verify", "", [*CHECKS, warns], look(first=True, second="x"), argv) == code
    assert json.loads(capsys.readouterr().out)["exit_code"] == code
    assert command("verify", "", [*CHECKS, warns], look(first=False), argv) == 1


def test_a_tool_that_keeps_no_records_has_no_such_option(capsys, stack_file):
    with pytest.raises(SystemExit):
        command("doctor", "", CHECKS, look(), ["--record"])
    kept = []
    argv = ["--stack", str(stack_file()), "--record", "there.json"]
    command("verify", "", CHECKS, look(first=True, second="x"), argv, lambda *seen: kept.append(seen) or "Recorded.")
    assert str(kept[0][3]) == "there.json"
    assert capsys.readouterr().err.endswith("Recorded.\n")
