"""A client's rules (documents 000 and 001): stay known, keep the stream in order and whole, help others to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from random import Random

from zope.interface import implementer

from fyrehose_twisted.effects import Address, Datagram, Send
from fyrehose_twisted.errors import MalformedPacket, SequenceRegressed
from fyrehose_twisted.fyrehose.answers import Answers
from fyrehose_twisted.fyrehose.batch import VECTOR_MINIMUM, scan
from fyrehose_twisted.fyrehose.codec import decode, encode, encode_push
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.drops import Drops
from fyrehose_twisted.fyrehose.envelope import ENVELOPE_SIZE, Seen, unwrap
from fyrehose_twisted.fyrehose.events import Acknowledged, Connected, Delivered, Disconnected, Failed, Message
from fyrehose_twisted.fyrehose.history import History
from fyrehose_twisted.fyrehose.joining import Joining
from fyrehose_twisted.fyrehose.messages import (
    MAX_SEQUENCE,
    Deliver,
    Forward,
    KeepaliveAck,
    Packet,
    PacketType,
    Request,
)
from fyrehose_twisted.fyrehose.outbox import Outbox, Published, PublishFailed
from fyrehose_twisted.fyrehose.presence import Presence
from fyrehose_twisted.fyrehose.reassembly import Arrival, Lost, Reassembly, Run
from fyrehose_twisted.fyrehose.repair import MAX_RANGE, Repairs
from fyrehose_twisted.fyrehose.tide import PLAUSIBLE_JUMP, Tide
from fyrehose_twisted.interfaces import Drained, IDatagramNode, IMessageStore
from fyrehose_twisted.net.batch import Batch

SLOWEST_PROBE = 30.0
"""Seconds between tail probes of a stream on which nothing happens."""


class Phase(Enum):
    """How far a subscriber has got."""

    JOINING = "looking for its first message"
    FOLLOWING = "following the stream"
    FAILED = "stopped"


@dataclass(slots=True)
class ClientCounters:
    """What happened since the start. Drops are counted by reason in :attr:`Client.drops`."""

    received: int = 0
    delivered: int = 0
    duplicates: int = 0
    repeats: int = 0
    repaired: int = 0
    lost: int = 0
    requests: int = 0
    pushes: int = 0


@implementer(IDatagramNode)
class Client:
    """One client of a backbone as a node.

    :param backbone: the backbone's address.
    :param rng: source of jitter, of tokens and of the publisher id.
    :param store: where messages are kept for others; by default in memory.
    """

    def __init__(
        self,
        backbone: Address,
        config: ClientConfig,
        rng: Random,
        now: float,
        *,
        store: IMessageStore | None = None,
    ) -> None:
        self.backbone = backbone
        self.config = config
        self.counters = ClientCounters()
        self.drops = Drops()
        self.presence = Presence(config, rng, now)
        self.outbox = Outbox(config.outbox, rng.randbytes(8))
        self.repairs = Repairs(config.repair, rng, now)
        self.phase = Phase.JOINING
        self._store: IMessageStore = History(config.history_bytes if config.journal else 0) if store is None else store
        self.answers = Answers(self._store)
        self._joining: Joining | None = None
        self._stream: Reassembly | None = None
        self._tide = Tide(now)
        self._seen = Seen()
        self._rng = rng
        self._now = now
        self._paused = False
        self._effects: list[Send] = []
        self._events: list[object] = []
        self._probe_at = now
        self._probe_interval = config.keepalive_interval
        if isinstance(config.start, int):
            self._follow(config.start)
        elif config.subscribe:
            self._joining = Joining(config.start, config.buffer_bytes, config.repair.reorder_delay)

    @property
    def next_sequence(self) -> int | None:
        """The number to be handed over next, once that is known."""
        return None if self._stream is None else self._stream.next

    @property
    def buffered(self) -> int:
        """Bytes that wait for other messages or for the application."""
        return 0 if self._stream is None else self._stream.size

    # Commands

    def publish(self, payload: bytes, now: float) -> int:
        """Queue a message; return the ticket under which :class:`Published` or :class:`PublishFailed` report it.

        :raises MessageTooLarge: if it does not fit a datagram.
        :raises PublishQueueFull: if too much waits already.
        """
        ticket = self.outbox.add(payload, now)
        self._push(now)
        return ticket

    def pause(self) -> None:
        """Hand nothing over until :meth:`resume`; what finds no room meanwhile is asked for again later."""
        self._paused = True

    def resume(self, now: float) -> None:
        """Hand over again."""
        self._paused = False
        self._settle(now)

    def leave(self, now: float) -> None:
        """Say goodbye, as far as the dialect can: a last KEEPALIVE that asks for nothing more."""
        farewell = self.presence.farewell(now)
        if farewell is not None and self.presence.connected:
            self._send(farewell)

    # Input

    def receive_batch(self, batch: Batch, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IDatagramNode.receive_batch`."""
        self._now = now
        if len(batch) < VECTOR_MINIMUM:
            for datagram, peer, truncated in batch:
                self._receive_datagram(datagram, peer, truncated, now)
        else:
            columns = scan(batch)
            view, truncated_rows = batch.view, set(batch.truncated)
            rows = zip(
                columns.kinds.tolist(),
                columns.sequences.tolist(),
                columns.starts.tolist(),
                columns.lengths.tolist(),
                batch.peers,
                strict=True,
            )
            for row, (kind, sequence, start, length, peer) in enumerate(rows):
                if kind == PacketType.DELIVER:
                    self.deliver_received(sequence, bytes(view[start : start + length]), peer, now)
                else:
                    self._receive_datagram(batch[row], peer, row in truncated_rows, now)
        self._settle(now)

    def receive(self, packet: Packet, peer: Address, now: float) -> None:
        """One packet arrived from ``peer``."""
        match packet:
            case Deliver(sequence, data):
                self.deliver_received(sequence, data, peer, now)
            case Forward():
                self.forward_received(packet, peer, now)
            case KeepaliveAck(token):
                self.ack_received(token, peer, now)
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
            self._probe_at = now
            if self._joining is not None:
                self._joining.begin(now)
            self._events.append(Connected())

    def forward_received(self, forward: Forward, peer: Address, now: float) -> None:
        """Somebody misses what we may have (000, client rule 4)."""
        if peer != self.backbone:
            self._drop("foreign_forward", peer, "FORWARD from an address that is not our backbone's", now)
        elif self.config.journal and forward.address[1]:
            refusal = self.answers.requested(forward.address, forward.first, forward.last)
            if refusal is not None:
                self.drops.counts[refusal] += 1
            self._effects.extend(self.answers.due(now))

    def deliver_received(self, sequence: int, data: bytes, peer: Address, now: float) -> None:
        """A message came, from the backbone or as a repair (000, client rules 2 and 3)."""
        self.counters.received += 1
        from_backbone = peer == self.backbone
        if self.phase is Phase.FAILED:
            return
        if not from_backbone and not self._asked_for(sequence):
            self._drop("unasked_repair", peer, f"DELIVER {sequence} that was not asked for", now)
        elif not self.config.subscribe:
            self._returned(data, sequence, now)
        elif sequence < 1 or (from_backbone and not self._tide.plausible(sequence)):
            self._drop("implausible", peer, f"DELIVER {sequence} while the stream is at {self._tide.highest}", now)
        elif self._stream is not None:
            self._arrived(self._stream, sequence, data, from_backbone, now)
        elif self._joining is not None and not self._joining.add(sequence, data, now, live=from_backbone):
            self.drops.counts["buffer_full"] += 1

    def tick(self, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.tick`."""
        self._now = now
        if now >= self.presence.due_at:
            self._send(self.presence.keepalive(now))
        if self.presence.connected and self.presence.silent(now):
            self.presence.connected = False
            self._events.append(Disconnected())
        self._tide.time_passed(now)
        self._effects.extend(self.answers.due(now))
        expired = self.outbox.expired(now)
        if expired:
            self._events.append(PublishFailed(expired))
        # What depends on time is decided here alone: were it decided with each batch, it would matter where one ends.
        if self.presence.connected:
            self.outbox.time_out(now)
            if self._joining is not None:
                self._join(self._joining, now)
            if self._stream is not None and self._following:
                self._repair(self._stream, now)
        self._settle(now)

    def next_deadline(self) -> float | None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.next_deadline`."""
        deadlines = [self.presence.due_at, self.outbox.next_expiry(), self.answers.next_deadline(self._now)]
        if self.presence.connected:
            deadlines += [self.presence.silent_at, self.outbox.next_timeout()]
            if self._joining is not None:
                deadlines.append(self._joining.next_deadline())
            elif self._following:
                deadlines += [self._probe_at, self.repairs.next_deadline()]
        return min(deadline for deadline in deadlines if deadline is not None)

    def drain(self) -> Drained:
        """See :meth:`~fyrehose_twisted.interfaces.INode.drain`; ``persist`` is always ``None``."""
        effects, self._effects = self._effects, []
        events, self._events = self._events, []
        return Drained(None, effects, events)

    # Keeping order

    @property
    def _following(self) -> bool:
        return self.phase is Phase.FOLLOWING and self.config.subscribe

    def _asked_for(self, sequence: int) -> bool:
        # Who looks for the oldest message asks for any; once there is a stream, none leads far beyond its end.
        near = self._stream is None or sequence <= self._stream.highest + MAX_RANGE
        return near and self.repairs.was_asked(sequence)

    def _follow(self, start: int) -> Reassembly:
        self.phase = Phase.FOLLOWING
        self._joining = None
        self._stream = Reassembly(start, limit=self.config.buffer_bytes)
        return self._stream

    def _join(self, joining: Joining, now: float) -> None:
        asked = joining.ask(now)
        if asked is not None:
            self._request(*asked, now)
        elif joining.done(now):
            stream = self._follow(min(joining.early))
            for sequence, data in sorted(joining.early.items()):
                if sequence <= stream.highest + PLAUSIBLE_JUMP:
                    self._arrived(stream, sequence, data, sequence in joining.live, now)

    def _arrived(self, stream: Reassembly, sequence: int, data: bytes, from_backbone: bool, now: float) -> None:
        known = stream.highest
        arrival = self._add(stream, sequence, data, now)
        if arrival is Arrival.DUPLICATE:
            self.counters.duplicates += 1
            if from_backbone:
                self._check_regress(sequence, data)
            return
        if from_backbone:
            self._tide.reached(sequence)
        if sequence <= known and arrival is Arrival.NEW:
            self.counters.repaired += self.repairs.arrived(sequence)
        elif sequence > known:
            self._probe_interval = self.config.keepalive_interval
            self._probe_at = now + self._probe_interval
        if arrival is Arrival.OVERFLOW:
            self.drops.counts["buffer_full"] += 1
        if self.config.journal:
            self._store.put(sequence, data)
        self._returned(data, sequence, now)

    def _add(self, stream: Reassembly, sequence: int, data: bytes, now: float) -> Arrival:
        if not (self._paused or stream.has_room(len(data))):
            self._hand_over(stream)
        arrival = stream.add(sequence, data, int(now * 1_000_000))
        if arrival is Arrival.OVERFLOW and sequence in stream.missing:
            self.repairs.refused(sequence)
        return arrival

    def _check_regress(self, sequence: int, data: bytes) -> None:
        if self.repairs.was_asked(sequence):
            return
        held = self._store.get(sequence)
        if held == data or (held is None and not self._tide.is_old(sequence)):
            return
        self.phase = Phase.FAILED
        self._events.append(
            Failed(
                SequenceRegressed(
                    f"backbone {self.backbone[0]}:{self.backbone[1]} sent message {sequence} anew after"
                    f" {self._tide.highest}; it has lost its state file or runs twice."
                    " Stop it before more numbers are given twice"
                )
            )
        )

    def _returned(self, data: bytes, sequence: int, now: float) -> None:
        if not len(self.outbox):
            return
        ticket = self.outbox.returned(data, None if self.config.outbox.raw else unwrap(data), now)
        if ticket is None:
            return
        last = self._events[-1] if self._events else None
        if isinstance(last, Published):
            last.messages.append((ticket, sequence))
        else:
            self._events.append(Published([(ticket, sequence)]))

    def _settle(self, now: float) -> None:
        stream = self._stream
        if stream is not None and self._following:
            for first, last in stream.fresh_gaps:
                self.repairs.gap_found(first, last, now)
            stream.fresh_gaps.clear()
            if not self._paused:
                self._hand_over(stream)
        self._push(now)

    def _repair(self, stream: Reassembly, now: float) -> None:
        deadline = self.repairs.next_deadline()
        if deadline is not None and deadline <= now:
            due = self.repairs.due(stream.missing, now, hold_from=stream.no_room_from(paused=self._paused))
            for first, last in due.requests:
                if not self._recall(stream, first, last, now):
                    self._send_request(first, last)
            for first, last in due.given_up:
                stream.give_up(first, last)
        if now >= self._probe_at:
            # A tail probe: the last message of a burst may be lost with nothing after it to show the gap.
            self._request(stream.highest + 1, min(stream.highest + MAX_RANGE, MAX_SEQUENCE), now)
            self._probe_at = now + self._probe_interval * (0.75 + 0.5 * self._rng.random())
            self._probe_interval = min(self._probe_interval * 2, SLOWEST_PROBE)

    def _recall(self, stream: Reassembly, first: int, last: int, now: float) -> bool:
        """Take what the buffer had no room for from our own memory; say whether that is all of it."""
        held = self._store.lowest(first, last, MAX_RANGE)
        for sequence in held:
            data = self._store.get(sequence)
            if data is None or sequence not in stream.missing:
                continue
            if self._add(stream, sequence, data, now) is Arrival.NEW:
                self.repairs.arrived(sequence)
        return len(held) == last - first + 1

    def _hand_over(self, stream: Reassembly) -> None:
        for item in stream.take():
            if isinstance(item, Lost):
                self.counters.lost += item.last - item.first + 1
                self._events.append(item)
            else:
                self._deliver_run(item)

    def _deliver_run(self, run: Run) -> None:
        messages: list[Message] = []
        raw, seen, outbox = self.config.raw, self._seen, self.outbox
        for sequence, (payload, received_at) in enumerate(run.messages, run.first):
            envelope = None if raw else unwrap(payload)
            if envelope is None:
                messages.append(Message(sequence, received_at, payload, payload))
                continue
            if envelope.publisher == outbox.publisher:
                outbox.delivered(envelope.counter)
            if seen.add(envelope):
                messages.append(Message(sequence, received_at, payload[ENVELOPE_SIZE:], payload))
            else:
                self.counters.repeats += 1
        self.counters.delivered += len(messages)
        if messages:
            self._events.append(Delivered(messages))

    # Sending

    def _push(self, now: float) -> None:
        if not self.presence.connected or not len(self.outbox):
            return
        config = self.config
        datagrams: list[Datagram] = [
            encode_push(data, config.dialect, not config.subscribe) for data in self.outbox.due(now)
        ]
        if datagrams:
            self.counters.pushes += len(datagrams)
            self._effects.append(Send(datagrams, (self.backbone,)))

    def _request(self, first: int, last: int, now: float) -> None:
        if first <= last and self.repairs.bucket.take(1, now):
            self.repairs.note_asked(first, last, now)
            self._send_request(first, last)

    def _send_request(self, first: int, last: int) -> None:
        self.counters.requests += 1
        self._send(encode(Request(self.config.address, first, last)))

    def _send(self, datagram: bytes) -> None:
        self._effects.append(Send([datagram], (self.backbone,)))

    def _receive_datagram(self, datagram: Datagram, peer: Address, truncated: bool, now: float) -> None:
        try:
            packet = decode(datagram, truncated=truncated)
        except MalformedPacket as error:
            self._drop(error.reason, peer, str(error), now)
        else:
            self.receive(packet, peer, now)

    def _drop(self, reason: str, peer: Address, detail: str, now: float) -> None:
        event = self.drops.count(reason, peer, detail, now)
        if event is not None:
            self._events.append(event)
