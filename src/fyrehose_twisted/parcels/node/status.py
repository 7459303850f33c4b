"""Status of a node and of the cluster as it sees it, for people, web pages and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fyrehose_twisted._exports import renamed_attribute


def format_cluster_id(cluster_id: int) -> str:
    """Return a cluster id as clients see it: 16 hexadecimal digits, or an empty string for 0."""
    return f"{cluster_id:016x}" if cluster_id else ""


class MemberStatus(NamedTuple):
    """Status of a voter."""

    name: str
    incarnation: str
    """Hexadecimal, 16 digits."""
    address: str
    """``HOST:PORT``."""
    alive: bool
    """Whether it was heard in the last 5 s."""
    term: int | None
    """Term that it reported, up to a second ago; ``None`` before the first report."""
    sequence: int | None
    """Last event that it reported to have."""
    lag: int | None
    """Events that this node has and it has not reported."""


class NeighbourStatus(NamedTuple):
    """Status of a known node."""

    name: str
    id: int
    address: str
    mode: str
    """Mode last reported."""
    ours: bool
    """Whether it supports the parcels of this implementation; otherwise it cannot vote."""
    votes: bool
    silent: float
    """Seconds since it was heard."""


class NodeStatus(NamedTuple):
    """Status of one node."""

    name: str
    id: int
    incarnation: str
    """Hexadecimal, 16 digits."""
    cluster: str
    cluster_id: str
    """Cluster id, 16 hexadecimal digits; empty before the node is in a cluster."""
    mode: str
    """Mode of document 004, as the reference implementation names it. A node in ``Wrk`` can order events."""
    why: str
    """Reason for the mode."""
    leader: str | None
    """Name of the leader, ``None`` if unknown."""
    term: int
    sequence: int
    """Sequence number of the last delivered event."""
    oldest: int
    """Lowest sequence number that the node holds."""
    quorum: int
    """Members that have to agree; 0 before the membership is known."""
    members: tuple[MemberStatus, ...]
    neighbours: tuple[NeighbourStatus, ...]
    counters: dict[str, int]
    """Counters since the node started."""


if not TYPE_CHECKING:
    NodeStatus.founding = renamed_attribute("founding", "cluster_id")
