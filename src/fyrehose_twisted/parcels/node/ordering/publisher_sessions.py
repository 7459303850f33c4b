"""Publisher sessions, with which the cluster deduplicates republished events (P5).

The sessions are replicated: every node applies the same entries and so holds equal sessions. They are bounded to the
last :data:`REMEMBERED` events of a publisher, and to :data:`MAX_WEIGHT` items in total.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from hashlib import sha256
from typing import Any, NamedTuple

from fyrehose_twisted.parcels.wire.messages import PublisherRun, RefusalReason

REMEMBERED = 8_192
"""Events of one publisher that are recognized as duplicates and acknowledged with their sequence numbers."""
MAX_WEIGHT = 131_072
"""Maximum number of sessions and spans in total. The least recently active publishers are evicted first."""


def event_digest(event: bytes) -> bytes:
    """Return the 16-byte digest of an event."""
    return sha256(event).digest()[:16]


class RunPlacement(NamedTuple):
    """Placement of a run in the total order."""

    new_count: int
    """Number of new events, which are the last ones of the run."""
    sequences: tuple[tuple[int, int], ...]
    """Sequence numbers of all its events: first number and count of each contiguous span. Without events, the next
    number and a count of 0."""


class ConditionFailed(NamedTuple):
    """Result of a run whose :attr:`~fyrehose_twisted.parcels.wire.messages.PublisherRun.expect` is wrong."""

    last: int
    """Sequence number of the last event."""


class PublisherSession:
    """Session of one publisher.

    :ivar last: publisher's number of its last event.
    :ivar digest: digest of its first event, which detects an idempotency key reused with another body; empty for a
        session of an earlier version.
    :ivar spans: publisher's number, sequence number and count of each contiguous span, oldest first.
    """

    __slots__ = ("digest", "epoch", "last", "spans")

    def __init__(self, epoch: int, digest: bytes, last: int = 0) -> None:
        self.epoch = epoch
        self.digest = digest
        self.last = last
        self.spans: deque[tuple[int, int, int]] = deque()

    def find_sequences(self, first: int, count: int) -> tuple[tuple[int, int], ...] | None:
        """Return the sequence numbers of events, or ``None`` if some are evicted."""
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
    """Sessions of all publishers, least recently active first."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, PublisherSession] = OrderedDict()
        self._weight = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def weight(self) -> int:
        """Number of sessions and spans."""
        return self._weight

    def place(self, run: PublisherRun, sequence: int) -> RunPlacement | ConditionFailed | RefusalReason:
        """Place a run whose first new event gets number ``sequence``, or return the reason for refusing it.

        A run whose condition fails leaves no session, so the same key serves for another attempt. The exception is one
        that expects an event of the future: it may be in the log twice, and must not be placed after it was refused.
        """
        publisher, epoch, first, events, expect = run
        count = len(events)
        if not count:
            return RunPlacement(0, ((sequence, 0),))
        session = self._sessions.get(publisher)
        if expect is not None:
            if first != 1:
                return RefusalReason.OUT_OF_ORDER
            is_known = session is not None and session.epoch == epoch and session.last >= count
            if expect != sequence - 1 and not is_known:
                if expect >= sequence:
                    self._end_epoch(publisher, epoch)
                return ConditionFailed(sequence - 1)
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

    def _end_epoch(self, publisher: str, epoch: int) -> None:
        """Refuse runs of this epoch from now on."""
        session = self._sessions.pop(publisher, None)
        if session is None:
            session = PublisherSession(epoch, b"")
            self._weight += 1
        if session.epoch <= epoch:
            self._weight -= len(session.spans)
            session = PublisherSession(epoch + 1, b"")
        self._sessions[publisher] = session
        self._evict()

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
        """Return the sessions as plain data for :meth:`load`."""
        return [
            [publisher, session.epoch, session.last, [list(row) for row in session.spans], session.digest]
            for publisher, session in self._sessions.items()
        ]

    @classmethod
    def load(cls, data: list[Any]) -> PublisherSessions:
        """Restore the sessions from :meth:`dump`."""
        sessions = cls()
        for publisher, epoch, last, rows, digest in data:
            session = sessions._sessions[publisher] = PublisherSession(epoch, digest, last)
            session.spans.extend((number, sequence, count) for number, sequence, count in rows)
            sessions._weight += 1 + len(rows)
        return sessions
