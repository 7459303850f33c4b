"""The backbone's rules (documents 000 and 001): number every message, fan it out, introduce who misses to who has."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from zope.interface import implementer

from fyrehose_twisted.effects import Address, Datagram, Send
from fyrehose_twisted.errors import MalformedPacket
from fyrehose_twisted.fyrehose.admission import token_is_valid
from fyrehose_twisted.fyrehose.batch import VECTOR_MINIMUM, Columns, number, scan
from fyrehose_twisted.fyrehose.codec import decode, encode, encode_deliver
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.drops import Drops
from fyrehose_twisted.fyrehose.envelope import Envelope, unwrap
from fyrehose_twisted.fyrehose.events import Client, ClientExpired, ClientJoined, Exhausted, StreamKnown
from fyrehose_twisted.fyrehose.messages import (
    ANY_ADDRESS,
    MAX_DELIVERABLE,
    MAX_SEQUENCE,
    Deliver,
    Flags,
    Forward,
    Keepalive,
    KeepaliveAck,
    Packet,
    PacketType,
    Push,
    Request,
)
from fyrehose_twisted.fyrehose.numbering import Mark, Numbering
from fyrehose_twisted.fyrehose.pacing import Buckets
from fyrehose_twisted.interfaces import Drained, IDatagramNode, IForwardPolicy
from fyrehose_twisted.net.batch import Batch

CLIENT_LIFETIME = 5.0
"""Seconds for which a KEEPALIVE keeps a client (000, backbone rule 2)."""

SETTLE_TIME = 2.0
"""Seconds that a backbone without memory listens for clients who remember: a keepalive interval, and time to answer."""

RESTART_TIME = 1.25
"""Seconds that a backbone with memory waits: by then every living client has sent a KEEPALIVE, and nothing is numbered
that nobody would get."""

HELD_MESSAGES, HELD_BYTES = 4_096, 8 * 2**20
"""What may wait to be numbered in that time."""


class Phase(Enum):
    """What a backbone is doing."""

    SETTLING = "waiting for clients to say that they are there"
    SERVING = "numbering messages"
    REFUSING = "a client knows the stream, and this backbone does not"
    EXHAUSTED = "the last number has been given"


@dataclass(slots=True)
class BackboneCounters:
    """What happened since the start. Drops are counted by reason in :attr:`Backbone.drops`."""

    datagrams: int = 0
    published: int = 0
    published_bytes: int = 0
    delivered: int = 0
    delivered_bytes: int = 0
    keepalives: int = 0
    requests: int = 0
    forwards: int = 0


@implementer(IDatagramNode)
class Backbone:
    """One backbone as a node.

    :param last: the last number given, 0 for none.
    :param bound: the highest number for which no new :class:`~fyrehose_twisted.fyrehose.numbering.Mark` is needed.
    :param settle_until: number nothing before this time; what is pushed meanwhile waits.
    :param ask: ask clients while settling what they know of the stream, and number nothing at all if they do.
    :param own_address: where a given client can reach this backbone; used while settling.
    """

    def __init__(
        self,
        config: BackboneConfig,
        policy: IForwardPolicy,
        *,
        last: int = 0,
        bound: int = 0,
        settle_until: float | None = None,
        ask: bool = False,
        own_address: Callable[[Address], Address] = lambda peer: ANY_ADDRESS,
    ) -> None:
        self.config = config
        self.numbering = Numbering(last, bound)
        self.phase = Phase.SERVING if settle_until is None else Phase.SETTLING
        self.drops = Drops()
        self.counters = BackboneCounters()
        self._policy = policy
        self._settle_until = settle_until
        self._ask = ask
        self._own_address = own_address
        self._asked: set[Address] = set()
        self._held: list[tuple[Push, Address]] = []
        self._held_bytes = 0
        self._held_envelopes: set[Envelope] = set()
        self._clients: OrderedDict[Address, Client] = OrderedDict()
        self._sources: dict[Address, Address] = {}
        self._subscribers: tuple[Address, ...] = ()
        self._journals: tuple[Address, ...] = ()
        self._requests: Buckets[Address] = Buckets(config.request_rate, config.request_burst, config.max_clients)
        self._persisted = self.numbering.mark
        self._effects: list[Send] = []
        self._events: list[object] = []
        self._fan_out: list[Datagram] | None = None
        if self.numbering.left == 0:
            self._exhaust()

    @property
    def clients(self) -> list[Client]:
        """The living clients, the one that expires first at the front."""
        return list(self._clients.values())

    def receive_batch(self, batch: Batch, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IDatagramNode.receive_batch`."""
        self._expire(now)
        self.counters.datagrams += len(batch)
        if len(batch) < VECTOR_MINIMUM:
            for datagram, peer, truncated in batch:
                self._receive_datagram(datagram, peer, truncated, now)
            return
        columns = scan(batch)
        kinds = columns.kinds.tolist()
        truncated_rows = set(batch.truncated)
        row, end = 0, len(kinds)
        while row < end:
            if kinds[row] != PacketType.PUSH or self.phase is not Phase.SERVING:
                self._receive_datagram(batch[row], batch.peers[row], row in truncated_rows, now)
                row += 1
                continue
            start = row
            while row < end and kinds[row] == PacketType.PUSH and self._may_push(batch.peers[row]):
                row += 1
            if row > start:
                self._publish_run(batch, columns, start, row, now)
            else:
                self._drop("push_not_allowed", batch.peers[row], "PUSH from an address that may not publish", now)
                row += 1

    def receive(self, packet: Packet, peer: Address, now: float) -> None:
        """One packet arrived from ``peer``."""
        match packet:
            case Push():
                self.push_received(packet, peer, now)
            case Keepalive():
                self.keepalive_received(packet, peer, now)
            case Request():
                self.request_received(packet, peer, now)
            case Deliver(sequence) if self.phase is Phase.SETTLING and peer in self._asked:
                self.phase = Phase.REFUSING
                self._events.append(StreamKnown(peer, sequence))
            case _:
                kind = type(packet).__name__.upper()
                self._drop("unexpected", peer, f"{kind} is for clients, not for a backbone", now)

    def push_received(self, push: Push, peer: Address, now: float) -> None:
        """Number a message and send it to all subscribers (000, backbone rules 3 and 5)."""
        if not self._may_push(peer):
            self._drop("push_not_allowed", peer, "PUSH from an address that may not publish", now)
        elif len(push.data) > MAX_DELIVERABLE:
            self._drop("too_long", peer, f"PUSH of {len(push.data)} bytes cannot be delivered over IPv4", now)
        elif self.phase is Phase.SETTLING:
            self._hold(push, peer, now)
        elif self.phase is Phase.SERVING:
            sequence = self.numbering.take(1, now)
            self._deliver([encode_deliver(sequence, push.data)], len(push.data))
            if push.confirm:
                self._confirm(encode_deliver(sequence, push.data), peer)
            if self.numbering.left == 0:
                self._exhaust()
        else:
            self._drop("not_numbering", peer, f"PUSH while {self.phase.value}", now)

    def keepalive_received(self, keepalive: Keepalive, peer: Address, now: float) -> None:
        """Admit a client for the next 5 s and say so (000, backbone rules 1 and 2), or refuse it in silence."""
        self.counters.keepalives += 1
        address = _resolve(keepalive.address, peer)
        refusal = self._refusal(keepalive, address, peer, now)
        if refusal is not None:
            self._drop(refusal, peer, f"KEEPALIVE for {address[0]}:{address[1]} refused ({refusal})", now)
            return
        client = self._clients.get(address)
        if client is None:
            client = Client(address, peer, keepalive.flags, keepalive.dialect, now + CLIENT_LIFETIME)
            self._clients[address] = client
            self._events.append(ClientJoined(client))
            self._regroup()
        else:
            regroup = client.flags != keepalive.flags
            if client.source != peer and self._sources.get(client.source) == address:
                del self._sources[client.source]
            client.source, client.flags, client.dialect = peer, keepalive.flags, keepalive.dialect
            client.expires_at = now + CLIENT_LIFETIME
            self._clients.move_to_end(address)
            if regroup:
                self._regroup()
        self._sources[peer] = address
        self._send(encode(KeepaliveAck(keepalive.token)), address)
        if self._ask and self.phase is Phase.SETTLING and not keepalive.flags & Flags.NOJOURNAL:
            self._asked.add(address)
            self._send(encode(Forward(self._own_address(address), 1, MAX_SEQUENCE)), address)

    def request_received(self, request: Request, peer: Address, now: float) -> None:
        """Pass a REQUEST of a living client on to another one (000, backbone rule 4)."""
        self.counters.requests += 1
        address = _resolve(request.address, peer)
        client = self._clients.get(address)
        # What a client admitted by its token may do, others on its host may not.
        compared = 1 if self.config.secret is None else 2
        if client is None or client.source[:compared] != peer[:compared]:
            self._drop(
                "request_for_stranger",
                peer,
                f"REQUEST for {address[0]}:{address[1]}, not a client of its own",
                now,
            )
            return
        if not self._requests.bucket(address, now).take(1, now):
            self._drop("request_rate", peer, f"more than {self.config.request_rate:g} REQUESTs a second", now)
            return
        journal = self._policy.choose(self._journals, address)
        if journal is None:
            self._drop("request_unanswerable", peer, "REQUEST, and no other client keeps messages", now)
            return
        self.counters.forwards += 1
        self._send(encode(Forward(address, request.first, request.last)), journal)

    def tick(self, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.tick`."""
        self._expire(now)
        if self.phase is Phase.SETTLING and self._settle_until is not None and now >= self._settle_until:
            self.phase = Phase.SERVING
            held, self._held = self._held, []
            self._held_envelopes.clear()
            for push, peer in held:
                self.push_received(push, peer, now)

    def next_deadline(self) -> float | None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.next_deadline`."""
        deadline = next(iter(self._clients.values())).expires_at if self._clients else None
        if self.phase is Phase.SETTLING and self._settle_until is not None:
            return self._settle_until if deadline is None else min(deadline, self._settle_until)
        return deadline

    def drain(self) -> Drained:
        """See :meth:`~fyrehose_twisted.interfaces.INode.drain`; ``persist`` is a ``Mark``."""
        effects, self._effects = self._effects, []
        events, self._events = self._events, []
        self._fan_out = None
        persist: Mark | None = None
        if self.numbering.mark != self._persisted:
            persist = self._persisted = self.numbering.mark
        return Drained(persist, effects, events)

    def _receive_datagram(self, datagram: Datagram, peer: Address, truncated: bool, now: float) -> None:
        try:
            packet = decode(datagram, truncated=truncated)
        except MalformedPacket as error:
            self._drop(error.reason, peer, str(error), now)
        else:
            self.receive(packet, peer, now)

    def _publish_run(self, batch: Batch, columns: Columns, start: int, stop: int, now: float) -> None:
        longest = columns.lengths[start:stop].max()
        if longest > MAX_DELIVERABLE or stop - start >= self.numbering.left:
            for row in range(start, stop):
                self._receive_datagram(batch[row], batch.peers[row], False, now)
            return
        first = self.numbering.take(stop - start, now)
        datagrams = number(batch, columns, start, stop, first)
        self._deliver(datagrams, int(columns.lengths[start:stop].sum()))
        for offset in columns.confirms[start:stop].nonzero()[0].tolist():
            self._confirm(datagrams[offset], batch.peers[start + offset])

    def _deliver(self, datagrams: list[Datagram], data_bytes: int) -> None:
        counters = self.counters
        counters.published += len(datagrams)
        counters.published_bytes += data_bytes
        counters.delivered += len(datagrams) * len(self._subscribers)
        counters.delivered_bytes += data_bytes * len(self._subscribers)
        if not self._subscribers:
            return
        if self._fan_out is not None:
            self._fan_out.extend(datagrams)
            return
        self._fan_out = datagrams
        self._effects.append(Send(datagrams, self._subscribers))

    def _confirm(self, datagram: Datagram, peer: Address) -> None:
        client = self._clients.get(peer)
        if client is None or client.flags & Flags.NOSUBSCRIBE:
            self._send(datagram, peer)

    def _send(self, datagram: Datagram, peer: Address) -> None:
        self._fan_out = None
        self._effects.append(Send([datagram], (peer,)))

    def _may_push(self, peer: Address) -> bool:
        config = self.config
        if config.secret is not None and peer not in self._sources:
            return False
        if config.allow is not None and not config.allow.permits(peer[0]):
            return False
        return config.allow_push is None or config.allow_push.permits(peer[0])

    def _refusal(self, keepalive: Keepalive, address: Address, peer: Address, now: float) -> str | None:
        config = self.config
        if config.allow is not None and not config.allow.permits(peer[0]):
            return "not_allowed"
        if not config.trust_addresses and address[0] != peer[0]:
            return "foreign_address"
        if config.secret is not None:
            explicit = keepalive.address[0] != ANY_ADDRESS[0] and keepalive.address[1] != 0
            if not explicit or not (config.trust_addresses or keepalive.address == peer):
                return "foreign_address"
            if not token_is_valid(config.secret, keepalive, now):
                return "token"
        if address not in self._clients and len(self._clients) >= config.max_clients:
            return "table_full"
        return None

    def _hold(self, push: Push, peer: Address, now: float) -> None:
        envelope = unwrap(push.data)
        if envelope in self._held_envelopes:
            return  # The publisher grew impatient; two numbers for one message would serve nobody.
        if len(self._held) >= HELD_MESSAGES or self._held_bytes + len(push.data) > HELD_BYTES:
            self._drop("not_numbering", peer, f"PUSH while {self.phase.value}, and enough of them wait already", now)
            return
        self._held.append((push, peer))
        if envelope is not None:
            self._held_envelopes.add(envelope)
        self._held_bytes += len(push.data)

    def _expire(self, now: float) -> None:
        expired = False
        while self._clients:
            client = next(iter(self._clients.values()))
            if client.expires_at > now + CLIENT_LIFETIME:
                self._clock_set_back(now)
            if client.expires_at > now:
                break
            del self._clients[client.address]
            if self._sources.get(client.source) == client.address:
                del self._sources[client.source]
            self._requests.forget(client.address)
            self._events.append(ClientExpired(client))
            expired = True
        if expired:
            self._regroup()

    def _clock_set_back(self, now: float) -> None:
        # Or the client at the front, alive until the old time comes again, keeps the others from expiring.
        for client in self._clients.values():
            client.expires_at = min(client.expires_at, now + CLIENT_LIFETIME)

    def _regroup(self) -> None:
        self._fan_out = None
        clients = sorted(self._clients.values(), key=lambda client: client.address)
        self._subscribers = tuple(client.address for client in clients if not client.flags & Flags.NOSUBSCRIBE)
        self._journals = tuple(client.address for client in clients if not client.flags & Flags.NOJOURNAL)

    def _exhaust(self) -> None:
        self.phase = Phase.EXHAUSTED
        self._events.append(Exhausted())

    def _drop(self, reason: str, peer: Address, detail: str, now: float) -> None:
        event = self.drops.count(reason, peer, detail, now)
        if event is not None:
            self._events.append(event)


def _resolve(address: Address, peer: Address) -> Address:
    host, port = address
    return (peer[0] if host == ANY_ADDRESS[0] else host, port or peer[1])
