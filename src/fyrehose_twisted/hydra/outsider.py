"""A node that belongs to no network: it knocks, or founds one (document 002, "Nodes may reject any connection attempt";
rule S6 of its reading).
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.messages import Hello, Knock, Meet, Welcome
from fyrehose_twisted.hydra.standing import Standing
from fyrehose_twisted.hydra.ties import Tie

_REFOUND = 15.0, 45.0
"""Seconds (unscaled) without a network after which somebody who was a node founds one anew: then nobody has it."""


class _Knocking(NamedTuple):
    tie: Tie
    ind: int
    until: float


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
        """The node belongs to no network any more; it does nothing for ``wait`` seconds, nor while it is bound by a
        promise."""
        standing = self._standing
        self._ready = max(now + wait, standing.vow.until, standing.quiet_until)
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

    def pinged(self, tie: Tie, now: float) -> None:
        """A PING came: there is a network behind this link."""
        if tie.pinged == now or not tie.ordinary:
            return
        tie.pinged = now
        if self._found_at < inf:
            self._found_at = max(self._found_at, now + 2 * self._standing.timers.max_ping)
        if now >= self._ready and self._knocking is None:
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
        if self._knocking is not None and self._knocking.until <= now:
            standing.counts["knocks_in_vain"] += 1
            self._knocking = None
        ties = [tie for tie in standing.ties if tie.ordinary]
        is_due = self._found_at <= now or (standing.config.found and not ties and standing.ties.all_tried)
        # Whoever is bound to a leader that may live may join others, but not lead.
        if is_due and now >= standing.vow.until:
            return True
        if self._knocking is not None:
            return False
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
        due = max(self._found_at, standing.vow.until)
        if self._knocking is not None:
            due = min(due, self._knocking.until)
        else:
            ties = [tie for tie in standing.ties if tie.ordinary]
            if any(tie not in self._asked for tie in ties):
                due = -inf
            elif ties:
                due = min(due, self._next_round)
        if standing.config.found and standing.ties.all_tried and not any(tie.ordinary for tie in standing.ties):
            due = min(due, standing.vow.until)
        return max(due, self._ready)

    def _when_to_found(self) -> float:
        standing = self._standing
        if standing.config.found:
            return self._ready + standing.timers.max_meet
        if standing.was_member:
            return self._ready + standing.rng.uniform(*_REFOUND) * standing.timers.scale
        return inf

    def _knock(self, tie: Tie, now: float) -> None:
        standing, timers = self._standing, self._standing.timers
        ind = standing.new_id()
        self._asked.add(tie)
        tie.knock, tie.mediator = ind, None
        self._knocking = _Knocking(tie, ind, now + timers.max_meet)
        self._next_round = now + timers.max_meet * standing.rng.uniform(1.0, 2.0)
        standing.ties.write(tie, Knock(ind, standing.config.tag), now)


def _promise(tie: Tie) -> tuple[float, bool, bool]:
    """Return how likely it is that there is a network behind a link; more is likelier."""
    return tie.pinged, tie.knocked is not None, tie.target is not None
