"""All zope.interface definitions of the library, grouped by role.

A *node* implements the rules of a protocol as a state machine without I/O; :class:`INode` is the contract. The caller
passes the time as ``now``: UTC seconds since 1970 as a float, from the clock of the reactor or of the simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zope.interface import Attribute, Interface

from fyrehose_twisted._exports import renamed

if TYPE_CHECKING:
    from random import Random

    from fyrehose_twisted.datagrams import Batch
    from fyrehose_twisted.effects import Address, Burst, Datagram, Peer


class Outputs(NamedTuple):
    """Work that a node hands to its driver, to be carried out in this order."""

    persist: Any
    """State to make durable before anything else happens; ``None`` for none. Its type depends on the node. A
    :class:`ConcurrentPersist` brings effects that come first."""
    effects: list[Any]
    """Effects to carry out: send, dial, write or close. See :mod:`fyrehose_twisted.effects`."""
    events: list[Any]
    """Events to report to the application."""


class ConcurrentPersist(NamedTuple):
    """State to make durable, and effects to carry out before, because they do not depend on it.

    The time that the disk takes is then not added to that of the network. The node takes no input in between.
    """

    effects: list[Any]
    state: Any


class INode(Interface):
    """State machine without I/O. Methods take input; :meth:`drain` returns the output."""

    def tick(now: float) -> None:
        """Handle a deadline that has passed. Does nothing if none has."""

    def next_deadline() -> float | None:
        """Return the time of the next :meth:`tick`, which may be in the past; ``None`` for none."""

    def drain() -> Outputs:
        """Return and clear the outputs that have accumulated since the last call.

        Call it until it returns no events: the application may call the node while it handles one.
        """


class IDatagramNode(INode):
    """Node that communicates in datagrams."""

    def receive_batch(batch: Batch, now: float) -> None:
        """Process received datagrams. How the datagrams are split into batches does not affect the outcome."""


class ILinkNode(INode):
    """Node that communicates over stream connections.

    Its effects are ``Dial``, ``Write`` and ``Close``. An :class:`IStreamCodec` encodes its messages.
    """

    def connected(peer: Peer, now: float) -> None:
        """Handle a new connection, dialled or accepted."""

    def dial_failed(address: Address, reason: str, now: float) -> None:
        """Handle a dial that failed."""

    def disconnected(peer: Peer, reason: str, now: float) -> None:
        """Handle the end of a connection that this node did not close itself."""

    def receive(message: Any, peer: Peer, now: float) -> None:
        """Process a received message."""

    def blocked(peer: Peer, now: float) -> None:
        """Handle backpressure: the send queue to ``peer`` is above its high watermark. Further writes are queued."""

    def unblocked(peer: Peer, now: float) -> None:
        """Handle the end of backpressure: the send queue to ``peer`` has drained."""


class IStreamCodec(Interface):
    """Codec for the messages of a protocol on a byte stream."""

    def encode(message: Any) -> bytes:
        """Encode one message."""

    def decoder() -> IStreamDecoder:
        """Return a decoder for one connection."""


class IStreamDecoder(Interface):
    """Incremental decoder for the bytes of one connection."""

    def feed(data: bytes) -> list[Any]:
        """Take received bytes; return the messages that they complete.

        :raises RemoteError: if the bytes are malformed; the connection is unusable afterwards.
        """


class IBatchReceiver(Interface):
    """Receiver of the datagrams of a :class:`~fyrehose_twisted.net.udp.DatagramPort`."""

    def batch_received(batch: Batch) -> None:
        """Process received datagrams. The port reuses the batch after this returns."""


class IDatagramSender(Interface):
    """Transport that sends many datagrams to many peers in one call."""

    def send(datagrams: Sequence[Datagram | Burst], peers: Sequence[Address]) -> None:
        """Send every datagram to every peer. Errors are counted, never raised."""


class IForwardPolicy(Interface):
    """Choice of the journal that receives the FORWARD for a REQUEST.

    Document 000 and document 001 disagree: random, or round-robin.
    """

    def choose(journals: Sequence[Address], requester: Address) -> Address | None:
        """Return one of ``journals`` other than ``requester``; ``None`` if there is no other."""


class IRoutingPolicy(Interface):
    """Choice of the next hop of a request in a network of freenet nodes.

    Document 003 prescribes the neighbour nearest to the key, which is the default of all nodes.
    """

    def cost(here: Any, target: Any, neighbour: Any) -> Any:
        """Return the cost of a hop. A request goes to the untried neighbour with the lowest one.

        An infinite cost, or one that is not a number, excludes the neighbour. Experiments with many routes at once
        pass arrays, and expect an array.

        :param here: location of the node that has the request.
        :param target: location of the key.
        :param neighbour: location of the neighbour.
        """


class ILinkPolicy(Interface):
    """Choice of the links of a node in a growing network. A ``view`` is a :class:`~.link_policies.LinkView`."""

    min_links = Attribute("Number of links below which a node seeks others.")
    max_links = Attribute("Maximum number of links of a node.")
    introduces = Attribute("True if nodes are introduced to the node nearest to a target; otherwise they search it.")

    def target(view: Any, rng: Random) -> float:
        """Return the location near which the node seeks its next link."""

    def accepts(view: Any, candidate: float, rng: Random) -> bool:
        """Return True if the node accepts a link to a node at the location ``candidate``."""

    def surplus(view: Any, rng: Random) -> int | None:
        """Return the neighbour whose link is given up for another one, ``None`` for none."""


class ISequenceStore(Interface):
    """Storage for the last sequence number that a backbone assigned."""

    last = Attribute("Last assigned number, 0 before the first.")
    bound = Attribute("Highest number that may be assigned until :meth:`persist` has made a higher bound durable.")
    hole = Attribute("First and last of the numbers skipped at startup, or None.")
    fresh = Attribute("True if the store has no record of any number of the stream.")

    def persist(checkpoint: Any) -> None:
        """Make a :class:`~fyrehose_twisted.fyrehose.node.backbone.sequencer.SequenceCheckpoint` durable.

        :raises StateFileError: if that failed; nothing that depends on the checkpoint may be sent.
        """

    def close() -> None:
        """Close the store; the next start then skips no numbers."""


class IMemberStore(Interface):
    """Durable storage of the state of one member of a group of backbones."""

    state = Attribute(
        ":class:`~fyrehose_twisted.fyrehose.node.member.persistent_state.MemberState` of the previous process; ``None``"
        " for a new member"
    )

    def persist(state: Any) -> None:
        """Make a :class:`~fyrehose_twisted.fyrehose.node.member.persistent_state.MemberState` durable.

        :raises OperationalError: if that fails.
        """

    def close() -> None:
        """Release the storage. Closing twice is harmless."""


class IClientMemory(Interface):
    """Additional interface of an :class:`ISequenceStore` that stores the clients of a backbone.

    Each :class:`~fyrehose_twisted.fyrehose.node.backbone.sequencer.SequenceCheckpoint` lists the changed clients.
    """

    clients = Attribute("The most recently served clients, each a KnownClient.")
    complete = Attribute("True if no other client can be alive; the backbone then assigns numbers at once.")


class IMessageStore(Interface):
    """Message store from which a client answers FORWARDs."""

    def put(first: int, messages: Sequence[bytes], received_at: int = 0) -> None:
        """Store one or more messages with consecutive numbers from ``first``.

        They replace messages stored under the same numbers and may evict older ones.

        :param received_at: UTC microseconds since 1970.
        """

    def get(sequence: int) -> bytes | None:
        """Return a message, or ``None`` if it is not stored."""

    def received_at(sequence: int) -> int | None:
        """Return the receive time of a message, or ``None`` if it is not stored."""

    def lowest(first: int, last: int, limit: int) -> list[int]:
        """Return at most ``limit`` stored numbers from ``first`` to ``last``, lowest first."""


class IPayloadSealer(Interface):
    """Sealing of a publisher's payloads."""

    overhead = Attribute("Bytes that sealing adds to a payload at most.")

    def seal(payloads: Sequence[bytes], envelopes: Sequence[bytes], now: float) -> list[bytes]:
        """Return sealed payloads. Payloads that are sealed together may share a signature.

        :param envelopes: what precedes each payload in DATA; bound to it.
        """


