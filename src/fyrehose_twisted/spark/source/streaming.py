"""``spark.readStream.format("fyrehose")``: journals as they grow, in micro-batches."""

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

from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.spark.source.batch_limits import Backlog, admitted, bytes_of, place_after, rows_of
from fyrehose_twisted.spark.source.journal_locations import Origin, reader_of
from fyrehose_twisted.spark.source.offsets import (
    Checkpoint,
    Key,
    Offset,
    UnknownJournal,
    by_journal,
    check_distinct,
    key_of,
    resolved,
    written,
)
from fyrehose_twisted.spark.source.options import ReadOptions
from fyrehose_twisted.spark.source.partitions import parts_of, read_part
from fyrehose_twisted.spark.source.planning import (
    Lane,
    check_epochs,
    check_streams,
    check_watermark,
    dropped,
    over_at,
    place_of,
)


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
        origins, known = self._look()
        check_streams(self._options, origins)
        found = {key: place_of(start, origin, reader_of(origin), key[2]) for key, origin, _ in known}
        return written(found, origins)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return what the options say of the size of a batch."""
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Note how far journals go now: the query ends there."""
        self._until = {key: bounds.next for key, _, bounds in self._look()[1]}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return where the next batch ends, which is ``start`` if it has to wait for more.

        :raises JournalDamaged: if all was read up to damage, and ``failOnDataLoss`` is true.
        :raises UnknownJournal: if a journal of ``start`` is not there any more, or is another, likewise.
        """
        origins, known = self._look()
        before = self._resolved(start, origins)
        for origin in origins:
            check_epochs(self._options, origin)
        backlogs = self._backlogs(before.ends, known)
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
        begins = {key: backlog.first for key, backlog in backlogs.items() if key not in before.ends}
        offset = written(before.ends | ends, origins, before)
        return offset | ({"begins": by_journal(begins)} if begins else {})

    def reportLatestOffset(self) -> Offset:
        """Return how far journals go, for the query's progress."""
        origins, known = self._look()
        return written({key: bounds.next for key, _, bounds in known}, origins)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the partitions between two offsets: a large range of numbers, or several small ones.

        :raises NotInJournal: if something of it is not kept any more, and ``failOnDataLoss`` is true.
        """
        origins, found = self._look()
        known = {key: (origin, bounds) for key, origin, bounds in found}
        until = self._resolved(end, origins)
        begins, lanes = until.begins | self._resolved(start, origins).ends, []
        for key, next in until.ends.items():
            if key not in known:
                self._missing(key, begins.get(key), next)
                continue
            origin, bounds = known[key]
            first = begins.get(key, bounds.first)
            if first >= next:
                continue
            if first < bounds.first:
                first = dropped(self._options, origin, key[2], first, bounds.first)
            lanes.append(Lane(origin, key[2], first, next))
        return parts_of(lanes, self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a partition."""
        return read_part(partition, self._columns, self._options)

    def _resolved(self, offset: Offset, origins: Sequence[Origin]) -> Checkpoint:
        return resolved(offset, origins, fail=self._options.fail_on_data_loss)

    def _look(self) -> tuple[list[Origin], list[tuple[Key, Origin, Bounds]]]:
        """Return the journals, and how far each epoch of each goes now."""
        found, origins = [], self._options.origins()
        check_distinct(origins)
        for origin in origins:
            reader = reader_of(origin)
            reader.refresh()
            for epoch in reader.epochs():
                bounds = reader.bounds(epoch)
                if bounds is not None:
                    found.append(((key_of(origin), origin.stream, epoch), origin, bounds))
        return origins, found

    def _backlogs(self, begins: Mapping[Key, int], known: Sequence[tuple[Key, Origin, Bounds]]) -> dict[Key, Backlog]:
        found = {}
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
        origins = {(key_of(origin), origin.stream): origin for origin in self._options.origins()}
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
