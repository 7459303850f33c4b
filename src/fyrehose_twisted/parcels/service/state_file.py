"""Durable state of a node in a file.

The file begins with 8 bytes, ``PARCELS`` and version 1. Frames follow: the length of the body, the CRC-32 of these four
bytes, and that of the body, 4 bytes each, little-endian; and the body in CBOR. The first frame says whose promises
these are, and under which boot of the machine they were made; every other one is a
:class:`~fyrehose_twisted.parcels.node.persistent_state.StateChange`. A change that has a state replaces the file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cbor2 import CBORDecodeError, dumps, loads

from fyrehose_twisted.consensus.messages import EntryKind, LogEntry, MemberId, Membership, Snapshot
from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.parcels.node.persistent_state import PersistentState, StateChange
from fyrehose_twisted.parcels.wire.messages import PublisherRun
from fyrehose_twisted.process.boot_id import read_boot_id
from fyrehose_twisted.process.locked_file import LockedFile

MAGIC = b"PARCELS\x01"
_LENGTH = struct.Struct("<I")
_FRAME = struct.Struct("<III")


class StateFile(PersistentState):
    """Persistent state that survives the process, and with ``sync`` also power failures.

    :param path: path of the file. A lock file, ``path`` with ``.lock`` appended, remains beside it.
    :param sync: make each change survive a power failure. Without that, a node that starts after one has forgotten its
        promises, and is a new member.
    :ivar lost_to_power_failure: whether a power failure made the stored state unusable.
    :raises StateFileError: if the file is in use, damaged, or cannot be read or written.
    """

    def __init__(self, path: Path, *, sync: bool = False, boot_id: Callable[[], bytes] = read_boot_id) -> None:
        super().__init__()
        self.path = path
        self.lost_to_power_failure = False
        self._sync = sync
        self._boot_id = boot_id()
        self._file = LockedFile(path)
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def record_start(self, member: MemberId) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.persistent_state.PersistentState`.

        :raises StateFileError: if the file cannot be written.
        """
        super().record_start(member)
        self._replace()

    def persist(self, change: StateChange) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.persistent_state.PersistentState`.

        :raises StateFileError: if that fails; then every later call fails, too.
        """
        self._file.check_writable()
        self.apply(change)
        if change.snapshot is None:
            self._file.write(_frame(_pack(change)), sync=self._sync)
        else:
            self._replace()

    def close(self) -> None:
        """Close the file and release its lock. Closing twice is harmless."""
        self._file.close()

    def _read(self) -> None:
        data = self._file.read()
        if data is None:
            return
        if not data.strip(b"\0"):
            # After a power failure, unsynced data may have its length but not its content.
            self.lost_to_power_failure = bool(data)
            return
        if not data.startswith(MAGIC):
            raise StateFileError(f"{self.path} is not a state file of a parcels node, or is of another version")
        try:
            bodies = _bodies(data[len(MAGIC) :])
            name, incarnation, starts, boot, synced = next(bodies)
            if boot != self._boot_id and not synced:
                self.lost_to_power_failure = True
                return
            self.member, self.starts = MemberId(name, incarnation), starts
            for body in bodies:
                self.apply(_unpack(body))
        except (CBORDecodeError, ValueError, TypeError, IndexError, StopIteration) as error:
            raise StateFileError(
                f"state file {self.path} is damaged ({error}); without it, the node starts as a new member"
            ) from error

    def _replace(self) -> None:
        """Write the whole state to a new file and replace the old one."""
        member = self.member
        assert member is not None, "begin() comes first"
        first = self.snapshot_index + 1 if self.entries else 0
        change = StateChange(
            self.term, self.voted_for, self.cluster_id, self.commit_index, self.snapshot, first, self.entries
        )
        head = [member.name, member.incarnation, self.starts, self._boot_id, self._sync]
        self._file.replace(MAGIC + _frame(head) + _frame(_pack(change)), sync=self._sync)


def _frame(body: Any) -> bytes:
    data = dumps(body)
    return _FRAME.pack(len(data), zlib.crc32(_LENGTH.pack(len(data))), zlib.crc32(data)) + data


def _bodies(data: bytes) -> Iterator[Any]:
    """Yield the contents of frames. A truncated last frame is ignored, because it was never acknowledged."""
    at = 0
    while at + _FRAME.size <= len(data):
        size, check, checksum = _FRAME.unpack_from(data, at)
        if zlib.crc32(_LENGTH.pack(size)) != check:
            raise ValueError(f"the length at byte {at} has a wrong checksum")
        start, at = at + _FRAME.size, at + _FRAME.size + size
        if at > len(data):
            return
        body = data[start:at]
        if zlib.crc32(body) != checksum:
            raise ValueError(f"the frame at byte {start} has a wrong checksum")
        yield loads(body)


def _pack(change: StateChange) -> list[Any]:
    state = None if change.snapshot is None else list(change.snapshot)
    entries = [_pack_entry(entry) for entry in change.entries]
    vote = None if change.voted_for is None else list(change.voted_for)
    return [change.term, vote, change.cluster_id, change.commit_index, state, change.first_index, entries]


def _unpack(body: Any) -> StateChange:
    term, vote, cluster_id, commit, state, first, entries = body
    return StateChange(
        term,
        None if vote is None else MemberId(*vote),
        cluster_id,
        commit,
        None if state is None else Snapshot(*state),
        first,
        [_unpack_entry(*entry) for entry in entries],
    )


def _pack_entry(entry: LogEntry) -> list[Any]:
    content = entry.content
    if content is None:
        return [entry.term, int(entry.kind), None]
    if isinstance(content, Membership):
        return [entry.term, int(entry.kind), [[*member, *address] for member, address in content.members]]
    return [entry.term, int(entry.kind), [_pack_run(run) for run in content]]


def _pack_run(run: PublisherRun) -> list[Any]:
    packed = [*run[:3], list(run.events)]
    return packed if run.expect is None else [*packed, run.expect]


def _unpack_entry(term: int, kind: int, content: Any) -> LogEntry:
    kind = EntryKind(kind)
    if kind is EntryKind.NO_OP:
        return LogEntry(term, kind, None)
    if kind is EntryKind.MEMBERSHIP:
        members = ((MemberId(name, incarnation), (host, port)) for name, incarnation, host, port in content)
        return LogEntry(term, kind, Membership(tuple(members)))
    return LogEntry(term, kind, tuple(PublisherRun(*run) for run in content))
