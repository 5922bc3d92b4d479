"""VS Code's CLI, launch, and Compose: the same container, user, layers, and error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpukit.host.facts import no_gpu

from .conftest import SLUG, Engine, Project, User

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
GPUS = {"unset": None, "two": "0,1"}


def facts(engine: Engine, name: str) -> dict[str, Any]:
    """The properties that must not depend on what started the container."""
    seen = engine.inspect(name)
    host = seen["HostConfig"]
    config = seen["Config"]
    of_image = {line.partition("=")[0] for line in engine.inspect(seen["Image"])["Config"]["Env"] or []}
    return {
        "gpus": [(one["DeviceIDs"], one["Capabilities"], one["Count"]) for one in host["DeviceRequests"] or []],
        "runtime": host["Runtime"],
        "ipc": host["IpcMode"],
        "shm": host["ShmSize"] if host["IpcMode"] != "host" else "the host's",
        "ulimits": sorted((one["Name"], one["Soft"], one["Hard"]) for one in host["Ulimits"] or []),
        "mounts": sorted((one["Type"], one["Source"], one["Destination"], one["RW"]) for one in seen["Mounts"]),
        # a name without a value is a variable that is not set on the host
        "environment": sorted({line.partition("=")[0] for line in config["Env"] if "=" in line} - of_image),
        "nvidia": [line for line in config["Env"] if line.startswith(f"{VISIBLE}=")],
        "user": config["User"],
        "init": host["Init"],
    }


def started(project: Project, **env: str) -> dict[str, dict[str, Any]]:
    """The facts of the containers started by the CLI, `launch run`, and `launch up` (if there is a compose file)."""
    engine = project.engine
    found = {}
    found["the devcontainers CLI"] = facts(engine, project.up("--remove-existing-container", **env))
    project.launched("run", "-d", "--", "sleep", "infinity", **env)
    found["launch run"] = facts(engine, *project.containers("--filter=label=gpukit.role=run"))
    project.stop()
    project.launched("up", **env)
    composed = (project.path / "compose.yaml").is_file()
    service = ["--filter=label=com.docker.compose.service=dev"] if composed else []
    found["compose" if composed else "launch up"] = facts(engine, *project.containers(*service))
    project.stop()
    return found


@pytest.mark.parametrize("gpus", GPUS.values(), ids=GPUS)
def test_the_same_container(granting: Engine, project: Callable[..., Project], gpus: str | None) -> None:
    one = project()
    env = {"HF_TOKEN": "x"} if gpus is None else {"HF_TOKEN": "x", "GPUS": gpus}
    seen = started(one, **env)
    home = one.user.home
    expected = {
        "gpus": [((gpus or "all").split(","), [["gpu"]], 0)],
        "runtime": granting.get("info", "--format={{.DefaultRuntime}}"),
        "ipc": "host",
        "shm": "the host's",
        "ulimits": [("memlock", -1, -1), ("stack", 67108864, 67108864)],
        "mounts": [
            ("bind", str(home / ".aws"), "/home/dev/.aws", False),
            ("bind", str(home / ".aws/sso/cache"), "/home/dev/.aws/sso/cache", True),
            ("bind", str(home / ".cache/wandb"), "/home/dev/.cache/wandb", True),
            ("bind", str(home / "data sets"), "/data", False),
            ("bind", str(one.path), "/workspace", True),
            ("bind", str(one.path / ".launch/huggingface"), "/home/dev/.cache/huggingface", True),
        ],
        "environment": ["DATA_DIR", "HF_TOKEN", "WANDB_DIR"],
        "nvidia": [],
        "user": "dev",
        "init": True,
    }
    for entry_point, found in seen.items():
        assert found == expected, entry_point


@pytest.mark.parametrize(
    ("answers", "env", "different"),
    [
        ({"shared_machine": True}, {"GPUS": "1"}, {"gpus": [(["1"], [["gpu"]], 0)], "ipc": "private", "shm": 16 << 30}),
        ({"hardware": "jetson-orin", "base": "ngc"}, {"GPUS": "0"}, {"runtime": "nvidia", "nvidia": [f"{VISIBLE}=0"]}),
        ({"hardware": "jetson-orin", "base": "ngc"}, {}, {"runtime": "nvidia", "nvidia": [f"{VISIBLE}=all"]}),
        ({"hardware": "cpu"}, {}, {"gpus": [], "ipc": "private"}),
    ],
    ids=["shared", "jetson", "jetson-all", "cpu"],
)
def test_the_same_container_on_other_machines(
    granting: Engine,
    project: Callable[..., Project],
    answers: dict[str, Any],
    env: dict[str, str],
    different: dict[str, Any],
) -> None:
    """Machines with other requests; their images do not matter here."""
    one = project(name=f"same-{answers.get('hardware', 'shared')}", slight=True, tracking=["tensorboard"], **answers)
    seen = started(one, **env)
    first = seen.pop("the devcontainers CLI")
    assert {key: first[key] for key in different} == different
    for entry_point, found in seen.items():
        assert found == first, entry_point


ENTRANCES = {
    "the devcontainers CLI": ("devcontainer", "up", "--workspace-folder=."),
    "launch": ("./launch", "run", "--", "true"),
    "compose": ("./launch", "up"),
}


@pytest.mark.parametrize("entry_point", ENTRANCES)
def test_an_engine_that_refuses(refusing: Engine, project: Callable[..., Project], entry_point: str) -> None:
    """One sentence with the remedy, before anything is built."""
    one = project(name="refused", slight=True, on=refusing, tracking=["tensorboard"])
    done = one.run(*ENTRANCES[entry_point])
    assert done.returncode != 0
    sentences = re.findall(r"(?m)^(?:\[\S+Z\] )?(launch: .*)$", done.stderr)  # the CLI prepends the time
    assert len(sentences) == 1, done.stderr
    assert "./launch --cpu" in sentences[0]
    assert ("./launch setup" in sentences[0]) == (not no_gpu())
    assert "Traceback" not in done.stderr + done.stdout
    assert one.containers("--all") == []
    assert not one.engine.has(one.image)
    assert SLUG not in one.engine.get("images", "--format={{.Repository}}", f"--filter=reference={SLUG}-*-dev")


def test_a_shared_machine_requires_selected_gpus(granting: Engine, project: Callable[..., Project]) -> None:
    one = project(name="same-shared", slight=True, tracking=["tensorboard"], shared_machine=True)
    for entry_point, command in {**ENTRANCES, "compose itself": ("docker", "compose", "config")}.items():
        done = one.run(*command)
        assert done.returncode != 0, entry_point
        none_here = command[0] == "./launch" and no_gpu()  # which launch finds first
        assert ("--cpu" if none_here else "GPUS=0") in done.stderr, entry_point
    assert one.containers("--all") == []


# Users


PROBES = 'for place in . ~/.cache ~/.cache/huggingface; do touch "$place/by-$0" || exit 1; done; id -u'


@pytest.fixture(params=[1001, 4242424])
def theirs(
    request: pytest.FixtureRequest, project: Callable[..., Project], users: Callable[..., User]
) -> Iterator[Project]:
    """A project of a user whose uid differs from the image's."""
    found = project(user=users(request.param))
    yield found
    found.stop()


