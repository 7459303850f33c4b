"""Every zope.interface of the library, grouped by role.

A *node* is a protocol's rules as a state machine without I/O; see :class:`INode` for the contract. Its ``now`` is
always handed in: UTC seconds since 1970 as a float, from the reactor's clock or from the simulator's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zope.interface import Attribute, Interface

from fyrehose_twisted._exports import renamed

if TYPE_CHECKING:
    from fyrehose_twisted.datagrams import Batch
    from fyrehose_twisted.effects import Address, Burst, Datagram, Peer


class Outputs(NamedTuple):
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

    def drain() -> Outputs:
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

    def send(datagrams: Sequence[Datagram | Burst], peers: Sequence[Address]) -> None:
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

    def persist(checkpoint: Any) -> None:
        """Make a :class:`~fyrehose_twisted.fyrehose.node.backbone.sequencer.SequenceCheckpoint` durable.

        :raises StateFileError: if that failed; then nothing that depends on it may be sent.
        """

    def close() -> None:
        """Release it, leaving no hole for the next start."""


class IClientMemory(Interface):
    """What an :class:`ISequenceStore` provides too if it remembers a backbone's clients, of which each
    :class:`~fyrehose_twisted.fyrehose.node.backbone.sequencer.SequenceCheckpoint` says who changed."""

    clients = Attribute("The clients that were served last, each a KnownClient.")
    complete = Attribute("True if those are all that may be alive; then numbers are given at once.")


class IMessageStore(Interface):
    """What a client answers FORWARDs from."""

    def put(first: int, messages: Sequence[bytes], received_at: int = 0) -> None:
        """Keep messages, at least one, numbered from ``first`` on.

        Older ones may make room for them, and what is held under their numbers makes way.

        :param received_at: UTC microseconds since 1970.
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
        """:class:`~fyrehose_twisted.fyrehose.node.client.client.Message` objects in sequence order, each once."""

    def messages_lost(first: int, last: int) -> None:
        """Numbers ``first`` to ``last`` cannot be had: nobody who was asked has them, or they were never given."""


class IPublisher(Interface):
    """What an application publishes with."""

    def publish(data: bytes) -> Any:
        """Return a Deferred of the message's sequence number."""

    def publish_many(messages: Sequence[bytes]) -> Any:
        """Return a Deferred of the messages' sequence numbers, in the same order."""


class IEventHistory(Interface):
    """Events of a cluster that a node still has."""

    oldest = Attribute("The lowest number that is held, last + 1 if none is.")
    last = Attribute("The highest number that is, or was, held.")

    def put(stretches: Sequence[Any]) -> None:
        """Keep :class:`~fyrehose_twisted.parcels.node.ordering.history.SequencedRun` objects, the next of the order;
        older ones may make room. Where some are missing before them, nothing older is held any longer."""

    def clear(last: int) -> None:
        """Forget what can be forgotten: the next event is the one after ``last``."""

    def read(first: int, last: int, limit: int) -> list[Any]:
        """Return events from ``first`` to ``last``, at most ``limit``; none if ``first`` is not held."""


class IEventListener(Interface):
    """Told of the events of a cluster; called in the turn of the reactor in which they became final."""

    def events_ordered(events: Sequence[Any]) -> None:
        """The next :class:`~fyrehose_twisted.parcels.wire.messages.Event` objects of the order, each once, without
        holes."""

    def events_skipped(first: int, last: int) -> None:
        """Events ``first`` to ``last`` can no longer be had: this node was away, and nobody holds them any more."""


class IEventSource(Interface):
    """The events of a cluster, as one of its nodes has them."""

    last = Attribute("Number of the last event of the order that this node has handed on; 0 before the first.")
    oldest = Attribute("The lowest number that this node holds; last + 1 if none.")

    def events(first: int, last: int, limit: int) -> list[Any]:
        """Return events ``first`` to ``last``, both included, at most ``limit`` and as far as there are any yet.

        :raises EventsNotHeld: if ``first`` is no longer held.
        """

    def listen(listener: Any) -> None:
        """Tell an :class:`IEventListener` of events from now on."""

    def unlisten(listener: Any) -> None:
        """Tell it no more."""


