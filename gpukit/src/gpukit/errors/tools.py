"""NVIDIA's container tools, the list of GPUs (CDI), Podman, Jetson: how a container gets the GPU."""

from __future__ import annotations

from dataclasses import replace

from gpukit.errors.causes import (
    CDI_STALE,
    DEVICE_FILES,
    DOCKER_SNAP,
    DRIVER_NOT_INSTALLED,
    DRIVER_STUCK,
    IMAGE_HAS_DRIVER,
    MODULE_MISSING,
    NO_CAPABILITY,
    NO_GPU_OR_DRIVER,
    OLD_WINDOWS_DRIVER,
    OTHER_ENGINE,
    TOOLKIT_MISSING,
    TOOLKIT_NOT_CONFIGURED,
    TOOLKIT_OUTDATED,
)
from gpukit.errors.evidence import CONTAINER, JETSON, NO_TOOLKIT, ROOTLESS, WSL, only, text_has, unless_text_has
from gpukit.errors.rule import BROAD, DRIVER, ENGINE, GENERAL, GRANT, Rule
from gpukit.findings.finding import Cause

BOTH, ENGINE_GPU = "`./launch doctor --only driver,gpu`", "`./launch doctor --only engine,gpu`"

# Causes that several rules have.
JETSON_RUNTIME = Cause(
    "jetson-runtime",
    "On this Jetson, the container was started without NVIDIA's runtime.",
    "Start it with `--runtime=nvidia`, or with `./launch`.",
    tell="the container was started with only `--gpus`, or with neither option",
    given=JETSON,
    standalone="Start it with `--runtime=nvidia`.",
)
JETSON_RELEASE = Cause(
    "jetson-release",
    "The image is made for another release of Jetson Linux (L4T).",
    "Use an image for the release that `cat /etc/nv_tegra_release` prints.",
    tell="the image's tag names another L4T or JetPack release",
    given=text_has(r"mount error|stat failed"),
)
CDI_OFF = Cause(
    "cdi-off",
    "The container asks for the GPU through CDI, which is off in this Docker. It is on by default "
    "from release 28.3 on.",
    'Update Docker, or put `"features": {"cdi": true}` into /etc/docker/daemon.json and run `sudo '
    "systemctl restart docker`.",
    tell="`docker info` shows no `CDI spec directories`",
)
ROOTLESS_DEVICES = Cause(
    "rootless-devices",
    "A rootless engine may not create device files or open them for a container.",
    "Give the GPU through CDI: `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`, then "
    "`--device nvidia.com/gpu=all`. Or use the engine that runs as root: `docker context use "
    "default`.",
    tell="`docker info` or `podman info` shows `rootless`",
    given=ROOTLESS,
)
ENGINE_INSIDE = Cause(
    "engine-in-lxc",
    "The engine runs inside another container (LXC, Proxmox, or Docker), which does not allow this.",
    "Run `sudo nvidia-ctk config --in-place --set nvidia-container-cli.no-cgroups=true` in that "
    "container, and allow the GPU's devices in its own configuration on the outer machine.",
    tell="`systemd-detect-virt --container` prints a name",
)
PARTS = Cause(
    "toolkit-parts-mixed",
    "Parts of NVIDIA's Container Toolkit are missing, have different versions, or were built for another system.",
    "Run `sudo apt-get install --reinstall nvidia-container-toolkit nvidia-container-toolkit-base "
    "libnvidia-container-tools libnvidia-container1`, then `sudo systemctl restart docker`.",
    tell="`nvidia-container-cli --version` and `nvidia-ctk --version` fail or show different versions",
)
CONFIGURATION = Cause(
    "toolkit-configuration",
    "The configuration of NVIDIA's Container Toolkit is missing or has an error.",
    "Run `sudo nvidia-ctk config default --output=/etc/nvidia-container-runtime/config.toml && sudo "
    "systemctl restart docker`.",
    tell="`nvidia-ctk config` reports an error",
)
ENGINE_TOO_OLD = Cause(
    "engine-without-cdi",
    "This engine is too old for CDI: Docker has it from release 25 on, Podman from 4.1 on.",
    "Update the engine. Until then, use `docker run --gpus all ...`.",
    tell="`docker --version` or `podman --version` shows an older release",
)

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
            *NO_GPU_OR_DRIVER,
            TOOLKIT_MISSING,
            Cause(
                "apptainer-nvccli",
                "Apptainer or Singularity was started with `--nvccli`, which needs NVIDIA's Container Toolkit.",
                "Use only `--nv`.",
                tell="the command has `--nvccli`",
                given=text_has(r"apptainer|singularity"),
            ),
            PARTS,
        ),
        more=GRANT,
        kind="gpu",
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
                "library-list-old",
                "The host's list of libraries names a driver file that does not exist any more ({0}).",
                "Run `sudo ldconfig && sudo systemctl restart docker`.",
                tell="`ldconfig -p | grep {0}` prints a file that does not exist",
            ),
            Cause(
                "driver-half-installed",
                "The driver's packages have different versions, for example after an interrupted update.",
                "Install the driver again, with all packages in one version, then restart the machine.",
                tell="`dpkg -l | grep nvidia` shows two driver versions",
            ),
            DOCKER_SNAP,
        ),
        more="`./launch doctor --only engine,driver`",
        kind="gpu",
    ),
    Rule(
        "tools-cannot-look",
        "nvidia-container-cli: detection error: cuda error: invalid device ordinal",
        (r"nvidia-container-cli(?:\.real)?: detection error: (?!open failed|stat failed)",),
        (
            *NO_GPU_OR_DRIVER,
            DRIVER_STUCK,
            TOOLKIT_OUTDATED,
            Cause(
                "gpu-without-driver",
                "One GPU of the machine is not supported by the driver, and the toolkit stops at it.",
                "Run `nvidia-smi -L` to see which GPUs respond, and select one of them, such as `GPUS=0`.",
                tell="`lspci | grep -i nvidia` lists more GPUs than `nvidia-smi -L`",
            ),
        ),
        more="`./launch doctor --only driver,mig,gpu`",
        kind="gpu",
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
                "Rootless Podman needs the user's own systemd session. `su`, `sudo`, cron, and plain SSH commands "
                "do not start one.",
                "Run `sudo loginctl enable-linger $USER`, and log in again as that user, not with `su`. Or use "
                "`podman --cgroup-manager=cgroupfs ...`.",
            ),
        ),
        more=ENGINE,
        kind="engine",
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
                "userns-apparmor",
                "AppArmor blocks unprivileged user namespaces, which rootless engines and Apptainer need. This "
                "is the default on Ubuntu 23.10 and newer.",
                "Run `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`; to keep it, put the setting "
                "into /etc/sysctl.d/60-userns.conf.",
                tell="`sysctl kernel.apparmor_restrict_unprivileged_userns` prints 1",
                given=text_has(r"apparmor"),
            ),
            Cause(
                "userns-off",
                "The kernel's settings disable user namespaces, or allow too few.",
                "Run `sudo sysctl -w user.max_user_namespaces=28633`; on older Debian also `sudo sysctl -w "
                "kernel.unprivileged_userns_clone=1`.",
                tell="`sysctl user.max_user_namespaces` prints 0 or a low number",
                given=text_has(r"max_user_namespaces|No space left"),
            ),
            Cause(
                "userns-in-container",
                "The outer container does not allow namespaces.",
                "Start the outer container with `--security-opt seccomp=unconfined --security-opt "
                "apparmor=unconfined`, or use the host's engine.",
                tell="it ran in a container",
                given=CONTAINER,
            ),
        ),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "engine-in-container",
        "open /proc/sys/net/ipv4/ip_unprivileged_port_start: permission denied",
        (
            r"/proc/sys/net/ipv4/ip_unprivileged_port_start[^\n]{0,20}permission denied",
            r"unable to (?:join session keyring|set up seccomp)[^\n]{0,80}(?:lxc|operation not permitted)",
            r"ip_unprivileged_port_start[^\n]{0,60}permission denied",
        ),
        (
            Cause(
                "lxc-too-old",
                "The engine runs in LXC or Proxmox, whose AppArmor profile blocks what newer releases of runc need.",
                "Update LXC or Proxmox on the outer machine (LXC 6.0.6 or newer). Until then, choose "
                "containerd.io 1.7.28-1 from `apt-cache madison containerd.io`, and install it with `sudo apt-get "
                "install --allow-downgrades containerd.io=VERSION`.",
            ),
        ),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "rootless-devices",
        "error creating device nodes: open /merged/dev/dri/card1: permission denied",
        (
            r"error creating device nodes: [\s\S]{0,300}?(?:permission denied|not permitted)",
            r"(?:runc|crun|OCI runtime)[^\n]{0,300}mknod[^\n]{0,80}(?:permission denied|not permitted)",
        ),
        (ROOTLESS_DEVICES, ENGINE_INSIDE),
        more=ENGINE,
        kind="gpu",
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
                "selinux-labels",
                "The mount has the suffix `:z` or `:Z`, but its file system has no SELinux labels (NFS, exFAT, "
                "drives of Windows) or may not be relabeled.",
                "Remove `:z` and `:Z` from the mount, and start the container with `--security-opt label=disable` "
                "if SELinux is enforcing.",
            ),
        ),
        more=ENGINE,
        kind="mount",
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
                "The user has no subordinate user and group ids, or too few. Rootless containers need 65536 of each.",
                "Run `sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER && podman system "
                "migrate`.",
                tell="`grep $USER /etc/subuid /etc/subgid` prints nothing",
            ),
            Cause(
                "newuidmap-missing",
                "The programs `newuidmap` and `newgidmap` are missing or lost their rights.",
                "Run `sudo apt-get install --reinstall uidmap` (Fedora: `sudo dnf reinstall shadow-utils`).",
                tell="`ls -l $(which newuidmap)` does not show an `s`, and `getcap` prints nothing",
                given=text_has(r"newuidmap[^\n]{0,80}(?:No such file|not found)"),
            ),
            Cause(
                "image-large-ids",
                "The image has files of users with very high ids, outside of the user's range.",
                "Give the user a larger range, such as `sudo usermod --add-subuids 200000-2000000 --add-subgids "
                "200000-2000000 $USER`, then `podman system migrate`.",
                tell="other images work",
                given=text_has(r"lchown[^\n]{0,200}invalid argument"),
            ),
        ),
        more=ENGINE,
        kind="engine",
    ),
    Rule(
        "podman-short-name",
        'Error: short-name "pytorch/pytorch" did not resolve to an alias',
        (r"short-name \\?\"?[^\n]{0,120}did not resolve to an alias",),
        (
            Cause(
                "podman-short-name",
                "Podman does not guess the registry of a short image name.",
                "Write the full name, such as `docker.io/pytorch/pytorch`.",
            ),
        ),
        more=ENGINE,
        certain=True,
        kind="image",
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
                "A hook of NVIDIA's Container Toolkit writes to a path that is read-only in this container.",
                "Remove the read-only mount of that path (such as /etc) or `--read-only`, and update "
                "nvidia-container-toolkit.",
            ),
        ),
        more=GRANT,
        kind="gpu",
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
                "runc-missing",
                "NVIDIA's runtime starts containers through runc, which is not installed or not in the search "
                "path of the engine.",
                "Run `sudo apt-get install runc` (Fedora: `sudo dnf install runc`).",
                tell="`which runc` prints nothing",
                given=text_has(r'find runc path|"runc": executable'),
            ),
            Cause(
                "old-oci-hook",
                "Podman uses NVIDIA's old hook, which does not work with this engine or kernel.",
                "Remove /usr/share/containers/oci/hooks.d/oci-nvidia-hook.json, and give the GPU through CDI: "
                "`sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`, then `--device "
                "nvidia.com/gpu=all`.",
                tell="the engine is Podman, and that file exists",
                given=text_has(r"executing hook|fsopen_mount"),
            ),
        ),
        more=ENGINE_GPU,
        kind="gpu",
    ),
    Rule(
        "nvidia-docker-1",
        "nvidia-docker | Error: unsupported Docker version",
        (
            r"nvidia-docker \| [^\n]{0,40}Error: unsupported Docker version",
            r"create nvidia_driver_[^\n]{0,40}(?:Plugin|plugin|error)",
            r"Unable to locate plugin: nvidia-docker",
            r"nvidia-docker-plugin",
            r"no such volume: nvidia_driver_",
        ),
        (
            Cause(
                "nvidia-docker-1",
                "nvidia-docker 1 is used, or a container that it created. It has not been supported since 2019.",
                "Remove nvidia-docker, run `./launch setup` to install nvidia-container-toolkit, and create the "
                "container again.",
            ),
        ),
        more=GRANT,
        kind="gpu",
    ),
    Rule(
        "nvidia-docker",
        "nvidia-docker: command not found",
        (r"nvidia-docker: (?:command )?not found", r"Command 'nvidia-docker' not found"),
        (
            Cause(
                "nvidia-docker",
                "The command `nvidia-docker` is obsolete. Docker itself gives containers the GPU.",
                "Use `docker run --gpus all ...`, or `./launch`.",
                standalone="Use `docker run --gpus all ...`.",
            ),
        ),
        more=GRANT,
        certain=True,
    ),
    Rule(
        "other-vendor",
        "docker: Error response from daemon: AMD CDI spec not found",
        (r"(?:AMD|Intel) CDI spec not found", r"failed to discover GPU vendor[^\n]{0,60}multiple"),
        (
            Cause(
                "cdi-other-vendor",
                "Docker chose the GPU of another vendor, because it found no CDI specification of NVIDIA.",
                "Run `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml && sudo systemctl restart docker`.",
                tell="`nvidia-ctk cdi list` shows no device",
            ),
            TOOLKIT_MISSING,
        ),
        more=GRANT,
        kind="gpu",
    ),
    Rule(
        "cdi-off",
        'could not select device driver "cdi" with capabilities',
        (r"could not select device driver \\?\"cdi\\?\"", r"CDI (?:is|support is) (?:not enabled|disabled)"),
        (CDI_OFF, ENGINE_TOO_OLD, OTHER_ENGINE),
        more=GRANT,
        kind="gpu",
    ),
    Rule(
        "restart-after-update",
        "nvidia-container-cli: mount error: mount operation failed: .../proc/driver/nvidia/params: no such file",
        (r"mount operation failed: [^\n]{0,200}/proc/driver/nvidia[^\n]{0,80}no such file",),
        (
            Cause(
                "docker-holds-old-driver",
                "The driver was updated or reloaded while Docker was running, and Docker still has its old files "
                "mounted.",
                "Run `sudo systemctl restart docker`.",
                tell="`nvidia-smi` works on the host",
            ),
            MODULE_MISSING,
        ),
        more=BOTH,
        kind="gpu",
    ),
    Rule(
        "no-gpu-driver",
        'could not select device driver "" with capabilities: [[gpu]]',
        (r"could not select device driver \\?\"(?:nvidia|)\\?\"", r"could not select device driver(?! \\?\"cdi)"),
        (*NO_GPU_OR_DRIVER, TOOLKIT_MISSING, TOOLKIT_NOT_CONFIGURED, OTHER_ENGINE),
        more=GRANT,
        kind="gpu",
    ),
    Rule(
        "cdi-unresolved",
        "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=0",
        (r"unresolvable CDI devices? (?:nvidia\.com/gpu=)?([\w.:=/-]*\w)",),
        (
            *NO_GPU_OR_DRIVER,
            Cause(
                "cdi-device-missing",
                "The CDI specifications on this machine list no device with this name ({0}): none was written "
                "yet, or the GPUs have other names in it.",
                "Run `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`, and use a name that "
                "`nvidia-ctk cdi list` prints.",
                tell="`nvidia-ctk cdi list` does not show it",
                given=~NO_TOOLKIT & unless_text_has(r"Found [1-9]\d* CDI devices"),
            ),
            TOOLKIT_MISSING,
            Cause(
                "cdi-unreadable",
                "The engine cannot read the CDI specification: its file is closed to this user, or has a newer "
                "format than the engine knows.",
                "Run `sudo chmod 644 /etc/cdi/nvidia.yaml`, and update the engine (Podman 5 or newer).",
                tell="`nvidia-ctk cdi list` shows the device",
                given=text_has(r"Found [1-9]\d* CDI devices"),
            ),
        ),
        more=GRANT,
        kind="gpu",
    ),
    Rule(
        "podman-without-cdi",
        "Error: stat nvidia.com/gpu=all: no such file or directory",
        (
            r"stat nvidia\.com/gpu=\S*: no such file",
            r"adding custom device \\?\"nvidia\.com/gpu",
            r"nvidia\.com/gpu=\S+ is not an absolute path",
        ),
        (ENGINE_TOO_OLD, CDI_OFF),
        more=ENGINE_GPU,
        kind="gpu",
    ),
    Rule(
        "jetson-memory",
        "NvMapMemAllocInternalTagged: 1075072515 error 12",
        (r"NvMapMemAlloc\w*: \d+ error 12", r"NvMapMemHandleAlloc: error 12"),
        (
            Cause(
                "jetson-memory-full",
                "The Jetson's memory, which processor and GPU share, is full.",
                "End other programs and the desktop (`sudo systemctl isolate multi-user.target`), and use a "
                "smaller batch or model.",
                tell="`free -h` shows little available memory",
            ),
            Cause(
                "jetson-page-cache",
                "The system's file cache holds the memory, and the driver does not get it back.",
                "Run `sudo sysctl -w vm.drop_caches=3` before the program starts, and install the newest JetPack "
                "release.",
                tell="`free -h` shows much memory under `buff/cache`",
            ),
        ),
        more="`free -h`",
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
            JETSON_RUNTIME,
            Cause(
                "jetson-groups",
                "On this Jetson, the user may not open the GPU's device files.",
                "Run `sudo usermod -aG video,render $USER`, and log in again; in a container, add `--group-add video`.",
                tell="`id` does not list `video` and `render`",
                given=text_has(r"Permission denied"),
            ),
            JETSON_RELEASE,
        ),
        more=GRANT,
        kind="gpu",
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
            JETSON_RELEASE,
            JETSON_RUNTIME,
            Cause(
                "jetson-wheel",
                "The installed package needs {0} of another CUDA version than this JetPack has.",
                "Install the package that NVIDIA builds for this JetPack release.",
                tell="`ls /usr/local/cuda/lib64` shows another version of the library",
            ),
        ),
        more=GRANT,
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
            DRIVER_STUCK,
            OLD_WINDOWS_DRIVER,
            Cause(
                "driver-starts-slowly",
                "The driver needs long to start, because persistence mode is off, and the toolkit does not wait.",
                "Run `sudo systemctl enable --now nvidia-persistenced`, then start the container again.",
                tell="`nvidia-smi` takes more than a few seconds",
                given=text_has(r"timed out"),
            ),
        ),
        more=DRIVER,
        kind="gpu",
    ),
    Rule(
        "kernel-without-bpf",
        "bpf_prog_query(BPF_CGROUP_DEVICE) failed: invalid argument",
        (r"bpf_prog_(?:query|attach)\(BPF_CGROUP_DEVICE\) failed: (?:invalid argument|function not implemented)",),
        (
            Cause(
                "kernel-without-bpf",
                "The kernel was built without CONFIG_CGROUP_BPF, which containers need for device access.",
                "Use a kernel with `CONFIG_CGROUP_BPF=y`, such as the distribution's own; "
                "`zgrep CGROUP_BPF /proc/config.gz` shows the setting.",
            ),
        ),
        more=ENGINE,
        kind="engine",
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
        (ROOTLESS_DEVICES, ENGINE_INSIDE, TOOLKIT_OUTDATED),
        more=ENGINE_GPU,
        kind="gpu",
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
        (TOOLKIT_OUTDATED, ROOTLESS_DEVICES, ENGINE_INSIDE),
        more=GRANT,
        kind="gpu",
    ),
    Rule(
        "driver-files-in-image",
        "nvidia-container-cli: mount error: file creation failed: .../libnvidia-ml.so.1: file exists",
        (r"mount error: file creation failed: [^\n]{0,300}/([\w.+-]+): file exists",),
        (IMAGE_HAS_DRIVER,),
        more=GRANT,
        kind="gpu",
    ),
    Rule(
        "driver-files-empty",
        "ImportError: libcuda.so.1: file too short",
        (r"(lib(?:cuda|nvidia-[\w-]+|cudnn|nvinfer|cublas)\w*\.so[\w.]*): file too short",),
        (
            Cause(
                "image-saved-from-container",
                "The image has {0} as an empty file. This happens when a container with a GPU is saved as an image.",
                "Build the image from a Dockerfile instead of `docker commit`, or remove the empty files in the "
                "Dockerfile: `RUN find / -xdev -name 'lib*.so*' -size 0 -delete`.",
                tell="`ls -l` shows a size of 0",
            ),
            JETSON_RUNTIME,
            Cause(
                "package-incomplete",
                "The installation of the package was interrupted, or the disk was full.",
                "Check `df -h`, then reinstall the package: `pip install --force-reinstall --no-cache-dir PACKAGE`.",
                tell="the file is in site-packages",
                given=text_has(r"site-packages"),
            ),
        ),
        more=GRANT,
    ),
    Rule(
        "ldconfig",
        "nvidia-container-cli: ldcache error: open failed: /sbin/ldconfig.real: no such file or directory",
        (r"ldcache error: open failed: /sbin/ldconfig", r"/sbin/ldconfig\.real[^\n]{0,20}: no such file"),
        (
            Cause(
                "ldconfig-path",
                "NVIDIA's Container Toolkit is configured for the ldconfig of another distribution.",
                "Run `sudo nvidia-ctk config --in-place --set nvidia-container-cli.ldconfig=@/sbin/ldconfig` "
                "(Ubuntu and Debian: `@/sbin/ldconfig.real` if that file exists).",
            ),
        ),
        more=GRANT,
        kind="gpu",
    ),
    Rule(
        "ldconfig-failed",
        "nvidia-container-cli: ldcache error: process /sbin/ldconfig.real failed with error code: 1",
        (r"ldcache error: process \S+ (?:failed|terminated)", r"error running ldconfig|failed to run ldconfig"),
        (
            Cause(
                "ldconfig-not-found",
                "The toolkit's configuration names an ldconfig that does not exist on the host.",
                'Set `ldconfig = "@/sbin/ldconfig"` (on Ubuntu `"@/sbin/ldconfig.real"`) in '
                "/etc/nvidia-container-runtime/config.toml.",
                tell="the error code is 127",
                given=only(text_has(r"error code: 127")),
            ),
            Cause(
                "wrong-architecture",
                "The image or program is built for another processor architecture than this machine's.",
                "Use an image for this architecture: `docker image inspect IMAGE --format "
                "'{{.Architecture}}'` shows what it has. In a project, `./launch doctor --only card` prints "
                "the answers for this machine.",
                tell="`uname -m` names another architecture",
                standalone="Use an image for this architecture: `docker image inspect IMAGE --format "
                "'{{.Architecture}}'` shows what it has.",
            ),
            Cause(
                "image-without-ldconfig",
                "The image has no working ldconfig or C library, such as one built from scratch or on Alpine.",
                "Use a base image with glibc, such as Debian or Ubuntu.",
                tell="it fails with this image only",
            ),
            Cause(
                "container-read-only",
                "The container's file system is read-only or full, so ldconfig cannot write its list.",
                "Start it without `--read-only`, and free disk space.",
                tell="`df -h` shows a full disk, or the command has `--read-only`",
                given=text_has(r"read-only file system|no space left"),
            ),
        ),
        more=GRANT,
        level=BROAD,
        kind="gpu",
    ),
    Rule(
        "hook-refused",
        "invoking the NVIDIA Container Runtime Hook directly (e.g. specifying the docker --gpus flag) is not supported",
        (r"invoking the NVIDIA Container Runtime Hook directly[^\n]{0,80}is not supported",),
        (
            Cause(
                "toolkit-mode",
                "NVIDIA's Container Toolkit is set to a mode in which `--gpus` does not work.",
                "Run `sudo nvidia-ctk config --in-place --set nvidia-container-runtime.mode=auto && sudo "
                "systemctl restart docker`.",
                tell="`nvidia-ctk config | grep mode` prints `cdi` or `csv`",
                given=~JETSON,
            ),
            JETSON_RUNTIME,
        ),
        more=GRANT,
        kind="gpu",
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
        (CONFIGURATION,),
        more=GRANT,
        kind="gpu",
    ),
    Rule(
        "toolkit-crashes",
        "error running hook: signal: aborted (core dumped), stderr: *** Error in "
        "`/usr/bin/nvidia-container-cli': double free or corruption",
        (
            r"error running hook: signal: (?:aborted|segmentation fault)",
            r"nvidia-container-cli[^\n]{0,40}(?:double free|segfault|[Ss]egmentation fault|core dumped)",
        ),
        (TOOLKIT_OUTDATED, PARTS),
        more=GRANT,
        kind="gpu",
        requires=r"nvidia",
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
        (PARTS,),
        more=GRANT,
        kind="gpu",
        requires=r"nvidia|morestack on g0|help topic for .prestart",
    ),
    Rule(
        "wsl-driver",
        "nvidia-container-cli: mount error: stat failed: /usr/lib/wsl/lib/libcuda.so.1: no such file or directory",
        (r"/usr/lib/wsl/[^\n]{0,80}no such file", r"Core Nvidia component \S+ not found in /usr/lib/wsl"),
        (
            OLD_WINDOWS_DRIVER,
            Cause(
                "wsl-not-restarted",
                "The NVIDIA driver of Windows was updated while WSL was running.",
                "Run `wsl --shutdown` in Windows, then start WSL and Docker again.",
                tell="it worked before the update",
            ),
        ),
        more=DRIVER,
        kind="gpu",
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
        (*NO_GPU_OR_DRIVER, DRIVER_NOT_INSTALLED, DOCKER_SNAP, OTHER_ENGINE, OLD_WINDOWS_DRIVER),
        more="`./launch doctor --only engine,driver`",
        kind="gpu",
    ),
    Rule(
        "persistenced-socket",
        "failed to fulfil mount request: open /run/nvidia-persistenced/socket: no such device or address",
        (r"nvidia-persistenced/socket[^\n]{0,40}(?:no such|permission denied|connection refused)",),
        (
            Cause(
                "persistenced-down",
                "The driver's service nvidia-persistenced is not running, or was restarted after the engine or "
                "the CDI specification recorded it.",
                "Run `sudo systemctl restart nvidia-persistenced docker`.",
                tell="`systemctl is-active nvidia-persistenced` does not print `active`",
            ),
            CDI_STALE,
        ),
        more=BOTH,
        kind="gpu",
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
            DEVICE_FILES,
            replace(CDI_STALE, given=text_has(r"CDI host device")),
            Cause(
                "container-before-driver",
                "The container started at boot, before the driver had created its device files.",
                "Start the container again, and make Docker wait for the driver: `sudo systemctl enable "
                "nvidia-persistenced`.",
                tell="it works when it is started later",
            ),
        ),
        more=BOTH,
        kind="gpu",
    ),
    Rule(
        "device-missing",
        'error gathering device information while adding custom device "/dev/video0": no such file or directory',
        (r"adding custom device \\?\"(/dev/(?!nvidia)[\w/]+)\\?\"[^\n]{0,40}no such file",),
        (
            Cause(
                "device-missing",
                "The container asks for the device {0}, which does not exist on this machine.",
                "Connect the device, or remove it from `runArgs` or from compose.yaml.",
                tell="`ls` on the host does not find it",
            ),
        ),
        more=GRANT,
        kind="engine",
    ),
    Rule(
        "cdi-mode",
        "failed to generate CDI spec: error getting GPU device minor number: Not Supported",
        (r"error getting GPU device minor number: Not Supported", r"CDI spec[^\n]{0,300}: Not Supported"),
        (
            Cause(
                "cdi-mode-jetson",
                "On a Jetson, the toolkit must write the CDI specification in another mode.",
                "Run `sudo nvidia-ctk cdi generate --mode=csv --output=/etc/cdi/nvidia.yaml`.",
                tell="the machine is a Jetson",
                given=JETSON,
            ),
            Cause(
                "cdi-mode-wsl",
                "In WSL, the toolkit must write the CDI specification in another mode.",
                "Run `sudo nvidia-ctk cdi generate --mode=wsl --output=/etc/cdi/nvidia.yaml`.",
                tell="it runs in WSL",
                given=WSL,
            ),
            TOOLKIT_OUTDATED,
        ),
        more=GRANT,
        kind="gpu",
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
                "cdi-too-new",
                "The CDI specification has a newer format than the engine reads.",
                "Update Docker or Podman. Until then, write it again with the engine's own release of the "
                "toolkit: `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`.",
                tell="`head -1 /etc/cdi/nvidia.yaml` shows a `cdiVersion` above 0.5, and the engine is old",
            ),
            Cause(
                "cdi-damaged",
                "A CDI specification is damaged or incomplete.",
                "Run `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`, and remove other files in "
                "/etc/cdi and /var/run/cdi that it does not need.",
                tell="`nvidia-ctk cdi list` reports an error",
                given=text_has(r"yaml:|unexpected end|invalid character|EOF"),
            ),
        ),
        more=GRANT,
        kind="gpu",
    ),
    Rule(
        "cdi-stale",
        "failed to fulfil mount request: open /usr/lib/x86_64-linux-gnu/libcuda.so.550.54: no such file or directory",
        (
            r"failed to fulfil mount request:[^\n]{0,120}(?:nvidia|cuda)[^\n]{0,80}no such file",
            r"error mounting \\?\"[^\n\"]{0,120}(?:nvidia|libcuda)[^\n]{0,300}no such file",
            r"crun: cannot stat `?/\S*(?:nvidia|libcuda)\S*`?: No such file",
        ),
        (CDI_STALE,),
        more=GRANT,
        kind="gpu",
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
                "kubernetes-runtime",
                "The node's container runtime is not configured for GPUs, so the device plugin finds none.",
                "Run `sudo nvidia-ctk runtime configure --runtime=containerd --set-as-default && sudo systemctl "
                "restart containerd` on the node.",
                tell="`kubectl describe node` shows no `nvidia.com/gpu` under Allocatable",
                given=text_has(r"no runtime for|configure the NVIDIA|Incompatible"),
            ),
            Cause(
                "kubernetes-gpus-taken",
                "All GPUs of the cluster are in use, or no node has as many as the pod asks for.",
                "Run `kubectl describe nodes | grep -A8 'Allocated resources'`, and free a GPU or ask for fewer.",
                tell="`kubectl describe node` shows `nvidia.com/gpu` under Allocatable",
            ),
            Cause(
                "kubernetes-plugin",
                "NVIDIA's device plugin is not running on the nodes.",
                "Install the GPU operator or the device plugin: "
                "https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/getting-started.html.",
                tell="`kubectl get pods -A | grep nvidia` shows no running pod",
            ),
        ),
        more=GRANT,
    ),
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
            NO_CAPABILITY,
            Cause(
                "graphics-loader-missing",
                "The image lacks the loader of OpenGL, EGL, or Vulkan, or its list of drivers.",
                "Add `libegl1`, `libgl1`, and `libvulkan1` to apt.txt, then run `./launch build`.",
                tell="`ls /usr/share/glvnd/egl_vendor.d /etc/vulkan/icd.d` does not show a file for nvidia",
                standalone="Install them in the image: `apt-get install -y libegl1 libgl1 libvulkan1`.",
            ),
            Cause(
                "rendering-needs-display",
                "The program wants a display, and there is none.",
                "Select off-screen rendering, such as `MUJOCO_GL=egl`, `PYOPENGL_PLATFORM=egl`, or `--headless`.",
                tell="`echo $DISPLAY` prints nothing",
            ),
        ),
        more=GRANT,
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
            NO_CAPABILITY,
            Cause(
                "video-library-missing",
                "The driver's video libraries are not installed on the host.",
                "Run `sudo apt-get install libnvidia-decode-580 libnvidia-encode-580` on the host, in the "
                "driver's version.",
                tell="`ldconfig -p | grep -e nvcuvid -e nvidia-encode` on the host prints nothing",
            ),
        ),
        more=GRANT,
    ),
    Rule(
        "runtime-fails",
        "nvidia-container-runtime did not terminate successfully: exit status 1",
        (r"nvidia-container-runtime[^\n]{0,20} did not terminate successfully",),
        (PARTS, CONFIGURATION, DRIVER_STUCK),
        more=GRANT,
        level=GENERAL,
        kind="gpu",
    ),
)
