"""Whether what a node knows of its network is what the others know.

A link that breaks may lose a DROP or a WELCOME. Then the registries differ, and since only a leader may drop others, a
node whose own is wrong leaves and comes again.
"""

from __future__ import annotations

from math import inf

from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.node.context import NodeContext

_MAX_UNREGISTERED = 64
"""Nodes that are not registered, and answered PINGs."""


class RegistryCheck:
    """Compares who answers the leader with who is registered."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._unregistered: dict[int, tuple[float, float]] = {}
        self._check_at = inf

    def reset(self, now: float) -> None:
        """Another leader, or another network."""
        self._unregistered.clear()
        self._check_at = now + self._context.timers.max_ping

    def unregistered_pong(self, node: int, now: float) -> None:
        """A node that is not registered answered."""
        if node in self._unregistered or len(self._unregistered) < _MAX_UNREGISTERED:
            first, _ = self._unregistered.get(node, (now, now))
            self._unregistered[node] = first, now

    def forget(self, node: int) -> None:
        """A node was dropped."""
        self._unregistered.pop(node, None)

    def tick(self, now: float) -> str | None:
        """Return what is wrong, if something is."""
        context = self._context
        if self._check_at > now:
            return None
        self._check_at = now + context.timers.max_ping
        if context.role is not Role.COHORT or context.leader is None or context.id is None:
            self._unregistered.clear()
            return None
        patience = 3 * context.timers.max_ping
        for member in context.registry:
            last = max(
                member.registered_at,
                context.leader_since,
                -inf if member.last_pong_at is None else member.last_pong_at,
            )
            if member.id not in (context.id, context.leader) and last + patience <= now:
                return f"{member.id} answers nobody, and was not dropped here"
        for node, (first, last) in list(self._unregistered.items()):
            if node in context.registry or last + 2 * context.timers.max_ping <= now:
                del self._unregistered[node]
            elif first + 2 * context.timers.max_ping <= now:
                return f"{node} belongs to the network, and is not registered here"
        return None

    def next_deadline(self) -> float:
        """Return when :meth:`tick` has something to do."""
        return self._check_at if self._context.role is Role.COHORT else inf
