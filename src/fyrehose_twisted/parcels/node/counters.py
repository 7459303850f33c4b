"""Counters of a node."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Counters since the node started.

    :ivar published: events submitted by the application, clients and peers.
    :ivar delivered: events delivered to the application.
    :ivar repeats: duplicate events.
    :ivar skipped: events missed because no node holds them any more.
    :ivar refused: events refused without a quorum.
    :ivar elections: elections started by this node.
    :ivar states_taken: snapshots installed from the leader.
    :ivar states_fetched: states of the application fetched from other nodes.
    :ivar fetched: events fetched from other nodes to catch up.
    """

    published: int = 0
    delivered: int = 0
    repeats: int = 0
    skipped: int = 0
    refused: int = 0
    elections: int = 0
    states_taken: int = 0
    states_fetched: int = 0
    fetched: int = 0
