"""A client's rules (documents 000 and 001): stay known, keep the stream in order and whole, help others to."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from math import inf
from random import Random

from zope.interface import implementer

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address, Burst, Datagram, Send
from fyrehose_twisted.errors import ConfigurationError, PublishQueueFull
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import (
    Acknowledged,
    ClientCounters,
    Connected,
    Delivered,
    Disconnected,
    Failed,
    Lost,
    Published,
    PublishFailed,
    Synced,
)
from fyrehose_twisted.fyrehose.node.backbone.durability import Keeping, NotKept
from fyrehose_twisted.fyrehose.node.base import PacketNode
from fyrehose_twisted.fyrehose.node.client.deduplication import Unwrapping
from fyrehose_twisted.fyrehose.node.client.duplicate_numbers import Unsettled
from fyrehose_twisted.fyrehose.node.client.keepalive import Presence
from fyrehose_twisted.fyrehose.node.client.memory_store import History
from fyrehose_twisted.fyrehose.node.client.publishing.linger import Staying
from fyrehose_twisted.fyrehose.node.client.publishing.send_queue import Outbox
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import Reassembly, Run
from fyrehose_twisted.fyrehose.node.client.repair_responder import Answers
from fyrehose_twisted.fyrehose.node.client.subscription import Subscription
from fyrehose_twisted.fyrehose.wire.codec import encode
from fyrehose_twisted.fyrehose.wire.envelope import enveloped
from fyrehose_twisted.fyrehose.wire.packets import (
    MAX_HOLDINGS,
    Asked,
    Deliver,
    Dialect,
    Forward,
    KeepaliveAck,
    Packet,
    Request,
    Status,
)
from fyrehose_twisted.fyrehose.wire.run_codec import delivered, encode_pushes
from fyrehose_twisted.interfaces import Drained, IDatagramNode, IMessageStore
from fyrehose_twisted.repeats import Repeats

MAX_UNSETTLED = 65_536
"""Messages of its own that were sent again, and wait to be told their number."""


class Phase(Enum):
    """How far a subscriber has got."""

    JOINING = "looking for its first message"
    FOLLOWING = "following the stream"
    FAILED = "stopped"


@implementer(IDatagramNode)
class Client(PacketNode):
    """One client of a backbone as a node.

    :param backbone: the backbone's address.
    :param rng: source of jitter, of tokens and of the publisher id.
    :param store: where messages are kept for others; by default in memory.
    :param durable: ``store`` is a durable journal.
    :param publisher: id of the publisher, and the counter of its first message; by default a random one, and 0.
    :param receive_buffer: see :class:`~fyrehose_twisted.fyrehose.node.client.publishing.send_queue.Outbox`.
    """

    def __init__(
        self,
        backbone: Address,
        config: ClientConfig,
        rng: Random,
        now: float,
        *,
        store: IMessageStore | None = None,
        receive_buffer: int | None = None,
        durable: bool = False,
        publisher: tuple[bytes, int] | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.config = config
        self.counters = ClientCounters()
        self._journals = config.journal and (config.subscribe or store is not None)
        self.presence = Presence(config, rng, now, journals=self._journals, durable=durable)
        name, first = (rng.randbytes(8), 0) if publisher is None else publisher
        self.outbox = Outbox(config.outbox, name, receive_buffer=receive_buffer, first=first)
        self._store: IMessageStore = History(config.history_bytes if config.journal else 0) if store is None else store
        self.answers = Answers(self._store)
        self.keeping = Keeping()
        self._staying = Staying()
        self._stays_for: float = inf
        self._unsettled = Unsettled()
        self._understood = False
        self._subscription: Subscription | None = None
        if config.subscribe:
            self._subscription = Subscription(
                f"{backbone[0]}:{backbone[1]}",
                config,
                self._store,
                self.counters,
                self.drops,
                rng,
                now,
                kept=self._run_returned,
            )
        self._unwrapping = Unwrapping(self.outbox, self.counters, raw=config.raw)
        self._handover: deque[Lost | Delivered] = deque()
        self._paused = False
        self._failed = False
        self._repairs: dict[Sequence[Address], list[Datagram | Burst]] = {}
        self._left = False
        self._failure: Failed | None = None
        self._push_at: float | None = None
        self._now = now

    @property
    def next_sequence(self) -> int | None:
        """The number to be handed over next, once that is known."""
        stream = self._stream
        return None if stream is None else stream.next

    @property
    def reported(self) -> int:
        """The last number that the backbone has said to have given; 0 if it has not said so."""
        return 0 if self._subscription is None else self._subscription.reported_last

    @property
    def repeats(self) -> Repeats:
        """The envelopes that came lately, by which repeats are told."""
        return self._unwrapping.repeats

    @property
    def beginning(self) -> int | None:
        """The number that this subscriber began with, once that is known."""
        return None if self._stream is None or self._subscription is None else self._subscription.began

    @property
    def buffered(self) -> int:
        """Bytes that wait for other messages or for the application."""
        stream = self._stream
        return 0 if stream is None else stream.size

    @property
    def missing(self) -> int:
        """How many numbers are known to exist and neither here nor given up."""
        stream = self._stream
        return 0 if stream is None else stream.missing.count

    @property
    def phase(self) -> Phase:
        """How far this subscriber has got."""
        if self._subscription is not None and self._subscription.failure is not None:
            return Phase.FAILED
        return Phase.JOINING if self._stream is None else Phase.FOLLOWING

    @property
    def leaves_at(self) -> float:
        """When subscribers need this client no more; 0 if they do not now.

        They do for a while after it has published messages that no journal was to keep, if it answers FORWARDs.
        """
        return self._staying.quiet_at if self._journals and self.presence.connected else 0.0

    # Commands

    def publish(self, payload: bytes, now: float, *, kept: int = 0) -> int:
        """Queue a message; return the ticket under which an event reports it.

        :param kept: durable journals that must have the message before it counts as published.
        :raises MessageTooLarge: if it does not fit a datagram.
        :raises PublishQueueFull: if too much waits already.
        :raises ConfigurationError: if ``kept`` cannot be known: it is too high, or the dialect is v1.
        """
        return self.publish_many((payload,), now, kept=kept)[0]

    def publish_many(self, payloads: Sequence[bytes], now: float, *, kept: int = 0) -> range:
        """Queue messages, at least one, all or none; return their tickets. See :meth:`publish` for what it raises."""
        if kept:
            self._check_kept(kept, len(payloads))
        tickets = self.outbox.add(payloads, now)
        if kept:
            until = now + self.config.outbox.timeout
            self.keeping.want(tickets, kept, until)
            self.presence.watch(now, until)
        if self._push_at is None:
            self._push(now)
            # Whatever else is published before the tick leaves with it, in bursts.
            self._push_at = now
        return tickets

    def pause(self) -> None:
        """Hand nothing over until :meth:`resume`; what finds no room meanwhile is asked for again later."""
        self._paused = True
        if self._subscription is not None:
            self._subscription.paused = True

    def resume(self, now: float) -> None:
        """Hand over again."""
        self._paused = False
        self._now = now
        self._go_on()

    def prepare_to_leave(self) -> None:
        """Let nothing that is published from now on put off :attr:`leaves_at`."""
        self._stays_for = self.outbox.next_ticket

    def leave(self, now: float) -> None:
        """Say goodbye, as far as the dialect can: a last KEEPALIVE that asks for nothing more. None follows it."""
        self._left = True
        farewell = self.presence.farewell(now)
        if farewell is not None and self.presence.connected:
            self._send(farewell)

    # Input

    def receive_batch(self, batch: Batch, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IDatagramNode.receive_batch`."""
        self._now = now
        first, data = 0, list[bytes]()
        for run in batch.runs:
            stretches = delivered(batch.buffer, run) if run.peer == self.backbone else None
            if stretches is None:
                self._run_received(first, data, now)
                data = []
                for datagram in batch.datagrams(run):
                    self._receive_datagram(datagram, run.peer, run.truncated, now)
                continue
            for sequence, more in stretches:
                if sequence == first + len(data):
                    data += more
                else:
                    self._run_received(first, data, now)
                    first, data = sequence, more
        self._run_received(first, data, now)
        self._settle(now)
        if len(self.outbox):
            # What is lost, and how many may follow, depends on what else has come: that is for a tick to decide.
            self._push_at = now

    def receive(self, packet: Packet, peer: Address, now: float) -> None:
        """One packet arrived from ``peer``."""
        match packet:
            case Deliver(sequence, data):
                self.deliver_received(sequence, data, peer, now)
            case Forward():
                self.forward_received(packet, peer, now)
            case KeepaliveAck(token):
                self.ack_received(token, peer, now)
            case Status() | Asked() if peer == self.backbone and self.presence.sent(packet.token):
                self.told(packet, now)
            case Status() | Asked():
                self._drop("stray_extension", peer, f"{type(packet).__name__.upper()} that answers none of ours", now)
            case _:
                self._drop(
                    "unexpected",
                    peer,
                    f"{type(packet).__name__.upper()} is for a backbone, not for clients",
                    now,
                )

    def ack_received(self, token: bytes, peer: Address, now: float) -> None:
        """The backbone knows us."""
        round_trip = self.presence.answered(token, now) if peer == self.backbone else None
        if round_trip is None:
            self._drop("stray_ack", peer, "KEEPALIVE-ACK that answers none of ours", now)
            return
        self._events.append(Acknowledged(round_trip))
        if not self.presence.connected:
            self.presence.connected = True
            if self._subscription is not None:
                self._subscription.connected(now)
            self._events.append(Connected())

    def told(self, extension: Status | Asked, now: float) -> None:
        """The backbone said how things stand."""
        self._understood = True
        if isinstance(extension, Status) and self.config.watch:
            self._events.append(Synced(extension.holdings))
        if isinstance(extension, Status) and len(self.keeping):
            self._report(self.keeping.heard(extension.holdings))
        subscription = self._subscription
        if subscription is None or subscription.failure is not None:
            return
        match extension:
            case Status(oldest=oldest, last=last):
                subscription.reported(oldest, last)
            case Asked(first=first, last=last, left=left):
                subscription.searched(first, last, left)

    def forward_received(self, forward: Forward, peer: Address, now: float) -> None:
        """Somebody misses what we may have (000, client rule 4)."""
        if peer != self.backbone:
            self._drop("foreign_forward", peer, "FORWARD from an address that is not our backbone's", now)
        elif not (self._journals and forward.address[1]):
            self.drops.counts["forward_unwanted"] += 1
        else:
            refusal = self.answers.requested(forward.address, forward.first, forward.last)
            if refusal is not None:
                self.drops.counts[refusal] += 1
            if refusal != "forward_not_held":
                self._staying.answered(now)
            for send in self.answers.due(now):
                self._repairs.setdefault(send.peers, []).extend(send.datagrams)

    def _run_received(self, first: int, data: list[bytes], now: float) -> None:
        """Messages with numbers from ``first`` on came from the backbone."""
        subscription = self._subscription
        if data and subscription is not None and subscription.run_received(first, data, now):
            self.counters.received += len(data)
            return
        for sequence, message in enumerate(data, first):
            self.deliver_received(sequence, message, self.backbone, now)

    def deliver_received(self, sequence: int, data: bytes, peer: Address, now: float) -> None:
        """A message came, from the backbone or as a repair (000, client rules 2 and 3)."""
        self.counters.received += 1
        live, subscription = peer == self.backbone, self._subscription
        if subscription is None:
            if live:
                self._run_returned(sequence, (data,), now)
            else:
                self._drop("unasked_repair", peer, f"DELIVER {sequence} that was not asked for", now)
        elif subscription.failure is not None:
            self.drops.counts["stopped"] += 1
        elif not live and not subscription.asked_for(sequence, now):
            self._drop("unasked_repair", peer, f"DELIVER {sequence} that was not asked for", now)
        elif sequence < 1 or (live and not subscription.tide.plausible(sequence)):
            detail = f"DELIVER {sequence} while the stream is at {subscription.tide.highest}"
            self._drop("implausible", peer, detail, now)
            if sequence > 0:
                subscription.suspected(sequence, data, now)
        else:
            subscription.received(sequence, data, now, live=live)

    def tick(self, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.tick`."""
        self._now = now
        if now >= self.presence.due_at and not self._left:
            self._send(self.presence.keepalive(now))
        if self.presence.connected and self.presence.silent(now):
            self.presence.connected = False
            self._understood = False
            self._events.append(Disconnected())
        if self._subscription is not None:
            self._subscription.tide.time_passed(now)
        answers = self.answers.due(now)
        if answers:
            self._staying.answered(now)
            self._effects.extend(answers)
        expired = self.outbox.expired(now)
        if expired:
            self.counters.publish_failed += len(expired)
            self.keeping.failed(expired)
            self._events.append(PublishFailed(expired))
        unkept = self.keeping.expired(now) if len(self.keeping) else []
        if unkept:
            self.counters.unkept += len(unkept)
            self._staying.published(now)
            self._events.append(NotKept(unkept))
        # What depends on time is decided here alone: were it decided with each batch, it would matter where one ends.
        if self.presence.connected:
            if self._subscription is not None:
                self._subscription.tick(now)
            self.outbox.time_out(now)  # What came while the subscriber joined may have told how long a return takes.
        self._settle(now)
        self._push_at = None
        self.outbox.judge()
        self._push(now)

    def next_deadline(self) -> float | None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.next_deadline`."""
        deadlines = [
            self._push_at,
            None if self._left else self.presence.due_at,
            self.answers.next_deadline(self._now),
            self.outbox.next_expiry(),
            self.keeping.next_deadline(),
        ]
        if self.presence.connected:
            deadlines += [self.presence.silent_at, self.outbox.next_timeout()]
            if self._subscription is not None:
                deadlines.append(self._subscription.next_deadline())
        return min([deadline for deadline in deadlines if deadline is not None], default=None)

    def drain(self) -> Drained:
        """See :meth:`~fyrehose_twisted.interfaces.INode.drain`; ``persist`` is always ``None``."""
        self._go_on()
        if self._repairs:
            # Who misses one message mostly misses more: what is for the same client travels together.
            self._effects += [Send(repairs, peers) for peers, repairs in self._repairs.items()]
            self._repairs = {}
        effects, self._effects = self._effects, []
        events, self._events = self._events, []
        if self._handover and not self._paused:
            # One at a time: what it is handed may make the application pause.
            events.append(self._handover.popleft())
        elif self._failure is not None:
            # Not before what came before it, for whoever is told stops listening; but it waits for no pause to end.
            events.append(self._failure)
            self._failure = None
        return Drained(None, effects, events)

    @property
    def _stream(self) -> Reassembly | None:
        return None if self._subscription is None else self._subscription.stream

    # Handing over

    def _run_returned(self, first: int, messages: Sequence[bytes], now: float) -> None:
        if not len(self.outbox) and not len(self._unsettled):
            return
        found: list[tuple[int, int]] = []
        if self.config.outbox.raw:
            for sequence, data in enumerate(messages, first):
                ticket = self.outbox.raw_returned(data, now)
                if ticket is not None:
                    found.append((ticket, sequence))
        else:
            for envelope, count in enveloped(messages):
                if envelope is not None and envelope.publisher == self.outbox.publisher:
                    counter, ahead = envelope.counter, first - envelope.counter
                    self._unsettled.seen(range(counter, counter + count), ahead)
                    tickets = self.outbox.returned(range(counter, counter + count), now)
                    found += [(ticket, ticket + ahead) for ticket in tickets if not self._unsettle(ticket, ahead)]
                first += count
        self._number(found)

    def _unsettle(self, ticket: int, ahead: int) -> bool:
        """Wait until no lower number can be this message's, if it was sent more than once; say whether."""
        stream = self._stream
        if stream is None or not self.outbox.sent_again(ticket) or len(self._unsettled) >= MAX_UNSETTLED:
            return False
        self._unsettled.add(ticket, ticket + ahead)
        return True

    def _number(self, found: list[tuple[int, int]]) -> None:
        """These messages have these numbers."""
        if not found:
            return
        self.counters.published += len(found)
        if any(ticket < self._stays_for and ticket not in self.keeping for ticket, _ in found):
            self._staying.published(self._now)
        self._report(self.keeping.published(found))

    def _report(self, published: list[tuple[int, int]]) -> None:
        if not published:
            return
        last = self._events[-1] if self._events else None
        if isinstance(last, Published):
            last.messages.extend(published)
        else:
            self._events.append(Published(published))

    def _check_kept(self, kept: int, count: int) -> None:
        if not 0 < kept <= MAX_HOLDINGS:
            raise ConfigurationError(f"kept={kept}: a backbone tells of 1 to {MAX_HOLDINGS} journals")
        if self.config.dialect is Dialect.V1:
            raise ConfigurationError(f"kept={kept} needs dialect v2: version 1 has no way to ask what journals have")
        if len(self.keeping) + count > self.config.outbox.queue_messages:
            raise PublishQueueFull(
                f"{len(self.keeping):,} messages wait to be kept by journals;"
                " wait for some of them before publishing more"
            )

    def _go_on(self) -> None:
        # Only when all that was taken is handed over, or it would pile up here, outside the buffer's limit.
        subscription = self._subscription
        if subscription is not None and subscription.paused and not (self._paused or self._handover):
            subscription.paused = False
            self._settle(self._now)

    def _settle(self, now: float) -> None:
        subscription = self._subscription
        if subscription is not None:
            subscription.settle(now)
            self._take(subscription)
            if len(self._unsettled):
                self._number(self._unsettled.settled(subscription.complete_up_to))

    def _take(self, subscription: Subscription) -> None:
        ready, subscription.ready = subscription.ready, []
        for item in ready:
            if isinstance(item, Lost):
                self.counters.lost += item.last - item.first + 1
                self._handover.append(item)
            else:
                self._deliver_run(item)
        requests, subscription.requests = subscription.requests, []
        self.counters.requests += len(requests)
        if requests:
            asked = [encode(Request(self.config.address, first, last)) for first, last in requests]
            self._effects.append(Send(asked, (self.backbone,)))
        if subscription.failure is not None and not self._failed:
            self._failed = True
            self._failure = Failed(subscription.failure)

    def _deliver_run(self, run: Run) -> None:
        messages = self._unwrapping.messages(run)
        self.counters.delivered += len(messages)
        if len(messages):
            self._handover.append(Delivered(messages))

    # Sending

    def _push(self, now: float) -> None:
        if not self.presence.connected or not len(self.outbox):
            return
        messages = self.outbox.due(now)
        if messages:
            self.counters.pushes += len(messages)
            dialect, confirm, again = self.config.dialect, not self.config.subscribe, self.outbox.again
            pushes = encode_pushes(messages[:again], dialect, confirm, again=self._understood) if again else []
            pushes += encode_pushes(messages[again:], dialect, confirm)
            self._effects.append(Send(pushes, (self.backbone,)))

    def _send(self, datagram: bytes) -> None:
        self._effects.append(Send([datagram], (self.backbone,)))
