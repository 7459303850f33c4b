"""Invariants of simulated networks of trees."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, NoReturn

from fyrehose_twisted.freenet.events import (
    UNCERTAIN_REASONS,
    PacketNotPublished,
    PacketPublished,
    PacketsDelivered,
    ParentChanged,
)
from fyrehose_twisted.freenet.node.publishing import MAX_QUEUED_PACKETS
from fyrehose_twisted.freenet.node.routing import MAX_PARALLEL_REQUESTS
from fyrehose_twisted.freenet.node.stream import Stream
from fyrehose_twisted.freenet.simulation.participants import Participants, packet_data
from fyrehose_twisted.freenet.wire.messages import (
    Dismissed,
    ResubscribeRequest,
    SubscribeRequest,
    SubscribeRestarted,
    SubscribeSucceeded,
    SubscribeSucceededNewRoot,
    Unsubscribe,
)
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.invariants import Invariant
from fyrehose_twisted.sim.observer import SimPacket

MAX_CYCLE_DURATION = 60.0
"""Maximum duration of a cycle in seconds."""
HANDSHAKE_GRACE = 1.0
"""Seconds after the handshake timeout in which the link may still be open."""


class TreeInvariant(Invariant):
    """Base class of the invariants, with the participants and the keys of the streams."""

    def __init__(self, participants: Participants, keys: list[bytes]) -> None:
        super().__init__(participants.network)
        self.participants = participants
        self.keys = keys


class NoCycle(TreeInvariant):
    """No cycle of parents lasts long."""

    name = "no lasting cycle"

    def __init__(self, participants: Participants, keys: list[bytes]) -> None:
        super().__init__(participants, keys)
        self._since: dict[tuple[bytes, frozenset[str]], float] = {}

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        found = {(key, cycle) for key in self.keys for cycle in self._cycles(key)}
        self._since = {cycle: self._since.get(cycle, self.network.elapsed) for cycle in found}
        for (key, names), since in self._since.items():
            if self.network.elapsed - since > MAX_CYCLE_DURATION:
                hosts = [host for host in self.participants.hosts if host.name in names]
                self.violated(f"in a cycle of {key.hex()[:8]} for {MAX_CYCLE_DURATION:g} s", *hosts)

    def _cycles(self, key: bytes) -> set[frozenset[str]]:
        parents = self.participants.parents(key)
        cycles, done = set(), set()
        for start in parents:
            path: list[Host] = []
            current: Host | None = start
            while current is not None and current not in done and current not in path:
                path.append(current)
                current = parents.get(current)
            if current is not None and current in path:
                cycles.add(frozenset(host.name for host in path[path.index(current) :]))
            done.update(path)
        return cycles


class SearchesTerminate(TreeInvariant):
    """Every search for a tree, and every wait for another search, ends."""

    name = "searches terminate"

    def __init__(self, participants: Participants, keys: list[bytes], limit: float) -> None:
        super().__init__(participants, keys)
        self._limit = limit
        self._since: dict[tuple[str, bytes, int], float] = {}

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        waiting = {}
        now = self.network.elapsed
        for host in self.participants.hosts:
            if not host.running:
                continue
            for key, stream in host.node.streams.items():
                if not stream.settled:
                    search = (host.name, key, host.boots)
                    waiting[search] = self._since.get(search, now)
                    if now - waiting[search] > self._limit:
                        self.violated(f"{key.hex()[:8]} is {stream.phase.value} for {self._limit:g} s", host)
        self._since = waiting


class SingleTree(TreeInvariant):
    """At the end all subscribers of a stream are in one tree, and both ends of each of its links agree."""

    name = "single tree"

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        for key in self.keys:
            problem = find_disagreement(self.participants, key)
            if problem is not None:
                self.violated(f"{key.hex()[:8]}: {problem[0]}", *problem[1])


def find_disagreement(participants: Participants, key: bytes) -> tuple[str, list[Host]] | None:
    """Return why the subscribers of ``key`` are not in one tree, and which; ``None`` if they are."""
    streams, parents = participants.streams(key), participants.parents(key)
    roots = [host for host, stream in streams.items() if stream.is_root]
    if len(roots) > 1:
        return "there are several roots", roots
    for host, stream in streams.items():
        if not stream.settled or stream.own_restart_uid is not None:
            return f"still {stream.phase.value}", [host]
        above = parents[host]
        if stream.parent is not None and above is None:
            return "its parent is down", [host]
        if above is not None and not _has_subscriber(streams.get(above), host):
            return "its parent does not list it as a subscriber", [host, above]
        seen = [host]
        while above is not None:
            if above in seen:
                return "in a cycle", seen
            seen.append(above)
            above = parents.get(above)
    for host in participants.hosts:
        if host.running and key in participants.wanted_keys[host.name] and host not in streams:
            return "subscribed but not in the tree", [host]
    return None


def _has_subscriber(stream: Stream | None, host: Host) -> bool:
    return stream is not None and host.node.config.node in {subscriber.node for subscriber in stream.subscribers}


class DeliveredOnce(TreeInvariant):
    """Each packet is delivered to an application once, and only packets that were published are."""

    name = "delivered at most once"

    def __init__(self, participants: Participants, keys: list[bytes], *, allow_forged: bool = False) -> None:
        super().__init__(participants, keys)
        self._allow_forged = allow_forged

    def event_emitted(self, host: Host, event: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if isinstance(event, PacketsDelivered):
            received = self.participants.received[host.name]
            for number, data in event.packets:
                if (event.key, number, data) in received:
                    self.violated(f"packet {number} was delivered twice", host)
                received[event.key, number, data] = None
                if not self._allow_forged and data not in self.participants.published:
                    self.violated(f"packet {number} was delivered but never published: {data!r}", host)


class OneNumberPerPacket(TreeInvariant):
    """A packet is delivered to all applications under the number that its publisher learned.

    A packet that was refused is not delivered at all.
    """

    name = "one number per packet"

    def __init__(self, participants: Participants, keys: list[bytes]) -> None:
        super().__init__(participants, keys)
        self._numbers: dict[tuple[bytes, bytes], int] = {}
        self._refused: dict[tuple[bytes, bytes], str] = {}

    def event_emitted(self, host: Host, event: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        match event:
            case PacketsDelivered(key, packets):
                for number, data in packets:
                    self._number(host, key, data, number)
            case PacketPublished(token, key, number):
                self._number(host, key, packet_data(token), number)
            case PacketNotPublished(token, key, reason) if reason not in UNCERTAIN_REASONS:
                packet = key, packet_data(token)
                self._refused[packet] = reason
                if packet in self._numbers:
                    self._refuse(host, packet)

    def _number(self, host: Host, key: bytes, data: bytes, number: int) -> None:
        if data not in self.participants.published:
            return  # Forged: an adversary may send it under any number.
        packet = key, data
        known = self._numbers.setdefault(packet, number)
        if known != number:
            self.violated(f"{data!r} is packet {known} and packet {number}", host)
        if packet in self._refused:
            self._refuse(host, packet)

    def _refuse(self, host: Host, packet: tuple[bytes, bytes]) -> NoReturn:
        reason, number = self._refused[packet], self._numbers[packet]
        self.violated(f"{packet[1]!r} was refused ({reason}), but is packet {number}", host)


class NoAcknowledgedLoss(TreeInvariant):
    """Every packet confirmed as published was delivered, at least to its publisher."""

    name = "no acknowledged loss"

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        delivered_packets: set[tuple[bytes, bytes]] = set()
        for host in self.participants.hosts:
            for key, _, data in self.participants.received[host.name]:
                delivered_packets.add((key, data))
        delivered = len(delivered_packets)
        if delivered < self.participants.confirmed:
            self.violated(f"{self.participants.confirmed} packets were published, but only {delivered} delivered")


class SubscriberRequired(TreeInvariant):
    """A packet that needs a subscriber is published only if another node was subscribed."""

    name = "subscriber required"

    def event_emitted(self, host: Host, event: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        waiting = self.participants.needs_subscriber
        if isinstance(event, ParentChanged):
            # A packet in flight to another root may have reached subscribers there.
            for token in [token for token, (key, _) in waiting.items() if key == event.key]:
                del waiting[token]
        elif isinstance(event, PacketPublished) and event.token in waiting:
            del waiting[event.token]
            if self.participants.ever_subscribed.get(event.key, set()) <= {host.name}:
                self.violated(f"packet {event.number} was published, but no other node ever subscribed", host)
        elif isinstance(event, PacketNotPublished):
            waiting.pop(event.token, None)


class EventualDelivery(TreeInvariant):
    """A packet published at the end reaches all subscribers of the stream."""

    name = "eventual delivery"

    def __init__(self, participants: Participants, keys: list[bytes]) -> None:
        super().__init__(participants, keys)
        self.last_packets: dict[bytes, bytes] = {}

    def missing(self) -> list[Host]:
        """Return the subscribers that have not received the last packet of their stream."""
        return [
            host
            for key, data in self.last_packets.items()
            for host in self.participants.hosts
            if host.running
            and key in self.participants.wanted_keys[host.name]
            and data not in {packet for stream, _, packet in self.participants.received[host.name] if stream == key}
        ]

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        missing = self.missing()
        if missing:
            self.violated("the last packet was not delivered", *missing)


class RestartRateBounded(TreeInvariant):
    """The number of voluntary restarts of a stream per restart interval is bounded, whatever peers send.

    The limit is the sum of seven probes of a new root, five probes that met a nearer node without a parent, one for a
    hint and one for a neighbour.
    """

    name = "restart rate is bounded"
    limit = 14

    def __init__(self, participants: Participants, keys: list[bytes]) -> None:
        super().__init__(participants, keys)
        self._restarts: dict[tuple[str, int, bytes, int], dict[float, None]] = {}

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        for host in self.participants.hosts:
            if not host.running:
                continue
            interval = host.node.config.policy.restart_interval
            for key, stream in host.node.streams.items():
                restarts = self._restarts.setdefault((host.name, host.boots, key, stream.generation), {})
                restarts[stream.last_restart_at] = None
                recent = [when for when in restarts if stream.last_restart_at - when < interval]
                if len(recent) > self.limit:
                    self.violated(f"{key.hex()[:8]} was restarted {len(recent)} times in {interval:g} s", host)


class RestartAnnouncedOnce(TreeInvariant):
    """A node announces a restart to a subscriber once, unless the path between them or to the root changed.

    The answer to a request that belongs to the restart does not count.
    """

    name = "restarts are announced once"

    def __init__(self, participants: Participants, keys: list[bytes]) -> None:
        super().__init__(participants, keys)
        self._announced: dict[tuple[str, str, bytes], int] = {}
        self._requests: defaultdict[tuple[str, str, bytes], set[int]] = defaultdict(set)
        self._nodes = {host.address[0]: host for host in participants.hosts}

    def sent(self, packet: SimPacket) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        message, source, to = packet.data, packet.source.address[0], packet.to[0]
        match message:
            case SubscribeRestarted(key, uid, _) if source in self._nodes and to in self._nodes:
                below = self._nodes[to]
                if not below.running or not _has_subscriber(packet.source.node.streams.get(key), below):
                    return  # A node with a queued request gets the same message, and has no subtree yet.
                path = source, to, key
                if self._announced.get(path) != uid:
                    self._announced[path] = uid
                elif uid in self._requests[path]:
                    self._requests[path].remove(uid)
                else:
                    self.violated(f"restart {uid:x} of {key.hex()[:8]} was announced again", packet.source, below)
            case SubscribeSucceeded(key) | SubscribeSucceededNewRoot(key) | Dismissed(key):
                # The restart is over, or the subscriber no longer belongs to the node.
                self._announced.pop((source, to, key), None)
                self._requests.pop((source, to, key), None)

    def arrived(self, packet: SimPacket, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        below, here = packet.source.address[0], host.address[0]
        match packet.data:
            case SubscribeRequest(_, key) | Unsubscribe(key):
                self._announced.pop((here, below, key), None)
            case ResubscribeRequest(uid, key):
                self._announced.pop((here, below, key), None)
                self._requests[here, below, key].add(uid)


class MemoryBounded(TreeInvariant):
    """Every resource that peers can make grow stays within its limit."""

    name = "memory is bounded"

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        for host in self.participants.hosts:
            if not host.running:
                continue
            policy = host.node.config.policy
            self._check_handshakes(host)
            if len(host.node.streams) > policy.max_streams:
                self.violated(f"{len(host.node.streams)} streams exceed the limit of {policy.max_streams}", host)
            for stream in host.node.streams.values():
                for name, count, limit in (
                    ("requests", len(stream.requests), MAX_PARALLEL_REQUESTS + 2),
                    ("queued requests", len(stream.queued_requests), policy.max_waiting),
                    ("packets in flight to the root", len(stream.upstream), policy.max_waiting),
                    ("queued packets", len(stream.publish_queue), MAX_QUEUED_PACKETS),
                    ("packets to resend", len(stream.resend_queue), policy.keep_packets),
                    ("packets", len(stream.packets), policy.keep_packets),
                    ("subscribers", len(stream.subscribers), host.node.config.max_neighbours * 2),
                ):
                    if count > limit:
                        self.violated(f"{count} {name} exceed the limit of {limit}", host)

    def _check_handshakes(self, host: Host) -> None:
        config, handshakes = host.node.config, host.node.handshakes()
        sources = Counter(peer.address[0] for peer in handshakes if not peer.dialled)
        for source, count in sources.items():
            if count > config.max_handshakes_per_host:
                self.violated(f"{count} links of {source} are in the handshake, above the limit", host)
        for since in handshakes.values():
            age = host.now - since
            if age > config.handshake_timeout + HANDSHAKE_GRACE:
                self.violated(f"a link has been in the handshake for {age:.1f} s", host)
