# /// script
# requires-python = ">=3.10"
# dependencies = ["rich>=14,<16"]
# ///
"""Write docs/pictures/: the terminal output of real commands, as SVG.

uv run docs/pictures.py
"""

from __future__ import annotations

import io
import os
import pty
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs/pictures"
COLUMNS = 100
LONGEST = 34  # lines of a picture
# As rich's own, but without a font from another server, which GitHub does not load.
FRAME = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px; line-height: {line_height}px;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def output(command: str, folder: Path) -> str:
    """What a command prints on a terminal, with its colors. A line that is redrawn counts as it was last."""
    terminal, inside = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    os.set_inheritable(inside, True)
    subprocess.run(["stty", "cols", str(COLUMNS), "rows", "60"], stdin=inside, check=True)
    process = subprocess.Popen(
        ["sh", "-c", command], cwd=folder, stdin=subprocess.DEVNULL, stdout=inside, stderr=inside, env=environment
    )
    os.close(inside)
    printed = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the terminal is closed when the last process has ended
            break
        if not part:
            break
        printed += part
    os.close(terminal)
    process.wait()
    lines = printed.decode(errors="replace").replace("\r\n", "\n").split("\n")
    return "\n".join(re.split(r"\r|\x1b\[2K", line)[-1] for line in lines)


def draw(name: str, steps: list[tuple[str, str]]) -> None:
    """A picture of commands and their output. A long output ends in an ellipsis."""
    console = Console(width=COLUMNS, record=True, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    for command, printed in steps:
        console.print(Text(f"$ {command}", style="bold"))
        lines = printed.strip("\n").split("\n")
        shown = lines[:LONGEST] + ["..."] * (len(lines) > LONGEST)
        console.print(Text.from_ansi("\n".join(shown)))
    PICTURES.mkdir(exist_ok=True)
    console.save_svg(str(PICTURES / f"{name}.svg"), title="", code_format=FRAME, unique_id=name)


def main() -> None:
    with tempfile.TemporaryDirectory() as spare:
        clone = Path(spare) / "gpu-template"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        subprocess.run(["git", "tag", "v0.2.0"], cwd=clone, check=True)
        copy = "uvx copier copy --trust --defaults -q -d hardware=dgx-spark . ../myproj"
        subprocess.run(["uvx", "copier", "--version"], capture_output=True, check=True)  # so that nothing is downloaded
        copied = output(copy, clone).replace(spare, "~").replace(f"{Path(spare).resolve()}", "~")
        project = Path(spare) / "myproj"
        plan = "./launch plan --for rtx-40 --driver 550"
        error = "./launch explain 'CUDA error: no kernel image is available for execution on the device'"
        draw("copy", [(copy, copied)])
        draw("plan", [(plan, output(plan, project))])
        draw("explain", [(error, output(error, project))])
        tree = sorted(path.relative_to(project) for path in project.rglob("*") if path.is_file())
        print(*tree, sep="\n")
    if shutil.which("git"):
        subprocess.run(["git", "status", "--short", "docs/pictures"], cwd=ROOT)


if __name__ == "__main__":
    main()
