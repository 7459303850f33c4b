"""Numbers of retransmitted messages until the lowest number of each is certain."""

from __future__ import annotations

import heapq


class UnconfirmedNumbers:
    """Acknowledged messages of a subscribing publisher that may also have a lower number.

    A message that was pushed twice can have two numbers. Subscribers see it under the lower one, so the publisher
    reports that one. It is certain once the stream has no gap below it.
    """

    def __init__(self) -> None:
        self._lowest: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._lowest)

    def add(self, ticket: int, sequence: int) -> None:
        """Record that ``ticket`` was delivered as ``sequence``."""
        self._lowest[ticket] = sequence
        heapq.heappush(self._heap, (sequence, ticket))

    def lower(self, tickets: range, offset: int) -> None:
        """Record lower numbers of messages: the number of each is its ticket plus ``offset``."""
        if not self._lowest:
            return
        for ticket in tickets:
            if self._lowest.get(ticket, 0) > ticket + offset:
                self.add(ticket, ticket + offset)

    def take_confirmed(self, complete_up_to: int) -> list[tuple[int, int]]:
        """Remove and return the messages whose number is certain, as pairs of ticket and number.

        :param complete_up_to: number up to which the stream has no gap.
        """
        confirmed = []
        while self._heap and self._heap[0][0] <= complete_up_to:
            sequence, ticket = heapq.heappop(self._heap)
            if self._lowest.pop(ticket, None) is not None:  # Its lowest number comes first.
                confirmed.append((ticket, sequence))
        return confirmed
