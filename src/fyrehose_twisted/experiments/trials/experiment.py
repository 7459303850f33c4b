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
from fyrehose_twisted.experiments.measures.checks import check_world
from fyrehose_twisted.experiments.measures.tree_metrics import Measures
from fyrehose_twisted.experiments.measures.trees import tree_of
from fyrehose_twisted.experiments.simulated_network import Latency, World
from fyrehose_twisted.experiments.topologies.topology import Topology
from fyrehose_twisted.experiments.trials.churn import Churn, Swapping
from fyrehose_twisted.experiments.trials.resubscription import orphans_of, resubscribe_in_turn
from fyrehose_twisted.experiments.trials.trace import Trace
from fyrehose_twisted.freenet.events import (
    Attached,
    Delivered,
    Dropped,
    Event,
    NotPublished,
    Published,
    Restarting,
    Subscribed,
    SubscribeFailed,
)
from fyrehose_twisted.freenet.node.stream import Phase
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
class _Waiting:
    done: list[Deferred[Subscription]]
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
        self._world = World(topology, self.policy, latency, loss, seed, self._told)
        self._measures = Measures(self._world)
        self._trace: Trace | None = None
        self._wanted: dict[bytes, dict[int, None]] = {}
        self._waiting: dict[tuple[int, bytes], _Waiting] = {}
        self._publishing: dict[int, tuple[int, bytes, Deferred[int]]] = {}
        self._tokens = 0

    @property
    def now(self) -> float:
        """Simulated seconds since the start."""
        return self._world.now

    @property
    def messages(self) -> int:
        """Messages that were sent."""
        return self._world.sent.total()

    @property
    def locations(self) -> list[float]:
        """Where each node is now."""
        return list(self._world.locations)

    def is_up(self, node: int) -> bool:
        """Say whether a node runs."""
        return node not in self._world.down

    # Applications

    def subscribe(self, node: int, key: bytes) -> Deferred[Subscription]:
        """Let the application of a node subscribe; the Deferred fails with :class:`SubscriptionFailed`.

        :raises ConfigurationError: if there is no such node, it does not run, or the key is none.
        :raises TooManyStreams: if the node has as many streams as it may.
        """
        self._check_node(node, running=True)
        check_key(key)
        world = self._world
        done: Deferred[Subscription] = Deferred()
        earlier = self._waiting.get((node, key))
        if earlier is not None:
            earlier.done.append(done)
            return done
        present = world.node(node).streams.get(key)
        if present is not None and present.local and present.connected:
            done.callback(self._subscription(node, key, [0, 0]))
            return done
        waiting = self._waiting[node, key] = _Waiting([done], None)
        self._wanted.setdefault(key, {})[node] = None
        self._measures.wanted(node, key)
        self._trace_line("subscribed", key=key.hex(), node=node)
        try:
            world.node(node).subscribe(key, world.now)
        except FyrehoseError:
            self._gave_up(node, key)
            del self._waiting[node, key]
            raise
        stream = world.node(node).streams.get(key)
        search = None if stream is None else stream.own_search
        if search is not None:
            waiting.uid = search.sent_uid
            world.costs[search.sent_uid] = waiting.cost
        world.act(node, lambda _, now: None)
        return done

    def unsubscribe(self, node: int, key: bytes) -> None:
        """Let the application of a node have no use for a stream any more."""
        self._check_node(node)
        check_key(key)
        self._gave_up(node, key)
        self._fail_waiting(node, key, "unsubscribed")
        if self.is_up(node):
            self._world.act(node, lambda one, now: one.unsubscribe(key, now))

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
        self._publishing[token] = node, key, done
        self._measures.publishing(token, node, key, data)
        try:
            self._world.act(node, lambda one, now: one.publish(key, data, token, now, number=number))
        except FyrehoseError:
            del self._publishing[token]
            self._measures.not_published(token)
            raise
        return done

    # What happens to nodes and links

    def kill(self, node: int) -> None:
        """Let a node die. Its neighbours notice after the time that a message takes."""
        self._check_node(node, running=True)
        self._kill(node)

    def _kill(self, node: int, unnoticed_by: Collection[int] = ()) -> None:
        self._measures.failed()
        self._trace_line("down", node=node)
        self._world.kill(node, unnoticed_by=unnoticed_by)
        self._measures.died(node)
        for key in [key for one, key in self._waiting if one == node]:
            self._fail_waiting(node, key, "node-died")
        for token in [token for token, (one, _, _) in self._publishing.items() if one == node]:
            self._not_published(token, "node-died", None)

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
        orphans = orphans_of(self._world, set(dead)) if resubscribe == "in-turn" else {}
        for node in dead:
            self._kill(node, [orphan for orphan, parents in orphans.items() if node in parents])
        if orphans:
            resubscribe_in_turn(self._world, orphans, Random(f"{self.seed}/turns"), QUIET_LIMIT)
            self._measures.passed()

    def restart(self, node: int, new_boot_id: bool = True) -> None:
        """Let a node that died run again, and its application want what it wanted.

        :param new_boot_id: whether it has forgotten everything; otherwise it was only cut off.
        """
        self._check_node(node)
        if self.is_up(node):
            raise ConfigurationError(f"node {node} runs already")
        self._trace_line("up", node=node, **({} if new_boot_id else {"kept": True}))
        self._world.restart(node, new_boot=new_boot_id)
        if new_boot_id:
            for key, nodes in self._wanted.items():
                if node in nodes:
                    self.subscribe(node, key).addErrback(_ignore)

    def link(self, a: int, b: int) -> None:
        """Open a link between two nodes."""
        self._check_pair(a, b)
        self._trace_line("linked", a=a, b=b)
        self._world.link(a, b)

    def unlink(self, a: int, b: int) -> None:
        """Cut the link between two nodes."""
        self._check_pair(a, b)
        self._measures.failed()
        self._trace_line("unlinked", a=a, b=b)
        self._world.unlink(a, b)

    def swap(self, a: int, b: int) -> None:
        """Exchange the locations of two nodes."""
        self._check_pair(a, b)
        self._world.swap(a, b)
        for node in (a, b):
            self._trace_line("moved", node=node, location=self._world.locations[node])

    def churn(self, rate: float, mean_life: float) -> Churn:
        """From now on let nodes die after an exponential time, and dead ones come back.

        :param rate: nodes that come back in a second, while any are dead.
        :param mean_life: seconds that a node lives, on average.
        :returns: what stops it again.
        """
        return Churn(self, self._world, rate, mean_life)

    def swapping(self, rate: float) -> Swapping:
        """From now on try so many swaps of locations in a second, as Sandberg has them (Metropolis-Hastings).

        :returns: what stops it again.
        """
        return Swapping(self, self._world, rate)

    # Time

    def run(self, until: float | Literal["quiet"] = "quiet") -> None:
        """Let time pass.

        :param until: seconds since the start; or ``"quiet"``: until no message travels and no node waits for anything
            but for a root's next look for a better one.
        :raises OperationalError: if the network does not become quiet within an hour of simulated time.
        """
        if until == "quiet":
            if not self._world.run_until_quiet(self.now + QUIET_LIMIT):
                raise OperationalError(
                    f"the network is not quiet after {QUIET_LIMIT:,.0f} simulated seconds; with churn, loss or"
                    " swapping give run() a time instead"
                )
        else:
            self._world.run_until(float(until))
        self._measures.passed()

    # What came of it

    def tree(self, key: bytes) -> dict[int, int | None]:
        """Return the parents of all that belong to the tree of ``key``, or look for one; ``None`` for who has none."""
        return tree_of(self._world, key)

    def subscribers(self, key: bytes) -> list[int]:
        """Return those whose applications are subscribed, and that run."""
        return [node for node in self._wanted.get(key, ()) if self.is_up(node)]

    def metrics(self) -> dict[str, float]:
        """Return what was measured; see :mod:`~fyrehose_twisted.experiments.measures.tree_metrics`."""
        wanted = {key: self.subscribers(key) for key, nodes in self._wanted.items() if nodes}
        return self._measures.metrics(wanted)

    def check(self) -> None:
        """See whether all trees are trees: no cycle; parent and subscriber know of one another; everybody reaches a
        root; no node has too many streams; nothing was delivered twice.

        Of use when the network is quiet.

        :raises InvariantViolated: if something is wrong.
        """
        check_world(self._world, self._measures)

    def trace(self, file: str | Path | IO[str]) -> None:
        """Write how everything is, and what happens from now on, to a file, as JSON lines; see
        :mod:`~fyrehose_twisted.experiments.trials.trace`.

        :param file: a path, or a text file that is open; it is not closed, and after each line it is complete.
        :raises OSError: if it cannot be written.
        """
        world = self._world
        self._trace = Trace(file, self, world.links())
        for node in sorted(world.down):
            self._trace_line("down", node=node)
        for key, nodes in self._wanted.items():
            for node in nodes:
                self._trace_line("subscribed", key=key.hex(), node=node)
        for node, one in world.nodes.items():
            for key, stream in one.streams.items():
                if stream.parent is not None:
                    self._trace_line("attached", key=key.hex(), node=node, parent=stream.parent.node)
                elif stream.is_root:
                    self._trace_line("root", key=key.hex(), node=node)
                elif stream.phase is Phase.RESTARTING:
                    self._trace_line("detached", key=key.hex(), node=node)

    # Within

    def _told(self, node: int, event: Event) -> None:
        self._measures.told(node, event)
        match event:
            case Subscribed(key, _, _):
                self._subscribed(node, key)
            case SubscribeFailed(key, reason):
                self._fail_waiting(node, key, reason)
            case Published(token, key, number):
                self._trace_line("published", key=key.hex(), node=node, number=number)
                if isinstance(token, int) and token in self._publishing:
                    _, _, done = self._publishing.pop(token)
                    done.callback(number)
            case NotPublished(token, _, reason, free):
                # Who was only cut off may tell what became of it after all.
                if isinstance(token, int) and token in self._publishing:
                    self._not_published(token, reason, free)
            case _ if self._trace is not None:
                self._trace_event(node, event)
            case _:
                pass

    def _trace_event(self, node: int, event: Event) -> None:
        match event:
            case Attached(key, None):
                self._trace_line("root", key=key.hex(), node=node)
            case Attached(key, parent):
                self._trace_line("attached", key=key.hex(), node=node, parent=parent)
            case Restarting(key, _):
                self._trace_line("detached", key=key.hex(), node=node)
            case Dropped(key):
                self._trace_line("dropped", key=key.hex(), node=node)
            case Delivered(key, packets):
                for packet in packets:
                    self._trace_line("delivered", key=key.hex(), node=node, number=packet.number)

    def _trace_line(self, what: str, **fields: Any) -> None:
        if self._trace is not None:
            self._trace.write(self.now, what, **fields)

    def _subscribed(self, node: int, key: bytes) -> None:
        waiting = self._waiting.pop((node, key), None)
        if waiting is None:
            return
        found = self._subscription(node, key, waiting.cost)
        self._close_account(waiting)
        self._measures.subscribed(node, key, waiting.cost, found.hops)
        for done in waiting.done:
            done.callback(found)

    def _subscription(self, node: int, key: bytes, cost: list[int]) -> Subscription:
        tree, path = self._world, [node]
        while True:
            stream = tree.nodes[path[-1]].streams.get(key) if path[-1] in tree.nodes else None
            if stream is None or stream.parent is None or stream.parent.node in path:
                break
            path.append(stream.parent.node)
        return Subscription(node, key, tuple(path), path[-1], len(path) - 1, cost[0], cost[1])

    def _not_published(self, token: int, reason: str, free: int | None) -> None:
        node, key, done = self._publishing.pop(token)
        self._measures.not_published(token)
        done.errback(PublishRefused(reason, f"node {node} could not publish to {key.hex()}: {reason}", free))

    def _fail_waiting(self, node: int, key: bytes, reason: str) -> None:
        waiting = self._waiting.pop((node, key), None)
        if waiting is not None:
            self._close_account(waiting)
            self._measures.not_subscribed(node, key, waiting.cost)
            for done in waiting.done:
                done.errback(SubscriptionFailed(node, key, reason))

    def _close_account(self, waiting: _Waiting) -> None:
        if waiting.uid is not None:
            self._world.costs.pop(waiting.uid, None)

    def _gave_up(self, node: int, key: bytes) -> None:
        if self._wanted.get(key, {}).pop(node, self) is None:
            self._measures.unwanted(node, key)
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
