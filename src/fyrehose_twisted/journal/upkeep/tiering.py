"""Moving of segments to object storage while a service runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.journal.format.disk import TIER_LOCK_NAME
from fyrehose_twisted.journal.store import Journal
from fyrehose_twisted.journal.tier.config import TierConfig
from fyrehose_twisted.journal.tier.directory import TieredDirectory
from fyrehose_twisted.journal.tier.location import displayed
from fyrehose_twisted.journal.tier.locks import lock_work
from fyrehose_twisted.journal.tier.mover import SegmentMover, TierReport
from fyrehose_twisted.journal.tier.objects import Objects
from fyrehose_twisted.process.repeating import PeriodicCall

INTERVAL = 60.0
"""Seconds between two runs."""

LONGEST_REST = 3_600.0
"""Seconds without a run after repeated failures. The rest doubles with each failure, from :data:`INTERVAL`."""


class Tiering:
    """Moves the compacted segments of one journal to object storage, in a thread, one segment at a time.

    Neither a failure nor a slow storage affects the writing of the journal.

    :param journal: journal with a directory made by :func:`~fyrehose_twisted.journal.tier.directory.open_directory`.
    :param config: where to, and when.
    :param path: local directory of the journal.
    :param clock: returns UTC seconds since 1970.
    """

    log = Logger()

    def __init__(
        self,
        journal: Journal,
        config: TierConfig,
        path: Path,
        objects: Objects,
        reactor: Any,
        *,
        clock: Callable[[], float] = time,
    ) -> None:
        self.journal = journal
        self._config = config
        self._path = path
        self._objects = objects
        self._reactor = reactor
        self._clock = clock
        self._call = PeriodicCall("the moving of segments", self.run_once, reactor)
        self._running: Deferred[None] | None = None
        self._stopping = False
        self._rest = 0.0
        self._rests_until = 0.0

    def start(self) -> None:
        """Start, with an immediate run."""
        self._call.start(INTERVAL)

    def stop(self) -> Deferred[None]:
        """Stop after the segment that is being moved; return a Deferred that fires then."""
        self._stopping = True
        self._call.stop()
        if self._running is None:
            return succeed(None)
        done: Deferred[None] = Deferred()
        self._running.addBoth(lambda result: done.callback(None))
        return done

    def run_once(self) -> Deferred[None] | None:
        """Move the segments that are old enough, unless the last run failed a short time ago."""
        if self._running is not None or self._stopping or self._reactor.seconds() < self._rests_until:
            return None
        moving = deferToThreadPool(self._reactor, self._reactor.getThreadPool(), self._move)
        self._running = moving.addCallbacks(self._done, self._failed)
        return self._running

    def _move(self) -> TierReport:
        before = int((self._clock() - self._config.after) * 1_000_000)

        def moved(name: str) -> None:
            self._reactor.callFromThread(self._moved, name)

        with lock_work(self._path, TIER_LOCK_NAME) as directory:
            mover = SegmentMover(directory, self._objects, self._config.url)
            return mover.run(before, on_moved=moved, should_stop=lambda: self._stopping)

    def _moved(self, name: str) -> None:
        self.journal.tier_counters.moved += 1
        self.journal.catalog.release(name)  # An open file would keep its disk space.

    def _done(self, report: TierReport) -> None:
        self._running = None
        counters = self.journal.tier_counters
        counters.moved_bytes += report.moved_bytes
        counters.removed += report.removed
        if report.moved:
            self.log.info(
                "{journal}: {count} segments of {size:,} bytes moved to {where}",
                journal=self.journal,
                count=len(report.moved),
                size=report.moved_bytes,
                where=displayed(self._config.url),
            )
        if report.skipped:
            self._rest_after(report.skipped[0])
        else:
            self._rest = 0.0

    def _failed(self, failure: Failure) -> None:
        self._running = None
        if not isinstance(failure.value, FyrehoseError):
            self.log.failure("{journal}: moving segments failed", failure, journal=self.journal)
        self._rest_after(failure.value)

    def _rest_after(self, why: object) -> None:
        self.journal.tier_counters.failures += 1
        self._rest = min(max(2 * self._rest, INTERVAL), LONGEST_REST)
        self._rests_until = self._reactor.seconds() + self._rest
        self.log.error(
            "{journal}: segments stay on this machine, next attempt in {rest:.0f} s: {why}",
            journal=self.journal,
            rest=self._rest,
            why=why,
        )


def start_tiering(journal: Journal, reactor: Any) -> Callable[[], Deferred[None]]:
    """Move the segments of a journal as its configuration says; return the function that stops it."""
    directory = journal.directory
    if journal.config.tier is None or not isinstance(directory, TieredDirectory) or directory.path is None:
        return lambda: succeed(None)
    tiering = Tiering(journal, journal.config.tier, directory.path, directory.objects, reactor)
    tiering.start()
    return tiering.stop