class IPayloadOpener(Interface):
    """Opening of the payloads that a subscriber receives."""

    def open(payload: bytes, envelope_size: int) -> Any:
        """Open a payload.

        :param payload: DATA.
        :param envelope_size: bytes of envelope at its start.
        :return: an :class:`~fyrehose_twisted.sealing.outcome.OpenedPayload`, or a
            :class:`~fyrehose_twisted.sealing.outcome.Refusal` if the payload must not be delivered.
        """

    def admit(opened: Any, sequence: int) -> bool:
        """Record that the payload of a message is about to be delivered. Return whether it was not delivered before."""


class ISubscriber(Interface):
    """Callbacks of a subscriber. They take batches for throughput."""

    def messages_received(messages: Sequence[Any]) -> None:
        """Handle :class:`~fyrehose_twisted.fyrehose.node.client.client.Message` objects in order, each once."""

    def messages_lost(first: int, last: int) -> None:
        """Handle messages ``first`` to ``last`` that cannot be repaired.

        No client that was asked holds them, or their numbers were never assigned.
        """


class ISeamListener(Interface):
    """Callbacks of a subscriber at the places of its stream where another backbone took over. In order, between
    messages."""

    def numbers_skipped(first: int, last: int) -> None:
        """Handle numbers ``first`` to ``last``, which are not part of the stream. No message is lost.

        The backbone that took over left them unused, because the former one may have assigned some of them to messages
        that no client holds.
        """

    def term_started(term: int, held_up_to: int, first: int) -> None:
        """Handle the start of a term: later messages were numbered by the backbone that leads in it.

        :param held_up_to: highest number of earlier terms that a client held.
        :param first: number of the message that starts the term, which is not passed to the application.
        """


