"""Simulated clock of small hand-built networks, which jumps between deadlines and arrivals."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any, Generic, Protocol, TypeVar

DELAY = 0.0005
"""Latency of the network in seconds."""

MAX_TURNS = 50
"""Ticks of a node at one time; one more counts as a busy loop."""


class SteppedHost(Protocol):
    """A host with a node, as the clock needs it."""

    node: Any
    up: bool
    turns: int

    def flush(self) -> None:
        """Carry out the outputs of the node."""


HostT = TypeVar("HostT", bound=SteppedHost)


class SteppedNetwork(Generic[HostT]):
    """Hosts by name, and calls scheduled on one clock."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.hosts: dict[str, HostT] = {}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def later(self, delay: float, call: Callable[[], None]) -> None:
        """Schedule a call ``delay`` seconds from now."""
        heappush(self._queue, (self.now + delay, next(self._order), call))

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Advance the clock.

        :param until: condition that ends the run early.
        :returns: whether the condition holds.
        """
        end = self.now + seconds
        while until is None or not until():
            at = min((_deadline(host.node) for host in self.hosts.values() if host.up), default=inf)
            if self._queue and self._queue[0][0] <= max(at, self.now):
                at = self._queue[0][0]
                if at > end:
                    break
                self.now = max(self.now, at)
                heappop(self._queue)[2]()
                continue
            if at > end:
                break
            self._tick(at)
        else:
            return True
        self.now = end
        return until is not None and until()

    def _tick(self, at: float) -> None:
        if at > self.now:
            self.now = at
            for host in self.hosts.values():
                host.turns = 0
        for name, host in self.hosts.items():
            if host.up and _deadline(host.node) <= self.now:
                host.turns += 1
                assert host.turns < MAX_TURNS, f"{name} asks for a tick without end"
                host.node.tick(self.now)
                host.flush()


def _deadline(node: Any) -> float:
    at = node.next_deadline()
    return inf if at is None else float(at)
