"""How a cluster looks from one of its nodes."""

from __future__ import annotations

from fyrehose_twisted.parcels.node.discovery import Discovery
from fyrehose_twisted.parcels.node.modes import Modes
from fyrehose_twisted.parcels.node.neighbours import show
from fyrehose_twisted.parcels.node.raft.member import Order
from fyrehose_twisted.parcels.node.status import ClusterState, MemberState, NeighbourState, show_founding
from fyrehose_twisted.parcels.wire.messages import node_id


def picture(
    cluster: str,
    founding: int,
    order: Order,
    discovery: Discovery,
    modes: Modes,
    held: tuple[int, int],
    counters: dict[str, int],
    now: float,
) -> ClusterState:
    """Return it.

    :param founding: which cluster of that name; 0 for none.
    :param held: the lowest and the highest number of the events that the node has.
    """
    me, view, leader = order.me, order.view, order.leader
    return ClusterState(
        name=me.name,
        id=node_id(me.name),
        incarnation=f"{me.incarnation:016x}",
        cluster=cluster,
        founding=show_founding(founding),
        mode=modes.mode.value,
        why=modes.why,
        leader=None if leader is None else leader.name,
        term=order.term,
        sequence=held[1],
        oldest=held[0],
        quorum=0 if view is None else view.quorum,
        members=tuple(
            MemberState(one.name, f"{one.incarnation:016x}", show(address), discovery.alive(one, now))
            for one, address in (() if view is None else view.members)
        ),
        neighbours=tuple(
            NeighbourState(
                one.info.name,
                one.info.id,
                show(one.info.host),
                one.mode.value,
                one.member is not None,
                one.member is not None and one.member in order.members,
                max(0.0, now - one.heard),
            )
            for one in sorted(discovery.neighbours, key=lambda one: one.info.name)
        ),
        counters=counters,
    )
