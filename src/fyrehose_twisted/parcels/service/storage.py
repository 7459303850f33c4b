"""Files of a node: its persistent state, and a journal of the events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.logger import Logger

from fyrehose_twisted.journal.store import JournalConfig, check_unlocked
from fyrehose_twisted.journal.upkeep.maintenance import MaintainedJournal
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.node.persistent_state import StateChange
from fyrehose_twisted.parcels.service.journal_history import EPOCH, JournalHistory, stream_uri
from fyrehose_twisted.parcels.service.state_file import StateFile

STATE_FILE_NAME = "promises"
"""Name of the file with the persistent state."""


class Storage:
    """Files of one node.

    :param directory: directory of this node alone; created if missing.
    :param sync: sync the persistent state, so that it survives a power failure and not only the end of the process.
    :ivar persistent_state: the persistent state; ``None`` while the files are closed.
    :ivar history: the stored events; ``None`` while the files are closed.
    """

    log = Logger()

    def __init__(self, directory: Path, *, sync: bool = False, journal: JournalConfig | None = None) -> None:
        self.directory = directory
        self.persistent_state: StateFile | None = None
        self.history: JournalHistory | None = None
        self._sync = sync
        self._config = journal
        self._journal: MaintainedJournal | None = None

    def check(self, config: NodeConfig) -> None:
        """Check, without creating files, that no other process writes the journal.

        :raises JournalError: if one does, or if that cannot be determined.
        """
        check_unlocked(self.directory, stream_uri(config.cluster))

    def open(self, config: NodeConfig, reactor: Any, on_failure: Callable[[Exception], object]) -> None:
        """Open all files.

        :param on_failure: called if the journal fails later.
        :raises JournalError: if the journal cannot be read or written, or is in use.
        :raises StateFileError: if the promises cannot.
        """
        self._journal = MaintainedJournal(
            self.directory,
            stream_uri(config.cluster),
            reactor,
            config=self._config,
            on_failure=on_failure,
        )
        journal = self._journal.journal
        bounds = journal.bounds(EPOCH)
        if bounds is not None:
            first, last = bounds.first, bounds.next - 1
            self.log.info("{journal} has events {first:,} to {last:,}", journal=journal, first=first, last=last)
        promises = self.persistent_state = StateFile(self.directory / STATE_FILE_NAME, sync=self._sync)
        if promises.lost_to_power_failure:
            self.log.warn(
                "{path} was lost in a power failure, as the node ran without --sync; the node starts as a new member",
                path=promises.path,
            )
        self.history = JournalHistory(journal, config.window_bytes, reactor.seconds)

    def persist(self, change: StateChange) -> None:
        """Make the persistent state durable, and before it the events that it no longer has.

        :raises OperationalError: if that failed.
        """
        assert self.persistent_state is not None, "open() comes first"
        self.save(sync=change.snapshot is not None)
        self.persistent_state.persist(change)

    def save(self, *, sync: bool = False) -> None:
        """Append new events to the journal. :raises JournalError: if that failed."""
        if self.history is not None:
            self.history.save(sync=sync)

    async def close(self) -> None:
        """Make everything durable and close all files.

        :raises OperationalError: if that failed.
        """
        history, self.history = self.history, None
        promises, self.persistent_state = self.persistent_state, None
        journal, self._journal = self._journal, None
        if journal is not None:
            await journal.stop()
        try:
            if history is not None:
                history.save(sync=True)
        finally:
            if journal is not None:
                journal.journal.close()
            if promises is not None:
                promises.close()
