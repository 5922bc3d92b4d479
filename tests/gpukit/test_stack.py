import ast
import copy
import json
import sys
from pathlib import Path

import jsonschema
import pytest

from gpukit.host.kernels import from_arch_list, runs
from gpukit.project.stack import StackError, load, minor, version

GPUKIT = Path(__file__).resolve().parents[2] / "gpukit/src/gpukit"
ON_THE_HOST = [GPUKIT / "__init__.py", GPUKIT / "__main__.py", GPUKIT / "image/guard.py"]
for folder in ("project", "findings", "errors", "host", "wheel", "doctor", "launch", "setup", "cli"):
    ON_THE_HOST += sorted((GPUKIT / folder).glob("*.py"))


def test_valid_stack_can_be_loaded(make_stack, stack_data, stack_schema, cpu_only):
    jsonschema.Draft202012Validator.check_schema(stack_schema)
    for changes in ({}, cpu_only):
        jsonschema.validate(stack_data(**changes), stack_schema)
    stack = make_stack()
    assert (stack.gpu, stack.capabilities, stack.targets["rtx-50"].driver) == (True, ["12.0"], "570.86.16")
    assert stack.kernels["amd64"].sass[-1] == "12.0"
    assert not make_stack(**cpu_only).gpu


def test_the_schema_is_strict(stack_data, stack_schema):
    wrong = [
        {"schema": 2},
        {"extra": 1},
        {"project": "My Project"},
        {"targets": {}},
        {"python": "3"},
        {"cuda": "13"},
        {"channel": "newest"},
        {"mounts": ["workspace"]},
        {"memory": {"ipc": "host"}},
        {"kernels": {"riscv": {"sass": [], "ptx": []}}},
        {"end_of_life": "soon"},
    ]
    for changes in wrong:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(stack_data(**changes), stack_schema)


def test_missing_package_is_named(stack_data, tmp_path):
    path = tmp_path / "stack.json"

    def refused(data):
        path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
        with pytest.raises(StackError) as refusal:
            load(path)
        return str(refusal.value)

    whole = stack_data()
    optional = {"schema", "request", "native", "torch_install", "trial", "digest"}
    for key in set(whole) - optional:
        assert f"`{key}`" in refused({name: value for name, value in whole.items() if name != key})
    deep = copy.deepcopy(whole)
    del deep["targets"]["rtx-50"]["label"]
    assert "`targets.rtx-50.label`" in refused(deep)
    assert "schema 2" in refused({**whole, "schema": 2})
    assert "not JSON" in refused("{")
    assert "not a JSON object" in refused("[]")
    path.unlink()
    with pytest.raises(StackError, match="No such file"):
        load(path)


def test_versions():
    assert version("570.86.16") > version("570.86") > version("525.60.13")
    assert version("2.10.0a0+b558.nv25.11") == (2, 10, 0)
    assert version("[N/A]") == ()
    assert (minor("2.14.1+cu130"), minor("3.12.3")) == ("2.14", "3.12")


@pytest.mark.parametrize(
    ("capability", "sass", "ptx", "how"),
    [
        ("12.0", ("9.0", "12.0"), (), "sass"),
        ("12.1", ("12.0",), (), "sass"),  # DGX Spark runs what is compiled for 12.0
        ("8.9", ("8.0", "8.6"), (), "sass"),
        ("8.0", ("8.6",), (), None),
        ("12.0", ("9.0", "10.0"), (), None),  # another major version, however new
        ("12.0", ("9.0",), ("9.0",), "ptx"),
        ("7.5", ("8.0",), ("8.0",), None),
        ("9.0", ("9.0a",), (), "sass"),
        ("10.3", ("10.0a",), ("10.0a",), None),  # `a`: that chip only
        ("10.3", ("10.0f",), (), "sass"),  # `f`: its family
        ("12.0", ("10.0f",), ("10.0f",), None),
    ],
)
def test_which_kernels_run_where(capability, sass, ptx, how):
    assert runs(capability, sass, ptx) == how


def test_arch_list():
    assert from_arch_list(["sm_75", "sm_90a", "sm_100", "sm_120", "compute_120", "gfx942"]) == (
        ("7.5", "9.0a", "10.0", "12.0"),
        ("12.0",),
    )


@pytest.mark.parametrize("path", ON_THE_HOST, ids=lambda path: path.relative_to(GPUKIT).as_posix())
def test_the_host_needs_nothing_but_python_3_9(path):
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module.split(".")[0])
    assert names <= {*sys.stdlib_module_names, "gpukit"}
