"""The NVIDIA driver on the machine, and the card itself."""

from __future__ import annotations

from gpukit.errors.causes import (
    CARD_TOO_NEW,
    CARD_TOO_OLD,
    CDI_STALE,
    DEVICE_FILES,
    DRIVER_NOT_INSTALLED,
    DRIVER_STUCK,
    DRIVER_UPDATED,
    FABRIC_MANAGER,
    GPU_LOST,
    GPU_NOT_GIVEN,
    IMAGE_HAS_DRIVER,
    MIG_EMPTY,
    MODULE_MISSING,
    NO_CAPABILITY,
    NO_GPU_HERE,
    NO_GPU_OR_DRIVER,
    NOUVEAU,
    OLD_WINDOWS_DRIVER,
    OPEN_MODULES,
    UNSIGNED,
    WSL_1,
)
from gpukit.errors.evidence import (
    CONTAINER,
    ROOTLESS,
    SECURE_BOOT,
    SELINUX,
    WORKED_BEFORE,
    WSL,
    only,
    text_has,
)
from gpukit.errors.rule import BROAD, CARD, DRIVER, GENERAL, HOST, KERNEL_LOG, NOTE, Rule
from gpukit.findings.finding import Cause

XID = r"\bXid\b[^\n]{0,60}[:,]\s*"
MIG, HOLDERS = "`./launch doctor --only mig`", "`sudo fuser -v /dev/nvidia*`"

# Causes that several rules have.
HEADERS = Cause(
    "kernel-headers",
    "The kernel's headers or the compiler, from which the driver's module is built, are not installed.",
    "Install them with `sudo apt-get install build-essential linux-headers-$(uname -r)` (Fedora: "
    "`sudo dnf install gcc make kernel-devel-$(uname -r)`), run `sudo dkms autoinstall`, and restart.",
    tell="`ls /lib/modules/$(uname -r)/build/` fails, or the build log says `not found`",
    given=text_has(
        r"headers?\b[^\n]{0,80}(?:cannot be found|does not exist|not present)",
        r"kernel source tree|development tool|BUILD_DEPENDS",
    ),
)
DRIVER_OLDER_THAN_KERNEL = Cause(
    "driver-older-than-kernel",
    "This driver release does not support the kernel, usually after an upgrade of the system.",
    "Install a newer driver release, or start the previous kernel from the boot menu.",
    tell="the log in /var/lib/dkms/nvidia/*/build/make.log shows errors in C code, or `GPL-incompatible`",
    given=text_has(r"GPL-incompatible|implicit declaration|error: (?:too (?:few|many)|incompatible|unknown type)"),
)
OTHER_COMPILER = Cause(
    "kernel-compiler",
    "The driver's module is compiled with another gcc version than the kernel was.",
    "Run `cat /proc/version`, install the gcc version that it names, such as `sudo apt-get install "
    "gcc-12`, and build again: `sudo CC=gcc-12 dkms autoinstall`.",
    tell="`gcc --version` and `cat /proc/version` name different versions",
    given=text_has(r"unrecognized command|version check failed|compiler used|gcc-\d+: "),
)
SELINUX_DEVICES = Cause(
    "selinux-devices",
    "SELinux does not let the container use the GPU's device files.",
    "Run `sudo setsebool -P container_use_devices=true` on the host.",
    tell="`getenforce` prints `Enforcing`, and it works after `sudo setenforce 0`",
    given=SELINUX,
)
WSL_OLD = Cause(
    "wsl-old",
    "WSL or its kernel is too old.",
    "Run `wsl --update` in Windows.",
    tell="`wsl --version` fails or shows a version below 2",
    given=text_has(r"kernel component"),
)
USERS_OF_GPU = Cause(
    "gpu-in-use",
    "Something still uses the GPU: a display, a container, monitoring, or nvidia-persistenced.",
    "Run `sudo fuser -v /dev/nvidia*`, end what it lists (also `sudo systemctl stop "
    "nvidia-persistenced`), and try again; or restart the machine.",
    tell="`sudo fuser -v /dev/nvidia*` lists processes",
)

NOVA = Cause(
    "nova-holds-card",
    "The kernel's own driver nova_core holds the card, so NVIDIA's module cannot use it.",
    "Write `blacklist nova_core` and `blacklist nova_drm` to /etc/modprobe.d/nova.conf, run `sudo update-initramfs -u` "
    "(`sudo dracut --force` on Fedora), and restart.",
    tell="`lspci -k -d 10de:` shows `Kernel driver in use: NovaCore`",
    given=only(text_has(r"nova_?core")),
)

