"""The engine (Docker, Compose, BuildKit), VS Code's containers, and the image's system packages."""

from __future__ import annotations

from gpukit.errors.causes import CDI_STALE, DOCKER_SNAP, NO_GPU_OR_DRIVER, WSL_1
from gpukit.errors.evidence import (
    CONTAINER,
    DESKTOP,
    NO_CARD,
    NO_DRIVER,
    NO_TOOLKIT,
    ROOTLESS,
    SNAP,
    WINDOWS,
    WSL,
    only,
    text_has,
    unless_text_has,
)
from gpukit.errors.rule import BROAD, BUILD, CARD, ENGINE, GENERAL, GRANT, MOUNTS, NOTE, Rule
from gpukit.findings.finding import Cause

COMPOSE, CLIENT = "`docker compose config`", "`./launch doctor --only client,engine`"
PORTS, STORAGE = "`./launch doctor --only ports`", "`./launch doctor --only engine,disk`"
UNDER_WINDOWS = DESKTOP | WSL | WINDOWS | text_has(r"pipe/docker", r"\.docker/(?:run|desktop)/")

# Causes that several rules have.
NO_DOCKER = Cause(
    "docker-not-installed",
    "Docker Engine is not installed on this machine.",
    "Run `./launch setup`. It shows the commands that install Docker Engine, and runs them with `--apply`.",
    tell="`docker --version` fails on the machine itself",
)
WSL_INTEGRATION = Cause(
    "wsl-integration",
    "Docker Desktop is not enabled for this WSL distribution.",
    "In Docker Desktop, open Settings, Resources, WSL integration, and enable this distribution.",
    tell="Docker Desktop runs in Windows, and `docker` works in another distribution",
    given=WSL,
)
NO_DOCKER_INSIDE = Cause(
    "docker-outside",
    "The command ran in a container, which has no Docker of its own.",
    "Run it on the machine itself.",
    tell="`ls /.dockerenv` finds the file",
    given=CONTAINER,
)
DOWN = Cause(
    "docker-down",
    "Docker is not running.",
    "Start it with `sudo systemctl start docker`, or open Docker Desktop.",
    tell="`systemctl is-active docker` does not print `active`",
    given=~CONTAINER,
)
DESKTOP_DOWN = Cause(
    "docker-desktop-down",
    "Docker Desktop is not running, or its virtual machine has stopped.",
    "Start Docker Desktop. If it does not start, run `wsl --update` and `wsl --shutdown` in Windows first.",
    tell="Docker Desktop is installed on this machine",
    given=UNDER_WINDOWS,
)
NO_SERVICE = Cause(
    "docker-service-missing",
    "In this container or CI job, no Docker engine runs and no socket of one is mounted.",
    "In CI, add the service `docker:dind`; in a container, mount `/var/run/docker.sock`.",
    tell="it ran in a container or a CI job",
    given=CONTAINER | text_has(r"//docker:237", r"lookup docker on", r"\bdind\b"),
)
CONFIGURATION = Cause(
    "docker-configuration",
    "Docker's configuration is wrong: /etc/docker/daemon.json has an error, or repeats an option of the service.",
    "Run `sudo dockerd --validate`, and undo the last change in /etc/docker/daemon.json.",
    tell="`sudo dockerd --validate` reports an error",
)
STORE_FULL = Cause(
    "docker-disk-full",
    "The disk that holds Docker's data is full.",
    "Free space: `docker system df` shows what Docker holds, and `docker system prune` removes what is unused.",
    tell="`df -h /var/lib/docker` shows no free space",
    given=text_has(r"no space left"),
)
STORE_BROKEN = Cause(
    "docker-store-broken",
    "Docker's data directory is damaged, or its file system became read-only after a fault.",
    "Run `sudo dmesg | grep -i -e error -e remount`. If the disk is healthy, restart Docker, then "
    "run `docker system prune --all`.",
    tell="`sudo dmesg` reports errors of the disk or the file system",
    given=text_has(r"input/output error|read-only file system"),
)
REBOOT = Cause(
    "kernel-modules-gone",
    "The kernel was updated, and the modules of the kernel that still runs are gone.",
    "Restart this machine.",
    tell="`ls /lib/modules/$(uname -r)` fails, or the last kernel update was after the last start",
)
MODULE_MISSING = Cause(
    "kernel-module-missing",
    "The running kernel lacks a module that Docker's network needs.",
    "Install the distribution's extra modules (`sudo dnf install kernel-modules-extra`, or `sudo "
    "apt-get install linux-modules-extra-$(uname -r)`), then restart the machine.",
    tell="`sudo modprobe veth bridge xt_addrtype iptable_nat` fails for one of them",
    given=text_has(r"missing kernel module"),
)
ENGINE_RIGHTS = Cause(
    "engine-without-rights",
    "The engine itself runs in a container or without root, and lacks the right to do this.",
    "Use the machine's own engine (`docker context use default`), or start the outer container with `--privileged`.",
    tell="`docker info` shows `rootless`, or `systemd-detect-virt --container` prints a name",
    given=ROOTLESS | CONTAINER,
)
WINDOWS_LINES = Cause(
    "windows-line-ends",
    "The script has Windows line endings (CRLF).",
    "Run `sed -i 's/\\r$//' FILE`. To keep Git from converting it, add `*.sh text eol=lf` to .gitattributes.",
    tell="`head -1 FILE | cat -A` ends in `^M$`",
)
WRONG_ARCH = Cause(
    "wrong-architecture",
    "The image or program is built for another processor architecture than this machine's.",
    "Use an image for this architecture: `docker image inspect IMAGE --format '{{.Architecture}}'` shows "
    "what it has. In a project, `./launch doctor --only card` prints the answers for this machine.",
    tell="`uname -m` names another architecture",
    standalone="Use an image for this architecture: `docker image inspect IMAGE --format "
    "'{{.Architecture}}'` shows what it has.",
)
ENGINE_FILES = Cause(
    "engine-sees-other-files",
    "The engine does not share this machine's files: it is Docker Desktop, a snap, or runs outside "
    "of this container or on another machine.",
    "Mount a folder that the engine sees, such as one in your home directory, or use Docker Engine: "
    "`docker context use default`.",
    tell="`ls` finds the folder here",
    given=DESKTOP | SNAP | CONTAINER,
)
FOLDER_MISSING = Cause(
    "mount-source-missing",
    "{0} does not exist, and a mount refers to it.",
    "Create that folder, or correct the mount in devcontainer.json or compose.yaml.",
    tell="`ls -ld` does not find it on the machine",
)
UNMOUNTED = Cause(
    "drive-not-mounted",
    "{0} is on a drive or network share that was not mounted when the container started.",
    "Mount the drive, then start the container again.",
    tell="`findmnt -T PATH` shows another file system than expected",
)
PROXY = Cause(
    "proxy-not-set",
    "The machine reaches the network only through a proxy, which Docker or the build does not use.",
    "Set `HTTP_PROXY` and `HTTPS_PROXY` for the engine (`sudo systemctl edit docker`) and for builds "
    "(~/.docker/config.json).",
    tell="`env | grep -i proxy` shows one",
)
NETWORK_DOWN = Cause(
    "network-unreachable",
    "This machine cannot reach the server at the moment.",
    "Check with `curl -I https://HOST`. If that works, run the command again.",
    tell="`curl -I` on that address fails on the machine as well",
)
TRY_AGAIN = Cause(
    "server-busy",
    "The server or a mirror failed, was busy, or was being updated.",
    "Run the command again later.",
    tell="the same command works after a while, or the text has a status from 500 to 504",
    given=text_has(r"\b50[0-4]\b.{0,20}(?:Internal|Bad Gateway|Service|Gateway)"),
)
STALE_LISTS = Cause(
    "apt-lists-old",
    "The package lists are older than the server's files, as in a cached layer of the build.",
    "Rebuild with `./launch build --no-cache`; on a machine, run `sudo apt-get update`.",
    standalone="Rebuild with `docker build --no-cache .`; on a machine, run `sudo apt-get update`.",
    tell="`404 Not Found` is in the text",
    given=text_has(r"404\s+Not Found") | unless_text_has(r"Could not (?:resolve|connect)|Temporary failure"),
)
OTHER_RELEASE = Cause(
    "system-release-old",
    "This release of the distribution has reached its end of life, or is too old for this package source.",
    "Use a base image with a newer release: `./launch update` in a project.",
    tell="`cat /etc/os-release` names a release without support",
    standalone="Use a base image with a newer release.",
)
INTERRUPTED = Cause(
    "apt-interrupted",
    "An earlier installation was interrupted.",
    "Run `sudo dpkg --configure -a && sudo apt-get --fix-broken install`.",
    tell="the text has `was interrupted` or `unmet dependencies`",
    given=text_has(r"was interrupted", r"fix-broken install"),
)
TWO_SOURCES = Cause(
    "apt-two-sources",
    "Two package sources offer the same packages in different versions, such as Ubuntu's and NVIDIA's.",
    "Use one source: `apt-cache policy PACKAGE` shows which source offers which version.",
    tell="`apt-cache policy PACKAGE` shows two sources",
)
DAMAGED = Cause(
    "program-damaged",
    "The file is empty, incomplete, or a Git LFS pointer.",
    "Run `file FILE`, and download or build it again.",
    tell="`file FILE` prints `empty`, `data`, or text, and other programs run",
    given=unless_text_has(r"exec /(?:usr/)?s?bin/"),
)
NOT_UPDATED = Cause(
    "apt-not-updated",
    "The package lists are missing or were not updated after a source was added.",
    "Run `sudo apt-get update`, then install again.",
    tell="it works after `sudo apt-get update`",
)
COMPOSE_FILE = Cause(
    "compose-file",
    "The compose file has an error, or refers to something that does not exist.",
    "Run `docker compose config`, which shows the place.",
    tell="`docker compose config` reports it with a current Compose as well",
)
PORT_RESERVED = Cause(
    "port-reserved",
    "Windows has reserved this port.",
    "Use another port, or run `net stop winnat` and `net start winnat` in Windows as an administrator.",
    tell="`netsh interface ipv4 show excludedportrange protocol=tcp` lists it",
    given=text_has(r"forbidden by its access permissions")
    | (UNDER_WINDOWS & unless_text_has(r"already (?:allocated|in use)", r"port \d+: permission denied")),
)
NOEXEC = Cause(
    "noexec",
    "The file {0} is on a drive that does not allow execution, such as a Windows drive or one mounted with noexec.",
    "Run it as `bash FILE`, or move it to another file system.",
    tell="`findmnt -T FILE` shows noexec, 9p, ntfs, or exfat",
)
SECCOMP_OLD = Cause(
    "seccomp-too-old",
    "Docker or libseccomp on the machine is too old for the image's system.",
    "Update Docker and libseccomp2 on the machine.",
    tell="it works with `--security-opt seccomp=unconfined`",
)
NO_SHEBANG = Cause(
    "script-without-first-line",
    "The script does not begin with a line that names its interpreter.",
    "Make `#!/usr/bin/env bash` its very first line, without a blank line or byte order mark before it.",
    tell="the program is a script, and `head -c 2 FILE` does not print `#!`",
    given=unless_text_has(r"cannot execute binary file", r"exec /(?:usr/)?s?bin/"),
)
NO_EMULATION = Cause(
    "no-emulation",
    "Another architecture is intended, as in a build with `--platform`, but emulation is not set up.",
    "Run `docker run --privileged --rm tonistiigi/binfmt --install all`. Emulated programs are slow and get no GPU.",
    tell="`--platform` was given on purpose",
    given=text_has(r"--platform|qemu|cross"),
)
NO_TOOLKIT_HERE = Cause(
    "toolkit-not-installed",
    "NVIDIA's Container Toolkit is not installed. Docker needs it to give a container the GPU.",
    "Run `./launch setup`. It shows the commands that install and configure it, and runs them with `--apply`.",
    tell="`nvidia-ctk --version` fails",
    given=NO_TOOLKIT,
)
NOT_CONFIGURED = Cause(
    "toolkit-not-configured",
    "NVIDIA's Container Toolkit is installed, but Docker is not configured to use it.",
    "Run `sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker`.",
    tell="`nvidia-ctk --version` works, and `docker info` does not list the runtime `nvidia`",
    given=~NO_TOOLKIT,
)
NO_SPECIFICATION = Cause(
    "cdi-no-specification",
    "Docker looks for GPUs in a CDI specification, and there is none, or Docker has not read it.",
    "Run `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml && sudo systemctl restart docker`.",
    tell="`nvidia-ctk --version` works, and `nvidia-ctk cdi list` shows no device",
    given=~NO_TOOLKIT,
)
OTHER_ENGINE = Cause(
    "gpu-other-engine",
    "The engine that was asked is not the one that was configured for GPUs: it is Docker Desktop, a snap, or rootless.",
    "Run `docker context use default` to use Docker Engine. In WSL, update Docker Desktop and use `--gpus all`.",
    tell="`docker context ls` or `snap list docker` shows another engine",
    given=DESKTOP | SNAP | ROOTLESS,
)

OTHER_DRIVER_BRANCH = Cause(
    "other-driver-branch",
    "Packages of another NVIDIA driver branch are installed or held, and the two branches exclude each other.",
    "Remove the old branch first: `sudo apt-get purge '*nvidia*-OLD*' && sudo apt-get autoremove`, then install the "
    "new one "
    "with all its packages.",
    tell="`dpkg -l | grep nvidia` lists two branches, such as 550 and 580",
    given=only(text_has(r"(?:nvidia|libnvidia|cuda-drivers)[a-z-]*-\d{3}")),
)

