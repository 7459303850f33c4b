"""Messages between nodes (document 003, "Messages").

Keys have 20 bytes. Uids are unsigned 64-bit integers. Packet numbers run from 0 to 2**63 - 1 and wrap around. Locations
are those of :mod:`~fyrehose_twisted.freenet.wire.location`. The handshake messages, and answers that the document only
mentions, are defined by this library.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_UID = 2**64 - 1
"""Highest uid, node id and boot id."""
MAX_PACKET = 2**63 - 1
"""Highest packet number, followed by 0."""
NONE_SEEN = -1
"""Last seen packet number of a node that has seen none."""
MAX_DATA = 1_058
"""Maximum size of a packet in bytes, including a signature."""
MAX_HTL = 255
"""Highest HTL accepted from a peer. A policy allows far fewer hops."""
MAX_REASON = 64
"""Maximum length of a failure reason in characters."""
NONCE_SIZE = 16
PROOF_SIZE = 32


class Hello(NamedTuple):
    """First message on a link, sent by both ends."""

    node: int
    """Node id of the sender, drawn once."""
    boot: int
    """Boot id. It changes at each start, after which the node has no streams."""
    location: float
    nonce: bytes
    """16 fresh random bytes for the proof."""


class Prove(NamedTuple):
    """Second message on a link: proof that the sender knows the secret of the network."""

    proof: bytes
    """32 bytes; empty if the network has no secret."""


class Located(NamedTuple):
    """New location of the sender, for instance after a swap."""

    location: float


class Ping(NamedTuple):
    """Keepalive request."""


class Pong(NamedTuple):
    """Answer to a :class:`Ping`."""


class SubscribeRequest(NamedTuple):
    """Request to find the tree of a key, or the location of its root."""

    uid: int
    key: bytes
    htl: int
    last_seen: int
    """Last packet number that the originator has, -1 if none."""
    best: float
    """Location nearest to the key on the path of the request."""


class ResubscribeRequest(NamedTuple):
    """Request to find the tree again, at a node that is not below the originator."""

    uid: int
    """Uid of the originator's :class:`SubscribeRestarted`."""
    key: bytes
    htl: int
    last_seen: int
    must_beat: float
    """Location of the originator. The new root must be nearer to the key."""
    best: float


class Accepted(NamedTuple):
    """A request was accepted; an answer will follow."""

    uid: int


class RejectedLoop(NamedTuple):
    """The sender has seen the request or packet before; try another neighbour."""

    uid: int


class RejectedOverload(NamedTuple):
    """A node on the path is overloaded. Returned to the originator."""

    uid: int


class RejectedBusy(NamedTuple):
    """A resubscription reached a stream that is itself searching for a parent; try another neighbour."""

    uid: int
    place: float
    """Location of the searching node. If it is nearer to the key than the originator, a retry may succeed."""


class DataNotFound(NamedTuple):
    """The HTL of a request is exhausted. Returned to the node nearest to the key."""

    uid: int
    busy: float | None = None
    """Location nearest to the key of the nodes that were busy, ``None`` if none was."""


class RouteNotFound(NamedTuple):
    """No neighbours are left to try, although the HTL is not exhausted."""

    uid: int
    htl: int
    busy: float | None = None
    """As in :class:`DataNotFound`."""


class SubscribeSucceeded(NamedTuple):
    """The sender is the receiver's parent. Returned to the originator; after a restart, sent to the whole subtree."""

    key: bytes
    uid: int
    root: float
    """Location of the root of the tree."""


class SubscribeSucceededNewRoot(NamedTuple):
    """Like :class:`SubscribeSucceeded`, for a tree whose root this request created."""

    key: bytes
    uid: int
    root: float


class SubscribeRestarted(NamedTuple):
    """The sender, or a node above it, is searching for a parent. Sent to the whole subtree."""

    key: bytes
    uid: int
    place: float
    """Location of the searching node."""


class Unsubscribe(NamedTuple):
    """The sender is no longer a subscriber of the receiver."""

    key: bytes


class Dismissed(NamedTuple):
    """The sender is no longer the parent of the receiver."""

    key: bytes


class BetterRoot(NamedTuple):
    """Hint to a location nearer to the key than the root. Passed up to the root, which then probes for it."""

    key: bytes
    root: float


class Recall(NamedTuple):
    """Request of a parent for packets that it lacks. The receiver resends them as if they were published."""

    key: bytes
    after: int
    """Highest packet number that the sender has; -1 if it has none."""


class SubscribeData(NamedTuple):
    """Packet from a parent to a subscriber."""

    key: bytes
    packet: int
    data: bytes


class PublishData(NamedTuple):
    """Packet on its way up to the root."""

    uid: int
    key: bytes
    packet: int
    best: float
    """Carried as in the document; a tree does not use it."""
    data: bytes
    htl: int
    """Carried as in the document; a tree does not use it."""
    wanted: bool
    """True if the root accepts the packet even if the sender is its only subscriber: the publisher allows that, or a
    node on the path has another subscriber."""


class PublishSucceeded(NamedTuple):
    """The root accepted the packet."""

    uid: int


class PublishCollision(NamedTuple):
    """Another packet has the number."""

    uid: int
    next: int
    """Free packet number, as far as the sender knows."""


class PublishFailed(NamedTuple):
    """The packet did not reach the root, or the root refused it."""

    uid: int
    reason: str


Request = SubscribeRequest | ResubscribeRequest
Succeeded = SubscribeSucceeded | SubscribeSucceededNewRoot
Message = (
    Hello
    | Prove
    | Located
    | Ping
    | Pong
    | Request
    | Accepted
    | RejectedLoop
    | RejectedOverload
    | RejectedBusy
    | DataNotFound
    | RouteNotFound
    | Succeeded
    | SubscribeRestarted
    | Unsubscribe
    | Dismissed
    | BetterRoot
    | Recall
    | SubscribeData
    | PublishData
    | PublishSucceeded
    | PublishCollision
    | PublishFailed
)
