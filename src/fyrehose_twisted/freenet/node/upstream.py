"""Packets queued for, or in flight to, the root."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fyrehose_twisted.freenet.node.neighbour import Neighbour


class QueuedPacket(NamedTuple):
    """Packet of the application that waits to be sent.

    :ivar token: token of the application for this packet.
    :ivar number: packet number that the application requires; ``None`` for the next free one.
    :ivar sign: returns the signed packet for a number; ``None`` to send ``data`` as it is.
    :ivar attempts: numbers tried so far that were taken.
    :ivar wanted: True to publish the packet even if the stream has no other subscriber.
    """

    token: Any
    data: bytes
    number: int | None
    sign: Callable[[int], bytes] | None
    attempts: int
    wanted: bool = True


class UpstreamPacket(NamedTuple):
    """Packet that awaits an answer from the root.

    :ivar uid: uid under which the packet arrived.
    :ivar origin: neighbour that sent the packet; ``None`` for this node.
    :ivar queued_packet: request of the application, if the packet is this node's own.
    :ivar deadline: time at which the packet times out.
    :ivar sent_to: parent that the packet was sent to, ``None`` while there is no parent.
    :ivar wanted: True if a root accepts the packet even without a subscriber other than ``origin``.
    :ivar resent: True if the packet was sent to an earlier parent that did not answer. A root may have published it.
    """

    uid: int
    origin: Neighbour | None
    queued_packet: QueuedPacket | None
    number: int
    data: bytes
    deadline: float
    sent_to: Neighbour | None
    wanted: bool = True
    resent: bool = False
