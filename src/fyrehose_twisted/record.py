"""The one kind of record that every protocol delivers and every journal keeps."""

from __future__ import annotations

from typing import NamedTuple


class Record(NamedTuple):
    """A delivered message and where it belongs. ``(stream, epoch, sequence)`` is unique and never reused."""

    stream: str
    """What the sequence counts, as a URI: ``fyrehose://NAME``."""
    epoch: int
    """What restarts the count; 0 where nothing does."""
    sequence: int
    """Position in the stream."""
    received_at: int
    """UTC microseconds since 1970 at which this process received the message."""
    payload: bytes
    """The message as it was on the wire."""
