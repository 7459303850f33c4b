"""One connection of a freenet node, made to be subclassed by applications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fyrehose_twisted.freenet.wire.codec import FreenetCodec
from fyrehose_twisted.freenet.wire.messages import Message
from fyrehose_twisted.net.connection import ConnectionLimits, NodeConnection


class FreenetPeerProtocol(NodeConnection):
    """The messages of document 003 in and out of one connection, whoever opened it.

    A node uses one for each of its connections (``twistd freenet-node --protocol``). A subclass sees what comes before
    the node does, and may answer or keep something back:

        class Unwilling(FreenetPeerProtocol):
            def freenet_received(self, messages):
                super().freenet_received([one for one in messages if not isinstance(one, ResubscribeRequest)])

    Given to an endpoint, it speaks the document without any node; the other end wants a
    :class:`~fyrehose_twisted.freenet.wire.messages.Hello` and a :class:`~fyrehose_twisted.freenet.wire.messages.Prove`
    first.

    Messages are those of :mod:`~fyrehose_twisted.freenet.wire.messages`. Bytes that are none of them end the
    connection.

    :param codec: how messages become bytes.
    """

    def __init__(self, codec: FreenetCodec | None = None, limits: ConnectionLimits | None = None) -> None:
        super().__init__(FreenetCodec() if codec is None else codec, limits)

    def connection_ready(self) -> None:
        """The connection is open."""

    def freenet_received(self, messages: Sequence[Message]) -> None:
        """Messages have come, in order, at least one; by default they are the node's."""
        super().messages_received(messages)

    def connection_ended(self, reason: str) -> None:
        """The connection is over, and not because :meth:`close` was called.

        :param reason: ``closed``, ``reset``, ``timed out`` and others, for people.
        """

    def messages_received(self, messages: Sequence[Any]) -> None:
        """See :meth:`~fyrehose_twisted.net.connection.NodeConnection.messages_received`; override
        :meth:`freenet_received`."""
        self.freenet_received(messages)
