"""After editing catalogue/*.yml, knowledge/*.yml, copier.yml, or template/: check them, regenerate what follows, and
list what changed.

uv run --group test python catalogue/refresh.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "tests/test_examples.py"
STEPS = [
    ("the catalogue against its schemas", ["catalogue/check.py"], {}),
    ("knowledge/, and what gpukit carries of it", ["catalogue/knowledge.py"], {}),
    ("docs/troubleshooting.md", ["docs/write.py"], {}),
    ("catalogue/catalogue.json", ["catalogue/combine.py"], {}),
    ("docs/hardware.md", ["catalogue/document.py"], {}),
    ("docs/questions.md", ["catalogue/questions.py"], {}),
    ("gpukit/src/gpukit/data/", ["catalogue/data.py"], {}),
    *([("examples/", ["-m", "pytest", "-q", str(EXAMPLES)], {"UPDATE_EXAMPLES": "1"})] if EXAMPLES.exists() else []),
    ("gpukit/src/gpukit/data/, what it has of the examples", ["catalogue/data.py"], {}),
    ("the catalogue against its rules", ["-m", "pytest", "-q", "tests/test_catalogue.py"], {}),
]


def main() -> int:
    for what, command, environment in STEPS:
        print(f"-- {what}", flush=True)
        code = subprocess.run([sys.executable, *command], cwd=ROOT, env={**os.environ, **environment}).returncode
        if code:
            print(f"{what}: this step ended with exit status {code}; what to correct stands above.", file=sys.stderr)
            return 1
    moved = ["git", "status", "--short", "catalogue", "knowledge", "docs", "examples", "gpukit/src/gpukit/data"]
    print("-- to commit", flush=True)
    return subprocess.run(moved, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
