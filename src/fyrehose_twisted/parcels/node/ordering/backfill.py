"""Backfill of missed events from other nodes (document 004, "Sequence recovery phase")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import groupby

from fyrehose_twisted.consensus.messages import MemberId
from fyrehose_twisted.parcels.node.ordering.history import SequencedRun
from fyrehose_twisted.parcels.wire.messages import FetchEvents, FetchEventsReply

REPLY_TIMEOUT = 2.0
"""Seconds after which an unanswered request is sent to another node."""

MAX_UNANSWERED = 3
"""Requests to a node without a reply after which it counts as one that holds no events. That takes longer than a silent
member stays in the cluster."""


class EventBackfill:
    """Backfill of one contiguous range of events.

    A node that holds the first missing event sends as many as fit one parcel, and is asked again. If no node holds it,
    backfill continues at the oldest event that any node holds.

    :ivar next_sequence: sequence number of the first missing event.
    :ivar last: sequence number of the last missing event.
    """

    def __init__(self, first: int, last: int) -> None:
        self.next_sequence = first
        self.last = last
        self._source: MemberId | None = None
        self._requested_at = 0.0
        self._lowest_held: dict[MemberId, int] = {}
        self._unanswered: Counter[MemberId] = Counter()

    def next_request(self, sources: Sequence[MemberId], now: float) -> tuple[MemberId, FetchEvents] | None:
        """Return the next request and the node to send it to, or ``None``.

        :param sources: nodes to ask, in order of preference.
        """
        if self._source is not None:
            if self._source in sources and now - self._requested_at < REPLY_TIMEOUT:
                return None
            if self._source in sources:
                self._unanswered[self._source] += 1
                if self._unanswered[self._source] >= MAX_UNANSWERED:
                    self._lowest_held[self._source] = self.last + 1
        waiting = (one for one in sources if one not in self._lowest_held)
        self._source = min(waiting, key=self._unanswered.__getitem__, default=None)
        self._requested_at = now
        return None if self._source is None else (self._source, FetchEvents(self.next_sequence, self.last))

    @property
    def deadline(self) -> float:
        """Return the time at which :meth:`next_request` is due."""
        return self._requested_at + REPLY_TIMEOUT

    def reply_received(self, message: FetchEventsReply, sender: MemberId) -> list[SequencedRun]:
        """Process a reply; return its events if they are the next ones."""
        if sender != self._source:
            return []
        self._source = None
        del self._unanswered[sender]
        if not message.events or message.first != self.next_sequence:
            self._lowest_held[sender] = message.first if message.first > self.next_sequence else self.last + 1
            return []
        runs: list[SequencedRun] = []
        sequence = self.next_sequence
        keys = [(event[0], event[1], event[2] - offset) for offset, event in enumerate(message.events)]
        groups = groupby(zip(keys, message.events, strict=True), key=lambda pair: pair[0])
        for (publisher, epoch, _), group in groups:
            events = [event for _, event in group]
            runs.append(SequencedRun(sequence, publisher, epoch, events[0][2], [event[3] for event in events]))
            sequence += len(events)
        self.next_sequence = sequence
        # A node that held nothing lower than these events may hold more by now.
        self._lowest_held = {member: lowest for member, lowest in self._lowest_held.items() if lowest > sequence}
        return runs

    def skip_unavailable(self, holders: Collection[MemberId]) -> int | None:
        """Return the number up to which no node holds events, once all have replied; ``None`` before.

        Later events have to be requested again.

        :param holders: nodes that may hold events, whether they can be asked now or not.
        """
        if self._source is not None or any(one not in self._lowest_held for one in holders):
            return None
        reached = min(min(self._lowest_held.values(), default=self.last + 1) - 1, self.last)
        self._lowest_held.clear()
        self.next_sequence = reached + 1
        return reached
