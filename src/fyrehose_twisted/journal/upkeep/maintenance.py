"""Background maintenance of a journal in a service: syncing, compaction and retention."""

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
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.store import Journal, JournalConfig, open_journal
from fyrehose_twisted.journal.tier.directory import free_space
from fyrehose_twisted.journal.upkeep.tiering import start_tiering
from fyrehose_twisted.process.repeating import PeriodicCall

INTERVAL = 1.0
"""Seconds between two maintenance runs."""

SYNC_INTERVAL = 1.0
"""Seconds between syncs of a maintained journal, which is not synced at each commit."""

REST = 60
"""Runs without compaction after one has failed."""


class Maintenance:
    """Maintenance of one journal while its service runs.

    Segments are compacted in a thread, one at a time. All other work is done in the reactor thread.

    :param sync_interval: seconds between syncs of commits that were not synced; ``None`` if each commit is synced.
    :param on_failure: called with the error if the journal can no longer be used.
    :param on_synced: called after each sync of ``sync_interval``.
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
        self._maintenance_call = self._repeat("the maintenance of a journal", self.run_once)
        self._on_synced = on_synced
        self._sync_call = self._repeat("the commit of a journal", self._sync)
        self._compaction: Deferred[None] | None = None
        self._rest = 0
        self._stop_tiering: Callable[[], Deferred[None]] = lambda: succeed(None)

    def start(self) -> None:
        """Start, with an immediate run, as on a full disk retention must free space before anything can be written."""
        self._maintenance_call.start(INTERVAL)
        if self._sync_interval is not None:
            self._sync_call.start(self._sync_interval, now=False)
        self._stop_tiering = start_tiering(self.journal, self._reactor)

    def stop(self) -> Deferred[None]:
        """Stop; return a Deferred that fires when no thread is compacting or moving a segment."""
        self._maintenance_call.stop()
        self._sync_call.stop()
        moving = self._stop_tiering()
        if self._compaction is None:
            return moving
        done: Deferred[None] = Deferred()
        self._compaction.addBoth(lambda result: done.callback(None))
        return done.addCallback(lambda result: moving)

    def _sync(self) -> None:
        self.journal.commit()
        self._on_synced()

    def run_once(self) -> None:
        """Apply retention, and start a compaction if a segment is full."""
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
        """Return whether a compaction leaves enough free disk space for new records."""
        room = free_space(self.journal.directory)
        if room is not None and room < 2 * segment.end:
            self._rest = REST
            self.log.warn("{journal}: compaction is suspended, as the disk is nearly full", journal=self.journal)
            return False
        return True

    def _compaction_done(self, segment: Segment) -> None:
        self._compaction = None
        for damage in segment.damages:
            self.log.error("{journal}: not compacted, as it is damaged: {damage}", journal=self.journal, damage=damage)
        try:
            self.journal.install_compacted(segment)
        except JournalError as error:
            self._on_failure(error)

    def _compaction_failed(self, failure: Failure) -> None:
        # No data is lost. A full disk may have space again at the next attempt.
        self._compaction = None
        if failure.check(FileNotFoundError):
            return  # Retention has removed the segment.
        self._rest = REST
        self.log.error("{journal}: compaction failed: {why}", journal=self.journal, why=failure.value)

    def _repeat(self, name: str, call: Callable[[], object]) -> PeriodicCall:
        def guarded() -> None:
            try:
                call()
            except JournalError as error:
                self._on_failure(error)

        return PeriodicCall(name, guarded, self._reactor)


class MaintainedJournal:
    """The journal of a stream that a service writes, opened, synced each second and maintained.

    :param directory: directory of journals; made if need be.
    :param on_failure: called if the journal cannot continue.
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
        on_failure: Callable[[Exception], object],
    ) -> None:
        self.journal = open_journal(directory, stream, config=config)
        for line in self.journal.recovery.messages():
            self.log.warn("{journal}: {line}", journal=self.journal, line=line)
        self._maintenance = Maintenance(self.journal, reactor, sync_interval=SYNC_INTERVAL, on_failure=on_failure)
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
