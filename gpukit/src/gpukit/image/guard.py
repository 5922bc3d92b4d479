"""Protect the base's packages: record their versions when the image is built, report those that changed since.

The file that `record` writes is the constraint of pip and uv from then on. Beside it, build-constraints.txt has the
versions of PyTorch's packages for isolated builds, and conflicts.txt lists the conflicts between the base's own
packages, which verify ignores. This module imports nothing of ours: the Dockerfile runs it
before gpukit is installed.

    python guard.py record --stack stack.json --to /etc/gpukit/protected.txt
    python guard.py check --against /etc/gpukit/protected.txt
    python guard.py share
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

OWN = Path(sys.prefix, "protected.txt")  # in an environment that `./launch --native` created
RECORD = OWN if OWN.is_file() else Path("/etc/gpukit/protected.txt")
TORCH_INDEX = RECORD.with_name("torch-index.txt")  # exists if torch is not from PyTorch's index
BUILD = "build-constraints.txt"
TORCH = ("torch", "torchvision", "torchaudio")
CONFLICTS = RECORD.with_name("conflicts.txt")  # exists if the base's packages conflict with each other
REMEDY = "remove the requirement of another version from the project, then run `./launch build`"
REMEDY_OVERLAID = "use `./launch --native add PACKAGE` instead"

# PEP 440. A version outside it makes the whole constraint file unreadable for pip and uv.
VALID = re.compile(
    r"v?(\d+!)?\d+(\.\d+)*([-_.]?(a|b|c|rc|alpha|beta|pre|preview)[-_.]?\d*)?(-\d+|[-_.]?(post|rev|r)[-_.]?\d*)?"
    r"([-_.]?dev[-_.]?\d*)?(\+[a-z0-9]+([-_.][a-z0-9]+)*)?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Change:
    name: str
    was: str
    now: str | None

    def __str__(self) -> str:
        return f"{self.name} is {self.now or 'gone'} here and was {self.was} in the base"


def normalised(name: str) -> str:
    """The name as package indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(patterns: list[str] | tuple[str, ...], path: list[str] | None = None) -> dict[str, str]:
    """Version of each installed distribution whose name matches a pattern.

    If two folders of sys.path have the same name, the first counts: Python imports that one.
    """
    patterns = [normalised(pattern) for pattern in patterns]
    found: dict[str, str] = {}
    for distribution in metadata.distributions(path=sys.path if path is None else path):
        folder = getattr(distribution, "_path", None)
        if folder is not None and Path(str(folder)).name.startswith("~"):
            continue  # left by an interrupted pip
        name = distribution.metadata["Name"]
        version = distribution.metadata["Version"]
        if not name or not version:
            continue
        name = normalised(name)
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            found.setdefault(name, version)
    return dict(sorted(found.items()))


def write(found: dict[str, str], to: Path) -> None:
    """Write the constraints: of installations to this file, of isolated builds beside it.

    A version that pip and uv cannot parse is a comment: checked, but no constraint. For builds, PyTorch's release
    counts: the package index, which builds are installed from, does not have its local versions such as +cu130.
    """
    to.parent.mkdir(parents=True, exist_ok=True)
    _write_lines({name: found[name].partition("+")[0] for name in TORCH if name in found}, to.with_name(BUILD))
    _write_lines(found, to)


def _write_lines(versions: dict[str, str], to: Path) -> None:
    lines = [f"{'' if VALID.fullmatch(version) else '# '}{name}=={version}\n" for name, version in versions.items()]
    draft = to.with_name(f".{to.name}.{os.getpid()}")
    draft.write_text("".join(lines), encoding="utf-8")
    draft.chmod(0o644)
    draft.replace(to)


