"""Invariants of simulated hydra networks (section 7 of the reading of document 002)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from math import ceil, log2
from typing import ClassVar, NamedTuple

from fyrehose_twisted.effects import Peer
from fyrehose_twisted.hydra.config import Timers
from fyrehose_twisted.hydra.events import (
    LeaderChanged,
    LinesMissed,
    LinesReceived,
    NodeDropped,
    NodeRegistered,
    OpenIrc,
    Outcome,
    Role,
    RoleChanged,
    ToIrc,
)
from fyrehose_twisted.hydra.node.node import HydraNode
from fyrehose_twisted.hydra.node.relay.irc_writer import MAX_UNANSWERED
from fyrehose_twisted.hydra.simulation.participants import LINGER, IrcConnection, Participants
from fyrehose_twisted.hydra.wire.line_splitting import MAX_PARTS
from fyrehose_twisted.hydra.wire.lines import untag
from fyrehose_twisted.hydra.wire.messages import Call, Elect, Knock, Meet, Nominate, Pledge, Pong, Recv
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.invariants import Invariant
from fyrehose_twisted.sim.observer import SimPacket


class NetworkInvariant(Invariant):
    """Base class of invariants of a network."""

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants.network)
        self.participants = participants

    def is_node(self, host: Host) -> bool:
        """Return whether a host runs a node of the network."""
        return host in self.participants.hosts

    def up(self) -> list[Host]:
        """Return the hosts with running nodes."""
        return [host for host in self.participants.hosts if host.up]


def holds_lease(host: Host) -> bool:
    """Return whether the node of a host holds a lease by its own clock, even if its process is paused."""
    if not host.up:
        return False
    until = host.node.lease_until
    return host.node.role is Role.LEADER and until is not None and host.now < until


class SingleLeaderPerTerm(NetworkInvariant):
    """At most one node is elected in each term."""

    name: ClassVar[str] = "one leader per term"

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self._leaders: dict[int, tuple[Host, int]] = {}

    def event_emitted(self, host: Host, event: object) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if not self.is_node(host):
            return
        if isinstance(event, RoleChanged) and event.role is Role.LEADER and not host.node._context.bootstrapping:
            self._record_leader(host, host.node.term)
        elif isinstance(event, OpenIrc):
            self._record_leader(host, event.term)

    def _record_leader(self, host: Host, term: int) -> None:
        life = host, host.boots
        known = self._leaders.setdefault(term, life)
        if known != life:
            self.violated(f"both lead in term {term}", known[0], host)


class SingleLease(NetworkInvariant):
    """At most one node holds a lease, and only that node writes lines to IRC."""

    name: ClassVar[str] = "one lease at a time"

    def event_emitted(self, host: Host, event: object) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if not self.is_node(host):
            return
        if isinstance(event, ToIrc):
            if not holds_lease(host) and host.now < event.deadline:
                self.violated(f"writes {event.line!r} to IRC without a lease", host)
            self._check_leases()
        elif isinstance(event, OpenIrc | RoleChanged | LeaderChanged):
            self._check_leases()

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        self._check_leases()

    def _check_leases(self) -> None:
        holders = [host for host in self.participants.hosts if holds_lease(host)]
        if len(holders) > 1:
            self.violated("several nodes hold a lease", *holders)


class SingleVotePerTerm(NetworkInvariant):
    """A node votes once per term; with a state file, also across crashes."""

    name: ClassVar[str] = "one vote per term"

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self._votes: dict[tuple[str, int, int], int] = {}
        self._voters: dict[tuple[str, int, Host, int], int] = {}

    def sent(self, packet: SimPacket) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        message, host = packet.data, packet.source
        if not isinstance(message, Pledge | Elect) or not self.is_node(host) or message.id != host.node.id:
            return
        kind = type(message).__name__
        if self._votes.setdefault((kind, message.term, message.id), message.nom) != message.nom:
            self.violated(f"{message.id} votes for two nodes in term {message.term}", host)
        life = 0 if host.on_persist is not None else host.boots
        if self._voters.setdefault((kind, message.term, host, life), message.id) != message.id:
            self.violated(f"votes under two ids in term {message.term}", host)


class MonotonicTerms(NetworkInvariant):
    """Each new lease has a higher term than all earlier ones, if nodes store terms; a node never withdraws a vote."""

    name: ClassVar[str] = "terms increase"

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self._last = 0
        self._voted: Counter[tuple[Host, int]] = Counter()

    def event_emitted(self, host: Host, event: object) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if not self.is_node(host):
            return
        if isinstance(event, OpenIrc):
            if event.term < self._last and all(one.on_persist is not None for one in self.participants.hosts):
                self.violated(f"opens IRC in term {event.term} after {self._last}", host)
            self._last = event.term
        life = host, 0 if host.on_persist is not None else host.boots
        voted = host.node._context.durable.voted
        if voted < self._voted[life]:
            self.violated(f"the last voted term falls from {self._voted[life]} to {voted}", host)
        self._voted[life] = voted


class LineAgreement(NetworkInvariant):
    """All nodes receive the same lines under the same numbers, in order, and detect gaps."""

    name: ClassVar[str] = "line agreement"

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self._lines: dict[tuple[int, int], bytes] = {}
        self._next: dict[tuple[Host, int], tuple[int, int]] = {}
        self._joined: set[tuple[Host, int]] = set()
        self.received = 0
        self.missed = 0

    def event_emitted(self, host: Host, event: object) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if isinstance(event, LinesReceived):
            self._check_order(host, event.term, event.first, event.first + len(event.lines))
            for idx, line in enumerate(event.lines, event.first):
                self.received += 1
                known = self._lines.setdefault((event.term, idx), line)
                if known != line:
                    self.violated(f"line {idx} of term {event.term} is {line!r} here and {known!r} elsewhere", host)
        elif isinstance(event, LinesMissed):
            self.missed += event.last - event.first + 1
            self._check_order(host, event.term, event.first, event.last + 1)
        elif isinstance(event, RoleChanged) and event.role is Role.OUTSIDER:
            self._joined.add((host, host.boots))

    def _check_order(self, host: Host, term: int, first: int, after: int) -> None:
        life = host, host.boots
        last_term, expected = self._next.get(life, (-1, 0))
        joined = life in self._joined
        self._joined.discard(life)
        if term < last_term and host.on_persist is not None:
            self.violated(f"receives line {first} of term {term} after term {last_term}", host)
        if last_term >= 0 and term > last_term and first > 0 and not joined:
            self.violated(f"receives line {first} of term {term} first, and no report of a gap", host)
        if term == last_term and first < expected:
            self.violated(f"receives line {first} of term {term} twice", host)
        if term == last_term and first > expected and not joined:
            self.violated(f"receives line {first} of term {term} after {expected - 1}, and no report of a gap", host)
        self._next[life] = term, after


class AtMostOnceSend(NetworkInvariant):
    """At-most-once lines are sent at most once, and reported outcomes are true."""

    name: ClassVar[str] = "sent at most once"

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        for wish in self.participants.requested_lines.values():
            host = wish.host
            assert host is not None, "every requested line has a host"
            if wish.send_count > 1 and not wish.retry:
                self.violated(f"{wish.line!r} was sent {wish.send_count} times", host)
            if wish.outcome is Outcome.SAID and not wish.read_count:
                self.violated(f"{wish.line!r} was reported as said, but not seen on IRC", host)
            if wish.outcome is Outcome.REFUSED and wish.read_count:
                self.violated(f"{wish.line!r} was reported as refused, but seen on IRC", host)

    def event_emitted(self, host: Host, event: object) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if isinstance(event, LinesReceived):
            names = [name for name, _ in map(untag, event.lines) if name is not None]
            if len(names) != len(set(names)):
                self.violated("receives one line twice", host)


class SilentServerDetected(NetworkInvariant):
    """A leader detects an unresponsive IRC server in time.

    :param drift: largest clock drift.
    """

    name: ClassVar[str] = "silent IRC servers are detected"

    def __init__(self, participants: Participants, drift: float) -> None:
        super().__init__(participants)
        self._drift = drift
        self._since: dict[IrcConnection, float] = {}

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        since: dict[IrcConnection, float] = {}
        for connection in self.participants.irc_connections:
            host = connection.host
            if (
                host.running
                and host.boots == connection.boot
                and any(isinstance(one, bytes) for one in connection.delayed_requests)
            ):
                since[connection] = self._since.get(connection, self.network.elapsed)
                waited = self.network.elapsed - since[connection]
                if waited > host.node.config.irc_patience / (1 - self._drift) + LINGER:
                    self.violated(f"has waited for a reply of the IRC server for {waited:.0f} s", host)
        self._since = since


class NoRebroadcastStorm(NetworkInvariant):
    """A node sends each message once over each link."""

    name: ClassVar[str] = "no rebroadcast storm"
    _kinds: ClassVar[frozenset[type]] = frozenset((Nominate, Pledge, Call, Elect, Pong, Recv))

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self._sent: Counter[tuple[Host, int, object]] = Counter()

    def sent(self, packet: SimPacket) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        message, host = packet.data, packet.source
        if type(message) not in self._kinds or not self.is_node(host):
            return
        if isinstance(message, Pong):
            message = message._replace(count=0)
        content: object = (host.node.term, message.idx) if isinstance(message, Recv) else message
        key = host, host.boots, content
        self._sent[key] += 1
        links = len(self.network.streams.connection_ends(host))
        if self._sent[key] > 2 + 2 * links:
            self.violated(f"sends {message} {self._sent[key]} times over {links} links", host)
        if len(self._sent) > 200_000:
            self._sent.clear()


class QuorumRequiredToDrop(NetworkInvariant):
    """A leader without a quorum drops no node."""

    name: ClassVar[str] = "dropping a node requires a quorum"

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self._dropped: set[int] = set()

    def event_emitted(self, host: Host, event: object) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if not isinstance(event, NodeDropped) or event.reason != "no PONG" or event.id in self._dropped:
            return
        # The first node that reports the drop decided it.
        self._dropped.add(event.id)
        if self.is_node(host) and not holds_lease(host):
            self.violated(f"drops {event.id} without a quorum", host)


class InductionsTerminate(NetworkInvariant):
    """An induction takes at most two MAX_MEETs."""

    name: ClassVar[str] = "inductions terminate"

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self._since: dict[tuple[Host, int, int], float] = {}

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        now: dict[tuple[Host, int, int], float] = {}
        for host in self.up():
            ind = host.node._components.induction.mediating
            if ind is not None:
                key = host, host.boots, ind
                now[key] = self._since.get(key, host.now)
                if host.running and host.now - now[key] > 2 * host.node.config.timers.max_meet:
                    self.violated(f"has mediated for {ind} since {now[key]}", host)
        self._since = now


class IntroducedToAll(NetworkInvariant):
    """Every node known to the mediator has sent a MEET before a WELCOME.

    It needs messages on the links, not bytes.
    """

    name: ClassVar[str] = "MEET from all nodes before WELCOME"

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self._knocks: dict[tuple[Host, int, int], float] = {}
        self._met: defaultdict[tuple[Host, int, int], set[int]] = defaultdict(set)
        self._inducted: Counter[tuple[Host, int]] = Counter()

    def sent(self, packet: SimPacket) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        message, host = packet.data, packet.source
        if isinstance(message, Knock) and self.is_node(host):
            self._knocks[host, host.boots, message.ind] = host.now

    def arrived(self, packet: SimPacket, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        message = packet.data
        if isinstance(message, Meet) and self.is_node(host):
            self._met[host, host.boots, message.ind].add(message.id)

    def event_emitted(self, host: Host, event: object) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if not isinstance(event, NodeRegistered) or not self.is_node(host):
            return
        node: HydraNode = host.node
        life = host, host.boots
        if node.counters["inducted"] == self._inducted[life]:
            return
        self._inducted[life] = node.counters["inducted"]
        knocked = self._knocks.get((*life, event.id), host.now)
        asked = {member.id for member in node._context.registry if member.registered_at < knocked} - {node.id, event.id}
        missing = asked - self._met[*life, event.id]
        if missing:
            self.violated(f"registered {event.id} before MEET from {', '.join(map(str, missing))}", host)


class LinksIdentified(NetworkInvariant):
    """Both ends bind a link soon, and no node mistakes a guardian for its node."""

    name: ClassVar[str] = "links are identified"

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self._since: dict[tuple[Host, int, Peer], float] = {}

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        nodes = {host: host.node.id for host in self.up()}
        nodes |= {guardian: guardian.node.id for guardian in self.participants.guardians.values() if guardian.up}
        now: dict[tuple[Host, int, Peer], float] = {}
        for host in self.up():
            context = host.node._context
            ends = self.network.streams.connection_ends(host).values()
            others = {end.peer: end.other.host for end in ends if end.other is not None}
            for link in context.links:
                other = others.get(link.peer)
                if other is None or other is host:
                    continue
                if link.relays and other in self.participants.guardians.values():
                    self.violated(f"takes the guardian of node {link.node} for the node", host)
                if link.node is None and nodes.get(other) in context.registry:
                    key = host, host.boots, link.peer
                    now[key] = self._since.get(key, self.network.elapsed)
                    if self.network.elapsed - now[key] > 6 * host.node.config.timers.max_ping:
                        self.violated(f"has not identified node {nodes[other]} at the other end of a link", host)
        self._since = now


class Usage(NamedTuple):
    """Usage and limit of a resource."""

    resource: str
    used: int
    limit: int


class MemoryBounded(NetworkInvariant):
    """State that other peers can grow stays within its limits."""

    name: ClassVar[str] = "memory is bounded"

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        for host in self.up():
            node: HydraNode = host.node
            config, registry = node.config, node._context.registry
            size = config.network_size or 64
            for use in (
                Usage(
                    "nodes and reserved places", registry.places_taken() if node._context.has_fixed_quorum else 0, size
                ),
                Usage("links", node._context.links.accepted, config.max_links + 1),
                Usage("lines in the send queue", len(node._components.send_queue), config.max_queue),
                Usage("lines for IRC", len(node._components.irc_writer), config.max_queue + MAX_PARTS),
                Usage("lines without a reply", len(node._components.irc_writer.pending_replies), MAX_UNANSWERED),
                Usage("waiting knocks", len(node._components.induction._waiting_knocks), 16),
            ):
                if use.used > use.limit:
                    self.violated(f"{use.resource}: {use.used:,} in use, the limit is {use.limit:,}", host)


class NetworkConverges(NetworkInvariant):
    """After the last fault, all nodes form one network with one leader and equal registries."""

    name: ClassVar[str] = "the network converges"

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        hosts = [host for host in self.up() if host.node.role is not Role.GONE]
        if not hosts:
            return
        problem = find_disagreement(hosts)
        if problem is not None:
            self.violated(problem, *hosts)


class RecoversAfterPartition(NetworkInvariant):
    """A partitioned network has a leader soon after it heals.

    After a long partition too few nodes may be members and a new network is bootstrapped, which takes longer;
    :class:`NetworkConverges` checks that.

    :param healed: end of the last fault in seconds after the start.
    :param drift: largest clock drift.
    """

    name: ClassVar[str] = "recovery after a partition is bounded"

    def __init__(self, participants: Participants, healed: Callable[[], float], drift: float) -> None:
        super().__init__(participants)
        self._healed = healed
        self._drift = drift
        self._last = 0.0
        self._whole = True

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        now = self.network.elapsed
        hosts = self.up()
        if not hosts:
            return
        healed = self._healed()
        if any(map(holds_lease, hosts)):
            self._last, self._whole = now, True
        elif now <= healed:
            self._whole = has_registered_quorum(hosts)
        bound = max_recovery_time(hosts[0].node.config.timers) / (1 - self._drift)
        since = max(healed, self._last)
        if self._whole and now - since > bound:
            self.violated(f"no leader for {now - since:.0f} s", *hosts)


class ReunitesAfterPartition(NetworkInvariant):
    """MAX_PING after a partition of any length, there is one network with one leader.

    If there were more than two networks, pairs of them merge first. Each further round takes one more interval between
    two PINGs, by which nodes learn of the other network.

    :param healed: end of the last partition in seconds after the start.
    """

    name: ClassVar[str] = "the network reunites"

    def __init__(self, participants: Participants, healed: Callable[[], float]) -> None:
        super().__init__(participants)
        self._healed = healed
        self._is_one = False
        self._networks = 0

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        now, healed = self.network.elapsed, self._healed()
        if self._is_one or now <= healed:
            return
        hosts = self.up()
        self._networks = self._networks or len({host.node.leader for host in hosts} - {None})
        problem = find_disagreement(hosts)
        self._is_one = problem is None
        if problem is not None and now - healed > self._longest(hosts[0].node.config.timers):
            what = f"{now - healed:.0f} s after the end of the partition into {self._networks} networks, {problem}"
            self.violated(what, *hosts)

    def _longest(self, timers: Timers) -> float:
        further_rounds = max(0, ceil(log2(max(1, self._networks))) - 1)
        return timers.max_ping + further_rounds * timers.ping_interval


def has_registered_quorum(hosts: list[Host]) -> bool:
    """Return whether some node has registered a quorum of the running nodes."""
    ids = {host.node.id for host in hosts}
    quorum = (hosts[0].node.config.network_size or len(hosts)) // 2 + 1
    return any(len(ids & host.node._context.registry.ids()) >= quorum for host in hosts)


def find_disagreement(hosts: list[Host]) -> str | None:
    """Return why the hosts are not one network with one leader, ``None`` if they are."""
    leaders = {host.node.leader for host in hosts}
    if len(leaders) != 1 or None in leaders:
        return f"nodes follow {sorted(map(str, leaders))}"
    if sum(holds_lease(host) for host in hosts) != 1:
        return "not exactly one node holds a lease"
    registries = {host.node._context.registry.ids() for host in hosts}
    if len(registries) != 1:
        return "nodes have different registries"
    if registries != {frozenset(host.node.id for host in hosts)}:
        return "registries contain a node that is not running"
    return None


def max_recovery_time(timers: Timers) -> float:
    """Return the longest time without a leader after a partition, in seconds (section 7 of the reading)."""
    return timers.max_ping + 3 * timers.max_vote[1]
