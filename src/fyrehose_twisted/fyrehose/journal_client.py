"""A client that keeps the stream in a durable journal: it goes on where that ends, and answers others from it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.client import Client
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.journal_store import EPOCH, JournalStore
from fyrehose_twisted.fyrehose.reassembly import Lost
from fyrehose_twisted.interfaces import Drained, IJournal


class JournalClient(Client):
    """What it wants durable, before anything else happens, is an
    :class:`~fyrehose_twisted.fyrehose.journal_store.Unsaved`.

    :param config: where to start if the journal is empty; else it goes on at the journal's watermark.
    """

    def __init__(self, backbone: Address, config: ClientConfig, journal: IJournal, rng: Random, now: float) -> None:
        bounds = journal.bounds(EPOCH)
        if bounds is not None:
            config = replace(config, start=max(1, bounds.next))
        self.store = JournalStore(journal)
        self._begun = bounds is not None
        super().__init__(backbone, config, rng, now, store=self.store)
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
        return Drained(self.store.take(), effects, events)
