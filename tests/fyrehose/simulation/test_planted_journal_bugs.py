"""Planted bugs of journals that the simulator must find."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from suite.planted import Bug, Patch, check_seed, each, search

from fyrehose_twisted.fyrehose.node.client import journal_client
from fyrehose_twisted.fyrehose.node.client.journal_client import JournalClient
from fyrehose_twisted.fyrehose.node.client.journal_store import JournalStore, PendingWrites
from fyrehose_twisted.fyrehose.node.client.publishing.durability import DurabilityTracker
from fyrehose_twisted.fyrehose.simulation.invariants.access import JournalMatchesDelivery
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import NumbersDurableFirst, OneMessagePerNumber
from fyrehose_twisted.fyrehose.simulation.invariants.journals import (
    DurabilityReportsHold,
    DurableRecordsSurvive,
    StableBelowWatermark,
)
from fyrehose_twisted.fyrehose.simulation.scenarios import Journals, Rot
from fyrehose_twisted.fyrehose.wire.packets import Holding
from fyrehose_twisted.interfaces import Outputs
from fyrehose_twisted.journal import recovery
from fyrehose_twisted.journal.coverage import Coverage
from fyrehose_twisted.journal.format import scan, segment
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.store import Journal
from fyrehose_twisted.sim import fault_generators
from fyrehose_twisted.sim.crash_mode import CrashMode
from fyrehose_twisted.sim.disk.open_file import OpenFile
from fyrehose_twisted.sim.faults.disk_faults import SyncErrors

pytestmark = pytest.mark.interpreted


class FailingSyncs(Journals):
    """Frequent sync errors and power failures."""

    fault_counts: ClassVar[tuple[int, int]] = (150, 150)

    def fault_mix(self) -> Sequence[tuple[float, fault_generators.FaultGenerator]]:
        journals = ["journal-1", "journal-2"]
        return (
            (1.0, fault_generators.disk_errors(journals, kinds=(SyncErrors,))),
            (1.0, fault_generators.crashes(journals, kinds=(CrashMode.POWER,))),
        )


class Brief:
    """Limits a scenario to a tenth of its length."""

    duration = 60.0
    messages = 200
    fault_counts = (5, 10)
    profiles = tuple(role for role in Journals.profiles if not role.start_delay)


class BriefJournals(Brief, Journals):
    """A short run for violations detected at the end."""


class BriefSyncs(Brief, FailingSyncs):
    """A short run for violations detected early."""

    fault_counts = (15, 15)


def never_syncs(patch: Patch) -> None:
    patch.setattr(OpenFile, "sync", lambda self: None)


def syncs_only_the_watermark(patch: Patch) -> None:
    def sync(self: Any) -> None:
        self._writer.publish_durable()

    patch.setattr(Journal, "sync", sync)


def trusts_memory_after_a_failed_sync(patch: Patch) -> None:
    original = recovery._recover_last

    def mend_last(*what: Any) -> bool:
        with patch.context() as within:
            within.setattr(OpenFile, "write", lambda self, offset, data: None)
            return original(*what)

    patch.setattr(recovery, "_recover_last", mend_last)


def discards_unreadable_frames_at_compaction(patch: Patch) -> None:
    original = Journal.install_compacted

    def install(self: Any, ordered: Segment) -> None:
        ordered.damages.clear()
        original(self, ordered)

    patch.setattr(Journal, "install_compacted", install)


def truncates_an_intact_frame(patch: Patch) -> None:
    original = Segment.scan_frames

    def walk(self: Any, *what: Any, **more: Any) -> Any:
        found = list(original(self, *what, **more))
        return iter(found[:-1] if len(found) > 2 and not self.ordered else found)

    patch.setattr(Segment, "scan_frames", walk)


def advances_the_watermark_past_a_gap(patch: Patch) -> None:
    original = Coverage.next_missing

    def settled(self: Any, epoch: int, position: int) -> int:
        found = original(self, epoch, position)
        beyond = original(self, epoch, found + 1)
        return beyond if beyond > found + 1 else found

    patch.setattr(Coverage, "next_missing", settled)


def stores_altered_payloads(patch: Patch) -> None:
    original = PendingWrites.save

    def save(self: Any, journal: Any, *, sync: bool = True) -> None:
        records = [
            record._replace(payload=record.payload[:-1]) if record.sequence % 100 == 0 else record
            for record in self.records
        ]
        original(self._replace(records=records), journal, sync=sync)

    patch.setattr(PendingWrites, "save", save)
    patch.setattr(
        OneMessagePerNumber, "deliver_sent", NumbersDurableFirst.deliver_sent
    )  # Disabled, since it would detect altered repairs first.


def stores_messages_never_sent(patch: Patch) -> None:
    original = PendingWrites.save

    def save(self: Any, journal: Any, *, sync: bool = True) -> None:
        more = [record._replace(sequence=record.sequence + 100_000) for record in self.records]
        original(self._replace(records=[*self.records, *more]), journal, sync=sync)

    patch.setattr(PendingWrites, "save", save)


def skips_checksums(patch: Patch) -> None:
    patch.setattr(segment, "check_body", lambda header, body: None)
    patch.setattr(scan, "check_body", lambda header, body: None)


def drops_loss_records(patch: Patch) -> None:
    patch.setattr(JournalStore, "lose", lambda self, first, last: None)


def stores_only_repairs(patch: Patch) -> None:
    original = JournalClient.drain

    def drain(self: Any) -> Outputs:
        drained = original(self)
        return drained if drained.persist is None or not drained.events else drained._replace(persist=None)

    patch.setattr(JournalClient, "drain", drain)


def reports_more_than_is_durable(patch: Patch) -> None:
    patch.setattr(journal_client, "Holding", lambda since, durable: Holding(since, durable + 2))


def counts_one_journal_too_many(patch: Patch) -> None:
    original = DurabilityTracker._count_durable
    patch.setattr(DurabilityTracker, "_count_durable", lambda self, sequence: original(self, sequence) + 1)


BUGS = [
    Bug(never_syncs, (DurableRecordsSurvive.name,), FailingSyncs, seed=0, message="was durable, but is gone"),
    Bug(syncs_only_the_watermark, (DurableRecordsSurvive.name,), Journals, seed=5, message="was durable, but is gone"),
    Bug(trusts_memory_after_a_failed_sync, (StableBelowWatermark.name,), BriefSyncs, seed=0, message="'gone'"),
    Bug(
        discards_unreadable_frames_at_compaction,
        (DurableRecordsSurvive.name, StableBelowWatermark.name),
        Journals,
        seed=104,
        message="gone",
    ),
    Bug(truncates_an_intact_frame, (DurableRecordsSurvive.name,), Journals, seed=0, message="was durable, but is gone"),
    Bug(
        advances_the_watermark_past_a_gap,
        (DurabilityReportsHold.name,),
        Journals,
        seed=0,
        message="reported as synced by",
    ),
    Bug(stores_altered_payloads, (DurableRecordsSurvive.name,), Journals, seed=0, message="was durable as"),
    Bug(stores_messages_never_sent, (DurableRecordsSurvive.name,), Journals, seed=0, message="the backbone never sent"),
    Bug(skips_checksums, (StableBelowWatermark.name,), Rot, seed=0, message="but is now b"),
    Bug(drops_loss_records, (DurableRecordsSurvive.name,), BriefJournals, seed=0, message="durable only up to"),
    Bug(reports_more_than_is_durable, (DurabilityReportsHold.name,), Journals, seed=0, message="reported as synced by"),
    Bug(counts_one_journal_too_many, (DurabilityReportsHold.name,), Journals, seed=0, message="reported as synced by"),
    Bug(stores_only_repairs, (JournalMatchesDelivery.name,), BriefJournals, seed=0, message="is not stored"),
]


@pytest.mark.parametrize("seed", [417, 559, 100_144, 100_278])
def test_a_report_of_durable_journals_does_not_skip_messages_received_before_it(seed: int) -> None:
    assert BriefSyncs(seed).run().violation is None


@each(BUGS)
def test_the_recorded_seed_shows_the_planted_journal_bug(bug: Bug, monkeypatch: Patch) -> None:
    check_seed(bug, monkeypatch)


# This searches for gaps in the simulator, not in the product.
@pytest.mark.soak(seconds=300)
@each(BUGS)
def test_a_seed_search_finds_the_planted_journal_bug(bug: Bug, monkeypatch: Patch) -> None:
    search(bug, monkeypatch)
