"""Bounded history of the growth of figures."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from itertools import pairwise

STEP = 10
"""Seconds between samples in the history."""
STEPS = 360
"""Samples in the history: one hour."""
RECENT = 5.0
"""Seconds over which the current rate is measured."""
MAX_TRENDS = 4_000
"""Figures with a history; each takes 6 KB."""


class Trend:
    """History of one figure that grows monotonically except for restarts.

    :ivar total: growth since the first sample.
    :ivar asked_at: time of the last update.
    """

    def __init__(self, *, counter: bool) -> None:
        """Create an empty history.

        :param counter: whether the figure restarts at 0 with its process, so that all of it is growth after a restart.
        """
        self._counter = counter
        self._last = 0.0
        self._begun_at: float | None = None
        self.total = 0.0
        self._recent: deque[tuple[float, float]] = deque()
        # Time and total of the last sample of each step.
        self._times = array("d")
        self._totals = array("d")
        self.asked_at = 0.0

    def add(self, at: float, value: float) -> None:
        """Add a sample. A sample that is not newer than the last one is ignored."""
        if self._recent and at < self._recent[-1][0] - STEP:  # The clock was set back.
            self._recent.clear()
            del self._times[:], self._totals[:]
            self.total = 0.0
        if not self._recent:
            self._recent.append((at, 0.0))
            self._advance(at)
            self._begun_at = at
        elif at > self._recent[-1][0]:
            if value >= self._last:
                self.total += value - self._last
            elif self._counter:
                self.total += value
            self._recent.append((at, self.total))
            while len(self._recent) > 2 and at - self._recent[1][0] >= RECENT:
                self._recent.popleft()
            self._advance(at)
        else:
            return
        self._last = value

    def _advance(self, at: float) -> None:
        # The first sample stays as the base of the growth.
        if len(self._times) > 1 and at // STEP == self._times[-1] // STEP:
            self._times[-1], self._totals[-1] = at, self.total
            return
        self._times.append(at)
        self._totals.append(self.total)
        if len(self._times) > STEPS + 1:
            del self._times[0], self._totals[0]

    def rate(self, now: float) -> float | None:
        """Return the current growth a second, or ``None`` without two recent samples."""
        if len(self._recent) < 2 or now - self._recent[-1][0] > 2 * STEP:
            return None
        (first, before), (last, after) = self._recent[0], self._recent[-1]
        return (after - before) / (last - first)

    def increase(self, now: float, seconds: float) -> float:
        """Return the growth over the last ``seconds``, as far as samples go back."""
        if not self._times:
            return 0.0
        return self.total - self._totals[max(0, bisect_right(self._times, now - seconds) - 1)]

    def uncertain_increase(self, now: float) -> float:
        """Return the growth during the history, or the whole figure while the history is incomplete."""
        span = float(STEP * STEPS)
        if self._begun_at is None or now - self._begun_at < span:
            return self._last
        return self.increase(now, span)

    def history(self, now: float) -> list[float | None]:
        """Return the growth a second in each of the last :data:`STEPS` steps, ``None`` where unknown."""
        found: list[float | None] = [None] * STEPS
        newest = now // STEP
        for (begin, before), (end, after) in pairwise(zip(self._times, self._totals, strict=True)):
            # A longer pause has no rate.
            if end - begin <= 3 * STEP:
                first = STEPS - 1 - int(newest - begin // STEP)
                last = STEPS - 1 - int(newest - end // STEP)
                for step in range(max(0, min(first + 1, last)), last + 1):
                    found[step] = (after - before) / (end - begin)
        return found


class Trends:
    """Trends by key. Trends without recent updates are dropped."""

    def __init__(self) -> None:
        self._trends: dict[str, Trend] = {}
        self.refused = 0

    def __len__(self) -> int:
        return len(self._trends)

    def get(self, key: str) -> Trend | None:
        """Return a trend, or ``None`` if there is none."""
        return self._trends.get(key)

    def add(self, key: str, now: float, at: float, value: float, *, counter: bool) -> Trend | None:
        """Add a sample of a figure; return its trend, or ``None`` if there are too many trends."""
        trend = self._trends.get(key)
        if trend is None:
            if len(self._trends) >= MAX_TRENDS:
                self.refused += 1
                return None
            trend = self._trends[key] = Trend(counter=counter)
        trend.asked_at = now
        trend.add(at, value)
        return trend

    def forget(self, now: float) -> None:
        """Drop trends without updates during the whole history."""
        for key in [key for key, trend in self._trends.items() if now - trend.asked_at > STEP * STEPS]:
            del self._trends[key]
