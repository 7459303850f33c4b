"""Invariants of repairs: reachable messages are not lost, and requests are forwarded."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.events import MessagesLost
from fyrehose_twisted.fyrehose.node.backbone.client_table import can_be_asked
from fyrehose_twisted.fyrehose.node.client.repair_responder import ANSWER_LIMIT
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import (
    DELIVER_KINDS,
    ClientInvariant,
    ClientsOfRun,
    FyrehoseInvariant,
    Participants,
    parse_deliver,
)
from fyrehose_twisted.fyrehose.simulation.participants import Participant
from fyrehose_twisted.fyrehose.wire.codec import decode
from fyrehose_twisted.fyrehose.wire.packets import WITH_MAC, Flags, Forward, PacketType, Request
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.observer import SimPacket

REFUSAL_REASONS = ("buffer_full", "implausible", "stopped", "forward_queue", "forward_requesters")
"""Drop reasons of refused repairs, at either end."""


FORWARD_KINDS = tuple(kind | mac for kind in (PacketType.FORWARD, PacketType.FORWARD6) for mac in (0, WITH_MAC))


class OwedRepair(NamedTuple):
    """FORWARD that arrived at a client which holds the number."""

    journal: Host
    boots: int
    forwarded_at: float
    drops: int
    """Number of packets that the two ends had refused by then."""


class LossOnlyAfterRetries(ClientInvariant):
    """A number is reported as lost only after all attempts, and only if faults prevented each of them: the REQUEST to
    the backbone, the FORWARD to a client that holds it, or the DELIVER from there."""

    name: ClassVar[str] = "no loss before all repair attempts"

    GRACE: ClassVar[float] = 1.0
    """Seconds for the answer to be sent and handled."""

    sent_kinds = (PacketType.REQUEST, *DELIVER_KINDS)

    def __init__(self, participants: ClientsOfRun) -> None:
        super().__init__(participants)
        self._by_address = {one.host.address: one for one in participants.clients}
        self._requested: dict[Host, list[tuple[int, int]]] = {one.host: [] for one in participants.clients}
        self._owed: dict[Host, dict[int, list[OwedRepair]]] = {one.host: {} for one in participants.clients}
        self._repairs_in_flight: dict[int, tuple[Host, Address, int]] = {}
        self._discarded_up_to = dict.fromkeys(self._requested, 0)

    def sent(self, packet: SimPacket) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if packet.source not in self._requested:
            return
        if packet.data[0] == PacketType.REQUEST:
            self._requested[packet.source].append(parse_range(packet.data))
        else:
            self._repairs_in_flight[packet.number] = packet.source, packet.to, parse_deliver(packet.data)[0]

    def arrived(self, packet: SimPacket, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        answer = self._repairs_in_flight.pop(packet.number, None)
        if packet.damaged or packet.truncated:
            # A damaged FORWARD creates no obligation, and a damaged answer counts as dropped.
            if answer is not None and host in self._owed:
                self._excuse(packet.source, host, answer[2])
        elif (
            self.participants.is_backbone(packet.source)
            and isinstance(packet.data, bytes)
            and packet.data[0] in FORWARD_KINDS
            and host in self.by_host
        ):
            self._record_owed(packet.data, self.by_host[host])

    def dropped(self, packet: SimPacket, reason: str) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if packet.data and packet.data[0] in DELIVER_KINDS and packet.source in self._requested:
            sequence = parse_deliver(packet.data)[0]
            self._repairs_in_flight.pop(packet.number, None)
            requester = self._by_address.get(packet.to)
            if requester is not None:
                self._excuse(packet.source, requester.host, sequence)

    def stopped(self, host: Host, description: str) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        self._excuse_host(host)
        if host in self._requested:
            self._requested[host].clear()

    def resumed(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        self._excuse_host(host)

    def paused(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        self._excuse_host(host)

    def event_emitted(self, host: Host, event: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if not isinstance(event, MessagesLost):
            return
        attempts = self.by_host[host].config.repair.attempts
        asked = [one for one in self._requested[host] if one[0] <= event.last and event.first <= one[1]]
        # Between two of these, all numbers were requested equally often.
        bounds = {event.first, *(first for first, _ in asked), *(last + 1 for _, last in asked)}
        for sequence in sorted(bounds.intersection(range(event.first, event.last + 1))):
            count = sum(first <= sequence <= last for first, last in asked)
            if count < attempts:
                self.violated(f"{sequence} reported as lost after {count} of {attempts} attempts", host)
        for sequence in [number for number in self._owed[host] if event.first <= number <= event.last]:
            self._check_owed(host, sequence)

    def sample(self) -> None:
        """Discard the state of delivered numbers."""
        for one in self.participants.clients:
            if not one.has_started:
                continue
            done = one.application.next or 0
            if done == self._discarded_up_to[one.host]:
                continue
            self._discarded_up_to[one.host] = done
            self._requested[one.host] = [request for request in self._requested[one.host] if request[1] >= done]
            owed = self._owed[one.host]
            for sequence in [sequence for sequence in owed if sequence < done]:
                del owed[sequence]

    def _record_owed(self, forward: bytes, journal: Participant) -> None:
        requester = self._by_address.get(_requester(forward))
        if requester is None or not requester.has_started or not journal.application.config.journal:
            return
        first, last = parse_range(forward)
        for sequence in journal.application.store.lowest(first, last, ANSWER_LIMIT):
            promise = OwedRepair(
                journal.host, journal.host.boots, self.network.now, _count_refusals(journal, requester)
            )
            self._owed[requester.host].setdefault(sequence, []).append(promise)

    def _check_owed(self, host: Host, sequence: int) -> None:
        for promise in self._owed[host].get(sequence, ()):
            journal = promise.journal
            if self.by_host[journal].application.store.get(sequence) is None:
                continue  # Messages in the batch of the FORWARD have displaced it.
            long_ago = self.network.now - promise.forwarded_at >= self.GRACE
            late = (journal, host.address, sequence) in self._repairs_in_flight.values()
            refused = _count_refusals(self.by_host[journal], self.by_host[host]) != promise.drops
            if long_ago and not (late or refused):
                seconds = self.network.now - promise.forwarded_at
                what = f"{sequence} reported as lost {seconds:.3f} s after a FORWARD to {journal.name}, which stores it"
                self.violated(what, host, journal)

    def _excuse(self, journal: Host, requester: Host, sequence: int) -> None:
        promises = self._owed[requester].get(sequence)
        if promises is not None:
            promises[:] = [promise for promise in promises if promise.journal is not journal]

    def _excuse_host(self, host: Host) -> None:
        if host in self._owed:
            self._owed[host].clear()
        for promises in self._owed.values():
            for held in promises.values():
                held[:] = [promise for promise in held if promise.journal is not host]


class HeldMessagesFound(FyrehoseInvariant):
    """A number is not reported as lost while a running client holds it. For scenarios with packet loss, but without
    crashes and partitions."""

    name: ClassVar[str] = "stored messages are repaired"

    def event_emitted(self, host: Host, event: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if not isinstance(event, MessagesLost):
            return
        others = [one for one in self.participants.clients if one.host is not host and one.host.up]
        for sequence in range(event.first, event.last + 1):
            for one in others:
                if one.application.config.journal and one.application.store.get(sequence) is not None:
                    self.violated(f"{sequence} reported as lost, but {one.name} stores it", host, one.host)


class RequestsForwarded(FyrehoseInvariant):
    """The backbone answers or forwards every REQUEST of a client if another client stores messages, and counts those
    that it refuses. It forwards no REQUEST for other hosts."""

    name: ClassVar[str] = "every REQUEST is forwarded or counted"

    sent_kinds = FORWARD_KINDS
    arrived_kinds = (PacketType.REQUEST,)

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self._excused = 0

    def started(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if host is self.participants.backbone.host:
            self._excused = 0

    def sent(self, packet: SimPacket) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        backbone = self.participants.backbone
        if packet.source is backbone.host:
            requester = _requester(packet.data)
            own = backbone.host.address, backbone.host.other_address
            served = {*own, *(client.address for client in backbone.node.clients)}
            if requester not in served:
                self.violated(f"FORWARD for {requester}, which is not a client", packet.source)

    def arrived(self, packet: SimPacket, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if host is self.participants.backbone.host:
            alive = [client for client in self.participants.backbone.node.clients if client.expires_at > host.now]
            source = packet.source.address_towards(packet.to)
            served = any(client.address == source for client in alive)
            others = any(
                not client.flags & Flags.NOJOURNAL and can_be_asked(client.address, client.flags)
                for client in alive
                if client.address != source
            )
            self._excused += not (served and others)

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        host = self.participants.backbone.host
        if not host.up:
            return
        counters, drops = self.participants.backbone.node.counters, self.participants.backbone.node.drops.counts
        refused = drops["request_for_stranger"] + drops["request_unanswerable"]
        handled = counters.answered + counters.routed + counters.beyond
        if counters.requests != handled + refused + drops["request_rate"]:
            self.violated(f"{counters.requests} REQUESTs, but {handled} handled and {refused} refused", host)
        if refused > self._excused:
            self.violated(f"{refused} REQUESTs refused, but only {self._excused} could not be forwarded", host)


def _count_refusals(journal: Participant, requester: Participant) -> int:
    counts = (one.application.client.drops.counts for one in (journal, requester))
    return sum(count[reason] for count in counts for reason in REFUSAL_REASONS)


def parse_range(datagram: bytes) -> tuple[int, int]:
    """Return the first and last number of a well-formed REQUEST or FORWARD."""
    packet = decode(datagram)
    assert isinstance(packet, Request | Forward), "only these are parsed"
    return packet.first, packet.last


def _requester(forward: bytes) -> Address:
    packet = decode(forward)
    assert isinstance(packet, Forward), "only these are parsed"
    return packet.address
