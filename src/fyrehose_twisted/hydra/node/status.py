"""Status of a node for people and programs."""

from __future__ import annotations

from typing import NamedTuple

from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.node.context import NodeContext
from fyrehose_twisted.hydra.node.link_table import link_address, link_name
from fyrehose_twisted.wording import pluralize


class PeerStatus(NamedTuple):
    """Status of a registered node, as seen by this one."""

    id: int
    tag: str
    hops: int | None
    """Distance in links, 0 for this node; ``None`` until it answers a PING."""
    neighbour: str
    """Name of the link with the shortest path to it."""
    silent: float | None
    """Seconds since its last PONG; ``None`` if there was none."""


class LinkStatus(NamedTuple):
    """Status of a link."""

    name: str
    node: int | None
    """Id of the peer, ``None`` if unknown."""
    legacy: bool
    open: bool


class NodeStatus(NamedTuple):
    """Status of a node."""

    network: str
    tag: str
    id: int | None
    role: Role
    why: str
    """Reason of the last role change."""
    term: int
    leader: int | None
    size: int | None
    quorum: int
    nodes: tuple[PeerStatus, ...]
    links: tuple[LinkStatus, ...]
    lease: float | None
    """Remaining seconds of the lease; ``None`` without a lease."""
    promised: int | None
    """Leader that the node's current promise is for."""
    irc: str
    """``closed``, ``opening``, ``open`` or ``closing``."""
    waiting: int
    """Number of lines for IRC queued on this node."""
    expected: int
    """Sequence number of the next line from IRC."""
    counts: dict[str, int]
    """Counters since the start."""
    summary: str = ""
    """What the node does and what it waits for, in words."""


def snapshot(
    context: NodeContext, now: float, *, lease: float | None, irc: str, waiting: int, expected: int
) -> NodeStatus:
    """Return the status of a node."""
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
        _summarize(context, on_irc=irc == "open", has_lease=left is not None or not context.has_fixed_quorum),
    )


def _summarize(context: NodeContext, *, on_irc: bool, has_lease: bool) -> str:
    """Describe what a node does, and what it waits for."""
    missing = context.quorum - len(context.registry)
    match context.role:
        case Role.OUTSIDER:
            links = len(list(context.links))
            return (
                f"in no network; knocks over {pluralize(links, 'link')}"
                if links
                else "in no network and without a link"
            )
        case Role.GONE:
            return "stopped"
        case Role.LEADER if context.bootstrapping:
            return f"founder, waits for {max(missing, 1)} more"
        case Role.LEADER if not has_lease:
            return "leader, waits for the answers of a quorum"
        case Role.LEADER:
            return "leader, on IRC" if on_irc else "leader, not on IRC yet"
        case _ if missing > 0:
            return f"member, but {missing} more must join before a leader can be elected"
        case Role.COHORT if context.leader is not None:
            leader = context.registry.get(context.leader)
            return f"member, follows {(leader.tag if leader is not None else '') or context.leader}"
        case Role.NOMINEE:
            return "candidate, waits for the votes of a quorum"
        case Role.VOTER:
            return "voter, waits for the outcome of an election"
    return "member, waits for an election"
