"""Call Docker or Podman, with a list of arguments and never through a shell. Their errors become one sentence."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gpukit.host import podman, refusals
from gpukit.host.choice import ENGINES, choose
from gpukit.project.messages import RefusalError
from gpukit.project.stack import version

if TYPE_CHECKING:
    from gpukit.errors.machine import Machine

TAIL = 64 * 1024  # bytes of an engine's output that are kept to find the error
PATIENCE = 0.5  # seconds after which output that looks like the engine's error may be the program's
REMOVED = 10.0  # seconds for the removal of a container; an engine that hangs does not end it
ELSEWHERE = (
    "{} is on another machine, which does not see this folder: `./launch --host me@box ...` sends it there over ssh."
)


class Engine:
    """The docker command, or podman, with the environment from which secrets and settings are passed by name.

    Arguments are Docker's in all methods; `words` translates them.
    """

    patience: float | None = None  # seconds that a call may take at most

    def __init__(self, env: Mapping[str, str], cpu_helps: bool = False, dry: bool = False) -> None:
        self.env = dict(env)
        self.cpu_helps = cpu_helps
        self.dry = dry
        self.name = choose(self.env)

    @property
    def title(self) -> str:
        return ENGINES[self.name]

    @property
    def podman(self) -> bool:
        return self.name == "podman"

    @property
    def rootless(self) -> bool:
        """Whether this is rootless Podman, as it is for every user but root."""
        return self.podman and os.getuid() != 0

    def words(self, *arguments: str) -> list[str]:
        """The command as this engine takes it, for people: `docker run ...`, `podman run ...`."""
        return [self.name, *(podman.words(arguments, self.rootless) if self.podman else arguments)]

    def argv(self, *arguments: str) -> list[str]:
        name, *translated = self.words(*arguments)
        program = shutil.which(name, path=self.env.get("PATH"))
        if not program and not self.dry:
            if Path("/etc/gpukit").is_dir():
                raise RefusalError("This is the inside of the container: run the command itself, without ./launch.")
            if self.podman:
                message = "Podman, which GPUKIT_ENGINE names, is not installed: install the package `podman`."
                raise RefusalError(message, id="docker-not-installed")
            message = "Docker is not installed: `./launch setup` shows the commands that install it."
            raise RefusalError(message, id="docker-not-installed")
        return [program or name, *translated]

    def call(self, *arguments: str, stdin: bytes = b"", seconds: float | None = None) -> tuple[int, str, str]:
        """Run a command quietly: exit status, output, errors."""
        command = self.argv(*arguments)
        seconds = min((each for each in (seconds, self.patience) if each), default=None)
        try:
            done = subprocess.run(command, env=self.env, input=stdin, capture_output=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            message = f"{self.title} did not respond within {seconds:g} s: restart it."
            raise RefusalError(message, kind="engine", id="docker-hangs") from None
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")

    def get(self, *arguments: str, seconds: float | None = None) -> str:
        """The output of a command that must succeed."""
        code, output, errors = self.call(*arguments, seconds=seconds)
        if code:
            raise self.explain(errors, f"`{self.name} {arguments[0]}` failed")
        return output

    def explain(self, output: str, fallback: str, kinds: Collection[str] = ()) -> RefusalError:
        """The refusal for an error of this engine."""
        refusal = refusals.explain(output, fallback, self.cpu_helps, kinds, self._about())
        if refusal.kind in ("gpu", "mount") and remote(self.endpoint()):
            if refusal.kind == "mount":
                refusal.args = (ELSEWHERE.format(f"This {self.title}"),)
        elif refusal.kind == "gpu":
            from gpukit.host import facts  # only needed here, and slow

            machine = facts.local(None, engine=self.name)
            refusal = refusals.explain(output, fallback, self.cpu_helps, kinds, machine)
        if not self.podman and refusal.id in refusals.NOT_RESPONDING:
            host = self.env.get("DOCKER_HOST")
            endpoint = host or self.endpoint()
            if host:
                names = "which DOCKER_HOST names: start it there, or unset DOCKER_HOST"
            else:
                names = "which its context names: `docker context use default` goes back to this machine's"
            if host or remote(endpoint):
                refusal.args = (f"Docker does not respond at {endpoint}, {names}.",)
        other = shutil.which("podman", path=self.env.get("PATH"))
        if refusal.id in (*refusals.NOT_RESPONDING, "docker-denied") and other and not self.env.get("GPUKIT_ENGINE"):
            refusal.args = (f"{refusal} Podman is installed too: `GPUKIT_ENGINE=podman ./launch ...` uses it.",)
        return refusal

    def _about(self) -> Machine | None:
        """What is known of the machine without asking it."""
        if not self.podman:
            return None
        from gpukit.errors.machine import Engine as Facts
        from gpukit.errors.machine import Machine

        return Machine(engine=Facts(name=self.name, rootless=self.rootless))

    def endpoint(self) -> str:
        """The engine's address: unix://..., tcp://..., ssh://...; empty if unknown."""
        if self.podman:
            return podman.endpoint(self.env, lambda: self.call(*podman.CONNECTIONS)[1])
        return self.call("context", "inspect", "--format", "{{.Endpoints.docker.Host}}")[1].strip()

    def stream(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str]:
        """Run a command and show its progress; exit status and the end of its output."""
        return stream(self.argv(*arguments), self.env, stdin)

    def become(self, *arguments: str) -> int:
        """Run a command on our terminal until it ends; Ctrl-C goes to the program that runs there."""
        return foreground(self.argv(*arguments), self.env)

    def remove(self, name: str) -> None:
        """Remove a container, even if the engine was still creating it when the call was interrupted."""
        for pause in (0, 0.5, 1, 1.5):  # some storage drivers copy the whole image first
            time.sleep(pause)
            with contextlib.suppress(RefusalError):  # it hangs: what the caller reports is the reason
                if self.call("rm", "--force", name, seconds=REMOVED)[1].strip() == name:
                    return

    def check(self, seconds: float | None = None) -> None:
        """Refuse engines that are not supported, before anything is created on them; `seconds`: for each answer."""
        if self.dry:
            return
        if self.podman:
            if remote(self.endpoint()):  # first: it would be asked for its version, too
                variable = next(filter(self.env.get, podman.SERVICE))
                raise RefusalError(ELSEWHERE.format(f"Podman, which {variable} names,"))
            release = self.get("version", "--format", "{{.Client.Version}}", seconds=seconds).strip()
            if version(release) < version(podman.LEAST):
                raise RefusalError(f"Podman {release} is too old: launch needs {podman.LEAST} or newer, or Docker.")
            return
        server = self.get("version", "--format", "{{json .}}", seconds=seconds)
        info = self.get("info", "--format", "{{json .}}", seconds=seconds)
        if "podman" in server.lower() or "buildahVersion" in info:
            raise RefusalError("Docker's client talks to Podman here: `GPUKIT_ENGINE=podman ./launch ...` uses Podman.")
        if "name=rootless" in info:
            other = "rootless Podman (`GPUKIT_ENGINE=podman`), or `docker context use default`, root's daemon"
            raise RefusalError(f"Rootless Docker is not supported: use {other}.")


