"""Metrics of an experiment. Document 003 defines the trees; the metrics are this library's.

Trees, at the time of the call of :meth:`TreeMetrics.metrics`, over all keys with subscribers:

``keys``, ``subscribers`` (running ones), ``members`` (nodes that have the stream), ``members_per_subscriber``,
``roots_per_key``, ``reach`` (share of the subscribers that are in the largest tree of their key), ``depth_mean`` and
``depth_max`` (links from a subscriber to its root), ``stretch`` (depth divided by the length of the shortest path, over
subscribers that are not roots), ``link_stress_mean`` and ``_max`` (trees that a link is part of, over links that are
part of any), ``fan_out_mean`` and ``_max`` (subscribers of a member that has any), ``streams_per_node_mean`` and
``_max`` (over nodes that have any), ``cycles`` (nodes in cycles).

Subscriptions: ``subscribe_success``, ``subscribe_hops`` (depth at that time), ``subscribe_requests_first`` and
``_later`` (times that a request was sent: the first one for a key, and the others), ``subscribe_messages_first`` and
``_later`` (all messages caused by the request), ``overload_rate`` (share of the requests, counted per link, that were
answered as overloaded, by the overloaded node or on the way back).

Packets: each is due to the subscribers running at its publication. A subscriber is exempt if it dies or unsubscribes
before it has the packet, while a copy is in flight or before the last delivery. ``delivery_ratio`` (share of the due
deliveries that arrived), ``duplicates`` (duplicate packets per new packet), ``latency_p50`` and ``_p99`` (seconds from
publication to delivery), ``lost_in_repair`` (missing due deliveries of packets published after the first fault).

Repairs, one per lost parent: ``repair_time_p50`` and ``_p99`` (seconds until the node has a parent or is a root),
``repair_requests`` and ``repair_restarted`` (resubscribe requests sent, and restart announcements to subtrees, per
repair, including those of voluntary restarts and of probes), ``restarts_per_stream_hour`` (restarts, including
voluntary ones and probes, per hour of one node's membership).

Others: ``messages`` (sent) and ``simulated`` (seconds).

All but those of trees cover the time since the start, or since :meth:`TreeMetrics.reset`.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, nan
from typing import TYPE_CHECKING

from fyrehose_twisted.experiments.measures.averages import mean, quantile
from fyrehose_twisted.experiments.measures.baseline import COUNTERS, Baseline
from fyrehose_twisted.experiments.measures.tree_shapes import TreeShapes
from fyrehose_twisted.freenet.events import (
    Event,
    PacketPublished,
    PacketsDelivered,
    ParentChanged,
    ParentLost,
    StreamDropped,
)
from fyrehose_twisted.freenet.wire.messages import ResubscribeRequest

if TYPE_CHECKING:
    from fyrehose_twisted.experiments.simulated_network import SimulatedNetwork

_PacketId = tuple[bytes, int, bytes]
"""Key, number and data of a packet."""


@dataclass(slots=True)
class _PublishedPacket:
    """Published packet.

    :ivar data: content of the packet. Two roots may assign one number to two packets.
    :ivar step: step of the publication. Steps number publications, deliveries and departures in order, since several
        may occur at the same time.
    :ivar expected: subscribers running at the publication.
    :ivar in_repair: True if it was published after the first fault.
    :ivar deliveries: step of the delivery, by subscriber.
    :ivar counts: False if it was sent before the time that is covered.
    """

    key: bytes
    data: bytes
    published_at: float
    step: int
    expected: frozenset[int]
    in_repair: bool
    deliveries: dict[int, int] = field(default_factory=dict)
    counts: bool = True


class TreeMetrics:
    """Collector of metrics from the events of nodes.

    :ivar duplicate_deliveries: node, key and number of each packet that was delivered twice to an application since
        the start.
    :ivar baseline: counts at the beginning of the time that is covered.
    """

    def __init__(self, network: SimulatedNetwork) -> None:
        self._network = network
        self._subscribers: dict[bytes, dict[int, None]] = {}
        self._known_keys: set[bytes] = set()
        self._first_costs: list[list[int]] = []
        self._later_costs: list[list[int]] = []
        self._hops: list[int] = []
        self._failed = 0
        self._published_packets: dict[_PacketId, _PublishedPacket] = {}
        self._unpublished: dict[int, _PublishedPacket] = {}
        self._early_deliveries: dict[_PacketId, list[tuple[int, float, int]]] = {}
        self._departures: dict[tuple[int, bytes], list[int]] = {}
        self._left_early: dict[_PacketId, set[int]] = {}
        """Nodes that left while a copy of a packet was in flight."""
        self._forgotten: set[_PacketId] = set()
        """Packets published before the time that is covered."""
        self._steps = 0
        self._latencies: list[float] = []
        self._faulted = False
        self._orphans: dict[tuple[int, bytes], float] = {}
        self._repair_times: list[float] = []
        self._lost_parents = 0
        self._members: set[tuple[int, bytes]] = set()
        self._member_seconds = 0.0
        self._accounted_until = 0.0
        self._seen_deliveries: set[tuple[int, _PacketId]] = set()
        self.duplicate_deliveries: list[tuple[int, bytes, int]] = []
        self.baseline = Baseline(network)

    # Time that is covered

    def reset(self) -> None:
        """Forget all that happened before, except for the current state."""
        self._accumulate_membership()
        for counts in (self._first_costs, self._later_costs, self._hops, self._latencies, self._repair_times):
            counts.clear()
        self._failed = self._lost_parents = 0
        self._member_seconds = 0.0
        self._faulted = False
        # Packets that are under way would be counted in part.
        self._forgotten.update(self._published_packets)
        self._published_packets.clear()
        self._early_deliveries.clear()
        for packet in self._unpublished.values():
            packet.counts = False
        self._departures.clear()
        self._left_early.clear()
        self.baseline = Baseline(self._network)

    def successor(self) -> TreeMetrics:
        """Return a collector that covers the time from now on."""
        found = TreeMetrics(self._network)
        found._subscribers = {key: dict(nodes) for key, nodes in self._subscribers.items()}
        found._known_keys = set(self._known_keys)
        found._orphans = dict(self._orphans)
        found._members = set(self._members)
        found._accounted_until = self._network.now
        found._seen_deliveries = set(self._seen_deliveries)
        found._forgotten = self._forgotten | self._published_packets.keys()
        found._unpublished = {token: replace(sent, counts=False) for token, sent in self._unpublished.items()}
        return found

    def sample(self, subscribers: Mapping[bytes, Sequence[int]]) -> dict[str, float]:
        """Return all metrics, and reset them.

        :param subscribers: running subscribers of each key.
        """
        found = self.metrics(subscribers)
        self.reset()
        return found

    # Events

    def subscribe_started(self, node: int, key: bytes) -> None:
        """Record the start of a subscription."""
        self._subscribers.setdefault(key, {})[node] = None

    def unsubscribed(self, node: int, key: bytes) -> None:
        """Record the end of a subscription."""
        self._subscribers.get(key, {}).pop(node, None)
        self._record_departure(node, key)

    def subscribed(self, node: int, key: bytes, cost: Sequence[int], hops: int) -> None:
        """Record a successful subscription."""
        self._hops.append(hops)
        accounts = self._later_costs if key in self._known_keys else self._first_costs
        self._known_keys.add(key)
        accounts.append(list(cost))

    def subscribe_failed(self, node: int, key: bytes, cost: Sequence[int]) -> None:
        """Record a failed subscription."""
        self._failed += 1

    def publish_started(self, token: int, node: int, key: bytes, data: bytes) -> None:
        """Record the start of a publication."""
        down = self._network.down
        expected = frozenset(subscriber for subscriber in self._subscribers.get(key, ()) if subscriber not in down)
        self._unpublished[token] = _PublishedPacket(
            key, data, self._network.now, self._next_step(), expected, self._faulted
        )

    def publish_failed(self, token: int) -> None:
        """Record a failed publication."""
        self._unpublished.pop(token, None)

    def fault_occurred(self) -> None:
        """Record the first fault."""
        self._faulted = True

    def node_died(self, node: int) -> None:
        """Record the death of a node."""
        for key, nodes in self._subscribers.items():
            if node in nodes:
                self._record_departure(node, key)
        gone = [member for member in self._members if member[0] == node]
        self._accumulate_membership()
        self._members.difference_update(gone)
        for orphan in [orphan for orphan in self._orphans if orphan[0] == node]:
            del self._orphans[orphan]
        # After a restart, packets may be delivered again.
        self._seen_deliveries = {seen for seen in self._seen_deliveries if seen[0] != node}

    def on_event(self, node: int, event: Event) -> None:
        """Process an event of a node."""
        match event:
            case ParentChanged(key, _):
                self._accumulate_membership()
                self._members.add((node, key))
                since = self._orphans.pop((node, key), None)
                if since is not None:
                    self._repair_times.append(self._network.now - since)
            case StreamDropped(key):
                self._accumulate_membership()
                self._members.discard((node, key))
                self._orphans.pop((node, key), None)
            case ParentLost(key, _):
                self._lost_parents += 1
                self._orphans.setdefault((node, key), self._network.now)
            case PacketsDelivered(key, packets):
                for packet in packets:
                    self._record_receipt(node, (key, packet.number, packet.data))
            case PacketPublished(token, key, number):
                self._record_publication(token, key, number)
            case _:
                pass

    def time_passed(self) -> None:
        """Account for elapsed time."""
        self._accumulate_membership()

    def _accumulate_membership(self) -> None:
        now = self._network.now
        self._member_seconds += (now - self._accounted_until) * len(self._members)
        self._accounted_until = now

    def _record_publication(self, token: object, key: bytes, number: int) -> None:
        assert isinstance(token, int), "tokens are assigned by the experiment"
        if token not in self._unpublished:
            return
        sent = self._unpublished.pop(token)
        packet = key, number, sent.data
        if not sent.counts:
            self._forgotten.add(packet)
            self._early_deliveries.pop(packet, None)
            return
        self._published_packets[packet] = sent
        for node, when, step in self._early_deliveries.pop(packet, ()):
            self._record_delivery(sent, node, when, step)

    def _record_receipt(self, node: int, packet: _PacketId) -> None:
        if (node, packet) in self._seen_deliveries:
            key, number, _ = packet
            self.duplicate_deliveries.append((node, key, number))
        self._seen_deliveries.add((node, packet))
        sent, now, step = self._published_packets.get(packet), self._network.now, self._next_step()
        if packet in self._forgotten:
            return
        if sent is None:
            # Deliveries may precede the confirmation to the publisher.
            self._early_deliveries.setdefault(packet, []).append((node, now, step))
        else:
            self._record_delivery(sent, node, now, step)

    def _record_delivery(self, sent: _PublishedPacket, node: int, when: float, step: int) -> None:
        # A subscriber that left and returned receives the packet as a later subscriber.
        if node in sent.expected and node not in sent.deliveries and step < self._first_departure(sent, node):
            sent.deliveries[node] = step
            self._latencies.append(when - sent.published_at)

    def _next_step(self) -> int:
        self._steps += 1
        return self._steps

    def _record_departure(self, node: int, key: bytes) -> None:
        self._departures.setdefault((node, key), []).append(self._next_step())
        for packet in self._network.packets_in_flight:
            if packet[0] == key:
                self._left_early.setdefault(packet, set()).add(node)

    def _first_departure(self, sent: _PublishedPacket, node: int) -> float:
        """Return the step of a subscriber's first departure after a publication, infinity if it stayed."""
        steps = self._departures.get((node, sent.key), ())
        place = bisect(steps, sent.step)
        return steps[place] if place < len(steps) else inf

    # Results

    def metrics(self, subscribers: Mapping[bytes, Sequence[int]]) -> dict[str, float]:
        """Return all metrics.

        :param subscribers: running subscribers of each key.
        """
        self._accumulate_membership()
        shapes = TreeShapes(self._network)
        for key, nodes in subscribers.items():
            shapes.add(key, nodes)
        found = shapes.metrics()
        found |= self._subscription_metrics()
        found |= self._packet_metrics()
        found |= self._repair_metrics()
        found["messages"] = float(self.baseline.sent_by_type().total())
        found["simulated"] = self._network.now - self.baseline.time
        return found

    def _subscription_metrics(self) -> dict[str, float]:
        tries = len(self._hops) + self._failed
        counts = self._node_counts()
        return {
            "subscribe_success": len(self._hops) / tries if tries else nan,
            "subscribe_hops": mean(self._hops),
            "subscribe_requests_first": mean([cost[0] for cost in self._first_costs]),
            "subscribe_requests_later": mean([cost[0] for cost in self._later_costs]),
            "subscribe_messages_first": mean([cost[1] for cost in self._first_costs]),
            "subscribe_messages_later": mean([cost[1] for cost in self._later_costs]),
            "overload_rate": counts["overloads"] / counts["requests"] if counts["requests"] else nan,
        }

    def _packet_metrics(self) -> dict[str, float]:
        due = got = lost = 0
        for packet, sent in self._published_packets.items():
            last = max(sent.deliveries.values(), default=sent.step)
            absent = sent.expected - sent.deliveries.keys() - self._left_early.get(packet, set())
            missing = sum(self._first_departure(sent, node) > last for node in absent)
            due += len(sent.deliveries) + missing
            got += len(sent.deliveries)
            lost += missing if sent.in_repair else 0
        counts = self._node_counts()
        latencies = sorted(self._latencies)
        return {
            "delivery_ratio": got / due if due else nan,
            "duplicates": counts["data_same"] / len(latencies) if latencies else nan,
            "latency_p50": quantile(latencies, 0.5),
            "latency_p99": quantile(latencies, 0.99),
            "lost_in_repair": float(lost) if self._faulted else nan,
        }

    def _repair_metrics(self) -> dict[str, float]:
        counts = self._node_counts()
        repairs, orphans = sorted(self._repair_times), self._lost_parents
        hours = self._member_seconds / 3_600.0
        return {
            "repair_time_p50": quantile(repairs, 0.5),
            "repair_time_p99": quantile(repairs, 0.99),
            "repair_requests": self.baseline.sent_by_type()[ResubscribeRequest] / orphans if orphans else nan,
            "repair_restarted": counts["restarted_sent"] / orphans if orphans else nan,
            "restarts_per_stream_hour": (orphans + counts["volunteered"]) / hours if hours else nan,
        }

    def _node_counts(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for number, node in self._network.nodes.items():
            for name in COUNTERS:
                total[name] += self.baseline.count(number, node, name)
        return total
