"""Hosts of simulated runs that keep the stream in a durable journal, on a disk that does what disks may do."""

from __future__ import annotations

from random import Random
from typing import Any

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.node.client.journal_client import JournalClient
from fyrehose_twisted.fyrehose.node.client.journal_store import EPOCH
from fyrehose_twisted.fyrehose.simulation.participants import BACKBONE, Application, Participant
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.sim.crash_mode import Boot, Crash
from fyrehose_twisted.sim.disk.disk import Disk
from fyrehose_twisted.sim.network import Network

STREAM = "fyrehose://simulated"

JOURNAL = JournalConfig(segment_bytes=16_384, segment_frames=100, frame_records=64)
"""Segments so small that several are filled in a run."""

UPKEEP_INTERVAL = 7.0
"""Seconds between looks at whether segments are to be put in order."""

RESTARTS_AFTER = 2.0
"""Seconds until a supervisor starts a journal again whose disk failed."""


PATIENCE = 6
"""Starts in a row that fail until an operator puts an empty disk in."""


class Keeper(Participant):
    """The host of one client with a journal.

    :ivar disk: outlives its crashes.
    :ivar journal: the one that it has open now.
    :ivar forgot: how often it lost its disk.
    """

    def __init__(
        self, network: Network, name: str, address: Address, config: ClientConfig, rng: Random, *, begins: float = 0.0
    ) -> None:
        super().__init__(network, name, address, config, rng, begins=begins)
        self.journal: Journal
        self.forgot = 0
        self._failed_starts = 0
        self._tag = rng.getrandbits(32)
        self.disk = self.host.disk = Disk(Random(rng.getrandbits(64)))
        self.host.on_persist = self._persist
        network.call_in(UPKEEP_INTERVAL, self._keep_in_order)

    def _start(self, boot: Boot) -> JournalClient:
        self.forgot += boot.after is Crash.DISK
        try:
            self.journal = Journal(self.disk, STREAM, config=JOURNAL, tag=self._tag, clock=lambda: self.host.now)
        except OperationalError:
            self._failed_starts += 1
            if self._failed_starts == PATIENCE:
                self.disk.wipe()
                self.forgot += 1
            raise
        self._failed_starts = 0
        rng = Random(self._rng.getrandbits(64))
        client = JournalClient(BACKBONE, self.config, self.journal, rng, boot.now)
        if self.started and hasattr(self, "application"):
            self.former.append(self.application)
        self.application = Application(client.config, client, client.store)
        return client

    @property
    def started(self) -> bool:
        """Whether there is anything to look at yet."""
        return hasattr(self, "application")

    def _persist(self, unsaved: Any) -> None:
        unsaved.save(self.journal)

    def _keep_in_order(self) -> None:
        self._network.call_in(UPKEEP_INTERVAL, self._keep_in_order)
        if self.host.running and self.journal.bounds(EPOCH) is not None:
            self.host.do(lambda node, now: self._tidy())

    def _tidy(self) -> None:
        try:
            self.journal.tidy()
            self.journal.trim()
        except OperationalError:  # What a service does then.
            self.host.stop()
            self._network.call_in(RESTARTS_AFTER, self.host.start)
