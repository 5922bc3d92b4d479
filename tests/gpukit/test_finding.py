import jsonschema
import pytest

from gpukit.findings.finding import FAIL, PASS, SKIP, WARN, Finding, exit_code, markdown, table, to_json, verdict
from gpukit.project.messages import plain


def finding(status, id="a", **texts):
    return Finding(id, f"Title of {id}", status, **texts)


LONG = "no such file or directory: /home/somebody/with/a/path/that/is/long " * 8
MIXED = [
    finding(PASS, "a", seen="3.12.3"),
    finding(FAIL, "b", seen=LONG, expected="something", cause=LONG, remedy="./launch build"),
    finding(WARN, "c", seen="64 MB", cause="Small.", remedy="Make it larger."),
    finding(SKIP, "d", cause="There is no GPU."),
]


@pytest.mark.parametrize("width", [80, 100, 200])
def test_table_fits_and_is_complete(width):
    text = table(MIXED, width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0] == "PASS  Title of a  3.12.3"
    assert "SKIP  Title of d  There is no GPU." in lines
    assert "      remedy    ./launch build" in lines
    assert lines[-1] == verdict(MIXED)
    assert sum(line.startswith("FAIL  Title of b") for line in lines) == 2  # in the table, and in full below it


def test_as_above_is_about_the_line_above():
    lines = table([MIXED[3], MIXED[3], MIXED[0], MIXED[3]]).splitlines()
    assert lines[0] == lines[3] != lines[1]


def test_a_long_text_takes_two_lines_of_the_table_and_stands_in_full_below():
    head, _, below = table(MIXED[1:2]).partition("\n\n")
    assert len(head.splitlines()) == 2
    assert head.endswith(" ...")
    assert " ".join(below.split()).count("no such file or directory:") == 2 * 8


@pytest.mark.parametrize(
    ("findings", "code", "says"),
    [
        ([finding(PASS)], 0, "PASS: 1 check passed."),
        ([finding(PASS), finding(SKIP, "b", cause="x")], 0, "PASS: 1 check passed. 1 check skipped."),
        ([finding(SKIP, cause="x")], 0, "SKIP: nothing was checked. 1 check skipped."),
        ([finding(WARN, "shm")], 0, "PASS, with warnings: shm."),
        ([finding(FAIL, "torch"), finding(FAIL, "cuda")], 1, "FAIL: torch, cuda. Start with the first."),
        ([finding(PASS), finding(SKIP, "b", completed=False)], 2, "UNKNOWN: could not check b."),
        ([finding(FAIL), finding(SKIP, "b", completed=False)], 1, "FAIL: a. See the remedy above."),
    ],
)
def test_verdict_and_exit_code(findings, code, says):
    assert (exit_code(findings), verdict(findings)) == (code, says)


def test_json_matches_its_schema(findings_schema):
    jsonschema.validate(to_json("verify", "demo", MIXED), findings_schema)
    jsonschema.validate(to_json("doctor", "", [], "stack.json cannot be read"), findings_schema)
    assert to_json("doctor", "", [], "x")["exit_code"] == 2
    with pytest.raises(jsonschema.ValidationError):  # a FAIL without a remedy helps nobody
        jsonschema.validate(to_json("verify", "demo", [finding(FAIL, cause="x")]), findings_schema)


def test_tool_output_becomes_one_harmless_line():
    assert plain("a\n  b\t\033[31mred\a") == "a b red"
    assert plain("proxy http://me:secret@proxy:3128/ fails") == "proxy http://***@proxy:3128/ fails"


def test_a_report_is_markdown_that_shows_texts_as_they_are():
    text = markdown("verify", {"image": "a_b"}, [*MIXED, finding(WARN, "e", seen="a|b <c> `d`", cause="x", remedy="y")])
    assert text.startswith("### verify: FAIL: b.") and "- image: a\\_b" in text
    assert "a\\|b &lt;c&gt; \\`d\\`" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + 5
