"""This machine as `gpukit.errors.machine.Machine`, from files where possible and from programs otherwise."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpukit.errors.machine import Card, Engine, Machine, Torch, capability
from gpukit.host import cards, choice, podman
from gpukit.host.process import LONG_TIMEOUT, SHORT_TIMEOUT, Background, Result, nvidia_smi, run
from gpukit.project.location import located
from gpukit.project.stack import FILE, Stack, StackError, load

SMI = ["--query-gpu=name,driver_version,compute_cap,memory.total", "--format=csv,noheader,nounits"]
INFO = ["info", "--format", "{{json .}}"]
TOOLKIT = ["nvidia-ctk", "--version"]
WSL_DEVICE = "/dev/dxg"  # only where Windows gives WSL a GPU
TEGRA = "/etc/nv_tegra_release"
FASTOS = "/etc/fastos-release"
MODEL = "/proc/device-tree/model"
DRIVER = "/proc/driver/nvidia/version"
CARDS = "/proc/driver/nvidia/gpus"
PCI = "/sys/bus/pci/devices"
PCI_NAMES = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")
FIRST_JETPACK_7 = 38  # Jetson Linux R38, with driver 580 and newer; R36 is JetPack 6, with driver 540
IN_CONTAINER = ("/.dockerenv", "/run/.containerenv", "/etc/gpukit")
# Packages that a diagnosis can depend on; others are not reported.
PACKAGES = re.compile(
    r"torch|triton|numpy|transformers|accelerate|peft|trl|datasets|unsloth|bitsandbytes|flash.attn|xformers|deepspeed|"
    r"vllm|nvidia.|cuda.|cupy|jax|tensorflow|onnxruntime|lightning|pytorch.lightning|safetensors|pip$|uv$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class PciDevice:
    """An NVIDIA device on the PCI bus, with or without a driver."""

    kind: str  # gpu, switch
    driver: str  # the kernel module that holds it: nvidia, nouveau, vfio-pci, or empty
    id: str = ""  # of the model, such as 2684


def local(project: Path | None, ask_engine: bool = True, engine: str = "") -> Machine:
    """This machine and the project in this folder. Unknown facts are None. Nothing is written or imported.

    `ask_engine`: run the engine's client, which takes most of the time. `engine`: its name, if the project chose it.
    """
    engine = engine or choice.known(os.environ)
    stack = None
    if project is not None:
        with contextlib.suppress(StackError):
            stack = load(located(FILE, project))
    smi = Background(
        lambda: run([nvidia_smi(), *SMI], SHORT_TIMEOUT), SHORT_TIMEOUT + 0.2, Result(None, timed_out=True)
    )
    asked = [
        Background(
            lambda command=command: run(command, SHORT_TIMEOUT), SHORT_TIMEOUT + 0.2, Result(None, timed_out=True)
        )
        for command in (([engine, *INFO], TOOLKIT) if ask_engine else ())
    ]
    disk = Background(lambda: round(shutil.disk_usage(Path.cwd()).free / 1e9, 1), SHORT_TIMEOUT, None)
    inside = container()
    here = system()
    machine = Machine(
        system=here,
        arch=arch(),
        os=(re.findall(r'^PRETTY_NAME="?([^"\n]*)', text("/etc/os-release") or "", re.MULTILINE) or [None])[0],
        kernel=platform.release() or None,
        container=inside or None,
        jetson=jetson() if here == "linux" else "",
        secure_boot=secure_boot(),
        selinux=selinux() if here == "linux" else None,
        memory_gb=_memory(),
        shm_mb=_shared(),
        **_python(stack),
        targets=tuple(stack.targets) if stack else None,
    )
    machine = machine._replace(**_driver(machine, smi.value), disk_free_gb=disk.value)
    found = _engine(engine, *(each.value for each in asked)) if ask_engine else Engine()
    return machine._replace(engine=found if found.name or not inside else Engine())


def no_gpu() -> bool:
    """Whether this machine certainly has no NVIDIA GPU; a driver that does not work is not counted as none."""
    here = system()
    machine = Machine(system=here, arch=arch(), jetson=jetson() if here == "linux" else "")
    return _driver(machine, run([nvidia_smi(), *SMI], SHORT_TIMEOUT))["gpus"] == ()


def to_json(machine: Machine) -> dict[str, Any]:
    """The value of `machine` in `doctor --json`; gpukit.errors.machine.from_json reads it."""
    own = {name: list(value) if name == "targets" and value else value for name, value in machine._asdict().items()}
    cards = machine.gpus if machine.gpus is None else [card._asdict() for card in machine.gpus]
    return {**own, "gpus": cards, "engine": machine.engine._asdict(), "torch": machine.torch._asdict()}


def hardware(machine: Machine) -> list[str]:
    """The hardware ids of this machine's GPUs, without unknown ones."""
    found = []
    for card in machine.gpus or ():
        known = cards.Card(card.name, "", card.capability or "")
        found.append(cards.hardware(known, machine.arch or "") or cards.hardware_of_chip(card.name, machine.arch or ""))
    return [id for id in dict.fromkeys(found) if id]


