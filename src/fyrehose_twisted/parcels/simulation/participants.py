"""Who takes part in a simulated cluster: nodes, and applications that publish on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from random import Random

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import FyrehoseError, KeyReused
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.events import Answered, NotTaken, ViewChanged
from fyrehose_twisted.parcels.node.node import ClusterNode
from fyrehose_twisted.parcels.node.ordering.history import EventWindow
from fyrehose_twisted.parcels.node.persistent_state import Promises
from fyrehose_twisted.parcels.simulation.reference_peer import DocumentPeer
from fyrehose_twisted.parcels.wire.messages import Mode, Refusal, Run
from fyrehose_twisted.sim.crash_mode import Boot, Crash
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.observer import Observer


class Follower:
    """A node's disk, and what its application remembers.

    :ivar history: events that the node kept; a journal keeps them over a crash.
    """

    def __init__(self, config: NodeConfig, *, journal: bool) -> None:
        self.config = config
        self.journal = journal
        self.promises = Promises()
        self.history = EventWindow(2**40)

    def start(self, boot: Boot, rng: Random, *, founded: bool) -> ClusterNode:
        """Start the node.

        :param founded: whether there is a cluster: then whoever starts it does not tell it to found one.
        """
        config = replace(self.config, found=False) if founded else self.config
        if not self.journal:
            return ClusterNode(config, rng, boot.now)
        if boot.after is Crash.DISK:
            self.promises, self.history = Promises(), EventWindow(2**40)
        return ClusterNode(config, rng, boot.now, promises=self.promises, history=self.history)


class Cast(Observer):
    """A cluster and the applications on it.

    :ivar hosts: those that run nodes which belong to the cluster.
    :ivar strangers: those that run nodes which must not be let in.
    :ivar published: what was published, by token.
    :ivar answered: how many events have their numbers.
    :ivar failed: how often something was not taken.
    :ivar clashed: how often a key was refused because it was used for another event.
    """

    def __init__(self, network: Network, rng: Random) -> None:
        self.network = network
        self.rng = rng
        self.hosts: list[Host] = []
        self.strangers: list[Host] = []
        self.published: dict[int, list[bytes]] = {}
        self.answered = 0
        self.failed = 0
        self.clashed = 0
        self._numbers = count(1)
        self._tokens = count(1)
        self._view: ViewChanged | None = None
        self._index = 0
        self._keyed: dict[int, tuple[Run, int]] = {}

    def add(self, name: str, address: Address, follower: Follower, *, belongs: bool = True) -> Host:
        """Add a host that runs a node."""
        rng = Random(self.rng.getrandbits(64))
        host = self.network.add(
            name,
            address,
            lambda boot: follower.start(boot, Random(rng.getrandbits(64)), founded=self._view is not None),
        )
        if follower.journal:
            host.on_persist = lambda change: follower.promises.keep(change)
        (self.hosts if belongs else self.strangers).append(host)
        return host

    def add_document_peer(
        self, name: str, address: Address, neighbours: Sequence[Address], *, host_name: str = ""
    ) -> Host:
        """Add a host that runs somebody who speaks only the document."""
        host = self.network.add(host_name or name, address, lambda boot: DocumentPeer(name, address, neighbours))
        self.strangers.append(host)
        return host

    def forget_view(self) -> None:
        """The operator forms the cluster anew."""
        self._view, self._index = None, -1

    # What applications do

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
        """Publish an event so that it can be repeated elsewhere."""
        number = next(self._numbers)
        token = next(self._tokens)
        run = Run(f"somebody~{number}", 0, 1, [b"event %d" % number])
        self.published[token] = list(run.events)
        self._keyed[token] = run, 5
        self._try(node, token, now)

    def publish_clashing(self, node: ClusterNode, now: float) -> None:
        """Publish two events under one key, here and at the same time or later on some node: one of them is refused."""
        publisher = f"clash~{next(self._numbers)}"
        first, second = next(self._tokens), next(self._tokens)
        for token in (first, second):
            run = Run(publisher, 0, 1, [b"event %d" % next(self._numbers)])
            self.published[token] = list(run.events)
            self._keyed[token] = run, 5
        self._try(node, first, now)
        if self.rng.random() < 0.5 or not self.rng.choice(self.hosts).do(
            lambda node, now: self._try(node, second, now)
        ):
            self._again(second)

    def _try(self, node: ClusterNode, token: int, now: float) -> None:
        try:
            node.publish_as(self._keyed[token][0], token, now)
        except KeyReused:
            self.clashed += 1
            del self._keyed[token]
        except FyrehoseError:
            self._again(token)

    def _again(self, token: int) -> None:
        run, left = self._keyed[token]
        if left == 0:
            del self._keyed[token]
            self.failed += 1
            return
        self._keyed[token] = run, left - 1
        host = self.rng.choice(self.hosts)

        def repeat() -> None:
            if token in self._keyed and not host.do(lambda node, now: self._try(node, token, now)):
                self._again(token)

        self.network.call_in(self.rng.uniform(0.1, 3.0), repeat)

    def told(self, host: Host, event: object) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if isinstance(event, Answered):
            self.answered += len(self.published[event.token])
            self._keyed.pop(event.token, None)
        elif isinstance(event, NotTaken) and event.why is Refusal.OTHER_BODY:
            self.clashed += 1
            self._keyed.pop(event.token, None)
        elif isinstance(event, NotTaken):
            self.failed += 1
            if event.token in self._keyed:
                self._again(event.token)
        elif isinstance(event, ViewChanged) and host in self.hosts:
            index = host.node._order.commit
            if index > self._index:
                self._view, self._index = event, index

    # How things are

    def working(self) -> list[Host]:
        """Return the hosts whose nodes can order events."""
        return [host for host in self.hosts if host.running and host.node.mode is Mode.WRK]

    def members(self) -> list[Host]:
        """Return the hosts that should work: all that run."""
        return [host for host in self.hosts if host.running]

    def is_lost(self) -> bool:
        """Whether too few of those who vote remember that they do: then only the operator can go on."""
        if self._view is None:
            return False
        view = self._view.view
        remember = {host.node.me for host in self.hosts if host.up}
        if len([one for one, _ in view.members if one in remember]) < view.quorum:
            return True
        # Those who do not know of the last change have to do without who is gone, too.
        return all(
            (known := host.node._order.view) is not None
            and len([one for one, _ in known.members if one in remember]) < known.quorum
            for host in self.hosts
            if host.up and host.node.me in host.node._order.members
        )
