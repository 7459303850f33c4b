"""Twisted protocol of one connection that carries parcels; applications can subclass it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fyrehose_twisted.net.connection import ConnectionLimits, NodeConnection
from fyrehose_twisted.parcels.wire.codec import ParcelCodec
from fyrehose_twisted.parcels.wire.messages import Message


class ParcelProtocol(NodeConnection):
    """Parcels on one connection, inbound or outbound.

    A node uses one instance per connection (``twistd parcels-node --protocol``). A subclass sees messages before the
    node does, and can answer or drop them:

        class Counting(ParcelProtocol):
            def parcels_received(self, messages):
                count(messages)
                super().parcels_received(messages)

    On an endpoint it also works without a node, with the parcels of document 004 ("Discovery phase"):

        class Asking(ParcelProtocol):
            def connection_ready(self):
                self.send([Parcel(False, ParcelType.DSC_REQ, me.id, me)])

            def parcels_received(self, messages):
                print(messages)
                self.hang_up()

    :mod:`~fyrehose_twisted.parcels.wire.messages` defines the messages. Malformed bytes close the connection after the
    messages before them are delivered.

    :param codec: codec of the messages; a node passes one with its id.
    """

    def __init__(self, codec: ParcelCodec | None = None, limits: ConnectionLimits | None = None) -> None:
        super().__init__(ParcelCodec() if codec is None else codec, limits)

    def connection_ready(self) -> None:
        """Called when the connection is open."""

    def parcels_received(self, messages: Sequence[Message]) -> None:
        """Called with one or more received messages, in order; by default, pass them to the node."""
        super().messages_received(messages)

    def connection_ended(self, reason: str) -> None:
        """Called when the connection has ended, unless :meth:`close` was called.

        :param reason: text for people, such as ``closed``, ``reset``, ``timed out`` or ``malformed: ...``.
        """

    def messages_received(self, messages: Sequence[Any]) -> None:
        """See :meth:`~fyrehose_twisted.net.connection.NodeConnection.messages_received`; override
        :meth:`parcels_received`."""
        self.parcels_received(messages)
