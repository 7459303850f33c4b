"""Every zope.interface of the library, grouped by role.

A *node* is a protocol's rules as a state machine without I/O; see :class:`INode` for the contract. Its ``now`` is
always handed in: UTC seconds since 1970 as a float, from the reactor's clock or from the simulator's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zope.interface import Attribute, Interface

if TYPE_CHECKING:
    from fyrehose_twisted.effects import Address, Datagram, Peer
    from fyrehose_twisted.net.batch import Batch


class Drained(NamedTuple):
    """What a node wants done, in this order."""

    persist: Any
    """What must be durable before anything else happens, or ``None``; its type is the node's."""
    effects: list[Any]
    """What to send, dial or hang up: see :mod:`fyrehose_twisted.effects`."""
    events: list[Any]
    """What to tell the application."""


class INode(Interface):
    """Rules without I/O: something goes in, :meth:`drain` says what comes out."""

    def tick(now: float) -> None:
        """A deadline has passed. Harmless when none has."""

    def next_deadline() -> float | None:
        """When :meth:`tick` wants to be called; ``None`` for never. Time may already have passed it."""

    def drain() -> Drained:
        """Take what has been decided since the last call.

        Call it until it returns no events: what the application does with one may change what comes next.
        """


class IDatagramNode(INode):
    """A node that lives on datagrams."""

    def receive_batch(batch: Batch, now: float) -> None:
        """Datagrams arrived. The outcome does not depend on how a stream of them is split into batches."""


class ILinkNode(INode):
    """A node that lives on stream connections.

    Its effects are ``Dial``, ``Write`` and ``HangUp``. How messages become bytes is for an :class:`IStreamCodec`.
    """

    def connected(peer: Peer, now: float) -> None:
        """A connection is open: one that was dialled, or one from somebody else."""

    def dial_failed(address: Address, reason: str, now: float) -> None:
        """A connection that was dialled did not open."""

    def disconnected(peer: Peer, reason: str, now: float) -> None:
        """A connection has ended, and not because this node hung up."""

    def receive(message: Any, peer: Peer, now: float) -> None:
        """A message arrived."""

    def blocked(peer: Peer, now: float) -> None:
        """Much waits to be written to ``peer``; whatever is written now waits too."""

    def unblocked(peer: Peer, now: float) -> None:
        """What waited has been written."""


class IStreamCodec(Interface):
    """How the messages of a wing travel on a stream."""

    def encode(message: Any) -> bytes:
        """Return the bytes of one message."""

    def decoder() -> IStreamDecoder:
        """Return what takes the bytes of one connection apart."""


class IStreamDecoder(Interface):
    """Takes the bytes of one connection apart."""

    def feed(data: bytes) -> list[Any]:
        """Return the messages that are complete now.

        :raises RemoteError: if the bytes are none of the protocol; then the connection is of no more use.
        """


class IBatchReceiver(Interface):
    """What a :class:`~fyrehose_twisted.net.udp.DatagramPort` hands its datagrams to."""

    def batch_received(batch: Batch) -> None:
        """Datagrams arrived; the batch is the port's again when this returns."""


class IDatagramSender(Interface):
    """A transport that takes many datagrams for many peers in one call."""

    def send(datagrams: Sequence[Datagram], peers: Sequence[Address]) -> None:
        """Send every datagram to every peer; errors are counted, never raised."""


class IForwardPolicy(Interface):
    """Who gets the FORWARD for a REQUEST (documents 000 and 001 disagree: randomly, or round-robin)."""

    def choose(journals: Sequence[Address], requester: Address) -> Address | None:
        """Return one of ``journals`` other than ``requester``; ``None`` if there is no other."""


class ISequenceStore(Interface):
    """Where a backbone keeps the last number that it gave."""

    last = Attribute("The last number given, 0 before the first.")
    bound = Attribute("No number above this may be given until :meth:`persist` has made a higher one durable.")
    hole = Attribute("First and last of the numbers that had to be skipped at the start, or None.")
    fresh = Attribute("True if nothing is known about the stream: no number was ever given, as far as we know.")

    def persist(mark: Any) -> None:
        """Make a :class:`~fyrehose_twisted.fyrehose.numbering.Mark` durable.

        :raises StateFileError: if that failed; then nothing that depends on it may be sent.
        """

    def close() -> None:
        """Release it, leaving no hole for the next start."""


class IMessageStore(Interface):
    """What a client answers FORWARDs from."""

    def put(sequence: int, data: bytes, received_at: int = 0) -> None:
        """Keep a message; older ones may make room for it, and what is held under its number makes way.

        ``received_at`` is in UTC microseconds since 1970.
        """

    def get(sequence: int) -> bytes | None:
        """Return a message, or ``None`` if it is not held."""

    def received_at(sequence: int) -> int | None:
        """Return when a message was received, or ``None`` if it is not held."""

    def lowest(first: int, last: int, limit: int) -> list[int]:
        """Return at most ``limit`` numbers held in ``first`` to ``last``, lowest first."""


class ISubscriber(Interface):
    """What a subscriber tells its application; hooks take batches because that is why they are fast."""

    def messages_received(messages: Sequence[Any]) -> None:
        """:class:`~fyrehose_twisted.fyrehose.client.Message` objects in sequence order, each once."""

    def messages_lost(first: int, last: int) -> None:
        """Numbers ``first`` to ``last`` cannot be had: nobody who was asked has them, or they were never given."""


class IPublisher(Interface):
    """What an application publishes with."""

    def publish(data: bytes) -> Any:
        """Return a Deferred of the message's sequence number."""
