"""Events that a node missed while it was away, fetched from others (document 004, "Sequence recovery phase")."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from fyrehose_twisted.parcels.node.ordering.history import Stretch
from fyrehose_twisted.parcels.wire.messages import Fetch, Fetched, Member

ANSWER_IN = 2.0
"""Seconds after which somebody who does not answer is not waited for any longer."""


class Backfill:
    """One row of events, the next that the application wants.

    Whoever holds the first of them gives what fits one parcel; then it is asked again. Where nobody does, what is held
    by the one who goes back furthest comes next.

    :ivar next: number of the first event that is still missing.
    :ivar last: number of the last one.
    """

    def __init__(self, first: int, last: int) -> None:
        self.next = first
        self.last = last
        self._asked: Member | None = None
        self._asked_at = 0.0
        self._holds: dict[Member, int] = {}

    def ask(self, members: Sequence[Member], now: float) -> tuple[Member, Fetch] | None:
        """Return whom to ask now, if anybody.

        :param members: who can be asked, the best first.
        """
        if self._asked is not None:
            if self._asked in members and now - self._asked_at < ANSWER_IN:
                return None
            if self._asked in members:
                self._holds[self._asked] = self.last + 1
        self._asked = next((one for one in members if one not in self._holds), None)
        self._asked_at = now
        return None if self._asked is None else (self._asked, Fetch(self.next, self.last))

    @property
    def deadline(self) -> float:
        """When :meth:`ask` is to be called again."""
        return self._asked_at + ANSWER_IN

    def fetched(self, message: Fetched, sender: Member) -> list[Stretch]:
        """Take an answer; return the events that came, which are the next ones."""
        if sender != self._asked:
            return []
        self._asked = None
        if not message.events or message.first != self.next:
            self._holds[sender] = message.first if message.first > self.next else self.last + 1
            return []
        stretches: list[Stretch] = []
        sequence = self.next
        numbered = [(one[0], one[1], one[2] - place) for place, one in enumerate(message.events)]
        rows = groupby(zip(numbered, message.events, strict=True), key=lambda pair: pair[0])
        for (publisher, epoch, _), row in rows:
            events = [event for _, event in row]
            stretches.append(Stretch(sequence, publisher, epoch, events[0][2], [event[3] for event in events]))
            sequence += len(events)
        self.next = sequence
        # Who was said to begin at one of these may have more by now.
        self._holds = {member: lowest for member, lowest in self._holds.items() if lowest > sequence}
        return stretches

    def skip(self, members: Sequence[Member]) -> int | None:
        """Return the number up to which nobody holds anything, once everybody has said so; ``None`` before.

        What comes behind it is to be asked for again.
        """
        if self._asked is not None or any(one not in self._holds for one in members):
            return None
        reached = min(min(self._holds.values(), default=self.last + 1) - 1, self.last)
        self._holds.clear()
        self.next = reached + 1
        return reached
