"""What is measured in an experiment (document 003 says what a tree is; what is worth knowing of one is ours).

Of trees, as they are when :meth:`Measures.metrics` is called, over all keys that somebody wants:

``keys``, ``subscribers`` (that run), ``members`` (nodes that have the stream), ``members_per_subscriber``,
``roots_per_key``, ``reach`` (share of the subscribers that are in the largest tree of their key), ``depth_mean`` and
``depth_max`` (links from a subscriber to its root), ``stretch`` (these by the links of the shortest way there, over
subscribers that are no roots), ``link_stress_mean`` and ``_max`` (trees that a link is part of, over links that are
part of any), ``fan_out_mean`` and ``_max`` (subscribers of a member that has any), ``streams_per_node_mean`` and
``_max`` (over nodes that have any), ``cycles`` (nodes that are above themselves).

Of subscriptions: ``subscribe_success``, ``subscribe_hops`` (depth at that moment), ``subscribe_requests_first`` and
``_later`` (how often a request was passed on: the first one for a key, and the others), ``subscribe_messages_first``
and ``_later`` (all messages on its behalf), ``overload_rate`` (of requests, each link counting as one: how many were
answered with no room, by whoever had none or on its way back).

Of packets, each of which is due to the subscribers that run when it is published. Those are exempt that die or
unsubscribe before it gets to them, while a copy of it is travelling or before its last delivery: ``delivery_ratio`` (of
the due deliveries, those that came), ``duplicates`` (packets that a node had already, by packet that was new),
``latency_p50`` and ``_p99`` (seconds from publishing to delivery), ``lost_in_repair`` (due deliveries that are missing,
of packets published after something broke).

Of repairs, each being a node that has lost its parent: ``repair_time_p50`` and ``_p99`` (seconds until it has one, or
is a root), ``repair_requests`` and ``repair_restarted`` (resubscriptions that were passed on, and notices to subtrees,
by repair; those of voluntary restarts, and of roots that look for a better one, are among them),
``restarts_per_stream_hour`` (restarts, voluntary ones and looks of roots for a better one too, in an hour of one node's
membership).

Besides: ``messages`` (sent) and ``simulated`` (seconds).
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, nan
from typing import TYPE_CHECKING

from fyrehose_twisted.experiments.measures.trees import ends, streams_of
from fyrehose_twisted.freenet.events import (
    Attached,
    Delivered,
    Dropped,
    Event,
    Published,
    Restarting,
)
from fyrehose_twisted.freenet.wire.messages import ResubscribeRequest

if TYPE_CHECKING:
    from fyrehose_twisted.experiments.simulated_network import World

_Packet = tuple[bytes, int, bytes]
"""Key, number and data of a packet."""


@dataclass(slots=True)
class _Sent:
    """A packet.

    :ivar data: what was published. Two roots may give one number to two packets.
    :ivar step: of the publication. Steps number publications, deliveries and departures in order: several happen at one
        time.
    :ivar expected: subscribers that ran then.
    :ivar got: step of the delivery to each of these.
    """

    key: bytes
    data: bytes
    at: float
    step: int
    expected: frozenset[int]
    in_repair: bool
    got: dict[int, int] = field(default_factory=dict)


class Measures:
    """Watches nodes.

    :ivar delivered_twice: node, key and number of what an application was given twice.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._wanting: dict[bytes, dict[int, None]] = {}
        self._known_keys: set[bytes] = set()
        self._first: list[list[int]] = []
        self._later: list[list[int]] = []
        self._hops: list[int] = []
        self._failed = 0
        self._sent: dict[_Packet, _Sent] = {}
        self._under_way: dict[int, _Sent] = {}
        self._early: dict[_Packet, list[tuple[int, float, int]]] = {}
        self._departures: dict[tuple[int, bytes], list[int]] = {}
        self._left_early: dict[_Packet, set[int]] = {}
        """Nodes that left while a copy of a packet was travelling."""
        self._steps = 0
        self._latencies: list[float] = []
        self._broken = False
        self._orphans: dict[tuple[int, bytes], float] = {}
        self._repairs: list[float] = []
        self._lost_parents = 0
        self._members: set[tuple[int, bytes]] = set()
        self._member_seconds = 0.0
        self._looked_at = 0.0
        self._seen: set[tuple[int, _Packet]] = set()
        self._counts: Counter[str] = Counter()
        self.delivered_twice: list[tuple[int, bytes, int]] = []

    # What happens

    def wanted(self, node: int, key: bytes) -> None:
        """An application subscribes."""
        self._wanting.setdefault(key, {})[node] = None

    def unwanted(self, node: int, key: bytes) -> None:
        """It does not want the stream any longer."""
        self._wanting.get(key, {}).pop(node, None)
        self._departed(node, key)

    def subscribed(self, node: int, key: bytes, cost: Sequence[int], hops: int) -> None:
        """A subscription succeeded."""
        self._hops.append(hops)
        accounts = self._later if key in self._known_keys else self._first
        self._known_keys.add(key)
        accounts.append(list(cost))

    def not_subscribed(self, node: int, key: bytes, cost: Sequence[int]) -> None:
        """It did not."""
        self._failed += 1

    def publishing(self, token: int, node: int, key: bytes, data: bytes) -> None:
        """An application publishes."""
        down = self._world.down
        expected = frozenset(one for one in self._wanting.get(key, ()) if one not in down)
        self._under_way[token] = _Sent(key, data, self._world.now, self._step(), expected, self._broken)

    def not_published(self, token: int) -> None:
        """Nothing came of it."""
        self._under_way.pop(token, None)

    def failed(self) -> None:
        """Something breaks."""
        self._broken = True

    def died(self, node: int) -> None:
        """A node is gone."""
        for key, nodes in self._wanting.items():
            if node in nodes:
                self._departed(node, key)
        gone = [member for member in self._members if member[0] == node]
        self._count_time()
        self._members.difference_update(gone)
        for orphan in [orphan for orphan in self._orphans if orphan[0] == node]:
            del self._orphans[orphan]
        # Whoever starts anew may be given again what it was given in another life.
        self._seen = {seen for seen in self._seen if seen[0] != node}

    def told(self, node: int, event: Event) -> None:
        """A node tells something."""
        match event:
            case Attached(key, _):
                self._count_time()
                self._members.add((node, key))
                since = self._orphans.pop((node, key), None)
                if since is not None:
                    self._repairs.append(self._world.now - since)
            case Dropped(key):
                self._count_time()
                self._members.discard((node, key))
                self._orphans.pop((node, key), None)
            case Restarting(key, _):
                self._lost_parents += 1
                self._orphans.setdefault((node, key), self._world.now)
            case Delivered(key, packets):
                for packet in packets:
                    self._delivered(node, (key, packet.number, packet.data))
            case Published(token, key, number):
                self._published(token, key, number)
            case _:
                pass

    def passed(self) -> None:
        """Time has passed."""
        self._count_time()

    def _count_time(self) -> None:
        now = self._world.now
        self._member_seconds += (now - self._looked_at) * len(self._members)
        self._looked_at = now

    def _published(self, token: object, key: bytes, number: int) -> None:
        assert isinstance(token, int), "tokens are the experiment's"
        if token not in self._under_way:
            return
        sent = self._under_way.pop(token)
        packet = key, number, sent.data
        self._sent[packet] = sent
        for node, when, step in self._early.pop(packet, ()):
            self._arrived(sent, node, when, step)

    def _delivered(self, node: int, packet: _Packet) -> None:
        if (node, packet) in self._seen:
            key, number, _ = packet
            self.delivered_twice.append((node, key, number))
        self._seen.add((node, packet))
        sent, now, step = self._sent.get(packet), self._world.now, self._step()
        if sent is None:
            # Others have it before the publisher learns that they do.
            self._early.setdefault(packet, []).append((node, now, step))
        else:
            self._arrived(sent, node, now, step)

    def _arrived(self, sent: _Sent, node: int, when: float, step: int) -> None:
        # A subscriber that left and came back gets the packet as one that comes later.
        if node in sent.expected and node not in sent.got and step < self._departure(sent, node):
            sent.got[node] = step
            self._latencies.append(when - sent.at)

    def _step(self) -> int:
        self._steps += 1
        return self._steps

    def _departed(self, node: int, key: bytes) -> None:
        self._departures.setdefault((node, key), []).append(self._step())
        for packet in self._world.copies:
            if packet[0] == key:
                self._left_early.setdefault(packet, set()).add(node)

    def _departure(self, sent: _Sent, node: int) -> float:
        """Return the step at which a subscriber left first after the publication of a packet, infinity if it stayed."""
        steps = self._departures.get((node, sent.key), ())
        place = bisect(steps, sent.step)
        return steps[place] if place < len(steps) else inf

    # What came of it

    def metrics(self, wanted: Mapping[bytes, Sequence[int]]) -> dict[str, float]:
        """Return all that is measured.

        :param wanted: the subscribers of each key that run.
        """
        self._count_time()
        found = _trees(self._world, wanted)
        found |= self._subscriptions()
        found |= self._packets()
        found |= self._repaired()
        found["messages"] = float(self._world.sent.total())
        found["simulated"] = self._world.now
        return found

    def _subscriptions(self) -> dict[str, float]:
        tries = len(self._hops) + self._failed
        counts = self._node_counts()
        return {
            "subscribe_success": len(self._hops) / tries if tries else nan,
            "subscribe_hops": _mean(self._hops),
            "subscribe_requests_first": _mean([cost[0] for cost in self._first]),
            "subscribe_requests_later": _mean([cost[0] for cost in self._later]),
            "subscribe_messages_first": _mean([cost[1] for cost in self._first]),
            "subscribe_messages_later": _mean([cost[1] for cost in self._later]),
            "overload_rate": counts["overloads"] / counts["requests"] if counts["requests"] else nan,
        }

    def _packets(self) -> dict[str, float]:
        due = got = lost = 0
        for packet, sent in self._sent.items():
            last = max(sent.got.values(), default=sent.step)
            absent = sent.expected - sent.got.keys() - self._left_early.get(packet, set())
            missing = sum(self._departure(sent, node) > last for node in absent)
            due += len(sent.got) + missing
            got += len(sent.got)
            lost += missing if sent.in_repair else 0
        counts = self._node_counts()
        latencies = sorted(self._latencies)
        return {
            "delivery_ratio": got / due if due else nan,
            "duplicates": counts["data_same"] / len(latencies) if latencies else nan,
            "latency_p50": _quantile(latencies, 0.5),
            "latency_p99": _quantile(latencies, 0.99),
            "lost_in_repair": float(lost) if self._broken else nan,
        }

    def _repaired(self) -> dict[str, float]:
        counts = self._node_counts()
        repairs, orphans = sorted(self._repairs), self._lost_parents
        hours = self._member_seconds / 3_600.0
        return {
            "repair_time_p50": _quantile(repairs, 0.5),
            "repair_time_p99": _quantile(repairs, 0.99),
            "repair_requests": self._world.sent[ResubscribeRequest] / orphans if orphans else nan,
            "repair_restarted": counts["restarted_sent"] / orphans if orphans else nan,
            "restarts_per_stream_hour": (orphans + counts["volunteered"]) / hours if hours else nan,
        }

    def _node_counts(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for node in self._world.nodes.values():
            for name in ("overloads", "requests", "data_same", "restarted_sent", "volunteered"):
                total[name] += node.counts[name]
        return total


def _trees(world: World, wanted: Mapping[bytes, Sequence[int]]) -> dict[str, float]:
    roots: list[int] = []
    reached = members = cycles = subscribers = 0
    depths: list[int] = []
    stretches: list[float] = []
    stress: Counter[tuple[int, int]] = Counter()
    fan_outs: list[int] = []
    for key, nodes in wanted.items():
        streams = streams_of(world, key)
        tree = {number: None if one.parent is None else one.parent.node for number, one in streams.items()}
        tops, heights, cyclic = ends(tree)
        members += len(tree)
        cycles += len(cyclic)
        subscribers += len(nodes)
        if nodes:
            # Of who looks for a parent at the moment, nobody knows to which tree it belongs.
            sizes = Counter(tops[node] for node in nodes if node in tops and streams[tops[node]].is_root)
            roots.append(sum(one.is_root for one in streams.values()))
            reached += max(sizes.values(), default=0)
        depths += [heights[node] for node in nodes if node in heights]
        stretches += _stretches(world, nodes, tops, heights)
        for number, parent in tree.items():
            if parent is not None:
                stress[min(number, parent), max(number, parent)] += 1
        # Of those that are no children any more, some are kept for when they come back.
        fan_outs += Counter(parent for parent in tree.values() if parent is not None).values()
    per_node = [len(node.streams) for node in world.nodes.values() if node.streams]
    return {
        "keys": float(len(wanted)),
        "subscribers": float(subscribers),
        "members": float(members),
        "members_per_subscriber": members / subscribers if subscribers else nan,
        "roots_per_key": _mean(roots),
        "reach": reached / subscribers if subscribers else nan,
        "depth_mean": _mean(depths),
        "depth_max": float(max(depths)) if depths else nan,
        "stretch": _mean(stretches),
        "link_stress_mean": _mean(list(stress.values())),
        "link_stress_max": float(max(stress.values())) if stress else nan,
        "fan_out_mean": _mean(fan_outs),
        "fan_out_max": float(max(fan_outs)) if fan_outs else nan,
        "streams_per_node_mean": _mean(per_node),
        "streams_per_node_max": float(max(per_node)) if per_node else nan,
        "cycles": float(cycles),
    }


def _stretches(world: World, nodes: Iterable[int], tops: Mapping[int, int], heights: Mapping[int, int]) -> list[float]:
    by_root: dict[int, list[int]] = {}
    for node in nodes:
        if heights.get(node, 0) > 0:
            by_root.setdefault(tops[node], []).append(node)
    found: list[float] = []
    for root, below in by_root.items():
        shortest = _distances(world, root, set(below))
        found += [heights[node] / shortest[node] for node in below if node in shortest]
    return found


def _distances(world: World, start: int, wanted: set[int]) -> dict[int, int]:
    """Return how many links lead from one node to others, by the shortest way."""
    known = {start: 0}
    line = deque([start])
    left = len(wanted)
    while line and left:
        one = line.popleft()
        following = known[one] + 1
        for other in world.linked(one):
            if other not in known:
                known[other] = following
                line.append(other)
                left -= other in wanted
    return known


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else nan


def _quantile(numbers: Sequence[float], share: float) -> float:
    """Return a quantile of numbers in ascending order."""
    return numbers[min(len(numbers) - 1, int(share * len(numbers)))] if numbers else nan
