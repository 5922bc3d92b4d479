"""Send requests to torch in a separate process, with a time limit, and find the causes of its errors."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import sysconfig
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

from gpukit.errors.known import diagnosed, lookup
from gpukit.findings.checks import Check, check
from gpukit.findings.finding import Finding, problem
from gpukit.project.messages import plain
from gpukit.project.stack import Stack

PACKAGES = Path(__file__).resolve().parents[2]  # the folder that holds gpukit
# The gpukit that runs here, even if the current directory has a gpukit.py. Its own child processes find it there too.
RUN = (
    "import sys; sys.path[0] = sys.argv[1]; import gpukit; del sys.path[0]; "
    "from gpukit.verify import worker; worker.main()"
)


class TorchError(Exception):
    """An exception's name and text, or how the process ended: Death, with its exit status, or Timeout.

    `log` is the end of its output. `device`: where it was raised, if that is known.
    """

    def __init__(self, kind: str, text: str, log: str = "", status: int | None = None, device: str = "") -> None:
        super().__init__(f"{kind}: {text}" if text else kind)
        self.kind = kind
        self.text = text
        self.log = log
        self.status = status
        self.device = device


class TorchProcess:
    """A worker process. It starts immediately, to import torch while other checks run, and restarts after a crash."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._lock = threading.Lock()
        self._environment = environment or {}
        self._ended = False
        self._start()

    def call(self, request: str, *arguments: Any, limit: float) -> dict[str, Any]:
        with self._lock:
            if self._ended:
                raise TorchError("Death", "was stopped before")
            if self._process.returncode is not None:
                self._start()
        try:
            print(json.dumps({"do": request, "with": arguments}), file=self._process.stdin, flush=True)
            line = self._answers.get(timeout=limit)
        except queue.Empty:
            self.close()
            raise TorchError("Timeout", f"no answer in {limit:g} s", "".join(self._log)) from None
        except OSError:  # it died before the request
            line = None
        if line is None:
            self.close()
            status = self._process.returncode
            raise TorchError("Death", _describe_exit(status), "".join(self._log), status)
        answer = json.loads(line)
        if "error" in answer:
            raise TorchError(answer["error"], answer["text"], answer.get("before", "") + "".join(self._log))
        return answer["answer"]

    def end(self) -> None:
        """Close it finally, even if a thread still waits for an answer."""
        with self._lock:
            self._ended = True
        self.close()

    def close(self) -> None:
        """Kill it and the compilers that it may have started, and read the rest of its output."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for reader in self._readers:
            reader.join(timeout=1)
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        for stream in (self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.close()

    def _start(self) -> None:
        own = "" if str(PACKAGES) == sysconfig.get_path("purelib") else str(PACKAGES)
        path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), own)))
        self._process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(PACKAGES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "PYTHONPATH": path, **self._environment},
            start_new_session=True,
        )
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._log: deque[str] = deque(maxlen=60)
        self._readers = (
            threading.Thread(target=_answers, args=(self._process.stdout, self._answers), daemon=True),
            threading.Thread(target=self._log.extend, args=(self._process.stderr,), daemon=True),
        )
        for reader in self._readers:
            reader.start()


def _answers(stream: Any, answers: queue.Queue[str | None]) -> None:
    for line in stream:
        answers.put(line)
    answers.put(None)


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


def last_line(text: str) -> str:
    """The line with the error in a traceback or a compiler's output; advice often follows it."""
    lines = [plain(line) for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror\b|\w(Error|Exception):", line)]
    return (errors or lines or [""])[-1]


# Of every check that computes on the GPU.
COMMON = (
    *("gpu-memory-taken", "no-kernel", "gpu-exclusive", "gpu-memory-fault", "gpu-lost", "kernel-crashed"),
    *("gpu-memory-or-libraries", "two-cudnn", "host-memory-full", "gpu-hangs", "gpu-computing-fails"),
)
# What a sign, another cause, or an exception means in what verify itself runs.
MEANS = {
    "gpu-memory-full": "gpu-memory-taken",
    "count-memory": "gpu-memory-taken",
    "forward-compatibility": "cuda-compat-geforce",
    "cuda-unknown": "container-lost-gpu",
    "lost-after-reload": "container-lost-gpu",
    "no-gpu-inside": "gpu-not-started",
    "no-such-gpu": "gpu-not-started",
    "nccl-aborted": "ranks-hang",
    "save-failed": "checkpoint-fails",
    "link-library": "libcuda-not-listed",
}
EXCEPTIONS = {
    "BlockingIOError": ("process-limit",),
    "MemoryError": ("host-memory-full", "worker-killed"),
    "PTXASError": ("ptxas-too-old",),
    "TritonMissing": ("triton-mismatch",),
    "Timeout": ("gpu-hangs", "loader-timeout", "ranks-hang"),
}
KILLED = ("host-memory-full", "worker-killed")


def summary(error: TorchError) -> str:
    """One line about an error."""
    if error.kind in ("Death", "Timeout"):
        return f"torch {error.text}"
    return last_line(error.text) or error.kind


def diagnose(error: TorchError, ids: Iterable[str], fallback: str, where: str, expected: str) -> Finding:
    """The first of these causes that matches the error's kind, its text, or the process's output before it.

    If none matches, the most likely cause of that text according to all rules.
    """
    ids = set(ids)
    seen = f"{where}: {summary(error)}" if where else summary(error)
    killed = KILLED if error.status == -signal.SIGKILL else ()
    text = f"{error.kind}: {error.text}"
    by_kind = next((id for id in (*killed, *EXCEPTIONS.get(error.kind, ())) if id in ids), "")
    if id := by_kind or lookup(text, ids, MEANS) or lookup(error.log, ids, MEANS):
        return problem(id, seen, expected)
    return diagnosed(f"{text}\n{error.log}", fallback, seen, expected)


def torch_check(
    id: str, title: str, fallback: str = "gpu-computing-fails", **options: Any
) -> Callable[[Callable[[Any, Stack], Finding]], Check]:
    """A check that may raise a TorchError, which is reported by its cause: one of the check's own, or `fallback`."""

    def decorated(judge: Callable[[Any, Stack], Finding]) -> Check:
        @wraps(judge)
        def judged(probes: Any, stack: Stack) -> Finding:
            try:
                return judge(probes, stack)
            except TorchError as error:
                return diagnose(error, made.causes, fallback, f"on {error.device}" if error.device else "", "")

        made = check(id, title, **options)(judged)
        return made

    return decorated
