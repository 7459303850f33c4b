"""Envelopes inside DATA: sequences of enveloped and bare messages, and detection of repeats."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.choices import Choices, piece
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, MAGIC, Envelope, envelope_runs, unwrap, wrap
from fyrehose_twisted.repeats import EnvelopeRun, RepeatDetector

WINDOW = 16


def seeds() -> Iterable[bytes]:
    """Return sequences of messages."""
    messages = [wrap(b"publishr", counter, b"x" * 3) for counter in (*range(1, 16), 2**64 - 1, 0)]
    rows = [messages, messages[:3], [*messages[:4], b"", MAGIC, b"short", *messages[2:]], [b"plain"] * 14]
    return [b"".join(map(piece, row)) for row in rows]


def one(data: bytes) -> None:
    """Decode messages by column and one by one, with equal results."""
    choices = Choices(data)
    messages = []
    while choices:
        messages.append(choices.piece())
    repeats, again = RepeatDetector(WINDOW), RepeatDetector(WINDOW)
    row, found, expected_repeats = 0, [], []
    if messages:
        for first, count in envelope_runs(messages):
            assert count > 0
            for counter, message in enumerate(messages[row : row + count], 0 if first is None else first.counter):
                expected = None if first is None else Envelope(first.publisher, counter)
                assert unwrap(message) == expected
                if expected is not None:
                    assert wrap(*expected, message[ENVELOPE_SIZE:]) == message
            if first is not None:
                run = EnvelopeRun(row, int.from_bytes(first.publisher, "big"), first.counter, count)
                found += [row + at for begin, end in repeats.add(run) for at in range(begin, end)]
            row += count
        for number, message in enumerate(messages):
            envelope = unwrap(message)
            if envelope is not None:
                publisher = int.from_bytes(envelope.publisher, "big")
                if again.add(EnvelopeRun(number, publisher, envelope.counter, 1)):
                    expected_repeats.append(number)
    assert row == len(messages)
    assert found == expected_repeats, "a run is not what its messages are"
    assert max(len(repeats), len(again)) <= WINDOW + 1
    assert max(len(repeats._pages), len(again._pages)) <= WINDOW + 2
