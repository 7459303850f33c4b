"""Scans of record ranges in small steps, so that no client waits for a long scan of another."""

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
"""Records, and approximate bytes, examined in one step."""

FILTERED_STEP = 32
"""Records examined by a filter in one step."""

MARKED_RECORDS = 1_024
"""Records searched for repeats at once."""

RECORD_BYTES = 1_024
"""Bytes of a record in the scan limit. A larger record counts as several."""

MAX_POSITIONS = 65_536
"""Positions examined at once in a backward scan."""

MAX_LATE_RECORDS = 100_000
"""Consecutive records received after the end of a time range that end the scan. Repairs arrive late, so times are not
monotonic."""


class RangeScan:
    """Scan for the records of one response.

    :ivar records: records found.
    :ivar next: position at which to continue, if there may be more.
    :ivar previous: position at which to continue backwards, if the newest records were requested and more may exist.
    :ivar is_sparse: whether it may examine many records for each match.
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
        """Run the scan; yield after each step."""
        self._source.refresh()
        if self._query.newest is not None:
            return self._backwards(self._query.newest)
        return self._forwards()

    def _forwards(self) -> Iterator[None]:
        config = self._config
        size = 0
        for epoch in self._source.reader.epochs():
            extent = self._requested_extent(epoch)
            if extent is None:
                continue
            begin, end = extent
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
        """Find the newest records with a backward scan in windows."""
        source, config = self._source, self._config
        page = _NewestRecords(wanted, config.page_bytes)
        width = max(wanted, STEP_RECORDS) if self.is_sparse else wanted
        for epoch in reversed(source.reader.epochs()):
            extent = self._requested_extent(epoch)
            if extent is None:
                continue
            low, end = extent
            while end >= low:
                begin = max(low, end - width + 1)
                for item in self._range(epoch, begin, end):
                    if item is None:
                        yield
                    else:
                        page.append(item)
                found = page.end_window()
                self.records[:0] = found
                is_full = page.is_full
                if is_full or self._scanned >= config.scan_records:
                    oldest = EpochPosition(epoch, self.records[0].position if is_full else begin)
                    self.previous = self._before(oldest)
                    return
                end, width = begin - 1, min(2 * width, MAX_POSITIONS)
                if not found:  # Skip a long gap.
                    end = max((high for _, high in source.reader.held(epoch, low, end)), default=-1)
                yield

    def _requested_extent(self, epoch: int) -> tuple[int, int] | None:
        """Return the first and the last position of an epoch within the requested range; ``None`` if it has none."""
        first, last = self._query.first, self._query.last
        if (first is not None and epoch < first.epoch) or (last is not None and epoch > last.epoch):
            return None
        bounds = self._source.bounds(epoch)
        if bounds is None:
            return None
        begin = max(bounds.first, first.position if first is not None and first.epoch == epoch else 0)
        end = min(bounds.next - 1, last.position if last is not None and last.epoch == epoch else MAX_POSITION)
        return begin, end

    def _before(self, place: EpochPosition) -> EpochPosition | None:
        """Return the position before ``place``, or ``None`` if there is none in the requested range."""
        for epoch in reversed(self._source.reader.epochs()):
            bounds = self._source.bounds(epoch)
            if bounds is not None and epoch <= place.epoch:
                end = min(bounds.next, place.position if epoch == place.epoch else MAX_POSITION) - 1
                if end >= bounds.first:
                    found = EpochPosition(epoch, end)
                    return None if self._query.first is not None and found < self._query.first else found
        return None

    def _range(self, epoch: int, at: int, end: int) -> Iterator[RecordView | None]:
        """Yield the matching records, and ``None`` after each step."""
        while at <= end:
            span = self._source.read_span(epoch, at, self._query.since or 0)
            if span is None:
                return
            if span.block is not None:
                yield from self._select(span.block.within(at, end))
            at = span.last + 1
            self._at = min(span.last, end)
            yield None

    def _select(self, block: Block) -> Iterator[RecordView | None]:
        query, wanted = self._query, self._time_mask(block)
        step = FILTERED_STEP if query.has_filter else STEP_RECORDS
        marks: Marks | None = None
        high = marked = marked_from = 0
        while high < len(block):
            low, high = high, rows_within(block, high, step, STEP_BYTES)
            rows = block.rows(low, high)
            found: list[tuple[int, RecordView]] = []
            if wanted is None or wanted[low:high].any():
                for row, item in enumerate(record_views(rows, self._strip_framing)):
                    if item.is_refused:
                        continue
                    if (wanted is None or wanted[low + row]) and query.matches(item):
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


class _NewestRecords:
    """Newest records that fit a page, collected backwards in windows of ascending records.

    :param wanted: maximum number of records.
    :param page_bytes: bytes of payload after which the page is full.
    """

    def __init__(self, wanted: int, page_bytes: int) -> None:
        self._room = wanted
        self._page_bytes = page_bytes
        self._size = 0
        self._window: deque[RecordView] = deque()

    @property
    def is_full(self) -> bool:
        """Whether the page has no room for older records."""
        return self._room <= 0 or self._size >= self._page_bytes

    def append(self, item: RecordView) -> None:
        """Add a record to the window, instead of its oldest ones if the page is full."""
        window = self._window
        window.append(item)
        self._size += len(item.payload)
        while len(window) > self._room or self._size - len(window[0].payload) >= self._page_bytes:
            self._size -= len(window.popleft().payload)

    def end_window(self) -> deque[RecordView]:
        """Return the records of the window, and begin the next one."""
        window, self._window = self._window, deque()
        self._room -= len(window)
        return window


class _ScanLane:
    """Running and waiting scans of one kind."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.waiting: OrderedDict[str, deque[tuple[RangeScan, Deferred[RangeScan]]]] = OrderedDict()