class IPublisher(Interface):
    """Publishing interface for applications."""

    def publish(data: bytes) -> Any:
        """Publish a message; return a Deferred of its sequence number."""

    def publish_many(messages: Sequence[bytes]) -> Any:
        """Publish messages; return a Deferred of their sequence numbers in the same order."""


class IEventHistory(Interface):
    """Events of a cluster that a node holds."""

    oldest = Attribute("Lowest number held, last + 1 if none.")
    last = Attribute("Highest number that is or was held.")

    def put(stretches: Sequence[Any]) -> None:
        """Append :class:`~fyrehose_twisted.parcels.node.ordering.history.SequencedRun` objects.

        They may evict older ones. A gap before them discards everything older.
        """

    def clear(last: int) -> None:
        """Discard what can be discarded; the next event is the one after ``last``."""

    def read(first: int, last: int, limit: int) -> list[Any]:
        """Return at most ``limit`` events from ``first`` to ``last``; none if ``first`` is not held."""


class IEventListener(Interface):
    """Listener for the events of a cluster, called in the reactor turn in which the events become final."""

    def events_ordered(events: Sequence[Any]) -> None:
        """Handle the next :class:`~fyrehose_twisted.parcels.wire.messages.Event` objects, each once, without gaps."""

    def events_skipped(first: int, last: int) -> None:
        """Handle the loss of events ``first`` to ``last``: this node was offline and no node holds them any longer."""


class IReplicatedState(Interface):
    """State of an application, the same on all nodes that have applied the same events.

    What it does must depend on nothing but the events and :meth:`restore`. If it raises, the node reports that, and
    gives the state no more events; the node itself continues.
    """

    def apply(event: Any) -> None:
        """Apply the next :class:`~fyrehose_twisted.parcels.wire.messages.Event`."""

    def snapshot() -> bytes:
        """Return the state as data for :meth:`restore`, on this node or another one; at most 64 MiB."""

    def restore(data: bytes) -> None:
        """Replace the state by that of a snapshot."""


class IStateHolder(Interface):
    """Node that holds the state of an application."""

    holds_state = Attribute("Whether it does.")

    def state_snapshot() -> Any:
        """Return a :class:`~fyrehose_twisted.parcels.state_snapshot.StateSnapshot` of the present state.

        :raises StateUnavailable: if the state lacks events so far, or has failed.
        """


