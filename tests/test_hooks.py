"""The hooks: how run.py gets its packages, the wheel, and what smoke asks an engine."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from copier import run_copy, run_recopy, run_update
from copier.errors import TaskError

from tests.conftest import ENGINE, GPU_ENGINE, ROOT, cannot, change, conflict, git, quick, until

HOOKS = ROOT / "hooks"
sys.path.insert(0, str(HOOKS))

import probe  # noqa: E402
import run as hook  # noqa: E402
import smoke  # noqa: E402

from gpukit.host import facts  # noqa: E402
from gpukit.project import devcontainer  # noqa: E402
from gpukit.validate.problem import MAIN  # noqa: E402
from gpukit.wheel import vendor, writer  # noqa: E402

FULL = {
    "hardware": "rtx-50",
    "tracking": ["wandb", "mlflow"],
    "credentials": ["aws"],
    "data_dir": "/srv/data",
    "workflow": "notebook",
}


@pytest.fixture
def project(generate: Callable[..., Path], tmp_path: Path) -> Path:
    """A project with all files that validate compares."""
    return shutil.copytree(generate(**FULL), tmp_path / "full", symlinks=True)


@pytest.fixture
def plain(generate: Callable[..., Path], tmp_path: Path) -> Path:
    """A project without a second service."""
    return shutil.copytree(generate(), tmp_path / "plain", symlinks=True)


def edit(path: Path, **keys: object) -> dict:
    """Set keys of a JSON file; None removes a key."""
    content = json.loads(path.read_text(encoding="utf-8"))
    content.update(keys)
    content = {key: value for key, value in content.items() if value is not None}
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
    return content


# run.py


def start(
    project: Path, *, python: str = sys.executable, options: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run run.py as Copier does; smoke is off by default."""
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith(("GPU_TEMPLATE", "UV", "COPIER"))
    }
    environment = {**inherited, "COPIER_OPERATION": "copy", "GPU_TEMPLATE_SMOKE": "off", **environment}
    command = [python, *options, str(HOOKS / "run.py")]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=120)


def bare() -> tuple[str, ...]:
    """An interpreter without the packages, as Python options."""
    return ("-S", "-E")


def fake_uv(folder: Path, script: str) -> Path:
    folder.mkdir()
    uv = folder / "uv"
    uv.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{folder}/arguments"\n{script}\n', encoding="utf-8")
    uv.chmod(0o755)
    return uv


def break_it(project: Path) -> None:
    change(project / MAIN, '"--ipc=host"', '"--ipc=private"')


