"""What a client remembers of the stream, so that it can answer FORWARDs: its last messages, in memory."""

from __future__ import annotations

from collections import deque
from itertools import islice

from zope.interface import implementer

from fyrehose_twisted.interfaces import IMessageStore
from fyrehose_twisted.ranges import RangeSet

DEFAULT_LIMIT = 64 * 2**20

MESSAGE_OVERHEAD = 160
"""Bytes that a message costs beside its data, so that the limit means memory."""


@implementer(IMessageStore)
class History:
    """The messages that came last, up to ``limit`` bytes including what Python needs to hold them."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self.size = 0
        self._messages: dict[int, tuple[bytes, int]] = {}
        self._order: deque[int] = deque()
        self._held = RangeSet()

    def put(self, sequence: int, data: bytes, received_at: int = 0) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IMessageStore.put`."""
        held = self._messages.get(sequence)
        if held is None:
            self._order.append(sequence)
            self._held.add(sequence)
            self.size += MESSAGE_OVERHEAD
        else:
            self.size -= len(held[0])
        self._messages[sequence] = data, received_at
        self.size += len(data)
        while self.size > self.limit:
            oldest = self._order.popleft()
            self.size -= len(self._messages.pop(oldest)[0]) + MESSAGE_OVERHEAD
            self._held.discard(oldest)

    def get(self, sequence: int) -> bytes | None:
        """See :meth:`~fyrehose_twisted.interfaces.IMessageStore.get`."""
        held = self._messages.get(sequence)
        return None if held is None else held[0]

    def received_at(self, sequence: int) -> int | None:
        """See :meth:`~fyrehose_twisted.interfaces.IMessageStore.received_at`."""
        held = self._messages.get(sequence)
        return None if held is None else held[1]

    def lowest(self, first: int, last: int, limit: int) -> list[int]:
        """See :meth:`~fyrehose_twisted.interfaces.IMessageStore.lowest`."""
        ranges = self._held.intersection(first, last)
        return list(islice((number for start, end in ranges for number in range(start, end + 1)), limit))

    def __len__(self) -> int:
        return len(self._messages)
