"""python -m exactrun rehearse -- train.py ..."""

from __future__ import annotations

import sys

from exactrun import rehearse

USAGE = "usage: python -m exactrun rehearse -- train.py ...: run a script, kill it, resume it, and compare every number"


def main() -> int:
    if sys.argv[1:2] == ["rehearse"]:
        return rehearse.main(sys.argv[2:])
    asked = sys.argv[1:2] in (["-h"], ["--help"])
    print(USAGE, file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


if __name__ == "__main__":
    sys.exit(main())
