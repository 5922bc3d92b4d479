"""The steps, in order: when a host lacks one, the commands, the check that proves it, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpukit.doctor import driver as drivers
from gpukit.doctor import engine as engines
from gpukit.doctor import grant
from gpukit.findings.finding import FAIL, WARN, Finding
from gpukit.host.cards import cards
from gpukit.project.stack import Stack, Target, version
from gpukit.setup.machine import mentions
from gpukit.setup.systems import (
    DOCKER,
    DRIVER,
    PREINSTALLED,
    TOOLKIT,
    UV,
    UV_HASHES,
    Repository,
    System,
)

CACHE, SHARE = "~/.cache/gpu-template", "~/.local/share/gpu-template"
INSTALL = "sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-remove"
FINGERPRINTS = 'awk -F: \'$1 == "pub" {key = 1} $1 == "fpr" && key {print $10; key = 0}\''
DOCKER_PACKAGES = ("docker-ce", "docker-ce-cli", "containerd.io", "docker-buildx-plugin", "docker-compose-plugin")
# What a new driver cures.
DRIVER_LACKS = (
    drivers.NOT_INSTALLED,
    drivers.NOUVEAU,
    drivers.NO_TOOLS,
    drivers.ABSENT,
    drivers.NOT_LISTED,
    drivers.HALF_INSTALLED,
    drivers.ANCIENT,
    drivers.TOO_OLD,
)
DOCKER_LACKS = (engines.NOT_INSTALLED, engines.WSL_SWITCH, engines.CLIENT_BROKEN)


@dataclass(frozen=True)
class Setting:
    """All that the steps are made from.

    `saw`: the probes; `wanted`: the steps that were asked for by name; `begun`: those that an earlier run did not end.
    """

    probes: Any
    stack: Stack
    system: System
    repositories: dict[str, Repository]
    target: Target | None = None  # the hardware of this machine, where the project's targets need different drivers
    wanted: tuple[str, ...] = ()
    begun: tuple[str, ...] = ()

    @property
    def client(self) -> Finding:
        return engines.client(self.probes, self.stack)

    @property
    def engine(self) -> Finding:
        return engines.engine(self.probes, self.stack)

    @property
    def driver(self) -> Finding:
        return drivers.driver(self.probes, self.stack)

    @property
    def docker_comes(self) -> bool:
        """Whether Docker is still to be installed."""
        return any(cause.found(self.client) for cause in DOCKER_LACKS)

    @property
    def preinstalled(self) -> tuple[str, str]:
        """The name and the page of a system that brings its own driver, Docker and toolkit; empty for others."""
        return next((about for file, about in PREINSTALLED.items() if self.probes.exists(file)), ("", ""))

    def gpu(self, step: str) -> bool:
        """Whether a step for the GPU has a place here: there is one, or the step was asked for by name."""
        if not self.stack.gpu or self.preinstalled[0]:
            return False
        return step in self.wanted or not any(cause.found(self.driver) for cause in (drivers.NO_CARD, drivers.MAC))

    @property
    def desktop(self) -> bool:
        """Docker Desktop gives containers the GPU by itself."""
        return engines.desktop(engines.facts(self.probes.info))

    @property
    def floor(self) -> str:
        """The oldest driver that serves the base and this machine's hardware."""
        targets = [self.target] if self.target else self.stack.targets.values()
        floors = [self.stack.driver, *(target.driver for target in targets)]
        return max((floor for floor in floors if floor), key=version, default="0")

    @property
    def hardware(self) -> list[Target]:
        """The project's targets with a driver that can be installed, or the one that this machine is."""
        targets = [self.target] if self.target else [*self.stack.targets.values()]
        return [each for each in targets if each.modules and each.arch == self.probes.arch]

    def restart(self, verb: str = "restart") -> str:
        if not self.probes.systemd:
            return f"sudo service docker {verb}"
        return "sudo systemctl enable --now docker" if verb == "start" else f"sudo systemctl {verb} docker"


@dataclass(frozen=True)
class Step:
    """`commands` are shell lines, `proof` one that succeeds when the step is done.

    `writes` are the files that it makes or changes, `undo` what takes back the rest; packages are found out as it runs.
    `waits` says why it cannot be done now; `blocks` says what a person has to decide first. `back` is false for what
    ends somebody else's work: there is no way back from it.
    """

    id: str
    title: str
    why: str
    source: Callable[[Setting], str]
    needed: Callable[[Setting], bool]
    commands: Callable[[Setting], list[str]]
    proof: Callable[[Setting], str]
    writes: Callable[[Setting], list[str]] = lambda at: []
    undo: Callable[[Setting], list[str]] = lambda at: []
    notes: Callable[[Setting], list[str]] = lambda at: []
    waits: Callable[[Setting], str] = lambda at: ""
    blocks: Callable[[Setting], str] = lambda at: ""
    back: bool = True


