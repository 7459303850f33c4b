"""Detection of a node registry that has diverged from the leader's.

A broken link may lose a DROP or a WELCOME, after which registries differ. Only a leader may drop nodes, so a node with
a wrong registry leaves the network and rejoins.
"""

from __future__ import annotations

from math import inf

from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.node.context import NodeContext

_MAX_UNREGISTERED = 64
"""Largest number of tracked unregistered nodes."""


class RegistryCheck:
    """Comparison of the nodes that answer the leader with the registered nodes."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._unregistered: dict[int, tuple[float, float]] = {}
        self._check_at = inf

    def reset(self, now: float) -> None:
        """Start over after a change of leader or network."""
        self._unregistered.clear()
        self._check_at = now + self._context.timers.max_ping

    def unregistered_pong(self, node: int, now: float) -> None:
        """Record a PONG of an unregistered node."""
        if node in self._unregistered or len(self._unregistered) < _MAX_UNREGISTERED:
            first, _ = self._unregistered.get(node, (now, now))
            self._unregistered[node] = first, now

    def forget(self, node: int) -> None:
        """Remove a dropped node."""
        self._unregistered.pop(node, None)

    def tick(self, now: float) -> str | None:
        """Return a description of the divergence, ``None`` if there is none."""
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
                return f"{member.id} is silent to other nodes, but was not dropped here"
        for node, (first, last) in list(self._unregistered.items()):
            if node in context.registry or last + 2 * context.timers.max_ping <= now:
                del self._unregistered[node]
            elif first + 2 * context.timers.max_ping <= now:
                return f"{node} belongs to the network, but is not registered here"
        return None

    def next_deadline(self) -> float:
        """Return the time of the next :meth:`tick`."""
        return self._check_at if self._context.role is Role.COHORT else inf
