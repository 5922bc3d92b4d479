"""`./launch setup` on hosts without Docker: Debian 12 and 13, with local repositories instead of the vendors'."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpukit.wheel import vendor, writer
from tests.conftest import cannot
from tests.engine.bare import SUITES, Bare, prepared, vendors
from tests.engine.conftest import Engine

# Words in the log at which it is interrupted, and how; the cases are divided between both Debians.
POINTS = {
    "12": [
        ("Setting up containerd.io", "power"),
        ("tee /etc/apt/sources.list.d/docker", "Ctrl-C"),
        ("service docker restart", "power"),
    ],
    "13": [
        ("Setting up containerd.io", "Ctrl-C"),
        ("Setting up libnvidia-container1", "power"),
        ("nvidia-ctk runtime configure", "Ctrl-C"),
    ],
}


@dataclass
class Hosts:
    """Creates identical bare hosts of one Debian."""

    engine: Engine
    image: str
    project: Path
    stands_in: Path
    version: str
    made: list[Bare] = field(default_factory=list)

    def __call__(self) -> Bare:
        self.made.append(Bare(self.engine, self.image, self.project, self.stands_in))
        return self.made[-1]


@pytest.fixture(scope="module", params=SUITES, ids=SUITES.values())
def another(request, plain: Engine, generate, tmp_path_factory) -> Iterator[Hosts]:
    for tool in ("gpg", "dpkg-deb"):
        if not shutil.which(tool):
            cannot(f"there is no {tool}")
    image = prepared(plain, request.param)
    if not image:
        pytest.skip(f"no image of Debian {request.param} is here, nor can one be pulled")
    folder = vendors(tmp_path_factory.mktemp("vendors"), SUITES[request.param])
    project = shutil.copytree(generate(hardware="rtx-50"), tmp_path_factory.mktemp("setup") / "project")
    vendor.put(writer.running(), project)
    hosts = Hosts(plain, image, project, folder, request.param)
    yield hosts
    for host in hosts.made:
        host.end()


@pytest.fixture
def host(another: Hosts) -> Iterator[Bare]:
    made = another()
    yield made
    made.end()


@pytest.fixture(scope="module")
def finished(another: Hosts) -> str:
    """The state of a host after an uninterrupted setup."""
    made = another()
    assert made.setup("--apply", "--yes").returncode == 0
    return made.state()


def test_apply_again_and_undo(host: Bare) -> None:
    """As a regular user: every step is verified, a second run changes nothing, and --undo restores the first state."""
    before = host.state()
    shown = host.setup()
    assert shown.returncode == 0, shown.stderr
    assert host.state() == before
    done = host.setup("--apply", "--yes")
    assert done.returncode == 0, done.stderr
    for step in ("docker", "toolkit", "runtime", "group"):
        assert f"setup: {step}: verified" in done.stderr
    after = host.state()
    for part in ("docker-ce 1.0", "nvidia-container-toolkit 1.0", "docker.sources", "docker/daemon.json"):
        assert part in after
    again = host.setup("--apply", "--yes")
    assert again.returncode == 0, again.stderr
    assert "has everything" in again.stderr
    assert host.state() == after
    undone = host.setup("--undo", "--yes")
    assert undone.returncode == 0, undone.stderr
    left = "\n".join(line for line in host.state().splitlines() if not line.endswith("/etc/group"))
    assert left == "\n".join(line for line in before.splitlines() if not line.endswith("/etc/group"))
    assert "docker" not in host.run("id -nG me").stdout


def test_the_shown_commands_do_the_same_when_pasted(host: Bare, finished: str) -> None:
    shown = host.setup("> ~/steps.sh", steps="docker,toolkit,runtime,group")
    assert shown.returncode == 0, shown.stderr
    pasted = host.run("bash ~/steps.sh")
    assert pasted.returncode == 0, pasted.stdout + pasted.stderr
    assert host.state() == finished


def test_interrupted_and_run_again(another: Hosts, finished: str) -> None:
    """In dpkg, between two commands, and in the last step, by Ctrl-C or as in a power failure."""
    for at, how in POINTS[another.version]:
        host = another()
        host.interrupt(at, how)
        again = host.setup("--apply", "--yes")
        assert again.returncode == 0, f"{how} at {at}: {again.stderr}"
        assert host.state() == finished, f"{how} at {at}"
        host.end()


def test_a_key_that_is_not_pinned_is_refused(host: Bare) -> None:
    host.run("cp /vendors/toolkit/gpg /vendors/docker/gpg", user="root")
    done = host.setup("--apply", "--yes")
    assert done.returncode == 1
    assert "is not Docker's" in done.stderr
    assert "/etc/apt/keyrings/docker.asc" not in host.state()
    assert "docker-ce" not in host.state()


def test_undo_refuses_packages_that_others_need(host: Bare) -> None:
    assert host.setup("--apply", "--yes").returncode == 0
    control = "Package: mine\\nVersion: 1\\nArchitecture: all\\nMaintainer: me\\nDepends: docker-ce\\nDescription: x\\n"
    make = f"mkdir -p /tmp/mine/DEBIAN && printf '{control}' > /tmp/mine/DEBIAN/control && cd /tmp"
    assert host.run(f"{make} && dpkg-deb --build mine && dpkg -i mine.deb", "root").returncode == 0
    after = host.state()
    undone = host.setup("--undo", "--yes")
    assert undone.returncode == 1
    assert "other packages need them (mine)" in undone.stderr
    assert " docker-ce 1.0" in after and " docker-ce 1.0" in host.state()
