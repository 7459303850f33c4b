"""Ledger of finished batches, so that a restart does not publish them again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

LEDGER_DIRECTORY = "fyrehose-sink"


class FinishedBatches(NamedTuple):
    """All batches of a query up to one of them."""

    query: str
    batch: int

    def covers(self, query: str, batch: int) -> bool:
        """Say whether a batch is one of them."""
        return query == self.query and batch <= self.batch


class Ledger:
    """A file in a query's checkpoint that names its last finished batch; the batches of a query follow one another.

    Spark commits a batch to the sink before it writes that into the checkpoint, and repeats the batch if it ends in
    between. A ledger that is gone or cannot be read costs repeats, which subscribers recognise by their envelopes.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._path = checkpoint / LEDGER_DIRECTORY / "finished.json"

    @classmethod
    def at(cls, location: str | None) -> Ledger | None:
        """Return the ledger of a checkpoint location; ``None`` if that is no directory on this machine."""
        if not location:
            return None
        parts = urlsplit(location)
        if parts.scheme == "file":
            return cls(Path(unquote(parts.path)))
        return None if parts.scheme else cls(Path(location))

    def query(self) -> str | None:
        """Return the id of the query whose checkpoint this is; ``None`` if the checkpoint is not on this machine."""
        try:
            return str(json.loads((self._checkpoint / "metadata").read_text(encoding="utf-8"))["id"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def read(self) -> FinishedBatches | None:
        """Return what is finished; ``None`` if nothing is known."""
        try:
            read = json.loads(self._path.read_text(encoding="utf-8"))
            return FinishedBatches(str(read["query"]), int(read["batch"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, batch: int, messages: int) -> None:
        """Note that a batch is finished; harmless where the checkpoint is not on this machine.

        :param messages: how many it had, for whoever looks into the file.
        :raises OSError: if the file cannot be written.
        """
        query = self.query()
        if query is None:
            return
        self._path.parent.mkdir(exist_ok=True)
        new = self._path.with_suffix(".new")
        with new.open("w", encoding="utf-8") as file:
            json.dump({"query": query, "batch": batch, "messages": messages}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
