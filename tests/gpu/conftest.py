"""Tests on a real GPU with the active Python, which needs torch, numpy, and pytest.

Without a GPU, they are skipped. With one, the run writes a record of what worked and what did not.
"""

from __future__ import annotations

import json
import platform
import re
import time
from datetime import date
from pathlib import Path
from typing import Any

import pytest

STARTED = time.monotonic()
RESULTS: dict[str, dict[str, Any]] = {}


def without() -> str:
    """Why these tests cannot run here; empty if they can run."""
    try:
        import numpy  # noqa: F401
        import torch
    except ImportError as error:
        return f"{error.name} is not installed"
    if torch.cuda.is_available():
        return ""
    return "this is a CPU build of torch" if torch.version.cuda is None else "torch finds no GPU"


WITHOUT = without()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if WITHOUT:
                item.add_marker(pytest.mark.skip(reason=WITHOUT))


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A dict whose contents are added to the record."""
    return RESULTS.setdefault(request.node.name, {}).setdefault("measured", {})


@pytest.fixture
def device() -> str:
    return "cuda:0"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that use this fixture on each GPU."""
    if "device" in metafunc.fixturenames and not WITHOUT:
        import torch

        metafunc.parametrize("device", [f"cuda:{index}" for index in range(torch.cuda.device_count())])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "gpu" in report.keywords and (report.when == "call" or report.outcome != "passed"):
        result = RESULTS.setdefault(report.nodeid.rpartition("::")[2], {})
        result.update(result=report.outcome, seconds=round(report.duration, 2))
        if report.failed:
            result["message"] = str(report.longrepr)[-4000:]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write the record. Home directories are removed from paths, so that it names no user."""
    if WITHOUT or not RESULTS:
        return
    import torch

    cards = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    record = {
        "schema": 1,
        "kind": "tests/gpu",
        "date": date.today().isoformat(),
        "cards": [
            {"name": card.name, "capability": f"{card.major}.{card.minor}", "memory": card.total_memory}
            for card in cards
        ],
        "driver": _driver(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "system": platform.platform(),
        "seconds": round(time.monotonic() - STARTED, 1),
        "results": RESULTS,
    }
    name = re.sub(r"[^a-z0-9]+", "-", cards[0].name.lower()).strip("-")
    file = Path(f"gpu-record-{name}-{record['date']}.json")
    text = json.dumps(record, indent=2, default=str).replace(str(Path.home()), "~")
    file.write_text(text + "\n", encoding="utf-8")
    terminalreporter.write_line(f"Recorded: {file.absolute()}; attach it to an issue of gpu-template.")


def _driver() -> str | None:
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"\b(\d{3}\.[\d.]+)\b", text)
    return found[1] if found else None
