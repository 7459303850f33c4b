"""Who is told of events, and what a node says of itself in the log."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from twisted.logger import Logger

from fyrehose_twisted.interfaces import IEventListener
from fyrehose_twisted.net.addresses import format_address
from fyrehose_twisted.parcels.events import (
    MembershipChanged,
    ModeChanged,
    NeighbourAdded,
    NeighbourRemoved,
    OperatorWarning,
)
from fyrehose_twisted.parcels.wire.messages import Event


class Observers:
    """Tells all of them; one that raises is logged, and does not keep the others from being told."""

    log = Logger()

    def __init__(self) -> None:
        self._observers: list[Any] = []

    def add(self, observer: Any) -> None:
        """Tell an :class:`~fyrehose_twisted.interfaces.IEventListener` from now on."""
        self._observers.append(IEventListener(observer))

    def discard(self, observer: Any) -> None:
        """Tell it no more."""
        with suppress(ValueError):
            self._observers.remove(observer)

    def events_ordered(self, events: Sequence[Event]) -> None:
        """The next events of the order."""
        for listener in tuple(self._observers):
            try:
                listener.events_ordered(events)
            except Exception:
                self.log.failure("{listener!r} failed on events", listener=listener)

    def events_skipped(self, first: int, last: int) -> None:
        """Events can no longer be had."""
        for listener in tuple(self._observers):
            try:
                listener.events_skipped(first, last)
            except Exception:
                self.log.failure("{listener!r} failed on events that are skipped", listener=listener)


def log_event(log: Logger, event: Any) -> None:
    """Write to a log what a node tells of itself and others."""
    match event:
        case ModeChanged(mode, why):
            log.info("mode {mode}: {why}", mode=mode.value, why=why)
        case NeighbourAdded(name, address):
            log.info("knows {name} at {address}", name=name, address=format_address(address))
        case NeighbourRemoved(name, address, why):
            place = format_address(address)
            log.warn("no longer counts on {name} at {address}: {why}", name=name, address=place, why=why)
        case MembershipChanged(view):
            names = ", ".join(member.name for member, _ in view.members) or "nobody"
            log.info("members are {names}; {quorum} have to agree", names=names, quorum=view.quorum)
        case OperatorWarning(text):
            log.warn("{text}", text=text)
