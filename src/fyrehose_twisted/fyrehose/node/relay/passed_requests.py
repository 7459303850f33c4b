"""REQUESTs that a relay has passed to its parent, and the clients that wait for the answers."""

from __future__ import annotations

from fyrehose_twisted.effects import Address
from fyrehose_twisted.ranges import RangeSet

LIFETIME = 4.0
"""Seconds for which an answer is passed on, up to twice as many: longer than a client waits between two attempts. What
comes much later is an answer to somebody else, and old to this client."""

REPEAT_INTERVAL = 0.05
"""Seconds for which nothing is requested again that another client has just asked for: less than a client waits between
two attempts."""

MAX_RANGES, MAX_RANGES_EACH = 65_536, 4_096
"""Maximum number of awaited ranges, in total and per client."""


class PassedRequests:
    """Numbers that clients of a relay wait for, and that its parent was asked for."""

    def __init__(self) -> None:
        self._awaited: dict[Address, RangeSet] = {}
        self._awaited_before: dict[Address, RangeSet] = {}
        self._rotate_at = 0.0
        self._highest = 0
        self._asked, self._asked_before = RangeSet(), RangeSet()
        self._asked_until = 0.0

    def __bool__(self) -> bool:
        return bool(self._awaited or self._awaited_before)

    def __len__(self) -> int:
        """Return the number of awaited ranges."""
        return sum(len(ranges) for awaited in (self._awaited, self._awaited_before) for ranges in awaited.values())

    def add(self, requester: Address, first: int, last: int, now: float) -> list[tuple[int, int]] | None:
        """Record that a client waits for ``first`` to ``last``.

        :return: what the parent has to be asked for; ``None`` if too many ranges are awaited.
        """
        if not self.wait(requester, first, last, now):
            return None
        if now >= self._asked_until:
            self._asked_before = self._asked if now < self._asked_until + REPEAT_INTERVAL else RangeSet()
            self._asked, self._asked_until = RangeSet(), now + REPEAT_INTERVAL
        due = [part for gap in self._asked.gaps(first, last) for part in self._asked_before.gaps(*gap)]
        for start, end in due:
            self._asked.add(start, end)
        return due

    def wait(self, requester: Address, first: int, last: int, now: float) -> bool:
        """Record that a client waits for numbers, without asking the parent.

        :return: ``False`` if too many ranges are awaited.
        """
        self._rotate(now)
        ranges = self._awaited.get(requester)
        if len(self) >= MAX_RANGES or (ranges is not None and len(ranges) >= MAX_RANGES_EACH):
            return False
        if ranges is None:
            ranges = self._awaited[requester] = RangeSet()
        ranges.add(first, last)
        self._highest = max(self._highest, last)
        return True

    def served(self, requester: Address, first: int, last: int) -> None:
        """Record that a client was sent ``first`` to ``last``."""
        for awaited in (self._awaited, self._awaited_before):
            ranges = awaited.get(requester)
            if ranges is not None and len(ranges) < MAX_RANGES_EACH:
                ranges.discard(first, last)
                if not ranges:
                    del awaited[requester]

    def take(self, sequence: int) -> list[Address]:
        """Return the clients that wait for a number, which has arrived."""
        takers: list[Address] = []
        if sequence > self._highest:
            return takers
        for awaited in (self._awaited, self._awaited_before):
            for requester in [one for one, ranges in awaited.items() if sequence in ranges]:
                ranges = awaited[requester]
                if len(ranges) < MAX_RANGES_EACH:  # Taking a number out of the middle makes one range more.
                    ranges.discard(sequence, sequence)
                if not ranges:
                    del awaited[requester]
                takers.append(requester)
        return list(dict.fromkeys(takers))

    def waiting_for(self, first: int, last: int) -> list[Address]:
        """Return the clients that wait for any of ``first`` to ``last``."""
        return list(
            dict.fromkeys(
                requester
                for awaited in (self._awaited, self._awaited_before)
                for requester, ranges in awaited.items()
                if next(ranges.intersection(first, last), None) is not None
            )
        )

    def forget(self, requester: Address) -> None:
        """Forget a client."""
        self._awaited.pop(requester, None)
        self._awaited_before.pop(requester, None)

    def _rotate(self, now: float) -> None:
        if now >= self._rotate_at:
            self._awaited_before = self._awaited if now < self._rotate_at + LIFETIME else {}
            self._awaited, self._rotate_at = {}, now + LIFETIME
