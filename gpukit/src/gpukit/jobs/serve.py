"""The main process of the service `jobs`: the queue's worker in its container; it starts and restarts the HTTP server.

It is process 1 of the container, so it reaps orphans, and the container ends with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpukit.host.project import Project, secret
from gpukit.host.queue import HEALTH, TOKEN, WorkerLock, boot_id, fingerprint, folder
from gpukit.jobs.runners import Inside, adopted
from gpukit.jobs.table import Table
from gpukit.jobs.worker import Active, Worker
from gpukit.project.location import root as find_root
from gpukit.project.messages import RefusalError, say

PAUSE = 5.0  # seconds between starts of the server
PROBE_SECONDS = 120.0
PROBE_AGAIN = 60.0
PROBE = """
import sys, torch
names = []
for at in range(torch.cuda.device_count()):
    assert (torch.ones(8, device=f"cuda:{at}") * 2).sum().item() == 16
    names.append(torch.cuda.get_device_name(at))
if len(names) < int(sys.argv[1]):
    sys.exit(f"PyTorch finds {len(names)} of {sys.argv[1]} GPUs")
print(", ".join(names))
"""


class ServiceWorker(Worker):
    def __init__(self, place: Path, table: Table, lock: WorkerLock, gpus: list[str] | None, server: list[str]) -> None:
        root = place.parents[1]
        super().__init__(place, table, Inside(lambda *_: Project(root, os.environ), lock), gpus, self._project)
        self.lock = lock
        self.root = root
        self.command = server
        self.server = None
        self.server_from = 0.0
        self.probe: subprocess.Popen[str] | None = None
        self.probe_at = self.probe_until = 0.0
        self.suspect = 0  # the job after whose failure the GPUs are probed
        self.cuda: dict[str, Any] = {"ok": True, "device": "cpu" if gpus is None else "", "error": ""}
        self.built = fingerprint(root)

    def _project(self) -> Project:
        return Project(self.root, os.environ)

    def recover(self) -> None:
        self._serve()
        if self.lock.file < 0:
            if not self.lock.take():
                raise RefusalError(f"The queue is being processed by {self.lock.name()}: `./launch stop` stops it.")
            self.lock.sign(**self.runner.lease(0))
        for job in self.table.running():
            if job["lease"].get("kind") != Inside.kind and job["lease"].get("boot") == boot_id():
                raise RefusalError(
                    f"Job {job['id']} may still run on the host, where its worker was killed: after `./launch stop`, "
                    "`./launch jobs run` ends and resumes it."
                )
        super().recover()

    def _runner_of(self, lease: dict[str, Any]) -> Inside:
        return self.runner

    def tick(self) -> None:
        self._serve()
        self._check_gpus()
        super().tick()
        adopted(self.children())  # reaps the dead ones

    def children(self) -> set[int]:
        return super().children() | {each.pid for each in (self.server, self.probe) if each}

    def change(self, job: dict[str, Any]) -> str:
        if job["project"] == self.built:
            return ""
        if job["project"] and job["project"] == fingerprint(self.root):
            return "the project's environment is newer than the service's, which the job uses: `./launch up` updates it"
        if job["project"] and job["code"]:
            return "the service's environment is not that of the job's code, and the job uses it"
        return super().change(job)

    # The HTTP server

    def _serve(self) -> None:
        if (self.server and self.server.poll() is None) or time.monotonic() < self.server_from:
            return
        if self.server:
            say(f"The HTTP server has ended with exit status {self.server.returncode}: restarting it.")
        self.server = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, start_new_session=True)
        self.server_from = time.monotonic() + PAUSE

    def close(self) -> None:
        if self.server:
            self.server.terminate()
            try:
                self.server.wait(timeout=5)
            except subprocess.TimeoutExpired:  # it waits for those who still read from it
                self.server.kill()

    # The GPUs: no job starts until a program has used those that are free, so that a lost GPU fails no second job

    def _start_what_fits(self) -> None:
        if not self.probe and self.cuda["ok"] and self.probe_at > time.monotonic():
            super()._start_what_fits()

    def _finish(self, active: Active) -> None:
        super()._finish(active)
        if active.number not in self.active and self.table.get(active.number)["state"] == "failed":
            self.suspect = active.number
            self.probe_at = 0.0

    def _check_gpus(self) -> None:
        free = self._free() if self.gpus else []
        if not self.probe:
            if time.monotonic() < self.probe_at:
                return
            if not free:
                self._report(self.cuda)
                return
            chosen = {} if free == ["all"] else {"CUDA_VISIBLE_DEVICES": ",".join(free)}
            self.probe = subprocess.Popen(
                [sys.executable, "-c", PROBE, str(len(free))],
                env={**os.environ, **chosen, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            self.probe_until = time.monotonic() + PROBE_SECONDS
        if self.probe.poll() is None and time.monotonic() < self.probe_until:
            return
        if self.probe.poll() is None:
            self.probe.kill()  # and not waited for: a process in a hung driver does not end
            error = f"no result within {PROBE_SECONDS:.0f} s"
            text = ""
        else:
            text = (self.probe.communicate()[0].strip().splitlines() or [""])[-1][:500]
            error = "" if self.probe.returncode == 0 else text or f"exit status {self.probe.returncode}"
        self.probe = None
        self._report({"ok": not error, "device": "" if error else text, "error": error})

    def _report(self, cuda: dict[str, Any]) -> None:
        if cuda["error"] and cuda["error"] != self.cuda["error"]:
            say(f"A GPU cannot be used ({cuda['error']}): jobs wait; `./launch doctor` on the host shows why.")
        if cuda["error"] and self.suspect:
            note = self.table.get(self.suspect)["note"]
            self.table.update(self.suspect, note=f"{note}; after it, a GPU could not be used ({cuda['error']})")
        self.cuda = cuda
        self.suspect = 0
        self.probe_at = time.monotonic() + PROBE_AGAIN if cuda["error"] else float("inf")
        self.report()

    def report(self) -> None:
        """Write what the server reports of this process."""
        path = self.place / HEALTH
        with contextlib.suppress(OSError):
            path.with_suffix(".new").write_text(json.dumps({"cuda": self.cuda}), encoding="utf-8")
            path.with_suffix(".new").replace(path)


def visible_gpus() -> list[str] | None:
    """The GPUs of this container to share out to jobs, MIG devices by their UUIDs; None without a GPU."""
    if os.environ.get("GPUKIT_DEVICE") == "cpu":
        return None
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        listed = ""
    return re.findall(r"UUID: (MIG-[\w/-]+)", listed) or re.findall(r"^GPU (\d+):", listed, re.MULTILINE) or ["all"]


def main(arguments: list[str]) -> int:
    root = find_root()
    place = folder(root)
    os.chdir(root)
    secret(root / TOKEN)
    server = [sys.executable, "-P", "-m", "gpukit.jobs.service", *arguments]
    with Table(place) as table:
        worker = ServiceWorker(place, table, WorkerLock(place), visible_gpus(), server)
        worker.report()
        try:
            worker.run()
        finally:
            worker.close()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except RefusalError as refusal:
        say(f"gpukit: {refusal}")
        sys.exit(refusal.code)
