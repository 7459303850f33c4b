"""A node at the other end of a link."""

from __future__ import annotations

from typing import Any


class Neighbour:
    """What is known of one.

    :ivar node: its id.
    :ivar boot: which life of it this is.
    :ivar location: where it says that it is.
    :ivar link: the connection to it, ``None`` if there is none.
    :ivar suspected_until: until when it is asked last, because it did not answer.
    :ivar htl_decrements: whether this link takes a hop off requests that have all theirs (first), and off those that
        have one left (second); ``None`` until that is drawn.
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
