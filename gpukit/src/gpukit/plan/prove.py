"""`gpukit plan --prove`: compile kernels for the targets' GPUs, and read what the installed packages contain for them.

It needs no GPU, no driver, and no C compiler, which Triton uses only to launch kernels.
"""

from __future__ import annotations

import contextlib
import os
import pkgutil
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from gpukit.findings.finding import Finding, passed, problem, skipped, unknown
from gpukit.host.kernels import from_arch_list, runs
from gpukit.host.memory import RESERVE, meminfo
from gpukit.project.stack import version

KERNEL_LIMIT = 60  # seconds, for all kernels of a capability
LIBRARY_LIMIT = 60  # seconds, for each library; libtorch_cuda.so with its 500 MB takes about 20
WORKERS = 4
running: set[int] = set()  # the processes that are to end if prove is interrupted
interrupted = threading.Event()  # a process that starts after that ends at once
PTXAS_VARIABLES = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")
# They replace the requested GPU, or compilation itself.
OVERRIDES = ("TRITON_OVERRIDE_ARCH", "TRITON_INTERPRET")
OLD_PTXAS_TEXT = re.compile(r"is not defined for option 'gpu-name'|PTX version \S+ does not support target")
UNKNOWN_TARGET_TEXT = re.compile(r"is not a recognized processor|computeCapability not supported")
# Not in PACKAGE.libs: those are copies of CUDA's own.
LIBRARY = re.compile(r"^(?!\S+\.libs/).*\.so(\.\d+)*$")
LISTED = re.compile(r"^(ELF|PTX) file +\d+: .*\.sm_(\d+[af]?)\.(?:cubin|ptx)$", re.MULTILINE)
# A library contains code for some more architectures for a few kernels only; such code does not run the rest of it.
FEW = 10
MAIN_LIBRARY = {"torch": "libtorch_cuda.so"}  # the others of torch contain optional functions

# Packages that are of no use without their kernels; others need theirs only for some functions.
NEED_KERNELS = {
    "torch": "installed-torch-without-kernels",
    **dict.fromkeys(("bitsandbytes", "flash-attn", "torchvision"), "package-without-kernels"),
}
CAUSES = (
    "triton-broken",
    "ptxas-too-old",
    "ptxas-variable",
    "triton-without-target",
    "triton-does-not-compile",
    "installed-torch-without-kernels",
    "package-without-kernels",
    "package-optional-kernels",
    "package-only-ptx",
)


def prove(capabilities: list[str]) -> list[Finding]:
    """Findings about the installed Triton for each capability, and about each installed package with code for GPUs."""
    wanted = sorted(set(capabilities), key=version)
    if not wanted:
        return [_named("triton", "Triton", skipped("target-without-gpu"))]
    folder = triton_folder()
    if folder is None:
        return [_named("triton", "Triton", skipped("triton-not-installed"))]
    interrupted.clear()
    pool = ThreadPoolExecutor(min(WORKERS, os.cpu_count() or 1))
    try:
        findings = [*_triton(wanted, pool), *_packages(wanted, folder)]
    except BaseException:
        interrupted.set()
        for process in list(running):
            _kill(process)
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    findings.append(_named("on-gpu", "On the GPU itself", skipped("not-run-on-gpu")))
    return findings


def _named(id: str, title: str, finding: Finding) -> Finding:
    return replace(finding, id=id, title=title)


def _not_checked(reason: str) -> Finding:
    return unknown("not-answered", reason=reason)


def run(command: list[str], seconds: float, environment: Mapping[str, str] | None = None) -> tuple[int | None, str]:
    """A command's exit status and output. If it takes too long, it is killed with its children: the status is None."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        return 126, str(error)
    running.add(process.pid)
    if interrupted.is_set():
        _kill(process.pid)
    try:
        output, _ = process.communicate(timeout=max(0.0, seconds))
    except subprocess.TimeoutExpired:
        _kill(process.pid)
        return None, process.communicate()[0]
    finally:
        running.discard(process.pid)
    return process.returncode, output


def _kill(process: int) -> None:
    """End a process and its children, such as ptxas."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


# Triton


def triton_folder() -> Path | None:
    """Where Triton is installed; found without importing it."""
    spec = find_spec("triton")
    return next(map(Path, spec.submodule_search_locations or ()), None) if spec else None


def _triton(capabilities: list[str], pool: Executor) -> list[Finding]:
    command = [sys.executable, "-c", "import triton; print('triton', triton.__version__)"]
    code, output = run(command, KERNEL_LIMIT, _environment())
    if code is None:
        return [_named("triton", "Triton", _not_checked(f"Importing it took longer than {KERNEL_LIMIT} s."))]
    if code:
        return [_named("triton", "Triton", problem("triton-broken", _error(output)))]
    findings = [_named("triton", "Triton", passed(" ".join(re.findall(r"^triton \S+$", output, re.MULTILINE))))]
    with tempfile.TemporaryDirectory(prefix="gpukit-prove-") as folder:
        script = Path(folder, "kernels.py")  # gpukit itself may be in a wheel
        script.write_bytes(pkgutil.get_data("gpukit.plan.probes", "kernels.py") or b"")
        found = list(pool.map(lambda capability: _timed(capability, script), capabilities))
    findings += [
        _named(f"triton-{capability}", f"Triton for {capability}", each)
        for capability, each in zip(capabilities, found)
    ]
    return findings


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in OVERRIDES}


