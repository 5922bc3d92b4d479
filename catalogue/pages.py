"""Pages with parts that are written from data, each between two comments that name it; people write the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path


def filled(page: Path, parts: Mapping[str, str]) -> str:
    """The page's text with these parts, by name.

    Raises:
        ValueError: the page lacks a part's comments, `<!-- NAME: written by ... -->` and `<!-- end of NAME -->`.
    """
    text = page.read_text(encoding="utf-8")
    for name, part in parts.items():
        found = re.search(rf"(?<=\n)<!-- {name}: written by .*-->\n(?P<old>(?:.*\n)*?)<!-- end of {name} -->\n", text)
        if not found:
            raise ValueError(f"{page.name} has no part {name}: add <!-- {name}: written by ... --> and its end.")
        text = f"{text[: found.start('old')]}\n{part.strip()}\n\n{text[found.end('old') :]}"
    return text
