"""Who is told of lines and leaders, and what a node says of itself in the log."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from twisted.logger import Logger

from fyrehose_twisted.hydra.events import (
    IdChanged,
    LeaderChanged,
    LinesMissed,
    LinesReceived,
    NodeDropped,
    NodeRegistered,
    OperatorWarning,
    RoleChanged,
)
from fyrehose_twisted.interfaces import IIrcListener


class Observers:
    """Tells all of them; one that raises is logged, and does not keep the others from being told."""

    log = Logger()

    def __init__(self) -> None:
        self._observers: list[Any] = []

    def add(self, listener: Any) -> None:
        """Tell an :class:`~fyrehose_twisted.interfaces.IIrcListener` from now on."""
        self._observers.append(IIrcListener(listener))

    def discard(self, listener: Any) -> None:
        """Tell it no more."""
        with suppress(ValueError):
            self._observers.remove(listener)

    def lines_received(self, lines: LinesReceived) -> None:
        """Lines came from IRC."""
        self._notify("lines_received", lines)

    def lines_missed(self, lines: LinesMissed) -> None:
        """Lines came from IRC, and not here."""
        self._notify("lines_missed", lines)

    def leader_changed(self, leader: LeaderChanged) -> None:
        """Another node leads, or none."""
        self._notify("leader_changed", leader)

    def _notify(self, method: str, event: Any) -> None:
        for listener in tuple(self._observers):
            try:
                getattr(listener, method)(event)
            except Exception:
                self.log.failure("{listener!r} failed on {what}", listener=listener, what=method)


def log_event(log: Logger, event: Any) -> None:
    """Write to a log what a node tells of itself and others."""
    match event:
        case RoleChanged(role, why):
            log.info("role {role}: {why}", role=role.value, why=why)
        case LeaderChanged(term, None):
            log.info("nobody leads, term {term}", term=term)
        case LeaderChanged(term, leader, tag):
            log.info("{leader} leads, term {term}", leader=f"{leader} ({tag})" if tag else leader, term=term)
        case IdChanged(None):
            log.info("has no id")
        case IdChanged(number):
            log.info("has the id {id}", id=number)
        case NodeRegistered(number):
            log.info("{id} belongs to the network", id=number)
        case NodeDropped(number, reason):
            log.warn("{id} does not belong to the network any more: {reason}", id=number, reason=reason or "no reason")
        case LinesMissed(term, first, last):
            log.warn("lines {first:,} to {last:,} of term {term} did not get here", first=first, last=last, term=term)
        case OperatorWarning(text):
            log.warn("{text}", text=text)
