"""Seam of a stream: the numbers between two terms of a group of backbones."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from fyrehose_twisted.fyrehose.node.client.repair import MAX_RANGE
from fyrehose_twisted.fyrehose.node.client.stream_head import LATE_AFTER, MAX_INITIAL_JUMP
from fyrehose_twisted.fyrehose.wire.term_start import TERM_START_SIZE, TermStart, decode_term_start

MAX_PROBE_RANGE = 65_535
"""Maximum range of a REQUEST for the start of a term. Larger ones look for the oldest message."""

PROBES, PROBE_INTERVAL = 5, 0.05
"""Number of REQUESTs for the start of a term, and seconds after the first; doubled after each."""

MAX_DOUBTS = 8
"""Maximum number of terms whose first message is awaited."""


@dataclass(slots=True)
class _Doubt:
    """Numbers above ``low`` up to ``high`` that a term may have left unused, until its first message tells.

    :ivar ends_at: time from which on no datagram of the former leader can be late.
    """

    low: float
    high: float
    ends_at: float

    def covers(self, sequence: int) -> bool:
        return self.low < sequence <= self.high


class Seam:
    """Terms of a stream as a subscriber knows them.

    After a change of the leader, the numbers above those that this client held are in doubt, because the new leader
    was told no others. Until the first message of the term tells which of them are part of the stream, only the new
    leader can repair them: a datagram of a former leader may still be on its way.

    :ivar term: latest term that a backbone has reported; 0 for a single backbone, whose messages start no terms.
    """

    def __init__(self) -> None:
        self.term = 0
        self._doubts: dict[int, _Doubt] = {}
        self._started_term = 0
        self._probe_at = 0.0
        self._probes = 0

    @property
    def is_open(self) -> bool:
        """Whether the first message of a term is awaited."""
        return bool(self._doubts)

    def open(self, term: int, limit: float, now: float) -> None:
        """Handle a change of the leader.

        :param limit: highest number that the former leader may have sent to this client.
        """
        if term > max(self.term, self._started_term):
            self._doubts[term] = _Doubt(limit, inf, now + LATE_AFTER)
            self._probe_at, self._probes = now, 0
            if len(self._doubts) > MAX_DOUBTS:
                del self._doubts[min(self._doubts)]
        self.term = max(self.term, term)

    def start_in(self, sequence: int, data: bytes) -> TermStart | None:
        """Return the start of a term if message ``sequence`` is one."""
        return decode_term_start(sequence, data) if self.term and len(data) == TERM_START_SIZE else None

    def is_plausible_start(self, sequence: int, data: bytes, highest: int) -> bool:
        """Return whether a message of the leader far above ``highest`` is the first of a term that was reported."""
        start = self.start_in(sequence, data)
        if start is None or sequence > highest + MAX_INITIAL_JUMP:
            return False
        return self._started_term < start.term <= self.term

    def permits(self, sequence: int, data: bytes, *, live: bool) -> bool:
        """Return whether a message may be part of the stream. ``live`` means that the leader sent it."""
        for term, doubt in self._doubts.items():
            # A member that leads again may have sent it in its earlier term.
            if doubt.covers(sequence) and not (live and term == self.term):
                return self.start_in(sequence, data) is not None
        return True

    def started(self, start: TermStart) -> None:
        """Record the arrival of the first message of a term."""
        self._started_term = max(self._started_term, start.term)
        self._doubts.pop(start.term, None)
        for term in [term for term in self._doubts if term < start.term]:
            doubt = self._doubts[term]
            doubt.high = min(doubt.high, start.held_up_to)
            if doubt.high <= doubt.low:
                del self._doubts[term]

    def tick(self, now: float) -> None:
        """Remove the doubts about numbers of which no datagram can be late any more."""
        for term in [term for term, doubt in self._doubts.items() if now >= doubt.ends_at]:
            del self._doubts[term]

    def next_probe(self, missing: range, now: float) -> tuple[int, int] | None:
        """Return the range to request now in order to find the first message of the term, or ``None``.

        The leader answers with the lowest numbers that it holds, so one REQUEST finds the message, however many
        numbers the terms do not use. Smaller gaps are requested anyway.

        :param missing: numbers from the first missing one to the highest known one.
        """
        if not self._may_probe(missing) or now < self._probe_at:
            return None
        self._probe_at = now + PROBE_INTERVAL * 2**self._probes
        self._probes += 1
        return missing[-MAX_PROBE_RANGE:][0], missing[-1]

    def next_deadline(self, missing: range) -> float | None:
        """Return the time at which :meth:`tick` or :meth:`next_probe` is due."""
        ends_at = min((doubt.ends_at for doubt in self._doubts.values()), default=None)
        return self._probe_at if ends_at is not None and self._may_probe(missing) else ends_at

    def _may_probe(self, missing: range) -> bool:
        return self.term in self._doubts and self._probes < PROBES and len(missing) > MAX_RANGE
