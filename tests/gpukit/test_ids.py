"""Code that reacts to an error text names signs and causes by id: each of them must exist."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import gpukit
from gpukit.doctor import driver, grant, running
from gpukit.errors import refusals
from gpukit.errors.signs import named, signs
from gpukit.findings.finding import Cause
from gpukit.verify import imports, native, standalone, torch_errors

SOURCE = Path(gpukit.__file__).parent
OF_SIGNS = {sign.id for sign in signs()} | {cause.id for sign in signs() for cause in sign.causes}


def of_checks(part: str) -> set[str]:
    package = importlib.import_module(f"gpukit.{part}")
    modules = [
        importlib.import_module(f"{package.__name__}.{each.name}") for each in pkgutil.iter_modules(package.__path__)
    ]
    return {value.id for module in modules for value in vars(module).values() if isinstance(value, Cause)}


@pytest.mark.parametrize(
    "ids",
    [
        driver.CAUSES_BY_RULE,
        {each.id for each in ("wsl-integration", "docker-context", "client-too-old", "docker-denied")},
        grant.NO_GPU_DRIVER | grant.UNKNOWN_RUNTIME | grant.MISSING_PROGRAM | grant.CDI_RULES | grant.DRIVER_RULES,
        running.BEFORE_DRIVER_RULES,
        refusals.NOT_RESPONDING,
        torch_errors.CAUSE_OF_RULE,
        imports.EXCLUDED,
    ],
    ids=["driver", "engine", "grant", "running", "refusals", "torch_errors", "imports"],
)
def test_each_requested_id_can_occur_in_a_text(ids) -> None:
    assert set(ids) - OF_SIGNS == set()


def test_verify_gives_meanings_and_sentences_only_to_its_own_causes() -> None:
    exceptions = {id for ids in torch_errors.EXCEPTIONS.values() for id in ids}
    own = of_checks("verify")
    assert {*torch_errors.CAUSE_OF_RULE.values(), *exceptions, *torch_errors.KILLED, *native.WORDING} - own == set()
    assert set(standalone.STANDALONE_WORDING) - own - of_checks("doctor") == set()


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
