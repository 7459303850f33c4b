"""Log lines of what a parcels node reports."""

from __future__ import annotations

from typing import Any

from twisted.logger import Logger

from fyrehose_twisted.net.addresses import format_address
from fyrehose_twisted.parcels.events import (
    MembershipChanged,
    ModeChanged,
    NeighbourAdded,
    NeighbourRemoved,
    OperatorWarning,
    StateFailed,
)


def log_event(log: Logger, event: Any) -> None:
    """Log an event of a node."""
    match event:
        case ModeChanged(mode, why):
            log.info("mode {mode}: {why}", mode=mode.value, why=why)
        case NeighbourAdded(name, address):
            log.info("added neighbour {name} at {address}", name=name, address=format_address(address))
        case NeighbourRemoved(name, address, why):
            place = format_address(address)
            log.warn("removed neighbour {name} at {address}: {why}", name=name, address=place, why=why)
        case MembershipChanged(view):
            names = ", ".join(member.name for member, _ in view.members) or "none"
            log.info("members are {names}; {quorum} have to agree", names=names, quorum=view.quorum)
        case StateFailed(text):
            log.error("the state of the application has failed and gets no more events: {text}", text=text)
        case OperatorWarning(text):
            log.warn("{text}", text=text)
