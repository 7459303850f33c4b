"""What a node is after each start: its id, and where on the ring it is.

A line of JSON: ``{"freenet": 1, "node": "00c0ffee00c0ffee", "location": 0.25}``. The file is replaced as a whole, so it
is never half-written.
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
    """Remembers who a node is.

    :param path: of the file; ``path`` and ``.lock`` is beside it, and stays there.
    :param draw: returns a new id and location, for a node that has none yet.
    :ivar node: id of the node.
    :ivar location: where on the ring it is.
    :raises StateFileError: if it is in use, is no node's, or cannot be read or written.
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
        """Remember another location. :raises StateFileError: if that failed."""
        if location != self.location:
            self.location = location
            self._write()

    def close(self) -> None:
        """Let go of it. Closing twice is harmless."""
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
                f"state file {self.path} is not one of a freenet node; name another, or remove it: then the node"
                " becomes somebody new, elsewhere on the ring"
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
