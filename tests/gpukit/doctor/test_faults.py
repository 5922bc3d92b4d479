"""Recorded machines: each fault is found, with the right cause and nothing else beside it; healthy ones are well."""

from __future__ import annotations

import jsonschema
import pytest

from gpukit.doctor import main as doctor
from gpukit.findings.checks import run
from gpukit.findings.finding import to_json
from tests.gpukit.doctor.conftest import FAULTS, records, with_stack
from tests.gpukit.doctor.test_doctor import FAULTS as FAULTS_HERE

BROKEN = [record for name in ("engine", "driver", "smi", "grant", "rest") for record in records(name)]
HEALTHY = records("healthy")


def judged(record, make_stack):
    return run(doctor.CHECKS, record.probes, with_stack(record, make_stack))


@pytest.mark.parametrize("record", BROKEN, ids=lambda record: record.name)
def test_a_recorded_fault(record, make_stack, findings_schema):
    findings = judged(record, make_stack)
    jsonschema.validate(to_json("doctor", "demo", findings), findings_schema)
    problems = [finding for finding in findings if finding.status in ("FAIL", "WARN") or not finding.completed]
    id, status = record.about["finds"].split()
    statuses = [(each.id, each.status if each.completed else "UNKNOWN") for each in problems]
    assert statuses == [(id, status)]
    assert problems[0].cause_id == record.about["cause"]
    assert record.about.get("remedy", "") in problems[0].remedy
    assert "{" not in problems[0].cause + problems[0].remedy


@pytest.mark.parametrize("record", HEALTHY, ids=lambda record: record.name)
def test_a_healthy_machine(record, make_stack):
    findings = judged(record, make_stack)
    assert [finding for finding in findings if finding.status in ("FAIL", "WARN") or not finding.completed] == []


def test_every_record_has_its_origin():
    names = {path.stem for path in FAULTS.glob("*.txt")}
    assert names == {"engine", "driver", "smi", "grant", "rest", "healthy"}
    assert all(record.about.get("origin") for record in [*BROKEN, *HEALTHY])
    assert len({record.name for record in BROKEN}) == len(BROKEN) >= 60


# The cause of the error text replaces them.
FALLBACKS = {"gpu-fails-in-container"}


def test_every_cause_is_found_by_some_fault(make_stack):
    """No cause stands on the page that no test has seen."""
    found = [finding for record in BROKEN for finding in judged(record, make_stack)]
    causes = {finding.cause_id for finding in found} | {cause for _, cause, *_ in FAULTS_HERE}
    known = {id for each in doctor.CHECKS for id in each.causes}
    assert known - causes == FALLBACKS
