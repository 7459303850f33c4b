"""Packets on their way to the root."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fyrehose_twisted.freenet.node.neighbour import Neighbour


class QueuedPacket(NamedTuple):
    """A packet of the application that has no number yet, or a number that it insists on.

    :ivar wanted: whether it is published even if the stream has no other subscriber.
    """

    token: Any
    data: bytes
    number: int | None
    sign: Callable[[int], bytes] | None
    attempts: int
    wanted: bool = True


class UpstreamPacket(NamedTuple):
    """A packet that the root has not answered for.

    :ivar uid: as whoever it came from knows it.
    :ivar origin: whom it came from; ``None`` for this node.
    :ivar queued_packet: what the application asked for, if it came from here.
    :ivar sent_to: whom it was sent to, ``None`` while there is nobody.
    :ivar wanted: whether a root accepts it that has no other subscriber than ``origin``.
    :ivar resent: whether it was sent to an earlier parent, which did not answer: a root may have published it.
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