class IOrderedEvents(IEventSource):
    """A cluster that keeps one order, as one of its nodes offers it to applications."""

    cluster_id = Attribute(
        "Id of the cluster's founding, 16 hexadecimal digits, empty before the node is in a cluster. Numbers of events"
        " mean the same for as long as it stays."
    )

    def publish(data: bytes, publisher: str = "", key: str = "") -> Any:
        """Return a Deferred of the event's number.

        :param publisher: whose event it is; the node's own by default.
        :param key: makes repeating safe: the same publisher and key, at any node, give the same number.

        It fails with :class:`~fyrehose_twisted.errors.NotOrdered`, :class:`~fyrehose_twisted.errors.MessageTooLarge`,
        :class:`~fyrehose_twisted.errors.PublishQueueFull`, or :class:`~fyrehose_twisted.errors.KeyReused` if the key
        was used with other data.
        """

    def publish_many(events: Sequence[bytes]) -> Any:
        """Return a Deferred of the events' numbers, in the same order."""

    def state() -> Any:
        """Return how the cluster looks from here, as :class:`~fyrehose_twisted.parcels.node.status.NodeStatus`."""

    def force_new_cluster() -> None:
        """Form the cluster anew with this node alone: the operator's last resort. What only others know is given up."""


class IFile(Interface):
    """An open file of a journal. Offsets and sizes are in bytes; what fails raises :class:`OSError`."""

    def size() -> int:
        """Return how long the file is."""

    def read(offset: int, length: int) -> bytes:
        """Return ``length`` bytes, or fewer at the end of the file."""

    def write(offset: int, data: Datagram) -> None:
        """Write all of ``data``; it is durable after :meth:`sync`. If this raises, part of it may be there."""

    def truncate(size: int) -> None:
        """Cut the file off; the cut is durable after :meth:`sync`."""

    def sync() -> None:
        """Make what was written durable. If this raises, nothing written since the last sync counts as durable."""

    def close() -> None:
        """Let go of it. Closing twice is harmless."""


class IDirectory(Interface):
    """Where the files of one journal lie, and nothing else. What fails raises :class:`OSError`."""

    def names() -> list[str]:
        """Return the names of its files, sorted."""

    def open(name: str, *, writable: bool = False, create: bool = False) -> Any:
        """Return a file as :class:`IFile`.

        :param create: make it, writable and empty; :class:`FileExistsError` if there is one.
        :raises FileNotFoundError: if there is none.
        """

    def rename(old: str, new: str) -> None:
        """Give a file another name; whatever had that name is gone. Durable after :meth:`sync`."""

    def remove(name: str) -> None:
        """Remove a file; whoever has it open keeps it. Durable after :meth:`sync`."""

    def sync() -> None:
        """Make durable which names there are."""

    def lock() -> Any:
        """Keep other writers out; return an object whose ``close()`` lets them in again.

        :raises BlockingIOError: if somebody else has the lock.
        """


class IJournalContents(Interface):
    """Which records of one stream there are.

    Its numbers are positions: sequence numbers, but where those wrap, positions go on. *Durable* means: survives a
    power failure. Of what is below the watermark nothing changes any more, whatever else arrives.
    """

    stream = Attribute("URI of the stream.")
    wrap = Attribute("How many sequence numbers there are before they begin anew; 0 if they never do.")

    def epochs() -> list[int]:
        """Return the epochs of which something is known, lowest first."""

    def bounds(epoch: int) -> Any:
        """Return how far an epoch goes, as :class:`~fyrehose_twisted.journal.coverage.Bounds`; ``None`` if nothing is
        known of it."""

    def held(epoch: int, first: int, last: int) -> Any:
        """Return an iterator of those parts of ``first`` to ``last`` that are held, as pairs, lowest first.

        Nothing may be written meanwhile.
        """

    def losses(epoch: int, first: int, last: int) -> list[tuple[int, int]]:
        """Return those parts of ``first`` to ``last`` that are declared lost."""


class IJournalReader(IJournalContents):
    """The records of one stream, in order."""

    tag = Attribute("The journal's own number, drawn when it was made; ``None`` if that is not known.")
    damages = Attribute("What was found damaged or gone, :class:`~fyrehose_twisted.journal.errors.Damage` each.")

    def read(epoch: int, first: int, last: int, on_damage: Any = None) -> Any:
        """Return an iterator of :class:`~fyrehose_twisted.journal.block.Block` with what is held of ``first`` to
        ``last``, in ascending order, each position once. What is not there is left out.

        :param on_damage: called with each :class:`~fyrehose_twisted.journal.errors.Damage`, which is then left
            out.
        :raises NotInJournal: if ``first`` lies before the beginning of the epoch.
        :raises JournalDamaged: if something is damaged and there is no ``on_damage``.
        """

    def stored(epoch: int, first: int, last: int, on_damage: Any = None, *, projection: Any = ...) -> Any:
        """Return an iterator of lists of what stands in segments, also of what was replaced, as
        :meth:`JournalReader.stored <fyrehose_twisted.journal.reader.JournalReader.stored>` does."""

    def to_arrow(
        columns: Sequence[str] = ...,
        *,
        epoch: int | None = None,
        first: int | None = None,
        last: int | None = None,
        fail_on_data_loss: bool = True,
    ) -> Any:
        """Return a :class:`pyarrow.RecordBatchReader`, as :class:`~fyrehose_twisted.journal.arrow.tabular.Tabular`
        says."""

    def get(epoch: int, position: int) -> Any:
        """Return one :class:`~fyrehose_twisted.record.Record`, ``None`` if it is not held.

        :raises JournalDamaged: if it is damaged.
        """


