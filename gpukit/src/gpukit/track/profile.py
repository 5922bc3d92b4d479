"""`--profile`: a few steps recorded by torch.profiler, as a trace and a table of the operators, in the run's folder."""

from __future__ import annotations

from typing import Any

import torch
from torch.profiler import profile, schedule

from exactrun.observer import Observer

TRACE = "trace.json.gz"
OPERATORS = "operators.txt"
SKIPPED = 10  # first steps, which compile and choose algorithms
WARM_UP = 2  # steps whose records are dropped: they include the start of the profiler
RECORDED = 5


class Profile(Observer):
    """Records the steps after SKIPPED and WARM_UP."""

    recorded = False

    def begin(self, run: Any) -> None:
        """Start the profiler."""
        self.run = run
        steps = schedule(wait=SKIPPED, warmup=WARM_UP, active=RECORDED, repeat=1)
        self.profiler = profile(schedule=steps, on_trace_ready=self._write, record_shapes=True)
        self.profiler.start()

    def step(self) -> None:
        """A step ends."""
        if not self.recorded:
            self.profiler.step()

    def close(self, status: str) -> list[str]:
        """Write what was recorded."""
        if not self.recorded and hasattr(self, "profiler"):
            self.profiler.stop()
        if self.recorded:
            return []
        return [f"Nothing was profiled: recording starts after {SKIPPED + WARM_UP} steps."]

    def _write(self, profiler: profile) -> None:
        self.recorded = True
        by = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        folder = self.run.folder
        try:
            profiler.export_chrome_trace(str(folder / TRACE))
            (folder / OPERATORS).write_text(profiler.key_averages().table(sort_by=by, row_limit=40), encoding="utf-8")
        except (OSError, RuntimeError) as error:
            self.run.say(f"The profile cannot be written to {folder} ({error}): training goes on without it.")
            return
        self.run.say(
            f"Profile: {folder / TRACE} (for https://ui.perfetto.dev or Chrome's chrome://tracing), and the operators "
            f"by time in {folder / OPERATORS}."
        )
