"""Status of a node, for operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class NeighbourStatus(NamedTuple):
    """Status of one neighbour.

    :ivar linked: True if the link is up.
    :ivar silent: seconds since its last message.
    """

    node: Any
    location: float
    linked: bool
    silent: float | None


class StreamStatus(NamedTuple):
    """Status of one stream.

    :ivar location: location of the key.
    :ivar phase: ``settled``, ``searching`` or ``restarting``.
    :ivar parent: node id of the parent; ``None`` on the root, and while there is no parent.
    :ivar is_root: True if this node is the root.
    :ivar root: location of the root, ``None`` while unknown.
    :ivar subscribers: node ids of the subscribers.
    :ivar local: True if this node's application is subscribed.
    :ivar newest: highest packet number seen, ``None`` before the first.
    """

    key: bytes
    location: float
    phase: str
    parent: Any | None
    is_root: bool
    root: float | None
    subscribers: Sequence[Any]
    local: bool
    newest: int | None


class NodeStatus(NamedTuple):
    """Status of one node.

    :ivar requests: number of pending requests.
    :ivar counts: counters since the start.
    """

    node: Any
    boot: int
    location: float
    neighbours: Sequence[NeighbourStatus]
    streams: Sequence[StreamStatus]
    requests: int
    counts: Mapping[str, int]
