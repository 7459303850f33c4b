"""File with a snapshot of the application's state."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cbor2 import CBORDecodeError, dumps, loads

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.process.atomic_file import replace_file

SNAPSHOT_EVENTS = 10_000
"""Events after which another snapshot is stored. As many are applied again after a crash."""

_FORMAT = "fyrehose parcels state 1"


class StateSnapshot(NamedTuple):
    """State of an application after an event."""

    cluster_id: str
    """Id of the cluster of the event, 16 hexadecimal digits."""
    sequence: int
    """Number of the event; 0 before the first."""
    data: bytes
    """Result of :meth:`~fyrehose_twisted.interfaces.IReplicatedState.snapshot`."""


def read_snapshot(path: Path) -> StateSnapshot | None:
    """Return the snapshot in a file; ``None`` if there is no such file.

    :raises StateFileError: if it cannot be read, or is no snapshot.
    """
    try:
        content = loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateFileError(f"{path} cannot be read: {error.strerror}") from error
    except (CBORDecodeError, ValueError) as error:
        raise StateFileError(f"{path} is not a snapshot of a state: {error}") from error
    match content:
        case [str(kind), str(cluster_id), int(sequence), bytes(data)] if kind == _FORMAT and sequence >= 0:
            return StateSnapshot(cluster_id, sequence, data)
    raise StateFileError(f"{path} is not a snapshot of a state")


def write_snapshot(path: Path, snapshot: StateSnapshot) -> None:
    """Replace the snapshot in a file. It is durable on return.

    :raises StateFileError: if it cannot be written.
    """
    try:
        replace_file(path, dumps([_FORMAT, *snapshot]), mode=0o600)
    except OSError as error:
        raise StateFileError(f"{path} cannot be written: {error.strerror}") from error
