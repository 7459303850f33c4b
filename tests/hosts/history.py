"""Histories of rounds as JSON lines: what clients were told and what they read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

Entry = dict[str, Any]
"""One observation: ``at`` in seconds since the round began, ``client``, ``what``, and further values."""


class History:
    """A history written while its round runs. Any thread may add to it.

    :param path: file to write.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        self._lock = Lock()
        self._began = monotonic()
        self.entries: list[Entry] = []

    @property
    def now(self) -> float:
        """Return the seconds since the round began."""
        return round(monotonic() - self._began, 6)

    def add(self, client: str, what: str, *, time: float | None = None, **more: Any) -> Entry:
        """Add an entry and return it.

        :param time: monotonic time of the observation, by default now.
        """
        with self._lock:
            at = self.now if time is None else round(time - self._began, 6)
            entry = {"at": at, "client": client, "what": what, **more}
            self.entries.append(entry)
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
        return entry

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def of_kind(history: Iterable[Entry], *kinds: str) -> list[Entry]:
    """Return the entries whose ``what`` is one of ``kinds``, in order."""
    return [entry for entry in history if entry["what"] in kinds]


def load(path: Path) -> list[Entry]:
    """Return the entries of a stored history."""
    return [json.loads(line) for line in path.read_text().splitlines()]
