"""Publisher of the frontend, which is a client of the backbone."""

from __future__ import annotations

from collections.abc import Sequence

from fyrehose_twisted.fyrehose.config import ClientConfig, OutboxConfig
from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.frontend.publish_queue import PublishQueue
from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
from fyrehose_twisted.fyrehose.wire.packets import Holding

MAX_IN_FLIGHT_BYTES = 4 * 2**20
"""Maximum bytes in the send queue of the publisher. It sends in order, so clients take turns only in the queue before
it."""


HISTORY_BYTES = 32 * 2**20
"""Bytes of memory for messages from which the publisher answers repair requests."""

BUFFER_BYTES = 16 * 2**20
"""Bytes of memory for the reorder buffer."""


class FrontendPublisher(PublisherProtocol):
    """Publisher for all clients of a frontend.

    :ivar publish_queue: publish queue, which is notified of connections and journal progress.
    """

    publish_queue: PublishQueue

    def backbone_connected(self) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.protocol.client.ClientProtocol.backbone_connected`."""
        self.publish_queue.connection_changed(True)

    def backbone_disconnected(self) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.protocol.client.ClientProtocol.backbone_disconnected`."""
        self.publish_queue.connection_changed(False)

    def journals_synced(self, holdings: Sequence[Holding]) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.protocol.client.ClientProtocol.journals_synced`."""
        self.publish_queue.journals.holdings_received(holdings)


def publisher_config(config: FrontendConfig, secret: bytes | None) -> ClientConfig:
    """Return the client settings of the publisher.

    It subscribes, so that it can answer repair requests and knows the lowest number of retransmitted messages.
    """
    outbox = OutboxConfig(timeout=config.publish_timeout, queue_bytes=MAX_IN_FLIGHT_BYTES)
    return ClientConfig(
        raw=True, watch=True, history_bytes=HISTORY_BYTES, buffer_bytes=BUFFER_BYTES, secret=secret, outbox=outbox
    )
