"""What is measured in a network, and what to call it."""

from __future__ import annotations

from typing import NamedTuple


class Metric(NamedTuple):
    """Something that is measured.

    :ivar title: what a plot of it is called.
    :ivar unit: of its numbers, or ``""``.
    :ivar maximum: the highest that it can be.
    :ivar minimum: the lowest.
    :ivar description: what it is, in a sentence.
    """

    title: str
    unit: str = ""
    description: str = ""
    maximum: float = float("inf")
    minimum: float = 0.0


METRICS: dict[str, Metric] = {
    "streams": Metric("Streams", "", "Keys that somebody wants."),
    "living_subscribers": Metric("Living subscribers", "", "Of all keys together."),
    "members": Metric("Members of trees"),
    "members_per_subscriber": Metric(
        "Members of a tree for each subscriber", "", "Members are subscribers and those that only pass packets on."
    ),
    "roots_per_key": Metric(
        "Roots of a key", "roots", "One is as it should be; each more is a tree of its own.", minimum=1.0
    ),
    "reach": Metric("Reach", "", "Share of the living subscribers that are in the largest tree of their key.", 1.0),
    "subscribe_success": Metric("Subscriptions that succeeded", "", "Share of those that were asked for.", 1.0),
    "subscribe_hops": Metric("Hops of a subscription", "hops"),
    "subscribe_requests_first": Metric("Requests of the first subscription to a key", "messages"),
    "subscribe_requests_later": Metric("Requests of later subscriptions", "messages"),
    "subscribe_messages_first": Metric("Messages of the first subscription to a key", "messages"),
    "subscribe_messages_later": Metric("Messages of later subscriptions", "messages"),
    "depth_mean": Metric("Depth", "hops", "Hops from a subscriber up to its root."),
    "depth_max": Metric("Greatest depth", "hops", "Hops from the subscriber that is furthest from its root."),
    "stretch": Metric(
        "Stretch", "", "Depth of a subscriber, divided by the hops of the shortest path to its root.", minimum=1.0
    ),
    "link_stress_mean": Metric("Trees on a link", "", "On average, over the links that are part of any."),
    "link_stress_max": Metric("Most trees on a link"),
    "fan_out_mean": Metric("Children of a member", "", "On average, over those that have any."),
    "fan_out_max": Metric("Most children of a member"),
    "streams_per_node_mean": Metric("Streams of a node"),
    "streams_per_node_max": Metric("Most streams of a node"),
    "overload_rate": Metric("Requests refused for too many streams", "", "Share of all requests.", 1.0),
    "delivery_ratio": Metric("Packets delivered", "", "Share of those that subscribers should have got.", 1.0),
    "duplicates": Metric("Packets received twice", "", "For each packet that was new to a node."),
    "latency_p50": Metric("Delay of a packet, median", "s"),
    "latency_p99": Metric("Delay of a packet, 99 %", "s"),
    "repair_time_p50": Metric(
        "Time to repair, median", "s", "From the loss of a parent to the next one, in simulated time."
    ),
    "repair_time_p99": Metric(
        "Time to repair, 99 %", "s", "From the loss of a parent to the next one, in simulated time."
    ),
    "repair_requests": Metric(
        "Requests to repair", "messages", "Requests sent for each member that has lost its parent."
    ),
    "repair_restarted": Metric(
        "Notices of a restart", "messages", "SubscribeRestarted sent for each member that has lost its parent."
    ),
    "lost_in_repair": Metric(
        "Deliveries lost in repair", "deliveries", "Missing deliveries of what was published after something broke."
    ),
    "cycles": Metric("Members of cycles", "", "Members that are above themselves; there should be none."),
    "restarts_per_stream_hour": Metric("Restarts of a stream in an hour"),
    "publish_success": Metric("Packets published", "", "Share of those that somebody tried to publish.", 1.0),
    "refused": Metric("Subscriptions refused", "", "By the subscriber's own node, which had all streams it may have."),
    "messages": Metric("Messages", "messages", "All that were sent."),
    "simulated": Metric("Simulated time", "s"),
}
"""All that is measured, in the order of columns: by the experiment, but for ``publish_success`` and ``refused``."""

RENAMED_METRICS = {"keys": "streams", "subscribers": "living_subscribers"}
"""What an experiment calls as a setting is called, and how it is called here."""