def system() -> str:
    """linux, wsl, macos or windows."""
    if sys.platform in ("darwin", "win32"):
        return {"darwin": "macos", "win32": "windows"}[sys.platform]
    return "wsl" if "microsoft" in (text("/proc/sys/kernel/osrelease") or "").lower() else "linux"


def arch() -> str:
    """The CPU architecture, as image registries name it."""
    machine = platform.machine().lower()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def container() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ or any(Path(path).exists() for path in IN_CONTAINER)


def text(path: str) -> str | None:
    """The contents of a small file; None if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip("\0\n ")
    except OSError:
        return None


def secure_boot() -> bool | None:
    for path in Path("/sys/firmware/efi/efivars").glob("SecureBoot-*"):
        with contextlib.suppress(OSError, IndexError):
            return path.read_bytes()[4] == 1
    return None


def selinux() -> str:
    enforce = text("/sys/fs/selinux/enforce")
    return {"1": "Enforcing", "0": "Permissive"}.get(enforce or "", "Disabled")


def jetson() -> str:
    """The release of Jetson Linux, such as 36.4.3; empty elsewhere."""
    return ".".join(map(str, jetson_release())) or ("unknown" if Path(TEGRA).exists() else "")


def jetson_release() -> tuple[int, ...]:
    """The same as numbers, such as (36, 4, 3)."""
    return cards.jetson(text(TEGRA) or "")


def _memory() -> float | None:
    found = re.search(r"^MemTotal:\s+(\d+) kB", text("/proc/meminfo") or "", re.MULTILINE)
    return round(int(found[1]) / 2**20, 1) if found else None


def _shared() -> float | None:
    with contextlib.suppress(OSError):
        about = os.statvfs("/dev/shm")
        return float(about.f_blocks * about.f_frsize >> 20)
    return None


# GPUs and their driver


def driver() -> str | None:
    """The version of the loaded NVIDIA driver, "" if it does not tell; None without one. In WSL, that of Windows."""
    loaded = text(DRIVER)
    if loaded is not None:
        return _version_in(loaded) or ""
    if not Path(WSL_DEVICE).exists():
        return None
    asked = run([nvidia_smi(), "--query-gpu=driver_version", "--format=csv,noheader"], LONG_TIMEOUT)
    return asked.out.split("\n")[0].strip() if asked.code == 0 else None


def _version_in(loaded: str) -> str | None:
    """The version of the driver in the kernel's file about it."""
    number = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", loaded)
    return number[0] if number else None


