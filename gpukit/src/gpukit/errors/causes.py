"""Causes that several error texts can have."""

from __future__ import annotations

from gpukit.errors.evidence import (
    CONTAINER,
    CPU_TORCH,
    CUDA_ABOVE_DRIVER,
    NO_CARD,
    NO_DRIVER,
    OTHERS_HOLD,
    WORKED_BEFORE,
    WSL,
    says,
    silent_on,
)
from gpukit.findings.finding import Cause

GPU_NOT_GIVEN = Cause(
    "gpu-not-given",
    "The container was started without a GPU.",
    "Start it with `./launch`, or by hand with `docker run --gpus all ...`. A build step never has a GPU.",
    tell="`nvidia-smi` works on the host and fails in the container",
    given=CONTAINER & ~NO_CARD,
)
NO_GPU_HERE = Cause(
    "no-gpu-here",
    "This machine has no NVIDIA GPU, or a virtual machine or cloud instance was created without one.",
    "Use a machine with an NVIDIA GPU, or run without one: `./launch --cpu run -- ...`",
    tell="`lspci | grep -i nvidia` on the host prints nothing",
    given=NO_CARD,
)
DRIVER_NOT_INSTALLED = Cause(
    "driver-not-installed",
    "The NVIDIA driver is not installed on the host.",
    "Install the NVIDIA driver on the host and reboot; in WSL, install it in Windows only.",
    tell="`nvidia-smi` is not found on the host",
    given=NO_DRIVER,
)
DRIVER_UPDATED = Cause(
    "driver-updated",
    "The NVIDIA driver was updated, and the kernel still runs the old one.",
    "Restart the machine.",
    tell="`nvidia-smi` on the host reports a version mismatch",
)
DRIVER_TOO_OLD = Cause(
    "driver-too-old",
    "The NVIDIA driver is too old for the CUDA version that this program or image uses.",
    "Install a newer NVIDIA driver: `./launch doctor` names the minimum version. If you cannot, use a build for an "
    "older "
    "CUDA.",
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
    given=silent_on(r"\bfork"),
)
UVM_STUCK = Cause(
    "uvm-stuck",
    "The driver's module nvidia_uvm is stuck, for example after the machine slept.",
    "Run `sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm` on the host, or restart the machine.",
    tell="CUDA fails on the host too, although `nvidia-smi` works",
    given=WORKED_BEFORE,
)
GPU_HIDDEN = Cause(
    "gpu-hidden",
    "`CUDA_VISIBLE_DEVICES` hides the GPU: it is empty, or names a GPU that does not exist.",
    "Unset `CUDA_VISIBLE_DEVICES`, or set it to an index or UUID that `nvidia-smi -L` lists, before the program "
    "starts.",
    tell="`echo $CUDA_VISIBLE_DEVICES` prints something else than `nvidia-smi -L` lists",
    given=says(r"CUDA_VISIBLE_DEVICES['\"]?\]? *[=:] *['\"]?-?\w*"),
)
MIG_EMPTY = Cause(
    "mig-empty",
    "MIG is enabled on the GPU, but no slice exists or the process was given none.",
    "Create a slice with `sudo nvidia-smi mig -cgi <profile> -C`, and select it with `GPUS=MIG-...` as `nvidia-smi "
    "-L` lists it.",
    tell="`nvidia-smi -L` lists the GPU without MIG devices below it",
    given=says(r"\bMIG\b"),
)
CPU_BUILD = Cause(
    "cpu-torch",
    "The installed PyTorch is a build without CUDA.",
    "Recreate the image with `./launch build`. In an environment of your own, reinstall torch from PyTorch's index "
    "for CUDA.",
    tell="`python -c 'import torch; print(torch.version.cuda)'` prints None",
    given=CPU_TORCH,
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
    given=says(r"LD_LIBRARY_PATH", r"VERSION_MISMATCH", r"nvidia[-_]cu(?:blas|dnn)[-_]cu1\d"),
)
TORCH_TOO_OLD = Cause(
    "torch-too-old",
    "This PyTorch, or its CUDA libraries, is older than the GPU.",
    "Update to a PyTorch build that supports the GPU: `copier update --trust` in a project, `./launch doctor` names "
    "the build.",
    tell="the smallest operation on the GPU fails: `python -c 'import torch; print(torch.ones(8, 8).cuda() @ "
    "torch.ones(8, 8).cuda())'`",
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
