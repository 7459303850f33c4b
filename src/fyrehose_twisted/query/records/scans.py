"""Ranges of records, searched in small steps: no client waits for the long search of another."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from http import HTTPStatus

import numpy as np
from numpy.typing import NDArray
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.journal.repeat_marking import Marks
from fyrehose_twisted.query.config import QueryConfig
from fyrehose_twisted.query.records.journals import JournalDirectory, JournalSource
from fyrehose_twisted.query.records.query_params import MAX_POSITION, EpochPosition, RecordQuery
from fyrehose_twisted.query.records.record_json import RecordView, record_views, rows_within
from fyrehose_twisted.query.records.turns import FairScheduler, SchedulerStopped
from fyrehose_twisted.web.response import RETRY_AFTER, HttpError

STEP_RECORDS, STEP_BYTES = 256, 16_384
"""Records, and about how many bytes of them, that are looked at in one step."""

FILTERED_STEP = 32
"""Records at which a filter looks in one step."""

MARKED_RECORDS = 1_024
"""Records that are searched for repeats at once."""

RECORD_BYTES = 1_024
"""A record of more counts for several, where it is counted how many were looked at."""

MAX_POSITIONS = 65_536
"""Positions that are looked at at once when the newest records are wanted."""

MAX_LATE_RECORDS = 100_000
"""After so many records in a row that were received after the end of a range, no earlier one is expected any more:
repairs are received late, so times do not only grow."""


class RangeScan:
    """Looks for the records of one answer.

    :ivar records: the records.
    :ivar next: where to go on, if that was not all.
    :ivar previous: where to go on backwards, if the newest were wanted, and there may be more.
    :ivar is_sparse: whether it may look at many records for the few that are wanted.
    """

    def __init__(
        self, source: JournalSource, sources: JournalDirectory, query: RecordQuery, config: QueryConfig
    ) -> None:
        self.records: list[RecordView] = []
        self.next: EpochPosition | None = None
        self.previous: EpochPosition | None = None
        self._source = source
        self._strip_framing = sources.strip_framing
        self._query = query
        self._config = config
        self.is_sparse = query.is_sparse
        self._limit = min(query.limit or config.page_records, config.page_records)
        self._scanned = 0
        self._at = 0
        self._late = 0

    def steps(self) -> Iterator[None]:
        """Search; yield after each step."""
        self._source.refresh()
        if self._query.newest is not None:
            return self._backwards(self._query.newest)
        return self._forwards()

    def _forwards(self) -> Iterator[None]:
        selection, source, config = self._query, self._source, self._config
        first, last = selection.first, selection.last
        size = 0
        for epoch in source.reader.epochs():
            if (first is not None and epoch < first.epoch) or (last is not None and epoch > last.epoch):
                continue
            bounds = source.bounds(epoch)
            if bounds is None:
                continue
            begin = max(bounds.first, first.position if first is not None and first.epoch == epoch else 0)
            end = min(bounds.next - 1, last.position if last is not None and last.epoch == epoch else MAX_POSITION)
            for item in self._range(epoch, begin, end):
                if item is None:
                    if self._late >= MAX_LATE_RECORDS:
                        return
                    if self._scanned >= config.scan_records and self._at < end:
                        self.next = EpochPosition(epoch, self._at + 1)
                        return
                    yield
                elif len(self.records) >= self._limit or size >= config.page_bytes:
                    self.next = EpochPosition(epoch, item.position)
                    return
                else:
                    self.records.append(item)
                    size += len(item.payload)

    def _backwards(self, wanted: int) -> Iterator[None]:
        """Find the newest records, window by window."""
        source, config = self._source, self._config
        first, last = self._query.first, self._query.last
        size, width = 0, max(wanted, STEP_RECORDS) if self.is_sparse else wanted
        for epoch in reversed(source.reader.epochs()):
            bounds = source.bounds(epoch)
            if bounds is None or (last is not None and epoch > last.epoch):
                continue
            if first is not None and epoch < first.epoch:
                return
            end = min(bounds.next - 1, last.position if last is not None and last.epoch == epoch else MAX_POSITION)
            low = max(bounds.first, first.position if first is not None and first.epoch == epoch else 0)
            while end >= low:
                begin = max(low, end - width + 1)
                newest: deque[RecordView] = deque()
                held = size
                for item in self._range(epoch, begin, end):
                    if item is None:
                        yield
                        continue
                    newest.append(item)
                    held += len(item.payload)
                    while (
                        len(newest) > wanted - len(self.records) or held - len(newest[0].payload) >= config.page_bytes
                    ):
                        held -= len(newest.popleft().payload)
                size = held
                self.records[:0] = newest
                is_full = len(self.records) >= wanted or size >= config.page_bytes
                if is_full or self._scanned >= config.scan_records:
                    oldest = EpochPosition(epoch, self.records[0].position if is_full else begin)
                    self.previous = self._before(oldest)
                    return
                end, width = begin - 1, min(2 * width, MAX_POSITIONS)
                if not newest:  # There may be nothing for long.
                    end = max((high for _, high in source.reader.held(epoch, low, end)), default=-1)
                yield

    def _before(self, place: EpochPosition) -> EpochPosition | None:
        """Return where to look for what is before ``place``, ``None`` if there is nothing."""
        for epoch in reversed(self._source.reader.epochs()):
            bounds = self._source.bounds(epoch)
            if bounds is not None and epoch <= place.epoch:
                end = min(bounds.next, place.position if epoch == place.epoch else MAX_POSITION) - 1
                if end >= bounds.first:
                    found = EpochPosition(epoch, end)
                    return None if self._query.first is not None and found < self._query.first else found
        return None

    def _range(self, epoch: int, at: int, end: int) -> Iterator[RecordView | None]:
        """Yield the records that are wanted, and ``None`` after each step."""
        while at <= end:
            stretch = self._source.read_span(epoch, at, self._query.since or 0)
            if stretch is None:
                return
            if stretch.block is not None:
                yield from self._select(stretch.block.within(at, end))
            at = stretch.last + 1
            self._at = min(stretch.last, end)
            yield None

    def _select(self, block: Block) -> Iterator[RecordView | None]:
        where, wanted = self._query.where, self._time_mask(block)
        marks: Marks | None = None
        high = marked = marked_from = 0
        while high < len(block):
            low, high = high, rows_within(block, high, STEP_RECORDS if where is None else FILTERED_STEP, STEP_BYTES)
            rows = block.rows(low, high)
            found: list[tuple[int, RecordView]] = []
            if wanted is None or wanted[low:high].any():
                for row, item in enumerate(record_views(rows, self._strip_framing)):
                    if (wanted is None or wanted[low + row]) and (where is None or where.matches(item)):
                        found.append((row, item))
            if found:
                if high > marked:
                    self._at = rows.first - 1
                    marked_from, marked = low, min(max(high, low + MARKED_RECORDS), len(block))
                    marks = yield from self._source.marker.marks(block.rows(low, marked))
                for row, item in found:
                    item.is_repeat = marks is not None and bool(marks[low + row - marked_from])
                    if not item.is_repeat or self._query.repeats:
                        yield item
            self._scanned += max(high - low, (int(block.offsets[high]) - int(block.offsets[low])) // RECORD_BYTES)
            self._at = int(block.positions[high - 1])
            yield None

    def _time_mask(self, block: Block) -> NDArray[np.bool_] | None:
        since, until = self._query.since, self._query.until
        if since is None and until is None:
            return None
        wanted = np.ones(len(block), bool)
        if since is not None:
            wanted &= block.times >= since
        if until is not None:
            early = block.times < until
            wanted &= early
            seen = np.flatnonzero(early)
            self._late = int(len(block) - 1 - seen[-1]) if len(seen) else self._late + len(block)
        return wanted


class _ScanLane:
    """Searches of one kind: those that are under way, and those that wait for these."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.waiting: OrderedDict[str, deque[tuple[RangeScan, Deferred[RangeScan]]]] = OrderedDict()