def test_the_user_owns_created_files(theirs: Project) -> None:
    """At every entry point, the user owns the created files and can write to the caches."""
    ways = {
        "cli": lambda *command: (theirs.up(), theirs.inside(*command))[1],
        "run": lambda *command: theirs.launch("run", "--", *command),
        "up": lambda *command: (
            theirs.stop(),
            theirs.launched("up"),
            theirs.launch("shell", "--", *command),
        )[2],
        "compose": lambda *command: compose(theirs, *command),
    }
    uid = theirs.user.uid
    for name, way in ways.items():
        done = way("sh", "-c", PROBES, name)
        assert done.returncode == 0, f"{name}: {done.stdout} {done.stderr}"
        assert done.stdout.split()[-1] == str(uid), name
        made = [theirs.path / f"by-{name}", theirs.user.home / f".cache/huggingface/by-{name}"]
        assert [path.stat().st_uid for path in made] == [uid, uid], name
    assert {path.lstat().st_uid for path in theirs.user.home.rglob("*")} == {uid}


def compose(project: Project, *command: str) -> Any:
    """Use Compose directly, as described in compose.yaml."""
    project.stop()
    for step in (["sh", ".devcontainer/initialize.sh"], ["docker", "compose", "up", "--detach", "--build"]):
        done = project.run(*step)
        assert done.returncode == 0, done.stderr[-3000:]
    return project.run("docker", "compose", "exec", "--no-TTY", "dev", *command)


def test_an_edit_in_src_rebuilds_no_layer(project: Callable[..., Project]) -> None:
    one = project()

    def images() -> list[str]:
        container = one.up("--remove-existing-container")
        one.launched("build")
        return [one.engine.inspect(container)["Image"], one.engine.inspect(one.image)["Id"]]

    before = images()
    source = one.path / "src/engine_tests/model.py"
    one.write("src/engine_tests/model.py", source.read_text() + "\n\nEDITED = True\n")
    one.write("src/engine_tests/another.py", "")
    one.write("README.md", "Edited.\n")
    assert images() == before
    edited = one.inside("python", "-c", "from engine_tests import another, model; print(model.EDITED)")
    assert edited.stdout == "True\n", edited.stderr
    one.stop()


def test_root_gets_a_notice_and_roots_container(project: Callable[..., Project], users: Callable[..., User]) -> None:
    one = project(name="of-root", user=users(0), slight=True)
    done = one.launch("run", "--", "sh", "-c", "id -u; touch by-root $HOME/.cache/huggingface/by-root")
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    assert [line for line in done.stderr.splitlines() if "You are root" in line] == [
        "You are root, so the container runs as root too; use a regular user in the group docker if you can."
    ]
    done = one.cli("up")
    assert done.returncode != 0
    assert "You are root, and the user in VS Code's container could not write here" in done.stderr
    assert one.containers("--all") == []
