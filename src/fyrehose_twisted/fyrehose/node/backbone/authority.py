"""Right of one member of a group of backbones to number messages."""

from __future__ import annotations

from math import inf

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.wire.member_messages import Seam
from fyrehose_twisted.fyrehose.wire.packets import Holding

REPORTED_SEAMS = 2
"""Number of seams around which the progress of journals is reported, which is enough for most publishers that wait."""


class NumberingAuthority:
    """What the group has granted to one member. A backbone without a group needs none.

    :ivar term: current term.
    :ivar leader: address at which clients reach the leader; ``None`` if none is known.
    :ivar members: addresses at which clients reach the members.
    :ivar bound: highest number that this member may give.
    :ivar lease_until: time before which no other member numbers messages.
    :ivar kept: highest number that publishers may be told to be durable.
    :ivar given: highest number that the group knows to have been given.
    :ivar seams: latest ranges of numbers that were never given, or that nobody holds.
    """

    def __init__(self) -> None:
        self.term = 0
        self.leader: Address | None = None
        self.members: tuple[Address, ...] = ()
        self.bound = 0
        self.lease_until = -inf
        self.kept = 0
        self.given = 0
        self.seams: tuple[Seam, ...] = ()

    def room(self, last: int, now: float) -> int:
        """Return how many numbers after ``last`` this member may give at ``now``."""
        return max(0, self.bound - last) if now < self.lease_until else 0

    def clip(self, held_up_to: int) -> int:
        """Return the highest number up to ``held_up_to`` that is in no seam."""
        for seam in reversed(self.seams):
            if seam.held_up_to < held_up_to < seam.first:
                held_up_to = seam.held_up_to
        return held_up_to

    def reported(self, holding: Holding) -> tuple[Holding, ...]:
        """Return what publishers may be told of a journal's progress: nothing in a seam, above :attr:`kept`, or older
        than the reported seams.

        A number in a seam may have been given to a message that is gone, although the journal has no loss there.
        """
        since, durable, parts = holding.since, min(holding.durable, self.kept), []
        for seam in self.seams[:-REPORTED_SEAMS]:
            since = max(since, seam.first)
        for seam in self.seams[-REPORTED_SEAMS:]:
            if since <= seam.held_up_to:
                parts.append(Holding(since, min(durable, seam.held_up_to)))
            since = max(since, seam.first)
        parts.append(Holding(since, durable))
        return tuple(part for part in parts if part.since <= part.durable) or (Holding(since, since - 1),)

    def revoke(self) -> None:
        """Give no more numbers."""
        self.bound, self.lease_until = 0, -inf
