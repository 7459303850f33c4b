"""Tracking of the backbone's position in the stream, and plausibility checks of the numbers that it sends."""

from __future__ import annotations

from collections import deque

from fyrehose_twisted.ranges import RangeSet

MAX_JUMP = 1_280
"""Maximum distance of a DELIVER from the highest number. A DELIVER further ahead needs a second one near it, or
:data:`UNCONFIRMED_TIMEOUT` seconds without a contradiction."""

MAX_INITIAL_JUMP = 2**24
"""The same limit for a subscriber that knows only its start position."""

CONFIRMATIONS = 3
"""Consecutive messages of the backbone that must lie beyond a number before it can count as lost."""

UNCONFIRMED_TIMEOUT = 10.0
"""Seconds of silence of the backbone after which no better evidence about the end of the stream is expected."""

REGRESSION_CONFIRMATIONS = 3
"""Old numbers in rising order that prove a restarted numbering. One old number may be a duplicated datagram."""

CONTRADICTIONS, CONTRADICTION_WINDOW = 5, 16
"""Messages, and the number of latest messages among them, that differ from stored ones and prove a restarted numbering.
A single one may be damaged."""

LATE_AFTER = 5.0
"""Seconds after which a datagram can no longer be late."""


class StreamHead:
    """Highest number received from the backbone itself, now and some seconds ago.

    :param start: configured start number, near which the first message is expected, or ``None``.
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
        """Return whether the backbone may have reached this number. A single forged number must not break a stream."""
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
        """Return whether this number is near the highest one, and thus certainly :meth:`plausible`."""
        return self.highest > 0 and sequence <= self.highest + MAX_JUMP

    def begin(self, sequence: int) -> None:
        """Set the start of the stream, far beyond which numbers are not plausible."""
        if self._start is None:
            self._start = sequence

    def raise_floor(self, sequence: int) -> None:
        """Set the position that the stream had reached before the start. Numbers below it are old."""
        self._floor = max(self._floor, sequence)

    def connected(self, now: float) -> None:
        """Handle the return of the backbone: its silence before counts as no evidence."""
        self._last_received_at = now

    def leader_changed(self) -> None:
        """Forget the evidence for a jump, because it came from another backbone."""
        self._suspect = None

    def received(self, sequence: int, now: float) -> None:
        """Record a number sent by the backbone, new or not."""
        self._record(sequence, sequence, now)

    def run_received(self, first: int, last: int, now: float) -> None:
        """Record consecutive numbers sent by the backbone, received for the first time."""
        self._record(first, last, now)
        self.advance(last)

    def advance(self, sequence: int) -> None:
        """Record a new number sent by the backbone."""
        if sequence > self.highest:
            self.highest = sequence
        self._regressed_count = 0

    def reported_by_peer(self, first: int, last: int) -> None:
        """Record that the stored messages of these numbers came from another client."""
        if last > self._floor:  # The backbone itself sends older ones only if its numbering restarts.
            self._peer_reported.add(max(first, self._floor + 1), last)

    def confirm(self, sequence: int) -> bool:
        """Record that the backbone sent this number. Return whether only other clients had sent it before."""
        if sequence not in self._peer_reported:
            return False
        self._peer_reported.discard(sequence)
        return True

    def beyond(self, sequence: int) -> bool:
        """Return whether the backbone is certainly beyond ``sequence``.

        One message beyond it is no proof, because it may be forged or damaged, and clients may repeat it. Several
        consecutive messages from the backbone itself are.
        """
        return self._confirmed > sequence

    @property
    def settled_at(self) -> float:
        """Time at which :meth:`is_settled` becomes true if the backbone stays silent."""
        return self._last_received_at + UNCONFIRMED_TIMEOUT

    def is_settled(self, now: float) -> bool:
        """Return whether the backbone has been silent for so long that no better evidence is expected."""
        return now >= self.settled_at

    def tick(self, now: float) -> None:
        """Advance the floor to the number that was confirmed some seconds ago."""
        if now - self._checkpoint_at >= LATE_AFTER:
            self._floor, self._checkpoint, self._checkpoint_at = (
                max(self._floor, self._checkpoint),
                self._confirmed,
                now,
            )
            self._peer_reported.discard(0, self._floor)

    @property
    def floor(self) -> int:
        """Number that the backbone passed at least :data:`LATE_AFTER` seconds ago."""
        return self._floor

    def falls(self, sequence: int) -> bool:
        """Return whether the numbering has restarted: several numbers up to the floor in rising order, with no new
        number between them."""
        if sequence > self._floor:
            return False
        self._regressed_count = self._regressed_count + 1 if sequence > self._last_regressed else 1
        self._last_regressed = sequence
        return self._regressed_count >= REGRESSION_CONFIRMATIONS

    def contradicts(self, sequence: int) -> bool:
        """Record a message of the backbone that differs from the stored one. Return whether there were too many.

        New numbers may lie between them, as two concurrent backbones contradict each other all the time.
        """
        if all(sequence != number for number, _ in self._contradictions):
            self._contradictions.append((sequence, self._received_count))
        return (
            len(self._contradictions) == CONTRADICTIONS
            and self._received_count - self._contradictions[0][1] < CONTRADICTION_WINDOW
        )

    def _record(self, first: int, last: int, now: float) -> None:
        self._suspect = None
        if first == last:
            # A message that comes twice, such as from two relays, is one piece of evidence.
            if last not in self._latest:
                self._latest = (*self._latest[1:], last)
        else:
            self._latest = (*self._latest, *range(max(first, last - CONFIRMATIONS + 1), last + 1))[-CONFIRMATIONS:]
        self._confirmed = max(self._confirmed, min(self._latest))
        self._received_count += last - first + 1
        self._last_received_at = now
