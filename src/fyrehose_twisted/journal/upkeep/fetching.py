"""Fetching of blocks from object storage for a service that must not wait for them."""

from __future__ import annotations

from typing import Any

from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure

from fyrehose_twisted.journal.errors import JournalError, TierError
from fyrehose_twisted.journal.store import Journal
from fyrehose_twisted.journal.tier.directory import TieredDirectory, TieredFile

MAX_WAITING = 64
"""Requests that wait for a thread. A request beyond them is dropped; the reader repeats it."""


class BlockFetcher:
    """Fetches the blocks that a journal reads, in a thread and one request at a time.

    A read of a block that is not in memory raises :class:`~fyrehose_twisted.journal.errors.NotFetched` until it is.

    :param journal: an open journal.
    """

    log = Logger()

    def __init__(self, journal: Journal, reactor: Any) -> None:
        self._counters = journal.tier_counters
        self._reactor = reactor
        self._waiting: dict[tuple[str, int, int], TieredFile] = {}
        self._current: tuple[str, int, int] | None = None
        if isinstance(journal.directory, TieredDirectory):
            journal.directory.fetch_later = self.request

    def request(self, file: TieredFile, first: int, last: int) -> None:
        """Fetch the blocks ``first`` to ``last`` of a file, unless that is already requested."""
        key = file.entry.url, first, last
        if key != self._current and len(self._waiting) < MAX_WAITING:
            self._waiting.setdefault(key, file)
            self._fetch_next()

    def _fetch_next(self) -> None:
        if self._current is not None or not self._waiting:
            return
        key = self._current = next(iter(self._waiting))
        file = self._waiting.pop(key)
        pool = self._reactor.getThreadPool()
        fetching = deferToThreadPool(self._reactor, pool, file.fetch, *key[1:])
        fetching.addCallbacks(self._done, self._failed, callbackArgs=(file,), errbackArgs=(file,))

    def _done(self, blocks: dict[int, bytes], file: TieredFile) -> None:
        self._counters.fetched_bytes += sum(map(len, blocks.values()))
        for index, block in blocks.items():
            file.keep(index, block)
        self._finish()

    def _failed(self, failure: Failure, file: TieredFile) -> None:
        self._counters.fetch_failures += 1
        error = failure.value
        file.failure = error if isinstance(error, JournalError) else TierError(str(error))
        self.log.error("a segment in object storage cannot be read: {why}", why=error)
        self._finish()

    def _finish(self) -> None:
        self._current = None
        self._fetch_next()