class ScanScheduler:
    """Lets searches take turns, client by client.

    Those that may look at many records for the few that are wanted have limits of their own, so that those which look
    at no more than they find do not wait for them.

    :ivar config: may be replaced at any time.
    """

    def __init__(self, config: QueryConfig, scheduler: FairScheduler) -> None:
        self.config = config
        self._lanes = {sparse: _ScanLane() for sparse in (False, True)}
        self._scheduler = scheduler

    def __len__(self) -> int:
        return sum(lane.running.total() for lane in self._lanes.values())

    @property
    def waiting(self) -> int:
        """How many have not begun."""
        return sum(len(queue) for lane in self._lanes.values() for queue in lane.waiting.values())

    def run(self, search: RangeScan, client: str = "") -> Deferred[RangeScan]:
        """Return a Deferred of the search when it is done.

        :raises Problem: if too many wait.
        """
        if self.waiting >= self.config.max_waiting:
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "busy", "too many searches wait; try again", RETRY_AFTER)
        lane = self._lanes[search.is_sparse]
        done: Deferred[RangeScan] = Deferred(lambda _: _dequeue(lane, client, done))
        lane.waiting.setdefault(client, deque()).append((search, done))
        self._next(lane)
        return done

    def stop(self) -> None:
        """End all of them."""
        for lane in self._lanes.values():
            waiting = [done for queue in lane.waiting.values() for _, done in queue]
            lane.waiting.clear()
            for done in waiting:
                done.errback(_stopping_error())
        self._scheduler.stop()

    def _next(self, lane: _ScanLane) -> None:
        """Begin what may begin: of each client in turn, and of none more than its share."""
        config, begun = self.config, True
        while begun and lane.running.total() < config.max_reads:
            begun = False
            for client in list(lane.waiting):
                if lane.running[client] < config.reads_per_client and lane.running.total() < config.max_reads:
                    self._begin(lane, client)
                    begun = True

    def _begin(self, lane: _ScanLane, client: str) -> None:
        queue = lane.waiting.pop(client)
        search, done = queue.popleft()
        if queue:
            lane.waiting[client] = queue  # Behind all others.
        lane.running[client] += 1

        def ended(failure: Failure | None) -> None:
            lane.running[client] -= 1
            if not lane.running[client]:
                del lane.running[client]
            if not done.called:
                if failure is None:
                    done.callback(search)
                else:
                    done.errback(_stopping_error() if failure.check(SchedulerStopped) else failure)
            self._next(lane)

        self._scheduler.start(client, _until_called(search, done), ended)


def _until_called(search: RangeScan, done: Deferred[RangeScan]) -> Iterator[None]:
    for _ in search.steps():
        if done.called:
            return
        yield


def _dequeue(lane: _ScanLane, client: str, done: Deferred[RangeScan]) -> None:
    queue = lane.waiting.get(client)
    if queue is not None:
        left = deque(one for one in queue if one[1] is not done)
        if left:
            lane.waiting[client] = left
        else:
            del lane.waiting[client]


def _stopping_error() -> HttpError:
    return HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "stopping", "the service stops", RETRY_AFTER)
