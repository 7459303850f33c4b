"""Streaming data source over growing journals: ``spark.readStream.format("fyrehose")``."""

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
from fyrehose_twisted.spark.source.batch_limits import (
    PendingRange,
    count_rows,
    cut_after,
    estimate_bytes,
    limit_batches,
)
from fyrehose_twisted.spark.source.journal_locations import JournalLocation, cached_reader
from fyrehose_twisted.spark.source.offsets import (
    Checkpoint,
    EpochKey,
    Offset,
    UnknownJournal,
    check_distinct,
    group_by_journal,
    journal_key,
    make_offset,
    resolve_offset,
)
from fyrehose_twisted.spark.source.options import ReadOptions
from fyrehose_twisted.spark.source.partitions import freeze_modules, make_partitions, read_partition
from fyrehose_twisted.spark.source.planning import (
    EpochRange,
    check_dropped,
    check_epochs,
    check_streams,
    check_watermark,
    end_of_dropped_epoch,
    resolve_bound,
)


class FyrehoseStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of micro-batches. Records below the watermark are immutable, so rereading a batch gives the same rows."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._available_now_ends: dict[EpochKey, int] | None = None
        self._waiting_since: float | None = None

    def initialOffset(self) -> Offset:
        """Return the initial offset."""
        start = self._options.start
        origins, known = self._list_epochs()
        check_streams(self._options, origins)
        found = {key: resolve_bound(start, origin, cached_reader(origin), key[2]) for key, origin, _ in known}
        return make_offset(found, origins)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the read limit set by the options."""
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Record the current ends of the journals, where the query will stop."""
        self._available_now_ends = {key: bounds.next for key, _, bounds in self._list_epochs()[1]}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next batch; ``start`` if the batch must wait for more records.

        :raises JournalDamaged: if reading has reached damage and ``failOnDataLoss`` is true.
        :raises UnknownJournal: if a journal of ``start`` is missing or replaced and ``failOnDataLoss`` is true.
        """
        origins, known = self._list_epochs()
        before = self._resolve(start, origins)
        for origin in origins:
            check_epochs(self._options, origin)
        backlogs = self._backlogs(before.ends, known)
        if not backlogs or self._should_wait(backlogs):
            return start
        self._waiting_since = None
        ends = {key: backlog.next for key, backlog in backlogs.items()}
        match limit:
            case ReadMaxRows():
                ends = limit_batches(backlogs, limit.max_rows)
            case ReadMaxBytes():
                size = sum(estimate_bytes(backlog) for backlog in backlogs.values())
                if size > limit.max_bytes:
                    available = sum(count_rows(backlog) for backlog in backlogs.values())
                    ends = limit_batches(backlogs, max(1, available * limit.max_bytes // size))
        begins = {key: backlog.first for key, backlog in backlogs.items() if key not in before.ends}
        offset = make_offset(before.ends | ends, origins, before)
        return offset | ({"begins": group_by_journal(begins)} if begins else {})

    def reportLatestOffset(self) -> Offset:
        """Return the current ends of the journals, for the query's progress."""
        origins, known = self._list_epochs()
        return make_offset({key: bounds.next for key, _, bounds in known}, origins)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the partitions between two offsets; each holds one large range of numbers or several small ones.

        :raises NotInJournal: if numbers between them were dropped and ``failOnDataLoss`` is true.
        :raises UnknownJournal: if an epoch between them is missing and ``failOnDataLoss`` is true.
        """
        origins, found = self._list_epochs()
        known = {key: (origin, bounds) for key, origin, bounds in found}
        until = self._resolve(end, origins)
        begins, lanes = until.begins | self._resolve(start, origins).ends, []
        for key, next in until.ends.items():
            if key not in known:
                self._check_missing(key, begins.get(key), next)
                continue
            origin, bounds = known[key]
            first = begins.get(key, bounds.first)
            if first >= next:
                continue
            if first < bounds.first:
                first = check_dropped(self._options, origin, key[2], first, bounds.first)
            lanes.append(EpochRange(origin, key[2], first, next))
        return make_partitions(lanes, self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a partition."""
        freeze_modules()
        return read_partition(partition, self._columns, self._options)

    def _resolve(self, offset: Offset, origins: Sequence[JournalLocation]) -> Checkpoint:
        return resolve_offset(offset, origins, fail_on_data_loss=self._options.fail_on_data_loss)

    def _list_epochs(self) -> tuple[list[JournalLocation], list[tuple[EpochKey, JournalLocation, Bounds]]]:
        """Return the journals and the current bounds of each of their epochs."""
        found, origins = [], self._options.locations()
        check_distinct(origins)
        for origin in origins:
            reader = cached_reader(origin)
            reader.refresh()
            for epoch in reader.epochs():
                bounds = reader.bounds(epoch)
                if bounds is not None:
                    found.append(((journal_key(origin), origin.stream, epoch), origin, bounds))
        return origins, found

    def _backlogs(
        self, begins: Mapping[EpochKey, int], known: Sequence[tuple[EpochKey, JournalLocation, Bounds]]
    ) -> dict[EpochKey, PendingRange]:
        found = {}
        self._check_dropped_epochs(begins.keys() - {key for key, _, _ in known}, begins)
        for key, origin, bounds in known:
            next = bounds.next if self._available_now_ends is None else self._available_now_ends.get(key, 0)
            first = begins.get(key, bounds.first)
            if first < next:
                found[key] = PendingRange(cached_reader(origin), key[2], first, next)
            else:
                check_watermark(self._options, origin, key[2])
        return found

    def _check_dropped_epochs(self, gone: Iterable[EpochKey], begins: Mapping[EpochKey, int]) -> None:
        """Check that epochs whose records were all dropped had been read to their end; servers do not report that."""
        if not gone or not self._options.fail_on_data_loss:
            return
        origins = {(journal_key(origin), origin.stream): origin for origin in self._options.locations()}
        for key in gone:
            origin = origins.get(key[:2])
            start = None if origin is None else end_of_dropped_epoch(cached_reader(origin), key[2])
            if origin is not None and start is not None and begins[key] < start:
                check_dropped(self._options, origin, key[2], begins[key], start)

    def _should_wait(self, backlogs: Mapping[EpochKey, PendingRange]) -> bool:
        wanted = self._options.min_rows
        if wanted is None or self._available_now_ends is not None:
            return False
        if sum(cut_after(backlog, wanted)[1] for backlog in backlogs.values()) >= wanted:
            return False
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since < self._options.max_delay

    def _check_missing(self, key: EpochKey, first: int | None, next: int) -> None:
        if first is not None and first >= next:
            return  # An earlier batch read it to its end.
        if self._options.fail_on_data_loss:
            raise UnknownJournal(
                f"epoch {key[2]} of {key[1]} from {key[0]} was to be read up to {next - 1}, but is gone."
                " failOnDataLoss=false continues without it"
            )
