"""Call kubectl. An error becomes one sentence, with the remedy where the cause is known."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

from gpukit.host.refusals import classify
from gpukit.project.messages import RefusalError, announced, say

SECONDS = 60.0  # for an answer
DRY = "--dry-run=server"
Place = list[str]  # options: the context, and the namespace
Object = dict[str, Any]


def kubectl(place: Place, *arguments: str, objects: list[Object] | None = None, seconds: float = SECONDS) -> str:
    """The output. `objects`: for --filename=-, given to kubectl as JSON; one that exists already is no error.

    Raises:
        RefusalError: there is no kubectl, no cluster answers, or it refuses.
    """
    command = ["kubectl", *place, f"--request-timeout={seconds:.0f}s", *arguments]
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}) if objects else None
    try:
        with announced("Waiting for Kubernetes ..."):
            done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=seconds + 10)
    except FileNotFoundError:
        sentence = "There is no kubectl here: install it, and add your cluster's configuration to ~/.kube/config."
        raise RefusalError(sentence, id="kubectl-missing") from None
    except subprocess.TimeoutExpired:
        raise RefusalError(f"Kubernetes has not answered for {seconds:.0f} s: try again later.") from None
    lines = done.stderr.splitlines()
    errors = [line for line in lines if line.startswith("Error from server")]
    if done.returncode and not (errors and all("(AlreadyExists)" in line for line in errors)):
        raise refused(done.stderr)
    for line in lines:
        if line.startswith("Warning:") and DRY not in arguments:
            say(line)
    return done.stdout


def refused(text: str) -> RefusalError:
    """The refusal for the errors of kubectl."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not re.match(r"E\d{4} |Warning:", line)]
    last = lines[-1] if lines else "no error text"
    known = explained(text)
    sentence = f"{known} kubectl's message: {last}" if known else f"Kubernetes refused: {last}"
    return RefusalError(sentence, kind="cluster", output=text)


def explained(text: str) -> str:
    """The cause and the remedy, if a message of Kubernetes is known; otherwise nothing."""
    known = classify(text, ("cluster",)) if text else None
    if not known:
        return ""
    from gpukit.findings.causes import PROJECT

    words = known[1].words(PROJECT)
    return f"{words.why} {words.remedy}"


def parse(output: str) -> list[Object]:
    """The objects in an output of kubectl: JSON values one after the other, each an object or a list of objects."""
    decoder = json.JSONDecoder()
    found: list[Object] = []
    rest = output.strip()
    while rest:
        value, end = decoder.raw_decode(rest)
        found += value["items"] if value.get("kind") == "List" else [value]
        rest = rest[end:].strip()
    return found


def read(file: str, *labels: str) -> list[Object]:
    """The objects in a file, with labels added. kubectl reads it here; no cluster is asked."""
    return parse(kubectl([], "label", "--local", "--overwrite", "--output=json", f"--filename={file}", *labels))


def context() -> Place:
    """The current context, so that a job is found again after a change; inside a cluster there is none."""
    done = subprocess.run(["kubectl", "config", "current-context"], capture_output=True, text=True)
    return [f"--context={done.stdout.strip()}"] if done.returncode == 0 and done.stdout.strip() else []
