"""The exception tree.

:class:`LocalError`: the call was wrong. :class:`RemoteError`: a peer violated the protocol.
:class:`OperationalError`: the environment failed (disk, address in use, timeout).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fyrehose_twisted._exports import renamed, renamed_attribute
from fyrehose_twisted.wording import pluralize


class FyrehoseError(Exception):
    """Base class of the exceptions that this library raises."""


class LocalError(FyrehoseError):
    """The caller passed invalid arguments or called at the wrong time."""


class RemoteError(FyrehoseError):
    """A peer violated the protocol."""


class OperationalError(FyrehoseError):
    """The environment failed: disk, network, timeout or exhausted resources."""


class MalformedPacket(RemoteError):
    """A datagram is not a packet of the protocol.

    :ivar reason: short stable name, used as a counter label.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class SequenceRegressed(RemoteError):
    """A running backbone assigned numbers that it had assigned before."""


class ConfigurationError(LocalError):
    """Options contradict each other, are out of range, or would be unsafe."""


class UnencodableMessage(LocalError, ValueError):
    """A field of a message does not fit the wire format."""


class MessageTooLarge(LocalError, ValueError):
    """A message is larger than a UDP datagram can carry."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"message of {size:,} bytes is over the limit of {limit:,} bytes; split it or send a reference"
        )
        self.size = size
        self.limit = limit


class PublishQueueFull(LocalError):
    """The publish queue is full; wait for earlier messages first."""


class PublishTimeout(OperationalError):
    """The backbone did not acknowledge a message in time; the message may or may not have been published."""


class MessageNotKept(OperationalError):
    """A message was published, but too few durable journals acknowledged it in time.

    :ivar sequence: number of the message.
    :ivar acknowledged: number of journals that made it durable.
    :ivar required: number of journals required.
    """

    def __init__(self, sequence: int, acknowledged: int, required: int, seconds: float) -> None:
        super().__init__(
            f"message {sequence} is published, and {acknowledged} of {required} durable journals had it after "
            f"{seconds:g} s"
        )
        self.sequence = sequence
        self.acknowledged = acknowledged
        self.required = required


class MessagesMissing(OperationalError):
    """Messages of a stream are lost: no client that was asked holds them, or their numbers were never assigned.

    :ivar first: number of the first of them.
    :ivar last: number of the last.
    """

    def __init__(self, first: int, last: int) -> None:
        which = f"message {first} is" if first == last else f"messages {first} to {last} are"
        super().__init__(f"{which} lost: no client that was asked holds what is missing; iterate again to go on behind")
        self.first = first
        self.last = last


class NotConnected(OperationalError):
    """The backbone does not answer, or the protocol is not running."""


class SequenceExhausted(OperationalError):
    """The backbone has assigned the last of its 2**48 - 1 numbers."""


class StateFileError(OperationalError):
    """A state file is in use, unreadable or incomplete, or belongs to another stream."""


class StreamAlreadyNumbered(OperationalError):
    """A backbone without state for a stream found clients that hold messages of it."""


class NotOrdered(OperationalError):
    """The node cannot confirm that an event was ordered; see :attr:`unknown`.

    :ivar why: short stable name of the reason, such as ``no-quorum``.
    :ivar unknown: ``True`` if the event may still be ordered. Publishing it again under the same key is safe.
    """

    def __init__(self, why: str, detail: str, *, unknown: bool) -> None:
        super().__init__(detail)
        self.why = why
        self.unknown = unknown


class KeyReused(LocalError):
    """An idempotency key was used before for an event with a different body."""


class SequenceChanged(LocalError):
    """An event was to be ordered only behind a certain event, and another one is the last.

    :ivar last: sequence number of the last event. The event was not ordered, and never will be with this condition.
    """

    def __init__(self, detail: str, last: int) -> None:
        super().__init__(detail)
        self.last = last


class NotLeader(OperationalError):
    """A node was asked for something that only the leader does.

    :ivar leader: name of the leader; ``None`` if unknown.
    """

    def __init__(self, leader: str | None) -> None:
        super().__init__("no leader is known at present" if leader is None else f"{leader} leads: ask it")
        self.leader = leader


class NoSuccessor(OperationalError):
    """No member can take over the leadership, or not the one that was named."""


class NoSuchMember(OperationalError):
    """An operator named a node that is no member of the cluster, or cannot be meant."""


class RemovedFromCluster(OperationalError):
    """The operator removed this node from its cluster."""


class StateUnavailable(OperationalError):
    """A node has no usable state of the application at present.

    :ivar why: short stable name of the reason: ``behind``, ``state-failed``, ``not-running`` or ``not-held``.
    """

    def __init__(self, why: str, detail: str) -> None:
        super().__init__(detail)
        self.why = why


class EventsNotHeld(LocalError):
    """A node does not hold the requested events, or not yet.

    :ivar oldest: lowest number that the node holds.
    :ivar last: highest number that the node holds.
    """

    def __init__(self, first: int, oldest: int, last: int) -> None:
        held = f"it holds {oldest} to {last}" if oldest <= last else f"it holds none; the next is {last + 1}"
        super().__init__(f"event {first} is not held by this node: {held}")
        self.oldest = oldest
        self.last = last


class EventsMissing(OperationalError):
    """Events of a cluster were not delivered: no node holds them any longer.

    :ivar first: number of the first of them.
    :ivar last: number of the last.
    """

    def __init__(self, first: int, last: int) -> None:
        which = f"event {first} is" if first == last else f"events {first} to {last} are"
        super().__init__(f"{which} not held by any node any longer; iterate again to go on behind")
        self.first = first
        self.last = last


class ClusterIdMismatch(OperationalError):
    """The cluster id differs from the one that a client knows, so event numbers are not comparable.

    The cluster was re-created.

    :ivar expected: cluster id that the client knows, 16 hexadecimal digits.
    :ivar cluster_id: current cluster id.
    """

    def __init__(self, expected: str, cluster_id: str) -> None:
        super().__init__(
            f"the cluster was re-created as {cluster_id}, and its numbers are not those of {expected}; read it from its"
            " first event on"
        )
        self.expected = expected
        self.cluster_id = cluster_id


class BeyondEnd(LocalError):
    """A client asked to follow from a number beyond the next event.

    :ivar first: number that the client asked for.
    :ivar next: number of the next event.
    """

    def __init__(self, first: int, next: int) -> None:
        super().__init__(f"event {first} lies beyond the end; the next one will be {next}")
        self.first = first
        self.next = next


class TooManyStreams(LocalError):
    """A node has reached its limit of streams."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"this node has {pluralize(limit, 'stream')} already; unsubscribe from one first, or allow more"
        )
        self.limit = limit


class PublishRefused(OperationalError):
    """The node cannot confirm that a packet was published on the tree.

    :ivar why: short stable name of the reason, such as ``no-stream``. After ``timed-out``, ``uncertain`` and
        ``stopped`` the packet may have been published once; publishing it again could deliver it twice.
    :ivar next: free packet number after a collision.
    """

    def __init__(self, why: str, detail: str, next: int | None = None) -> None:
        super().__init__(detail)
        self.why = why
        self.next = next


if not TYPE_CHECKING:
    ClusterIdMismatch.founding = renamed_attribute("founding", "cluster_id")
    __getattr__ = renamed(__name__, {"FoundingMismatch": "ClusterIdMismatch"})
