"""The NVIDIA driver on the machine, and the card itself."""

from __future__ import annotations

from gpukit.errors.rule import BROAD, DRIVER, GENERAL, HOST, KERNEL_LOG, NOTE, Rule
from gpukit.findings.finding import Cause

XID = r"\bXid\b[^\n]{0,60}[:,]\s*"

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
        (
            Cause(
                "driver-updated",
                "The NVIDIA driver was updated, and the old one is still loaded; or only a container says it: then it "
                "was made before the update, or its image holds driver files of its own.",
                "Restart this machine; where only a container says it, recreate it from an image without libnvidia-* files.",
            ),
        ),
        look=DRIVER,
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
            Cause(
                "gpu-lost",
                "The GPU stopped answering on the bus: power, heat, a loose card, its firmware or a fault of it.",
                "Switch the machine off and on again; where it comes back, look at power supply and cooling.",
            ),
        ),
        look=KERNEL_LOG,
    ),
    Rule(
        "cuda-version-unseen",
        "NVIDIA-SMI 550.54.14   Driver Version: 550.54.14   CUDA Version: ERR!",
        (r"CUDA Version: ERR!",),
        (
            Cause(
                "cuda-version-unseen",
                "nvidia-smi reaches the driver and does not find the driver's part for CUDA (libcuda), or not the "
                "driver's own.",
                "In a container: NVIDIA_DRIVER_CAPABILITIES with compute; else the driver's package with libcuda "
                "(libnvidia-compute, libcuda1).",
            ),
        ),
        look="./launch doctor --only driver,gpu",
    ),
    # about: A GPU of this machine does not answer its driver as it should.
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
            Cause(
                "gpu-state-1",
                "It fell off the bus: power, heat, a loose card or a fault of it.",
                "sudo dmesg | grep -i -e nvrm -e xid",
                tell="Xid 79 or `fallen off the bus` stands there: switch the machine off and on",
            ),
            Cause(
                "gpu-state-2",
                "An error before has stopped it.",
                "sudo dmesg | grep -i -e nvrm -e xid",
                tell="another Xid stands there: restart the machine",
            ),
            Cause(
                "gpu-state-3",
                "The driver does not serve this card, or does not know one of its sensors.",
                "sudo dmesg | grep -i -e nvrm -e xid",
                tell="it was so from the first start on, and no Xid is there: another driver",
            ),
        ),
        look=KERNEL_LOG,
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
                "The GPU's memory has a fault that it cannot correct.",
                "Restart the machine, so that the bad rows are replaced; where it comes back, have the card exchanged.",
            ),
        ),
        look="nvidia-smi -q -d ECC,ROW_REMAPPER",
    ),
    Rule(
        "firmware-file",
        "nvidia 0000:01:00.0: Direct firmware load for nvidia/535.54.03/gsp_ga10x.bin failed with error -2",
        (
            r"Direct firmware load for nvidia/\S+ failed with error",
            r"firmware: failed to load nvidia/\S+",
        ),
        (
            Cause(
                "firmware-file",
                "The driver's firmware file is not on this machine, or is of another release than its kernel module.",
                "Install the driver again, all its packages (also nvidia-firmware) of one release; then restart.",
            ),
        ),
        look=DRIVER,
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
                "The GPU's own processor (GSP) did not start, or stopped answering its driver.",
                "Switch the machine off and on, and install the newest driver of its branch.",
            ),
        ),
        look=KERNEL_LOG,
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
                "The connection between GPUs (NVLink) had an error that it cannot correct.",
                "Restart the machine; where it comes back, have bridge, switch or card looked at.",
            ),
        ),
        look="nvidia-smi nvlink --errorcounters",
    ),
    Rule(
        "inforom",
        "WARNING: infoROM is corrupted at gpu 0000:65:00.0",
        (r"infoROM is corrupted",),
        (
            Cause(
                "inforom",
                "The card's own memory for its settings is damaged: a fault of the card, which goes on working for now.",
                "Have the card looked at; training on it can go on.",
            ),
        ),
        look=KERNEL_LOG,
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
                "The GPU is too hot, and slows down or switches itself off.",
                "Look at its fans, and at the air that reaches it.",
            ),
        ),
        look="nvidia-smi -q -d TEMPERATURE,PERFORMANCE",
    ),
    Rule(
        "gpu-power-brake",
        "HW Power Brake Slowdown : Active",
        (r"HW Power Brake(?: Slowdown)?\s*: *Active", r"power cable[^\n]{0,40}not (?:connected|plugged)"),
        (
            Cause(
                "gpu-power-brake",
                "The GPU is slowed down from outside: too little power reaches it.",
                "Look at its power cables and at the power supply.",
            ),
        ),
        look="nvidia-smi -q -d POWER,PERFORMANCE",
    ),
    Rule(
        "open-modules-needed",
        "NVRM: installed in this system requires use of the NVIDIA open kernel modules",
        (
            r"requires use of the NVIDIA open kernel modules",
            r"requires? the (?:NVIDIA )?open (?:GPU )?kernel modules",
            r"requires the open GPU kernel",
        ),
        (
            Cause(
                "open-modules-needed",
                "This card works with the driver's open kernel modules only, and the other ones are installed.",
                "Install the driver's open variant, such as nvidia-driver-580-open, and restart.",
            ),
        ),
        look=DRIVER,
    ),
    Rule(
        "card-too-old-for-driver",
        "NVRM: The NVIDIA GPU is supported through the NVIDIA 470.xx Legacy drivers",
        (
            r"not supported by open nvidia\.ko",
            r"supported through the NVIDIA \S+ Legacy drivers",
            r"following NVIDIA GPUs are supported through NVIDIA",
        ),
        (
            Cause(
                "card-too-old-for-driver",
                "The card is too old for the driver, or for its open kernel modules, that is installed.",
                "Install the driver branch that lists this card, in its proprietary variant.",
            ),
        ),
        look=DRIVER,
    ),
    # about: The driver that is installed does not serve the card, or does not find it.
    Rule(
        "card-not-in-driver",
        "NVRM: The NVIDIA GPU 0000:01:00.0 installed in this system is not supported by the NVIDIA 550.120 "
        "driver release.",
        (
            r"is not supported by (?:the )?NVIDIA(?:'s)? [\d.]+ (?:Linux )?driver release",
            r"GPU installed in this system is\s+not supported by the",
            r"could not insert (?:module )?'?\"?nvidia\w*'?\"?:? No such device",
        ),
        (
            Cause(
                "card-not-in-driver-1",
                "The driver is older than the card.",
                "lspci -nn | grep -i nvidia, and the list of cards in the driver's own page",
                tell="a card of the last two years: the newest driver, in its open variant",
            ),
            Cause(
                "card-not-in-driver-2",
                "The card is older than the driver, or than its open kernel modules.",
                "lspci -nn | grep -i nvidia, and the list of cards in the driver's own page",
                tell="a card before Turing: the proprietary variant; before Maxwell: the 470 branch",
            ),
            Cause(
                "card-not-in-driver-3",
                "No card reaches this system.",
                "lspci -nn | grep -i nvidia, and the list of cards in the driver's own page",
                tell="lspci does not show it: seat, firmware, or it was not passed into the virtual machine",
            ),
        ),
        look=DRIVER,
        level=BROAD,
    ),
    # about: The driver finds the card and cannot start it.
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
            Cause(
                "driver-cannot-start-card-1",
                "The driver, or its kind of kernel modules (open or not), does not serve the card.",
                "Switch the machine off and on, and install the newest driver of the kind (open or not) that the card needs.",
                tell="`./launch doctor --only card,driver`; a newer driver starts it",
            ),
            Cause(
                "driver-cannot-start-card-2",
                "The firmware, or a virtual machine around it, gives it too little address space.",
                "Switch the machine off and on, and install the newest driver of the kind (open or not) that the card needs.",
                tell="BAR or I/O region stands in dmesg: Above 4G Decoding",
            ),
            Cause(
                "driver-cannot-start-card-3",
                "The card is stuck or failing.",
                "Switch the machine off and on, and install the newest driver of the kind (open or not) that the card needs.",
                tell="it worked before: after a while without power it does again",
            ),
        ),
        look=KERNEL_LOG,
        level=BROAD,
    ),
    Rule(
        "other-kernel-driver",
        "ERROR: The Nouveau kernel driver is currently in use by your system",
        (
            r"Nouveau kernel driver is currently in use",
            r"NVRM: The NVIDIA probe routine was not called for \d+ device",
            r"already bound to nouveau",
            r"driver such as:? nouveau, rivafb",
            r"Kernel driver in use: nouveau",
        ),
        (
            Cause(
                "other-kernel-driver",
                "Another kernel driver (mostly nouveau, or vfio for a virtual machine) holds the card.",
                "Keep nouveau from being loaded (blacklist nouveau, update-initramfs -u), then restart; lspci -k "
                "names who holds it.",
            ),
        ),
        look=DRIVER,
    ),
    Rule(
        "no-card",
        "NVRM: No NVIDIA GPU found.",
        (r"NVRM: No NVIDIA (?:graphics adapter|GPU|devices?)[^\n]{0,20}(?:found|probed)",),
        (
            Cause(
                "no-card",
                "The driver finds no NVIDIA GPU here that it can take: none is there, it is switched off, it was not "
                "passed into the virtual machine, or this driver does not serve it.",
                "lspci -nn | grep -i nvidia shows whether the machine sees it at all.",
            ),
        ),
        look=DRIVER,
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
                "nvml-permission",
                "This user may not open the driver's device files; on a machine with SELinux it may be that which refuses.",
                "ls -l /dev/nvidia* shows to whom they belong; with SELinux: sudo setsebool -P container_use_devices=true",
            ),
        ),
        look=DRIVER,
    ),
    Rule(
        "selinux",
        'avc:  denied  { read write } for  comm="nvidia-smi" name="nvidiactl"',
        (
            r"avc:\s+denied",
            r"SELinux is preventing",
        ),
        (
            Cause(
                "selinux",
                "SELinux refused a program or a container something.",
                "For GPUs: sudo setsebool -P container_use_devices=true; for folders: mount them with :z",
            ),
        ),
        look="sudo ausearch -m avc -ts recent",
    ),
    # about: The driver's library is there and does not get at the driver.
    Rule(
        "nvml-other",
        "Failed to initialize NVML: N/A",
        (
            r"Failed to initialize NVML: (?:N/A|Not Found|Not Supported|Timeout|Uninitialized)",
            r"nvml error: (?:not found|timeout|uninitialized)",
        ),
        (
            Cause(
                "nvml-other-1",
                "In WSL the driver of Windows is missing, old or is not NVIDIA's.",
                "nvidia-smi on the machine itself",
                tell="nvidia-smi.exe in Windows",
            ),
            Cause(
                "nvml-other-2",
                "The library and the driver are of different kinds, as after a half update.",
                "nvidia-smi on the machine itself",
                tell="cat /proc/driver/nvidia/version against the library's number: restart the machine",
            ),
        ),
        look=DRIVER,
        level=BROAD,
    ),
    # about: NVML, by which the driver is asked, may not open the GPU's device files, or gets no sense from the driver.
    Rule(
        "lost-after-reload",
        "Failed to initialize NVML: Unknown Error",
        (
            r"Failed to initialize NVML: Unknown Error",
            r"NVMLError_Unknown\b",
            r"NVML: Unknown Error",
        ),
        (
            Cause(
                "lost-after-reload-1",
                "In a container that worked before: `systemctl daemon-reload` on the machine took its device files away.",
                "In a container: ./launch stop, then start it again. On the machine: restart it.",
                tell="nvidia-smi works on the machine: stop the container and start it again",
            ),
            Cause(
                "lost-after-reload-2",
                "In a container from its start: no-cgroups = true, LXC, or an engine without root.",
                "In a container: ./launch stop, then start it again. On the machine: restart it.",
                tell="it fails in a new container too, and works with --privileged",
            ),
            Cause(
                "lost-after-reload-3",
                "On the machine itself: the driver or the GPU is stuck.",
                "In a container: ./launch stop, then start it again. On the machine: restart it.",
                tell="nvidia-smi fails there; sudo dmesg | grep -i nvrm: restart the machine",
            ),
        ),
        look="./launch doctor --only reload",
        level=BROAD,
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
                "Windows cannot start WSL 2: its virtual machines are switched off, or its kernel is old.",
                "Switch virtualization on in the firmware, then in Windows: wsl --install --no-distribution; wsl --update",
            ),
        ),
        look=HOST,
    ),
    # about: WSL itself does not start, or has ended.
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
                "wsl-does-not-start-1",
                "Its virtual disk is missing, in use or damaged.",
                "In Windows: wsl --shutdown, then wsl --status",
                tell="MountVhd or VHD stands in the code; wsl --list shows it",
            ),
            Cause(
                "wsl-does-not-start-2",
                "WSL or its kernel is old, or virtualization is off.",
                "In Windows: wsl --shutdown, then wsl --status",
                tell="wsl --update; HCS or 0x8037 stands in the code",
            ),
            Cause(
                "wsl-does-not-start-3",
                "Memory ran out, or Windows ended it.",
                "In Windows: wsl --shutdown, then wsl --status",
                tell="the event log; memory= in .wslconfig",
            ),
        ),
        look=HOST,
        level=BROAD,
    ),
    Rule(
        "wsl-blocked",
        "Failed to initialize NVML: GPU access blocked by the operating system",
        (
            r"GPU access blocked by the operating system",
            r"dxcore initialization failed",
            r"no adapters were found",
            r"/dev/dxg[^\n]{0,40}(?:No such file|not found|failed)",
        ),
        (
            Cause(
                "wsl-blocked",
                "Windows gives this WSL no GPU: it is WSL 1, or the driver of Windows is missing, old, or set to TCC.",
                "In Windows: wsl --update, and install NVIDIA's current driver.",
            ),
        ),
        look=DRIVER,
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
            Cause(
                "module-unsigned",
                "Secure Boot refuses the driver's kernel module, which is not signed with a key that this machine knows.",
                "sudo mokutil --import /var/lib/shim-signed/mok/MOK.der, then reboot and enroll the key.",
            ),
        ),
        look=DRIVER,
    ),
    # about: The driver's kernel module was built and does not load.
    Rule(
        "module-not-loadable",
        "ERROR: Unable to load the kernel module 'nvidia.ko'.",
        (r"Unable to load the (?:NVIDIA )?kernel module", r"Kernel module load error"),
        (
            Cause(
                "module-not-loadable-1",
                "Secure Boot refuses it.",
                "sudo dmesg | tail",
                tell="mokutil --sb-state says enabled",
            ),
            Cause(
                "module-not-loadable-2",
                "Another driver (nouveau) holds the card.",
                "sudo dmesg | tail",
                tell="lsmod shows nouveau",
            ),
            Cause(
                "module-not-loadable-3",
                "It does not serve this card, or was built for another kernel or by another compiler.",
                "sudo dmesg | tail",
                tell="sudo dmesg | tail says so",
            ),
        ),
        look=DRIVER,
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
                "dkms holds remains of a driver that was taken away, and stumbles over them.",
                "sudo rm -r /var/lib/dkms/nvidia/VERSION of the one that is gone; then sudo dkms autoinstall",
            ),
        ),
        look=DRIVER,
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
        (
            Cause(
                "kernel-compiler",
                "The driver's module is compiled with another gcc than this machine's kernel was.",
                "Install the gcc that /proc/version names (such as gcc-12), make it the default, then: sudo dkms autoinstall",
            ),
        ),
        look=DRIVER,
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
        (
            Cause(
                "module-not-built",
                "There is no kernel module of the driver for the kernel that runs: the driver is not installed, or "
                "its module was not built for this kernel, as after an update.",
                "Install the headers of this kernel, then: sudo dkms autoinstall, and reboot; where no driver is "
                "installed, install it.",
            ),
        ),
        look=DRIVER,
    ),
    # about: The driver's kernel module could not be built for this kernel, or what was built does not fit it.
    Rule(
        "module-build-failed",
        "ERROR: The nvidia kernel module was not created.",
        (
            r"\bdkms\b[^\n]{0,160}(?:not supported|failed|error:)",
            r"nvidia[^\n]{0,80}(?:bad exit status|build failed)",
            r"Bad return status for module build on kernel|Error! Bad return status[^\n]{0,80}nvidia",
            r"nvidia[\w-]*: (?:version magic|disagrees about version of symbol)",
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
            r"could not insert (?:module )?\S{0,2}nvidia\S*:? (?:Exec format error|Invalid module format|"
            r"Unknown symbol|Invalid argument)",
        ),
        (
            Cause(
                "module-build-failed-1",
                "The kernel's headers, or a compiler, are not installed or are another kernel's.",
                "Install gcc, make and the headers of this kernel, then: sudo dkms autoinstall, and reboot.",
                tell="/var/lib/dkms/nvidia/*/build/make.log, or the installer's log, says not found",
            ),
            Cause(
                "module-build-failed-2",
                "This driver is older than the kernel, as after a system's upgrade.",
                "Install gcc, make and the headers of this kernel, then: sudo dkms autoinstall, and reboot.",
                tell="the log names C code that does not compile, or GPL-only symbols: a newer driver",
            ),
            Cause(
                "module-build-failed-3",
                "The kernel was made by another gcc, or was exchanged and not restarted.",
                "Install gcc, make and the headers of this kernel, then: sudo dkms autoinstall, and reboot.",
                tell="/proc/version names both: that gcc, or a restart",
            ),
        ),
        look=DRIVER,
        level=BROAD,
    ),
    Rule(
        "card-in-use",
        "NVRM: Attempting to remove device 0000:07:00.0 with non-zero usage count!",
        (
            r"Attempting to remove device \S+ with non-zero usage count",
            r"rmmod: ERROR: Module nvidia\S* is in use",
            r"modprobe: FATAL: Module nvidia\S* is in use",
        ),
        (
            Cause(
                "card-in-use",
                "The driver is to let go of the card or to be unloaded, and something still uses it: a display, "
                "nvidia-persistenced, a container.",
                "sudo fuser -v /dev/nvidia* shows who does; end that, also nvidia-persistenced, then again.",
            ),
        ),
        look=DRIVER,
    ),
    Rule(
        "installer-driver-in-use",
        "An NVIDIA kernel module 'nvidia-drm' appears to already be loaded in your kernel",
        (
            r"An NVIDIA kernel module '[\w-]+' appears to already be loaded",
            r"You appear to be running an X server",
        ),
        (
            Cause(
                "installer-driver-in-use",
                "The driver cannot be exchanged while programs, mostly the display, still use the old one.",
                "sudo systemctl isolate multi-user.target, then install; or take the distribution's packages, and restart.",
            ),
        ),
        look=DRIVER,
    ),
    Rule(
        "wsl-no-driver",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver (in WSL)",
        (
            r"(?:\bWSL ?[12]?\b|microsoft-standard|/mnt/c/|Windows Subsystem)[\s\S]{0,2000}couldn'?t communicate "
            r"with the NVIDIA driver",
            r"couldn'?t communicate with the NVIDIA driver[\s\S]{0,2000}(?:\bWSL ?[12]?\b|microsoft-standard|"
            r"Windows Subsystem)",
        ),
        (
            Cause(
                "wsl-no-driver",
                "In WSL the driver is that of Windows: it is WSL 1, Windows has none for this card or an old one, or a "
                "driver for Linux was installed inside WSL.",
                "Take a driver for Linux out of WSL again; in Windows: NVIDIA's current driver, then wsl --update and "
                "wsl --shutdown",
            ),
        ),
        look=DRIVER,
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
        ),
        (
            Cause(
                "driver-not-loaded",
                "The NVIDIA driver's kernel module is not reached: it is not installed, not built for this kernel, "
                "refused by Secure Boot, not yet loaded when a container started at boot, or this machine has no "
                "NVIDIA GPU that it serves.",
                "Make `nvidia-smi` work on the machine itself first; lspci | grep -i nvidia shows whether it has a GPU.",
            ),
        ),
        look=DRIVER,
    ),
    Rule(
        "no-nvswitch",
        "request to query NVSwitch device information from NVSwitch driver failed with error:WARNING Nothing to "
        "do [NV_WARN_NOTHING_TO_DO]",
        (
            r"NV_WARN_NOTHING_TO_DO",
            r"query NVSwitch device information[^\n]{0,60}(?:Nothing to do|failed)",
        ),
        (
            Cause(
                "no-nvswitch",
                "This machine has no NVSwitch, so that the fabric manager has nothing to do and ends: its GPUs need none.",
                "sudo systemctl disable --now nvidia-fabricmanager; GPUs joined by bridges work without it.",
            ),
        ),
        look=DRIVER,
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
            Cause(
                "fabric-manager",
                "The GPUs of this machine wait for what joins them: with NVSwitch its fabric manager does not run, "
                "or is of another version than the driver; with confidential computing they were not set ready.",
                "sudo systemctl enable --now nvidia-fabricmanager, of the driver's very version; with confidential "
                "computing: nvidia-smi conf-compute -srs 1",
            ),
        ),
        look="./launch doctor --only fabric",
    ),
    Rule(
        "reset-in-use",
        "The following GPUs could not be reset: GPU 00000000:1A:00.0: In use by another client",
        (
            r"could not be reset:[\s\S]{0,200}?In use by another client",
            r"GPU \S+ is currently in use by another process",
        ),
        (
            Cause(
                "reset-in-use",
                "The GPU cannot be reset while something uses it, for which persistence mode is enough.",
                "sudo fuser -v /dev/nvidia* shows who does; sudo nvidia-smi -pm 0, then again; or restart the machine.",
            ),
        ),
        look="nvidia-smi",
    ),
    Rule(
        "mig-in-use",
        "Unable to enable MIG Mode for GPU 00000000:07:00.0: In use by another client",
        (
            r"\bMIG\b[\s\S]{0,200}In use by another client",
            r"currently being used by one or more other processes \(e\.g\. CUDA application",
            r"MIG mode is in pending (?:enable|disable) state",
        ),
        (
            Cause(
                "mig-in-use",
                "MIG cannot be changed while something uses the GPU.",
                "End what uses it (nvidia-smi, also monitoring and nvidia-persistenced), then again; or restart the machine.",
            ),
        ),
        look="./launch doctor --only mig",
    ),
    Rule(
        "mig-no-room",
        "Unable to create a GPU instance on GPU 0 using profile 9: Insufficient Resources",
        (r"Unable to create a (?:GPU|compute) instance", r"\bMIG\b[^\n]{0,120}Insufficient Resources"),
        (
            Cause(
                "mig-no-room",
                "The slices that are there leave no room for this one.",
                "sudo nvidia-smi mig -dci && sudo nvidia-smi mig -dgi takes all slices away, so that new ones fit.",
            ),
        ),
        look="nvidia-smi mig -lgi",
    ),
    Rule(
        "mig-empty",
        "No MIG-enabled devices found",
        (r"No MIG(?:[- ]enabled)? (?:devices|instances) (?:were )?found", r"No GPU instances found"),
        (
            Cause(
                "mig-empty",
                "MIG is off on every GPU, or on without a slice.",
                "sudo nvidia-smi -mig 1, then sudo nvidia-smi mig -cgi with the profiles wanted, and -C",
            ),
        ),
        look="./launch doctor --only mig",
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
                "This virtual GPU has no license, and slows down or refuses CUDA after a while.",
                "Set the license in the machine's gridd.conf or client token, then: sudo systemctl restart nvidia-gridd",
            ),
        ),
        look="nvidia-smi -q | grep -i license",
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
                "nvml-function",
                "The driver is older than what asks it, and has no such function yet.",
                "Install a newer driver, or take an older release of what asks.",
            ),
        ),
        look=DRIVER,
    ),
    Rule(
        "nvml-no-value",
        "pynvml.NVMLError_NotSupported: Not Supported",
        (
            r"NVMLError_NotSupported",
            r"(?:float|int)\b[^\n]{0,40}: \'\[?N/A\]?\'",
            r"NVML: Not Supported",
            r"nvml[^\n]{0,60}: Not Supported",
            r"nvmlDeviceGet\w+[^\n]{0,40}Not Supported",
        ),
        (
            Cause(
                "nvml-no-value",
                "NVML does not tell that value on this GPU, as on unified memory (DGX Spark, Jetson), in WSL or of a slice "
                "of MIG.",
                "Take the newest release of what asks for it; training itself does not need it.",
            ),
        ),
        look="nvidia-smi -q",
    ),
    Rule(
        "profiling-denied",
        "ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters",
        (r"ERR_NVGPUCTRPERM", r"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", r"access NVIDIA GPU Performance Counters"),
        (
            Cause(
                "profiling-denied",
                "The driver lets only root read the GPU's performance counters.",
                "options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d/nvidia.conf, then restart.",
            ),
        ),
        look=DRIVER,
    ),
    Rule(
        "needs-root",
        "The current user does not have permission to change clocks for GPU 00000000:01:00.0.",
        (r"current user does not have permission to change", r"nvidia-smi[^\n]{0,60}Insufficient Permissions"),
        (
            Cause(
                "needs-root",
                "Settings of the GPU can be changed by root on the machine only.",
                "The same with sudo, on the machine and not in the container.",
            ),
        ),
        look="nvidia-smi -q",
    ),
    # about: The driver runs, and finds no GPU that it can start.
    Rule(
        "no-devices",
        "No devices were found",
        (r"No devices were found",),
        (
            Cause(
                "no-devices-1",
                "In a container: the GPU's device files were not there when it began.",
                "Run `nvidia-smi` on the machine, and start the container again; where it finds none there: sudo dmesg | "
                "grep -i nvrm",
                tell="nvidia-smi on the machine finds the GPU: start the container again",
            ),
            Cause(
                "no-devices-2",
                "The driver does not serve the card, or this card needs its open kernel modules.",
                "Run `nvidia-smi` on the machine, and start the container again; where it finds none there: sudo dmesg | "
                "grep -i nvrm",
                tell="sudo dmesg | grep -i nvrm names it",
            ),
            Cause(
                "no-devices-3",
                "The firmware, or the virtual machine around it, does not give the card what it needs, or the card failed or is badly seated.",
                "Run `nvidia-smi` on the machine, and start the container again; where it finds none there: sudo dmesg | "
                "grep -i nvrm",
                tell="lspci shows it or not; RmInitAdapter stands in dmesg",
            ),
        ),
        look=DRIVER,
        level=BROAD,
    ),
    # about: No NVIDIA driver can be seen here.
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
            Cause(
                "driver-not-installed-1",
                "It runs in a container, or a step of a build, that was given no GPU.",
                "In a container: start it with ./launch, which asks for the GPU. On the machine: install the driver.",
                tell="nvidia-smi works on the machine: start it with ./launch",
            ),
            Cause(
                "driver-not-installed-2",
                "The machine has no driver.",
                "In a container: start it with ./launch, which asks for the GPU. On the machine: install the driver.",
                tell="nvidia-smi is not found on the machine either, and lspci shows an NVIDIA card",
            ),
            Cause(
                "driver-not-installed-3",
                "The driver is there, and its tools or libraries are not where they are looked for: WSL, a Jetson, a container without the capability utility.",
                "In a container: start it with ./launch, which asks for the GPU. On the machine: install the driver.",
                tell="ls /dev/nvidia* /usr/lib/wsl/lib; echo $NVIDIA_DRIVER_CAPABILITIES",
            ),
        ),
        look="./launch doctor --only driver,gpu",
        level=BROAD,
    ),
    # about: The driver's daemon nvidia-persistenced does not start.
    Rule(
        "persistenced",
        "nvidia-persistenced failed to initialize. Check syslog for more details.",
        (
            r"nvidia-persistenced (?:failed to initialize|\[?\d*\]?: Failed)",
            r"Failed to start NVIDIA Persistence Daemon|nvidia-persistenced\.service: (?:Failed|Control process)",
        ),
        (
            Cause(
                "persistenced-1",
                "The driver's module is not loaded.",
                "nvidia-smi; sudo journalctl -u nvidia-persistenced",
                tell="nvidia-smi fails too",
            ),
            Cause(
                "persistenced-2",
                "Another one runs already, or its folder /var/run/nvidia-persistenced is not its own.",
                "nvidia-smi; sudo journalctl -u nvidia-persistenced",
                tell="nvidia-smi works",
            ),
        ),
        look=DRIVER,
        level=GENERAL,
    ),
    # about: The driver ended the work of a program on the GPU.
    Rule(
        "gpu-program-fault",
        "NVRM: Xid (PCI:0000:01:00): 31, pid=4242, MMU Fault",
        (XID + r"(?:13|31|43|45|68|69|109)\b",),
        (
            Cause(
                "gpu-program-fault-1",
                "The program did what it may not: most often memory that is not its own.",
                "Run it once with CUDA_LAUNCH_BLOCKING=1, which names the line; other programs are not touched.",
                tell="it comes back at the same line, on another card too",
            ),
            Cause(
                "gpu-program-fault-2",
                "The program was ended from outside, or another error came before.",
                "Run it once with CUDA_LAUNCH_BLOCKING=1, which names the line; other programs are not touched.",
                tell="another Xid, or `Killed`, stands before it",
            ),
            Cause(
                "gpu-program-fault-3",
                "The driver or the card is at fault.",
                "Run it once with CUDA_LAUNCH_BLOCKING=1, which names the line; other programs are not touched.",
                tell="it comes with other programs too: another driver, then the card",
            ),
        ),
        look=KERNEL_LOG,
        level=GENERAL,
    ),
    Rule(
        "gpu-reported",
        "NVRM: Xid (PCI:0000:01:00): 62, pid=1234",
        (r"\bXid\b ?(?:\([^)\n]*\))?[:,]?\s*(?!(?:13|31|43|45|68|69|109)\b)(\d{1,3})\b",),
        (
            Cause(
                "gpu-reported",
                "The driver reported a fault of the GPU under the number {0}.",
                "Look that number up in NVIDIA's list of Xid errors; where it comes back: a newer driver, then the card.",
            ),
        ),
        look=KERNEL_LOG,
        level=GENERAL,
    ),
    Rule(
        "wsl-links",
        "/sbin/ldconfig.real: /usr/lib/wsl/lib/libcuda.so.1 is not a symbolic link",
        (r"/usr/lib/wsl/lib/\S+ is not a symbolic link",),
        (
            Cause(
                "wsl-links",
                "A warning and no error: in WSL the driver's library is a file of Windows.",
                "Nothing is to be done.",
            ),
        ),
        look=DRIVER,
        level=NOTE,
    ),
)
