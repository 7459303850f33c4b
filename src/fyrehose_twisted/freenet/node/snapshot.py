"""How a node looks, for operators."""

from __future__ import annotations

from fyrehose_twisted.freenet.node.context import Core
from fyrehose_twisted.freenet.node.status import NeighbourState, NodeState, StreamState


def picture(core: Core, now: float) -> NodeState:
    """Return how a node looks."""
    neighbours = [
        NeighbourState(one.node, one.location, one.link is not None, max(0.0, now - one.heard_at))
        for one in core.neighbours.values()
    ]
    streams = [
        StreamState(
            stream.key,
            stream.location,
            stream.phase.value,
            None if stream.parent is None else stream.parent.node,
            stream.is_root,
            stream.root,
            [one.node for one in stream.subscribers],
            stream.local,
            stream.packets.newest,
        )
        for stream in core.streams.values()
    ]
    config = core.config
    counts = dict(core.counts)
    return NodeState(config.node, config.boot, core.location, neighbours, streams, len(core.searches), counts)
