"""Ranges of records: searched in small steps, so that nobody waits for somebody else's long one."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import numpy as np
from numpy.typing import NDArray
from twisted.internet.defer import Deferred
from twisted.internet.task import Cooperator, SchedulerStopped
from twisted.python.failure import Failure

from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.query.config import QueryConfig
from fyrehose_twisted.query.items import Item, items, rows_within
from fyrehose_twisted.query.selection import MAX_POSITION, Place, Selection
from fyrehose_twisted.query.sources import Source, Sources
from fyrehose_twisted.web.answers import RETRY, Problem

STEP, STEP_BYTES = 256, 16_384
"""Records, and about how many bytes of them, that are looked at in one step."""

RECORD_BYTES = 1_024
"""A record of more counts for several, where it is counted how many were looked at."""

WIDEST = 65_536
"""Positions that are looked at at once when the newest records are wanted."""

LATE = 100_000
"""After so many records in a row that were received after the end of a range, no earlier one is expected any more:
repairs are received late, so times do not only grow."""


class Search:
    """Looks for the records of one answer.

    :ivar found: the records.
    :ivar next: where to go on, if that was not all.
    :ivar previous: where to go on backwards, if the newest were wanted, and there may be more.
    """

    def __init__(self, source: Source, sources: Sources, selection: Selection, config: QueryConfig) -> None:
        self.found: list[Item] = []
        self.next: Place | None = None
        self.previous: Place | None = None
        self._source = source
        self._bare = sources.bare
        self._selection = selection
        self._config = config
        self._limit = min(selection.limit or config.page_records, config.page_records)
        self._scanned = 0
        self._at = 0
        self._late = 0

    def steps(self) -> Iterator[None]:
        """Search; yield after each step."""
        self._source.refresh()
        if self._selection.newest is not None:
            return self._backwards(self._selection.newest)
        return self._forwards()

    def _forwards(self) -> Iterator[None]:
        selection, source, config = self._selection, self._source, self._config
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
                    if self._late >= LATE:
                        return
                    if self._scanned >= config.scan_records and self._at < end:
                        self.next = Place(epoch, self._at + 1)
                        return
                    yield
                elif len(self.found) >= self._limit or size >= config.page_bytes:
                    self.next = Place(epoch, item.position)
                    return
                else:
                    self.found.append(item)
                    size += len(item.payload)

    def _backwards(self, wanted: int) -> Iterator[None]:
        """Find the newest records, window by window."""
        source, config, last = self._source, self._config, self._selection.last
        size, width = 0, max(wanted, STEP)
        for epoch in reversed(source.reader.epochs()):
            bounds = source.bounds(epoch)
            if bounds is None or (last is not None and epoch > last.epoch):
                continue
            end = min(bounds.next - 1, last.position if last is not None and last.epoch == epoch else MAX_POSITION)
            while end >= bounds.first:
                begin = max(bounds.first, end - width + 1)
                newest: deque[Item] = deque()
                held = size
                for item in self._range(epoch, begin, end):
                    if item is None:
                        yield
                        continue
                    newest.append(item)
                    held += len(item.payload)
                    while len(newest) > wanted - len(self.found) or held - len(newest[0].payload) >= config.page_bytes:
                        held -= len(newest.popleft().payload)
                size = held
                self.found[:0] = newest
                is_full = len(self.found) >= wanted or size >= config.page_bytes
                if is_full or self._scanned >= config.scan_records:
                    oldest = Place(epoch, self.found[0].position if is_full else begin)
                    self.previous = self._before(oldest)
                    return
                end, width = begin - 1, min(2 * width, WIDEST)
                if not newest:  # There may be nothing for long.
                    end = max((high for _, high in source.reader.held(epoch, bounds.first, end)), default=-1)
                yield

    def _before(self, place: Place) -> Place | None:
        """Return where to look for what is before ``place``, ``None`` if there is nothing."""
        for epoch in reversed(self._source.reader.epochs()):
            bounds = self._source.bounds(epoch)
            if bounds is not None and epoch <= place.epoch:
                end = min(bounds.next, place.position if epoch == place.epoch else MAX_POSITION) - 1
                if end >= bounds.first:
                    return Place(epoch, end)
        return None

    def _range(self, epoch: int, at: int, end: int) -> Iterator[Item | None]:
        """Yield the records that are wanted, and ``None`` after each step."""
        while at <= end:
            stretch = self._source.stretch(epoch, at, self._selection.since or 0)
            if stretch is None:
                return
            if stretch.block is not None:
                yield from self._chosen(stretch.block.within(at, end))
            at = stretch.last + 1
            self._at = min(stretch.last, end)
            yield None

    def _chosen(self, block: Block) -> Iterator[Item | None]:
        where, wanted = self._selection.where, self._in_time(block)
        high = 0
        while high < len(block):
            low, high = high, rows_within(block, high, STEP, STEP_BYTES)
            self._scanned += max(high - low, (int(block.offsets[high]) - int(block.offsets[low])) // RECORD_BYTES)
            if wanted is None or wanted[low:high].any():
                for row, item in enumerate(items(block.rows(low, high), self._bare), low):
                    if (wanted is None or wanted[row]) and (where is None or where.wants(item)):
                        yield item
            self._at = int(block.positions[high - 1])
            yield None

    def _in_time(self, block: Block) -> NDArray[np.bool_] | None:
        since, until = self._selection.since, self._selection.until
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


class Searches:
    """Lets searches take turns, client by client.

    :ivar config: may be replaced at any time.
    """

    def __init__(self, config: QueryConfig, reactor: Any) -> None:
        self.config = config
        self._running: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[tuple[Search, Deferred[Search]]]] = OrderedDict()
        # Between two turns the reactor looks at its sockets.
        self._cooperator = Cooperator(scheduler=lambda call: reactor.callLater(0, call))

    def __len__(self) -> int:
        return self._running.total()

    @property
    def waiting(self) -> int:
        """How many have not begun."""
        return sum(map(len, self._waiting.values()))

    def run(self, search: Search, client: str = "") -> Deferred[Search]:
        """Return a Deferred of the search when it is done.

        :raises Problem: if too many wait.
        """
        if self.waiting >= self.config.max_waiting:
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "busy", "too many searches wait; try again", RETRY)
        done: Deferred[Search] = Deferred(lambda _: self._forget(client, done))
        self._waiting.setdefault(client, deque()).append((search, done))
        self._next()
        return done

    def stop(self) -> None:
        """End all of them."""
        waiting = [done for queue in self._waiting.values() for _, done in queue]
        self._waiting.clear()
        for done in waiting:
            done.errback(_stopping())
        self._cooperator.stop()

    def _next(self) -> None:
        """Begin what may begin: of each client in turn, and of none more than its share."""
        begun = True
        while begun and len(self) < self.config.max_reads:
            begun = False
            for client in list(self._waiting):
                if self._running[client] < self.config.reads_per_client and len(self) < self.config.max_reads:
                    self._begin(client)
                    begun = True

    def _begin(self, client: str) -> None:
        queue = self._waiting.pop(client)
        search, done = queue.popleft()
        if queue:
            self._waiting[client] = queue  # Behind all others.
        self._running[client] += 1
        task = self._cooperator.cooperate(self._until_called(search, done))
        task.whenDone().addCallbacks(self._ended, self._failed, (search, done, client), errbackArgs=(done, client))

    def _forget(self, client: str, done: Deferred[Search]) -> None:
        queue = self._waiting.get(client)
        if queue is not None:
            left = deque(one for one in queue if one[1] is not done)
            if left:
                self._waiting[client] = left
            else:
                del self._waiting[client]

    @staticmethod
    def _until_called(search: Search, done: Deferred[Search]) -> Iterator[None]:
        for _ in search.steps():
            if done.called:
                return
            yield

    def _ended(self, result: object, search: Search, done: Deferred[Search], client: str) -> None:
        self._over(client)
        if not done.called:
            done.callback(search)
        self._next()

    def _failed(self, failure: Failure, done: Deferred[Search], client: str) -> None:
        self._over(client)
        if not done.called:
            done.errback(_stopping() if failure.check(SchedulerStopped) else failure)
        self._next()

    def _over(self, client: str) -> None:
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]


def _stopping() -> Problem:
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, "stopping", "the service stops", RETRY)
