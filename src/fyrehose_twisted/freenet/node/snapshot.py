"""Status snapshot of a node, for operators."""

from __future__ import annotations

from fyrehose_twisted.freenet.node.context import NodeContext
from fyrehose_twisted.freenet.node.status import NeighbourStatus, NodeStatus, StreamStatus


def snapshot(context: NodeContext, now: float) -> NodeStatus:
    """Return the status of a node."""
    neighbours = [
        NeighbourStatus(
            neighbour.node, neighbour.location, neighbour.link is not None, max(0.0, now - neighbour.heard_at)
        )
        for neighbour in context.neighbours.values()
    ]
    streams = [
        StreamStatus(
            stream.key,
            stream.location,
            stream.phase.value,
            None if stream.parent is None else stream.parent.node,
            stream.is_root,
            stream.root,
            [subscriber.node for subscriber in stream.subscribers],
            stream.local,
            stream.packets.newest,
        )
        for stream in context.streams.values()
    ]
    config = context.config
    counts = dict(context.counters)
    return NodeStatus(
        config.node, config.boot, context.location, neighbours, streams, len(context.pending_requests), counts
    )
