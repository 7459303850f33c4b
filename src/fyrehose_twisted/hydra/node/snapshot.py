"""Takes a picture of a node."""

from __future__ import annotations

from fyrehose_twisted.hydra.node.context import NodeContext
from fyrehose_twisted.hydra.node.link_table import link_address, link_name
from fyrehose_twisted.hydra.node.status import LinkStatus, NodeStatus, PeerStatus


def snapshot(
    context: NodeContext, now: float, *, lease: float | None, irc: str, waiting: int, expected: int
) -> NodeStatus:
    """Return how a node looks."""
    nodes = []
    for member in sorted(context.registry, key=lambda member: member.id):
        is_self = member.id == context.id
        silent = None if member.last_pong_at is None else max(0.0, now - member.last_pong_at)
        nodes.append(
            PeerStatus(
                member.id,
                context.config.tag if is_self else member.tag,
                0 if is_self else member.hops,
                "" if is_self else link_name(member.neighbour),
                0.0 if is_self else silent,
            )
        )
    links = [LinkStatus(link_name(tie.peer), tie.node, tie.legacy, True) for tie in context.links]
    links += [LinkStatus(link_address(address), None, False, False) for address, _ in context.links.closed_targets()]
    left = None if lease is None or lease <= now else lease - now
    return NodeStatus(
        context.config.network,
        context.config.tag,
        context.id,
        context.role,
        context.role_reason,
        context.durable.term,
        context.leader,
        context.config.network_size,
        context.quorum,
        tuple(nodes),
        tuple(links),
        left,
        context.promised_to(now),
        irc,
        waiting,
        expected,
        dict(context.counters),
    )
