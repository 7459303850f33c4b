"""Participants of a simulated cluster: nodes, and applications that publish on them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from random import Random

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import FyrehoseError, NoSuccessor, NotLeader
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.events import MembershipChanged, PublishConfirmed, PublishUnconfirmed
from fyrehose_twisted.parcels.node.node import ClusterNode
from fyrehose_twisted.parcels.node.ordering.history import EventWindow
from fyrehose_twisted.parcels.node.persistent_state import PersistentState
from fyrehose_twisted.parcels.simulation.event_chain import EventChain
from fyrehose_twisted.parcels.simulation.reference_peer import ReferencePeer
from fyrehose_twisted.parcels.wire.messages import Mode, PublisherRun, RefusalReason
from fyrehose_twisted.sim.crash_mode import Boot, CrashMode
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.observer import Observer


class NodeDisk:
    """Disk of a node, which survives its crashes.

    :ivar history: delivered events; nodes with a journal keep them across crashes.
    :ivar chain: the application's state of the running node; ``None`` if it holds none.
    """

    def __init__(self, config: NodeConfig, *, journal: bool, state: bool = False) -> None:
        self.config = config
        self.chain: EventChain | None = None
        self._holds_state = state
        self._saved: tuple[int, int, bytes] | None = None
        self.journal = journal
        self.persistent_state = PersistentState()
        self.history = EventWindow(2**40)

    def start(self, boot: Boot, rng: Random, *, bootstrapped: bool) -> ClusterNode:
        """Start the node.

        :param bootstrapped: whether a cluster exists, so that the node is started without ``bootstrap``.
        """
        config = replace(self.config, bootstrap=False) if bootstrapped else self.config
        if boot.last_crash is CrashMode.DISK:
            self.persistent_state, self.history, self._saved = PersistentState(), EventWindow(2**40), None
        sequence = self._load_state() if self._holds_state else 0
        return ClusterNode(
            config,
            rng,
            boot.now,
            persistent_state=self.persistent_state if self.journal else None,
            history=self.history if self.journal else None,
            application=self.chain,
            application_sequence=sequence,
        )

    def _load_state(self) -> int:
        self.chain = EventChain()
        if self._saved is None or self._saved[0] != self.persistent_state.cluster_id:
            return 0
        _, sequence, data = self._saved
        self.chain.restore(data)
        return sequence

    def save_state(self, node: ClusterNode, now: float) -> None:
        """Store the application's state, as a node with a journal does from time to time."""
        application = node.components.application_state
        if self.journal and application.is_complete and node.cluster_id:
            data = application.snapshot()
            if data is not None:
                self._saved = node.cluster_id, application.sequence, data


