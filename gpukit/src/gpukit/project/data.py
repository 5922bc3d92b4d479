"""The catalogue's facts in this package: data/*.json, written by catalogue/data.py of the template."""

from __future__ import annotations

import json
import pkgutil
from functools import cache
from typing import Any


@cache
def data(name: str) -> dict[str, Any]:
    """One of the files: "cards", "extensions", "kernels", "knowledge", "stacks", or "written"; from a wheel, too."""
    return json.loads(pkgutil.get_data("gpukit", f"data/{name}.json") or b"{}")
