"""Configuration of a member of a group of backbones."""

from __future__ import annotations

from dataclasses import dataclass

from fyrehose_twisted.consensus.timers import RaftTimers
from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.node.backbone.sequencer import MEMBER_RESERVE
from fyrehose_twisted.fyrehose.wire.member_messages import MemberData

MAX_MEMBERS = 7
"""Maximum number of members of a group, which a LEADER has room for."""

BACKBONE_TIMERS = RaftTimers(
    heartbeat=0.2,
    election=(0.9, 1.3),
    fast_election=(0.005, 0.05),
    retry=(0.05, 0.2),
    check_quorum=0.9,
    stickiness=0.9,
    commit_notice=0.0005,
)
"""Timers of a group of backbones. They are shorter than those of parcels, because subscribers wait for an election."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """Configuration of one member.

    :ivar name: name of this member, unique in its group.
    :ivar stream: name of the stream, which all members have in common.
    :ivar peers: addresses at which the other members accept connections.
    :ivar client_address: address at which clients reach this member.
    :ivar peer_address: address at which the other members reach it.
    :ivar bootstrap: whether this member may bootstrap the group, once it is connected to all peers and none of them has
        been a member.
    :ivar witness: whether this member only votes, and leads only to hand over to another one.
    :ivar timers: timers of elections.
    :ivar lease: seconds for which the promise of a majority lets the leader number messages. It must be shorter than
        ``timers.stickiness``, by more than clock rates may differ.
    :ivar round_interval: seconds between two requests for that promise.
    :ivar reserve: least count of numbers by which the bound of a leader is kept ahead.
    """

    name: str
    stream: str
    peers: tuple[Address, ...]
    client_address: Address
    peer_address: Address
    bootstrap: bool = False
    witness: bool = False
    timers: RaftTimers = BACKBONE_TIMERS
    lease: float = 0.8
    round_interval: float = 0.2
    reserve: int = MEMBER_RESERVE

    def __post_init__(self) -> None:
        if not 0 < len(self.name.encode()) <= 64:
            raise ConfigurationError(f"the member name {self.name!r} must have 1 to 64 bytes")
        if not 0 < len(self.peers) < MAX_MEMBERS:
            raise ConfigurationError(f"{len(self.peers)} peers given; a group has 2 to {MAX_MEMBERS} members")
        if not 0 < self.lease < self.timers.stickiness:
            raise ConfigurationError(
                f"a lease of {self.lease:g} s must be shorter than the {self.timers.stickiness:g} s for which members"
                " elect no other leader"
            )

    @property
    def data(self) -> MemberData:
        """What the membership records of this member."""
        return MemberData(self.client_address, self.peer_address, self.witness)
