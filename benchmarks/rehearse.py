"""What a rehearsal finds: python benchmarks/rehearse.py

Scripts that forget to keep something (tests/train/omissions.py) must be reported, with the variable named; the loops
that resume exactly (tests/train/loops.py) must not. CPU time is of the whole command, with the import of PyTorch.
Requires benchmarks/requirements.txt.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from harness import ROOT, Benchmark, say

from tests.train.loops import LOOPS
from tests.train.omissions import OMISSIONS

LOOP = """
import sys
from pathlib import Path
from tests.train.loops import LOOPS

if __name__ == "__main__":
    LOOPS[sys.argv[1]](Path("outputs/x"), lambda *values: None)
"""


def rehearse(folder: Path, script: str, *arguments: str) -> tuple[int, str, float]:
    """The exit code, what was printed, and the CPU time in seconds."""
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(script, encoding="utf-8")
    words = [sys.executable, "-m", "exactrun", "rehearse", "--", "train.py", *arguments]
    path = os.pathsep.join([str(ROOT), str(ROOT / "exactrun/src"), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    before = os.times()
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return done.returncode, done.stdout + done.stderr, used


def main() -> None:
    with Benchmark("Rehearsals", __doc__, rounds=1, packages=("torch", "numpy")) as bench:
        bench.columns = ["script", "exit code", "as it should be", "CPU time (s)"]
        for number, (name, one) in enumerate(OMISSIONS.items()):
            code, text, used = rehearse(bench.spare / f"omission-{number}", one.script())
            right = code == 1 and any(f"`{variable}" in text for variable in one.name)
            bench.rows.append([f"forgets {name}", code, "yes" if right else "no", round(used, 1)])
            say(f"{name}: {code}, {'right' if right else text}")
        for name in LOOPS:
            code, text, used = rehearse(bench.spare / name, LOOP, name)
            bench.rows.append([f"exact: {name}", code, "no" if code else "yes", round(used, 1)])
            say(f"{name}: {code}, {text}")
        right = [row[2] for row in bench.rows].count("yes")
        count = len(bench.rows)
        bench.result(f"of {count} scripts, those rehearsed as they should be", right, "scripts", at_least=count)
        bench.result("most CPU time", max(row[3] for row in bench.rows), "s", at_most=10.0)


if __name__ == "__main__":
    main()
