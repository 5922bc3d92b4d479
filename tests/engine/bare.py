"""Hosts without Docker, as containers of plain Debian, and local repositories that replace the vendors'.

The repositories have the vendors' layout and are signed with keys created here. Their packages are small: docker is a
script that responds like an engine once its service has been started, and nvidia-ctk writes what the real one writes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import subprocess
import time
import uuid
from pathlib import Path

from tests.conftest import until
from tests.engine.conftest import SLUG, Done, Engine

IMAGES = {"12": ("debian:12", "standin/debian:12", "standin/python:slim"), "13": ("debian:13", "standin/debian:13")}
SUITES = {"12": "bookworm", "13": "trixie"}
DOCKER = """\
#!/bin/sh
here=/run/docker-stands-in
[ "$1" = --version ] && { echo 'Docker version 29.1.2, build standin'; exit; }
[ "$1" = context ] && { echo unix:///var/run/docker.sock; exit; }
[ -e $here ] || { echo 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock.' >&2; exit 1; }
[ -w $here ] || { echo 'permission denied while trying to connect to the Docker daemon socket' >&2; exit 1; }
runtimes='{"runc": {}'
grep -qs nvidia-container-runtime $here && runtimes="$runtimes"', "nvidia": {}'
case "$*" in
    version*Server*) echo 29.1.2 ;;
    *Runtimes*) echo "$runtimes}" ;;
    *) echo '{"ServerVersion": "29.1.2", "OSType": "linux", "Runtimes": '"$runtimes}}" ;;
esac
"""
SERVICE = """\
#!/bin/sh
# As dockerd, it reads its configuration when it starts.
case "$1" in start | restart)
    sleep 2
    rm -f /run/docker-stands-in
    { cat /etc/docker/daemon.json 2> /dev/null || echo '{}'; } > /run/docker-stands-in
    chown root:docker /run/docker-stands-in && chmod 660 /run/docker-stands-in ;;
esac
"""
CTK = """\
#!/bin/sh
case "$*" in
    --version) echo 'NVIDIA Container Toolkit CLI version 1.20.1' ;;
    'runtime configure --runtime=docker')
        sleep 2
        mkdir -p /etc/docker
        echo '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}' > /etc/docker/daemon.json ;;
    *) exit 1 ;;
