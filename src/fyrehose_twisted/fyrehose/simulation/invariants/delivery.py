"""Invariants of numbering, delivery and progress that hold in every fyrehose scenario."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import MalformedPacket
from fyrehose_twisted.fyrehose.events import (
    ClientFailed,
    Message,
    MessagesDelivered,
    MessagesExpired,
    MessagesLost,
    MessagesPublished,
)
from fyrehose_twisted.fyrehose.node.backbone.backbone import BackboneState
from fyrehose_twisted.fyrehose.node.backbone.sequencer import SequenceCheckpoint
from fyrehose_twisted.fyrehose.simulation.participants import Application, BackboneHost, Participant
from fyrehose_twisted.fyrehose.wire.codec import DATA_HEADER, decode
from fyrehose_twisted.fyrehose.wire.envelope import Envelope, unwrap
from fyrehose_twisted.fyrehose.wire.packets import (
    AGAIN,
    ANY_ADDRESS,
    CONFIRM,
    WITH_MAC,
    Flags,
    Keepalive,
    PacketType,
    Push,
)
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.invariants import Invariant
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.observer import SimPacket

ADVERSARY = "stranger"
"""Name of the host that sends arbitrary datagrams."""


DELIVER_KINDS = (int(PacketType.DELIVER), PacketType.DELIVER | WITH_MAC)

PUSH_KINDS = tuple(PacketType.PUSH | flags for flags in (0, CONFIRM, AGAIN, CONFIRM | AGAIN))
"""First bytes of PUSHes."""


class ClientsOfRun(Protocol):
    """Network and clients of a run, with one backbone or several."""

    @property
    def network(self) -> Network:
        """Network."""

    @property
    def clients(self) -> list[Participant]:
        """Clients."""

    def is_backbone(self, host: Host) -> bool:
        """Return whether ``host`` runs a backbone."""


class Participants(NamedTuple):
    """Network, backbone and clients of a run."""

    network: Network
    backbone: BackboneHost
    clients: list[Participant]

    def is_backbone(self, host: Host) -> bool:
        """See :class:`ClientsOfRun`."""
        return host is self.backbone.host


class ClientInvariant(Invariant):
    """Base of the invariants of clients, whatever number of backbones there is."""

    def __init__(self, participants: ClientsOfRun) -> None:
        super().__init__(participants.network)
        self.participants = participants
        self.by_host = {one.host: one for one in participants.clients}


class FyrehoseInvariant(ClientInvariant):
    """Base of the invariants of a stream with one backbone."""

    participants: Participants

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)


class NumberedMessages(ClientInvariant):
    """Base of the invariants that record the messages.

    :ivar truth: DATA by number, as first sent by a backbone.
    :ivar last: highest number.
    """

    name: ClassVar[str] = "one message per number"

    def __init__(self, participants: ClientsOfRun) -> None:
        super().__init__(participants)
        self.truth: dict[int, bytes] = {}
        self.last = 0

    def is_deliverable(self, sequence: int) -> bool:
        """Return whether a message is one for applications, and still part of the stream."""
        return True

    def deliverable(self, first: int, last: int) -> Iterable[int]:
        """Return the numbers from ``first`` to ``last`` that are deliverable, if they were given."""
        return range(first, last + 1)


class NumbersDurableFirst(NumberedMessages):
    """The backbone assigns each number once, and only after the assignment is durable."""

    sent_kinds: ClassVar[tuple[int, ...]] = DELIVER_KINDS

    participants: Participants

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)

    def sent(self, packet: SimPacket) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if packet.source.name != ADVERSARY:
            self.deliver_sent(packet.source, *parse_deliver(packet.data))

    def deliver_sent(self, source: Host, sequence: int, data: bytes) -> None:
        """Check a DELIVER that ``source`` sends."""
        if source is not self.participants.backbone.host:
            return
        known = self.truth.setdefault(sequence, data)
        if known is data:
            self.last = max(self.last, sequence)
            mark = source.persisted
            if not isinstance(mark, SequenceCheckpoint) or not sequence <= mark.last <= mark.bound:
                self.violated(f"DELIVER {sequence} was sent, but only {mark} is durable", source)
        elif known != data:
            self.violated(f"DELIVER {sequence} was sent with {data!r} after {known!r}", source)


class OneMessagePerNumber(NumbersDurableFirst):
    """A number is assigned once, durably, to a message that was pushed, and every DELIVER of it has that content."""

    arrived_kinds = PUSH_KINDS

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self._pushed: set[bytes] = set()

    def arrived(self, packet: SimPacket, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if host is self.participants.backbone.host:
            push = _decode_packet(packet)
            if isinstance(push, Push):
                self._pushed.add(push.data)

    def deliver_sent(self, source: Host, sequence: int, data: bytes) -> None:
        """See :class:`NumbersDurableFirst`."""
        super().deliver_sent(source, sequence, data)
        known = self.truth.get(sequence)
        if source is self.participants.backbone.host and data not in self._pushed:
            self.violated(f"DELIVER {sequence} was sent with {data!r}, which no client pushed", source)
        if source in self.by_host and known != data:
            problem = "which the backbone never sent" if known is None else f"with {data!r} instead of {known!r}"
            self.violated(f"DELIVER {sequence} was sent as a repair, {problem}", source)


class InOrder(ClientInvariant):
    """A subscriber receives increasing numbers with the content that the backbone sent. Each missing number is reported
    as lost, or is a repeat of a delivered message."""

    name: ClassVar[str] = "in order, without gaps or duplicates"

    def __init__(self, participants: ClientsOfRun, content: NumberedMessages) -> None:
        super().__init__(participants)
        self._content = content
        self._truth = content.truth

    def event_emitted(self, host: Host, event: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        match event:
            case MessagesDelivered(messages):
                self._check_delivered(host, self.by_host[host].application, messages)
            case MessagesLost(first, last):
                application = self.by_host[host].application
                if application.next is not None:
                    self._check_order(host, application, first, application.next, set())
                if last < first:
                    self.violated(f"{first} to {last} reported as lost, which is not a range", host)

    def _check_delivered(self, host: Host, application: Application, messages: Sequence[Message]) -> None:
        expected = application.next
        for place, message in enumerate(messages):
            sequence = message.sequence
            if expected is not None and sequence != expected:
                fresh = {unwrap(earlier.payload) for earlier in messages[:place]}
                self._check_order(host, application, sequence, expected, fresh)
            if self._truth.get(sequence) != message.payload:
                self.violated(
                    f"{sequence} delivered as {message.payload!r}, which was not sent under this number", host
                )
            expected = sequence + 1

    def _check_order(
        self, host: Host, application: Application, sequence: int, expected: int, fresh: set[Envelope | None]
    ) -> None:
        if sequence < expected:
            self.violated(f"{sequence} delivered or reported as lost after {expected - 1}", host)
        for skipped in self._content.deliverable(expected, sequence - 1):
            data = self._truth.get(skipped, b"")
            envelope = None if application.config.raw else unwrap(data)
            repeated = envelope is not None and (envelope in application.envelopes or envelope in fresh)
            if not repeated:
                self.violated(f"{skipped} neither delivered nor reported as lost before {sequence}", host)


class ExactlyOnce(ClientInvariant):
    """An enveloped message is delivered once, however often it was published, and under whatever numbers."""

    name: ClassVar[str] = "enveloped messages are delivered exactly once"

    def event_emitted(self, host: Host, event: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if not isinstance(event, MessagesDelivered):
            return
        application = self.by_host[host].application
        if application.config.raw:
            return
        fresh = set[Envelope]()
        for message in event.messages:
            envelope = unwrap(message.payload)
            if envelope is None:
                continue
            if envelope in application.envelopes or envelope in fresh:
                what = f"message {envelope.counter} of publisher {envelope.publisher.hex()}"
                self.violated(f"{what} delivered again, as {message.sequence}", host)
            fresh.add(envelope)


class AcknowledgedArePublished(ClientInvariant):
    """An acknowledged message has the reported number, and every live subscriber has received it or reported it as
    lost. No message is reported twice."""

    name: ClassVar[str] = "acknowledged messages are published"

    def __init__(self, participants: ClientsOfRun, content: NumberedMessages) -> None:
        super().__init__(participants)
        self._content = content

    def event_emitted(self, host: Host, event: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        match event:
            case MessagesPublished(messages=pairs):
                application = self.by_host[host].application
                for ticket, sequence in pairs:
                    self._check_first(host, application, ticket)
                    if self._content.truth.get(sequence) != application.data_of(ticket):
                        self.violated(f"message {ticket} acknowledged as {sequence}, which is another message", host)
            case MessagesExpired(tickets):
                for ticket in tickets:
                    self._check_first(host, self.by_host[host].application, ticket)

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        live = [one for one in self.participants.clients if one.is_live]
        for one in live:
            silent = one.application.payloads.keys() - one.application.published.keys() - one.application.unpublished
            client = one.application.client
            if silent and not (len(client.send_queue) or len(client.durability)):
                self.violated(f"the outcome of message {min(silent)} was never reported", one.host)
        for publisher in self.participants.clients:
            for application in publisher.applications:
                for ticket, sequence in application.published.items():
                    data = application.data_of(ticket)
                    for subscriber in live:
                        self._check_reached(publisher, subscriber, sequence, data)

    def _check_first(self, host: Host, application: Application, ticket: int) -> None:
        if ticket in application.published or ticket in application.unpublished:
            self.violated(f"message {ticket} reported twice", host)

    def _check_reached(self, publisher: Participant, subscriber: Participant, sequence: int, data: bytes) -> None:
        application = subscriber.application
        if application.first is None or sequence < application.first or not self._content.is_deliverable(sequence):
            return
        if not (application.has_received(sequence, data) or sequence in application.lost):
            what = f"{sequence} of {publisher.name} was acknowledged, but neither delivered nor reported as lost"
            self.violated(what, subscriber.host)


class LiveClientsServed(FyrehoseInvariant):
    """A client with recent KEEPALIVEs and a place in the table is sent every message, also by a restarted backbone.
    A client without KEEPALIVEs expires."""

    name: ClassVar[str] = "live clients are served, and no others"

    MUST_SERVE_FOR: ClassVar[float] = 4.0
    MUST_EXPIRE_AFTER: ClassVar[float] = 9.0
    """Seconds: the lifetime of 5, and the grace time of the table after a late expiry."""
    RESTORED_FOR: ClassVar[float] = 1.9
    """Seconds for which a restarted backbone serves its restored clients, however long the outage was."""

    sent_kinds = DELIVER_KINDS
    arrived_kinds = (PacketType.KEEPALIVE,)

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self._heard_at: dict[Address, float] = {}
        self._accepted_at: dict[Address, float] = {}
        self._known: set[Address] = set()
        self._joining: tuple[float, set[Address]] = (0.0, set())
        self._disturbed_until = 0.0
        self._expected_receivers: dict[int, set[Address]] = {}
        self._last = 0
        self._before: tuple[int, float, set[Address]] = (0, 0.0, set())
        """Subscribers before the last batch with a KEEPALIVE, and its number and time."""

    def sent(self, packet: SimPacket) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if packet.source is not self.participants.backbone.host:
            return
        sequence = parse_deliver(packet.data)[0]
        wanted = self._expected_receivers.get(sequence)
        if wanted is None:
            if sequence <= self._last:
                return  # A retransmission.
            self._last = sequence
            wanted = self._subscribers()
            if self._before[:2] == (self.network.counters["batches"], self.network.now):
                wanted &= self._before[2]  # The others joined later in the same batch.
            self._expected_receivers[sequence] = wanted
        wanted.discard(packet.to)

    def arrived(self, packet: SimPacket, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if host is not self.participants.backbone.host:
            return
        batch = self.network.counters["batches"]
        if self._before[0] != batch:
            self._before = batch, self.network.now, self._subscribers()
        if _is_keepalive(packet):
            self._keepalive_arrived(packet.source.address)

    def _keepalive_arrived(self, address: Address) -> None:
        now, backbone = self.network.now, self.participants.backbone
        self._heard_at[address] = now
        if self._joining[0] != now:
            self._joining = now, set()
        client = backbone.node._client_table.get(address)
        if client is not None and client.expires_at > backbone.host.now:
            self._accepted_at[address] = now
            return
        living = {client.address for client in backbone.node.clients if client.expires_at > backbone.host.now}
        self._joining[1].add(address)
        if len(living | self._joining[1]) <= backbone.config.max_clients:
            self._accepted_at[address] = now

    def stopped(self, host: Host, description: str) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if host is self.participants.backbone.host:
            self._heard_at.clear()
            self._accepted_at.clear()
            self._known = {client.address for client in self.participants.backbone.node.clients}

    def started(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        backbone = self.participants.backbone
        if host is not backbone.host or not backbone.complete:
            return
        allow = backbone.config.allow
        if allow is not None:
            self._known = {address for address in self._known if allow.permits(address[0])}
        forgotten = self._known.difference(client.address for client in backbone.node.clients)
        if forgotten:
            self.violated(f"{sorted(forgotten)} were served before the restart, but not after it", host)
        if backbone.node.sequencer.last and backbone.node.state is BackboneState.SETTLING:
            self.violated("settling although its clients are known", host)
        self._heard_at = dict.fromkeys(self._known, self.network.now)
        self._accepted_at = dict.fromkeys(self._known, self.network.now + self.RESTORED_FOR - self.MUST_SERVE_FOR)

    def resumed(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if host is self.participants.backbone.host:
            self._disturb()

    def fault_began(self, fault: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if self.participants.backbone.host.name in fault.host_names():
            self._disturb(fault.duration)

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        backbone = self.participants.backbone
        now = self.network.now
        for sequence, wanted in self._expected_receivers.items():
            if wanted:
                hosts = [one.host for one in self.participants.clients if one.host.address in wanted]
                self.violated(f"{sequence} was not sent to a connected subscriber", *hosts)
        self._expected_receivers.clear()
        if not backbone.host.running or now < self._disturbed_until:
            return
        served = {client.address for client in backbone.node.clients}
        for one in self.participants.clients:
            address = one.host.address
            heard, accepted = self._heard_at.get(address), self._accepted_at.get(address)
            if accepted is not None and now - accepted < self.MUST_SERVE_FOR and address not in served:
                self.violated(f"not served, although its KEEPALIVE arrived {now - accepted:.3f} s ago", one.host)
            if address in served and (heard is None or now - heard > self.MUST_EXPIRE_AFTER):
                self.violated("still served long after its last KEEPALIVE", one.host)

    def _subscribers(self) -> set[Address]:
        clients = self.participants.backbone.node.clients
        silent = int(Flags.NOSUBSCRIBE)  # As numbers, because flags are slow, and this happens for each datagram.
        return {client.address for client in clients if not int(client.flags) & silent}

    def _disturb(self, duration: float = 0.0) -> None:
        # After a clock change or a pause of the process, expiries may be early or late.
        self._disturbed_until = max(self._disturbed_until, self.network.now + duration + 3 * self.MUST_EXPIRE_AFTER)


class StreamProgress(ClientInvariant):
    """After the last fault, all messages reach all subscribers, every client runs, and nothing is pending.

    :param share: share of the messages published then that must arrive; below 1 where datagrams may be damaged.
    """

    name: ClassVar[str] = "eventual delivery"

    def __init__(self, participants: ClientsOfRun, content: NumberedMessages, *, share: float = 1.0) -> None:
        super().__init__(participants)
        self._content = content
        self._share = share
        self._first_after_faults: int | None = None
        self._first_tickets: dict[Host, int] = {}

    def faults_ended(self) -> None:
        """Record the end of the faults."""
        self._first_after_faults = self._content.last + 1
        self._first_tickets = {one.host: len(one.application.payloads) for one in self.participants.clients}

    def event_emitted(self, host: Host, event: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        match event:
            case ClientFailed(error):
                self.violated(f"failed: {error}", host)
            case MessagesExpired(tickets) if (
                self._first_after_faults is not None and max(tickets) >= self._first_tickets[host]
            ):
                self.violated(f"message {max(tickets)}, published after the last fault, expired", host)

    def find_unsettled(self) -> tuple[Participant, str] | None:
        """Return a participant with pending work and a description, or ``None``."""
        last = self._content.last
        for one in self.participants.clients:
            if not one.host.running:
                return one, "not running"
            application = one.application
            if len(application.client.send_queue):
                return one, f"{len(application.client.send_queue)} messages still queued"
            following = application.client.next_sequence
            if one.config.subscribe and one.must_follow and (following is None or following <= last):
                return one, f"waiting for {following}, the last number is {last}"
        return None

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        unsettled = self.find_unsettled()
        if unsettled is not None:
            participant, description = unsettled
            self.violated(f"{description}, long after the last fault", participant.host)
        first = self._content.last + 1 if self._first_after_faults is None else self._first_after_faults
        wanted = [
            (one, sequence, data)
            for one in self.participants.clients
            for sequence, data in self._content.truth.items()
            if one.is_live and sequence >= first and self._content.is_deliverable(sequence)
        ]
        missed = [(one, sequence) for one, sequence, data in wanted if not one.application.has_received(sequence, data)]
        if len(missed) > (1.0 - self._share) * len(wanted):
            description = f"{len(missed)} of {len(wanted)} messages published after the last fault were not delivered"
            hosts = dict.fromkeys(one.host for one, _ in missed)
            self.violated(f"{description}, the first is {missed[0][1]}", *hosts)


def _is_keepalive(packet: SimPacket) -> bool:
    """Return whether a KEEPALIVE is a valid one of its source. A damaged one may still be valid."""
    if not (packet.damaged or packet.truncated):
        return True
    keepalive = _decode_packet(packet)
    return isinstance(keepalive, Keepalive) and keepalive.address in (ANY_ADDRESS, packet.source.address)


def _decode_packet(packet: SimPacket) -> Any:
    """Return the packet that a node decodes, or ``None`` if the datagram is malformed."""
    try:
        return decode(packet.data, truncated=packet.truncated)
    except MalformedPacket:
        return None


def parse_deliver(datagram: bytes) -> tuple[int, bytes]:
    """Return the number and DATA of a well-formed DELIVER."""
    _, size, high, low = DATA_HEADER.unpack_from(datagram)
    return high << 32 | low, datagram[DATA_HEADER.size : DATA_HEADER.size + size]
