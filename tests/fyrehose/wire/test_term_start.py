from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.errors import UnencodableMessage
from fyrehose_twisted.fyrehose.wire.envelope import unwrap
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE
from fyrehose_twisted.fyrehose.wire.term_start import (
    TERM_START_SIZE,
    TermStart,
    decode_term_start,
    encode_term_start,
    term_start_numbers,
)

pairs = st.sets(st.integers(0, MAX_SEQUENCE), min_size=2, max_size=2).map(sorted)
starts = st.builds(
    lambda term, pair: TermStart(term, pair[0], pair[1]),
    st.integers(1, 2**64 - 1),
    pairs,
)


@given(starts)
def test_the_start_of_a_term_round_trips(start: TermStart) -> None:
    data = encode_term_start(start)
    assert len(data) == TERM_START_SIZE == 28
    assert decode_term_start(start.first, data) == start
    assert unwrap(data) is None


@given(starts, st.data())
def test_a_shortened_or_extended_marker_is_an_ordinary_message(start: TermStart, data: st.DataObject) -> None:
    marker = encode_term_start(start)
    assert decode_term_start(start.first, marker[: data.draw(st.integers(0, len(marker) - 1))]) is None
    assert decode_term_start(start.first, marker + data.draw(st.binary(min_size=1, max_size=9))) is None


@given(starts, st.integers(1, MAX_SEQUENCE))
def test_a_marker_under_another_number_is_an_ordinary_message(start: TermStart, sequence: int) -> None:
    found = decode_term_start(sequence, encode_term_start(start))
    assert found == (start if sequence == start.first else None)


@given(st.binary(min_size=24, max_size=24), st.integers(0, MAX_SEQUENCE))
def test_decoding_arbitrary_numbers_gives_only_valid_starts(noise: bytes, sequence: int) -> None:
    found = decode_term_start(sequence, b"\xf7FY\x02" + noise)
    assert found is None or encode_term_start(found) == b"\xf7FY\x02" + noise


def test_a_marker_that_skips_backwards_is_an_ordinary_message() -> None:
    data = bytearray(encode_term_start(TermStart(3, 8, 9)))
    data[19] = 9
    assert decode_term_start(9, bytes(data)) is None


def test_the_skipped_numbers_lie_between_the_held_ones_and_the_marker() -> None:
    assert TermStart(3, 8, 12).skipped == range(9, 12)
    assert not TermStart(3, 8, 9).skipped


@given(st.lists(starts.map(encode_term_start) | st.binary(max_size=40), max_size=20), st.integers(0, 9))
def test_starts_in_columns_equal_decoding_each_message(messages: list[bytes], skip: int) -> None:
    numbers = [
        1000 * row + skip if len(data) != TERM_START_SIZE or row % 3 else int.from_bytes(data[20:])
        for row, data in enumerate(messages)
    ]
    positions = np.array(numbers, np.uint64)
    offsets = np.cumsum([3, *map(len, messages)]).astype(np.uint32)
    found = term_start_numbers(positions, offsets, memoryview(b"any" + b"".join(messages)))
    expected = [number for number, data in zip(numbers, messages, strict=True) if decode_term_start(number, data)]
    assert found.tolist() == expected


@pytest.mark.parametrize(
    "start",
    [
        TermStart(0, 0, 1),
        TermStart(2**64, 0, 1),
        TermStart(1, -1, 1),
        TermStart(1, 5, 5),
        TermStart(1, 5, MAX_SEQUENCE + 1),
    ],
)
def test_encoding_an_impossible_start_is_refused(start: TermStart) -> None:
    with pytest.raises(UnencodableMessage):
        encode_term_start(start)