def add(name: str, at: Setting) -> list[str]:
    """Lines that make apt know a repository, none where it does; a key that is not the pinned one is not installed."""
    repository = at.repositories[name]
    if mentions(at.probes.sources, repository.address, (repository.file,)):
        return []
    key, binary = f"{CACHE}/{name}.key", f"{CACHE}/{name}.gpg"
    then = [f"sudo install -D -m 0644 {key} {repository.keyring}"]
    if repository.keyring.endswith(".gpg"):
        install = f"sudo install -D -m 0644 {binary} {repository.keyring}"
        then = [f"gpg --batch --yes --dearmor -o {binary} {key}", install]
    shown = f'test "$(gpg --show-keys --with-colons {key} |\n    {FINGERPRINTS})" = {repository.fingerprint}'
    return [
        f"mkdir -p {CACHE}",
        f"curl -fsSL {repository.key} -o {key}",
        " &&\n    ".join([shown, *then]),
        written(repository.file, repository.entry),
        *[written(*repository.pin)] * bool(repository.pin[0]),
    ]


def written(file: str, text: str) -> str:
    return f"sudo tee {file} > /dev/null <<'EOF'\n{text}\nEOF"


def files(repository: Repository) -> list[str]:
    return [file for file in (repository.file, repository.keyring, repository.pin[0]) if file]


def _from(name: str, *packages: str, before: tuple[str, ...] = ()) -> Callable[[Setting], list[str]]:
    """Install packages from one of the repositories."""

    def commands(at: Setting) -> list[str]:
        first = ["sudo apt-get update", f"{INSTALL} {' '.join(('ca-certificates', 'curl', 'gnupg', *before))}"]
        repository = add(name, at)
        return [*first, *repository, *["sudo apt-get update"] * bool(repository), f"{INSTALL} {' '.join(packages)}"]

    return commands


# The driver


def _driver_needed(at: Setting) -> bool:
    if not at.gpu("driver") or at.probes.system != "linux" or "driver" not in at.repositories or not at.hardware:
        return False
    return any(cause.found(at.driver) for cause in DRIVER_LACKS) and not _restart_runs_it(at)


def _restart_runs_it(at: Setting) -> bool:
    """Whether a driver that is new enough is installed, and another or none runs."""
    there = at.probes.next_driver
    return bool(there) and there != at.probes.module and version(there) >= version(at.floor)


def _driver_commands(at: Setting) -> list[str]:
    last = next((target.last_driver for target in at.hardware if target.last_driver), None)
    old = any(target.modules == "proprietary" for target in at.hardware)
    lines = _from("driver", "cuda-drivers" if old else "nvidia-open", before=('"linux-headers-$(uname -r)"',))(at)
    return [*lines[:-1], *[f"{INSTALL} nvidia-driver-pinning-{last}"] * bool(last), lines[-1]]


def _driver_blocks(at: Setting) -> str:
    kinds = {("proprietary" if each.modules == "proprietary" else "open", each.last_driver) for each in at.hardware}
    if len(kinds) < 2:
        return ""
    ids = ", ".join(at.stack.targets)
    whose = f"The card is not known; it can be one of {ids}" if at.stack.standalone else f"This project is for {ids}"
    return (
        f"{whose}, which need different drivers: name the one that this machine has, "
        f"as in `./launch setup --hardware {next(iter(at.stack.targets))}`."
    )


def _driver_notes(at: Setting) -> list[str]:
    notes = ["Restart the machine to load it, then run `./launch setup` again."]
    if at.probes.secure_boot:
        notes.append(f"Secure Boot is on: {drivers.SECURE_BOOT.remedy}.")
    return notes


# Docker, the toolkit, and what lets them find each other


def _docker_blocks(at: Setting) -> str:
    there = [package for package in at.system.exclude if package in at.probes.packages]
    if not there:
        return ""
    return (
        f"{', '.join(there)} conflict with Docker's own packages. If nothing else needs them: "
        f"`sudo apt-get remove {' '.join(there)}` removes them and keeps images; then run this again."
    )


def _docker_notes(at: Setting) -> list[str]:
    if at.probes.system != "wsl":
        return []
    return [
        "Or install Docker Desktop on Windows and switch on its WSL integration for this distribution: then neither "
        "this step nor the toolkit is needed here."
    ]


def _engine_needed(at: Setting) -> bool:
    there = {"docker-ce", "docker.io"} & at.probes.packages
    return bool(there) and not at.docker_comes and engines.NOT_RUNNING.found(at.engine)


