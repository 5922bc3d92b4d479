"""devcontainer.json as launch reads it, against what the dev container tools do with the same words."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from gpukit.project import devcontainer
from gpukit.project.devcontainer import ConfigError, gpu_arguments, mount_argument, wrong


def load(folder: Path, env: dict[str, str] | None = None, text: str = "", **changes: object) -> devcontainer.Config:
    raw = {"build": {"dockerfile": "../Dockerfile", "context": ".."}, "workspaceFolder": "/workspace", **changes}
    path = folder / ".devcontainer/devcontainer.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text or json.dumps(raw), encoding="utf-8")
    return devcontainer.load(path, env or {})


def test_comments_and_trailing_commas_are_read_and_strings_are_left_alone() -> None:
    text = '{"a": "http://x/*y*/,]", // one\n "b": [1, 2, /* two\n lines */ ],\n "c": "\\"//", }'
    assert devcontainer.parse(text) == {"a": "http://x/*y*/,]", "b": [1, 2], "c": '"//'}


def test_a_broken_file_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"devcontainer.json is not valid .* line 3 "):
        load(tmp_path, text='{ // comment\n/* and\n */ "a" 1 }')


@pytest.mark.parametrize("text", ["[]", "3", '{"image": "x"}', '{"build": {"context": "."}}'])
def test_a_file_that_builds_nothing_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        load(tmp_path, text=text)


@pytest.mark.parametrize(
    ("env", "expected"), [({}, "all"), ({"GPUS": "0,1"}, "0,1"), ({"GPUS": ""}, ""), ({"GPUS": "GPU-1:2"}, "GPU-1:2")]
)
def test_a_default_is_for_a_variable_that_is_not_set(tmp_path: Path, env: dict[str, str], expected: str) -> None:
    config = load(tmp_path, env, runArgs=['--gpus="device=${localEnv:GPUS:all}"', "--ipc=host"])
    assert gpu_arguments(config) == [f'--gpus="device={expected}"']


def test_variables_of_the_workspace(tmp_path: Path) -> None:
    config = load(
        tmp_path / "my project",
        name="${localWorkspaceFolderBasename}",
        containerEnv={"A": "${containerWorkspaceFolder}/x", "B": "${unknown} ${localEnv:NOT_THERE}", "N": 3},
    )
    assert config.name == "my project"
    assert config.root == tmp_path / "my project"
    assert config.container_env == {"A": "/workspace/x", "B": "${unknown} ", "N": "3"}
    assert config.dockerfile == tmp_path / "my project/Dockerfile"
    assert config.context == tmp_path / "my project"


def test_the_cpu_configuration_has_the_same_root(tmp_path: Path) -> None:
    path = tmp_path / ".devcontainer/cpu/devcontainer.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"build": {"dockerfile": "../../Dockerfile", "context": "../.."}}', encoding="utf-8")
    config = devcontainer.load(path, {})
    assert (config.root, config.context) == (tmp_path, tmp_path)
    assert config.workspace_folder == f"/workspaces/{tmp_path.name}"
    assert mount_argument(config.workspace_mount) == f"type=bind,source={tmp_path},target=/workspaces/{tmp_path.name}"


@pytest.mark.parametrize("folder", ["plain", "with space", "a, comma", 'quo"te', 'both, "of" them'])
def test_a_mount_survives_any_path(tmp_path: Path, folder: str) -> None:
    config = load(tmp_path / folder, mounts=["type=bind,source=${localWorkspaceFolder}/x,target=/x,readonly"])
    argument = mount_argument(config.mounts[0])
    assert next(csv.reader([argument])) == ["type=bind", f"source={tmp_path / folder}/x", "target=/x", "readonly"]


def test_mounts_in_both_forms_and_all_spellings(tmp_path: Path) -> None:
    mounts = [
        "src=cache,dst=/c,type=volume",
        "type=bind,source=/a,target=/b,ro=true,bind-propagation=rslave",
        {"type": "bind", "source": "/s", "target": "/t"},
        "type=tmpfs,destination=/tmp",
    ]
    assert [mount_argument(mount) for mount in load(tmp_path, mounts=mounts).mounts] == [
        "type=volume,source=cache,target=/c",
        "type=bind,source=/a,target=/b,readonly,bind-propagation=rslave",
        "type=bind,source=/s,target=/t",
        "type=tmpfs,target=/tmp",
    ]


def test_what_is_handed_on_by_name_and_what_only_vs_code_knows(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        {"TOKEN": "s"},
        remoteEnv={"TOKEN": "${localEnv:TOKEN}", "P": "${containerEnv:PATH}:/x", "Q": "1", "GONE": None},
        features={"a": {}},
        postCreateCommand="true",
        hostRequirements={},
        customizations={"vscode": {}},
        containerUser="dev",
        capAdd=["SYS_PTRACE"],
    )
    assert config.by_name == {"TOKEN"}
    assert config.remote_env == {"TOKEN": "s", "Q": "1"}
    assert config.ignored == ("features", "postCreateCommand")
    assert config.remote_user == "dev"
    assert config.run_args == ["--cap-add=SYS_PTRACE"]
    with pytest.raises(ConfigError, match=r"names\.env cannot be read"):
        wrong(load(tmp_path, runArgs=["--env-file=${localWorkspaceFolder}/names.env"]))
    (tmp_path / "names.env").write_text("# mine\n\nURI=http://a=b\nURI\n")
    for written in (["--env-file=names.env"], ["--env-file", "${localWorkspaceFolder}/names.env"]):
        assert load(tmp_path, runArgs=written).env_files == [("URI", "http://a=b"), ("URI", None)]


def test_the_gpu_request_in_all_its_forms(tmp_path: Path) -> None:
    split = load(tmp_path, runArgs=["--gpus", "all", "--device", "nvidia.com/gpu=0", "--device-cgroup-rule=a"])
    assert gpu_arguments(split) == ["--gpus", "all", "--device", "nvidia.com/gpu=0"]
    jetson = load(tmp_path, runArgs=["--runtime=nvidia"], containerEnv={"NVIDIA_VISIBLE_DEVICES": "all", "A": "b"})
    assert gpu_arguments(jetson) == ["--runtime=nvidia", "--env=NVIDIA_VISIBLE_DEVICES=all"]
    assert gpu_arguments(load(tmp_path, runArgs=["--ipc=host"], containerEnv={"NVIDIA_X": "1"})) == []
