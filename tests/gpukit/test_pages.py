"""The pages that are made of data say what the data say: the troubleshooting page and the table of verified runs."""

import json
import re
from pathlib import Path

import jsonschema
import pytest

from catalogue.pages import filled
from docs import write
from gpukit.findings.finding import PASS, SKIP, WARN, Finding
from gpukit.verify import main as verify
from gpukit.verify.main import record
from gpukit.verify.probes import Devices

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "gpukit/src/gpukit/verify/record.schema.json").read_text(encoding="utf-8"))


@pytest.mark.golden
def test_generated_pages_are_up_to_date():
    """Run `python docs/write.py` after a change of a check or a new record."""
    assert {path: path.read_text(encoding="utf-8") for path in write.pages()} == write.pages()


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
    assert written.keys() == SCHEMA["properties"].keys(), "no names of users or machines"
    assert (written["result"], written["driver"]) == (WARN, "580.95.05")
    assert written["not_passed"] == [{"id": "shm", "status": WARN, "cause": "Small."}]
    row = write.verified_table([written]).splitlines()[-1]
    assert "RTX 5070 Ti" in row and "shm (WARN)" in row and "2.14.1+cu130" in row
    twice = {**written, "cards": written["cards"] * 2}
    assert "2 x NVIDIA GeForce RTX 5070 Ti" in write.verified_table([twice])


NOTHING_COMPUTED = list({**ALL, "tensor": found(SKIP, "tensor", "There is no GPU.")}.values())


@pytest.mark.parametrize(
    ("findings", "seen"),
    [(NOTHING_COMPUTED, {}), (FINDINGS[1:], {}), ([ALL["tensor"]], {}), (FINDINGS, {"devices": Devices()})],
    ids=["nothing computed", "without one check", "one check", "no card"],
)
def test_only_whole_runs_on_a_gpu_are_recorded(container, make_stack, tmp_path, findings, seen):
    file = tmp_path / "it.json"
    assert record(findings, container(**seen), make_stack(), file).startswith("Not recorded")
    assert not file.exists()


def test_only_the_named_part_of_a_page_is_written(tmp_path):
    page = tmp_path / "page.md"
    text = "# Title\n\n<!-- a: written by x -->\n\n{}\n\n<!-- end of a -->\n\nBy hand.\n"
    page.write_text(text.format("| old |"), encoding="utf-8")
    assert filled(page, {"a": "| \\1 |\n"}) == text.format("| \\1 |")
    with pytest.raises(ValueError, match="no part b"):
        filled(page, {"b": ""})
