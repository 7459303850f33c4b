"""Simulated network of many nodes in one process: nodes, links and messages in flight.

Messages are passed as objects, without encoding. A node is created when the first message or command reaches it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fyrehose_twisted.effects import Write
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.paced_collector import COLLECTOR
from fyrehose_twisted.experiments.topologies.adjacency import Nodes, build_adjacency, link_keys
from fyrehose_twisted.experiments.topologies.topology import Topology
from fyrehose_twisted.freenet.config import NodeConfig
from fyrehose_twisted.freenet.events import Event
from fyrehose_twisted.freenet.node.node import FreenetNode
from fyrehose_twisted.freenet.policy import Policy
from fyrehose_twisted.freenet.wire.messages import Message, PublishData, SubscribeData, SubscribeRequest
from fyrehose_twisted.interfaces import IRoutingPolicy

Latency = float | Callable[[int, int, Random], float]
"""Latency of a link in seconds, or a function of its two ends and a random generator that returns it."""

_InFlight = tuple[float, int, int, int, int, Message]
"""Arrival time, sequence number, source, destination, generation of the link, message."""

_NOTHING = (inf, 0, 0, 0, 0, None)
"""In place of a message while none is in flight."""

PACKET_MESSAGES = (PublishData, SubscribeData)
"""Messages that carry a packet."""


class SimulatedNetwork:
    """Network of nodes, with simulated time.

    :param latency: latency of the links.
    :param loss: probability that a message is lost.
    :param on_event: called with the number of a node and each of its events.
    :param routing: routing policy of all nodes; see :class:`~fyrehose_twisted.freenet.config.NodeConfig`.
    :ivar now: seconds since the start.
    :ivar nodes: nodes created so far, by number.
    :ivar locations: locations of all nodes, created or not.
    :ivar down: nodes that are not running.
    :ivar sent_by_type: number of messages sent, by type.
    :ivar sent_by_node: number of messages that each node sent.
    :ivar received_by_node: number of messages that reached each node.
    :ivar messages_lost: number of messages lost in transit.
    """

    def __init__(
        self,
        topology: Topology,
        policy: Policy,
        latency: Latency,
        loss: float,
        seed: int,
        on_event: Callable[[int, Event], None],
        routing: IRoutingPolicy | None = None,
    ) -> None:
        self.topology = topology
        self.policy = policy
        self._routing = routing
        self.now = 0.0
        self.nodes: dict[int, FreenetNode] = {}
        self.locations: list[float] = topology.locations.tolist()
        self.down: set[int] = set()
        self.sent_by_type: Counter[type] = Counter()
        self.sent_by_node = [0] * topology.n
        self.received_by_node = [0] * topology.n
        self.messages_lost = 0
        self.request_costs: dict[int, list[int]] = {}
        """Requests and messages of each tracked search, by its uid."""
        self.packets_in_flight: Counter[tuple[bytes, int, bytes]] = Counter()
        """Copies of each packet in flight, by key, number and data."""
        self._on_event = on_event
        self._rng = Random(f"{seed}/nodes")
        self._link_rng = Random(f"{seed}/links")
        self._latency = latency
        self._loss = loss
        self._boots: dict[int, int] = {}
        self._suspended: dict[int, FreenetNode] = {}
        self._removed_links: dict[int, set[int]] = {}
        self._added_links: dict[int, dict[int, None]] = {}
        self._link_generations: dict[tuple[int, int], int] = {}
        """Number of changes of each link; 0 if absent."""
        self._last_arrivals: dict[tuple[int, int], float] = {}
        self._sequence = count(1)
        self._fifo: deque[_InFlight] = deque()
        """Messages in flight while all links have the same latency, in order of arrival."""
        self._heap: list[_InFlight] = []
        self._timers: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._armed_deadlines: dict[int, float] = {}
        self._unnoticed_changes = 0
        """Link changes that a node has not noticed yet."""
        self._maybe_busy: dict[int, None] = {}
        """Nodes that were called and have not been found idle since."""

    # Nodes and links

    def node(self, number: int) -> FreenetNode:
        """Return a node, created if necessary."""
        node = self.nodes.get(number)
        if node is None:
            boot, place = self._boots.get(number, 0), self.locations[number]
            config = NodeConfig(number, boot, place, self.policy, ping_every=0.0, routing=self._routing)
            node = self.nodes[number] = FreenetNode(config, self._rng, self.now)
            for other in self.linked_nodes(number):
                node.add_neighbour(other, other, self._boots.get(other, 0), self.locations[other], self.now)
            node.drain()
        return node

    def all_nodes(self) -> Iterator[FreenetNode]:
        """Return the nodes created so far, including those that were disconnected with their state."""
        yield from self.nodes.values()
        yield from self._suspended.values()

    def linked_nodes(self, number: int) -> list[int]:
        """Return the running nodes that a node has a link to."""
        others: list[int] = self.topology.neighbours(number).tolist()
        if self._removed_links or self._added_links or self.down:
            cut = self._removed_links.get(number, ())
            others = [other for other in others if other not in cut]
            others += [other for other in self._added_links.get(number, ()) if other not in others]
            others = [other for other in others if other not in self.down]
        return others

    def links(self) -> list[list[int]]:
        """Return all links in ascending order, the lower node first, including links of nodes that are down."""
        cut, added = self._removed_links, self._added_links
        found: list[list[int]] = self.topology.edges().tolist()
        if cut or added:
            pairs = {(one, other) for one, other in found if other not in cut.get(one, ())}
            pairs |= {(one, other) for one, others in added.items() for other in others if one < other}
            found = [list(pair) for pair in sorted(pairs)]
        return found

    def adjacency(self) -> tuple[NDArray[np.int64], Nodes]:
        """Return the links between running nodes as rows: node ``i`` has ``indices[indptr[i] : indptr[i + 1]]``."""
        topology = self.topology
        if not (self._removed_links or self._added_links or self.down):
            return topology.indptr, topology.indices
        running = [(one, other) for one, other in self.links() if not self.down.intersection((one, other))]
        ones, others = np.array(running, np.int64).reshape(-1, 2).T
        return build_adjacency(link_keys(ones, others, topology.n), topology.n)

    def run_command(self, number: int, command: Callable[[FreenetNode, float], None]) -> None:
        """Run a command of the application of a node."""
        node = self.node(number)
        command(node, self.now)
        self._flush(number, node)

    # Changes

    def kill(self, number: int, *, unnoticed_by: Collection[int] = ()) -> None:
        """Kill a node. Its messages in flight are lost, and its neighbours notice after one latency.

        :param unnoticed_by: neighbours that notice only at :meth:`notice_death`, and ask the node last until then.
        """
        for other in unnoticed_by:
            self.nodes[other].suspect(number)
        others = self.linked_nodes(number)
        self.down.add(number)
        node = self.nodes.pop(number, None)
        if node is not None:
            self._suspended[number] = node
        self._armed_deadlines.pop(number, None)
        for other in others:
            self._cut_link(number, other, notify=() if other in unnoticed_by else (other,))

    def notice_death(self, number: int, dead: int) -> None:
        """Let a node notice that a neighbour died."""
        if number in self.nodes:
            self._unnoticed_changes += 1
            self._neighbour_lost(number, self.nodes[number], dead)

    def restart(self, number: int, *, new_boot: bool) -> None:
        """Restart a node, without its state if its boot id is new."""
        self.down.discard(number)
        suspended = self._suspended.pop(number, None)
        if new_boot or suspended is None:
            self._boots[number] = self._boots.get(number, 0) + 1
        else:
            self.nodes[number] = suspended
            for other in tuple(suspended.neighbours()):
                suspended.disconnected(other, "was away", self.now)
            self._flush(number, suspended)
        for other in self.linked_nodes(number):
            self._announce_link(number, other)

    def link(self, one: int, other: int) -> None:
        """Open a link."""
        for a, b in ((one, other), (other, one)):
            self._removed_links.get(a, set()).discard(b)
            self._added_links.setdefault(a, {})[b] = None
        if one not in self.down and other not in self.down:
            self._announce_link(one, other)

    def unlink(self, one: int, other: int) -> None:
        """Cut a link."""
        for a, b in ((one, other), (other, one)):
            self._removed_links.setdefault(a, set()).add(b)
            self._added_links.get(a, {}).pop(b, None)
        self._cut_link(one, other, notify=(one, other))

    def swap(self, one: int, other: int) -> None:
        """Exchange the locations of two nodes."""
        locations = self.locations
        locations[one], locations[other] = locations[other], locations[one]
        for number in (one, other):
            if number in self.nodes:
                self.run_command(number, lambda node, now, place=locations[number]: node.move(place, now))  # type: ignore[misc]
            elif number not in self.down:
                # A node that was never created still has to notify its neighbours.
                for neighbour in self.linked_nodes(number):
                    if neighbour in self.nodes:
                        self.node(number)
                        self.run_command(number, lambda node, now, place=locations[number]: node.move(place, now))  # type: ignore[misc]
                        break

    def _cut_link(self, one: int, other: int, notify: tuple[int, ...]) -> None:
        pair = (one, other) if one < other else (other, one)
        self._link_generations[pair] = self._link_generations.get(pair, 0) + 1
        for observer in notify:
            if observer in self.nodes:
                peer = other if observer == one else one
                self._unnoticed_changes += 1
                when = self._arrival_time(peer, observer)
                self.call_at(when, self._neighbour_lost, observer, self.nodes[observer], peer)

    def _neighbour_lost(self, observer: int, node: FreenetNode, peer: int) -> None:
        self._unnoticed_changes -= 1
        # A node created since then knows already.
        if self.nodes.get(observer) is node:
            node.disconnected(peer, "gone", self.now)
            self._flush(observer, node)

    def _announce_link(self, one: int, other: int) -> None:
        for observer, peer in ((one, other), (other, one)):
            if observer in self.nodes:
                self._unnoticed_changes += 1
                when = self._arrival_time(peer, observer)
                self.call_at(when, self._neighbour_up, observer, self.nodes[observer], peer)

    def _neighbour_up(self, observer: int, node: FreenetNode, peer: int) -> None:
        self._unnoticed_changes -= 1
        if self.nodes.get(observer) is node and peer not in self.down and peer in self.linked_nodes(observer):
            node.add_neighbour(peer, peer, self._boots.get(peer, 0), self.locations[peer], self.now)
            self._flush(observer, node)

    # Time

    def has_traffic(self) -> bool:
        """Return True while messages are in flight or link changes are unnoticed."""
        return bool(self._fifo or self._heap or self._unnoticed_changes)

    def run_while(self, condition: Callable[[], bool], limit: float) -> bool:
        """Run while ``condition`` returns True; return whether it became False before ``limit``."""
        with COLLECTOR.paused():
            while condition():
                if not self._step(limit):
                    self.now = max(self.now, limit)
                    return False
        return True

    def call_at(self, when: float, call: Callable[..., None], *arguments: Any) -> None:
        """Schedule a call."""
        heappush(self._timers, (when, next(self._sequence), call, arguments))

    def run_until(self, when: float) -> None:
        """Run until a time."""
        with COLLECTOR.paused():
            while self._step(when):
                pass
        self.now = max(self.now, when)

    def run_until_quiet(self, limit: float = inf) -> bool:
        """Run until the network is quiet; return whether it became quiet before ``limit``."""
        line, heap = self._fifo, self._heap
        return self.run_while(lambda: bool(line or heap or not self.is_quiet()), limit)

    def is_quiet(self) -> bool:
        """Return True if no message is in flight and no node is busy."""
        if self.has_traffic():
            return False
        nodes, candidates = self.nodes, self._maybe_busy
        while candidates:
            # One busy node is enough, and mostly remains it until the next call.
            number = next(reversed(candidates))
            if number in nodes and nodes[number].busy:
                return False
            del candidates[number]
        return True

    def _step(self, limit: float) -> bool:
        """Handle the next event unless it is after ``limit``; return whether it was handled."""
        timers, line, heap = self._timers, self._fifo, self._heap
        # Of the messages, one of the two is always empty. Of the events due at one time, the earliest made goes first.
        when, order, source, destination, life, message = line[0] if line else heap[0] if heap else _NOTHING
        if timers:
            due_at, number, call, arguments = timers[0]
            if due_at < when or (due_at == when and number < order):
                if due_at > limit:
                    return False
                heappop(timers)
                self.now = due_at
                call(*arguments)
                return True
        if when > limit or message is None:
            return False
        if line:
            line.popleft()
        else:
            heappop(heap)
        self.now = when
        if type(message) in PACKET_MESSAGES:
            self._copy_arrived(message)
        if self._link_generations:
            pair = (source, destination) if source < destination else (destination, source)
            if self._link_generations.get(pair, 0) != life or destination in self.down:
                self.messages_lost += 1
                return True
        self.received_by_node[destination] += 1
        node = self.nodes.get(destination) or self.node(destination)
        node.receive(message, source, when)
        self._flush(destination, node)
        return True

    # Outputs of nodes

    def _flush(self, number: int, node: FreenetNode) -> None:
        _, effects, events = node.drain()
        effect: Any
        for effect in effects:
            kind = type(effect)  # Not narrowed to Write, whose peer is a Peer: here, links are numbers.
            if kind is Write:
                self._send(number, effect.peer, effect.messages)
        deadline = node.next_deadline()
        if deadline is not None and deadline < self._armed_deadlines.get(number, inf):
            self._armed_deadlines[number] = deadline
            heappush(self._timers, (deadline, next(self._sequence), self._tick, (number, deadline)))
        self._maybe_busy[number] = None
        for event in events:
            self._on_event(number, event)

    def _tick(self, number: int, deadline: float) -> None:
        if self._armed_deadlines.get(number) != deadline:
            return
        del self._armed_deadlines[number]
        node = self.nodes[number]
        node.tick(self.now)
        self._flush(number, node)

    def _send(self, source: int, destination: int, messages: Any) -> None:
        life = 0
        if self._link_generations:
            pair = (source, destination) if source < destination else (destination, source)
            life = self._link_generations.get(pair, 0)
        numbers, sent, costs = self._sequence, self.sent_by_type, self.request_costs
        fixed = type(self._latency) is float
        self.sent_by_node[source] += len(messages)
        for message in messages:
            kind = type(message)
            sent[kind] += 1
            if costs:
                cost = costs.get(getattr(message, "uid", -1))
                if cost is not None:
                    cost[1] += 1
                    if kind is SubscribeRequest:
                        cost[0] += 1
            if self._loss and self._link_rng.random() < self._loss:
                self.messages_lost += 1
                continue
            if kind in PACKET_MESSAGES:
                self.packets_in_flight[message.key, message.packet, message.data] += 1
            arrives = self._arrival_time(source, destination)
            if fixed:
                self._fifo.append((arrives, next(numbers), source, destination, life, message))
            else:
                heappush(self._heap, (arrives, next(numbers), source, destination, life, message))

    def _copy_arrived(self, message: Any) -> None:
        packet = message.key, message.packet, message.data
        self.packets_in_flight[packet] -= 1
        if not self.packets_in_flight[packet]:
            del self.packets_in_flight[packet]

    def _arrival_time(self, source: int, destination: int) -> float:
        """Return the arrival time of a message sent now. Links keep the order of messages and of their own changes."""
        latency = self._latency
        if isinstance(latency, float):
            return self.now + latency
        delay = latency(source, destination, self._link_rng)
        if not 0.0 <= delay < inf:
            raise ConfigurationError(f"latency({source}, {destination}, rng) is {delay!r}: a time is 0 or more seconds")
        arrives = max(self.now + delay, self._last_arrivals.get((source, destination), 0.0))
        self._last_arrivals[source, destination] = arrives
        return arrives
