"""The steps, in order: when each is needed, its commands, the check of its result, and how to revert it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpukit.doctor import driver as drivers
from gpukit.doctor import engine as engines
from gpukit.doctor import grant
from gpukit.findings.causes import PROJECT, cause, worded
from gpukit.findings.finding import FAIL, WARN, Finding
from gpukit.host import uv
from gpukit.host.cards import cards
from gpukit.project.stack import Stack, Target, version
from gpukit.setup.machine import in_sources
from gpukit.setup.systems import DOCKER, DRIVER, PREINSTALLED, TOOLKIT, UV, UV_HASHES, Repository, System

CACHE = "~/.cache/gpu-template"
SHARE = "~/.local/share/gpu-template"
CDI_UNITS = "nvidia-cdi-refresh.path nvidia-cdi-refresh.service"
INSTALL = "sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-remove"
FINGERPRINTS = 'awk -F: \'$1 == "pub" {key = 1} $1 == "fpr" && key {print $10; key = 0}\''
EARLYOOM = "/etc/default/earlyoom"
# Below 5 % free, whatever is left of the swap. torch renames Python's main process to pt_main_thread.
EARLYOOM_ARGUMENTS = "EARLYOOM_ARGS=\"-r 3600 -m 5 -s 100 --prefer '^(python|pt_main_thread)'\""
DOCKER_PACKAGES = ("docker-ce", "docker-ce-cli", "containerd.io", "docker-buildx-plugin", "docker-compose-plugin")
# Causes that installing a driver resolves.
DRIVER_CAUSES = (
    "driver-not-installed",
    "nouveau-holds-card",
    "driver-tools-not-installed",
    "driver-not-found",
    "card-not-served-by-driver",
    "driver-half-installed",
    "driver-without-capability-query",
    "driver-too-old",
)
DOCKER_CAUSES = ("docker-not-installed", "wsl-integration", "docker-client-broken")


@dataclass(frozen=True)
class Context:
    """Everything that the steps depend on.

    `wanted`: the steps selected with --only; `interrupted`: the steps that an earlier run did not finish.
    """

    probes: Any
    stack: Stack
    system: System
    repositories: dict[str, Repository]
    target: Target | None = None  # this machine's hardware, if the project's targets need different drivers
    wanted: tuple[str, ...] = ()
    interrupted: tuple[str, ...] = ()

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
    def installs_docker(self) -> bool:
        """Whether Docker still has to be installed."""
        return self.client.cause_id in DOCKER_CAUSES

    @property
    def preinstalled(self) -> tuple[str, str]:
        """The name and documentation of a system that includes driver, Docker, and toolkit; empty for others."""
        return next((about for file, about in PREINSTALLED.items() if self.probes.exists(file)), ("", ""))

    def gpu(self, step: str) -> bool:
        """Whether a step for the GPU applies: there is a GPU, or the step was selected by name."""
        if not self.stack.gpu or self.preinstalled[0]:
            return False
        return step in self.wanted or self.driver.cause_id not in ("no-gpu-here", "mac-without-gpu")

    @property
    def desktop(self) -> bool:
        """Docker Desktop provides the GPU to containers by itself."""
        return engines.desktop(engines.facts(self.probes.info))

    @property
    def floor(self) -> str:
        """The oldest driver that supports the base and this machine's hardware."""
        targets = [self.target] if self.target else self.stack.targets.values()
        floors = [self.stack.driver, *(target.driver for target in targets)]
        return max((floor for floor in floors if floor), key=version, default="0")

    @property
    def hardware(self) -> list[Target]:
        """The targets whose driver can be installed, or the one given with --hardware."""
        targets = [self.target] if self.target else [*self.stack.targets.values()]
        return [each for each in targets if each.modules and each.arch == self.probes.arch]

    @property
    def shares_memory(self) -> bool:
        """CPU and GPU of this machine share their memory."""
        targets = [self.target] if self.target else self.stack.targets.values()
        return self.stack.gpu and all(target.unified_memory for target in targets if target.capability)

    @property
    def podman(self) -> bool:
        return self.probes.engine_name == "podman"

    def reread(self) -> list[str]:
        """The commands after which the engine reads the list of GPUs; Podman reads it at each start."""
        return [] if self.podman else [self.restart()]

    def restart(self, verb: str = "restart") -> str:
        if not self.probes.systemd:
            return f"sudo service docker {verb}"
        return "sudo systemctl enable --now docker" if verb == "start" else f"sudo systemctl {verb} docker"


