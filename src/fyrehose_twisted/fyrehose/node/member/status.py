"""Status of a member, for operators."""

from __future__ import annotations

from dataclasses import dataclass

from fyrehose_twisted.effects import Address


@dataclass(frozen=True, slots=True)
class OtherMember:
    """A member of the group.

    :ivar connected: whether this member is connected to it; true for itself.
    :ivar votes: whether it belongs to the membership that a majority has agreed on.
    """

    name: str
    client_address: Address
    peer_address: Address
    witness: bool
    connected: bool
    votes: bool


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """Status of one member.

    :ivar state: what its backbone does, such as ``standby``.
    :ivar lease_left: seconds for which it may number messages without a new promise of a majority; 0 if it does not
        lead.
    :ivar last: last number that it knows of.
    :ivar bound: highest number that the leader may give.
    :ivar kept: highest number that publishers were told to be durable.
    :ivar quorum: number of members that have to agree; 0 before there is a group.
    :ivar witness: whether it only votes.
    """

    name: str
    stream: str
    state: str
    term: int
    leader: str | None
    leads: bool
    lease_left: float
    last: int
    bound: int
    kept: int
    quorum: int
    witness: bool
    members: tuple[OtherMember, ...]
    counters: dict[str, int]
