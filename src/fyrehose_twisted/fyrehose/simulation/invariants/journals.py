"""Invariants of durable journals."""

from __future__ import annotations

from typing import Any, ClassVar

from fyrehose_twisted.fyrehose.events import MessagesPublished
from fyrehose_twisted.fyrehose.node.client.journal_store import EPOCH, PendingWrites
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import (
    ClientInvariant,
    ClientsOfRun,
    NumberedMessages,
)
from fyrehose_twisted.fyrehose.simulation.journal_hosts import JournalHost
from fyrehose_twisted.interfaces import IJournalReader
from fyrehose_twisted.journal.errors import Damage, JournalError
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.journal.segment_loader import FILE_MISSING, NUMBERS_MISSING, TRUNCATED
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.sim.host import Host


class _JournalInvariant(ClientInvariant):
    """Base of the journal invariants."""

    def __init__(self, participants: ClientsOfRun) -> None:
        super().__init__(participants)
        self.journal_hosts = {one.host: one for one in participants.clients if isinstance(one, JournalHost)}


class DurableRecordsSurvive(_JournalInvariant):
    """Durable records survive every crash byte for byte, or are reported as damaged, and a journal holds only messages
    of the backbone.

    Records below the watermark never change. Records above it change only to what the backbone sent later. All numbers
    that were delivered or reported as lost are below the watermark.
    """

    name: ClassVar[str] = "durable records survive"

    def __init__(self, participants: ClientsOfRun, content: NumberedMessages) -> None:
        super().__init__(participants)
        self._content = content
        self._durable: dict[Host, dict[int, bytes]] = {host: {} for host in self.journal_hosts}
        self._disk_losses = dict.fromkeys(self.journal_hosts, 0)

    def persisted(self, host: Host, state: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if not isinstance(state, PendingWrites):
            return
        durable, journal = self._durable[host], self.journal_hosts[host].journal
        bounds = journal.bounds(EPOCH)
        for record in state.records:
            if bounds is not None and record.sequence >= bounds.first:
                durable.setdefault(record.sequence, record.payload)

    def started(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if host in self.journal_hosts:
            self._check_host(self.journal_hosts[host])

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        for keeper in self.journal_hosts.values():
            if not keeper.host.up:
                continue
            self._check_host(keeper)
            bounds, reached = keeper.journal.bounds(EPOCH), keeper.application.client.next_sequence
            whole = 0 if bounds is None else bounds.next
            if reached is not None and reached > whole:
                self.violated(f"delivered up to {reached - 1}, but durable only up to {whole - 1}", keeper.host)

    def _check_host(self, keeper: JournalHost) -> None:
        if keeper.disk_losses > self._disk_losses[keeper.host]:
            self._disk_losses[keeper.host] = keeper.disk_losses
            self._durable[keeper.host].clear()
        damages = _explained_damages(keeper.journal.recovery.damages, keeper)
        found = _payloads(keeper.journal, damages)
        for number, payload in self._durable[keeper.host].items():
            if number not in found and not damages:
                self.violated(f"{number} was durable, but is gone", keeper.host)
            if found.get(number, payload) not in (payload, self._content.truth.get(number)):
                self.violated(f"{number} was durable as {payload!r}, but is now {found[number]!r}", keeper.host)
        for number, payload in found.items():
            if self._content.truth.get(number) != payload:
                self.violated(f"{number} is stored as {payload!r}, which the backbone never sent", keeper.host)


class DurabilityReportsHold(_JournalInvariant):
    """A message reported as synced by a number of journals was durable in that many."""

    name: ClassVar[str] = "durability reports are true"

    def __init__(self, participants: ClientsOfRun) -> None:
        super().__init__(participants)
        self._durable: dict[Host, set[int]] = {host: set() for host in self.journal_hosts}

    def persisted(self, host: Host, state: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if isinstance(state, PendingWrites):
            self._durable[host].update(record.sequence for record in state.records)

    def started(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if host in self.journal_hosts:  # It may have stopped after a write that was not observed.
            journal = self.journal_hosts[host].journal
            bounds = journal.bounds(EPOCH)
            held = [] if bounds is None else journal.held(EPOCH, bounds.first, bounds.last)
            self._durable[host].update(number for first, last in held for number in range(first, last + 1))

    def event_emitted(self, host: Host, event: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if not isinstance(event, MessagesPublished):
            return
        wanted = self.by_host[host].kept
        for _, sequence in event.messages if wanted else ():
            have = sum(sequence in durable for durable in self._durable.values())
            if have < wanted:
                self.violated(f"{sequence} reported as synced by {wanted} journals, but durable in {have}", host)


class StableBelowWatermark(_JournalInvariant):
    """The records that a reader in another process finds below the watermark are complete and never change."""

    name: ClassVar[str] = "records below the watermark are stable"

    INTERVAL: ClassVar[int] = 10
    """Samples between two checks."""

    def __init__(self, participants: ClientsOfRun) -> None:
        super().__init__(participants)
        self._seen: dict[Host, dict[int, bytes]] = {host: {} for host in self.journal_hosts}
        self._seen_losses = {host: RangeSet() for host in self.journal_hosts}
        self._disk_losses = dict.fromkeys(self.journal_hosts, 0)
        self._samples = 0

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        self._samples += 1
        if self._samples % self.INTERVAL == 0:
            self.check()

    def started(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if host in self.journal_hosts:
            self._check_host(self.journal_hosts[host])

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        for keeper in self.journal_hosts.values():
            if keeper.host.up:
                self._check_host(keeper)

    def _check_host(self, keeper: JournalHost) -> None:
        host = keeper.host
        if keeper.disk_losses > self._disk_losses[host]:
            self._disk_losses[host] = keeper.disk_losses
            self._seen[host].clear()
            self._seen_losses[host].clear()
        try:
            reader = JournalReader(keeper.disk)
        except JournalError:
            return  # The disk is temporarily unreadable.
        bounds = reader.bounds(EPOCH)
        if bounds is None:
            return
        damages = _explained_damages(reader.damages, keeper)
        now, losses = _payloads(reader, damages), RangeSet(reader.losses(EPOCH, bounds.first, bounds.next - 1))
        if damages:
            return  # Missing records are reported as damaged.
        held = sum(number not in losses for number in now)
        if held + losses.count != bounds.next - bounds.first:
            self.violated(f"only {held + losses.count:,} numbers from {bounds.first} to {bounds.next - 1}", host)
        for number, payload in self._seen[host].items():
            if number >= bounds.first and (number in losses or now.get(number) != payload):
                self.violated(f"{number} was {payload!r}, but is now {now.get(number, 'gone')!r}", host)
        for first, last in self._seen_losses[host]:
            for number, _ in losses.gaps(max(first, bounds.first), last):
                self.violated(f"{number} was lost, but is now {now.get(number, 'gone')!r}", host)
        self._seen[host] |= now
        for first, last in losses:
            self._seen_losses[host].add(first, last)


def _explained_damages(damages: list[Damage], keeper: JournalHost) -> list[Damage]:
    """Return the damages that the disk of a host explains by bit rot or temporary read errors."""
    if keeper.disk.has_bit_rot:
        return [damage for damage in damages if damage.reason not in (NUMBERS_MISSING, TRUNCATED, FILE_MISSING)]
    return [damage for damage in damages if damage.reason.startswith("it cannot be read")]


def _payloads(journal: IJournalReader, damages: list[Damage]) -> dict[int, bytes]:
    bounds = journal.bounds(EPOCH)
    if bounds is None:
        return {}
    blocks = journal.read(EPOCH, bounds.first, bounds.last, damages.append)
    return {record.sequence: record.payload for block in blocks for record in block.records()}
