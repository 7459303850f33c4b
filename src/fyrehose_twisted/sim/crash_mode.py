"""Crash modes of a host, and the state available at its next start."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple


class CrashMode(Enum):
    """Kind of crash, by the durable state that survives it."""

    KILLED = "killed"
    """The process is killed. The kernel survives, with its unwritten data."""
    POWER = "power lost"
    """Power is lost. Only synced data survives, as defined by the scenario of the node."""
    DISK = "disk lost"
    """The disk is lost. Nothing survives."""


class Boot(NamedTuple):
    """State available to a node at its start."""

    now: float
    """Time of the host's clock, UTC seconds."""
    persisted: Any
    """Last persisted state; ``None`` if there is none."""
    last_crash: CrashMode | None
    """Crash before this start; ``None`` for the first start."""
