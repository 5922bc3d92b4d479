"""The engine (Docker, Compose, BuildKit), VS Code's containers, and the image's system packages."""

from __future__ import annotations

from gpukit.errors.rule import BROAD, BUILD, CARD, ENGINE, GENERAL, GRANT, HOST, MOUNTS, NOTE, Rule
from gpukit.findings.finding import Cause

COMPOSE, CLIENT = "docker compose config", "./launch doctor --only client,engine"

RULES = (
    Rule(
        "docker-not-installed",
        "docker: command not found",
        (
            r"docker: (?:command )?not found",
            r"Command 'docker' not found",
            r"spawn docker ENOENT",
            r"docker: unrecognized service",
        ),
        (
            Cause(
                "docker-not-installed",
                "Docker is not installed here, or not on the PATH.",
                "https://docs.docker.com/engine/install/ says how.",
            ),
        ),
        look=CLIENT,
    ),
    Rule(
        "wsl-integration",
        "The command 'docker' could not be found in this WSL 2 distro",
        (r"could not be found in this WSL ?\d? distro",),
        (
            Cause(
                "wsl-integration",
                "Docker Desktop is not enabled for this WSL distribution.",
                "Switch it on in Docker Desktop: Settings, Resources, WSL integration.",
            ),
        ),
        look="./launch doctor --only client",
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
            Cause(
                "docker-desktop",
                "Docker Desktop's own machine has stopped.",
                "In Windows: wsl --update; wsl --shutdown, then start Docker Desktop again.",
            ),
        ),
        look=ENGINE,
    ),
    Rule(
        "docker-denied",
        "docker.errors.DockerException: Error while fetching server API version: PermissionError(13)",
        (
            r"Error while fetching server API version:[^\n]{0,80}PermissionError",
            r"Current user does not have permission to run 'docker'",
        ),
        (
            Cause(
                "docker-denied", "Docker does not let this user in.", "sudo usermod -aG docker $USER, and log in again."
            ),
        ),
        look=ENGINE,
    ),
    Rule(
        "docker-not-running",
        "docker.errors.DockerException: Error while fetching server API version: FileNotFoundError(2)",
        (
            r"Error while fetching server API version:[^\n]{0,80}(?:FileNotFoundError|ConnectionRefused|"
            r"No such file)",
            r"Couldn't connect to Docker daemon",
            r"Failed to connect\. Is docker running",
            r"Make sure the Docker daemon is running",
        ),
        (
            Cause(
                "docker-not-running", "Docker does not answer.", "sudo systemctl start docker, or open Docker Desktop."
            ),
        ),
        look=ENGINE,
    ),
    Rule(
        "docker-host",
        "Cannot connect to the Docker daemon at tcp://localhost:2375. Is the docker daemon running?",
        (
            r"(?:Cannot connect to the Docker daemon|failed to connect to the docker API) at "
            r"(?!unix:///var/run/docker\.sock|unix:///run/docker\.sock|npipe:)([a-z]+:[^\s;,]*[^\s;,.])",
            r"unable to resolve docker endpoint: context[^\n]{0,40}(not found)",
        ),
        (
            Cause(
                "docker-host",
                "The client looks for the engine at {0}, as DOCKER_HOST or a context says, and nobody answers there.",
                "unset DOCKER_HOST; docker context use default",
            ),
        ),
        look=CLIENT,
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
            Cause(
                "docker-configuration",
                "Docker does not start, as its configuration (/etc/docker/daemon.json) does not fit: broken, or another "
                "storage than before.",
                "sudo dockerd --validate, and undo the last change in /etc/docker/daemon.json",
            ),
        ),
        look=ENGINE,
    ),
    Rule(
        "docker-runs-already",
        "failed to start daemon, ensure docker is not running or delete /var/run/docker.pid",
        (r"ensure docker is not running or delete \S*docker\.pid", r"pid file found, ensure docker is not running"),
        (
            Cause(
                "docker-runs-already",
                "A Docker engine runs already, or one that was killed has left its mark (docker.pid).",
                "pgrep dockerd shows whether one runs; where none does: sudo rm /var/run/docker.pid, and start Docker.",
            ),
        ),
        look=ENGINE,
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
            Cause(
                "no-engine-here",
                "Docker Engine is not installed here: its client may be, and in WSL the engine may be Docker Desktop's.",
                "In WSL: start Docker Desktop on Windows; else https://docs.docker.com/engine/install/",
            ),
        ),
        look=CLIENT,
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
                "no-systemd",
                "This system runs without systemd, as a WSL of older setting or a container does, so services are not "
                "started this way.",
                "In WSL: systemd=true below [boot] in /etc/wsl.conf, then wsl --shutdown; else: sudo service docker start",
            ),
        ),
        look=ENGINE,
    ),
    # about: Docker cannot make its network rules (iptables).
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
        ),
        (
            Cause(
                "iptables-kernel-1",
                "The kernel was updated, and its old modules are gone.",
                "Restart this machine; then: sudo update-alternatives --set iptables /usr/sbin/iptables-legacy, and "
                "restart Docker; on a Jetson: Docker 27.",
                tell="it works after a restart of the machine",
            ),
            Cause(
                "iptables-kernel-2",
                "The kernel has no such module, or uses the other kind of iptables.",
                "Restart this machine; then: sudo update-alternatives --set iptables /usr/sbin/iptables-legacy, and "
                "restart Docker; on a Jetson: Docker 27.",
                tell="sudo modprobe ip_tables iptable_nat fails; iptables --version",
            ),
            Cause(
                "iptables-kernel-3",
                "Docker runs in a container itself, without the right to.",
                "Restart this machine; then: sudo update-alternatives --set iptables /usr/sbin/iptables-legacy, and "
                "restart Docker; on a Jetson: Docker 27.",
                tell="Permission denied stands beside it: --privileged",
            ),
        ),
        look=ENGINE,
        level=BROAD,
    ),
    Rule(
        "iptables",
        "iptables: No chain/target/match by that name",
        (
            r"iptables: No chain/target/match by that name",
            r"No chain/target/match by that name",
        ),
        (
            Cause(
                "iptables",
                "Docker's own rules in iptables are gone, as after a restart of the firewall, or a module for them is missing.",
                "sudo systemctl restart docker; where that does not help, restart this machine.",
            ),
        ),
        look=ENGINE,
    ),
    Rule(
        "kernel-modules-gone",
        "failed to add the host (veth1) <=> sandbox (veth2) pair interfaces: operation not supported",
        (
            r"pair interfaces: operation not supported",
            r"/dev/net/tun\W{1,4}No such (?:device|file)",
            r"failed to create endpoint[^\n]{0,120}operation not supported",
        ),
        (
            Cause(
                "kernel-modules-gone",
                "The kernel that runs has no module for what Docker's network needs: it was updated and its old "
                "modules are gone, or it was built without.",
                "Restart this machine; a kernel of your own needs veth, bridge and tun.",
            ),
        ),
        look=ENGINE,
    ),
    Rule(
        "address-pools",
        "could not find an available, non-overlapping IPv4 address pool among the defaults",
        (
            r"non-overlapping IPv4 address pool",
            r"predefined address pools have been fully subnetted",
            r"Pool overlaps with other one on this address space",
        ),
        (
            Cause(
                "address-pools",
                "Docker has no address left for another network, or a VPN holds them.",
                "docker network prune, or leave the VPN while it is made.",
            ),
        ),
        look="docker network ls",
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
                "port-reserved",
                "That port may not be opened: Windows keeps it for itself, or it is below 1024 without root.",
                "Another port, such as 8888.",
            ),
        ),
        look="./launch doctor --only ports",
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
                "mount-rights",
                "The engine may not make or change {0}: it lies on a network drive or a file system with rights of its own, "
                "or the engine runs without root.",
                "Make that folder yourself, as the user to whom the drive belongs, or mount the folder above it.",
            ),
        ),
        look=MOUNTS,
    ),
    Rule(
        "mount-source-missing",
        "Error: statfs /mnt/data: no such file or directory",
        (
            r"Error: statfs (/[^\s:]+): no such file",
            r"bind source path does not exist:? (\S+)",
        ),
        (
            Cause(
                "mount-source-missing",
                "{0}, which is to be mounted, is not there where the engine looks: there is no such folder, or the "
                "engine sees other ones (a snap, Docker Desktop, an engine outside this container).",
                "Make that folder, or repair its path in devcontainer.json.",
            ),
        ),
        look="./launch doctor --only mounts,engine",
    ),
    Rule(
        "mount-source",
        "error while creating mount source path '/mnt/data': mkdir /mnt/data: read-only file system",
        (r"error while creating mount source path '([^']+)'",),
        (
            Cause(
                "mount-source",
                "Docker cannot make {0}, which is to be mounted: the engine sees other folders (a snap, Docker Desktop), or "
                "it is on a drive that is gone.",
                "Make that folder yourself, and use Docker Engine.",
            ),
        ),
        look="./launch doctor --only mounts,engine",
    ),
    Rule(
        "volume-fails",
        "error while mounting volume 'data': VolumeDriver.Mount: exit status 1.",
        (
            r"error while mounting volume '([^']*)': ",
            r"failed to mount local volume: mount ([^\s:]+)",
        ),
        (
            Cause(
                "volume-fails",
                "Docker cannot mount the volume ({0}): the drive behind it (NFS, CIFS, a plugin's) refuses it, is not reached, "
                "or its options are wrong.",
                "docker volume inspect shows its options; the same mount by hand on the machine says more.",
            ),
        ),
        look=MOUNTS,
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
                "A mount is not of the form that Docker takes: a path that is not absolute, or a variable in it is empty.",
                "Absolute paths, in devcontainer.json by ${localWorkspaceFolder} or ${localEnv:HOME}.",
            ),
        ),
        look=MOUNTS,
    ),
    Rule(
        "windows-containers",
        'image operating system "linux" cannot be used on this platform',
        (
            r"image operating system \\?\"\w+\\?\" cannot be used on this platform",
            r"no matching manifest for windows",
        ),
        (
            Cause(
                "windows-containers",
                "Docker Desktop is set to Windows containers.",
                "In its menu: Switch to Linux containers.",
            ),
        ),
        look=ENGINE,
    ),
    Rule(
        "desktop-mount",
        'error mounting "/run/desktop/mnt/host/g/program" to rootfs at "/code": not a directory',
        (r"mounting \\?\"(/run/desktop/mnt/host[^\"\\]+)",),
        (
            Cause(
                "desktop-mount",
                "Docker Desktop does not see {0}: its drive, or the WSL distribution that holds it, was not there when the "
                "container began.",
                "Restart Docker Desktop, then the container; folders inside WSL rather than on a drive of Windows.",
            ),
        ),
        look=MOUNTS,
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
                "working-folder",
                "The container cannot enter its working folder ({0}): it is not there, or its user or an engine without "
                "root may not enter it.",
                "ls -ld on that folder and those above it; as the user of the container, or another workspaceFolder.",
            ),
        ),
        look=MOUNTS,
    ),
    Rule(
        "working-folder-replaced",
        "current working directory is outside of container mount namespace root -- possible container breakout "
        "detected",
        (
            r"outside of container mount namespace root",
            r"possible container breakout detected",
        ),
        (
            Cause(
                "working-folder-replaced",
                "The folder in which the container works was taken away or replaced on the machine while it ran.",
                "./launch stop, then start it again.",
            ),
        ),
        look=MOUNTS,
    ),
    Rule(
        "mount-fails",
        'error mounting "/data" to rootfs at "/data": operation not permitted',
        (
            r"error mounting \\?\"([^\"\\]+)\\?\" to rootfs[^\n]{0,300}(?:permission denied|"
            r"operation not permitted|no such file|invalid argument)",
        ),
        (
            Cause(
                "mount-fails",
                "{0} cannot be mounted into the container: it is gone, on a drive that does not allow it, or closed to the "
                "engine.",
                "Look at it on the machine; then take that mount out of devcontainer.json, or repair its path.",
            ),
        ),
        look=MOUNTS,
    ),
    Rule(
        "image-name",
        "docker: invalid reference format",
        (r"invalid reference format", r"\"docker (?:run|build|pull)\" requires (?:at least|exactly) \d+ argument"),
        (
            Cause(
                "image-name",
                "Docker takes another word for the image's name than was meant: a space or an empty variable stands in the "
                "command, or a capital letter in the name.",
                "Put paths and variables in double quotes.",
            ),
        ),
        look="./launch shell --dry-run",
    ),
    Rule(
        "gpus-form",
        "cannot set both Count and DeviceIDs on device request",
        (r"cannot set both Count and DeviceIDs on device request", r"unexpected key '?\w*'? in '?\w+=\w+'?.*--gpus"),
        (
            Cause(
                "gpus-form",
                "The list of GPUs lost its quotes on the way to Docker.",
                "--gpus '\"device=0,1\"' with both kinds of quotes; ./launch does so from GPUS=0,1.",
            ),
        ),
        look="nvidia-smi -L",
    ),
    Rule(
        "run-args",
        "unknown flag: --gpus all",
        (r"unknown (?:shorthand )?flag: '?--?[\w-]+ \S+",),
        (
            Cause(
                "run-args",
                "Two words stand in one string of runArgs, and Docker takes them for the name of a flag.",
                'Two strings, "--gpus", "all", or one with an equals sign: "--gpus=all".',
            ),
        ),
        look=HOST,
    ),
    Rule(
        "docker-plugin",
        "docker: unknown command: docker buildx",
        (
            r"unknown command: docker (buildx|compose)",
            r"docker: '(buildx|compose)' is not a docker command",
            r"unknown (?:shorthand )?flag: '?(?:f|p|d)'? in -(?:f|p|d)\b",
            r"^unknown flag: --(mount|secret|ssh|load|progress|platform)\b",
        ),
        (
            Cause(
                "docker-plugin",
                "Docker's part {0} is missing on this machine, or is too old.",
                "Install the packages docker-buildx-plugin and docker-compose-plugin.",
            ),
        ),
        look=ENGINE,
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
                "The container is to get CPUs or memory that this machine does not have ({0}).",
                "Take --cpus, --cpuset-cpus or --memory out of runArgs or of the compose file.",
            ),
        ),
        look=ENGINE,
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
                "There is no devcontainer.json where it is looked for ({0}).",
                "Open the project's own folder, the one with .devcontainer in it.",
            ),
        ),
        look=HOST,
    ),
    Rule(
        "client-too-new",
        "Error response from daemon: client version 1.52 is too new. Maximum supported API version is 1.43",
        (r"client version \S+ is too new",),
        (
            Cause(
                "client-too-new",
                "The engine is older than the client that calls it.",
                "Update Docker Engine: https://docs.docker.com/engine/install/; for now DOCKER_API_VERSION with the "
                "number that is named.",
            ),
        ),
        look=CLIENT,
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
                "The old program docker-compose is not here; Docker has it as `docker compose` today.",
                "Install the package docker-compose-plugin, and write `docker compose`.",
            ),
        ),
        look=CLIENT,
    ),
    Rule(
        "docker-too-old",
        "unknown flag: --gpus",
        (r"unknown flag: --gpus\b",),
        (
            Cause(
                "docker-too-old",
                "This command does not know --gpus: Docker is older than 19.03, or it is another command than "
                "`docker run` and `docker create`.",
                "docker run --gpus all; for an old one: https://docs.docker.com/engine/install/",
            ),
        ),
        look=ENGINE,
    ),
    Rule(
        "credential-helper",
        'error getting credentials - err: exec: "docker-credential-desktop.exe": executable file not found',
        (r"docker-credential-\w+(?:\.exe)?\\?\"?: executable file not found", r"error getting credentials - err: ex"),
        (
            Cause(
                "credential-helper",
                "Docker asks a helper for logins that is not here, as Docker Desktop leaves it behind.",
                "Take the line with credsStore out of ~/.docker/config.json.",
            ),
        ),
        look=ENGINE,
    ),
    Rule(
        "no-terminal",
        "the input device is not a TTY",
        (
            r"the input device is not a TTY",
            r"cannot enable tty mode on non tty input",
        ),
        (
            Cause(
                "no-terminal",
                "Docker was asked for a terminal (-t) where there is none, as in a script or in CI.",
                "Without -t; ./launch run asks for one only where there is one.",
            ),
        ),
        look=HOST,
    ),
    Rule(
        "file-sharing",
        "Mounts denied: The path /data is not shared from the host and is not known to Docker.",
        (r"Mounts denied", r"is not shared from the host and is not known to Docker"),
        (
            Cause(
                "file-sharing",
                "Docker Desktop may not see the folder that is to be mounted.",
                "Settings, Resources, File sharing: add the folder.",
            ),
        ),
        look=MOUNTS,
    ),
    Rule(
        "compose-v1",
        "KeyError: 'ContainerConfig'",
        (r"KeyError: 'ContainerConfig'", r"Not supported URL scheme http\+docker"),
        (
            Cause(
                "compose-v1",
                "docker-compose, the old one in Python, does not understand this Docker.",
                "Install the package docker-compose-plugin, and say `docker compose` without the hyphen.",
            ),
        ),
        look="docker compose version",
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
                "This Docker Compose is too old to ask for GPUs, or for this file.",
                "Install the package docker-compose-plugin.",
            ),
        ),
        look="docker compose version",
    ),
    Rule(
        "compose-file",
        "services.app Additional property shmsize is not allowed",
        (
            r"Additional property (\S+) is not allowed",
            r"refers to undefined (?:network|volume|config|secret|service) (\S+)",
            r"services\.\S+ (?:must be|Additional)",
            r"services\.[\w.-]+ (?:missing propert|is not allowed|contains|array items|value)",
            r"missing property 'capabilities'",
            r"services\.[\w.-]+: (?:invalid|unexpected|additional)",
            r"(?:conflicts with imported resource|depends on undefined service|"
            r"has neither an image nor a build context)",
            r"Invalid interpolation format",
            r"network (\S+) declared as external, but could not be found",
            r"yaml: line \d+: (?:did not find|mapping values|could not find|found character|block)",
            r"compose[^\n]{0,80}yaml: line \d+",
            r"env file (\S+) not found",
            r"no configuration file provided: not found",
        ),
        (
            Cause(
                "compose-file",
                "Compose's file has an error, or a file that it names is missing ({0}).",
                "docker compose config shows the place.",
            ),
        ),
        look=COMPOSE,
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
                "The container is being removed, and Docker does not come to an end with it.",
                "sudo systemctl restart docker, then start it again.",
            ),
        ),
        look=ENGINE,
    ),
    Rule(
        "docker-context",
        'context "desktop-linux": context not found',
        (r"context \\?\"([\w.-]+)\\?\"(?::)? (?:context )?(?:not found|does not exist)",),
        (
            Cause(
                "docker-context",
                "Docker's client is set to the context {0}, which does not exist.",
                "docker context use default",
            ),
        ),
        look=CLIENT,
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
                "devcontainer.json is not written as JSON (comments are allowed).",
                "VS Code marks the place; mostly a comma or a quote.",
            ),
        ),
        look=HOST,
    ),
    Rule(
        "workspace-missing",
        "Workspace does not exist",
        (
            r"^Workspace does not exist",
            r"[Ww]orkspace ?[Ff]older[^\n]{0,60}does not exist",
        ),
        (
            Cause(
                "workspace-missing",
                "The folder that VS Code is to open is not there: it was moved, or workspaceMount and "
                "workspaceFolder do not fit each other.",
                "Take both out of devcontainer.json, or let workspaceFolder lie within the mount's target.",
            ),
        ),
        look=MOUNTS,
    ),
    Rule(
        "container-user",
        "unable to find user vscode: no matching entries in passwd file",
        (r"unable to find (?:user|group) ([\w$.-]+): no matching entries",),
        (
            Cause(
                "container-user",
                "The image has no user {0}, whom devcontainer.json or the command names.",
                "Take remoteUser and containerUser out of devcontainer.json, or name a user that the image has.",
            ),
        ),
        look=HOST,
    ),
    Rule(
        "user-number-taken",
        "useradd: UID 1000 is not unique",
        (
            r"(?:useradd|usermod|groupadd|groupmod|addgroup|adduser): (?:UID|GID|The [ug]id|gid|"
            r"uid)? ?'?(\d+)'? (?:is not unique|already exists|is already in use|in use)",
            r"usermod: user \S+ is currently used by process",
        ),
        (
            Cause(
                "user-number-taken",
                "The image has a user or group with that number already ({0}), as Ubuntu's images have `ubuntu` with 1000.",
                "userdel -r ubuntu in the Dockerfile before the new user is made.",
            ),
        ),
        look=BUILD,
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
                "The image's system is too old for VS Code's server.",
                "A base with a newer system: copier update --trust",
            ),
        ),
        look=HOST,
    ),
    Rule(
        "vscode-architecture",
        "~/.vscode-server/bin/node: cannot execute binary file: Exec format error",
        (r"vscode-server[^\n]{0,120}(?:cannot execute binary file|Exec format error)",),
        (
            Cause(
                "vscode-architecture",
                "VS Code's server was fetched for another processor.",
                "rm -r ~/.vscode-server in the container, and open it again.",
            ),
        ),
        look=HOST,
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
                "More files are watched for changes than the machine allows; the disk is not full.",
                "On the machine: sudo sysctl fs.inotify.max_user_watches=524288",
            ),
        ),
        look=HOST,
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
                "The secret ({0}) is not given here: in a build it lasts only for the RUN that mounts it, and the "
                "build must be handed it; a container gets it from Compose.",
                "RUN --mount=type=secret,id=NAME in the very step that reads it, and docker build --secret id=NAME,src=FILE",
            ),
        ),
        look=BUILD,
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
                "The Dockerfile copies what is not there ({0}): in the folder that is built from, in the stage that "
                "it names, or .dockerignore leaves it out.",
                "Make that file, or repair the COPY or .dockerignore.",
            ),
        ),
        look=BUILD,
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
        ),
        (
            Cause(
                "image-missing",
                "There is no image {0} (any more): old releases of CUDA are taken away from time to time.",
                "Another tag, in BASE_IMAGE or the Dockerfile's ARG BASE_IMAGE; a newer base: copier update --trust",
            ),
        ),
        look=BUILD,
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
                "There is no Dockerfile at the place that was named.",
                "Start in the project's folder; ./launch build does so.",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "dockerfile-form",
        "failed to solve: dockerfile parse error on line 12: unknown instruction: FORM",
        (
            r"dockerfile parse error",
            r"failed to parse (?:the )?dockerfile",
            r"the --\w+ option requires BuildKit",
            r"Unknown flag: (?:mount|chmod|link)",
            r"Syntax error - can't find = in",
            r"contains no FROM instructions|failed to parse final FROM line",
        ),
        (
            Cause(
                "dockerfile-form",
                "The Dockerfile has an error in the line that is named, or is built without BuildKit.",
                "Look at that line; DOCKER_BUILDKIT=1 where it uses --mount.",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "buildx-driver",
        "ERROR: Cache export is not supported for the docker driver.",
        (r"(?:feature is currently|export (?:feature )?is) not supported for (?:the )?docker driver",),
        (
            Cause(
                "buildx-driver",
                "Docker's own builder does not do that; one in a container does.",
                "docker buildx create --use, then the same again.",
            ),
        ),
        look="docker buildx ls",
    ),
    Rule(
        "too-many-layers",
        "Error response from daemon: max depth exceeded",
        (r"(?:daemon|failed|layer)[^\n]{0,60}max depth exceeded",),
        (
            Cause(
                "too-many-layers",
                "The image has more layers than the engine takes (about 127).",
                "Fewer RUN and COPY lines: several commands in one RUN.",
            ),
        ),
        look=BUILD,
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
                "Another build is fetching or writing the same layer at the moment.",
                "Once more when it is done; one build at a time.",
            ),
        ),
        look="docker buildx ls",
    ),
    # about: Docker's builder ended in the middle, or was lost.
    Rule(
        "builder-died",
        "failed to solve: rpc error: code = Unavailable desc = error reading from server: EOF",
        (
            r"code = Unavailable desc = (?:error reading from server: EOF|closing transport|connection error)",
            r"listing workers for Build: failed to list workers",
            r"graceful_stop",
        ),
        (
            Cause(
                "builder-died-1",
                "The machine's memory ran out.",
                "./launch build again, with an eye on free -h",
                tell="sudo dmesg | grep -i 'out of memory'; MAX_JOBS=2 where something is compiled",
            ),
            Cause(
                "builder-died-2",
                "Docker or the builder was restarted, or its disk is full.",
                "./launch build again, with an eye on free -h",
                tell="docker buildx ls; docker system df",
            ),
        ),
        look="sudo dmesg | grep -i 'out of memory'",
        level=BROAD,
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
                "image-incomplete",
                "A part of the image did not arrive whole, or Docker's store of images is damaged.",
                "docker builder prune, then fetch it again; where it comes back: restart Docker.",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "storage-broken",
        "error creating overlay mount to /var/lib/docker/overlay2: invalid argument",
        (
            r"error creating (?:overlay|aufs|zfs) mount",
            r"failed to mount overlay",
            r"driver \\?\"?overlay2?\\?\"? (?:failed to remove|not supported)",
            r"read-only file system[^\n]{0,40}/var/lib/(?:docker|containerd)",
            r"/var/lib/(?:docker|containerd)/\S*: (?:input/output error|read-only file system)",
            r"failed to register layer:[^\n]{0,200}read-only file system",
        ),
        (
            Cause(
                "storage-broken",
                "Docker's store of images does not work on this disk: of a kind that it cannot use, damaged, or full.",
                "Restart Docker, and look at the disk it lies on: docker info | grep -i -e root -e backing",
            ),
        ),
        look="./launch doctor --only engine,disk",
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
                "The machine's kernel, or what stands in for one (WSL 1, gVisor, a container around it), lacks what "
                "this engine or a program in the image needs.",
                "Update the machine's kernel (in WSL: wsl --update), or take an older Docker.",
            ),
        ),
        look=ENGINE,
    ),
    Rule(
        "seccomp",
        "error adding seccomp filter rule for syscall clone3: permission denied",
        (
            r"error adding seccomp (?:filter )?rule",
            r"seccomp: config provided but seccomp not supported",
        ),
        (
            Cause(
                "seccomp",
                "The engine's runc and this system's libseccomp are of different ages, as after a partial update.",
                "Update docker, containerd.io (or runc) and libseccomp2 together, then restart Docker.",
            ),
        ),
        look=ENGINE,
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
                "Engine and runtime manage cgroups in two ways (systemd, cgroupfs).",
                '"exec-opts": ["native.cgroupdriver=systemd"] in /etc/docker/daemon.json; restart Docker.',
            ),
        ),
        look=ENGINE,
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
                "old-cgroups",
                "This Docker is too old for the machine's cgroups, or they are not mounted.",
                "Update Docker, and restart the machine.",
            ),
        ),
        look=ENGINE,
    ),
    # about: The engine may not end a container of its own.
    Rule(
        "container-not-stopped",
        "Error response from daemon: cannot stop container: demo: permission denied",
        (r"cannot (?:stop|kill|remove|restart) container[^\n]{0,160}permission denied",),
        (
            Cause(
                "container-not-stopped-1",
                "AppArmor holds a profile that is not the engine's any more.",
                "sudo aa-remove-unknown, then stop it again.",
                tell="it works after sudo aa-remove-unknown",
            ),
            Cause(
                "container-not-stopped-2",
                "Two Dockers are installed, mostly one as a snap.",
                "sudo aa-remove-unknown, then stop it again.",
                tell="snap list docker",
            ),
            Cause(
                "container-not-stopped-3",
                "The engine itself has too few rights, in a container or without root.",
                "sudo aa-remove-unknown, then stop it again.",
                tell="docker info names rootless",
            ),
        ),
        look=ENGINE,
        level=BROAD,
    ),
    Rule(
        "apparmor",
        "apparmor failed to apply profile: write /proc/self/attr/apparmor/exec: no such file or directory",
        (
            r"apparmor failed to apply profile",
            r"attr/apparmor/exec",
            r"apparmor_parser[^\n]{0,40}(?:not found|error)",
        ),
        (
            Cause(
                "apparmor",
                "AppArmor refuses the container: its parts on this machine do not fit together.",
                "Install the package apparmor, and restart the machine.",
            ),
        ),
        look=ENGINE,
    ),
    Rule(
        "numa-denied",
        "set_mempolicy: Operation not permitted",
        (r"(?:set_mempolicy|get_mempolicy|mbind|move_pages)[^\n]{0,20}: Operation not permitted",),
        (
            Cause(
                "numa-denied",
                "A container may not place its memory on chosen processors, so it is left where it is: a matter of speed only.",
                "--cap-add=SYS_NICE in runArgs, where that matters.",
            ),
        ),
        look=HOST,
    ),
    Rule(
        "ptrace-denied",
        "ptrace: Operation not permitted.",
        (
            r"ptrace: Operation not permitted",
            r"Permission Denied: Try running again with elevated permissions",
        ),
        (
            Cause(
                "ptrace-denied",
                "Other processes may not be looked into here, as debuggers and py-spy do: a container needs a "
                "capability for it, a machine its setting (ptrace_scope).",
                "--cap-add=SYS_PTRACE in runArgs of devcontainer.json; on the machine: sudo sysctl kernel.yama.ptrace_scope=0",
            ),
        ),
        look=HOST,
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
        ),
        (
            Cause(
                "not-executable",
                "{0} may not be executed: the file has lost that right, as on a drive of Windows or in a copy, its "
                "drive lets nothing be executed (noexec), or it is a folder.",
                "git update-index --chmod=+x, or chmod +x on it; in a Dockerfile: COPY --chmod=755",
            ),
        ),
        look=BUILD,
    ),
    # about: The container's first program, or what it is to be started with, is not found.
    Rule(
        "entrypoint-missing",
        "exec /entrypoint.sh: no such file or directory",
        (
            r"exec user process caused:? \\?\"?no such file or directory",
            r"exec (/\S+): no such file or directory$",
        ),
        (
            Cause(
                "entrypoint-missing-1",
                "It is a script with Windows' line ends.",
                "docker run --rm -it --entrypoint sh IMAGE, then head -1 FILE | cat -A",
                tell="its first line ends in ^M$: sed -i 's/\\r$//'",
            ),
            Cause(
                "entrypoint-missing-2",
                "Its first line names a shell that the image has not, as bash in Alpine.",
                "docker run --rm -it --entrypoint sh IMAGE, then head -1 FILE | cat -A",
                tell="head -1 names it",
            ),
            Cause(
                "entrypoint-missing-3",
                "It is not in the image, or a mount hides it.",
                "docker run --rm -it --entrypoint sh IMAGE, then head -1 FILE | cat -A",
                tell="ls -l in the image, then in the container",
            ),
        ),
        look=BUILD,
        level=BROAD,
    ),
    Rule(
        "line-ends",
        "/usr/bin/env: 'bash\\r': No such file or directory",
        (
            r"'?(?:bash|sh|python3?)\\r'?: No such file",
            r"bad interpreter: [^\n]{0,40}\^M",
            r"\$'\\r': command not found",
        ),
        (
            Cause(
                "line-ends",
                "A script has Windows' line ends.",
                "git config core.autocrlf input, then check the file out again; sed -i 's/\\r$//' repairs one.",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "script-without-first-line",
        "exec /entrypoint.sh: exec format error",
        (r"exec:? \\?\"?(/?\S+\.(?:sh|py))\\?\"?: exec format error",),
        (
            Cause(
                "script-without-first-line",
                "The script {0} does not begin with the line that names its interpreter (#!/bin/sh), or its file is of "
                "another kind.",
                "#!/usr/bin/env bash as its very first line, without a blank line or a mark (BOM) before it.",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "program-as-script",
        "/usr/bin/bash: /usr/bin/bash: cannot execute binary file",
        (r"(?:bash|sh): (?:line \d+: )?/\S*/(\w+): cannot execute binary file$",),
        (
            Cause(
                "program-as-script",
                "A shell was given a program ({0}) as if it were a script, as where the image's entrypoint is the "
                "shell itself; or the program is for another processor.",
                'bash -c "..." as the command, or --entrypoint; file on that program shows its processor.',
            ),
        ),
        look=BUILD,
    ),
    # about: A compiled file is not one that this system can load.
    Rule(
        "elf-header",
        "OSError: libfoo.so: invalid ELF header",
        (r"invalid ELF header",),
        (
            Cause(
                "elf-header-1",
                "It was made on another system, as where a folder of macOS or Windows is mounted over it.",
                "file on it says what it is.",
                tell="file names Mach-O or PE: install it inside",
            ),
            Cause(
                "elf-header-2",
                "It is for another processor.",
                "file on it says what it is.",
                tell="file names another one than uname -m",
            ),
            Cause(
                "elf-header-3",
                "It is not whole, or a pointer of Git LFS.",
                "file on it says what it is.",
                tell="it is small, or file says text",
            ),
        ),
        look=CARD,
        level=BROAD,
    ),
    Rule(
        "other-processor",
        "exec /usr/bin/bash: exec format error",
        (
            r"requested image's platform \([^)]*\) does not match the detected host platform",
            r"(?<!nvidia\': )(?<!could not insert )(?<!\.sh: )(?<!\.sh\": )(?<!\.py: )exec format error",
            r"cannot execute binary file",
            r"wrong ELF class",
            r"qemu-(?:x86_64|aarch64)[^\n]{0,20}: (?:Could not open|uncaught)",
            r"no match(?:ing manifest for|\sfor platform in manifest)",
            r"error adding symbols: file in wrong format|skipping incompatible \S+ when searching for",
            r"does not (?:match|provide) the specified platform",
            r"wanted (?:linux/)?\w+, actual:? ",
        ),
        (
            Cause(
                "other-processor",
                "The image, or a program in it, is made for another kind of processor than this machine's, or that "
                "program's file is not whole.",
                "copier update --trust --data hardware=... with this machine's; `./launch doctor --only card` names it.",
            ),
        ),
        look=CARD,
    ),
    Rule(
        "apt-lock",
        "E: Could not get lock /var/lib/dpkg/lock-frontend",
        (r"Could not get lock /var/lib/(?:dpkg|apt)", r"Unable to acquire the dpkg frontend lock"),
        (Cause("apt-lock", "Another installation is running.", "Wait until it is done."),),
        look="ps aux | grep -e apt -e dpkg",
    ),
    Rule(
        "apt-key",
        "W: GPG error: https://developer.download.nvidia.com/ NO_PUBKEY A4B469963BF863CC",
        (r"NO_PUBKEY A4B469963BF863CC",),
        (
            Cause(
                "apt-key",
                "NVIDIA changed the key of its package source, and this image has the old one.",
                "Take a newer base image; in one of your own: install cuda-keyring.",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "apt-unsigned",
        "The following signatures couldn't be verified because the public key is not available: NO_PUBKEY",
        (
            r"NO_PUBKEY",
            r"E: The repository '[^']*' is (?:not|no longer) signed",
            r"Conflicting values set for option Signed-By",
            r"EXPKEYSIG",
        ),
        (
            Cause(
                "apt-unsigned",
                "A source of Debian packages has another key than the one that is known here.",
                "Fetch the source's current key, as its page says; a newer base image has it.",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "apt-key-download",
        "gpg: no valid OpenPGP data found.",
        (r"no valid OpenPGP data found",),
        (
            Cause(
                "apt-key-download",
                "The key of a package source did not arrive: its address is gone, or the network gave a page instead of it.",
                "curl -v on that address shows what comes; the address as the source's own page names it today.",
            ),
        ),
        look=HOST,
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
                "A tool for adding sources of Debian packages is not in the image.",
                "gnupg, ca-certificates and software-properties-common, installed in the Dockerfile before that step.",
            ),
        ),
        look=BUILD,
    ),
    # about: apt cannot check signatures here.
    Rule(
        "apt-signature",
        "At least one invalid signature was encountered.",
        (r"At least one invalid signature was encountered",),
        (
            Cause(
                "apt-signature-1",
                "The disk is full.",
                "docker system df, and a current Docker.",
                tell="docker system df; df -h",
            ),
            Cause(
                "apt-signature-2",
                "Docker or its libseccomp is older than this image's system.",
                "docker system df, and a current Docker.",
                tell="the same with --security-opt seccomp=unconfined works: a current Docker",
            ),
            Cause(
                "apt-signature-3",
                "/tmp may not be written to, or the list's keys are missing in the image.",
                "docker system df, and a current Docker.",
                tell="ls -ld /tmp; a newer base image",
            ),
        ),
        look="./launch doctor --only disk,engine",
        level=BROAD,
    ),
    # about: A Debian package could not be set up; the first line of dpkg's above says which.
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
                "dpkg-failed-1",
                "Its own script failed, as where a kernel module does not compile or a service does not start.",
                "sudo dpkg --configure -a, then sudo apt --fix-broken install, whose own words say more.",
                tell="`installed ... script returned error` stands above",
            ),
            Cause(
                "dpkg-failed-2",
                "It depends on, or holds a file of, a package from another source.",
                "sudo dpkg --configure -a, then sudo apt --fix-broken install, whose own words say more.",
                tell="`dependency problems` or `trying to overwrite` stands above: one source only",
            ),
            Cause(
                "dpkg-failed-3",
                "An earlier installation broke off, or the disk is full.",
                "sudo dpkg --configure -a, then sudo apt --fix-broken install, whose own words say more.",
                tell="`was interrupted` or `No space` stands above",
            ),
        ),
        look=BUILD,
        level=BROAD,
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
            Cause(
                "apt-contradiction",
                "Debian packages do not fit together: two sources offer the same ones, or an earlier installation broke off.",
                "Take the package out of apt.txt; on the machine: sudo apt --fix-broken install",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "apt-release",
        "E: The repository 'http://security.ubuntu.com/ubuntu jammy Release' does not have a Release file",
        (
            r"(?:does not|no longer) ha(?:ve|s) a Release file",
            r"Conflicting values set for option Signed-By",
            r"Type '[^']*' is not known on line \d+ in source list",
            r"Malformed (?:entry|line) \d+ in (?:list|source)|Unsupported distribution!",
            r"Clearsigned file isn't valid, got 'NODATA'",
            r"Release file for \S+ is expired",
        ),
        (
            Cause(
                "apt-release",
                "A source of Debian packages does not serve this release of the system (any more), is written wrongly, or "
                "the network changes it.",
                "A newer base image; behind a proxy set HTTP_PROXY.",
            ),
        ),
        look=BUILD,
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
                "NVIDIA's source of packages is not set up here, or does not hold {0} for this release of the system.",
                "Set it up as https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
                " says; then sudo apt-get update",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "apt-mirror",
        "E: Failed to fetch ... Hash Sum mismatch",
        (
            r"Hash Sum mismatch",
            r"File has unexpected size|Mirror sync in progress",
        ),
        (
            Cause(
                "apt-mirror",
                "The packages' server does not give what its lists name: it is being renewed, or a proxy or cache "
                "between gives old files.",
                "Again in a while, ./launch build --no-cache; behind a proxy without its cache.",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "dnf-source",
        "Error: Failed to download metadata for repo 'appstream': Cannot prepare internal mirrorlist",
        (r"Failed to download metadata for repo|Cannot prepare internal mirrorlist",),
        (
            Cause(
                "dnf-source",
                "A source of packages (dnf) is not reached, or was taken away, as CentOS 8's were.",
                "A newer base image; for CentOS 8 vault.centos.org as its address.",
            ),
        ),
        look=BUILD,
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
                "apt",
                "A Debian package cannot be had ({0}): its name is wrong in this release, or the lists of packages are old.",
                "Check the name in apt.txt, then ./launch build --no-cache",
            ),
        ),
        look=BUILD,
    ),
    # about: The engine cannot give the container its share of the machine (cgroup).
    Rule(
        "cgroup-config",
        "unable to apply cgroup configuration: unable to start unit",
        (
            r"unable to apply cgroup configuration",
            r"error setting cgroup config for procHooks",
        ),
        (
            Cause(
                "cgroup-config-1",
                "Systemd was restarted or is overloaded, and a unit of that name is left.",
                "sudo systemctl restart docker, then docker info | grep -i cgroup",
                tell="it works after a restart of Docker or of the machine",
            ),
            Cause(
                "cgroup-config-2",
                "The engine itself runs in a container or without root.",
                "sudo systemctl restart docker, then docker info | grep -i cgroup",
                tell="docker info names rootless; use root's engine",
            ),
            Cause(
                "cgroup-config-3",
                "A limit (memory, cpus, devices) that this kernel does not know.",
                "sudo systemctl restart docker, then docker info | grep -i cgroup",
                tell="it works without those lines in runArgs",
            ),
        ),
        look=ENGINE,
        level=GENERAL,
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
                "There is no container {0} (any more) on this engine.",
                "docker ps --all shows those that are there; docker context ls, which engine is asked.",
            ),
        ),
        look=CLIENT,
        level=GENERAL,
    ),
    Rule(
        "vscode-server-download",
        "Failed to download VS Code Server (Server returned 404)",
        (
            r"(?:[Ff]ailed to|[Ee]rror|could not|couldn't) (?:download|install|fetch)\w*[^\n]{0,30}(?:VS ?Code|"
            r"vscode)[ -]?(?:remote )?[Ss]erver",
            r"Downloading VS ?Code Server failed",
            r"Error:? XHR failed",
        ),
        (
            Cause(
                "vscode-server-download",
                "VS Code's server could not be fetched: no way to update.code.visualstudio.com from here, or a proxy is "
                "between.",
                'HTTPS_PROXY for the machine and the container; "remote.SSH.localServerDownload" or another network.',
            ),
        ),
        look=HOST,
        level=GENERAL,
    ),
    # about: apt could not fetch a file or a list from a source of packages.
    Rule(
        "apt-fetch",
        "E: Failed to fetch http://archive.ubuntu.com/ubuntu/pool/main/c/curl/curl_8.5.0.deb  404  Not Found",
        (
            r"(?-i:\bE: )(?:Failed to fetch|Unable to fetch some archives)",
            r"Some index files failed to download",
        ),
        (
            Cause(
                "apt-fetch-1",
                "The list is older than the server's files, as in a cached layer of the build.",
                "./launch build --no-cache, which downloads the lists again",
                tell="404 Not Found stands beside it",
            ),
            Cause(
                "apt-fetch-2",
                "The network, a proxy or the server's own trouble.",
                "./launch build --no-cache, which downloads the lists again",
                tell="another number, or a time-out, stands beside it",
            ),
        ),
        look=BUILD,
        level=GENERAL,
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
                "The container has ended: its first command failed or was done.",
                "docker logs with its name shows its last words; `./launch explain -` may know them.",
            ),
        ),
        look="docker ps --all",
        level=GENERAL,
    ),
    Rule(
        "unhealthy",
        "dependency failed to start: container app-db-1 is unhealthy",
        (
            r"dependency failed to start: container (\S+)",
            r"Container \\?\"?(\S+?)\\?\"? is unhealthy",
        ),
        (
            Cause(
                "unhealthy",
                "A container on which others wait does not answer its health check or has ended ({0}).",
                "docker compose logs shows its own error.",
            ),
        ),
        look=COMPOSE,
        level=GENERAL,
    ),
    Rule(
        "feature-failed",
        'ERROR: Feature "NVIDIA CUDA" (ghcr.io/devcontainers/features/nvidia-cuda) failed to install!',
        (r"ERROR: Feature \"([^\"\n]+)\"[^\n]{0,200} failed to install", r"Feature '?(\S+?)'? could not be processed"),
        (
            Cause(
                "feature-failed",
                "A feature in devcontainer.json ({0}) does not install into this image.",
                "Take it out of devcontainer.json; what it brings can stand in the Dockerfile.",
            ),
        ),
        look=BUILD,
        level=GENERAL,
    ),
    Rule(
        "hook-command",
        "postCreateCommand failed with exit code 1. Skipping any further user-provided commands.",
        (r"(\w+Command) (?:from devcontainer\.json )?failed with exit code",),
        (
            Cause(
                "hook-command",
                "The {0} of devcontainer.json failed, and its own lines above say why.",
                "Run it once in a terminal of the container.",
            ),
        ),
        look="./launch shell",
        level=GENERAL,
    ),
    # about: The engine does not start; its own words are in its log.
    Rule(
        "docker-does-not-start",
        "Job for docker.service failed because the control process exited with error code.",
        (
            r"(?:Job for |Failed to start )docker\.service|Failed to start Docker Application Container Engine",
            r"docker\.service: (?:Failed|Start request repeated|Unit entered failed state|Main process exited)",
            r"ExecStart=\S*dockerd[^\n]{0,200}status=1/FAILURE",
        ),
        (
            Cause(
                "docker-does-not-start-1",
                "Its configuration does not fit.",
                "sudo journalctl -u docker --no-pager | tail -n 30, whose text `./launch explain -` may know.",
                tell="sudo dockerd --validate",
            ),
            Cause(
                "docker-does-not-start-2",
                "The disk is full or its store damaged.",
                "sudo journalctl -u docker --no-pager | tail -n 30, whose text `./launch explain -` may know.",
                tell="df -h /var/lib/docker",
            ),
            Cause(
                "docker-does-not-start-3",
                "Containerd, iptables or a module of the kernel is missing.",
                "sudo journalctl -u docker --no-pager | tail -n 30, whose text `./launch explain -` may know.",
                tell="the log names it",
            ),
        ),
        look=ENGINE,
        level=GENERAL,
    ),
    # about: The engine does not start; the words after that say at what.
    Rule(
        "docker-start-failed",
        "failed to start daemon: something it cannot do",
        (r"failed to start daemon:",),
        (
            Cause(
                "docker-start-failed-1",
                "Its configuration does not fit.",
                "sudo journalctl -u docker --no-pager | tail -n 30",
                tell="sudo dockerd --validate",
            ),
            Cause(
                "docker-start-failed-2",
                "The disk is full or its store damaged.",
                "sudo journalctl -u docker --no-pager | tail -n 30",
                tell="df -h /var/lib/docker",
            ),
            Cause(
                "docker-start-failed-3",
                "Containerd, iptables or a module of the kernel is missing.",
                "sudo journalctl -u docker --no-pager | tail -n 30",
                tell="the log names it",
            ),
        ),
        look=ENGINE,
        level=GENERAL,
    ),
    # about: VS Code's part in the container does not answer.
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
                "vscode-server-1",
                "The container ended.",
                "docker ps shows whether the container runs.",
                tell="docker ps --all",
            ),
            Cause(
                "vscode-server-2",
                "That part did not start, or its copy is damaged.",
                "docker ps shows whether the container runs.",
                tell="Dev Containers: Rebuild Container; rm -r ~/.vscode-server",
            ),
            Cause(
                "vscode-server-3",
                "The connection broke off.",
                "docker ps shows whether the container runs.",
                tell="Developer: Reload Window",
            ),
        ),
        look=HOST,
        level=GENERAL,
    ),
    Rule(
        "environment-missing",
        "os.environ['WANDB_PROJECT'] ... KeyError: 'WANDB_PROJECT'",
        (
            r"os\.environ[\s\S]{0,200}KeyError: '([A-Z][A-Z0-9_]+)'",
            r"os\.py\", line \d+, in __getitem__[\s\S]{0,160}KeyError: '([A-Z][A-Z0-9_]+)'",
            r"[Ee]nvironment variable [`'\"]?([A-Z][A-Z0-9_]+)[`'\"]? (?:is |was )?(?:not set|missing|required|"
            r"undefined)",
            r"The \\?\"?(\w+)\\?\"? variable is not set\. Defaulting to a blank",
        ),
        (
            Cause(
                "environment-missing",
                "The environment variable {0} is not set where this runs.",
                "In .env, or in containerEnv of devcontainer.json; what is set on the machine is not in the container by "
                "itself.",
            ),
        ),
        look=HOST,
        level=GENERAL,
    ),
    Rule(
        "no-such-command",
        'exec: "python": executable file not found in $PATH: unknown',
        (
            r"exec:? \\?\"?([^\s\"\\]+)\\?\"?(?: failed)?: (?:executable file not found|stat [^\n]*no such file|"
            r"no such file)",
        ),
        (
            Cause(
                "no-such-command",
                "The container has no command {0}.",
                "Check its name, and that the image is the one that was meant.",
            ),
        ),
        look=BUILD,
        level=GENERAL,
    ),
    Rule(
        "own-name",
        "sudo: unable to resolve host f3a1: Name or service not known",
        (r"sudo: unable to resolve host",),
        (
            Cause(
                "own-name",
                "A warning and no error: the container's own name is not in its /etc/hosts.",
                "Nothing is to be done.",
            ),
        ),
        look=HOST,
        level=NOTE,
    ),
    Rule(
        "apt-chatter",
        "debconf: unable to initialize frontend: Dialog",
        (
            r"debconf: unable to initialize frontend",
            r"policy-rc\.d denied execution",
            r"delaying package configuration, since apt-utils is not installed",
            r"cannot set terminal process group[^\n]{0,40}Inappropriate ioctl",
        ),
        (
            Cause(
                "apt-chatter",
                "A warning and no error, as without a terminal or while an image is built.",
                "DEBIAN_FRONTEND=noninteractive silences it.",
            ),
        ),
        look=BUILD,
        level=NOTE,
    ),
)