RULES = (
    Rule(
        "docker-not-installed",
        "docker: command not found",
        (r"docker: (?:command )?not found", r"Command 'docker' not found", r"spawn docker ENOENT"),
        (NO_DOCKER, NO_DOCKER_INSIDE, WSL_INTEGRATION),
        more=CLIENT,
        kind="engine",
    ),
    Rule(
        "wsl-integration",
        "The command 'docker' could not be found in this WSL 2 distro",
        (r"could not be found in this WSL ?\d? distro",),
        (WSL_INTEGRATION, DESKTOP_DOWN),
        more="`./launch doctor --only client`",
        kind="engine",
    ),
    Rule(
        "docker-desktop",
        "Docker Desktop - WSL distro terminated abruptly",
        (
            r"WSL distro terminated abruptly",
            r"engine linux/(?:wsl|hyperv) failed",
            r"wsl\$?\\+docker-desktop",
            r"waiting for the Docker API",
            r"starting (?:WSL|services)[^\n]{0,20} engine",
            r"Docker Desktop is unable to start",
            r"WSL distro Docker Desktop relies on has exited",
            r"request returned (?:Internal Server Error|500)[^\n]{0,120}(?:pipe|[Dd]esktop)",
            r"Docker Desktop[^\n]{0,40}(?:stopped unexpectedly|failed to start)",
        ),
        (
            DESKTOP_DOWN,
            Cause(
                "docker-desktop-data",
                "Docker Desktop cannot read its own data, or the disk of Windows is full.",
                "Free disk space, then choose Troubleshoot, Clean / Purge data in Docker Desktop. This deletes "
                "all images and volumes.",
                tell="it still fails after `wsl --update` and `wsl --shutdown`",
            ),
        ),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "docker-denied",
        "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
        (
            r"Error while fetching server API version:[^\n]{0,80}PermissionError",
            r"Current user does not have permission to run 'docker'",
            r"permission denied while trying to connect",
            r"docker\.sock: connect: permission denied",
            r"permission denied.{0,80}docker daemon socket",
        ),
        (
            Cause(
                "docker-denied",
                "This user may not use Docker: it is not in the group `docker`, or joined it after logging in.",
                "Run `sudo usermod -aG docker $USER`, then log out and in again.",
                tell="`id -nG` does not print `docker`",
            ),
            Cause(
                "docker-socket-inside",
                "In this container, Docker's socket is mounted but belongs to another group.",
                "Start the container with `--group-add $(stat -c %g /var/run/docker.sock)`.",
                tell="it ran in a container",
                given=CONTAINER,
            ),
        ),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "docker-host",
        "Cannot connect to the Docker daemon at tcp://localhost:2375. Is the docker daemon running?",
        (
            r"(?:Cannot connect to the Docker daemon|failed to connect to the docker API) at "
            r"(?!unix:///var/run/docker\.sock|unix:///run/docker\.sock|npipe:)([a-z]+:[^\s;,]*[^\s;,.])",
        ),
        (
            Cause(
                "docker-host-silent",
                "DOCKER_HOST or the current context names an engine that does not respond ({0}).",
                "Run `unset DOCKER_HOST; docker context use default` to use this machine's engine.",
                tell="`docker context ls` or `echo $DOCKER_HOST` shows that address",
            ),
            NO_SERVICE,
            Cause(
                "docker-elsewhere-down",
                "The engine at that address is not running: Docker Desktop, a rootless engine, or one on another "
                "machine.",
                "Start that engine: open Docker Desktop, or run `systemctl --user start docker` for a rootless one.",
                tell="the address is the right one",
                given=text_has(r"desktop|/run/user/|docker_engine|\.docker/run/") | ROOTLESS | DESKTOP,
            ),
        ),
        more=CLIENT,
        kind="engine",
    ),
    Rule(
        "docker-not-running",
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        (
            r"Error while fetching server API version:[^\n]{0,80}(?:FileNotFoundError|ConnectionRefused|"
            r"No such file)",
            r"Couldn't connect to Docker daemon",
            r"Failed to connect\. Is docker running",
            r"Make sure the Docker daemon is running",
            r"Cannot connect to the Docker daemon",
            r"failed to connect to the docker API",
            r"Is the docker daemon running",
            r"error during connect:",
            r"docker\.sock: connect: (?!permission denied)",
            r"docker_engine: The system cannot find",
        ),
        (DOWN, DESKTOP_DOWN, NO_SERVICE),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "client-too-old",
        "Error response from daemon: client version 1.41 is too old. Minimum supported API version is 1.44",
        (r"client version \S+ is too old",),
        (
            Cause(
                "client-too-old",
                "The program that called Docker is too old for this engine.",
                "Update that program: Docker's own client (https://docs.docker.com/engine/install/), or a tool "
                "with its own client, such as Portainer, Traefik, or Testcontainers.",
            ),
        ),
        certain=True,
        more=CLIENT,
        kind="engine",
    ),
    Rule(
        "client-too-new",
        "Error response from daemon: client version 1.52 is too new. Maximum supported API version is 1.43",
        (r"client version \S+ is too new",),
        (
            Cause(
                "engine-too-old",
                "The engine is older than the client that calls it.",
                "Update Docker Engine (https://docs.docker.com/engine/install/). Until then, set "
                "`DOCKER_API_VERSION` to the maximum in the message.",
            ),
        ),
        certain=True,
        more=CLIENT,
        kind="engine",
    ),
    Rule(
        "docker-configuration",
        "unable to configure the Docker daemon with file /etc/docker/daemon.json",
        (
            r"unable to configure the Docker daemon with file",
            r"contains (?:several valid|other) graphdriver",
            r"error initializing graphdriver",
            r"the following directives (?:are specified both|don't match any configuration option)",
        ),
        (
            CONFIGURATION,
            Cause(
                "docker-other-storage",
                "Docker's data directory was written by another storage driver than the one that is configured.",
                'Set the old driver in /etc/docker/daemon.json (`"storage-driver": "overlay2"`), or move '
                "/var/lib/docker away to start without its images.",
                tell="the text has `graphdriver`",
                given=text_has(r"graphdriver"),
            ),
        ),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "docker-runs-already",
        "failed to start daemon, ensure docker is not running or delete /var/run/docker.pid",
        (r"ensure docker is not running or delete \S*docker\.pid", r"pid file found, ensure docker is not running"),
        (
            Cause(
                "docker-runs-already",
                "A Docker engine is already running, or one that was killed left the file docker.pid behind.",
                "Run `pgrep -a dockerd`. If it prints nothing, run `sudo rm /var/run/docker.pid`, then start Docker.",
            ),
        ),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "no-engine-here",
        "Failed to restart docker.service: Unit docker.service not found.",
        (
            r"no runtime binary found from candidate list",
            r"Unit docker\.service (?:not found|could not be found)",
            r"Could not find the requested service docker",
            r"docker: unrecognized service",
        ),
        (
            NO_DOCKER,
            Cause(
                "engine-of-desktop",
                "In WSL the engine is Docker Desktop's, and there is no service to start.",
                "Start or restart Docker Desktop in Windows.",
                tell="Docker Desktop is installed in Windows",
                given=WSL,
            ),
            Cause(
                "docker-other-service",
                "Docker is a snap or rootless, and its service has another name.",
                "Run `sudo snap restart docker`, or `systemctl --user restart docker` for a rootless engine.",
                tell="`snap list docker` or `systemctl --user status docker` shows it",
                given=SNAP | ROOTLESS,
            ),
        ),
        more=CLIENT,
        kind="engine",
    ),
    Rule(
        "no-systemd",
        "System has not been booted with systemd as init system (PID 1). Can't operate.",
        (
            r"System has not been booted with systemd as init system",
            r"systemd not running on this host, cannot use systemd cgroups",
            r"Failed to connect to bus: (?:No such file|No medium|Host is down|\$DBUS)",
        ),
        (
            Cause(
                "wsl-without-systemd",
                "This WSL distribution runs without systemd.",
                "Add `[boot]` and `systemd=true` to /etc/wsl.conf, then run `wsl --shutdown` in Windows.",
                tell="it is WSL",
                given=WSL,
            ),
            Cause(
                "container-without-systemd",
                "This is a container, which runs without systemd.",
                "Run the command on the machine itself, or start the program directly.",
                tell="`ls /.dockerenv` finds the file",
                given=CONTAINER,
            ),
            Cause(
                "other-init",
                "This system uses another init system.",
                "Run `sudo service docker start`.",
                tell="`ps -p 1 -o comm=` does not print `systemd`",
                given=~WSL,
            ),
        ),
        more=ENGINE,
    ),
    Rule(
        "iptables-kernel",
        "failed to create NAT chain DOCKER: iptables failed: can't initialize iptables table `nat'",
        (
            r"can't initialize iptables table",
            r"Table does not exist \(do you need to insmod",
            r"failed to create NAT chain DOCKER",
            r"TABLE_ADD failed",
            r"iptables[^\n]{0,200}(?:Couldn't load match|addrtype)",
            r"(?:RULE_APPEND|RULE_INSERT|CHAIN_ADD|CHAIN_USER_ADD) failed",
            r"iptables v[\d.]+ \(nf_tables\):[^\n]{0,80}(?:incompatible|not supported)",
            r"iptables failed:",
            r"Extension \w+ revision \d+ not supported, missing kernel module",
            r"failed to (?:add|append) jump rules",
        ),
        (
            REBOOT,
            Cause(
                "iptables-backend",
                "This kernel does not work with the nf_tables variant of iptables.",
                "Run `sudo update-alternatives --set iptables /usr/sbin/iptables-legacy && sudo systemctl "
                "restart docker`.",
                tell="`iptables --version` prints `nf_tables`, and `sudo iptables-legacy -L` works",
                given=text_has(r"nf_tables") & ~text_has(r"missing kernel module") | WSL,
            ),
            MODULE_MISSING,
        ),
        more=ENGINE,
        level=BROAD,
        kind="engine",
    ),
    Rule(
        "iptables-raw",
        "can't initialize iptables table `raw': Table does not exist (do you need to insmod?)",
        (r"iptables table .raw'", r"DIRECT ACCESS FILTERING"),
        (
            Cause(
                "kernel-without-raw",
                "Docker 28 and newer need the iptables table `raw`, which this kernel does not have. This is "
                "usual on Jetson.",
                "Run `sudo systemctl edit docker`, add `[Service]` and "
                "`Environment=DOCKER_INSECURE_NO_IPTABLES_RAW=1`, and restart Docker. Docker 27 does not need "
                "the table.",
                tell="`sudo modprobe iptable_raw` fails",
            ),
            REBOOT,
        ),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "iptables-denied",
        "iptables v1.8.7 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)",
        (r"iptables[^\n]{0,200}Permission denied \(you must be root\)",),
        (ENGINE_RIGHTS,),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "iptables",
        "iptables: No chain/target/match by that name",
        (r"No chain/target/match by that name",),
        (
            Cause(
                "iptables-flushed",
                "Docker's iptables rules are gone, for example because the firewall was restarted.",
                "Run `sudo systemctl restart docker`.",
                tell="it works after `sudo systemctl restart docker`",
            ),
            MODULE_MISSING,
        ),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "kernel-modules-gone",
        "failed to add the host (veth1) <=> sandbox (veth2) pair interfaces: operation not supported",
        (
            r"pair interfaces: operation not supported",
            r"/dev/net/tun\W{1,4}No such (?:device|file)",
            r"failed to create endpoint[^\n]{0,120}operation not supported",
        ),
        (REBOOT, MODULE_MISSING),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "address-pools",
        "could not find an available, non-overlapping IPv4 address pool among the defaults",
        (
            r"non-overlapping IPv4 address pool",
            r"predefined address pools have been fully subnetted",
            r"Pool overlaps with other one on this address space",
            r"non-overlapping IPv\d address pool",
            r"list bridge addresses failed: no available network",
        ),
        (
            Cause(
                "address-pools-used",
                "Docker has used all its address ranges for networks.",
                "Run `docker network prune`, which removes networks without containers.",
                tell="`docker network ls` lists about thirty networks",
            ),
            Cause(
                "address-pools-vpn",
                "A VPN or another network uses the addresses that Docker wants.",
                "Disconnect the VPN while the network is created, or set `default-address-pools` in "
                "/etc/docker/daemon.json.",
                tell="`ip route` shows a VPN; the list of networks is short",
                given=unless_text_has(r"fully subnetted"),
            ),
        ),
        more="`docker network ls`",
        kind="engine",
    ),
    Rule(
        "port-reserved",
        "An attempt was made to access a socket in a way forbidden by its access permissions",
        (
            r"access a socket in a way forbidden by its access permissions",
            r"cannot expose privileged port \d+",
            r"listen EACCES: permission denied",
            r"bind[^\n]{0,60}:(?:80|443)\b[^\n]{0,20}permission denied",
        ),
        (
            Cause(
                "port-privileged",
                "Ports below 1024 need root, and the program or the engine runs without root.",
                "Use a port above 1023, such as 8888.",
                tell="the port is below 1024",
                given=~WINDOWS & ~text_has(r"forbidden by its access permissions"),
            ),
            PORT_RESERVED,
        ),
        more=PORTS,
        kind="port",
    ),
    Rule(
        "port-allocated",
        "driver failed programming external connectivity on endpoint x: Bind for 127.0.0.1:8888 failed: "
        "port is already allocated",
        (
            r"Bind for \S+?:(\d+) failed: port is already allocated",
            r"failed to bind host port (?:for )?[^\n]*?:(\d+)[:/]",
            r"Ports are not available: exposing port \w+ \S+?:(\d+)",
            r"(?:daemon|userland proxy|external connectivity|rootlessport)[^\n]*:(\d+): bind: address already in use",
            r"port is already allocated",
        ),
        (
            Cause(
                "port-of-container",
                "Another container already publishes that port ({0}).",
                "Run `docker ps --filter publish=PORT` to find it, and stop it, or publish another port.",
                tell="`docker ps --filter publish=PORT` lists a container",
            ),
            Cause(
                "port-of-program",
                "Another program on this machine already listens on that port ({0}).",
                "Run `sudo ss -ltnp | grep :PORT` to find it, and end it, or publish another port.",
                tell="`docker ps` lists no container with that port",
            ),
            PORT_RESERVED,
        ),
        more=PORTS,
        kind="port",
    ),
    Rule(
        "mount-rights",
        "error while creating mount source path '/mnt/tank': chmod /mnt/tank: operation not permitted",
        (
            r"error while creating mount source path '([^']+)': (?:chmod|chown|mkdir)[^\n]*(?:operation not permitted|"
            r"permission denied)",
        ),
        (
            Cause(
                "mount-share",
                "The engine may not create or change {0}, which is on a network share or a drive with its own "
                "permissions.",
                "Create that folder yourself as the drive's owner, or mount the folder above it.",
                tell="`findmnt -T PATH` names nfs, cifs, fuse, or zfs",
            ),
            Cause(
                "engine-rootless",
                "The engine runs without root and may not create {0}.",
                "Create that folder yourself, then start the container again.",
                tell="`docker info` shows `rootless`",
                given=ROOTLESS,
            ),
            DOCKER_SNAP,
        ),
        more=MOUNTS,
        kind="mount",
    ),
    Rule(
        "wayland-socket",
        "bind source path does not exist: /run/desktop/mnt/host/wslg/runtime-dir/wayland-0",
        (r"bind source path does not exist: (\S*(?:wayland|wslg)\S*)",),
        (
            Cause(
                "wayland-socket",
                "VS Code mounts the display socket of WSLg, which no longer exists.",
                'Set `"dev.containers.mountWaylandSocket": false` in VS Code\'s settings, or run `wsl '
                "--shutdown` in Windows.",
            ),
        ),
        more=MOUNTS,
        kind="mount",
    ),
    Rule(
        "mount-source-missing",
        "Error: statfs /mnt/data: no such file or directory",
        (
            r"Error: statfs (/[^:\n]+): no such file",
            r"bind (?:mount )?source path does not exist:? ([^\n\"']*?[^\s.\"'])(?=\.?(?: (?:See|Run) |[\"']|\s*$))",
        ),
        (FOLDER_MISSING, ENGINE_FILES, UNMOUNTED),
        more="`./launch doctor --only mounts,engine`",
        kind="mount",
    ),
    Rule(
        "mount-source",
        "error while creating mount source path '/mnt/data': mkdir /mnt/data: read-only file system",
        (r"error while creating mount source path '([^']+)'",),
        (
            ENGINE_FILES,
            UNMOUNTED,
            Cause(
                "mount-stale",
                "The path {0} exists but cannot be reached: a network share or FUSE mount there is broken.",
                "Unmount it with `sudo umount -l PATH`, mount it again, and restart Docker or Docker Desktop.",
                tell="`ls` on the path reports an error",
                given=text_has(r"file exists|transport endpoint|stale"),
            ),
        ),
        more="`./launch doctor --only mounts,engine`",
        kind="mount",
    ),
    Rule(
        "volume-fails",
        "error while mounting volume 'data': VolumeDriver.Mount: exit status 1.",
        (r"error while mounting volume '([^']*)': ", r"failed to mount local volume: mount ([^\s:]+)"),
        (
            Cause(
                "volume-share",
                "The NFS or CIFS server of the volume ({0}) cannot be reached or refuses the mount, or the mount "
                "options are wrong.",
                "Run `docker volume inspect NAME`, and try the same mount by hand with `sudo mount`.",
                tell="`docker volume inspect NAME` shows `type` nfs or cifs",
            ),
            Cause(
                "volume-path",
                "The volume ({0}) is bound to a folder that no longer exists.",
                "Create that folder, or remove the volume with `docker volume rm NAME` and create it again.",
                tell="`docker volume inspect NAME` shows `o: bind`",
                given=text_has(r"no such file"),
            ),
            Cause(
                "volume-plugin",
                "The plugin that provides the volume ({0}) failed.",
                "Run `docker plugin ls` and read the engine's log: `sudo journalctl -u docker --no-pager | tail "
                "-n 30`.",
                tell="`docker volume inspect NAME` shows a driver other than `local`",
                given=text_has(r"VolumeDriver"),
            ),
        ),
        more=MOUNTS,
        kind="mount",
    ),
    Rule(
        "mount-form",
        'docker: Error response from daemon: invalid mount config for type "bind": mount path must be absolute',
        (
            r"mount path must be absolute",
            r"includes invalid characters for a local volume name",
            r"invalid volume specification",
            r"invalid mount config for type \\?\"\w+\\?\": (?!bind source path does not exist)",
            r"field Source must not be empty",
            r"invalid spec: :\S*: empty section between colons",
        ),
        (
            Cause(
                "mount-form",
                "A mount is written in a form that Docker does not accept: a path is relative, or a variable in "
                "it is empty.",
                "Use absolute paths. In devcontainer.json, use `${localWorkspaceFolder}` and `${localEnv:HOME}`.",
            ),
        ),
        more=MOUNTS,
        kind="mount",
    ),
    Rule(
        "windows-containers",
        'image operating system "linux" cannot be used on this platform',
        (r"image operating system \\?\"\w+\\?\" cannot be used on this platform", r"no matching manifest for windows"),
        (
            Cause(
                "windows-containers",
                "Docker Desktop is set to Windows containers.",
                "Choose 'Switch to Linux containers' in Docker Desktop's menu.",
                tell="Docker Desktop runs in Windows",
                given=~text_has(r"operating system \\?\"windows") & unless_text_has(r"operating system \\?\"windows"),
            ),
            Cause(
                "windows-image",
                "The image is for Windows containers, and this engine runs Linux containers.",
                "Use a Linux image.",
                tell='the text has `operating system "windows"`',
                given=text_has(r"operating system \\?\"windows"),
            ),
        ),
        more=ENGINE,
        kind="image",
    ),
    Rule(
        "desktop-mount",
        'error mounting "/run/desktop/mnt/host/g/program" to rootfs at "/code": not a directory',
        (r"mounting \\?\"(/run/desktop/mnt/host[^\"\\]+)",),
        (
            Cause(
                "desktop-mount",
                "Docker Desktop does not see {0}: the drive or WSL distribution was not available when the "
                "container started, or a file was replaced.",
                "Restart Docker Desktop, then recreate the container. Keep project files in WSL, not on a "
                "Windows drive.",
            ),
        ),
        more=MOUNTS,
        kind="mount",
    ),
    Rule(
        "mount-kind",
        'error mounting "/data/x" to rootfs at "/code/x": not a directory: Are you trying to mount a '
        "directory onto a file",
        (r"mounting \\?\"(.*?)\\?\" to rootfs.*not a directory", r"Are you trying to mount a directory onto a file"),
        (
            Cause(
                "mount-kind",
                "A mount maps a file to a folder, or a folder to a file ({0}). Docker also creates an empty folder "
                "where the file to mount does not exist.",
                "Correct the mount in devcontainer.json or compose.yaml: both sides must be files, or both folders. "
                "If `ls -ld` shows an empty folder that belongs to root, remove it with `sudo rmdir`, create the "
                "file, and recreate the container.",
                tell="source and target are of different kinds",
            ),
            ENGINE_FILES,
        ),
        more=MOUNTS,
        excludes=r"/run/desktop/mnt/host",
        kind="mount",
    ),
    Rule(
        "working-folder",
        'chdir to cwd ("/workspace") set in config.json failed: permission denied',
        (
            r"chdir to cwd \(\\?\"?([^\"\\)]+)\\?\"?\) set in config\.json failed",
            r"mkdir (/\S+): [^\n]{0,40}(?:setting up|working) ?dir",
            r"cwd (/\S+) (?:is not|does not)",
        ),
        (
            Cause(
                "working-folder-denied",
                "The container's user may not enter its working folder ({0}).",
                "Run `ls -ld` on that folder and those above it. Give the user access, or set another "
                "`workspaceFolder` or `--workdir`.",
                tell="the text has `denied`",
                given=text_has(r"denied"),
            ),
            Cause(
                "working-folder-missing",
                "The container's working folder ({0}) does not exist, or is not a folder.",
                "Correct `workspaceFolder` or `--workdir`, or create the folder in the Dockerfile.",
                tell="the text has `no such file` or `not a directory`",
                given=text_has(r"no such file|not a directory|does not"),
            ),
        ),
        more=MOUNTS,
        requires=r"OCI|runc|crun|container|daemon|docker|podman|set in config",
        kind="mount",
    ),
    Rule(
        "working-folder-replaced",
        "current working directory is outside of container mount namespace root -- possible container "
        "breakout detected",
        (r"outside of container mount namespace root", r"possible container breakout detected"),
        (
            Cause(
                "working-folder-replaced",
                "The container's working folder was deleted or replaced on the machine while the container was "
                "running.",
                "Run `./launch stop`, then start it again.",
                standalone="Restart the container: `docker restart NAME`.",
            ),
        ),
        more=MOUNTS,
        kind="mount",
    ),
    Rule(
        "mount-fails",
        'error mounting "/data" to rootfs at "/data": operation not permitted',
        (
            r"error mounting \\?\"([^\"\\]+)\\?\" to rootfs[^\n]{0,300}(?:permission denied|"
            r"operation not permitted|no such file|invalid argument)",
        ),
        (
            FOLDER_MISSING,
            Cause(
                "mount-denied",
                "The engine may not mount {0}: it is on a network share or FUSE file system that only its owner may "
                "access, or SELinux prevents it.",
                "For FUSE, mount it with `allow_other`. With SELinux, add `--security-opt label=disable`.",
                tell="`findmnt -T PATH` names nfs or fuse, or `getenforce` prints Enforcing",
                given=text_has(r"(?:permission|not permitted|denied)"),
            ),
            ENGINE_FILES,
        ),
        more=MOUNTS,
        kind="mount",
    ),
    Rule(
        "image-name",
        "docker: invalid reference format",
        (
            r"invalid reference format",
            r"['\"]docker (?:run|build|pull|exec|buildx build)['\"] requires (?:at least |exactly )?\d+ argument",
            r"repository name (?:\([^)]*\) )?must be lowercase",
        ),
        (
            Cause(
                "command-words",
                "Docker reads another part of the command as the image's name, because a variable is empty or a path "
                "has a space.",
                'Put paths and variables in double quotes, such as `-v "$PWD:/workspace"`.',
                tell="the image's name itself is correct",
            ),
            Cause(
                "image-name",
                "The image's name is not valid: it has a capital letter, a space, or two colons.",
                "Write it in lower case, as in `registry/name:tag`.",
                tell="the text has `must be lowercase`",
                given=text_has(r"must be lowercase"),
            ),
        ),
        more=CLIENT,
        kind="image",
    ),
    Rule(
        "gpus-form",
        "cannot set both Count and DeviceIDs on device request",
        (
            r"cannot set both Count and DeviceIDs on device request",
            r"unexpected key '?\w*'? in '?\w+=\w+'?.*--gpus",
            r"invalid argument .* for \"--gpus\" flag",
        ),
        (
            Cause(
                "gpus-form",
                "The value of `--gpus` is not one that Docker reads. Often a list of GPUs lost its quotes.",
                "Use `--gpus all`, or a list with both kinds of quotes: `--gpus '\"device=0,1\"'`. In a project, "
                "set `GPUS=0,1`.",
            ),
        ),
        more="`nvidia-smi -L`",
        kind="gpu",
    ),
    # What the engine itself reports when it cannot give a container a GPU; NVIDIA's own tools are in tools.py.
    Rule(
        "cdi-no-vendor",
        "docker: Error response from daemon: failed to discover GPU vendor from CDI: no known GPU vendor found",
        (r"failed to discover GPU vendor from CDI", r"no known GPU vendor found"),
        (
            *NO_GPU_OR_DRIVER,
            NO_TOOLKIT_HERE,
            NO_SPECIFICATION,
            Cause(
                "gpu-not-visible",
                "The engine sees no NVIDIA GPU: the driver does not work, or the engine is in a virtual machine "
                "without one, such as Docker Desktop.",
                "Make `nvidia-smi` work on the machine. For Docker Desktop in Windows, run `wsl --update`, "
                "install NVIDIA's current driver, and restart Docker Desktop.",
                tell="`nvidia-smi` fails, or `docker info` shows Docker Desktop",
                given=NO_DRIVER | NO_CARD | DESKTOP,
            ),
        ),
        more=GRANT,
        kind="gpu",
    ),
    Rule(
        "runtime-unknown",
        "docker: Error response from daemon: unknown or invalid runtime name: nvidia",
        (
            r"unknown or invalid runtime name: \W?nvidia",
            r"unknown runtime specified \W?nvidia",
            r"OCI runtime \\?\"nvidia\\?\" not found",
        ),
        (*NO_GPU_OR_DRIVER, NO_TOOLKIT_HERE, NOT_CONFIGURED, OTHER_ENGINE),
        more=GRANT,
        kind="gpu",
    ),
    Rule(
        "runtime-missing",
        'exec: "nvidia-container-runtime-hook": executable file not found in $PATH',
        (r"nvidia-container-(?:runtime|toolkit)(?:-hook)?\W.{0,40}(?:not found|no such file)",),
        (
            *NO_GPU_OR_DRIVER,
            Cause(
                "toolkit-incomplete",
                "Docker is configured to use NVIDIA's runtime, but its program is missing: the toolkit was "
                "removed or is incomplete.",
                "Run `sudo apt-get install --reinstall nvidia-container-toolkit && sudo systemctl restart docker`.",
                tell="`which nvidia-container-runtime` prints nothing",
            ),
            Cause(
                "runtime-elsewhere",
                "The program is installed at another path than Docker's configuration names.",
                "Run `sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker`.",
                tell="`which nvidia-container-runtime` prints a path",
            ),
            DOCKER_SNAP,
        ),
        more=GRANT,
        kind="gpu",
    ),
    Rule(
        "device-unknown",
        "nvidia-container-cli: device error: 7: unknown device: unknown.",
        (
            r"nvidia-container-cli[^\n]*device error: ([\w.-]+(?::\d+)?)",
            r"(?:nvidia-container-(?:cli|runtime)|\bCDI\b)[^\n]*(?:unknown device(?: id)?|invalid device(?: id| index)|"
            r"device not found)[:= \"]+([\w:.-]+)",
        ),
        (
            *NO_GPU_OR_DRIVER,
            Cause(
                "gpu-unknown",
                "There is no GPU {0} on this machine.",
                "Run `nvidia-smi -L`, and choose one of those: `--gpus device=0`, or `GPUS=0` in a project.",
                tell="`nvidia-smi -L` does not list it",
            ),
            Cause(
                "mig-changed",
                "The MIG device {0} no longer exists. MIG devices get new ids when they are created again, for "
                "example after a restart.",
                "Run `nvidia-smi -L`, and use the new id, as `GPUS` in a project.",
                tell="the id begins with `MIG-`, or has a colon",
                given=text_has(r"MIG-|device error: \d+:\d+"),
            ),
        ),
        more="`nvidia-smi -L`",
        kind="gpu",
    ),
    Rule(
        "cdi-broken",
        "docker: Error response from daemon: CDI device injection failed",
        (
            r"unresolvable CDI device",
            r"CDI device injection failed",
            r"failed to fulfil mount request: .{0,120}(?:nvidia|cuda)",
        ),
        (
            *NO_GPU_OR_DRIVER,
            CDI_STALE,
            NO_SPECIFICATION,
        ),
        more=GRANT,
        level=BROAD,
        kind="gpu",
    ),
    Rule(
        "run-args",
        "unknown flag: --gpus all",
        (r"unknown (?:shorthand )?flag: '?--?[\w-]+ (?!See\b|Usage\b|Run\b|in\b)\S+",),
        (
            Cause(
                "run-args",
                "A flag and its value are in one string of `runArgs`, and Docker reads both as the name of the flag.",
                'Write two strings, `"--gpus", "all"`, or one with an equals sign, `"--gpus=all"`.',
            ),
        ),
        requires=r"docker|runArgs|devcontainer|--gpus",
        kind="engine",
    ),
    Rule(
        "docker-plugin",
        "docker: unknown command: docker buildx",
        (
            r"unknown command: docker (buildx|compose)",
            r"docker: '(buildx|compose)' is not a docker command",
            r"unknown (?:shorthand )?flag: '?(?:f|p|d)'? in -(?:f|p|d)\b",
            r"^unknown flag: --(mount|secret|ssh|load|progress|platform)\b",
            r"docker: '(\w+)' is not a docker command",
        ),
        (
            Cause(
                "docker-plugin",
                "A plugin of Docker is missing or too old ({0}).",
                "Run `sudo apt-get install docker-buildx-plugin docker-compose-plugin`. With Ubuntu's own "
                "Docker, the packages are `docker-buildx` and `docker-compose-v2`.",
                tell="the command is `compose` or `buildx`",
                given=unless_text_has(r"docker: '(?!compose|buildx)\w+' is not a docker command"),
            ),
            Cause(
                "docker-command-unknown",
                "Docker has no command `{0}`.",
                "Check the spelling: `docker --help` lists the commands.",
                tell="`docker --help` does not list it",
                given=unless_text_has(r"(?:'|docker )(?:compose|buildx)\b", r"flag:"),
            ),
        ),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "builder-missing",
        "the --mount option requires BuildKit",
        (
            r"the --\w+ option requires BuildKit",
            r"Unknown flag: (?:mount|chmod|link|exclude|parents)",
            r"buildx component is missing",
            r"BuildKit is enabled but the buildx",
        ),
        (
            Cause(
                "builder-missing",
                "Docker's current builder, buildx, is missing.",
                "Run `sudo apt-get install docker-buildx-plugin`. With Ubuntu's own Docker, the package is "
                "`docker-buildx`.",
                tell="`docker buildx version` fails",
            ),
            Cause(
                "builder-off",
                "The build ran with the old builder, or with one that is too old for this Dockerfile.",
                "Set `DOCKER_BUILDKIT=1`, and update Docker: https://docs.docker.com/engine/install/.",
                tell="`echo $DOCKER_BUILDKIT` prints 0, or `docker --version` is below 23",
                given=unless_text_has(r"buildx component is missing|BuildKit is enabled but"),
            ),
        ),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "asks-for-more",
        "docker: Error response from daemon: Range of CPUs is from 0.01 to 8.00, as there are only 8 CPUs available",
        (
            r"Range of CPUs is from [^\n]{0,40}only (\d+ CPUs)",
            r"Minimum memory limit allowed",
            r"Requested CPUs are not available",
            r"cpuset[^\n]{0,60}(?:not available|out of range)",
        ),
        (
            Cause(
                "asks-for-more",
                "The container requests more CPUs or memory than the engine has ({0}).",
                "Change or remove `--cpus`, `--cpuset-cpus`, or `--memory` in runArgs or the compose file. "
                "Docker Desktop's share is in Settings, Resources.",
            ),
        ),
        certain=True,
        more=ENGINE,
        kind="limit",
    ),
    Rule(
        "rlimit",
        "error setting rlimits for ready process: error setting rlimit type 8: operation not permitted",
        (r"error setting rlimit", r"rlimits?.{0,60}operation not permitted"),
        (
            Cause(
                "rlimit",
                "This engine may not raise the limits that the container asks for, because it is rootless or "
                "itself in a container.",
                "Remove the `--ulimit` lines from runArgs, or use root's engine: `docker context use default`.",
            ),
        ),
        more=ENGINE,
        kind="limit",
    ),
    Rule(
        "docker-network",
        "docker: Error response from daemon: network my-net not found.",
        (
            r"(?:daemon|networking|endpoint|compose)[^\n]*\bnetwork ([\w.-]*\w) not found",
            r"^network ([\w.-]*\w) not found",
        ),
        (
            Cause(
                "docker-network",
                "Docker's network {0}, which runArgs or the compose file asks for, does not exist.",
                "Run `docker network create {0}`.",
                tell="`docker network ls` does not show it",
            ),
            Cause(
                "network-of-old-container",
                "The container was created on a network that was removed later.",
                "Recreate the container: `docker compose up --force-recreate`, or `docker rm --force NAME` and "
                "start it again.",
                tell="the name in the message is a long hexadecimal id",
                given=text_has(r"network [0-9a-f]{24,} not found"),
            ),
        ),
        more="`docker network ls`",
        kind="network",
    ),
    Rule(
        "container-name",
        'docker: Error response from daemon: Conflict. The container name "/my-dev" is already in use by '
        'container "abc"',
        (r"container name \\?\"?/?([^\\\" ]+)\\?\"? is already in use",),
        (
            Cause(
                "container-name",
                "A container with the name {0} already exists.",
                "Run `./launch stop` if it is this project's, or `docker rm --force {0}`.",
                standalone="Remove it with `docker rm --force NAME`, or use another name.",
            ),
        ),
        certain=True,
        more="`docker ps --all`",
        kind="name",
    ),
    Rule(
        "no-devcontainer-file",
        "Error: Dev container config (/workspace/.devcontainer/devcontainer.json) not found.",
        (
            r"Dev container config \(([^)]+)\) not found",
            r"Command failed: devcontainer[^\n]{0,80}not found",
            r"Dev container config \(([^)]+)\) is missing one of",
        ),
        (
            Cause(
                "no-devcontainer-file",
                "There is no complete devcontainer.json where it is looked for ({0}).",
                "Open the folder that contains `.devcontainer`. If the file is there, it must have `image`, "
                "`build`, or `dockerComposeFile`.",
            ),
        ),
    ),
    Rule(
        "compose-missing",
        "docker-compose: command not found",
        (
            r"docker-compose: (?:command )?not found",
            r"spawn docker-compose ENOENT",
            r"No such file or directory: 'docker-compose'",
            r"Command 'docker-compose' not found",
        ),
        (
            Cause(
                "compose-missing",
                "The old program `docker-compose` is not installed. Today Compose is part of Docker, as `docker "
                "compose`.",
                "Write `docker compose`. If that is unknown, run `sudo apt-get install docker-compose-plugin`.",
            ),
        ),
        certain=True,
        more=CLIENT,
        kind="engine",
    ),
    Rule(
        "docker-too-old",
        "unknown flag: --gpus",
        (r"unknown flag: --gpus\b(?! (?!See)\S)",),
        (
            Cause(
                "gpus-flag-misplaced",
                "This command does not have `--gpus`. Only `docker run` and `docker create` do.",
                "Use `docker run --gpus all IMAGE`. For a build, no GPU can be given.",
                tell="`docker run --help` lists `--gpus`",
            ),
            Cause(
                "docker-too-old",
                "Docker is older than 19.03.",
                "Update Docker: https://docs.docker.com/engine/install/.",
                tell="`docker --version` is below 19.03",
            ),
        ),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "credential-helper",
        'error getting credentials - err: exec: "docker-credential-desktop.exe": executable file not found',
        (r"docker-credential-\w+(?:\.exe)?\\?\"?: executable file not found", r"error getting credentials - err: ex"),
        (
            Cause(
                "credential-helper",
                "Docker's configuration names a program for logins that is not installed. Docker Desktop often "
                "leaves it behind.",
                "Remove the line with `credsStore` from ~/.docker/config.json, then log in again with `docker login`.",
                tell="the text has `executable file not found`",
                given=unless_text_has(r"err: exit status"),
            ),
            Cause(
                "credential-helper-fails",
                "The program in which Docker stores logins fails: its key store is locked, empty, or belongs to "
                "a Docker Desktop that is not running.",
                "Start Docker Desktop, or remove the line with `credsStore` from ~/.docker/config.json and run "
                "`docker login` again.",
                tell="the text has `exit status`",
                given=unless_text_has(r"executable file not found"),
            ),
        ),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "no-terminal",
        "the input device is not a TTY",
        (r"the input device is not a TTY", r"cannot enable tty mode on non tty input"),
        (
            Cause(
                "no-terminal",
                "Docker was asked for a terminal (`-t`), but there is none, as in a script or in CI.",
                "Leave out `-t`.",
                tell="it ran in a script, in cron, or in CI",
            ),
            Cause(
                "mintty",
                "Git Bash on Windows is not a terminal for Docker.",
                "Put `winpty` before `docker`, or use PowerShell or WSL.",
                tell="the text has `mintty`",
                given=text_has(r"mintty"),
            ),
        ),
    ),
    Rule(
        "file-sharing",
        "Mounts denied: The path /data is not shared from the host and is not known to Docker.",
        (r"Mounts denied", r"is not shared from the host and is not known to Docker"),
        (
            Cause(
                "file-sharing",
                "Docker Desktop is not allowed to mount this folder.",
                "In Docker Desktop, open Settings, Resources, File sharing, and add the folder.",
            ),
        ),
        certain=True,
        more=MOUNTS,
        kind="mount",
    ),
    Rule(
        "compose-v1",
        "KeyError: 'ContainerConfig'",
        (r"KeyError: 'ContainerConfig'", r"Not supported URL scheme http\+docker"),
        (
            Cause(
                "compose-v1",
                "`docker-compose` version 1 does not work with this Docker.",
                "Run `sudo apt-get install docker-compose-plugin`, and write `docker compose` without the hyphen.",
                tell="`docker-compose --version` prints 1.x",
            ),
            Cause(
                "docker-py-old",
                "The Python package docker is too old for the installed requests package.",
                "Run `pip install --upgrade docker`.",
                tell="a Python program called Docker, not `docker-compose`",
                given=text_has(r"http\+docker") & unless_text_has(r"ContainerConfig"),
            ),
        ),
        more="`docker compose version`",
    ),
    Rule(
        "compose-too-old",
        "services.app.deploy.resources.reservations value Additional properties are not allowed ('devices')",
        (
            r"services\.\S+\.deploy\.resources\.reservations value .{0,40}devices",
            r"(?<!limits )Additional property (?:gpus|devices|develop|include) is not allowed",
            r"Unsupported config option[^\n]{0,60}(?:gpus|runtime)",
            r"Version in \"\S+\" is unsupported",
            r"ERROR: for \S+ +__init__\(\) got an unexpected keyword argument 'gpus'",
        ),
        (
            Cause(
                "compose-too-old",
                "This Docker Compose is too old for this file, or cannot request GPUs.",
                "Run `sudo apt-get install docker-compose-plugin`, and use `docker compose`. With Ubuntu's own "
                "Docker, the package is `docker-compose-v2`.",
                tell="`docker compose version` is below 2.30, or the program is `docker-compose`",
            ),
            COMPOSE_FILE,
        ),
        more="`docker compose version`",
        kind="engine",
    ),
    Rule(
        "compose-file",
        "services.app Additional property shmsize is not allowed",
        (
            r"Additional property (\S+) is not allowed",
            r"refers to undefined (?:network|volume|config|secret|service) (\S+)",
            r"services\.\S+ (?:must be|Additional)",
            r"missing property 'capabilities'",
            r"services\.[\w.-]+: (?:invalid|unexpected|additional)",
            r"(?:conflicts with imported resource|depends on undefined service|"
            r"has neither an image nor a build context)",
            r"Invalid interpolation format",
            r"network (\S+) declared as external, but could not be found",
            r"env file (\S+) not found",
            r"no configuration file provided: not found",
            r"services\.[\w.-]+ (?:missing propert|is not allowed|contains (?:unsupported|non-unique|an invalid)|"
            r"array items|value .{0,60}(?:not allowed|not match|invalid))",
            r"capabilities is required",
        ),
        (COMPOSE_FILE,),
        more=COMPOSE,
        kind="engine",
    ),
    Rule(
        "being-removed",
        "Error response from daemon: removal of container demo is already in progress",
        (
            r"removal of container \S+ is already in progress",
            r"is marked for removal and cannot be (?:started|connected)",
        ),
        (
            Cause(
                "being-removed",
                "The container is being removed, and Docker has not finished.",
                "Wait a minute and try again. If it stays, run `sudo systemctl restart docker`.",
            ),
        ),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "docker-context",
        'context "desktop-linux": context not found',
        (r"context \\?\"([\w.-]+)\\?\"(?::)? (?:context )?(?:not found|does not exist)",),
        (
            Cause(
                "docker-context",
                "Docker's client is set to the context {0}, which does not exist.",
                "Run `unset DOCKER_CONTEXT; docker context use default`.",
            ),
        ),
        more=CLIENT,
        kind="engine",
        requires=r"docker|endpoint|desktop-linux|rootless|colima|default",
        excludes=r"kubectl|kubeconfig|^error: context",
    ),
    Rule(
        "devcontainer-form",
        "Error: Dev container config (/w/.devcontainer/devcontainer.json) must contain a JSON object literal.",
        (
            r"must contain a JSON object literal",
            r"devcontainer\.json[^\n]{0,60}(?:Unexpected token|JSON at position|parse error|InvalidSymbol)",
        ),
        (
            Cause(
                "devcontainer-form",
                "devcontainer.json is not valid JSON. Comments are allowed, but missing commas or quotes are not.",
                "Open it in VS Code, which marks the place.",
            ),
        ),
        certain=True,
    ),
    Rule(
        "workspace-missing",
        "Workspace does not exist",
        (r"^Workspace does not exist", r"[Ww]orkspace ?[Ff]older[^\n]{0,60}does not exist"),
        (
            Cause(
                "workspace-missing",
                "The folder that VS Code should open does not exist in the container. It was moved, or "
                "`workspaceMount` and `workspaceFolder` do not match.",
                "Remove both from devcontainer.json, or set `workspaceFolder` to the target of `workspaceMount`.",
            ),
        ),
        more=MOUNTS,
    ),
    Rule(
        "container-user",
        "unable to find user vscode: no matching entries in passwd file",
        (r"unable to find (?:user|group) ([\w$.-]+): no matching entries",),
        (
            Cause(
                "container-user",
                "The image has no user or group {0}, which devcontainer.json or the command names.",
                "Remove `remoteUser` and `containerUser` from devcontainer.json, or name a user that the image has.",
            ),
        ),
        certain=True,
        kind="engine",
    ),
    Rule(
        "user-number-taken",
        "useradd: UID 1000 is not unique",
        (
            r"(?:useradd|usermod|groupadd|groupmod|addgroup|adduser): (?:UID|GID|The [ug]id|gid|"
            r"uid)? ?'?(\d+)'? (?:is not unique|already exists|is already in use|in use)",
        ),
        (
            Cause(
                "user-number-taken",
                "The image already has a user or group with that number or name ({0}). Ubuntu 24.04 has `ubuntu` "
                "with 1000.",
                "Add `RUN userdel -r ubuntu` to the Dockerfile, before the step that creates the user.",
            ),
        ),
        more=BUILD,
    ),
    Rule(
        "user-in-use",
        "usermod: user me is currently used by process 1",
        (r"usermod: user \S+ is currently used by process",),
        (
            Cause(
                "user-in-use",
                "The user cannot be changed while one of its processes is running.",
                "Change it in the Dockerfile, or run the container as root until the user is changed.",
            ),
        ),
        certain=True,
    ),
    Rule(
        "vscode-server-system",
        "The remote host may not meet VS Code Server's prerequisites for glibc and libstdc++",
        (
            r"VS Code Server's prerequisites for glibc",
            r"Unsupported (?:glibc|libstdc\+\+) version",
            r"Missing GLIBC(?:XX)? >= [\d.]+!",
            r"vscode-remote/faq/old-linux",
        ),
        (
            Cause(
                "vscode-server-system",
                "The system in the image or on the remote machine is too old for this version of VS Code.",
                "Use an image with a newer system; in a project, run `./launch update`. For an old "
                "machine, use VS Code 1.98.",
                standalone="Use an image with a newer system. For an old machine, use VS Code 1.98.",
            ),
        ),
    ),
    Rule(
        "vscode-architecture",
        "~/.vscode-server/bin/node: cannot execute binary file: Exec format error",
        (r"vscode-server[^\n]{0,120}(?:cannot execute binary file|Exec format error)",),
        (
            Cause(
                "vscode-architecture",
                "VS Code's server in this home directory is for another processor architecture, or is incomplete.",
                "Run `rm -rf ~/.vscode-server` in the container, then open it again.",
            ),
        ),
    ),
    Rule(
        "watches",
        "ENOSPC: System limit for number of file watchers reached",
        (
            r"limit for number of file watchers reached",
            r"inotify (?:watch|instance)[^\n]{0,40}limit",
            r"unable to watch for file changes in this large workspace",
            r"inotify_add_watch[^\n]{0,40}No space left",
        ),
        (
            Cause(
                "watches",
                "Programs watch more files for changes than the machine allows. The disk is not full.",
                "On the machine, run `sudo sysctl fs.inotify.max_user_watches=524288 "
                "fs.inotify.max_user_instances=1024`.",
            ),
        ),
        certain=True,
    ),
    Rule(
        "build-secret",
        "cat: /run/secrets/token: No such file or directory",
        (
            r"/run/secrets/([\w.-]+)['\"]?:? ?(?:\([^)]*\) )?(?:No such file|not found)",
            r"No such file or directory:? ['\"]/run/secrets/([\w.-]+)",
            r"\bsecret ([\w.-]+): not found",
            r"failed to (?:stat|get secret|read secret)[^\n]{0,20} ([\w./-]+): secret",
        ),
        (
            Cause(
                "build-secret",
                "The secret ({0}) was not given to this step. A build secret exists only in the `RUN` step that "
                "mounts it.",
                "Add `--mount=type=secret,id=NAME` to that `RUN`, and build with `docker build --secret "
                "id=NAME,src=FILE .`.",
                tell="it happened in a build",
            ),
            Cause(
                "compose-secret",
                "The container was started without the secret ({0}).",
                "List it under `secrets` of the service in the compose file, and start the container with "
                "`docker compose up`.",
                tell="it happened in a running container",
            ),
        ),
        more=BUILD,
        kind="build",
    ),
    Rule(
        "copy-missing",
        'failed to compute cache key: "/requirements.txt": not found',
        (
            r"failed to (?:compute|calculate)[^\n]{0,60}: \"?(/[^\"\s:]+)\"?: not found",
            r"(?:COPY|ADD) failed: stat \S*?/?([\w.-]+): (?:file does not|no such)",
            r"(?:COPY|ADD) failed: (?:file not found|no source files)",
            r"lstat /\S*buildkit-mount\S*: no such file",
        ),
        (
            Cause(
                "copy-missing",
                "The Dockerfile copies a file that is not in the folder that is built ({0}).",
                "Create the file, or correct the path in `COPY`. Paths are relative to the build folder and may "
                "not leave it.",
                tell="`ls` does not find it in the folder given to `docker build`",
            ),
            Cause(
                "copy-ignored",
                "The file ({0}) exists, but .dockerignore leaves it out.",
                "Remove the matching line from .dockerignore, or add one that begins with `!`.",
                tell="`ls` finds it in that folder",
                given=~text_has(r"--from="),
            ),
            Cause(
                "copy-stage",
                "The stage that `COPY --from` names does not have the file ({0}).",
                "Correct the path, or create the file in that stage.",
                tell="the `COPY` has `--from`",
                given=text_has(r"--from="),
            ),
        ),
        more=BUILD,
        kind="build",
    ),
    Rule(
        "script-without-first-line",
        "exec /entrypoint.sh: exec format error",
        (r"exec:? \\?\"?(/?\S+\.(?:sh|py))\\?\"?: exec format error",),
        (NO_SHEBANG,),
        more=BUILD,
        kind="command",
    ),
    Rule(
        "program-as-script",
        "/usr/bin/bash: /usr/bin/bash: cannot execute binary file",
        (r"(?:bash|sh): (?:line \d+: )?/\S*/(\w+): cannot execute binary file$",),
        (
            Cause(
                "program-as-script",
                "A shell was given the program {0} as if it were a script. This happens when the image's "
                "entrypoint is the shell itself.",
                'Use `bash -c "..."` as the command, or set `--entrypoint`.',
                tell="the entrypoint is bash or sh: `docker image inspect IMAGE --format '{{.Config.Entrypoint}}'`",
            ),
            WRONG_ARCH,
        ),
        more=BUILD,
        kind="command",
    ),
    Rule(
        "image-platform",
        "no matching manifest for linux/arm64/v8 in the manifest list entries",
        (
            r"requested image's platform \([^)]*\) does not match the detected host platform",
            r"no match(?:ing manifest for|\sfor platform in manifest)",
            r"does not (?:match|provide) the specified platform",
            r"wanted (?:linux/)?\w+, actual:? ",
        ),
        (WRONG_ARCH, NO_EMULATION),
        more=CARD,
        kind="image",
    ),
    Rule(
        "other-processor",
        "exec /usr/bin/bash: exec format error",
        (
            r"(?<!nvidia\': )(?<!could not insert )(?<!\.sh: )(?<!\.sh\": )(?<!\.py: )exec format error",
            r"cannot execute binary file",
            r"qemu-(?:x86_64|aarch64)[^\n]{0,20}: (?:Could not open|uncaught)",
        ),
        (WRONG_ARCH, NO_SHEBANG, NO_EMULATION),
        more=CARD,
        kind="image",
    ),
    Rule(
        "linker-architecture",
        "ld: libtorch_cpu.so: error adding symbols: file in wrong format",
        (
            r"error adding symbols: file in wrong format",
            r"skipping incompatible \S+ when searching for",
            r"wrong ELF class",
        ),
        (
            Cause(
                "library-architecture",
                "A library is built for another processor architecture or word size than the program that loads it.",
                "Run `file` on that library, and install the one for this machine (`uname -m`).",
            ),
        ),
        more=CARD,
    ),
    Rule(
        "image-missing",
        "ERROR: failed to solve: nvidia/cuda:11.0-base-ubuntu20.04: not found",
        (
            r"failed to solve: ([\w./-]+(?::[\w.-]+)?(?:@sha256:\w+)?): (?:failed to resolve[^\n]*: )?(?:\S+: )?"
            r"not found",
            r"manifest for (\S+) not found",
            r"failed to resolve reference \\?\"?([\w./:-]+)[^\n]{0,80}not found",
            r"manifest unknown",
            r"Tag (\S+) not found in repository",
            r"(?:resolve source metadata for|manifest for) (\S+?)[:,]? (?![^\n]*(?:denied|authori[sz]|forbidden))"
            r"[^\n]*?(?:not found|manifest unknown|does not exist)",
        ),
        (
            Cause(
                "image-missing",
                "The image {0} does not exist, or no longer does. Old CUDA images are removed from time to time.",
                "Use another tag that the registry lists. In a project, set `BASE_IMAGE`, or get a newer base "
                "with `./launch update`.",
                tell="the registry's web page does not list the tag",
                standalone="Use another tag that the registry lists.",
            ),
            Cause(
                "stage-missing",
                "The Dockerfile refers to one of its stages by a wrong name.",
                "Correct the name in `FROM` or `COPY --from`.",
                tell="the name in the message has no tag and no registry",
            ),
        ),
        more=BUILD,
        kind="image",
        excludes=r"failed to resolve source metadata[^\n]*(?:denied|authori[sz]|forbidden)",
    ),
    Rule(
        "pull-limit",
        "Error response from daemon: toomanyrequests: You have reached your unauthenticated pull rate limit.",
        (r"toomanyrequests", r"pull rate limit"),
        (
            Cause(
                "pull-limit",
                "Docker Hub limits pulls without a login, counted by network address.",
                "Run `docker login`, then try again.",
                tell="the image comes from Docker Hub",
                given=unless_text_has(r"ghcr\.io|nvcr\.io|quay\.io|ecr\.aws"),
            ),
            Cause(
                "registry-busy",
                "The registry received too many requests from this network address.",
                "Wait some minutes, log in to that registry, and try again.",
                tell="the image comes from another registry",
                given=~text_has(r"unauthenticated pull"),
            ),
        ),
        more=BUILD,
        kind="image",
    ),
    Rule(
        "snap-void",
        "open /var/lib/snapd/void/Dockerfile: no such file or directory",
        (r"/var/lib/snapd/void",),
        (
            Cause(
                "snap-void",
                "Docker is a snap, which cannot see the folder in which it was started.",
                "Run it in a folder inside your home directory, or replace the snap with Docker Engine: `sudo snap "
                "remove docker`, then https://docs.docker.com/engine/install/.",
            ),
        ),
        certain=True,
        more=ENGINE,
        kind="build",
    ),
    Rule(
        "no-dockerfile",
        "failed to read dockerfile: open Dockerfile: no such file or directory",
        (
            r"failed to read dockerfile: open \S+ no such file",
            r"unable to prepare context: [^\n]{0,80}not found",
            r"Dockerfile \([^)\n]+\) not found",
            r"Cannot locate specified Dockerfile",
        ),
        (
            Cause(
                "no-dockerfile",
                "There is no Dockerfile at the given place.",
                "Run the command in the folder that has the Dockerfile, or name it with `--file`.",
                tell="`ls` does not find it",
            ),
            DOCKER_SNAP,
        ),
        more=BUILD,
        kind="build",
    ),
    Rule(
        "dockerfile-form",
        "failed to solve: dockerfile parse error on line 12: unknown instruction: FORM",
        (
            r"dockerfile parse error",
            r"failed to parse (?:the )?dockerfile",
            r"Syntax error - can't find = in",
            r"contains no FROM instructions|failed to parse final FROM line",
        ),
        (
            Cause(
                "dockerfile-form",
                "The Dockerfile has an error in the line that the message names.",
                "Correct that line, then build again.",
                tell="the line is not valid",
            ),
            Cause(
                "dockerfile-syntax",
                "The builder is too old for a feature in that line, such as a here-document.",
                "Make `# syntax=docker/dockerfile:1` the first line of the Dockerfile.",
                tell="the line is valid",
                given=text_has(r"unknown flag|<<"),
            ),
        ),
        more=BUILD,
        kind="build",
    ),
    Rule(
        "buildx-driver",
        "ERROR: Cache export is not supported for the docker driver.",
        (r"(?:feature is currently|export (?:feature )?is) not supported for (?:the )?docker driver",),
        (
            Cause(
                "buildx-driver",
                "Docker's default builder does not support this feature.",
                "Run `docker buildx create --use`, then build again. Add `--load` to get the image.",
            ),
        ),
        certain=True,
        more="`docker buildx ls`",
        kind="build",
    ),
    Rule(
        "too-many-layers",
        "Error response from daemon: max depth exceeded",
        (r"(?:daemon|failed|layer)[^\n]{0,60}max depth exceeded",),
        (
            Cause(
                "too-many-layers",
                "The image has more layers than the engine supports (about 127).",
                "Combine several commands in one `RUN` and several files in one `COPY`.",
            ),
        ),
        certain=True,
        more=BUILD,
        requires=r"response from daemon|layer|dockerd|docker build|failed to solve",
        kind="build",
    ),
    Rule(
        "build-cache-damaged",
        "ERROR: failed to solve: failed to compute cache key: unlazy requires an applier",
        (r"unlazy requires an applier", r"failed to (?:get|solve)[^\n]{0,80}(?:missing|unknown) (?:blob|parent|lease)"),
        (
            Cause(
                "build-cache-damaged",
                "BuildKit's cache is damaged.",
                "Delete it with `docker builder prune --all`, and build again.",
            ),
        ),
        more=ENGINE,
        kind="build",
    ),
    Rule(
        "build-busy",
        "failed to load cache: ref buildkit/1/layer-sha256:30a6 locked: unavailable",
        (
            r"\bref \S+ locked(?: for [^:\n]+)?: unavailable",
            r"\(\*service\)\.Write failed: rpc error[^\n]{0,120}locked",
        ),
        (
            Cause(
                "build-busy",
                "Another build is writing the same layer, or an aborted one left its lock.",
                "Wait for other builds to finish. If there are none, run `sudo systemctl restart docker`.",
            ),
        ),
        more="`docker buildx ls`",
        kind="build",
    ),
    Rule(
        "builder-died",
        "failed to solve: rpc error: code = Unavailable desc = error reading from server: EOF",
        (
            r"code = Unavailable desc = (?:error reading from server: EOF|closing transport|connection error)",
            r"listing workers for Build: failed to list workers",
            r"graceful_stop[^\n]*(?:EOF|Unavailable|error)",
        ),
        (
            Cause(
                "builder-out-of-memory",
                "The builder was stopped because the machine's memory was full.",
                "Compile with fewer processes: set `MAX_JOBS=2` in that `RUN`. Docker Desktop's memory is in "
                "Settings, Resources.",
                tell="`sudo dmesg | grep -i 'out of memory'` shows it",
            ),
            Cause(
                "builder-restarted",
                "Docker or the builder was restarted or crashed during the build.",
                "Run the build again. If it fails again, read `sudo journalctl -u docker --no-pager | tail -n 30`.",
                tell="`docker buildx ls` shows the builder, and the same build works later",
            ),
            STORE_FULL,
        ),
        more=STORAGE,
        level=BROAD,
        kind="build",
    ),
    Rule(
        "image-incomplete",
        "failed to register layer: unexpected EOF",
        (
            r"failed to (?:register|extract) layer(?!\S* \S+: no space)[^\n]{0,200}"
            r"(?:EOF|invalid|checksum|corrupt|no such file|gzip)",
            r"failed (?:size validation|commit on ref)",
            r"filesystem layer verification failed",
            r"unexpected commit digest",
            r"short read: expected \d+ bytes",
            r"content digest sha256:\w+: not found",
            r"parent snapshot \S+ does not exist",
        ),
        (
            Cause(
                "download-incomplete",
                "A layer of the image did not arrive complete.",
                "Pull the image again. Behind a proxy, bypass its cache for the registry.",
                tell="it works on another try or in another network",
            ),
            STORE_FULL,
            Cause(
                "image-store-damaged",
                "Docker's image store or build cache is damaged.",
                "Run `docker builder prune --all --force`, restart Docker, and build again.",
                tell="it fails at the same layer each time",
                given=text_has(r"parent snapshot|content digest"),
            ),
        ),
        more=BUILD,
        kind="image",
    ),
    Rule(
        "mount-in-read-only",
        "create mount destination for /home/dev/.aws/sso/cache mount: mkdirat /var/lib/docker/overlay2/x/merged/home/"
        "dev/.aws/sso: read-only file system",
        (r"create mount(?:point| destination)? for (\S+) mount: mkdirat[^\n]*read-only file system",),
        (
            Cause(
                "mount-in-read-only",
                "A mount ({0}) lies inside another one that is read-only, and its folder does not exist there.",
                "Create the folder in the other mount's source on the machine, or mount that one writable.",
            ),
        ),
        more=MOUNTS,
        kind="mount",
    ),
    Rule(
        "storage-broken",
        "error creating overlay mount to /var/lib/docker/overlay2: invalid argument",
        (
            r"error creating (?:overlay|aufs|zfs) mount",
            r"failed to mount overlay",
            r"driver \\?\"?overlay2?\\?\"? (?:failed to remove|not supported)",
            r"read-only file system[^\n]{0,40}/var/lib/(?:docker|containerd)",
            r"/var/lib/(?:docker|containerd)/(?!\S*/merged/)\S*: (?:input/output error|read-only file system)",
            r"failed to register layer:[^\n]{0,200}read-only file system",
        ),
        (
            STORE_BROKEN,
            Cause(
                "docker-filesystem",
                "Docker's data is on a file system on which overlay mounts do not work, such as NFS, NTFS, "
                "exFAT, or another overlay.",
                "Move Docker's data to ext4 or xfs: set `data-root` in /etc/docker/daemon.json, and restart Docker.",
                tell="`docker info | grep -i backing` names another file system than extfs or xfs",
            ),
            Cause(
                "too-long-mount",
                "The image has too many layers for one overlay mount, or the kernel lacks the overlay module.",
                "Run `sudo modprobe overlay`; after a kernel update, restart the machine.",
                tell="`sudo modprobe overlay` fails",
                given=unless_text_has(r"read-only|input/output"),
            ),
        ),
        more=STORAGE,
        kind="disk",
    ),
    Rule(
        "kernel-too-old",
        'copying bootstrap data to pipe caused "write init-p: broken pipe": unknown',
        (
            r"copying bootstrap data to pipe caused",
            r"FATAL: kernel too old",
            r"(?:runc|crun|OCI runtime)[^\n]{0,300}: [Ff]unction not implemented",
            r"Docker requires (?:a )?kernel",
        ),
        (
            Cause(
                "kernel-too-old",
                "The machine's kernel is too old for this engine or for a program in the image.",
                "Update the system and its kernel.",
                tell="`uname -r` is below 4.18",
                given=~WSL,
            ),
            WSL_1,
            Cause(
                "kernel-emulated",
                "A sandbox or an outer container (gVisor, OpenVZ, an old Docker) does not support the system calls "
                "that this needs.",
                "Use a virtual machine or another host.",
                tell="`systemd-detect-virt` prints a container's name",
            ),
        ),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "runc-start",
        "OCI runtime create failed: container_linux.go:377: starting container process caused: "
        "process_linux.go:352: getting the final child's pid from pipe caused: EOF",
        (
            r"getting the final child's pid from pipe caused",
            r"running exec setns process for init caused",
            r"waiting for init preliminary setup",
            r"read init-p: connection reset",
        ),
        (
            Cause(
                "runc-kernel",
                "The engine's runc and the machine's kernel do not match: one of them is too old.",
                "Update Docker and containerd together, update the kernel, and restart the machine.",
                tell="every container fails",
            ),
            Cause(
                "container-memory-tiny",
                "The container's memory limit is too low to start it, or the machine's memory is full.",
                "Raise or remove `--memory`, or free memory.",
                tell="only this container fails, or `sudo dmesg` shows `out of memory`",
            ),
            ENGINE_RIGHTS,
        ),
        more=ENGINE,
        level=BROAD,
        kind="engine",
    ),
    Rule(
        "seccomp",
        "error adding seccomp filter rule for syscall clone3: permission denied",
        (
            r"error adding seccomp (?:filter )?rule",
            r"seccomp: config provided but seccomp not supported",
            r"runc did not terminate successfully: exit status 127",
        ),
        (
            Cause(
                "seccomp",
                "The engine's runc and the system's libseccomp do not match, for example after a partial update.",
                "Update the packages of Docker, containerd or runc, and libseccomp2 together, then restart Docker.",
            ),
        ),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "crun-too-old",
        "Error: OCI runtime error: crun: unknown version specified",
        (r"crun: unknown version specified",),
        (
            Cause(
                "crun-too-old",
                "crun is too old for this Podman.",
                "Update crun to the release that belongs to this Podman: install both from the same package source.",
            ),
        ),
        certain=True,
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "cgroup-driver",
        'expected cgroupsPath to be of format "slice:prefix:name" for systemd cgroups',
        (
            r"expected cgroupsPath to be of format",
            r"cgroup driver: \\?\"?\w+\\?\"? is different from",
            r"systemd cgroup flag passed, but systemd support",
        ),
        (
            Cause(
                "cgroup-driver",
                "The engine and its runtime, or Kubernetes' kubelet, manage cgroups in two different ways "
                "(systemd and cgroupfs).",
                'Set `"exec-opts": ["native.cgroupdriver=systemd"]` in /etc/docker/daemon.json, or '
                "`SystemdCgroup = true` in containerd's config.toml, and restart it.",
            ),
        ),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "old-cgroups",
        "cgroups: cgroup mountpoint does not exist: unknown",
        (
            r"cgroup mountpoint does not exist",
            r"Devices cgroup isn't mounted",
            r"cgroups: cannot found cgroup mount",
            r"no cgroup mount found in mountinfo|no subsystem for mount",
            r"cannot find cgroup mount",
        ),
        (
            Cause(
                "docker-before-cgroup2",
                "This Docker is too old for the machine's cgroup version 2.",
                "Update Docker: https://docs.docker.com/engine/install/.",
                tell="`docker --version` is below 20.10",
            ),
            Cause(
                "cgroups-not-mounted",
                "The cgroups are not mounted, as in WSL without systemd or in an outer container.",
                "Run `sudo mkdir -p /sys/fs/cgroup/systemd && sudo mount -t cgroup -o none,name=systemd cgroup "
                "/sys/fs/cgroup/systemd`, or enable systemd in WSL.",
                tell="`ls /sys/fs/cgroup` is empty or has no `systemd`",
                given=WSL | CONTAINER,
            ),
        ),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "container-not-stopped",
        "Error response from daemon: cannot stop container: demo: permission denied",
        (r"cannot (?:stop|kill|remove|restart) container[^\n]{0,160}permission denied",),
        (
            Cause(
                "apparmor-profile-left",
                "AppArmor applies a profile that the engine no longer controls.",
                "Run `sudo aa-remove-unknown`, then stop the container again.",
                tell="it works after `sudo aa-remove-unknown`",
            ),
            DOCKER_SNAP,
            ENGINE_RIGHTS,
        ),
        more=ENGINE,
        level=BROAD,
        kind="engine",
    ),
    Rule(
        "apparmor",
        "apparmor failed to apply profile: write /proc/self/attr/apparmor/exec: no such file or directory",
        (r"apparmor failed to apply profile", r"attr/apparmor/exec", r"apparmor_parser[^\n]{0,40}(?:not found|error)"),
        (
            Cause(
                "apparmor-incomplete",
                "AppArmor's tools are missing on this machine, or its profiles are not loaded.",
                "Run `sudo apt-get install apparmor && sudo systemctl restart apparmor docker`.",
                tell="`sudo aa-status` fails",
            ),
            ENGINE_RIGHTS,
        ),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "ptrace-denied",
        "ptrace: Operation not permitted.",
        (r"ptrace: Operation not permitted", r"Permission Denied: Try running again with elevated permissions"),
        (
            Cause(
                "ptrace-capability",
                "A container may not inspect processes, which debuggers and py-spy need.",
                "Add `--cap-add=SYS_PTRACE` to `runArgs` in devcontainer.json, and recreate the container.",
                tell="it ran in a container",
                given=CONTAINER,
            ),
            Cause(
                "ptrace-scope",
                "This machine lets users inspect only processes that they started from the debugger.",
                "Run the tool with sudo, or run `sudo sysctl kernel.yama.ptrace_scope=0`.",
                tell="`sysctl kernel.yama.ptrace_scope` prints 1 or more",
                given=~CONTAINER,
            ),
        ),
    ),
    Rule(
        "git-bash-path",
        'OCI runtime create failed: exec: "C:/Program Files/Git/usr/bin/bash": no such file or directory',
        (r"[A-Z]:/Program Files/ ?Git/[^\n]{0,120}(?:no such file|not found|not absolute|invalid)",),
        (
            Cause(
                "git-bash-path",
                "Git Bash on Windows changed a path of the container into a path of Windows.",
                "Put `MSYS_NO_PATHCONV=1` before the command, or run it in PowerShell or WSL.",
            ),
        ),
        more=CLIENT,
        requires=r"docker|container|OCI|podman",
        kind="command",
    ),
    Rule(
        "exec-not-permitted",
        "exec /usr/bin/sh: operation not permitted",
        (r"exec:? \\?\"?(/[^\s\"\\:]+)\\?\"?: operation not permitted",),
        (SECCOMP_OLD, DOCKER_SNAP, NOEXEC),
        more=ENGINE,
        level=BROAD,
        kind="command",
    ),
    Rule(
        "not-executable",
        'exec: "./entrypoint.sh": permission denied: unknown',
        (
            r"exec:? \\?\"?([^\s\"\\]+)\\?\"?(?: failed)?: permission denied",
            r"(?:bash|sh): (?:(?:line )?\d+: )?(?!/(?:etc|dev|proc|sys|var|data|mnt)/)"
            r"(\S*/[\w+-]+|\S*[\w+-]\.(?:sh|py|run|bin|pl)): Permission denied$",
            r"(?:^|[\s/])sh: \d+: (\S+): Permission denied$",
            r"(?:bash|sh): (?:(?:line )?\d+: )?(\S+): cannot execute: Permission denied$",
            r"exec user process caused:? \\?\"?permission denied",
        ),
        (
            Cause(
                "not-executable",
                "The file {0} is not marked as executable.",
                "Run `chmod +x FILE` and `git update-index --chmod=+x FILE`; in a Dockerfile, use `COPY --chmod=755`.",
                tell="`ls -l` shows no `x`",
            ),
            NOEXEC,
            Cause(
                "exec-folder",
                "The name {0} is a folder, or the user may not enter a folder above it.",
                "Correct the path, or open the folders above it with `chmod a+x FOLDER`.",
                tell="`namei -l FILE` shows a folder without `x`",
            ),
        ),
        more=BUILD,
        kind="command",
    ),
    Rule(
        "entrypoint-missing",
        "exec /entrypoint.sh: no such file or directory",
        (
            r"exec user process caused:? \\?\"?no such file or directory",
            r"exec (\.{0,2}/[^\s:\"]+): no such file or directory$",
        ),
        (
            WINDOWS_LINES,
            Cause(
                "interpreter-missing",
                "The first line of the script names a shell that the image does not have, such as bash in Alpine.",
                "Write `#!/bin/sh`, or install that shell in the Dockerfile.",
                tell="`head -1 FILE` names it",
            ),
            Cause(
                "entrypoint-hidden",
                "The program is not in the image, or a mount hides it.",
                "Run `docker run --rm -it --entrypoint sh IMAGE` and look for it with `ls -l`.",
                tell="`ls -l` finds it in the image only, or not at all",
            ),
        ),
        more=BUILD,
        level=BROAD,
        kind="command",
    ),
    Rule(
        "line-ends",
        "/usr/bin/env: 'bash\\r': No such file or directory",
        (
            r"'?(?:bash|sh|python3?)\\r'?: No such file",
            r"bad interpreter: [^\n]{0,40}\^M",
            r"\$'\\r': command not found",
        ),
        (WINDOWS_LINES,),
        certain=True,
        more=BUILD,
        kind="command",
    ),
    Rule(
        "elf-header",
        "OSError: libfoo.so: invalid ELF header",
        (r"invalid ELF header",),
        (
            Cause(
                "elf-other-system",
                "The file was installed on another system (macOS, Windows), and a mount brings it into this one.",
                "Delete that environment or folder (`node_modules`, `.venv`), and install it in the container.",
                tell="`file FILE` prints Mach-O or PE",
            ),
            DAMAGED,
            Cause(
                "linker-script",
                "The file is a linker script and not a library, such as `libc.so` in a development package.",
                "Load the library with its version, such as `libc.so.6`.",
                tell="`file FILE` prints ASCII text, and it has GROUP or INPUT",
            ),
        ),
        more=CARD,
        level=BROAD,
    ),
    Rule(
        "apt-lock",
        "E: Could not get lock /var/lib/dpkg/lock-frontend",
        (
            r"^E: Could not get lock\b|Could not get lock /var/(?:lib|cache)/(?:dpkg|apt)",
            r"Unable to acquire the dpkg frontend lock",
            r"is locked by another process",
        ),
        (
            Cause(
                "apt-lock",
                "Another installation is running, often the automatic updates.",
                "Wait until it has finished: `sudo lsof /var/lib/dpkg/lock-frontend` shows it.",
                tell="the text has `held by process` or `Resource temporarily`",
                given=unless_text_has(r"13: Permission|are you root"),
            ),
            Cause(
                "apt-not-root",
                "The command needs root.",
                "Put `sudo` before it. For an image, install the package in the Dockerfile, or list it in "
                "apt.txt in a project.",
                tell="the text has `are you root`",
                given=text_has(r"13: Permission|are you root"),
            ),
        ),
        more="`ps aux | grep -e apt -e dpkg`",
    ),
    Rule(
        "apt-key",
        "W: GPG error: https://developer.download.nvidia.com/ NO_PUBKEY A4B469963BF863CC",
        (r"NO_PUBKEY A4B469963BF863CC",),
        (
            Cause(
                "apt-nvidia-key",
                "NVIDIA changed the key of its package source in 2022, and this system has the old one.",
                "Use a newer base image, or install NVIDIA's package `cuda-keyring`: "
                "https://docs.nvidia.com/cuda/cuda-installation-guide-linux/.",
            ),
        ),
        certain=True,
        more=BUILD,
    ),
    Rule(
        "apt-unsigned",
        "The following signatures couldn't be verified because the public key is not available: NO_PUBKEY",
        (r"NO_PUBKEY", r"E: The repository '[^']*' is (?:not|no longer) signed", r"EXPKEYSIG"),
        (
            Cause(
                "apt-key-missing",
                "The key of a package source is missing, was replaced, or has expired.",
                "Install the source's current key as its web page describes. For Ubuntu and Debian's own "
                "sources, use a newer base image.",
            ),
        ),
        more=BUILD,
        excludes=r"NO_PUBKEY A4B469963BF863CC",
    ),
    Rule(
        "apt-two-entries",
        "E: Conflicting values set for option Signed-By regarding source",
        (r"Conflicting values set for option Signed-By",),
        (
            Cause(
                "apt-two-entries",
                "The same package source is listed twice, with two different keys.",
                "Run `grep -rl HOST /etc/apt/sources.list.d`, with the host from the message, and delete one of "
                "the two files.",
            ),
        ),
        certain=True,
        more=BUILD,
    ),
    Rule(
        "apt-key-download",
        "gpg: no valid OpenPGP data found.",
        (r"no valid OpenPGP data found",),
        (
            Cause(
                "apt-key-download",
                "The key did not arrive: its address no longer exists, or the network returned a web page instead.",
                "Run `curl -fL ADDRESS | head -3` to see what arrives, and take the address from the source's "
                "current web page.",
            ),
        ),
        more=BUILD,
    ),
    Rule(
        "apt-tools",
        "E: gnupg, gnupg2 and gnupg1 do not seem to be installed, but one of them is required for this operation",
        (
            r"gnupg, gnupg2 and gnupg1 do not seem to be installed",
            r"(?:apt-key|add-apt-repository|gpg|gnupg): (?:command )?not found",
            r"The method driver /usr/lib/apt/methods/https could not be found",
        ),
        (
            Cause(
                "apt-tools",
                "A tool for adding package sources is not installed.",
                "Run `apt-get install -y gnupg ca-certificates apt-transport-https software-properties-common` first.",
                tell="`gpg --version` or the named command fails",
            ),
            Cause(
                "apt-key-removed",
                "This release of the distribution no longer has `apt-key`.",
                "Store the key in /etc/apt/keyrings, and name it with `signed-by=` in the source's line.",
                tell="the text has `apt-key: not found`",
                given=text_has(r"apt-key: (?:command )?not found"),
            ),
        ),
        more=BUILD,
    ),
    Rule(
        "apt-signature",
        "At least one invalid signature was encountered.",
        (r"At least one invalid signature was encountered",),
        (
            STORE_FULL,
            SECCOMP_OLD,
            Cause(
                "tmp-not-writable",
                "/tmp is not writable for apt in this image.",
                "Add `RUN chmod 1777 /tmp` to the Dockerfile before that step.",
                tell="`ls -ld /tmp` does not begin with `drwxrwxrwt`",
            ),
        ),
        more=STORAGE,
        level=BROAD,
    ),
    Rule(
        "dpkg-failed",
        "E: Sub-process /usr/bin/dpkg returned an error code (1)",
        (
            r"Sub-process /usr/bin/dpkg returned an error code",
            r"dpkg was interrupted",
            r"dependency problems (?:prevent|-) ?(?:configuration|leaving unconfigured)?",
            r"dpkg: error processing (?:package|archive)",
            r"trying to overwrite \'[^\']+\', which is also in package",
        ),
        (
            Cause(
                "dpkg-script",
                "The installation script of a package failed, for example because a kernel module did not compile.",
                "Read the first error above that line. Then run `sudo dpkg --configure -a`.",
                tell="the text has `installed ... script subprocess returned error`",
                given=text_has(r"script subprocess returned|Bad return status"),
            ),
            TWO_SOURCES,
            INTERRUPTED,
        ),
        more=BUILD,
        level=BROAD,
        kind="build",
    ),
    Rule(
        "apt-contradiction",
        "E: Unable to correct problems, you have held broken packages.",
        (
            r"Unable to correct problems, you have held broken packages",
            r"The following packages have unmet dependencies",
            r"Depends: [^\n]{0,80}but it is not (?:going to be installed|installable)",
            r"nothing provides \S+ needed by|package \S+ (?:requires|conflicts with) \S+[^\n]{0,80}(?:but none|"
            r"provided by)",
            r"\bE[:\uff1a] ?Unmet dependencies",
            r"Depends: \S+ \([^)]*\) but \S+ is to be installed",
        ),
        (
            OTHER_DRIVER_BRANCH,
            TWO_SOURCES,
            INTERRUPTED,
            Cause(
                "apt-version-required",
                "A package requires another version of a package than the one that would be installed.",
                "Install that version as well: `sudo apt-get install NAME=VERSION`, with both from the message.",
                tell="the text has `(= VERSION) but VERSION is to be installed`",
                given=text_has(r"\(= [^)]+\) but \S+ is to be installed"),
            ),
        ),
        more=BUILD,
        level=BROAD,
        kind="build",
    ),
    Rule(
        "apt-release",
        "E: The repository 'http://security.ubuntu.com/ubuntu jammy Release' does not have a Release file",
        (
            r"(?:does not|no longer) ha(?:ve|s) a Release file",
            r"Clearsigned file isn't valid, got 'NODATA'",
            r"Unsupported distribution!",
        ),
        (
            OTHER_RELEASE,
            Cause(
                "apt-source-wrong",
                "The address of the package source is wrong for this distribution or architecture.",
                "Correct the file in /etc/apt/sources.list.d as the source's web page describes.",
                tell="opening the address in a browser gives 404",
            ),
            Cause(
                "apt-intercepted",
                "A proxy or login page of the network answers instead of the package source.",
                "Set `http_proxy` for the build, or use another network.",
                tell="`curl -I ADDRESS` shows another server",
                given=text_has(r"NODATA|Clearsigned"),
            ),
        ),
        more=BUILD,
        kind="build",
    ),
    Rule(
        "apt-source-form",
        "E: Malformed entry 1 in list file /etc/apt/sources.list.d/nvidia.list",
        (r"Type '[^']*' is not known on line \d+ in source list", r"Malformed (?:entry|line) \d+ in (?:list|source)"),
        (
            Cause(
                "apt-source-form",
                "A file in /etc/apt/sources.list.d is not a valid package source. Often a web page was saved into it.",
                "Delete the file that the message names, and add the source again. `curl -f` avoids saving an "
                "error page.",
            ),
        ),
        certain=True,
        more=BUILD,
        kind="build",
    ),
    Rule(
        "apt-expired",
        "E: Release file for http://archive.ubuntu.com/ubuntu is expired",
        (r"Release file for \S+ is expired",),
        (
            Cause(
                "apt-mirror-old",
                "The package mirror is no longer updated.",
                "Use the distribution's own mirror in /etc/apt/sources.list.",
                tell="`date` is correct",
            ),
            Cause(
                "clock-wrong",
                "The machine's clock is wrong.",
                "Run `sudo timedatectl set-ntp true`; in WSL, run `wsl --shutdown` in Windows.",
                tell="`date` does not show the current time",
            ),
        ),
        more=BUILD,
        kind="build",
    ),
    Rule(
        "apt-nvidia-source",
        "E: Unable to locate package nvidia-container-toolkit",
        (
            r"Unable to locate package ((?:nvidia-(?:container|docker|driver|open|fabric)|libnvidia-|cuda-|"
            r"libcudnn|libnccl|datacenter-gpu|tensorrt)\S*)",
            r"Package '?((?:nvidia-(?:container|docker)|libnvidia-container|cuda-|libcudnn|libnccl|"
            r"datacenter-gpu)\S*?)'? has no installation candidate",
            r"No (?:match for argument|package): ?((?:nvidia-container|nvidia-docker|cuda-|libcudnn)\S*)",
        ),
        (
            Cause(
                "apt-nvidia-source",
                "NVIDIA's package source is not set up on this system, so {0} is not found.",
                "Set it up "
                "(https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html; "
                "`./launch setup` shows the commands), then run `sudo apt-get update`.",
                tell="`grep -r nvidia /etc/apt/sources.list.d` finds nothing",
            ),
            Cause(
                "apt-nvidia-version",
                "NVIDIA's source has {0} under another name or version, or not for this release.",
                "List what it has: `apt-cache search --names-only 'nvidia|cuda'`.",
                tell="`grep -r nvidia /etc/apt/sources.list.d` finds the source",
            ),
            NOT_UPDATED,
        ),
        more=GRANT,
        kind="build",
    ),
    Rule(
        "apt-mirror",
        "E: Failed to fetch ... Hash Sum mismatch",
        (r"Hash Sum mismatch", r"File has unexpected size|Mirror sync in progress", r"\bBADSIG\b"),
        (
            Cause(
                "apt-mirror-updating",
                "The package mirror was being updated.",
                "Run it again later. Build an image with `--no-cache`.",
                tell="it works an hour later",
            ),
            Cause(
                "apt-proxy-cache",
                "A proxy or cache in the network delivers old or changed files.",
                "Add `Acquire::http::No-Cache true;` to /etc/apt/apt.conf.d/99nocache, or use https sources.",
                tell="it works in another network",
            ),
        ),
        more=BUILD,
        kind="build",
    ),
    Rule(
        "dnf-source",
        "Error: Failed to download metadata for repo 'appstream': Cannot prepare internal mirrorlist",
        (r"Failed to download metadata for repo|Cannot prepare internal mirrorlist",),
        (OTHER_RELEASE, NETWORK_DOWN),
        more=BUILD,
        kind="build",
    ),
    Rule(
        "apt",
        "E: Unable to locate package libgl1-mesa-glx",
        (
            r"(?-i:\bE: )(?:Unable to locate package (\S+))",
            r"(?-i:\bE: )Package '?([^'\s]+)'? has no installation candidate",
            r"(?-i:\bE: )Couldn't find any package by (?:glob|regex) '([^']+)'",
            r"Package (\S+) is not available, but is referred to by another package",
            r"Version '[^']*' for '([^']+)' was not found",
            r"has no installation candidate",
            r"(?:Unable to find a match|No match for argument|No package): (\S+)",
            r"error: target not found: (\S+)",
        ),
        (
            Cause(
                "apt-name",
                "The package {0} has another name in this release of the distribution, or does not exist.",
                "Search for it with `apt-cache search NAME`. In a project, correct apt.txt.",
                tell="`apt-get update` ran just before",
            ),
            NOT_UPDATED,
            Cause(
                "apt-component",
                "The package {0} is in a part of the distribution that is not enabled, such as universe, "
                "multiverse, or non-free.",
                "Run `sudo add-apt-repository universe` (Ubuntu), then `sudo apt-get update`.",
                tell="the distribution's web site lists the package for this release",
            ),
        ),
        more=BUILD,
        kind="build",
    ),
    Rule(
        "image-unreached",
        'Error response from daemon: Get "https://registry-1.docker.io/v2/": context deadline exceeded',
        (
            r"failed to resolve source metadata for (\S+?)[:,]? ",
            r"failed to pull and unpack image \\?\"?(\S+?)[:,\\\"]+ ",
            r"Error response from daemon: (?:Get|Head) \\?\"?(https?://[^/\\\"]+)",
            r"unexpected status from \w+ request to (https?://[^/\s]+)\S*: 5\d\d",
        ),
        (NETWORK_DOWN, PROXY, TRY_AGAIN),
        more=BUILD,
        level=BROAD,
        kind="image",
    ),
    Rule(
        "cgroup-config",
        "OCI runtime create failed: runc create failed: unable to apply cgroup configuration: unable to start unit",
        (r"unable to apply cgroup configuration", r"error setting cgroup config for procHooks"),
        (
            Cause(
                "systemd-unit-left",
                "systemd was restarted or is overloaded, and a unit of that name remains.",
                "Run `sudo systemctl reset-failed && sudo systemctl restart docker`.",
                tell="it works after that, or after a restart of the machine",
            ),
            ENGINE_RIGHTS,
            Cause(
                "limit-unknown",
                "The container asks for a limit that this kernel does not support, such as real-time scheduling.",
                "Remove `--memory`, `--cpus`, `--cpu-rt-runtime`, and `--device-cgroup-rule` from runArgs one by one.",
                tell="it works without those options",
            ),
        ),
        more=ENGINE,
        level=BROAD,
        kind="engine",
    ),
    Rule(
        "toolkit-failed",
        "nvidia-container-cli: initialization error: something new",
        (
            r"nvidia-container-cli[^\n]{0,40} error\b",
            r"\bnvml error\b",
            r"Failed to initialize NVML",
            r"driver rpc error",
            r"libnvidia-ml\.so[^\n]{0,60}(?:cannot open|not found|no such|missing)",
        ),
        (
            Cause(
                "gpu-driver-silent",
                "The NVIDIA driver does not respond on this machine.",
                "Make `nvidia-smi` work first: if it fails, its message names the cause.",
                tell="`nvidia-smi` fails on the machine",
            ),
            Cause(
                "toolkit-outdated",
                "NVIDIA's Container Toolkit is too old for this driver, or its packages have different versions.",
                "Run `sudo apt-get install --only-upgrade nvidia-container-toolkit nvidia-container-toolkit-base "
                "libnvidia-container-tools libnvidia-container1 && sudo systemctl restart docker`.",
                tell="`nvidia-smi` works on the machine, and `nvidia-ctk --version` is below 1.17",
            ),
            OTHER_ENGINE,
        ),
        more=GRANT,
        level=GENERAL,
        kind="gpu",
    ),
    Rule(
        "no-such-container",
        "Error response from daemon: No such container: demo",
        (
            r"(?:daemon: |Error: )No such (?:container|object): (\S+)",
            r"no container with name or ID \\?\"(\S+?)\\?\" found",
        ),
        (
            Cause(
                "no-such-container",
                "There is no container {0} on this engine, or it was removed.",
                "Run `docker ps --all` to see those that exist.",
                tell="`docker ps --all` does not list it",
            ),
            Cause(
                "other-engine",
                "The container is on another engine: Docker Desktop, a rootless engine, or Podman.",
                "Run `docker context ls`, then `docker context use NAME`.",
                tell="`docker context ls` lists several engines",
            ),
        ),
        more=CLIENT,
        level=GENERAL,
        kind="engine",
    ),
    Rule(
        "vscode-server-download",
        "Failed to download VS Code Server (Server returned 404)",
        (
            r"(?:[Ff]ailed to|[Ee]rror|could not|couldn't) (?:download|install|fetch)\w*[^\n]{0,30}(?:VS ?Code|"
            r"vscode)[ -]?(?:remote )?[Ss]erver",
            r"Downloading VS ?Code Server failed",
            r"(?:vscode|VS ?Code|remote)[\s\S]{0,2000}Error:? XHR failed",
            r"Error:? XHR failed[\s\S]{0,2000}(?:vscode|VS ?Code|remote)",
        ),
        (
            Cause(
                "vscode-server-network",
                "The container or remote machine cannot reach update.code.visualstudio.com.",
                'Set `HTTPS_PROXY` there, or set `"remote.SSH.localServerDownload": "always"` in VS Code\'s settings.',
                tell="`curl -I https://update.code.visualstudio.com` fails there",
            ),
            Cause(
                "vscode-server-gone",
                "There is no server for this version of VS Code and this architecture.",
                "Update VS Code, then connect again.",
                tell="the text has 404",
                given=text_has(r"\b404\b"),
            ),
        ),
        level=GENERAL,
        program=True,
    ),
    Rule(
        "apt-fetch",
        "E: Failed to fetch http://archive.ubuntu.com/ubuntu/pool/main/c/curl/curl_8.5.0.deb  404  Not Found",
        (r"(?-i:\bE: )(?:Failed to fetch|Unable to fetch some archives)", r"Some index files failed to download"),
        (STALE_LISTS, NETWORK_DOWN, TRY_AGAIN),
        more=BUILD,
        level=GENERAL,
        kind="build",
    ),
    Rule(
        "no-such-image",
        "Error response from daemon: No such image: demo:latest",
        (r"(?:daemon: |Error: )No such image: (\S+)", r"([\w./:-]+): image not known"),
        (
            Cause(
                "no-such-image",
                "The engine has no image {0}: it was not built or pulled, or was removed.",
                "Build it again, or run `docker pull {0}`.",
                tell="`docker image ls` does not list it",
            ),
            Cause(
                "image-on-other-engine",
                "The image is on another engine or in another builder.",
                "Run `docker context ls`, then `docker context use NAME`. For a buildx builder in a container, "
                "build with `--load`.",
                tell="`docker context ls` or `docker buildx ls` lists several",
            ),
        ),
        more=CLIENT,
        level=GENERAL,
        kind="image",
    ),
    Rule(
        "container-stopped",
        "Error response from daemon: container 4d15a1238262 is not running",
        (
            r"Error response from daemon: (?:cannot exec in a stopped|Container \S+ is not running)",
            r"Container [0-9a-f]{12,} is not running",
            r"Container [0-9a-f]{12,} is restarting, wait until the container is running",
        ),
        (
            Cause(
                "container-stopped",
                "The container has ended, because its command failed or finished.",
                "Read its output with `docker logs NAME`: its last error names the cause.",
            ),
        ),
        more="`docker ps --all`",
        level=GENERAL,
        kind="engine",
    ),
    Rule(
        "unhealthy",
        "dependency failed to start: container app-db-1 is unhealthy",
        (
            r"dependency failed to start: container (\S+)",
            r"Container \\?\"?(\S+?)\\?\"? is unhealthy",
            r"(application) not healthy after",
        ),
        (
            Cause(
                "unhealthy",
                "A container that other services depend on has ended, or does not pass its health check ({0}).",
                "Run `docker compose logs` to see its error.",
            ),
        ),
        more=COMPOSE,
        level=GENERAL,
        program=True,
    ),
    Rule(
        "feature-failed",
        'ERROR: Feature "NVIDIA CUDA" (ghcr.io/devcontainers/features/nvidia-cuda) failed to install!',
        (r"ERROR: Feature \"([^\"\n]+)\"[^\n]{0,200} failed to install", r"Feature '?(\S+?)'? could not be processed"),
        (
            Cause(
                "feature-failed",
                "A feature in devcontainer.json ({0}) cannot be installed in this image. The lines above give "
                "the reason.",
                "Remove it from devcontainer.json, and install what it provides in the Dockerfile.",
            ),
        ),
        more=BUILD,
        level=GENERAL,
    ),
    Rule(
        "hook-command",
        "postCreateCommand failed with exit code 1. Skipping any further user-provided commands.",
        (r"(\w+Command) (?:from devcontainer\.json )?failed with exit code",),
        (
            Cause(
                "hook-command",
                "The {0} in devcontainer.json failed. The lines above give the reason.",
                "Run that command in a terminal of the container.",
            ),
        ),
        level=GENERAL,
        program=True,
    ),
    Rule(
        "docker-does-not-start",
        "Job for docker.service failed because the control process exited with error code.",
        (
            r"(?:Job for |Failed to start )docker\.service|Failed to start Docker Application Container Engine",
            r"docker\.service: (?:Failed|Start request repeated|Unit entered failed state|Main process exited)",
            r"ExecStart=\S*dockerd[^\n]{0,200}status=1/FAILURE",
            r"failed to start daemon:",
        ),
        (
            CONFIGURATION,
            STORE_FULL,
            Cause(
                "docker-start-log",
                "Docker needs something that is missing: containerd, iptables, or a kernel module.",
                "Run `sudo journalctl -u docker --no-pager | tail -n 30`: its last error names the cause.",
                tell="the log names it",
            ),
        ),
        more=ENGINE,
        level=GENERAL,
        kind="engine",
    ),
    Rule(
        "vscode-server",
        "Failed to connect to the remote extension host server (Error: WebSocket close with status code 1006)",
        (
            r"Failed to connect to the remote extension host server",
            r"Unable to connect to VS Code server",
            r"WebSocket close with status code 1006",
            r"Could not establish connection to \S+[^\n]{0,60}VS Code Server",
        ),
        (
            Cause(
                "vscode-container-ended",
                "The container has ended.",
                "Run `Dev Containers: Reopen in Container` in VS Code.",
                tell="`docker ps` does not list it",
            ),
            Cause(
                "vscode-connection-lost",
                "The connection to the container or remote machine was interrupted.",
                "Run `Developer: Reload Window` in VS Code.",
                tell="`docker ps` lists it, and reloading helps",
            ),
            Cause(
                "vscode-server-damaged",
                "VS Code's server in the container did not start, or its files are damaged.",
                "Run `rm -rf ~/.vscode-server` in the container, then `Developer: Reload Window`.",
                tell="reloading does not help",
            ),
        ),
        level=GENERAL,
    ),
    Rule(
        "yaml-form",
        "yaml: line 12: mapping values are not allowed in this context",
        (
            r"yaml: line \d+: (?:did not find|mapping values|could not find|found character|block)",
            r"compose[^\n]{0,80}yaml: line \d+",
        ),
        (
            Cause(
                "yaml-form",
                "A YAML file is not valid at the line that the message names.",
                "Correct the indentation, colons, or quotes at that line or the one before. For a compose file, "
                "`docker compose config` checks it.",
            ),
        ),
        certain=True,
        more=COMPOSE,
        level=GENERAL,
        program=True,
    ),
    Rule(
        "environment-missing",
        "os.environ['WANDB_PROJECT'] ... KeyError: 'WANDB_PROJECT'",
        (
            r"os\.environ[\s\S]{0,200}KeyError: '([A-Z][A-Z0-9_]+)'",
            r"os\.py\", line \d+, in __getitem__[\s\S]{0,160}KeyError: '([A-Z][A-Z0-9_]+)'",
            r"[Ee]nvironment variable [`'\"]?([A-Z][A-Z0-9_]+)[`'\"]? (?:is |was )?(?:not set|missing|required|"
            r"undefined)",
        ),
        (
            Cause(
                "environment-missing",
                "The environment variable {0} is not set where the program runs.",
                "Set it in .env, or in `containerEnv` of devcontainer.json. Variables of the machine are not "
                "passed to the container by themselves.",
            ),
        ),
        level=GENERAL,
        program=True,
    ),
    Rule(
        "no-such-command",
        'exec: "python": executable file not found in $PATH: unknown',
        (
            r"exec:? \\?\"?([^\s\"\\]+)\\?\"?(?: failed)?: (?:executable file not found|stat [^\n]*no such file|"
            r"no such file)",
            r"executable file [`'\"]([^`'\"]+)[`'\"] not found in \$PATH",
        ),
        (
            Cause(
                "no-such-command",
                "The container has no command `{0}`.",
                "Check the spelling, or install it in the Dockerfile. In a project, list its package in apt.txt.",
                tell="the image does not have it: `docker run --rm --entrypoint ls IMAGE /usr/bin`",
            ),
            Cause(
                "options-order",
                "Docker took an option or argument for the command, because it is after the image's name.",
                "Put all options before the image: `docker run OPTIONS IMAGE COMMAND`.",
                tell="the name in the message is an option or a file",
                given=text_has(r"exec:? \\?\"?-"),
            ),
            Cause(
                "command-hidden",
                "A mount hides {0}, for example the project's folder that is mounted over the image's own.",
                "Mount the folder at another place, or mount only what you need of it.",
                tell="it works without the mounts",
                given=text_has(r"exec:? \\?[\"`]?\.{0,2}/"),
            ),
        ),
        more=BUILD,
        level=GENERAL,
        kind="command",
    ),
    Rule(
        "compose-blank-variable",
        'The "DISPLAY" variable is not set. Defaulting to a blank string.',
        (r"The \\?\"?(\w+)\\?\"? variable is not set\. Defaulting to a blank",),
        (
            Cause(
                "compose-blank-variable",
                "The compose file uses the variable {0}, which is not set, so it is empty.",
                "If the service needs it, set it in .env beside the compose file.",
            ),
        ),
        more=COMPOSE,
        level=NOTE,
    ),
    Rule(
        "numa-denied",
        "set_mempolicy: Operation not permitted",
        (r"(?:set_mempolicy|get_mempolicy|mbind|move_pages)[^\n]{0,20}: Operation not permitted",),
        (
            Cause(
                "numa-denied",
                "The container may not choose the processor whose memory it uses. This only affects speed.",
                "Nothing is needed. Where it matters, add `--cap-add=SYS_NICE` to runArgs.",
            ),
        ),
        level=NOTE,
    ),
    Rule(
        "own-name",
        "sudo: unable to resolve host f3a1: Name or service not known",
        (r"sudo: unable to resolve host",),
        (
            Cause(
                "own-name",
                "The container's own name is not in its /etc/hosts. This does no harm.",
                "Nothing is needed.",
            ),
        ),
        level=NOTE,
    ),
    Rule(
        "deb-damaged",
        "dpkg-deb: error: 'nvidia-modprobe.deb' is not a Debian format archive",
        (r"'?(\S+\.deb)'? is not a debian format archive",),
        (
            Cause(
                "deb-damaged",
                "{0} is not a package: the download failed, or a web page was saved in its place.",
                "Delete it, download it again, and check it with `dpkg-deb --info FILE`.",
            ),
        ),
        more="`file *.deb`",
    ),
    Rule(
        "apt-waits",
        "Please select the geographic area in which you live.",
        (r"Please select the geographic area in which you live", r"^Geographic area:", r"Configuring tzdata\n"),
        (
            Cause(
                "apt-waits",
                "A package asks a question while it is installed, and nobody can answer during a build.",
                "Set `DEBIAN_FRONTEND=noninteractive` for that step: `RUN DEBIAN_FRONTEND=noninteractive apt-get "
                "install -y ...`, or write `ENV TZ=Etc/UTC` before it.",
            ),
        ),
        more=BUILD,
        level=BROAD,
    ),
    Rule(
        "apt-chatter",
        "invoke-rc.d: policy-rc.d denied execution of start.",
        (
            r"debconf: unable to initialize frontend",
            r"policy-rc\.d denied execution",
            r"delaying package configuration, since apt-utils is not installed",
            r"cannot set terminal process group[^\n]{0,40}Inappropriate ioctl",
        ),
        (
            Cause(
                "apt-chatter",
                "This is usual while an image is built, or without a terminal, and does no harm.",
                "Nothing is needed. `DEBIAN_FRONTEND=noninteractive` silences it.",
            ),
        ),
        more=BUILD,
        level=NOTE,
    ),
)
