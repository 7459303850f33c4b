"""State of a neighbour."""

from __future__ import annotations

from typing import Any


class Neighbour:
    """One neighbour.

    :ivar node: node id.
    :ivar boot: boot id.
    :ivar location: location that the neighbour announced.
    :ivar link: connection to the neighbour, ``None`` if the link is down.
    :ivar suspected_until: time until which the neighbour is asked last because it did not answer.
    :ivar htl_decrements: whether this link decrements the HTL of requests with the maximum HTL (first) and with an HTL
        of 1 (second). ``None`` until drawn.
    :ivar heard_at: time of the last message from the neighbour.
    :ivar lost_at: time at which the link was lost.
    """

    __slots__ = ("boot", "heard_at", "htl_decrements", "link", "location", "lost_at", "node", "suspected_until")

    def __init__(self, node: Any, boot: int, location: float, link: Any, now: float) -> None:
        self.node = node
        self.boot = boot
        self.location = location
        self.link: Any | None = link
        self.suspected_until = 0.0
        self.htl_decrements: tuple[bool, bool] | None = None
        self.heard_at = now
        self.lost_at = now

    def __repr__(self) -> str:
        return f"<Neighbour {self.node} at {self.location:.4f}>"