def recorded(file: Path) -> dict[str, str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    matches = (re.fullmatch(r"(?:# )?([a-z0-9-]+)==(\S+)", line.strip()) for line in lines)
    return dict(match.groups() for match in matches if match)


def changed(was: dict[str, str], path: list[str] | None = None) -> list[Change]:
    """The recorded packages that have another version now, or are gone. Other new packages do not count."""
    now = installed(list(was), path)
    return [Change(name, version, now.get(name)) for name, version in was.items() if now.get(name) != version]


def conflicts() -> list[str] | None:
    """The lines of `uv pip check` about this Python's packages; None if uv is missing or fails."""
    own = Path.home() / ".local/bin/uv"  # where its installer puts it
    uv = os.environ.get("UV") or shutil.which("uv") or (str(own) if own.is_file() else None)
    if uv is None:
        return None
    command = [uv, "pip", "check", "--no-cache", "--no-config", "--offline", f"--python={sys.executable}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("The package `")]
    return lines if lines or done.returncode == 0 else None


def overlaid() -> None:
    """Exit if this Python finds other versions of the protected packages before those of a native environment.

    `uv run --with` and PYTHONPATH put them there. In that environment's site-packages, a .pth file
    beside a copy of this module calls this when Python starts.
    """
    environment = Path(__file__).parents[3]
    changes = [change for change in changed(recorded(environment / OWN.name)) if change.now]
    if changes:
        within = Path(sys.prefix) == environment
        remedy = "PYTHONPATH: unset it" if within else f"`uv run --with`: {REMEDY_OVERLAID}"
        print(f"{'; '.join(map(str, changes))}, because of {remedy}.", file=sys.stderr)
        sys.stderr.flush()
        os._exit(1)  # Python would report an exception and continue


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="guard", description="Protect the base's packages.")
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="record the versions of the protected packages")
    record.add_argument(
        "--stack", type=Path, default=Path(__file__).with_name("stack.json"), help="lists them in `protected`"
    )
    record.add_argument("--to", type=Path, default=RECORD, help=f"default: {RECORD}")
    check = commands.add_parser("check", help="report which of them changed; exit code 1 if any did")
    check.add_argument("--against", type=Path, default=RECORD, help=f"default: {RECORD}")
    commands.add_parser("share", help="let users add packages, but not replace the installed ones")
    options = parser.parse_args(argv)
    if options.command == "share":
        return _share()
    try:
        return _record(options.stack, options.to) if options.command == "record" else _check(options.against)
    except (OSError, ValueError) as error:
        print(f"guard: {error}", file=sys.stderr)
        return 2


def _record(stack: Path, to: Path) -> int:
    patterns = json.loads(stack.read_text(encoding="utf-8")).get("protected")
    if not isinstance(patterns, list):
        raise ValueError(f"{stack} has no list `protected`")
    found = installed(patterns)
    if patterns and not found:
        print(f"guard: none of {', '.join(patterns)} is installed: there is nothing to protect", file=sys.stderr)
        return 1
    write(found, to)
    beside = to.with_name(CONFLICTS.name)
    lines = conflicts()
    if lines:
        beside.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    else:
        beside.unlink(missing_ok=True)
    print(f"guard: {_count(found)} recorded in {to}")
    return 0


def _count(packages: dict[str, str]) -> str:
    return f"{len(packages)} protected package{'s' * (len(packages) != 1)}"


def _share() -> int:
    """Make the package folders sticky and world-writable: users can add files, and remove or rename only their own."""
    data = Path(sysconfig.get_path("data"))
    folders = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "scripts")]
    folders += [
        Path(top)
        for name in ("etc", "share")
        for top, _, _ in os.walk(data / name if data != Path("/usr") else data / "local" / name)
    ]
    for folder in folders:
        if folder.is_dir():
            folder.chmod(0o1777)
    return 0


def _check(against: Path) -> int:
    was = recorded(against)
    changes = changed(was)
    for change in changes:
        print(f"{change}: {REMEDY}", file=sys.stderr)
    if not changes:
        print(f"guard: {_count(was)} unchanged")
    return 1 if changes else 0


if __name__ == "__main__":
    sys.exit(main())