class IEventSource(Interface):
    """Events of a cluster as seen by one of its nodes."""

    last = Attribute("Number of the last event that this node has delivered; 0 before the first.")
    oldest = Attribute("Lowest number that this node holds; last + 1 if none.")

    def events(first: int, last: int, limit: int) -> list[Any]:
        """Return at most ``limit`` of the existing events from ``first`` to ``last``, both included.

        :raises EventsNotHeld: if ``first`` is no longer held.
        """

    def listen(listener: Any) -> None:
        """Add an :class:`IEventListener`."""

    def unlisten(listener: Any) -> None:
        """Remove a listener."""


class IOrderedEvents(IEventSource):
    """Totally ordered events of a cluster, as one of its nodes offers them to applications."""

    cluster_id = Attribute(
        "Cluster id, 16 hexadecimal digits; empty before the node has joined a cluster. Event numbers are comparable"
        " only under the same id."
    )

    def publish(data: bytes, publisher: str = "", key: str = "", *, expect: int | None = None) -> Any:
        """Publish an event; return a Deferred of its number.

        :param publisher: name of the publisher; the node's own by default.
        :param key: idempotency key. The same publisher and key give the same number at any node.
        :param expect: order the event only if the last event then has this number; 0 if there must be none.

        The Deferred fails with :class:`~fyrehose_twisted.errors.SequenceChanged` if another event is the last,
        :class:`~fyrehose_twisted.errors.NotOrdered`,
        :class:`~fyrehose_twisted.errors.MessageTooLarge`,
        :class:`~fyrehose_twisted.errors.PublishQueueFull`, or :class:`~fyrehose_twisted.errors.KeyReused` if the key
        was used with other data.
        """

    def publish_many(events: Sequence[bytes]) -> Any:
        """Publish events; return a Deferred of their numbers in the same order."""

    def synchronize() -> Any:
        """Return a Deferred that fires once this node is up to date, for linearizable reads.

        The node has then delivered every event that any node acknowledged before the call. The result is the number of
        the last event. The Deferred fails with :class:`~fyrehose_twisted.errors.NotOrdered`, or
        :class:`~fyrehose_twisted.errors.PublishQueueFull`.
        """

    def state() -> Any:
        """Return the status of the cluster from this node's view.

        :return: a :class:`~fyrehose_twisted.parcels.node.status.NodeStatus`.
        """

    def force_new_cluster() -> None:
        """Form a new cluster of this node alone, as a last resort. Events that only other nodes hold are lost."""


class IClusterOperator(Interface):
    """Node that carries out orders of the cluster's operator."""

    def transfer_leadership(name: str | None = None) -> str:
        """Order another member to take over the leadership from this node; return its name.

        :param name: the member; ``None`` for the one with the longest log.
        :raises NotLeader: if this node does not lead.
        :raises NoSuccessor: if that is no other member, or one that cannot take over.
        """

    def remove(name: str) -> None:
        """Remove a member, which leaves and stops if it can be reached.

        :raises NotLeader: if this node does not lead.
        :raises NoSuchMember: if it is no other member.
        """

    def backup_head() -> Any:
        """Return the :class:`~fyrehose_twisted.parcels.backup.BackupHead` of the present.

        :raises StateUnavailable: if this node lacks events so far.
        """


class IFile(Interface):
    """Open file of a journal. Offsets and sizes are in bytes. Failures raise :class:`OSError`."""

    def size() -> int:
        """Return the size of the file."""

    def read(offset: int, length: int) -> bytes:
        """Return ``length`` bytes, or fewer at the end of the file."""

    def write(offset: int, data: Datagram) -> None:
        """Write all of ``data``, durable after :meth:`sync`. If this raises, part of it may have been written."""

    def truncate(size: int) -> None:
        """Truncate the file, durable after :meth:`sync`."""

    def sync() -> None:
        """Make all writes durable. If this raises, no write since the last sync counts as durable."""

    def close() -> None:
        """Close the file. Closing it twice is harmless."""


