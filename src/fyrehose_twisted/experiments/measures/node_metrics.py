"""Metrics of single nodes.

``node`` (its number), ``up`` (1 if it runs), ``location``, ``links`` (to running nodes), ``subscriptions`` (of its
application), ``streams`` (that it is a member of, as subscriber, relay or root), ``roots`` (streams of which it is the
root), ``children`` (members whose parent it is, summed over all streams).

Since the start, or since the last reset: ``sent`` and ``received`` (messages), ``requests`` (that it sent on),
``overloads`` (requests that it refused for too many streams), ``duplicates`` (packets received twice). A node that died
has the messages of all its lives, and the other counts of its current one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from fyrehose_twisted.experiments.measures.baseline import Baseline

if TYPE_CHECKING:
    from fyrehose_twisted.experiments.simulated_network import SimulatedNetwork


def node_metrics(
    network: SimulatedNetwork, baseline: Baseline, subscribers: Mapping[bytes, Iterable[int]]
) -> list[dict[str, float]]:
    """Return the metrics of each node, in the order of their numbers.

    :param baseline: counts at the beginning of the time that is covered.
    :param subscribers: nodes with a subscription, by key.
    """
    children: Counter[int] = Counter()
    subscriptions = Counter(node for nodes in subscribers.values() for node in nodes)
    for node in network.nodes.values():
        children.update(stream.parent.node for stream in node.streams.values() if stream.parent is not None)
    found = []
    for number in range(network.topology.n):
        present = network.nodes.get(number)
        streams = [] if present is None else list(present.streams.values())
        counts = dict.fromkeys(("requests", "overloads", "data_same"), 0)
        if present is not None:
            counts = {name: baseline.count(number, present, name) for name in counts}
        found.append(
            {
                "node": number,
                "up": float(number not in network.down),
                "location": network.locations[number],
                "links": float(len(network.linked_nodes(number))),
                "subscriptions": float(subscriptions[number]),
                "streams": float(len(streams)),
                "roots": float(sum(stream.is_root for stream in streams)),
                "children": float(children[number]),
                "sent": float(baseline.sent(number)),
                "received": float(baseline.received(number)),
                "requests": float(counts["requests"]),
                "overloads": float(counts["overloads"]),
                "duplicates": float(counts["data_same"]),
            }
        )
    return found
