"""python -m exactrun COMMAND ..."""

from __future__ import annotations

import sys
from importlib import import_module

COMMANDS = {"rehearse": "run a script, kill it, resume it, and compare every number"}


def main() -> int:
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if command not in COMMANDS:
        lines = ["usage: python -m exactrun COMMAND ...", "", *(f"  {name}  {what}" for name, what in COMMANDS.items())]
        print("\n".join(lines), file=sys.stdout if command in ("-h", "--help") else sys.stderr)
        return 0 if command in ("-h", "--help") else 2
    return import_module(f"exactrun.{command}").main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
