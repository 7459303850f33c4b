"""State file of a node: its id and its location.

The file is one line of JSON: ``{"freenet": 1, "node": "00c0ffee00c0ffee", "location": 0.25}``. It is replaced
atomically.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.freenet.wire.location import is_location
from fyrehose_twisted.freenet.wire.messages import MAX_UID
from fyrehose_twisted.process.locked_file import LockedFile

VERSION = 1
_MAX_SIZE = 4_096


class StateFile:
    """State file of one node, locked while open.

    :param path: path of the file. A lock file with the suffix ``.lock`` is created beside it, and stays there.
    :param draw: returns a new id and location if there is no file yet.
    :ivar node: node id.
    :ivar location: location on the ring.
    :raises StateFileError: if the file is in use, is not a state file, or cannot be read or written.
    """

    def __init__(self, path: Path, draw: Callable[[], tuple[int, float]]) -> None:
        self.path = path
        self._file = LockedFile(path)
        try:
            data = self._file.read(_MAX_SIZE)
            if data is None:
                self.node, self.location = draw()
                self._write()
            else:
                self.node, self.location = _decode(path, data)
        except BaseException:
            self.close()
            raise

    def save(self, location: float) -> None:
        """Save a new location.

        :raises StateFileError: if the file cannot be written.
        """
        if location != self.location:
            self.location = location
            self._write()

    def close(self) -> None:
        """Release the lock. Closing twice is harmless."""
        self._file.close()

    def _write(self) -> None:
        line = json.dumps({"freenet": VERSION, "node": f"{self.node:016x}", "location": self.location})
        self._file.replace(line.encode() + b"\n")


def _decode(path: Path, data: bytes) -> tuple[int, float]:
    try:
        known = json.loads(data)
        version, node, location = known["freenet"], int(known["node"], 16), known["location"]
    except (ValueError, TypeError, KeyError, RecursionError):
        version, node, location = None, -1, None
    if version != VERSION or not 0 <= node <= MAX_UID or not is_location(location):
        raise StateFileError(
            f"state file {path} is not that of a freenet node; give another path, or remove the file to start"
            " with a new id and location"
        )
    return node, location
