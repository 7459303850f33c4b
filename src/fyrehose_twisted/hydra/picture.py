"""Takes a picture of a node."""

from __future__ import annotations

from fyrehose_twisted.effects import Address, Peer
from fyrehose_twisted.hydra.standing import Standing
from fyrehose_twisted.hydra.state import LinkView, NodeState, NodeView


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
    links += [LinkView(_place(address), None, False, False) for address, _ in standing.ties.closed_targets()]
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


def link_name(peer: Peer | None) -> str:
    """Return what a link is called: where it leads, or from where it came; nothing for none."""
    return "" if peer is None else _place(peer.address) if peer.dialled else f"from {_place(peer.address)}"


def _place(address: Address) -> str:
    host, port = address
    return f"{host}:{port}" if port else host
