"""A client that keeps the stream in a durable journal: it goes on where that ends, and answers others from it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import Lost
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.node.client.journal_store import EPOCH, JournalStore
from fyrehose_twisted.fyrehose.wire.codec import encode
from fyrehose_twisted.fyrehose.wire.packets import Asked, Holding, Holds, Status
from fyrehose_twisted.interfaces import Drained, IJournal

HOLDS_INTERVAL = 0.002
"""Seconds between two HOLDS at least, if the second tells of many messages: publishers then go on with many at once."""

FEW, SHORT_INTERVAL = 4, 0.0005
"""So many messages are told sooner: a publisher that waits for each of them would do nothing else."""


class JournalClient(Client):
    """What it wants durable, before anything else happens, is an
    :class:`~fyrehose_twisted.fyrehose.node.client.journal_store.Unsaved`.

    :param config: where to start if the journal is empty; else it goes on at the journal's watermark.
    """

    def __init__(self, backbone: Address, config: ClientConfig, journal: IJournal, rng: Random, now: float) -> None:
        bounds = journal.bounds(EPOCH)
        if bounds is not None:
            config = replace(config, start=max(1, bounds.next))
        self.store = JournalStore(journal)
        self._begun = bounds is not None
        losses = [] if bounds is None else journal.losses(EPOCH, bounds.first, bounds.next - 1)
        self._since = losses[-1][1] + 1 if losses else 1
        self._told: tuple[int, Holding, int] | None = None
        self._told_at = now
        self._stream_last = 0
        self._tell_at: float | None = None
        self._reached_at: float | None = None
        super().__init__(backbone, config, rng, now, store=self.store, durable=True)
        if bounds is not None and self._subscription is not None:
            self._subscription.known_up_to(bounds.last)

    def drain(self) -> Drained:
        """See :meth:`~fyrehose_twisted.interfaces.INode.drain`."""
        _, effects, events = super().drain()
        beginning = None if self._begun else self.beginning
        if beginning is not None:
            self._begun = True
            self.store.begin(beginning)
        for event in events:
            if isinstance(event, Lost):
                self.store.lose(event.first, event.last)
                self._since = max(self._since, event.last + 1)
        effects += self._holds()
        return Drained(self.store.take(), effects, events)

    def told(self, extension: Status | Asked, now: float) -> None:
        """See :meth:`Client.told`; a STATUS is answered with HOLDS, for the last HOLDS may be lost."""
        super().told(extension, now)
        if isinstance(extension, Status):
            self._told = None
            if not self.presence.connected:
                self.store.reached = None
                self._stream_last = extension.last

    def next_deadline(self) -> float | None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.next_deadline`."""
        deadlines = (super().next_deadline(), self._tell_at)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _holds(self) -> list[Send]:
        """Tell the backbone what is durable if that has changed, as often as the intervals let it."""
        self._tell_at = None
        if not self._understood:
            return []
        bounds = self.store.journal.bounds(EPOCH)
        if self.store.reached is None and self._subscription is not None:
            # Numbers from before it joined do not count: a journal that catches up does not slow publishers down.
            self.store.follow(max(self._stream_last, self._subscription.tide.highest))
        # An empty journal says so, or publishers that wait for journals would take it for none.
        holding = Holding(1, 0) if bounds is None else Holding(max(bounds.first, self._since), bounds.next - 1)
        holds = 1 if bounds is None else bounds.first, holding, self.store.reached or 0
        if holds == self._told:
            return []
        if self._told is not None and self._told_at <= self._now:
            if self._reached_at is None:
                self._reached_at = self._now
            if holds[:2] == self._told[:2]:
                due = self._reached_at + HOLDS_INTERVAL  # What has come will be durable in a moment.
            else:
                few = holding.durable - self._told[1].durable <= FEW
                due = self._told_at + (SHORT_INTERVAL if few else HOLDS_INTERVAL)
            if self._now < due:
                self._tell_at = due
                return []
        self._told, self._told_at, self._reached_at = holds, self._now, None
        return [Send([encode(Holds(self.presence.token, *holds))], (self.backbone,))]
