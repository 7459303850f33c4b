"""State of a node that must survive a restart (rules S2 and S5 of the reading of document 002)."""

from __future__ import annotations

from typing import NamedTuple


class DurableState(NamedTuple):
    """Votes and promises of a node. A change must be durable before any later message is sent.

    :ivar term: highest term in which the node followed a leader, or led.
    :ivar voted: highest term in which the node pledged, or nominated itself.
    :ivar nominee: nominee that it pledged to in that term.
    :ivar voter: id that the node had when it pledged.
    :ivar promised: leader that it sent its last PONG, 0 for none.
    :ivar leader: leader that it followed in :attr:`term`, 0 for none.
    :ivar until: end of the promise to :attr:`promised`, on the node's clock.
    """

    term: int = 0
    voted: int = 0
    nominee: int = 0
    voter: int = 0
    promised: int = 0
    leader: int = 0
    until: float = 0.0