class IDirectory(Interface):
    """Directory that holds only the files of one journal. Failures raise :class:`OSError`."""

    def names() -> list[str]:
        """Return the sorted names of the files."""

    def open(name: str, *, writable: bool = False, create: bool = False) -> Any:
        """Return a file as :class:`IFile`.

        :param create: create an empty writable file; :class:`FileExistsError` if the name exists.
        :raises FileNotFoundError: if the file does not exist.
        """

    def rename(old: str, new: str) -> None:
        """Rename a file, replacing one of the new name. Durable after :meth:`sync`."""

    def remove(name: str) -> None:
        """Remove a file; open handles stay valid. Durable after :meth:`sync`."""

    def sync() -> None:
        """Make the directory entries durable."""

    def lock() -> Any:
        """Lock the directory against other writers; return an object whose ``close()`` releases the lock.

        :raises BlockingIOError: if another writer holds the lock.
        """


class IJournalContents(Interface):
    """Contents of a journal of one stream.

    Numbers are positions: sequence numbers that continue where sequence numbers wrap. *Durable* data survives a power
    failure. Records below the watermark never change.
    """

    stream = Attribute("URI of the stream.")
    wrap = Attribute("Number of sequence numbers before they wrap; 0 if they never do.")

    def epochs() -> list[int]:
        """Return the known epochs, lowest first."""

    def bounds(epoch: int) -> Any:
        """Return the :class:`~fyrehose_twisted.journal.coverage.Bounds` of an epoch; ``None`` if it is unknown."""

    def held(epoch: int, first: int, last: int) -> Any:
        """Return an iterator of the ranges held within ``first`` to ``last``, as pairs, lowest first.

        The journal must not be written during the iteration.
        """

    def losses(epoch: int, first: int, last: int) -> list[tuple[int, int]]:
        """Return the ranges within ``first`` to ``last`` that are declared lost."""


class IJournalReader(IJournalContents):
    """Reader of the records of one stream, in order."""

    tag = Attribute("Random id of the journal, drawn at its creation; ``None`` if unknown.")
    damages = Attribute("Damaged or missing parts, each a :class:`~fyrehose_twisted.journal.errors.Damage`.")

    def read(epoch: int, first: int, last: int, on_damage: Any = None) -> Any:
        """Return an iterator of :class:`~fyrehose_twisted.journal.block.Block` objects from ``first`` to ``last``.

        Positions ascend and occur once. Missing records are skipped.

        :param on_damage: called with each :class:`~fyrehose_twisted.journal.errors.Damage`; the damaged records are
            skipped.
        :raises NotInJournal: if ``first`` precedes the start of the epoch.
        :raises JournalDamaged: if records are damaged and ``on_damage`` is ``None``.
        """

    def stored(epoch: int, first: int, last: int, on_damage: Any = None, *, projection: Any = ...) -> Any:
        """Return an iterator of lists of stored blocks, including replaced records.

        See :meth:`JournalReader.stored <fyrehose_twisted.journal.reader.JournalReader.stored>`.
        """

    def to_arrow(
        columns: Sequence[str] = ...,
        *,
        epoch: int | None = None,
        first: int | None = None,
        last: int | None = None,
        fail_on_data_loss: bool = True,
    ) -> Any:
        """Return a :class:`pyarrow.RecordBatchReader`.

        See :class:`~fyrehose_twisted.journal.arrow.tabular.Tabular`.
        """

    def get(epoch: int, position: int) -> Any:
        """Return one :class:`~fyrehose_twisted.record.Record`, or ``None`` if it is not held.

        :raises JournalDamaged: if the record is damaged.
        """


class ISegmentReader(IJournalReader):
    """Reader of the segments of a journal on disk."""

    segments = Attribute("Durable segments, each a :class:`~fyrehose_twisted.journal.format.segment.Segment`.")

    def read(epoch: int, first: int, last: int, on_damage: Any = None, *, projection: Any = ...) -> Any:
        """Return an iterator like :meth:`IJournalReader.read`.

        :param projection: :class:`~fyrehose_twisted.journal.format.segment.Projection` that selects the columns to
            read.
        """

    def close() -> None:
        """Close all files."""


