"""Metrics of a network, with their titles, units and ranges."""

from __future__ import annotations

from typing import NamedTuple


class Metric(NamedTuple):
    """Description of one metric.

    :ivar title: title of its plot.
    :ivar unit: unit of its values, or ``""``.
    :ivar maximum: highest possible value.
    :ivar minimum: lowest possible value.
    :ivar description: description in one sentence.
    """

    title: str
    unit: str = ""
    description: str = ""
    maximum: float = float("inf")
    minimum: float = 0.0


METRICS: dict[str, Metric] = {
    "streams": Metric("Streams", "", "Keys with subscribers."),
    "living_subscribers": Metric("Living subscribers", "", "Summed over all keys."),
    "members": Metric("Members of trees"),
    "members_per_subscriber": Metric(
        "Members of a tree for each subscriber", "", "Members are subscribers and relays."
    ),
    "roots_per_key": Metric(
        "Roots of a key", "roots", "One root is ideal; each further root is a separate tree.", minimum=1.0
    ),
    "reach": Metric("Reach", "", "Share of the living subscribers that are in the largest tree of their key.", 1.0),
    "subscribe_success": Metric("Subscriptions that succeeded", "", "Share of all subscriptions.", 1.0),
    "subscribe_hops": Metric("Hops of a subscription", "hops"),
    "subscribe_requests_first": Metric("Requests of the first subscription to a key", "messages"),
    "subscribe_requests_later": Metric("Requests of later subscriptions", "messages"),
    "subscribe_messages_first": Metric("Messages of the first subscription to a key", "messages"),
    "subscribe_messages_later": Metric("Messages of later subscriptions", "messages"),
    "depth_mean": Metric("Depth", "hops", "Hops from a subscriber up to its root."),
    "depth_max": Metric("Greatest depth", "hops", "Hops from the subscriber farthest from its root."),
    "stretch": Metric(
        "Stretch", "", "Depth of a subscriber, divided by the hops of the shortest path to its root.", minimum=1.0
    ),
    "link_stress_mean": Metric("Trees on a link", "", "Mean over the links that are part of any tree."),
    "link_stress_max": Metric("Most trees on a link"),
    "fan_out_mean": Metric("Children of a member", "", "Mean over members that have any."),
    "fan_out_max": Metric("Most children of a member"),
    "streams_per_node_mean": Metric("Streams of a node"),
    "streams_per_node_max": Metric("Most streams of a node"),
    "overload_rate": Metric("Requests refused for too many streams", "", "Share of all requests.", 1.0),
    "delivery_ratio": Metric("Packets delivered", "", "Share of the deliveries due to subscribers.", 1.0),
    "duplicates": Metric("Packets received twice", "", "For each packet that was new to a node."),
    "latency_p50": Metric("Delay of a packet, median", "s"),
    "latency_p99": Metric("Delay of a packet, 99 %", "s"),
    "repair_time_p50": Metric(
        "Time to repair, median", "s", "From the loss of a parent to the next one, in simulated time."
    ),
    "repair_time_p99": Metric(
        "Time to repair, 99 %", "s", "From the loss of a parent to the next one, in simulated time."
    ),
    "repair_requests": Metric("Requests to repair", "messages", "Requests sent per lost parent."),
    "repair_restarted": Metric("Notices of a restart", "messages", "SubscribeRestarted messages sent per lost parent."),
    "lost_in_repair": Metric(
        "Deliveries lost in repair", "deliveries", "Missing deliveries of packets published after the first fault."
    ),
    "cycles": Metric("Members of cycles", "", "Members that are in a cycle; there should be none."),
    "restarts_per_stream_hour": Metric("Restarts of a stream in an hour"),
    "publish_success": Metric("Packets published", "", "Share of the attempts to publish.", 1.0),
    "refused": Metric(
        "Subscriptions refused", "", "By the subscriber's own node, which had the maximum number of streams."
    ),
    "messages": Metric("Messages", "messages", "All messages sent."),
    "simulated": Metric("Simulated time", "s"),
}
"""All metrics, in the order of columns. The experiment measures all but ``publish_success`` and ``refused``."""

RENAMED_METRICS = {"keys": "streams", "subscribers": "living_subscribers"}
"""Metrics of an experiment whose names clash with settings, and their names in a sweep."""
