from __future__ import annotations

from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.fyrehose.wire.envelope import (
    ENVELOPE_SIZE,
    MAGIC,
    MAX_ENVELOPED,
    Envelope,
    envelope_columns,
    envelope_runs,
    unwrap,
    wrap,
)
from fyrehose_twisted.fyrehose.wire.run_codec import NUMPY_MINIMUM


@given(st.binary(min_size=8, max_size=8), st.integers(0, 2**64 - 1), st.binary(max_size=50))
def test_an_envelope_round_trips(publisher: bytes, counter: int, payload: bytes) -> None:
    data = wrap(publisher, counter, payload)
    assert unwrap(data) == Envelope(publisher, counter)
    assert data[ENVELOPE_SIZE:] == payload


def test_an_envelope_has_its_documented_bytes() -> None:
    assert wrap(b"someones", 258, b"hi").hex() == "f7465901" + b"someones".hex() + "0000000000000102" + "6869"
    assert MAX_ENVELOPED == 65_478


def test_a_shortened_envelope_or_one_of_another_version_is_none() -> None:
    data = wrap(b"someones", 1, b"")
    assert all(unwrap(data[:size]) is None for size in range(len(data)))
    assert unwrap(b"\xf7FY\x02" + data[4:]) is None


PUBLISHERS = [b"someones", b"another1", b"\xff" * 8]
HIGHEST = 2**64 - 1
counts = st.sampled_from([1, 2, 3, 10, NUMPY_MINIMUM - 1, NUMPY_MINIMUM])


@st.composite
def wrapped(draw: st.DrawFn) -> list[bytes]:
    """Messages of one publisher with rising counters."""
    first = draw(st.sampled_from([0, 1, 5, 2**32 - 3, 2**63 - 3, HIGHEST - 3, HIGHEST]))
    publisher, count = draw(st.sampled_from(PUBLISHERS)), draw(counts)
    return [wrap(publisher, (first + row) % (HIGHEST + 1), b"x" * (row % 3)) for row in range(count)]


bare = st.sampled_from([b"", b"text", MAGIC, wrap(b"someones", 1, b"")[:-1], b"\xf7FY\x02" + bytes(20), bytes(20)])
mixed = st.lists(wrapped() | wrapped() | st.lists(bare, max_size=3), max_size=4).map(lambda parts: [*chain(*parts)])


def expected_runs(messages: list[bytes]) -> list[tuple[Envelope | None, int]]:
    """Compute :func:`envelope_runs` message by message."""
    found: list[tuple[Envelope | None, int]] = []
    before: Envelope | None = None
    for row, data in enumerate(messages):
        envelope = unwrap(data)
        if envelope is None or before is None:
            follows = row > 0 and envelope is before
        else:
            follows = envelope == (before.publisher, before.counter + 1)
        if follows:
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((envelope, 1))
        before = envelope
    return found


@given(mixed)
def test_envelope_runs_equal_unwrapping_each_message(messages: list[bytes]) -> None:
    assert envelope_runs(messages) == expected_runs(messages)


@pytest.mark.parametrize("count", [2, NUMPY_MINIMUM - 1, NUMPY_MINIMUM, NUMPY_MINIMUM + 5])
def test_an_envelope_run_ends_at_another_publisher_or_a_skipped_or_repeated_counter(count: int) -> None:
    for row in range(1, count):
        for publisher, ahead in [(b"another1", 0), (b"someonez", 0), (b"someones", 1), (b"someones", -1)]:
            messages = [wrap(b"someones", 7 + at, b"") for at in range(row)]
            messages += [wrap(publisher, 7 + ahead + at, b"") for at in range(row, count)]
            assert envelope_runs(messages) == [
                (Envelope(b"someones", 7), row),
                (Envelope(publisher, 7 + ahead + row), count - row),
            ]


@pytest.mark.parametrize("count", [2, NUMPY_MINIMUM - 1, NUMPY_MINIMUM])
def test_messages_without_an_envelope_are_separated_from_enveloped_ones(count: int) -> None:
    bare_ones = [b"\xf7FY\x02" + wrap(b"someones", row, b"")[4:] for row in range(count)]
    assert envelope_runs(bare_ones) == [(None, count)]
    messages = [*bare_ones, wrap(b"someones", count, b""), *bare_ones]
    assert envelope_runs(messages) == [(None, count), (Envelope(b"someones", count), 1), (None, count)]


@pytest.mark.parametrize("count", [2, 100, NUMPY_MINIMUM])
@pytest.mark.parametrize("size", [0, 1, 4, ENVELOPE_SIZE - 1])
def test_messages_shorter_than_an_envelope_have_none(count: int, size: int) -> None:
    assert envelope_runs([wrap(b"someones", 1, b"")[:size]] * count) == [(None, count)]


@pytest.mark.parametrize("count", [2, NUMPY_MINIMUM])
def test_an_envelope_run_ends_at_the_maximum_counter(count: int) -> None:
    counters = [*range(HIGHEST - count + 2, HIGHEST + 1), 0]
    assert envelope_runs([wrap(b"someones", counter, b"") for counter in counters]) == [
        (Envelope(b"someones", counters[0]), count - 1),
        (Envelope(b"someones", 0), 1),
    ]


@given(mixed, st.integers(0, 40), st.integers(1, 10**6))
def test_envelope_columns_of_a_block_equal_unwrapping_each_record(
    messages: list[bytes], skip: int, number: int
) -> None:
    offsets = np.cumsum([3, *map(len, messages)], dtype=np.uint32)
    positions = np.arange(number, number + len(messages), dtype=np.uint64)
    positions[skip:] += np.uint64(1)
    found = envelope_columns(positions, offsets, memoryview(b"any" + b"".join(messages))).runs()
    unwrapped = [
        (run.number + row, Envelope(run.publisher.to_bytes(8, "big"), run.counter + row))
        for run in found
        for row in range(run.length)
    ]
    numbers = zip(positions.tolist(), map(unwrap, messages), strict=True)
    assert unwrapped == [(number, envelope) for number, envelope in numbers if envelope is not None]
    assert all(
        before.publisher != after.publisher
        or before.counter + before.length != after.counter
        or before.number + before.length != after.number
        for before, after in pairwise(found)
    )
