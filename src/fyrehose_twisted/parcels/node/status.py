"""How a cluster looks from one of its nodes: for people, pages and metrics."""

from __future__ import annotations

from typing import NamedTuple


def format_cluster_id(cluster_id: int) -> str:
    """Return the id of a founding as clients see it: 16 hexadecimal digits, or nothing for 0."""
    return f"{cluster_id:016x}" if cluster_id else ""


class MemberStatus(NamedTuple):
    """Somebody who votes."""

    name: str
    incarnation: str
    """Hexadecimal, 16 digits."""
    address: str
    """``HOST:PORT``."""
    alive: bool
    """Whether it was heard of in the last 5 s."""


class NeighbourStatus(NamedTuple):
    """Somebody whom the node knows."""

    name: str
    id: int
    address: str
    mode: str
    """As the node was last told."""
    ours: bool
    """Whether it speaks our own parcels; otherwise it is a neighbour without a vote."""
    votes: bool
    silent: float
    """Seconds since it was heard of."""


class NodeStatus(NamedTuple):
    """What a node knows."""

    name: str
    id: int
    incarnation: str
    """Hexadecimal, 16 digits."""
    cluster: str
    founding: str
    """Id of the cluster's founding, 16 hexadecimal digits; empty before the node is in a cluster."""
    mode: str
    """One of the modes of document 004, as the reference names them: ``Wrk`` for one that can order events."""
    why: str
    """Why it is in that mode."""
    leader: str | None
    """Name of the node that orders, ``None`` if it knows of none."""
    term: int
    sequence: int
    """Number of the last event that the node handed on."""
    oldest: int
    """The lowest number that it holds."""
    quorum: int
    """How many members have to agree; 0 before it knows the members."""
    members: tuple[MemberStatus, ...]
    neighbours: tuple[NeighbourStatus, ...]
    counters: dict[str, int]
    """What it counted since it started."""
