"""Code that reacts to an error text names signs and causes by id: each of them must exist."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gpukit
from gpukit.cli import ids
from gpukit.doctor import driver, grant, running
from gpukit.errors.signs import named, signs
from gpukit.host import refusals
from gpukit.project.data import data
from gpukit.verify import software, torch_process

SOURCE = Path(gpukit.__file__).parent
OF_SIGNS = {sign.id for sign in signs()} | {cause.id for sign in signs() for cause in sign.causes}


@pytest.mark.parametrize(
    "asked",
    [
        driver.CAUSES_BY_RULE,
        {"wsl-integration", "docker-context", "client-too-old", "docker-denied"},
        grant.NO_GPU_DRIVER | grant.UNKNOWN_RUNTIME | grant.MISSING_PROGRAM | grant.CDI_RULES | grant.DRIVER_RULES,
        running.BEFORE_DRIVER_RULES,
        refusals.NOT_RESPONDING,
        torch_process.CAUSE_OF_RULE,
        software.EXCLUDED,
    ],
    ids=["driver", "engine", "grant", "running", "refusals", "torch_errors", "imports"],
)
def test_each_requested_id_can_occur_in_a_text(asked) -> None:
    assert set(asked) - OF_SIGNS == set()


def test_each_id_of_a_check_is_a_cause() -> None:
    known = {*data("knowledge")["causes"]}
    for each in ids.CHECKS:
        assert set(each.causes) <= known, each.id
    exceptions = {id for named in torch_process.EXCEPTIONS.values() for id in named}
    assert {*torch_process.CAUSE_OF_RULE.values(), *exceptions, *torch_process.KILLED} <= known


def test_each_id_in_the_code_is_a_cause() -> None:
    known, functions = {*data("knowledge")["causes"]}, ("problem", "skipped", "unknown")
    calls = [call for path in SOURCE.rglob("*.py") for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    named = {
        call.args[0].value
        for call in calls
        if isinstance(call, ast.Call)
        and getattr(call.func, "id", "") in functions
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }
    assert len(named) > 100 and named <= known


def test_each_referenced_sign_exists() -> None:
    asked: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Name)
                and call.func.id in ("match_signs", "named")
            ):
                asked |= {each.value for each in call.args if isinstance(each, ast.Constant)}
    assert len(asked) > 20 and named(*asked)
