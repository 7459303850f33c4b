"""The client of the backbone that publishes for all clients of a frontend."""

from __future__ import annotations

from collections.abc import Sequence

from fyrehose_twisted.fyrehose.config import ClientConfig, OutboxConfig
from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.frontend.publish_queue import PublishQueue
from fyrehose_twisted.fyrehose.protocol import PublisherProtocol
from fyrehose_twisted.fyrehose.wire.packets import Holding

MAX_IN_FLIGHT_BYTES = 4 * 2**20
"""Bytes that the publisher takes before those under way have come back. It sends them in the order in which it got
them, so only what waits outside of it waits in turns."""


HISTORY_BYTES = 32 * 2**20
"""Memory for the latest messages of the stream, which are sent to clients that missed them."""

BUFFER_BYTES = 16 * 2**20
"""Memory for messages that wait for others before them to be repaired."""


class FrontendPublisher(PublisherProtocol):
    """The client of the backbone that publishes for all.

    :ivar publish_queue: told when the backbone comes and goes.
    """

    publish_queue: PublishQueue

    def backbone_connected(self) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.protocol.ClientProtocol.backbone_connected`."""
        self.publish_queue.connection_changed(True)

    def backbone_disconnected(self) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.protocol.ClientProtocol.backbone_disconnected`."""
        self.publish_queue.connection_changed(False)

    def journals_synced(self, holdings: Sequence[Holding]) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.protocol.ClientProtocol.journals_synced`."""
        self.publish_queue.journals.holdings_received(holdings)


def publisher_config(config: FrontendConfig, secret: bytes | None) -> ClientConfig:
    """Return what the publisher of a frontend is told.

    It subscribes, so that it can send what it published to clients that missed it, and is told the lowest number of a
    message that has several.
    """
    outbox = OutboxConfig(timeout=config.publish_timeout, queue_bytes=MAX_IN_FLIGHT_BYTES)
    return ClientConfig(
        raw=True, watch=True, history_bytes=HISTORY_BYTES, buffer_bytes=BUFFER_BYTES, secret=secret, outbox=outbox
    )
