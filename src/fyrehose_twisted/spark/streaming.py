"""``spark.readStream.format("fyrehose")``: journals as they grow, in micro-batches.

An offset says how far each epoch of each journal was read: ``{"journals": {JOURNAL: {STREAM: {EPOCH: NEXT}}}}``, where
NEXT is the first number that was not read. An older epoch may still grow after a newer one has begun, so each is kept.
Where a batch is the first that has something of an epoch, ``"begins"`` says likewise which number it begins with: the
journal may have dropped that before the batch is read again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.journal.contents import Bounds
from fyrehose_twisted.journal.errors import JournalError
from fyrehose_twisted.spark.admission import Backlog, admitted, bytes_of, place_after, rows_of
from fyrehose_twisted.spark.options import ReadOptions
from fyrehose_twisted.spark.origins import Origin, reader_of
from fyrehose_twisted.spark.planning import Lane, check_watermark, dropped, over_at, place_of, ranges
from fyrehose_twisted.spark.source import Part, read_part

Offset = dict[str, Any]
Key = tuple[str, str, int]
"""Journal, stream and epoch."""


class UnknownJournal(OperationalError):
    """A query was reading a journal that is not among those that it is to read now."""


class FyrehoseStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads micro-batches. What is below a watermark stays as it is, so a batch reads the same each time."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._until: dict[Key, int] | None = None
        self._waiting_since: float | None = None

    def initialOffset(self) -> Offset:
        """Return where a new query begins."""
        start = self._options.start
        found = {
            (origin.journal, origin.stream, epoch): place_of(start, origin, reader_of(origin), epoch)
            for origin, epoch, _ in self._journals()
        }
        return _written(found)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return what the options say of the size of a batch."""
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Note how far journals go now: the query ends there."""
        self._until = {key: bounds.next for key, _, bounds in self._known()}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return where the next batch ends, which is ``start`` if it has to wait for more.

        :raises JournalDamaged: if all was read up to damage, and ``failOnDataLoss`` is true.
        """
        backlogs = self._backlogs(start)
        if not backlogs or self._is_to_wait(backlogs):
            return start
        self._waiting_since = None
        ends = {key: backlog.next for key, backlog in backlogs.items()}
        match limit:
            case ReadMaxRows():
                ends = admitted(backlogs, limit.max_rows)
            case ReadMaxBytes():
                size = sum(bytes_of(backlog) for backlog in backlogs.values())
                if size > limit.max_bytes:
                    available = sum(rows_of(backlog) for backlog in backlogs.values())
                    ends = admitted(backlogs, max(1, available * limit.max_bytes // size))
        before = _read(start)
        begins = {key: backlog.first for key, backlog in backlogs.items() if key not in before}
        return _written(before | ends) | ({"begins": _written(begins)["journals"]} if begins else {})

    def reportLatestOffset(self) -> Offset:
        """Return how far journals go, for the query's progress."""
        return _written({key: bounds.next for key, _, bounds in self._known()})

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return a partition for each range of numbers between two offsets.

        :raises NotInJournal: if something of it is not kept any more, and ``failOnDataLoss`` is true.
        """
        known = {key: (origin, bounds) for key, origin, bounds in self._known()}
        begins, parts = _read({"journals": end.get("begins", {})}) | _read(start), []
        for key, next in _read(end).items():
            if key not in known:
                self._missing(key, begins.get(key), next)
                continue
            origin, bounds = known[key]
            first = begins.get(key, bounds.first)
            if first >= next:
                continue
            if first < bounds.first:
                first = dropped(self._options, origin, key[2], first, bounds.first)
            parts += [
                Part(part) for part in ranges(Lane(origin, key[2], first, next), self._options.rows_per_partition)
            ]
        return parts or [Part(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a partition."""
        return read_part(partition, self._columns, self._options)

    def _journals(self) -> Iterator[tuple[Origin, int, Bounds]]:
        for origin in self._options.origins():
            reader = reader_of(origin)
            reader.refresh()
            for epoch in reader.epochs():
                bounds = reader.bounds(epoch)
                if bounds is not None:
                    yield origin, epoch, bounds

    def _known(self) -> list[tuple[Key, Origin, Bounds]]:
        return [((origin.journal, origin.stream, epoch), origin, bounds) for origin, epoch, bounds in self._journals()]

    def _backlogs(self, start: Offset) -> dict[Key, Backlog]:
        begins, found = _read(start), {}
        known = self._known()
        self._check_over(begins.keys() - {key for key, _, _ in known}, begins)
        for key, origin, bounds in known:
            next = bounds.next if self._until is None else self._until.get(key, 0)
            first = begins.get(key, bounds.first)
            if first < next:
                found[key] = Backlog(reader_of(origin), key[2], first, next)
            else:
                check_watermark(self._options, origin, key[2])
        return found

    def _check_over(self, gone: Iterable[Key], begins: Mapping[Key, int]) -> None:
        """See that of epochs of which nothing is kept any more all was read; what a server says does not tell."""
        if not gone or not self._options.fail_on_data_loss:
            return
        origins = {(origin.journal, origin.stream): origin for origin in self._options.origins()}
        for key in gone:
            origin = origins.get(key[:2])
            start = None if origin is None else over_at(reader_of(origin), key[2])
            if origin is not None and start is not None and begins[key] < start:
                dropped(self._options, origin, key[2], begins[key], start)

    def _is_to_wait(self, backlogs: Mapping[Key, Backlog]) -> bool:
        wanted = self._options.min_rows
        if wanted is None or self._until is not None:
            return False
        if sum(place_after(backlog, wanted)[1] for backlog in backlogs.values()) >= wanted:
            return False
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since < self._options.max_delay

    def _missing(self, key: Key, first: int | None, next: int) -> None:
        if first is not None and first >= next:
            return  # It was read to its end before.
        if self._options.fail_on_data_loss:
            raise UnknownJournal(
                f"epoch {key[2]} of {key[1]} from {key[0]} was to be read up to {next - 1}, and is not there any more."
                " failOnDataLoss=false goes on without it"
            )


def _written(ends: dict[Key, int]) -> Offset:
    journals: dict[str, dict[str, dict[str, int]]] = {}
    for (journal, stream, epoch), next in sorted(ends.items()):
        journals.setdefault(journal, {}).setdefault(stream, {})[str(epoch)] = next
    return {"journals": journals}


def _read(offset: Offset) -> dict[Key, int]:
    try:
        return {
            (journal, stream, int(epoch)): int(next)
            for journal, streams in offset["journals"].items()
            for stream, epochs in streams.items()
            for epoch, next in epochs.items()
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        raise JournalError(f"the checkpoint has the offset {offset!r}, which is none of this source") from None