def remote(endpoint: str) -> bool:
    """Whether the engine is on another machine, whose disks, folders, and driver cannot be checked from here."""
    return endpoint.startswith(("tcp://", "ssh://", "http://", "https://"))


def foreground(command: list[str], env: Mapping[str, str], keep: Collection[int] = (), trial: bool = False) -> int:
    """Run a command on our terminal until it ends, and return its exit status; Ctrl-C goes to the command itself.

    `keep`: file descriptors that it inherits. `trial`: it has failed because of Ctrl-C if that preceded.
    """
    process = subprocess.Popen(command, env=env, pass_fds=keep)
    interrupted = False
    try:
        while True:
            try:
                code = process.wait()
            except KeyboardInterrupt:
                interrupted = True
                continue
            if trial and code and interrupted:
                return 128 + signal.SIGINT
            return code if code >= 0 else 128 - code
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def stream(
    command: list[str], env: Mapping[str, str], stdin: bytes = b"", keep: Collection[int] = ()
) -> tuple[int, str]:
    """Run a command and show its progress on stderr; exit status and the end of that output.

    `keep`: file descriptors that it inherits.
    """
    reader, writer = _pseudo_terminal() if sys.stderr.isatty() else os.pipe()
    source = subprocess.PIPE if stdin else None
    try:
        # Podman shows a build's progress on stdout, and Docker an `exec` that fails
        process = subprocess.Popen(command, env=env, stdin=source, stdout=writer, stderr=writer, pass_fds=keep)
    finally:
        os.close(writer)
    try:
        if process.stdin:
            with contextlib.suppress(BrokenPipeError):  # it has already ended, with an error on stderr
                process.stdin.write(stdin)
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        tail = copy(reader, 2)
        return process.wait(), re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", tail)
    except BaseException:
        process.send_signal(signal.SIGINT)  # so that it cleans up
        copy(reader, 2)
        process.wait()
        raise
    finally:
        os.close(reader)


def copy(source: int, target: int, hold: tuple[bytes, ...] = (), release: Callable[[], bool] = lambda: False) -> str:
    """Copy until the end and return the tail.

    Output that begins with one of `hold` is only returned, unless `release` says that it is to be copied too.
    """
    tail = b""
    held = bool(hold)
    while True:
        if held and tail and not select.select([source], [], [], PATIENCE)[0] and release():
            _write(target, tail)
            held = False
        try:
            data = os.read(source, 65536)
        except OSError as error:
            if error.errno != errno.EIO:  # the end of a pseudo-terminal
                raise
            data = b""
        if not data:
            return tail.decode(errors="replace")
        tail = (tail + data)[-TAIL:]
        if held and tail.startswith(hold):
            continue
        _write(target, tail if held else data)
        held = False


def _write(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]


def _pseudo_terminal() -> tuple[int, int]:
    """A terminal as wide as ours, so that docker draws its progress and we can read it."""
    import fcntl
    import pty
    import termios

    reader, writer = pty.openpty()
    with contextlib.suppress(OSError):
        fcntl.ioctl(writer, termios.TIOCSWINSZ, fcntl.ioctl(2, termios.TIOCGWINSZ, b"\0" * 8))
    return reader, writer
