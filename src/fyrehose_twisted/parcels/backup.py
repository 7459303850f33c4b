"""Backup of a cluster in one file, from which a new cluster begins.

The file is a sequence of CBOR items: a :class:`BackupHead`, arrays of events in their order, and the number of events
as its last item, by which a file that was cut off shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

from cbor2 import CBORDecodeError, dump, dumps, load, loads

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.parcels.wire.messages import Event

_FORMAT = "fyrehose parcels backup 1"


class BackupHead(NamedTuple):
    """All of a cluster but its events."""

    cluster: str
    """Name of the cluster."""
    cluster_id: str
    """Its id, 16 hexadecimal digits."""
    numbering: bytes
    """Numbering after the last event: :meth:`EventNumbering.dump
    <fyrehose_twisted.parcels.node.ordering.event_numbering.EventNumbering.dump>` without members."""
    oldest: int
    """Number of the first event of the backup."""
    last: int
    """Number of the last event of the cluster; below :attr:`oldest` if the backup has none."""
    state_sequence: int
    """Last event that :attr:`state` contains."""
    state: bytes | None
    """The application's state, if the node held one."""


def pack_head(head: BackupHead) -> bytes:
    """Encode the head."""
    return dumps([_FORMAT, *head])


def unpack_head(data: bytes) -> BackupHead:
    """Decode the head. :raises ValueError: if it is malformed."""
    try:
        return _to_head(loads(data))
    except CBORDecodeError as error:
        raise ValueError(str(error)) from error


def _to_head(item: Any) -> BackupHead:
    match item:
        case [str(kind), str(), str(), bytes(), int(), int(), int(), bytes() | None] if kind == _FORMAT:
            return BackupHead(*item[1:])
    raise ValueError("it is no backup, or one of a later version")


def pack_events(events: Iterable[Event]) -> bytes:
    """Encode consecutive events."""
    return dumps([list(event) for event in events])


def unpack_events(data: bytes) -> list[Event]:
    """Decode consecutive events. :raises ValueError: if they are malformed."""
    try:
        return _to_events(loads(data))
    except CBORDecodeError as error:
        raise ValueError(str(error)) from error


def _to_events(item: Any) -> list[Event]:
    found = []
    for row in item if isinstance(item, list) else [None]:
        match row:
            case [int(), str(), int(), int(), bytes()]:
                found.append(Event(*row))
            case _:
                raise ValueError("events of an unknown format")
    return found


class BackupWriter:
    """Writes a backup to an open file.

    :ivar count: number of events written.
    """

    def __init__(self, file: BinaryIO, head: BackupHead) -> None:
        self.count = 0
        self._file = file
        file.write(pack_head(head))

    def write(self, events: list[Event]) -> None:
        """Append events, which follow those before."""
        self._file.write(pack_events(events))
        self.count += len(events)

    def end(self) -> None:
        """Complete the file."""
        dump(self.count, self._file)


class BackupReader:
    """Reads a backup from an open file.

    :ivar head: all but the events.
    :raises StateFileError: if it is no backup.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.head = _to_head_of_file(file)

    def events(self) -> Iterator[list[Event]]:
        """Yield all events, some at a time.

        :raises StateFileError: if the file is damaged, or was cut off.
        """
        wanted, count = self.head.oldest, 0
        while True:
            item = _load(self._file)
            if isinstance(item, int):
                if item != count or count != max(self.head.last - self.head.oldest + 1, 0):
                    whole = f"events {self.head.oldest:,} to {self.head.last:,}"
                    raise StateFileError(f"the backup has {count:,} events, and should have {whole}")
                return
            try:
                events = _to_events(item)
            except ValueError as error:
                raise StateFileError(f"the backup is damaged after event {wanted - 1:,}: {error}") from None
            for event in events:
                if event.sequence != wanted:
                    raise StateFileError(f"the backup has event {event.sequence:,} instead of {wanted:,}")
                wanted, count = wanted + 1, count + 1
            yield events


def _to_head_of_file(file: BinaryIO) -> BackupHead:
    item = _load(file)
    try:
        return _to_head(item)
    except ValueError as error:
        raise StateFileError(f"the file cannot be restored: {error}") from None


def _load(file: BinaryIO) -> Any:
    try:
        return load(file)
    except (CBORDecodeError, ValueError, RecursionError) as error:
        raise StateFileError(f"the backup is damaged, or was cut off: {error}") from None
