"""Publisher of the frontend, which is a client of the backbone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.fyrehose.config import ClientConfig, MacPolicy, OutboxConfig
from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.frontend.publish_queue import MESSAGE_OVERHEAD, PublishQueue
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

    def __init__(self, config: ClientConfig, *, reactor: Any = None) -> None:
        super().__init__(config, reactor=reactor)
        self._batches: list[tuple[Sequence[bytes], Deferred[list[int]]]] = []
        self._batches_bytes = 0
        self._flush_call: Any = None

    def publish_many(self, messages: Sequence[bytes], *, kept: int = 0) -> Deferred[list[int]]:
        """Publish a batch with the others of this turn of the reactor.

        Most clients publish single messages, and many of them in one turn. A flush for each would cost more than all
        else.
        """
        if kept or self.transport is None:
            return super().publish_many(messages, kept=kept)
        published: Deferred[list[int]] = Deferred()
        self._batches.append((messages, published))
        self._batches_bytes += sum(map(len, messages)) + MESSAGE_OVERHEAD * len(messages)
        if self._flush_call is None:
            self._flush_call = self.reactor.callLater(0, self._publish_batches)
        return published

    def stopProtocol(self) -> None:
        """Twisted: the port is closed. Fail all pending messages."""
        super().stopProtocol()
        if self._flush_call is not None:
            self._flush_call.cancel()
            self._publish_batches()

    def _publish_batches(self) -> None:
        self._flush_call = None
        batches, self._batches, self._batches_bytes = self._batches, [], 0
        try:
            self.publish_batches(batches)
        except FyrehoseError as error:
            for _, published in batches:
                published.errback(error)

    def _has_room(self) -> bool:
        return self._batches_bytes < MAX_IN_FLIGHT_BYTES // 4 and super()._has_room()

    def backbone_connected(self) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.protocol.client.ClientProtocol.backbone_connected`."""
        self.publish_queue.connection_changed(True)

    def backbone_disconnected(self) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.protocol.client.ClientProtocol.backbone_disconnected`."""
        self.publish_queue.connection_changed(False)

    def journals_synced(self, holdings: Sequence[Holding]) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.protocol.client.ClientProtocol.journals_synced`."""
        self.publish_queue.journals.holdings_received(holdings)


def publisher_config(config: FrontendConfig, secret: bytes | None, mac: MacPolicy = MacPolicy.OFFER) -> ClientConfig:
    """Return the client settings of the publisher.

    It subscribes, so that it can answer repair requests and knows the lowest number of retransmitted messages.
    """
    outbox = OutboxConfig(timeout=config.publish_timeout, queue_bytes=MAX_IN_FLIGHT_BYTES)
    return ClientConfig(
        raw=True,
        watch=True,
        history_bytes=HISTORY_BYTES,
        buffer_bytes=BUFFER_BYTES,
        secret=secret,
        mac=mac,
        outbox=outbox,
    )
