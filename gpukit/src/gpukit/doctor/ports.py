"""The ports of this machine that the project's servers use."""

from __future__ import annotations

from typing import Any

from gpukit.doctor.engine import remote
from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem, skipped
from gpukit.project.stack import Stack


@check("ports", "Ports", needs=("engine",), causes=("port-of-program",), project=True)
def ports(probes: Any, stack: Stack) -> Finding:
    """The project's servers have fixed ports; JupyterLab uses the next free one."""
    if remote(probes.endpoint):
        return skipped("engine-elsewhere")
    if not probes.ports:
        return passed("none is needed")
    for port in probes.ports:
        if port.taken and port.variable:
            seen, free = f"{port.number} is taken", port.number + 1
            return problem(
                "port-of-program", seen, f"{port.number} free", server=port.server, variable=port.variable, free=free
            )
    uses = []
    for port in probes.ports:
        uses.append(f"{port.number} ({port.server}) " + ("taken, so it uses another" if port.taken else "free"))
    return passed(", ".join(uses))
