from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.consensus.messages import EntryKind, LogEntry, MemberId, Membership, Snapshot
from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.parcels.node.persistent_state import PersistentState, StateChange
from fyrehose_twisted.parcels.service import state_file as module
from fyrehose_twisted.parcels.service.state_file import MAGIC, StateFile
from fyrehose_twisted.parcels.wire.messages import PublisherRun

IVAN, BORIS = MemberId("Ivan", 2**63 - 1), MemberId("Boris", 2)
VIEW = Membership(((BORIS, ("10.0.0.2", 1)), (IVAN, ("::1", 65_535))))
ENTRIES = [
    LogEntry(1, EntryKind.MEMBERSHIP, VIEW),
    LogEntry(2, EntryKind.NO_OP, None),
    LogEntry(2, EntryKind.DATA, (PublisherRun("ä", 3, 4, [b"a", b""]), PublisherRun("q", 0, 1, [b"\x00"]))),
]


def boot() -> bytes:
    return b"first boot......"


def other_boot() -> bytes:
    return b"second boot....."


def open_file(path: Path, boot_id: Callable[[], bytes] = boot, *, sync: bool = False) -> StateFile:
    return StateFile(path, sync=sync, boot_id=boot_id)


def made(path: Path, *changes: StateChange, sync: bool = False) -> None:
    promises = open_file(path, sync=sync)
    promises.record_start(IVAN)
    for change in changes:
        promises.persist(change)
    promises.close()


def held(promises: PersistentState) -> tuple[Any, ...]:
    entries = [
        entry._replace(content=tuple(run._replace(events=list(run.events)) for run in entry.content))
        if entry.kind is EntryKind.DATA
        else entry
        for entry in promises.entries
    ]
    return promises.term, promises.voted_for, promises.cluster_id, promises.commit_index, promises.snapshot, entries


CHANGES = (
    StateChange(1, None, 9, 0, Snapshot(1, 0, b"bootstrapped"), 0, ()),
    StateChange(2, BORIS, 9, 1, None, 2, ENTRIES[:2]),
    StateChange(3, IVAN, 9, 2, None, 4, ENTRIES[2:]),
)
EXPECTED = (3, IVAN, 9, 2, Snapshot(1, 0, b"bootstrapped"), ENTRIES)


def test_state_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "promises"
    made(path, *CHANGES)
    promises = open_file(path)
    assert (promises.member, promises.starts, promises.lost_to_power_failure) == (IVAN, 1, False)
    assert held(promises) == EXPECTED
    promises.record_start(IVAN)
    promises.persist(StateChange(4, None, 9, 3, None, 0, ()))
    promises.close()
    promises = open_file(path)
    assert promises.starts == 2
    assert held(promises) == (4, None, 9, 3, *EXPECTED[4:])
    promises.close()


def test_new_state_file_is_empty_and_private(tmp_path: Path) -> None:
    promises = open_file(tmp_path / "promises")
    assert (promises.member, promises.starts, promises.lost_to_power_failure) == (None, 0, False)
    assert not (tmp_path / "promises").exists()
    promises.record_start(IVAN)
    promises.close()
    promises.close()
    assert (tmp_path / "promises").read_bytes().startswith(MAGIC)
    assert (tmp_path / "promises").stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["promises", "promises.lock"]


def test_empty_state_file_counts_as_new(tmp_path: Path) -> None:
    (tmp_path / "promises").touch()
    promises = open_file(tmp_path / "promises")
    assert promises.member is None
    promises.close()


def test_interrupted_write_is_discarded(tmp_path: Path) -> None:
    path = tmp_path / "promises"
    made(path, *CHANGES[:2])
    before = path.stat().st_size
    made_of_two = open_file(path)
    expected = held(made_of_two)
    made_of_two.close()
    path.unlink()
    made(path, *CHANGES)
    data = path.read_bytes()
    assert len(data) > before + 50
    for size in range(before, len(data)):
        path.write_bytes(data[:size])
        promises = open_file(path)
        assert (held(promises), promises.member, promises.lost_to_power_failure) == (expected, IVAN, False), size
        if size % 10 == 0:
            # Records appended after the torn one are kept.
            promises.record_start(IVAN)
            promises.persist(CHANGES[2])
            promises.close()
            promises = open_file(path)
            assert held(promises) == EXPECTED
        promises.close()


def test_damaged_state_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "promises"
    made(path, *CHANGES)
    data = path.read_bytes()
    starts, at = [], len(MAGIC)
    while at < len(data):
        starts.append(at)
        at += 12 + struct.unpack_from("<I", data, at)[0]
    assert len(starts) == 4  # Identity, state and two changes.
    damaged = [*range(len(MAGIC)), *(byte for start in starts for byte in range(start, start + 16))]
    for place in (*damaged, len(data) - 1, starts[1] + 20, starts[2] + 20):
        path.write_bytes(data[:place] + bytes((data[place] ^ 0x10,)) + data[place + 1 :])
        with pytest.raises(StateFileError):
            open_file(path)
    path.write_bytes(data)
    open_file(path).close()  # The lock was released.


