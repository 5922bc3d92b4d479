"""`--profile`: a few steps recorded by torch.profiler, as a trace and a table of the operators, in the run's folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

TRACE, OPERATORS = "trace.json.gz", "operators.txt"
WARM_UP = 2  # steps whose records are dropped, since the first ones include the start of the profiler


class profiled:  # noqa: N801 - used like a function
    """A context around the loop; call `step()` after each step.

    Skips the first `skip` steps (compilation, cuDNN's choice of algorithms), and records `steps`.
    """

    def __init__(self, folder: Path, steps: int = 5, *, skip: int = 10, say: Callable[[str], object] = print) -> None:
        self.folder, self.skip, self.say, self.done, self.recorded = folder, skip, say, 0, False
        self.gpu = torch.cuda.is_available()
        self.profiler = profile(
            activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * self.gpu],
            schedule=schedule(wait=skip, warmup=WARM_UP, active=steps, repeat=1),
            on_trace_ready=self._write,
            record_shapes=True,
        )

    def __enter__(self) -> profiled:
        self.profiler.start()
        return self

    def step(self) -> None:
        """Call this after each step."""
        self.done += 1
        if not self.recorded:
            self.profiler.step()

    def __exit__(self, *_: object) -> None:
        if self.recorded:
            return
        self.profiler.stop()  # writes what was recorded
        if not self.recorded:
            first = self.skip + WARM_UP
            self.say(f"Nothing was profiled: recording starts after {first} steps, and there were {self.done}.")

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