@dataclass(frozen=True)
class Step:
    """`commands` are shell lines; `check` is one that succeeds if the step is done.

    `writes`: the files that it creates or changes. `undo`: the commands that revert the rest, except new packages.
    `waits`: why it cannot run now. `blocks`: what the user must decide first. `undoable` is False for a step that
    finishes an interrupted installation, which cannot be reverted.
    """

    id: str
    title: str
    why: str
    source: Callable[[Context], str]
    needed: Callable[[Context], bool]
    commands: Callable[[Context], list[str]]
    check: Callable[[Context], str]
    writes: Callable[[Context], list[str]] = lambda context: []
    undo: Callable[[Context], list[str]] = lambda context: []
    notes: Callable[[Context], list[str]] = lambda context: []
    waits: Callable[[Context], str] = lambda context: ""
    blocks: Callable[[Context], str] = lambda context: ""
    undoable: bool = True


def add_repository(name: str, context: Context) -> list[str]:
    """Commands that add a repository to apt, none if it is there. A key is installed only if it is the pinned one."""
    repository = context.repositories[name]
    if in_sources(context.probes.sources, repository.address, (repository.file,)):
        return []
    key = f"{CACHE}/{name}.key"
    binary = f"{CACHE}/{name}.gpg"
    then = [f"sudo install -D -m 0644 {key} {repository.keyring}"]
    if repository.keyring.endswith(".gpg"):
        install = f"sudo install -D -m 0644 {binary} {repository.keyring}"
        then = [f"gpg --batch --yes --dearmor -o {binary} {key}", install]
    shown = f'test "$(gpg --show-keys --with-colons {key} |\n    {FINGERPRINTS})" = {repository.fingerprint}'
    return [
        f"mkdir -p {CACHE}",
        f"curl -fsSL {repository.key} -o {key}",
        " &&\n    ".join([shown, *then]),
        write_file(repository.file, repository.entry),
        *[write_file(*repository.pin)] * bool(repository.pin[0]),
    ]


def write_file(file: str, text: str) -> str:
    return f"sudo tee {file} > /dev/null <<'EOF'\n{text}\nEOF"


def files(repository: Repository) -> list[str]:
    return [file for file in (repository.file, repository.keyring, repository.pin[0]) if file]


def _from(name: str, *packages: str, before: tuple[str, ...] = ()) -> Callable[[Context], list[str]]:
    """Install packages from one of the repositories."""

    def commands(context: Context) -> list[str]:
        first = ["sudo apt-get update", f"{INSTALL} {' '.join(('ca-certificates', 'curl', 'gnupg', *before))}"]
        repository = add_repository(name, context)
        return [*first, *repository, *["sudo apt-get update"] * bool(repository), f"{INSTALL} {' '.join(packages)}"]

    return commands


# The driver


def _driver_needed(context: Context) -> bool:
    if (
        not context.gpu("driver")
        or context.probes.system != "linux"
        or "driver" not in context.repositories
        or not context.hardware
    ):
        return False
    return context.driver.cause_id in DRIVER_CAUSES and not _restart_loads_it(context)


def _restart_loads_it(context: Context) -> bool:
    """Whether a new enough driver is installed but not loaded."""
    there = context.probes.next_driver
    return bool(there) and there != context.probes.module and version(there) >= version(context.floor)