esac
"""
# package: dependencies, files, and the script that runs after unpacking, long enough to be interrupted
PACKAGES = {
    "docker": {
        "containerd.io": ((), {}, "sleep 2"),
        "docker-ce-cli": ((), {"usr/bin/docker": DOCKER}, ""),
        "docker-ce": (
            ("containerd.io", "docker-ce-cli", "iptables"),
            {"etc/init.d/docker": SERVICE},
            "getent group docker > /dev/null || groupadd --system docker",
        ),
        "docker-buildx-plugin": ((), {}, ""),
        "docker-compose-plugin": ((), {}, ""),
    },
    "toolkit": {
        "libnvidia-container1": ((), {}, "sleep 2"),
        "nvidia-container-toolkit": (
            ("libnvidia-container1",),
            {"usr/bin/nvidia-ctk": CTK, "usr/bin/nvidia-container-runtime": "#!/bin/sh\n"},
            "",
        ),
    },
}
STATE = """\
dpkg-query --show --showformat '${db:Status-Abbrev} ${Package} ${Version}\\n'
find /etc/apt /etc/docker /etc/group /usr/share/keyrings -type f -exec sha256sum {} + 2> /dev/null | sort -k 2
"""


def vendors(folder: Path, suite: str) -> Path:
    """Create both repositories for a suite, and the file for --mirrors."""
    home = folder / "gnupg"
    home.mkdir(mode=0o700)
    found = {}
    for name, packages in PACKAGES.items():
        base = folder / name
        below = base / f"dists/{suite}/stable/binary-amd64" if name == "docker" else base / "amd64"
        pool = base / "pool" if name == "docker" else below
        for place in (below, pool):
            place.mkdir(parents=True, exist_ok=True)
        index = []
        for package, about in packages.items():
            path = _package(folder, pool, package, *about)
            data = path.read_bytes()
            name_in = path.relative_to(base if name == "docker" else below)
            control = subprocess.run(["dpkg-deb", "--field", path], check=True, capture_output=True, text=True).stdout
            index.append(
                f"{control}Filename: {name_in}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
            )
        text = "\n".join(index).encode()
        (below / "Packages").write_bytes(text)
        (below / "Packages.gz").write_bytes(gzip.compress(text))
        top = base / f"dists/{suite}" if name == "docker" else below
        sums = [
            f" {hashlib.sha256(file.read_bytes()).hexdigest()} {file.stat().st_size} {file.relative_to(top)}"
            for file in (below / "Packages", below / "Packages.gz")
        ]
        head = [
            f"Origin: {name}",
            f"Suite: {suite}",
            f"Codename: {suite}",
            "Architectures: amd64",
            "Components: stable",
        ]
        head += [f"Date: {time.strftime('%a, %d %b %Y %H:%M:%S UTC', time.gmtime())}", "SHA256:"]
        (top / "Release").write_text("\n".join([*head, *sums, ""]))
        gpg = ["gpg", "--homedir", home, "--batch", "--yes", "--passphrase", ""]
        subprocess.run([*gpg, "--quick-gen-key", name, "ed25519", "sign", "never"], check=True, capture_output=True)
        listed = subprocess.run([*gpg, "--with-colons", "-k", name], check=True, capture_output=True, text=True).stdout
        found[name] = re.search(r"^fpr:+([0-9A-F]{40}):", listed, re.MULTILINE)[1]
        sign = [*gpg, "--local-user", found[name], "--output", top / "InRelease", "--clearsign", top / "Release"]
        subprocess.run(sign, check=True, capture_output=True)
        export = [*gpg, "--armor", "--output", base / "gpg", "--export", found[name]]
        subprocess.run(export, check=True, capture_output=True)
    subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], capture_output=True)
    mirrors = {
        name: {"address": f"file:///vendors/{name}", "key": f"file:///vendors/{name}/gpg", "fingerprint": fingerprint}
        for name, fingerprint in found.items()
    }
    (folder / "mirrors.json").write_text(json.dumps(mirrors))
    for made in ("gnupg", "trees"):
        shutil.rmtree(folder / made)
    return folder


def _package(folder: Path, pool: Path, name: str, needs: tuple[str, ...], files: dict[str, str], after: str) -> Path:
    tree = folder / "trees" / name
    (tree / "DEBIAN").mkdir(parents=True)
    control = [f"Package: {name}", "Version: 1.0", "Architecture: amd64", "Maintainer: tests <tests@example.com>"]
    control += [f"Depends: {', '.join(needs)}"] if needs else []
    (tree / "DEBIAN/control").write_text("\n".join([*control, "Description: stands in for the vendor's", ""]))
    if after:
        (tree / "DEBIAN/postinst").write_text(f"#!/bin/sh\nset -e\n{after}\n")
        (tree / "DEBIAN/postinst").chmod(0o755)
    for path, text in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
        (tree / path).chmod(0o755)
    made = pool / f"{name}_1.0_amd64.deb"
    build = ["dpkg-deb", "--build", "--root-owner-group", tree, made]
    subprocess.run(build, check=True, capture_output=True)
    return made


class Bare:
    """A host without Docker: a container of plain Debian, with a regular user who has sudo and a project."""

    def __init__(self, engine: Engine, image: str, project: Path, stands_in: Path) -> None:
        self.engine = engine
        self.name = f"{SLUG}-bare-{uuid.uuid4().hex[:8]}"
        engine.get("run", "--detach", "--network=host", "--name", self.name, image, "sleep", "infinity")
        engine.get("cp", str(project), f"{self.name}:/home/me/project")
        engine.get("cp", str(stands_in), f"{self.name}:/vendors")
        engine.get("exec", self.name, "sh", "-c", "chown -R me: /home/me && chmod -R a+rX /vendors")

    def end(self) -> None:
        self.engine.ask("rm", "--force", self.name)

    def run(self, line: str, user: str = "me", timeout: float = 120) -> Done[str]:
        words = ["exec", "--user", user, "--workdir", "/home/me/project", self.name, "sh", "-c", line]
        return self.engine.ask(*words, timeout=timeout)

    def setup(self, *words: str, steps: str = "docker,toolkit,runtime,group", user: str = "me") -> Done[str]:
        only = "" if "--undo" in words else f"--only dpkg,engine,{steps}"
        return self.run(f"./launch setup --mirrors /vendors/mirrors.json {only} {' '.join(words)}", user)

    def state(self) -> str:
        """Everything that setup changes: packages, sources, keys, Docker's configuration, groups."""
        done = self.run(STATE, user="root")
        assert done.returncode == 0, done.stderr
        return done.stdout

    def log(self) -> str:
        return self.run("cat ~/.local/state/gpu-template/setup-*.log").stdout

    def interrupt(self, at: str, how: str) -> None:
        """Start --apply, and end it when its log contains these words, with Ctrl-C or as in a power failure."""
        # Not with `&`, because a shell's background processes ignore Ctrl-C.
        begin = "./launch setup --mirrors /vendors/mirrors.json --only dpkg,engine,docker,toolkit,runtime,group"
        words = ["exec", "--detach", "--user", "me", "--workdir", "/home/me/project", self.name, "sh", "-c"]
        self.engine.get(*words, f"echo $$ > ~/pid; exec {begin} --apply --yes > ~/out 2>&1")
        until(lambda: at in self.log(), shown=self.log)
        group = "pkill -INT -g $(ps -o pgid= -p $(cat /home/me/pid) | tr -d ' ')"
        ended = self.run("kill -9 -1" if how == "power" else group, user="root")
        assert ended.returncode in (0, 137), ended.stderr
        # Zombies do not count.
        until(lambda: self.run("pgrep -r D,R,S -f '[l]aunch setup|^apt-get|^dpkg'", user="root").returncode)
        assert "All done" not in self.log()


