"""Experiment on a simulated network: subscribe, publish, kill nodes, and measure the trees."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from random import Random
from typing import IO, Any, Literal

from twisted.internet.defer import Deferred

from fyrehose_twisted.errors import ConfigurationError, FyrehoseError, OperationalError, PublishRefused
from fyrehose_twisted.experiments.measures.checks import check_network
from fyrehose_twisted.experiments.measures.node_metrics import node_metrics
from fyrehose_twisted.experiments.measures.tree_metrics import TreeMetrics
from fyrehose_twisted.experiments.measures.trees import find_tree
from fyrehose_twisted.experiments.simulated_network import Latency, SimulatedNetwork
from fyrehose_twisted.experiments.topologies.topology import Topology
from fyrehose_twisted.experiments.trials.churn import Churn, LocationSwapping, SessionChurn, SessionReplay
from fyrehose_twisted.experiments.trials.resubscription import find_orphans, resubscribe_in_turn
from fyrehose_twisted.experiments.trials.rewiring import Rewiring
from fyrehose_twisted.experiments.trials.sampling import Sampling
from fyrehose_twisted.experiments.trials.sessions import Durations, Session, check_sessions
from fyrehose_twisted.experiments.trials.trace import ExperimentTrace
from fyrehose_twisted.freenet.events import (
    Event,
    PacketNotPublished,
    PacketPublished,
    PacketsDelivered,
    ParentChanged,
    ParentLost,
    StreamDropped,
    Subscribed,
    SubscribeFailed,
)
from fyrehose_twisted.freenet.node.stream import StreamPhase
from fyrehose_twisted.freenet.policy import Policy
from fyrehose_twisted.freenet.wire.location import check_key
from fyrehose_twisted.interfaces import ILinkPolicy, IRoutingPolicy

LATENCY = 0.05
"""Default latency of a link in seconds."""
QUIET_LIMIT = 3_600.0
"""Simulated seconds within which a network must become quiet."""


class SubscriptionFailed(OperationalError):
    """The first attempt of a subscription failed.

    :ivar reason: ``overload``, ``timed-out``, ``node-died`` or ``unsubscribed``.
    """

    def __init__(self, node: int, key: bytes, reason: str) -> None:
        super().__init__(f"node {node} could not join the tree of {key.hex()}: {reason}")
        self.node = node
        self.key = key
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Subscription:
    """Outcome of a successful subscription.

    :ivar path: nodes from the subscriber up to the root, both included, at that time.
    :ivar root: number of the root.
    :ivar hops: number of links in ``path``.
    :ivar requests: number of times the request was sent.
    :ivar messages: number of all messages caused by the request.
    """

    node: int
    key: bytes
    path: tuple[int, ...]
    root: int
    hops: int
    requests: int
    messages: int


@dataclass(slots=True)
class _PendingSubscription:
    deferreds: list[Deferred[Subscription]]
    uid: int | None
    cost: list[int] = field(default_factory=lambda: [0, 0])


class TreeExperiment:
    """Simulated network whose nodes run the same code as over real links.

    All randomness derives from ``seed``: equal arguments and calls have equal outcomes.

    :param topology: locations and links of the nodes.
    :param latency: latency of a link in seconds, or a function of both ends and a :class:`random.Random`. A link keeps
        the order of its messages.
    :param loss: probability that a message is lost, as over a transport without retransmissions. With any loss,
        subscribers miss packets, and :meth:`check` may fail.
    :param routing: order in which requests try neighbours; by default the nearest to the key first (document 003).
    :raises ConfigurationError: if ``latency`` or ``loss`` is out of range, or ``routing`` is no routing policy.
    """

    def __init__(
        self,
        topology: Topology,
        policy: Policy | None = None,
        *,
        latency: Latency | None = None,
        loss: float = 0.0,
        seed: int = 1,
        routing: IRoutingPolicy | None = None,
    ) -> None:
        if not 0.0 <= loss < 1.0:
            raise ConfigurationError(f"loss={loss!r}: a probability goes from 0 up to, but not including, 1")
        if latency is None:
            latency = LATENCY
        if not callable(latency):
            latency = float(latency)
            if not 0.0 <= latency < inf:
                raise ConfigurationError(f"latency={latency!r}: a time is 0 or more seconds")
        if routing is not None and not IRoutingPolicy.providedBy(routing):
            raise ConfigurationError(f"{routing!r} does not provide IRoutingPolicy")
        self.topology = topology
        self.policy = Policy() if policy is None else policy
        self.seed = seed
        self.loss = loss
        self._network = SimulatedNetwork(topology, self.policy, latency, loss, seed, self._on_event, routing)
        self._metrics = TreeMetrics(self._network)
        self._collectors = [self._metrics]
        """The metrics of the experiment, and those of each sampling."""
        self._trace: ExperimentTrace | None = None
        self._subscribers: dict[bytes, dict[int, None]] = {}
        self._pending_subscriptions: dict[tuple[int, bytes], _PendingSubscription] = {}
        self._pending_publishes: dict[int, tuple[int, bytes, Deferred[int]]] = {}
        self._tokens = 0

    @property
    def now(self) -> float:
        """Simulated seconds since the start."""
        return self._network.now

    @property
    def messages(self) -> int:
        """Number of messages sent."""
        return self._network.sent_by_type.total()

    @property
    def locations(self) -> list[float]:
        """Current location of each node."""
        return list(self._network.locations)

    def is_up(self, node: int) -> bool:
        """Return True if a node is running."""
        return node not in self._network.down

    # Applications

    def subscribe(self, node: int, key: bytes) -> Deferred[Subscription]:
        """Subscribe the application of a node; the Deferred fails with :class:`SubscriptionFailed`.

        :raises ConfigurationError: if the node does not exist or is down, or the key is malformed.
        :raises TooManyStreams: if the node has the maximum number of streams.
        """
        self._check_node(node, running=True)
        check_key(key)
        network = self._network
        done: Deferred[Subscription] = Deferred()
        earlier = self._pending_subscriptions.get((node, key))
        if earlier is not None:
            earlier.deferreds.append(done)
            return done
        present = network.node(node).streams.get(key)
        if present is not None and present.local and present.connected:
            done.callback(self._subscription(node, key, [0, 0]))
            return done
        waiting = self._pending_subscriptions[node, key] = _PendingSubscription([done], None)
        self._subscribers.setdefault(key, {})[node] = None
        for metrics in self._collectors:
            metrics.subscribe_started(node, key)
        self._trace_line("subscribed", key=key.hex(), node=node)
        try:
            network.node(node).subscribe(key, network.now)
        except FyrehoseError:
            self._withdraw(node, key)
            del self._pending_subscriptions[node, key]
            raise
        stream = network.node(node).streams.get(key)
        search = None if stream is None else stream.own_request
        if search is not None:
            waiting.uid = search.sent_uid
            network.request_costs[search.sent_uid] = waiting.cost
        network.run_command(node, lambda _, now: None)
        return done

    def unsubscribe(self, node: int, key: bytes) -> None:
        """Unsubscribe the application of a node."""
        self._check_node(node)
        check_key(key)
        self._withdraw(node, key)
        self._fail_subscription(node, key, "unsubscribed")
        if self.is_up(node):
            self._network.run_command(node, lambda instance, now: instance.unsubscribe(key, now))

    def publish(self, node: int, key: bytes, data: bytes, *, number: int | None = None) -> Deferred[int]:
        """Publish a packet at a subscriber; return a Deferred of its number.

        The Deferred fails with :class:`~fyrehose_twisted.errors.PublishRefused`.

        :raises ConfigurationError: if the node does not exist or is down.
        :raises MessageTooLarge: if ``data`` exceeds the maximum size of a packet.
        :raises PublishQueueFull: if too many packets of the node are queued.
        :raises UnencodableMessage: if ``number`` is not a packet number.
        """
        self._check_node(node, running=True)
        check_key(key)
        self._tokens += 1
        token = self._tokens
        done: Deferred[int] = Deferred()
        self._pending_publishes[token] = node, key, done
        for metrics in self._collectors:
            metrics.publish_started(token, node, key, data)
        try:
            self._network.run_command(
                node, lambda instance, now: instance.publish(key, data, token, now, number=number)
            )
        except FyrehoseError:
            del self._pending_publishes[token]
            for metrics in self._collectors:
                metrics.publish_failed(token)
            raise
        return done

    # Changes of nodes and links

    def kill(self, node: int) -> None:
        """Kill a node. Its neighbours notice after one latency."""
        self._check_node(node, running=True)
        self._kill(node)

    def _kill(self, node: int, unnoticed_by: Collection[int] = ()) -> None:
        for metrics in self._collectors:
            metrics.fault_occurred()
        self._trace_line("down", node=node)
        self._network.kill(node, unnoticed_by=unnoticed_by)
        for metrics in self._collectors:
            metrics.node_died(node)
        for key in [key for one, key in self._pending_subscriptions if one == node]:
            self._fail_subscription(node, key, "node-died")
        for token in [token for token, (one, _, _) in self._pending_publishes.items() if one == node]:
            self._fail_publish(token, "node-died", None)

    def kill_at_once(self, nodes: Iterable[int], *, resubscribe: Literal["together", "in-turn"] = "together") -> None:
        """Kill several nodes at once.

        :param resubscribe: behaviour of the orphans, the nodes that lost a parent. ``together``: each notices after one
            latency. ``in-turn``: in a random order, each notices once the previous orphan has another parent or is a
            root; the call returns after the last one. Until then an orphan accepts resubscribers as if its parent were
            alive.
        :raises ConfigurationError: if a node does not exist or is down.
        :raises OperationalError: if an orphan finds no parent within an hour of simulated time.
        """
        dead = list(dict.fromkeys(nodes))
        for node in dead:
            self._check_node(node, running=True)
        orphans = find_orphans(self._network, set(dead)) if resubscribe == "in-turn" else {}
        for node in dead:
            self._kill(node, [orphan for orphan, parents in orphans.items() if node in parents])
        if orphans:
            resubscribe_in_turn(self._network, orphans, Random(f"{self.seed}/turns"), QUIET_LIMIT)
            for metrics in self._collectors:
                metrics.time_passed()

    def restart(self, node: int, new_boot_id: bool = True) -> None:
        """Restart a node that is down, with the subscriptions of its application.

        :param new_boot_id: True to start it without its state; False if it was only disconnected.
        """
        self._check_node(node)
        if self.is_up(node):
            raise ConfigurationError(f"node {node} is already running")
        self._trace_line("up", node=node, **({} if new_boot_id else {"kept": True}))
        self._network.restart(node, new_boot=new_boot_id)
        if new_boot_id:
            for key, nodes in self._subscribers.items():
                if node in nodes:
                    self.subscribe(node, key).addErrback(_ignore)

    def link(self, a: int, b: int) -> None:
        """Add a link between two nodes."""
        self._check_pair(a, b)
        self._trace_line("linked", a=a, b=b)
        self._network.link(a, b)

    def unlink(self, a: int, b: int) -> None:
        """Remove the link between two nodes."""
        self._check_pair(a, b)
        for metrics in self._collectors:
            metrics.fault_occurred()
        self._trace_line("unlinked", a=a, b=b)
        self._network.unlink(a, b)

    def swap(self, a: int, b: int) -> None:
        """Exchange the locations of two nodes."""
        self._check_pair(a, b)
        self._network.swap(a, b)
        for node in (a, b):
            self._trace_line("moved", node=node, location=self._network.locations[node])

    def churn(self, rate: float, mean_life: float) -> Churn:
        """Start to kill nodes after exponentially distributed lives, and to restart dead ones.

        :param rate: nodes that return per second while any are dead.
        :param mean_life: mean life of a node in seconds.
        :returns: process with a method to stop it.
        """
        return Churn(self, self._network, rate, mean_life)

    def sessions(self, lives: Durations, pauses: Durations, *, warm_up: float = 0.0) -> SessionChurn:
        """Start to let each node run and stay away for random times, in turn.

        :param lives: durations for which nodes run; those that run begin a session now.
        :param pauses: durations for which they stay away.
        :param warm_up: seconds by which the sessions are ahead. After some mean durations, as many nodes are away as
            later on; these are killed now.
        :returns: process with a method to stop it.
        :raises ConfigurationError: if ``warm_up`` is below 0 or not finite.
        """
        return SessionChurn(self, self._network, lives, pauses, warm_up)

    def replay(self, sessions: Iterable[Session]) -> SessionReplay:
        """Start to replay recorded sessions, from now on. Nodes without sessions are left alone.

        A node whose first session begins later than now is killed at once.

        :returns: process with a method to stop it.
        :raises ConfigurationError: if a node does not exist, or a session ends before it begins or overlaps another.
        """
        return SessionReplay(self, self._network, check_sessions(sessions, self.topology.n))

    def swapping(self, rate: float) -> LocationSwapping:
        """Start to attempt location swaps as in Sandberg's algorithm (Metropolis-Hastings).

        :param rate: attempts per second.
        :returns: process with a method to stop it.
        """
        return LocationSwapping(self, self._network, rate)

    def rewiring(self, policy: ILinkPolicy, every: float) -> Rewiring:
        """Start to let nodes seek and replace links by a policy.

        Locations are those of the topology: do not combine it with swaps.

        :param policy: link policy.
        :param every: simulated seconds between two rounds; see
            :class:`~fyrehose_twisted.experiments.growth.growing_network.GrowingNetwork`.
        :returns: process with counts of links, and a method to stop it.
        :raises ConfigurationError: if ``every`` is not more than 0, ``policy`` is no link policy, or links were changed
            before.
        """
        return Rewiring(self, self._network, policy, every)

    # Time

    def run(self, until: float | Literal["quiet"] = "quiet") -> None:
        """Run the simulation.

        :param until: seconds since the start; or ``"quiet"``: until no message is in flight and no node waits for
            anything but a root's next probe.
        :raises OperationalError: if the network does not become quiet within an hour of simulated time.
        """
        if until == "quiet":
            if not self._network.run_until_quiet(self.now + QUIET_LIMIT):
                raise OperationalError(
                    f"the network is not quiet after {QUIET_LIMIT:,.0f} simulated seconds; with churn, loss or"
                    " swapping, pass a time to run()"
                )
        else:
            self._network.run_until(float(until))
        for metrics in self._collectors:
            metrics.time_passed()

    # Results

    def tree(self, key: bytes) -> dict[int, int | None]:
        """Return the parent of each node that has the stream ``key``; ``None`` for a node without a parent."""
        return find_tree(self._network, key)

    def subscribers(self, key: bytes) -> list[int]:
        """Return the running nodes whose applications are subscribed."""
        return [node for node in self._subscribers.get(key, ()) if self.is_up(node)]

    def metrics(self) -> dict[str, float]:
        """Return the measurements; see :mod:`~fyrehose_twisted.experiments.measures.tree_metrics`."""
        return self._metrics.metrics(self._running_subscribers())

    def reset_metrics(self) -> None:
        """Restart all metrics that cover a time, those of nodes as well, so that they cover the time from now on.

        Trees and subscriptions remain. A packet published before counts no more, even if it is delivered later.
        """
        self._metrics.reset()

    def node_metrics(self) -> list[dict[str, float]]:
        """Return measurements of each node, in the order of their numbers; see
        :mod:`~fyrehose_twisted.experiments.measures.node_metrics`.
        """
        return node_metrics(self._network, self._metrics.baseline, self._subscribers)

    def sampling(self, every: float) -> Sampling:
        """Start to record the metrics at regular times.

        The metrics of each sample that cover a time cover the time since the previous sample. A sample takes about as
        long to compute as :meth:`metrics`. It is taken while the simulation runs.

        :param every: simulated seconds between two samples.
        :returns: process with the samples, and a method to stop it.
        :raises ConfigurationError: if ``every`` is not more than 0.
        """
        metrics = self._metrics.successor()
        self._collectors.append(metrics)
        return Sampling(
            self._network,
            lambda: metrics.sample(self._running_subscribers()),
            every,
            lambda: self._collectors.remove(metrics),
        )

    def _running_subscribers(self) -> dict[bytes, list[int]]:
        return {key: self.subscribers(key) for key, nodes in self._subscribers.items() if nodes}

    def check(self) -> None:
        """Check that all trees are valid.

        There are no cycles, parents and subscribers agree, every member reaches a root, no node has too many streams,
        and no packet was delivered twice. The network must be quiet.

        :raises InvariantViolated: if an invariant is violated.
        """
        check_network(self._network, self._metrics)

    def trace(self, file: str | Path | IO[str]) -> None:
        """Write the current state, and all further events, to a file as JSON lines.

        See :mod:`~fyrehose_twisted.experiments.trials.trace`.

        :param file: path, or an open text file, which is flushed after each line and not closed.
        :raises OSError: if the file cannot be written.
        """
        network = self._network
        self._trace = ExperimentTrace(file, self, network.links())
        for node in sorted(network.down):
            self._trace_line("down", node=node)
        for key, nodes in self._subscribers.items():
            for node in nodes:
                self._trace_line("subscribed", key=key.hex(), node=node)
        for node, instance in network.nodes.items():
            for key, stream in instance.streams.items():
                if stream.parent is not None:
                    self._trace_line("attached", key=key.hex(), node=node, parent=stream.parent.node)
                elif stream.is_root:
                    self._trace_line("root", key=key.hex(), node=node)
                elif stream.phase is StreamPhase.RESTARTING:
                    self._trace_line("detached", key=key.hex(), node=node)

    # Events

    def _on_event(self, node: int, event: Event) -> None:
        for metrics in self._collectors:
            metrics.on_event(node, event)
        match event:
            case Subscribed(key, _, _):
                self._subscription_succeeded(node, key)
            case SubscribeFailed(key, reason):
                self._fail_subscription(node, key, reason)
            case PacketPublished(token, key, number):
                self._trace_line("published", key=key.hex(), node=node, number=number)
                if isinstance(token, int) and token in self._pending_publishes:
                    _, _, done = self._pending_publishes.pop(token)
                    done.callback(number)
            case PacketNotPublished(token, _, reason, free):
                # A node that was only disconnected may still report the outcome.
                if isinstance(token, int) and token in self._pending_publishes:
                    self._fail_publish(token, reason, free)
            case _ if self._trace is not None:
                self._trace_event(node, event)
            case _:
                pass

    def _trace_event(self, node: int, event: Event) -> None:
        match event:
            case ParentChanged(key, None):
                self._trace_line("root", key=key.hex(), node=node)
            case ParentChanged(key, parent):
                self._trace_line("attached", key=key.hex(), node=node, parent=parent)
            case ParentLost(key, _):
                self._trace_line("detached", key=key.hex(), node=node)
            case StreamDropped(key):
                self._trace_line("dropped", key=key.hex(), node=node)
            case PacketsDelivered(key, packets):
                for packet in packets:
                    self._trace_line("delivered", key=key.hex(), node=node, number=packet.number)

    def _trace_line(self, what: str, **fields: Any) -> None:
        if self._trace is not None:
            self._trace.write(self.now, what, **fields)

    def _subscription_succeeded(self, node: int, key: bytes) -> None:
        waiting = self._pending_subscriptions.pop((node, key), None)
        if waiting is None:
            return
        found = self._subscription(node, key, waiting.cost)
        self._stop_cost_tracking(waiting)
        for metrics in self._collectors:
            metrics.subscribed(node, key, waiting.cost, found.hops)
        for done in waiting.deferreds:
            done.callback(found)

    def _subscription(self, node: int, key: bytes, cost: list[int]) -> Subscription:
        tree, path = self._network, [node]
        while True:
            stream = tree.nodes[path[-1]].streams.get(key) if path[-1] in tree.nodes else None
            if stream is None or stream.parent is None or stream.parent.node in path:
                break
            path.append(stream.parent.node)
        return Subscription(node, key, tuple(path), path[-1], len(path) - 1, cost[0], cost[1])

    def _fail_publish(self, token: int, reason: str, free: int | None) -> None:
        node, key, done = self._pending_publishes.pop(token)
        for metrics in self._collectors:
            metrics.publish_failed(token)
        done.errback(PublishRefused(reason, f"node {node} could not publish to {key.hex()}: {reason}", free))

    def _fail_subscription(self, node: int, key: bytes, reason: str) -> None:
        waiting = self._pending_subscriptions.pop((node, key), None)
        if waiting is not None:
            self._stop_cost_tracking(waiting)
            for metrics in self._collectors:
                metrics.subscribe_failed(node, key, waiting.cost)
            for done in waiting.deferreds:
                done.errback(SubscriptionFailed(node, key, reason))

    def _stop_cost_tracking(self, waiting: _PendingSubscription) -> None:
        if waiting.uid is not None:
            self._network.request_costs.pop(waiting.uid, None)

    def _withdraw(self, node: int, key: bytes) -> None:
        if self._subscribers.get(key, {}).pop(node, self) is None:
            for metrics in self._collectors:
                metrics.unsubscribed(node, key)
            self._trace_line("unsubscribed", key=key.hex(), node=node)

    def _check_node(self, node: int, *, running: bool = False) -> None:
        if not 0 <= node < self.topology.n:
            raise ConfigurationError(f"there is no node {node}; nodes are numbered from 0 to {self.topology.n - 1:,}")
        if running and not self.is_up(node):
            raise ConfigurationError(f"node {node} is down")

    def _check_pair(self, a: int, b: int) -> None:
        self._check_node(a)
        self._check_node(b)
        if a == b:
            raise ConfigurationError(f"a={a} and b={b} are the same node; give two nodes")


def _ignore(failure: Any) -> None:
    """Ignore a failure; it is counted, and the node retries."""
