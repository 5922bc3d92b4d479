"""Causes that several rules share."""

from __future__ import annotations

from dataclasses import replace

from gpukit.errors.evidence import (
    CONTAINER,
    CPU_TORCH,
    CUDA_ABOVE_DRIVER,
    DESKTOP,
    JETSON,
    NO_CARD,
    NO_DRIVER,
    NO_TOOLKIT,
    OTHERS_HOLD,
    ROOTLESS,
    SECURE_BOOT,
    SNAP,
    WORKED_BEFORE,
    WSL,
    capability_from,
    only,
    text_has,
    unless_text_has,
)
from gpukit.findings.finding import Cause

GPU_NOT_GIVEN = Cause(
    "gpu-not-given",
    "The container was started without a GPU.",
    "Start it with `./launch`, or by hand with `docker run --gpus all ...`. A build step never has a GPU.",
    tell="`nvidia-smi` works on the host and fails in the container",
    given=CONTAINER & ~only(NO_CARD),
    standalone="Start it with `docker run --gpus all ...`. A build step never has a GPU.",
)
NO_GPU_HERE = Cause(
    "no-gpu-here",
    "This machine has no NVIDIA GPU, or a virtual machine or cloud instance was created without one.",
    "Use a machine with an NVIDIA GPU, or run without one: `./launch --cpu run -- ...`",
    tell="`lspci | grep -i nvidia` on the host prints nothing",
    given=only(NO_CARD),
    standalone="Use a machine with an NVIDIA GPU, or run the program on the CPU.",
)
DRIVER_NOT_INSTALLED = Cause(
    "driver-not-installed",
    "The NVIDIA driver is not installed on the host.",
    "Install the NVIDIA driver on the host and reboot: `./launch setup` shows the commands. In WSL, install it in "
    "Windows only.",
    tell="`nvidia-smi` is not found on the host",
    given=NO_DRIVER,
)
# An engine that cannot give a container the GPU reports what it misses last: look for the GPU and its driver first.
NO_GPU_OR_DRIVER = (NO_GPU_HERE, replace(DRIVER_NOT_INSTALLED, given=only(NO_DRIVER)))
DRIVER_UPDATED = Cause(
    "driver-updated",
    "The NVIDIA driver was updated, and the kernel still runs the old one.",
    "Restart the machine.",
    tell="`nvidia-smi` on the host reports a version mismatch",
)
DRIVER_TOO_OLD = Cause(
    "driver-too-old",
    "The NVIDIA driver is too old for the CUDA version that this program or image uses.",
    "Install a newer NVIDIA driver: 580 or newer for CUDA 13, 525 or newer for CUDA 12. If you cannot, use a "
    "build for an older CUDA.",
    tell="`nvidia-smi` on the host shows a lower CUDA version than `torch.version.cuda` or the image's",
    given=CUDA_ABOVE_DRIVER,
)
CUDA_COMPAT = Cause(
    "cuda-compat",
    "The image's cuda-compat libraries are found before the driver's own and do not match the driver.",
    "Remove `/usr/local/cuda/compat` from `LD_LIBRARY_PATH` and from /etc/ld.so.conf.d in the container, then run "
    "`ldconfig`.",
    tell="it works with `LD_LIBRARY_PATH` unset, and `ls /usr/local/cuda/compat` lists files",
)
DEVICE_FILES = Cause(
    "device-files-missing",
    "The GPU's device files are missing in the container, usually /dev/nvidia-uvm.",
    "Run `sudo nvidia-modprobe -u -c=0` on the host, then start the container again.",
    tell="`ls /dev/nvidia*` in the container does not list nvidia-uvm",
    given=unless_text_has(r"\bfork"),
)
UVM_STUCK = Cause(
    "uvm-stuck",
    "The driver's module nvidia_uvm is stuck, for example after suspend.",
    "Run `sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm` on the host, or restart the machine.",
    tell="CUDA fails on the host too, although `nvidia-smi` works",
    given=WORKED_BEFORE,
)
GPU_HIDDEN = Cause(
    "gpu-hidden",
    "`CUDA_VISIBLE_DEVICES` hides the GPU: it is empty, or names a GPU that does not exist.",
    "Unset `CUDA_VISIBLE_DEVICES`, or set it to an index or UUID that `nvidia-smi -L` lists, before the program "
    "starts.",
    tell="`echo $CUDA_VISIBLE_DEVICES` prints a GPU that `nvidia-smi -L` does not list",
    given=text_has(r"CUDA_VISIBLE_DEVICES['\"]?\]? *[=:] *['\"]?-?\w*"),
)
MIG_EMPTY = Cause(
    "mig-empty",
    "MIG is enabled on the GPU, but no slice exists or the process was given none.",
    "Create a slice with `sudo nvidia-smi mig -cgi <profile> -C`, and select it with `GPUS=MIG-...` as `nvidia-smi "
    "-L` lists it.",
    tell="`nvidia-smi -L` lists the GPU without MIG devices below it",
    given=text_has(r"\bMIG\b"),
)
CPU_BUILD = Cause(
    "cpu-torch",
    "The installed PyTorch is a build without CUDA.",
    "Recreate the image with `./launch build`. In an environment of your own, reinstall torch from PyTorch's index "
    "for CUDA.",
    tell="`python -c 'import torch; print(torch.version.cuda)'` prints None",
    given=CPU_TORCH,
    standalone="Reinstall torch from PyTorch's index for CUDA: `./launch doctor` prints the command.",
)
GPU_FULL = Cause(
    "gpu-memory-full",
    "The GPU's memory is full: what the program holds at one time is too large for it.",
    "Reduce the batch size or the sequence length, or use gradient checkpointing or a smaller precision.",
    tell="a smaller batch works",
    given=~OTHERS_HOLD,
)
GPU_TAKEN = Cause(
    "gpu-memory-taken",
    "Another process holds much of the GPU's memory.",
    "Run `nvidia-smi` on the host to find the process and end it, or select another GPU with `GPUS=1`.",
    tell="`nvidia-smi` shows memory in use before the program starts",
    given=OTHERS_HOLD,
)
LIBRARIES_MIXED = Cause(
    "cuda-libraries-mixed",
    "Another version of CUDA's libraries (cuBLAS, cuDNN, ...) is found before the one that torch was built with.",
    "Run `unset LD_LIBRARY_PATH` and try again. If packages were installed over the base's, recreate it with "
    "`./launch build`.",
    tell="`LD_LIBRARY_PATH` names a CUDA or cuDNN folder, or `pip list` shows nvidia packages for two versions of CUDA",
    given=text_has(r"LD_LIBRARY_PATH", r"VERSION_MISMATCH", r"nvidia[-_]cu(?:blas|dnn)[-_]cu1\d"),
    standalone="Run `unset LD_LIBRARY_PATH` and try again. If packages were installed over torch's own, reinstall "
    "torch.",
)
TORCH_TOO_OLD = Cause(
    "torch-too-old",
    "This PyTorch, or its CUDA libraries, is older than the GPU.",
    "Update to a PyTorch build that supports the GPU: `./launch update`.",
    tell="the smallest operation on the GPU fails: `python -c 'import torch; print(torch.ones(8, 8).cuda() @ "
    "torch.ones(8, 8).cuda())'`",
    standalone="Install a PyTorch build that supports the GPU: `./launch doctor` prints the command.",
)
EARLIER_KERNEL = Cause(
    "earlier-kernel-failed",
    "A kernel that ran earlier failed, usually because of an index that is out of range, such as a label or token id.",
    "Run it once with `CUDA_LAUNCH_BLOCKING=1`, or on the CPU: both name the line that is wrong.",
    tell="with `CUDA_LAUNCH_BLOCKING=1`, another line is named",
)
OLD_WINDOWS_DRIVER = Cause(
    "wsl-windows-driver",
    "The NVIDIA driver of Windows is missing or too old for WSL 2, or a Linux driver was installed in WSL.",
    "Install NVIDIA's current driver in Windows, remove any NVIDIA driver package in WSL, then run `wsl --update` and "
    "`wsl --shutdown` in Windows.",
    tell="`nvidia-smi` in PowerShell fails or shows an old version",
    given=WSL,
)
SHM_FULL = Cause(
    "shared-memory",
    "The container's shared memory (/dev/shm) is too small for the data loader's workers or for NCCL.",
    "Start the container with `./launch`, or by hand with `docker run --ipc=host ...` (or `--shm-size=16g`). As a "
    "workaround, use "
    "`num_workers=0`.",
    tell="`df -h /dev/shm` in the container shows 64M, or that it is full",
    standalone="Start the container with `docker run --ipc=host ...` (or `--shm-size=16g`). As a "
    "workaround, use `num_workers=0`.",
)
HOST_MEMORY = Cause(
    "host-memory-full",
    "The machine's memory (not the GPU's), or the container's share of it, ran out.",
    "Use fewer data loader workers or smaller samples, or give the machine, WSL, or container more memory.",
    tell="`sudo dmesg | grep -i 'out of memory'` on the host names the process; `free -h` shows little memory",
)
FABRIC_MANAGER = Cause(
    "fabric-manager",
    "The machine's GPUs are connected by NVSwitch, and the fabric manager is not running or has another version than "
    "the driver.",
    "Install the package nvidia-fabricmanager in the driver's exact version, then "
    "`sudo systemctl enable --now nvidia-fabricmanager`.",
    tell="`systemctl status nvidia-fabricmanager` shows that it failed or is missing",
)
CLOCK_WRONG = Cause(
    "clock-wrong",
    "The machine's clock is wrong.",
    "Run `sudo timedatectl set-ntp true`; in WSL, run `wsl --shutdown` in Windows.",
    tell="`date` does not show the current time",
)
GPU_LOST = Cause(
    "gpu-lost",
    "The GPU stopped responding on the PCIe bus. Usual reasons are power, heat, a loose card or "
    "riser, or a defective card.",
    "Shut the machine down, switch its power off for a minute, and start it again. If it happens "
    "again, check the power cables, the cooling, and the card's seat.",
    tell="`sudo dmesg | grep -i xid` shows Xid 79, usually under load",
)
DRIVER_STUCK = Cause(
    "driver-stuck",
    "The driver or the GPU no longer responds.",
    "Restart the machine. If that is not enough, switch its power off for a minute.",
    tell="`nvidia-smi` hangs or fails on the host too, and it worked before",
)
MODULE_MISSING = Cause(
    "driver-not-loaded",
    "The NVIDIA driver's kernel module is not loaded. Often it was not built for the running kernel "
    "after a kernel update.",
    "Run `sudo modprobe nvidia` on the host. If the module is not found, run `sudo apt-get install "
    "linux-headers-$(uname -r) && sudo dkms autoinstall` and restart; any other message names the "
    "reason.",
    tell="`lsmod | grep nvidia` on the host prints nothing",
    given=~WSL,
)
UNSIGNED = Cause(
    "module-unsigned",
    "Secure Boot rejects the driver's kernel module, because the module is not signed with a key that "
    "the machine knows.",
    "Run `sudo mokutil --import /var/lib/shim-signed/mok/MOK.der` (`/var/lib/dkms/mok.pub` where that "
    "file does not exist), restart, and choose `Enroll MOK`. Or switch Secure Boot off in the "
    "firmware.",
    tell="`mokutil --sb-state` prints `SecureBoot enabled`",
    given=SECURE_BOOT,
)
NOUVEAU = Cause(
    "nouveau",
    "The nouveau driver holds the GPU, so NVIDIA's driver cannot use it.",
    "Run `printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' | sudo tee "
    "/etc/modprobe.d/blacklist-nouveau.conf`, then `sudo update-initramfs -u` (Fedora: `sudo dracut "
    "--force`), and restart.",
    tell="`lspci -k -d 10de:` shows `Kernel driver in use: nouveau`",
)
OPEN_MODULES = Cause(
    "open-modules-needed",
    "This GPU needs the driver's open kernel modules, and the proprietary ones are installed. This "
    "applies to Blackwell and newer GPUs.",
    "Install the driver's open variant, such as `sudo apt-get install nvidia-driver-580-open`, and restart.",
    tell="`sudo dmesg | grep -i 'open kernel modules'` prints a line",
)
CARD_TOO_NEW = Cause(
    "driver-older-than-card",
    "The driver is older than the GPU and does not know it.",
    "Install the newest driver in its open variant, such as `sudo apt-get install "
    "nvidia-driver-580-open`, and restart.",
    tell="`lspci | grep -i nvidia` shows only a number for the GPU, or the GPU is newer than the driver",
    given=capability_from("7.5"),
)
CARD_TOO_OLD = Cause(
    "card-older-than-driver",
    "The GPU is too old for the installed driver or for its open kernel modules.",
    "Install the proprietary variant of the last driver branch for the GPU: 580 for Maxwell, Pascal, "
    "and Volta, 470 for Kepler.",
    tell="the GPU is older than the Turing generation (before 2018)",
)
IMAGE_HAS_DRIVER = Cause(
    "driver-files-in-image",
    "The image contains files of an NVIDIA driver, which conflict with those of the host.",
    "Remove them in the Dockerfile: `RUN rm -f /usr/lib/*-linux-gnu/libcuda.so* "
    "/usr/lib/*-linux-gnu/libnvidia-*`. Do not install driver packages in an image.",
    tell="`docker run --rm --entrypoint sh IMAGE -c 'ls /usr/lib/*-linux-gnu/libnvidia-*'` lists files",
)
NO_CAPABILITY = Cause(
    "driver-capabilities",
    "The container was given only a part of the driver.",
    "Set `NVIDIA_DRIVER_CAPABILITIES=all` in `containerEnv`, or with `docker run -e`, and create the container again.",
    tell="`echo $NVIDIA_DRIVER_CAPABILITIES` in the container does not print `all`",
    given=CONTAINER,
)
TOOLKIT_MISSING = Cause(
    "toolkit-not-installed",
    "NVIDIA's Container Toolkit is not installed. Docker needs it to give a container the GPU.",
    "Run `./launch setup`. It shows the commands that install and configure it, and runs them with `--apply`.",
    tell="`nvidia-ctk --version` fails",
    given=NO_TOOLKIT,
)
TOOLKIT_NOT_CONFIGURED = Cause(
    "toolkit-not-configured",
    "NVIDIA's Container Toolkit is installed, but Docker is not configured to use it.",
    "Run `sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker`.",
    tell="`nvidia-ctk --version` works, and `docker info` does not list the runtime `nvidia`",
    given=~NO_TOOLKIT & ~(DESKTOP | SNAP | ROOTLESS),
)
TOOLKIT_OUTDATED = Cause(
    "toolkit-outdated",
    "NVIDIA's Container Toolkit is too old for this driver, or its packages have different versions.",
    "Run `sudo apt-get install --only-upgrade nvidia-container-toolkit nvidia-container-toolkit-base "
    "libnvidia-container-tools libnvidia-container1 && sudo systemctl restart docker`.",
    tell="`nvidia-smi` works on the machine, and `nvidia-ctk --version` is below 1.17",
)
CDI_STALE = Cause(
    "cdi-stale",
    "The list of GPUs (CDI specification) was written for another driver version or another set of GPUs.",
    "Run `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml && sudo systemctl restart docker`.",
    tell="`grep -m1 libcuda.so /etc/cdi/nvidia.yaml` names another version than `nvidia-smi`",
)
WSL_1 = Cause(
    "wsl-1",
    "This WSL distribution runs as WSL 1, which has neither a Linux kernel of its own nor a GPU.",
    "In Windows, run `wsl --update` and `wsl --set-version DISTRIBUTION 2`.",
    tell="`wsl --list --verbose` shows version 1",
    given=WSL,
)
OTHER_ENGINE = Cause(
    "gpu-other-engine",
    "The engine that was asked is not the one that was configured for GPUs: it is Docker Desktop, a snap, or rootless.",
    "Run `docker context use default` to use Docker Engine. In WSL, update Docker Desktop and use `--gpus all`.",
    tell="`docker context ls` or `snap list docker` shows another engine",
    given=DESKTOP | SNAP | ROOTLESS,
)
CUDA_AFTER_FORK = Cause(
    "cuda-after-fork",
    "The program used the GPU before it forked its workers, which then cannot use it.",
    'Call `torch.multiprocessing.set_start_method("spawn")` at the start (vLLM: '
    "`VLLM_WORKER_MULTIPROC_METHOD=spawn`), or "
    "touch the GPU only after the workers have started; in notebooks, restart the kernel first.",
    tell="it fails in a worker process only",
    given=text_has(r"\bfork|multiprocessing|DataLoader|worker"),
)
JETSON_TORCH = Cause(
    "jetson-torch",
    "On a Jetson, PyTorch from the package index has no CUDA support for this GPU.",
    "Install NVIDIA's PyTorch for the installed JetPack, or use a container for it, such as one of jetson-containers "
    "or "
    "(from JetPack 7 on) nvcr.io/nvidia/pytorch.",
    tell="`python -c 'import torch; print(torch.version.cuda)'` prints None, or the wheel was not made for JetPack",
    given=only(JETSON),
)
JETPACK_TOO_OLD = Cause(
    "jetpack-too-old",
    "On a Jetson, the driver and CUDA belong to JetPack, and this image or package needs a newer JetPack.",
    "Use an image or package made for the installed JetPack, or flash a newer one: "
    "https://developer.nvidia.com/embedded/jetpack",
    tell="`cat /etc/nv_tegra_release` shows an older release than the image is made for",
    given=only(JETSON),
)
WSL_DRIVER_TOO_OLD = Cause(
    "wsl-driver-too-old",
    "In WSL, the driver is that of Windows, and it is too old for the CUDA version that this program or image uses.",
    "Install NVIDIA's current driver in Windows (none in WSL), then run `wsl --shutdown` in Windows.",
    tell="`nvidia-smi` shows a lower CUDA version than the program or image needs",
    given=only(WSL),
)
DOCKER_SNAP = Cause(
    "docker-snap",
    "Docker is installed as a snap, which sees only parts of the machine's files and processes.",
    "Run `sudo snap remove docker`, then install Docker Engine: https://docs.docker.com/engine/install/.",
    tell="`snap list docker` shows it",
    given=SNAP,
)
