"""Read the kernels of wheels before they are installed, in the place where they will be: python -m gpukit.plan.examine

On standard input, JSON: `wheels`, with `line`, `package`, `arch`, and `capabilities` of each; and `cuda`. Prints a list
with `package`, `arch`, `lacks` (the capabilities that no library has code for), `seen`, and `unread` (why it is not
known) of each. Exit status 1: uv could not install one; its message is on stderr.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gpukit.host import uv
from gpukit.plan import prove
from gpukit.plan.index import MACHINES


def examined(wheel: dict[str, Any], folder: Path, cuda: str) -> dict[str, Any]:
    """What a wheel that is installed in a folder has for its targets."""
    found = {"package": wheel["package"], "arch": wheel["arch"], "lacks": [], "seen": "", "unread": ""}
    libraries = [path for path in sorted(folder.rglob("*.so*")) if prove.has_device_code(path)]
    tool = prove.cuobjdump(prove.triton_folder() or Path())
    if not libraries or tool is None:
        return {**found, "unread": "no cuobjdump here" if libraries else "no library with code for GPUs"}
    codes = {path.name: prove.read(tool, path) for path in prove.loaded(libraries, cuda)}
    judged = prove.judged(wheel["package"], codes, wheel["capabilities"])
    if not judged.completed:
        return {**found, "unread": str(judged.values.get("reason", ""))}
    lacks = judged.values.get("capabilities", "") if judged.cause_id != "package-only-ptx" else ""
    return {**found, "lacks": lacks.split(", ") if lacks else [], "seen": judged.seen}


def main() -> int:
    asked = json.load(sys.stdin)
    found = []
    for wheel in asked["wheels"]:
        with tempfile.TemporaryDirectory(prefix="gpukit-add-") as folder:
            command = [uv.program(), "pip", "install", "--quiet", "--no-deps", f"--target={folder}"]
            command += [f"--python={sys.executable}", f"--python-platform={MACHINES[wheel['arch']]}-manylinux_2_39"]
            done = subprocess.run([*command, wheel["line"]], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            if done.returncode:
                return 1
            found.append(examined(wheel, Path(folder), asked["cuda"]))
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
