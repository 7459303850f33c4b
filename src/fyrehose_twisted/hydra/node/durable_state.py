"""What a node must not forget when it starts again (rules S2 and S5 of the reading of document 002)."""

from __future__ import annotations

from typing import NamedTuple


class DurableState(NamedTuple):
    """What a node is bound by. Whatever is sent after a change of it depends on that being durable.

    :ivar term: the highest term in which it followed a leader, or led.
    :ivar voted: the highest term in which it pledged, or nominated itself.
    :ivar nominee: whom it is pledged to in that term.
    :ivar voter: with which id of its own.
    :ivar promised: whom it sent its last PONG, 0 for nobody.
    :ivar leader: whom it followed in :attr:`term`, 0 for nobody.
    :ivar until: until when it helps nobody else to lead, by the node's clock.
    """

    term: int = 0
    voted: int = 0
    nominee: int = 0
    voter: int = 0
    promised: int = 0
    leader: int = 0
    until: float = 0.0
