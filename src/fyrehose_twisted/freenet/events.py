"""What a node tells its application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Packet(NamedTuple):
    """One packet of a stream."""

    number: int
    data: bytes
    """As it was on the wire; of a signed stream, with the signature: see
    :func:`~fyrehose_twisted.freenet.wire.signing.strip_signature`."""


class Subscribed(NamedTuple):
    """A stream that this node's application subscribed to is connected: for the first time, or again."""

    key: bytes
    root: float
    """Where the root is."""
    is_root: bool
    """Whether it is this node."""


class SubscribeFailed(NamedTuple):
    """A subscription did not succeed: ``overload``, ``timed-out``, or ``busy`` where somebody nearer to the key looks
    for the tree itself. It is tried again if the policy says so."""

    key: bytes
    reason: str


class ParentLost(NamedTuple):
    """A stream of this node has lost its parent: ``parent-lost``, ``parent-rebooted``, ``parent-restarting`` (for too
    long), ``dismissed``, ``cycle``."""

    key: bytes
    reason: str


class ParentChanged(NamedTuple):
    """A stream of this node has another parent, or none because this node is the root."""

    key: bytes
    parent: Any | None
    """Id of the parent, ``None`` for a root."""


class StreamDropped(NamedTuple):
    """This node has no part in a stream any more."""

    key: bytes


class PacketsDelivered(NamedTuple):
    """New packets of a stream that this node's application subscribed to, each once."""

    key: bytes
    packets: Sequence[Packet]


class PacketsMissed(NamedTuple):
    """Packets ``first`` to ``last`` of a stream did not get here, and are not waited for any longer."""

    key: bytes
    first: int
    last: int


class StreamRenumbered(NamedTuple):
    """The numbers of a stream go on somewhere else: two trees have grown together, or everybody has begun anew. Nothing
    between the old and the new numbers is missing."""

    key: bytes
    first: int
    """The number of the next packet that is delivered."""


class PacketPublished(NamedTuple):
    """A packet of this node's application is on the tree."""

    token: Any
    key: bytes
    number: int


UNCERTAIN_REASONS = frozenset({"timed-out", "uncertain"})
"""Reasons of :class:`PacketNotPublished` that leave open whether a root accepted the packet."""


class PacketNotPublished(NamedTuple):
    """It is not, or that is not known.

    ``no-stream``, ``no-subscribers``, ``collision``, ``queue-full``, ``bad-signature``, or what a node above says.
    After one of :data:`UNCERTAIN_REASONS` the packet may be published, once and under the number that it was sent with.
    """

    token: Any
    key: bytes
    reason: str
    next_number: int | None = None
    """After a collision: a number that is free."""


class NeighbourUp(NamedTuple):
    """A neighbour is there."""

    node: Any
    location: float


class NeighbourDown(NamedTuple):
    """A neighbour is gone."""

    node: Any
    reason: str


class OperatorWarning(NamedTuple):
    """Something that an operator should know, once per peer and minute at most."""

    text: str


Event = (
    Subscribed
    | SubscribeFailed
    | ParentLost
    | ParentChanged
    | StreamDropped
    | PacketsDelivered
    | PacketsMissed
    | StreamRenumbered
    | PacketPublished
    | PacketNotPublished
    | NeighbourUp
    | NeighbourDown
    | OperatorWarning
)
