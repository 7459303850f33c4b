"""Invariants of every run of a cluster: properties P1 to P5, and bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from fyrehose_twisted.consensus.messages import AppendEntries
from fyrehose_twisted.parcels.events import EventsDelivered, EventsSkipped, PublishConfirmed, PublishUnconfirmed
from fyrehose_twisted.parcels.node.discovery.links import MAX_TARGETS
from fyrehose_twisted.parcels.node.node import ClusterNode
from fyrehose_twisted.parcels.node.ordering.application_state import ApplicationState
from fyrehose_twisted.parcels.node.ordering.history import EventWindow
from fyrehose_twisted.parcels.node.ordering.publisher_sessions import MAX_WEIGHT
from fyrehose_twisted.parcels.simulation.event_chain import EventChain
from fyrehose_twisted.parcels.simulation.participants import Participants
from fyrehose_twisted.parcels.wire.messages import MAX_NAME, Event, Mode
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.invariants import Invariant
from fyrehose_twisted.sim.observer import SimPacket


class ClusterInvariant(Invariant):
    """Base of the invariants of a cluster."""

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants.network)
        self.participants = participants


class TotalOrder(ClusterInvariant):
    """P1, P2: all nodes deliver the same events with the same numbers, in order and without gaps.

    :ivar order: events from number 1 on, as delivered first by any node.
    """

    name: ClassVar[str] = "total order (P1, P2)"

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self.order: dict[int, Event] = {}
        self._last: dict[Host, int] = {}

    def reset(self) -> None:
        """Start over for a newly bootstrapped cluster of the same name."""
        self.order.clear()
        self._last.clear()

    def started(self, host: Host) -> None:
        """Track a started node: a new incarnation starts anywhere, a restarted one continues."""
        self._last.pop(host, None)
        node = host.node
        if isinstance(node, ClusterNode) and node.sequence:
            self._last[host] = node.sequence

    def event_emitted(self, host: Host, event: object) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if isinstance(event, EventsSkipped):
            last = self._last.get(host)
            if last is not None and event.first != last + 1:
                self.violated(f"{event.first} to {event.last} were skipped after {last}", host)
            self._last[host] = event.last
        elif isinstance(event, EventsDelivered):
            for one in event.events:
                last = self._last.get(host)
                if last is not None and one.sequence != last + 1:
                    self.violated(f"{one.sequence} follows {last}", host)
                self._last[host] = one.sequence
                known = self.order.setdefault(one.sequence, one)
                if known != one:
                    self.violated(f"{one.sequence} is {_short(one)} here and {_short(known)} elsewhere", host)


class UniqueEventIds(ClusterInvariant):
    """Cluster id and sequence number identify one event for good, and all members have the same cluster id.

    :ivar events_by_id: events by cluster id and sequence number.
    """

    name: ClassVar[str] = "event ids are unique"

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self.events_by_id: dict[tuple[int, int], Event] = {}

    def event_emitted(self, host: Host, event: object) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if not isinstance(event, EventsDelivered) or host not in self.participants.hosts:
            return
        cluster_id = host.node.cluster_id
        if not cluster_id:
            self.violated("events are delivered without a cluster id", host)
        for one in event.events:
            known = self.events_by_id.setdefault((cluster_id, one.sequence), one)
            if known != one:
                text = f"{cluster_id:016x}-{one.sequence} is {_short(one)} here and {_short(known)} elsewhere"
                self.violated(text, host)

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        working = self.participants.working()
        if len({host.node.cluster_id for host in working}) > 1:
            self.violated("in mode Wrk with different cluster ids", *working)


class PublisherOrder(ClusterInvariant):
    """P5: the events of each publisher keep their order, without duplicates."""

    name: ClassVar[str] = "publisher order (P5)"

    def __init__(self, participants: Participants, order: TotalOrder) -> None:
        super().__init__(participants)
        self._order = order

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        last: dict[str, tuple[int, int]] = {}
        seen: dict[bytes, int] = {}
        for sequence, event in sorted(self._order.order.items()):
            epoch, number = last.get(event.publisher, (event.epoch, 0))
            if event.epoch < epoch or (event.epoch == epoch and event.number != number + 1):
                self.violated(f"{sequence}: {_short(event)} follows number {number} of epoch {epoch}")
            if event.epoch > epoch and event.number != 1:
                self.violated(f"{sequence}: {_short(event)} is the first of its epoch, but not number 1")
            last[event.publisher] = event.epoch, event.number
            first = seen.setdefault(event.data, sequence)
            if first != sequence:
                self.violated(f"{event.data!r} is both number {first} and number {sequence}")


class ConditionsHold(ClusterInvariant):
    """A conditional event comes right behind the expected one, and one that was refused never comes."""

    name: ClassVar[str] = "conditions hold"

    def __init__(self, participants: Participants, order: TotalOrder) -> None:
        super().__init__(participants)
        self._order = order

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        conditions, refused = self.participants.conditions, self.participants.unexpected
        for sequence, event in self._order.order.items():
            expect = conditions.get(event.publisher)
            if expect is not None and sequence != expect + 1:
                self.violated(f"{_short(event)} is number {sequence}, although it expects {expect}")
            if event.publisher in refused:
                self.violated(f"{_short(event)} is number {sequence}, although it was refused")


class ReadsUpToDate(ClusterInvariant):
    """A linearizable read comes after all events that were acknowledged, or read anywhere, before it began.

    :ivar count: number of successful reads.
    """

    name: ClassVar[str] = "reads are up to date"

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self.count = 0
        self._delivered: dict[Host, int] = {}

    def started(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if isinstance(host.node, ClusterNode):
            self._delivered[host] = host.node.sequence

    def event_emitted(self, host: Host, event: object) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        reads = self.participants.reads
        if isinstance(event, EventsDelivered):
            self._delivered[host] = event.events[-1].sequence
        elif isinstance(event, EventsSkipped):
            self._delivered[host] = event.last
        elif isinstance(event, PublishUnconfirmed):
            reads.pop(event.token, None)
        elif isinstance(event, PublishConfirmed) and event.token in reads:
            floor, seen = reads.pop(event.token), event.numbers[0][0] - 1
            delivered = self._delivered.get(host, 0)
            self.count += 1
            if min(seen, delivered) < floor:
                self.violated(f"{seen}, with {delivered} delivered, is read after {floor} was known", host)


class StatesAgree(ClusterInvariant):
    """The application's state is on every node what the events up to its number result in."""

    name: ClassVar[str] = "states agree"

    def __init__(self, participants: Participants, order: TotalOrder) -> None:
        super().__init__(participants)
        self._order = order
        self._expected = EventChain()
        self._marks = [self._expected.mark]

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        order, marks = self._order.order, self._marks
        while (event := order.get(len(marks))) is not None:
            self._expected.apply(event)
            marks.append(self._expected.mark)
        for host, application, chain in self._states():
            if application.failure:
                self.violated(application.failure, host)
            elif application.sequence < len(marks) and chain.mark != marks[application.sequence]:
                self.violated(f"the state after event {application.sequence} is not what the events result in", host)

    def incomplete(self) -> list[Host]:
        """Return the members whose state lacks events."""
        members = self.participants.members()
        return [host for host, application, _ in self._states() if host in members and not application.is_complete]

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        self.sample()
        if not self.participants.quorum_lost():
            for host in self.incomplete():
                self.violated("the state lacks events", host)

    def _states(self) -> Iterator[tuple[Host, ApplicationState, EventChain]]:
        for host in self.participants.hosts:
            chain = self.participants.disks[host].chain
            if host.up and chain is not None:
                yield host, host.node.components.application_state, chain


