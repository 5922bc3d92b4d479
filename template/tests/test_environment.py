"""gpukit is the template's and tested there; here only that it is in place."""

import importlib
import json
from pathlib import Path

STACK = Path(__file__).parents[1] / "gpukit" / "stack.json"


def test_the_stack_is_known() -> None:
    stack = json.loads(STACK.read_text(encoding="utf-8"))
    assert stack["targets"] and stack["torch"]


def test_verify_can_be_imported() -> None:
    assert importlib.import_module("gpukit.verify")
