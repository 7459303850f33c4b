"""Backbone node (documents 000 and 001): numbers messages, delivers them to subscribers and handles repair requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from math import ceil

from zope.interface import classImplements

from fyrehose_twisted._native import mypyc_attr
from fyrehose_twisted.datagrams import Batch, DatagramRun
from fyrehose_twisted.effects import Address, Burst, Datagram
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.events import (
    BackboneCounters,
    ClientExpired,
    ClientJoined,
    ClientTraffic,
    ExistingStreamDetected,
    NumbersExhausted,
    ServedClient,
    StreamClaimRejected,
)
from fyrehose_twisted.fyrehose.node.backbone.client_table import ClientTable, can_be_asked
from fyrehose_twisted.fyrehose.node.backbone.delivery import Delivery
from fyrehose_twisted.fyrehose.node.backbone.push_backlog import DUPLICATE_WINDOW, PushBacklog
from fyrehose_twisted.fyrehose.node.backbone.repair_dispatch import REFUSAL_TEXTS, RepairDispatcher
from fyrehose_twisted.fyrehose.node.backbone.sequencer import BackboneStart, SequenceCheckpoint, Sequencer
from fyrehose_twisted.fyrehose.node.backbone.stream_claims import StreamClaims
from fyrehose_twisted.fyrehose.node.base import DatagramNode, earliest
from fyrehose_twisted.fyrehose.wire.address import can_be_packed
from fyrehose_twisted.fyrehose.wire.codec import DATA_HEADER, encode
from fyrehose_twisted.fyrehose.wire.mac import MAX_WITH_MAC
from fyrehose_twisted.fyrehose.wire.packets import (
    AGAIN,
    ANY_ADDRESS,
    MAX_DELIVERABLE,
    MAX_SEQUENCE,
    Deliver,
    Flags,
    Forward,
    Group,
    Holding,
    Holds,
    Keepalive,
    Packet,
    PacketType,
    Push,
    Request,
    Status,
)
from fyrehose_twisted.fyrehose.wire.run_codec import (
    count_leading_pushes,
    decode_ranges,
    split_types,
)
from fyrehose_twisted.host_addresses import format_address
from fyrehose_twisted.interfaces import IDatagramNode, IForwardPolicy, Outputs
from fyrehose_twisted.token_bucket import KeyedTokenBuckets

SETTLE_TIME = 2.0
"""Seconds for which a backbone without a complete client table listens for clients: two keepalive intervals."""

STATUS_INTERVAL = 50e-6
"""Minimum number of seconds between two STATUS to a client that watches journals: at most 20,000 per second."""

# As numbers, because operators of IntFlag are slow, and every client sends a KEEPALIVE each second.
_EXTENSIONS, _NOSUBSCRIBE, _WATCHES = int(Flags.EXTENSIONS), int(Flags.NOSUBSCRIBE), int(Flags.WATCHES)
_MULTICAST, _LISTENING = int(Flags.MULTICAST), int(Flags.MULTICAST | Flags.HEARS | Flags.NOSUBSCRIBE)


class BackboneState(Enum):
    """State of a backbone."""

    SETTLING = "waiting for KEEPALIVEs of its clients"
    SERVING = "numbering messages"
    REFUSING = "stopped: a client holds messages of the stream, but the state file has no number"
    EXHAUSTED = "stopped: all numbers are assigned"
    STANDBY = "standing by: another member of the group numbers messages"
    TAKING_OVER = "asking its clients what they hold"


@mypyc_attr(allow_interpreted_subclasses=True)
class Backbone(DatagramNode):
    """Node of one backbone.

    :ivar repair_dispatcher: handler of repair requests.

    :param start: what is known of the stream; by default, that it is new.
    :param now: start time.
    :param own_address: returns the address at which a given client reaches this backbone.
    :param is_own: returns whether an address is one of this backbone.
    """

    def __init__(
        self,
        config: BackboneConfig,
        policy: IForwardPolicy,
        start: BackboneStart | None = None,
        *,
        own_address: Callable[[Address], Address] = lambda peer: ANY_ADDRESS,
        is_own: Callable[[Address], bool] = lambda address: False,
        now: float = 0.0,
    ) -> None:
        super().__init__()
        start = BackboneStart() if start is None else start
        self.config = config
        self.state = BackboneState.SERVING if start.settle_until is None else BackboneState.SETTLING
        self.counters = BackboneCounters()
        self._settle_until = start.settle_until
        self._query_clients = start.query_clients
        self._own_address = own_address
        self._is_own = is_own
        self._claims = StreamClaims()
        self._push_backlog = PushBacklog()
        self._client_table = ClientTable(config)
        self._number_from(Sequencer(start.last, start.bound), policy, now)
        self._now = now
        self._request_budgets: KeyedTokenBuckets[Address] = KeyedTokenBuckets(
            config.request_rate, config.request_burst, config.max_clients
        )
        self._watchers_outdated = False
        self._watchers_due_at = now
        self._persisted = self.sequencer.checkpoint
        self._output.events += [
            ClientJoined(client, was_known=True) for client in self._client_table.restore(start.known_clients, now)
        ]
        if self.sequencer.remaining == 0:
            self._exhaust()

    @property
    def clients(self) -> list[ServedClient]:
        """Current clients, in order of expiry."""
        return list(self._client_table)

    @property
    def listener_count(self) -> int:
        """Number of clients that hear the multicast group."""
        return self._client_table.audience.listeners

    @property
    def unlisted(self) -> ClientTraffic:
        """Traffic of addresses that publish without being clients."""
        return self._client_table.unlisted

    def reconfigure(self, config: BackboneConfig) -> None:
        """Apply new limits.

        Current clients stay. A client that is no longer allowed is refused at its next KEEPALIVE and then expires.
        """
        self.config = config
        self._client_table.config = config
        self._client_table.macs.set_secret(config.secret)
        self._request_budgets.rate, self._request_budgets.burst = config.request_rate, config.request_burst
        self._request_budgets.limit = config.max_clients
        self.repair_dispatcher.reconfigure(config)

    def receive_batch(self, batch: Batch, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IDatagramNode.receive_batch`."""
        self._now = now
        self._expire(now)
        for whole in batch.runs:
            self.counters.datagrams += whole.rows
            for run in split_types(batch.buffer, whole):
                self._receive_run(batch, run, now)

    def _receive_run(self, batch: Batch, run: DatagramRun, now: float) -> None:
        """Handle datagrams whose first bytes are equal: those that allow it in one piece, the others one by one."""
        pushes = self._count_publishable(batch, run, now)
        if pushes and batch.buffer[run.start] & AGAIN:
            self._delivery.publish_again(batch, run, pushes, now)
        elif pushes:
            self._delivery.publish_run(batch, run, pushes, now)
        if pushes == run.rows or (run.rows > 1 and self._requests_received(batch, run, now)):
            return
        for row, datagram in enumerate(batch.datagrams(run)):
            if row >= pushes:
                self._receive_datagram(datagram, run.peer, run.truncated, now)

    @property
    def mac_clients(self) -> int:
        """Number of clients that get MACs."""
        return sum(self._client_table.macs.is_taken(client.flags) for client in self._client_table)

    def _admits(self, packet: Packet, peer: Address, now: float) -> bool:
        if not isinstance(packet, Deliver):
            return True
        client = self._client_table.get_by_source(peer) or self._client_table.get(peer)
        reason = self._client_table.macs.refusal_reason(packet, 0 if client is None else client.flags)
        if reason is not None:
            self._drop(reason, peer, f"DELIVER {packet.sequence} of a client ({reason})", now)
        return reason is None

    def receive(self, packet: Packet, peer: Address, now: float) -> None:
        """Handle a packet from ``peer``."""
        match packet:
            case Push():
                self.push_received(packet, peer, now)
            case Keepalive():
                self.keepalive_received(packet, peer, now)
            case Request():
                self.request_received(packet, peer, now)
            case Holds():
                self.holds_received(packet, peer, now)
            case Deliver(sequence) if self.state is BackboneState.SETTLING and self._claims.is_queried(peer):
                self._claims.add(peer, sequence)
                if self.config.secret is not None or self._claims.is_confirmed:
                    self._refuse_stream(peer, sequence)
            case Deliver() if self.repair_dispatcher.fetched(packet, peer, now):
                pass
            case _:
                kind = type(packet).__name__.upper()
                self._drop("unexpected", peer, f"{kind} is for clients, not for a backbone", now)

    def push_received(self, push: Push, peer: Address, now: float) -> None:
        """Number a message and deliver it to all subscribers (000, backbone rules 3 and 5)."""
        if not self._client_table.may_push(peer):
            self._drop("push_not_allowed", peer, "PUSH from an address that may not publish", now)
        elif len(push.data) > self._max_data:
            self._drop("too_long", peer, f"PUSH of {len(push.data)} bytes cannot be delivered over IPv4", now)
        elif self._push_backlog.is_duplicate(push.data):
            self.drops.counts["held_already"] += 1
        elif push.again and self.repair_dispatcher.redeliver(push.data, peer):
            self.counters.repeated += 1
        elif self.repair_dispatcher.publish_allowance(now) <= 0:
            self.drops.counts["repairs_behind"] += 1
        elif self._must_wait(now):
            if not self._push_backlog.add(push, peer):
                self._drop("not_numbering", peer, f"PUSH while {self.state.value}, and the queue is full", now)
        else:
            self._publish(push, peer, now)

    def keepalive_received(self, keepalive: Keepalive, peer: Address, now: float) -> None:
        """Serve a client for the next 5 s and acknowledge (000, backbone rules 1 and 2), or refuse it silently."""
        self.counters.keepalives += 1
        address = _resolve_address(keepalive.address, peer)
        refusal = self._refusal_reason(keepalive, address, peer, now)
        if refusal is not None:
            self._drop(refusal, peer, f"KEEPALIVE for {format_address(address)} refused ({refusal})", now)
            return
        joined = self._client_table.renew(keepalive, address, peer, now, last=self.last_given)
        if joined is not None:
            self._output.events.append(ClientJoined(joined))
        if client := self._client_table.get(address):
            client.traffic.subscribe(self.counters, not client.flags & _NOSUBSCRIBE)
        self._acknowledge(keepalive, address, now)
        if self._query_clients and self.state is BackboneState.SETTLING and not keepalive.flags & Flags.NOJOURNAL:
            self._query(address, keepalive.flags)

    def _query(self, client: Address, flags: int) -> None:
        """Ask a client for messages of the stream, if it understands a FORWARD with the address of this backbone."""
        own = self._own_address(client)
        if can_be_asked(client, flags) and can_be_packed(own):
            self._claims.record_query(client)
            with_macs = self._client_table.macs.is_taken(flags)
            self._send(encode(Forward(own, 1, MAX_SEQUENCE, with_macs)), client)

    def holds_received(self, holds: Holds, peer: Address, now: float) -> None:
        """Record the progress of a durable journal."""
        client = self._client_table.get_by_source(peer)
        if client is None or not client.flags & Flags.DURABLE or client.token != holds.token:
            self._drop("holds_of_stranger", peer, "HOLDS from an address that is not a durable journal", now)
            return
        self._watchers_outdated |= client.holds is None or client.holds.holding != holds.holding
        client.holds = holds

    def request_received(self, request: Request, peer: Address, now: float) -> None:
        """Repair messages of a client (000, backbone rule 4).

        The backbone sends messages that are in its retransmit buffer, and forwards requests for older ones to clients.
        """
        self.counters.requests += 1
        address = _resolve_address(request.address, peer)
        if not self._client_table.may_request(address, peer):
            detail = f"REQUEST for {format_address(address)}, which is not a client"
            self._drop("request_for_stranger", peer, detail, now)
            return
        if not self._request_budgets.bucket(address, now).take(1, now):
            self._drop("request_rate", peer, f"more than {self.config.request_rate:g} REQUESTs a second", now)
            return
        if client := self._client_table.get(address):
            client.traffic.requests += 1
            client.traffic.requested_at = now
        refusal = self._repair(address, request.first, min(request.last, self.sequencer.last), now)
        if refusal is not None:
            self._drop(refusal, peer, f"REQUEST for {request.first} to {request.last}: {REFUSAL_TEXTS[refusal]}", now)

    def _requests_received(self, batch: Batch, run: DatagramRun, now: float) -> bool:
        """Handle a run of REQUESTs, as :meth:`request_received` does one by one, if all are answered at once.

        :return: whether they were. If not, nothing has changed.
        """
        requests = decode_ranges(batch.buffer, run) if batch.buffer[run.start] == PacketType.REQUEST else None
        if requests is None or self.state is not BackboneState.SERVING:
            return False
        address, ranges = _resolve_address(requests[0], run.peer), requests[1]
        client = self._client_table.get(address)
        if client is None or not self._client_table.may_request(address, run.peer):
            return False
        budget = self._request_budgets.bucket(address, now)
        if budget.available(now) < len(ranges) or not self._repair_run(address, ranges, now):
            return False
        budget.spend(len(ranges))
        self.counters.requests += len(ranges)
        client.traffic.requests += len(ranges)
        client.traffic.requested_at = now
        return True

    def tick(self, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.tick`."""
        self._now = now
        self._expire(now)
        self.repair_dispatcher.tick(now)
        self._send_beacon(now)
        due = self._settle_deadline
        if due is None or now < due:
            return
        if self.state is BackboneState.SETTLING:
            self._end_settling(now)
        else:
            self._forget_backlog()

    def next_deadline(self) -> float | None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.next_deadline`."""
        told_at = self._watchers_due_at if self._watchers_outdated else None
        repair_at = self.repair_dispatcher.next_deadline(self._now)
        beacon_at = self._client_table.audience.next_beacon(self._now) if self._numbers_messages else None
        return earliest(self._client_table.next_expiry(), self._settle_deadline, repair_at, told_at, beacon_at)

    @property
    def _last_announced(self) -> int:
        """The last number, once this backbone has given one: until then it may have skipped the latest."""
        return self.sequencer.last if self.counters.published else 0

    @property
    def last_given(self) -> int:
        """Last number that is known to have been given."""
        return self.sequencer.last

    def _make_status(self, token: bytes, *, watches: bool) -> Status:
        """Return the STATUS for the client with this token; ``watches`` means that it watches journals."""
        return self.repair_dispatcher.make_status(token, self._last_announced, watches=watches, reported=self._reported)

    def _reported(self, holding: Holding) -> tuple[Holding, ...]:
        """Return what publishers are told of the progress of a journal."""
        return (holding,)

    @property
    def _settle_deadline(self) -> float | None:
        """End of settling, or the expiry of the messages queued meanwhile."""
        if self._settle_until is not None and self.state is BackboneState.SETTLING:
            return self._settle_until
        if self._settle_until is not None and self._push_backlog.has_known_messages:
            return self._settle_until + DUPLICATE_WINDOW
        return None

    def drain(self) -> Outputs:
        """See :meth:`~fyrehose_twisted.interfaces.INode.drain`; ``persist`` is a ``Mark``."""
        if self._watchers_outdated and self._now >= self._watchers_due_at:
            self._watchers_outdated = False
            self._watchers_due_at = self._now + STATUS_INTERVAL * len(self._client_table.watchers)
            self.repair_dispatcher.notify_watchers(lambda token: self._make_status(token, watches=True))
        self._delivery.flush_replies()
        effects, events = self._output.take()
        checkpoint = self.sequencer.checkpoint
        changes = self._client_table.take_changes()
        if checkpoint == self._persisted and not changes:
            return Outputs(None, effects, events)
        self._persisted = checkpoint
        return Outputs(SequenceCheckpoint(*checkpoint, changes), effects, events)

    def _count_publishable(self, batch: Batch, run: DatagramRun, now: float) -> int:
        """Return how many messages at the beginning of a run can be numbered where they lie."""
        if self.state is not BackboneState.SERVING or not self._client_table.may_push(run.peer):
            return 0
        pushes = count_leading_pushes(batch.buffer, run)
        fit = pushes < self.sequencer.remaining and run.size - DATA_HEADER.size <= self._max_data
        if not fit or self._push_backlog.has_duplicate(batch, run):
            return 0
        room = self.repair_dispatcher.publish_allowance(now)
        return pushes if room >= pushes * run.size else max(0, ceil(room / run.size))

    @property
    def _max_data(self) -> int:
        """Maximum size in bytes of DATA that all clients can get."""
        return MAX_WITH_MAC if self._client_table.subscribers_with_macs else MAX_DELIVERABLE

    def _publish(self, push: Push, peer: Address, now: float) -> None:
        if self.state is not BackboneState.SERVING:
            self._drop("not_numbering", peer, f"PUSH while {self.state.value}", now)
            return
        self._delivery.publish(push, peer, now)
        if self.sequencer.remaining == 0:
            self._exhaust()

    def _send(self, datagrams: Datagram | Burst, peer: Address) -> None:
        self._delivery.send(datagrams, peer)

    def _number_from(self, sequencer: Sequencer, policy: IForwardPolicy, now: float) -> None:
        """Number messages with ``sequencer``, and repair only what it has numbered."""
        self.sequencer = sequencer
        self.repair_dispatcher = RepairDispatcher(
            self.config, policy, self._client_table, self.counters, sequencer.last, now, self._own_address
        )
        self._delivery = Delivery(sequencer, self.repair_dispatcher, self._client_table, self.counters, self._output)

    def _refusal_reason(self, keepalive: Keepalive, address: Address, peer: Address, now: float) -> str | None:
        if self._is_own(address):
            return "own_address"
        return self._client_table.refusal_reason(keepalive, address, peer, now)

    def _expire(self, now: float) -> None:
        for client in self._client_table.expire(now):
            self._request_budgets.forget(client.address)
            self.repair_dispatcher.forget(client.address)
            self._output.events.append(ClientExpired(client))
            self._client_expired(client)

    def _end_settling(self, now: float) -> None:
        """Number the waiting PUSHes, unless the only queried client holds messages of the stream."""
        claim, others = self._claims.first, self._claims.unconfirmed_count
        if claim is not None and not others:
            self._refuse_stream(*claim)
            return
        if claim is not None:
            self._output.events.append(StreamClaimRejected(*claim, others))
        self.state = BackboneState.SERVING
        for push, peer in self._push_backlog.release():
            self._publish(push, peer, now)

    def _acknowledge(self, keepalive: Keepalive, address: Address, now: float) -> None:
        """Answer the KEEPALIVE of an admitted client."""
        if keepalive.flags & _EXTENSIONS:
            # The STATUS precedes the ACK, because the client starts to look for the oldest message upon the ACK.
            status = self._make_status(keepalive.token, watches=bool(keepalive.flags & _WATCHES))
            self._send(encode(status), address)
        group = self.config.multicast
        macs = self._client_table.macs
        may_listen = not macs.is_open or macs.is_taken(keepalive.flags)
        if may_listen and group is not None and keepalive.flags & _LISTENING == _MULTICAST and ":" not in address[0]:
            self._send(encode(Group(keepalive.token, group)), address)
        self._send(encode(macs.make_ack(keepalive.token, keepalive.flags)), address)

    def _repair(self, address: Address, first: int, last: int, now: float) -> str | None:
        """Send or request ``first`` to ``last`` for a client. Return the reason if that is impossible."""
        return self.repair_dispatcher.request(address, first, last, now)

    def _repair_run(self, address: Address, ranges: Sequence[tuple[int, int]], now: float) -> bool:
        """Send all of ``ranges`` to a client, if that is possible at once. Return whether it was."""
        return ranges[-1][1] <= self.sequencer.last and self.repair_dispatcher.request_run(address, ranges, now)

    @property
    def _numbers_messages(self) -> bool:
        """Whether this backbone numbers messages, or is about to."""
        return self.state is BackboneState.SERVING or self.state is BackboneState.SETTLING

    def _send_beacon(self, now: float) -> None:
        audience = self._client_table.audience
        beacon = audience.take_beacon(now) if self._numbers_messages else None
        if beacon is not None and audience.group is not None:
            self._send(beacon, audience.group)

    def _forget_backlog(self) -> None:
        self._push_backlog.forget()

    def _must_wait(self, now: float) -> bool:
        """Return whether a PUSH has to wait."""
        return self.state is BackboneState.SETTLING

    def _client_expired(self, client: ServedClient) -> None:
        """Called when a client has expired."""

    def _refuse_stream(self, peer: Address, sequence: int) -> None:
        self.state = BackboneState.REFUSING
        self._output.events.append(ExistingStreamDetected(peer, sequence))
        self.drops.counts["not_numbering"] += len(self._push_backlog.release())
        self._push_backlog.forget()

    def _exhaust(self) -> None:
        self.state = BackboneState.EXHAUSTED
        self._output.events.append(NumbersExhausted())


classImplements(Backbone, IDatagramNode)


def _resolve_address(address: Address, peer: Address) -> Address:
    host, port = address
    return (peer[0] if host == ANY_ADDRESS[0] else host, port or peer[1])
