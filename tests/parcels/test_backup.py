"""File format of a backup."""

from __future__ import annotations

from contextlib import suppress
from io import BytesIO

import pytest
from cbor2 import dumps
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.parcels.backup import BackupHead, BackupReader, BackupWriter, unpack_events, unpack_head
from fyrehose_twisted.parcels.wire.messages import Event

HEAD = BackupHead("trades", "00c0ffee00c0ffee", b"numbering", 3, 5, 4, b"state")
EVENTS = [Event(number, "p", 1, number, b"%d" % number) for number in (3, 4, 5)]


def written(head: BackupHead, *batches: list[Event], end: bool = True) -> bytes:
    file = BytesIO()
    writer = BackupWriter(file, head)
    for batch in batches:
        writer.write(batch)
    if end:
        writer.end()
    return file.getvalue()


def read(data: bytes) -> tuple[BackupHead, list[Event]]:
    reader = BackupReader(BytesIO(data))
    return reader.head, [event for events in reader.events() for event in events]


@given(
    st.binary(max_size=20),
    st.none() | st.binary(max_size=20),
    st.lists(st.tuples(st.text(max_size=9), st.integers(0, 2**63), st.integers(0, 2**63), st.binary(max_size=20))),
    st.integers(1, 5),
)
def test_backup_is_read_as_it_was_written(
    numbering: bytes, state: bytes | None, rows: list[tuple[str, int, int, bytes]], size: int
) -> None:
    events = [Event(number, *row) for number, row in enumerate(rows, 7)]
    head = BackupHead("x", "", numbering, 7, 6 + len(events), 0, state)
    batches = [events[start : start + size] for start in range(0, len(events), size)]
    assert read(written(head, *batches)) == (head, events)


@pytest.mark.parametrize("size", range(1, len(written(HEAD, EVENTS[:2], EVENTS[2:]))))
def test_backup_that_was_cut_off_is_refused(size: int) -> None:
    with pytest.raises(StateFileError):
        read(written(HEAD, EVENTS[:2], EVENTS[2:])[:size])


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (dumps("no backup"), "the file cannot be restored: it is no backup, or one of a later version"),
        (dumps(["fyrehose parcels backup 2", *HEAD]), "it is no backup, or one of a later version"),
        (written(HEAD, EVENTS[:2]), "the backup has 2 events, and should have events 3 to 5"),
        (written(HEAD, EVENTS[1:]), "the backup has event 4 instead of 3"),
        (written(HEAD, EVENTS[:1], EVENTS), "the backup has event 3 instead of 4"),
        (written(HEAD, EVENTS, end=False) + dumps(7), "the backup has 3 events, and should have events 3 to 5"),
        (written(HEAD, end=False) + dumps("x"), "the backup is damaged after event 2: events of an unknown format"),
        (written(HEAD, end=False) + dumps([[3, "p", 1, 1]]), "damaged after event 2: events of an unknown format"),
    ],
)
def test_damaged_backup_is_refused(data: bytes, complaint: str) -> None:
    with pytest.raises(StateFileError, match=complaint):
        read(data)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_read(data: bytes) -> None:
    for unpack in (unpack_head, unpack_events):
        with suppress(ValueError):
            unpack(data)  # type: ignore[operator]