def test_damaged_record_length_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "promises"
    made(path, *CHANGES)
    data = bytearray(path.read_bytes())
    first = len(MAGIC)
    second = first + 8 + struct.unpack_from("<I", data, first)[0]
    data[second + 2] ^= 0x10
    path.write_bytes(data)
    with pytest.raises(StateFileError):
        open_file(path).close()


@pytest.mark.parametrize(
    "body",
    [
        [1, None, 0, 0, None, 0],
        [1, None, 0, 0, None, 0, [], 1],
        [1, ["Ivan"], 0, 0, None, 0, []],
        [1, None, 0, 0, [1], 0, []],
        [1, None, 0, 0, None, 5, []],
        [1, None, 0, 0, None, 1, [[1, 9, None]]],
        [1, None, 0, 0, None, 1, [[1, 1, [["Ivan"]]]]],
        [1, None, 0, 0, None, 1, [[1, 0, [["p"]]]]],
        {"a": 1},
        7,
    ],
)
def test_record_that_is_no_state_change_is_refused(tmp_path: Path, body: object) -> None:
    path = tmp_path / "promises"
    made(path)
    data = cbor2.dumps(body)
    with path.open("ab") as file:
        length = struct.pack("<I", len(data))
        file.write(length + struct.pack("<II", zlib.crc32(length), zlib.crc32(data)) + data)
    with pytest.raises(StateFileError, match="damaged"):
        open_file(path)


def test_file_of_another_format_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "promises"
    path.write_text("a letter to somebody")
    with pytest.raises(StateFileError, match="is not a state file"):
        open_file(path)
    assert path.read_text() == "a letter to somebody"


def test_unsynced_state_is_discarded_after_a_power_failure(tmp_path: Path) -> None:
    path = tmp_path / "promises"
    made(path, *CHANGES)
    promises = open_file(path, other_boot)
    assert promises.lost_to_power_failure
    assert (promises.member, promises.starts, promises.snapshot, promises.entries) == (None, 0, None, [])
    promises.record_start(BORIS)
    promises.close()
    promises = open_file(path, other_boot)
    assert not promises.lost_to_power_failure
    assert promises.member == BORIS
    promises.close()


def test_synced_state_survives_a_power_failure(tmp_path: Path) -> None:
    path = tmp_path / "promises"
    made(path, *CHANGES, sync=True)
    promises = open_file(path, other_boot)
    assert not promises.lost_to_power_failure
    assert promises.member == IVAN
    assert held(promises) == EXPECTED
    # From here on, changes are not synced.
    promises.record_start(IVAN)
    promises.close()
    promises = open_file(path)
    assert promises.lost_to_power_failure
    promises.close()


def test_each_change_is_synced_before_persist_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    for name in ("write", "fdatasync", "fsync", "rename"):
        original = getattr(os, name)

        def call(*arguments: Any, name: str = name, original: Any = original) -> Any:
            done.append(name)
            return original(*arguments)

        monkeypatch.setattr(os, name, call)
    promises = open_file(tmp_path / "promises", sync=True)
    promises.record_start(IVAN)
    assert done == ["write", "fdatasync", "rename", "fsync"]
    done.clear()
    promises.persist(CHANGES[0])
    assert done == ["write", "fdatasync", "rename", "fsync"]
    done.clear()
    promises.persist(CHANGES[1])
    assert done == ["write", "fdatasync"]
    promises.close()


def test_state_file_in_use_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "promises"
    promises = open_file(path)
    with pytest.raises(StateFileError, match="in use"):
        open_file(path)
    promises.record_start(IVAN)
    promises.persist(CHANGES[0])
    with pytest.raises(StateFileError, match="in use"):
        open_file(path)
    promises.close()
    open_file(path).close()


def test_unreadable_or_unwritable_state_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StateFileError, match="cannot be locked"):
        open_file(tmp_path / "missing" / "promises")
    (tmp_path / "directory").mkdir()
    with pytest.raises(StateFileError, match="cannot be read"):
        open_file(tmp_path / "directory")
    with pytest.raises(StateFileError, match="cannot be read"):
        open_file(tmp_path / "directory")  # The error is not "in use".
    promises = open_file(tmp_path / "promises")
    (tmp_path / "promises.new").mkdir()
    with pytest.raises(StateFileError, match="cannot be written"):
        promises.record_start(IVAN)
    promises.close()


