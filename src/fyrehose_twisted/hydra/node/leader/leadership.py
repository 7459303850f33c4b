"""Duties of the leader (document 002, "A leader has been established"; rule S5 of its reading).

The leader sends PINGs, drops nodes that do not answer, and stops leading if too few answer.
"""

from __future__ import annotations

from math import inf

from fyrehose_twisted.hydra.events import NodeDropped, Role
from fyrehose_twisted.hydra.node.context import NodeContext
from fyrehose_twisted.hydra.node.leader.lease import Lease
from fyrehose_twisted.hydra.wire.messages import Drop, Ping, Pong
from fyrehose_twisted.hydra.wire.ping_val import format_val


class Leadership:
    """Leadership of one node.

    :ivar lease: lease to write to IRC; ``None`` while the node does not lead.
    :ivar loss_reason: reason why the node has to stop leading; the lifecycle then carries it out.
    """

    def __init__(self, context: NodeContext) -> None:
        self.lease: Lease | None = None
        self.loss_reason: str | None = None
        self._context = context
        self._ping_at = inf
        self._check_at = inf
        self._rival_at = inf
        self._number = 0
        self._is_quick = False
        self._next_is_quick = False
        self._quick_from = -inf
        self._redropped: dict[int, float] = {}

    @property
    def lease_until(self) -> float | None:
        """End of the lease, ``None`` without one; infinity in the unsafe mode."""
        lease = self.lease
        if lease is None:
            return None
        return lease.until if self._context.has_fixed_quorum else inf

    def may_write(self, now: float) -> bool:
        """Return whether the node may write to IRC."""
        until = self.lease_until
        return until is not None and now < until

    def may_decide(self, now: float) -> bool:
        """Return whether the node may drop and induct others."""
        return self.lease is not None and (self._context.bootstrapping or self.may_write(now))

    def begin(self, now: float) -> None:
        """Start leading."""
        self.lease, self.loss_reason = Lease(self._context.timers, now), None
        self._rival_at, self._quick_from = inf, -inf
        self._is_quick = self._next_is_quick = False
        self._redropped.clear()
        self.ping(now)

    def end(self) -> None:
        """Stop leading."""
        self.lease = self.loss_reason = None
        self._ping_at = self._check_at = self._rival_at = inf

    def ping(self, now: float) -> None:
        """Send a PING."""
        context, lease = self._context, self.lease
        me = context.id
        assert lease is not None, "it leads"
        assert me is not None, "it leads"
        self._number += 1
        timers, is_quick, self._next_is_quick = context.timers, self._next_is_quick, False
        if self._is_quick and not is_quick:
            self._quick_from = now + timers.quick_pause
            context.counters["leases_slowed"] += 1
        self._is_quick = is_quick
        context.val = format_val(
            me,
            self._number,
            context.val_suffix,
            lease=timers.quick_lease if is_quick else None,
            has_quorum=not (context.bootstrapping and context.has_no_quorum),
        )
        context.last_ping_at = now
        self._ping_at = now + (timers.quick_ping_interval if is_quick else timers.ping_interval)
        lease.ping_sent(context.val, now)
        context.flood_ping(Ping(context.durable.term, context.val, me), now)
        # This tells the other nodes its tag and distance.
        context.flood(Pong(context.val, me, 0, context.config.tag), now)
        if context.promise_to_leader(me, now):
            self._answered(context.val, me, now)
        self._check_at = min(self._check_at, lease.next_deadline(now))

    def ponged(self, message: Pong, now: float) -> None:
        """Handle a PONG."""
        context = self._context
        if message.id in context.registry:
            self._answered(message.val, message.id, now)
        elif self.may_decide(now) and self._redropped.get(message.id, -inf) + context.timers.ping_interval <= now:
            # The node does not know that it was dropped.
            if len(self._redropped) > 256:
                self._redropped.clear()
            self._redropped[message.id] = now
            context.flood(Drop(message.id, "not registered"), now)

    def rival_seen(self, now: float) -> None:
        """Handle the PING of another leader in the same term, which requires an election (document 002, PING)."""
        if self._rival_at == inf:
            self._rival_at = now + self._context.rng.uniform(0.0, 5.0 * self._context.timers.scale)

    def tick(self, now: float) -> bool:
        """Send a PING and drop silent nodes, if due; return whether a rival requires a nomination."""
        context, lease = self._context, self.lease
        if lease is None:
            return False
        # A newly elected leader has to obtain a lease within the duration of one.
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
        """Return the time of the next :meth:`tick`."""
        lease, context = self.lease, self._context
        if lease is None or context.role is not Role.LEADER:
            return inf
        due = min(self._ping_at, self._check_at, self._rival_at)
        if context.has_fixed_quorum and not context.bootstrapping:
            due = min(due, lease.began_at + context.timers.lease if lease.until is None else lease.until)
        return due

    def node_dropped(self, node: int) -> None:
        """Forget a dropped node."""
        if self.lease is not None:
            self.lease.forget(node)

    def _answered(self, val: str, node: int, now: float) -> None:
        context, lease = self._context, self.lease
        member = context.registry.get(node)
        if lease is None or member is None:
            return
        sent_at = lease.ponged(val, node, member.registered_at, context.quorum)
        if sent_at is not None:
            self._hasten(sent_at, now)
        if context.bootstrapping and lease.is_valid(now):
            context.bootstrapping = False

    def _hasten(self, sent_at: float, now: float) -> None:
        """Make the next PING a quick one if a quorum has answered the last one in time."""
        context, interval = self._context, self._context.timers.quick_ping_interval
        if (
            context.config.quick_lease
            and context.has_fixed_quorum
            and not context.bootstrapping
            and context.quorum > 1
            and now >= self._quick_from
            and now <= sent_at + interval
        ):
            self._next_is_quick = True
            self._ping_at = min(self._ping_at, sent_at + interval)

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
            # Without a quorum no node may be dropped; a network that never had one can be bootstrapped again.
            self.loss_reason = "the first node that joined the new network is silent"
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
