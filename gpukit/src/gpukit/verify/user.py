"""Who I am in here, whose the files are that I make, and what I may open elsewhere."""

from __future__ import annotations

from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import Cause, Finding, passed
from gpukit.project.stack import Stack
from gpukit.verify.remedies import REBUILD, START

ROOTS = Cause(
    "You are root in here, and files made in here would be root's on the host.", START, says=("Permission denied",)
)
SOMEBODY_ELSES = Cause(
    "Files made in here would be somebody else's on the host.",
    START,
    says=("detected dubious ownership in repository",),
)
MAPPED = Cause(
    "Files written in the workspace get another owner than you: the engine or the file server maps users.",
    "Look at how the folder is shared: NFS's root_squash, rootless Docker, or Docker Desktop's file sharing",
)
NAMELESS = Cause(
    "This uid has no entry in passwd: torch.compile, ssh and git ask for its name.",
    REBUILD,
    says=("getpwuid(): uid not found", "No user exists for uid", "I have no name!"),
)


@check("user", "User", causes=(ROOTS, SOMEBODY_ELSES, NAMELESS, MAPPED))
def user(saw: Any, stack: Stack) -> Finding:
    """What is written in the workspace must belong to the person who owns it on the host."""
    me = saw.user
    seen = f"{me.name or 'no name'} (uid {me.uid})"
    expected = f"{'root' if me.owner == 0 else stack.user} (uid {me.owner}), who owns {me.workspace}"
    if me.uid != me.owner:
        return (ROOTS if me.uid == 0 else SOMEBODY_ELSES)(seen, expected)
    if me.name is None:
        return NAMELESS(seen, expected)
    if me.written not in (None, me.uid):
        return MAPPED(f"{seen} writes files of uid {me.written}", expected)
    return passed(f"{seen}, who owns {me.workspace}")


@check("credentials", "Credentials")
def credentials(saw: Any, stack: Stack) -> Finding:
    """Which are set, by name only: a value is never read out, and none has to be there."""
    there, missing = saw.credentials
    return passed(f"set: {', '.join(there) or 'none'}; not set: {', '.join(missing) or 'none'}")
