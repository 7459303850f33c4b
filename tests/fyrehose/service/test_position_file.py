from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.fyrehose.service import position_file
from fyrehose_twisted.fyrehose.service.position_file import (
    PositionFile,
    SubscriberPosition,
    _decode,
    _encode,
    runs_before,
)
from fyrehose_twisted.repeats import EnvelopeRun
from fyrehose_twisted.sealing.replay import TableState, WindowState

numbers = st.integers(0, 2**64 - 1)
runs = st.lists(st.builds(EnvelopeRun, numbers, numbers, numbers, numbers), max_size=5).map(tuple)
windows = st.builds(
    WindowState,
    st.binary(min_size=16, max_size=16),
    numbers,
    numbers,
    st.lists(st.tuples(numbers, numbers), max_size=3).map(tuple),
)
tables = st.builds(
    TableState, st.text(max_size=60), st.integers(-1, 2**63 - 1), st.lists(windows, max_size=3).map(tuple)
)
checksums = st.none() | st.integers(0, 2**32 - 1)
places = st.builds(SubscriberPosition, st.integers(1, 2**48), checksums, runs, st.lists(tables, max_size=2).map(tuple))

PATH = Path("state")


@given(places)
def test_a_position_file_round_trips_and_any_truncation_is_an_error(place: SubscriberPosition) -> None:
    content = _encode(place)
    assert _decode(PATH, content) == place
    for size in range(1, len(content)):
        with pytest.raises(StateFileError):
            _decode(PATH, content[:size])


@given(places, st.data())
def test_any_damaged_byte_of_a_position_file_is_an_error(place: SubscriberPosition, data: st.DataObject) -> None:
    content = bytearray(_encode(place))
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(StateFileError, match="not usable"):
        _decode(PATH, bytes(content))


def test_a_position_file_replaced_while_it_is_opened_is_reopened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    with closing(PositionFile(path)) as file:
        file.write(SubscriberPosition(1))
    original = position_file.lock

    def late_lock(*arguments: Any) -> None:
        monkeypatch.setattr(position_file, "lock", original)
        with closing(PositionFile(path)) as other:
            other.write(SubscriberPosition(2))
        original(*arguments)

    monkeypatch.setattr(position_file, "lock", late_lock)
    with closing(PositionFile(path)) as file:
        assert file.position == SubscriberPosition(2)


def test_two_subscribers_starting_at_once_create_one_position_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, opened = tmp_path / "state", os.open

    def late_open(name: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            os.close(opened(path, os.O_CREAT | os.O_WRONLY, mode))
        return opened(name, flags, mode)

    monkeypatch.setattr(os, "open", late_open)
    with closing(PositionFile(path)) as file:
        assert file.position is None


@given(st.binary(max_size=200))
def test_a_position_file_of_another_kind_is_refused(content: bytes) -> None:
    if content:
        with pytest.raises(StateFileError):
            _decode(PATH, content)


def test_a_position_is_written_read_back_and_locked(tmp_path: Path) -> None:
    path = tmp_path / "state"
    file = PositionFile(path)
    assert file.position is None
    for place in (SubscriberPosition(7, 1, (EnvelopeRun(1, 2, 3, 4),)), SubscriberPosition(8)):
        file.write(place)
        with pytest.raises(StateFileError, match="in use"):
            PositionFile(path)
    file.close()
    again = PositionFile(path)
    assert again.position == SubscriberPosition(8)
    again.close()
    assert [one.name for one in tmp_path.iterdir()] == ["state"]


def test_a_failed_write_leaves_the_position_file_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    file = PositionFile(path)
    file.write(SubscriberPosition(7))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(StateFileError, match="cannot be written: No space left"):
            file.write(SubscriberPosition(9))
    file.close()
    again = PositionFile(path)
    assert again.position == SubscriberPosition(7)
    again.close()
    assert [one.name for one in tmp_path.iterdir()] == ["state"]


def test_a_position_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateFileError, match="cannot be opened: No such file"):
        PositionFile(tmp_path / "nowhere" / "state")
    with pytest.raises(StateFileError, match="cannot be opened: Is a directory"):
        PositionFile(tmp_path)


def test_envelope_runs_are_cut_before_the_position() -> None:
    assert runs_before([EnvelopeRun(1, 9, 0, 3), EnvelopeRun(4, 9, 7, 5), EnvelopeRun(9, 9, 20, 1)], 6) == (
        EnvelopeRun(1, 9, 0, 3),
        EnvelopeRun(4, 9, 7, 2),
    )


def test_format_of_a_position() -> None:
    place = SubscriberPosition(7, 1, (EnvelopeRun(1, 2, 3, 4),))
    header = "46595245504c430107000000000000000100000001000000"
    runs = "".join(f"0{number}" + "00" * 7 for number in (1, 2, 3, 4))
    assert _encode(place).hex() == header + runs + "5becaf5f"
