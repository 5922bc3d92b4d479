"""Build gpukit's wheel reproducibly: the same contents have the same name and the same bytes on any machine.

Used by the template's hook, by `gpukit vendor`, and as the PEP 517 backend of gpukit's own pyproject.toml. A project's
wheel also contains exactrun, which on the package index is a release of its own.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import tempfile
import zipfile
from pathlib import Path

PACKAGE = Path(__file__).parents[1]  # gpukit itself: in a source tree, in site-packages, or in a wheel
SUFFIXES = (".py", ".json", ".html")
METADATA_FILES = ("METADATA", "WHEEL", "entry_points.txt")  # in dist-info; installers write the other files
WHEEL = "Wheel-Version: 1.0\nGenerator: gpukit\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
Members = dict[str, bytes]  # a wheel's files by name, without RECORD


def running() -> Members:
    """The files of the running gpukit: from a wheel, a source tree, or site-packages."""
    archive = PACKAGE.parent
    if zipfile.is_zipfile(archive):
        return read(archive)
    if (archive.parent / "pyproject.toml").is_file() and archive.name == "src":
        return for_project(archive.parent)
    import importlib.metadata  # imported here because it is slow

    found = importlib.metadata.distributions(name="gpukit", path=[str(archive)])
    dist_info = next(Path(str(each.locate_file(f"gpukit-{each.version}.dist-info"))) for each in found)
    kept = [dist_info / name for name in METADATA_FILES] + sorted(dist_info.glob("licenses/*"))
    files = {path.relative_to(dist_info).as_posix(): path.read_bytes() for path in kept}
    version = re.search(rb"^Version: ([^+\n]+).*$", files["METADATA"], re.MULTILINE)
    files["METADATA"] = files["METADATA"].replace(version[0], b"Version: {}", 1)
    return _versioned(_package(PACKAGE) | _package(archive / "exactrun"), files, version[1].decode(), "")


def read(wheel: Path) -> Members:
    """The files in a wheel.

    Raises:
        OSError, zipfile.BadZipFile: it cannot be read, or is damaged.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
    except OSError:
        raise
    except Exception as error:  # which one depends on which bytes are wrong
        raise zipfile.BadZipFile(str(error)) from error
    return {name: content for name, content in files.items() if not name.endswith(".dist-info/RECORD")}


def for_project(folder: Path) -> Members:
    """The files of a project's wheel: those of `from_source`, and exactrun from the folder of that name beside it.

    Raises:
        OSError: a file is missing or cannot be read.
    """
    return from_source(folder, _package(folder.parent / "exactrun/src/exactrun"))


def from_source(folder: Path, beside: Members | None = None) -> Members:
    """The files of the wheel built from the source tree in `folder`, which contains pyproject.toml and src/gpukit/.

    `beside`: files of other packages. Raises:
        OSError: a file is missing or cannot be read.
    """
    text = (folder / "pyproject.toml").read_text(encoding="utf-8")
    facts = dict(re.findall(r'^([\w-]+) = "(.*?)"', text, re.MULTILINE))  # tomllib needs Python 3.11
    header = ["Metadata-Version: 2.4", "Name: gpukit", "Version: {}", f"Summary: {facts['description']}"]
    header += [f"Keywords: {','.join(_strings(text, 'keywords'))}"]
    header += [f"License-Expression: {facts['license']}", "License-File: LICENSE"]
    header += [f"Classifier: {classifier}" for classifier in _strings(text, "classifiers")]
    header += [f"Requires-Python: {facts['requires-python']}"]
    urls = re.search(r"^\[project\.urls\]\n(.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    header += [f"Project-URL: {name}, {url}" for name, url in re.findall(r'(\w+) = "(.*)"', urls[1] if urls else "")]
    header += ["Description-Content-Type: text/markdown"]
    metadata = "\n".join([*header, "", (folder / facts["readme"]).read_text(encoding="utf-8")])
    files = {
        "METADATA": metadata.encode(),
        "WHEEL": WHEEL.encode(),
        "entry_points.txt": f"[console_scripts]\ngpukit = {facts['gpukit']}\n".encode(),
        "licenses/LICENSE": (folder / "LICENSE").read_bytes(),
    }
    return _versioned(_package(folder / "src/gpukit") | (beside or {}), files, facts["version"], facts["released"])


def _versioned(package: Members, files: Members, version: str, released: str) -> Members:
    """The members of a wheel of these packages and files of its dist-info, in whose METADATA the version is missing.

    Contents other than those that were `released` as this version get their hash as a local version.
    """
    digest = hashlib.sha256()
    for name, content in sorted({**package, **files}.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    contents = f"h{digest.hexdigest()[:12]}"
    version += f"+{contents}" if contents != released else ""
    files = files | {"METADATA": files["METADATA"].replace(b"Version: {}", f"Version: {version}".encode(), 1)}
    return {**package, **{f"gpukit-{version}.dist-info/{name}": content for name, content in files.items()}}


def version(members: Members) -> str:
    return next(name for name in members if name.endswith(".dist-info/METADATA")).split("-")[1][: -len(".dist")]


def file_name(members: Members) -> str:
    return f"gpukit-{version(members)}-py3-none-any.whl"


def write(members: Members, folder: Path) -> Path:
    """Write the wheel to `folder` atomically, and return its path.

    Raises:
        OSError: it cannot be written.
    """
    wheel = folder / file_name(members)
    with contextlib.suppress(OSError, zipfile.BadZipFile):
        if read(wheel) == members:
            return wheel
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=".gpukit-")
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in sorted({**members, **_record(members)}.items()):
                entry = zipfile.ZipInfo(name)  # dated 1980-01-01
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.create_system = 3
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, content)
        draft.chmod(0o644)
        draft.replace(wheel)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    return wheel


def _strings(text: str, name: str) -> list[str]:
    """A list of strings in pyproject.toml."""
    found = re.search(rf"^{name} = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)
    return re.findall(r'"(.*?)"', found[1]) if found else []


def _package(folder: Path) -> Members:
    files = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES)
    return {f"{folder.name}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in files}


def _record(members: Members) -> Members:
    record = f"gpukit-{version(members)}.dist-info/RECORD"
    rows = []
    for name, content in sorted(members.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(content)}\n")
    return {record: "".join([*rows, f"{record},,\n"]).encode()}
