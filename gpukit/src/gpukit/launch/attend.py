"""Run a container in the foreground: its output, its exit status, its signals, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

from gpukit.errors.known import match_signs
from gpukit.host import podman
from gpukit.host.engine import Engine, copy
from gpukit.project import interrupts

ENGINE_FAILED = 125
NOT_EXECUTABLE = 126
NOT_FOUND = 127
YOUNG = 1.0  # seconds in which a container's first process may not listen to signals yet, and has nothing to save
CTRL_C = b"\x03"
# How an engine's own errors begin. Programs may begin theirs in the same way.
OF_THE_ENGINE = {
    "docker": (b"docker: ", b"invalid argument ", b"unknown ", b"[FATAL tini "),
    "podman": (b"Error: ", podman.INIT_FAILED),
}


def terminal_flags() -> list[str]:
    """-i where there is something to read, -t only between two terminals."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return []
    readable = os.isatty(0) or stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)
    return ["--interactive"] * readable + ["--tty"] * (os.isatty(0) and os.isatty(1))


def age_of(engine: Engine, name: str) -> float | None:
    """For how many seconds a container has run, by clocks that may differ; None if it has not started."""
    started = engine.call("inspect", "--format={{.State.StartedAt}}", name)[1].strip()
    try:
        at = datetime.strptime(started[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    except ValueError:
        return None  # not created yet
    return None if at.year == 1 else time.time() - at.timestamp()


class Attended:
    """`docker run` in the foreground. Signals go to the container itself: the docker command gives up at the third."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self.stopped = 0
        self.begun = 0.0
        self.shown = False  # what looks like the engine's error is the program's
        self.own = OF_THE_ENGINE[engine.name]

    def run(self, *arguments: str) -> int:
        command = self.engine.argv(*arguments)
        interrupts.check()
        caught = [signal.SIGINT, signal.SIGTERM]
        caught += [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else []  # as nohup sets it
        before = {number: signal.signal(number, self._pass_on) for number in caught}
        output = ""
        on_terminal = {"--interactive", "--tty"} <= {*arguments}
        try:
            with self._keyboard() if on_terminal else contextlib.nullcontext() as keyboard:
                self.begun = time.monotonic()
                self.process = subprocess.Popen(
                    command,
                    env=self.engine.env,
                    stdin=keyboard,
                    stderr=subprocess.PIPE,
                    # if it does not read the terminal: Ctrl-C reaches the container once, through us
                    start_new_session=not on_terminal,
                )
                if self.stopped:  # by a signal that came while it was being started
                    self._signal(self.stopped)
                assert self.process.stderr
                with self.process.stderr as stderr:
                    output = copy(stderr.fileno(), 2, hold=self.own, release=self._is_the_programs)
                code = self.process.wait()
        finally:
            code = self.process.returncode if self.process else None
            if (code is None or code < 0 or code == ENGINE_FAILED) and not match_signs(output, "container-name"):
                self.engine.remove(self.name)
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._judge(code, output, arguments)

    @contextlib.contextmanager
    def _keyboard(self) -> Iterator[int]:
        """A terminal from which docker reads what is typed on ours.

        From its own start on, docker sends Ctrl-C to the container as any other key. Until the program runs, nothing
        receives it there, so it is a signal too.
        """
        import fcntl
        import pty  # here, because only an interactive run needs these
        import termios
        import threading
        import tty

        def resize(*_: Any) -> None:
            """Podman takes the size of the terminal that it reads, Docker that of its output."""
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8))
            if self.process:
                self.process.send_signal(signal.SIGWINCH)

        before = termios.tcgetattr(0)
        ours, theirs = pty.openpty()
        resize()
        resized = signal.signal(signal.SIGWINCH, resize)
        end, ended = os.pipe()
        os.set_blocking(ours, False)
        tty.setraw(theirs)
        typing = threading.Thread(target=self._pass_keys, args=(ours, end), daemon=True)
        typing.start()
        try:
            tty.setraw(0)
            yield theirs
        finally:
            os.close(ended)
            typing.join()
            termios.tcsetattr(0, termios.TCSADRAIN, before)
            signal.signal(signal.SIGWINCH, resized)
            for descriptor in (ours, theirs, end):
                os.close(descriptor)

    def _pass_keys(self, target: int, end: int) -> None:
        """Pass on what is typed until `end` is closed."""
        started = False
        while end not in select.select([0, end], [], [])[0]:
            try:
                keys = os.read(0, 1024)
            except OSError:  # the terminal is gone, and SIGHUP follows
                return
            if CTRL_C in keys:
                started = started or (self._runs() and not self._young())
                if started:
                    self.stopped = signal.SIGINT
                else:
                    self._pass_on(signal.SIGINT)
            while keys and end not in select.select([end], [target], [])[0]:
                keys = keys[os.write(target, keys) :]

    def _young(self) -> bool:
        """Whether docker or the container's first process has just started: a busy engine takes a while."""
        if time.monotonic() - self.begun < YOUNG:
            return True
        age = age_of(self.engine, self.name)
        return age is None or abs(age) < 1 + YOUNG  # in whole seconds

    def _runs(self) -> bool:
        return self.engine.call("inspect", "--format={{.State.Running}}", self.name)[1].strip() == "true"

    def _is_the_programs(self) -> bool:
        self.shown = self._runs()
        return self.shown

    def _is_the_engines(self, code: int, output: str) -> bool:
        """Whether this error is not a program's: Podman's begin as many programs' do, and then name what failed."""
        return not self.engine.podman or code == ENGINE_FAILED or podman.is_own(output)

    def _judge(self, code: int, output: str, arguments: Sequence[str]) -> int:
        if self.stopped and (code < 0 or code == ENGINE_FAILED):  # a start that was interrupted has not failed
            return 128 + self.stopped
        if self.engine.podman:
            code, output = podman.init_failed(code, output, arguments)
        if output.encode().startswith(self.own) and not self.shown:
            if code in (ENGINE_FAILED, NOT_EXECUTABLE, NOT_FOUND) and self._is_the_engines(code, output):
                refusal = self.engine.explain(output, "The container cannot start")
                refusal.code = code
                raise refusal
            sys.stderr.write(output)
        return code if code >= 0 else 128 - code

    def _pass_on(self, number: int, _frame: Any = None) -> None:
        self.stopped = number
        if self.process:
            self._signal(number)

    def _signal(self, number: int) -> None:
        while self.process and self.process.poll() is None:
            young = self._young()
            if self.engine.call("kill", f"--signal={number}", self.name)[0] == 0:
                if not young:
                    return
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(timeout=YOUNG / 2)
                continue
            if self._runs():  # it has started just now
                self.begun = time.monotonic()
                continue
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=1)  # it may just have ended
            if self.process.poll() is None:
                self.process.kill()  # nothing has run yet, so there is nothing to save
                if self.engine.podman:  # whose container would keep our stderr open
                    self.engine.remove(self.name)
