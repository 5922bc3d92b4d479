"""A kubectl that answers from a list and records its calls: a program in a folder, to be the first in PATH."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

PROGRAM = """\
#!/usr/bin/env python3
import json
import pathlib
import sys

here = pathlib.Path(__file__).parent
given = json.load(sys.stdin) if "--filename=-" in sys.argv else None
with (here / "calls.jsonl").open("a") as calls:
    calls.write(json.dumps([sys.argv[1:], given]) + "\\n")
words = " ".join(word for word in sys.argv[1:] if not word.startswith(("--context", "--namespace", "--request")))
for begins, code, output, errors in json.loads((here / "answers.json").read_text()):
    if words.startswith(begins):
        if output == "as given":
            for item in given["items"]:
                print(json.dumps({**item, "metadata": {**item["metadata"], "namespace": "team"}}))
        else:
            print(output)
        print(errors, file=sys.stderr)
        sys.exit(code)
sys.exit(f"no answer to {words}")
"""


class Kubectl:
    """`answers`: for commands that begin with a text, the exit status, the output, and the errors; the first counts."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.answers: list[tuple[str, int, str, str]] = []
        program = folder / "kubectl"
        program.write_text(PROGRAM)
        program.chmod(0o755)
        (folder / "calls.jsonl").touch(0o666)
        (folder / "calls.jsonl").chmod(0o666)

    def answer(self, begins: str, output: Any = "", errors: str = "", code: int | None = None) -> None:
        """`output`: a text, or objects."""
        text = output if isinstance(output, str) else json.dumps(output)
        self.answers.insert(0, (begins, bool(errors) if code is None else code, text, errors))
        (self.folder / "answers.json").write_text(json.dumps(self.answers))

    def accept(self, job: Path) -> None:
        """Answer as a cluster that has nothing of this project, and takes everything in its file."""
        objects = list(yaml.safe_load_all(job.read_text(encoding="utf-8")))
        for each in objects:
            each["metadata"].setdefault("labels", {})["app.kubernetes.io/managed-by"] = "gpukit"
        self.answer("label --local", "\n".join(map(json.dumps, objects)))
        self.answer("config current-context", "lab")
        self.answer("get --ignore-not-found", "")
        self.answer("create", "as given")

    def calls(self) -> list[tuple[list[str], Any]]:
        return [tuple(json.loads(line)) for line in (self.folder / "calls.jsonl").read_text().splitlines()]

    def created(self) -> list[dict[str, Any]]:
        """The objects that were really created, in order."""
        calls = [
            (words, given) for words, given in self.calls() if "create" in words and "--dry-run=server" not in words
        ]
        return [item for _, given in calls for item in given["items"]]
