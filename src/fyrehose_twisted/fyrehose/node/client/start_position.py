"""Search for the start position of a subscriber: the next message, or the oldest that any client holds."""

from __future__ import annotations

from itertools import pairwise

from fyrehose_twisted.fyrehose.config import Start
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import MESSAGE_OVERHEAD
from fyrehose_twisted.fyrehose.node.client.stream_head import MAX_INITIAL_JUMP, MAX_JUMP
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE

MAX_REQUESTS, REQUEST_INTERVAL = 5, 0.1
"""Number of requests for the oldest message and seconds between them. Another client may answer each request."""

CONFIRMATION_RANGE = 15
"""Count of numbers requested below the only known one in order to confirm it."""

FINAL_WAIT_INTERVALS = 3
"""Intervals to wait after the last request."""

FIRST_RETRY_DELAY, MAX_RETRY_DELAY = 1.0, 30.0
"""Seconds after which the oldest message is requested again if no client answered; doubled up to the maximum."""

CONFIRMATION_TIMEOUT = 1.0
"""Seconds to wait for the confirmation of the only known number."""


class StartPositionSearch:
    """Search of a subscriber for its first number.

    :param reorder_delay: seconds to wait after the first message for one that it overtook.
    :ivar early_messages: messages received during the search.
    :ivar live_numbers: numbers of those that came from the backbone.
    :ivar reported_last: last assigned number that the backbone has reported.
    """

    def __init__(self, start: Start, limit: int, reorder_delay: float) -> None:
        self.early_messages: dict[int, bytes] = {}
        self.live_numbers: set[int] = set()
        self._limit = limit
        self._size = 0
        self._wants_oldest = start is Start.OLDEST
        self._requests_left = MAX_REQUESTS if self._wants_oldest else 0
        self._reorder_delay = reorder_delay
        self._wait_until: float | None = None
        self._is_unanswered = False
        self._retry_delay = FIRST_RETRY_DELAY
        self._unconfirmed: int | None = None
        self._suspect = 0
        """Number that messages were requested below, to confirm it."""
        self._confirmation_deadline: float | None = None
        self._reported_oldest: int | None = None
        self.reported_last = 0

    def status_reported(self, oldest: int, last: int) -> None:
        """Handle a STATUS: ``oldest`` is the oldest number of durable journals, 0 if there are none."""
        if self._wants_oldest:
            self.reported_last = last
            self._reported_oldest = oldest or None

    def begin(self, now: float) -> None:
        """Start to send requests."""
        if self._requests_left and self._wait_until is None:
            self._wait_until = now

    def add(self, sequence: int, data: bytes, now: float, *, live: bool) -> bool:
        """Add a message. Return ``False`` if the buffer is full. ``live`` means that it came from the backbone."""
        soon = now + self._reorder_delay
        if self._is_unanswered:
            self._is_unanswered, self._requests_left, self._wait_until = False, 0, soon
        if self._wait_until is None or (self._confirmation_deadline is not None and soon < self._wait_until):
            self._wait_until = soon
        if sequence not in self.early_messages:
            cost = len(data) + MESSAGE_OVERHEAD
            if self._size + cost > self._limit and self.early_messages:
                return False
            self.early_messages[sequence] = data
            self._size += cost
        # What was requested for confirmation comes from the backbone, too, if it retransmits.
        if live and not self._suspect - CONFIRMATION_RANGE <= sequence < self._suspect:
            self.live_numbers.add(sequence)
        return True

    def next_request(self, now: float) -> tuple[int, int] | None:
        """Return the range to request now, or ``None``."""
        if self._unconfirmed is not None:
            self._suspect = suspect = self._unconfirmed
            self._unconfirmed = None
            self._wait_until = self._confirmation_deadline
            return max(1, suspect - CONFIRMATION_RANGE), suspect
        if (
            self._reported_oldest is not None
            or not self._requests_left
            or self._wait_until is None
            or now < self._wait_until
        ):
            return None
        self._requests_left -= 1
        self._wait_until = now + REQUEST_INTERVAL * (1 if self._requests_left else FINAL_WAIT_INTERVALS)
        return 1, max(self.live_numbers, default=MAX_SEQUENCE)

    def lowest_credible(self, now: float) -> int | None:
        """Return the lowest credible number. A high number needs another one near it, because one alone may be forged.

        A live start uses a number that came from the backbone; repairs only confirm it.
        """
        limit = (
            MAX_INITIAL_JUMP
            if self._confirmation_deadline is not None and now >= self._confirmation_deadline
            else MAX_JUMP
        )
        confirmed = self.confirmed_numbers()
        for number in sorted(self.early_messages):
            if (number <= limit or number in confirmed) and (self._wants_oldest or number in self.live_numbers):
                return number
        return None

    def confirmed_numbers(self) -> set[int]:
        """Return the received numbers that have another received number near them."""
        near = [pair for pair in pairwise(sorted(self.early_messages)) if pair[1] - pair[0] <= MAX_JUMP]
        return {number for pair in near for number in pair}

    def result(self, now: float) -> int | None:
        """Return the start position, or ``None`` if it is not known yet."""
        if self._reported_oldest is not None:
            return self._oldest_received_or(self._reported_oldest, now)
        if self._requests_left or self._wait_until is None or now < self._wait_until:
            return None
        beginning = self.lowest_credible(now)
        if beginning is not None:
            return beginning
        if not self.early_messages:
            # The next message will be the oldest. Ask again meanwhile, because other clients may hold older ones.
            self._is_unanswered, self._requests_left = True, 1
            self._wait_until = now + self._retry_delay
            self._retry_delay = min(2 * self._retry_delay, MAX_RETRY_DELAY)
        elif self._confirmation_deadline is None:
            self._unconfirmed = min(self.early_messages)
            self._confirmation_deadline, self._wait_until = now + CONFIRMATION_TIMEOUT, now
        else:
            self._wait_until = self._confirmation_deadline if now < self._confirmation_deadline else None
        return None

    def _oldest_received_or(self, reported: int, now: float) -> int:
        """Return a lower number than the reported one if its message has arrived from a client without a journal.

        It must be near, because the numbers in between are requested and a single message may be forged.
        """
        received = self.lowest_credible(now)
        return received if received is not None and reported - MAX_JUMP <= received < reported else reported

    def next_deadline(self) -> float | None:
        """Return the time at which :meth:`next_request` or :meth:`result` may change."""
        return self._wait_until
