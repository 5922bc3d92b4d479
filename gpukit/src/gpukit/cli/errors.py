"""An error as JSON, for programs that use --json."""

from __future__ import annotations

import json

from gpukit.findings.causes import PROJECT, worded
from gpukit.project.data import data
from gpukit.project.messages import RefusalError


def as_json(refusal: RefusalError, sentence: str) -> str:
    """The sentence, the cause's id if it is known, and the remedy, which is the sentence's second part otherwise."""
    known = data("knowledge")["causes"].get(refusal.id, {})
    remedy = worded(known.get("remedy", ""), PROJECT) or sentence.partition(": ")[2]
    return json.dumps({"error": {"id": refusal.id or "refused", "message": sentence, "remedy": remedy}})
