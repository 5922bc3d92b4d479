"""Code that reacts to an error text names signs and causes by id: each of them must exist."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gpukit
from gpukit.cli import ids
from gpukit.doctor import driver, grant
from gpukit.errors.signs import named, signs
from gpukit.host import refusals
from gpukit.project.data import data
from gpukit.verify import software, torch_process

SOURCE = Path(gpukit.__file__).parent
OF_SIGNS = {sign.id for sign in signs()} | {cause.id for sign in signs() for cause in sign.causes}


@pytest.mark.parametrize(
    "asked",
    [
        {*driver.MEANS, *driver.FAILURES} - {"driver-half-installed", "driver-finds-no-card"},
        {"wsl-integration", "docker-context", "client-too-old", "docker-denied"},
        grant.TOOLKIT_SIGNS | grant.MISSING_PROGRAM | grant.CDI_SIGNS | grant.DRIVER_SIGNS,
        grant.MEANS,
        refusals.NOT_RESPONDING,
        torch_process.MEANS,
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
    assert {*torch_process.MEANS.values(), *exceptions, *torch_process.KILLED} <= known


def test_each_id_in_the_code_exists() -> None:
    """The constants that are given to these functions."""
    causes = {"problem", "skipped", "unknown"}
    known = {*data("knowledge")["causes"]}
    asked: dict[str, set[str]] = {name: set() for name in (*causes, "match_signs", "named")}
    for path in SOURCE.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and (name := getattr(call.func, "id", "")) in asked:
                given = call.args[:1] if name in causes else call.args
                asked[name] |= {each.value for each in given if isinstance(each, ast.Constant)}
    of_causes = asked["problem"] | asked["skipped"] | asked["unknown"]
    of_signs = asked["match_signs"] | asked["named"]
    assert len(of_causes) > 100 and of_causes <= known
    assert len(of_signs) > 10 and named(*of_signs)