def _timed(capability: str, script: Path) -> Finding:
    started = time.monotonic()
    return replace(_compiled(capability, script), seconds=round(time.monotonic() - started, 3))


def _compiled(capability: str, script: Path) -> Finding:
    """The kernels of one capability, each in a process of its own and with an empty cache."""
    until = time.monotonic() + KERNEL_LIMIT
    environment = {**_environment(), "TRITON_CACHE_DIR": str(script.parent / capability)}
    kernels = ["fp32", "bf16"] if version(capability) >= (8, 0) else ["fp32"]  # bf16 exists from 8.0 on
    targets: list[str] = []
    for kernel in kernels:
        command = [sys.executable, str(script), kernel, capability]
        code, output = run(command, until - time.monotonic(), environment)
        if code is None:
            return _not_checked(f"Compiling took longer than {KERNEL_LIMIT} s.")
        if code == 0:
            targets += re.findall(r'^{"target": "(\w+)"', output, re.MULTILINE)  # warnings may stand around it
            continue
        seen = f"{kernel}: {_error(output)}"
        chosen = [name for name in PTXAS_VARIABLES if environment.pop(name, None) is not None]
        if chosen and run(command, until - time.monotonic(), environment)[0] == 0:
            return problem("ptxas-variable", seen, capability=capability, variables=" ".join(chosen))
        if OLD_PTXAS_TEXT.search(output):
            return problem("ptxas-too-old", seen, capability=capability)
        if UNKNOWN_TARGET_TEXT.search(output):
            return problem("triton-without-target", seen, capability=capability)
        return problem("triton-does-not-compile", seen, capability=capability, kernel=kernel)
    return passed(f"{' and '.join(kernels)} compiled for {' and '.join(dict.fromkeys(targets))}")


def _error(output: str) -> str:
    """The line of an output that says what is wrong: the first one that we know, or else the last one with an error."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for pattern in (OLD_PTXAS_TEXT, UNKNOWN_TARGET_TEXT):
        for line in lines:
            if pattern.search(line):
                return line
    errors = [line for line in lines if re.search(r"\b(?:error|fatal)\b|\w(?:Error|Exception)\b", line)]
    return (errors or lines or ["no output"])[-1]


# Packages


@dataclass(frozen=True)
class Code:
    """The capabilities that a library contains code for: compiled (SASS) and PTX. `error`: it could not be read."""

    sass: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    error: str = ""

    def __str__(self) -> str:
        kinds = (("SASS", self.sass), ("PTX", self.ptx))
        return "; ".join(f"{kind} {' '.join(names)}" for kind, names in kinds if names) or "no code"


def _packages(capabilities: list[str], triton: Path) -> list[Finding]:
    found = libraries()
    if not found:
        return [_named("packages", "Packages", skipped("no-package-for-gpus"))]
    tool = cuobjdump(triton)
    if tool is None:
        return [_named("packages", "Packages", skipped("no-cuobjdump"))]
    codes = {path: read(tool, path) for paths in found.values() for path in paths}
    return [
        _named(
            f"kernels-{package}",
            f"Kernels of {package}",
            judged(package, {path.name: codes[path] for path in own}, capabilities),
        )
        for package, own in found.items()
    ]


def cuobjdump(triton: Path) -> str | None:
    """Triton's own cuobjdump; some images bring theirs with CUDA instead."""
    own = triton / "backends/nvidia/bin/cuobjdump"
    return os.environ.get("TRITON_CUOBJDUMP_PATH") or (str(own) if own.is_file() else shutil.which("cuobjdump"))


def libraries() -> dict[str, list[Path]]:
    """The libraries with code for GPUs of each installed package, except CUDA's own, which depend on its version."""
    found: dict[str, list[Path]] = {}
    for each in metadata.distributions():
        name = re.sub(r"[-_.]+", "-", each.metadata["Name"] or "").lower()
        if not name or name in found or name == "triton" or name.startswith("nvidia-"):
            continue
        files = [file for file in each.files or () if LIBRARY.search(str(file))]
        paths = [Path(str(each.locate_file(file))) for file in files]
        found[name] = loaded([path for path in paths if has_device_code(path)])
    return {name: paths for name, paths in sorted(found.items()) if paths}


