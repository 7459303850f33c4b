"""How a host dies, and what it knows when it starts again."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple


class CrashMode(Enum):
    """What a crash leaves of what the node wanted durable."""

    KILLED = "killed"
    """The process died; the kernel and what it has to write live on."""
    POWER = "power lost"
    """Only what was synced to the disk is there; what that is, the node's scenario knows."""
    DISK = "disk lost"
    """Nothing is left."""


class Boot(NamedTuple):
    """What a node knows when it starts."""

    now: float
    """What the host's clock says, UTC seconds."""
    persisted: Any
    """What the node wanted durable last; ``None`` for nothing."""
    last_crash: CrashMode | None
    """Why it starts again; ``None`` for the first start."""
