"""One ssh connection to a machine, shared by all that a command does there. Keys, names, and jump hosts are ssh's."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from gpukit.project.messages import RefusalError, announced, say
from gpukit.remote.there import MARK

# ssh_config(5). A line that is dead for half a minute is given up; the connection stays for ten minutes after its use.
# What a user's configuration starts at each login, such as tmux, is not started.
OPTIONS = ("ServerAliveInterval=10", "ServerAliveCountMax=3", "ConnectTimeout=20")
OPTIONS += ("RemoteCommand=none", "RequestTTY=no")
PERSIST = "600"  # seconds
ANSWERS = 10.0  # seconds in which a connection that is open already must answer
LOST = 255  # the exit status of ssh itself
NO_PYTHON = 96
# For a login shell of any kind, so without single quotes, backslashes, and !. {} is where the request comes from.
START = (
    "for n in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9; do "
    'for p in $n "$HOME/.local/bin/$n"; do '
    '"$p" -c "import sys; sys.exit(sys.version_info < (3, 9))" </dev/null >/dev/null 2>&1 && '
    'exec "$p" -I -X utf8 -c '
    '"import sys; f = open(int(sys.argv[1]), sys.argv[2]); exec(f.read(int(f.readline())))" {}; '
    f"done; done; python3 --version; exit {NO_PYTHON}"
)
# What ssh prints when it cannot connect, and the remedy; its own text is shown too.
FAILURES = {
    "IDENTIFICATION HAS CHANGED": "its key is not the one that ssh knows: ask who runs it whether it was reinstalled, "
    "and if so, remove the old key with the `ssh-keygen -R` command that ssh names above",
    "Host key verification failed": "ssh does not know its key: connect once with `ssh {}`, and compare fingerprints",
    "Permission denied": "it does not accept your key or password: `ssh-copy-id {}` adds your key",
    "Could not resolve hostname": "no machine has this name: check it, or add it to ~/.ssh/config",
}
Answer = dict[str, Any]


class Host:
    """A machine, and the project's folder there. `name`: HOST, or HOST:FOLDER."""

    def __init__(self, name: str, folder: str) -> None:
        found = re.fullmatch(r"((?:[^@:]+@)?(?:\[[^]]+\]|[^@:\[]+))(?::(?!//)(.*))?", name)
        if not found or name.startswith("-") or re.search(r"\s", found[1]):
            raise RefusalError(f"--host {name}: write a machine as ssh knows it, such as me@box, or me@box:FOLDER.")
        self.destination = re.sub(r"[][]", "", found[1])
        given = (found[2] or "").rstrip("/")
        self.folder_given = bool(given)
        self.folder = re.sub(r"^~/", "", given) or folder
        self.socket = sockets() / hashlib.sha256(self.destination.encode()).hexdigest()[:12]
        self.process: subprocess.Popen[bytes] | None = None  # of the command that runs there
        self.signals: list[int] = []  # that came
        self.unsent: list[int] = []  # those of them that were not passed on yet
        if not shutil.which("ssh"):
            raise RefusalError("ssh is not installed here: install your system's OpenSSH client.")

    def __str__(self) -> str:
        return f"{self.destination}:{self.folder}"

    def ssh(self, *arguments: str) -> list[str]:
        return ["ssh", *(f"-o{option}" for option in OPTIONS), f"-oControlPath={self.socket}", *arguments]

    def control(self, command: str) -> bool:
        """Ask the open connection, or end it; whether there is one."""
        ask = self.ssh("-O", command, self.destination)
        try:
            done = subprocess.run(ask, stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWERS)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def connect(self) -> None:
        """Open the connection, or make sure that the open one answers: a laptop may have slept since."""
        if self.control("check"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                ask = self.ssh(self.destination, "true")
                if subprocess.run(ask, stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWERS).returncode == 0:
                    return
            self.control("exit")
        self.socket.unlink(missing_ok=True)  # of one that was killed
        with tempfile.TemporaryFile() as errors, announced(f"Connecting to {self.destination} ..."):
            more = ["-o", "ControlMaster=yes", "-o", f"ControlPersist={PERSIST}", "-fN"]
            # not a pipe: the connection keeps it open
            code = subprocess.run(self.ssh(*more, self.destination), stdout=errors, stderr=errors).returncode
            errors.seek(0)
            text = errors.read().decode(errors="replace")
        if text:
            print(text, end="", file=sys.stderr)
        if code:
            last = (text.splitlines() or [f"ssh ended with status {code}"])[-1]
            why = next((why for words, why in FAILURES.items() if words in text), last).format(self.destination)
            raise RefusalError(f"{self.destination} cannot be reached: {why.rstrip('.')}.", LOST)

    # Requests

    def request(self, action: str, **facts: Any) -> bytes:
        """A request, with the program that reads it."""
        program = source() + b"\nmain(f)\n"
        content = {"action": action, "folder": self.folder, "folder_given": self.folder_given, **facts}
        return b"%d\n%s%s\n" % (len(program), program, json.dumps(content).encode())

    def start(self, **options: Any) -> subprocess.Popen[bytes]:
        """Start Python there; the request is its input."""
        command = "exec sh -c " + shlex.quote(START.format("0 rb"))
        return subprocess.Popen(self.ssh(self.destination, command), stdin=subprocess.PIPE, **options)

    @contextlib.contextmanager
    def exchange(self, action: str, **facts: Any) -> Iterator[tuple[subprocess.Popen[bytes], Iterator[Answer]]]:
        """Make a request: the process, for more input, and the answers to it."""
        self.connect()
        with self.start(stdout=subprocess.PIPE) as process:
            try:
                assert process.stdin
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(self.request(action, **facts))
                    process.stdin.flush()
                yield process, self.answers(process)
            finally:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()
                if sys.exc_info()[0]:
                    process.terminate()

    def answers(self, process: subprocess.Popen[bytes]) -> Iterator[Answer]:
        assert process.stdout
        other = b""
        for line in process.stdout:
            if line.startswith(MARK):
                answer = json.loads(line[len(MARK) :])
                if "error" in answer:
                    raise RefusalError(f"{self.destination}: {answer['error']}.")
                yield answer
                if "done" in answer:
                    return
            else:
                other = line
        if process.wait() == NO_PYTHON:
            version = other.decode(errors="replace").strip()
            has = f"has {version}" if version.startswith("Python") else "has no Python"
            raise RefusalError(
                f"{self.destination} {has}, and Python 3.9 or newer is needed there: install it, "
                "for example with `uv python install 3.13`."
            )
        raise RefusalError(f"The connection to {self.destination} was lost: run the same command again.", LOST)

    @contextlib.contextmanager
    def passing_on(self) -> Iterator[None]:
        """Pass on Ctrl-C and SIGTERM to the command that runs there, or is started next."""
        before = {number: signal.signal(number, self.pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def pass_on(self, number: int, _frame: Any) -> None:
        self.signals.append(number)
        self.unsent.append(number)
        self.tell()

    def tell(self) -> None:
        with contextlib.suppress(OSError, ValueError, IndexError):  # the last if a signal comes in between
            while self.process:
                os.write(self.process.stdin.fileno(), bytes([self.unsent.pop(0)]))
        if self.process and len(self.signals) >= 3:
            self.process.terminate()

    def run(
        self,
        arguments: list[str],
        variables: dict[str, str],
        absent: str,
        capture: bool = False,
        text: bytes = b"",
        held: bool = False,
    ) -> Ended:
        """Run `./launch` there. Ctrl-C and SIGTERM are passed on to it; at the third, its connection is closed.

        `capture`: return its output. `text`: its input. `held`: it starts with both signals blocked.
        """
        facts = {"arguments": arguments, "variables": variables, "absent": absent, "input": text.decode("latin-1")}
        facts["held"] = [signal.SIGINT, signal.SIGTERM] if held else []
        # a session of its own: Ctrl-C must not end ssh
        options = {"start_new_session": True, "stdout": subprocess.PIPE if capture else None}
        with self.passing_on(), self.start(**options) as process:
            assert process.stdin
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(self.request("command", **facts))
                process.stdin.flush()
            self.process = process
            self.tell()
            try:
                output = process.stdout.read().decode(errors="replace") if process.stdout else ""
                code = process.wait()
            finally:
                self.process = None
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()
        if code == NO_PYTHON:  # or the program's
            with self.exchange("reply") as (_, answers):
                next(answers)
        lost = code < 0 or (code == LOST and not self.control("check"))
        return Ended(LOST if lost else code, lost, output)

    def run_on_terminal(self, arguments: list[str], variables: dict[str, str], absent: str) -> int:
        """Run `./launch` there on this terminal, until it ends."""
        facts = {"arguments": arguments, "variables": variables, "absent": absent}
        with self.exchange("hand_over") as (process, answers):
            pipe = next(answers)["pipe"]
            assert process.stdin
            process.stdin.write(self.request("terminal", **facts))
            process.stdin.close()
            command = "exec sh -c " + shlex.quote(START.format(f"3 rb 3<{pipe}"))
            code = subprocess.run(self.ssh("-t", "-q", self.destination, command)).returncode
        if code == LOST and not self.control("check"):
            say(f"The connection to {self.destination} is lost.")
        return code if code >= 0 else 128 - code

    @contextlib.contextmanager
    def forwarding(self, here: int, there: int) -> Iterator[subprocess.Popen[bytes]]:
        """Forward a port of this machine to one there; the process ends when the connection does."""
        forward = ["-L", f"127.0.0.1:{here}:127.0.0.1:{there}"]
        # `cat` waits; with -N, ssh would end at once, because another process of it holds the connection
        command = self.ssh("-o", "ExitOnForwardFailure=yes", *forward, self.destination, "cat")
        # a session of its own: Ctrl-C must not end it before us
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "start_new_session": True}
        with subprocess.Popen(command, **options) as line:
            try:
                wait_for_port(here, line)
                yield line
            finally:
                line.terminate()
                subprocess.run(self.ssh("-O", "cancel", *forward, self.destination), capture_output=True)


def wait_for_port(port: int, line: subprocess.Popen[bytes]) -> None:
    """Until this machine's port is forwarded, or cannot be."""
    while line.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)


class Ended(NamedTuple):
    code: int
    lost: bool
    output: str


def source() -> bytes:
    """The program for the other side; from the wheel, too."""
    found = find_spec("gpukit.remote.there")
    assert found and found.loader
    text = found.loader.get_source("gpukit.remote.there")
    return text.encode()


def sockets() -> Path:
    """A folder that only this user can enter; short, because a socket's path has at most 104 characters."""
    own = os.environ.get("XDG_RUNTIME_DIR", "")  # after `su`, another user's
    place = Path(own if os.access(own, os.W_OK) else tempfile.gettempdir(), f"gpukit-{os.getuid()}")
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = place.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise RefusalError(f"{place} belongs to another user, or others can enter it: remove it.")
    return place
