"""The queue's metrics for Prometheus, read from the table, the runs, and the GPUs when they are asked for.

Counters are computed from the table, which keeps every job, so a restart does not reset them.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from gpukit.host.queue import WorkerLock
from gpukit.jobs.gpus import gpus, xids
from gpukit.jobs.progress import progress, run_of, training_since
from gpukit.jobs.table import ALIVE, FINAL, Table

# name: what it measures, and of `progress` or `gpus` which value
OF_A_JOB = {
    "step": ("Steps that the run has logged", "step"),
    "progress_ratio": ("Share of the run's steps", "fraction"),
    "loss": ("Loss that was logged last", "loss"),
    "samples_per_second": ("Samples per second", "samples_per_second"),
    "data_wait_ratio": ("Share of the time in which training waited for data", "loader_wait"),
    "checkpoint_age_seconds": ("Seconds since the newest checkpoint, or the last start", "checkpoint_age"),
}
OF_A_GPU = {
    "utilization_ratio": ("Share of the time in which the GPU was busy", "utilization"),
    "memory_used_bytes": ("Memory in use; where CPU and GPU share it, by both", "memory_used"),
    "memory_bytes": ("All of its memory", "memory_total"),
    "power_watts": ("Power", "power"),
    "temperature_celsius": ("Temperature", "temperature"),
}


def registry(place: Path, root: Path) -> CollectorRegistry:
    """The metrics of the queue in `place`, of the project in `root`."""
    found = CollectorRegistry()
    found.register(Queue(place, root))
    return found


class Queue(Collector):
    def __init__(self, place: Path, root: Path) -> None:
        self.place = place
        self.root = root

    def describe(self) -> list[Metric]:
        return []  # or registering would read everything

    def collect(self) -> Iterator[Metric]:
        with Table(self.place) as table:
            totals = table.totals()
            running = table.running()
            now = time.time()
        counts = {state: totals[state][0] if state in totals else 0 for state in (*ALIVE, *FINAL)}
        states = {(state,): counts[state] for state in ALIVE}
        yield _gauge("gpukit_jobs", "Jobs that have not ended", states, "state")
        ended = CounterMetricFamily("gpukit_jobs_ended", "Jobs that have ended", labels=["outcome"])
        for state in FINAL:
            ended.add_metric([state], counts[state])
        yield ended
        waited, ran = (sum(one[at] for one in totals.values()) for at in (1, 2))
        yield CounterMetricFamily("gpukit_jobs_waited_seconds", "Seconds until jobs started first", waited)
        yield CounterMetricFamily("gpukit_jobs_run_seconds", "Seconds that jobs have run", ran)
        yield _gauge("gpukit_gpus_in_use", "GPUs that running jobs asked for", sum(job["gpus"] for job in running))
        yield from self._running(running, now)
        yield from _gpus(gpus(), xids())
        yield _gauge("gpukit_worker_up", "Whether the queue is processed", WorkerLock(self.place).holder() is not None)
        with contextlib.suppress(OSError):
            disk = shutil.disk_usage(self.root)
            yield _gauge("gpukit_disk_free_bytes", "Free space on the project's disk", disk.free)
            yield _gauge("gpukit_disk_bytes", "Size of the project's disk", disk.total)

    def _running(self, jobs: list[dict[str, Any]], now: float) -> Iterator[Metric]:
        found = {}
        for job in jobs:
            figures = progress(self.root, job) or {}
            since = training_since(self.root, job)
            if since is not None:  # the time in which the job was interrupted does not count
                age = figures.get("checkpoint_age")
                figures["checkpoint_age"] = max(0.0, min(now - since, now if age is None else age))
            found[str(job["id"]), run_of(job["command"])] = figures
        for name, (what, key) in OF_A_JOB.items():
            values = {labels: figures.get(key) for labels, figures in found.items()}
            yield _gauge(f"gpukit_job_{name}", f"{what}, of a running job", values, "id", "run")


def _gpus(found: list[dict[str, Any]], errors: dict[tuple[int, int], int]) -> Iterator[Metric]:
    for name, (what, key) in OF_A_GPU.items():
        values = {(str(gpu["index"]), gpu["name"]): gpu[key] for gpu in found}
        yield _gauge(f"gpukit_gpu_{name}", what, values, "gpu", "name")
    counted = CounterMetricFamily(
        "gpukit_gpu_xid_errors",
        "Critical errors that the driver reported since the service started",
        labels=["gpu", "xid"],
    )
    for (index, xid), count in errors.items():
        counted.add_metric([str(index) if index >= 0 else "", str(xid)], count)
    yield counted


def _gauge(name: str, what: str, values: Any, *labels: str) -> Metric:
    """One value, or one for each tuple of labels; None: unknown, and left out."""
    gauge = GaugeMetricFamily(name, what, labels=labels)
    for key, value in values.items() if isinstance(values, dict) else [((), values)]:
        if value is not None:
            gauge.add_metric(key, float(value))
    return gauge
