"""NVIDIA's container tools, the list of GPUs (CDI), Podman, Jetson: how a container gets the GPU."""

from __future__ import annotations

from gpukit.errors.rule import BROAD, DRIVER, ENGINE, GENERAL, GRANT, Rule
from gpukit.findings.finding import Cause

BOTH = "./launch doctor --only driver,gpu"

RULES = (
    Rule(
        "toolkit-missing",
        'exec: "/usr/bin/nvidia-container-cli": stat /usr/bin/nvidia-container-cli: no such file or directory',
        (
            r"nvidia-container-cli\\?[\"']?: (?:stat [^\n]{0,80}no such file|executable file not found|no such file|"
            r"(?:command )?not found)",
            r"(?:cannot|could not|unable to|failed to) find nvidia-container-cli",
        ),
        (
            Cause(
                "toolkit-missing",
                "NVIDIA's container tools are not installed on this machine.",
                "Install the package nvidia-container-toolkit; Apptainer's --nv alone does without it.",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "old-driver-files",
        "nvidia-container-cli: detection error: open failed: /usr/lib/x86_64-linux-gnu/libnvidia-tls.so.470.86: "
        "no such file",
        (
            r"nvidia-container-cli(?:\.real)?: (?:detection|mount) error: (?:open|stat) failed: /\S*?(lib(?:cuda|"
            r"nv)[\w.+-]+\.so\.\d[\w.]*): no such file",
        ),
        (
            Cause(
                "old-driver-files",
                "This machine's list of libraries names a driver's file that is not there ({0}): left by an earlier "
                "driver, or hidden from a Docker that is a snap.",
                "sudo ldconfig, then restart Docker; where it stays, install the driver again, all its packages of one "
                "release.",
            ),
        ),
        look="./launch doctor --only engine,driver",
    ),
    Rule(
        "tools-cannot-look",
        "nvidia-container-cli: detection error: cuda error: invalid device ordinal",
        (r"nvidia-container-cli(?:\.real)?: detection error: (?!open failed|stat failed)",),
        (
            Cause(
                "tools-cannot-look",
                "NVIDIA's container tools cannot look at the GPUs of this machine: one of them or the driver is "
                "stuck or was updated, the tools are too old for it (as for MIG), or this driver does not serve one "
                "of them.",
                "Restart the machine, and update nvidia-container-toolkit; nvidia-smi -L shows which GPUs answer.",
            ),
        ),
        look="./launch doctor --only driver,mig,gpu",
    ),
    Rule(
        "podman-session",
        "error running container: crun: sd-bus call: Transport endpoint is not connected",
        (
            r"\bsd-bus \w+[\w ]{0,30}: ",
            r"cgroup manager set to systemd but there is no systemd user session",
            r"Falling back to --cgroup-manager=cgroupfs",
            r"Failed to (?:connect to|get D-Bus) (?:user scope )?bus",
            r"(?:podman|RunRoot|rootless|/run/user)[^\n]{0,120}XDG_RUNTIME_DIR|"
            r"XDG_RUNTIME_DIR[^\n]{0,60}not owned by the current user",
            r"(?:mkdir|stat|lstat) /run/user/\d+: (?:permission denied|no such file)",
        ),
        (
            Cause(
                "podman-session",
                "Podman without root needs this user's own session of systemd, which su, sudo or a plain ssh command does "
                "not bring.",
                "loginctl enable-linger, and log in again as that user; or --cgroup-manager=cgroupfs",
            ),
        ),
        look=ENGINE,
    ),
    Rule(
        "user-namespaces",
        "ERROR  : Failed to create user namespace: user namespace disabled",
        (
            r"Failed to create user namespace",
            r"user namespaces? (?:are not enabled|is not enabled|disabled|support is not)",
            r"cannot clone: (?:Operation not permitted|No space left)",
            r"max_user_namespaces",
            r"cannot set up namespace using",
            r"apparmor_restrict_unprivileged_userns",
            r"unshare[^\n]{0,40}(?:CLONE_NEWUSER|Operation not permitted)",
        ),
        (
            Cause(
                "user-namespaces",
                "Users may not make namespaces of their own here, which Podman, Apptainer and Docker without root "
                "need: the kernel's settings forbid it, or a container around it does.",
                "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu 24.04), or "
                "user.max_user_namespaces=28633; in a container: --security-opt seccomp=unconfined",
            ),
        ),
        look=ENGINE,
    ),
    Rule(
        "engine-in-container",
        "open /proc/sys/net/ipv4/ip_unprivileged_port_start: permission denied",
        (
            r"/proc/sys/net/ipv4/ip_unprivileged_port_start[^\n]{0,20}permission denied",
            r"unable to (?:join session keyring|set up seccomp)[^\n]{0,80}(?:lxc|operation not permitted)",
        ),
        (
            Cause(
                "engine-in-container",
                "The engine runs inside a container itself (LXC, Proxmox), which refuses what newer releases of runc need.",
                "Update the outer machine (lxc, Proxmox), or hold containerd.io at 1.7.28 for now.",
            ),
        ),
        look=ENGINE,
    ),
    Rule(
        "rootless-devices",
        "error creating device nodes: open /merged/dev/dri/card1: permission denied",
        (
            r"error creating device nodes: [\s\S]{0,300}?(?:permission denied|not permitted)",
            r"(?:runc|crun|OCI runtime)[^\n]{0,300}mknod[^\n]{0,80}(?:permission denied|not permitted)",
        ),
        (
            Cause(
                "rootless-devices",
                "An engine without root cannot make device files in a container, as runc tries to.",
                "GPUs by CDI (--device nvidia.com/gpu=all) with crun; or root's engine: docker context use default",
            ),
        ),
        look=ENGINE,
    ),
    Rule(
        "no-labels",
        "Error: lsetxattr(label=system_u:object_r:container_file_t:s0) /data: operation not supported",
        (
            r"lsetxattr[^\n]{0,200}(?:operation not (?:supported|permitted)|permission denied)",
            r"SELinux relabeling of \S+ is not allowed",
        ),
        (
            Cause(
                "no-labels",
                "The mount is to get SELinux labels (:z, :Z), and its file system has none, or may not be labelled.",
                "Without :z and :Z: --security-opt label=disable",
            ),
        ),
        look=ENGINE,
    ),
    Rule(
        "podman-ids",
        "potentially insufficient UIDs or GIDs available in user namespace",
        (
            r"insufficient UIDs or GIDs available in user namespace",
            r"newuidmap[^\n]{0,80}(?:failed|not permitted|No such file)",
            r"no subuid ranges found for user",
            r"cannot find (?:UID|GID|mappings?)[^\n]{0,20} for user[^\n]{0,80}(?:subuid|subgid)",
            r"there might not be enough IDs available in the namespace",
        ),
        (
            Cause(
                "podman-ids",
                "This user has too few subordinate ids for containers without root.",
                "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER && podman system migrate",
            ),
        ),
        look=ENGINE,
    ),
    Rule(
        "podman-short-name",
        'Error: short-name "pytorch/pytorch" did not resolve to an alias',
        (r"short-name \\?\"?[^\n]{0,120}did not resolve to an alias",),
        (
            Cause(
                "podman-short-name",
                "Podman does not guess the registry of a short image name.",
                "Write the whole name: docker.io/... before it.",
            ),
        ),
        look=ENGINE,
    ),
    Rule(
        "hook-read-only",
        "failed to create application profiles directory: mkdirat etc/nvidia/...: read-only file system",
        (
            r"failed to create application profiles directory[^\n]{0,120}read-only",
            r"error running createContainer hook[^\n]{0,400}read-only file system",
        ),
        (
            Cause(
                "hook-read-only",
                "A hook of NVIDIA's Container Toolkit wants to write where this container is read-only.",
                "A newer nvidia-container-toolkit, or that path not mounted read-only.",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "runtime-without-runc",
        'nvidia-container-runtime: find runc path: exec: "runc": executable file not found in $PATH',
        (
            r"find runc path",
            r"exec: \"runc\": executable file not found",
            r"crun: fsopen_mount `?tmpfs`?: Function not implemented",
            r"error executing hook `?/usr/bin/nvidia-container-(?:runtime-hook|toolkit)",
        ),
        (
            Cause(
                "runtime-without-runc",
                "This engine and NVIDIA's old runtime or hook do not work together: no runc is there, or crun cannot do what "
                "is asked on this kernel.",
                "Give the GPU by CDI (--device nvidia.com/gpu=all), and install runc: podman --runtime runc",
            ),
        ),
        look="./launch doctor --only engine,gpu",
    ),
    Rule(
        "nvidia-docker-1",
        "nvidia-docker | Error: unsupported Docker version",
        (
            r"nvidia-docker \| [^\n]{0,40}Error: unsupported Docker version",
            r"create nvidia_driver_[^\n]{0,40}(?:Plugin|plugin|error)",
            r"Unable to locate plugin: nvidia-docker",
            r"nvidia-docker-plugin",
        ),
        (
            Cause(
                "nvidia-docker-1",
                "nvidia-docker 1 has been replaced since 2019, and does not know this Docker.",
                "Remove nvidia-docker, and install nvidia-container-toolkit.",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "nvidia-docker",
        "nvidia-docker: command not found",
        (r"nvidia-docker: (?:command )?not found", r"Command 'nvidia-docker' not found"),
        (
            Cause(
                "nvidia-docker",
                "nvidia-docker is not needed with this Docker, which gives containers the GPU itself.",
                "docker run --gpus all instead; ./launch does so.",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "other-vendor",
        "docker: Error response from daemon: AMD CDI spec not found",
        (r"(?:AMD|Intel) CDI spec not found", r"failed to discover GPU vendor[^\n]{0,60}multiple"),
        (
            Cause(
                "other-vendor",
                "Docker took another vendor's GPU for the one to give, and no list of NVIDIA's (CDI) is there.",
                "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml && sudo systemctl restart docker",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "cdi-off",
        'could not select device driver "cdi" with capabilities',
        (r"could not select device driver \\?\"cdi\\?\"", r"CDI (?:is|support is) (?:not enabled|disabled)"),
        (
            Cause(
                "cdi-off",
                "GPUs are asked for by CDI, which this Docker has switched off or is too old for.",
                'A current Docker; or in /etc/docker/daemon.json: "features": {"cdi": true}, then restart Docker.',
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "old-container",
        "no such volume: nvidia_driver_381.22",
        (r"no such volume: nvidia_driver_",),
        (
            Cause(
                "old-container",
                "This container was made with nvidia-docker 1 for a driver that is gone.",
                "Recreate it: ./launch stop, then start it again.",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "restart-after-update",
        "nvidia-container-cli: mount error: mount operation failed: .../proc/driver/nvidia/params: no such file",
        (r"mount operation failed: [^\n]{0,200}/proc/driver/nvidia[^\n]{0,80}no such file",),
        (
            Cause(
                "restart-after-update",
                "The driver was updated under a Docker that still has the old one's files mounted.",
                "sudo systemctl restart docker",
            ),
        ),
        look=BOTH,
    ),
    Rule(
        "no-gpu-driver",
        'could not select device driver "" with capabilities: [[gpu]]',
        (
            r"could not select device driver \\?\"(?:nvidia|)\\?\"",
            r"could not select device driver(?! \\?\"cdi)",
        ),
        (
            Cause(
                "no-gpu-driver",
                "The engine that was asked does not know NVIDIA's container toolkit, without which it cannot give a "
                "container a GPU.",
                "Install nvidia-container-toolkit, then `sudo nvidia-ctk runtime configure --runtime=docker && sudo "
                "systemctl restart docker`; where both is done, another engine was asked (Docker Desktop, a snap): "
                "docker context use default",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "cdi-unresolved",
        "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=0",
        (r"unresolvable CDI devices? (?:nvidia\.com/gpu=)?([\w.:=/-]*\w)",),
        (
            Cause(
                "cdi-unresolved",
                "The lists of devices (CDI) that this engine reads hold no such one ({0}): there is no list, this user "
                "may not read it, it is of a newer form than the engine knows, or the device has another name in it.",
                "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml && sudo chmod 644 /etc/cdi/nvidia.yaml; "
                "`nvidia-ctk cdi list` shows the names.",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "podman-without-cdi",
        "Error: stat nvidia.com/gpu=all: no such file or directory",
        (
            r"stat nvidia\.com/gpu=\S*: no such file",
            r"adding custom device \\?\"nvidia\.com/gpu",
            r"nvidia\.com/gpu=\S+ is not an absolute path",
        ),
        (
            Cause(
                "podman-without-cdi",
                "This engine does not know GPUs by name (CDI), and takes the name for a file.",
                "A current Docker Engine, or Podman with --device and a CDI specification.",
            ),
        ),
        look="./launch doctor --only engine,gpu",
    ),
    Rule(
        "jetson-memory",
        "NvMapMemAllocInternalTagged: 1075072515 error 12",
        (r"NvMapMemAlloc\w*: \d+ error 12", r"NvMapMemHandleAlloc: error 12"),
        (
            Cause(
                "jetson-memory",
                "The Jetson's memory is full, which processor and GPU share.",
                "End other programs, above all the desktop, and take a smaller batch; swap helps with loading.",
            ),
        ),
        look="free -h",
    ),
    Rule(
        "jetson-devices",
        "NvRmMemInitNvmap failed with Permission denied",
        (
            r"\bNvRmMem\w*[^\n]{0,60}(?:failed|Permission denied)",
            r"/dev/nvmap[^\n]{0,40}(?:Permission denied|failed)",
            r"libnvrm_(?:gpu|mem)\.so[^\n]{0,60}(?:cannot open|No such file)|ImportError: libnvrm",
            r"(?:mount error|stat failed)[^\n]{0,120}/usr/lib/aarch64-linux-gnu/(?:tegra|nvidia)\S*[^\n]{0,60}no "
            r"such file",
        ),
        (
            Cause(
                "jetson-devices",
                "On this Jetson the GPU's device files are closed to this user, or the container was started without its "
                "runtime or is made for another release of the system (L4T).",
                "--runtime=nvidia, the groups video and render for the user, and an image for this JetPack.",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "jetson-libraries",
        "OSError: libcurand.so.10: cannot open shared object file (jetson)",
        (
            r"(?:jetson|tegra|l4t-)[\s\S]{0,4000}(lib(?:cublas|curand|cudart|cudnn|cufft|nvToolsExt)\w*\.so\.[\d.]+)"
            r": cannot open shared object file",
            r"(lib(?:cublas|curand|cudart|cudnn|cufft|nvToolsExt)\w*\.so\.[\d.]+): cannot open shared object file"
            r"[\s\S]{0,4000}(?:jetson|tegra|l4t-)",
        ),
        (
            Cause(
                "jetson-libraries",
                "On this Jetson the container does not get {0}: it was started without NVIDIA's runtime, or its "
                "image was made for another release of the system (JetPack 4 brings CUDA's libraries from the "
                "machine, 5 and newer from the image).",
                "An image whose L4T release is this Jetson's (/etc/nv_tegra_release), started with --runtime=nvidia",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "driver-silent",
        "nvidia-container-cli: initialization error: driver rpc error: timed out",
        (
            r"initialization error: (?:driver error|driver rpc error|cuda error|nvml error: unknown error)",
            r"driver rpc error",
            r"nvidia-container-cli[^\n]{0,40}: timed out",
        ),
        (
            Cause(
                "driver-silent",
                "NVIDIA's container tools get no answer from the driver: it is stuck, half installed or not there; "
                "in WSL the driver of Windows is missing or too old, or Windows is too old to lend its GPU.",
                "Make `nvidia-smi` work on the machine itself first; where it does, restart the machine.",
            ),
        ),
        look=DRIVER,
    ),
    Rule(
        "rootless-cgroups",
        "bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted",
        (
            r"bpf_prog_query\(BPF_CGROUP_DEVICE\) failed: operation not permitted",
            r"container error: [^\n]{0,60}cgroup[^\n]{0,60}permission denied",
            r"devices\.allow: (?:operation not permitted|permission denied)",
            r"nvidia-container-cli[^\n]{0,60}(?:change root failed|privilege change failed|capabilit)",
            r"/proc/sys/kernel/overflowuid: permission denied",
        ),
        (
            Cause(
                "rootless-cgroups",
                "The engine, rootless or in a container itself, may not open the GPU's devices to a container by the old way.",
                "docker context use default, which is root's engine; or GPUs by CDI.",
            ),
        ),
        look="./launch doctor --only engine,gpu",
    ),
    Rule(
        "toolkit-too-old",
        "nvidia-container-cli: container error: cgroup subsystem devices not found",
        (
            r"container error: cgroup subsystem devices not found",
            r"failed to add device rules",
            r"requirement error: invalid expression",
            r"could not open file[^\n]{0,80}/sys/fs/cgroup/devices",
            r"mount error: open failed: /sys/fs/cgroup",
        ),
        (
            Cause(
                "toolkit-too-old",
                "NVIDIA's Container Toolkit is too old for this system's cgroups, or for this image.",
                "Update nvidia-container-toolkit, then: sudo systemctl restart docker",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "driver-files-in-image",
        "nvidia-container-cli: mount error: file creation failed: .../libnvidia-ml.so.1: file exists",
        (r"mount error: file creation failed: [^\n]{0,300}/([\w.+-]+): file exists",),
        (
            Cause(
                "driver-files-in-image",
                "The image carries a file ({0}) that this machine's NVIDIA runtime mounts itself.",
                "Take it out of the image: rm in the Dockerfile, in the step that brought it.",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "driver-files-empty",
        "ImportError: libcuda.so.1: file too short",
        (r"(lib(?:cuda|nvidia-[\w-]+|cudnn|nvinfer|cublas)\w*\.so[\w.]*): file too short",),
        (
            Cause(
                "driver-files-empty",
                "The image holds {0} as an empty file, left where a driver's file was mounted when the image was saved.",
                "rm those files in the Dockerfile; an image is built from a Dockerfile, not saved from a container.",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "ldconfig",
        "nvidia-container-cli: ldcache error: open failed: /sbin/ldconfig.real: no such file or directory",
        (r"ldcache error: open failed: /sbin/ldconfig", r"/sbin/ldconfig\.real[^\n]{0,20}: no such file"),
        (
            Cause(
                "ldconfig",
                "NVIDIA's Container Toolkit is configured for another distribution's ldconfig than this machine's.",
                'ldconfig = "@/sbin/ldconfig" in /etc/nvidia-container-runtime/config.toml',
            ),
        ),
        look=GRANT,
    ),
    # about: ldconfig, by which the driver's libraries are made known, failed in this container.
    Rule(
        "ldconfig-failed",
        "nvidia-container-cli: ldcache error: process /sbin/ldconfig.real failed with error code: 1",
        (
            r"ldcache error: process \S+ (?:failed|terminated)",
            r"error running ldconfig|failed to run ldconfig",
        ),
        (
            Cause(
                "ldconfig-failed-1",
                "The image is for another processor.",
                "docker run --rm IMAGE uname -m shows for what processor the image is.",
                tell="uname -m differs from the machine's",
            ),
            Cause(
                "ldconfig-failed-2",
                "The image has no ldconfig, or a broken one or libc.",
                "docker run --rm IMAGE uname -m shows for what processor the image is.",
                tell="it fails with this image only",
            ),
            Cause(
                "ldconfig-failed-3",
                "The container is read-only, or its disk is full.",
                "docker run --rm IMAGE uname -m shows for what processor the image is.",
                tell="df -h; without --read-only",
            ),
        ),
        look=GRANT,
        level=BROAD,
    ),
    Rule(
        "hook-refused",
        "invoking the NVIDIA Container Runtime Hook directly (e.g. specifying the docker --gpus flag) is not supported",
        (r"invoking the NVIDIA Container Runtime Hook directly[^\n]{0,80}is not supported",),
        (
            Cause(
                "hook-refused",
                "NVIDIA's Container Toolkit is set to another mode (CDI, or Jetson's), in which `--gpus` is not served.",
                'mode = "auto" in /etc/nvidia-container-runtime/config.toml; on a Jetson --runtime=nvidia',
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "toolkit-configuration",
        "error loading config: unable to load config from /etc/nvidia-container-runtime/config.toml",
        (
            r"nvidia-container-runtime/config\.toml[^\n]{0,80}(?:toml|line \d+|error|no such file)",
            r"(?:unable to|couldn't|failed to) (?:load|open|get|parse)[^\n]{0,40}config(?:uration)?[^\n]{0,60}"
            r"nvidia-container-runtime",
            r"invalid discovery mode: \w+",
        ),
        (
            Cause(
                "toolkit-configuration",
                "The configuration of NVIDIA's Container Toolkit is missing or broken.",
                "sudo nvidia-ctk config default --output=/etc/nvidia-container-runtime/config.toml",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "toolkit-crashes",
        "error running hook: signal: aborted (core dumped), stderr: *** Error in "
        "`/usr/bin/nvidia-container-cli': double free or corruption",
        (
            r"error running hook: signal: (?:aborted|segmentation fault)",
            r"nvidia-container-cli[^\n]{0,40}(?:double free|segfault|[Ss]egmentation fault|core dumped)",
        ),
        (
            Cause(
                "toolkit-crashes",
                "NVIDIA's container tools themselves crash: a fault of their release, or parts of two releases.",
                "Update nvidia-container-toolkit, libnvidia-container-tools and libnvidia-container1 together, then "
                "restart Docker.",
            ),
        ),
        look=GRANT,
        beside=r"nvidia",
    ),
    Rule(
        "toolkit-parts",
        "nvidia-container-cli: symbol lookup error: undefined symbol: nvc_config_new",
        (
            r"nvidia-(?:container-cli|container-runtime|ctk)[^\n]{0,60}(?:symbol lookup error|relocation error)",
            r"libnvidia-container\.so[^\n]{0,60}(?:undefined symbol|version `|cannot open)",
            r"fatal: morestack on g0",
            r"nvidia-container-cli[^\n]{0,40}unrecognized option",
            r"(?:hook|nvidia|runtime)[^\n]{0,400}No help topic for '",
            r"inject NVIDIA hook: stat \S+: no such file|failed to locate NVIDIA Container Runtime Hook",
        ),
        (
            Cause(
                "toolkit-parts",
                "Parts of NVIDIA's Container Toolkit are missing, of different versions, or made for another system.",
                "Reinstall nvidia-container-toolkit and libnvidia-container1 in one version.",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "wsl-driver",
        "nvidia-container-cli: mount error: stat failed: /usr/lib/wsl/lib/libcuda.so.1: no such file or directory",
        (
            r"/usr/lib/wsl/[^\n]{0,80}no such file",
            r"Core Nvidia component \S+ not found in /usr/lib/wsl",
            r"WSL environment detected but no adapters were found",
        ),
        (
            Cause(
                "wsl-driver",
                "WSL has no driver of NVIDIA to hand on: Windows has none for this card, an old one, or it was updated while "
                "WSL ran.",
                "Install NVIDIA's driver in Windows (none in WSL), then: wsl --shutdown",
            ),
        ),
        look=DRIVER,
    ),
    Rule(
        "driver-unseen",
        "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open",
        (
            r"load library failed: libnvidia-ml\.so",
            r"nvidia-container-cli(?:\.real)?: initialization error: cannot open shared object",
            r"Could not find any nv files on this host",
            r"failed to (?:initialize NVML|init nvml): ERROR_LIBRARY_NOT_FOUND",
            r"Could not find any NVIDIA (?:binaries|libraries|files) on this host",
            r"Could not find any nv (?:files|libraries) on this host",
        ),
        (
            Cause(
                "driver-unseen",
                "Docker does not see the driver's libraries: they are not installed, the engine does not share this machine's "
                "files (Docker Desktop, a snap), or, in WSL, Windows or its driver is too old to hand them on.",
                "Make `nvidia-smi` work here, and use Docker Engine: docker context use default",
            ),
        ),
        look="./launch doctor --only engine,driver",
    ),
    Rule(
        "persistenced-socket",
        "failed to fulfil mount request: open /run/nvidia-persistenced/socket: no such device or address",
        (r"nvidia-persistenced/socket[^\n]{0,40}(?:no such|permission denied|connection refused)",),
        (
            Cause(
                "persistenced-socket",
                "The driver's daemon nvidia-persistenced is not running, or was restarted since Docker looked.",
                "sudo systemctl restart nvidia-persistenced docker",
            ),
        ),
        look=BOTH,
    ),
    Rule(
        "device-files-missing",
        'error gathering device information while adding custom device "/dev/nvidia-uvm": no such file or directory',
        (
            r"(?:lstat|stat|adding custom device)[^\n]{0,40}/dev/(?:nvidia[\w-]*)[^\n]{0,40}no such file",
            r"failed to stat CDI host device",
            r"NVIDIA device files \(/dev/nvidia\*\) exist",
            r"/dev/nvidiactl['\"]?[:\s(]{1,3}No such file",
        ),
        (
            Cause(
                "device-files-missing",
                "The device files of the GPU that the container was to get are not there: the driver was not loaded yet, as "
                "at boot, or the list of GPUs (CDI) is old.",
                "`nvidia-smi` loads the driver; then start again; where that does not help: sudo nvidia-ctk cdi generate "
                "--output=/etc/cdi/nvidia.yaml",
            ),
        ),
        look=BOTH,
    ),
    Rule(
        "device-missing",
        'error gathering device information while adding custom device "/dev/video0": no such file or directory',
        (r"adding custom device \\?\"(/dev/(?!nvidia)[\w/]+)\\?\"[^\n]{0,40}no such file",),
        (
            Cause(
                "device-missing",
                "The container is to get the device {0}, which this machine does not have.",
                "Take it out of runArgs or of the compose file.",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "cdi-mode",
        "failed to generate CDI spec: error getting GPU device minor number: Not Supported",
        (r"error getting GPU device minor number: Not Supported", r"CDI spec[^\n]{0,300}: Not Supported"),
        (
            Cause(
                "cdi-mode",
                "The list of GPUs (CDI) cannot be made by way of NVML on this machine, as on a Jetson or in WSL.",
                "sudo nvidia-ctk cdi generate --mode=csv (Jetson) or --mode=wsl, with --output=/etc/cdi/nvidia.yaml",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "cdi-form",
        'failed to unmarshal CDI Spec: json: unknown field "hostPath"',
        (
            r"failed to (?:load|parse|unmarshal|read) CDI Spec",
            r"(?:invalid|unknown|unsupported) (?:CDI )?(?:spec )?version[^\n]{0,40}\bcdi\b|CDI spec version[^\n]{0,40}"
            r"(?:invalid|unknown|not supported)",
        ),
        (
            Cause(
                "cdi-form",
                "The list of GPUs (CDI) is of a newer form than this engine reads, or is broken.",
                "A current Docker or Podman; then sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "cdi-stale",
        "failed to fulfil mount request: open /usr/lib/x86_64-linux-gnu/libcuda.so.550.54: no such file or directory",
        (
            r"failed to fulfil mount request:[^\n]{0,120}(?:nvidia|cuda)[^\n]{0,80}no such file",
            r"error mounting \\?\"[^\n\"]{0,120}(?:nvidia|libcuda)[^\n]{0,300}no such file",
            r"crun: cannot stat `?/\S*(?:nvidia|libcuda)\S*`?: No such file",
        ),
        (
            Cause(
                "cdi-stale",
                "The list of what a container gets with the GPU (CDI) is of an earlier driver.",
                "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml && sudo systemctl restart docker",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "kubernetes-gpu",
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
        (
            r"Insufficient nvidia\.com/gpu",
            r"did you configure the NVIDIA Container Toolkit",
            r"no runtime for \W{0,2}nvidia\W{0,2} is configured",
            r"Incompatible (?:strategy|platform) detected",
        ),
        (
            Cause(
                "kubernetes-gpu",
                "Kubernetes sees no free GPU: its device plugin finds none, as the node's runtime does not hand them on, or "
                "all are taken.",
                "sudo nvidia-ctk runtime configure --runtime=containerd --set-as-default && sudo systemctl restart containerd",
            ),
        ),
        look=GRANT,
    ),
    # about: Something cannot draw on the GPU (OpenGL, EGL, Vulkan).
    Rule(
        "no-graphics",
        "ERROR: vkCreateInstance failed with VK_ERROR_INCOMPATIBLE_DRIVER",
        (
            r"(?:VK_)?ERROR_INCOMPATIBLE_DRIVER|vkCreateInstance failed|vk_icdGetInstanceProcAddr",
            r"Cannot initialize a EGL device display",
            r"EGL_(?:NOT_INITIALIZED|BAD_\w+)|eglInitialize[^\n]{0,40}failed|(?:Failed|Cannot|Unable|Could not|"
            r"couldn\'t)[^\n]{0,12} (?:to )?(?:get|create|initialize|find|open|load)[^\n]{0,30}EGL",
            r"libEGL warning|libGLX_nvidia[^\n]{0,40}(?:cannot open|not found)",
            r"Invalid device ID \(\d+\)\. Device ID must be between 0 and -1",
            r"eglGetDisplay[^\n]{0,30}(?:failed|error)",
            r"VK_ERROR_INITIALIZATION_FAILED|ERROR_INITIALIZATION_FAILED[^\n]{0,40}vk",
            r"Failed to (?:create|find)[^\n]{0,30}(?:Vulkan|OpenGL) (?:instance|context|device|GPU)",
            r"(?:No|Cannot find)[^\n]{0,20}Vulkan (?:device|driver|ICD)",
            r"OpenGL[^\n]{0,40}(?:version is too low|not available|could not be initialized)",
            r"[Ff]ailed to (?:create|find) (?:any )?(?:suitable )?(?:Vulkan|GPU) (?:physical )?devices?",
        ),
        (
            Cause(
                "no-graphics-1",
                "The container was given the GPU for computing only.",
                "echo $NVIDIA_DRIVER_CAPABILITIES",
                tell="$NVIDIA_DRIVER_CAPABILITIES does not say all or graphics: set it in containerEnv",
            ),
            Cause(
                "no-graphics-2",
                "The image lacks the loader (libegl1, libvulkan1) or its list of drivers.",
                "echo $NVIDIA_DRIVER_CAPABILITIES",
                tell="ls /usr/share/glvnd/egl_vendor.d /etc/vulkan/icd.d",
            ),
            Cause(
                "no-graphics-3",
                "The container has no GPU, or the program wants a display.",
                "echo $NVIDIA_DRIVER_CAPABILITIES",
                tell="nvidia-smi; echo $DISPLAY",
            ),
        ),
        look=GRANT,
        level=BROAD,
    ),
    Rule(
        "no-video",
        "libnvcuvid.so.1: cannot open shared object file",
        (
            r"libnvcuvid\.so[^\n]{0,60}(?:cannot open|No such file|not found)",
            r"libnvidia-encode\.so[^\n]{0,60}(?:cannot open|not found)",
            r"Cannot load libnv(?:cuvid|idia-encode)\.so",
        ),
        (
            Cause(
                "no-video",
                "The driver's part for video is not in the container: it is mounted only where video is asked for, "
                "and some machines' drivers come without it.",
                "NVIDIA_DRIVER_CAPABILITIES=compute,utility,video in containerEnv, then recreate the container; ldconfig "
                "-p | grep nvcuvid shows it on the machine.",
            ),
        ),
        look=GRANT,
    ),
    # about: NVIDIA's container runtime itself failed.
    Rule(
        "runtime-fails",
        "nvidia-container-runtime did not terminate successfully: exit status 1",
        (r"nvidia-container-runtime[^\n]{0,20} did not terminate successfully",),
        (
            Cause(
                "runtime-fails-1",
                "Its parts, or runc, are missing, of two releases, or do not fit this engine.",
                "Reinstall nvidia-container-toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker",
                tell="nvidia-container-runtime --version; dpkg -l | grep nvidia-container",
            ),
            Cause(
                "runtime-fails-2",
                "Its configuration is broken.",
                "Reinstall nvidia-container-toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker",
                tell="/etc/nvidia-container-runtime/config.toml: sudo nvidia-ctk config default",
            ),
            Cause(
                "runtime-fails-3",
                "The driver does not answer.",
                "Reinstall nvidia-container-toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker",
                tell="nvidia-smi fails on the machine",
            ),
        ),
        look=GRANT,
        level=GENERAL,
    ),
)
