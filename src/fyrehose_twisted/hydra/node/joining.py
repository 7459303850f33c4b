"""A node that belongs to no network: it knocks, or founds one (document 002, "Nodes may reject any connection attempt";
rule S6 of its reading).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.node.context import Standing
from fyrehose_twisted.hydra.node.link_table import Tie
from fyrehose_twisted.hydra.wire.messages import FOUNDING, Hello, Knock, Meet, Ping, Welcome

_FOUND = 2.0
"""Seconds (unscaled) for which a node that may begin a network waits for one to show."""
_REFOUND = 15.0, 45.0
"""Seconds (unscaled) without a network after which one that was a node founds one anew: then no node has it."""
_ANSWER = 1.0
"""Seconds (unscaled) that a KNOCK may go unanswered before another is tried."""


@dataclass(slots=True)
class _Knocking:
    tie: Tie
    ind: int
    since: float
    looked: bool = False
    """Whether another link was looked for."""


class Outsider:
    """A node that looks for its network."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._ready = standing.quiet_until
        self._next_round = self._ready
        self._found_at = self._when_to_found()
        self._knocking: _Knocking | None = None
        self._asked: set[Tie] = set()

    def begin(self, now: float, wait: float) -> None:
        """The node belongs to no network any more; it does nothing for ``wait`` seconds."""
        standing = self._standing
        self._ready = max(now + wait, standing.quiet_until)
        self._next_round = self._ready
        self._found_at = self._when_to_found()
        self._knocking = None
        self._asked.clear()

    @property
    def knocking(self) -> int | None:
        """With which id it knocks now."""
        return None if self._knocking is None else self._knocking.ind

    def ended(self, tie: Tie, now: float) -> None:
        """A link is closed."""
        self._asked.discard(tie)
        if self._knocking is not None and self._knocking.tie is tie:
            self._knocking = None

    def pinged(self, message: Ping, tie: Tie, now: float) -> None:
        """A PING came: there is a network behind this link."""
        if tie.pinged == now or not tie.ordinary:
            return
        tie.pinged, tie.leader, tie.quorate = now, message.id, not message.val.startswith(FOUNDING)
        if self._found_at < inf:
            self._found_at = max(self._found_at, now + 2 * self._standing.timers.max_ping)
        if self._knocking is not None:
            self._knock_elsewhere(now)
        elif now >= self._ready and self._may_knock(tie, now):
            self._knock(tie, now)

    def meet_received(self, message: Meet, tie: Tie) -> None:
        """Somebody agrees; the first is who mediates."""
        knocking = self._knocking
        if knocking is not None and knocking.tie is tie and knocking.ind == message.ind and tie.mediator is None:
            tie.mediator = message.id

    def welcome_received(self, message: Welcome, tie: Tie) -> bool:
        """It may be a node now; return whether it is."""
        knocking = self._knocking
        if knocking is None or knocking.tie is not tie or knocking.ind != message.ind or tie.mediator is None:
            return False
        self._knocking = None
        return True

    def hello_received(self, message: Hello, tie: Tie, now: float) -> None:
        """Somebody has this id already."""
        knocking = self._knocking
        if knocking is not None and knocking.tie is tie and knocking.ind == message.ind:
            self._standing.counts["id_collisions"] += 1
            self._knocking = None
            self._asked.discard(tie)
            self._next_round = now

    def tick(self, now: float) -> bool:
        """Do what is due; return whether it should found a network."""
        standing = self._standing
        if standing.role is not Role.OUTSIDER or now < self._ready:
            return False
        if self._knocking is not None and self._knocking.since + standing.timers.max_meet <= now:
            standing.counts["knocks_in_vain"] += 1
            self._knocking = None
        # A node that is bound to a leader which may live may join that leader, but not lead.
        if now >= standing.vow.until and (self._found_at <= now or self._is_alone()):
            return True
        if self._knocking is not None:
            self._knock_elsewhere(now)
            return False
        ties = [tie for tie in standing.ties if self._may_knock(tie, now)]
        left = [tie for tie in ties if tie not in self._asked]
        if left:
            self._knock(max(left, key=_promise), now)
        elif self._asked and self._next_round <= now:
            self._asked.clear()
            if ties:
                self._knock(max(ties, key=_promise), now)
        return False

    def next_deadline(self) -> float:
        """Return when :meth:`tick` has something to do."""
        standing = self._standing
        if standing.role is not Role.OUTSIDER:
            return inf
        due = standing.vow.until if self._is_alone() else max(self._found_at, standing.vow.until)
        knocking = self._knocking
        if knocking is not None:
            patience = standing.timers.max_meet if knocking.looked else _ANSWER * standing.timers.scale
            due = min(due, knocking.since + patience)
        else:
            ties = [tie for tie in standing.ties if tie.ordinary]
            left = [tie for tie in ties if tie not in self._asked]
            if any(map(self._is_promised, left)):
                due = -inf
            elif left:
                due = min(due, standing.vow.until)
            elif ties:
                due = min(due, self._next_round)
        return max(due, self._ready)

    def _is_alone(self) -> bool:
        """Return whether it may begin a network at once: there is no link to one that could be asked."""
        standing = self._standing
        return standing.config.found and standing.ties.all_tried and not any(tie.ordinary for tie in standing.ties)

    def _is_promised(self, tie: Tie) -> bool:
        """Return whether the network behind a link is led by the node that this one helps to lead."""
        return tie.leader is not None and tie.leader == self._standing.vow.promised

    def _may_knock(self, tie: Tie, now: float) -> bool:
        """Return whether this node could answer the PINGs of the network behind a link: no other promise binds it."""
        return tie.ordinary and (now >= self._standing.vow.until or self._is_promised(tie))

    def _knock_elsewhere(self, now: float) -> None:
        """Knock where a network shows, if this KNOCK is not answered: there may be none behind that link, or the other
        end may have come to one later than the KNOCK."""
        knocking = self._knocking
        if knocking is None or now < knocking.since + _ANSWER * self._standing.timers.scale:
            return
        knocking.looked = True
        if knocking.tie.mediator is None:
            ties = [tie for tie in self._standing.ties if self._may_knock(tie, now)]
            shown = [tie for tie in ties if tie.pinged > (knocking.since if tie in self._asked else -inf)]
            if shown:
                self._knock(max(shown, key=_promise), now)

    def _when_to_found(self) -> float:
        standing = self._standing
        if standing.config.found:
            return self._ready + _FOUND * standing.timers.scale
        if standing.was_member:
            return self._ready + standing.rng.uniform(*_REFOUND) * standing.timers.scale
        return inf

    def _knock(self, tie: Tie, now: float) -> None:
        standing = self._standing
        ind = standing.new_id()
        self._asked.add(tie)
        tie.knock, tie.mediator = ind, None
        self._knocking = _Knocking(tie, ind, now)
        self._next_round = now + standing.timers.max_meet * standing.rng.uniform(1.0, 2.0)
        standing.ties.write(tie, Knock(ind, standing.config.tag), now)


def _promise(tie: Tie) -> tuple[bool, float, bool, bool]:
    """Return how likely it is that there is a network behind a link; more is likelier."""
    return tie.quorate, tie.pinged, tie.knocked is not None, tie.target is not None
