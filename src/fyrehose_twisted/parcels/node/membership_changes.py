"""What the leader does about who votes: one change at a time (document 004, "Work phase"; Raft, section 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fyrehose_twisted.effects import Address
from fyrehose_twisted.parcels.node.discovery import Discovery
from fyrehose_twisted.parcels.node.neighbours import Neighbour
from fyrehose_twisted.parcels.node.raft.member import Order
from fyrehose_twisted.parcels.wire.messages import SILENCE, Member, Mode, View

MAX_MEMBERS = 31
"""How many can vote; others follow without a vote."""


class Membership:
    """What the leader does about who votes.

    :param order: this node's part in the order.
    :param discovery: whom it knows.
    :param sequence: returns the number of the last event.
    :ivar due: whether something happened that may matter.
    """

    def __init__(self, order: Order, discovery: Discovery, sequence: Callable[[], int]) -> None:
        self.due = False
        self._sequence = sequence
        self._wanted: dict[Member, int] = {}
        self._order = order
        self._discovery = discovery
        self._leaving: set[Member] = set()
        self._suspects: set[Member] = set()

    def __len__(self) -> int:
        return len(self._leaving | self._suspects)

    def came(self, member: Member) -> None:
        """Requests can be sent to somebody."""
        self._leaving.discard(member)
        self._suspects.discard(member)
        self.due = True

    def leaves(self, member: Member) -> None:
        """Somebody said that it stops."""
        self._leaving.add(member)
        self.due = True

    def suspected(self, member: Member) -> None:
        """Somebody is gone, as far as anybody can know."""
        if member in self._order.members:
            self._suspects.add(member)
        else:
            self._order.replication.progress.pop(member, None)
        self.due = True

    def sweep(self) -> None:
        """Forget those who do not matter any more."""
        self._leaving &= self._order.members
        self._suspects &= self._order.members
        for member in [one for one in self._wanted if one not in self._order.replication.progress]:
            del self._wanted[member]
        self.due = True

    def review(self, now: float) -> bool:
        """See whether somebody is to vote, or to vote no more; returns whether that is on its way."""
        self.due = False
        order, discovery = self._order, self._discovery
        if not order.leads:
            return False
        joining = [
            one
            for one in discovery.neighbours
            if one.member is not None
            and one.member not in order.members
            and one.member in discovery.lines
            and one.alive(now)
            and one.mode is not Mode.SHUTDOWN
        ]
        order.replication.lead((one.member for one in joining if one.member is not None), now)
        ready = [(one.member, one.info.host) for one in joining if one.member is not None and self._has_events(one)]
        view = next_view(order, ready, lambda member: self.counts(member, now), self._leaving)
        if view is None:
            return False
        order.change_view(view)
        return True

    def _has_events(self, joining: Neighbour) -> bool:
        """Whether somebody who is to vote has the events that there were when it was up to date.

        What a quorum of the old view has, one of the new view has to have, too (P3); and state brings no events.
        """
        member = joining.member
        progress = None if member is None else self._order.replication.progress.get(member)
        if member is None or progress is None or progress.match < self._order.commit:
            return member in self._wanted and joining.sequence >= self._wanted[member]
        return joining.sequence >= self._wanted.setdefault(member, self._sequence())

    def counts(self, member: Member, now: float) -> bool:
        """Whether a member is to be counted on."""
        if member == self._order.me:
            return True
        if member in self._suspects:
            return False
        progress = self._order.replication.progress.get(member)
        return self._discovery.alive(member, now) or (progress is not None and now - progress.heard <= SILENCE)


def next_view(
    order: Order,
    joining: Iterable[tuple[Member, Address]],
    alive: Callable[[Member], bool],
    leaving: Iterable[Member],
) -> View | None:
    """Return the view that a leader wants next, ``None`` if it is content or cannot have it.

    :param joining: who wants to vote and does not yet, and where it listens.
    :param alive: whether somebody counts.
    :param leaving: who said that it stops.
    """
    view = order.view
    if view is None or not order.settled or order.changing:
        return None
    members = view.members
    in_touch = sum(alive(one) for one, _ in members)
    if in_touch < view.quorum:
        return None
    joining = sorted(joining)
    back = {member.name: member for member, _ in joining}
    gone = set(leaving)
    for one, _ in members:
        if one == order.me:
            continue
        # Who is back without memory is somebody else; its former life cannot come back.
        replaced = one.name in back and back[one.name] != one
        if one in gone or replaced or not alive(one):
            return View(tuple(pair for pair in members if pair[0] != one))
    if len(members) < MAX_MEMBERS:
        for member, address in joining:
            progress = order.replication.progress.get(member)
            if progress is not None and progress.match >= order.commit and not progress.probing:
                return View(tuple(sorted((*members, (member, address)))))
    return None
