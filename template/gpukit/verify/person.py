"""Who I am in here, and whose the files are that I make."""

from __future__ import annotations

from typing import Any

from gpukit.checks import check
from gpukit.finding import Finding, failed, passed
from gpukit.stack import Stack
from gpukit.verify.remedies import REBUILD, START


@check("user", "User")
def user(saw: Any, stack: Stack) -> Finding:
    """What is written in the workspace must belong to the person who owns it on the host."""
    me = saw.person
    seen = f"{me.name or 'no name'} (uid {me.uid})"
    expected = f"{'root' if me.owner == 0 else stack.user} (uid {me.owner}), who owns {me.workspace}"
    if me.uid != me.owner:
        whose = "root's" if me.uid == 0 else "somebody else's"
        return failed(seen, expected, cause=f"Files made in here would be {whose} on the host.", remedy=START)
    if me.name is None:
        return failed(
            seen,
            expected,
            cause="This uid has no entry in passwd: torch.compile, ssh and git ask for its name.",
            remedy=REBUILD,
        )
    return passed(f"{seen}, who owns {me.workspace}")