def _driver_commands(context: Context) -> list[str]:
    last = next((target.last_driver for target in context.hardware if target.last_driver), None)
    old = any(target.modules == "proprietary" for target in context.hardware)
    lines = _from("driver", "cuda-drivers" if old else "nvidia-open", before=('"linux-headers-$(uname -r)"',))(context)
    return [*lines[:-1], *[f"{INSTALL} nvidia-driver-pinning-{last}"] * bool(last), lines[-1]]


def _driver_blocks(context: Context) -> str:
    kinds = {
        ("proprietary" if each.modules == "proprietary" else "open", each.last_driver) for each in context.hardware
    }
    if len(kinds) < 2:
        return ""
    ids = ", ".join(context.stack.targets)
    whose = (
        f"The card is not known; it can be one of {ids}" if context.stack.standalone else f"This project is for {ids}"
    )
    return (
        f"{whose}, which need different drivers: name the one that this machine has, "
        f"as in `./launch setup --hardware {next(iter(context.stack.targets))}`."
    )


def _driver_notes(context: Context) -> list[str]:
    notes = ["Restart the machine to load it, then run `./launch setup` again."]
    if context.probes.secure_boot:
        notes.append(f"Secure Boot is on: {worded(cause('module-unsigned').remedy, PROJECT)}")
    return notes


def _earlyoom_commands(context: Context) -> list[str]:
    restart = "sudo systemctl restart earlyoom" if context.probes.systemd else "sudo service earlyoom restart"
    return ["sudo apt-get update", f"{INSTALL} earlyoom", write_file(EARLYOOM, EARLYOOM_ARGUMENTS), restart]


# Docker, the toolkit, and their configuration


def _docker_blocks(context: Context) -> str:
    there = [package for package in context.system.exclude if package in context.probes.packages]
    if not there:
        return ""
    return (
        f"{', '.join(there)} conflict with Docker's own packages. If nothing else needs them: "
        f"`sudo apt-get remove {' '.join(there)}` removes them and keeps images; then run this again."
    )


def _docker_notes(context: Context) -> list[str]:
    if context.probes.system != "wsl":
        return []
    return [
        "Or install Docker Desktop on Windows and switch on its WSL integration for this distribution: then neither "
        "this step nor the toolkit is needed here."
    ]


def _engine_needed(context: Context) -> bool:
    there = {"docker-ce", "docker.io"} & context.probes.packages
    return bool(there) and not context.installs_docker and (context.engine.cause_id == "docker-down")


def _toolkit_needed(context: Context) -> bool:
    complete = context.probes.toolkit.version and context.probes.toolkit.runtime
    return context.gpu("toolkit") and not context.desktop and not complete


def _runtime_needed(context: Context) -> bool:
    if not context.gpu("runtime") or context.desktop or context.podman:
        return False
    info = engines.facts(context.probes.info)
    if info:
        return "nvidia" not in (info.get("Runtimes") or {})
    return "nvidia-container-runtime" not in (context.probes.text("/etc/docker/daemon.json") or "")


def _cdi_needed(context: Context) -> bool:
    if not context.gpu("cdi") or context.desktop:
        return False
    running = _running(context)
    written_for = [each.driver for each in context.probes.toolkit.specifications]
    return not written_for or bool(running and context.probes.system == "linux" and running not in written_for)


def _running(context: Context) -> str:
    return next((card.driver for card in cards(context.probes.cards.out) if card.driver), context.probes.module)


def _cdi_commands(context: Context) -> list[str]:
    here = context.probes.toolkit.version
    refreshes = not here or version(here) >= version(grant.REFRESH_SINCE)
    if context.probes.systemd and context.probes.system == "linux" and refreshes:
        return [f"sudo systemctl enable --now {unit}" for unit in CDI_UNITS.split()] + [
            "sudo systemctl restart nvidia-cdi-refresh.service",
            *context.reread(),
        ]
    mode = " --mode=wsl" if context.probes.system == "wsl" else ""
    return [
        "sudo mkdir -p /etc/cdi",
        f"sudo nvidia-ctk cdi generate{mode} --output=/etc/cdi/nvidia.yaml",
        *context.reread(),
    ]


