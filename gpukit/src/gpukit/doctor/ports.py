"""The ports of this machine that the project's servers use."""

from __future__ import annotations

from typing import Any

from gpukit.doctor.engine import ENGINE_IS_REMOTE, remote
from gpukit.findings.checks import check
from gpukit.findings.finding import Cause, Finding, passed, skipped
from gpukit.project.stack import Stack

TAKEN = Cause(
    "port-of-program",
    "Another program on this machine uses the port that {server} needs, so {server} cannot start.",
    "Set `{variable}={free}` in .env to use another port.",
    ("port is already allocated", "address already in use"),
)


@check("ports", "Ports", needs=("engine",), causes=(TAKEN,), project=True)
def ports(probes: Any, stack: Stack) -> Finding:
    """The project's servers have fixed ports; JupyterLab uses the next free one."""
    if remote(probes.endpoint):
        return skipped(ENGINE_IS_REMOTE)
    if not probes.ports:
        return passed("none is needed")
    for port in probes.ports:
        if port.taken and port.variable:
            seen, free = f"{port.number} is taken", port.number + 1
            return TAKEN(seen, f"{port.number} free", server=port.server, variable=port.variable, free=free)
    uses = []
    for port in probes.ports:
        uses.append(f"{port.number} ({port.server}) " + ("taken, so it uses another" if port.taken else "free"))
    return passed(", ".join(uses))
