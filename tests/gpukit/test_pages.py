"""The pages that are made of data say what the data say: the troubleshooting page and the table of verified runs."""

import json
import re
from pathlib import Path

import jsonschema
import pytest

from docs import write
from gpukit.doctor import main as doctor
from gpukit.findings.checks import explain
from gpukit.findings.finding import PASS, SKIP, WARN, Finding
from gpukit.verify import main as verify
from gpukit.verify.main import document, record
from gpukit.verify.probes import Devices

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "gpukit/src/gpukit/verify/record.schema.json").read_text(encoding="utf-8"))
CHECKS = [*(("doctor", each) for each in doctor.CHECKS), *(("verify", each) for each in verify.CHECKS)]


@pytest.mark.golden
def test_generated_pages_are_up_to_date():
    """Run `python docs/write.py` after a change of a check or a new record."""
    assert {path: path.read_text(encoding="utf-8") for path in write.pages()} == write.pages()


@pytest.mark.parametrize(("tool", "each"), CHECKS, ids=lambda value: getattr(value, "id", value))
def test_every_check_stands_on_the_page_with_all_its_causes(tool, each):
    text = write.TROUBLESHOOTING.read_text(encoding="utf-8")
    assert f'<a id="{tool}-{each.id}"></a>' in text
    assert each.about, "say in its docstring what it looks at"
    explained = explain(each)
    assert each.title in explained and all(f"[{id}]" in explained for id in each.causes)


@pytest.mark.parametrize("tool", ["doctor", "verify"])
def test_no_check_makes_a_cause_that_it_does_not_declare(tool):
    """A Finding that a check makes itself would not be on the page."""
    for path in (ROOT / "gpukit/src/gpukit" / tool).glob("*.py"):
        assert not re.search(r"\bFinding\(", path.read_text(encoding="utf-8")), path


def test_links_within_the_page_lead_somewhere():
    text = write.TROUBLESHOOTING.read_text(encoding="utf-8")
    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) <= set(re.findall(r'<a id="([\w-]+)">', text))


def test_records_have_the_form_and_are_of_real_cards():
    for path in (ROOT / "records").glob("*.json"):
        jsonschema.validate(json.loads(path.read_text(encoding="utf-8")), SCHEMA)


def found(status, id, cause=""):
    return Finding(id, id, status, cause=cause, remedy="x" if cause else "")


ALL = {each.id: found(PASS, each.id) for each in verify.CHECKS}
FINDINGS = list({**ALL, "shm": found(WARN, "shm", "Small."), "xid": found(SKIP, "xid", "No log.")}.values())


def test_a_run_on_a_card_is_recorded(container, make_stack, tmp_path):
    file = tmp_path / "outputs" / "it.json"
    assert str(file) in record(FINDINGS, container(), make_stack(), file)
    written = json.loads(file.read_text(encoding="utf-8"))
    jsonschema.validate(written, SCHEMA)
    assert (written["result"], written["driver"]) == (WARN, "580.95.05")
    assert written["not_passed"] == [{"id": "shm", "status": WARN, "cause": "Small."}]
    row = write.verified_table([written]).splitlines()[-1]
    assert "RTX 5070 Ti" in row and "shm (WARN)" in row and "2.14.1+cu130" in row
    twice = {**written, "cards": written["cards"] * 2}
    assert "2 x NVIDIA GeForce RTX 5070 Ti" in write.verified_table([twice])


@pytest.mark.parametrize(
    "findings",
    [list({**ALL, "tensor": found(SKIP, "tensor", "There is no GPU.")}.values()), FINDINGS[1:], [ALL["tensor"]]],
    ids=["nothing computed", "without one check", "one check"],
)
def test_runs_without_a_gpu_are_not_recorded(container, make_stack, tmp_path, findings):
    file = tmp_path / "it.json"
    assert record(findings, container(), make_stack(), file).startswith("Not recorded")
    assert not file.exists()


def test_without_a_card_nothing_is_recorded_even_if_it_computed(container, make_stack, tmp_path):
    probes = container(devices=Devices())
    assert record(FINDINGS, probes, make_stack(), tmp_path / "it.json").startswith("Not recorded")


def test_record_has_no_names_of_users_or_machines(container, make_stack):
    keys = set(document(FINDINGS, container(), make_stack()))
    assert keys == set(SCHEMA["properties"])


def test_readme_and_the_page_show_the_same_table(container, make_stack):
    text = write.README.read_text(encoding="utf-8")
    for found in ([], [document(FINDINGS, container(), make_stack())]):
        shown = write.readme(text, found)
        assert f"\n\n{write.verified_table(found)}\n\n" in shown
        assert write.verified_table(found) in write.verified(found)
        assert write.readme(shown, []) == write.readme(text, [])
    with pytest.raises(ValueError, match="no <!--"):
        write.readme("# A README without marks\n", [])


def test_empty_table():
    assert write.verified_table([]) == "No run on real hardware has been recorded yet."