def _driver(machine: Machine, smi: Result) -> dict[str, Any]:
    """The GPUs and the driver: from nvidia-smi, otherwise from the kernel's files and the PCI bus."""
    loaded = text(DRIVER)
    rows = [line.rsplit(",", 3) for line in smi.out.splitlines() if smi.code == 0]
    found = [Card(row[0].strip(), _number(row[2]), _gigabytes(row[3])) for row in rows if len(row) == 4]
    driver = next((_number(row[1]) for row in rows if len(row) == 4 and _number(row[1])), None)
    if driver is None and loaded is not None:
        driver = _version_in(loaded)
    if driver is None and loaded is None and smi.code is None and not smi.timed_out:
        driver = "" if machine.system in ("linux", "wsl") and not machine.jetson else None
    if not any(card.capability for card in found):
        found = named(machine) or found or _on_bus(machine.arch or "")
    looked = {
        "linux": Path(PCI).is_dir() and not loaded,
        "wsl": not Path(WSL_DEVICE).exists(),
        "macos": True,
    }.get(machine.system or "", False)
    known = cards.data("cards")
    facts = {
        "gpus": tuple(found) if found or looked else None,
        "driver": driver,
        "open_modules": "Open Kernel Module" in loaded if loaded else None,
        "cuda": _cuda() if driver else None,
    }
    ids = hardware(machine._replace(gpus=tuple(found)))
    if ids or machine.jetson:
        facts["unified_memory"] = bool(machine.jetson) or any(known[id]["unified_memory"] for id in ids)
    return facts


def _number(field: str) -> str | None:
    """A number from nvidia-smi, which is [N/A] on some GPUs."""
    return field.strip() if re.match(r"\s*\d", field) else None


def _gigabytes(field: str) -> float | None:
    number = _number(field)
    return round(float(number) / 1024, 1) if number else None


def named(machine: Machine) -> list[Card]:
    """A DGX Spark or a Jetson, by its system; other GPUs, by the driver's own list."""
    if "spark" in (text(FASTOS) or "").lower():
        return [Card("NVIDIA GB10", "12.1", None)]
    if machine.jetson:
        model = text(MODEL) or "Jetson"
        return [Card(model, capability(model), None)]
    found = []
    with contextlib.suppress(OSError):
        for folder in sorted(Path(CARDS).iterdir()):
            name = re.search(r"^Model:\s*(.+?)\s*$", text(f"{folder}/information") or "", re.MULTILINE)
            found += [Card(name[1], capability(name[1]), None)] if name else []
    return found


def pci() -> tuple[PciDevice, ...] | None:
    """NVIDIA's devices on the PCI bus; None if the bus is not visible."""
    try:
        folders = sorted(Path(PCI).iterdir())
    except OSError:
        return None
    found = []
    for folder in folders:
        kind = {"0x0300": "gpu", "0x0302": "gpu", "0x0680": "switch"}.get((text(f"{folder}/class") or "")[:6])
        if kind and text(f"{folder}/vendor") == "0x10de":
            driver = folder / "driver"
            module = driver.resolve().name if driver.exists() else ""
            found.append(PciDevice(kind, module, (text(f"{folder}/device") or "")[2:]))
    return tuple(found)


def _on_bus(arch: str) -> list[Card]:
    """GPUs on the PCI bus, with their names from the PCI ID database if it is installed."""
    found = []
    for device in pci() or ():
        if device.kind == "gpu":
            name = _in_database(device.id)
            id = cards.hardware_of_chip(name, arch)
            number = cards.data("cards")[id]["capability"] if id else capability(name)
            found.append(Card(name or "NVIDIA GPU", number, None))
    return found


def _in_database(device: str) -> str:
    for path in PCI_NAMES:
        database = text(path)
        if database and device:
            vendor = re.search(r"^10de .*\n((?:[\t#].*\n)*)", database + "\n", re.MULTILINE)
            name = re.search(rf"^\t{device}  (.+)$", vendor[1] if vendor else "", re.MULTILINE)
            return name[1] if name else ""
    return ""


