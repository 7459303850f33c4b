"""DATA of the first message of a term."""

from __future__ import annotations

from collections.abc import Iterable

from fyrehose_twisted.fyrehose.wire.envelope import unwrap
from fyrehose_twisted.fyrehose.wire.term_start import (
    TERM_START_SIZE,
    TermStart,
    decode_term_start,
    encode_term_start,
)


def seeds() -> Iterable[bytes]:
    """Return numbers of messages, each followed by its DATA."""
    starts = [TermStart(1, 0, 1), TermStart(7, 5, 9), TermStart(2**64 - 1, 2**32, 2**40)]
    return [start.first.to_bytes(8, "big") + encode_term_start(start) for start in starts]


def one(data: bytes) -> None:
    """Decode a message, and encode it again if it starts a term."""
    sequence, message = int.from_bytes(data[:8], "big"), data[8:]
    start = decode_term_start(sequence, message)
    if start is not None:
        assert len(message) == TERM_START_SIZE
        assert encode_term_start(start) == message
        assert start.first == sequence
        assert start.skipped.stop - start.skipped.start == start.first - start.held_up_to - 1 >= 0
        assert unwrap(message) is None, "a marker has an envelope"
