"""What a host takes for the time."""

from __future__ import annotations

from dataclasses import dataclass

RATE_RANGE = (0.001, 1_000.0)
"""How slow and how fast a clock may run; beyond, rounding would show."""


@dataclass(slots=True)
class WallClock:
    """What a host takes for the time.

    :ivar offset: seconds by which it was set forward.
    :ivar rate: seconds that it counts in one; 1.0001 gains 8.6 s a day.
    """

    offset: float = 0.0
    rate: float = 1.0
    _since: float = 0.0

    def read(self, now: float) -> float:
        """Return what the clock says at the true time ``now``."""
        return now + self.offset if self.rate == 1.0 else now + self.offset + (now - self._since) * (self.rate - 1.0)

    def true_time_at(self, reading: float) -> float:
        """Return the true time at which the clock says ``reading``, if nobody sets it before."""
        if self.rate == 1.0:
            return reading - self.offset
        return self._since + (reading - self._since - self.offset) / self.rate

    def set(self, now: float, *, offset: float = 0.0, rate: float | None = None) -> None:
        """Set it forward ``offset`` seconds, or back by negative ones, and let it run at ``rate`` from now on.

        :raises ValueError: if ``rate`` is not one of :data:`RATE_RANGE`.
        """
        if rate is not None and not RATE_RANGE[0] <= rate <= RATE_RANGE[1]:
            raise ValueError(f"a clock that counts {rate!r} s in one; give {RATE_RANGE[0]:g} to {RATE_RANGE[1]:g}")
        self.offset = self.read(now) - now + offset
        self._since = now
        if rate is not None:
            self.rate = rate
