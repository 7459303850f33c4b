"""What a service does for its journal beside committing: put full segments in order, and drop what is too old."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure

from fyrehose_twisted.journal.compaction import compact
from fyrehose_twisted.journal.errors import JournalError
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.store import Journal, JournalConfig, open_journal
from fyrehose_twisted.process.repeating import PeriodicCall

INTERVAL = 1.0
"""Seconds between looks at whether there is something to do."""


REST = 60
"""Looks that are left out after a segment could not be written anew."""


class Maintenance:
    """Looks after a journal while a service runs.

    Segments are rewritten in a thread, one at a time; everything else happens between two events of the reactor.

    :param sync_interval: seconds after which to make durable what was committed without being; ``None`` for a journal
        that makes each group durable.
    :param failed: told if the journal cannot go on.
    :param synced: called when what was committed has been made durable after ``sync_interval``.
    """

    log = Logger()

    def __init__(
        self,
        journal: Journal,
        reactor: Any,
        *,
        sync_interval: float | None = None,
        on_failure: Callable[[Exception], object],
        on_synced: Callable[[], object] = lambda: None,
    ) -> None:
        self.journal = journal
        self._reactor = reactor
        self._on_failure = on_failure
        self._sync_interval = sync_interval
        self._maintenance_call = self._repeat("the upkeep of a journal", self.run_once)
        self._on_synced = on_synced
        self._sync_call = self._repeat("the commit of a journal", self._sync)
        self._compaction: Deferred[None] | None = None
        self._rest = 0

    def start(self) -> None:
        """Begin, with a look: on a disk that is full, there is no room for anything before retention has made some."""
        self._maintenance_call.start(INTERVAL)
        if self._sync_interval is not None:
            self._sync_call.start(self._sync_interval, now=False)

    def stop(self) -> Deferred[None]:
        """End; the Deferred fires when no thread is at work any more."""
        self._maintenance_call.stop()
        self._sync_call.stop()
        if self._compaction is None:
            return succeed(None)
        done: Deferred[None] = Deferred()
        self._compaction.addBoth(lambda result: done.callback(None))
        return done

    def _sync(self) -> None:
        self.journal.commit()
        self._on_synced()

    def run_once(self) -> None:
        """See whether something is to be done."""
        freed = self.journal.trim()
        if freed:
            self.log.info("{journal} dropped its oldest records: {freed:,} bytes", journal=self.journal, freed=freed)
        full = self.journal.sealed_segments()
        self._rest = max(0, self._rest - 1)
        if full and self._compaction is None and not self._rest and self._has_space(full[0]):
            journal, config = self.journal, self.journal.config
            pool = self._reactor.getThreadPool()
            ordering = deferToThreadPool(self._reactor, pool, compact, journal.directory, full[0], config.frame_records)
            self._compaction = ordering.addCallbacks(self._compaction_done, self._compaction_failed)

    def _has_space(self, segment: Segment) -> bool:
        """Say whether what is put in order leaves room for what comes meanwhile."""
        directory = self.journal.directory
        if isinstance(directory, LocalDirectory) and directory.room() < 2 * segment.end:
            self._rest = REST
            self.log.warn("{journal} has little room left, and puts nothing in order", journal=self.journal)
            return False
        return True

    def _compaction_done(self, segment: Segment) -> None:
        self._compaction = None
        for damage in segment.damages:
            self.log.error("{journal}: left as it is, for it is damaged: {damage}", journal=self.journal, damage=damage)
        try:
            self.journal.install_compacted(segment)
        except JournalError as error:
            self._on_failure(error)

    def _compaction_failed(self, failure: Failure) -> None:
        # Nothing is lost; a full disk may have room again when this is tried the next time.
        self._compaction = None
        if failure.check(FileNotFoundError):
            return  # Retention was quicker.
        self._rest = REST
        self.log.error("{journal}: a segment was not put in order: {why}", journal=self.journal, why=failure.value)

    def _repeat(self, what: str, call: Callable[[], object]) -> PeriodicCall:
        def carefully() -> None:
            try:
                call()
            except JournalError as error:
                self._on_failure(error)

        return PeriodicCall(what, carefully, self._reactor)


class MaintainedJournal:
    """The journal of a stream that a service writes, opened and maintained.

    :param directory: directory of journals; made if need be.
    :param on_failure: called if the journal cannot go on.
    :raises JournalError: if it cannot be read or written, or is in use.
    """

    log = Logger()

    def __init__(
        self,
        directory: Path,
        stream: str,
        reactor: Any,
        *,
        config: JournalConfig | None,
        sync_interval: float,
        on_failure: Callable[[Exception], object],
    ) -> None:
        self.journal = open_journal(directory, stream, config=config)
        for line in self.journal.recovery.messages():
            self.log.warn("{journal}: {line}", journal=self.journal, line=line)
        self._maintenance = Maintenance(self.journal, reactor, sync_interval=sync_interval, on_failure=on_failure)
        self._maintenance.start()

    async def stop(self) -> None:
        """Stop the maintenance; the journal can still be written."""
        await self._maintenance.stop()

    async def close(self) -> None:
        """Stop the maintenance, make everything durable and close the journal.

        :raises JournalError: if that failed.
        """
        await self.stop()
        self.journal.close()
