"""The engine (Docker, Compose, BuildKit), VS Code's containers, and the image's system packages."""

from __future__ import annotations

from gpukit.errors.rule import BUILD, CARD, ENGINE, GRANT, HOST, MOUNTS, Words

COMPOSE, CLIENT = "docker compose config", "./launch doctor --only client,engine"

RULES = (
    Words(
        "docker-not-installed",
        "docker: command not found",
        (
            r"docker: (?:command )?not found",
            r"Command 'docker' not found",
            r"spawn docker ENOENT",
            r"docker: unrecognized service",
        ),
        "Docker is not installed here, or not on the PATH.",
        "https://docs.docker.com/engine/install/ says how.",
        CLIENT,
    ),
    Words(
        "wsl-integration",
        "The command 'docker' could not be found in this WSL 2 distro",
        (r"could not be found in this WSL ?\d? distro",),
        "Docker Desktop is not enabled for this WSL distribution.",
        "Switch it on in Docker Desktop: Settings, Resources, WSL integration.",
        "./launch doctor --only client",
    ),
    Words(
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
        "Docker Desktop's own machine has stopped.",
        "In Windows: wsl --update; wsl --shutdown, then start Docker Desktop again.",
        ENGINE,
    ),
    Words(
        "docker-denied",
        "docker.errors.DockerException: Error while fetching server API version: PermissionError(13)",
        (
            r"Error while fetching server API version:[^\n]{0,80}PermissionError",
            r"Current user does not have permission to run 'docker'",
        ),
        "Docker does not let this user in.",
        "sudo usermod -aG docker $USER, and log in again.",
        ENGINE,
    ),
    Words(
        "docker-not-running",
        "docker.errors.DockerException: Error while fetching server API version: FileNotFoundError(2)",
        (
            r"Error while fetching server API version:[^\n]{0,80}(?:FileNotFoundError|ConnectionRefused|"
            r"No such file)",
            r"Couldn't connect to Docker daemon",
            r"Failed to connect\. Is docker running",
            r"Make sure the Docker daemon is running",
        ),
        "Docker does not answer.",
        "sudo systemctl start docker, or open Docker Desktop.",
        ENGINE,
    ),
    Words(
        "docker-host",
        "Cannot connect to the Docker daemon at tcp://localhost:2375. Is the docker daemon running?",
        (
            r"(?:Cannot connect to the Docker daemon|failed to connect to the docker API) at "
            r"(?!unix:///var/run/docker\.sock|unix:///run/docker\.sock|npipe:)([a-z]+:[^\s;,]*[^\s;,.])",
            r"unable to resolve docker endpoint: context[^\n]{0,40}(not found)",
        ),
        "The client looks for the engine at {0}, as DOCKER_HOST or a context says, and nobody answers there.",
        "unset DOCKER_HOST; docker context use default",
        CLIENT,
    ),
    Words(
        "docker-configuration",
        "unable to configure the Docker daemon with file /etc/docker/daemon.json",
        (
            r"unable to configure the Docker daemon with file",
            r"contains (?:several valid|other) graphdriver",
            r"error initializing graphdriver",
            r"the following directives (?:are specified both|don't match any configuration option)",
        ),
        "Docker does not start, as its configuration (/etc/docker/daemon.json) does not fit: broken, or another "
        "storage than before.",
        "sudo dockerd --validate, and undo the last change in /etc/docker/daemon.json",
        ENGINE,
    ),
    Words(
        "docker-runs-already",
        "failed to start daemon, ensure docker is not running or delete /var/run/docker.pid",
        (r"ensure docker is not running or delete \S*docker\.pid", r"pid file found, ensure docker is not running"),
        "A Docker engine runs already, or one that was killed has left its mark (docker.pid).",
        "pgrep dockerd shows whether one runs; where none does: sudo rm /var/run/docker.pid, and start Docker.",
        ENGINE,
    ),
    Words(
        "no-engine-here",
        "Failed to restart docker.service: Unit docker.service not found.",
        (
            r"no runtime binary found from candidate list",
            r"Unit docker\.service (?:not found|could not be found)",
            r"Could not find the requested service docker",
            r"docker: unrecognized service",
        ),
        "Docker Engine is not installed here: its client may be, and in WSL the engine may be Docker Desktop's.",
        "In WSL: start Docker Desktop on Windows; else https://docs.docker.com/engine/install/",
        CLIENT,
    ),
    Words(
        "no-systemd",
        "System has not been booted with systemd as init system (PID 1). Can't operate.",
        (
            r"System has not been booted with systemd as init system",
            r"systemd not running on this host, cannot use systemd cgroups",
            r"Failed to connect to bus: (?:No such file|No medium|Host is down|\$DBUS)",
        ),
        "This system runs without systemd, as a WSL of older setting or a container does, so services are not "
        "started this way.",
        "In WSL: systemd=true below [boot] in /etc/wsl.conf, then wsl --shutdown; else: sudo service docker start",
        ENGINE,
    ),
    Words(
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
        "Docker cannot make its network rules (iptables).",
        "Restart this machine; then: sudo update-alternatives --set iptables /usr/sbin/iptables-legacy, and "
        "restart Docker; on a Jetson: Docker 27.",
        ENGINE,
        maybe=(
            (
                "the kernel was updated, and its old modules are gone",
                "it works after a restart of the machine",
            ),
            (
                "the kernel has no such module, or uses the other kind of iptables",
                "sudo modprobe ip_tables iptable_nat fails; iptables --version",
            ),
            (
                "Docker runs in a container itself, without the right to",
                "Permission denied stands beside it: --privileged",
            ),
        ),
    ),
    Words(
        "iptables",
        "iptables: No chain/target/match by that name",
        (
            r"iptables: No chain/target/match by that name",
            r"No chain/target/match by that name",
        ),
        "Docker's own rules in iptables are gone, as after a restart of the firewall, or a module for them is missing.",
        "sudo systemctl restart docker; where that does not help, restart this machine.",
        ENGINE,
    ),
    Words(
        "kernel-modules-gone",
        "failed to add the host (veth1) <=> sandbox (veth2) pair interfaces: operation not supported",
        (
            r"pair interfaces: operation not supported",
            r"/dev/net/tun\W{1,4}No such (?:device|file)",
            r"failed to create endpoint[^\n]{0,120}operation not supported",
        ),
        "The kernel that runs has no module for what Docker's network needs: it was updated and its old "
        "modules are gone, or it was built without.",
        "Restart this machine; a kernel of your own needs veth, bridge and tun.",
        ENGINE,
    ),
    Words(
        "address-pools",
        "could not find an available, non-overlapping IPv4 address pool among the defaults",
        (
            r"non-overlapping IPv4 address pool",
            r"predefined address pools have been fully subnetted",
            r"Pool overlaps with other one on this address space",
        ),
        "Docker has no address left for another network, or a VPN holds them.",
        "docker network prune, or leave the VPN while it is made.",
        "docker network ls",
    ),
    Words(
        "port-reserved",
        "An attempt was made to access a socket in a way forbidden by its access permissions",
        (
            r"access a socket in a way forbidden by its access permissions",
            r"cannot expose privileged port \d+",
            r"listen EACCES: permission denied",
            r"bind[^\n]{0,60}:(?:80|443)\b[^\n]{0,20}permission denied",
        ),
        "That port may not be opened: Windows keeps it for itself, or it is below 1024 without root.",
        "Another port, such as 8888.",
        "./launch doctor --only ports",
    ),
    Words(
        "mount-rights",
        "error while creating mount source path '/mnt/tank': chmod /mnt/tank: operation not permitted",
        (
            r"error while creating mount source path '([^']+)': (?:chmod|chown|mkdir)[^\n]*(?:operation not permitted|"
            r"permission denied)",
        ),
        "The engine may not make or change {0}: it lies on a network drive or a file system with rights of its own, "
        "or the engine runs without root.",
        "Make that folder yourself, as the user to whom the drive belongs, or mount the folder above it.",
        MOUNTS,
    ),
    Words(
        "mount-source-missing",
        "Error: statfs /mnt/data: no such file or directory",
        (
            r"Error: statfs (/[^\s:]+): no such file",
            r"bind source path does not exist:? (\S+)",
        ),
        "{0}, which is to be mounted, is not there where the engine looks: there is no such folder, or the "
        "engine sees other ones (a snap, Docker Desktop, an engine outside this container).",
        "Make that folder, or repair its path in devcontainer.json.",
        "./launch doctor --only mounts,engine",
    ),
    Words(
        "mount-source",
        "error while creating mount source path '/mnt/data': mkdir /mnt/data: read-only file system",
        (r"error while creating mount source path '([^']+)'",),
        "Docker cannot make {0}, which is to be mounted: the engine sees other folders (a snap, Docker Desktop), or "
        "it is on a drive that is gone.",
        "Make that folder yourself, and use Docker Engine.",
        "./launch doctor --only mounts,engine",
    ),
    Words(
        "volume-fails",
        "error while mounting volume 'data': VolumeDriver.Mount: exit status 1.",
        (
            r"error while mounting volume '([^']*)': ",
            r"failed to mount local volume: mount ([^\s:]+)",
        ),
        "Docker cannot mount the volume ({0}): the drive behind it (NFS, CIFS, a plugin's) refuses it, is not reached, "
        "or its options are wrong.",
        "docker volume inspect shows its options; the same mount by hand on the machine says more.",
        MOUNTS,
    ),
    Words(
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
        "A mount is not of the form that Docker takes: a path that is not absolute, or a variable in it is empty.",
        "Absolute paths, in devcontainer.json by ${localWorkspaceFolder} or ${localEnv:HOME}.",
        MOUNTS,
    ),
    Words(
        "windows-containers",
        'image operating system "linux" cannot be used on this platform',
        (
            r"image operating system \\?\"\w+\\?\" cannot be used on this platform",
            r"no matching manifest for windows",
        ),
        "Docker Desktop is set to Windows containers.",
        "In its menu: Switch to Linux containers.",
        ENGINE,
    ),
    Words(
        "desktop-mount",
        'error mounting "/run/desktop/mnt/host/g/program" to rootfs at "/code": not a directory',
        (r"mounting \\?\"(/run/desktop/mnt/host[^\"\\]+)",),
        "Docker Desktop does not see {0}: its drive, or the WSL distribution that holds it, was not there when the "
        "container began.",
        "Restart Docker Desktop, then the container; folders inside WSL rather than on a drive of Windows.",
        MOUNTS,
    ),
    Words(
        "working-folder",
        'chdir to cwd ("/workspace") set in config.json failed: permission denied',
        (
            r"chdir to cwd \(\\?\"?([^\"\\)]+)\\?\"?\) set in config\.json failed",
            r"mkdir (/\S+): [^\n]{0,40}(?:setting up|working) ?dir",
            r"cwd (/\S+) (?:is not|does not)",
        ),
        "The container cannot enter its working folder ({0}): it is not there, or its user or an engine without "
        "root may not enter it.",
        "ls -ld on that folder and those above it; as the user of the container, or another workspaceFolder.",
        MOUNTS,
    ),
    Words(
        "working-folder-replaced",
        "current working directory is outside of container mount namespace root -- possible container breakout "
        "detected",
        (
            r"outside of container mount namespace root",
            r"possible container breakout detected",
        ),
        "The folder in which the container works was taken away or replaced on the machine while it ran.",
        "./launch stop, then start it again.",
        MOUNTS,
    ),
    Words(
        "mount-fails",
        'error mounting "/data" to rootfs at "/data": operation not permitted',
        (
            r"error mounting \\?\"([^\"\\]+)\\?\" to rootfs[^\n]{0,300}(?:permission denied|"
            r"operation not permitted|no such file|invalid argument)",
        ),
        "{0} cannot be mounted into the container: it is gone, on a drive that does not allow it, or closed to the "
        "engine.",
        "Look at it on the machine; then take that mount out of devcontainer.json, or repair its path.",
        MOUNTS,
    ),
    Words(
        "image-name",
        "docker: invalid reference format",
        (r"invalid reference format", r"\"docker (?:run|build|pull)\" requires (?:at least|exactly) \d+ argument"),
        "Docker takes another word for the image's name than was meant: a space or an empty variable stands in the "
        "command, or a capital letter in the name.",
        "Put paths and variables in double quotes.",
        "./launch shell --dry-run",
    ),
    Words(
        "gpus-form",
        "cannot set both Count and DeviceIDs on device request",
        (r"cannot set both Count and DeviceIDs on device request", r"unexpected key '?\w*'? in '?\w+=\w+'?.*--gpus"),
        "The list of GPUs lost its quotes on the way to Docker.",
        "--gpus '\"device=0,1\"' with both kinds of quotes; ./launch does so from GPUS=0,1.",
        "nvidia-smi -L",
    ),
    Words(
        "run-args",
        "unknown flag: --gpus all",
        (r"unknown (?:shorthand )?flag: '?--?[\w-]+ \S+",),
        "Two words stand in one string of runArgs, and Docker takes them for the name of a flag.",
        'Two strings, "--gpus", "all", or one with an equals sign: "--gpus=all".',
        HOST,
    ),
    Words(
        "docker-plugin",
        "docker: unknown command: docker buildx",
        (
            r"unknown command: docker (buildx|compose)",
            r"docker: '(buildx|compose)' is not a docker command",
            r"unknown (?:shorthand )?flag: '?(?:f|p|d)'? in -(?:f|p|d)\b",
            r"^unknown flag: --(mount|secret|ssh|load|progress|platform)\b",
        ),
        "Docker's part {0} is missing on this machine, or is too old.",
        "Install the packages docker-buildx-plugin and docker-compose-plugin.",
        ENGINE,
    ),
    Words(
        "asks-for-more",
        "docker: Error response from daemon: Range of CPUs is from 0.01 to 8.00, as there are only 8 CPUs available",
        (
            r"Range of CPUs is from [^\n]{0,40}only (\d+ CPUs)",
            r"Minimum memory limit allowed",
            r"Requested CPUs are not available",
            r"cpuset[^\n]{0,60}(?:not available|out of range)",
        ),
        "The container is to get CPUs or memory that this machine does not have ({0}).",
        "Take --cpus, --cpuset-cpus or --memory out of runArgs or of the compose file.",
        ENGINE,
    ),
    Words(
        "no-devcontainer-file",
        "Error: Dev container config (/workspace/.devcontainer/devcontainer.json) not found.",
        (
            r"Dev container config \(([^)]+)\) not found",
            r"Command failed: devcontainer[^\n]{0,80}not found",
            r"Dev container config \(([^)]+)\) is missing one of",
        ),
        "There is no devcontainer.json where it is looked for ({0}).",
        "Open the project's own folder, the one with .devcontainer in it.",
        HOST,
    ),
    Words(
        "client-too-new",
        "Error response from daemon: client version 1.52 is too new. Maximum supported API version is 1.43",
        (r"client version \S+ is too new",),
        "The engine is older than the client that calls it.",
        "Update Docker Engine: https://docs.docker.com/engine/install/; for now DOCKER_API_VERSION with the "
        "number that is named.",
        CLIENT,
    ),
    Words(
        "compose-missing",
        "docker-compose: command not found",
        (
            r"docker-compose: (?:command )?not found",
            r"spawn docker-compose ENOENT",
            r"No such file or directory: 'docker-compose'",
            r"Command 'docker-compose' not found",
        ),
        "The old program docker-compose is not here; Docker has it as `docker compose` today.",
        "Install the package docker-compose-plugin, and write `docker compose`.",
        CLIENT,
    ),
    Words(
        "docker-too-old",
        "unknown flag: --gpus",
        (r"unknown flag: --gpus\b",),
        "This command does not know --gpus: Docker is older than 19.03, or it is another command than "
        "`docker run` and `docker create`.",
        "docker run --gpus all; for an old one: https://docs.docker.com/engine/install/",
        ENGINE,
    ),
    Words(
        "credential-helper",
        'error getting credentials - err: exec: "docker-credential-desktop.exe": executable file not found',
        (r"docker-credential-\w+(?:\.exe)?\\?\"?: executable file not found", r"error getting credentials - err: ex"),
        "Docker asks a helper for logins that is not here, as Docker Desktop leaves it behind.",
        "Take the line with credsStore out of ~/.docker/config.json.",
        ENGINE,
    ),
    Words(
        "no-terminal",
        "the input device is not a TTY",
        (
            r"the input device is not a TTY",
            r"cannot enable tty mode on non tty input",
        ),
        "Docker was asked for a terminal (-t) where there is none, as in a script or in CI.",
        "Without -t; ./launch run asks for one only where there is one.",
        HOST,
    ),
    Words(
        "file-sharing",
        "Mounts denied: The path /data is not shared from the host and is not known to Docker.",
        (r"Mounts denied", r"is not shared from the host and is not known to Docker"),
        "Docker Desktop may not see the folder that is to be mounted.",
        "Settings, Resources, File sharing: add the folder.",
        MOUNTS,
    ),
    # Compose
    Words(
        "compose-v1",
        "KeyError: 'ContainerConfig'",
        (r"KeyError: 'ContainerConfig'", r"Not supported URL scheme http\+docker"),
        "docker-compose, the old one in Python, does not understand this Docker.",
        "Install the package docker-compose-plugin, and say `docker compose` without the hyphen.",
        "docker compose version",
    ),
    Words(
        "compose-too-old",
        "services.app.deploy.resources.reservations value Additional properties are not allowed ('devices')",
        (
            r"services\.\S+\.deploy\.resources\.reservations value .{0,40}devices",
            r"(?<!limits )Additional property (?:gpus|devices|develop|include) is not allowed",
            r"Unsupported config option[^\n]{0,60}(?:gpus|runtime)",
            r"Version in \"\S+\" is unsupported",
            r"ERROR: for \S+ +__init__\(\) got an unexpected keyword argument 'gpus'",
        ),
        "This Docker Compose is too old to ask for GPUs, or for this file.",
        "Install the package docker-compose-plugin.",
        "docker compose version",
    ),
    Words(
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
        "Compose's file has an error, or a file that it names is missing ({0}).",
        "docker compose config shows the place.",
        COMPOSE,
    ),
    # VS Code and devcontainer.json
    Words(
        "being-removed",
        "Error response from daemon: removal of container demo is already in progress",
        (
            r"removal of container \S+ is already in progress",
            r"is marked for removal and cannot be (?:started|connected)",
        ),
        "The container is being removed, and Docker does not come to an end with it.",
        "sudo systemctl restart docker, then start it again.",
        ENGINE,
    ),
    Words(
        "docker-context",
        'context "desktop-linux": context not found',
        (r"context \\?\"([\w.-]+)\\?\"(?::)? (?:context )?(?:not found|does not exist)",),
        "Docker's client is set to the context {0}, which does not exist.",
        "docker context use default",
        CLIENT,
    ),
    Words(
        "devcontainer-form",
        "Error: Dev container config (/w/.devcontainer/devcontainer.json) must contain a JSON object literal.",
        (
            r"must contain a JSON object literal",
            r"devcontainer\.json[^\n]{0,60}(?:Unexpected token|JSON at position|parse error|InvalidSymbol)",
        ),
        "devcontainer.json is not written as JSON (comments are allowed).",
        "VS Code marks the place; mostly a comma or a quote.",
        HOST,
    ),
    Words(
        "workspace-missing",
        "Workspace does not exist",
        (
            r"^Workspace does not exist",
            r"[Ww]orkspace ?[Ff]older[^\n]{0,60}does not exist",
        ),
        "The folder that VS Code is to open is not there: it was moved, or workspaceMount and "
        "workspaceFolder do not fit each other.",
        "Take both out of devcontainer.json, or let workspaceFolder lie within the mount's target.",
        MOUNTS,
    ),
    Words(
        "container-user",
        "unable to find user vscode: no matching entries in passwd file",
        (r"unable to find (?:user|group) ([\w$.-]+): no matching entries",),
        "The image has no user {0}, whom devcontainer.json or the command names.",
        "Take remoteUser and containerUser out of devcontainer.json, or name a user that the image has.",
        HOST,
    ),
    Words(
        "user-number-taken",
        "useradd: UID 1000 is not unique",
        (
            r"(?:useradd|usermod|groupadd|groupmod|addgroup|adduser): (?:UID|GID|The [ug]id|gid|"
            r"uid)? ?'?(\d+)'? (?:is not unique|already exists|is already in use|in use)",
            r"usermod: user \S+ is currently used by process",
        ),
        "The image has a user or group with that number already ({0}), as Ubuntu's images have `ubuntu` with 1000.",
        "userdel -r ubuntu in the Dockerfile before the new user is made.",
        BUILD,
    ),
    Words(
        "vscode-server-system",
        "The remote host may not meet VS Code Server's prerequisites for glibc and libstdc++",
        (
            r"VS Code Server's prerequisites for glibc",
            r"Unsupported (?:glibc|libstdc\+\+) version",
            r"Missing GLIBC(?:XX)? >= [\d.]+!",
            r"vscode-remote/faq/old-linux",
        ),
        "The image's system is too old for VS Code's server.",
        "A base with a newer system: copier update --trust",
        HOST,
    ),
    Words(
        "vscode-architecture",
        "~/.vscode-server/bin/node: cannot execute binary file: Exec format error",
        (r"vscode-server[^\n]{0,120}(?:cannot execute binary file|Exec format error)",),
        "VS Code's server was fetched for another processor.",
        "rm -r ~/.vscode-server in the container, and open it again.",
        HOST,
    ),
    Words(
        "watches",
        "ENOSPC: System limit for number of file watchers reached",
        (
            r"limit for number of file watchers reached",
            r"inotify (?:watch|instance)[^\n]{0,40}limit",
            r"unable to watch for file changes in this large workspace",
            r"inotify_add_watch[^\n]{0,40}No space left",
        ),
        "More files are watched for changes than the machine allows; the disk is not full.",
        "On the machine: sudo sysctl fs.inotify.max_user_watches=524288",
        HOST,
    ),
    # Building
    Words(
        "build-secret",
        "cat: /run/secrets/token: No such file or directory",
        (
            r"/run/secrets/([\w.-]+)['\"]?:? ?(?:\([^)]*\) )?(?:No such file|not found)",
            r"No such file or directory:? ['\"]/run/secrets/([\w.-]+)",
            r"\bsecret ([\w.-]+): not found",
            r"failed to (?:stat|get secret|read secret)[^\n]{0,20} ([\w./-]+): secret",
        ),
        "The secret ({0}) is not given here: in a build it lasts only for the RUN that mounts it, and the "
        "build must be handed it; a container gets it from Compose.",
        "RUN --mount=type=secret,id=NAME in the very step that reads it, and docker build --secret id=NAME,src=FILE",
        BUILD,
    ),
    Words(
        "copy-missing",
        'failed to compute cache key: "/requirements.txt": not found',
        (
            r"failed to (?:compute|calculate)[^\n]{0,60}: \"?(/[^\"\s:]+)\"?: not found",
            r"(?:COPY|ADD) failed: stat \S*?/?([\w.-]+): (?:file does not|no such)",
            r"(?:COPY|ADD) failed: (?:file not found|no source files)",
            r"lstat /\S*buildkit-mount\S*: no such file",
        ),
        "The Dockerfile copies what is not there ({0}): in the folder that is built from, in the stage that "
        "it names, or .dockerignore leaves it out.",
        "Make that file, or repair the COPY or .dockerignore.",
        BUILD,
    ),
    Words(
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
        "There is no image {0} (any more): old releases of CUDA are taken away from time to time.",
        "Another tag, in BASE_IMAGE or the Dockerfile's ARG BASE_IMAGE; a newer base: copier update --trust",
        BUILD,
    ),
    Words(
        "no-dockerfile",
        "failed to read dockerfile: open Dockerfile: no such file or directory",
        (
            r"failed to read dockerfile: open \S+ no such file",
            r"unable to prepare context: [^\n]{0,80}not found",
            r"Dockerfile \([^)\n]+\) not found",
            r"Cannot locate specified Dockerfile",
        ),
        "There is no Dockerfile at the place that was named.",
        "Start in the project's folder; ./launch build does so.",
        BUILD,
    ),
    Words(
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
        "The Dockerfile has an error in the line that is named, or is built without BuildKit.",
        "Look at that line; DOCKER_BUILDKIT=1 where it uses --mount.",
        BUILD,
    ),
    Words(
        "buildx-driver",
        "ERROR: Cache export is not supported for the docker driver.",
        (r"(?:feature is currently|export (?:feature )?is) not supported for (?:the )?docker driver",),
        "Docker's own builder does not do that; one in a container does.",
        "docker buildx create --use, then the same again.",
        "docker buildx ls",
    ),
    Words(
        "too-many-layers",
        "Error response from daemon: max depth exceeded",
        (r"(?:daemon|failed|layer)[^\n]{0,60}max depth exceeded",),
        "The image has more layers than the engine takes (about 127).",
        "Fewer RUN and COPY lines: several commands in one RUN.",
        BUILD,
    ),
    Words(
        "build-busy",
        "failed to load cache: ref buildkit/1/layer-sha256:30a6 locked: unavailable",
        (
            r"\bref \S+ locked(?: for [^:\n]+)?: unavailable",
            r"\(\*service\)\.Write failed: rpc error[^\n]{0,120}locked",
        ),
        "Another build is fetching or writing the same layer at the moment.",
        "Once more when it is done; one build at a time.",
        "docker buildx ls",
    ),
    Words(
        "builder-died",
        "failed to solve: rpc error: code = Unavailable desc = error reading from server: EOF",
        (
            r"code = Unavailable desc = (?:error reading from server: EOF|closing transport|connection error)",
            r"listing workers for Build: failed to list workers",
            r"graceful_stop",
        ),
        "Docker's builder ended in the middle, or was lost.",
        "./launch build again, with an eye on free -h",
        "sudo dmesg | grep -i 'out of memory'",
        maybe=(
            (
                "the machine's memory ran out",
                "sudo dmesg | grep -i 'out of memory'; MAX_JOBS=2 where something is compiled",
            ),
            ("Docker or the builder was restarted, or its disk is full", "docker buildx ls; docker system df"),
        ),
    ),
    Words(
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
        "A part of the image did not arrive whole, or Docker's store of images is damaged.",
        "docker builder prune, then fetch it again; where it comes back: restart Docker.",
        BUILD,
    ),
    Words(
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
        "Docker's store of images does not work on this disk: of a kind that it cannot use, damaged, or full.",
        "Restart Docker, and look at the disk it lies on: docker info | grep -i -e root -e backing",
        "./launch doctor --only engine,disk",
    ),
    Words(
        "kernel-too-old",
        'copying bootstrap data to pipe caused "write init-p: broken pipe": unknown',
        (
            r"copying bootstrap data to pipe caused",
            r"FATAL: kernel too old",
            r"(?:runc|crun|OCI runtime)[^\n]{0,300}: [Ff]unction not implemented",
            r"Docker requires (?:a )?kernel",
        ),
        "The machine's kernel, or what stands in for one (WSL 1, gVisor, a container around it), lacks what "
        "this engine or a program in the image needs.",
        "Update the machine's kernel (in WSL: wsl --update), or take an older Docker.",
        ENGINE,
    ),
    Words(
        "seccomp",
        "error adding seccomp filter rule for syscall clone3: permission denied",
        (
            r"error adding seccomp (?:filter )?rule",
            r"seccomp: config provided but seccomp not supported",
        ),
        "The engine's runc and this system's libseccomp are of different ages, as after a partial update.",
        "Update docker, containerd.io (or runc) and libseccomp2 together, then restart Docker.",
        ENGINE,
    ),
    Words(
        "cgroup-driver",
        'expected cgroupsPath to be of format "slice:prefix:name" for systemd cgroups',
        (
            r"expected cgroupsPath to be of format",
            r"cgroup driver: \\?\"?\w+\\?\"? is different from",
            r"systemd cgroup flag passed, but systemd support",
        ),
        "Engine and runtime manage cgroups in two ways (systemd, cgroupfs).",
        '"exec-opts": ["native.cgroupdriver=systemd"] in /etc/docker/daemon.json; restart Docker.',
        ENGINE,
    ),
    Words(
        "old-cgroups",
        "cgroups: cgroup mountpoint does not exist: unknown",
        (
            r"cgroup mountpoint does not exist",
            r"Devices cgroup isn't mounted",
            r"cgroups: cannot found cgroup mount",
            r"no cgroup mount found in mountinfo|no subsystem for mount",
            r"cannot find cgroup mount",
        ),
        "This Docker is too old for the machine's cgroups, or they are not mounted.",
        "Update Docker, and restart the machine.",
        ENGINE,
    ),
    Words(
        "container-not-stopped",
        "Error response from daemon: cannot stop container: demo: permission denied",
        (r"cannot (?:stop|kill|remove|restart) container[^\n]{0,160}permission denied",),
        "The engine may not end a container of its own.",
        "sudo aa-remove-unknown, then stop it again.",
        ENGINE,
        maybe=(
            (
                "AppArmor holds a profile that is not the engine's any more",
                "it works after sudo aa-remove-unknown",
            ),
            (
                "two Dockers are installed, mostly one as a snap",
                "snap list docker",
            ),
            (
                "the engine itself has too few rights, in a container or without root",
                "docker info names rootless",
            ),
        ),
    ),
    Words(
        "apparmor",
        "apparmor failed to apply profile: write /proc/self/attr/apparmor/exec: no such file or directory",
        (
            r"apparmor failed to apply profile",
            r"attr/apparmor/exec",
            r"apparmor_parser[^\n]{0,40}(?:not found|error)",
        ),
        "AppArmor refuses the container: its parts on this machine do not fit together.",
        "Install the package apparmor, and restart the machine.",
        ENGINE,
    ),
    Words(
        "numa-denied",
        "set_mempolicy: Operation not permitted",
        (r"(?:set_mempolicy|get_mempolicy|mbind|move_pages)[^\n]{0,20}: Operation not permitted",),
        "A container may not place its memory on chosen processors, so it is left where it is: a matter of speed only.",
        "--cap-add=SYS_NICE in runArgs, where that matters.",
        HOST,
    ),
    Words(
        "ptrace-denied",
        "ptrace: Operation not permitted.",
        (
            r"ptrace: Operation not permitted",
            r"Permission Denied: Try running again with elevated permissions",
        ),
        "Other processes may not be looked into here, as debuggers and py-spy do: a container needs a "
        "capability for it, a machine its setting (ptrace_scope).",
        "--cap-add=SYS_PTRACE in runArgs of devcontainer.json; on the machine: sudo sysctl kernel.yama.ptrace_scope=0",
        HOST,
    ),
    Words(
        "not-executable",
        'exec: "./entrypoint.sh": permission denied: unknown',
        (
            r"exec:? \\?\"?([^\s\"\\]+)\\?\"?(?: failed)?: permission denied",
            r"(?:bash|sh): (?:(?:line )?\d+: )?(?!/(?:etc|dev|proc|sys|var|data|mnt)/)"
            r"(\S*/[\w+-]+|\S*[\w+-]\.(?:sh|py|run|bin|pl)): Permission denied$",
            r"(?:^|[\s/])sh: \d+: (\S+): Permission denied$",
            r"(?:bash|sh): (?:(?:line )?\d+: )?(\S+): cannot execute: Permission denied$",
        ),
        "{0} may not be executed: the file has lost that right, as on a drive of Windows or in a copy, its "
        "drive lets nothing be executed (noexec), or it is a folder.",
        "git update-index --chmod=+x, or chmod +x on it; in a Dockerfile: COPY --chmod=755",
        BUILD,
    ),
    Words(
        "entrypoint-missing",
        "exec /entrypoint.sh: no such file or directory",
        (
            r"exec user process caused:? \\?\"?no such file or directory",
            r"exec (/\S+): no such file or directory$",
        ),
        "The container's first program, or what it is to be started with, is not found.",
        "docker run --rm -it --entrypoint sh IMAGE, then head -1 FILE | cat -A",
        BUILD,
        maybe=(
            (
                "it is a script with Windows' line ends",
                "its first line ends in ^M$: sed -i 's/\\r$//'",
            ),
            (
                "its first line names a shell that the image has not, as bash in Alpine",
                "head -1 names it",
            ),
            (
                "it is not in the image, or a mount hides it",
                "ls -l in the image, then in the container",
            ),
        ),
    ),
    Words(
        "line-ends",
        "/usr/bin/env: 'bash\\r': No such file or directory",
        (
            r"'?(?:bash|sh|python3?)\\r'?: No such file",
            r"bad interpreter: [^\n]{0,40}\^M",
            r"\$'\\r': command not found",
        ),
        "A script has Windows' line ends.",
        "git config core.autocrlf input, then check the file out again; sed -i 's/\\r$//' repairs one.",
        BUILD,
    ),
    Words(
        "script-without-first-line",
        "exec /entrypoint.sh: exec format error",
        (r"exec:? \\?\"?(/?\S+\.(?:sh|py))\\?\"?: exec format error",),
        "The script {0} does not begin with the line that names its interpreter (#!/bin/sh), or its file is of "
        "another kind.",
        "#!/usr/bin/env bash as its very first line, without a blank line or a mark (BOM) before it.",
        BUILD,
    ),
    Words(
        "program-as-script",
        "/usr/bin/bash: /usr/bin/bash: cannot execute binary file",
        (r"(?:bash|sh): (?:line \d+: )?/\S*/(\w+): cannot execute binary file$",),
        "A shell was given a program ({0}) as if it were a script, as where the image's entrypoint is the "
        "shell itself; or the program is for another processor.",
        'bash -c "..." as the command, or --entrypoint; file on that program shows its processor.',
        BUILD,
    ),
    Words(
        "elf-header",
        "OSError: libfoo.so: invalid ELF header",
        (r"invalid ELF header",),
        "A compiled file is not one that this system can load.",
        "file on it says what it is.",
        CARD,
        maybe=(
            (
                "it was made on another system, as where a folder of macOS or Windows is mounted over it",
                "file names Mach-O or PE: install it inside",
            ),
            (
                "it is for another processor",
                "file names another one than uname -m",
            ),
            (
                "it is not whole, or a pointer of Git LFS",
                "it is small, or file says text",
            ),
        ),
    ),
    Words(
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
        "The image, or a program in it, is made for another kind of processor than this machine's, or that "
        "program's file is not whole.",
        "copier update --trust --data hardware=... with this machine's; `./launch doctor --only card` names it.",
        CARD,
    ),
    # The image's system packages
    Words(
        "apt-lock",
        "E: Could not get lock /var/lib/dpkg/lock-frontend",
        (r"Could not get lock /var/lib/(?:dpkg|apt)", r"Unable to acquire the dpkg frontend lock"),
        "Another installation is running.",
        "Wait until it is done.",
        "ps aux | grep -e apt -e dpkg",
    ),
    Words(
        "apt-key",
        "W: GPG error: https://developer.download.nvidia.com/ NO_PUBKEY A4B469963BF863CC",
        (r"NO_PUBKEY A4B469963BF863CC",),
        "NVIDIA changed the key of its package source, and this image has the old one.",
        "Take a newer base image; in one of your own: install cuda-keyring.",
        BUILD,
    ),
    Words(
        "apt-unsigned",
        "The following signatures couldn't be verified because the public key is not available: NO_PUBKEY",
        (
            r"NO_PUBKEY",
            r"E: The repository '[^']*' is (?:not|no longer) signed",
            r"Conflicting values set for option Signed-By",
            r"EXPKEYSIG",
        ),
        "A source of Debian packages has another key than the one that is known here.",
        "Fetch the source's current key, as its page says; a newer base image has it.",
        BUILD,
    ),
    Words(
        "apt-key-download",
        "gpg: no valid OpenPGP data found.",
        (r"no valid OpenPGP data found",),
        "The key of a package source did not arrive: its address is gone, or the network gave a page instead of it.",
        "curl -v on that address shows what comes; the address as the source's own page names it today.",
        HOST,
    ),
    Words(
        "apt-tools",
        "E: gnupg, gnupg2 and gnupg1 do not seem to be installed, but one of them is required for this operation",
        (
            r"gnupg, gnupg2 and gnupg1 do not seem to be installed",
            r"(?:apt-key|add-apt-repository|gpg|gnupg): (?:command )?not found",
            r"The method driver /usr/lib/apt/methods/https could not be found",
        ),
        "A tool for adding sources of Debian packages is not in the image.",
        "gnupg, ca-certificates and software-properties-common, installed in the Dockerfile before that step.",
        BUILD,
    ),
    Words(
        "apt-signature",
        "At least one invalid signature was encountered.",
        (r"At least one invalid signature was encountered",),
        "apt cannot check signatures here.",
        "docker system df, and a current Docker.",
        "./launch doctor --only disk,engine",
        maybe=(
            (
                "the disk is full",
                "docker system df; df -h",
            ),
            (
                "Docker or its libseccomp is older than this image's system",
                "the same with --security-opt seccomp=unconfined works: a current Docker",
            ),
            (
                "/tmp may not be written to, or the list's keys are missing in the image",
                "ls -ld /tmp; a newer base image",
            ),
        ),
    ),
    Words(
        "dpkg-failed",
        "E: Sub-process /usr/bin/dpkg returned an error code (1)",
        (
            r"Sub-process /usr/bin/dpkg returned an error code",
            r"dpkg was interrupted",
            r"dependency problems (?:prevent|-) ?(?:configuration|leaving unconfigured)?",
            r"dpkg: error processing (?:package|archive)",
            r"trying to overwrite \'[^\']+\', which is also in package",
        ),
        "A Debian package could not be set up; the first line of dpkg's above says which.",
        "sudo dpkg --configure -a, then sudo apt --fix-broken install, whose own words say more.",
        BUILD,
        maybe=(
            (
                "its own script failed, as where a kernel module does not compile or a service does not start",
                "`installed ... script returned error` stands above",
            ),
            (
                "it depends on, or holds a file of, a package from another source",
                "`dependency problems` or `trying to overwrite` stands above: one source only",
            ),
            (
                "an earlier installation broke off, or the disk is full",
                "`was interrupted` or `No space` stands above",
            ),
        ),
    ),
    Words(
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
        "Debian packages do not fit together: two sources offer the same ones, or an earlier installation broke off.",
        "Take the package out of apt.txt; on the machine: sudo apt --fix-broken install",
        BUILD,
    ),
    Words(
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
        "A source of Debian packages does not serve this release of the system (any more), is written wrongly, or "
        "the network changes it.",
        "A newer base image; behind a proxy set HTTP_PROXY.",
        BUILD,
    ),
    Words(
        "apt-nvidia-source",
        "E: Unable to locate package nvidia-container-toolkit",
        (
            r"Unable to locate package ((?:nvidia-(?:container|docker|driver|open|fabric)|libnvidia-|cuda-|"
            r"libcudnn|libnccl|datacenter-gpu|tensorrt)\S*)",
            r"Package '?((?:nvidia-(?:container|docker)|libnvidia-container|cuda-|libcudnn|libnccl|"
            r"datacenter-gpu)\S*?)'? has no installation candidate",
            r"No (?:match for argument|package): ?((?:nvidia-container|nvidia-docker|cuda-|libcudnn)\S*)",
        ),
        "NVIDIA's source of packages is not set up here, or does not hold {0} for this release of the system.",
        "Set it up as https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
        " says; then sudo apt-get update",
        GRANT,
    ),
    Words(
        "apt-mirror",
        "E: Failed to fetch ... Hash Sum mismatch",
        (
            r"Hash Sum mismatch",
            r"File has unexpected size|Mirror sync in progress",
        ),
        "The packages' server does not give what its lists name: it is being renewed, or a proxy or cache "
        "between gives old files.",
        "Again in a while, ./launch build --no-cache; behind a proxy without its cache.",
        BUILD,
    ),
    Words(
        "dnf-source",
        "Error: Failed to download metadata for repo 'appstream': Cannot prepare internal mirrorlist",
        (r"Failed to download metadata for repo|Cannot prepare internal mirrorlist",),
        "A source of packages (dnf) is not reached, or was taken away, as CentOS 8's were.",
        "A newer base image; for CentOS 8 vault.centos.org as its address.",
        BUILD,
    ),
    Words(
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
        "A Debian package cannot be had ({0}): its name is wrong in this release, or the lists of packages are old.",
        "Check the name in apt.txt, then ./launch build --no-cache",
        BUILD,
    ),
)

