"""Numbers of messages that were published more than once, until the lowest of each is certain."""

from __future__ import annotations

import heapq


class UnconfirmedNumbers:
    """Messages of a subscribing publisher that have come back and may stand under a lower number as well.

    A message that was pushed twice can have two numbers. Subscribers see it under the lower one, so that is the one to
    tell, and it is certain once the stream has no gap below it.
    """

    def __init__(self) -> None:
        self._lowest: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._lowest)

    def add(self, ticket: int, sequence: int) -> None:
        """``ticket`` came back as ``sequence``."""
        self._lowest[ticket] = sequence
        heapq.heappush(self._heap, (sequence, ticket))

    def lower(self, tickets: range, offset: int) -> None:
        """Messages came, each with the number that is ``offset`` of its ticket; those that wait may be among them."""
        if not self._lowest:
            return
        for ticket in tickets:
            if self._lowest.get(ticket, 0) > ticket + offset:
                self.add(ticket, ticket + offset)

    def take_confirmed(self, complete_up_to: int) -> list[tuple[int, int]]:
        """Return the messages whose number is certain, as pairs of ticket and number.

        :param complete_up_to: there is no gap in the stream up to this number.
        """
        settled = []
        while self._heap and self._heap[0][0] <= complete_up_to:
            sequence, ticket = heapq.heappop(self._heap)
            if self._lowest.pop(ticket, None) is not None:  # Its lowest number comes first.
                settled.append((ticket, sequence))
        return settled
