"""One connection that carries parcels, made to be subclassed by applications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fyrehose_twisted.net.connection import ConnectionLimits, NodeConnection
from fyrehose_twisted.parcels.wire.codec import ParcelCodec
from fyrehose_twisted.parcels.wire.messages import Message


class ParcelProtocol(NodeConnection):
    """Parcels in and out of one connection, whoever opened it.

    A node uses one for each of its connections (``twistd parcels-node --protocol``). A subclass sees what comes before
    the node does, and may answer or keep something back:

        class Counting(ParcelProtocol):
            def parcels_received(self, messages):
                count(messages)
                super().parcels_received(messages)

    Given to an endpoint, it speaks the document's parcels without any node, as document 004 has them ("Discovery
    phase"):

        class Asking(ParcelProtocol):
            def connection_ready(self):
                self.send([Parcel(False, ParcelType.DSC_REQ, me.id, me)])

            def parcels_received(self, messages):
                print(messages)
                self.hang_up()

    Messages are those of :mod:`~fyrehose_twisted.parcels.wire.messages`. Bytes that are no parcels end the connection,
    once what came before them was handed over.

    :param codec: how messages become bytes; what a node gives has its id.
    """

    def __init__(self, codec: ParcelCodec | None = None, limits: ConnectionLimits | None = None) -> None:
        super().__init__(ParcelCodec() if codec is None else codec, limits)

    def connection_ready(self) -> None:
        """The connection is open."""

    def parcels_received(self, messages: Sequence[Message]) -> None:
        """Messages have come, in order, at least one; by default they are the node's."""
        super().messages_received(messages)

    def connection_ended(self, reason: str) -> None:
        """The connection is over, and not because :meth:`close` was called.

        :param reason: ``closed``, ``reset``, ``timed out``, ``malformed: ...`` and others, for people.
        """

    def messages_received(self, messages: Sequence[Any]) -> None:
        """See :meth:`~fyrehose_twisted.net.connection.NodeConnection.messages_received`; override
        :meth:`parcels_received`."""
        self.parcels_received(messages)