LATE = (
    Words(
        "cgroup-config",
        "unable to apply cgroup configuration: unable to start unit",
        (
            r"unable to apply cgroup configuration",
            r"error setting cgroup config for procHooks",
        ),
        "The engine cannot give the container its share of the machine (cgroup).",
        "sudo systemctl restart docker, then docker info | grep -i cgroup",
        ENGINE,
        maybe=(
            (
                "systemd was restarted or is overloaded, and a unit of that name is left",
                "it works after a restart of Docker or of the machine",
            ),
            ("the engine itself runs in a container or without root", "docker info names rootless; use root's engine"),
            (
                "a limit (memory, cpus, devices) that this kernel does not know",
                "it works without those lines in runArgs",
            ),
        ),
    ),
    Words(
        "no-such-container",
        "Error response from daemon: No such container: demo",
        (
            r"(?:daemon: |Error: )No such (?:container|object): (\S+)",
            r"no container with name or ID \\?\"(\S+?)\\?\" found",
        ),
        "There is no container {0} (any more) on this engine.",
        "docker ps --all shows those that are there; docker context ls, which engine is asked.",
        CLIENT,
    ),
    Words(
        "vscode-server-download",
        "Failed to download VS Code Server (Server returned 404)",
        (
            r"(?:[Ff]ailed to|[Ee]rror|could not|couldn't) (?:download|install|fetch)\w*[^\n]{0,30}(?:VS ?Code|"
            r"vscode)[ -]?(?:remote )?[Ss]erver",
            r"Downloading VS ?Code Server failed",
            r"Error:? XHR failed",
        ),
        "VS Code's server could not be fetched: no way to update.code.visualstudio.com from here, or a proxy is "
        "between.",
        'HTTPS_PROXY for the machine and the container; "remote.SSH.localServerDownload" or another network.',
        HOST,
    ),
    Words(
        "apt-fetch",
        "E: Failed to fetch http://archive.ubuntu.com/ubuntu/pool/main/c/curl/curl_8.5.0.deb  404  Not Found",
        (
            r"(?-i:\bE: )(?:Failed to fetch|Unable to fetch some archives)",
            r"Some index files failed to download",
        ),
        "apt could not fetch a file or a list from a source of packages.",
        "./launch build --no-cache, which downloads the lists again",
        BUILD,
        maybe=(
            (
                "the list is older than the server's files, as in a cached layer of the build",
                "404 Not Found stands beside it",
            ),
            ("the network, a proxy or the server's own trouble", "another number, or a time-out, stands beside it"),
        ),
    ),
    Words(
        "container-stopped",
        "Error response from daemon: container 4d15a1238262 is not running",
        (
            r"Error response from daemon: (?:cannot exec in a stopped|Container \S+ is not running)",
            r"Container [0-9a-f]{12,} is not running",
            r"Container [0-9a-f]{12,} is restarting, wait until the container is running",
        ),
        "The container has ended: its first command failed or was done.",
        "docker logs with its name shows its last words; `./launch explain -` may know them.",
        "docker ps --all",
    ),
    Words(
        "unhealthy",
        "dependency failed to start: container app-db-1 is unhealthy",
        (
            r"dependency failed to start: container (\S+)",
            r"Container \\?\"?(\S+?)\\?\"? is unhealthy",
        ),
        "A container on which others wait does not answer its health check or has ended ({0}).",
        "docker compose logs shows its own error.",
        COMPOSE,
    ),
    Words(
        "feature-failed",
        'ERROR: Feature "NVIDIA CUDA" (ghcr.io/devcontainers/features/nvidia-cuda) failed to install!',
        (r"ERROR: Feature \"([^\"\n]+)\"[^\n]{0,200} failed to install", r"Feature '?(\S+?)'? could not be processed"),
        "A feature in devcontainer.json ({0}) does not install into this image.",
        "Take it out of devcontainer.json; what it brings can stand in the Dockerfile.",
        BUILD,
    ),
    Words(
        "hook-command",
        "postCreateCommand failed with exit code 1. Skipping any further user-provided commands.",
        (r"(\w+Command) (?:from devcontainer\.json )?failed with exit code",),
        "The {0} of devcontainer.json failed, and its own lines above say why.",
        "Run it once in a terminal of the container.",
        "./launch shell",
    ),
    Words(
        "docker-does-not-start",
        "Job for docker.service failed because the control process exited with error code.",
        (
            r"(?:Job for |Failed to start )docker\.service|Failed to start Docker Application Container Engine",
            r"docker\.service: (?:Failed|Start request repeated|Unit entered failed state|Main process exited)",
            r"ExecStart=\S*dockerd[^\n]{0,200}status=1/FAILURE",
        ),
        "The engine does not start; its own words are in its log.",
        "sudo journalctl -u docker --no-pager | tail -n 30, whose text `./launch explain -` may know.",
        ENGINE,
        maybe=(
            ("its configuration does not fit", "sudo dockerd --validate"),
            ("the disk is full or its store damaged", "df -h /var/lib/docker"),
            ("containerd, iptables or a module of the kernel is missing", "the log names it"),
        ),
    ),
    Words(
        "docker-start-failed",
        "failed to start daemon: something it cannot do",
        (r"failed to start daemon:",),
        "The engine does not start; the words after that say at what.",
        "sudo journalctl -u docker --no-pager | tail -n 30",
        ENGINE,
        maybe=(
            ("its configuration does not fit", "sudo dockerd --validate"),
            ("the disk is full or its store damaged", "df -h /var/lib/docker"),
            ("containerd, iptables or a module of the kernel is missing", "the log names it"),
        ),
    ),
    Words(
        "vscode-server",
        "Failed to connect to the remote extension host server (Error: WebSocket close with status code 1006)",
        (
            r"Failed to connect to the remote extension host server",
            r"Unable to connect to VS Code server",
            r"WebSocket close with status code 1006",
            r"Could not establish connection to \S+[^\n]{0,60}VS Code Server",
        ),
        "VS Code's part in the container does not answer.",
        "docker ps shows whether the container runs.",
        HOST,
        maybe=(
            ("the container ended", "docker ps --all"),
            (
                "that part did not start, or its copy is damaged",
                "Dev Containers: Rebuild Container; rm -r ~/.vscode-server",
            ),
            ("the connection broke off", "Developer: Reload Window"),
        ),
    ),
    Words(
        "environment-missing",
        "os.environ['WANDB_PROJECT'] ... KeyError: 'WANDB_PROJECT'",
        (
            r"os\.environ[\s\S]{0,200}KeyError: '([A-Z][A-Z0-9_]+)'",
            r"os\.py\", line \d+, in __getitem__[\s\S]{0,160}KeyError: '([A-Z][A-Z0-9_]+)'",
            r"[Ee]nvironment variable [`'\"]?([A-Z][A-Z0-9_]+)[`'\"]? (?:is |was )?(?:not set|missing|required|"
            r"undefined)",
            r"The \\?\"?(\w+)\\?\"? variable is not set\. Defaulting to a blank",
        ),
        "The environment variable {0} is not set where this runs.",
        "In .env, or in containerEnv of devcontainer.json; what is set on the machine is not in the container by "
        "itself.",
        HOST,
    ),
    Words(
        "no-such-command",
        'exec: "python": executable file not found in $PATH: unknown',
        (
            r"exec:? \\?\"?([^\s\"\\]+)\\?\"?(?: failed)?: (?:executable file not found|stat [^\n]*no such file|"
            r"no such file)",
        ),
        "The container has no command {0}.",
        "Check its name, and that the image is the one that was meant.",
        BUILD,
    ),
)

NOTES = (
    Words(
        "own-name",
        "sudo: unable to resolve host f3a1: Name or service not known",
        (r"sudo: unable to resolve host",),
        "A warning and no error: the container's own name is not in its /etc/hosts.",
        "Nothing is to be done.",
        HOST,
    ),
    Words(
        "apt-chatter",
        "debconf: unable to initialize frontend: Dialog",
        (
            r"debconf: unable to initialize frontend",
            r"policy-rc\.d denied execution",
            r"delaying package configuration, since apt-utils is not installed",
            r"cannot set terminal process group[^\n]{0,40}Inappropriate ioctl",
        ),
        "A warning and no error, as without a terminal or while an image is built.",
        "DEBIAN_FRONTEND=noninteractive silences it.",
        BUILD,
    ),
)
