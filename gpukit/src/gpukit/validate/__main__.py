"""Started by `./launch validate` and by the template's hook in a Python that has the packages."""

from __future__ import annotations

import sys
from pathlib import Path

from gpukit.validate import main

sys.exit(main.run(Path(sys.argv[1])))