class AcknowledgedDurability(ClusterInvariant):
    """P3, P4: an acknowledged event keeps its sequence number for good."""

    name: ClassVar[str] = "acknowledged events are durable (P3, P4)"

    def __init__(self, participants: Participants, order: TotalOrder) -> None:
        super().__init__(participants)
        self._order = order
        self.numbers: dict[int, bytes] = {}

    def reset(self) -> None:
        """See :meth:`TotalOrder.reset`."""
        self.numbers.clear()

    def event_emitted(self, host: Host, event: object) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if not isinstance(event, PublishConfirmed):
            return
        numbers = [first + place for first, count in event.numbers for place in range(count)]
        events = self.participants.published[event.token]
        if len(numbers) != len(events):
            self.violated(f"{len(events)} events have {len(numbers)} numbers", host)
        for number, data in zip(numbers, events, strict=True):
            if self.numbers.setdefault(number, data) != data:
                self.violated(f"{number} was assigned to both {self.numbers[number]!r} and {data!r}", host)
            ordered = self._order.order.get(number)
            if ordered is None:
                self.violated(f"{data!r} was acknowledged as {number}, which no node delivered", host)
            elif ordered.data != data:
                self.violated(f"{data!r} was acknowledged as {number}, which is {_short(ordered)}", host)

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        last = max(self.numbers, default=0)
        for host in self.participants.working():
            if host.node.sequence < last:
                self.violated(f"{last} was acknowledged, but is missing at the end", host)


