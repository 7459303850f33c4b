"""Record type that every protocol delivers and every journal stores."""

from __future__ import annotations

from typing import NamedTuple


class Record(NamedTuple):
    """Delivered message with its position. ``(stream, epoch, sequence)`` is unique and never reused."""

    stream: str
    """URI of the stream: ``fyrehose://NAME``."""
    epoch: int
    """Number of the epoch; sequence numbers restart with each. 0 if they never do."""
    sequence: int
    """Position in the stream."""
    received_at: int
    """UTC microseconds since 1970 at which this process received the message."""
    payload: bytes
    """Message as on the wire."""
