"""`./launch --host`: sending 10,000 files, and losing the connection or the other machine in the middle.

uv run python benchmarks/over_ssh.py

The other machine is a second user of this one, behind an sshd on the loopback address (tests/launch/box.py; needs
root), so the time on a network comes on top. At a random time of a send of a smaller project, this side is killed, the
other side, or the connection: sshd's processes for it. Unless the other side was killed, it then has the whole old or
the whole new version; after any of them, the next send makes it whole. --rounds is the number of measured sends; each
of the three is repeated ten times as often.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness import Benchmark, commit

from tests.launch.box import NAME, Box, box

FILES = 10_000
CHANGED = 500  # files of the project whose sends are killed
SEND = """
import pathlib, sys
from gpukit.remote import connection, files
files.send(connection.Host(sys.argv[2], ""), pathlib.Path(sys.argv[1]), "./launch")
"""


def write(root: Path, number: int, count: int) -> None:
    for index in range(count):
        path = root / f"src/part{index // 100}/module{index}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"version = {number}\n" + "# a line of a module\n" * 40)


def version(root: Path) -> set[str]:
    """The versions of the files of the smaller project."""
    files = [root / f"src/part{index // 100}/module{index}.py" for index in range(CHANGED)]
    return {file.read_text().split("\n")[0] for file in files}


def project(root: Path, count: int) -> Path:
    write(root, 0, count)
    commit(root)
    return root


class Sender:
    def __init__(self, machine: Box, root: Path, folder: str) -> None:
        self.root = root
        self.there = machine.home / folder
        self.command = [sys.executable, "-c", SEND, str(root), f"{NAME}:{folder}"]
        self.env = {**os.environ, **machine.environment, "PYTHONPATH": os.pathsep.join(sys.path)}

    def start(self) -> subprocess.Popen[bytes]:
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen(self.command, env=self.env, start_new_session=True, **quiet)

    def send(self) -> float:
        begun = time.perf_counter()
        if self.start().wait():
            raise SystemExit("A send failed.")
        return time.perf_counter() - begun

    def kill(self, seconds: float, sshd: int, program: bytes) -> None:
        """Start a send, and kill it after this time; `program`: what is killed of sshd's processes, instead of ours."""
        process = self.start()
        time.sleep(seconds)
        if program:
            for one in descendants(sshd):
                if program in command_line(one):
                    os.kill(one, signal.SIGKILL)
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def descendants(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout.split()
    return [*map(int, listed), *(inner for child in listed for inner in descendants(int(child)))]


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def main() -> None:
    with Benchmark("A GPU over SSH", __doc__, rounds=5) as bench, box() as machine:
        root = project(bench.spare / "project", FILES)
        first = []
        again = []
        one = []
        for number in range(bench.rounds):
            sender = Sender(machine, root, f"first/{number}")
            first.append(sender.send())
            again.append(sender.send())
            write(root, number + 1, 1)
            one.append(sender.send())
        bench.figure(f"the first send, {FILES} files", first)
        bench.figure("again, nothing has changed", again)
        bench.figure("again, one file has changed", one)
        bench.result(f"a second send of an unchanged project of {FILES} files", sorted(again)[len(again) // 2], "s", 2)
        root = project(bench.spare / "smaller", CHANGED)
        sender = Sender(machine, root, "smaller")
        most = max(sender.send() for _ in range(3))
        dice = random.Random(34)
        for who, program in (("this side", b""), ("the other side", b"python"), ("the connection", b"sshd")):
            halves = wrong = 0
            repeats = bench.rounds * 10
            for number in range(100, 100 + repeats):
                before = version(sender.there)
                write(root, number, CHANGED)
                sender.kill(dice.uniform(0, most), machine.sshd.pid, program)
                with (sender.there / ".launch/sent.lock").open("r+") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX)  # the other side has ended what it had begun
                found = version(sender.there)
                halves += found not in (before, {f"version = {number}"})
                sender.send()
                wrong += version(sender.there) != {f"version = {number}"}
            if who != "the other side":
                bench.result(f"{who}, killed in {repeats} sends: neither old nor new", halves, at_most=0)
            bench.result(f"{who}, killed in {repeats} sends: not whole after the next one", wrong, at_most=0)


if __name__ == "__main__":
    main()
