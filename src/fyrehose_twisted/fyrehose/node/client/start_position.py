"""Finding the first message: the next one to come, or the oldest that anyone holds."""

from __future__ import annotations

from itertools import pairwise

from fyrehose_twisted.fyrehose.config import Start
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import MESSAGE_OVERHEAD
from fyrehose_twisted.fyrehose.node.client.stream_head import LEAP, PLAUSIBLE_JUMP
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE

ASKS, ASK_INTERVAL = 5, 0.1
"""How often the oldest message is asked for, and every how many seconds; each time another client may answer."""

NEIGHBOURS = 15
"""How many numbers below the only one that is known are asked for, to confirm it."""

PATIENCE = 3
"""Intervals to wait after the last time."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds after which the oldest message is asked for again if nobody had any; twice as many each time."""

DOUBT = 1.0
"""Seconds to wait for somebody to confirm the only number that is known."""


class Joining:
    """A subscriber that does not know yet where its stream begins.

    :param reorder_delay: seconds to wait, after the first message, for one that it overtook.
    :ivar early: what came meanwhile; the lowest of it is the beginning.
    :ivar live: the numbers of it that came from the backbone.
    :ivar last: numbers up to this one exist, as far as the backbone has said.
    """

    def __init__(self, start: Start, limit: int, reorder_delay: float) -> None:
        self.early: dict[int, bytes] = {}
        self.live: set[int] = set()
        self._limit = limit
        self._size = 0
        self._oldest = start is Start.OLDEST
        self._asks = ASKS if self._oldest else 0
        self._reorder_delay = reorder_delay
        self._wait_until: float | None = None
        self._nobody_answered = False
        self._pause = FIRST_PAUSE
        self._confirm: int | None = None
        self._doubt_until: float | None = None
        self._told: int | None = None
        self.last = 0

    def known(self, oldest: int, last: int) -> None:
        """The backbone says that durable journals begin at ``oldest``, 0 if there are none, and where the stream is."""
        if self._oldest:
            self.last = last
            self._told = oldest or None

    def begin(self, now: float) -> None:
        """The backbone is there: start asking."""
        if self._asks and self._wait_until is None:
            self._wait_until = now

    def add(self, sequence: int, data: bytes, now: float, *, live: bool) -> bool:
        """Keep a message; say whether there was room. ``live``: it came from the backbone."""
        soon = now + self._reorder_delay
        if self._nobody_answered:
            self._nobody_answered, self._asks, self._wait_until = False, 0, soon
        if self._wait_until is None or (self._doubt_until is not None and soon < self._wait_until):
            self._wait_until = soon
        if sequence not in self.early:
            cost = len(data) + MESSAGE_OVERHEAD
            if self._size + cost > self._limit and self.early:
                return False
            self.early[sequence] = data
            self._size += cost
        if live:
            self.live.add(sequence)
        return True

    def ask(self, now: float) -> tuple[int, int] | None:
        """Return the range to ask for now, if any."""
        if self._confirm is not None:
            suspect, self._confirm = self._confirm, None
            self._wait_until = self._doubt_until
            return max(1, suspect - NEIGHBOURS), suspect
        if self._told is not None or not self._asks or self._wait_until is None or now < self._wait_until:
            return None
        self._asks -= 1
        self._wait_until = now + ASK_INTERVAL * (1 if self._asks else PATIENCE)
        return 1, max(self.live, default=MAX_SEQUENCE)

    def beginning(self, now: float) -> int | None:
        """Return the lowest number that can be true: a high one needs another near it, for one alone may be forged.

        Who wants to begin live begins with what came from the backbone; what others sent only confirms it.
        """
        believed = PLAUSIBLE_JUMP if self._doubt_until is not None and now >= self._doubt_until else LEAP
        confirmed = self.confirmed()
        for number in sorted(self.early):
            if (number <= believed or number in confirmed) and (self._oldest or number in self.live):
                return number
        return None

    def confirmed(self) -> set[int]:
        """Return those numbers that came that another is near to."""
        near = [pair for pair in pairwise(sorted(self.early)) if pair[1] - pair[0] <= LEAP]
        return {number for pair in near for number in pair}

    def done(self, now: float) -> int | None:
        """Return the number to begin with, once it is known."""
        if self._told is not None:
            return self._told
        if self._asks or self._wait_until is None or now < self._wait_until:
            return None
        beginning = self.beginning(now)
        if beginning is not None:
            return beginning
        if not self.early:
            # Whatever comes first is the oldest; but those who were asked may just not have been those who have it.
            self._nobody_answered, self._asks = True, 1
            self._wait_until = now + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        elif self._doubt_until is None:
            self._confirm = min(self.early)
            self._doubt_until, self._wait_until = now + DOUBT, now
        else:
            self._wait_until = self._doubt_until if now < self._doubt_until else None
        return None

    def next_deadline(self) -> float | None:
        """Return when :meth:`ask` or :meth:`done` may say something new."""
        return self._wait_until