def prepared(engine: Engine, version: str) -> str:
    """An image of this Debian with Python, sudo, the steps' prerequisites, and a user; '' if it cannot be built.

    It is kept, because it does not depend on this repository.
    """
    image = f"{SLUG}-bare:{version}"
    if engine.has(image):
        return image
    base = next((each for each in IMAGES[version] if engine.has(each)), None)
    if base is None and engine.ask("pull", IMAGES[version][0], timeout=300).returncode == 0:
        base = IMAGES[version][0]
    if base is None:
        return ""
    name = f"{SLUG}-bare-{uuid.uuid4().hex[:8]}"
    first = "python3 sudo procps ca-certificates curl gnupg iptables"
    lines = [
        # dpkg syncs after each file, which takes most of the time and does not matter here
        "apt-get update -qq && apt-get install -qq --no-install-recommends libeatmydata1 > /dev/null",
        "echo /usr/lib/$(uname -m)-linux-gnu/libeatmydata.so > /etc/ld.so.preload",
        f"DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends {first} > /dev/null",
        "useradd --create-home --shell /bin/bash me && echo 'me ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/me",
        # everything needed from Debian is installed, so no test waits for the network
        "rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* /var/lib/apt/lists/*",
    ]
    engine.get("run", "--detach", "--network=host", "--name", name, base, "sleep", "infinity")
    try:
        for line in lines:
            engine.get("exec", name, "sh", "-ec", line, timeout=240)
        engine.get("commit", name, image)
    finally:
        engine.ask("rm", "--force", name)
    return image
