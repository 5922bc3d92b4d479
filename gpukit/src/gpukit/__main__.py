"""`python -m gpukit`, and `python gpukit-X.whl/gpukit`, by which ./launch runs the wheel without installing it."""

import os
import sys

if not __package__:  # run as a path: Python put the folder of this file on sys.path, and gpukit lies beside it
    sys.path[0] = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 - pathlib takes 5 ms to import

from gpukit.cli.main import main

sys.exit(main())
