"""verify in a native environment: checks of containers are skipped, and remedies are those of `--native`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gpukit.findings.checks import Check
from gpukit.findings.finding import Cause, Finding, passed, skipped
from gpukit.image import guard
from gpukit.project.stack import Stack
from gpukit.verify import interpreter

# Checks of containers, and why they are skipped.
CONTAINER_CHECKS = {
    "base-image": "There is no container: nothing is built from an image.",
    "user": "There is no container: files belong to you, as in any other shell.",
    "mounts": "There is no container: nothing is mounted.",
    "read-only": "There is no container: nothing is mounted.",
    "limits": "There is no container: the limits in devcontainer.json do not apply.",
}
RECREATE = "Recreate the environment: `./launch --native build --no-cache`"
UNPIN = "Remove what requires another version from pyproject.toml."
# Remedies that differ from those in a container, by the ids of the causes.
REMEDIES = {
    "`./launch --native build`": """
        image-older-than-wheel requirement-not-installed requirement-out-of-range packages-conflict
    """,
    RECREATE: """
        torch-not-installed torch-import-crashes torch-import-hangs torch-library-missing torch-broken cpu-torch
        cpu-torch-differs torch-other-build torch-other-version torch-cuda-not-needed
        torch-other-cuda cpu-computing-fails cpu-results-wrong triton-mismatch no-such-user torch-compile-fails
        cudnn-not-found kernel-crashed python-other-version jupyter-kernel package-damaged package-import-broken
        package-import-crashes cache-owned-by-other tracker-fails tracker-writes-nothing
    """,
    "Uninstall {package}, or let uv find versions that fit together: `./launch --native add {package}`": """
        packages-conflict-beside
    """,
    "Add the package that has it, often of the same name: `./launch --native add {module}`": "import-not-installed",
    "Use a release of {package} that supports this GPU, or remove it from pyproject.toml. "
    + RECREATE: "package-broken-on-gpu",
    f"{UNPIN} {RECREATE}": "protected-changed torch-packages-mixed",
    "Check this machine with `./launch doctor`": """
        memlock-limit stack-limit-low shared-memory-small shared-memory loader-fails network-drive gpu-not-given
        driver-library-not-given gpu-not-started cuda-does-not-start gpu-computing-fails libcuda-not-listed gpu-hangs
        memory-limit-ineffective memory-not-released os-refused-cuda loader-results-wrong
    """,
    "`./launch update --answers`, and add this GPU to `also_on`": "no-kernel card-not-a-target only-ptx",
    "`./launch update`, for a base whose Triton supports it": "ptxas-too-old",
    "`./launch update`": "compiled-results-wrong",
    "Install the driver that `./launch doctor` names": "driver-too-old cuda-compat-geforce",
    "Restart the program; if that does not help, restart this machine.": "driver-updated container-lost-gpu",
    "`nvidia-smi -q -d ECC`": """
        gpu-results-wrong matmul-inexact convolution-results-wrong attention-results-wrong half-precision-fails
        resumed-run-differs loss-not-finite
    """,
    "`sudo nvidia-smi -c DEFAULT`": "gpu-exclusive gpu-mode-prohibited gpu-mode-exclusive",
    "`sudo systemctl start nvidia-fabricmanager`": "fabric-manager",
    "`ulimit -n 65536`": "open-files open-files-limit-low",
    "Raise the limit of processes with `ulimit -u`": "process-limit",
    "Start programs with `taskset --cpu-list {near}`": "cpus-far-from-gpu",
    "Free memory on this machine: `free -h`": "host-memory-full memory-low",
    "Free memory on this machine, or use fewer workers: `free -h`": "worker-killed",
    "Free space: `./launch clean`": "disk-full checkpoint-space-low temporary-space-low",
    "`sudo chown -R $USER` on it": "cache-owned-by-root",
    "Install g++ with this machine's package manager": "no-cpp-compiler",
    "Install Python's headers with this machine's package manager": "no-python-headers",
    "Install gcc with this machine's package manager": "no-compiler",
    "`jupyter kernelspec remove -f {name}`": "jupyter-other-python",
    "`ls -l {node}` shows their owner; on a Jetson, join its groups": "device-denied",
}
CAUSES = {
    "image-older-than-wheel": "The environment is older than vendor/: it has another version of gpukit.",
    "cpu-torch-differs": "The CPU environment has another version of torch than the GPU environment.",
    "cpu-python-differs": "The CPU environment has another version of Python than the GPU environment.",
    "requirement-not-installed": "{package} is not installed, and {file} requires it.",
    "gpu-not-given": "This machine has no GPU device.",
    "device-denied": "This user has no permission to open the GPU's device files.",
    "driver-library-not-given": "This machine has the GPU's device but not the driver's CUDA library.",
    "driver-updated": "The driver was updated, but this program or the kernel still uses the old version.",
    "container-lost-gpu": "This program has lost access to the GPU, or the driver failed.",
    "host-memory-full": "This machine ran out of memory, and the kernel killed the process.",
    "worker-killed": "A worker was killed; the kernel does this when this machine runs out of memory.",
    "process-limit": "The limit of processes is reached.",
    "cpus-far-from-gpu": "This program runs on CPUs of another socket than the GPU's: copies to the GPU are slower.",
    "cpu-quota-small": "torch starts one thread per CPU, but the CPU quota is much smaller.",
    "stack-limit-low": "The stack is smaller than the project asks for: deep recursion in native code crashes.",
}
WORDING = {id: {"remedy": remedy} for remedy, named in REMEDIES.items() for id in named.split()}
for _id, _why in CAUSES.items():
    WORDING.setdefault(_id, {})["cause"] = _why


def is_native() -> bool:
    """Whether this Python is that of an environment that `./launch --native` created."""
    return guard.OWN.is_file()


def installed(stack: Stack) -> Stack:
    """What to expect: PyTorch's own wheels instead of the base."""
    facts = stack.native
    driver = facts["driver"] if stack.gpu else None
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    python = here if here in facts.get("pythons", []) else facts["python"]  # launch takes any that has wheels
    return replace(stack, torch=facts["torch"], cuda=facts["cuda"], python=python, driver=driver)


