"""What a leader does (document 002, "A leader has been established"; rule S5 of its reading): it pings, drops who does
not answer, and gives up when too few do.
"""

from __future__ import annotations

from math import inf

from fyrehose_twisted.hydra.events import Dropped, Role
from fyrehose_twisted.hydra.node.context import Standing
from fyrehose_twisted.hydra.node.leader.lease import Lease
from fyrehose_twisted.hydra.wire.messages import FOUNDING, Drop, Ping, Pong


class Leading:
    """One node while it leads.

    :ivar lease: how long it may write to IRC; ``None`` while it does not lead.
    :ivar lost: why it has to stop leading; whoever sees it makes it so.
    """

    def __init__(self, standing: Standing) -> None:
        self.lease: Lease | None = None
        self.lost: str | None = None
        self._standing = standing
        self._ping_at = inf
        self._check_at = inf
        self._rival_at = inf
        self._number = 0
        self._redropped: dict[int, float] = {}

    @property
    def until(self) -> float | None:
        """When the lease ends; ``None`` where there is none. In the unsafe mode it never does."""
        lease = self.lease
        if lease is None:
            return None
        return lease.until if self._standing.fixed else inf

    def may_write(self, now: float) -> bool:
        """Return whether lines may be handed to IRC."""
        until = self.until
        return until is not None and now < until

    def may_decide(self, now: float) -> bool:
        """Return whether it may drop nodes and let nodes in."""
        return self.lease is not None and (self._standing.founding or self.may_write(now))

    def begin(self, now: float) -> None:
        """Begin to lead."""
        self.lease, self.lost = Lease(self._standing.timers, now), None
        self._rival_at = inf
        self._redropped.clear()
        self.ping(now)

    def end(self) -> None:
        """Lead no more."""
        self.lease = self.lost = None
        self._ping_at = self._check_at = self._rival_at = inf

    def ping(self, now: float) -> None:
        """Send a PING."""
        standing, lease = self._standing, self.lease
        me = standing.id
        assert lease is not None, "it leads"
        assert me is not None, "it leads"
        self._number += 1
        mark = FOUNDING if standing.founding and standing.has_no_quorum else ""
        standing.val = f"{mark}{me:x}.{self._number}{standing.mark}"
        standing.heard = now
        lease.pinged(standing.val, now)
        standing.flood_ping(Ping(standing.vow.term, standing.val, me), now)
        # So the others learn its name, and how far it is.
        standing.flood(Pong(standing.val, me, 0, standing.config.tag), now)
        if standing.bind(me, now):
            self._answered(standing.val, me, now)
        self._ping_at = now + standing.timers.ping_every
        self._check_at = min(self._check_at, lease.next_deadline(now))

    def ponged(self, message: Pong, now: float) -> None:
        """A node answered."""
        standing = self._standing
        if message.id in standing.registry:
            self._answered(message.val, message.id, now)
        elif self.may_decide(now) and self._redropped.get(message.id, -inf) + standing.timers.ping_every <= now:
            # It did not hear that it was dropped.
            if len(self._redropped) > 256:
                self._redropped.clear()
            self._redropped[message.id] = now
            standing.flood(Drop(message.id, "not registered"), now)

    def rival(self, now: float) -> None:
        """Another leads in the same term (document 002, PING): there has to be an election."""
        if self._rival_at == inf:
            self._rival_at = now + self._standing.rng.uniform(0.0, 5.0 * self._standing.timers.scale)

    def tick(self, now: float) -> bool:
        """Do what is due; return whether it should nominate itself, because of a rival."""
        standing, lease = self._standing, self.lease
        if lease is None:
            return False
        # Whoever was just elected has to get a lease within the time that one lasts.
        ends = lease.began + standing.timers.lease if lease.until is None else lease.until
        if standing.fixed and not standing.founding and now >= ends:
            self.lost = "too few nodes answer"
            return False
        if self._rival_at <= now:
            return True
        if self._check_at <= now:
            self._drop_silent(now)
            self._check_at = lease.next_deadline(now)
        if self._ping_at <= now:
            self.ping(now)
        return False

    def next_deadline(self) -> float:
        """Return when :meth:`tick` has something to do."""
        lease, standing = self.lease, self._standing
        if lease is None or standing.role is not Role.LEADER:
            return inf
        due = min(self._ping_at, self._check_at, self._rival_at)
        if standing.fixed and not standing.founding:
            due = min(due, lease.began + standing.timers.lease if lease.until is None else lease.until)
        return due

    def forget(self, node: int) -> None:
        """A node was dropped."""
        if self.lease is not None:
            self.lease.forget(node)

    def _answered(self, val: str, node: int, now: float) -> None:
        standing, lease = self._standing, self.lease
        member = standing.registry.get(node)
        if lease is None or member is None:
            return
        lease.ponged(val, node, member.since, standing.quorum)
        if standing.founding and lease.holds(now):
            standing.founding = False

    def _drop_silent(self, now: float) -> None:
        standing, lease = self._standing, self.lease
        assert lease is not None, "it leads"
        silent = [
            member.id
            for member in standing.registry
            if member.id != standing.id and lease.is_overdue(member.id, member.since, now)
        ]
        if not silent:
            return
        if standing.founding:
            # Without a quorum nobody may be dropped; what was begun without one can be begun anew.
            self.lost = "who joined what it founded is silent"
            return
        if standing.fixed and not lease.holds(now):
            return
        for node in silent:
            standing.flood(Drop(node, "no PONG"), now)
            standing.counts["dropped"] += 1
            standing.ties.unbind(node)
            standing.registry.drop(node)
            self.forget(node)
            standing.out.tell(Dropped(node, "no PONG"))
