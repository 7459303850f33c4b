"""State of a test's application: the sum of the events."""

from __future__ import annotations

from typing import Any

from fyrehose_twisted.parcels.replicated_state import ReplicatedState


class Sum(ReplicatedState):
    """Sum of the events. Those that are no numbers raise.

    :ivar applied: numbers of the applied events.
    """

    def __init__(self, total: int = 0) -> None:
        self.total = total
        self.applied: list[int] = []

    def apply(self, event: Any) -> None:
        self.applied.append(event.sequence)
        self.total += int(event.data)

    def snapshot(self) -> bytes:
        if self.total < 0:
            raise ValueError("a negative sum")
        return b"%d" % self.total

    def restore(self, data: bytes) -> None:
        self.total = int(data)
