"""Wall clock of a simulated host."""

from __future__ import annotations

from dataclasses import dataclass

CLOCK_GRAIN = 1e-3
"""Copy of the driver's ``CLOCK_RESOLUTION``, which cannot be imported without Twisted."""

RATE_RANGE = (0.001, 1_000.0)
"""Minimum and maximum rate of a clock; beyond them rounding errors matter."""


@dataclass(slots=True)
class WallClock:
    """Wall clock of a host, with an offset and a rate.

    :ivar offset: seconds by which the clock was set forward.
    :ivar rate: seconds counted per true second; 1.0001 gains 8.6 s a day.
    """

    offset: float = 0.0
    rate: float = 1.0
    _since: float = 0.0

    def read(self, now: float) -> float:
        """Return the reading of the clock at the true time ``now``."""
        return now + self.offset if self.rate == 1.0 else now + self.offset + (now - self._since) * (self.rate - 1.0)

    def true_time_at(self, reading: float) -> float:
        """Return the true time at which the clock reads ``reading`` unless it is set before."""
        if self.rate == 1.0:
            return reading - self.offset
        return self._since + (reading - self._since - self.offset) / self.rate

    def set(self, now: float, *, offset: float = 0.0, rate: float | None = None) -> None:
        """Set the clock forward by ``offset`` seconds (back if negative), and change its rate to ``rate``.

        :raises ValueError: if ``rate`` is outside :data:`RATE_RANGE`.
        """
        if rate is not None and not RATE_RANGE[0] <= rate <= RATE_RANGE[1]:
            raise ValueError(f"a clock that counts {rate!r} s in one; give {RATE_RANGE[0]:g} to {RATE_RANGE[1]:g}")
        self.offset = self.read(now) - now + offset
        self._since = now
        if rate is not None:
            self.rate = rate
