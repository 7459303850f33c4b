"""Invariants of every run of a cluster: properties P1 to P5, and bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from fyrehose_twisted.consensus.messages import AppendEntries
from fyrehose_twisted.parcels.events import EventsDelivered, EventsSkipped, PublishConfirmed
from fyrehose_twisted.parcels.node.discovery import MAX_TARGETS
from fyrehose_twisted.parcels.node.node import ClusterNode
from fyrehose_twisted.parcels.node.ordering.history import EventWindow
from fyrehose_twisted.parcels.node.ordering.publisher_sessions import MAX_WEIGHT
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

    name: ClassVar[str] = "one order (P1, P2)"

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self.order: dict[int, Event] = {}
        self._last: dict[Host, int] = {}

    def reset(self) -> None:
        """Start over for a newly founded cluster of the same name."""
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
                self.violated(f"skips {event.first} to {event.last} after {last}", host)
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

    name: ClassVar[str] = "an id names one event"

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self.events_by_id: dict[tuple[int, int], Event] = {}

    def event_emitted(self, host: Host, event: object) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if not isinstance(event, EventsDelivered) or host not in self.participants.hosts:
            return
        founding = host.node.cluster_id
        if not founding:
            self.violated("hands events on, and knows of no founding", host)
        for one in event.events:
            known = self.events_by_id.setdefault((founding, one.sequence), one)
            if known != one:
                text = f"{founding:016x}-{one.sequence} is {_short(one)} here and {_short(known)} elsewhere"
                self.violated(text, host)

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        working = self.participants.working()
        if len({host.node.cluster_id for host in working}) > 1:
            self.violated("work in clusters that were founded apart", *working)


class PublisherOrder(ClusterInvariant):
    """P5: the events of each publisher keep their order, without duplicates."""

    name: ClassVar[str] = "publishers keep their order (P5)"

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
                self.violated(f"{sequence}: {_short(event)} comes after {number} of epoch {epoch}")
            if event.epoch > epoch and event.number != 1:
                self.violated(f"{sequence}: {_short(event)} is the first of its epoch")
            last[event.publisher] = event.epoch, event.number
            twice = seen.setdefault(event.data, sequence)
            if twice != sequence:
                self.violated(f"{event.data!r} is number {twice} and {sequence}")


class AcknowledgedDurability(ClusterInvariant):
    """P3, P4: an acknowledged event keeps its sequence number for good."""

    name: ClassVar[str] = "acknowledged events stay (P3, P4)"

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
                self.violated(f"{number} was given to {self.numbers[number]!r} and to {data!r}", host)
            ordered = self._order.order.get(number)
            if ordered is None:
                self.violated(f"{data!r} was given {number}, which nobody has handed on", host)
            elif ordered.data != data:
                self.violated(f"{data!r} was given {number}, which is {_short(ordered)}", host)

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        last = max(self.numbers, default=0)
        for host in self.participants.working():
            if host.node.sequence < last:
                self.violated(f"{last} was acknowledged, and is not there at the end", host)


class OneLeaderPerTerm(ClusterInvariant):
    """Each term has at most one leader."""

    name: ClassVar[str] = "one leader a term"

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
                self.violated(f"both order in term {message.term}", leader, packet.source)


class ClusterRecovers(ClusterInvariant):
    """After the faults, every capable node works and has the same events."""

    name: ClassVar[str] = "the cluster recovers"

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        if self.participants.quorum_lost():
            for host in self.participants.hosts:
                if host.up and host.node.mode is Mode.WRK:
                    self.violated("works without a quorum that remembers", host)
            return
        members = self.participants.members()
        for host in members:
            if host.node.mode is not Mode.WRK:
                self.violated(f"is in mode {host.node.mode.value}: {host.node.state(host.now).why}", host)
        if len({host.node.sequence for host in members}) > 1:
            self.violated("do not have the same number of events", *members)
        for host in self.participants.adversaries:
            node = host.node
            if isinstance(node, ClusterNode) and node.mode is Mode.WRK:
                self.violated("works, and has no right to", host)


class ValidNeighbourNames(ClusterInvariant):
    """No node has a neighbour with an invalid name."""

    name: ClassVar[str] = "names fit"

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        for host in self.participants.hosts:
            if host.up and isinstance(host.node, ClusterNode):
                for known in host.node._discovery.neighbours:
                    name = known.info.name
                    if not name.isprintable() or not 1 <= len(name.encode()) <= MAX_NAME:
                        self.violated(f"knows {name!r}", host)


class Usage(NamedTuple):
    """Use and limit of one resource."""

    resource: str
    used: int
    limit: int


def node_usage(node: ClusterNode) -> Iterator[Usage]:
    """Yield the use of each resource of a node that its peers can make grow."""
    config, discovery, order = node.config, node._discovery, node._raft
    a_run = 2 * 65_536
    history = node._delivery.history
    if isinstance(history, EventWindow) and not node._state_recorder.durable:  # A journal is on disk.
        yield Usage("bytes of events kept", history.size, config.window_bytes + a_run)
    pending = node._publish_tracker.pending.size
    # A run forwarded by a member is pending there and here.
    yield Usage("bytes of events that wait", pending, 2 * config.pending_bytes + a_run)
    yield Usage("bytes of log", order.log.size, config.window_bytes + 64 * config.pending_bytes)
    yield Usage("neighbours", len(discovery.neighbours), config.max_neighbours)
    yield Usage("callers", len(discovery.inbound), config.max_links)
    yield Usage("addresses", len(discovery.targets), MAX_TARGETS * config.max_neighbours + len(config.neighbours))
    yield Usage("publishers and rows remembered", node._delivery.numbering.sessions.weight, MAX_WEIGHT + 8_192)
    yield Usage("addresses warned of", len(discovery._warned), MAX_TARGETS * config.max_neighbours)
    yield Usage("members asked by", len(node._reply_peers), config.max_neighbours)
    yield Usage("members suspected", len(node._membership_changes), config.max_neighbours)


class MemoryBounded(ClusterInvariant):
    """Every resource that peers can make grow stays within its limit."""

    name: ClassVar[str] = "memory is bounded"

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        for host in self.participants.hosts:
            if host.up and isinstance(host.node, ClusterNode):
                for what, used, limit in node_usage(host.node):
                    if used > limit:
                        self.violated(f"{what}: {used:,} in use, the limit is {limit:,}", host)


def _short(event: Event) -> str:
    return f"{event.data!r} of {event.publisher}, {event.epoch}/{event.number}"
