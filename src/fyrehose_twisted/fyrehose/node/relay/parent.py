"""What the side of a relay that serves clients needs of the other one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from fyrehose_twisted.effects import Burst
from fyrehose_twisted.fyrehose.wire.packets import Status


class Parent(Protocol):
    """Other side of a relay: the client of its parent."""

    def has_parent(self, now: float) -> bool:
        """Return whether a parent answers, and is near enough to the backbone."""

    @property
    def has_output(self) -> bool:
        """Whether it has effects or events to drain."""

    @property
    def term(self) -> int:
        """Term of the group of backbones; 0 for a single one."""

    @property
    def depth(self) -> int:
        """Number of relays between the backbone and this one, including this one."""

    @property
    def status(self) -> Status | None:
        """Latest STATUS of the parent, if it sends any."""

    def push(self, pushes: Burst, again: bool) -> bool:
        """Send PUSHes to the parent, retransmitted ones if ``again``. Return whether there is a parent."""

    def request(self, first: int, last: int, now: float) -> None:
        """Send a REQUEST to the parent."""

    def missing(self, first: int, last: int) -> Iterable[tuple[int, int]]:
        """Return the ranges from ``first`` to ``last`` that the relay itself waits for and requests."""

    def watch(self, now: float, until: float) -> None:
        """Ask for the progress of durable journals."""


class NoParent:
    """Parent of a relay that has not been connected yet."""

    has_output = False
    term = 0
    depth = 1
    status: Status | None = None

    def has_parent(self, now: float) -> bool:
        return False

    def push(self, pushes: Burst, again: bool) -> bool:
        return False

    def request(self, first: int, last: int, now: float) -> None:
        pass

    def missing(self, first: int, last: int) -> Iterable[tuple[int, int]]:
        return ()

    def watch(self, now: float, until: float) -> None:
        pass
