"""State of a member of a group of backbones in a file beside the state file of its backbone.

The file begins with 8 bytes, ``FYREMEM`` and version 1. Frames follow: the length of the body, the CRC-32 of these four
bytes, and that of the body, 4 bytes each, little-endian; and the body in CBOR. The first frame says whose state this
is, and under which boot of the machine the file was written:

    [stream, [name, incarnation], boot id]

Every other frame is a state, with the log entries that differ from those of the frame before:

    [term, [name, incarnation] or null, commit index, [index, term, data] or null, entries kept, entries]

The third-last field is the snapshot, ``null`` if it is unchanged. Each frame is synced before the member acts on it, so
a power failure can damage only the last frame, and that one was not acted on. Any other damage makes the file unusable:
a member that has forgotten a vote could vote twice.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
from zope.interface import implementer

from fyrehose_twisted.consensus.messages import LogEntry, Snapshot
from fyrehose_twisted.fyrehose.node.member.persistent_state import MemberState, decode_group
from fyrehose_twisted.fyrehose.wire.member_fields import (
    check_array,
    check_bytes,
    check_member,
    check_number,
    check_stream,
    pack_entry,
    unpack_entry,
)
from fyrehose_twisted.interfaces import IMemberStore
from fyrehose_twisted.process.boot_id import read_boot_id
from fyrehose_twisted.process.locked_file import LockedFile, unusable

MAGIC = b"FYREMEM\x01"
MAX_APPENDED = 65_536
"""Bytes of frames above which the file is replaced by one with a single state."""
MAX_SIZE = 16 * 2**20
"""Bytes of a file that is read; more than a member ever writes."""
ADVICE = (
    "; do not restore an old copy, which may have forgotten a vote. If the other members run, remove the file: this"
    " member then joins them as a new one"
)
_LENGTH = struct.Struct("<I")
_FRAME = struct.Struct("<III")


@implementer(IMemberStore)
class MemberStateFile:
    """Open, locked state file of a member.

    :param path: path of the file. A lock file, ``path`` with ``.lock`` appended, remains beside it.
    :param stream: URI of the stream.
    :param name: name of the member.
    :ivar state: the latest state; ``None`` for a new member.
    :ivar cut_off: bytes at the end of the file that a power failure had damaged.
    :raises StateFileError: if the file is in use, damaged, or of another member or stream.
    """

    def __init__(self, path: Path, stream: str, name: str, *, read_boot_id: Callable[[], bytes] = read_boot_id) -> None:
        self.path = path
        self.state: MemberState | None = None
        self.cut_off = 0
        self._stream, self._name = stream, name
        self._boot_id = read_boot_id()
        self._appended = 0
        self._file = LockedFile(path)
        try:
            content = self._file.read(MAX_SIZE + 1)
            if content is not None:
                self.state, self.cut_off = _parse(content, path, stream, name, self._boot_id)
                self._replace(self.state)
        except BaseException:
            self._file.close()
            raise

    def persist(self, state: MemberState) -> None:
        """Make a state survive the process and a power failure.

        :raises StateFileError: if that fails; then every later call fails, too.
        """
        before = self.state
        if before is None or before.member != state.member or self._appended > MAX_APPENDED:
            self._replace(state)
        else:
            frame = _frame(_pack(state, before))
            self._file.write(frame, sync=True)
            self._appended += len(frame)
        self.state = state

    def close(self) -> None:
        """Close the file and release its lock. Closing twice is harmless."""
        self._file.close()

    def _replace(self, state: MemberState) -> None:
        head = [self._stream, list(state.member), self._boot_id]
        self._file.replace(MAGIC + _frame(head) + _frame(_pack(state, None)))
        self._appended = 0


def check_member_state(path: Path, stream: str, name: str, *, read_boot_id: Callable[[], bytes] = read_boot_id) -> None:
    """Check an existing file without changes. Raises the errors of opening it."""
    if not path.exists():
        return
    file = LockedFile(path)
    try:
        _parse(file.read(MAX_SIZE + 1) or b"", path, stream, name, read_boot_id())
    finally:
        file.close()


def _frame(body: Any) -> bytes:
    data = cbor2.dumps(body)
    return _FRAME.pack(len(data), zlib.crc32(_LENGTH.pack(len(data))), zlib.crc32(data)) + data


def _pack(state: MemberState, before: MemberState | None) -> list[Any]:
    _, term, voted_for, commit_index, snapshot, entries = state
    same = before is not None and before.snapshot == snapshot
    kept = _common_prefix(before.entries, entries) if before is not None and same else 0
    vote = None if voted_for is None else list(voted_for)
    new = [pack_entry(entry) for entry in entries[kept:]]
    return [term, vote, commit_index, None if same else list(snapshot), kept, new]


def _common_prefix(old: tuple[LogEntry, ...], new: tuple[LogEntry, ...]) -> int:
    count = 0
    for one, other in zip(old, new, strict=False):
        if one is not other and one != other:
            break
        count += 1
    return count


def _parse(content: bytes, path: Path, stream: str, name: str, boot_id: bytes) -> tuple[MemberState, int]:
    """Return the state in a file, and how many bytes at its end a power failure has damaged."""
    if len(content) > MAX_SIZE:
        raise unusable(path, f"it has more than {MAX_SIZE:,} bytes", ADVICE)
    if not content.startswith(MAGIC):
        raise unusable(path, "it is not the state of a member, or is of another version", ADVICE)
    try:
        bodies, end = _bodies(content)
        (found, who, boot), *frames = bodies
        member = check_member(who)
        if check_stream(found) != stream:
            raise unusable(path, f"it belongs to {found}, not to {stream}")
        if member.name != name:
            raise unusable(path, f"it belongs to member {member.name}, not to {name}")
        # While the machine runs, a write can only be cut short, by the end of the process.
        if end < len(content) and not _may_be_torn(content[end:], same_boot=boot == boot_id):
            raise ValueError(f"the frame at byte {end} has a wrong checksum")
        state: MemberState | None = None
        for body in frames:
            state = _unpack(body, MemberState(member, 0, None, 0, Snapshot(0, 0, b""), ()) if state is None else state)
        if state is None:
            raise ValueError("it has no state")
        return state, len(content) - end
    except (cbor2.CBORDecodeError, ValueError, TypeError) as error:
        raise unusable(path, f"it is damaged ({error})", ADVICE) from error


def _bodies(content: bytes) -> tuple[list[Any], int]:
    """Return the contents of the frames, up to one that is damaged or cut short, and where that one starts."""
    bodies, at = [], len(MAGIC)
    while (stop := _end_of_frame(content, at)) is not None:
        bodies.append(cbor2.loads(content[at + _FRAME.size : stop]))
        at = stop
    return bodies, at


def _end_of_frame(content: bytes, at: int) -> int | None:
    """Return the end of the frame at a position; ``None`` if there is no whole and valid frame."""
    start = at + _FRAME.size
    if start > len(content):
        return None
    size, check, checksum = _FRAME.unpack_from(content, at)
    stop = start + int(size)
    valid = zlib.crc32(_LENGTH.pack(size)) == check and stop <= len(content)
    return stop if valid and zlib.crc32(content[start:stop]) == checksum else None


def _may_be_torn(rest: bytes, *, same_boot: bool) -> bool:
    """Return whether ``rest``, which begins with no valid frame, is one write that did not complete."""
    if same_boot:
        if len(rest) < _FRAME.size:
            return True
        size, check, _ = _FRAME.unpack_from(rest)
        return zlib.crc32(_LENGTH.pack(size)) == check and len(rest) < _FRAME.size + int(size)
    # A frame is synced before the next one is written: if one follows, this one was durable once.
    return all(_end_of_frame(rest, at) is None for at in range(1, len(rest)))


def _unpack(body: Any, before: MemberState) -> MemberState:
    term, vote, commit_index, snapshot, kept, entries = check_array(body, 6)
    if snapshot is None:
        taken = before.snapshot
    else:
        index, snapshot_term, data = check_array(snapshot, 3)
        taken = Snapshot(check_number(index), check_number(snapshot_term), check_bytes(data))
        if taken.index:
            decode_group(taken.data)
    if check_number(kept) > len(before.entries):
        raise ValueError(f"{kept} entries are kept of {len(before.entries)}")
    return MemberState(
        before.member,
        check_number(term),
        None if vote is None else check_member(vote),
        check_number(commit_index),
        taken,
        (*before.entries[:kept], *(unpack_entry(entry) for entry in check_array(entries))),
    )
