"""Those who want to know what a node tells, and its log."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from twisted.logger import Logger

from fyrehose_twisted.freenet.events import (
    NeighbourDown,
    NeighbourUp,
    OperatorWarning,
    PacketsDelivered,
    PacketsMissed,
    ParentChanged,
    ParentLost,
    StreamDropped,
    StreamRenumbered,
    Subscribed,
    SubscribeFailed,
)
from fyrehose_twisted.interfaces import IFreenetListener

StreamChange = Subscribed | SubscribeFailed | ParentLost | ParentChanged | StreamDropped | StreamRenumbered


class Observers:
    """Tells all of them; one that raises is logged, and does not keep the others from being told."""

    log = Logger()

    def __init__(self) -> None:
        self._observers: list[Any] = []

    def add(self, listener: Any) -> None:
        """Tell an :class:`~fyrehose_twisted.interfaces.IFreenetListener` from now on."""
        self._observers.append(IFreenetListener(listener))

    def discard(self, listener: Any) -> None:
        """Tell it no more."""
        with suppress(ValueError):
            self._observers.remove(listener)

    def packets_received(self, event: PacketsDelivered) -> None:
        """Packets came."""
        self._notify("packets_received", event.key, event.packets)

    def packets_missed(self, event: PacketsMissed) -> None:
        """Packets did not come."""
        self._notify("packets_missed", event.key, event.first, event.last)

    def stream_changed(self, event: StreamChange) -> None:
        """Something became of a stream."""
        self._notify("stream_changed", event)

    def _notify(self, method: str, *arguments: Any) -> None:
        for listener in tuple(self._observers):
            try:
                getattr(listener, method)(*arguments)
            except Exception:
                self.log.failure("{listener!r} failed on {what}", listener=listener, what=method)


def log_event(log: Logger, event: Any) -> None:
    """Write to a log what a node tells."""
    match event:
        case Subscribed(key, root, is_root):
            where = "this node is the root" if is_root else f"the root is at {root:.6f}"
            log.info("{key} is connected; {where}", key=key.hex(), where=where)
        case SubscribeFailed(key, reason):
            log.warn("{key} is not connected: {reason}", key=key.hex(), reason=reason)
        case ParentLost(key, reason):
            log.info("{key} looks for another parent: {reason}", key=key.hex(), reason=reason)
        case ParentChanged(key, None):
            log.info("{key}: this node is the root", key=key.hex())
        case ParentChanged(key, parent):
            log.info("{key}: the parent is {parent:016x}", key=key.hex(), parent=parent)
        case StreamDropped(key):
            log.info("{key} is over here", key=key.hex())
        case PacketsMissed(key, first, last):
            log.warn("packets {first:,} to {last:,} of {key} did not get here", key=key.hex(), first=first, last=last)
        case StreamRenumbered(key, first):
            log.warn("{key} counts from {first:,} on", key=key.hex(), first=first)
        case NeighbourUp(node, location):
            log.info("neighbour {node:016x} at {location:.6f}", node=node, location=location)
        case NeighbourDown(node, reason):
            log.info("neighbour {node:016x} is gone: {reason}", node=node, reason=reason)
        case OperatorWarning(text):
            log.warn("{text}", text=text)
