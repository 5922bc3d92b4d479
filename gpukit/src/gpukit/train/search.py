"""The search for the largest batch that fits: which size to try next, when to stop, how much memory to leave free.

It does not depend on PyTorch or on a device: `trial(size)` returns whether a few training steps fit in memory, and
their peak. Three ideas keep the number of trials small:

- *Memory is measured, not only whether it ran out.* Two sizes give the memory that one more sample takes; that predicts
  the largest size (the secant method; with a third point and a rising slope, a parabola). Doubling and bisection, as in
  Lightning's BatchSizeFinder, get one bit from a trial; this gets a number.
- *Evidence is monotone.* A size that failed in its last trial is an upper bound. Only a size that was tried, and tried
  again in a fresh process, is returned.
- *The margin follows the noise.* The same size is measured at least twice. If both peaks are equal, 1 % of the batch's
  memory is left free; if they differ, several times the deviation of all measurements (a tolerance interval), at most
  5 % of the budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

START = 2  # a single sample is special: it uses other kernels, and BatchNorm rejects it
FIRST_SHARE = 0.75  # of the budget, the target after a single point: a point below the budget shows a change of slope
AIM = 0.9  # of the remaining memory, the target while the slope is uncertain
BEYOND = 1.5  # times the span of the points, up to which their slope is extrapolated
UNSURE = 0.002  # of the budget: possible rounding and noise in a measured difference
SHORT = 0.03  # of the budget: if the peak is lower than expected by this much, the slope is recomputed
GRID = 65535  # blocks that a CUDA launch may have in its second and third dimension

QUIET = 0.01  # margin if measurements repeat exactly, relative to the memory that grows with the batch
FEW = 34  # samples: in smaller batches, a sample is more than 3 %, too much to leave free without noise
NEARLY = 0.9  # of the budget: a failure although less is expected does not indicate noise
LITTLE = 8  # samples: for smaller batches, a failed confirmation is repeated once
EQUAL = 2e-5  # two peaks that differ by less are equal
DEVIATIONS = 6.0  # margin if they do not repeat, in standard deviations above the mean; many, since samples are few
ABOVE_WORST = 0.015  # and above the highest measured peak, relative to the budget
LEAST, MOST = 0.005, 0.05  # and between these, of the budget
DRAWS = 3  # measurements close to the answer, if there is noise
LONGEST = 10  # trials, after which a good size is accepted

ABSURD = 0.65  # of the budget: a failure although no more than this is expected is repeated once
IMPOSSIBLE = 0.93  # the same for a prediction from one point, which is an upper bound
OTHER = 0.06  # of the budget: if a confirmation differs by more, its steps are of another kind, such as compiled

DOWN = (0.97, 0.9, 0.75, 0.6, 0.4, 0.2, 0.0)  # factors on a size whose confirmation failed, until one is confirmed

# By number of trials: how much smaller than possible the answer may be. Another trial must promise a larger gain.
WORTH = (0.003, 0.003, 0.003, 0.003, 0.005, 0.006, 0.01, 0.015, 0.025, 0.04, 0.06, 0.1, 0.2, 0.3)


@dataclass(frozen=True)
class Outcome:
    """The result of a few steps: whether they fit, and their peak memory in bytes (None: unknown).

    `ceiling`: they failed for another reason than memory, such as a kernel that cannot be launched at that size.
    `why`: the reason if they failed. `seconds`: their duration.
    """

    fits: bool
    peak_bytes: int | None = None
    ceiling: bool = False
    why: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Tried:
    """One trial. `confirming`: it ran in a fresh process, for longer."""

    size: int
    outcome: Outcome
    confirming: bool = False

    @property
    def peak(self) -> int:
        """Bytes; 0 if it did not fit or nothing was measured."""
        return (self.outcome.peak_bytes or 0) if self.outcome.fits else 0

    @property
    def excess(self) -> int:
        """Bytes if it ran but exceeded the budget; 0 otherwise."""
        return 0 if self.outcome.fits else (self.outcome.peak_bytes or 0)


@dataclass(frozen=True)
class Found:
    """The result: `batch_size` samples (0: not even one fits), why not more, and the trials.

    `share`: the batch's peak memory relative to `budget_bytes`.
    """

    batch_size: int
    reason: str
    trials: tuple[Tried, ...]
    budget_bytes: int
    share: float


def search(
    trial: Callable[[int], Outcome],
    budget_bytes: int,
    *,
    confirm: Callable[[int], Outcome] | None = None,
    ceiling: int | None = None,
) -> Found:
    """The largest batch whose training steps stay within `budget_bytes`.

    `trial(size)` runs a few steps with `size` samples; `confirm(size)` runs more, in a fresh process and as training
    will (None: `trial` does both). `ceiling`: the largest size to be tried. Own method, described above.
    """
    return _Search(trial, confirm or trial, budget_bytes, ceiling).find()


@dataclass
class _Evidence:
    """The trials so far. Only the last trial of a size counts, so that a repetition can correct noise."""

    budget: int
    ceiling: int | None
    tried: list[Tried] = field(default_factory=list)

    @property
    def bound(self) -> int:
        """The smallest size that is too large."""
        last = {each.size: each.outcome.fits for each in self.tried}
        return min((size for size, fits in last.items() if not fits), default=(self.ceiling or 2**40) + 1)

    @property
    def best(self) -> int:
        """The largest size that fits, below every size that failed; 0: none."""
        bound = self.bound
        return max((each.size for each in self.tried if each.outcome.fits and each.size < bound), default=0)

    @property
    def points(self) -> list[tuple[int, int]]:
        """Sizes that fit, ascending, and the highest peak of each."""
        bound, peaks = self.bound, {}
        for each in self.tried:
            if each.peak and each.size < bound:
                peaks[each.size] = max(peaks.get(each.size, 0), each.peak)
        return sorted(peaks.items())

    @property
    def slope(self) -> float:
        """Bytes per additional sample, at the largest size that fits. From one point: an upper bound."""
        return self.rise(self.points)

    def rise(self, points: list[tuple[int, int]]) -> float:
        """The slope at the end of these points."""
        if len(points) < 2:
            return points[0][1] / points[0][0] if points else 0.0
        size, peak = points[-1]
        apart = [each for each in points[:-1] if peak - each[1] >= 0.2 * self.budget]  # so that noise matters little
        other, low = apart[-1] if apart else points[0]
        return max(peak - low, 0) / (size - other)

    def expected(self, size: int) -> float:
        """Bytes at `size`, along the slope."""
        best, peak = self.points[-1]
        return peak + self.slope * (size - best)

    def reach(self, target: float) -> float:
        """The size at which the memory is predicted to be `target` bytes."""
        points = self.points
        size, peak = points[-1]
        if len(points) == 1:
            return max(size * target * FIRST_SHARE / peak, size + 1)
        reached = size + (target - peak) / self.slope if self.slope > 0 else math.inf
        if len(points) >= 3 and target - peak > SHORT * self.budget:
            before, rise = points[-2], (peak - points[-2][1]) / (size - points[-2][0])
            if rise < 0.6 * self.rise(points[:-1]):  # a step in between, or a falling slope
                return size + min((target - peak) / max(rise, 1e-9), 4 * (size - before[0]))
        if len(points) >= 3 and size >= FEW:
            halfway = (points[0][1] + peak) / 2
            middle = min(points[1:-1], key=lambda each: abs(each[1] - halfway))
            reached = min(reached, _parabola(points[0], middle, points[-1], target, 0.05 * self.budget))
        return reached

    def carefully(self, reached: float, target: float) -> float:
        """Limit the extrapolation from points that are close together: their slope may be mostly rounding."""
        points = self.points
        (first, low), (size, peak) = points[0], points[-1]
        span = size - first
        if len(points) == 1 or reached <= size + BEYOND * span:
            return reached
        steepest = (max(peak - low, 0) + UNSURE * self.budget) / span
        return min(reached, size + max(AIM * (target - peak) / steepest, 3 * span))

    def differences(self) -> list[float]:
        """The relative difference between the peaks of each size that was measured more than once."""
        peaks: dict[int, list[int]] = {}
        for each in self.tried:
            if each.peak:
                peaks.setdefault(each.size, []).append(each.peak)
        found = [(max(several) - min(several)) / max(several) for several in peaks.values() if len(several) > 1]
        for each in self.tried:  # it fit once and ran out once: that peak exceeded the budget
            low = min(peaks.get(each.size, [0]))
            if not each.outcome.fits and not each.outcome.ceiling and low > NEARLY * self.budget:
                found.append((self.budget - low) / self.budget)
        return found

    @property
    def noisy(self) -> bool:
        """Whether the same size has taken different amounts of memory."""
        return max(self.differences(), default=0.0) > EQUAL

    def deviation(self) -> float:
        """Standard deviation of a measurement, relative: from repeated sizes, and from a line through all of them."""
        repeated = max(self.differences(), default=0.0) / 1.7  # the mean range of two to three draws
        points = [(each.size, each.peak) for each in self.tried if each.peak]
        return max(repeated, _residual(points)) if len(points) >= 4 else repeated

    def margin(self, size: int) -> float:
        """Bytes to leave free at `size`."""
        if self.noisy:
            return min(MOST, max(LEAST, DEVIATIONS * self.deviation())) * self.budget
        return 0.0 if size < FEW else QUIET * min(self.budget, size * self.slope)

    def needed(self, size: int) -> float:
        """Bytes at `size`: as measured, or, with noise, from all measurements close to it."""
        here = [each.peak for each in self.tried if each.size == size and each.peak]
        if here and not self.noisy:
            return max(here)
        close = [each for each in self.tried if 0.8 * size <= each.size <= 1.25 * size]
        near = [each.peak + self.slope * (size - each.size) for each in close if each.peak]
        if not near or not self.noisy:
            return max(near, default=0.0)
        out = [each for each in close if not each.outcome.fits and self.expected(each.size) > NEARLY * self.budget]
        near += [self.budget + self.slope * (size - each.size) for each in out]
        worst = max(near) + ABOVE_WORST * self.budget
        return max(sum(near) / len(near), worst - self.margin(size))

    def over(self, size: int, strict: float = 1.0) -> float:
        """Bytes by which `size` exceeds the budget minus its margin; negative: it does not."""
        return self.needed(size) + strict * self.margin(size) - self.budget


class _Search(_Evidence):
    """The order of the trials."""

    def __init__(
        self, trial: Callable[[int], Outcome], confirm: Callable[[int], Outcome], budget: int, ceiling: int | None
    ) -> None:
        super().__init__(budget, ceiling)
        self.trial, self.confirm = trial, confirm
        self.all: list[Tried] = []

    def find(self) -> Found:
        size = self.explore(min(START, self.ceiling or START))
        while size and not self.settled(size):
            fits = self.run(size, confirming=True)
            if not fits and size < LITTLE and self.times(size) == 2:  # one less would be much smaller
                self.run(size, confirming=True)
            if self.recalibrate(size):
                size = self.explore(self.next())
            size = self.settle() if size else 0
        return Found(size, self.reason(size), tuple(self.all), self.budget, self.share(size))

    def run(self, size: int, confirming: bool = False) -> bool:
        outcome = (self.confirm if confirming else self.trial)(size)
        if outcome.fits and (outcome.peak_bytes or 0) > self.budget:
            outcome = replace(outcome, fits=False, why="it needs more than the available memory")
        self.tried.append(Tried(size, outcome, confirming))
        self.all.append(self.tried[-1])
        return outcome.fits

    def explore(self, size: int) -> int:
        """Starting from a size, approach the largest size that fits; return the size to confirm."""
        confirming = self.trial is self.confirm and any(each.confirming for each in self.tried)
        while size and len(self.all) < 2 * LONGEST:
            if not self.run(size, confirming) and size == 1 and not self.tried[-1].outcome.ceiling:
                self.run(size, confirming)  # once more before concluding that nothing fits
            size = self.next()
        return self.settle()

    def worth(self) -> float:
        return WORTH[min(len(self.all), len(WORTH) - 1)]

    def times(self, size: int) -> int:
        return sum(each.size == size for each in self.tried)

    def next(self) -> int:
        """The size to try next; 0: the possible gain is not worth another trial."""
        best, bound, points = self.best, self.bound, self.points
        if bound <= 1:
            return 0
        if best == 0:
            return bound // 2
        if not points:
            return self.blindly(best, bound)
        if self.mistaken(bound):
            return bound
        target = self.budget - self.margin(best)
        reached = self.reach(target)
        if reached - best < max(0.9, self.worth() * best) or bound - best - 1 < max(1, self.worth() * best):
            return 0
        size = max(best + 1, math.floor(min(self.carefully(reached, target), 2**40) + 0.1))
        return size if size < bound else self.between(best, bound)

    def mistaken(self, bound: int) -> bool:
        """Whether the failure that bounds the search looks like noise in view of later trials."""
        points = self.points
        span = points[-1][0] - points[0][0] if len(points) > 1 else points[0][0]
        failed = [each.size for each in self.tried if not each.outcome.fits]
        again = len(failed) > len(set(failed))  # it failed twice, so it is not noise
        if again or self.times(bound) != 1 or bound > points[-1][0] + BEYOND * span:
            return False
        ceiling = any(each.size == bound and each.outcome.ceiling for each in self.tried)
        return not ceiling and self.expected(bound) < (ABSURD if len(points) > 1 else IMPOSSIBLE) * self.budget

    def between(self, best: int, bound: int) -> int:
        """A size between one that fits and one that does not, although its memory should."""
        if bound == (self.ceiling or 0) + 1:
            return bound - 1
        if excess := max((each.excess for each in self.tried if each.size == bound), default=0):
            peak = self.points[-1][1]
            share = (self.budget - self.margin(best) - peak) / (excess - peak) if excess > peak else 0.5
            return best + max(1, math.floor(min(share, 0.97) * (bound - best)))
        if best <= GRID < bound and any(each.size == bound and each.outcome.ceiling for each in self.tried):
            return GRID if best < GRID else GRID + 1
        return math.isqrt(best * bound) if bound > 8 * best else (best + bound) // 2

    def blindly(self, best: int, bound: int) -> int:
        """Without memory measurements: quadruple until it fails, then bisect."""
        if bound > (self.ceiling or 2**40):
            return 0 if best == bound - 1 else min(4 * best, bound - 1)
        return (best + bound) // 2 if bound - best > max(1, best * max(self.worth(), 0.02)) else 0

    def confirmed(self) -> list[int]:
        return [each.size for each in self.tried if each.confirming and each.outcome.fits and each.size < self.bound]

    def settle(self) -> int:
        """The best size by the current evidence, confirmed or still to be confirmed."""
        best, confirmed = self.best, self.confirmed()
        if confirmed and len(self.all) >= 2 * LONGEST:
            return max(confirmed)
        if not confirmed:
            failed = [each.size for each in self.tried if each.confirming]
            if failed:  # a fresh process takes more memory: reduce until one fits
                return math.floor(max(failed) * DOWN[min(len(failed), len(DOWN)) - 1])
        if not self.points or self.slope <= 0:
            return max(confirmed, default=best)
        good = max((size for size in confirmed if self.over(size, 0.9 if self.noisy else 0.5) <= 0), default=0)
        over = self.over(best, 0.9 if self.noisy else 0.5)
        wanted = best if over <= 0 else self.lower(best, over)
        return good if good and wanted <= good * (1 + max(0.02, self.worth())) else wanted

    def lower(self, size: int, over: float) -> int:
        """A size that needs `over` bytes less, with some reserve for an overestimated slope."""
        less = (over + 0.1 * self.margin(size)) / self.slope
        return max(1, math.floor(size - max(less, 0.01 * size)))

    def settled(self, size: int) -> bool:
        """Whether `size` is confirmed, and measured often enough to trust that."""
        if size not in self.confirmed():
            return False
        close = sum(0.9 * size <= each.size <= 1.1 * size for each in self.tried)
        enough = not self.noisy or close >= DRAWS or len(self.all) >= LONGEST
        return len(self.all) >= 2 * LONGEST or (self.times(size) >= 2 and enough)

    def recalibrate(self, size: int) -> bool:
        """If the confirmation's memory differs from the trials', use the confirmation's kind of step from here on.

        The part that grows with the batch is scaled; the rest (weights, optimizer) is the same in both.
        """
        last = self.tried[-1]
        line = [(each.size, each.peak) for each in self.tried if each.peak and not each.confirming]
        if self.trial is self.confirm or not last.peak or len(line) < 2:
            return False
        (first, low), (top, peak) = min(line), max(line)
        slope = (peak - low) / (top - first)
        fixed, expected = low - slope * first, peak + slope * (size - top)
        failed = any(each.confirming and not each.outcome.fits for each in self.tried)
        if expected <= fixed or (abs(last.peak - expected) <= OTHER * self.budget and not failed):
            return False
        scale = max(last.peak - fixed, 0) / (expected - fixed)
        kept = [each for each in self.tried if each.confirming or each.outcome.fits or each.outcome.ceiling]
        self.tried = [_scaled(each, fixed, scale) for each in kept]
        self.trial = self.confirm
        return True

    def share(self, size: int) -> float:
        return max((each.peak for each in self.all if each.size == size and each.confirming), default=0) / self.budget

    def reason(self, size: int) -> str:
        """One clause: why the batch is not larger."""
        if not size:
            why = next((each.outcome.why for each in reversed(self.all) if each.size == 1), "")
            return "not even one sample fits" + (f" ({why})" if why else "")
        if self.best == self.ceiling and size >= self.ceiling:
            return f"{self.ceiling} is the largest size to try"
        kept, bound = max(0.0, 1 - self.share(size)), self.bound
        failed = [each.outcome for each in self.all if each.size == bound and not each.outcome.fits]
        if failed and bound <= size * 1.05 + 1 and (failed[-1].ceiling or kept > 1 - NEARLY):
            what = "fails for another reason than memory" if failed[-1].ceiling else "does not fit"
            return f"{bound} {what}" + (f" ({failed[-1].why})" if failed[-1].why else "")
        noise = f", since the memory of equal sizes varied by up to {max(self.differences()):.1%}" if self.noisy else ""
        return f"it leaves {kept:.1%} of the memory free{noise}"


def _parabola(
    first: tuple[int, int], middle: tuple[int, int], last: tuple[int, int], target: float, clear: float
) -> float:
    """Where the parabola through three points reaches `target`; infinity if the slope does not clearly rise."""
    (x1, y1), (x2, y2), (x3, y3) = first, middle, last
    before, after = (y2 - y1) / (x2 - x1), (y3 - y2) / (x3 - x2)
    if after <= 1.03 * before or after <= 0 or y3 - y2 < clear:
        return math.inf
    bend = (after - before) / (x3 - x1)
    steep = after + bend * (x3 - x2)  # at the last point
    return x3 + (math.sqrt(steep**2 + 4 * bend * max(target - y3, 0.0)) - steep) / (2 * bend)


def _residual(points: list[tuple[int, int]]) -> float:
    """Relative standard deviation of the peaks from a fitted line (least squares, weighted by 1/peak²)."""
    weights = [1 / peak**2 for _, peak in points]
    total = sum(weights)
    x = sum(weight * size for weight, (size, _) in zip(weights, points)) / total
    y = sum(weight * peak for weight, (_, peak) in zip(weights, points)) / total
    spread = sum(weight * (size - x) ** 2 for weight, (size, _) in zip(weights, points))
    if not spread:
        return 0.0
    slope = sum(weight * (size - x) * (peak - y) for weight, (size, peak) in zip(weights, points)) / spread
    squares = sum(((peak - y - slope * (size - x)) / peak) ** 2 for size, peak in points)
    return math.sqrt(squares / (len(points) - 2))


def _scaled(tried: Tried, fixed: float, scale: float) -> Tried:
    if tried.confirming or not tried.peak:
        return tried
    peak = max(1, round(fixed + (tried.peak - fixed) * scale))
    return replace(tried, outcome=replace(tried.outcome, peak_bytes=peak))