class OneLeaderPerTerm(ClusterInvariant):
    """Each term has at most one leader."""

    name: ClassVar[str] = "one leader per term"

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self._leaders: dict[tuple[int, int], Host] = {}

    def sent(self, packet: SimPacket) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        message = packet.data
        if isinstance(message, AppendEntries):
            node: ClusterNode = packet.source.node
            leader = self._leaders.setdefault((node.cluster_id, message.term), packet.source)
            if leader is not packet.source:
                self.violated(f"both lead in term {message.term}", leader, packet.source)


class ClusterRecovers(ClusterInvariant):
    """After the faults, every capable node works and has the same events."""

    name: ClassVar[str] = "the cluster recovers"

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        if self.participants.quorum_lost():
            for host in self.participants.hosts:
                if host.up and host.node.mode is Mode.WRK:
                    self.violated("in mode Wrk although a quorum lost its state", host)
            return
        members = self.participants.members()
        for host in members:
            if host.node.mode is not Mode.WRK:
                self.violated(f"in mode {host.node.mode.value}: {host.node.state(host.now).why}", host)
        if len({host.node.sequence for host in members}) > 1:
            self.violated("different numbers of events", *members)
        for host in self.participants.adversaries:
            node = host.node
            if isinstance(node, ClusterNode) and node.mode is Mode.WRK:
                self.violated("in mode Wrk without being a member", host)


class ValidNeighbourNames(ClusterInvariant):
    """No node has a neighbour with an invalid name."""

    name: ClassVar[str] = "neighbour names are valid"

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        for host in self.participants.hosts:
            if host.up and isinstance(host.node, ClusterNode):
                for known in host.node.components.neighbours:
                    name = known.info.name
                    if not name.isprintable() or not 1 <= len(name.encode()) <= MAX_NAME:
                        self.violated(f"a neighbour has the invalid name {name!r}", host)


class Usage(NamedTuple):
    """Use and limit of one resource."""

    resource: str
    used: int
    limit: int


def node_usage(node: ClusterNode) -> Iterator[Usage]:
    """Yield the use of each resource of a node that its peers can make grow."""
    config, components = node.config, node.components
    links, delivery = components.links, components.delivery
    a_run = 2 * 65_536
    history = delivery.history
    if isinstance(history, EventWindow) and not components.recorder.durable:  # A journal is on disk.
        yield Usage("bytes of events stored", history.size, config.window_bytes + a_run)
    pending = components.tracker.pending.size
    # A run forwarded by a member is pending there and here.
    yield Usage("bytes of pending events", pending, 2 * config.pending_bytes + a_run)
    yield Usage("bytes of log", components.raft.log.size, config.window_bytes + 64 * config.pending_bytes)
    yield Usage("neighbours", len(components.neighbours), config.max_neighbours)
    yield Usage("inbound connections", len(links.inbound), config.max_links)
    yield Usage("addresses", len(links.targets), MAX_TARGETS * config.max_neighbours + len(config.neighbours))
    yield Usage("publisher sessions", delivery.numbering.sessions.weight, MAX_WEIGHT + 8_192)
    yield Usage("addresses with a warning", components.faults.warnings, MAX_TARGETS * config.max_neighbours)
    yield Usage("members with pending replies", len(components.exchange.reply_peers), config.max_neighbours)
    yield Usage("membership changes", len(components.membership_changes), config.max_neighbours)


class MemoryBounded(ClusterInvariant):
    """Every resource that peers can make grow stays within its limit."""

    name: ClassVar[str] = "memory is bounded"

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        for host in self.participants.hosts:
            if host.up and isinstance(host.node, ClusterNode):
                for resource, used, limit in node_usage(host.node):
                    if used > limit:
                        self.violated(f"{resource}: {used:,} in use, the limit is {limit:,}", host)


def _short(event: Event) -> str:
    return f"{event.data!r} of {event.publisher}, {event.epoch}/{event.number}"