RULES = (
    Rule(
        "driver-updated",
        "Failed to initialize NVML: Driver/library version mismatch",
        (
            r"driver/library version mismatch",
            r"(?:kernel module|\bnvml\b|(?:nvidia|gpu|display) driver)[^\n]{0,40}version mismatch",
            r"this NVIDIA driver component has version",
            r"NVRM: API mismatch",
            r"API mismatch: the client has the version",
        ),
        (DRIVER_UPDATED, IMAGE_HAS_DRIVER, CDI_STALE),
        more=DRIVER,
        kind="gpu",
    ),
    Rule(
        "gpu-lost",
        "GPU has fallen off the bus",
        (
            r"fallen off the bus",
            r"GPU is lost\.? +Reboot",
            r"GPU (?:was|has been) lost",
            r"(?:NV_ERR|ERROR)_GPU_IS_LOST|NVMLError_GpuIsLost|NVML: GPU is lost",
            r"\bXid:? 79\b",
            XID + r"79\b",
        ),
        (
            GPU_LOST,
            Cause(
                "gpu-lost-asleep",
                "The GPU went to a power-saving state and did not come back. This happens in laptops, with "
                "external GPUs, and after suspend.",
                "Restart the machine. To prevent it, put `options nvidia NVreg_DynamicPowerManagement=0x00` in "
                "/etc/modprobe.d/nvidia-power.conf, and start the kernel with `pcie_aspm=off`.",
                tell="it happens when idle or after suspend",
                given=text_has(r"\b(?:suspend|resume|runtime PM|D3cold|Laptop|Thunderbolt|eGPU)\b"),
            ),
        ),
        more=KERNEL_LOG,
    ),
    Rule(
        "cuda-version-unseen",
        "NVIDIA-SMI 550.54.14   Driver Version: 550.54.14   CUDA Version: ERR!",
        (r"CUDA Version: ERR!",),
        (
            NO_CAPABILITY,
            Cause(
                "libcuda-missing",
                "`nvidia-smi` reaches the driver, but the driver's CUDA library (libcuda.so.1) is not installed.",
                "Install the driver's compute package in the driver's version: `sudo apt-get install "
                "libnvidia-compute-580` on Ubuntu, `libcuda1` on Debian, `nvidia-driver-cuda-libs` on Fedora.",
                tell="`ldconfig -p | grep libcuda.so.1` on the host prints nothing",
                given=~CONTAINER,
            ),
            IMAGE_HAS_DRIVER,
        ),
        more="`./launch doctor --only driver,gpu`",
    ),
    Rule(
        "gpu-state",
        "Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error",
        (
            r"Unable to determine the device handle for (?:GPU|gpu)",
            r"GPU requires (?:a )?re(?:set|start|boot)",
            r"NV_ERR_RESET_REQUIRED|NVMLError_ResetRequired",
            r"NVIDIA-SMI[\s\S]{0,3000}(?<!CUDA Version: )\bERR!",
        ),
        (
            GPU_LOST,
            DRIVER_STUCK,
            Cause(
                "gpu-sensor-missing",
                "The driver does not support this GPU fully, or cannot read one of its sensors.",
                "Install the newest driver. If only a fan or power figure is missing, training is not affected.",
                tell="it has been like this since the first start, and `sudo dmesg | grep -i xid` prints nothing",
                given=~WORKED_BEFORE,
            ),
        ),
        more=KERNEL_LOG,
        level=BROAD,
    ),
    Rule(
        "gpu-memory-fault",
        "CUDA error: uncorrectable ECC error encountered",
        (
            r"uncorrectable ECC error",
            r"(?:double[- ]bit|uncorrectable|uncorrected) ECC(?![^\n]{0,40}: *(?:0|N/A)\b)|DBE \(double bit",
            r"cudaErrorECCUncorrectable|CUDA_ERROR_ECC_UNCORRECTABLE",
            XID + r"(?:48|63|64|94|95)\b",
            r"row.?remap\w*[^\n]{0,20}fail",
            r"Remapping Failure Occurred\s*: *Yes",
        ),
        (
            Cause(
                "gpu-memory-fault",
                "The GPU's memory had an error that cannot be corrected.",
                "Restart the machine, so that the GPU replaces the faulty memory rows. If it happens again, have "
                "the card replaced.",
            ),
        ),
        more="`nvidia-smi -q -d ECC,ROW_REMAPPER`",
    ),
    Rule(
        "firmware-file",
        "nvidia 0000:01:00.0: Direct firmware load for nvidia/535.54.03/gsp_ga10x.bin failed with error -2",
        (r"Direct firmware load for nvidia/\S+ failed with error", r"firmware: failed to load nvidia/\S+"),
        (
            Cause(
                "driver-parts-mixed",
                "The driver's firmware file is missing or has another version than its kernel module.",
                "Reinstall all packages of the driver in one version (on Debian and Ubuntu also "
                "`nvidia-firmware-...` or `firmware-nvidia-gsp`), then restart the machine.",
                tell="the path in the text has a driver version, such as 535.54.03",
                given=text_has(r"nvidia/\d{3}\.\d+"),
            ),
            Cause(
                "nouveau-firmware",
                "The nouveau driver looks for a firmware file that is not installed. NVIDIA's own driver does not "
                "need it.",
                "Install NVIDIA's driver; for nouveau itself, `sudo apt-get install linux-firmware`.",
                tell="the line has `nouveau`, or the path has a chip's name such as ga102",
                given=text_has(r"nouveau", r"nvidia/[a-z]{2}\d{3}/"),
            ),
        ),
        more=DRIVER,
    ),
    Rule(
        "gpu-firmware",
        "NVRM: Xid (PCI:0000:01:00): 119, Timeout waiting for RPC from GSP!",
        (
            XID + r"(?:119|120)\b",
            r"Timeout (?:after \d+s? )?(?:of )?waiting for RPC (?:response )?from (?:GPU ?\d* ?)?GSP",
            r"GSP (?:RM )?(?:heartbeat|firmware) (?:timed? ?out|crash)",
            r"GSP firmware RM|_kgspBootGspRm|unexpected WPR2 already up",
            r"GPU is likely in a bad state and may need to be reset",
            r"NVRM:[^\n]{0,80}GSP[^\n]{0,80}(?:fail|error|timed? ?out)",
        ),
        (
            Cause(
                "gpu-firmware",
                "The GPU's system processor (GSP) did not start or stopped responding to the driver.",
                "Shut the machine down, switch its power off for a minute, and start it again. If it happens "
                "again, install the newest release of the driver.",
                tell="it works again after a restart",
            ),
            Cause(
                "gpu-in-vm",
                "The GPU was passed into a virtual machine without being reset, or another driver used it before.",
                "Shut the virtual machine and then the host down completely, and start them again.",
                tell="`systemd-detect-virt` prints a hypervisor, or the GPU is bound to vfio-pci on the host",
                given=text_has(r"WPR2 already up|vfio"),
            ),
        ),
        more=KERNEL_LOG,
    ),
    Rule(
        "nvlink-fault",
        "CUDA error: uncorrectable NVLink error detected during the execution",
        (
            r"uncorrectable NVLink error",
            r"NVLink: (?:fatal|Fatal) error",
            XID + r"(?:74|14[4-9]|150)\b",
            r"previous Xid (?:74|14[4-9]|150)\b",
        ),
        (
            Cause(
                "nvlink-fault",
                "The NVLink connection between GPUs had an error that cannot be corrected.",
                "Restart the machine. If it happens again, have the NVLink bridge, the switch, or the card "
                "checked; `NCCL_P2P_DISABLE=1` avoids NVLink until then.",
            ),
        ),
        more="`nvidia-smi nvlink --errorcounters`",
    ),
    Rule(
        "inforom",
        "WARNING: infoROM is corrupted at gpu 0000:65:00.0",
        (r"infoROM is corrupted",),
        (
            Cause(
                "inforom",
                "The card's infoROM, which stores its settings, is damaged. The card still works.",
                "Update the driver. If the warning stays, have the card checked; training can continue.",
            ),
        ),
        more=KERNEL_LOG,
        certain=True,
    ),
    Rule(
        "gpu-heat",
        "HW Thermal Slowdown : Active",
        (
            r"(?:HW|SW) Thermal Slowdown\s*: *Active",
            r"GPU[^\n]{0,40}(?:overheat|temperature (?:limit|threshold) (?:reached|exceeded))",
            r"thermal shutdown",
        ),
        (
            Cause(
                "gpu-heat",
                "The GPU is hot and runs at a lower clock rate, or switches off.",
                "Check the fans, the dust filters, and the air flow. `sudo nvidia-smi -pl 250` limits the power "
                "to 250 W until then.",
            ),
        ),
        more="`nvidia-smi -q -d TEMPERATURE,PERFORMANCE`",
        requires=r"gpu|nvidia|slowdown",
    ),
    Rule(
        "gpu-power-brake",
        "HW Power Brake Slowdown : Active",
        (r"HW Power Brake(?: Slowdown)?\s*: *Active", r"power cable[^\n]{0,40}not (?:connected|plugged)"),
        (
            Cause(
                "gpu-power-brake",
                "The machine slows the GPU down because too little power reaches it.",
                "Check the card's power cables and the power supply; in a server, also the power limits in its "
                "management controller.",
            ),
        ),
        more="`nvidia-smi -q -d POWER,PERFORMANCE`",
        requires=r"gpu|nvidia|power brake",
    ),
    Rule(
        "open-modules-needed",
        "NVRM: installed in this system requires use of the NVIDIA open kernel modules",
        (
            r"requires use of the NVIDIA open kernel modules",
            r"requires? the (?:NVIDIA )?open (?:GPU )?kernel modules",
            r"requires the open GPU kernel",
        ),
        (OPEN_MODULES,),
        more=DRIVER,
        certain=True,
    ),
    Rule(
        "card-too-old-for-driver",
        "NVRM: The NVIDIA GPU is supported through the NVIDIA 470.xx Legacy drivers",
        (
            r"not supported by open nvidia\.ko",
            r"supported through the NVIDIA \S+ Legacy drivers",
            r"following NVIDIA GPUs are supported through NVIDIA",
        ),
        (CARD_TOO_OLD,),
        more=DRIVER,
        certain=True,
    ),
    Rule(
        "card-not-in-driver",
        "NVRM: The NVIDIA GPU 0000:01:00.0 installed in this system is not supported by the NVIDIA 550.120 "
        "driver release.",
        (
            r"is not supported by (?:the )?NVIDIA(?:'s)? [\d.]+ (?:Linux )?driver release",
            r"GPU installed in this system is\s+not supported by the",
            r"could not insert (?:module )?'?\"?nvidia\w*'?\"?:? No such device",
        ),
        (CARD_TOO_NEW, CARD_TOO_OLD, NO_GPU_HERE),
        more=CARD,
        level=BROAD,
    ),
    Rule(
        "driver-cannot-start-card",
        "NVRM: RmInitAdapter failed! (0x22:0x56:884)",
        (
            r"Rm_?Init_?Adapter failed",
            r"BAR\d is 0M @ 0x0",
            r"This PCI I/O region assigned to your NVIDIA device is invalid",
            r"failed to copy vbios to system memory",
            r"NVRM: The NVIDIA probe routine failed for",
            r"nvidia\w*: probe of \S+ failed",
        ),
        (
            OPEN_MODULES,
            Cause(
                "pci-address-space",
                "The firmware, or the virtual machine, gives the card too little address space.",
                "Enable `Above 4G Decoding` in the firmware, or add `pci=realloc` to the kernel's command line; in a "
                "virtual machine, use UEFI and the machine type q35.",
                tell="`sudo dmesg | grep -i BAR` shows that a BAR could not be assigned",
                given=text_has(r"BAR\d is 0M|I/O region"),
            ),
            DRIVER_STUCK,
        ),
        more=KERNEL_LOG,
        level=BROAD,
    ),
    Rule(
        "other-kernel-driver",
        "ERROR: The Nouveau kernel driver is currently in use by your system",
        (
            r"Nouveau kernel driver is currently in use",
            r"NVRM: The NVIDIA probe routine was not called for \d+ device",
            r"already bound to (?:nouveau|NovaCore|nova_core)",
            r"^\[[ \d.]+\] nouveau [0-9a-f]{4}:[0-9a-f:.]+: (?:NVIDIA|enabling|DRM|bios|fb)",
            r"driver such as:? nouveau, rivafb",
            r"Kernel driver in use: nouveau",
        ),
        (
            NOVA,
            NOUVEAU,
            Cause(
                "vfio-holds-card",
                "The card is reserved for a virtual machine: the driver vfio-pci holds it.",
                "Use the GPU in that virtual machine, or remove its `vfio-pci.ids=` from the kernel's command "
                "line and /etc/modprobe.d, then restart.",
                tell="`lspci -k -d 10de:` shows `Kernel driver in use: vfio-pci`",
                given=text_has(r"vfio"),
            ),
        ),
        more=DRIVER,
    ),
    Rule(
        "no-card",
        "NVRM: No NVIDIA GPU found.",
        (r"NVRM: No NVIDIA (?:graphics adapter|GPU|devices?)[^\n]{0,20}(?:found|probed)",),
        (NO_GPU_HERE, OPEN_MODULES, NOUVEAU, NOVA),
        more=CARD,
        excludes=r"already bound to",
    ),
    Rule(
        "nvml-permission",
        "Failed to initialize NVML: Insufficient Permissions",
        (
            r"Failed to initialize NVML: Insufficient Permissions",
            r"nvml error: insufficient permissions|you do not have suitable permission",
            r"NVMLError_NoPermission",
        ),
        (
            Cause(
                "device-files-closed",
                "This user may not open the GPU's device files.",
                "Run `ls -l /dev/nvidia*` on the host. If they belong to a group, add the user: `sudo usermod -aG "
                "GROUP $USER`, then log in again.",
                tell="`sudo nvidia-smi` works",
            ),
            SELINUX_DEVICES,
            Cause(
                "rootless-device-access",
                "The rootless engine cannot open the device files for the container.",
                "Give the GPU through CDI: `--device nvidia.com/gpu=all`.",
                tell="it works with the engine that runs as root",
                given=ROOTLESS,
            ),
        ),
        more=DRIVER,
    ),
    Rule(
        "selinux",
        'avc:  denied  { read write } for  comm="nvidia-smi" name="nvidiactl"',
        (r"avc:\s+denied", r"SELinux is preventing", r"^Source Context\s+\S*container_t"),
        (
            SELINUX_DEVICES,
            Cause(
                "selinux-mount",
                "SELinux does not let the container use a mounted folder.",
                "Mount the folder with the suffix `:z`, or start the container with `--security-opt label=disable`.",
                tell="`sudo ausearch -m avc -ts recent` names a file or folder",
            ),
        ),
        more="`sudo ausearch -m avc -ts recent`",
        level=GENERAL,
        requires=r"nvidia|container|podman|docker|/dev/dri|\bgpu",
    ),
    Rule(
        "nvml-other",
        "Failed to initialize NVML: N/A",
        (
            r"Failed to initialize NVML: (?:N/A|Not Found|Not Supported|Timeout|Uninitialized)",
            r"nvml error: (?:not found|timeout|uninitialized)",
        ),
        (OLD_WINDOWS_DRIVER, DRIVER_UPDATED, DRIVER_STUCK),
        more=DRIVER,
        level=BROAD,
        kind="gpu",
    ),
    Rule(
        "lost-after-reload",
        "Failed to initialize NVML: Unknown Error",
        (r"Failed to initialize NVML: Unknown Error", r"NVMLError_Unknown\b", r"NVML: Unknown Error"),
        (
            Cause(
                "lost-after-reload",
                "A `systemctl daemon-reload` on the host removed the container's access to the GPU.",
                "Start the container again: `./launch stop`, then your command. To prevent it, give the GPU "
                'through CDI, or set `"exec-opts": ["native.cgroupdriver=cgroupfs"]` in /etc/docker/daemon.json.',
                tell="`nvidia-smi` works on the host, and it worked in this container before",
                given=CONTAINER & WORKED_BEFORE,
                standalone="Start the container again: `docker restart NAME`. To prevent it, give the GPU through CDI, "
                'or set `"exec-opts": ["native.cgroupdriver=cgroupfs"]` in /etc/docker/daemon.json.',
            ),
            Cause(
                "no-cgroups",
                "The container never got access to the GPU: the toolkit's option `no-cgroups` is on for an engine "
                "that runs as root, or the engine runs in LXC.",
                "Run `sudo nvidia-ctk config --in-place --set nvidia-container-cli.no-cgroups=false && sudo "
                "systemctl restart docker`. In LXC, allow the devices in its configuration.",
                tell="it fails in a new container too, and works with `--privileged`",
                given=CONTAINER & ~WORKED_BEFORE,
            ),
            DRIVER_STUCK,
        ),
        more="`./launch doctor --only reload`",
        level=BROAD,
        kind="gpu",
    ),
    Rule(
        "wsl-virtualization",
        "Please enable the Virtual Machine Platform Windows feature",
        (
            r"enable the Virtual Machine Platform Windows feature",
            r"Hardware assisted virtualization and data execution protection must be enabled",
            r"Nested virtualization is not supported",
            r"0x80370102",
            r"WSL 2 requires an update to its kernel component",
            r"WSL_E_VIRTUAL_MACHINE_PLATFORM_REQUIRED",
            r"HCS_E_(?:SERVICE_NOT_AVAILABLE|HYPERV_NOT_INSTALLED)|0x80370114",
        ),
        (
            Cause(
                "wsl-virtualization",
                "Virtualization is off in the firmware, or Windows' Virtual Machine Platform is not installed.",
                "Enable virtualization in the firmware. Then run `wsl.exe --install --no-distribution` in "
                "PowerShell as administrator, and restart Windows.",
                tell="Task Manager, tab Performance, CPU, shows `Virtualization: Disabled`",
            ),
            WSL_OLD,
            Cause(
                "wsl-nested",
                "Windows itself is a virtual machine without nested virtualization.",
                "Enable nested virtualization for this virtual machine in its hypervisor.",
                tell="Task Manager shows `Virtual machine: Yes`",
                given=text_has(r"Nested virtualization"),
            ),
        ),
        more=HOST,
    ),
    Rule(
        "wsl-does-not-start",
        "The Windows Subsystem for Linux instance has terminated.",
        (
            r"Windows Subsystem for Linux instance has terminated",
            r"Wsl/Service/(?:CreateInstance|RegisterDistro|0x)\S*",
            r"WSL[^\n]{0,40}Catastrophic failure",
        ),
        (
            Cause(
                "wsl-disk",
                "The virtual disk of the WSL distribution is missing, in use, or damaged.",
                "Run `wsl --shutdown` in Windows and start it again. If that fails, `wsl --list --verbose` names "
                "the distribution; restore it from a backup.",
                tell="the error has `MountVhd`, `MountDisk`, or `ERROR_FILE_NOT_FOUND`",
                given=text_has(r"Mount(?:Vhd|Disk)|\.vhdx|ERROR_(?:FILE|PATH)_NOT_FOUND|ERROR_SHARING_VIOLATION"),
            ),
            WSL_OLD,
            Cause(
                "wsl-memory",
                "Windows ended WSL, usually because its memory ran out.",
                "Run `wsl --shutdown` in Windows, and set `memory=` under `[wsl2]` in %UserProfile%\\.wslconfig.",
                tell="Windows' event log or Task Manager shows that memory was full",
            ),
        ),
        more=HOST,
        level=BROAD,
    ),
    Rule(
        "wsl-blocked",
        "Failed to initialize NVML: GPU access blocked by the operating system",
        (
            r"GPU access blocked by the operating system",
            r"dxcore initialization failed",
            r"WSL environment detected but no adapters were found",
            r"/dev/dxg[^\n]{0,40}(?:No such file|not found|failed)",
        ),
        (
            NO_GPU_HERE,
            OLD_WINDOWS_DRIVER,
            WSL_1,
            Cause(
                "windows-no-gpu",
                "Windows gives WSL no GPU: the GPU is disabled, in TCC mode, in a remote or virtual session "
                "without it, or Windows is too old (Windows 10 before 21H2).",
                "Check that Task Manager in Windows shows the GPU, install all Windows updates, and run `wsl "
                "--update` and `wsl --shutdown`.",
                tell="Task Manager does not show the GPU, or `nvidia-smi.exe` shows `TCC`",
            ),
        ),
        more=DRIVER,
        kind="gpu",
    ),
    Rule(
        "module-unsigned",
        "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
        (
            r"Key was rejected by service",
            r"Required key not available",
            r"could not insert '?\"?nvidia\w*'?\"?: (?:Operation not permitted|Permission denied)",
            r"The kernel module failed to load\. Secure boot is enabled",
            r"Lockdown: [^\n]{0,40}unsigned module loading is restricted",
        ),
        (
            UNSIGNED,
            Cause(
                "modules-in-container",
                "Kernel modules cannot be loaded from inside a container.",
                "Run the command on the host.",
                tell="it ran in a container",
                given=CONTAINER,
            ),
            Cause(
                "signatures-enforced",
                "The kernel accepts only signed modules, although Secure Boot is off.",
                "Remove `module.sig_enforce=1` or `lockdown=` from the kernel's command line, and restart.",
                tell="`cat /proc/cmdline /sys/kernel/security/lockdown` shows it",
                given=~SECURE_BOOT,
            ),
        ),
        more=DRIVER,
        requires=r"nvidia|\bgpu\b",
    ),
    Rule(
        "module-not-loadable",
        "ERROR: Unable to load the kernel module 'nvidia.ko'.",
        (r"Unable to load the (?:NVIDIA )?kernel module", r"Kernel module load error"),
        (UNSIGNED, NOUVEAU, OPEN_MODULES),
        more=DRIVER,
        level=BROAD,
    ),
    Rule(
        "dkms-remains",
        "Error! Could not locate dkms.conf file.",
        (
            r"Could not locate dkms\.conf file",
            r"Missing the (?:module )?source directory or the symbolic link pointing to it",
            r"/var/lib/dkms/\S+/source/dkms\.conf does not exist",
        ),
        (
            Cause(
                "dkms-remains",
                "DKMS still lists a module whose sources are gone, such as an NVIDIA driver that was removed.",
                "Run `dkms status`, remove the entry with `sudo dkms remove nvidia/VERSION --all` (or `sudo rm -r "
                "/var/lib/dkms/nvidia/VERSION`), then `sudo dkms autoinstall`.",
            ),
        ),
        more=DRIVER,
    ),
    Rule(
        "kernel-compiler",
        "cc: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'",
        (
            r"unrecognized command[- ]line option '?-f(?:trivial-auto-var-init|min-function-alignment|"
            r"zero-call-used-regs|strict-flex-arrays)",
            r"(?:CC|compiler) version check failed",
            r"gcc-\d+: (?:command )?not found[\s\S]{0,400}(?:nvidia|dkms)",
            r"The kernel was built (?:by|with)[^\n]{0,80}gcc",
            r"gcc-version-check failed",
            r"compiler used to compile the kernel [^\n]{0,40}\s*[^\n]{0,40}does not exactly match",
        ),
        (OTHER_COMPILER, HEADERS, DRIVER_OLDER_THAN_KERNEL),
        more=DRIVER,
    ),
    Rule(
        "module-not-built",
        "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.8.0-45-generic",
        (
            r"modprobe: FATAL: Module nvidia\S* not found",
            r"module not found: 'nvidia",
            r"Module build for kernel \S+ was skipped",
            r"modinfo: ERROR: Module nvidia\S* not found",
            r"kernel header file '[^']*' does not exist",
            r"Your kernel headers for kernel \S+ cannot be found",
            r"Unable to find the kernel source tree",
            r"The kernel module build directory '[^']*' is not present",
            r"kernel header files? (?:'[^']*' )?(?:exists|does not exist)",
            r"due to missing BUILD_DEPENDS",
        ),
        (MODULE_MISSING, DRIVER_NOT_INSTALLED, HEADERS),
        more=DRIVER,
    ),
    Rule(
        "module-of-other-kernel",
        "nvidia: version magic '6.8.0-40-generic' should be '6.8.0-45-generic'",
        (
            r"nvidia[\w-]*: (?:version magic|disagrees about version of symbol)",
            r"could not insert (?:module )?\S{0,2}nvidia\S*:? (?:Exec format error|Invalid module format|Unknown "
            r"symbol)",
        ),
        (
            Cause(
                "module-of-other-kernel",
                "The installed NVIDIA module was built for another kernel than the one that runs: it was left over "
                "from an update, or two ways of building it (dkms, akmods, the .run installer) are installed.",
                "Remove the old module, build it for this kernel, and restart: `sudo dkms autoinstall` (`sudo akmods "
                "--force` on Fedora), then `sudo depmod`. Keep only one of dkms and akmods.",
            ),
            HEADERS,
            OTHER_COMPILER,
        ),
        more=DRIVER,
    ),
    Rule(
        "module-build-failed",
        "ERROR: The nvidia kernel module was not created.",
        (
            r"\bdkms\b[^\n]{0,160}(?:not supported|failed|error:)",
            r"nvidia[^\n]{0,80}(?:bad exit status|build failed)",
            r"/var/lib/dkms/nvidia[^\n]{0,80}\] Error \d",
            r"Bad return status for module build on kernel|Error! Bad return status[^\n]{0,80}nvidia",
            r"GPL-incompatible module nvidia",
            r"An error occurred while performing the step: \"(?:Building|Checking)[^\"]*kernel",
            r"nvidia-dkms-\S+[^\n]{0,60}(?:installation script|post-installation)[^\n]{0,20}returned error",
            r"Unable to build the (?:NVIDIA )?kernel module",
            r"(?:Failed|Unable) to (?:run|install|register)[^\n]{0,60}\bdkms\b",
            r"kernel module through DKMS|kernel modules with DKMS",
            r"modules? failed to install during autoinstall",
            r"The \'\S+\' kernel modules are incompatible",
            r"The \S+ kernel module was not created",
            r"Unable to find the development tool `\w+`",
            r"could not insert (?:module )?\S{0,2}nvidia\S*:? (?:"
            r"Invalid argument)",
        ),
        (HEADERS, DRIVER_OLDER_THAN_KERNEL, OTHER_COMPILER),
        more=DRIVER,
        level=BROAD,
    ),
    Rule(
        "card-in-use",
        "NVRM: Attempting to remove device 0000:07:00.0 with non-zero usage count!",
        (
            r"Attempting to remove device \S+ with non-zero usage count",
            r"rmmod: ERROR: Module nvidia\S* is in use",
            r"modprobe: FATAL: Module nvidia\S* is in use",
            r"An NVIDIA kernel module '[\w-]+' appears to already be loaded",
            r"You appear to be running an X server",
        ),
        (
            USERS_OF_GPU,
            Cause(
                "display-uses-driver",
                "The display runs on this driver, so it cannot be replaced while the display is on.",
                "Run `sudo systemctl isolate multi-user.target` and install again, or install the distribution's "
                "driver package and restart.",
                tell="`loginctl` shows a graphical session",
                given=text_has(r"X server|nvidia[-_](?:drm|modeset)"),
            ),
        ),
        more=HOLDERS,
    ),
    Rule(
        "driver-not-loaded",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
        (
            r"couldn'?t communicate with the NVIDIA driver",
            r"Could not load (?:UVM|NVIDIA) kernel module",
            r"(?:NVIDIA|kernel) (?:driver|module) (?:is |was )?not (?:loaded|running)(?! on this host)",
            r"Unable to load info from any available system",
            r"nvml error: driver not loaded",
            r"Failed to initialize NVML: Driver Not Loaded|NVMLError_DriverNotLoaded|NVML: Driver Not Loaded",
            r"module '?\"?nvidia\w*\"?'? is not loaded",
            r"nvidia-smi'?\]?'? (?:returned non-zero exit status|failed with exit (?:code|status)) (?:9|15)\b",
            r"(?:\bWSL ?[12]?\b|microsoft-standard|/mnt/c/|Windows Subsystem)[\s\S]{0,2000}couldn'?t communicate "
            r"with the NVIDIA driver",
            r"couldn'?t communicate with the NVIDIA driver[\s\S]{0,2000}(?:\bWSL ?[12]?\b|microsoft-standard|"
            r"Windows Subsystem)",
        ),
        (
            *NO_GPU_OR_DRIVER,
            MODULE_MISSING,
            UNSIGNED,
            OLD_WINDOWS_DRIVER,
        ),
        more=DRIVER,
        kind="gpu",
        requires=r"nvidia|nvml|cuda|\buvm\b|\bgpu",
    ),
    Rule(
        "no-nvswitch",
        "request to query NVSwitch device information from NVSwitch driver failed with error:WARNING Nothing to "
        "do [NV_WARN_NOTHING_TO_DO]",
        (r"NV_WARN_NOTHING_TO_DO", r"query NVSwitch device information[^\n]{0,60}(?:Nothing to do|failed)"),
        (
            Cause(
                "no-nvswitch",
                "The fabric manager found no NVSwitch. Only machines with NVSwitch, such as HGX and DGX, need it.",
                "Run `sudo systemctl disable --now nvidia-fabricmanager`. GPUs with NVLink bridges work without it.",
                tell="`lspci | grep -i bridge.*nvidia` prints nothing",
            ),
            Cause(
                "nvswitch-not-passed",
                "The machine has NVSwitches, but they were not passed into this virtual machine, or their driver "
                "is not loaded.",
                "Check `lspci | grep -i nvidia`, and load the driver before the service starts: `sudo "
                "nvidia-modprobe && sudo systemctl restart nvidia-fabricmanager`.",
                tell="`lspci | grep -i bridge.*nvidia` lists NVSwitches, or the machine is an HGX or DGX system",
            ),
        ),
        more="`./launch doctor --only fabric`",
    ),
    Rule(
        "fabric-manager",
        "Error 802: system not yet initialized",
        (
            r"\b802\b[^\n]{0,4}:? *'?\"?system not yet initialized|system not yet initialized",
            r"SYSTEM_NOT_READY|cudaErrorSystemNotReady",
            r"nvidia-fabricmanager(?:\.service)?[^\n]{0,60}(?:failed|error)",
            r"fabric ?manager[^\n]{0,80}(?:don't match|does ?n.t match|mismatch)",
            r"(?:cuInit|cuda driver library init fail\w*|cuda[^\n]{0,30}(?:init|error|code))[^\n]{0,20}\b802\b",
            r"NVLink fabric is not (?:yet )?initialized|Fabric[^\n]{0,20}State\s*: *In Progress",
        ),
        (
            FABRIC_MANAGER,
            Cause(
                "gpu-not-ready",
                "The GPU runs in confidential-computing mode and was not set to ready.",
                "Run `sudo nvidia-smi conf-compute -srs 1` after attestation.",
                tell="`nvidia-smi conf-compute -f` shows that it is on",
                given=text_has(r"confidential|conf-compute|\bCC mode"),
            ),
            Cause(
                "fabric-in-vm",
                "In a virtual machine or container with some GPUs of an NVSwitch system, the host has not "
                "activated the partition.",
                "On the host, check `systemctl status nvidia-fabricmanager` and `nvidia-smi -q | grep -A3 "
                "Fabric`, then start the virtual machine again.",
                tell="`systemd-detect-virt` prints a hypervisor",
            ),
        ),
        more="`./launch doctor --only fabric`",
    ),
    Rule(
        "reset-in-use",
        "The following GPUs could not be reset: GPU 00000000:1A:00.0: In use by another client",
        (
            r"could not be reset:[\s\S]{0,200}?In use by another client",
            r"GPU \S+ is currently in use by another process",
            r"\bMIG\b[\s\S]{0,200}In use by another client",
            r"currently being used by one or more other processes \(e\.g\. CUDA application",
            r"MIG mode is in pending (?:enable|disable) state",
        ),
        (USERS_OF_GPU,),
        more=HOLDERS,
    ),
    Rule(
        "mig-no-room",
        "Unable to create a GPU instance on GPU 0 using profile 9: Insufficient Resources",
        (r"Unable to create a (?:GPU|compute) instance", r"\bMIG\b[^\n]{0,120}Insufficient Resources"),
        (
            Cause(
                "mig-no-room",
                "The existing MIG slices leave no room for this one.",
                "List them with `nvidia-smi mig -lgi`. To remove all of them: `sudo nvidia-smi mig -dci && sudo "
                "nvidia-smi mig -dgi`.",
                tell="`nvidia-smi mig -lgip` shows 0 free instances of this profile",
            ),
            Cause(
                "mig-no-profile",
                "This GPU has no such profile, or MIG is not enabled on it.",
                "List the profiles with `nvidia-smi mig -lgip`; enable MIG with `sudo nvidia-smi -i 0 -mig 1`.",
                tell="`nvidia-smi mig -lgip` does not list the profile",
            ),
        ),
        more="`nvidia-smi mig -lgip`",
    ),
    Rule(
        "mig-empty",
        "No MIG-enabled devices found",
        (r"No MIG(?:[- ]enabled)? (?:devices|instances) (?:were )?found", r"No GPU instances found"),
        (
            MIG_EMPTY,
            Cause(
                "mig-off",
                "MIG is not enabled on any GPU.",
                "Run `sudo nvidia-smi -i 0 -mig 1`, then create slices: `sudo nvidia-smi mig -cgi PROFILE -C`.",
                tell="`nvidia-smi -q | grep -A1 MIG` shows Disabled",
                given=text_has(r"No MIG-enabled"),
            ),
        ),
        more=MIG,
    ),
    Rule(
        "vgpu-license",
        "vGPU Software Licensed Product: License Status : Unlicensed (Restricted)",
        (
            r"License Status\s*: *Unlicensed",
            r"vGPU[^\n]{0,80}unlicensed",
            r"cudaErrorDeviceNotLicensed|CUDA_ERROR_DEVICE_NOT_LICENSED|valid (?:Grid|GRID|vGPU) license",
            r"(?:gridd|vGPU|NVIDIA)[^\n]{0,80}Failed to acquire license",
            r"Failed to acquire license[^\n]{0,60}(?:NVIDIA|vGPU|nvlts)",
        ),
        (
            Cause(
                "vgpu-license",
                "The virtual GPU has no license. After a while it becomes slow or refuses CUDA.",
                "Put the client token into /etc/nvidia/ClientConfigToken, then run `sudo systemctl restart "
                "nvidia-gridd`.",
            ),
        ),
        more="`nvidia-smi -q | grep -i license`",
    ),
    Rule(
        "nvml-function",
        "pynvml.NVMLError_FunctionNotFound: Function Not Found",
        (
            r"NVMLError_FunctionNotFound",
            r"NVML[^\n]{0,40}Function Not Found",
            r"symbol not found[^\n]{0,40}nvml\w+|undefined symbol: nvml\w+",
        ),
        (
            Cause(
                "driver-older-than-program",
                "The driver is older than the program that calls it, and does not have this function yet.",
                "Install a newer driver, or an older release of the program.",
                tell="it fails on the host too",
            ),
            IMAGE_HAS_DRIVER,
        ),
        more=DRIVER,
    ),
    Rule(
        "nvml-no-value",
        "pynvml.NVMLError_NotSupported: Not Supported",
        (
            r"NVMLError_NotSupported",
            r"(?:float|int)\b[^\n]{0,40}: \'\[?N/A\]?\'",
            r"getting (?:device |GPU )?memory[^\n]{0,30}: Not Supported",
            r"NVML: Not Supported",
            r"NVML memory APIs? (?:are |is )?not supported|memory info[^\n]{0,40}Not Supported",
            r"nvml[^\n]{0,60}: Not Supported",
            r"nvmlDeviceGet\w+[^\n]{0,40}Not Supported",
        ),
        (
            Cause(
                "nvml-no-value",
                "NVML does not report this value on this GPU: on unified memory (DGX Spark, Jetson), in WSL, for "
                "a MIG slice, or on GeForce cards. Training does not need it.",
                "Update the package that asks for the value, or turn its GPU monitoring off.",
            ),
        ),
        more="`nvidia-smi -q`",
    ),
    Rule(
        "profiling-denied",
        "ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters",
        (r"ERR_NVGPUCTRPERM", r"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", r"access NVIDIA GPU Performance Counters"),
        (
            Cause(
                "profiling-denied",
                "By default the driver lets only root read the GPU's performance counters.",
                "Put `options nvidia NVreg_RestrictProfilingToAdminUsers=0` into "
                "/etc/modprobe.d/nvidia-profiling.conf on the host, run `sudo update-initramfs -u`, and restart. "
                "In a container, `--cap-add=SYS_ADMIN` is enough.",
                tell="`grep RmProfilingAdminOnly /proc/driver/nvidia/params` shows 1",
                given=~WSL,
            ),
            Cause(
                "profiling-wsl",
                "In WSL, Windows decides who may read the GPU's performance counters.",
                "In Windows, open the NVIDIA Control Panel, enable its developer settings, and allow access to "
                "the GPU performance counters for all users.",
                tell="it runs in WSL",
                given=WSL,
            ),
        ),
        more=DRIVER,
    ),
    Rule(
        "needs-root",
        "The current user does not have permission to change clocks for GPU 00000000:01:00.0.",
        (r"current user does not have permission to change", r"nvidia-smi[^\n]{0,60}Insufficient Permissions"),
        (
            Cause(
                "needs-root",
                "Only root on the host may change settings of the GPU.",
                "Run the same command with `sudo`, on the host and not in a container.",
            ),
        ),
        more="`nvidia-smi -q`",
    ),
    Rule(
        "no-devices",
        "No devices were found",
        (r"No devices were found",),
        (OPEN_MODULES, DEVICE_FILES, DRIVER_STUCK),
        more=DRIVER,
        level=BROAD,
        requires=r"nvidia|cuda|\bgpu|\A\s*(?:Error: )?No devices were found",
    ),
    Rule(
        "driver-not-installed",
        "bash: nvidia-smi: command not found",
        (
            r"nvidia-smi['\"]?:? (?:command )?not found",
            r"exec: \\?\"nvidia-smi\\?\": executable file not found",
            r"Command 'nvidia-smi' not found",
            r"No such file or directory: '(?:/usr/bin/)?nvidia-smi'",
            r"could not load NVML library",
            r"nvidia-smi is not (?:installed|available|recognized)",
            r"NVIDIA drivers? (?:are|is) not (?:installed|found|detected)",
            r"(?:Failed|Unable) to find (?:an |the )?NVIDIA driver",
            r"couldn't find libnvidia-ml\.so library",
            r"Found no NVIDIA driver on your system",
            r"The NVIDIA Driver was not detected",
        ),
        (
            GPU_NOT_GIVEN,
            DRIVER_NOT_INSTALLED,
            Cause(
                "driver-files-unseen",
                "The driver is installed, but `nvidia-smi` and its libraries are not in the search path, as in WSL, "
                "on a Jetson, or in a container without the capability `utility`.",
                "In WSL, add /usr/lib/wsl/lib to `PATH`. In a container, set "
                "`NVIDIA_DRIVER_CAPABILITIES=compute,utility`. On the host, add the libraries' folder to "
                "/etc/ld.so.conf.d and run `sudo ldconfig`.",
                tell="`ls /dev/nvidia* /dev/dxg /usr/lib/wsl/lib` lists files",
            ),
        ),
        more="`./launch doctor --only driver,gpu`",
        level=BROAD,
    ),
    Rule(
        "persistenced",
        "nvidia-persistenced failed to initialize. Check syslog for more details.",
        (
            r"nvidia-persistenced (?:failed to initialize|\[?\d*\]?: Failed)",
            r"Failed to start NVIDIA Persistence Daemon|nvidia-persistenced\.service: (?:Failed|Control process)",
        ),
        (
            MODULE_MISSING,
            Cause(
                "persistenced-runs",
                "Another nvidia-persistenced is running, or its folder /var/run/nvidia-persistenced belongs to "
                "another user.",
                "Run `sudo systemctl stop nvidia-persistenced && sudo rm -rf /var/run/nvidia-persistenced && sudo "
                "systemctl start nvidia-persistenced`.",
                tell="`nvidia-smi` works",
            ),
        ),
        more="`sudo journalctl -u nvidia-persistenced`",
        level=GENERAL,
    ),
    Rule(
        "gpu-program-fault",
        "NVRM: Xid (PCI:0000:01:00): 31, pid=4242, MMU Fault",
        (XID + r"(?:13|31|43|45|68|69|109)\b",),
        (
            Cause(
                "gpu-program-fault",
                "A program on the GPU made an error, usually an access to memory that is not its own. Other "
                "programs are not affected.",
                "Run it once with `CUDA_LAUNCH_BLOCKING=1`, which names the line.",
                tell="it fails at the same place on another GPU too",
            ),
            Cause(
                "gpu-program-ended",
                "The program was ended from outside, or an earlier error on the GPU ended it.",
                "Look at what comes before this line: `sudo dmesg | grep -i -e xid -e 'out of memory'`.",
                tell="another Xid or `Killed` comes before it",
                given=text_has(r"Killed process|\bSIGKILL\b|Xid[^\n]*: (?:43|45)\b"),
            ),
            Cause(
                "driver-or-card-fault",
                "The driver or the card is defective.",
                "Install the newest driver. If other programs fail as well, have the card checked.",
                tell="it happens with different programs",
            ),
        ),
        more=KERNEL_LOG,
        level=GENERAL,
    ),
    Rule(
        "gpu-reported",
        "NVRM: Xid (PCI:0000:01:00): 62, pid=1234",
        (r"\bXid\b ?(?:\([^)\n]*\))?[:,]?\s*(?!(?:13|31|43|45|68|69|109)\b)(\d{1,3})\b",),
        (
            Cause(
                "gpu-reported",
                "The driver reported a GPU fault with the Xid number {0}.",
                "Look the number up in NVIDIA's list of Xid errors (https://docs.nvidia.com/deploy/xid-errors/). "
                "If it happens again, install a newer driver, then have the card checked.",
            ),
        ),
        more=KERNEL_LOG,
        level=GENERAL,
    ),
    Rule(
        "wsl-links",
        "/sbin/ldconfig.real: /usr/lib/wsl/lib/libcuda.so.1 is not a symbolic link",
        (r"/usr/lib/wsl/lib/\S+ is not a symbolic link",),
        (
            Cause(
                "wsl-links",
                "This is only a warning: in WSL, the driver's library is a file of Windows.",
                "You do not have to do anything.",
            ),
        ),
        more=DRIVER,
        level=NOTE,
    ),
)
