"""How a node looks, for people and programs."""

from __future__ import annotations

from typing import NamedTuple

from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.node.context import NodeContext
from fyrehose_twisted.hydra.node.link_table import link_address, link_name


class PeerStatus(NamedTuple):
    """One node of the network, as another sees it."""

    id: int
    tag: str
    hops: int | None
    """Links between the two, 0 for itself; ``None`` while it did not answer a PING."""
    neighbour: str
    """The link that leads to it soonest."""
    silent: float | None
    """Seconds since its last PONG came; ``None`` if none has."""


class LinkStatus(NamedTuple):
    """One link of a node."""

    name: str
    node: int | None
    """Whom it leads to, if that is known."""
    legacy: bool
    open: bool


class NodeStatus(NamedTuple):
    """How a node looks."""

    network: str
    tag: str
    id: int | None
    role: Role
    why: str
    """What it was that made the role change last."""
    term: int
    leader: int | None
    size: int | None
    quorum: int
    nodes: tuple[PeerStatus, ...]
    links: tuple[LinkStatus, ...]
    lease: float | None
    """Seconds that are left of the lease; ``None`` where the node has none."""
    promised: int | None
    """Whom it helps to lead now."""
    irc: str
    """``closed``, ``opening``, ``open`` or ``closing``."""
    waiting: int
    """Lines for IRC that wait here."""
    expected: int
    """Number of the next line from IRC."""
    counts: dict[str, int]
    """What was counted since the start."""


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
    links = [LinkStatus(link_name(link.peer), link.node, link.legacy, True) for link in context.links]
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