def has_device_code(path: Path) -> bool:
    """Whether an ELF file has CUDA's section for device code: cuobjdump is too slow for all libraries."""
    with contextlib.suppress(OSError, struct.error), path.open("rb") as file:
        header = file.read(64)
        if header[:5] != b"\x7fELF\x02":
            return False
        sections = struct.unpack_from("<Q", header, 0x28)[0]
        size, _, names = struct.unpack_from("<HHH", header, 0x3A)
        file.seek(sections + names * size + 0x18)
        offset, length = struct.unpack("<QQ", file.read(16))
        file.seek(offset)
        return b"\0.nv_fatbin\0" in file.read(length)
    return False


def loaded(paths: list[Path], cuda: str | None = None) -> list[Path]:
    """Of libraries that exist once per version of CUDA, such as bitsandbytes', the one that is loaded."""
    cuda = cuda or torch_cuda()
    built = {path: re.search(r"_cuda(\d+)(\d)\.so$", path.name) for path in paths}
    if not cuda or not any(built.values()):
        return paths
    of = {f"{match[1]}.{match[2]}": path for path, match in built.items() if match}
    chosen = [of[each] for each in of if each == nearest(cuda, of)]
    return [path for path, match in built.items() if not match] + chosen


def nearest(cuda: str, built: Iterable[str]) -> str:
    """Of several versions of CUDA, the one for which a library is loaded; empty if there is none.

    It is torch's, or else the newest below it, or else the oldest above it, of one major version.
    """
    wanted = version(cuda)[:2]
    same = [each for each in built if version(each)[:1] == wanted[:1]]
    below = [each for each in same if version(each) <= wanted]
    return max(below, key=version) if below else min(same, key=version, default="")


def torch_cuda() -> str | None:
    """The version of CUDA that the installed torch is built for, without importing it."""
    spec = find_spec("torch")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        with contextlib.suppress(OSError):
            found = re.search(r"^cuda\b.*= '([\d.]+)'", Path(folder, "version.py").read_text("utf-8"), re.MULTILINE)
            return found[1] if found else None
    return None


def read(tool: str, path: Path) -> Code:
    """What a library contains. Without -all, cuobjdump leaves out what was only needed to link it.

    It takes 5.7 GB of memory for the 500 MB of torch 2.14.1's libtorch_cuda.so (measured 2026-11-24). So libraries are
    read one at a time, and it fails if that is not free, instead of taking the memory of other programs.
    """
    free = meminfo().get("MemAvailable")
    most = str(int(free * (1 - RESERVE)) // 1024) if free else "unlimited"
    limited = ["sh", "-c", 'ulimit -v "$1" && shift && exec "$@"', "sh", most]
    status, output = run([*limited, tool, "--list-elf", "--list-ptx", str(path)], LIBRARY_LIMIT)
    if status is None:
        return Code(error=f"no answer in {LIBRARY_LIMIT} s")
    return code(status, output, path)


def code(status: int, output: str, path: Path) -> Code:
    """What cuobjdump has listed."""
    listed = Counter(LISTED.findall(output))
    if status or not listed:
        return Code(error=_error(output).replace(str(path), path.name))
    often = [each for each, times in listed.items() if times * FEW >= max(listed.values())]
    names = [f"{'sm' if kind == 'ELF' else 'compute'}_{number}" for kind, number in often]
    return Code(*from_arch_list(sorted(names, key=lambda name: version(name.partition("_")[2]))))


def judged(package: str, codes: Mapping[str, Code], capabilities: list[str]) -> Finding:
    """Whether a package has code for each capability: in its main library if we know that one, or else in any."""
    main = {name: code for name, code in codes.items() if name == MAIN_LIBRARY.get(package, name)} or codes
    unread = [f"{name}: {code.error}" for name, code in codes.items() if code.error]
    readable = {name: code for name, code in main.items() if not code.error}
    kinds = {
        capability: {runs(capability, code.sass, code.ptx) for code in readable.values()} for capability in capabilities
    }
    none = [capability for capability, kind in kinds.items() if not kind - {None}]
    ptx = [capability for capability, kind in kinds.items() if kind - {None} == {"ptx"}]
    if not readable or (none and any(code.error for code in main.values())):
        return _not_checked(f"cuobjdump cannot read it. {unread[0]}")
    seen = ", ".join(f"{name}: {code}" for name, code in readable.items())
    if none:
        id = NEED_KERNELS.get(package, "package-optional-kernels")
        return problem(id, seen, f"code for {', '.join(none)}", package=package, capabilities=", ".join(none))
    if ptx:
        return problem(
            "package-only-ptx", seen, f"SASS for {', '.join(ptx)}", package=package, capabilities=", ".join(ptx)
        )
    for name, code in codes.items():
        lacking = [each for each in capabilities if not runs(each, code.sass, code.ptx)]
        if lacking and not code.error:
            seen += f"; {name} has none for {', '.join(lacking)}"
    return passed("; ".join([seen, *unread]))
