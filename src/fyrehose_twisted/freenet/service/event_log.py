"""Log lines of what a freenet node reports."""

from __future__ import annotations

from typing import Any

from twisted.logger import Logger

from fyrehose_twisted.freenet.events import (
    NeighbourDown,
    NeighbourUp,
    OperatorWarning,
    PacketsMissed,
    ParentChanged,
    ParentLost,
    StreamDropped,
    StreamRenumbered,
    Subscribed,
    SubscribeFailed,
)

StreamChange = Subscribed | SubscribeFailed | ParentLost | ParentChanged | StreamDropped | StreamRenumbered


def log_event(log: Logger, event: Any) -> None:
    """Log an event of a node."""
    match event:
        case Subscribed(key, root, is_root):
            where = "this node is the root" if is_root else f"the root is at {root:.6f}"
            log.info("{key} is connected; {where}", key=key.hex(), where=where)
        case SubscribeFailed(key, reason):
            log.warn("{key} is not connected: {reason}", key=key.hex(), reason=reason)
        case ParentLost(key, reason):
            log.info("{key} lost its parent and is searching for another: {reason}", key=key.hex(), reason=reason)
        case ParentChanged(key, None):
            log.info("{key}: this node is the root", key=key.hex())
        case ParentChanged(key, parent):
            log.info("{key}: the parent is {parent:016x}", key=key.hex(), parent=parent)
        case StreamDropped(key):
            log.info("this node left the tree of {key}", key=key.hex())
        case PacketsMissed(key, first, last):
            log.warn("packets {first:,} to {last:,} of {key} were not received", key=key.hex(), first=first, last=last)
        case StreamRenumbered(key, first):
            log.warn("{key} was renumbered from {first:,}", key=key.hex(), first=first)
        case NeighbourUp(node, location):
            log.info("neighbour {node:016x} at {location:.6f}", node=node, location=location)
        case NeighbourDown(node, reason):
            log.info("neighbour {node:016x} is gone: {reason}", node=node, reason=reason)
        case OperatorWarning(text):
            log.warn("{text}", text=text)
