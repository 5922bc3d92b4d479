"""`gpukit vendor`: the wheel in a project's vendor/ (or .gpukit/, if there is one), from which ./launch runs."""

from __future__ import annotations

import re
import subprocess
import tempfile
import zipfile
from pathlib import Path

from gpukit.wheel import writer
from gpukit.wheel.writer import Members


class VendorError(Exception):
    """The wheel cannot be written or compared; the message is one sentence for the user."""


def place(project: Path) -> Path:
    """The folder of the wheel."""
    own = project / ".gpukit"
    return own if own.is_dir() else project / "vendor"


def wheels(project: Path) -> list[Path]:
    """All gpukit wheels that ./launch sees; one is right."""
    return sorted(found for name in ("vendor", ".gpukit") for found in (project / name).glob("gpukit-*.whl"))


def put(members: Members, project: Path) -> Path:
    """Write the wheel to its folder in the project, remove other gpukit wheels, and return its path.

    Raises:
        OSError: it cannot be written.
    """
    wheel = writer.write(members, place(project))
    for other in wheels(project):
        if other != wheel:
            other.unlink()
    return wheel


def vendor(project: Path | None, source: str = "", check: bool = False) -> int:
    """The command. Returns 0, or 1 if `check` found a difference."""
    if project is None:
        raise VendorError(
            "this is not a generated project: no folder from here upward has stack.json and .devcontainer/"
        )
    if check:
        return compare(project, source)
    try:
        members = from_folder(Path(source)) if source else writer.running()
        if "exactrun/__init__.py" not in members:
            raise VendorError(
                "gpukit is installed without exactrun, which a project's wheel contains: run "
                "`uvx --with exactrun gpukit vendor`, or give the template's folder with --from PATH/gpukit"
            )
        wheel = put(members, project)
    except OSError as error:
        raise VendorError(f"{error.filename} cannot be read or written ({error.strerror})") from None
    print(wheel.relative_to(project))
    return 0


def compare(project: Path, source: str) -> int:
    """Compare the project's wheel with one built from its source (default: the template's commit in the answers)."""
    found = wheels(project)
    if len(found) != 1:
        where = f"{place(project).name}/"
        raise VendorError(f"{where} has {len(found) or 'no'} gpukit wheels, and one is expected: run `gpukit vendor`")
    wheel = found[0]
    try:
        here = unversioned(writer.read(wheel))
    except (OSError, zipfile.BadZipFile) as error:
        raise VendorError(f"{wheel.name} is damaged ({error}): run `gpukit vendor`") from None
    with tempfile.TemporaryDirectory() as folder:
        where = source or checkout(project, Path(folder))
        rebuilt = unversioned(from_folder(Path(source) if source else Path(folder, "gpukit")))
    names = sorted(name for name in {*here, *rebuilt} if here.get(name) != rebuilt.get(name))
    if not names:
        print(f"{wheel.name} matches the source at {where}.")
        return 0
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    print(f"{wheel.name} differs from the source at {where}: {', '.join(names[:5])}{more}.")
    return 1


def unversioned(members: Members) -> Members:
    """Remove the version from the name of the dist-info folder."""
    return {re.sub(r"^gpukit-[^/]+(?=\.dist-info/)", "gpukit", name): content for name, content in members.items()}


def from_folder(folder: Path) -> Members:
    if not (folder / "src/gpukit/wheel").is_dir():
        raise VendorError(f"{folder} is not gpukit's source folder: in the template it is gpukit/")
    return writer.for_project(folder)


def checkout(project: Path, folder: Path) -> str:
    """Check out the template's commit that the project's answers name; return its address and commit."""
    try:
        own = project / ".gpukit/answers.yml"
        answers = (own if own.is_file() else project / ".copier-answers.yml").read_text(encoding="utf-8")
        facts = dict(re.findall(r"^_(src_path|commit): ['\"]?(.*?)['\"]?$", answers, re.MULTILINE))
        address = facts["src_path"]
        commit = facts["commit"].rpartition("-g")[2]
    except (OSError, KeyError):
        raise VendorError(".copier-answers.yml names no template and commit: give its folder with --from") from None
    address = git_address(address)
    for arguments in (
        ["clone", "-q", "--no-checkout", address, str(folder)],
        ["-C", str(folder), "checkout", "-q", commit],
    ):
        try:
            done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
        except OSError:
            raise VendorError("git is not installed: give the template's folder with --from PATH/gpukit") from None
        if done.returncode:
            raise VendorError(
                f"{address} at {commit} cannot be fetched: {(done.stderr.strip() or 'git failed').splitlines()[-1]}"
            )
    return f"{address}@{commit}"


def git_address(address: str) -> str:
    """A template's address as git takes it: Copier also knows `gh:`, `gl:`, and `git+https:`."""
    for short, host in (("gh:", "https://github.com/"), ("gl:", "https://gitlab.com/"), ("git+", "")):
        if address.startswith(short):
            return host + address[len(short) :].lstrip("/" if host else "")
    return address
