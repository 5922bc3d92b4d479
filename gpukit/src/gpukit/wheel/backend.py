"""gpukit's PEP 517 backend: `uv build`, `uvx --from ./gpukit gpukit`, `pip install git+URL#subdirectory=gpukit`.

From a clone, the wheel contains exactrun, as a project's wheel does, so that `gpukit vendor` can write that one. From
the source distribution, as `uv build` does it for a release, it contains only gpukit.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

from gpukit.wheel.writer import for_project, from_source, version, write


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    return write(for_project(Path.cwd()), Path(wheel_directory)).name


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    members = from_source(Path.cwd())
    name = f"gpukit-{version(members)}"
    files = {f"src/{path}": content for path, content in members.items() if path.startswith("gpukit/")}
    files.update({path: Path(path).read_bytes() for path in ("LICENSE", "README.md", "pyproject.toml")})
    files["PKG-INFO"] = members[f"{name}.dist-info/METADATA"]
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, data in sorted(files.items()):
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    with Path(sdist_directory, f"{name}.tar.gz").open("wb") as file:
        file.write(gzip.compress(content.getvalue(), mtime=0))
    return f"{name}.tar.gz"
