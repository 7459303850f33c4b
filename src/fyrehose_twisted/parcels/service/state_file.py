"""Promises in a file.

The file begins with 8 bytes, ``PARCELS`` and version 1. Frames follow: the length of the body, the CRC-32 of these four
bytes, and that of the body, 4 bytes each, little-endian; and the body in CBOR. The first frame says whose promises
these are, and under which boot of the machine they were made; every other one is a
:class:`~fyrehose_twisted.parcels.node.persistent_state.Change`. A change that has a state replaces the file.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cbor2 import CBORDecodeError, dumps, loads

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.parcels.node.persistent_state import Change, Promises, State
from fyrehose_twisted.parcels.wire.messages import Entry, EntryKind, Member, Run, View
from fyrehose_twisted.process.boot_id import read_boot_id

MAGIC = b"PARCELS\x01"
_LENGTH = struct.Struct("<I")
_FRAME = struct.Struct("<III")


class PromiseFile(Promises):
    """Promises that outlive the process; and the machine, where they are synced.

    :param path: of the file; ``path`` and ``.lock`` is there too while it is open, and ``.new`` while it is replaced.
    :param sync: make each change survive a power failure. Without that, a node that starts after one has forgotten its
        promises, and is somebody new.
    :ivar forgot: whether promises were found that a power failure made worthless.
    :raises StateFileError: if it is in use, damaged, or cannot be read or written.
    """

    def __init__(self, path: Path, *, sync: bool = False, boot_id: Callable[[], bytes] = read_boot_id) -> None:
        super().__init__()
        self.path = path
        self.forgot = False
        self._sync = sync
        self._boot = boot_id()
        self._broken = False
        self._file = -1
        try:
            self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._failed("cannot be locked", error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise StateFileError(f"promises {path} are in use by another node") from error
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def begin(self, member: Member) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.persistent_state.Promises`.

        :raises StateFileError: if it cannot be written.
        """
        super().begin(member)
        self._replace()

    def keep(self, change: Change) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.persistent_state.Promises`.

        :raises StateFileError: if that failed; then nothing more can be kept.
        """
        if self._broken:
            raise StateFileError(f"promises {self.path} could not be written before")
        self.take(change)
        if change.state is not None:
            self._replace()
            return
        try:
            _write(self._file, _frame(_pack(change)))
            if self._sync:
                os.fdatasync(self._file)
        except OSError as error:
            raise self._failed("cannot be written", error) from error

    def close(self) -> None:
        """Let go of it. Closing twice is harmless."""
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    def _read(self) -> None:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._failed("cannot be read", error) from error
        if not data.strip(b"\0"):
            # What was not synced before power failed may be there in length only.
            self.forgot = bool(data)
            return
        if not data.startswith(MAGIC):
            raise StateFileError(f"{self.path} holds no promises of a parcels node, or those of another version")
        try:
            bodies = _bodies(data[len(MAGIC) :])
            name, incarnation, starts, boot, synced = next(bodies)
            if boot != self._boot and not synced:
                self.forgot = True
                return
            self.member, self.starts = Member(name, incarnation), starts
            for body in bodies:
                self.take(_unpack(body))
        except (CBORDecodeError, ValueError, TypeError, IndexError, StopIteration) as error:
            raise StateFileError(
                f"promises {self.path} are damaged ({error}); without the file, the node starts as somebody new"
            ) from error

    def _replace(self) -> None:
        """Write everything anew, and put it in the place of what was there."""
        member = self.member
        assert member is not None, "begin() comes first"
        new = f"{self.path}.new"
        first = self.base + 1 if self.entries else 0
        change = Change(self.term, self.vote, self.founding, self.commit, self.state, first, self.entries)
        try:
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                head = [member.name, member.incarnation, self.starts, self._boot, self._sync]
                _write(file, MAGIC + _frame(head) + _frame(_pack(change)))
                if self._sync:
                    os.fdatasync(file)
                os.rename(new, self.path)
                if self._sync:
                    _sync_directory(self.path.parent)
            except BaseException:
                os.close(file)
                raise
        except OSError as error:
            raise self._failed("cannot be written", error) from error
        if self._file >= 0:
            os.close(self._file)
        self._file = file

    def _failed(self, what: str, error: OSError) -> StateFileError:
        self._broken = True
        return StateFileError(f"promises {self.path} {what}: {error.strerror}")


def _frame(body: Any) -> bytes:
    data = dumps(body)
    return _FRAME.pack(len(data), zlib.crc32(_LENGTH.pack(len(data))), zlib.crc32(data)) + data


def _bodies(data: bytes) -> Iterator[Any]:
    """Yield what the frames hold. The last may be cut off: then it was never promised."""
    at = 0
    while at + _FRAME.size <= len(data):
        size, check, checksum = _FRAME.unpack_from(data, at)
        if zlib.crc32(_LENGTH.pack(size)) != check:
            raise ValueError(f"the length at byte {at} does not have its checksum")
        start, at = at + _FRAME.size, at + _FRAME.size + size
        if at > len(data):
            return
        body = data[start:at]
        if zlib.crc32(body) != checksum:
            raise ValueError(f"the frame at byte {start} does not have its checksum")
        yield loads(body)


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _pack(change: Change) -> list[Any]:
    state = None if change.state is None else list(change.state)
    entries = [_pack_entry(entry) for entry in change.entries]
    vote = None if change.vote is None else list(change.vote)
    return [change.term, vote, change.founding, change.commit, state, change.first, entries]


def _unpack(body: Any) -> Change:
    term, vote, founding, commit, state, first, entries = body
    return Change(
        term,
        None if vote is None else Member(*vote),
        founding,
        commit,
        None if state is None else State(*state),
        first,
        [_unpack_entry(*entry) for entry in entries],
    )


def _pack_entry(entry: Entry) -> list[Any]:
    content = entry.content
    if content is None:
        return [entry.term, int(entry.kind), None]
    if isinstance(content, View):
        return [entry.term, int(entry.kind), [[*member, *address] for member, address in content.members]]
    return [entry.term, int(entry.kind), [[*run[:3], list(run.events)] for run in content]]


def _unpack_entry(term: int, kind: int, content: Any) -> Entry:
    kind = EntryKind(kind)
    if kind is EntryKind.NOTHING:
        return Entry(term, kind, None)
    if kind is EntryKind.VIEW:
        members = ((Member(name, incarnation), (host, port)) for name, incarnation, host, port in content)
        return Entry(term, kind, View(tuple(members)))
    return Entry(term, kind, tuple(Run(*run) for run in content))
