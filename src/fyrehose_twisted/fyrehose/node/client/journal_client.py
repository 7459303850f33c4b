"""Client with a durable journal, from which it resumes and answers repair requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import MessagesLost, NumbersSkipped
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.node.client.journal_store import EPOCH, JournalStore
from fyrehose_twisted.fyrehose.wire.codec import encode
from fyrehose_twisted.fyrehose.wire.packets import Asked, Holding, Holds, Status
from fyrehose_twisted.fyrehose.wire.term_start import decode_term_start
from fyrehose_twisted.interfaces import IJournal, Outputs
from fyrehose_twisted.journal.coverage import Bounds

HOLDS_INTERVAL = 0.002
"""Minimum number of seconds between two HOLDS that report many messages, so that publishers continue in batches."""

FEW_MESSAGES, SHORT_HOLDS_INTERVAL = 4, 0.0005
"""Number of messages up to which the shorter interval applies, for publishers that wait for each message."""


class JournalClient(Client):
    """Node of one client with a durable journal.

    Its outputs contain a :class:`~fyrehose_twisted.fyrehose.node.client.journal_store.PendingWrites` to persist first.

    :param config: client settings. ``start`` applies to an empty journal; otherwise the watermark is the start.
    """

    def __init__(
        self,
        backbone: Address | Sequence[Address],
        config: ClientConfig,
        journal: IJournal,
        rng: Random,
        now: float,
    ) -> None:
        bounds = journal.bounds(EPOCH)
        if bounds is not None:
            config = replace(config, start=max(1, bounds.next))
        self.store = JournalStore(journal)
        self._has_begun = bounds is not None
        self._complete_since = 1 if bounds is None else self._after_last_loss(bounds)
        self._last_holds: tuple[int, Holding, int] | None = None
        self._last_holds_at = now
        self._last_at_join = 0
        self._holds_due_at: float | None = None
        self._holds_changed_at: float | None = None
        super().__init__(backbone, config, rng, now, store=self.store, durable=True)
        if bounds is not None and self._subscription is not None:
            self._subscription.numbers_known(bounds.last)

    def drain(self) -> Outputs:
        """See :meth:`~fyrehose_twisted.interfaces.INode.drain`."""
        _, effects, events = super().drain()
        beginning = None if self._has_begun else self.start_sequence
        if beginning is not None:
            self._has_begun = True
            self.store.begin(beginning)
        for event in events:
            if isinstance(event, MessagesLost):
                self.store.lose(event.first, event.last)
                self._complete_since = max(self._complete_since, event.last + 1)
            elif isinstance(event, NumbersSkipped):
                self.store.lose(event.first, event.last)
        effects += self._take_holds()
        return Outputs(self.store.take_pending(), effects, events)

    def extension_received(self, extension: Status | Asked, now: float) -> None:
        """See :meth:`Client.extension_received`. A STATUS is answered with HOLDS, because the last one may be lost."""
        super().extension_received(extension, now)
        if isinstance(extension, Status):
            self._last_holds = None
            if not self.keepalive.connected:
                self.store.reached = None
                self._last_at_join = extension.last

    def next_deadline(self) -> float | None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.next_deadline`."""
        deadlines = (super().next_deadline(), self._holds_due_at)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _leader_changed(self, now: float, has_taken_over: bool) -> None:
        super()._leader_changed(now, has_taken_over)
        self._last_holds = None

    def _after_last_loss(self, bounds: Bounds) -> int:
        """Return the number from which on the journal has lost no message."""
        for first, last in reversed(self.store.journal.losses(EPOCH, bounds.first, bounds.next - 1)):
            following = self.store.get(last + 1)
            start = None if following is None else decode_term_start(last + 1, following)
            if start is None or start.held_up_to >= first:
                return last + 1
        return 1

    def _take_holds(self) -> list[Send]:
        """Return a HOLDS if the durable range has changed and the interval has passed."""
        self._holds_due_at = None
        if not self.keepalive.extensions_supported:
            return []
        bounds = self.store.journal.bounds(EPOCH)
        if self.store.reached is None and self._subscription is not None:
            # Numbers from before it joined do not count, so a journal that catches up does not slow publishers down.
            self.store.track_after(max(self._last_at_join, self._subscription.stream_head.highest))
        # An empty journal reports itself too, because publishers that wait for journals count journals.
        holding = Holding(1, 0) if bounds is None else Holding(max(bounds.first, self._complete_since), bounds.next - 1)
        holds = 1 if bounds is None else bounds.first, holding, self.store.reached or 0
        if holds == self._last_holds:
            return []
        if self._last_holds is not None and self._last_holds_at <= self._now:
            if self._holds_changed_at is None:
                self._holds_changed_at = self._now
            if holds[:2] == self._last_holds[:2]:
                due = self._holds_changed_at + HOLDS_INTERVAL  # Received messages will be durable soon.
            else:
                few = holding.durable - self._last_holds[1].durable <= FEW_MESSAGES
                due = self._last_holds_at + (SHORT_HOLDS_INTERVAL if few else HOLDS_INTERVAL)
            if self._now < due:
                self._holds_due_at = due
                return []
        self._last_holds, self._last_holds_at, self._holds_changed_at = holds, self._now, None
        return [Send([encode(Holds(self.keepalive.token, *holds))], (self.backbone,))]