class ISegmentReader(IJournalReader):
    """The records of one stream, read from the segments of a journal on disk."""

    segments = Attribute("A :class:`~fyrehose_twisted.journal.format.segment.Segment` for each that is durable.")

    def read(epoch: int, first: int, last: int, on_damage: Any = None, *, projection: Any = ...) -> Any:
        """Return an iterator as :meth:`IJournalReader.read` does.

        :param projection: the :class:`~fyrehose_twisted.journal.format.segment.Projection` that says what is read of
            each record.
        """

    def close() -> None:
        """Let go of all files."""


class IJournal(IJournalReader):
    """A journal as the one who writes it has it. Nothing that is given to it is durable, or can be read, before
    :meth:`commit`."""

    def begin(epoch: int, sequence: int) -> None:
        """Let an epoch begin at ``sequence``. Without this it begins with its first record. Once begun, it has."""

    def append(records: Sequence[Any], *, authoritative: bool = False) -> int:
        """Take :class:`~fyrehose_twisted.record.Record` objects in, in any order; return how many will be kept.

        A number that is held already keeps its payload if it is below the watermark, and gets the new one above it. One
        that is declared lost stays lost. The journal counts all that it does not keep.

        A number below the watermark whose record went missing, because the disk lost it, is spent: nothing gets it but
        what it stood for.

        :param authoritative: the records are from where their numbers were given, so that they are what these stand
            for, and may take the place of those that went missing.
        :raises NotForJournal: if one is another stream's or a field is out of range; then none is taken.
        """

    def lose(epoch: int, first: int, last: int) -> None:
        """Declare lost for good what of ``first`` to ``last``, sequence numbers, is not held, so that the watermark can
        pass it."""

    def commit(sync: bool = True) -> None:
        """Make what was taken in durable: one group. ``sync=False`` leaves that to a later commit; until then a power
        failure can take it, and the watermark does not pass it.

        :raises JournalFull: if there is no room; what was taken in still waits, and this may be called again.
        :raises JournalBroken: if the disk failed; the journal has to be opened anew.
        """

    def trim() -> int:
        """Drop what need not be kept any longer, lowest numbers first; return how many bytes that freed."""

    def close() -> None:
        """Commit, and let go of everything."""


class IIrcListener(Interface):
    """Told of what a hydra network hears on IRC, and who leads it."""

    def lines_received(lines: Any) -> None:
        """The next lines of a term, as :class:`~fyrehose_twisted.hydra.events.LinesReceived`."""

    def lines_missed(lines: Any) -> None:
        """Lines that came from IRC and not here, as :class:`~fyrehose_twisted.hydra.events.LinesMissed`."""

    def leader_changed(leader: Any) -> None:
        """Another node leads, or none, as :class:`~fyrehose_twisted.hydra.events.LeaderChanged`."""


class IFreenetListener(Interface):
    """Told of the streams of a freenet node."""

    def packets_received(key: bytes, packets: Sequence[Any]) -> None:
        """New packets of a stream that the application has, as :class:`~fyrehose_twisted.freenet.events.Packet`; each
        comes once."""

    def packets_missed(key: bytes, first: int, last: int) -> None:
        """Packets ``first`` to ``last`` did not get here, and are not waited for any longer."""

    def stream_changed(event: Any) -> None:
        """Something became of a stream: ``Subscribed``, ``Restarting`` and others of
        :mod:`~fyrehose_twisted.freenet.events`."""


class IBot(Interface):
    """Lines in, lines out. It runs on every node, all see the same lines, and the leader's says what it answers."""

    def line_received(line: Any) -> Any:
        """Take an :class:`~fyrehose_twisted.hydra.irc.bots.IrcLine`; return lines to say, none or more.

        The same lines must lead to the same state on every node: when another becomes leader, it goes on from there.
        """

    def lines_missed(first: int, last: int) -> None:
        """Lines ``first`` to ``last`` of the term did not come here."""

    def leading(leads: bool) -> None:
        """From now on this node leads, or no longer does."""


if not TYPE_CHECKING:
    __getattr__ = renamed(__name__, {"Drained": "Outputs"})
