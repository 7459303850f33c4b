"""What a node tells its application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fyrehose_twisted.consensus.messages import Membership
from fyrehose_twisted.effects import Address
from fyrehose_twisted.parcels.wire.messages import Event, Mode, RefusalReason

SequenceSpans = tuple[tuple[int, int], ...]
"""Numbers in the order that a row of events was given: the first, and how many there are one after the other."""


class EventsDelivered(NamedTuple):
    """The next events of the order."""

    events: Sequence[Event]


class EventsSkipped(NamedTuple):
    """Events that can no longer be had: the node was away, and nobody holds them any more."""

    first: int
    last: int


class PublishConfirmed(NamedTuple):
    """Events that were published here are in the order, each where it was published."""

    token: Any
    """What was given with them."""
    numbers: SequenceSpans


class PublishUnconfirmed(NamedTuple):
    """Events that were published here have no number, as far as this node knows."""

    token: Any
    numbers: SequenceSpans
    """Those of the first of them, which do have one."""
    reason: RefusalReason
    text: str
    unknown: bool
    """Whether the others may still be given one."""


class ModeChanged(NamedTuple):
    """The node is at something else now (document 004, "Discovery phase")."""

    mode: Mode
    reason: str


class NeighbourAdded(NamedTuple):
    """The node knows somebody more."""

    name: str
    address: Address


class NeighbourRemoved(NamedTuple):
    """The node does not count on somebody any longer."""

    name: str
    address: Address
    reason: str


class MembershipChanged(NamedTuple):
    """Who votes has changed, by common consent."""

    membership: Membership


class OperatorWarning(NamedTuple):
    """Something that the operator should know."""

    text: str


NodeEvent = (
    EventsDelivered
    | EventsSkipped
    | PublishConfirmed
    | PublishUnconfirmed
    | ModeChanged
    | NeighbourAdded
    | NeighbourRemoved
    | MembershipChanged
    | OperatorWarning
)
