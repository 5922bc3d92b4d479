"""Another machine for tests: an sshd of our own on the loopback address, where a second user logs in.

There, the PATH has no git, rsync, or sudo. Without root, the second user is this one, with another home directory.
"""

from __future__ import annotations

import contextlib
import grp
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.ports import free_port

ABSENT = ("git", "rsync", "sudo")
NAME = "gpukit-box"  # as the laptop's ~/.ssh/config calls it


@dataclass(frozen=True)
class Box:
    place: Path
    home: Path
    user: str
    sshd: subprocess.Popen

    @property
    def environment(self) -> dict[str, str]:
        """Of the laptop: its `ssh` reads a configuration of ours instead of ~/.ssh/config."""
        path = f"{self.place}/laptop{os.pathsep}{os.environ['PATH']}"
        return {"PATH": path, "XDG_RUNTIME_DIR": str(self.place / "laptop")}

    @property
    def known_hosts(self) -> Path:
        return self.place / "laptop/known_hosts"

    @contextlib.contextmanager
    def programs(self, *names: str) -> Iterator[Path]:
        """Instead of all programs, only these are on the PATH there; yields their folder."""
        few = Path(tempfile.mkdtemp(dir=self.place))
        path = self.place / "path"
        few.chmod(0o755)
        for name in names:
            (few / name).symlink_to(f"/usr/bin/{name}")
        everything = path.readlink()
        path.unlink()
        path.symlink_to(few)
        try:
            yield few
        finally:
            path.unlink()
            path.symlink_to(everything)

    def processes(self) -> str:
        """The command lines of all processes of this machine."""
        return subprocess.run(["ps", "-eo", "args", "-ww"], capture_output=True, text=True, check=True).stdout


@contextlib.contextmanager
def box(user: str = "", **environment: str) -> Iterator[Box]:
    """`user`: who logs in; empty: a new one. `environment`: variables that are set there; `{place}`: this machine's."""
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    assert sshd, "sshd is needed: `apt-get install openssh-server`"
    with tempfile.TemporaryDirectory(prefix="box-") as folder, contextlib.ExitStack() as stack:
        place = Path(folder)
        place.chmod(0o755)
        home = place / "home"
        if os.getuid() != 0:
            user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        if user:
            home.mkdir()
        else:
            user = f"box{os.getpid()}"
            groups = [f"--groups={group.gr_name}" for group in grp.getgrall() if group.gr_name == "docker"]
            # a password that is only locked would also lock out keys
            create = ["useradd", "--password=*", "--create-home", f"--home-dir={home}", *groups, user]
            subprocess.run(create, check=True)
            stack.callback(subprocess.run, ["userdel", "--force", user], check=True, capture_output=True)
        programs(place)
        (place / "laptop").mkdir()
        for name in ("host", "laptop/key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / name], check=True)
        port = free_port()
        variables = {"PATH": f"{place}/path", "HOME": str(home), "LANG": "C.UTF-8"}
        variables.update({name: value.format(place=place) for name, value in environment.items()})
        (place / "sshd_config").write_text(
            f"Port {port}\nListenAddress 127.0.0.1\nHostKey {place}/host\nAuthorizedKeysFile {place}/laptop/key.pub\n"
            "PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            f"PrintMotd no\nSetEnv {' '.join(f'{name}={value}' for name, value in variables.items())}\n"
        )
        (place / "laptop/config").write_text(
            f"Host {NAME}\n  HostName 127.0.0.1\n  Port {port}\n  User {user}\n  IdentityFile {place}/laptop/key\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {place}/laptop/known_hosts\n"
            "  RequestTTY yes\n  RemoteCommand tmux\n"  # as some users have it
        )
        public = (place / "host.pub").read_text()
        (place / "laptop/known_hosts").write_text(f"[127.0.0.1]:{port} {public}")
        (place / "laptop/ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {place}/laptop/config "$@"\n')
        (place / "laptop/ssh").chmod(0o755)
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        log = stack.enter_context((place / "sshd.log").open("w"))
        process = stack.enter_context(subprocess.Popen([sshd, "-D", "-e", "-f", place / "sshd_config"], stderr=log))
        stack.callback(end, process.pid)
        wait_for_port(port)
        yield Box(place, home, user, process)
        end_processes(user, place)


def programs(place: Path) -> None:
    """All programs of this machine, except ABSENT; and uv, if it is here."""
    (place / "programs").mkdir()
    for folder in ("/usr/bin", "/bin", "/usr/local/bin"):
        for path in Path(folder).iterdir():
            link = place / "programs" / path.name
            if not path.name.startswith(ABSENT) and not os.path.lexists(link):
                link.symlink_to(path)
    uv = os.environ.get("UV") or shutil.which("uv")  # the first is set by `uv run`; on the PATH may be a script
    if uv:
        (place / "programs/uv").unlink(missing_ok=True)
        shutil.copy2(uv, place / "programs/uv")
    (place / "path").symlink_to("programs")


def end(pid: int) -> None:
    """Kill a process and its children, which are the connections."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout.split()
    for child in map(int, listed):
        end(child)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 9)


def wait_for_port(port: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise TimeoutError("sshd does not answer")


def end_processes(user: str, place: Path) -> None:
    """End what runs in the folder of this machine there, so that the user can be removed."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "cwd").readlink().is_relative_to(place):
                os.kill(int(folder.name), 9)
