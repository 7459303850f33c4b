"""Events that a node emits to its application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Packet(NamedTuple):
    """One packet of a stream."""

    number: int
    data: bytes
    """Data as it was on the wire. In a signed stream it includes the signature: see
    :func:`~fyrehose_twisted.freenet.wire.signing.strip_signature`."""


class Subscribed(NamedTuple):
    """The node joined the tree of a stream that its application subscribed to, or joined it again."""

    key: bytes
    root: float
    """Location of the root."""
    is_root: bool
    """True if this node is the root."""


class SubscribeFailed(NamedTuple):
    """A subscription failed.

    The reason is ``overload``, ``timed-out``, ``not-found``, or ``busy`` if a node nearer to the key is itself
    searching for the tree. The node retries if its policy says so.
    """

    key: bytes
    reason: str


class ParentLost(NamedTuple):
    """A stream lost its parent.

    The reason is ``parent-lost``, ``parent-rebooted``, ``parent-restarting`` (for too long), ``dismissed`` or
    ``cycle``.
    """

    key: bytes
    reason: str


class ParentChanged(NamedTuple):
    """A stream has a new parent, or this node became its root."""

    key: bytes
    parent: Any | None
    """Node id of the parent, ``None`` if this node is the root."""


class StreamDropped(NamedTuple):
    """The node left the tree of a stream and dropped its state."""

    key: bytes


class PacketsDelivered(NamedTuple):
    """New packets of a stream that the application subscribed to. Each packet is delivered once."""

    key: bytes
    packets: Sequence[Packet]


class PacketsMissed(NamedTuple):
    """Packets ``first`` to ``last`` of a stream did not arrive. The node no longer waits for them."""

    key: bytes
    first: int
    last: int


class StreamRenumbered(NamedTuple):
    """The packet numbers of a stream continue elsewhere: two trees merged, or the whole tree started over.

    No packets are missing between the old and the new numbers.
    """

    key: bytes
    first: int
    """Number of the next packet that is delivered."""


class PacketPublished(NamedTuple):
    """The root accepted a packet of this node's application."""

    token: Any
    key: bytes
    number: int


UNCERTAIN_REASONS = frozenset({"timed-out", "uncertain"})
"""Reasons of :class:`PacketNotPublished` after which a root may have accepted the packet."""


class PacketNotPublished(NamedTuple):
    """A packet was not published, or its outcome is unknown.

    The reason is ``no-stream``, ``no-subscribers``, ``collision``, ``queue-full``, ``bad-signature``, ``too-large``,
    one of :data:`UNCERTAIN_REASONS`, or another reason from a node further up. After one of :data:`UNCERTAIN_REASONS`
    the packet may be published, once and under the number that it was sent with.
    """

    token: Any
    key: bytes
    reason: str
    next_number: int | None = None
    """Free packet number, after a collision."""


class NeighbourUp(NamedTuple):
    """A link to a neighbour is up."""

    node: Any
    location: float


class NeighbourDown(NamedTuple):
    """The link to a neighbour is down."""

    node: Any
    reason: str


class OperatorWarning(NamedTuple):
    """Warning for the operator. At most one is logged per peer and minute."""

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
