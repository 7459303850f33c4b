"""The Twisted shell of a client that keeps a durable journal, made to be subclassed."""

from __future__ import annotations

from random import SystemRandom
from typing import Any

from fyrehose_twisted.fyrehose.config import ClientConfig, Start
from fyrehose_twisted.fyrehose.node.client.journal_client import JournalClient
from fyrehose_twisted.fyrehose.node.client.journal_store import PendingWrites
from fyrehose_twisted.fyrehose.protocol import SubscriberProtocol
from fyrehose_twisted.interfaces import IDatagramNode, IJournal


class JournalProtocol(SubscriberProtocol):
    """Receives a stream in order and keeps it: what :meth:`messages_received` is handed is durable by then.

    After a restart it goes on where the journal ends, so what was handed over and was durable is not handed over again.

    :param config: where to start with an empty journal; by default with the oldest message that anyone holds.
    :param journal: where to keep the stream. The protocol commits to it, and closes it never.
    :param sync: make each group durable before it is handed over. Without it, somebody has to call the journal's
        ``commit`` now and then, and a power failure takes what came since.
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
        return JournalClient(self.backbone, self.config, self.journal, SystemRandom(), now)

    def flush(self) -> None:
        """Let the node tell what has become durable since."""
        if self.driver is not None:
            self.driver.flush()

    def persist(self, mark: PendingWrites) -> None:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.persist`."""
        mark.save(self.journal, sync=self.sync)
