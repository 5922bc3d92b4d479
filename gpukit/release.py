"""Mark gpukit's present contents as those of its version, so that the wheel's name has no local part.

    python gpukit/release.py

Run it once per release, right before the tag. It changes `released` in gpukit/pyproject.toml.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "src"))

from gpukit.wheel.writer import from_source, version  # noqa: E402


def main() -> None:
    path = HERE / "pyproject.toml"
    text = path.read_text(encoding="utf-8")
    contents = version(from_source(HERE)).partition("+")[2]
    if contents:
        path.write_text(re.sub(r'^released = ".*?"', f'released = "{contents}"', text, flags=re.MULTILINE), "utf-8")
    print(f"gpukit {version(from_source(HERE))}")


if __name__ == "__main__":
    main()
