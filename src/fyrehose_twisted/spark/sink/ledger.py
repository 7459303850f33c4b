"""Ledger of finished batches, which keeps a restarted query from publishing them again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from fyrehose_twisted.process.atomic_file import replace_file

LEDGER_DIRECTORY = "fyrehose-sink"


class FinishedBatches(NamedTuple):
    """Batches of a query up to and including ``batch``."""

    query: str
    batch: int

    def covers(self, query: str, batch: int) -> bool:
        """Return whether a batch is finished."""
        return query == self.query and batch <= self.batch


class Ledger:
    """File in a query's checkpoint with the last finished batch. The batches of a query run in sequence.

    Spark commits a batch to the sink before it records the commit in the checkpoint, and repeats the batch if it stops
    in between. A missing or unreadable ledger causes duplicates, which subscribers drop by their envelopes.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._path = checkpoint / LEDGER_DIRECTORY / "finished.json"

    @classmethod
    def at(cls, location: str | None) -> Ledger | None:
        """Return the ledger of a checkpoint location; ``None`` if the location is not a local path."""
        if not location:
            return None
        parts = urlsplit(location)
        if parts.scheme == "file":
            return cls(Path(unquote(parts.path)))
        return None if parts.scheme else cls(Path(location))

    def query(self) -> str | None:
        """Return the id of the checkpoint's query; ``None`` if the checkpoint is not on this machine."""
        try:
            return str(json.loads((self._checkpoint / "metadata").read_text(encoding="utf-8"))["id"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def read(self) -> FinishedBatches | None:
        """Return the finished batches; ``None`` if the ledger is missing or unreadable."""
        try:
            read = json.loads(self._path.read_text(encoding="utf-8"))
            return FinishedBatches(str(read["query"]), int(read["batch"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, batch: int, messages: int) -> None:
        """Record a finished batch; do nothing if the checkpoint is not on this machine.

        :param messages: number of messages of the batch, for information only.
        :raises OSError: if the file cannot be written.
        """
        query = self.query()
        if query is None:
            return
        self._path.parent.mkdir(exist_ok=True)
        content = json.dumps({"query": query, "batch": batch, "messages": messages})
        replace_file(self._path, content.encode(), self._path.with_suffix(".new"))
