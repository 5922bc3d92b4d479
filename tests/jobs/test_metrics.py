"""Progress of runs, readings of GPUs, metrics, alerts (promtool), and a real Prometheus that scrapes the service."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gpukit.host import queue
from gpukit.jobs import gpus as readings
from gpukit.jobs.metrics import registry
from gpukit.jobs.progress import TAIL, progress, run_of
from gpukit.jobs.table import Table
from tests.conftest import ROOT, cannot
from tests.jobs.test_service import Service, project

ALERTS = ROOT / "template" / "{% if 'jobs' in services %}monitoring{% endif %}" / "alerts.yml"
JOB = {"command": ["python", "-m", "demo.train", "--name=job-1"], "starts": 1}
# As gpukit.train writes them.
ROW = {"step": 1450, "loss": 0.0058, "memory_gb": 0.8, "waiting_for_data": 0.25, "samples_per_second": 2560.0}
FACTS = {
    "format": 1,
    "settings": {"max_steps": 1550, "batch_size": 256, "save_steps": 100},
    "starts": [{"at": "2026-11-24T02:17:47.525+00:00"}],
}


def write_run(root: Path, name: str = "job-1", rows: str = "", **facts: Any) -> Path:
    folder = root / "outputs" / name
    (folder / "checkpoints/step-00001400").mkdir(parents=True)
    rows = rows or json.dumps({"step": 1400, "loss": 0.1, "held_out_loss": 1.0}) + "\n" + json.dumps(ROW) + "\n"
    (folder / "metrics.jsonl").write_text(rows)
    (folder / "run.json").write_text(json.dumps({**FACTS, **facts}))
    return folder


def test_progress_of_a_run(tmp_path: Path) -> None:
    assert progress(tmp_path, JOB) is None, "nothing is logged yet"
    folder = write_run(tmp_path)
    found = progress(tmp_path, JOB)
    assert (found["step"], found["total"], found["loss"], found["loader_wait"]) == (1450, 1550, 0.0058, 0.25)
    assert found["fraction"] == 1450 / 1550 and found["eta_seconds"] == 100 * 256 / 2560
    assert 0 <= found["checkpoint_age"] < 60 and time.time() - found["updated"] < 60
    os.utime(folder / "checkpoints/step-00001400", (0, time.time() - 5000))
    (folder / "run.json").write_text(json.dumps({**FACTS, "starts": [{"at": "2026-01-01T00:00:00+00:00"}]}))
    assert 5000 <= progress(tmp_path, JOB)["checkpoint_age"] < 5060
    (folder / "metrics.jsonl").write_text("x" * 3 * TAIL + "\n" + json.dumps(ROW) + '\n{"step": 1500, "lo')
    assert progress(tmp_path, JOB)["step"] == 1450, "the end counts, without the line that is being written"
    auto = {"settings": {"max_steps": 1550, "batch_size": "auto"}, "batch_size": 512}
    (folder / "run.json").write_text(json.dumps({**FACTS, **auto}))
    assert progress(tmp_path, JOB)["eta_seconds"] == 100 * 512 / 2560


@pytest.mark.parametrize(
    "content",
    ["", "\0" * 100, "[" * 100_000, "[]\n3\nnull\n", '{"step": NaN, "loss": Infinity, "samples_per_second": true}\n'],
)
def test_damaged_files_are_no_progress(tmp_path: Path, content: str) -> None:
    folder = write_run(tmp_path)
    for name in ("metrics.jsonl", "run.json"):
        (folder / name).write_text(content)
    found = progress(tmp_path, JOB) or {}
    assert {found.get(name) for name in ("step", "loss", "fraction", "eta_seconds", "samples_per_second")} == {None}
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("name", ["../secret", "/etc", "a/b", "..", "", "-x", "a\nb", "é"])
def test_a_name_is_no_path(tmp_path: Path, name: str) -> None:
    assert run_of(["python", f"--name={name}"]) == run_of(["python", "--name", name]) == ""
    assert progress(tmp_path, {"command": ["python", f"--name={name}"], "starts": 1}) is None


# GPUs: with a module in the place of nvidia-ml-py, because there is no driver here


class FakeNvml(ModuleType):
    NVML_TEMPERATURE_GPU, nvmlEventTypeXidCriticalError = 0, 8  # noqa: N815

    class NVMLError(Exception): ...

    class NVMLError_Timeout(NVMLError): ...  # noqa: N801, N818

    def __init__(self, memory: bool = True, hangs: threading.Event | None = None) -> None:
        super().__init__("pynvml")
        self.memory, self.hangs, self.events = memory, hangs, [(0, 79), (0, 79)]

    def nvmlInit(self) -> None: ...  # noqa: N802

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        if self.hangs:
            self.hangs.wait(30)
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index == 1:
            raise self.NVMLError("GPU is lost")
        return index

    def nvmlDeviceGetMemoryInfo(self, device: int) -> Any:  # noqa: N802
        if not self.memory:
            raise self.NVMLError("Not Supported")
        return SimpleNamespace(used=3, total=4)

    def nvmlEventSetWait_v2(self, events: Any, milliseconds: int) -> Any:  # noqa: N802
        if not self.events:
            time.sleep(0.05)
            raise self.NVMLError_Timeout
        device, number = self.events.pop()
        return SimpleNamespace(device=device, eventData=number)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        values = {
            "nvmlDeviceGetName": "NVIDIA GeForce RTX 3090",
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=93),
            "nvmlDeviceGetPowerUsage": 350_000,
            "nvmlDeviceGetTemperature": 71,
            "nvmlDeviceGetIndex": 0,
        }
        return lambda *_: values.get(name)


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., readings.Reader]]:
    made = []

    def make(**facts: Any) -> readings.Reader:
        monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(**facts))
        made.append(readings.Reader())
        return made[-1]

    yield make
    for each in made:
        each.initialized = False  # ends its thread


def test_readings_of_a_gpu(
    reader: Callable[..., readings.Reader], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = reader()
    until = time.monotonic() + 5
    while not (found := one.read()) or found[0]["xids"] != {79: 2}:
        assert time.monotonic() < until, found
        one.at = float("-inf")
    (gpu,) = found
    assert gpu == {
        "index": 0,
        "name": "NVIDIA GeForce RTX 3090",
        "utilization": 0.93,
        "memory_used": 3,
        "memory_total": 4,
        "power": 350.0,
        "temperature": 71.0,
        "xids": {79: 2},
    }
    monkeypatch.setattr(readings, "MEMINFO", tmp_path / "meminfo")
    (tmp_path / "meminfo").write_text("MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    400 kB\n")
    (gpu,) = reader(memory=False).read()
    assert (gpu["memory_used"], gpu["memory_total"]) == (600 * 1024, 1000 * 1024)


def test_a_driver_that_hangs(reader: Callable[..., readings.Reader], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "SECONDS", 0.1)
    hangs = threading.Event()
    one = reader(hangs=hangs)
    before = threading.active_count()
    assert [one.read() for _ in range(3)] == [[], [], []]
    assert threading.active_count() <= before + 1, "one thread waits, however often it is asked"
    hangs.set()


# The metrics


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A queue with jobs in all states, two of which run."""
    place = queue.folder(tmp_path)
    with Table(place) as table:
        for _ in range(9):
            table.submit(["python", "-m", "demo.train", "--name=job-{job}"])
        after = table.submit(["true"], after=3)
        for number in (1, 2, 3, 4, 5):
            table.claim(number, {}, "")
        table.end(3, "failed", 10.0, "exit status 1", 1)
        table.end(4, "finished", 20.0)
        table.end(5, "out of time", 30.0)
        table.cancel(6)
        table.wait(7, ["TOKEN"])
        assert table.get(after)["state"] == "held"
    write_run(tmp_path, "job-1")
    return tmp_path


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_match_the_table(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = dict.fromkeys(("utilization", "memory_used", "memory_total", "power", "temperature"), 0.5)
    gpu |= {"index": 0, "name": "RTX", "utilization": None, "xids": {79: 2}}
    monkeypatch.setattr("gpukit.jobs.metrics.gpus", lambda: [gpu])
    found = samples(generate_latest(registry(queue.folder(root), root)).decode())
    for state, count in {"queued": 2, "held": 1, "waiting": 1, "running": 2}.items():
        assert found["gpukit_jobs", state] == count, state
    for state, count in {"finished": 1, "failed": 1, "canceled": 1, "out of time": 1}.items():
        assert found["gpukit_jobs_ended_total", state] == count, state
    assert found["gpukit_jobs_run_seconds_total",] == 60
    assert found["gpukit_jobs_waited_seconds_total",] >= 0
    assert found["gpukit_job_loss", "1", "job-1"] == 0.0058
    assert found["gpukit_job_data_wait_ratio", "1", "job-1"] == 0.25
    assert not [key for key in found if key[1:] == ("2", "job-2")], "unknown values are left out, not 0"
    assert ("gpukit_gpu_utilization_ratio", "0", "RTX") not in found
    assert found["gpukit_gpu_memory_used_bytes", "0", "RTX"] == 0.5
    assert found["gpukit_gpu_xid_errors_total", "0", "79"] == 2
    assert found["gpukit_worker_up",] == 0
    assert 0 < found["gpukit_disk_free_bytes",] < found["gpukit_disk_bytes",]


# Alerts: series in which each fires after `at`, and in which it does not

WORKS = {'up{job="gpukit", instance="a"}': "1x30", 'gpukit_worker_up{job="gpukit", instance="a"}': "1x30"}
RUNNING = 'gpukit_jobs{state="running", job="gpukit", instance="a"}'
GPU = '{gpu="0", job="gpukit", instance="a"}'
CASES = {
    "JobsServiceDown": (
        [{'up{job="gpukit", instance="a"}': "0x30"}, {'gpukit_worker_up{job="gpukit", instance="a"}': "0x30"}],
        [WORKS, {'up{job="other", instance="a"}': "0x30"}],
    ),
    "JobFailed": (
        [{'gpukit_jobs_ended_total{outcome="failed", instance="a"}': "0x14 1x16"}],
        [
            {'gpukit_jobs_ended_total{outcome="failed", instance="a"}': "3x30"},
            {'gpukit_jobs_ended_total{outcome="finished", instance="a"}': "0x14 1x16"},
        ],
    ),
    "JobWithoutCheckpoint": (
        [{'gpukit_job_checkpoint_age_seconds{id="1", instance="a"}': "3601+60x30"}],
        [{'gpukit_job_checkpoint_age_seconds{id="1", instance="a"}': "0+60x30"}],
    ),
    "GpuMemoryNearlyFull": (
        [{f"gpukit_gpu_memory_used_bytes{GPU}": "91x30", f"gpukit_gpu_memory_bytes{GPU}": "100x30"}],
        [{f"gpukit_gpu_memory_used_bytes{GPU}": "90x30", f"gpukit_gpu_memory_bytes{GPU}": "100x30"}],
    ),
    "GpuUtilizationLow": (
        [{f"gpukit_gpu_utilization_ratio{GPU}": "0.19x30", RUNNING: "1x30"}],
        [
            {f"gpukit_gpu_utilization_ratio{GPU}": "0.19x30", RUNNING: "0x30"},
            {f"gpukit_gpu_utilization_ratio{GPU}": "0.19x15 0.5x1 0.19x14", RUNNING: "1x30"},
        ],
    ),
    "DiskNearlyFull": (
        [{'gpukit_disk_free_bytes{instance="a"}': "9x30", 'gpukit_disk_bytes{instance="a"}': "100x30"}],
        [{'gpukit_disk_free_bytes{instance="a"}': "11x30", 'gpukit_disk_bytes{instance="a"}': "100x30"}],
    ),
}


def program(name: str) -> str:
    return shutil.which(name) or cannot(f"there is no {name} (Debian: apt-get install prometheus)")


def test_each_alert(tmp_path: Path) -> None:
    promtool = program("promtool")
    assert {rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]} == {
        *CASES
    }
    subprocess.run([promtool, "check", "rules", str(ALERTS)], check=True, capture_output=True, timeout=60)
    shutil.copy(ALERTS, tmp_path / "alerts.yml")
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            # ALERTS, so that the texts are not repeated here
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)',
                    "eval_time": "20m",
                    "exp_samples": [{"labels": "{}", "value": int(fires)}],
                }
            ],
        }
        for alert, (yes, no) in CASES.items()
        for fires, cases in ((True, yes), (False, no))
        for series in cases
    ]
    content = {"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(content))
    done = subprocess.run([promtool, "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, timeout=60)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


def test_prometheus_scrapes_the_service(tmp_path: Path) -> None:
    prometheus = program("prometheus")
    service = Service(project(tmp_path))
    write_run(tmp_path, "job-1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    shutil.copy(ALERTS, tmp_path / "alerts.yml")
    scrape = {
        "job_name": "gpukit",
        "authorization": {"credentials_file": str(tmp_path / queue.TOKEN)},
        "static_configs": [{"targets": [f"localhost:{service.port}"]}],
    }
    content = {"global": {"scrape_interval": "200ms"}, "rule_files": ["alerts.yml"], "scrape_configs": [scrape]}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(content))
    command = [prometheus, "--config.file=prometheus.yml", f"--web.listen-address={address}"]
    with (tmp_path / "prometheus.log").open("wb") as log:
        server = subprocess.Popen([*command, "--storage.tsdb.path=data"], cwd=tmp_path, stdout=log, stderr=log)

    def value(expression: str) -> float | None:
        with contextlib.suppress(OSError):
            query = f"http://{address}/api/v1/query?query={quote(expression)}"
            with urllib.request.urlopen(query, timeout=5) as answer:
                found = json.load(answer)["data"]["result"]
                return float(found[0]["value"][1]) if found else None
        return None

    try:
        service.submit()
        service.submit(after=1)
        for expression, expected in {
            'up{job="gpukit"}': 1,
            'gpukit_jobs{state="running"}': 1,
            'gpukit_jobs{state="queued"}': 1,
            'gpukit_job_loss{id="1", run="job-1"}': ROW["loss"],
            "gpukit_worker_up": 1,
        }.items():
            service.until(lambda expression=expression, expected=expected: value(expression) == expected)
        (tmp_path / "gate").touch()
        service.until(lambda: value('gpukit_jobs_ended_total{outcome="finished"}') == 2)
    finally:
        server.terminate()
        server.wait(20)
        service.stop()