def contents(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_run_prints_one_line_and_adds_only_the_wheel(plain: Path) -> None:
    before = contents(plain)
    done = start(plain)
    assert done.returncode == 0
    assert done.stdout.startswith("validate: ") and done.stdout.count("\n") == 1
    assert done.stderr == ""
    assert contents(plain) == sorted([*before, "vendor", f"vendor/{WHEEL}"])


# run.py: the wheel

NEW = writer.for_project(ROOT / "gpukit")
WHEEL = writer.file_name(NEW)
OLD = "gpukit-0.0.1-py3-none-any.whl"


def wheels(project: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (project / "vendor").glob("*")}


@pytest.fixture
def older(plain: Path) -> Path:
    """A project with the wheel of an older template."""
    (plain / "vendor").mkdir()
    with zipfile.ZipFile(plain / "vendor" / OLD, "w") as archive:
        archive.writestr("gpukit/__init__.py", "")
    return plain


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The wheel as written by an uninterrupted run."""
    return vendor.put(NEW, tmp_path_factory.mktemp("whole")).read_bytes()


def test_the_wheel_replaces_older_ones_once(older: Path, whole: bytes) -> None:
    (older / "vendor/mine.whl").write_bytes(b"another package")
    assert start(older).returncode == 0
    assert wheels(older) == {WHEEL: whole, "mine.whl": b"another package"}
    written = (older / "vendor" / WHEEL).stat()
    assert start(older).returncode == 0
    assert (older / "vendor" / WHEEL).stat().st_ino == written.st_ino, "it is not written again"


def test_the_wheel_is_written_before_anything_is_validated(plain: Path, whole: bytes) -> None:
    break_it(plain)
    assert start(plain).returncode == 1
    assert wheels(plain) == {WHEEL: whole}


def test_the_process_started_by_uv_does_not_write_the_wheel(plain: Path) -> None:
    environment = {**os.environ, "GPU_TEMPLATE_SMOKE": "off"}
    done = subprocess.run(
        [sys.executable, HOOKS / "run.py", "--child"], cwd=plain, env=environment, capture_output=True
    )
    assert done.returncode == 0 and done.stdout.startswith(b"validate: ")
    assert not (plain / "vendor").exists()


def test_a_damaged_wheel_is_written_again(plain: Path, whole: bytes) -> None:
    (plain / "vendor").mkdir()
    (plain / "vendor" / WHEEL).write_bytes(whole[:5000])
    assert start(plain).returncode == 0
    assert wheels(plain) == {WHEEL: whole}


def test_a_wheel_that_cannot_be_written_leaves_the_project(plain: Path) -> None:
    (plain / "vendor").write_text("in the way\n")
    done = start(plain)
    assert done.returncode == 0
    assert done.stderr.startswith("wheel: not written: ") and done.stderr.count("\n") == 1
    assert done.stdout.startswith("validate: "), "the rest is still checked"
    assert start(plain, GPU_TEMPLATE_STRICT="1").returncode == 1


# Each function that changes vendor/, and the number of the call that is interrupted.
STEPS = {
    "folder": ("pathlib.Path.mkdir", 1),
    "draft": ("tempfile.mkstemp", 1),
    "first member": ("zipfile.ZipFile.writestr", 1),
    "later member": ("zipfile.ZipFile.writestr", 70),
    "directory of the archive": ("zipfile.ZipFile._write_end_record", 1),
    "mode": ("os.chmod", 1),
    "rename": ("os.replace", 1),
    "older wheel": ("pathlib.Path.unlink", 1),
}
HOWS = {
    "fails": "raise OSError(28, 'No space left on device')",
    "interrupted": "raise KeyboardInterrupt",
    "killed": "os.kill(os.getpid(), 9)",
}


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("step", STEPS)
def test_an_interrupted_write_leaves_the_old_or_the_new_wheel(older: Path, whole: bytes, step: str, how: str) -> None:
    target, call = STEPS[step]
    owner, _, name = target.rpartition(".")
    old = wheels(older)[OLD]
    code = f"""
import os, pathlib, sys, tempfile, zipfile
sys.path.insert(0, {str(HOOKS)!r})
import run
original, calls = {target}, 0
def disturbed(*arguments, **options):
    global calls
    calls += 1
    if calls == {call}:
        {HOWS[how]}
    return original(*arguments, **options)
{owner}.{name} = disturbed
run.start = lambda project: run.PASSED
sys.argv = ["run.py"]
sys.exit(run.main())
"""
    environment = {**os.environ, "COPIER_OPERATION": "copy"}
    done = subprocess.run([sys.executable, "-c", code], cwd=older, env=environment, capture_output=True, text=True)
    left = wheels(older)
    renamed = step == "older wheel"
    drafts = {name for name in left if name.startswith(".gpukit-")}
    if how == "killed":
        assert done.returncode == -signal.SIGKILL
    else:
        assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr
        assert not drafts
    assert {name: text for name, text in left.items() if name not in drafts} == {
        OLD: old,
        **({WHEEL: whole} if renamed else {}),
    }
    assert hook.put_wheel(older) == hook.PASSED, "the next run puts it right"
    assert {name: text for name, text in wheels(older).items() if name not in drafts} == {WHEEL: whole}


@pytest.mark.slow
def test_the_final_message_is_printed_if_copier_is_quiet(releases: Path, tmp_path: Path, messages: object) -> None:
    for quiet in (["--quiet"], []):
        project = tmp_path / f"p{len(quiet)}"
        command = [sys.executable, "-m", "copier", "copy", "--trust", "--defaults", *quiet, "--vcs-ref", "v1.0.0"]
        done = subprocess.run([*command, releases, project], capture_output=True, text=True, check=True)
        assert done.stderr.count("./launch try") == 1 and f"cd {project}" in done.stderr
        assert ("create" in done.stderr) == (not quiet)


@pytest.mark.parametrize("operation", ["copy", "update"])
def test_run_fails_only_for_problems(plain: Path, operation: str) -> None:
    break_it(plain)
    done = start(plain, COPIER_OPERATION=operation)
    assert done.returncode == 1
    assert done.stderr.startswith(f'validate: {MAIN}: /runArgs: --ipc is "private"')
    assert done.stderr.endswith("validate: 1 problem; nothing was changed.\n")


def test_uv_installs_missing_packages(plain: Path, tmp_path: Path) -> None:
    uv = fake_uv(
        tmp_path / "bin",
        f'for last; do before="$script"; script="$last"; done; exec {sys.executable} "$before" "$script"',
    )
    done = start(plain, options=bare(), UV=str(uv))
    assert done.returncode == 0 and done.stdout.startswith("validate: "), done.stderr
    arguments = (tmp_path / "bin/arguments").read_text(encoding="utf-8").split("\n")
    assert arguments[:4] == ["run", "-qq", "--isolated", "--no-project"] and "jsonschema>=4.23,<5" in arguments
    break_it(plain)
    done = start(plain, options=bare(), PATH=str(uv.parent))  # found on PATH and by UV
    assert done.returncode == 1 and "--ipc" in done.stderr


def test_without_the_packages_the_rest_is_checked(plain: Path, tmp_path: Path) -> None:
    uv = fake_uv(tmp_path / "bin", "exit 2")
    done = start(plain, options=bare(), UV=str(uv))
    assert done.returncode == 0
    assert done.stderr == "hooks: uv could not provide jsonschema and yaml (offline?).\n"
    assert "not checked: the schemas (no jsonschema here)" in done.stdout
    assert start(plain, options=bare(), UV=str(uv), GPU_TEMPLATE_STRICT="1").returncode == 1
    break_it(plain)
    assert start(plain, options=bare(), UV=str(uv)).returncode == 1


@pytest.mark.slow
def test_a_slow_uv_is_announced(plain: Path, tmp_path: Path) -> None:
    uv = fake_uv(tmp_path / "bin", "sleep 6; exit 2")
    assert "hooks: fetching jsonschema and yaml with uv ...\n" in start(plain, options=bare(), UV=str(uv)).stderr


def test_with_neither_packages_nor_uv(project: Path, tmp_path: Path) -> None:
    done = start(project, options=bare(), PATH=str(tmp_path))
    assert done.returncode == 0
    assert done.stderr.startswith("hooks: uv is not installed, so jsonschema and yaml cannot be fetched.")
    assert done.stderr.count("\n") == 1
    assert "the schemas (no jsonschema here) and the YAML files (no yaml here)" in done.stdout
    done = start(project, options=bare(), PATH=str(tmp_path), GPU_TEMPLATE_STRICT="1")
    assert done.returncode == 1


def test_smoke_without_its_package(plain: Path, tmp_path: Path) -> None:
    image = json.loads((plain / "stack.json").read_text(encoding="utf-8"))["image"]
    engine_at(tmp_path / "s", {"/_ping": "200 OK", f"/images/{image}/json": "200 OK", "/1": "", "/2": ""})
    done = start(
        plain, options=bare(), PATH=str(tmp_path), GPU_TEMPLATE_SMOKE="auto", DOCKER_HOST=f"unix://{tmp_path}/s"
    )
    assert done.returncode == 0
    assert done.stderr.startswith("hooks: uv is not installed, so jsonschema and yaml and docker cannot be fetched.")
    assert done.stderr.endswith("smoke: not run: it needs the docker package.\n")


def test_a_crash_of_a_hook_does_not_fail_the_project(plain: Path, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(HOOKS)!r}); import run; from gpukit.validate import main as runner;"
        "runner.Validation.problems = lambda self: 1 / 0; sys.argv = ['run.py']; sys.exit(run.main())"
    )
    environment = {**os.environ, "GPU_TEMPLATE_SMOKE": "off", "COPIER_OPERATION": "copy"}
    for extra, expected in ({}, 0), ({"GPU_TEMPLATE_STRICT": "1", "GPU_TEMPLATE_DEBUG": "1"}, 1):
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=plain, env={**environment, **extra}, capture_output=True, text=True)
        assert done.returncode == expected
        assert "hooks: could not run: ZeroDivisionError: " in done.stderr
        assert ("Traceback" in done.stderr) == bool(extra)


def test_a_merge_conflict_is_announced_and_the_wheel_is_written(
    plain: Path, tmp_path: Path, whole: bytes, default_gitconfig: object
) -> None:
    before = (plain / MAIN).read_text(encoding="utf-8")
    conflict(plain, MAIN, before.replace('"init": true', '"init": false'), before.replace('"init": true', '"init": 1'))
    expected = f"validate: not run: merge conflicts in {MAIN}. Resolve them, then run ./launch validate.\n"
    for path in (os.environ["PATH"], str(tmp_path)):  # the second has no git: the markers in the file show the conflict
        done = start(plain, COPIER_OPERATION="update", PATH=path)
        assert (done.returncode, done.stderr) == (0, expected)
        assert wheels(plain) == {WHEEL: whole}
    assert start(plain, COPIER_OPERATION="update", GPU_TEMPLATE_STRICT="1").returncode == 1


def test_rejected_pieces_are_a_conflict_too(plain: Path) -> None:
    (plain / ".devcontainer/devcontainer.json.rej").touch()
    assert f"merge conflicts in {MAIN}.rej." in start(plain, COPIER_OPERATION="update").stderr


# As Copier runs them.


@pytest.fixture(scope="module")
def releases(copier_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three releases of the template: current, with another devcontainer.json, and with a defect."""
    repository = tmp_path_factory.mktemp("releases") / "template"
    git("clone", "-q", str(copier_template), str(repository), cwd=copier_template)
    git("tag", "-d", *git("tag", cwd=repository).split(), cwd=repository)
    git("tag", "v1.0.0", cwd=repository)
    fragment = repository / "fragments/container.jinja"
    change(fragment, "'init': true,", "'init': true,\n  'shutdownAction': 'none',")
    git("commit", "-qam", "another devcontainer.json", cwd=repository)
    git("tag", "v1.1.0", cwd=repository)
    change(fragment, "'init': true,", "'init': false,")
    git("commit", "-qam", "a defect", cwd=repository)
    git("tag", "v1.2.0", cwd=repository)
    return repository


def copy(releases: Path, project: Path, version: str = "v1.0.0", **options: object) -> None:
    with quick():
        run_copy(str(releases), project, vcs_ref=version, defaults=True, quiet=True, unsafe=True, **options)


@pytest.fixture
def copied(releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path / "copied"
    copy(releases, project, skip_tasks=True)
    vendor.put(writer.for_project(releases / "gpukit"), project)
    git("init", "-q", cwd=project)
    git("add", "-A", cwd=project)
    git("commit", "-qm", "generated", cwd=project)
    return project


@pytest.fixture
def messages(capfd: pytest.CaptureFixture[str], copier: object) -> Iterator[Callable[[], list[str]]]:
    """What the hooks have printed since the last call. They run as processes with the environment set by `copier`."""
    copier.setenv("GPU_TEMPLATE_SMOKE", "off")

    def lines() -> list[str]:
        out, err = capfd.readouterr()
        return [line for line in (out + err).splitlines() if line.startswith(("validate:", "smoke:", "hooks:"))]

    with quick():
        yield lines


def test_copy_runs_them_once(releases: Path, tmp_path: Path, messages: Callable[[], list[str]]) -> None:
    copy(releases, tmp_path / "p")
    assert [line.partition(" ")[0] for line in messages()] == ["validate:"]


@pytest.mark.slow
def test_no_hook_runs_without_tasks_or_changes(
    releases: Path, tmp_path: Path, messages: Callable[[], list[str]]
) -> None:
    copy(releases, tmp_path / "p", skip_tasks=True)
    copy(releases, tmp_path / "q", pretend=True)
    assert messages() == []
    assert (tmp_path / "p").exists() and not (tmp_path / "q").exists()


@pytest.mark.slow
def test_recopy_and_update_run_them_once(copied: Path, messages: Callable[[], list[str]]) -> None:
    run_recopy(copied, defaults=True, overwrite=True, quiet=True, unsafe=True, vcs_ref="v1.0.0")
    assert len(messages()) == 1
    run_update(copied, defaults=True, overwrite=True, quiet=True, unsafe=True, vcs_ref="v1.1.0")
    assert len(messages()) == 1
    git("add", "-A", cwd=copied)
    git("commit", "-qm", "updated", cwd=copied)
    run_update(copied, defaults=True, overwrite=True, quiet=True, unsafe=True, vcs_ref="v1.1.0", skip_tasks=True)
    assert messages() == []


def test_a_defective_template_is_not_copied(releases: Path, tmp_path: Path, messages: Callable[[], list[str]]) -> None:
    with pytest.raises(TaskError):
        copy(releases, tmp_path / "p", version="v1.2.0")
    assert any("/init: must be true" in line for line in messages())
    assert not (tmp_path / "p").exists()


@pytest.mark.slow
def test_an_update_to_a_defective_template_keeps_the_merge(copied: Path, messages: Callable[[], list[str]]) -> None:
    change(copied / MAIN, '"customizations"', '// for us all\n  "customizations"')
    git("commit", "-qam", "mine", cwd=copied)
    with pytest.raises(TaskError):
        run_update(copied, defaults=True, overwrite=True, quiet=True, unsafe=True, vcs_ref="v1.2.0")
    assert any("/init: must be true" in line for line in messages())
    text = (copied / MAIN).read_text(encoding="utf-8")
    assert "// for us all" in text and '"shutdownAction": "none"' in text
    assert "_commit: v1.2.0" in (copied / ".copier-answers.yml").read_text(encoding="utf-8")


@pytest.mark.slow
def test_an_update_validates_the_merged_tree(copied: Path, messages: Callable[[], list[str]]) -> None:
    """While Copier renders, the user's edit is not in the files; validated is the merged result."""
    break_it(copied)
    git("commit", "-qam", "mine", cwd=copied)
    with pytest.raises(TaskError):
        run_update(copied, defaults=True, overwrite=True, quiet=True, unsafe=True, vcs_ref="v1.1.0")
    assert any('--ipc is "private"' in line for line in messages())


# smoke


def plan_of(project: Path, monkeypatch: pytest.MonkeyPatch, **environment: str) -> smoke.Plan:
    for key in ("BASE_IMAGE", "DOCKER_CONTEXT", "DOCKER_HOST", "GPU_TEMPLATE_SMOKE"):
        monkeypatch.delenv(key, raising=False)
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    return smoke.plan(project)


def test_smoke_skips(plain: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert plan_of(plain, monkeypatch, GPU_TEMPLATE_SMOKE="off") == smoke.Plan("off")
    cases = {
        "GPU_TEMPLATE_SMOKE is 'on'; it must be auto, build, or off": {"GPU_TEMPLATE_SMOKE": "on"},
        "the Docker engine is at ssh://me@rack, which does not have this project's folder": {
            "DOCKER_HOST": "ssh://me@rack"
        },
        f"no Docker engine responds at unix://{tmp_path}/none": {"DOCKER_HOST": f"unix://{tmp_path}/none"},
    }
    for reason, environment in cases.items():
        planned = plan_of(plain, monkeypatch, **environment)
        assert planned.reason == reason and not planned.container


def test_smoke_explains_missing_permissions(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: str) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(smoke, "request_status", refuse)
    assert "sudo usermod -aG docker $USER" in plan_of(plain, monkeypatch).reason


def engine_at(path: Path, answers: dict[str, str]) -> None:
    """A fake engine; `answers` maps the path of a request to the response."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        with listener:
            for _ in range(len(answers)):
                connection, _ = listener.accept()
                with connection:
                    asked = connection.recv(4096).decode().split()[1]
                    connection.sendall(f"HTTP/1.1 {answers.get(asked, '500 unexpected')}\r\n\r\n".encode())

    threading.Thread(target=serve, daemon=True).start()


def test_smoke_pulls_nothing(plain: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    image = "nvcr.io/nvidia/pytorch:25.11-py3"
    engine_at(tmp_path / "s", {"/_ping": "200 OK", f"/images/{image}/json": "404 Not Found"})
    planned = plan_of(plain, monkeypatch, DOCKER_HOST=f"unix://{tmp_path}/s", BASE_IMAGE=image)
    assert planned.reason == f"{image} is not on this machine yet; ./launch build fetches it"


def test_smoke_asks_the_engine_of_the_docker_context(
    plain: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host = f"unix://{tmp_path}/desktop.sock"
    meta = tmp_path / "contexts/meta" / hashlib.sha256(b"desktop").hexdigest()
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text(json.dumps({"Endpoints": {"docker": {"Host": host}}}), encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"currentContext": "desktop"}), encoding="utf-8")
    planned = plan_of(plain, monkeypatch, DOCKER_CONFIG=str(tmp_path))
    assert planned.reason == f"no Docker engine responds at {host}"
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    assert smoke.endpoint() == "unix:///var/run/docker.sock"


def test_smoke_passes_the_flags_as_they_stand(project: Path, tmp_path: Path) -> None:
    raw = json.loads((project / MAIN).read_text(encoding="utf-8"))
    raw["runArgs"] += ["--device=/dev/fuse", "--cap-add", "SYS_PTRACE", "--oom-score-adj=5", "--publish=80:80"]
    raw["runArgs"] += ["-v", "/etc:/etc/here:ro", "-d", "--pull=always", "--entrypoint", "tini", "--restart=always"]
    raw["mounts"] += ["type=volume,source=cache,target=/cache", "type=bind,source=/etc,target=/workspace/none"]
    edit(project / MAIN, **raw)
    config = devcontainer.load(project / MAIN, {"HOME": str(tmp_path), "GPUS": "0,1", "HF_TOKEN": "secret"})
    given = smoke.docker_flags(config, [], tmp_path)
    left_out = ("--detach", "--entrypoint", "--env-file", "--network", "--publish", "--pull", "--restart", "--volume")
    assert not [flag for flag in given if flag.startswith((*left_out, "--user"))] and "secret" not in repr(given)
    kept = {'--gpus="device=0,1"', "--ipc=host", "--ulimit=memlock=-1", "--device=/dev/fuse", "--cap-add=SYS_PTRACE"}
    assert {*kept, "--oom-score-adj=5", "--init"} <= {*given} and smoke.requests_gpu(given)
    mounts = {mount["Target"]: mount for mount in smoke.asked_for(given)["mounts"]}
    assert mounts["/workspace"]["Source"] == str(project) and not mounts["/workspace"]["ReadOnly"]
    assert mounts["/data"]["ReadOnly"] and Path(mounts["/data"]["Source"]).is_dir()
    assert mounts["/etc/here"]["ReadOnly"] and "/workspace/none" not in mounts
    assert "--mount=type=volume,target=/cache" in given
    unset = devcontainer.load(project / MAIN, {"HOME": str(tmp_path)})
    unset.run_args[:] = ['--gpus="device="']
    (tmp_path / "other").mkdir()
    assert not smoke.requests_gpu(smoke.docker_flags(unset, [], tmp_path / "other"))


def test_a_busy_engine_is_asked_again_to_remove(monkeypatch: pytest.MonkeyPatch) -> None:
    """If its creator was killed, the engine may not know the container yet. One that hangs is not waited for."""
    cases = [(True, [500, OSError, 204, 204], 3), (True, [404, 404], 1), (False, [404, 204], 2)]
    for finished, answers, asked in [*cases, (True, [TimeoutError, 204], 1)]:
        left = list(answers)

        def answer(*given: str, left: list = left) -> int:
            status = left.pop(0)
            if isinstance(status, type):
                raise status
            return status

        monkeypatch.setattr(smoke, "request_status", answer)
        monkeypatch.setattr(smoke.time, "sleep", lambda seconds: None)
        smoke.remove("unix:///none", "smoke-1", finished)
        assert len(answers) - len(left) == asked, answers


@pytest.mark.slow
def test_build_uses_launch(plain: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The messages and the result of smoke for each result of the project's launch."""
    log = tmp_path / "log"
    launch = plain / "launch"
    launch.write_text(
        f'#!/bin/sh\necho "$@" >> {log}\nfor last; do :; done\neval "exit \\${{CODE_$last:-0}}"\n',
        encoding="utf-8",
    )
    launch.chmod(0o755)
    cases = [
        ({}, ["preflight", "build", "verify"], "smoke: the image is built, and verify passed in it."),
        (
            {"CODE_preflight": "1"},
            ["preflight", "--cpu build", "--cpu verify"],
            "smoke: the image is built, and verify --cpu passed in it.",
        ),
        (
            {"CODE_build": "1"},
            ["preflight", "build"],
            "smoke: the image was not built; the reason is above.",
        ),
        (
            {"CODE_verify": "1"},
            ["preflight", "build", "verify"],
            "smoke: verify found something wrong in the image.",
        ),
        ({"CODE_verify": "2"}, ["preflight", "build", "verify"], "smoke: verify could not check everything."),
    ]
    for number, (codes, asked, message) in enumerate(cases):
        for operation in ("update", "copy"):
            log.unlink(missing_ok=True)
            listening = tmp_path / f"{number}{operation}"
            engine_at(listening, {"/_ping": "200 OK", "/again": ""})
            environment = {"GPU_TEMPLATE_SMOKE": "build", "DOCKER_HOST": f"unix://{listening}", **codes}
            done = start(plain, COPIER_OPERATION=operation, **environment)
            assert log.read_text(encoding="utf-8").splitlines() == asked
            assert message in done.stdout + done.stderr
            assert done.returncode == 0


def says(line: str, sentence: str) -> bool:
    """Whether a line has the fixed parts of a sentence."""
    return all(part in line for part in re.split(r"\{\w+\}", sentence.replace("{{", "{").replace("}}", "}")))


LIMITS = "limit Max stack size   67108864  67108864  bytes\nlimit Max locked memory  8388608  8388608  bytes"
GOOD = f"started\n{LIMITS}\nshm rw,relatime,size=24683656k\nmount yes yes /workspace\n"
MACHINE = probe.Machine("base", "1000:1000", "amd64", "amd64")
ASKED = {
    "ipc_mode": "host",
    "ulimits": [{"Name": "memlock", "Soft": -1}, {"Name": "stack", "Soft": 67108864}],
    "mounts": [{"Source": "/", "Target": "/workspace", "ReadOnly": False}],
}


@pytest.mark.parametrize(
    ("output", "status", "sentence"),
    [  # of Docker 26.1.5 with runc 1.1.15, with docker-init and without
        ("[FATAL tini (8)] exec /bin/sh failed: No such file or directory\n", 127, probe.NO_SHELL),
        (
            "failed to create task for container: OCI runtime create failed: runc create failed: unable to start "
            'container process: exec: "/bin/sh": stat /bin/sh: no such file or directory: unknown',
            400,
            probe.NO_SHELL,
        ),
        ("[FATAL tini (6)] exec /bin/sh failed: Exec format error\n", 1, probe.OTHER_PROGRAMS),
        ("exec /bin/sh: exec format error\n", 1, probe.OTHER_PROGRAMS),
        ("[FATAL tini (7)] exec /bin/sh failed: Permission denied\n", 126, probe.NOT_EXECUTABLE),
        ("/bin/sh: error while loading shared libraries: libc.so.6: cannot open shared object", 127, probe.ENDS),
        ("", 127, probe.ENDS),
        ("", None, probe.HANGS),
        (GOOD, 0, ""),
    ],
)
def test_an_image_in_which_nothing_starts(output: str, status: int | None, sentence: str) -> None:
    found = probe.broken_image(probe.Run(output, status, has_shell=False), MACHINE)
    assert says(found, sentence) and bool(found) == bool(sentence)


@pytest.mark.parametrize(
    ("old", "new", "status", "sentence"),
    [
        ("", "", 0, ""),
        ("size=24683656k", "size=65536k", 0, probe.SHM_IGNORED),
        ("67108864  67108864", "8388608  unlimited", 0, probe.LIMIT_IGNORED),
        ("yes yes", "yes no", 0, probe.MOUNT_CLOSED),
        ("yes yes", "no no", 0, probe.MOUNT_CLOSED),
        ("mount yes yes /workspace\ngpu RTX\nended", "", None, probe.MOUNT_HANGS),
        ("gpu RTX\nended", "", None, probe.DRIVER_HANGS),
        ("gpu RTX", "no-gpu sh: nvidia-smi: not found", 0, probe.NO_GPU_SEEN),
        ("gpu RTX", "device /dev/nvmap\nno-gpu sh: nvidia-smi: not found", 0, ""),  # a Jetson
        ("gpu RTX", "device /dev/nvidia0\nno-gpu Failed to initialize NVML", 0, probe.NO_GPU_SEEN),
        ("gpu RTX\nended", "Killed", 137, probe.STOPS),
    ],
)
def test_flags_without_their_effect(
    old: str, new: str, status: int | None, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "size_of", lambda folder: 12 << 30)
    monkeypatch.setattr(probe, "clamped", lambda name, seen: name == "memlock")
    monkeypatch.setattr(os, "access", lambda *given: True)
    ran = probe.Run(f"{GOOD}gpu RTX\nended\n".replace(old, new), status)
    found = [*probe.problems(ran, MACHINE, ASKED, gpu=True)]
    assert len(found) == bool(sentence) and says("".join(found), sentence), found


def test_what_this_machine_cannot_give_is_no_fault_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "size_of", lambda folder: 64 << 20)
    monkeypatch.setattr(probe, "may_raise_limits", lambda: False)
    monkeypatch.setattr(probe.resource, "getrlimit", lambda kind: (8388608, 8388608))
    monkeypatch.setattr(os, "access", lambda *given: False)
    ran = probe.Run(GOOD.replace("24683656k", "65536k").replace("yes yes", "yes no") + "ended", 0)
    shm, mount = probe.problems(ran, MACHINE, ASKED, gpu=False)
    assert says(shm, probe.SHM_OF_HOST) and says(mount, probe.SOURCE_CLOSED)
    monkeypatch.setattr(probe, "may_raise_limits", lambda: True)
    assert says(next(probe.problems(ran, MACHINE, ASKED, gpu=False)), probe.LIMIT_IGNORED)


# smoke on real engines


ENGINES = {"plain": ENGINE, "gpu": GPU_ENGINE}


def docker_at(name: str) -> str:
    """The address of an engine. `gpu`: one that accepts GPU requests without having a GPU."""
    try:
        smoke.request_status(ENGINES[name], "/_ping")
    except OSError:
        cannot(f"no Docker engine at {ENGINES[name]}")
    return ENGINES[name]


def image_at(host: str) -> str:
    """Any image with a shell, because only the flags are tested."""
    listing = subprocess.run(
        ["docker", "-H", host, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}"], capture_output=True, text=True
    )
    names = sorted(name for name in listing.stdout.split() if name.startswith(("standin/", "python:", "debian:")))
    if not names:
        cannot(f"no image to start at {host}: `docker pull debian:stable-slim`")
    return names[-1]


def left_behind(host: str, project: Path) -> str:
    command = ["docker", "-H", host, "ps", "-aq", "--filter", f"label=gpukit.project={project}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def smoked(project: Path, host: str, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {"GPU_TEMPLATE_SMOKE": "auto", "DOCKER_HOST": host, "BASE_IMAGE": image_at(host)}
    return start(project, **{**settings, "GPUS": "0", **environment})


def elf(code: str, machine: int = 62) -> bytes:
    """A static program of a few instructions, for x86-64 or, by its header, for another processor."""
    start = 0x400000
    program = bytes.fromhex(code)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, start + 120, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    size = 120 + len(program)
    return header + struct.pack("<IIQQQQQQ", 1, 5, 0, start, start, size, size, 4096) + program


ENDS_WITH_127 = elf("bf7f000000 b83c000000 0f05")
WAITS = elf("b822000000 0f05 ebf7")  # pause(), again and again
ARM64 = 183
BROKEN = {
    # what: (its /bin/sh, the image's platform, the sentence)
    "empty": (None, "", probe.NO_SHELL),
    "ends": (ENDS_WITH_127, "", probe.ENDS),
    "loader": (b"#!/lib/no-such-loader\n", "", probe.NO_LOADER),
    "program": (elf("00", ARM64), "", probe.OTHER_PROGRAMS),
    "label": (ENDS_WITH_127, "linux/arm64", probe.OTHER_ARCHITECTURE),
    "hangs": (WAITS, "", probe.HANGS),
}


@pytest.fixture
def images() -> Iterator[Callable[..., str]]:
    """Import an image that has nothing but etc/made and, where given, /bin/sh: its name."""
    made = []

    def make(host: str, name: str, shell: bytes | None, architecture: str) -> str:
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            for path, text in (("etc/made", b""), ("bin/sh", shell)):
                if text is not None:
                    entry = tarfile.TarInfo(path)
                    entry.size = len(text)
                    entry.mode = 0o755
                    archive.addfile(entry, io.BytesIO(text))
        tag = f"smoke-test-{name}:{os.getpid()}"
        flags = [f"--platform={architecture}"] if architecture else []
        made.append((host, tag))
        command = ["docker", "-H", host, "import", *flags, "-", tag]
        subprocess.run(command, input=content.getvalue(), check=True, capture_output=True)
        return tag

    yield make
    for host, tag in made:
        subprocess.run(["docker", "-H", host, "rmi", "-f", tag], capture_output=True)


@pytest.fixture
def smoke_in(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path):
    """Run smoke in this process: the code, and what it reports, without the notice that it is slow."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GPU_TEMPLATE_SMOKE", "auto")
    monkeypatch.setenv("GPUS", "0")

    def run(project: Path, host: str, image: str) -> tuple[int, str, list[str]]:
        monkeypatch.setenv("DOCKER_HOST", host)
        monkeypatch.setenv("BASE_IMAGE", image)
        code = smoke.run(project)
        said = capfd.readouterr()
        assert left_behind(host, project) == ""
        return code, said.out, [line for line in said.err.splitlines() if "smoke: starting " not in line]

    return run


@pytest.mark.engine
def test_smoke_names_what_is_broken(plain: Path, smoke_in, images, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image, a flag that the engine does not apply, a mount that is closed: a notice, never a failure."""
    host = docker_at("plain")
    good = image_at(docker_at("plain"))
    if platform.machine() != "x86_64":
        pytest.skip("the broken programs are for x86-64")
    monkeypatch.setattr(probe, "TIME_LIMIT", 3)
    for name, (shell, architecture, sentence) in BROKEN.items():
        code, _, lines = smoke_in(plain, host, images(host, name, shell, architecture))
        assert (code, len(lines)) == (smoke.SKIPPED, 1) and says(lines[0], sentence), (name, lines)
    run_container = smoke.run_container
    with monkeypatch.context() as patch:
        private = {"--ipc=host": "--ipc=private"}
        replaced = lambda given: [private.get(flag, flag) for flag in given]  # noqa: E731
        patch.setattr(smoke, "run_container", lambda *given: run_container(*given[:-1], replaced(given[-1])))
        code, _, lines = smoke_in(plain, host, good)
        assert code == smoke.SKIPPED and says(lines[-1], probe.SHM_IGNORED) and " 64 MB " in lines[-1], lines
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: 54321)
        code, _, lines = smoke_in(plain, host, good)
        assert code == smoke.SKIPPED and any("/workspace is not writable" in line for line in lines), lines
    with monkeypatch.context() as patch:
        patch.setattr(probe, "SCRIPT", plain / "stops.sh")
        probe.SCRIPT.write_text("echo started; sleep 60", encoding="utf-8")
        code, _, lines = smoke_in(plain, host, good)
        assert code == smoke.SKIPPED and any(says(line, probe.MOUNT_HANGS) for line in lines), lines


@pytest.mark.engine
@pytest.mark.parametrize("name", ENGINES)
def test_smoke_finds_nothing_wrong_with_the_examples(name: str, smoke_in, tmp_path: Path) -> None:
    """Without a GPU, that is the one thing it reports, and it advises what helps there."""
    host = docker_at(name)
    for answers in sorted((ROOT / "examples").glob("*.yml")):
        project = shutil.copytree(answers.with_suffix(""), tmp_path / answers.stem)
        code, out, lines = smoke_in(project, host, image_at(host))
        if name == "gpu":
            assert (code, lines) == (smoke.PASSED, []) and "GPU NVIDIA Stand-in GPU" in out, (answers, lines)
        elif code != smoke.PASSED:
            begins, refusal = lines
            assert "but without its GPU: " in begins
            assert facts.pci() or ("`./launch --cpu" in refusal and "Toolkit" not in refusal), (answers, lines)


@pytest.mark.engine
def test_smoke_starts_a_container_without_gpu(generate: Callable[..., Path], tmp_path: Path, smoke_in) -> None:
    project = shutil.copytree(generate(hardware="cpu"), tmp_path / "cpu")
    host = docker_at("plain")
    code, out, lines = smoke_in(project, host, image_at(host))
    assert (code, lines) == (smoke.PASSED, []) and "no GPU asked for." in out


@pytest.mark.engine
def test_invalid_flags_are_reported_and_nothing_is_deleted(plain: Path) -> None:
    host = docker_at("plain")
    change(plain / MAIN, '"--ipc=host"', '"--ipc=host", "--cap-add=NONSENSE"')  # which only an engine knows
    for operation, code in (("update", 1), ("copy", 0)):
        done = smoked(plain, host, COPIER_OPERATION=operation)
        assert done.returncode == code, done.stderr
        assert f"smoke: the engine does not accept the flags of {MAIN}: " in done.stderr
    assert left_behind(host, plain) == ""


def test_ctrl_c_is_answered(plain: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Copier handles Ctrl-C itself, so within Copier it is no failure."""
    monkeypatch.chdir(plain)
    monkeypatch.setattr(sys, "argv", ["run.py"])
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)  # main() changes it
    monkeypatch.setattr(hook, "put_wheel", lambda project: signal.raise_signal(signal.SIGINT))
    for operation, code in ((None, 130), ("copy", 0)):
        if operation:
            monkeypatch.setenv("COPIER_OPERATION", operation)
        assert hook.main() == code
        assert "hooks: interrupted" in capfd.readouterr().err


def test_ctrl_c_is_answered_once(plain: Path) -> None:
    """A terminal sends it to the process that Copier started, and to the one that uv started."""
    pause = "import signal; print('ready', flush=True); signal.pause()"
    child = f"import sys, run; run.check = lambda project: exec({pause!r}); sys.exit(run.main())"
    start = f"uv.python = lambda *given: subprocess.run([sys.executable, '-c', {child!r}, run.CHILD]).returncode"
    first = "uv.importable = lambda module: False; run.put_wheel = lambda project: 0; sys.exit(run.main())"
    code = f"import subprocess, sys, run; from gpukit.host import uv; {start}; {first}"
    environment = {**os.environ, "PYTHONPATH": f"{HOOKS}:{ROOT / 'gpukit/src'}", "COPIER_OPERATION": "copy"}
    command = [sys.executable, "-c", code]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=plain, env=environment, start_new_session=True, **streams) as process:
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        _, answered = process.communicate(timeout=60)
    assert answered.count("hooks: interrupted") == 1
    assert process.returncode == 0


@pytest.mark.engine
def test_a_killed_hook_leaves_no_container(plain: Path) -> None:
    """Copier kills a hook a quarter of a second after Ctrl-C, which can be too short for an answer."""
    host = docker_at("plain")
    slow = "import probe, run; run.put_wheel = lambda project: 0; probe.command = lambda *given: ['-c', 'sleep 60']; "
    slow += "raise SystemExit(run.main())"
    change(plain / MAIN, '"--gpus=\\"device=${localEnv:GPUS:all}\\""', '"--label=nvidia.com/gpu=none"')
    environment = {
        **os.environ,
        "DOCKER_HOST": host,
        "BASE_IMAGE": image_at(host),
        "PYTHONPATH": f"{HOOKS}:{ROOT / 'gpukit/src'}",
    }
    code = f"from gpukit.validate import main as runner; runner.run = lambda *given, **more: 0; {slow}"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=plain, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        while not left_behind(host, plain):  # each request to the engine has a time limit, so the hook ends
            assert process.poll() is None, f"the container did not start: {process.communicate()[1]}"
            time.sleep(0.1)
        process.kill()
    until(lambda: left_behind(host, plain) == "")