def _cdi_waits(context: Context) -> str:
    if _running(context) or context.probes.exists(drivers.WSL_DEVICE):
        return ""
    return "The list is written for the running driver, and no driver is running yet: restart the machine first."


# uv


def _uv_commands(context: Context) -> list[str]:
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


def _always(page: str) -> Callable[[Context], str]:
    return lambda context: page


STEPS = (
    Step(
        "dpkg",
        "Interrupted installation",
        "dpkg was interrupted, and cannot install anything until that is repaired.",
        _always("dpkg(1), --configure"),
        lambda context: context.probes.unfinished,
        lambda context: ["sudo env DEBIAN_FRONTEND=noninteractive dpkg --configure -a", f"{INSTALL} --fix-broken"],
        lambda context: 'test -z "$(dpkg --audit)"',
        undoable=False,
    ),
    Step(
        "driver",
        "The NVIDIA driver",
        "Programs use the GPU through it, in a container too. It is the only part that an image cannot contain.",
        _always(f"{DRIVER}/kernel-modules.html"),
        _driver_needed,
        _driver_commands,
        lambda context: f'dpkg --compare-versions "$(modinfo -F version nvidia)" ge {context.floor}',
        writes=lambda context: files(context.repositories["driver"]),
        notes=_driver_notes,
        blocks=_driver_blocks,
    ),
    Step(
        "docker",
        "Docker Engine",
        "It builds and runs containers.",
        lambda context: f"{DOCKER}/{context.system.id}/",
        lambda context: context.installs_docker and not context.preinstalled[0],
        lambda context: [*_from("docker", *DOCKER_PACKAGES)(context), context.restart("start")],
        lambda context: "sudo docker version --format '{{.Server.Version}}'",
        writes=lambda context: files(context.repositories["docker"]),
        notes=_docker_notes,
        blocks=_docker_blocks,
    ),
    Step(
        "engine",
        "Start Docker",
        "Docker is installed but not running.",
        lambda context: f"{DOCKER}/linux-postinstall/",
        _engine_needed,
        lambda context: [context.restart("start")],
        lambda context: "sudo docker version --format '{{.Server.Version}}'",
    ),
    Step(
        "toolkit",
        "NVIDIA's Container Toolkit",
        "It puts the driver's files and the GPU's devices into a container.",
        _always(TOOLKIT),
        _toolkit_needed,
        _from("toolkit", "nvidia-container-toolkit"),
        lambda context: "nvidia-ctk --version && command -v nvidia-container-runtime",
        writes=lambda context: files(context.repositories["toolkit"]),
    ),
    Step(
        "runtime",
        "Docker's configuration for the toolkit",
        "Docker must be configured to use NVIDIA's runtime. This restarts Docker and stops running containers.",
        _always(TOOLKIT),
        _runtime_needed,
        lambda context: ["sudo nvidia-ctk runtime configure --runtime=docker", context.restart()],
        lambda context: "sudo docker info --format '{{json .Runtimes}}' | grep '\"nvidia\"'",
        writes=lambda context: ["/etc/docker/daemon.json"],
        undo=lambda context: [context.restart()],
    ),
    Step(
        "cdi",
        "The list of GPUs (CDI)",
        "Podman and Docker 28.3 and newer find the GPUs in it. A restart of Docker stops running containers.",
        _always("https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html"),
        _cdi_needed,
        _cdi_commands,
        lambda context: "nvidia-ctk cdi list | grep nvidia.com/gpu=all",
        writes=lambda context: ["/etc/cdi/nvidia.yaml"],
        undo=lambda context: context.reread(),
        waits=_cdi_waits,
    ),
    Step(
        "group",
        "Membership in the group docker",
        "Only root and members of the group docker can use Docker. Members of that group can become root on this "
        "machine.",
        _always(f"{DOCKER}/linux-postinstall/"),
        lambda context: (
            context.probes.user != "root" and not context.probes.in_group and not context.desktop and not context.podman
        ),
        lambda context: ["sudo groupadd -f docker", f"sudo usermod -aG docker {context.probes.user}"],
        lambda context: f"id -nG {context.probes.user} | tr ' ' '\\n' | grep -x docker",
        undo=lambda context: [f"sudo gpasswd -d {context.probes.user} docker"],
        notes=lambda context: ["It takes effect at your next login: log out and in again."],
    ),
    Step(
        "earlyoom",
        "earlyoom",
        "CPU and GPU share their memory, and this machine can freeze when it is full. earlyoom ends a program, Python "
        "first, when 5 % is available. That may be too late: failures were reported with 22 GB and 8.7 GB available. "
        "It has not been tested on a GB10.",
        _always("https://github.com/rfjakob/earlyoom (manual page, and Debian's /etc/default/earlyoom)"),
        lambda context: (
            "earlyoom" not in context.probes.packages and (context.shares_memory or "earlyoom" in context.wanted)
        ),
        _earlyoom_commands,
        lambda context: f"grep -q prefer {EARLYOOM} && pidof earlyoom",
        writes=lambda context: [EARLYOOM],
    ),
    Step(
        "uv",
        "uv",
        "It creates Python environments and installs packages. It comes from your package index, with a pinned "
        "SHA-256.",
        _always(uv.PAGE),
        lambda context: not context.probes.uv and context.probes.arch in UV_HASHES,
        _uv_commands,
        lambda context: "~/.local/bin/uv --version",
        undo=lambda context: [f"rm -rf {SHARE}/uv ~/.local/bin/uv ~/.local/bin/uvx"],
        notes=lambda context: ["~/.local/bin is on the PATH from your next login on."],
    ),
)
IDS = tuple(step.id for step in STEPS)


