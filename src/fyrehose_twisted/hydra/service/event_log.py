"""Log lines of what a hydra node reports."""

from __future__ import annotations

from typing import Any

from twisted.logger import Logger

from fyrehose_twisted.hydra.events import (
    IdChanged,
    LeaderChanged,
    LinesMissed,
    NodeDropped,
    NodeRegistered,
    OperatorWarning,
    RoleChanged,
)


def log_event(log: Logger, event: Any) -> None:
    """Log an event of a node."""
    match event:
        case RoleChanged(role, why):
            log.info("role {role}: {why}", role=role.value, why=why)
        case LeaderChanged(term, None):
            log.info("no node leads, term {term}", term=term)
        case LeaderChanged(term, leader, tag):
            log.info("{leader} leads, term {term}", leader=f"{leader} ({tag})" if tag else leader, term=term)
        case IdChanged(None):
            log.info("this node has no id")
        case IdChanged(number):
            log.info("this node has the id {id}", id=number)
        case NodeRegistered(number):
            log.info("node {id} joined the network", id=number)
        case NodeDropped(number, reason):
            log.warn("node {id} was dropped from the network: {reason}", id=number, reason=reason or "no reason")
        case LinesMissed(term, first, last):
            log.warn("lines {first:,} to {last:,} of term {term} were not received", first=first, last=last, term=term)
        case OperatorWarning(text):
            log.warn("{text}", text=text)
