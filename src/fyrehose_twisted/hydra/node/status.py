"""How a node looks, for people and programs."""

from __future__ import annotations

from typing import NamedTuple

from fyrehose_twisted.hydra.events import Role


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
