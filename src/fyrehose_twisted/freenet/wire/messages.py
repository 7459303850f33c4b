"""What nodes say to one another (document 003, "Messages").

Keys are 20 bytes, uids unsigned 64-bit numbers, packet numbers count from 0 to 2**63 - 1 and begin anew, locations are
on the ring of :mod:`~fyrehose_twisted.freenet.wire.location`. Where the document only says that there is an answer, the
answer is ours; so are the messages by which two neighbours get to know one another.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_UID = 2**64 - 1
"""The highest uid, id of a node, and boot id."""
MAX_PACKET = 2**63 - 1
"""The highest packet number; 0 follows it."""
NONE_SEEN = -1
"""As the last packet number that was seen: none."""
MAX_DATA = 1_058
"""Bytes of a packet, with a signature or whatever an application wraps it into."""
MAX_HTL = 255
"""The most hops to live that are taken from a peer; a policy allows far fewer."""
MAX_REASON = 64
"""Bytes of the reason for a failure."""
NONCE_SIZE = 16
PROOF_SIZE = 32


class Hello(NamedTuple):
    """The first message on a link, from both ends."""

    node: int
    """Who speaks: an id that a node draws once."""
    boot: int
    """Another number after each start: then it has forgotten all streams."""
    location: float
    nonce: bytes
    """16 bytes that were never used before, for the proof."""


class Prove(NamedTuple):
    """The second message on a link: whoever sends it knows the secret of the network."""

    proof: bytes
    """32 bytes; none where there is no secret."""


class Located(NamedTuple):
    """The sender has another location from now on; a swap does that."""

    location: float


class Ping(NamedTuple):
    """Are you there?"""


class Pong(NamedTuple):
    """Yes."""


class SubscribeRequest(NamedTuple):
    """Find the tree of a key, or its root."""

    uid: int
    key: bytes
    htl: int
    last_seen: int
    """The last packet number that the originator has, -1 if none."""
    best: float
    """The location nearest to the key that the request has come through."""


class ResubscribeRequest(NamedTuple):
    """Find the tree anew, somewhere that is not below the originator."""

    uid: int
    """That of the originator's :class:`SubscribeRestarted`."""
    key: bytes
    htl: int
    last_seen: int
    must_beat: float
    """The location of the originator, than which the new root has to be nearer to the key."""
    best: float


class Accepted(NamedTuple):
    """A request was taken, and an answer will follow."""

    uid: int


class RejectedLoop(NamedTuple):
    """A request or a packet was here before; ask somebody else."""

    uid: int


class RejectedOverload(NamedTuple):
    """No room. Goes back to the originator."""

    uid: int


class RejectedBusy(NamedTuple):
    """A resubscription met a stream that looks for a parent itself; ask somebody else."""

    uid: int
    place: float
    """Where whoever looks is: if that is nearer to the key than the originator, it is worth while to ask again."""


class DataNotFound(NamedTuple):
    """A request has used up its hops. Goes back to whoever is nearest to the key."""

    uid: int
    busy: float | None = None
    """The nearest ``place`` of those that were busy, ``None`` if none was."""


class RouteNotFound(NamedTuple):
    """There is nobody left to ask, though hops are left."""

    uid: int
    htl: int
    busy: float | None = None
    """As in :class:`DataNotFound`."""


class SubscribeSucceeded(NamedTuple):
    """The sender is the receiver's parent. Goes on to the originator; after a restart, to the whole subtree."""

    key: bytes
    uid: int
    root: float
    """Where the root of the tree is."""


class SubscribeSucceededNewRoot(NamedTuple):
    """The same, where the tree began with this request."""

    key: bytes
    uid: int
    root: float


class SubscribeRestarted(NamedTuple):
    """The sender, or somebody above it, looks for a parent. Goes to the whole subtree."""

    key: bytes
    uid: int
    place: float
    """Where whoever looks is."""


class Unsubscribe(NamedTuple):
    """The sender is not the receiver's subscriber any more."""

    key: bytes


class Dismissed(NamedTuple):
    """The sender is not the receiver's parent any more."""

    key: bytes


class BetterRoot(NamedTuple):
    """There is a place nearer to the key than the root. From a subscriber up to the root, which then looks for it."""

    key: bytes
    root: float


class Recall(NamedTuple):
    """The sender lacks packets that the receiver may have. From a parent down; they go up as if they were published."""

    key: bytes
    after: int
    """The highest number that the sender has; -1 if it has none."""


class SubscribeData(NamedTuple):
    """A packet, from parent to subscriber."""

    key: bytes
    packet: int
    data: bytes


class PublishData(NamedTuple):
    """A packet on its way up to the root."""

    uid: int
    key: bytes
    packet: int
    best: float
    """Carried, and of no use on a tree."""
    data: bytes
    htl: int
    """The same."""
    wanted: bool
    """Whether the root accepts the packet even if its only subscriber is the sender: the publisher wants that, or a
    node on the way has another subscriber."""


class PublishSucceeded(NamedTuple):
    """The root has the packet."""

    uid: int


class PublishCollision(NamedTuple):
    """There is another packet with this number."""

    uid: int
    next: int
    """A number that is free, as far as the sender knows."""


class PublishFailed(NamedTuple):
    """The packet did not get to the root."""

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
