"""What a node tells its application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fyrehose_twisted.effects import Address
from fyrehose_twisted.parcels.wire.messages import Event, Mode, Refusal, View

Numbers = tuple[tuple[int, int], ...]
"""Numbers in the order that a row of events was given: the first, and how many there are one after the other."""


class Delivered(NamedTuple):
    """The next events of the order."""

    events: Sequence[Event]


class Skipped(NamedTuple):
    """Events that can no longer be had: the node was away, and nobody holds them any more."""

    first: int
    last: int


class Answered(NamedTuple):
    """Events that were published here are in the order, each where it was published."""

    token: Any
    """What was given with them."""
    numbers: Numbers


class NotTaken(NamedTuple):
    """Events that were published here have no number, as far as this node knows."""

    token: Any
    numbers: Numbers
    """Those of the first of them, which do have one."""
    why: Refusal
    text: str
    unknown: bool
    """Whether the others may still be given one."""


class ModeChanged(NamedTuple):
    """The node is at something else now (document 004, "Discovery phase")."""

    mode: Mode
    why: str


class NeighbourAdded(NamedTuple):
    """The node knows somebody more."""

    name: str
    address: Address


class NeighbourRemoved(NamedTuple):
    """The node does not count on somebody any longer."""

    name: str
    address: Address
    why: str


class ViewChanged(NamedTuple):
    """Who votes has changed, by common consent."""

    view: View


class Warned(NamedTuple):
    """Something that the operator should know."""

    text: str


Told = (
    Delivered | Skipped | Answered | NotTaken | ModeChanged | NeighbourAdded | NeighbourRemoved | ViewChanged | Warned
)
