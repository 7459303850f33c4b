"""Assembly of a node's status from its parts."""

from __future__ import annotations

from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.host_addresses import format_address
from fyrehose_twisted.parcels.node.discovery.neighbours import Neighbours
from fyrehose_twisted.parcels.node.modes import ModeMachine
from fyrehose_twisted.parcels.node.status import MemberStatus, NeighbourStatus, NodeStatus, format_cluster_id
from fyrehose_twisted.parcels.wire.messages import node_id


def snapshot(
    cluster: str,
    cluster_id: int,
    raft: RaftMember,
    neighbours: Neighbours,
    modes: ModeMachine,
    held: tuple[int, int],
    counters: dict[str, int],
    now: float,
) -> NodeStatus:
    """Return the status of a node.

    :param cluster_id: id of its cluster; 0 for none.
    :param held: lowest and highest sequence number that the node holds.
    """
    me, membership, leader = raft.me, raft.membership, raft.leader
    return NodeStatus(
        name=me.name,
        id=node_id(me.name),
        incarnation=f"{me.incarnation:016x}",
        cluster=cluster,
        cluster_id=format_cluster_id(cluster_id),
        mode=modes.mode.value,
        why=modes.reason,
        leader=None if leader is None else leader.name,
        term=raft.term,
        sequence=held[1],
        oldest=held[0],
        quorum=0 if membership is None else membership.quorum,
        members=tuple(
            MemberStatus(
                one.name,
                f"{one.incarnation:016x}",
                format_address(address),
                one == me or neighbours.is_alive(one, now),
                *((raft.term, held[1], 0) if one == me else _reported(neighbours.reported(one), held[1])),
            )
            for one, address in (() if membership is None else membership.members)
        ),
        neighbours=tuple(
            NeighbourStatus(
                one.info.name,
                one.info.id,
                format_address(one.info.host),
                one.mode.value,
                one.member is not None,
                one.member is not None and one.member in raft.members,
                max(0.0, now - one.heard_at),
            )
            for one in sorted(neighbours, key=lambda one: one.info.name)
        ),
        counters=counters,
    )


def _reported(progress: tuple[int, int] | None, sequence: int) -> tuple[int | None, int | None, int | None]:
    """Return term, sequence number and lag of a member behind ``sequence``."""
    if progress is None:
        return None, None, None
    return *progress, max(0, sequence - progress[1])