def _toolkit_needed(at: Setting) -> bool:
    complete = at.probes.toolkit.version and at.probes.toolkit.runtime
    return at.gpu("toolkit") and not at.desktop and not complete


def _runtime_needed(at: Setting) -> bool:
    if not at.gpu("runtime") or at.desktop:
        return False
    info = engines.facts(at.probes.info)
    if info:
        return "nvidia" not in (info.get("Runtimes") or {})
    return "nvidia-container-runtime" not in (at.probes.text("/etc/docker/daemon.json") or "")


def _cdi_needed(at: Setting) -> bool:
    if not at.gpu("cdi") or at.desktop:
        return False
    running = _running(at)
    written_for = [each.driver for each in at.probes.toolkit.specifications]
    return not written_for or bool(running and at.probes.system == "linux" and running not in written_for)


def _running(at: Setting) -> str:
    return next((card.driver for card in cards(at.probes.cards.out) if card.driver), at.probes.module)


def _cdi_commands(at: Setting) -> list[str]:
    here = at.probes.toolkit.version
    refreshes = not here or version(here) >= version(grant.REFRESHED)
    if at.probes.systemd and at.probes.system == "linux" and refreshes:
        return [f"sudo systemctl enable --now {unit}" for unit in grant.UNITS.split()] + [
            "sudo systemctl restart nvidia-cdi-refresh.service",
            at.restart(),
        ]
    mode = " --mode=wsl" if at.probes.system == "wsl" else ""
    return ["sudo mkdir -p /etc/cdi", f"sudo nvidia-ctk cdi generate{mode} --output=/etc/cdi/nvidia.yaml", at.restart()]


def _cdi_waits(at: Setting) -> str:
    if _running(at) or at.probes.exists(drivers.ADAPTER):
        return ""
    return "The list is written for the running driver, and none is running yet: restart the machine first."


# uv


def _uv_commands(at: Setting) -> list[str]:
    hashes = " ".join(f"--hash=sha256:{value}" for value in UV_HASHES.values())
    place = f"{SHARE}/uv"
    return [
        "sudo apt-get update",
        f"{INSTALL} python3-venv",
        f"mkdir -p {CACHE} {SHARE} ~/.local/bin",
        f"python3 -m venv --clear {place}",
        f"echo 'uv=={UV} {hashes}' > {CACHE}/uv.txt",
        f"{place}/bin/python -m pip install --quiet --require-hashes --only-binary :all: -r {CACHE}/uv.txt",
        f"ln -sfn {place}/bin/uv {place}/bin/uvx ~/.local/bin/",
    ]


def _here(page: str) -> Callable[[Setting], str]:
    return lambda at: page