def adapted(checks: Iterable[Check]) -> list[Check]:
    """The checks for a native environment."""
    return [_adapted(each) for each in checks]


def _adapted(each: Check) -> Check:
    each = replace(each, native=True, causes=tuple(map(reworded_cause, each.causes)))
    if each.id in CONTAINER_CHECKS:
        return replace(each, judge=lambda probes, stack: skipped(CONTAINER_CHECKS[each.id]))
    judge = _venv if each.id == interpreter.venv.id else each.judge
    return replace(each, judge=lambda probes, stack: reworded(judge(probes, installed(stack))))


def _venv(probes: Any, stack: Stack) -> Finding:
    """The environment itself is one; editors would still use another one in the workspace."""
    return (
        interpreter.WORKSPACE_VENV(probes.workspace_venv, "no .venv")
        if probes.workspace_venv
        else passed(probes.prefixes[0])
    )


def reworded(finding: Finding) -> Finding:
    """A finding with the sentences that its cause has outside of a container."""
    sentences = WORDING.get(finding.cause_id, {})
    known = {name: text for name, text in sentences.items() if set(re.findall(r"{(\w+)}", text)) <= {*finding.names}}
    return replace(finding, **{name: text.format(**finding.names) for name, text in known.items()})


def reworded_cause(cause: Any) -> Any:
    """A cause, or a cause found in an error text, with the remedy that it has outside of a container."""
    id, filled = (cause.id, False) if isinstance(cause, Cause) else (cause.cause.id, True)
    remedy = WORDING.get(id, {}).get("remedy", "")
    return replace(cause, remedy=remedy) if remedy and not (filled and "{" in remedy) else cause
