"""Records of runs on real hardware, for the template's table of verified machines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

from gpukit.findings.checks import Check
from gpukit.findings.finding import FAIL, PASS, STATUSES, WARN, Finding, named
from gpukit.project.location import root
from gpukit.project.stack import Stack


def document(findings: list[Finding], probes: Any, stack: Stack) -> dict[str, Any]:
    """What record.schema.json describes. It has no names of users or machines."""
    not_passed = [finding for finding in findings if finding.status in (WARN, FAIL)]
    return {
        "schema": 1,
        "date": date.today().isoformat(),
        "cards": [{"name": device.name, "capability": device.capability} for device in probes.devices.found],
        "driver": probes.smi.driver or None,
        "base": stack.base,
        "release": stack.release,
        "image": stack.image,
        "torch": probes.torch.version,
        "cuda": probes.torch.cuda,
        "result": FAIL if named(findings, FAIL) else WARN if named(findings, WARN) else PASS,
        "counts": {status: len(named(findings, status)) for status in STATUSES},
        "not_passed": [{"id": each.id, "status": each.status, "cause": each.cause} for each in not_passed],
    }


def record(checks: Iterable[Check], findings: list[Finding], probes: Any, stack: Stack, file: Path | None) -> str:
    """Write a record if a GPU computed and all `checks` ran; returns a sentence that says where, or why not."""
    whole = {finding.id for finding in findings} == {each.id for each in checks}
    computed = any(finding.id == "tensor" and finding.status in (PASS, FAIL) for finding in findings)
    if not whole or not computed or not probes.devices.found:
        return "Not recorded: only complete runs on a real GPU are recorded, without --only, --skip, and --quick."
    content = document(findings, probes, stack)
    name = re.sub(r"[^a-z0-9]+", "-", content["cards"][0]["name"].lower()).strip("-")
    file = file or root() / "outputs" / f"{name}-{stack.base}-{stack.release}-{content['date']}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return f"Recorded: {file}; open a pull request that adds it to records/ in the template."
