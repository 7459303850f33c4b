"""Event by which one side of a relay has the other one drained."""

from __future__ import annotations

from typing import NamedTuple


class OtherSideReady(NamedTuple):
    """Event: the other side of the relay has output, because of what this side has received."""
