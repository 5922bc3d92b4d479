"""How one job is started, signaled, ended, and proven dead: in a container, without Docker, or in the service.

A container ends with all of its processes, whatever they forked. Without Docker, every process of a job has a variable
with the job's token in its environment, by which it is found even in another session; processes that cleared their
environment are found as children of the worker, which adopts orphans (PR_SET_CHILD_SUBREAPER).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pkgutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpukit.host.engine import Engine
from gpukit.host.project import Project
from gpukit.host.queue import WorkerLock, boot_id, born, process
from gpukit.project.messages import RefusalError

TOKEN = "GPUKIT_JOB_TOKEN"
LOG_BYTES = 10 << 20  # a job's log is this file and the one before it
# linux/prctl.h
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
Command = tuple[list[str], dict[str, str], list[int]]  # argv, environment, and open files to inherit
OF_THE_ENGINE = 125  # docker-run(1): the exit status of an error of the engine itself


def adopt_orphans() -> None:
    """Processes that jobs leave behind become children of this process, instead of init's."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class JobError(Exception):
    """The job cannot start, whatever this machine does: it failed."""


class Started:
    """A job's first process (in containers: the docker command) and what copies its output to the log."""

    def __init__(self, command: list[str], env: dict[str, str], log: Path, keep: list[int], folder: Path) -> None:
        code = (pkgutil.get_data("gpukit.jobs", "log.py") or b"").decode()
        self.logger = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code, str(log), str(LOG_BYTES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        assert self.logger.stdin
        worker = os.getpid()
        libc = ctypes.CDLL(None)  # before the fork

        def ends_with_worker() -> None:
            """If the worker is killed, the job gets SIGTERM: training saves, and ends."""
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            if os.getppid() != worker:
                os._exit(128 + signal.SIGTERM)

        try:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=self.logger.stdin,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=keep,
                preexec_fn=ends_with_worker if sys.platform.startswith("linux") else None,
            )
        except (OSError, ValueError) as error:  # ValueError: a null byte
            what = "no command" if isinstance(error, FileNotFoundError) else "no program that can be run"
            raise JobError(f"there is {what} `{command[0]}`") from None
        finally:
            self.logger.stdin.close()
            for file in keep:  # the job holds them
                os.close(file)

    def close(self) -> None:
        """Wait for the end of the log."""
        try:
            self.logger.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.logger.kill()
            self.logger.wait()


class Native:
    """Jobs as processes of this machine, as `./launch --native run` starts them."""

    kind = "native"
    links = True  # in the checkouts of jobs, to outputs/ and data/

    def __init__(self, make: Callable[..., Project]) -> None:
        """`make(gpus, folder)`: the project, with its code in that folder."""
        self.make = make

    def lease(self, number: int) -> dict[str, Any]:
        return {}

    def command(self, lease: dict[str, Any], job: dict[str, Any], gpus: str, folder: Path) -> Command:
        """What starts a job in `folder`; it creates or updates the environment."""
        if job["sealed"]:
            raise JobError("it was submitted with --no-credentials, which needs a container of its own: use Docker")
        env, held = self.prepare(gpus, folder)
        return job["command"], {**env, "GPUKIT_JOB": str(job["id"]), TOKEN: lease["token"]}, held

    def prepare(self, gpus: str, folder: Path) -> tuple[dict[str, str], list[int]]:
        """The environment of a job, and the open files that it holds."""
        from gpukit.launch import native

        project = self.make(gpus, folder)
        try:
            environment = native.ready(project)
        finally:
            os.chdir(project.root)  # the checkout will be removed
        return native.variables(project, environment), environment.held

    def signal(self, lease: dict[str, Any], number: int) -> None:
        """SIGTERM goes to the job's process group, which saves; SIGKILL to every process of the job."""
        found = members(lease)
        group = lease.get("pid")
        if number != signal.SIGKILL and group in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def alive(self, lease: dict[str, Any]) -> bool:
        return bool(members(lease))

    def remove(self, lease: dict[str, Any]) -> None:
        """Nothing stays of a process."""

    def outcome(self, lease: dict[str, Any], code: int) -> tuple[str, str, int]:
        """finished, failed, or interrupted; why; and the exit status as a shell has it."""
        if code < 0:
            name = signal.Signals(-code).name if -code in signal.valid_signals() else str(-code)
            memory = ": memory was probably full" if -code == signal.SIGKILL else ""
            return "failed", f"ended by {name}{memory}", 128 - code
        return ("finished", "", 0) if code == 0 else ("failed", f"exit status {code}", code)


class Inside(Native):
    """Jobs as processes of the service's container, whose main process is the worker.

    Jobs inherit the worker's lock. When a container's main process ends, the kernel closes its files, kills all other
    processes, and reports its end after theirs. So whoever has the lock knows that no job of an earlier container runs.
    """

    kind = "service"

    def __init__(self, make: Callable[..., Project], lock: WorkerLock) -> None:
        super().__init__(make)
        self.lock = lock

    def lease(self, number: int) -> dict[str, Any]:
        return {"container": socket.gethostname(), "main": born(1)}

    def command(self, lease: dict[str, Any], job: dict[str, Any], gpus: str, folder: Path) -> Command:
        given = self.make("").env
        argv, env, held = super().command(lease, job, gpus, folder)
        return argv, {**env, **{name: given[name] for name in job["variables"]}}, held

    def prepare(self, gpus: str, folder: Path) -> tuple[dict[str, str], list[int]]:
        env = {**os.environ, "GPUKIT_PROJECT": str(folder), "PYTHONPATH": str(folder / "src")}
        if gpus and gpus != "all":
            env.update(CUDA_VISIBLE_DEVICES=gpus, CUDA_DEVICE_ORDER="PCI_BUS_ID")
        return env, [os.dup(self.lock.file)]


