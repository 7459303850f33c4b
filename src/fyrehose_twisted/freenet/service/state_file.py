"""State file of a node: its id and its location.

The file is one line of JSON: ``{"freenet": 1, "node": "00c0ffee00c0ffee", "location": 0.25}``. It is replaced
atomically.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.freenet.wire.location import is_location
from fyrehose_twisted.freenet.wire.messages import MAX_UID

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
        self._lock = -1
        try:
            self._acquire_lock()
            known = self._read()
            if known is None:
                self.node, self.location = draw()
                self._write()
            else:
                self.node, self.location = known
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
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    def _acquire_lock(self) -> None:
        try:
            self._lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateFileError(f"state file {self.path} cannot be locked: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StateFileError(f"state file {self.path} is in use by another node; give each its own") from error

    def _read(self) -> tuple[int, float] | None:
        try:
            with open(self.path, "rb") as file:
                data = file.read(_MAX_SIZE)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateFileError(f"state file {self.path} cannot be read: {error.strerror}") from error
        try:
            known = json.loads(data)
            version, node, location = known["freenet"], int(known["node"], 16), known["location"]
        except (ValueError, TypeError, KeyError, RecursionError):
            version, node, location = None, -1, None
        if version != VERSION or not 0 <= node <= MAX_UID or not is_location(location):
            raise StateFileError(
                f"state file {self.path} is not that of a freenet node; give another path, or remove the file to start"
                " with a new id and location"
            )
        return node, location

    def _write(self) -> None:
        new = f"{self.path}.new"
        line = json.dumps({"freenet": VERSION, "node": f"{self.node:016x}", "location": self.location})
        try:
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, line.encode() + b"\n")
                os.fsync(file)
            finally:
                os.close(file)
            os.rename(new, self.path)
        except OSError as error:
            with suppress(OSError):
                os.remove(new)
            raise StateFileError(f"state file {self.path} cannot be written: {error.strerror}") from error
