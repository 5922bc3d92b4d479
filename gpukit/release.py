"""Prepare and build a release of gpukit.

    python gpukit/release.py                 record the hash of gpukit's contents, so that the wheel is named by version
    python gpukit/release.py v0.2.0 dist     build the wheel of that tag twice, compare, and write it to dist/

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
    """Write the wheel and its SHA256SUMS to a folder, and return the line in it."""
    named = version(from_source(HERE))
    if tag != f"v{named}":
        sys.exit(f"the tag is {tag} and gpukit is {named}: run `python gpukit/release.py`, commit, and tag that commit")
    with tempfile.TemporaryDirectory() as scratch:
        # The second build uses a clean checkout in another folder, with other permissions and another date.
        archive = subprocess.run(["git", "archive", "HEAD", "gpukit"], cwd=HERE.parent, check=True, capture_output=True)
        subprocess.run(["tar", "--extract", "--touch"], input=archive.stdout, cwd=scratch, check=True, umask=0o077)
        wheels = [wheel(HERE, folder), wheel(Path(scratch, "gpukit"), Path(scratch, "dist"), TZ="Asia/Kolkata")]
        contents = [each.read_bytes() for each in wheels]
    if contents[0] != contents[1]:
        wheels[0].unlink()
        sys.exit("two builds of the same commit differ: is there a file in gpukit/ that git does not have?")
    line = f"{hashlib.sha256(contents[0]).hexdigest()}  {wheels[0].name}"
    (folder / "SHA256SUMS").write_text(line + "\n", encoding="utf-8")
    return line


def wheel(source: Path, folder: Path, **environment: str) -> Path:
    """The wheel, built by the package's own build backend."""
    command = ["uv", "build", "--quiet", "--wheel", "--offline", f"--out-dir={folder.resolve()}", str(source)]
    subprocess.run(command, check=True, env={**os.environ, **environment})
    return next(folder.glob("gpukit-*.whl"))


if __name__ == "__main__":
    main()