class Container:
    """Jobs in containers of their own, as `./launch run` starts them."""

    kind = "container"
    links = False

    def __init__(self, make: Callable[..., Project]) -> None:
        self.make = make
        self.project = make("")
        self.engine: Engine = self.project.engine

    def lease(self, number: int) -> dict[str, Any]:
        return {"container": f"{self.project.tag}-job-{number}"}

    def command(self, lease: dict[str, Any], job: dict[str, Any], gpus: str, folder: Path) -> Command:
        """What starts a job with the code in `folder`; it builds the image if needed."""
        from gpukit.launch import container, image

        project = self.make(gpus, folder)
        image.make_ready(project)
        project.sealed = job["sealed"]
        more, _ = container.passed(project, job["variables"])
        arguments = [*container.flags(project, lease["container"], "job"), *more, "--log-driver=none"]
        arguments += [f"--env=GPUKIT_JOB={job['id']}", project.tag, *job["command"]]
        return project.engine.argv("run", *arguments), project.engine.env, []

    def signal(self, lease: dict[str, Any], number: int) -> None:
        self.engine.call("kill", f"--signal={number}", lease["container"])

    def _state(self, lease: dict[str, Any]) -> list[str] | None:
        """Status, exit status, and whether memory was full; None if the container does not exist."""
        form = "--format={{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}}"
        code, output, errors = self.engine.call("inspect", "--type=container", form, lease["container"])
        if code == 0:
            return output.split()
        if "no such container" in errors.lower():
            return None
        raise self.engine.explain(errors, "`docker inspect` failed")

    def alive(self, lease: dict[str, Any]) -> bool:
        state = self._state(lease)
        return state is not None and state[0] not in ("created", "exited", "dead")

    def remove(self, lease: dict[str, Any]) -> None:
        """Remove the container; afterwards it cannot run."""
        self.engine.call("rm", "--force", lease["container"])
        if self._state(lease) is not None:
            raise RefusalError(f"The container {lease['container']} cannot be removed: restart Docker.", kind="engine")

    def outcome(self, lease: dict[str, Any], code: int) -> tuple[str, str, int]:
        state = self._state(lease)
        if state is None:
            if code == OF_THE_ENGINE:  # it was never created
                return "failed", "the container could not start; `jobs logs` shows why", code
            return "interrupted", "its container was removed", code
        status = int(state[1])
        if state[2] == "true":
            return "failed", "memory was full", status
        if state[0] == "created" and code:  # such as a program that does not exist
            return "failed", "the container could not start; `jobs logs` shows why", code
        if status in (128 + signal.SIGTERM, 128 + signal.SIGKILL) or code == OF_THE_ENGINE:
            return "interrupted", "its container was stopped", status
        return ("finished", "", 0) if status == 0 else ("failed", f"exit status {status}", status)


class Outside(Container):
    """Jobs of the service, as the host sees them: they live as long as the main process of the service's container."""

    kind = Inside.kind

    def alive(self, lease: dict[str, Any]) -> bool:
        if lease.get("boot") != boot_id():
            return False
        form = "--format={{.State.Running}} {{.State.Pid}}"
        code, output, errors = self.engine.call("inspect", "--type=container", form, lease["container"])
        if code and "no such container" not in errors.lower():
            raise self.engine.explain(errors, "`docker inspect` failed")
        return output.split()[:1] == ["true"] and born(int(output.split()[1])) == lease["main"]

    def signal(self, lease: dict[str, Any], number: int) -> None:
        if number == signal.SIGKILL and self.alive(lease):
            super().signal(lease, number)

    def remove(self, lease: dict[str, Any]) -> None:
        """It is the service's."""


def numbers() -> set[int]:
    """Those of all processes."""
    proc = Path("/proc")
    return {int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()} if proc.is_dir() else set()


def processes() -> dict[int, tuple[int, int, int, str]]:
    """All live processes: parent, process group, session, and start time."""
    found = {}
    for entry in numbers():
        fields = process(entry)
        if fields and fields[0] not in "ZX":
            found[entry] = (int(fields[1]), int(fields[2]), int(fields[3]), fields[19])
    return found


def members(lease: dict[str, Any]) -> set[int]:
    """The live processes of a job without a container: of its group and session, with its token, and their children.

    After a restart of the machine there are none.
    """
    if lease.get("boot") != boot_id() or not lease.get("token"):
        return set()
    every = processes()
    mark = f"{TOKEN}={lease['token']}".encode()
    pid = lease.get("pid") or -1
    ours = pid in every and every[pid][3] == lease.get("born")
    found = set()
    for one, (_, group, session, _) in every.items():
        if ours and pid in (one, group, session):
            found.add(one)
            continue
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{one}/environ").read_bytes().split(b"\0"):
                found.add(one)
    size = -1
    while size != len(found):
        size = len(found)
        found |= {one for one, (parent, *_) in every.items() if parent in found}
    return found - {os.getpid()}


def adopted(known: set[int]) -> set[int]:
    """Orphans that this process has adopted, except its own children `known`; dead ones are reaped."""
    found = set()
    for entry in numbers() - known:
        fields = process(entry)
        if fields and int(fields[1]) == os.getpid():
            if fields[0] == "Z":
                with contextlib.suppress(ChildProcessError):  # it was reaped just now
                    os.waitpid(entry, os.WNOHANG)
            else:
                found.add(entry)
    return found