class ScanScheduler:
    """Scheduler of scans, fair between clients.

    Sparse scans, which may examine many records for each match, have separate limits, so that other scans do not wait
    for them.

    :ivar config: limits. May be replaced at any time.
    """

    def __init__(self, config: QueryConfig, scheduler: FairScheduler) -> None:
        self.config = config
        self._lanes = {sparse: _ScanLane() for sparse in (False, True)}
        self._scheduler = scheduler

    def __len__(self) -> int:
        return sum(lane.running.total() for lane in self._lanes.values())

    @property
    def waiting(self) -> int:
        """Number of scans that have not started."""
        return sum(len(queue) for lane in self._lanes.values() for queue in lane.waiting.values())

    def run(self, search: RangeScan, client: str = "") -> Deferred[RangeScan]:
        """Run a scan; return a Deferred that fires with it when it is done.

        :raises HttpError: if too many scans wait.
        """
        if self.waiting >= self.config.max_waiting:
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "busy", "too many requests wait; try again", RETRY_AFTER)
        lane = self._lanes[search.is_sparse]
        done: Deferred[RangeScan] = Deferred(lambda _: _dequeue(lane, client, done))
        lane.waiting.setdefault(client, deque()).append((search, done))
        self._next(lane)
        return done

    def stop(self) -> None:
        """Stop all scans."""
        for lane in self._lanes.values():
            waiting = [done for queue in lane.waiting.values() for _, done in queue]
            lane.waiting.clear()
            for done in waiting:
                done.errback(_stopping_error())
        self._scheduler.stop()

    def _next(self, lane: _ScanLane) -> None:
        """Start waiting scans within the limits, one of each client in turn."""
        config, has_started = self.config, True
        while has_started and lane.running.total() < config.max_reads:
            has_started = False
            for client in list(lane.waiting):
                if lane.running[client] < config.reads_per_client and lane.running.total() < config.max_reads:
                    self._begin(lane, client)
                    has_started = True

    def _begin(self, lane: _ScanLane, client: str) -> None:
        queue = lane.waiting.pop(client)
        search, done = queue.popleft()
        if queue:
            lane.waiting[client] = queue  # At the end of the line.
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
        remaining = deque(entry for entry in queue if entry[1] is not done)
        if remaining:
            lane.waiting[client] = remaining
        else:
            del lane.waiting[client]


def _stopping_error() -> HttpError:
    return HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "stopping", "the service is stopping", RETRY_AFTER)
