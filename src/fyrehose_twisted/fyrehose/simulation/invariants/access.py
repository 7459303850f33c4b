"""Invariants of numbering, journals, start positions and access control."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

from fyrehose_twisted.fyrehose.config import Start
from fyrehose_twisted.fyrehose.events import MessagesDelivered
from fyrehose_twisted.fyrehose.node.backbone.sequencer import MINIMUM_RESERVE, SequenceCheckpoint
from fyrehose_twisted.fyrehose.node.client.journal_store import JournalStore
from fyrehose_twisted.fyrehose.node.client.memory_store import MESSAGE_OVERHEAD
from fyrehose_twisted.fyrehose.node.client.stream_head import MAX_JUMP
from fyrehose_twisted.fyrehose.node.mac.agreement import MacState
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import (
    ADVERSARY,
    DELIVER_KINDS,
    PUSH_KINDS,
    ClientInvariant,
    ClientsOfRun,
    FyrehoseInvariant,
    NumberedMessages,
    NumbersDurableFirst,
    Participants,
    parse_deliver,
)
from fyrehose_twisted.fyrehose.wire.codec import decode
from fyrehose_twisted.fyrehose.wire.packets import PacketType, Push, Request
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.observer import SimPacket

REQUEST_KINDS = (PacketType.REQUEST, PacketType.REQUEST6)


class NoNumbersWasted(FyrehoseInvariant):
    """A backbone assigns consecutive numbers between its start and its end, and a power failure skips at most the
    reserved ones."""

    name: ClassVar[str] = "no wasted numbers"

    RESERVE: ClassVar[int] = MINIMUM_RESERVE
    """Maximum count of reserved numbers at the rates of these scenarios."""

    sent_kinds = DELIVER_KINDS

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self._first_last = 0
        self._previous: int | None = None
        self._assigned = 0

    def started(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if host is self.participants.backbone.host:
            self._first_last = self.participants.backbone.node.sequencer.last
            self._previous = None

    def persisted(self, host: Host, state: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if isinstance(state, SequenceCheckpoint) and state.bound - state.last > self.RESERVE:
            self.violated(f"numbers up to {state.bound:,} are reserved, but the last assigned is {state.last:,}", host)

    def arrived(self, packet: SimPacket, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if host is not self.participants.backbone.host:
            return
        self._assigned = self.participants.backbone.node.sequencer.last
        if not self.participants.backbone.node._client_table.subscriber_count:
            self._previous = None  # Without subscribers, numbered messages are not sent.

    def sent(self, packet: SimPacket) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if packet.source is not self.participants.backbone.host:
            return
        sequence = parse_deliver(packet.data)[0]
        if self._previous is None and sequence <= self._assigned:
            return  # A repair.
        if self._previous is not None and sequence > self._previous + 1:
            self.violated(f"{sequence} follows {self._previous}, although there were subscribers", packet.source)
        self._previous = max(sequence, self._previous or 0)

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        host = self.participants.backbone.host
        if not host.up:
            return
        node = self.participants.backbone.node
        assigned = node.sequencer.last - self._first_last
        if assigned != node.counters.published:
            self.violated(f"{assigned} numbers assigned to {node.counters.published} messages since the start", host)


class LowestNumberReported(FyrehoseInvariant):
    """A subscribing publisher reports the lowest number of its message, under which subscribers see it.

    It cannot know of a number that was reported as lost, nor of one of a PUSH that the network duplicated.
    """

    name: ClassVar[str] = "publishers learn the lowest number"

    sent_kinds = PUSH_KINDS

    def __init__(self, participants: Participants, content: NumbersDurableFirst) -> None:
        super().__init__(participants)
        self._content = content
        self._push_counts: Counter[bytes] = Counter()

    def sent(self, packet: SimPacket) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if packet.source in self.by_host:
            push = decode(packet.data)
            if isinstance(push, Push):
                self._push_counts[push.data] += 1

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        lowest: dict[bytes, int] = {}
        for sequence, data in sorted(self._content.truth.items()):
            lowest.setdefault(data, sequence)
        for one in self.participants.clients:
            if not one.config.subscribe or one.config.raw or one.config.outbox.raw:
                continue
            for application in one.applications:
                for ticket, reported in application.published.items():
                    data = application.data_of(ticket)
                    seen = lowest.get(data, reported)
                    excused = application.first is None or seen < application.first or seen in application.lost
                    if seen < reported and not excused and self._push_counts[data] > 1:
                        description = f"message {ticket} reported as {reported}, but subscribers receive it as {seen}"
                        self.violated(description, one.host)


class JournalMatchesDelivery(ClientInvariant):
    """A journal holds all messages delivered to its application, including repairs, while it has space."""

    name: ClassVar[str] = "journals store what is delivered"

    def __init__(self, participants: ClientsOfRun, content: NumberedMessages) -> None:
        super().__init__(participants)
        self._content = content

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        needed = sum(len(data) + MESSAGE_OVERHEAD for data in self._content.truth.values())
        for one in self.participants.clients:
            application = one.application
            history = application.store
            has_space = history.damage_count == 0 if isinstance(history, JournalStore) else needed <= history.limit
            if not (one.is_live and one.config.journal and has_space):
                continue
            for first, last in application.handed:
                held = history.lowest(first, last, last - first + 1)
                if len(held) <= last - first:
                    missing = min(set(range(first, last + 1)).difference(held))
                    self.violated(f"{missing} was delivered, but is not stored, although there was space", one.host)


class StartsAtOldestConfirmed(FyrehoseInvariant):
    """A joining subscriber starts with the lowest received number that another one confirms: of all messages if it
    wants the oldest, otherwise of those from the backbone that it has not requested itself. It may ignore one far below
    the oldest number that the backbone reports."""

    name: ClassVar[str] = "streams start at the lowest number"

    arrived_kinds = DELIVER_KINDS

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self._arrived_numbers: dict[Host, list[int]] = {}
        self._requested: dict[Host, range] = {}

    def started(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        self._arrived_numbers[host] = []
        self._requested[host] = range(0)

    def sent(self, packet: SimPacket) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        one = self.by_host.get(packet.source)
        if one is None or packet.data[0] not in REQUEST_KINDS:
            return
        client = one.application.client
        request = decode(packet.data)
        if client.next_sequence is None and client.config.start is Start.LIVE and isinstance(request, Request):
            self._requested[packet.source] = range(request.first, request.last)

    def arrived(self, packet: SimPacket, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        one = self.by_host.get(host)
        if one is None or packet.source.name == ADVERSARY:
            return
        if one.application.client.macs.state is MacState.UNKNOWN:
            return  # Before the backbone has answered, it could come from anyone.
        wanted = packet.source is self.participants.backbone.host or one.application.client.config.start is Start.OLDEST
        if wanted and one.application.client.next_sequence is None and not (packet.damaged or packet.truncated):
            number = parse_deliver(packet.data)[0]
            if number not in self._requested[host]:
                self._arrived_numbers[host].append(number)

    def event_emitted(self, host: Host, event: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        application = self.by_host[host].application if host in self.by_host else None
        if application is None or application.first is not None or not isinstance(event, MessagesDelivered):
            return
        if application.client.drops.counts["buffer_full"]:
            return  # Some messages did not fit the buffer.
        arrived, first = self._arrived_numbers[host], event.messages[0].sequence
        for number in arrived:
            near = any(0 < abs(other - number) <= MAX_JUMP for other in arrived)
            if first - MAX_JUMP <= number < first and (near or number <= MAX_JUMP):
                self.violated(f"the first delivered number is {first}, although {number} had been received", host)


class AccessControlled(FyrehoseInvariant):
    """A host without the secret is not served, and its PUSHes are not numbered."""

    name: ClassVar[str] = "access control"

    arrived_kinds = PUSH_KINDS

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self._adversary_pushes: set[bytes] = set()

    def arrived(self, packet: SimPacket, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if packet.source.name == ADVERSARY:
            self._adversary_pushes.add(packet.data[-20:])

    def sent(self, packet: SimPacket) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if packet.source is not self.participants.backbone.host:
            return
        receiver = self.network.hosts.get(packet.to)
        if receiver is not None and receiver.name == ADVERSARY:
            self.violated(f"{packet.data[:40]!r} was sent to an adversary", packet.source, receiver)
        if packet.data[0] in DELIVER_KINDS and parse_deliver(packet.data)[1][-20:] in self._adversary_pushes:
            self.violated(f"{packet.data!r} of an adversary was numbered", packet.source)
