"""What a leader does (document 002, "A leader has been established"; rule S5 of its reading): it pings, drops who does
not answer, and gives up when too few do.
"""

from __future__ import annotations

from math import inf

from fyrehose_twisted.hydra.events import NodeDropped, Role
from fyrehose_twisted.hydra.node.context import NodeContext
from fyrehose_twisted.hydra.node.leader.lease import Lease
from fyrehose_twisted.hydra.wire.messages import NO_QUORUM_PREFIX, Drop, Ping, Pong


class Leadership:
    """One node while it leads.

    :ivar lease: how long it may write to IRC; ``None`` while it does not lead.
    :ivar loss_reason: why it has to stop leading; whoever sees it makes it so.
    """

    def __init__(self, context: NodeContext) -> None:
        self.lease: Lease | None = None
        self.loss_reason: str | None = None
        self._context = context
        self._ping_at = inf
        self._check_at = inf
        self._rival_at = inf
        self._number = 0
        self._redropped: dict[int, float] = {}

    @property
    def lease_until(self) -> float | None:
        """When the lease ends; ``None`` where there is none. In the unsafe mode it never does."""
        lease = self.lease
        if lease is None:
            return None
        return lease.until if self._context.has_fixed_quorum else inf

    def may_write(self, now: float) -> bool:
        """Return whether lines may be handed to IRC."""
        until = self.lease_until
        return until is not None and now < until

    def may_decide(self, now: float) -> bool:
        """Return whether it may drop nodes and let nodes in."""
        return self.lease is not None and (self._context.bootstrapping or self.may_write(now))

    def begin(self, now: float) -> None:
        """Begin to lead."""
        self.lease, self.loss_reason = Lease(self._context.timers, now), None
        self._rival_at = inf
        self._redropped.clear()
        self.ping(now)

    def end(self) -> None:
        """Lead no more."""
        self.lease = self.loss_reason = None
        self._ping_at = self._check_at = self._rival_at = inf

    def ping(self, now: float) -> None:
        """Send a PING."""
        context, lease = self._context, self.lease
        me = context.id
        assert lease is not None, "it leads"
        assert me is not None, "it leads"
        self._number += 1
        mark = NO_QUORUM_PREFIX if context.bootstrapping and context.has_no_quorum else ""
        context.val = f"{mark}{me:x}.{self._number}{context.val_suffix}"
        context.last_ping_at = now
        lease.ping_sent(context.val, now)
        context.flood_ping(Ping(context.durable.term, context.val, me), now)
        # So the others learn its name, and how far it is.
        context.flood(Pong(context.val, me, 0, context.config.tag), now)
        if context.promise_to_leader(me, now):
            self._answered(context.val, me, now)
        self._ping_at = now + context.timers.ping_interval
        self._check_at = min(self._check_at, lease.next_deadline(now))

    def ponged(self, message: Pong, now: float) -> None:
        """A node answered."""
        context = self._context
        if message.id in context.registry:
            self._answered(message.val, message.id, now)
        elif self.may_decide(now) and self._redropped.get(message.id, -inf) + context.timers.ping_interval <= now:
            # It did not hear that it was dropped.
            if len(self._redropped) > 256:
                self._redropped.clear()
            self._redropped[message.id] = now
            context.flood(Drop(message.id, "not registered"), now)

    def rival_seen(self, now: float) -> None:
        """Another leads in the same term (document 002, PING): there has to be an election."""
        if self._rival_at == inf:
            self._rival_at = now + self._context.rng.uniform(0.0, 5.0 * self._context.timers.scale)

    def tick(self, now: float) -> bool:
        """Do what is due; return whether it should nominate itself, because of a rival."""
        context, lease = self._context, self.lease
        if lease is None:
            return False
        # Whoever was just elected has to get a lease within the time that one lasts.
        ends = lease.began_at + context.timers.lease if lease.until is None else lease.until
        if context.has_fixed_quorum and not context.bootstrapping and now >= ends:
            self.loss_reason = "too few nodes answer"
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
        lease, context = self.lease, self._context
        if lease is None or context.role is not Role.LEADER:
            return inf
        due = min(self._ping_at, self._check_at, self._rival_at)
        if context.has_fixed_quorum and not context.bootstrapping:
            due = min(due, lease.began_at + context.timers.lease if lease.until is None else lease.until)
        return due

    def node_dropped(self, node: int) -> None:
        """A node was dropped."""
        if self.lease is not None:
            self.lease.forget(node)

    def _answered(self, val: str, node: int, now: float) -> None:
        context, lease = self._context, self.lease
        member = context.registry.get(node)
        if lease is None or member is None:
            return
        lease.ponged(val, node, member.registered_at, context.quorum)
        if context.bootstrapping and lease.is_valid(now):
            context.bootstrapping = False

    def _drop_silent(self, now: float) -> None:
        context, lease = self._context, self.lease
        assert lease is not None, "it leads"
        silent = [
            member.id
            for member in context.registry
            if member.id != context.id and lease.is_overdue(member.id, member.registered_at, now)
        ]
        if not silent:
            return
        if context.bootstrapping:
            # Without a quorum nobody may be dropped; what was begun without one can be begun anew.
            self.loss_reason = "who joined what it founded is silent"
            return
        if context.has_fixed_quorum and not lease.is_valid(now):
            return
        for node in silent:
            context.flood(Drop(node, "no PONG"), now)
            context.counters["dropped"] += 1
            context.links.unbind(node)
            context.registry.drop(node)
            self.node_dropped(node)
            context.output.emit(NodeDropped(node, "no PONG"))
