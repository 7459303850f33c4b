"""How far the backbone has got, and whether a number that it sends can be true."""

from __future__ import annotations

from collections import deque

from fyrehose_twisted.ranges import RangeSet

MAX_JUMP = 1_280
"""Numbers by which a DELIVER may be ahead of all others. One that is further ahead waits for a second near it, or for
:data:`UNCONFIRMED_TIMEOUT` during which nothing contradicts it."""

MAX_INITIAL_JUMP = 2**24
"""The same for a subscriber that knows only where it wants to begin."""

CONFIRMATIONS = 3
"""Messages in a row from the backbone that have to lie beyond a number before it can be lost."""

UNCONFIRMED_TIMEOUT = 10.0
"""Seconds after which a backbone that has sent nothing more proves nothing about how far its stream goes."""

REGRESSION_CONFIRMATIONS = 3
"""Old numbers in rising order that make a backbone that counts anew; one is just a datagram that came twice."""

CONTRADICTIONS, CONTRADICTION_WINDOW = 5, 16
"""So many messages that say something else than those held, among the last so many, do too; one may be damaged."""

LATE_AFTER = 5.0
"""Seconds after which a datagram is not just late."""


class StreamHead:
    """The highest number that came from the backbone itself, now and a while ago.

    :param start: the number to start with, if one was given: the first may be expected near it.
    """

    def __init__(self, now: float, start: int | None = None) -> None:
        self.highest = 0
        self._start = start
        self._last_regressed = 0
        self._regressed_count = 0
        self._floor = 0
        self._checkpoint = 0
        self._checkpoint_at = now
        self._suspect: int | None = None
        self._latest = (0,) * CONFIRMATIONS
        self._confirmed = 0
        self._received_count = 0
        self._contradictions: deque[tuple[int, int]] = deque(maxlen=CONTRADICTIONS)
        self._peer_reported = RangeSet()
        self._last_received_at = now

    def plausible(self, sequence: int) -> bool:
        """Say whether the backbone may have got this far: one forged number must not ruin a stream."""
        if self.highest:
            limit = self.highest + MAX_JUMP
        elif self._start is not None:
            limit = self._start + MAX_INITIAL_JUMP
        else:
            return True
        suspect = self._suspect
        if sequence <= limit or (suspect is not None and 0 < abs(sequence - suspect) <= MAX_JUMP):
            return True
        self._suspect = sequence
        return False

    def expects(self, sequence: int) -> bool:
        """Say whether this number is near the highest one, so that nobody need ask whether it is :meth:`plausible`."""
        return self.highest > 0 and sequence <= self.highest + MAX_JUMP

    def begin(self, sequence: int) -> None:
        """The stream begins here for whoever follows it: what is far beyond is not plausible any more."""
        if self._start is None:
            self._start = sequence

    def raise_floor(self, sequence: int) -> None:
        """The stream had got so far before this began: what the backbone sends anew below it is old."""
        self._floor = max(self._floor, sequence)

    def connected(self, now: float) -> None:
        """The backbone is there again: its silence before that proves nothing."""
        self._last_received_at = now

    def received(self, sequence: int, now: float) -> None:
        """The backbone sent this number, be it new or not."""
        self._record(sequence, sequence, now)

    def run_received(self, first: int, last: int, now: float) -> None:
        """The backbone sent new numbers, ``first`` to ``last``, one after the other."""
        self._record(first, last, now)
        self.advance(last)

    def advance(self, sequence: int) -> None:
        """The backbone sent this number, and it is new."""
        if sequence > self.highest:
            self.highest = sequence
        self._regressed_count = 0

    def reported_by_peer(self, sequence: int) -> None:
        """Somebody else sent this number, and what they said under it is held."""
        if sequence > self._floor:  # The backbone itself sends no older ones, unless it counts anew.
            self._peer_reported.add(sequence, sequence)

    def confirm(self, sequence: int) -> bool:
        """The backbone sent this number; say whether only others had so far. From here on it is the backbone's word."""
        if sequence not in self._peer_reported:
            return False
        self._peer_reported.discard(sequence)
        return True

    def beyond(self, sequence: int) -> bool:
        """Say whether the backbone must have got beyond ``sequence``.

        That one message came from beyond does not prove it, for it may be forged or damaged, and others repeat it in
        good faith. Several in a row that the backbone itself sent do.
        """
        return self._confirmed > sequence

    @property
    def settled_at(self) -> float:
        """When :meth:`is_settled` becomes true unless the backbone sends something."""
        return self._last_received_at + UNCONFIRMED_TIMEOUT

    def is_settled(self, now: float) -> bool:
        """Say whether the backbone has sent nothing for so long that there is no better evidence to wait for."""
        return now >= self.settled_at

    def tick(self, now: float) -> None:
        """Remember where the tide stood."""
        if now - self._checkpoint_at >= LATE_AFTER:
            self._floor, self._checkpoint, self._checkpoint_at = (
                max(self._floor, self._checkpoint),
                self._confirmed,
                now,
            )
            self._peer_reported.discard(0, self._floor)

    @property
    def floor(self) -> int:
        """The backbone was beyond this number long ago."""
        return self._floor

    def falls(self, sequence: int) -> bool:
        """Say whether the backbone counts anew: several old numbers in rising order, and nothing new between them.

        A number is old if the backbone was beyond it long ago.
        """
        if sequence > self._floor:
            return False
        self._regressed_count = self._regressed_count + 1 if sequence > self._last_regressed else 1
        self._last_regressed = sequence
        return self._regressed_count >= REGRESSION_CONFIRMATIONS

    def contradicts(self, sequence: int) -> bool:
        """The backbone sent something else under this number than what is held; say whether that was too often.

        New numbers may come between: two backbones at once contradict each other all the time.
        """
        if all(sequence != number for number, _ in self._contradictions):
            self._contradictions.append((sequence, self._received_count))
        return (
            len(self._contradictions) == CONTRADICTIONS
            and self._received_count - self._contradictions[0][1] < CONTRADICTION_WINDOW
        )

    def _record(self, first: int, last: int, now: float) -> None:
        self._suspect = None
        self._latest = (*self._latest, *range(max(first, last - CONFIRMATIONS + 1), last + 1))[-CONFIRMATIONS:]
        self._confirmed = max(self._confirmed, min(self._latest))
        self._received_count += last - first + 1
        self._last_received_at = now
