"""How a node looks, for operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class NeighbourStatus(NamedTuple):
    """One neighbour.

    :ivar silent: seconds since it said something.
    """

    node: Any
    location: float
    linked: bool
    silent: float | None


class StreamStatus(NamedTuple):
    """One stream.

    :ivar phase: ``settled``, ``searching`` or ``restarting``.
    :ivar parent: id of the parent; ``None`` for a root, and where there is none yet.
    :ivar is_root: whether this node is the root.
    :ivar root: where the root is, ``None`` if that is not known yet.
    :ivar subscribers: ids of the neighbours that are subscribers.
    :ivar local: whether this node's application is subscribed.
    :ivar newest: the highest packet number that is known, ``None`` if none is.
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
    """One node.

    :ivar requests: requests that it waits for.
    :ivar counts: what was counted since the start.
    """

    node: Any
    boot: int
    location: float
    neighbours: Sequence[NeighbourStatus]
    streams: Sequence[StreamStatus]
    requests: int
    counts: Mapping[str, int]
