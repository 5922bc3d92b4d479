"""Setup's probes, in addition to doctor's: the distribution, its packages, this user."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import re
import shutil
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from gpukit.doctor.host import Host
from gpukit.host.process import LONG_TIMEOUT, run

SOURCES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d")
UPDATES = "/var/lib/dpkg/updates"


class Machine(Host):
    """This machine as it is now: created again before each step."""

    @cached_property
    def release(self) -> dict[str, str]:
        """/etc/os-release: ID is debian, VERSION_ID 12."""
        lines = re.findall(r"^([A-Z_]+)=\"?([^\"\n]*)\"?$", self.text("/etc/os-release") or "", re.MULTILINE)
        return dict(lines)

    @cached_property
    def packages(self) -> frozenset[str]:
        return installed()

    @cached_property
    def unfinished(self) -> bool:
        """Whether an installation was interrupted. `dpkg --audit` may need root, so dpkg's journal is checked first."""
        with contextlib.suppress(OSError):
            if any(path.name.isdigit() for path in Path(UPDATES).iterdir()):
                return True
        return bool(run(["dpkg", "--audit"], LONG_TIMEOUT).out.strip())

    @cached_property
    def sources(self) -> dict[str, str]:
        """apt's sources: file and text."""
        files: list[Path] = []
        for place in map(Path, SOURCES):
            files += sorted(place.iterdir()) if place.is_dir() else [place]
        return {str(file): self.text(str(file)) or "" for file in files if file.suffix in (".list", ".sources")}

    @cached_property
    def root(self) -> bool:
        return os.geteuid() == 0

    @cached_property
    def user(self) -> str:
        """The user who will work here: the one who called sudo, if any."""
        called = os.environ.get("SUDO_USER", "") if self.root else ""
        with contextlib.suppress(KeyError):  # a container's user may have no name
            called = called or pwd.getpwuid(os.geteuid()).pw_name
        return called or str(os.geteuid())

    @cached_property
    def in_group(self) -> bool:
        """Whether that user is in the group `docker`, possibly only from the next login on."""
        try:
            group = grp.getgrnam("docker")
            return self.user in group.gr_mem or pwd.getpwnam(self.user).pw_gid == group.gr_gid
        except KeyError:
            return False

    @cached_property
    def systemd(self) -> bool:
        return self.exists("/run/systemd/system")

    @cached_property
    def sudo(self) -> bool:
        return shutil.which("sudo") is not None

    @cached_property
    def uv(self) -> bool:
        """Whether uv is on the PATH, or where setup installs it, which is on the PATH from the next login on."""
        return shutil.which("uv") is not None or os.access(Path("~/.local/bin/uv").expanduser(), os.X_OK)

    @cached_property
    def next_driver(self) -> str:
        """The version of the kernel module on the disk, which is loaded at the next start."""
        return run(["modinfo", "-F", "version", "nvidia"], LONG_TIMEOUT).out.strip()


def installed() -> frozenset[str]:
    """Debian packages that are installed."""
    rows = run(["dpkg-query", "--show", "--showformat", "${db:Status-Status} ${Package}\\n"], LONG_TIMEOUT).out
    return frozenset(row.split()[1] for row in rows.splitlines() if row.startswith("installed "))


def in_sources(sources: dict[str, str], address: str, but: Iterable[str]) -> bool:
    """Whether apt already has this address, from a file other than these."""
    plain = re.sub(r"^https?://", "", address).rstrip("/").replace("$(ARCH)", "")
    return any(plain in text for file, text in sources.items() if file not in but)
