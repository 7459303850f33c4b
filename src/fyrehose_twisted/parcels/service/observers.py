"""Who is told of events, and what a node says of itself in the log."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from twisted.logger import Logger

from fyrehose_twisted.interfaces import IEventListener
from fyrehose_twisted.net.addresses import show_place
from fyrehose_twisted.parcels.events import ModeChanged, NeighbourAdded, NeighbourRemoved, ViewChanged, Warned
from fyrehose_twisted.parcels.wire.messages import Event


class Listeners:
    """Tells all of them; one that raises is logged, and does not keep the others from being told."""

    log = Logger()

    def __init__(self) -> None:
        self._listeners: list[Any] = []

    def add(self, listener: Any) -> None:
        """Tell an :class:`~fyrehose_twisted.interfaces.IEventListener` from now on."""
        self._listeners.append(IEventListener(listener))

    def discard(self, listener: Any) -> None:
        """Tell it no more."""
        with suppress(ValueError):
            self._listeners.remove(listener)

    def events_ordered(self, events: Sequence[Event]) -> None:
        """The next events of the order."""
        for listener in tuple(self._listeners):
            try:
                listener.events_ordered(events)
            except Exception:
                self.log.failure("{listener!r} failed on events", listener=listener)

    def events_skipped(self, first: int, last: int) -> None:
        """Events can no longer be had."""
        for listener in tuple(self._listeners):
            try:
                listener.events_skipped(first, last)
            except Exception:
                self.log.failure("{listener!r} failed on events that are skipped", listener=listener)


def say(log: Logger, event: Any) -> None:
    """Write to a log what a node tells of itself and others."""
    match event:
        case ModeChanged(mode, why):
            log.info("mode {mode}: {why}", mode=mode.value, why=why)
        case NeighbourAdded(name, address):
            log.info("knows {name} at {address}", name=name, address=show_place(address))
        case NeighbourRemoved(name, address, why):
            place = show_place(address)
            log.warn("no longer counts on {name} at {address}: {why}", name=name, address=place, why=why)
        case ViewChanged(view):
            names = ", ".join(member.name for member, _ in view.members) or "nobody"
            log.info("members are {names}; {quorum} have to agree", names=names, quorum=view.quorum)
        case Warned(text):
            log.warn("{text}", text=text)
