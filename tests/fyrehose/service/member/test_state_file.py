"""State file of a member: pinned bytes, damage, power failures and locks."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zope.interface.verify import verifyObject

from fyrehose_twisted.consensus.messages import EntryKind, LogEntry, MemberId, Membership, Snapshot
from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.fyrehose.node.member.persistent_state import (
    EMPTY_GROUP,
    GroupState,
    MemberState,
    encode_group,
)
from fyrehose_twisted.fyrehose.service.member import state_file
from fyrehose_twisted.fyrehose.service.member.state_file import MemberStateFile, check_member_state
from fyrehose_twisted.fyrehose.wire.member_messages import MemberData, NumberBounds, Seam
from fyrehose_twisted.interfaces import IMemberStore

STREAM = "fyrehose://s"
BOOT, NEXT_BOOT = bytes(range(16)), bytes(16)
A, B = MemberId("a", 1), MemberId("b", 2)
DATA = MemberData(("192.0.2.1", 2_323), ("192.0.2.1", 2_324), False)
EMPTY = Snapshot(0, 0, encode_group(EMPTY_GROUP))
GROUP = Snapshot(9, 2, encode_group(GroupState(NumberBounds(7, 5), Membership(((A, DATA),)))))
ENTRIES = (
    LogEntry(1, EntryKind.MEMBERSHIP, Membership(((A, DATA),))),
    LogEntry(1, EntryKind.NO_OP, None),
    LogEntry(2, EntryKind.DATA, NumberBounds(4_096, 5, 6, True, (Seam(7, 9),))),
)
FIRST = MemberState(A, 0, None, 0, EMPTY, ())
SECOND = MemberState(A, 1, A, 1, EMPTY, ENTRIES[:2])
THIRD = SECOND._replace(term=2, voted_for=B, commit_index=2, entries=(ENTRIES[0], ENTRIES[2]))
COMPACTED = THIRD._replace(snapshot=GROUP, entries=())


def opened(path: Path, *, boot: bytes = BOOT, stream: str = STREAM, name: str = "a") -> MemberStateFile:
    return MemberStateFile(path, stream, name, read_boot_id=lambda: boot)


def written(path: Path, *states: MemberState) -> bytes:
    file = opened(path)
    for state in states:
        file.persist(state)
    file.close()
    return path.read_bytes()


def frame(text: str) -> bytes:
    body = bytes.fromhex(text)
    size = len(body).to_bytes(4, "little")
    return size + zlib.crc32(size).to_bytes(4, "little") + zlib.crc32(body).to_bytes(4, "little") + body


def ends_of_frames(content: bytes) -> list[int]:
    ends = [8]
    while ends[-1] < len(content):
        ends.append(ends[-1] + 12 + int.from_bytes(content[ends[-1] : ends[-1] + 4], "little"))
    return ends


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ticks.state.member"


def test_format(path: Path) -> None:
    entry = "83 01 01 81 82 82 6161 01 83 82 693139322e302e322e31 190913 82 693139322e302e322e31 190914 f4"
    data = "83 02 00 85 191000 05 06 f5 81 820709"
    empty = "83 00 00 47 86 00 00 00 f4 80 80"
    assert written(path, FIRST, SECOND, THIRD) == b"FYREMEM\x01" + b"".join(
        [
            frame(f"83 6c{STREAM.encode().hex()} 82 6161 01 50{BOOT.hex()}"),
            frame(f"86 00 f6 00 {empty} 00 80"),
            frame(f"86 01 82 6161 01 01 f6 00 82 {entry} 83 01 02 f6"),
            frame(f"86 02 82 6162 02 02 f6 01 81 {data}"),
        ]
    )


def test_interface(path: Path) -> None:
    file = opened(path)
    verifyObject(IMemberStore, file)
    file.close()
    file.close()


def test_new_member_has_no_state_and_no_file_until_it_persists_one(path: Path) -> None:
    file = opened(path)
    assert file.state is None
    assert not path.exists()
    file.close()


@pytest.mark.parametrize("states", [(FIRST,), (FIRST, SECOND), (FIRST, SECOND, THIRD), (FIRST, SECOND, COMPACTED)])
@pytest.mark.parametrize("boot", [BOOT, NEXT_BOOT])
def test_latest_state_is_read_back(path: Path, states: tuple[MemberState, ...], boot: bytes) -> None:
    written(path, *states)
    file = opened(path, boot=boot)
    assert (file.state, file.cut_off) == (states[-1], 0)
    file.persist(COMPACTED)
    file.close()
    again = opened(path, boot=boot)
    assert again.state == COMPACTED
    again.close()


NUMBERS = st.integers(0, 3)
KINDS = st.sampled_from(ENTRIES) | st.builds(
    LogEntry,
    NUMBERS,
    st.just(EntryKind.DATA),
    st.builds(NumberBounds, NUMBERS, NUMBERS, NUMBERS, st.booleans(), st.just(())),
)
STATES = st.builds(
    MemberState,
    st.just(A),
    NUMBERS,
    st.sampled_from([None, A, B]),
    NUMBERS,
    st.sampled_from([EMPTY, GROUP]),
    st.lists(KINDS, max_size=4).map(tuple),
)


@given(st.lists(STATES, min_size=1, max_size=6), st.data())
def test_state_before_a_torn_write_survives_a_power_failure(
    tmp_path_factory: pytest.TempPathFactory, states: list[MemberState], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("member") / "state"
    content = written(path, *states)
    ends = ends_of_frames(content)
    assert len(ends) == len(states) + 2
    start = ends[-2] if len(states) > 1 else ends[-1]
    torn = bytearray(content[start:])
    for offset in data.draw(st.lists(st.integers(0, len(torn) - 1), min_size=1)) if torn else ():
        torn[offset] ^= 255
    path.write_bytes(content[:start] + torn)
    file = opened(path, boot=NEXT_BOOT)
    assert file.state in (states[-1], states[max(0, len(states) - 2)])
    assert (file.state == states[-1]) or file.cut_off == len(torn)
    file.close()


@pytest.mark.parametrize("boot", [BOOT, NEXT_BOOT])
def test_write_that_the_end_of_the_process_cut_short_is_ignored(path: Path, boot: bytes) -> None:
    content = written(path, FIRST, SECOND)
    start = ends_of_frames(content)[-2]
    for end in range(start, len(content)):
        path.write_bytes(content[:end])
        file = opened(path, boot=boot)
        assert (file.state, file.cut_off) == (FIRST, end - start)
        file.close()
        assert ends_of_frames(path.read_bytes())[-1] == path.stat().st_size


def test_any_other_damage_is_refused_and_nothing_is_changed(path: Path) -> None:
    content = written(path, FIRST, SECOND, THIRD)
    last = ends_of_frames(content)[-2]
    for boot, end in ((NEXT_BOOT, last), (BOOT, len(content))):
        for offset in range(end):
            # A wrong length could make the last frame look cut short.
            if boot == BOOT and last <= offset < last + 8:
                continue
            damaged = bytearray(content)
            damaged[offset] ^= 255
            path.write_bytes(damaged)
            with pytest.raises(StateFileError, match="is not usable: it "):
                opened(path, boot=boot)
            assert path.read_bytes() == damaged


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not the state of a member"),
        (b"FYREMEM\x02", "of another version"),
        (b"FYREMEM\x01", "damaged"),
        (b"FYREMEM\x01" + frame("83 6c" + STREAM.encode().hex() + "82 6161 01 50" + BOOT.hex()), "it has no state"),
        (b"FYREMEM\x01" + frame("83 6c" + STREAM.encode().hex() + "82 6161 01 50" + BOOT.hex()) + frame("80"), "array"),
        (bytes(17 * 2**20), "more than 16,777,216 bytes"),
    ],
)
def test_file_with_other_content_is_refused_with_advice(path: Path, content: bytes, problem: str) -> None:
    path.write_bytes(content)
    for check in (lambda: opened(path), lambda: check_member_state(path, STREAM, "a", read_boot_id=lambda: BOOT)):
        with pytest.raises(StateFileError, match=problem) as caught:
            check()
        assert "do not restore an old copy" in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ([0, None, 0, None, 1, []], "1 entries are kept of 0"),
        ([0, None, 0, [5, 1, b"\xff"], 0, []], "snapshot of 1 bytes is damaged"),
        ([0, None, 0, [0, 1, ""], 0, []], "is not a byte string"),
        ([0, ["a"], 0, None, 0, []], "is not an array of 2"),
        ([0, None, -1, None, 0, []], "is not an integer"),
        ([0, None, 0, None, 0, [[1, 2, 3]]], "is not an entry"),
    ],
)
def test_frame_with_a_valid_checksum_and_wrong_content_is_refused(path: Path, changed: list[Any], problem: str) -> None:
    path.write_bytes(written(path, FIRST) + frame(cbor2.dumps(changed).hex()))
    with pytest.raises(StateFileError, match=problem):
        opened(path)


def test_file_of_another_stream_or_member_is_refused(path: Path) -> None:
    written(path, FIRST)
    with pytest.raises(StateFileError, match="it belongs to fyrehose://s, not to fyrehose://other"):
        opened(path, stream="fyrehose://other")
    with pytest.raises(StateFileError, match="it belongs to member a, not to b"):
        opened(path, name="b")


def test_file_in_use_is_refused(path: Path) -> None:
    file = opened(path)
    file.persist(FIRST)
    for other in (lambda: opened(path), lambda: check_member_state(path, STREAM, "a")):
        with pytest.raises(StateFileError, match="in use by another node"):
            other()
    file.close()
    check_member_state(path, STREAM, "a", read_boot_id=lambda: BOOT)
    opened(path).close()


def test_check_of_a_missing_file_creates_nothing(path: Path) -> None:
    check_member_state(path, STREAM, "a")
    assert list(path.parent.iterdir()) == []


def test_long_file_is_replaced_by_one_with_a_single_state(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_file, "MAX_APPENDED", 100)
    file = opened(path)
    sizes = []
    for term in range(20):
        file.persist(SECOND._replace(term=term))
        sizes.append(path.stat().st_size)
    file.close()
    first = sizes[0]
    assert first + 100 < max(sizes) < first + 200
    assert sum(size < before for before, size in pairwise(sizes)) == 3
    again = opened(path)
    assert again.state == SECOND._replace(term=19)
    again.close()


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of the files that were synced."""
    found: list[int] = []
    real: Callable[[int], None] = os.fdatasync

    def record(descriptor: int) -> None:
        real(descriptor)
        found.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, "fdatasync", record)
    return found


def test_each_state_is_synced(path: Path, syncs: list[int]) -> None:
    file = opened(path)
    for state in (FIRST, SECOND, THIRD, COMPACTED):
        file.persist(state)
        assert syncs[-1] == path.stat().st_size
    assert len(syncs) == 4
    file.close()


def test_failed_write_is_final(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = opened(path)
    file.persist(FIRST)

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fail)
        with pytest.raises(StateFileError, match="cannot be written: Input/output error"):
            file.persist(SECOND)
    assert file.state == FIRST
    with pytest.raises(StateFileError, match="could not be written before"):
        file.persist(SECOND)
    file.close()