def test_full_disk_leaves_the_previous_state_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "promises"
    promises = open_file(path)
    promises.record_start(IVAN)
    promises.persist(CHANGES[0])
    promises.persist(CHANGES[1])
    expected = held(promises)
    size = path.stat().st_size
    real = os.write

    def write(file: int, data: Any) -> int:
        if path.stat().st_size >= size + 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, bytes(data)[:10])

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(StateFileError, match="No space"):
        promises.persist(CHANGES[2])
    monkeypatch.undo()
    # After a failed write every later one fails, since it would follow a gap.
    with pytest.raises(StateFileError):
        promises.persist(StateChange(9, None, 9, 9, None, 0, ()))
    promises.close()
    assert path.stat().st_size == size + 10
    promises = open_file(path)
    assert held(promises) == expected
    promises.close()


def test_full_disk_during_the_replacement_keeps_the_old_state_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "promises"
    promises = open_file(path)
    promises.record_start(IVAN)
    promises.persist(CHANGES[0])
    before = path.read_bytes()

    def write(file: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(StateFileError, match="No space"):
        promises.persist(StateChange(9, None, 9, 9, Snapshot(50, 9, b"state"), 0, ()))
    monkeypatch.undo()
    with pytest.raises(StateFileError):
        promises.persist(CHANGES[1])
    promises.close()
    assert path.read_bytes() == before


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, bytes(data)[:7]))
    made(tmp_path / "promises", *CHANGES)
    promises = open_file(tmp_path / "promises")
    assert held(promises) == EXPECTED
    promises.close()


def test_snapshot_replaces_the_state_file(tmp_path: Path) -> None:
    path = tmp_path / "promises"
    promises = open_file(path)
    promises.record_start(IVAN)
    promises.persist(CHANGES[0])
    for _ in range(100):
        promises.persist(
            StateChange(
                2, None, 9, 0, None, 2, [LogEntry(2, EntryKind.DATA, (PublisherRun("p", 0, 1, [bytes(1_000)]),))]
            )
        )
    assert path.stat().st_size > 100_000
    promises.persist(StateChange(3, BORIS, 9, 7, Snapshot(7, 2, b"state"), 8, ENTRIES[2:]))
    assert path.stat().st_size < 1_000
    promises.persist(StateChange(4, BORIS, 9, 8, None, 9, ENTRIES[:1]))
    promises.close()
    promises = open_file(path)
    assert held(promises) == (4, BORIS, 9, 8, Snapshot(7, 2, b"state"), [ENTRIES[2], ENTRIES[0]])
    assert promises.snapshot_index == 7
    promises.close()


NAMES = st.text(min_size=1, max_size=10)
NUMBERS = st.integers(0, 2**63 - 1)
MEMBERS = st.builds(MemberId, NAMES, NUMBERS)
ANY_ENTRY = st.one_of(
    st.builds(LogEntry, NUMBERS, st.just(EntryKind.NO_OP), st.none()),
    st.builds(
        LogEntry,
        NUMBERS,
        st.just(EntryKind.MEMBERSHIP),
        st.lists(st.tuples(MEMBERS, st.tuples(st.just("::1"), st.integers(0, 65_535))), max_size=3).map(
            lambda members: Membership(tuple(members))
        ),
    ),
    st.builds(
        LogEntry,
        NUMBERS,
        st.just(EntryKind.DATA),
        st.lists(
            st.builds(
                PublisherRun,
                *(NAMES, NUMBERS, NUMBERS, st.lists(st.binary(max_size=9), max_size=3)),
                st.none() | NUMBERS,
            ),
            max_size=3,
        ).map(tuple),
    ),
)


@given(
    st.builds(
        StateChange,
        NUMBERS,
        st.none() | MEMBERS,
        NUMBERS,
        NUMBERS,
        st.none() | st.builds(Snapshot, NUMBERS, NUMBERS, st.binary(max_size=50)),
        NUMBERS,
        st.lists(ANY_ENTRY, max_size=4),
    )
)
def test_state_change_survives_packing(change: StateChange) -> None:
    assert module._unpack(cbor2.loads(cbor2.dumps(module._pack(change)))) == change


def test_format_is_a_magic_and_frames_with_checksums(tmp_path: Path) -> None:
    path = tmp_path / "promises"
    member = MemberId("i", 1)
    with closing(open_file(path, lambda: b"1" * 16)) as promises:
        promises.record_start(member)
        entry = LogEntry(2, EntryKind.DATA, (PublisherRun("q", 0, 1, [b"\x00"]),))
        promises.persist(StateChange(2, member, 3, 0, None, 1, [entry]))
    assert path.read_bytes().hex() == (
        "50415243454c5301"
        "170000003ab08aec28e8b2ed85616901015031313131313131313131313131313131f4"
        "08000000f3f7f0e4ec25e6a38700f60000f60080"
        "170000003ab08aec5473e08b8702826169010300f60181830200818461710001814100"
    )
