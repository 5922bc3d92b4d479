"""The smallest project with a queue, and kill -9 of its submissions and workers: for tests, and for a benchmark."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpukit.host import frozen, queue
from gpukit.host.git import git
from gpukit.jobs.table import FINAL, Table

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "gpukit/src"
PATIENCE = 600  # seconds until all jobs have ended
CONFIG = {"build": {"dockerfile": "../Dockerfile"}, "workspaceFolder": "/workspace"}


def project(root: Path) -> Path:
    for name in ("", "cpu"):
        folder = root / ".devcontainer" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "devcontainer.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (root / "stack.json").write_text(json.dumps({"project": "small", "package": "small"}), encoding="utf-8")
    return root


def environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join([str(SOURCE), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "GPUKIT_PROJECT": str(folder)}


def worker(folder: Path) -> subprocess.Popen[bytes]:
    plain = str(Path(__file__).with_name("plain.py"))
    return subprocess.Popen([sys.executable, plain, str(folder), ""], env=environment(folder), stderr=-3)


def until_ended(place: Path) -> list[dict[str, Any]]:
    """All jobs, once they have ended and their checkouts are removed."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with Table(place) as table:
            found = table.recent(10_000)
        if all(job["state"] in FINAL for job in found) and not any(path.name.isdecimal() for path in place.iterdir()):
            return found
        time.sleep(0.05)
    raise TimeoutError(f"after {PATIENCE} s, not all jobs have ended: {found}")


def kills(folder: Path, times: int) -> dict[str, int]:
    """What is lost, wrong, or left. The repository's src/code.py prints 0; each submission is of another number."""
    place = queue.folder(folder)
    chance = random.Random(2026)
    expected = {1: "0\n"}
    command = [sys.executable, "-m", "gpukit", "submit", "--", sys.executable, "src/code.py"]
    begun = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment(folder), stdout=subprocess.DEVNULL, check=True)
    whole = time.perf_counter() - begun
    for number in range(1, times + 1):
        (folder / "src/code.py").write_text(f"print({number})\n", encoding="utf-8")
        process = subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=-1, stderr=-3)
        time.sleep(chance.uniform(0.3 * whole, 1.2 * whole))
        process.send_signal(signal.SIGKILL)
        printed = process.communicate()[0].strip()
        with Table(place) as table:
            for job in table.recent(10_000):
                expected.setdefault(job["id"], f"{number}\n")
        assert not printed or int(printed) in expected, "a job that was reported is lost"
    for _ in range(times):
        one = worker(folder)
        time.sleep(chance.uniform(0.3 * whole, 2 * whole))
        one.send_signal(signal.SIGKILL)
        one.wait()
    one = worker(folder)
    try:
        ended = until_ended(place)
    finally:
        one.terminate()
        one.wait()
    wrong = sum(not (place / f"{number}.log").read_text().endswith(text) for number, text in expected.items())
    frozen.remove_drafts(place, 0)
    frozen.forget(folder, lambda: {job["code"] for job in ended})
    refs = git(folder, "for-each-ref", frozen.REFS).splitlines()
    left = [path for path in place.iterdir() if path.is_dir() and path.name != "code.git"]
    return {
        "jobs that were lost, or did not finish": sum(job["state"] != "finished" for job in ended),
        "jobs that ran other code": wrong,
        "folders that are left": len(left),
        "codes that git keeps for no job": len(refs) - len({job["code"] for job in ended}),
        "lines in `git status` but for the edit": len(git(folder, "status", "--porcelain").splitlines()) - 1,
    }
