"""Send requests to torch in a separate process, with a time limit."""

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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpukit.project.messages import plain

PACKAGES = Path(__file__).resolve().parents[2]  # the folder that holds gpukit
# The gpukit that runs here, even if the current directory has a gpukit.py. Its own child processes find it there too.
RUN = (
    "import sys; sys.path[0] = sys.argv[1]; import gpukit; del sys.path[0]; "
    "from gpukit.verify import worker; worker.main()"
)


class TorchError(Exception):
    """An exception's name and text, or how the process ended: Death, with its exit status, or Timeout.

    `log` is the end of its output.
    """

    def __init__(self, kind: str, text: str, log: str = "", status: int | None = None) -> None:
        super().__init__(f"{kind}: {text}" if text else kind)
        self.kind, self.text, self.log, self.status = kind, text, log, status


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
