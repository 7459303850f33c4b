"""Messages between the members of a group of backbones, which docs/protocol/fyrehose describes."""

from __future__ import annotations

from typing import NamedTuple

from fyrehose_twisted.consensus.messages import MemberId, RaftMessage
from fyrehose_twisted.effects import Address


class MemberData(NamedTuple):
    """What the membership of a group records of each member."""

    client_address: Address
    """Address at which it serves clients."""
    peer_address: Address
    """Address at which it accepts the other members' connections."""
    witness: bool
    """Whether it only votes."""


class Seam(NamedTuple):
    """Range of numbers between two terms that were never given, or that nobody holds: those between both fields."""

    held_up_to: int
    first: int


class NumberBounds(NamedTuple):
    """Content of a log entry: what the leader may do, once a majority has the entry. The latest entry counts."""

    bound: int
    """Highest number that the leader may give. Within a term it falls only if the leader gives no number after it."""
    kept: int
    """Highest number that a publisher may have been told to be durable; the next leader must not give it up."""
    given: int = 0
    """Highest number known to have been given, as of this entry."""
    exact: bool = False
    """Whether :attr:`bound` was given, so that the next term begins without a seam."""
    seams: tuple[Seam, ...] = ()
    """The latest seams, which every leader must tell alike."""


class MemberHello(NamedTuple):
    """First message on a connection, in both directions."""

    stream: str
    member: MemberId
    data: MemberData
    bootstrap: bool
    """Whether it may bootstrap the group."""
    has_state: bool
    """Whether it has been a member of the group."""
    stream_bound: int
    """Highest number that it may have given before there was a group."""
    process: int
    """Random number of the process. The same member in another process has died in between."""


class LeaseRound(NamedTuple):
    """Request of the leader for a promise to elect no other leader for a while."""

    term: int
    number: int
    last: int
    """Last number that the leader has given."""


class LeaseReply(NamedTuple):
    """The promise that :class:`LeaseRound` asks for."""

    term: int
    number: int


class Ping(NamedTuple):
    """Question whether the other end of a connection is alive."""


class Pong(NamedTuple):
    """Answer to a :class:`Ping`."""


MemberMessage = MemberHello | RaftMessage | LeaseRound | LeaseReply | Ping | Pong
