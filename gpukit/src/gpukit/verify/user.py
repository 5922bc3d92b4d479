"""The user of the container, the owner of the files it creates, and its credentials."""

from __future__ import annotations

from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import Cause, Finding, passed
from gpukit.project.stack import Stack
from gpukit.verify.remedies import REBUILD, START

IS_ROOT = Cause(
    "runs-as-root",
    "You are root in this container: files created here belong to root on the host.",
    START,
    error_texts=("Permission denied",),
)
OTHER_UID = Cause(
    "user-other-uid",
    "Your uid differs from that of the workspace's owner: files created here belong to another user on the host.",
    START,
    error_texts=("detected dubious ownership in repository",),
)
OWNER_MAPPED = Cause(
    "files-mapped",
    "Files in the workspace are created with another owner: the engine or the file server maps users.",
    "Check how the folder is shared: root_squash of NFS, rootless Docker, or file sharing of Docker Desktop",
)
NO_USER_NAME = Cause(
    "no-such-user",
    "This uid has no user name (no entry in /etc/passwd), which torch.compile, ssh, and git require.",
    REBUILD,
    error_texts=("getpwuid(): uid not found", "No user exists for uid", "I have no name!"),
)


@check("user", "User", causes=(IS_ROOT, OTHER_UID, NO_USER_NAME, OWNER_MAPPED))
def user(probes: Any, stack: Stack) -> Finding:
    """The container's user owns the workspace, so that files created here belong to the same user on the host."""
    me = probes.user
    seen = f"{me.name or 'no name'} (uid {me.uid})"
    expected = f"{'root' if me.owner == 0 else stack.user} (uid {me.owner}), the owner of {me.workspace}"
    if me.uid != me.owner:
        return (IS_ROOT if me.uid == 0 else OTHER_UID)(seen, expected)
    if me.name is None:
        return NO_USER_NAME(seen, expected)
    if me.written not in (None, me.uid):
        return OWNER_MAPPED(f"{seen} creates files of uid {me.written}", expected)
    return passed(f"{seen}, the owner of {me.workspace}")


@check("credentials", "Credentials")
def credentials(probes: Any, stack: Stack) -> Finding:
    """The names of those that are set. Values are never printed, and none is required."""
    there, missing = probes.credentials
    return passed(f"set: {', '.join(there) or 'none'}; not set: {', '.join(missing) or 'none'}")