def missing_steps(context: Context) -> list[Step]:
    """The selected steps that this host lacks, in order."""
    return [step for step in STEPS if (not context.wanted or step.id in context.wanted) and due(step, context)]


def due(step: Step, context: Context) -> bool:
    """Whether the host lacks it. An interrupted step runs again: it may look complete without being complete."""
    return step.id in context.interrupted or step.needed(context)


def other_problems(context: Context) -> list[str]:
    """Problems that no step resolves: other findings of doctor, a restart, or a login."""
    found = []
    cured = (*DRIVER_CAUSES, *DOCKER_CAUSES, "docker-down", "docker-denied")
    for finding in (context.client, context.driver, *([] if context.installs_docker else [context.engine])):
        wrong = finding.status in (FAIL, WARN) or not finding.completed
        if wrong and finding.cause_id not in cured:
            found.append(_sentence(finding))
    name, page = context.preinstalled
    if name:
        found.append(
            f"{name} includes the driver, Docker, and the toolkit, and its own updates keep them current: {page}"
        )
    if context.driver.cause_id in DRIVER_CAUSES and not _driver_needed(context):
        if _restart_loads_it(context):
            found.append(f"The driver {context.probes.next_driver} is installed but not loaded yet: run `sudo reboot`.")
        elif context.probes.system == "wsl":
            found.append(f"{context.driver.cause} Install NVIDIA's current driver in Windows, and none in this WSL.")
        else:
            found.append(f"{_sentence(context.driver)} {DRIVER}/ says how here.")
    if (context.engine.cause_id == "docker-denied") and context.probes.in_group:
        found.append("You are in the group docker from your next login on: log out and in again.")
    if (context.engine.cause_id == "docker-down") and not _engine_needed(context) and not context.installs_docker:
        found.append(_sentence(context.engine))
    return found


def _sentence(finding: Finding) -> str:
    return f"{finding.cause} {finding.remedy}".rstrip(".") + "."


def as_user(line: str, context: Context) -> str:
    """The line for this user: root needs no sudo, which may not be installed."""
    return line.replace("sudo ", "") if context.probes.root else line