STEPS = (
    Step(
        "dpkg",
        "An installation that was interrupted",
        "dpkg was interrupted, and installs nothing until that is repaired.",
        _here("dpkg(1), --configure"),
        lambda at: at.probes.unfinished,
        lambda at: ["sudo env DEBIAN_FRONTEND=noninteractive dpkg --configure -a", f"{INSTALL} --fix-broken"],
        lambda at: 'test -z "$(dpkg --audit)"',
        back=False,
    ),
    Step(
        "driver",
        "The NVIDIA driver",
        "Programs use the GPU through it, in a container too. It is the only part that an image cannot contain.",
        _here(f"{DRIVER}/kernel-modules.html"),
        _driver_needed,
        _driver_commands,
        lambda at: f'dpkg --compare-versions "$(modinfo -F version nvidia)" ge {at.floor}',
        writes=lambda at: files(at.repositories["driver"]),
        notes=_driver_notes,
        blocks=_driver_blocks,
    ),
    Step(
        "docker",
        "Docker Engine",
        "It builds and runs containers.",
        lambda at: f"{DOCKER}/{at.system.id}/",
        lambda at: at.docker_comes and not at.preinstalled[0],
        lambda at: [*_from("docker", *DOCKER_PACKAGES)(at), at.restart("start")],
        lambda at: "sudo docker version --format '{{.Server.Version}}'",
        writes=lambda at: files(at.repositories["docker"]),
        notes=_docker_notes,
        blocks=_docker_blocks,
    ),
    Step(
        "engine",
        "Docker runs",
        "Docker is installed but not running.",
        lambda at: f"{DOCKER}/linux-postinstall/",
        _engine_needed,
        lambda at: [at.restart("start")],
        lambda at: "sudo docker version --format '{{.Server.Version}}'",
    ),
    Step(
        "toolkit",
        "NVIDIA's Container Toolkit",
        "It puts the driver's files and the GPU's devices into a container.",
        _here(TOOLKIT),
        _toolkit_needed,
        _from("toolkit", "nvidia-container-toolkit"),
        lambda at: "nvidia-ctk --version && command -v nvidia-container-runtime",
        writes=lambda at: files(at.repositories["toolkit"]),
    ),
    Step(
        "runtime",
        "Docker's configuration for the toolkit",
        "Docker must be configured to use NVIDIA's runtime. This restarts Docker and stops running containers.",
        _here(TOOLKIT),
        _runtime_needed,
        lambda at: ["sudo nvidia-ctk runtime configure --runtime=docker", at.restart()],
        lambda at: "sudo docker info --format '{{json .Runtimes}}' | grep '\"nvidia\"'",
        writes=lambda at: ["/etc/docker/daemon.json"],
        undo=lambda at: [at.restart()],
    ),
    Step(
        "cdi",
        "The list of GPUs (CDI)",
        "Docker 28.3 and newer find the GPUs in it. This restarts Docker and stops running containers.",
        _here("https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html"),
        _cdi_needed,
        _cdi_commands,
        lambda at: "nvidia-ctk cdi list | grep nvidia.com/gpu=all",
        writes=lambda at: ["/etc/cdi/nvidia.yaml"],
        undo=lambda at: [at.restart()],
        waits=_cdi_waits,
    ),
    Step(
        "group",
        "Membership in the group docker",
        "Only root and members of the group docker can use Docker. Members of that group can become root on this "
        "machine.",
        _here(f"{DOCKER}/linux-postinstall/"),
        lambda at: at.probes.user != "root" and not at.probes.in_group and not at.desktop,
        lambda at: ["sudo groupadd -f docker", f"sudo usermod -aG docker {at.probes.user}"],
        lambda at: f"id -nG {at.probes.user} | tr ' ' '\\n' | grep -x docker",
        undo=lambda at: [f"sudo gpasswd -d {at.probes.user} docker"],
        notes=lambda at: ["It takes effect at your next login: log out and in again."],
    ),
    Step(
        "uv",
        "uv",
        "It creates Python environments and installs packages. From your package index, with its SHA-256 pinned.",
        _here("https://docs.astral.sh/uv/getting-started/installation/"),
        lambda at: not at.probes.uv and at.probes.arch in UV_HASHES,
        _uv_commands,
        lambda at: "~/.local/bin/uv --version",
        undo=lambda at: [f"rm -rf {SHARE}/uv ~/.local/bin/uv ~/.local/bin/uvx"],
        notes=lambda at: ["~/.local/bin is on the PATH from your next login on."],
    ),
)
IDS = tuple(step.id for step in STEPS)


def lacking(at: Setting) -> list[Step]:
    """The steps that this host lacks, of those that were asked for, in order."""
    return [step for step in STEPS if (not at.wanted or step.id in at.wanted) and due(step, at)]


def due(step: Step, at: Setting) -> bool:
    """Whether the host lacks it. One that was interrupted is done again: half of it may look like the whole."""
    return step.id in at.begun or step.needed(at)


def elsewhere(at: Setting) -> list[str]:
    """What no step here can cure: what doctor finds beyond them, and what a restart or a login does."""
    found = []
    cured = (*DRIVER_LACKS, *DOCKER_LACKS, engines.NOT_RUNNING, engines.NOT_ALLOWED)
    for finding in (at.client, at.driver, *([] if at.docker_comes else [at.engine])):
        if finding.status in (FAIL, WARN) and not any(cause.found(finding) for cause in cured):
            found.append(_sentence(finding))
    name, page = at.preinstalled
    if name:
        found.append(f"{name} brings the driver, Docker and the toolkit, and its own updates renew them: {page}")
    if any(cause.found(at.driver) for cause in DRIVER_LACKS) and not _driver_needed(at):
        if _restart_runs_it(at):
            found.append(f"The driver {at.probes.next_driver} is installed and does not run yet: sudo reboot.")
        elif at.probes.system == "wsl":
            found.append(f"{at.driver.cause} Install NVIDIA's current driver in Windows, and none in this WSL.")
        else:
            found.append(f"{_sentence(at.driver)} {DRIVER}/ says how here.")
    if engines.NOT_ALLOWED.found(at.engine) and at.probes.in_group:
        found.append("You are in the group docker from your next login on: log out and in again.")
    if engines.NOT_RUNNING.found(at.engine) and not _engine_needed(at) and not at.docker_comes:
        found.append(_sentence(at.engine))
    return found


def _sentence(finding: Finding) -> str:
    return f"{finding.cause} {finding.remedy}".rstrip(".") + "."


def as_user(line: str, at: Setting) -> str:
    """The line for this user: root needs no sudo, which a bare system may lack."""
    return line.replace("sudo ", "") if at.probes.root else line
