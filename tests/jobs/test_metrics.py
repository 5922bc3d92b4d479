"""Progress of runs, readings of GPUs, metrics, alerts (promtool), and a real Prometheus that scrapes the service."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from datetime import datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gpukit.host import memory, queue
from gpukit.jobs import gpus as readings
from gpukit.jobs.commands import lines, show
from gpukit.jobs.metrics import registry
from gpukit.jobs.progress import TAIL, progress, run_of, training_since
from gpukit.jobs.table import Table
from gpukit.project.location import ADOPTED
from tests.conftest import ROOT, cannot
from tests.jobs.test_service import Service, project
from tests.ports import free_port

ALERTS = ROOT / "examples/service-rtx-30/monitoring/alerts.yml"
JOB = {
    "command": ["python", "-m", "demo.train", "--name=job-1"],
    "state": "running",
    "starts": 1,
    "started": 0.0,
    "ended": None,
}
# As exactrun writes them.
ROW = {"step": 1450, "loss": 0.0058, "memory_gb": 0.8, "waiting_for_data": 0.25, "samples_per_second": 2560.0}
FACTS = {
    "format": 1,
    "settings": {"max_steps": 1550, "batch_size": 256, "save_steps": 100},
    "starts": [{"at": "2026-01-01T00:00:00.000+00:00"}],
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
    assert found["fraction"] == 1450 / 1550 and 9 < found["eta_seconds"] <= 100 * 256 / 2560
    assert 0 <= found["checkpoint_age"] < 60 and time.time() - found["updated"] < 60
    os.utime(folder / "checkpoints/step-00001400", (0, time.time() - 5000))
    assert 5000 <= progress(tmp_path, JOB)["checkpoint_age"] < 5060
    (folder / "metrics.jsonl").write_text("x" * 3 * TAIL + "\n" + json.dumps(ROW) + '\n{"step": 1500, "lo')
    assert progress(tmp_path, JOB)["step"] == 1450, "the end counts, without the line that is being written"
    (folder / "metrics.jsonl").write_text(json.dumps({**ROW, "samples_per_second": 5e-324}) + "\n")
    assert progress(tmp_path, JOB)["eta_seconds"] is None
    (folder / "metrics.jsonl").write_text(json.dumps(ROW) + "\n")
    ended = progress(tmp_path, {**JOB, "state": "failed", "ended": time.time()})
    assert (ended["step"], ended["eta_seconds"]) == (1450, None)
    retried = progress(tmp_path, {**JOB, "started": time.time() + 60})
    assert (retried["loss"], retried["samples_per_second"]) == (0.0058, None), "the speed was that of another job"
    assert progress(tmp_path, {**JOB, "starts": 0}) is None


@pytest.mark.parametrize("place", ["", ".gpukit/jobs/7", ".gpukit/outputs/job-7-files"])
def test_progress_in_an_adopted_repository_is_where_its_job_writes(place: str, tmp_path: Path) -> None:
    root = tmp_path / "theirs"
    stack = root / ADOPTED["stack.json"]
    stack.parent.mkdir(parents=True)
    stack.write_text("{}")
    job = {**JOB, "id": 7}
    assert progress(root, job) is None
    outside = write_run(tmp_path)
    (root / "outputs").mkdir()
    (root / "outputs/job-1").symlink_to(outside)
    assert progress(root, job) is None, "the link leads elsewhere"
    (root / "outputs/job-1").unlink()
    write_run(root / place)
    assert progress(root, job)["step"] == 1450


@pytest.mark.parametrize("place", ["", ".gpukit/jobs/7"])
def test_progress_in_an_adopted_repository_whose_outputs_are_on_another_disk(place: str, tmp_path: Path) -> None:
    root = tmp_path / "theirs"
    (root / ".gpukit/jobs/7").mkdir(parents=True)
    (root / ADOPTED["stack.json"]).write_text("{}")
    (tmp_path / "disk").mkdir()
    (root / "outputs").symlink_to(write_run(tmp_path / "disk").parent)
    if place:
        (root / place / "outputs").symlink_to("../../../outputs")
    assert progress(root, {**JOB, "id": 7})["step"] == 1450


@pytest.mark.parametrize(
    "content",
    ["", "\0" * 100, "[" * 100_000, "[]\n3\nnull\n", '{"step": NaN, "loss": Infinity, "samples_per_second": true}\n'],
    ids=["empty", "zeros", "deep", "other-types", "not-finite"],
)
def test_damaged_files_are_no_progress(tmp_path: Path, content: str) -> None:
    folder = write_run(tmp_path)
    for name in ("metrics.jsonl", "run.json"):
        (folder / name).write_text(content)
    found = progress(tmp_path, JOB)
    assert found["step"] == 1400, "the newest checkpoint's"
    assert {found[name] for name in ("total", "loss", "fraction", "eta_seconds", "samples_per_second")} == {None}
    json.dumps(found, allow_nan=False)
    shutil.rmtree(folder / "checkpoints")
    assert progress(tmp_path, JOB) is None
    training_since(tmp_path, JOB)


def test_files_that_a_job_replaced(tmp_path: Path) -> None:
    """A FIFO does not hang the service, and a link does not show what is outside of outputs/."""
    folder = write_run(tmp_path)
    (folder / "metrics.jsonl").rename(tmp_path / "secret")
    (folder / "metrics.jsonl").symlink_to(tmp_path / "secret")
    (folder / "run.json").unlink()
    os.mkfifo(folder / "run.json")
    assert progress(tmp_path, JOB)["loss"] is None
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "outputs/job-2").symlink_to("job-2")
    assert progress(tmp_path, JOB) is None
    assert progress(tmp_path, {**JOB, "command": ["true", "--name=job-2"]}) is None


@pytest.mark.parametrize("name", ["../secret", "/etc", "a/b", "..", "", "-x", "a\nb", "é"])
def test_a_name_is_no_path(tmp_path: Path, name: str) -> None:
    assert run_of(["python", f"--name={name}"]) == run_of(["python", "--name", name]) == ""
    assert progress(tmp_path, {**JOB, "command": ["python", f"--name={name}"]}) is None


def test_the_table_on_the_command_line_shows_progress(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Table(queue.folder(root)) as table:
        table.update(1, started=time.time() - 60)
        shown = lines(table.recent(1000), root)
        show(table.get(1), root, as_json=False)
    at = next(at for at, line in enumerate(shown) if "--name=job-1" in line)
    assert shown[at + 1].strip() == "step 1450/1550, 1 min left, loss 0.0058"
    assert "step 1450/1550" in capsys.readouterr().out
    assert sum("step" in line for line in shown) == 1


# GPUs: with a module in the place of nvidia-ml-py, because there is no driver here


class FakeNvml(ModuleType):
    NVML_TEMPERATURE_GPU = 0
    NVML_ERROR_NOT_SUPPORTED = 3
    nvmlEventTypeXidCriticalError = 8  # noqa: N815

    class NVMLError(Exception):
        value = 3

    def __init__(self, memory: bool = True, hangs: threading.Event | None = None) -> None:
        super().__init__("pynvml")
        self.memory = memory
        self.hangs = hangs
        self.events = [(0, 79), (0, 79)]
        self.starts = 0

    def nvmlInit(self) -> None:  # noqa: N802
        self.starts += 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        if self.hangs:
            self.hangs.wait(60)
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index == 1:
            raise self.NVMLError("GPU is lost")
        return index

    def nvmlDeviceRegisterEvents(self, *_: Any) -> None: ...  # noqa: N802

    def nvmlDeviceGetMemoryInfo(self, device: int) -> Any:  # noqa: N802
        if not self.memory:
            raise self.NVMLError("Not Supported")
        return SimpleNamespace(used=3, total=4)

    def nvmlEventSetWait_v2(self, events: Any, milliseconds: int) -> Any:  # noqa: N802
        if not self.events:
            raise self.NVMLError("Timeout")
        device, number = self.events.pop()
        return SimpleNamespace(device=device, eventData=number)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        values = {
            "nvmlEventSetCreate": "events",
            "nvmlDeviceGetName": "NVIDIA GeForce RTX 3090",
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=93),
            "nvmlDeviceGetPowerUsage": 350_000,
            "nvmlDeviceGetTemperature": 71,
            "nvmlDeviceGetIndex": 0,
        }
        return lambda *_: values[name]


def reader(monkeypatch: pytest.MonkeyPatch, **facts: Any) -> readings.Reader:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(**facts))
    return readings.Reader()


def test_readings_of_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "FRESH", -1)
    one = reader(monkeypatch)
    for _ in range(2):
        assert one.gpus() == [
            {
                "index": 0,
                "name": "NVIDIA GeForce RTX 3090",
                "utilization": 0.93,
                "memory_used": 3,
                "memory_total": 4,
                "power": 350.0,
                "temperature": 71,
            }
        ], "the other one is lost"
        assert one.xids == {(0, 79): 2}
    assert one.nvml.starts == 1


def test_readings_of_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    (tmp_path / "meminfo").write_text("MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    400 kB\n")
    (gpu,) = reader(monkeypatch, memory=False).gpus()
    assert (gpu["memory_used"], gpu["memory_total"]) == (600 * 1024, 1000 * 1024)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert readings.Reader().gpus() == []
    monkeypatch.setattr(readings.facts, "jetson", lambda: "36.4.3")
    (gpu,) = readings.Reader().gpus()
    assert (gpu["utilization"], gpu["memory_used"]) == (None, 600 * 1024)


def test_a_driver_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "PATIENCE", 0.05)
    hangs = threading.Event()
    one = reader(monkeypatch, hangs=hangs)
    thread = threading.Thread(target=one.gpus)
    thread.start()
    while not one.lock.locked():
        time.sleep(0.01)
    assert one.gpus() == [], "other requests do not wait for it"
    hangs.set()
    thread.join(60)
    assert one.gpus()


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
    gpu |= {"index": 0, "name": "RTX", "utilization": None}
    monkeypatch.setattr("gpukit.jobs.metrics.gpus", lambda: [gpu])
    monkeypatch.setattr("gpukit.jobs.metrics.xids", lambda: {(0, 79): 2})
    text = generate_latest(registry(queue.folder(root), root))
    found = samples(text.decode())
    documented = (ROOT / "docs/queue.md").read_text(encoding="utf-8")
    assert [name for name, *_ in found if f"`{name.removeprefix('gpukit_')}`" not in documented] == []
    for state, count in {"queued": 2, "held": 1, "waiting": 1, "running": 2}.items():
        assert found["gpukit_jobs", state] == count, state
    for state, count in {"finished": 1, "failed": 1, "canceled": 1, "out of time": 1}.items():
        assert found["gpukit_jobs_ended_total", state] == count, state
    assert found["gpukit_jobs_run_seconds_total",] == 60
    assert found["gpukit_jobs_waited_seconds_total",] >= 0
    assert found["gpukit_job_loss", "1", "job-1"] == 0.0058
    assert found["gpukit_job_data_wait_ratio", "1", "job-1"] == 0.25
    assert found["gpukit_gpus_in_use",] == 2
    assert not [key for key in found if key[1:] == ("2", "job-2")], "unknown values are left out, not 0"
    assert ("gpukit_gpu_utilization_ratio", "0", "RTX") not in found
    assert found["gpukit_gpu_memory_used_bytes", "0", "RTX"] == 0.5
    assert found["gpukit_gpu_xid_errors_total", "0", "79"] == 2
    assert found["gpukit_worker_up",] == 0
    assert 0 < found["gpukit_disk_free_bytes",] < found["gpukit_disk_bytes",]


# Alerts: series in which each fires after `at`, and in which it does not

WORKS = {'up{job="gpukit", instance="a"}': "1x30", 'gpukit_worker_up{job="gpukit", instance="a"}': "1x30"}
IN_USE = 'gpukit_gpus_in_use{job="gpukit", instance="a"}'
GPU = '{gpu="0", job="gpukit", instance="a"}'
GPU_1 = '{gpu="1", job="gpukit", instance="a"}'
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
        [
            {f"gpukit_gpu_utilization_ratio{GPU}": "0.19x30", IN_USE: "1x30"},
            {
                f"gpukit_gpu_utilization_ratio{GPU}": "0.19x30",
                f"gpukit_gpu_utilization_ratio{GPU_1}": "0x30",
                IN_USE: "1x30",
            },
            {
                f"gpukit_gpu_utilization_ratio{GPU}": "0.9x30",
                f"gpukit_gpu_utilization_ratio{GPU_1}": "0x30",
                IN_USE: "2x30",
            },
        ],
        [
            {f"gpukit_gpu_utilization_ratio{GPU}": "0.19x30", IN_USE: "0x30"},
            {f"gpukit_gpu_utilization_ratio{GPU}": "0.21x30", IN_USE: "1x30"},
            {f"gpukit_gpu_utilization_ratio{GPU}": "0.19x30", IN_USE: "0x11 1x19"},  # for nine minutes
            {
                f"gpukit_gpu_utilization_ratio{GPU}": "0.9x30",
                f"gpukit_gpu_utilization_ratio{GPU_1}": "0x30",
                IN_USE: "1x30",
            },
        ],
    ),
    "DiskNearlyFull": (
        [{'gpukit_disk_free_bytes{instance="a"}': "9x30", 'gpukit_disk_bytes{instance="a"}': "100x30"}],
        [{'gpukit_disk_free_bytes{instance="a"}': "11x30", 'gpukit_disk_bytes{instance="a"}': "100x30"}],
    ),
}


def program(name: str) -> str:
    return shutil.which(name) or cannot(f"there is no {name} (Debian: apt-get install prometheus)")


@pytest.mark.program
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


@pytest.mark.program
def test_names_follow_the_conventions(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = dict.fromkeys(("utilization", "memory_used", "memory_total", "power", "temperature"), 0.5)
    monkeypatch.setattr("gpukit.jobs.metrics.gpus", lambda: [{**gpu, "index": 0, "name": "RTX"}])
    monkeypatch.setattr("gpukit.jobs.metrics.xids", lambda: {(0, 79): 2})
    text = generate_latest(registry(queue.folder(root), root))
    checked = subprocess.run([program("promtool"), "check", "metrics"], input=text, capture_output=True, timeout=60)
    assert checked.returncode == 0, checked.stderr.decode()


def test_the_checkpoint_before_an_interruption_does_not_count(root: Path) -> None:
    hours = time.time() - 7200
    folder = root / "outputs/job-1"
    os.utime(folder / "checkpoints/step-00001400", (hours, hours))

    def age() -> float:
        return samples(generate_latest(registry(queue.folder(root), root)).decode())[
            "gpukit_job_checkpoint_age_seconds", "1", "job-1"
        ]

    assert age() < 60, "the job has just started"
    with Table(queue.folder(root)) as table:
        table.update(1, started=hours - 3600)
    assert 7200 <= age() < 7260
    shutil.rmtree(folder / "checkpoints")
    assert 10_800 <= age() < 10_860, "there is none: since the start"
    now = datetime.now().astimezone().isoformat(timespec="milliseconds")
    (folder / "run.json").write_text(json.dumps({**FACTS, "starts": [{"at": now}]}))
    assert age() < 60, "it has just resumed"


@pytest.mark.program
def test_prometheus_scrapes_the_service(tmp_path: Path) -> None:
    prometheus = program("prometheus")
    service = Service(project(tmp_path))
    write_run(tmp_path, "job-1")
    address = f"127.0.0.1:{free_port()}"
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
        (tmp_path / "outputs/gate").touch()
        service.until(lambda: value('gpukit_jobs_ended_total{outcome="finished"}') == 2)
    finally:
        server.terminate()
        server.wait(60)
        service.stop()
