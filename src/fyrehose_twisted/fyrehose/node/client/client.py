"""Client node (documents 000 and 001): keepalives, ordered delivery, repairs and publishing."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import inf
from random import Random

from zope.interface import classImplements

from fyrehose_twisted._native import mypyc_attr
from fyrehose_twisted.datagrams import Batch, DatagramRun
from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import (
    ClientCounters,
    JournalsSynced,
)
from fyrehose_twisted.fyrehose.node.base import DatagramNode
from fyrehose_twisted.fyrehose.node.client.deduplication import Deduplicator
from fyrehose_twisted.fyrehose.node.client.delivery_queue import DeliveryQueue
from fyrehose_twisted.fyrehose.node.client.keepalive import KeepaliveSession
from fyrehose_twisted.fyrehose.node.client.memory_store import MemoryStore
from fyrehose_twisted.fyrehose.node.client.publishing.send_queue import SendQueue
from fyrehose_twisted.fyrehose.node.client.publishing.session import PublishingSession
from fyrehose_twisted.fyrehose.node.client.reception import Reception
from fyrehose_twisted.fyrehose.node.client.repair_responder import RepairResponder
from fyrehose_twisted.fyrehose.node.client.subscription import Subscription
from fyrehose_twisted.fyrehose.node.client.takeover.backbone_group import BackboneGroup
from fyrehose_twisted.fyrehose.node.client.takeover.connection import Connection
from fyrehose_twisted.fyrehose.node.mac.agreement import MacAgreement
from fyrehose_twisted.fyrehose.node.multicast.listening import GroupListening
from fyrehose_twisted.fyrehose.wire.envelope import MAGIC
from fyrehose_twisted.fyrehose.wire.packets import (
    WITH_MAC,
    Asked,
    Beacon,
    Deliver,
    Flags,
    Forward,
    Group,
    KeepaliveAck,
    Leader,
    Packet,
    PacketType,
    Status,
)
from fyrehose_twisted.fyrehose.wire.run_codec import (
    DeliverRun,
    decode_ranges,
    encode_ranges,
    split_batch,
)
from fyrehose_twisted.interfaces import IDatagramNode, IMessageStore, IPayloadOpener, IPayloadSealer, Outputs
from fyrehose_twisted.repeats import RepeatDetector
from fyrehose_twisted.sealing.outcome import Refusal

_FORWARDS = int(PacketType.FORWARD), int(PacketType.FORWARD | WITH_MAC)


class ClientState(Enum):
    """State of a subscriber."""

    JOINING = "searching for its first message"
    FOLLOWING = "following the stream"
    FAILED = "stopped"


@mypyc_attr(allow_interpreted_subclasses=True)
class Client(DatagramNode):
    """Node of one client.

    :param backbone: address of the backbone, or of several that take over from one another.
    :param rng: source of jitter, tokens and the publisher id.
    :param store: message store for repairs; by default in memory.
    :param durable: whether ``store`` is a durable journal.
    :param publisher: publisher id and counter of its first message; by default a random id and 0.
    :param flags: FLAGS of its KEEPALIVEs in addition to those that ``config`` implies.
    :param sealer: seals the payloads that are published.
    :param opener: opens the payloads that are received. What it refuses is dropped.
    :raises ConfigurationError: if messages are to be delivered raw and opened.
    :ivar macs: agreement with the backbone on MACs.
    :param receive_buffer: see :class:`~fyrehose_twisted.fyrehose.node.client.publishing.send_queue.SendQueue`.
    """

    def __init__(
        self,
        backbone: Address | Sequence[Address],
        config: ClientConfig,
        rng: Random,
        now: float,
        *,
        store: IMessageStore | None = None,
        receive_buffer: int | None = None,
        durable: bool = False,
        publisher: tuple[bytes, int] | None = None,
        flags: Flags = Flags.NONE,
        sealer: IPayloadSealer | None = None,
        opener: IPayloadOpener | None = None,
    ) -> None:
        if config.raw and opener is not None:
            raise ConfigurationError("raw messages are delivered as on the wire, so they cannot be opened")
        super().__init__()
        self.group = BackboneGroup(backbone)
        self.backbone = self.group.leader
        self.config = config
        self.counters = ClientCounters()
        self._answers_forwards = config.journal and (config.subscribe or store is not None)
        self.keepalive = KeepaliveSession(
            config, rng, now, journals=self._answers_forwards, durable=durable, flags=flags
        )
        self.listening = GroupListening(self._output, self.keepalive.set_hears_group)
        self.macs = MacAgreement(
            config,
            self._output,
            lambda: self.group.leader,
            lambda address: address in self.group,
            self.keepalive.is_recent_token,
            self._drop,
        )
        name, first = (rng.randbytes(8), 0) if publisher is None else publisher
        self.send_queue = SendQueue(config.outbox, name, receive_buffer=receive_buffer, first=first, sealer=sealer)
        self._store: IMessageStore = (
            MemoryStore(config.history_bytes if config.journal else 0) if store is None else store
        )
        self._connection = Connection(
            self.group,
            self.keepalive,
            self.counters,
            self._output,
            self.drops,
            self._drop,
            on_connected=self._connected,
            on_leader_changed=self._leader_changed,
        )
        publishing = self._publishing = PublishingSession(
            self.backbone, config, self.keepalive, self.send_queue, self.counters, self._output
        )
        self.repair_responder = RepairResponder(self._store, self.drops, publishing.linger, add_macs=self.macs.add_macs)
        self.durability, self.unconfirmed_numbers = publishing.durability, publishing.unconfirmed_numbers
        self._subscription: Subscription | None = None
        if config.subscribe:
            self._subscription = Subscription(
                self.backbone,
                config,
                self._store,
                self.counters,
                self.drops,
                rng,
                now,
                on_new_messages=self._messages_seen,
                own=b"" if config.outbox.raw else MAGIC + name,
                on_own_repeated=self.send_queue.window.retransmitted_early,
            )
        self._deduplicator = Deduplicator(
            self.send_queue, self.counters, raw=config.raw, opener=opener, on_refused=self._payload_refused
        )
        self._delivery_queue = DeliveryQueue(self._deduplicator, self.counters)
        self._reception = Reception(
            self._subscription,
            self._delivery_queue,
            self._connection,
            publishing,
            self.counters,
            self.drops,
            self._drop,
        )
        self._deadline: float | None = None
        self._now = now

    @property
    def next_sequence(self) -> int | None:
        """Number to deliver next; ``None`` while joining."""
        stream = self._reception.reorder_buffer
        return None if stream is None else stream.next

    @property
    def reported_last(self) -> int:
        """Last assigned number that the backbone has reported; 0 if it has reported none."""
        return 0 if self._subscription is None else self._subscription.arrival.reported_last

    @property
    def repeats(self) -> RepeatDetector:
        """Detector of repeats by their envelopes."""
        return self._deduplicator.repeats

    @property
    def start_sequence(self) -> int | None:
        """First number of this subscriber; ``None`` while joining."""
        subscription = self._subscription
        if subscription is None or subscription.reorder_buffer is None:
            return None
        return subscription.arrival.start_sequence

    @property
    def buffered_bytes(self) -> int:
        """Bytes in the reorder buffer."""
        stream = self._reception.reorder_buffer
        return 0 if stream is None else stream.size

    @property
    def missing_count(self) -> int:
        """Count of missing numbers that are not lost yet."""
        stream = self._reception.reorder_buffer
        return 0 if stream is None else stream.missing.count

    @property
    def state(self) -> ClientState:
        """State of this subscriber."""
        if self._subscription is not None and self._subscription.arrival.failure is not None:
            return ClientState.FAILED
        return ClientState.JOINING if self._reception.reorder_buffer is None else ClientState.FOLLOWING

    @property
    def may_leave_at(self) -> float:
        """Time from which on subscribers do not need this client for repairs; 0 if they do not need it now.

        A client that answers FORWARDs is needed for a while after it published messages that no journal was to keep.
        """
        return self._publishing.linger.quiet_at if self._answers_forwards and self.keepalive.connected else 0.0

    # Commands

    def publish(self, payload: bytes, now: float, *, kept: int = 0) -> int:
        """Queue a message. Return its ticket, which identifies the message in later events.

        :param kept: number of durable journals that must sync the message before it counts as published.
        :raises MessageTooLarge: if it does not fit a datagram.
        :raises PublishQueueFull: if the send queue is full.
        :raises ConfigurationError: if ``kept`` is too high, or the dialect is v1.
        """
        return self.publish_many((payload,), now, kept=kept)[0]

    def publish_many(self, payloads: Sequence[bytes], now: float, *, kept: int = 0) -> range:
        """Queue at least one message, all or none, and return their tickets. Raises the errors of :meth:`publish`."""
        tickets = self._publishing.publish_many(payloads, now, kept=kept)
        deadline = self._deadline
        if deadline is None or kept:
            self._deadline = None
        else:
            self._deadline = min(deadline, self._publishing.next_deadline(), now + self.config.outbox.timeout)
        return tickets

    def pause(self) -> None:
        """Stop delivering until :meth:`resume`. Messages that exceed the buffer are requested again later."""
        self._reception.pause()

    def resume(self, now: float) -> None:
        """Deliver messages again."""
        self._deadline = None
        self._delivery_queue.paused = False
        self._now = now
        self._resume_delivery()

    def prepare_to_leave(self) -> None:
        """Ignore messages published from now on in :attr:`may_leave_at`."""
        self._publishing.prepare_to_leave()

    def leave(self, now: float) -> None:
        """Send a last KEEPALIVE that ends the subscription, if the dialect has flags. No KEEPALIVE follows."""
        self._deadline = None
        self._connection.leave(now)

    # Input

    def receive_batch(self, batch: Batch, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IDatagramNode.receive_batch`."""
        self._now = now
        if len(batch.runs) == 1 and self._follows_simply(batch, batch.runs[0], now):
            return
        self._deadline = None
        for run in split_batch(batch, self.macs.split_run):
            if isinstance(run, DeliverRun):
                self._delivers_received(run, now)
            elif run.rows == 1 or not self._forwards_received(batch, run, now):
                for datagram in batch.datagrams(run):
                    self._receive_datagram(datagram, run.peer, run.truncated, now)
        self._advance(now)
        self._publishing.schedule_push(now)

    def _follows_simply(self, batch: Batch, run: DatagramRun, now: float) -> bool:
        """Handle a batch that is one message and simply continues the stream. Return whether it is.

        Most batches of a stream that is not under load are. Nothing of it can bring a deadline forward but what is
        asked for here, so that the others are not looked at.
        """
        subscription = self._subscription
        if run.rows != 1 or run.peer != self.backbone or subscription is None:
            return False
        delivers = self.macs.split_run(batch.buffer, run)
        if delivers is None or not subscription.run_received(*delivers[0], now, live=True):
            return False
        self.counters.received += 1
        if subscription.has_new_gaps:
            self._deadline = None
        self._advance(now)
        self._publishing.schedule_push(now)
        if self._deadline is not None:
            self._deadline = min(self._deadline, subscription.tail_probe_due_at, self._publishing.next_deadline())
        return True

    def receive(self, packet: Packet, peer: Address, now: float) -> None:
        """Handle a packet from ``peer``."""
        match packet:
            case Deliver(sequence, data, fetched):
                live = peer == self.backbone and not fetched
                self._reception.message_received(sequence, data, peer, now, live=live)
            case Forward():
                self.forward_received(packet, peer, now)
            case KeepaliveAck(token):
                self._connection.ack_received(token, peer, now)
            case Leader():
                self._connection.leader_received(packet, peer, self._reception.highest_held, now)
            case Group(address=group):
                if self.config.multicast and self._connection.accepts(packet, peer, now):
                    self.listening.announced(group, peer, now)
            case Beacon(listeners):
                self.beacon_received(listeners, peer, now)
            case Status() | Asked():
                if self._connection.accepts(packet, peer, now):
                    self.extension_received(packet, now)
            case _:
                self._drop(
                    "unexpected",
                    peer,
                    f"{type(packet).__name__.upper()} is for a backbone, not for clients",
                    now,
                )

    def _admits(self, packet: Packet, peer: Address, now: float) -> bool:
        return self.macs.admits(packet, peer, now)

    def _delivers_received(self, run: DeliverRun, now: float) -> None:
        """Handle DELIVERs with consecutive numbers."""
        self._reception.run_received(run, now, live=run.peer == self.backbone)

    def _messages_seen(self, first: int, messages: Sequence[bytes], now: float, live: bool) -> None:
        """Handle consecutive messages that are received for the first time, in whatever order.

        :param live: whether the backbone sent them.
        """
        self._publishing.messages_seen(first, messages, now)

    def extension_received(self, extension: Status | Asked, now: float) -> None:
        """Handle a STATUS or ASKED of the backbone."""
        self.keepalive.extensions_supported = True
        if isinstance(extension, Status):
            if self.config.watch:
                self._output.events.append(JournalsSynced(extension.holdings))
            self._publishing.journals_synced(extension.holdings)
        if self._subscription is not None:
            self._subscription.extension_received(extension)

    def beacon_received(self, listeners: int, peer: Address, now: float) -> None:
        """Handle a BEACON to the multicast group."""
        if peer != self.backbone:
            self._connection.drop_foreign(
                "foreign_beacon", peer, "BEACON from an address that is not the backbone's", now
            )
            return
        self.listening.beacon_received(listeners, now)
        if self._subscription is not None:
            self._subscription.spread_requests(self.listening.spread)

    def forward_received(self, forward: Forward, peer: Address, now: float) -> None:
        """Answer a FORWARD with stored messages (000, client rule 4)."""
        if peer != self.backbone:
            self._connection.drop_foreign(
                "foreign_forward", peer, "FORWARD from an address that is not the backbone's", now
            )
        elif not (self._answers_forwards and forward.address[1]):
            self.drops.counts["forward_unwanted"] += 1
        else:
            self.repair_responder.answer(forward.address, ((forward.first, forward.last),), now, with_macs=forward.mac)

    def _forwards_received(self, batch: Batch, run: DatagramRun, now: float) -> bool:
        """Answer a run of FORWARDs, as :meth:`forward_received`. Return whether it is one, all for one requester."""
        kind = batch.buffer[run.start]
        if kind not in _FORWARDS or run.peer != self.backbone or not self._answers_forwards:
            return False
        forwards = decode_ranges(batch.buffer, run)
        if forwards is None or not forwards[0][1]:
            return False
        self.repair_responder.answer(*forwards, now, with_macs=kind != PacketType.FORWARD)
        return True

    def tick(self, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.tick`."""
        self._deadline = None
        self._now = now
        self.listening.tick(now, self.keepalive.answered_at)
        self._connection.tick(now)
        if self._subscription is not None:
            self._subscription.spread_requests(self.listening.spread)
            self._subscription.stream_head.tick(now)
        self._output.effects += self.repair_responder.take_due(now)
        self._publishing.expire(now)
        # Time-dependent decisions are made here only, so that they do not depend on the boundaries of batches.
        if self.keepalive.connected:
            if self._subscription is not None:
                self._subscription.tick(now)
            # After the subscription: messages received while it joined may have been round trip samples.
            self.send_queue.detect_timeouts(now)
        self._advance(now)
        self._publishing.tick(now)

    def next_deadline(self) -> float | None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.next_deadline`.

        It may be too early, after messages that moved deadlines: looking for the new one for each costs more than an
        idle tick now and then.
        """
        if self._deadline is None:
            self._deadline = self._find_deadline()
        return None if self._deadline == inf else self._deadline

    def _find_deadline(self) -> float:
        deadlines = [
            self._connection.keepalive_due_at,
            self.repair_responder.next_deadline(self._now),
            self._publishing.next_deadline(),
            self.send_queue.next_expiry(),
            self.durability.next_deadline(),
            self.listening.next_deadline(),
        ]
        if self.keepalive.connected:
            deadlines.append(self.keepalive.times_out_at)
            if self._subscription is not None:
                deadlines.append(self._subscription.next_deadline())
        return min(deadline for deadline in deadlines if deadline is not None)

    def drain(self) -> Outputs:
        """See :meth:`~fyrehose_twisted.interfaces.INode.drain`; ``persist`` is always ``None``."""
        self._resume_delivery()
        self._output.effects += self.repair_responder.take_gathered()
        effects, events = self._output.take()
        # One at a time, because the application may pause upon each delivery.
        delivery = self._delivery_queue.take()
        if delivery is not None:
            events.append(delivery)
        return Outputs(None, effects, events)

    def _resume_delivery(self) -> None:
        if self._reception.resume():
            self._deadline = None
            self._advance(self._now)

    def _advance(self, now: float) -> None:
        requests = self._reception.advance(now)
        if requests:
            self.counters.requests += len(requests)
            burst = encode_ranges(PacketType.REQUEST, self.config.address, requests)
            self._output.effects.append(Send([burst], (self.backbone,)))

    def _payload_refused(self, sequence: int, reason: Refusal) -> None:
        self._drop(reason.value, self.backbone, f"message {sequence}: {reason.description}", self._now)

    # Backbones

    def _connected(self, now: float) -> None:
        if self._subscription is not None:
            self._subscription.connected(now)

    def _leader_changed(self, now: float, has_taken_over: bool) -> None:
        self.backbone = self.group.leader
        self.listening.abandon(now)
        self._delivery_queue.has_terms = self.group.term > 0
        subscription, term = self._subscription, self.group.term
        if subscription is not None and has_taken_over:
            subscription.leader_changed(self.backbone, term, now, connected=self.keepalive.connected)
        elif subscription is not None:
            subscription.leader_reported(self.backbone, term)
        self._publishing.leader_changed(self.backbone)


classImplements(Client, IDatagramNode)
