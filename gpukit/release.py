"""Prepare and build a release of gpukit and exactrun.

    python gpukit/release.py                 record the hash of gpukit's contents, so that the wheel is named by version
    python gpukit/release.py v0.2.0 dist     build the wheels of that tag twice, compare, and write them to dist/

Run the first one right before the tag: it changes `released` in gpukit/pyproject.toml. The release workflow runs the
second one, which needs git and uv.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "src"))

from gpukit.wheel.writer import from_source, version  # noqa: E402


def main() -> None:
    if len(sys.argv) == 3:
        print(build(sys.argv[1], Path(sys.argv[2])))
        return
    path = HERE / "pyproject.toml"
    text = path.read_text(encoding="utf-8")
    contents = version(from_source(HERE)).partition("+")[2]
    if contents:
        path.write_text(re.sub(r'^released = ".*?"', f'released = "{contents}"', text, flags=re.MULTILINE), "utf-8")
    print(f"gpukit {version(from_source(HERE))}")


def build(tag: str, folder: Path) -> str:
    """Write the wheels and their SHA256SUMS to a folder, and return the lines in it."""
    named = version(from_source(HERE))
    if tag != f"v{named}":
        sys.exit(f"the tag is {tag} and gpukit is {named}: run `python gpukit/release.py`, commit, and tag that commit")
    with tempfile.TemporaryDirectory() as scratch:
        # The second build uses a clean checkout in another folder, with other permissions and another date.
        archive = subprocess.run(
            ["git", "archive", "HEAD", "gpukit", "exactrun"], cwd=HERE.parent, check=True, capture_output=True
        )
        subprocess.run(["tar", "--extract", "--touch"], input=archive.stdout, cwd=scratch, check=True, umask=0o077)
        lines = []
        for source in (HERE, HERE.parent / "exactrun"):
            first = wheel(source, folder)
            second = wheel(Path(scratch, source.name), Path(scratch, "dist"), TZ="Asia/Kolkata")
            if first.read_bytes() != second.read_bytes():
                first.unlink()
                sys.exit(f"two builds of one commit differ: is there a file in {source.name}/ that git does not have?")
            lines.append(f"{hashlib.sha256(first.read_bytes()).hexdigest()}  {first.name}")
    text = "\n".join(lines)
    (folder / "SHA256SUMS").write_text(text + "\n", encoding="utf-8")
    return text


def wheel(source: Path, folder: Path, **environment: str) -> Path:
    """The wheel, built by the package's own build backend from its source distribution, which is not kept."""
    command = ["uv", "build", "--quiet", f"--out-dir={folder.resolve()}", str(source)]
    subprocess.run(command, check=True, env={**os.environ, **environment})
    next(folder.glob(f"{source.name}-*.tar.gz")).unlink()
    return next(folder.glob(f"{source.name}-*.whl"))


if __name__ == "__main__":
    main()