class Participants(Observer):
    """A cluster and its applications.

    :ivar hosts: hosts of nodes that belong to the cluster.
    :ivar disks: disk of each host with a node.
    :ivar adversaries: hosts of nodes that must be refused.
    :ivar published: published events, by token.
    :ivar confirmed: number of events with sequence numbers.
    :ivar failed: number of failed publications.
    :ivar key_conflicts: number of keys refused because they were used for another event.
    :ivar conditions: what each conditional publisher expects.
    :ivar unexpected: publishers that were told that their condition had failed.
    :ivar reads: reads under way, each with :attr:`last_confirmed` at its start, by token.
    :ivar transfers: number of leaders that were ordered to let another node lead.
    :ivar last_confirmed: highest number that was acknowledged or read.
    """

    def __init__(self, network: Network, rng: Random) -> None:
        self.network = network
        self.rng = rng
        self.hosts: list[Host] = []
        self.disks: dict[Host, NodeDisk] = {}
        self.adversaries: list[Host] = []
        self.published: dict[int, list[bytes]] = {}
        self.confirmed = 0
        self.failed = 0
        self.key_conflicts = 0
        self.conditions: dict[str, int] = {}
        self.unexpected: set[str] = set()
        self.reads: dict[int, int] = {}
        self.last_confirmed = 0
        self.transfers = 0
        self._numbers = count(1)
        self._tokens = count(1)
        self._membership: MembershipChanged | None = None
        self._index = 0
        self._keyed: dict[int, tuple[PublisherRun, int]] = {}

    def add(self, name: str, address: Address, disk: NodeDisk, *, belongs: bool = True) -> Host:
        """Add a host that runs a node."""
        rng = Random(self.rng.getrandbits(64))
        host = self.network.add(
            name,
            address,
            lambda boot: disk.start(boot, Random(rng.getrandbits(64)), bootstrapped=self._membership is not None),
        )
        self.disks[host] = disk
        if disk.journal:
            host.on_persist = lambda change: disk.persistent_state.persist(change)
        (self.hosts if belongs else self.adversaries).append(host)
        return host

    def add_reference_peer(
        self, name: str, address: Address, neighbours: Sequence[Address], *, host_name: str = ""
    ) -> Host:
        """Add a host with a peer that supports only document 004."""
        host = self.network.add(host_name or name, address, lambda boot: ReferencePeer(name, address, neighbours))
        self.adversaries.append(host)
        return host

    def forget_membership(self) -> None:
        """Track a cluster that the operator has re-created."""
        self._membership, self._index = None, -1

    # The operator

    def transfer_leadership(self, node: ClusterNode, now: float) -> None:
        """Order any other member to take over, if this node leads."""
        others = [member.name for member in sorted(node.components.raft.members) if member != node.components.raft.me]
        with suppress(NotLeader, NoSuccessor):
            node.transfer_leadership(self.rng.choice([None, *others]), now)
            self.transfers += 1

    # Applications

    def publish(self, node: ClusterNode, now: float, events: int) -> None:
        """Publish some events on a node."""
        token = next(self._tokens)
        data = [b"event %d" % next(self._numbers) for _ in range(events)]
        self.published[token] = data
        try:
            node.publish(data, token, now)
        except FyrehoseError:
            self.failed += 1

    def publish_keyed(self, node: ClusterNode, now: float) -> None:
        """Publish an event with a key, so that it can be retried at another node."""
        number = next(self._numbers)
        token = next(self._tokens)
        run = PublisherRun(f"somebody~{number}", 0, 1, [b"event %d" % number])
        self.published[token] = list(run.events)
        self._keyed[token] = run, 5
        self._try_keyed(node, token, now)

    def publish_conflicting(self, node: ClusterNode, now: float) -> None:
        """Publish two events with the same key, on this node and on any node. One of them has to be refused."""
        publisher = f"clash~{next(self._numbers)}"
        first, second = next(self._tokens), next(self._tokens)
        for token in (first, second):
            run = PublisherRun(publisher, 0, 1, [b"event %d" % next(self._numbers)])
            self.published[token] = list(run.events)
            self._keyed[token] = run, 5
        self._try_keyed(node, first, now)
        if self.rng.random() < 0.5 or not self.rng.choice(self.hosts).perform(
            lambda node, now: self._try_keyed(node, second, now)
        ):
            self._retry_keyed(second)

    def publish_conditional(self, node: ClusterNode, now: float) -> None:
        """Publish an event behind the last one that the node knows, or behind one near it."""
        number, token = next(self._numbers), next(self._tokens)
        expect = max(0, node.sequence + self.rng.choice((0, 0, 0, 0, 1, 1, 2, 5, -1)))
        run = PublisherRun(f"careful~{number}", 0, 1, [b"event %d" % number], expect)
        self.conditions[run.publisher] = expect
        self.published[token] = list(run.events)
        self._keyed[token] = run, 5
        self._try_keyed(node, token, now)

    def read(self, node: ClusterNode, now: float) -> None:
        """Read on a node once it is up to date."""
        token = next(self._tokens)
        self.reads[token], self.published[token] = self.last_confirmed, []
        try:
            node.mark(token, now)
        except FyrehoseError:
            del self.reads[token]

    def _try_keyed(self, node: ClusterNode, token: int, now: float) -> None:
        try:
            node.publish_as(self._keyed[token][0], token, now)
        except FyrehoseError:
            self._retry_keyed(token)

    def _retry_keyed(self, token: int) -> None:
        run, left = self._keyed[token]
        if left == 0:
            del self._keyed[token]
            self.failed += 1
            return
        self._keyed[token] = run, left - 1
        host = self.rng.choice(self.hosts)

        def repeat() -> None:
            if token in self._keyed and not host.perform(lambda node, now: self._try_keyed(node, token, now)):
                self._retry_keyed(token)

        self.network.call_in(self.rng.uniform(0.1, 3.0), repeat)

    def event_emitted(self, host: Host, event: object) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if isinstance(event, PublishConfirmed):
            self.last_confirmed = max(self.last_confirmed, sum(event.numbers[-1]) - 1)
            self.confirmed += len(self.published[event.token])
            self._keyed.pop(event.token, None)
        elif isinstance(event, PublishUnconfirmed) and event.reason is RefusalReason.UNEXPECTED:
            run, _ = self._keyed.pop(event.token)
            self.unexpected.add(run.publisher)
        elif isinstance(event, PublishUnconfirmed) and event.reason is RefusalReason.OTHER_BODY:
            self.key_conflicts += 1
            self._keyed.pop(event.token, None)
        elif isinstance(event, PublishUnconfirmed):
            self.failed += 1
            if event.token in self._keyed:
                self._retry_keyed(event.token)
        elif isinstance(event, MembershipChanged) and host in self.hosts:
            index = host.node.components.raft.commit_index
            if index > self._index:
                self._membership, self._index = event, index

    # State

    def working(self) -> list[Host]:
        """Return the hosts whose nodes can order events."""
        return [host for host in self.hosts if host.running and host.node.mode is Mode.WRK]

    def members(self) -> list[Host]:
        """Return the hosts that have to work: all that are running."""
        return [host for host in self.hosts if host.running]

    def quorum_lost(self) -> bool:
        """Return whether too few voters kept their state, so that only the operator can restore service."""
        if self._membership is None:
            return False
        view = self._membership.membership
        remember = {host.node.me for host in self.hosts if host.up}
        if len([one for one, _ in view.members if one in remember]) < view.quorum:
            return True
        # Members that missed the last change still count the removed member.
        return all(
            (known := host.node.components.raft.membership) is not None
            and len([one for one, _ in known.members if one in remember]) < known.quorum
            for host in self.hosts
            if host.up and host.node.me in host.node.components.raft.members
        )
