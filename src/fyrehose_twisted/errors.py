"""The exception tree.

:class:`LocalError` means that your call was wrong, :class:`RemoteError` that bytes or behaviour of a
peer were, :class:`OperationalError` that the world did not cooperate (disk, address in use, time ran out).
"""

from __future__ import annotations

from fyrehose_twisted.wording import pluralize


class FyrehoseError(Exception):
    """Root of every exception that this library raises on purpose."""


class LocalError(FyrehoseError):
    """The caller asked for something that cannot be done as asked."""


class RemoteError(FyrehoseError):
    """A peer sent something that the protocol does not allow."""


class OperationalError(FyrehoseError):
    """The environment failed: disk, network, time or exhausted resources."""


class MalformedPacket(RemoteError):
    """A datagram is not a packet of the protocol.

    :ivar reason: short stable name, used as the label of a counter.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class SequenceRegressed(RemoteError):
    """A living backbone handed out numbers that it had handed out before."""


class ConfigurationError(LocalError):
    """Options contradict each other, are out of range, or would be unsafe."""


class UnencodableMessage(LocalError, ValueError):
    """A field of a message does not fit the wire."""


class MessageTooLarge(LocalError, ValueError):
    """A message is longer than a UDP datagram can carry."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"message of {size:,} bytes is over the limit of {limit:,} bytes; split it or send a reference"
        )
        self.size = size
        self.limit = limit


class PublishQueueFull(LocalError):
    """More messages wait to be published than the publisher may hold; wait for earlier ones first."""


class PublishTimeout(OperationalError):
    """A message did not come back from the backbone in time; it may or may not have been published."""


class MessageNotKept(OperationalError):
    """A message was published, and fewer durable journals than wanted had it in time.

    :ivar sequence: its number.
    :ivar acknowledged: journals that had made it durable.
    :ivar required: journals that were to.
    """

    def __init__(self, sequence: int, acknowledged: int, required: int, seconds: float) -> None:
        super().__init__(
            f"message {sequence} is published, and {acknowledged} of {required} durable journals had it after "
            f"{seconds:g} s"
        )
        self.sequence = sequence
        self.acknowledged = acknowledged
        self.required = required


class NotConnected(OperationalError):
    """The backbone does not answer, or the protocol is not (or no longer) running."""


class SequenceExhausted(OperationalError):
    """The backbone has given the last of its 2**48 - 1 numbers."""


class StateFileError(OperationalError):
    """A state file is in use, unreadable, half-written, or belongs to another stream."""


class StreamAlreadyNumbered(OperationalError):
    """A backbone without memory of a stream found clients that hold messages of it."""


class NotOrdered(OperationalError):
    """An event was not given a number, as far as the node knows that was asked; see :attr:`unknown`.

    :ivar why: short stable name of the reason, such as ``no-quorum``.
    :ivar unknown: whether it may still be given one; publishing it again under the same key gives it one for certain.
    """

    def __init__(self, why: str, detail: str, *, unknown: bool) -> None:
        super().__init__(detail)
        self.why = why
        self.unknown = unknown


class KeyReused(LocalError):
    """An idempotency key was used before, for an event with another body."""


class EventsNotHeld(LocalError):
    """Events were asked for that a node no longer holds, or does not have yet.

    :ivar oldest: the lowest number that it holds.
    :ivar last: the highest.
    """

    def __init__(self, first: int, oldest: int, last: int) -> None:
        held = f"it holds {oldest} to {last}" if oldest <= last else f"it holds none; the next is {last + 1}"
        super().__init__(f"event {first} is not held by this node: {held}")
        self.oldest = oldest
        self.last = last


class FoundingMismatch(OperationalError):
    """A cluster is not the one that gave out the numbers that a client has: it was founded, or formed, anew.

    :ivar expected: founding that the client knows, 16 hexadecimal digits.
    :ivar founding: founding of the cluster now.
    """

    def __init__(self, expected: str, founding: str) -> None:
        super().__init__(
            f"the cluster was founded anew as {founding}, and its numbers are not those of {expected}; read it from its"
            " first event on"
        )
        self.expected = expected
        self.founding = founding


class BeyondEnd(LocalError):
    """A client wants to follow from a number that the cluster has not given out, nor gives out next.

    :ivar first: number from which the client wants to follow.
    :ivar next: number of the next event.
    """

    def __init__(self, first: int, next: int) -> None:
        super().__init__(f"event {first} lies beyond the end; the next one will be {next}")
        self.first = first
        self.next = next


class TooManyStreams(LocalError):
    """A node has as many streams as it may."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"this node has {pluralize(limit, 'stream')} already; unsubscribe from one first, or allow more"
        )
        self.limit = limit


class PublishRefused(OperationalError):
    """A packet is not on the tree, as far as is known.

    :ivar why: short stable name of the reason, such as ``no-stream``. After ``timed-out``, ``uncertain`` and
        ``stopped`` the packet may be published, once at most: published again, it could reach subscribers twice.
    :ivar next: after a collision: a packet number that is free.
    """

    def __init__(self, why: str, detail: str, next: int | None = None) -> None:
        super().__init__(detail)
        self.why = why
        self.next = next
