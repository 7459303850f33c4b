"""Twisted protocol of a subscriber with a durable journal, made to be subclassed."""

from __future__ import annotations

from random import SystemRandom
from typing import Any

from fyrehose_twisted.fyrehose.config import ClientConfig, Start
from fyrehose_twisted.fyrehose.node.client.journal_client import JournalClient
from fyrehose_twisted.fyrehose.node.client.journal_store import PendingWrites
from fyrehose_twisted.fyrehose.protocol.client import SubscriberProtocol
from fyrehose_twisted.interfaces import IDatagramNode, IJournal


class JournalProtocol(SubscriberProtocol):
    """Subscriber that writes the stream to a journal before it delivers messages to :meth:`messages_received`.

    After a restart it continues at the end of the journal and does not deliver durable messages again.

    :param config: client settings. With an empty journal, ``start`` applies; the default is the oldest message that any
        client holds.
    :param journal: journal of the stream. The protocol commits to it and never closes it.
    :param sync: sync each group of messages to disk before it is delivered. Otherwise the application has to call the
        ``commit`` method of the journal regularly, and a power failure loses the messages since the last call.
    """

    def __init__(
        self,
        config: ClientConfig | None = None,
        *,
        journal: IJournal,
        sync: bool = True,
        reactor: Any = None,
    ) -> None:
        super().__init__(ClientConfig(start=Start.OLDEST) if config is None else config, reactor=reactor)
        self.journal = journal
        self.sync = sync

    def make_node(self, now: float) -> IDatagramNode:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.make_node`."""
        return JournalClient(self.backbones or self.backbone, self.config, self.journal, SystemRandom(), now)

    def flush(self) -> None:
        """Let the node report messages that have become durable."""
        if self.driver is not None:
            self.driver.flush()

    def persist(self, pending: PendingWrites) -> None:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.persist`."""
        pending.save(self.journal, sync=self.sync)
