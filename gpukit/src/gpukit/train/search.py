"""The search for the largest batch that fits: which size to try next, when to stop, how much memory to leave free.

It does not depend on PyTorch or on a device: `trial(size)` returns whether a few training steps fit in memory, and
their peak. Three ideas keep the number of trials small:

- *Memory is measured, not only whether it ran out.* Two sizes give the memory that one more sample takes; that predicts
  the largest size (the secant method; with a third point and a rising slope, a parabola). Doubling and bisection, as in
  Lightning's BatchSizeFinder, learn one bit from a trial, this learns a number.
- *Evidence is monotone.* What failed when it was last tried bounds the answer from above; only a size that was tried,
  and tried again in a fresh process, is ever answered.
- *The margin is as large as the noise.* The same size is measured at least twice. Where both peaks are equal, 1 % of
  what the batch takes is left free; where they differ, several times the deviation of all measurements (a tolerance
  interval), at most 5 % of the budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

START = 2  # a single sample is a case of its own: other kernels, and BatchNorm refuses it
FIRST_SHARE = 0.75  # of the budget, aimed at from a single point: what lies under it shows where the slope bends
AIM = 0.9  # of the room that is left, aimed at from a slope that is not yet well known
BEYOND = 1.5  # times the span of the points: as far as their slope is trusted
UNSURE = 0.002  # of the budget: rounding and noise that a measured difference may hide
SHORT = 0.03  # of the budget: if the peak is lower than expected by this much, the slope is recomputed
GRID = 65535  # blocks that a CUDA launch may have in its second and third dimension

QUIET = 0.01  # margin where measurements repeat exactly, of the memory that grows with the batch
FEW = 34  # samples: under it one sample is more than 3 % of the batch, too much to leave free for a quiet device
NEARLY = 0.9  # of the budget: a failure where less is expected says nothing of noise
LITTLE = 8  # samples: under it a confirmation that failed is tried once more
EQUAL = 2e-5  # two peaks that differ by less are equal
DEVIATIONS = 6.0  # margin where they do not repeat, in standard deviations above the mean: of few draws, so so many
ABOVE_WORST = 0.015  # and above the highest peak that was seen, of the budget
LEAST, MOST = 0.005, 0.05  # and between these, of the budget
DRAWS = 3  # measurements close to the answer, where there is noise
LONGEST = 10  # trials, after which what is good enough is taken

ABSURD = 0.65  # a failure where no more than this of the budget is expected is tried once more
IMPOSSIBLE = 0.93  # the same where a single point says so: from one point, what is expected is the most that it can be
OTHER = 0.06  # of the budget: a confirmation that differs by more takes another kind of step (compiled, say)

DOWN = (0.97, 0.9, 0.75, 0.6, 0.4, 0.2, 0.0)  # of the size whose confirmation failed, until one is confirmed

# How much smaller than possible the answer may be, after so many trials: what is left to gain must be worth the next.
WORTH = (0.003, 0.003, 0.003, 0.003, 0.005, 0.006, 0.01, 0.015, 0.025, 0.04, 0.06, 0.1, 0.2, 0.3)


@dataclass(frozen=True)
class Outcome:
    """What became of some steps: whether they fitted, and the most memory they took, in bytes (None: not known).

    `ceiling`: it failed for another reason than memory, such as a kernel that cannot be launched that large. `why`: in
    words, where it failed. `seconds`: how long it took.
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
        """Bytes; 0 where it did not fit or nothing was measured."""
        return (self.outcome.peak_bytes or 0) if self.outcome.fits else 0

    @property
    def excess(self) -> int:
        """Bytes, where it ran although it took more than the budget; 0 otherwise."""
        return 0 if self.outcome.fits else (self.outcome.peak_bytes or 0)


