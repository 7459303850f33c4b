"""What a cluster remembers of its publishers, so that an event that is published again is delivered once (P5).

Every node does the same with every entry of the log, so all of them remember the same. The memory is bounded: of each
publisher the numbers of its last :data:`REMEMBERED` events, and :data:`MAX_WEIGHT` items in all.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from hashlib import sha256
from typing import Any, NamedTuple

from fyrehose_twisted.parcels.wire.messages import PublisherRun, RefusalReason

REMEMBERED = 8_192
"""Events of a publisher that are told from new ones, and answered with the number that they were given."""
MAX_WEIGHT = 131_072
"""Publishers and rows of their events that are remembered together; who was silent longest is forgotten first."""


def event_digest(event: bytes) -> bytes:
    """Return a digest of an event, 16 bytes."""
    return sha256(event).digest()[:16]


class RunPlacement(NamedTuple):
    """What became of a run."""

    new_count: int
    """How many of its events, the last ones, are new."""
    sequences: tuple[tuple[int, int], ...]
    """Numbers in the order of all its events: the first, and how many there are one after the other."""


class PublisherSession:
    """What is remembered of one publisher.

    :ivar last: its own number of its last event.
    :ivar digest: of its first event, so that an idempotency key is known to be used with another body; empty if it was
        placed by a version that did not keep it.
    :ivar spans: its own number, the number in the order, and how many there are, oldest first.
    """

    __slots__ = ("digest", "epoch", "last", "spans")

    def __init__(self, epoch: int, digest: bytes, last: int = 0) -> None:
        self.epoch = epoch
        self.digest = digest
        self.last = last
        self.spans: deque[tuple[int, int, int]] = deque()

    def find_sequences(self, first: int, count: int) -> tuple[tuple[int, int], ...] | None:
        """Return the numbers that events were given, ``None`` if some of them are forgotten."""
        found: list[tuple[int, int]] = []
        wanted = first
        for number, sequence, size in self.spans:
            if number <= wanted < number + size:
                skip = wanted - number
                taken = min(size - skip, first + count - wanted)
                found.append((sequence + skip, taken))
                wanted += taken
                if wanted == first + count:
                    return tuple(found)
        return None


class PublisherSessions:
    """All publishers that are remembered, who was silent longest first."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, PublisherSession] = OrderedDict()
        self._weight = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def weight(self) -> int:
        """Publishers and rows that are remembered."""
        return self._weight

    def place(self, run: PublisherRun, sequence: int) -> RunPlacement | RefusalReason:
        """Take a run in whose first new event gets the number ``sequence``; or say why it has no place."""
        publisher, epoch, first, events = run
        count = len(events)
        if not count:
            return RunPlacement(0, ())
        session = self._sessions.get(publisher)
        if session is None:
            if first != 1:
                return RefusalReason.FORGOTTEN
            session = self._sessions[publisher] = PublisherSession(epoch, event_digest(events[0]))
            self._weight += 1
        else:
            if epoch < session.epoch or (epoch == session.epoch and first > session.last + 1):
                return RefusalReason.OUT_OF_ORDER
            if epoch > session.epoch:
                if first != 1:
                    return RefusalReason.OUT_OF_ORDER
                self._weight -= len(session.spans)
                session = self._sessions[publisher] = PublisherSession(epoch, event_digest(events[0]))
            elif first == 1 and session.digest and session.digest != event_digest(events[0]):
                return RefusalReason.OTHER_BODY
            self._sessions.move_to_end(publisher)
        known = session.last - first + 1
        if known >= count:
            numbers = session.find_sequences(first, count)
            return RefusalReason.FORGOTTEN if numbers is None else RunPlacement(0, numbers)
        before: tuple[tuple[int, int], ...] = ()
        if known > 0:
            remembered = session.find_sequences(first, known)
            if remembered is None:
                return RefusalReason.FORGOTTEN
            before = remembered
        new = count - known
        self._add(session, session.last + 1, sequence, new)
        if self._weight > MAX_WEIGHT:
            self._evict()
        return RunPlacement(new, (*before, (sequence, new)))

    def _add(self, session: PublisherSession, number: int, sequence: int, count: int) -> None:
        rows = session.spans
        if rows and rows[-1][1] + rows[-1][2] == sequence:
            earliest, at, size = rows.pop()
            rows.append((earliest, at, size + count))
        else:
            rows.append((number, sequence, count))
            self._weight += 1
        session.last = number + count - 1
        horizon = session.last - REMEMBERED
        while rows[0][0] + rows[0][2] - 1 <= horizon:
            rows.popleft()
            self._weight -= 1

    def _evict(self) -> None:
        while self._weight > MAX_WEIGHT and len(self._sessions) > 1:
            _, session = self._sessions.popitem(last=False)
            self._weight -= 1 + len(session.spans)

    def dump(self) -> list[Any]:
        """Return all that is remembered as plain data, which :meth:`load` takes."""
        return [
            [publisher, session.epoch, session.last, [list(row) for row in session.spans], session.digest]
            for publisher, session in self._sessions.items()
        ]

    @classmethod
    def load(cls, data: list[Any]) -> PublisherSessions:
        """Return what :meth:`dump` gave."""
        sessions = cls()
        for publisher, epoch, last, rows, digest in data:
            session = sessions._sessions[publisher] = PublisherSession(epoch, digest, last)
            session.spans.extend((number, sequence, count) for number, sequence, count in rows)
            sessions._weight += 1 + len(rows)
        return sessions
