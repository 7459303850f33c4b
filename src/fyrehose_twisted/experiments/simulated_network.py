"""Nodes, links and what is on its way between them, for many nodes in one process.

Messages stay the objects they are, and nodes are made when something first gets to them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random
from typing import Any

from fyrehose_twisted.effects import Write
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.topologies.topology import Topology
from fyrehose_twisted.freenet.config import NodeConfig
from fyrehose_twisted.freenet.events import Event
from fyrehose_twisted.freenet.node.node import FreenetNode
from fyrehose_twisted.freenet.policy import Policy
from fyrehose_twisted.freenet.wire.messages import Message, PublishData, SubscribeData, SubscribeRequest

Latency = float | Callable[[int, int, Random], float]
"""Seconds that a message takes; or what returns them for a link, by its ends, and the source of chance."""

_Travelling = tuple[float, int, int, int, int, Message]
"""Arrival, number, source, destination, life of the link, message."""

PACKETS = (PublishData, SubscribeData)
"""Messages that carry a packet."""


class World:
    """A network, and its time.

    :param tell: told of every event of every node.
    :param sent: told of every message that is sent, by type and uid; ``None`` costs nothing.
    :ivar now: seconds since the start.
    :ivar nodes: those that were made, by number.
    :ivar locations: of all nodes, made or not.
    :ivar down: those that do not run.
    :ivar counts: messages sent, by name; and those ``lost`` on the way.
    """

    def __init__(
        self,
        topology: Topology,
        policy: Policy,
        latency: Latency,
        loss: float,
        seed: int,
        tell: Callable[[int, Event], None],
    ) -> None:
        self.topology = topology
        self.policy = policy
        self.now = 0.0
        self.nodes: dict[int, FreenetNode] = {}
        self.locations: list[float] = topology.locations.tolist()
        self.down: set[int] = set()
        self.sent: Counter[type] = Counter()
        self.lost = 0
        self.delivered = 0
        self.costs: dict[int, list[int]] = {}
        """Requests and messages of a search, by its uid, for those that somebody wants to know of."""
        self.copies: Counter[tuple[bytes, int, bytes]] = Counter()
        """Copies of each packet that are travelling, by key, number and data."""
        self._tell = tell
        self._rng = Random(f"{seed}/nodes")
        self._link_rng = Random(f"{seed}/links")
        self._latency = latency
        self._loss = loss
        self._boots: dict[int, int] = {}
        self._asleep: dict[int, FreenetNode] = {}
        self._cut: dict[int, set[int]] = {}
        self._added: dict[int, dict[int, None]] = {}
        self._lives: dict[tuple[int, int], int] = {}
        """How often a link was changed; 0 if never."""
        self._last: dict[tuple[int, int], float] = {}
        self._numbers = count(1)
        self._line: deque[_Travelling] = deque()
        """What travels while all links are equally fast: in order as it is."""
        self._heap: list[_Travelling] = []
        self._calls: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._armed: dict[int, float] = {}
        self._changing = 0
        """Links that changed, which somebody has not noticed yet."""
        self._perhaps_busy: set[int] = set()

    # Who is there

    def node(self, number: int) -> FreenetNode:
        """Return a node, made now if need be."""
        node = self.nodes.get(number)
        if node is None:
            config = NodeConfig(number, self._boots.get(number, 0), self.locations[number], self.policy, ping_every=0.0)
            node = self.nodes[number] = FreenetNode(config, self._rng, self.now)
            for other in self.linked(number):
                node.introduce(other, other, self._boots.get(other, 0), self.locations[other], self.now)
            node.drain()
        return node

    def linked(self, number: int) -> list[int]:
        """Return those that a node has a link to, and that run."""
        others: list[int] = self.topology.neighbours(number).tolist()
        if self._cut or self._added or self.down:
            cut = self._cut.get(number, ())
            others = [other for other in others if other not in cut]
            others += [other for other in self._added.get(number, ()) if other not in others]
            others = [other for other in others if other not in self.down]
        return others

    def links(self) -> list[list[int]]:
        """Return all links in ascending order, the lower node first; those of nodes that do not run are among them."""
        cut, added = self._cut, self._added
        found: list[list[int]] = self.topology.edges().tolist()
        if cut or added:
            pairs = {(one, other) for one, other in found if other not in cut.get(one, ())}
            pairs |= {(one, other) for one, others in added.items() for other in others if one < other}
            found = [list(pair) for pair in sorted(pairs)]
        return found

    def act(self, number: int, command: Callable[[FreenetNode, float], None]) -> None:
        """Let the application of a node do something."""
        node = self.node(number)
        command(node, self.now)
        self._flush(number, node)

    # What changes

    def kill(self, number: int, *, unnoticed_by: Collection[int] = ()) -> None:
        """Let a node die. What it has sent is lost on the way; its neighbours notice after the time of a message.

        :param unnoticed_by: neighbours that notice it at :meth:`notice`, and until then ask it last.
        """
        for other in unnoticed_by:
            self.nodes[other].suspect(number)
        others = self.linked(number)
        self.down.add(number)
        node = self.nodes.pop(number, None)
        if node is not None:
            self._asleep[number] = node
        self._armed.pop(number, None)
        for other in others:
            self._cut_link(number, other, tell=() if other in unnoticed_by else (other,))

    def notice(self, number: int, dead: int) -> None:
        """Let a node notice that a neighbour is gone."""
        if number in self.nodes:
            self._changing += 1
            self._lose(number, self.nodes[number], dead)

    def restart(self, number: int, *, new_boot: bool) -> None:
        """Let a node run again; it has forgotten everything if its boot id is new."""
        self.down.discard(number)
        asleep = self._asleep.pop(number, None)
        if new_boot or asleep is None:
            self._boots[number] = self._boots.get(number, 0) + 1
        else:
            self.nodes[number] = asleep
            for other in tuple(asleep.neighbours()):
                asleep.disconnected(other, "was away", self.now)
            self._flush(number, asleep)
        for other in self.linked(number):
            self._join_link(number, other)

    def link(self, one: int, other: int) -> None:
        """Open a link."""
        for a, b in ((one, other), (other, one)):
            self._cut.get(a, set()).discard(b)
            self._added.setdefault(a, {})[b] = None
        if one not in self.down and other not in self.down:
            self._join_link(one, other)

    def unlink(self, one: int, other: int) -> None:
        """Cut a link."""
        for a, b in ((one, other), (other, one)):
            self._cut.setdefault(a, set()).add(b)
            self._added.get(a, {}).pop(b, None)
        self._cut_link(one, other, tell=(one, other))

    def swap(self, one: int, other: int) -> None:
        """Exchange the locations of two nodes."""
        locations = self.locations
        locations[one], locations[other] = locations[other], locations[one]
        for number in (one, other):
            if number in self.nodes:
                self.act(number, lambda node, now, place=locations[number]: node.move(place, now))  # type: ignore[misc]
            elif number not in self.down:
                # Its neighbours learn it all the same.
                for neighbour in self.linked(number):
                    if neighbour in self.nodes:
                        self.node(number)
                        self.act(number, lambda node, now, place=locations[number]: node.move(place, now))  # type: ignore[misc]
                        break

    def _cut_link(self, one: int, other: int, tell: tuple[int, ...]) -> None:
        pair = (one, other) if one < other else (other, one)
        self._lives[pair] = self._lives.get(pair, 0) + 1
        for who in tell:
            if who in self.nodes:
                whom = other if who == one else one
                self._changing += 1
                self.call_at(self._arrival(whom, who), self._lose, who, self.nodes[who], whom)

    def _lose(self, who: int, node: FreenetNode, whom: int) -> None:
        self._changing -= 1
        # Who was made since then knows it already.
        if self.nodes.get(who) is node:
            node.disconnected(whom, "gone", self.now)  # type: ignore[arg-type]  # Here, links are numbers.
            self._flush(who, node)

    def _join_link(self, one: int, other: int) -> None:
        for who, whom in ((one, other), (other, one)):
            if who in self.nodes:
                self._changing += 1
                self.call_at(self._arrival(whom, who), self._meet, who, self.nodes[who], whom)

    def _meet(self, who: int, node: FreenetNode, whom: int) -> None:
        self._changing -= 1
        if self.nodes.get(who) is node and whom not in self.down and whom in self.linked(who):
            node.introduce(whom, whom, self._boots.get(whom, 0), self.locations[whom], self.now)
            self._flush(who, node)

    # Time

    def is_moving(self) -> bool:
        """Say whether a message travels, or a node has not noticed yet that a link has changed."""
        return bool(self._line or self._heap or self._changing)

    def run_while(self, condition: Callable[[], bool], limit: float) -> bool:
        """Let time pass while something holds; say whether that has ended before ``limit``."""
        while condition():
            following = self._following()
            if following > limit:
                self.now = max(self.now, limit)
                return False
            self._step(following)
        return True

    def call_at(self, when: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call something at some time."""
        heappush(self._calls, (when, next(self._numbers), call, arguments))

    def run_until(self, when: float) -> None:
        """Let time pass."""
        while (following := self._following()) <= when:
            self._step(following)
        self.now = max(self.now, when)

    def run_until_quiet(self, limit: float = inf) -> bool:
        """Let time pass until nobody waits for anything; say whether that came to be before ``limit``."""
        return self.run_while(lambda: not self.is_quiet(), limit)

    def is_quiet(self) -> bool:
        """Say whether nothing travels, and nobody waits for anything."""
        if self.is_moving():
            return False
        nodes = self.nodes
        busy = {number for number in self._perhaps_busy if number in nodes and nodes[number].busy}
        self._perhaps_busy = busy
        return not busy

    def _following(self) -> float:
        line = self._line[0][0] if self._line else inf
        if self._heap and self._heap[0][0] < line:
            line = self._heap[0][0]
        return min(line, self._calls[0][0]) if self._calls else line

    def _step(self, when: float) -> None:
        self.now = when
        calls = self._calls
        line, heap = self._line, self._heap
        # Of what is due at one moment, the lowest number goes first.
        number, kind = inf, 0
        if line and line[0][0] <= when:
            number, kind = line[0][1], 1
        if heap and heap[0][0] <= when and heap[0][1] < number:
            number, kind = heap[0][1], 2
        if calls and calls[0][0] <= when and calls[0][1] < number:
            _, _, call, arguments = heappop(calls)
            call(*arguments)
            return
        _, _, source, destination, life, message = line.popleft() if kind == 1 else heappop(heap)
        if type(message) in PACKETS:
            self._copy_ends(message)
        if self._lives:
            pair = (source, destination) if source < destination else (destination, source)
            if self._lives.get(pair, 0) != life or destination in self.down:
                self.lost += 1
                return
        node = self.nodes.get(destination) or self.node(destination)
        self.delivered += 1
        node.receive(message, source, when)
        self._flush(destination, node)

    # What nodes want

    def _flush(self, number: int, node: FreenetNode) -> None:
        _, effects, events = node.drain()
        for effect in effects:
            if type(effect) is Write:
                self._send(number, effect.peer, effect.messages)  # type: ignore[arg-type]  # Here, links are numbers.
        deadline = node.next_deadline()
        if deadline is not None and deadline < self._armed.get(number, inf):
            self._armed[number] = deadline
            heappush(self._calls, (deadline, next(self._numbers), self._tick, (number, deadline)))
        self._perhaps_busy.add(number)
        for event in events:
            self._tell(number, event)

    def _tick(self, number: int, deadline: float) -> None:
        if self._armed.get(number) != deadline:
            return
        del self._armed[number]
        node = self.nodes[number]
        node.tick(self.now)
        self._flush(number, node)

    def _send(self, source: int, destination: int, messages: Any) -> None:
        life = 0
        if self._lives:
            pair = (source, destination) if source < destination else (destination, source)
            life = self._lives.get(pair, 0)
        numbers, sent, costs = self._numbers, self.sent, self.costs
        fixed = type(self._latency) is float
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
                self.lost += 1
                continue
            if kind in PACKETS:
                self.copies[message.key, message.packet, message.data] += 1
            arrives = self._arrival(source, destination)
            if fixed:
                self._line.append((arrives, next(numbers), source, destination, life, message))
            else:
                heappush(self._heap, (arrives, next(numbers), source, destination, life, message))

    def _copy_ends(self, message: Any) -> None:
        packet = message.key, message.packet, message.data
        self.copies[packet] -= 1
        if not self.copies[packet]:
            del self.copies[packet]

    def _arrival(self, source: int, destination: int) -> float:
        """Return when something comes that goes now: links keep the order, of what tells that they changed too."""
        latency = self._latency
        if isinstance(latency, float):
            return self.now + latency
        delay = latency(source, destination, self._link_rng)
        if not 0.0 <= delay < inf:
            raise ConfigurationError(f"latency({source}, {destination}, rng) is {delay!r}: a time is 0 or more seconds")
        arrives = max(self.now + delay, self._last.get((source, destination), 0.0))
        self._last[source, destination] = arrives
        return arrives
