"""Trees on a network: let nodes subscribe and publish, let them die, and see what comes of it."""

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
from fyrehose_twisted.experiments.measures.tree_metrics import TreeMetrics
from fyrehose_twisted.experiments.measures.trees import find_tree
from fyrehose_twisted.experiments.simulated_network import Latency, SimulatedNetwork
from fyrehose_twisted.experiments.topologies.topology import Topology
from fyrehose_twisted.experiments.trials.churn import Churn, LocationSwapping
from fyrehose_twisted.experiments.trials.resubscription import find_orphans, resubscribe_in_turn
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

LATENCY = 0.05
"""Seconds that a message takes, if nothing else is said."""
QUIET_LIMIT = 3_600.0
"""Simulated seconds after which a network that does not become quiet is an error."""


class SubscriptionFailed(OperationalError):
    """A subscription did not succeed the first time.

    :ivar reason: ``overload``, ``timed-out``, ``node-died`` or ``unsubscribed``.
    """

    def __init__(self, node: int, key: bytes, reason: str) -> None:
        super().__init__(f"node {node} did not get into the tree of {key.hex()}: {reason}")
        self.node = node
        self.key = key
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Subscription:
    """How a subscription succeeded.

    :ivar path: from the subscriber up to the root, both included, as the tree is at that moment.
    :ivar root: the root.
    :ivar hops: links of ``path``.
    :ivar requests: how often the request was passed on.
    :ivar messages: all messages on its behalf.
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
    """A simulated network, on which the nodes are those that run over real links.

    Whatever is random comes from ``seed``: equal arguments and calls have equal outcomes.

    :param topology: who is where, and linked to whom.
    :param latency: seconds that a message takes; or a function of both ends and a :class:`random.Random`. A link keeps
        the order of its messages.
    :param loss: probability with which a message is lost for good, as over a transport that does not repeat it. With
        any loss, subscribers lose packets and :meth:`check` may find something.
    :raises ConfigurationError: if ``latency`` or ``loss`` is out of range.
    """

    def __init__(
        self,
        topology: Topology,
        policy: Policy | None = None,
        *,
        latency: Latency | None = None,
        loss: float = 0.0,
        seed: int = 1,
    ) -> None:
        if not 0.0 <= loss < 1.0:
            raise ConfigurationError(f"loss={loss!r}: a probability goes from 0 up to, but not including, 1")
        if latency is None:
            latency = LATENCY
        if not callable(latency):
            latency = float(latency)
            if not 0.0 <= latency < inf:
                raise ConfigurationError(f"latency={latency!r}: a time is 0 or more seconds")
        self.topology = topology
        self.policy = Policy() if policy is None else policy
        self.seed = seed
        self.loss = loss
        self._network = SimulatedNetwork(topology, self.policy, latency, loss, seed, self._on_event)
        self._metrics = TreeMetrics(self._network)
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
        """Messages that were sent."""
        return self._network.sent_by_type.total()

    @property
    def locations(self) -> list[float]:
        """Where each node is now."""
        return list(self._network.locations)

    def is_up(self, node: int) -> bool:
        """Say whether a node runs."""
        return node not in self._network.down

    # Applications

    def subscribe(self, node: int, key: bytes) -> Deferred[Subscription]:
        """Let the application of a node subscribe; the Deferred fails with :class:`SubscriptionFailed`.

        :raises ConfigurationError: if there is no such node, it does not run, or the key is none.
        :raises TooManyStreams: if the node has as many streams as it may.
        """
        self._check_node(node, running=True)
        check_key(key)
        world = self._network
        done: Deferred[Subscription] = Deferred()
        earlier = self._pending_subscriptions.get((node, key))
        if earlier is not None:
            earlier.deferreds.append(done)
            return done
        present = world.node(node).streams.get(key)
        if present is not None and present.local and present.connected:
            done.callback(self._subscription(node, key, [0, 0]))
            return done
        waiting = self._pending_subscriptions[node, key] = _PendingSubscription([done], None)
        self._subscribers.setdefault(key, {})[node] = None
        self._metrics.subscribe_started(node, key)
        self._trace_line("subscribed", key=key.hex(), node=node)
        try:
            world.node(node).subscribe(key, world.now)
        except FyrehoseError:
            self._withdraw(node, key)
            del self._pending_subscriptions[node, key]
            raise
        stream = world.node(node).streams.get(key)
        search = None if stream is None else stream.own_request
        if search is not None:
            waiting.uid = search.sent_uid
            world.request_costs[search.sent_uid] = waiting.cost
        world.run_command(node, lambda _, now: None)
        return done

    def unsubscribe(self, node: int, key: bytes) -> None:
        """Let the application of a node have no use for a stream any more."""
        self._check_node(node)
        check_key(key)
        self._withdraw(node, key)
        self._fail_subscription(node, key, "unsubscribed")
        if self.is_up(node):
            self._network.run_command(node, lambda one, now: one.unsubscribe(key, now))

    def publish(self, node: int, key: bytes, data: bytes, *, number: int | None = None) -> Deferred[int]:
        """Let a subscriber publish; return a Deferred of the packet's number, which fails with
        :class:`~fyrehose_twisted.errors.PublishRefused`.

        :raises ConfigurationError: if there is no such node, or it does not run.
        :raises MessageTooLarge: if ``data`` is longer than a packet may be.
        :raises PublishQueueFull: if too many packets of the node wait.
        :raises UnencodableMessage: if ``number`` is none.
        """
        self._check_node(node, running=True)
        check_key(key)
        self._tokens += 1
        token = self._tokens
        done: Deferred[int] = Deferred()
        self._pending_publishes[token] = node, key, done
        self._metrics.publish_started(token, node, key, data)
        try:
            self._network.run_command(node, lambda one, now: one.publish(key, data, token, now, number=number))
        except FyrehoseError:
            del self._pending_publishes[token]
            self._metrics.publish_failed(token)
            raise
        return done

    # What happens to nodes and links

    def kill(self, node: int) -> None:
        """Let a node die. Its neighbours notice after the time that a message takes."""
        self._check_node(node, running=True)
        self._kill(node)

    def _kill(self, node: int, unnoticed_by: Collection[int] = ()) -> None:
        self._metrics.fault_occurred()
        self._trace_line("down", node=node)
        self._network.kill(node, unnoticed_by=unnoticed_by)
        self._metrics.node_died(node)
        for key in [key for one, key in self._pending_subscriptions if one == node]:
            self._fail_subscription(node, key, "node-died")
        for token in [token for token, (one, _, _) in self._pending_publishes.items() if one == node]:
            self._fail_publish(token, "node-died", None)

    def kill_at_once(self, nodes: Iterable[int], *, resubscribe: Literal["together", "in-turn"] = "together") -> None:
        """Let several nodes die at one moment.

        :param resubscribe: what those do that have lost a parent. ``together``: each notices it after the time that a
            message takes. ``in-turn``: each notices it when the one before has another parent or is a root, in an order
            that is drawn; time passes until the last has. Until then an orphan takes in resubscribers as if its parent
            were alive.
        :raises ConfigurationError: if there is no such node, or one does not run.
        :raises OperationalError: if one finds no parent within an hour of simulated time.
        """
        dead = list(dict.fromkeys(nodes))
        for node in dead:
            self._check_node(node, running=True)
        orphans = find_orphans(self._network, set(dead)) if resubscribe == "in-turn" else {}
        for node in dead:
            self._kill(node, [orphan for orphan, parents in orphans.items() if node in parents])
        if orphans:
            resubscribe_in_turn(self._network, orphans, Random(f"{self.seed}/turns"), QUIET_LIMIT)
            self._metrics.time_passed()

    def restart(self, node: int, new_boot_id: bool = True) -> None:
        """Let a node that died run again, and its application want what it wanted.

        :param new_boot_id: whether it has forgotten everything; otherwise it was only cut off.
        """
        self._check_node(node)
        if self.is_up(node):
            raise ConfigurationError(f"node {node} runs already")
        self._trace_line("up", node=node, **({} if new_boot_id else {"kept": True}))
        self._network.restart(node, new_boot=new_boot_id)
        if new_boot_id:
            for key, nodes in self._subscribers.items():
                if node in nodes:
                    self.subscribe(node, key).addErrback(_ignore)

    def link(self, a: int, b: int) -> None:
        """Open a link between two nodes."""
        self._check_pair(a, b)
        self._trace_line("linked", a=a, b=b)
        self._network.link(a, b)

    def unlink(self, a: int, b: int) -> None:
        """Cut the link between two nodes."""
        self._check_pair(a, b)
        self._metrics.fault_occurred()
        self._trace_line("unlinked", a=a, b=b)
        self._network.unlink(a, b)

    def swap(self, a: int, b: int) -> None:
        """Exchange the locations of two nodes."""
        self._check_pair(a, b)
        self._network.swap(a, b)
        for node in (a, b):
            self._trace_line("moved", node=node, location=self._network.locations[node])

    def churn(self, rate: float, mean_life: float) -> Churn:
        """From now on let nodes die after an exponential time, and dead ones come back.

        :param rate: nodes that come back in a second, while any are dead.
        :param mean_life: seconds that a node lives, on average.
        :returns: what stops it again.
        """
        return Churn(self, self._network, rate, mean_life)

    def swapping(self, rate: float) -> LocationSwapping:
        """From now on try so many swaps of locations in a second, as Sandberg has them (Metropolis-Hastings).

        :returns: what stops it again.
        """
        return LocationSwapping(self, self._network, rate)

    # Time

    def run(self, until: float | Literal["quiet"] = "quiet") -> None:
        """Let time pass.

        :param until: seconds since the start; or ``"quiet"``: until no message travels and no node waits for anything
            but for a root's next look for a better one.
        :raises OperationalError: if the network does not become quiet within an hour of simulated time.
        """
        if until == "quiet":
            if not self._network.run_until_quiet(self.now + QUIET_LIMIT):
                raise OperationalError(
                    f"the network is not quiet after {QUIET_LIMIT:,.0f} simulated seconds; with churn, loss or"
                    " swapping give run() a time instead"
                )
        else:
            self._network.run_until(float(until))
        self._metrics.time_passed()

    # What came of it

    def tree(self, key: bytes) -> dict[int, int | None]:
        """Return the parents of all that belong to the tree of ``key``, or look for one; ``None`` for who has none."""
        return find_tree(self._network, key)

    def subscribers(self, key: bytes) -> list[int]:
        """Return those whose applications are subscribed, and that run."""
        return [node for node in self._subscribers.get(key, ()) if self.is_up(node)]

    def metrics(self) -> dict[str, float]:
        """Return what was measured; see :mod:`~fyrehose_twisted.experiments.measures.tree_metrics`."""
        wanted = {key: self.subscribers(key) for key, nodes in self._subscribers.items() if nodes}
        return self._metrics.metrics(wanted)

    def check(self) -> None:
        """See whether all trees are trees: no cycle; parent and subscriber know of one another; everybody reaches a
        root; no node has too many streams; nothing was delivered twice.

        Of use when the network is quiet.

        :raises InvariantViolated: if something is wrong.
        """
        check_network(self._network, self._metrics)

    def trace(self, file: str | Path | IO[str]) -> None:
        """Write how everything is, and what happens from now on, to a file, as JSON lines; see
        :mod:`~fyrehose_twisted.experiments.trials.trace`.

        :param file: a path, or a text file that is open; it is not closed, and after each line it is complete.
        :raises OSError: if it cannot be written.
        """
        world = self._network
        self._trace = ExperimentTrace(file, self, world.links())
        for node in sorted(world.down):
            self._trace_line("down", node=node)
        for key, nodes in self._subscribers.items():
            for node in nodes:
                self._trace_line("subscribed", key=key.hex(), node=node)
        for node, one in world.nodes.items():
            for key, stream in one.streams.items():
                if stream.parent is not None:
                    self._trace_line("attached", key=key.hex(), node=node, parent=stream.parent.node)
                elif stream.is_root:
                    self._trace_line("root", key=key.hex(), node=node)
                elif stream.phase is StreamPhase.RESTARTING:
                    self._trace_line("detached", key=key.hex(), node=node)

    # Within

    def _on_event(self, node: int, event: Event) -> None:
        self._metrics.on_event(node, event)
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
                # Who was only cut off may tell what became of it after all.
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
        self._metrics.subscribed(node, key, waiting.cost, found.hops)
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
        self._metrics.publish_failed(token)
        done.errback(PublishRefused(reason, f"node {node} could not publish to {key.hex()}: {reason}", free))

    def _fail_subscription(self, node: int, key: bytes, reason: str) -> None:
        waiting = self._pending_subscriptions.pop((node, key), None)
        if waiting is not None:
            self._stop_cost_tracking(waiting)
            self._metrics.subscribe_failed(node, key, waiting.cost)
            for done in waiting.deferreds:
                done.errback(SubscriptionFailed(node, key, reason))

    def _stop_cost_tracking(self, waiting: _PendingSubscription) -> None:
        if waiting.uid is not None:
            self._network.request_costs.pop(waiting.uid, None)

    def _withdraw(self, node: int, key: bytes) -> None:
        if self._subscribers.get(key, {}).pop(node, self) is None:
            self._metrics.unsubscribed(node, key)
            self._trace_line("unsubscribed", key=key.hex(), node=node)

    def _check_node(self, node: int, *, running: bool = False) -> None:
        if not 0 <= node < self.topology.n:
            raise ConfigurationError(f"there is no node {node}: they go from 0 to {self.topology.n - 1:,}")
        if running and not self.is_up(node):
            raise ConfigurationError(f"node {node} does not run")

    def _check_pair(self, a: int, b: int) -> None:
        self._check_node(a)
        self._check_node(b)
        if a == b:
            raise ConfigurationError(f"node {a} and itself are no pair")


def _ignore(failure: Any) -> None:
    """It is counted, and the node tries again."""
