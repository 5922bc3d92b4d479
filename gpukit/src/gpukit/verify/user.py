"""The user of the container, the owner of the files it creates, and its credentials."""

from __future__ import annotations

from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem
from gpukit.project.stack import Stack


@check("user", "User", causes=("runs-as-root", "user-other-uid", "no-such-user", "files-mapped"))
def user(probes: Any, stack: Stack) -> Finding:
    """The container's user owns the workspace, so that files created here belong to the same user on the host."""
    me = probes.user
    seen = f"{me.name or 'no name'} (uid {me.uid})"
    expected = f"{'root' if me.owner == 0 else stack.user} (uid {me.owner}), the owner of {me.workspace}"
    if me.uid != me.owner:
        return problem("runs-as-root" if me.uid == 0 else "user-other-uid", seen, expected)
    if me.name is None:
        return problem("no-such-user", seen, expected)
    if me.written not in (None, me.uid):
        return problem("files-mapped", f"{seen} creates files of uid {me.written}", expected)
    return passed(f"{seen}, the owner of {me.workspace}")


@check("credentials", "Credentials")
def credentials(probes: Any, stack: Stack) -> Finding:
    """The names of those that are set. Values are never printed, and none is required."""
    there, missing = probes.credentials
    return passed(f"set: {', '.join(there) or 'none'}; not set: {', '.join(missing) or 'none'}")
