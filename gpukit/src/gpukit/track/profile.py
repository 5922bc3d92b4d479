"""`--profile`: a few steps recorded by torch.profiler, as a trace and a table of the operators, in the run's folder."""

from __future__ import annotations

from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from exactrun.observer import Observer

TRACE = "trace.json.gz"
OPERATORS = "operators.txt"
WARM_UP = 2  # steps whose records are dropped, since the first ones include the start of the profiler


class Profile(Observer):
    """Skips the first `skip` steps (compilation, cuDNN's choice of algorithms), and records `steps`."""

    def __init__(self, steps: int = 5, *, skip: int = 10) -> None:
        self.steps = steps
        self.skip = skip
        self.done = 0
        self.recorded = False
        self.profiler: profile | None = None

    def begin(self, run: Any) -> None:
        """Start the profiler."""
        self.folder = run.folder
        self.say = run.say
        self.gpu = torch.cuda.is_available()
        self.profiler = profile(
            activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * self.gpu],
            schedule=schedule(wait=self.skip, warmup=WARM_UP, active=self.steps, repeat=1),
            on_trace_ready=self._write,
            record_shapes=True,
        )
        self.profiler.start()

    def step(self) -> None:
        """A step ends."""
        self.done += 1
        if not self.recorded:
            self.profiler.step()

    def close(self, status: str) -> list[str]:
        """Write what was recorded."""
        if self.profiler is None or self.recorded:
            return []
        self.profiler.stop()
        if self.recorded:
            return []
        first = self.skip + WARM_UP
        return [f"Nothing was profiled: recording starts after {first} steps, and there were {self.done}."]

    def _write(self, profiler: profile) -> None:
        self.recorded = True
        by = "self_device_time_total" if self.gpu else "self_cpu_time_total"
        try:
            profiler.export_chrome_trace(str(self.folder / TRACE))
            text = profiler.key_averages().table(sort_by=by, row_limit=40)
            (self.folder / OPERATORS).write_text(text, encoding="utf-8")
        except (OSError, RuntimeError) as error:
            self.say(f"The profile cannot be written to {self.folder} ({error}): training goes on without it.")
            return
        self.say(
            f"Profile: {self.folder / TRACE} (for https://ui.perfetto.dev or Chrome's chrome://tracing), and "
            f"the operators by time in {self.folder / OPERATORS}."
        )
