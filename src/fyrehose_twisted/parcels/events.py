"""Events that a node reports to its application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fyrehose_twisted.consensus.messages import Membership
from fyrehose_twisted.effects import Address
from fyrehose_twisted.parcels.wire.messages import Event, Mode, RefusalReason

SequenceSpans = tuple[tuple[int, int], ...]
"""Sequence numbers of a batch of events: first number and count of each contiguous span."""


class EventsDelivered(NamedTuple):
    """The next events of the total order."""

    events: Sequence[Event]


class EventsSkipped(NamedTuple):
    """Events that this node missed and that no node holds any more."""

    first: int
    last: int


class PublishConfirmed(NamedTuple):
    """Events published here that have sequence numbers, in the order of publication."""

    token: Any
    """Token given with the events."""
    numbers: SequenceSpans


class PublishUnconfirmed(NamedTuple):
    """Events published here that have no sequence numbers, as far as this node knows."""

    token: Any
    numbers: SequenceSpans
    """Numbers of the leading events that do have one."""
    reason: RefusalReason
    text: str
    unknown: bool
    """Whether the other events may still get one."""
    last: int | None = None
    """Sequence number of the last event, if the reason is that another one was expected."""


class ModeChanged(NamedTuple):
    """Change of the node's mode (document 004, "Discovery phase")."""

    mode: Mode
    reason: str


class NeighbourAdded(NamedTuple):
    """A node that was added to the neighbours."""

    name: str
    address: Address


class NeighbourRemoved(NamedTuple):
    """A node that was removed from the neighbours."""

    name: str
    address: Address
    reason: str


class MembershipChanged(NamedTuple):
    """Committed change of the voters."""

    membership: Membership


class StateFailed(NamedTuple):
    """The application's state raised an exception, and gets no more events."""

    text: str


class Removed(NamedTuple):
    """The operator removed this node from the cluster. It leaves, and stops."""


class OperatorWarning(NamedTuple):
    """Warning for the operator."""

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
    | StateFailed
    | Removed
    | OperatorWarning
)
