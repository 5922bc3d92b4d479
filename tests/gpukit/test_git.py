from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpukit.host.git import sources


@pytest.mark.parametrize("repository", [True, False])
@pytest.mark.parametrize("below", ["", "part"])
def test_sources_are_what_git_would_commit(tmp_path: Path, repository: bool, below: str) -> None:
    root = tmp_path / "with a blank"
    folder = root / below
    for path in ("tracked.py", "gone.py", "new.py", "two\nlines é.py", "data/a.bin", "deep/.env", ".env", "deep/b.py"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("1\n", encoding="utf-8")
    (folder / ".gitignore").write_text("/data/\n", encoding="utf-8")
    if repository:
        subprocess.run(["git", "init", "-q", root], check=True)
        subprocess.run(["git", "add", "tracked.py", "gone.py"], cwd=folder, check=True)
    (folder / "gone.py").unlink()

    assert sources(folder) == sorted([".gitignore", "tracked.py", "new.py", "two\nlines é.py", "deep/b.py"])