@dataclass(frozen=True)
class Found:
    """The answer: `batch_size` samples (0: not even one fits), why not more, and how it was found.

    `share`: of the budget of `budget_bytes`, what the batch takes at its peak.
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
    """What is known so far. A size counts by its last trial, so that a second one can mend what noise did."""

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
        """The largest size that fitted, under everything that failed; 0: none."""
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
        """Bytes for one more sample, at the largest size that fits. From one point alone: the most that it can be."""
        return self.rise(self.points)

    def rise(self, points: list[tuple[int, int]]) -> float:
        """The slope of some points at their end."""
        if len(points) < 2:
            return points[0][1] / points[0][0] if points else 0.0
        size, peak = points[-1]
        apart = [each for each in points[:-1] if peak - each[1] >= 0.2 * self.budget]  # so that noise hardly counts
        other, low = apart[-1] if apart else points[0]
        return max(peak - low, 0) / (size - other)

    def expected(self, size: int) -> float:
        """Bytes at `size`, along the slope."""
        best, peak = self.points[-1]
        return peak + self.slope * (size - best)

    def reach(self, target: float) -> float:
        """The size at which the memory is `target` bytes, as far as the points say."""
        points = self.points
        size, peak = points[-1]
        if len(points) == 1:
            return max(size * target * FIRST_SHARE / peak, size + 1)
        reached = size + (target - peak) / self.slope if self.slope > 0 else math.inf
        if len(points) >= 3 and target - peak > SHORT * self.budget:
            before, rise = points[-2], (peak - points[-2][1]) / (size - points[-2][0])
            if rise < 0.6 * self.rise(points[:-1]):  # a step in between, or a slope that falls
                return size + min((target - peak) / max(rise, 1e-9), 4 * (size - before[0]))
        if len(points) >= 3 and size >= FEW:
            halfway = (points[0][1] + peak) / 2
            middle = min(points[1:-1], key=lambda each: abs(each[1] - halfway))
            reached = min(reached, _parabola(points[0], middle, points[-1], target, 0.05 * self.budget))
        return reached

    def carefully(self, reached: float, target: float) -> float:
        """No further than points so close together allow: a slope measured in rounding errors leads anywhere."""
        points = self.points
        (first, low), (size, peak) = points[0], points[-1]
        span = size - first
        if len(points) == 1 or reached <= size + BEYOND * span:
            return reached
        steepest = (max(peak - low, 0) + UNSURE * self.budget) / span
        return min(reached, size + max(AIM * (target - peak) / steepest, 3 * span))

    def differences(self) -> list[float]:
        """By how much the peaks of one size differ, relative, for each size that was measured more than once."""
        peaks: dict[int, list[int]] = {}
        for each in self.tried:
            if each.peak:
                peaks.setdefault(each.size, []).append(each.peak)
        found = [(max(several) - min(several)) / max(several) for several in peaks.values() if len(several) > 1]
        for each in self.tried:  # fitted once and ran out once: its peak was above the budget then
            low = min(peaks.get(each.size, [0]))
            if not each.outcome.fits and not each.outcome.ceiling and low > NEARLY * self.budget:
                found.append((self.budget - low) / self.budget)
        return found

    @property
    def noisy(self) -> bool:
        """Whether the same size did not always take the same memory."""
        return max(self.differences(), default=0.0) > EQUAL

    def deviation(self) -> float:
        """Standard deviation of a measurement, relative: from repeated sizes, and from a line through all of them."""
        repeated = max(self.differences(), default=0.0) / 1.7  # the mean range of two to three draws
        points = [(each.size, each.peak) for each in self.tried if each.peak]
        return max(repeated, _residual(points)) if len(points) >= 4 else repeated

    def margin(self, size: int) -> float:
        """Bytes to be left free at `size`."""
        if self.noisy:
            return min(MOST, max(LEAST, DEVIATIONS * self.deviation())) * self.budget
        return 0.0 if size < FEW else QUIET * min(self.budget, size * self.slope)

    def needed(self, size: int) -> float:
        """Bytes at `size`: as measured there, or where there is noise by all measurements close to it."""
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
        """Bytes by which `size` takes too much; negative: it leaves more than its margin."""
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
            if not fits and size < LITTLE and self.times(size) == 2:  # one less would be a much worse answer
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
        """From a first size, close in on the largest size that fits; -> what there is to be confirmed."""
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
        """The size to try next; 0: what there is to gain is not worth another trial."""
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
        again = len(failed) > len(set(failed))  # one that failed twice: a wall, and there is no use in more of that
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
        """Without measurements of memory: four times as many until it fails, then halves."""
        if bound > (self.ceiling or 2**40):
            return 0 if best == bound - 1 else min(4 * best, bound - 1)
        return (best + bound) // 2 if bound - best > max(1, best * max(self.worth(), 0.02)) else 0

    def confirmed(self) -> list[int]:
        return [each.size for each in self.tried if each.confirming and each.outcome.fits and each.size < self.bound]

    def settle(self) -> int:
        """The size to answer as far as is known now, confirmed or yet to be."""
        best, confirmed = self.best, self.confirmed()
        if confirmed and len(self.all) >= 2 * LONGEST:
            return max(confirmed)
        if not confirmed:
            failed = [each.size for each in self.tried if each.confirming]
            if failed:  # a fresh process takes more: try less until one fits
                return math.floor(max(failed) * DOWN[min(len(failed), len(DOWN)) - 1])
        if not self.points or self.slope <= 0:
            return max(confirmed, default=best)
        good = max((size for size in confirmed if self.over(size, 0.9 if self.noisy else 0.5) <= 0), default=0)
        over = self.over(best, 0.9 if self.noisy else 0.5)
        wanted = best if over <= 0 else self.lower(best, over)
        return good if good and wanted <= good * (1 + max(0.02, self.worth())) else wanted

    def lower(self, size: int, over: float) -> int:
        """Smaller by so many bytes, and by enough for a slope that is too steep to matter little."""
        less = (over + 0.1 * self.margin(size)) / self.slope
        return max(1, math.floor(size - max(less, 0.01 * size)))

    def settled(self, size: int) -> bool:
        """Whether `size` has been confirmed, and measured often enough to know how much that is worth."""
        if size not in self.confirmed():
            return False
        close = sum(0.9 * size <= each.size <= 1.1 * size for each in self.tried)
        enough = not self.noisy or close >= DRAWS or len(self.all) >= LONGEST
        return len(self.all) >= 2 * LONGEST or (self.times(size) >= 2 and enough)

    def recalibrate(self, size: int) -> bool:
        """Where the confirmation's steps take other memory than the trials' did, go on with steps like those.

        The part that grows with the batch is scaled; what does not (weights, optimizer) is the same in both.
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
        """One clause: why not more."""
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
    """Where the parabola through three points reaches `target`; infinity where the slope does not clearly rise."""
    (x1, y1), (x2, y2), (x3, y3) = first, middle, last
    before, after = (y2 - y1) / (x2 - x1), (y3 - y2) / (x3 - x2)
    if after <= 1.03 * before or after <= 0 or y3 - y2 < clear:
        return math.inf
    bend = (after - before) / (x3 - x1)
    steep = after + bend * (x3 - x2)  # at the last point
    return x3 + (math.sqrt(steep**2 + 4 * bend * max(target - y3, 0.0)) - steep) / (2 * bend)


def _residual(points: list[tuple[int, int]]) -> float:
    """Relative standard deviation of peaks from the line that fits them best (least squares, weighted by 1/peak²)."""
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
