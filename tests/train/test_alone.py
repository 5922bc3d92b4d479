"""exactrun by itself: its README's script, without gpukit, and where the system lacks what only Linux has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = re.findall(r"```python\n(.*?)```", (ROOT / "exactrun/README.md").read_text(encoding="utf-8"), re.DOTALL)[0]
ALONE = "import sys\nsys.modules['gpukit'] = None\n"
# As on macOS, where pathlib finds no /proc either.
MACOS = """
import os, pathlib, signal
del os.posix_fadvise, signal.sigwaitinfo, signal.sigtimedwait
read = pathlib.Path.open
def opened(path, *arguments, **options):
    if str(path).startswith(("/proc", "/sys")):
        raise FileNotFoundError(str(path))
    return read(path, *arguments, **options)
pathlib.Path.open = opened
"""
SHORT = SCRIPT.replace("shuffle=True", "shuffle=True, num_workers=1").replace("range(5)", "range(2)")


def test_the_script_in_the_readme_resumes(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/exactrun/src:{os.environ.get('PYTHONPATH', '')}"}
    killed = SHORT.replace('Run("outputs/first"', 'Run("outputs/killed", save_steps=3')
    kill = killed.replace("run.step(", "os.kill(os.getpid(), 9) if run.completed == 40 else run.step(")

    def run(code: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", ALONE + MACOS + code]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)

    whole = run(SHORT)
    assert whole.returncode == 0, whole.stderr
    assert run(kill).returncode == -9
    resumed = run(killed)
    assert "Resuming" in resumed.stderr and resumed.stdout == whole.stdout != ""
