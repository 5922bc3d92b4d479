"""What the pods of a Job on Kubernetes say of it: whether they run, what they wait for, and how they ended."""

from __future__ import annotations

import calendar
import time
from collections import Counter
from typing import Any

from gpukit.jobs.kubectl import Object

JOB = "batch.kubernetes.io/job-name"  # labels
INDEX = "batch.kubernetes.io/job-completion-index"
# Reasons of a container that waits, but for nothing that could go wrong.
USUAL = ("ContainerCreating", "PodInitializing")


def moment(stamp: str) -> float:
    """The seconds since the epoch of a time such as 2026-11-26T03:45:16Z."""
    return float(calendar.timegm(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ")))


def of(job: str, pods: list[Object]) -> list[Object]:
    """The pods of a Job, the oldest first."""
    ours = [pod for pod in pods if pod["metadata"]["labels"].get(JOB) == job]
    return sorted(ours, key=lambda pod: pod["metadata"]["creationTimestamp"])


def index(pod: Object) -> int:
    return int(pod["metadata"]["labels"].get(INDEX, 0))


def state(pod: Object) -> tuple[str, dict[str, Any]]:
    """running, waiting, or terminated, and what Kubernetes says of that; waiting, if its container does not exist."""
    for status in pod["status"].get("containerStatuses", []):
        for name, facts in status["state"].items():
            return name, facts or {}
    return "waiting", {}


def started(pods: list[Object]) -> list[float]:
    """When the pods started, as far as they did."""
    return [moment(facts["startedAt"]) for _, facts in map(state, pods) if facts.get("startedAt")]


def starts(pods: list[Object]) -> int:
    """How often a Job started: the pods of one machine that did, of the one with most of them."""
    found = Counter(index(pod) for pod in pods if state(pod)[1].get("startedAt"))
    return max(found.values(), default=0)


def waits_for(pods: list[Object]) -> str:
    """Why the first pod that has not started does not; "" if nothing is known to be wrong."""
    for pod in pods:
        name, facts = state(pod)
        if name == "waiting" and facts.get("reason", USUAL[0]) not in USUAL:
            return ": ".join(filter(None, (facts["reason"], facts.get("message"))))
        for condition in pod["status"].get("conditions", []):
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return condition.get("message") or condition.get("reason", "")
    return ""


def failures(pods: list[Object]) -> list[tuple[Object, dict[str, Any]]]:
    """The pods that failed, and how their containers ended."""
    ends = [(pod, facts) for pod in pods for name, facts in [state(pod)] if name == "terminated"]
    return [(pod, facts) for pod, facts in ends if facts.get("exitCode")]
