"""Peer connection of a freenet node, for applications to subclass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fyrehose_twisted.freenet.wire.codec import FreenetCodec
from fyrehose_twisted.freenet.wire.messages import Message
from fyrehose_twisted.net.connection import ConnectionLimits, NodeConnection


class FreenetPeerProtocol(NodeConnection):
    """One connection that carries the messages of document 003, in either direction.

    A node creates one instance per connection (``twistd freenet-node --protocol``). A subclass sees messages before the
    node does, and may answer them or withhold them:

        class Unwilling(FreenetPeerProtocol):
            def freenet_received(self, messages):
                super().freenet_received([one for one in messages if not isinstance(one, ResubscribeRequest)])

    On an endpoint of its own it speaks the protocol without a node. The other end then expects a
    :class:`~fyrehose_twisted.freenet.wire.messages.Hello` and a :class:`~fyrehose_twisted.freenet.wire.messages.Prove`
    first.

    Messages are those of :mod:`~fyrehose_twisted.freenet.wire.messages`. Malformed input closes the connection.

    :param codec: encoder and decoder of messages.
    """

    def __init__(self, codec: FreenetCodec | None = None, limits: ConnectionLimits | None = None) -> None:
        super().__init__(FreenetCodec() if codec is None else codec, limits)

    def connection_ready(self) -> None:
        """Handle an opened connection; does nothing by default."""

    def freenet_received(self, messages: Sequence[Message]) -> None:
        """Handle one or more messages, in order; by default pass them to the node."""
        super().messages_received(messages)

    def connection_ended(self, reason: str) -> None:
        """Handle the end of a connection that :meth:`close` did not end.

        :param reason: ``closed``, ``reset``, ``timed out`` or another text for humans.
        """

    def messages_received(self, messages: Sequence[Any]) -> None:
        """See :meth:`~fyrehose_twisted.net.connection.NodeConnection.messages_received`; override
        :meth:`freenet_received`."""
        self.freenet_received(messages)
