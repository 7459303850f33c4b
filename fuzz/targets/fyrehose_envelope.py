"""Envelopes inside DATA: rows of messages, with and without them, and which of them were seen before."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.checks import check_size
from fuzz.choices import Choices, piece
from fyrehose_twisted.fyrehose.envelope import (
    ENVELOPE_SIZE,
    MAGIC,
    MAX_RANGES,
    Envelope,
    Seen,
    enveloped,
    unwrap,
    wrap,
)


def seeds() -> Iterable[bytes]:
    """Return rows of messages."""
    messages = [wrap(b"publishr", counter, b"x" * 3) for counter in (*range(1, 16), 2**64 - 1, 0)]
    rows = [messages, messages[:3], [*messages[:4], b"", MAGIC, b"short", *messages[2:]], [b"plain"] * 14]
    return [b"".join(map(piece, row)) for row in rows]


def one(data: bytes) -> None:
    """Take a row of messages apart; column by column that is the same as one by one."""
    choices = Choices(data)
    messages = []
    while choices:
        messages.append(choices.piece())
    seen, again = Seen(publishers=4), Seen(publishers=4)
    row = 0
    if messages:
        for first, count in enveloped(messages):
            assert count > 0
            for counter, message in enumerate(messages[row : row + count], 0 if first is None else first.counter):
                expected = None if first is None else Envelope(first.publisher, counter)
                assert unwrap(message) == expected
                if expected is not None:
                    assert wrap(*expected, message[ENVELOPE_SIZE:]) == message
            row += count
            if first is not None and not seen.add_run(first, count):
                for counter in range(first.counter, first.counter + count):
                    seen.add(Envelope(first.publisher, counter))
        for message in messages:
            envelope = unwrap(message)
            if envelope is not None:
                again.add(envelope)
    assert row == len(messages)
    for one_of_both in (seen, again):
        check_size([list(ranges) for ranges in one_of_both._counters.values()], len(data), spare=4 * 40 * MAX_RANGES)
    assert seen._counters == again._counters, "a run is not what its messages are"
