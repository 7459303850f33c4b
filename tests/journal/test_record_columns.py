from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fyrehose_twisted.journal.record_columns import RecordBuffer, RecordColumns
from fyrehose_twisted.record import Record

payloads = st.lists(st.binary(max_size=2), min_size=1, max_size=5)
steps = st.lists(
    st.tuples(st.sampled_from(["put", "extend", "extend after a gap", "remove"]), st.integers(0, 9), payloads),
    max_size=8,
)
COLUMNS = RecordColumns("fyrehose://test", 3, range(5, 8), [50, 60, 70], [b"five", b"six", b"seven"])
RECORDS = [
    Record("fyrehose://test", 3, 5, 50, b"five"),
    Record("fyrehose://test", 3, 6, 60, b"six"),
    Record("fyrehose://test", 3, 7, 70, b"seven"),
]


@given(steps)
@example([("put", 0, [b"a", b"b"]), ("extend", 0, [b"c"])])
@example([("put", 1, [b"a", b"b"]), ("put", 2, [b"c"])])
def test_a_buffer_holds_what_a_dict_holds(what: list[tuple[str, int, list[bytes]]]) -> None:
    buffer, reference = RecordBuffer(), dict[int, tuple[int, bytes]]()
    for now, (name, number, data) in enumerate(what):
        if name == "remove":
            if number in reference:
                del buffer.by_position[number], reference[number]
            continue
        following = max(reference, default=number - 1) + 1
        first = {"put": number, "extend": following}.get(name, following + 2)
        numbers, times = range(first, first + len(data)), [now] * len(data)
        if name == "put":
            buffer.put(numbers, times, data)
        elif now % 2:
            buffer.extend(numbers, times, data)
        else:
            buffer.extend(tuple(numbers), times, data)
        reference.update(zip(numbers, zip(times, data, strict=True), strict=True))
        assert [buffer.find(position) for position in range(70)] == [reference.get(each) for each in range(70)]
        assert bool(buffer) == bool(reference)
        assert list(buffer.positions) == list(reference)
        assert list(zip(*buffer.columns(), strict=True)) == [(each, *kept) for each, kept in reference.items()]
        expected = [(each, *kept) for each, kept in sorted(reference.items())]
        assert list(zip(*buffer.sorted_columns(), strict=True)) == expected


def test_an_empty_buffer_has_empty_columns() -> None:
    buffer = RecordBuffer()
    for _ in range(2):
        assert not buffer
        assert buffer.find(0) is None
        assert [list(column) for column in buffer.columns()] == [list(column) for column in buffer.sorted_columns()]
        assert [list(column) for column in buffer.columns()] == [[], [], []]
        assert buffer.by_position == {}


def test_consecutive_records_stay_a_range() -> None:
    buffer = RecordBuffer()
    buffer.put(range(2), (1, 1), (b"a", b"b"))
    buffer.extend(range(2, 3), (2,), (b"c",))
    assert buffer.columns()[0] == range(3)


def test_record_columns_are_the_sequence_of_their_records() -> None:
    assert list(COLUMNS) == RECORDS
    assert (len(COLUMNS), COLUMNS[0], COLUMNS[-1]) == (3, RECORDS[0], RECORDS[-1])
    assert COLUMNS[1:] == RECORDS[1:]
    assert isinstance(COLUMNS[1:], RecordColumns)
    assert RECORDS[1] in COLUMNS
    assert repr(COLUMNS) == repr(RECORDS)


def test_record_columns_equal_sequences_of_equal_records() -> None:
    assert COLUMNS == RECORDS
    assert RECORDS == COLUMNS
    assert RECORDS[1:] != COLUMNS
    assert RecordColumns("fyrehose://test", 4, range(5, 8), [50, 60, 70], COLUMNS.payloads) != COLUMNS
    assert COLUMNS != 3


def test_record_columns_of_different_lengths_are_rejected() -> None:
    with pytest.raises(ValueError, match="columns of 1, 0 and 1 values are no records"):
        RecordColumns("fyrehose://test", 0, [1], [], [b""])
