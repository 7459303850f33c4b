"""State file with the votes and promises of a node.

The file has two records of 128 bytes, written alternately, so one of them is intact at any time. A record consists of 8
bytes ``HYDRA`` and version 1, the first 8 bytes of the SHA-256 of the network name, the boot id of the machine (16
bytes), a sequence number, the fields of a
:class:`~fyrehose_twisted.hydra.node.durable_state.DurableState`, the id of the node (0 for none), the time until which
unrecorded promises may bind it, zeros, and the CRC-32 of everything before. Numbers are little-endian.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.hydra.node.durable_state import DurableState
from fyrehose_twisted.process.boot_id import read_boot_id
from fyrehose_twisted.process.locked_file import LockedFile

MAGIC = b"HYDRA\x00\x00\x01"
RECORD_SIZE = 128
"""Size of a record in bytes."""
_FIELDS = struct.Struct("<8s8s16sQQQIIIIdId")
_CHECKSUM = struct.Struct("<I")


class _StateRecord(NamedTuple):
    """Contents of a record."""

    network: bytes
    boot: bytes
    number: int
    state: DurableState
    own_id: int
    uncertain_until: float
    """Time until which unrecorded promises may bind the node."""


class StateFile:
    """Durable state of a node that survives a crash, and a power failure if synced.

    :param path: path of the file. A lock file, ``path`` with ``.lock`` appended, remains beside it.
    :param network: name of the network.
    :param promise_period: seconds for which a promise binds a node.
    :param now: time on the node's clock, which restarts with each boot of the machine.
    :param sync: whether each change must survive a power failure.
    :ivar durable: stored votes and promises.
    :ivar remembers: whether these are complete.
    :raises StateFileError: if the file is in use, damaged, of another network, or cannot be read or written.
    """

    def __init__(
        self,
        path: Path,
        network: str,
        *,
        promise_period: float,
        now: float,
        sync: bool = False,
        boot_id: Callable[[], bytes] = read_boot_id,
    ) -> None:
        self.path = path
        self.durable = DurableState()
        self.remembers = False
        self._network = sha256(network.encode()).digest()[:8]
        self._sync = sync
        self._boot = boot_id()
        self._number = 0
        self._now = now
        self._promise_period = promise_period
        self._uncertain_until = 0.0
        self._file = LockedFile(path)
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def save(self, state: DurableState, own_id: int = 0) -> None:
        """Write the durable state. It survives a crash of the process.

        :param own_id: id of the node, 0 for none.
        :raises StateFileError: if writing failed, now or earlier.
        """
        self._number += 1
        self._file.write(self._pack(state, own_id), self._number % 2 * RECORD_SIZE, sync=self._sync)
        self.durable = state

    def close(self) -> None:
        """Close the file and release the lock. Closing twice is harmless."""
        self._file.close()

    def _load(self) -> None:
        data = self._file.read(2 * RECORD_SIZE + 1, to_write=True)
        if data is None:
            # A lock file without state file: the state file was removed, with its promises.
            self._create(DurableState(), remembers=self._file.is_new)
            return
        if not data.strip(b"\0"):
            # Emptied by an operator, or created just before a power failure: earlier promises are unknown.
            self._create(DurableState(), remembers=False)
            return
        records = [data[start : start + RECORD_SIZE] for start in (0, RECORD_SIZE)]
        found = [record for record in map(_unpack, records) if record is not None]
        if len(data) != 2 * RECORD_SIZE or not found:
            raise StateFileError(
                f"state file {self.path} is damaged, or not a node's; to discard its promises, empty it"
                f" (truncate -s 0 {self.path}): the node then supports no leader until earlier promises have expired"
            )
        newest = max(found, key=lambda record: record.number)
        if newest.network != self._network:
            raise StateFileError(f"state file {self.path} belongs to a node of another network; name another file")
        # A write of the damaged record was interrupted; its promise is unknown.
        whole = all(_unpack(record) is not None or not record.strip(b"\0") for record in records)
        self._number, vow = newest.number, newest.state
        if newest.boot == self._boot and whole:
            self.durable, self._uncertain_until = _without_own_promise(vow, newest.own_id), newest.uncertain_until
            self.remembers = self._now >= newest.uncertain_until
        elif newest.boot == self._boot:
            self._create(vow, remembers=False)
        else:
            # The clock of earlier promises restarted, and unsynced records may be missing.
            self._create(vow._replace(promised=0, until=0.0), remembers=False)

    def _create(self, state: DurableState, *, remembers: bool) -> None:
        """Replace the file with a new one."""
        self._number += 2 - self._number % 2
        self.durable, self.remembers = state, remembers
        self._uncertain_until = 0.0 if remembers else self._now + self._promise_period
        self._file.replace(self._pack(state) + bytes(RECORD_SIZE))

    def _pack(self, state: DurableState, own_id: int = 0) -> bytes:
        fields = _FIELDS.pack(MAGIC, self._network, self._boot, self._number, *state, own_id, self._uncertain_until)
        body = fields.ljust(RECORD_SIZE - _CHECKSUM.size, b"\0")
        return body + _CHECKSUM.pack(zlib.crc32(body))


def _without_own_promise(state: DurableState, own_id: int) -> DurableState:
    """Return a state without the promise of a leader to itself.

    As the lock is free, the process of that leader has ended, and with it its IRC connection.
    """
    return state._replace(promised=0, until=0.0) if own_id and state.promised == own_id else state


def _unpack(record: bytes) -> _StateRecord | None:
    """Unpack a record; return ``None`` if it is damaged."""
    body, checksum = record[: -_CHECKSUM.size], record[-_CHECKSUM.size :]
    if len(record) != RECORD_SIZE or not body.startswith(MAGIC) or _CHECKSUM.pack(zlib.crc32(body)) != checksum:
        return None
    _, network, boot, number, *fields, own, doubtful = _FIELDS.unpack_from(body)
    return _StateRecord(network, boot, number, DurableState(*fields), own, doubtful)
