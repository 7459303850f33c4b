"""Hydra connection that applications can subclass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fyrehose_twisted.hydra.wire.codec import HydraCodec
from fyrehose_twisted.hydra.wire.messages import Message
from fyrehose_twisted.net.connection import ConnectionLimits, NodeConnection


class HydraProtocol(NodeConnection):
    """One connection that carries messages of document 002, in either direction and over any transport.

    A node uses one instance per connection (``twistd hydra-node --protocol``). A subclass sees received messages before
    the node does, and may answer or drop them:

        class Deaf(HydraProtocol):
            def hydra_received(self, messages):
                super().hydra_received([one for one in messages if not isinstance(one, Send)])

    Passed to an endpoint, it speaks the protocol without a node:

        class Asking(HydraProtocol):
            def connection_ready(self):
                self.send([Knock(my_id, "visitor")])

            def hydra_received(self, messages):
                print(messages)

    Messages are those of :mod:`~fyrehose_twisted.hydra.wire.messages`. A malformed line arrives as
    :class:`~fyrehose_twisted.hydra.wire.messages.Malformed`; the connection stays open.

    :param codec: encoder and decoder of messages.
    """

    def __init__(self, codec: HydraCodec | None = None, limits: ConnectionLimits | None = None) -> None:
        super().__init__(HydraCodec() if codec is None else codec, limits)

    def connection_ready(self) -> None:
        """Handle the opening of the connection."""

    def hydra_received(self, messages: Sequence[Message]) -> None:
        """Handle received messages, in order and at least one. The default passes them to the node."""
        super().messages_received(messages)

    def connection_ended(self, reason: str) -> None:
        """Handle the end of the connection, unless :meth:`close` was called.

        :param reason: human-readable reason: ``closed``, ``reset``, ``timed out`` and others.
        """

    def messages_received(self, messages: Sequence[Any]) -> None:
        """See :meth:`~fyrehose_twisted.net.connection.NodeConnection.messages_received`; override
        :meth:`hydra_received`."""
        self.hydra_received(messages)
