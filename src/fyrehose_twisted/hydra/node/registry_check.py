"""Whether what a node knows of its network is what the others know.

A link that breaks may lose a DROP or a WELCOME. Then the registries differ, and since only a leader may drop others, a
node whose own is wrong leaves and comes again.
"""

from __future__ import annotations

from math import inf

from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.node.context import Standing

_STRANGERS = 64
"""Nodes that are not registered, and answered PINGs."""


class Agreement:
    """Compares who answers the leader with who is registered."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._strangers: dict[int, tuple[float, float]] = {}
        self._look_at = inf

    def reset(self, now: float) -> None:
        """Another leader, or another network."""
        self._strangers.clear()
        self._look_at = now + self._standing.timers.max_ping

    def stranger_ponged(self, node: int, now: float) -> None:
        """A node that is not registered answered."""
        if node in self._strangers or len(self._strangers) < _STRANGERS:
            first, _ = self._strangers.get(node, (now, now))
            self._strangers[node] = first, now

    def forget(self, node: int) -> None:
        """A node was dropped."""
        self._strangers.pop(node, None)

    def tick(self, now: float) -> str | None:
        """Return what is wrong, if something is."""
        standing = self._standing
        if self._look_at > now:
            return None
        self._look_at = now + standing.timers.max_ping
        if standing.role is not Role.COHORT or standing.leader is None or standing.id is None:
            self._strangers.clear()
            return None
        patience = 3 * standing.timers.max_ping
        for member in standing.registry:
            last = max(member.since, standing.led_since, -inf if member.ponged is None else member.ponged)
            if member.id not in (standing.id, standing.leader) and last + patience <= now:
                return f"{member.id} answers nobody, and was not dropped here"
        for node, (first, last) in list(self._strangers.items()):
            if node in standing.registry or last + 2 * standing.timers.max_ping <= now:
                del self._strangers[node]
            elif first + 2 * standing.timers.max_ping <= now:
                return f"{node} belongs to the network, and is not registered here"
        return None

    def next_deadline(self) -> float:
        """Return when :meth:`tick` has something to do."""
        return self._look_at if self._standing.role is Role.COHORT else inf
