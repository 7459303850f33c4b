"""Takes a picture of a node."""

from __future__ import annotations

from fyrehose_twisted.hydra.node.context import Standing
from fyrehose_twisted.hydra.node.link_table import link_name, link_place
from fyrehose_twisted.hydra.node.status import LinkView, NodeState, NodeView


def picture(standing: Standing, now: float, *, lease: float | None, irc: str, waiting: int, expected: int) -> NodeState:
    """Return how a node looks."""
    nodes = []
    for member in sorted(standing.registry, key=lambda member: member.id):
        is_self = member.id == standing.id
        silent = None if member.ponged is None else max(0.0, now - member.ponged)
        nodes.append(
            NodeView(
                member.id,
                standing.config.tag if is_self else member.tag,
                0 if is_self else member.hops,
                "" if is_self else link_name(member.neighbour),
                0.0 if is_self else silent,
            )
        )
    links = [LinkView(link_name(tie.peer), tie.node, tie.legacy, True) for tie in standing.ties]
    links += [LinkView(link_place(address), None, False, False) for address, _ in standing.ties.closed_targets()]
    left = None if lease is None or lease <= now else lease - now
    return NodeState(
        standing.config.network,
        standing.config.tag,
        standing.id,
        standing.role,
        standing.why,
        standing.vow.term,
        standing.leader,
        standing.config.network_size,
        standing.quorum,
        tuple(nodes),
        tuple(links),
        left,
        standing.promised(now),
        irc,
        waiting,
        expected,
        dict(standing.counts),
    )
