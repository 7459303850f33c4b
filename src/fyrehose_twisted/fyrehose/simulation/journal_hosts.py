"""Simulated hosts with a durable journal on a faulty disk."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.node.client.journal_client import JournalClient
from fyrehose_twisted.fyrehose.node.client.journal_store import EPOCH
from fyrehose_twisted.fyrehose.simulation.participants import BACKBONE, Application, Participant
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.sim.crash_mode import Boot, CrashMode
from fyrehose_twisted.sim.disk.disk import Disk
from fyrehose_twisted.sim.network import Network

STREAM = "fyrehose://simulated"

JOURNAL_CONFIG = JournalConfig(segment_bytes=16_384, segment_frames=100, frame_records=64)
"""Configuration with small segments, of which a run fills several."""

MAINTENANCE_INTERVAL = 7.0
"""Seconds between two compactions."""

RESTART_DELAY = 2.0
"""Seconds until a supervisor restarts a journal after a disk error."""


MAX_FAILED_STARTS = 6
"""Consecutive failed starts after which an operator replaces the disk by an empty one."""


class JournalHost(Participant):
    """Host of one client with a journal.

    :ivar disk: disk, which survives crashes of the host.
    :ivar journal: currently open journal.
    :ivar disk_losses: number of times that the disk was lost.
    """

    def __init__(
        self,
        network: Network,
        name: str,
        address: Address,
        config: ClientConfig,
        rng: Random,
        *,
        start_delay: float = 0.0,
        backbones: Sequence[Address] = (BACKBONE,),
    ) -> None:
        super().__init__(network, name, address, config, rng, start_delay=start_delay, backbones=backbones)
        self.journal: Journal
        self.disk_losses = 0
        self._failed_starts = 0
        self._tag = rng.getrandbits(32)
        self.disk = self.host.disk = Disk(Random(rng.getrandbits(64)))
        self.host.on_persist = self._persist
        network.call_in(MAINTENANCE_INTERVAL, self._maintain)

    def _start(self, boot: Boot) -> JournalClient:
        self.disk_losses += boot.last_crash is CrashMode.DISK
        try:
            self.journal = Journal(self.disk, STREAM, config=JOURNAL_CONFIG, tag=self._tag, clock=lambda: self.host.now)
        except OperationalError:
            self._failed_starts += 1
            if self._failed_starts == MAX_FAILED_STARTS:
                self.disk.wipe()
                self.disk_losses += 1
            raise
        self._failed_starts = 0
        rng = Random(self._rng.getrandbits(64))
        client = JournalClient(self.backbones, self.config, self.journal, rng, boot.now)
        if self.has_started and hasattr(self, "application"):
            self.former_applications.append(self.application)
        self.application = Application(client.config, client, client.store)
        return client

    @property
    def has_started(self) -> bool:
        """Whether the client has started at least once."""
        return hasattr(self, "application")

    def _persist(self, pending: Any) -> None:
        pending.save(self.journal)

    def _maintain(self) -> None:
        self._network.call_in(MAINTENANCE_INTERVAL, self._maintain)
        if self.host.running and self.journal.bounds(EPOCH) is not None:
            self.host.perform(lambda node, now: self._compact())

    def _compact(self) -> None:
        try:
            self.journal.compact()
            self.journal.trim()
        except OperationalError:  # As the service does.
            self.host.stop()
            self._network.call_in(RESTART_DELAY, self.host.start)