class IJournal(IJournalReader):
    """Writable journal. Appended records are neither durable nor readable before :meth:`commit`."""

    def begin(epoch: int, sequence: int) -> None:
        """Begin an epoch at ``sequence``; by default it begins with its first record. No effect on a begun epoch."""

    def append(records: Sequence[Any], *, authoritative: bool = False) -> int:
        """Append :class:`~fyrehose_twisted.record.Record` objects in any order; return the number accepted.

        :class:`~fyrehose_twisted.journal.record_columns.RecordColumns` are appended without making a record of each.

        For a number already held, the old payload stays below the watermark and is replaced above it. A number declared
        lost stays lost. The journal counts the records that it does not accept.

        A number below the watermark whose record the disk lost accepts only an authoritative record.

        :param authoritative: the records come from the source that assigned their numbers, and may replace records
            that the disk lost.
        :raises NotForJournal: if a record belongs to another stream or a field is out of range; none is accepted.
        """

    def lose(epoch: int, first: int, last: int) -> None:
        """Declare the missing sequence numbers from ``first`` to ``last`` lost, so that the watermark can pass them."""

    def commit(sync: bool = True) -> None:
        """Make the appended records durable as one group.

        ``sync=False`` defers the sync to a later commit. Until then a power failure can lose the records, and the
        watermark does not pass them.

        :raises JournalFull: if the disk is full. The records stay pending, and the call can be repeated.
        :raises JournalBroken: if the disk failed; the journal must be reopened.
        """

    def trim() -> int:
        """Drop segments beyond the retention, lowest numbers first; return the bytes freed."""

    def close() -> None:
        """Commit, and close all files."""


class IIrcListener(Interface):
    """Listener for the IRC lines and the leader of a hydra network."""

    def lines_received(lines: Any) -> None:
        """Handle the next lines of a term: :class:`~fyrehose_twisted.hydra.events.LinesReceived`."""

    def lines_missed(lines: Any) -> None:
        """Handle IRC lines that did not reach this node: :class:`~fyrehose_twisted.hydra.events.LinesMissed`."""

    def leader_changed(leader: Any) -> None:
        """Handle a change or loss of the leader: :class:`~fyrehose_twisted.hydra.events.LeaderChanged`."""


class IFreenetListener(Interface):
    """Listener for the streams of a freenet node."""

    def packets_received(key: bytes, packets: Sequence[Any]) -> None:
        """Handle new packets of a subscribed stream, each once: :class:`~fyrehose_twisted.freenet.events.Packet`."""

    def packets_missed(key: bytes, first: int, last: int) -> None:
        """Handle the loss of packets ``first`` to ``last``, which did not arrive in time."""

    def stream_changed(event: Any) -> None:
        """Handle a state change of a stream: ``Subscribed``, ``Restarting`` and others.

        See :mod:`~fyrehose_twisted.freenet.events`.
        """


class IBot(Interface):
    """Deterministic bot. Every node runs it on the same lines; only the leader's replies are sent."""

    def line_received(line: Any) -> Any:
        """Process an :class:`~fyrehose_twisted.hydra.irc.bots.IrcLine`; return zero or more reply lines.

        Equal lines must lead to equal state on every node, because a new leader continues from its own state.
        """

    def lines_missed(first: int, last: int) -> None:
        """Handle the loss of lines ``first`` to ``last`` of the term on this node."""

    def leading(leads: bool) -> None:
        """Handle the start (``True``) or end of this node's leadership."""


class IStatefulBot(IBot):
    """Bot whose state is handed over to nodes that lack it: new ones, and those that missed lines."""

    def snapshot() -> Any:
        """Return the state as bytes, at most 1 MiB. Equal states have to give equal bytes."""

    def restore(state: bytes) -> None:
        """Replace the state by one that :meth:`snapshot` returned on another node.

        :raises ValueError: if it is not usable; the state then stays as it is.
        """


class IViewBot(Interface):
    """Bot that wants to know who is in the channels."""

    def view_attached(view: Any) -> None:
        """Take an :class:`~fyrehose_twisted.hydra.irc.view.IrcView`, which follows the lines from now on.

        It is up to date when the bot gets a line: it includes that line.
        """


if not TYPE_CHECKING:
    __getattr__ = renamed(__name__, {"Drained": "Outputs"})
