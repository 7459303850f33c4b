"""One connection of a hydra node, made to be subclassed by applications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fyrehose_twisted.hydra.wire.codec import HydraCodec
from fyrehose_twisted.hydra.wire.messages import Message
from fyrehose_twisted.net.connection import ConnectionLimits, NodeConnection


class HydraProtocol(NodeConnection):
    """The messages of document 002 in and out of one connection, whoever opened it and over whatever it runs.

    A node uses one for each of its connections (``twistd hydra-node --protocol``). A subclass sees what comes before
    the node does, and may answer or keep something back:

        class Deaf(HydraProtocol):
            def hydra_received(self, messages):
                super().hydra_received([one for one in messages if not isinstance(one, Send)])

    Given to an endpoint, it speaks the document without any node:

        class Asking(HydraProtocol):
            def connection_ready(self):
                self.send([Knock(my_id, "visitor")])

            def hydra_received(self, messages):
                print(messages)

    Messages are those of :mod:`~fyrehose_twisted.hydra.wire.messages`; a line that is none of them arrives as
    :class:`~fyrehose_twisted.hydra.wire.messages.Malformed`, and the connection goes on.

    :param codec: how messages become bytes.
    """

    def __init__(self, codec: HydraCodec | None = None, limits: ConnectionLimits | None = None) -> None:
        super().__init__(HydraCodec() if codec is None else codec, limits)

    def connection_ready(self) -> None:
        """The connection is open."""

    def hydra_received(self, messages: Sequence[Message]) -> None:
        """Messages have come, in order, at least one; by default they are the node's."""
        super().messages_received(messages)

    def connection_ended(self, reason: str) -> None:
        """The connection is over, and not because :meth:`close` was called.

        :param reason: ``closed``, ``reset``, ``timed out`` and others, for people.
        """

    def messages_received(self, messages: Sequence[Any]) -> None:
        """See :meth:`~fyrehose_twisted.net.connection.NodeConnection.messages_received`; override
        :meth:`hydra_received`."""
        self.hydra_received(messages)
