"""What a node counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """What happened since a node started.

    :ivar published: events that this node, or who asked it, wanted ordered.
    :ivar delivered: events handed on.
    :ivar repeats: events that were in the order already.
    :ivar skipped: events that could not be had any more.
    :ivar refused: events that were not taken for want of a quorum.
    :ivar elections: how often this node asked to be the one that orders.
    :ivar states_taken: how often it took the state of the order from another node.
    :ivar fetched: events that it fetched from others because it had been away.
    """

    published: int = 0
    delivered: int = 0
    repeats: int = 0
    skipped: int = 0
    refused: int = 0
    elections: int = 0
    states_taken: int = 0
    fetched: int = 0