def _cuda() -> str | None:
    """The newest CUDA version that the driver supports, from its library, without starting anything on the GPU."""
    for name in ("libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"):
        with contextlib.suppress(OSError, AttributeError):
            number = ctypes.c_int(0)
            if ctypes.CDLL(name).cuDriverGetVersion(ctypes.byref(number)) == 0 and number.value:
                return f"{number.value // 1000}.{number.value % 1000 // 10}"
    return None


# Engine


def _engine(name: str, info: Result, toolkit: Result) -> Engine:
    found = re.search(r"version (\d+(?:\.\d+)+)", toolkit.text)
    here = found[1] if found else "" if toolkit.code is None and not toolkit.timed_out else None
    if info.code is None and not info.timed_out:
        return Engine(name="", toolkit=here)
    details = podman.info(info.out)
    if not details.get("ServerVersion"):
        return Engine(name=name, toolkit=here, running=False)
    return Engine(
        name="podman" if podman.speaks(details) else "docker",
        version=details["ServerVersion"],
        rootless=any(option.startswith("name=rootless") for option in details.get("SecurityOptions") or []),
        desktop="Docker Desktop" in details.get("OperatingSystem", ""),
        snap="/snap/" in details.get("DockerRootDir", ""),
        toolkit=here,
        cdi=any(
            str(each.get("ID", "")).startswith("nvidia.com/gpu") for each in details.get("DiscoveredDevices") or []
        ),
        running=True,
    )


# Python and its packages


def _python(stack: Stack | None) -> dict[str, Any]:
    """torch and other installed packages; on the host of a project, those of its image."""
    if stack is not None and not container():
        arches = stack.kernels.get(arch())
        names = tuple(f"sm_{number.replace('.', '')}" for number in arches.sass) if arches else None
        return {"torch": Torch(stack.torch, stack.cuda or "", names), "python": stack.python}
    for folder in environments():
        versions = _installed(folder)
        if "torch" in versions:
            torch = Torch(versions["torch"], _torch_cuda(folder, versions["torch"]), None)
            return {"torch": torch, "python": _version_of(folder), "packages": versions}
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return {"torch": Torch(), "python": own, "packages": None}


def environments() -> Iterator[Path]:
    """Folders with packages: of this interpreter, of an active environment, of the first Python on the PATH."""
    yield from (Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages")))
    folders = [os.environ.get("VIRTUAL_ENV"), os.environ.get("CONDA_PREFIX"), ".venv"]
    folders += [str(Path(path).parents[1]) for path in map(shutil.which, ("python", "python3")) if path]
    for folder in dict.fromkeys(filter(None, folders)):
        for pattern in ("lib/python3*/site-packages", "local/lib/python3*/dist-packages", "lib/python3/dist-packages"):
            yield from sorted(Path(folder).glob(pattern))


def _version_of(folder: Path) -> str | None:
    found = re.search(r"python(\d\.\d+)", str(folder))
    return found[1] if found else None


def _installed(folder: Path) -> dict[str, str]:
    """Names and versions of packages, from the names of their metadata folders."""
    with contextlib.suppress(OSError):
        found = (
            re.fullmatch(r"(.+?)-([^-]+)\.(?:dist|egg)-info", name) for name in (each.name for each in folder.iterdir())
        )
        pairs = sorted((match[1].lower().replace("_", "-"), match[2]) for match in found if match)
        return {name: version for name, version in pairs if PACKAGES.match(name)}
    return {}


def _torch_cuda(folder: Path, version: str) -> str | None:
    """The CUDA version that torch was built for, from torch/version.py; empty for a build without CUDA."""
    found = re.search(r"^cuda\b[^=\n]*= *(?:'([\d.]+)'|None)", text(f"{folder}/torch/version.py") or "", re.MULTILINE)
    if found:
        return found[1] or ""
    digits = re.search(r"\+cu(\d\d)(\d+)$", version)
    return f"{digits[1]}.{digits[2]}" if digits else "" if version.endswith("+cpu") else None
