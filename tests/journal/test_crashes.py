"""Power failures at every byte that a journal writes, followed by checks of its durability."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from suite.seeds import seeds

from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.record import Record
from fyrehose_twisted.sim.disk.disk import Disk, PowerCut

pytest_plugins = ["fyrehose_twisted.sim.pytest_plugin"]

STREAM = "fyrehose://crashes"
FIRST = 1_000


def records_of(journal: Any) -> dict[int, bytes]:
    bounds = journal.bounds(0)
    if bounds is None:
        return {}
    blocks = journal.read(0, bounds.first, bounds.last)
    return {record.sequence: record.payload for block in blocks for record in block.records()}


def numbers_in(ranges: Any) -> set[int]:
    return {number for first, last in ranges for number in range(first, last + 1)}


class Promises:
    """Records given to a journal, and those it reported durable."""

    def __init__(self) -> None:
        self.given: dict[int, set[bytes]] = {}
        self.durable: dict[int, bytes] = {}
        self.lost: set[int] = set()
        self.watermark = 0

    def check(self, journal: Journal) -> None:
        """Check that all durable records are there, and no record that was never given."""
        bounds = journal.bounds(0)
        if bounds is None:
            assert not self.durable, f"{len(self.durable)} records were durable, and the journal is empty"
            return
        found = records_of(journal)
        for number, payload in found.items():
            assert payload in self.given[number], f"{number} holds what nobody appended"
        assert bounds.next >= self.watermark, f"the watermark fell from {self.watermark} to {bounds.next}"
        for number, payload in self.durable.items():
            # Above the watermark a record written during the power failure may have replaced it.
            allowed = {payload} if number < self.watermark else self.given[number]
            assert number < bounds.first or found.get(number) in allowed, f"{number} was durable"
        lost = numbers_in(journal.losses(0, bounds.first, bounds.last))
        assert {number for number in self.lost if number >= bounds.first} <= lost

    def note(self, journal: Journal) -> None:
        """Note that the journal has synced everything it holds."""
        bounds = journal.bounds(0)
        if bounds is not None:
            self.watermark = bounds.next
            self.durable = records_of(journal)
            self.lost = numbers_in(journal.losses(0, bounds.first, bounds.last))
            assert numbers_in(journal.held(0, bounds.first, bounds.last)) == set(self.durable)


class Life:
    """A process that writes to a journal until it ends or loses power.

    :param every: it makes every so manyth group durable.
    """

    def __init__(self, seed: int, *, retention: Retention | None = None, every: int = 1) -> None:
        self.rng = Random(seed)
        self.disk = Disk(Random(f"{seed}/disk"))
        self.promises = Promises()
        self.seen: dict[int, bytes | None] = {}
        self.now = 1_000_000.0
        self.next = FIRST
        self.late: list[int] = []
        self.every = every
        retention = retention or Retention()
        self.config = JournalConfig(segment_bytes=1_500, segment_frames=12, frame_records=8, retention=retention)

    def live(self, groups: int) -> None:
        """Open the journal, check it, and write groups."""
        journal = Journal(self.disk, STREAM, config=self.config, tag=7, clock=lambda: self.now)
        assert not [damage for damage in journal.recovery.damages if self.every == 1]
        self.promises.check(journal)
        self.promises.note(journal)
        self.look()
        for group in range(groups):
            self.write_group(journal, sync=group % self.every == 0)
            if self.rng.random() < 0.15:
                journal.compact()
            if self.rng.random() < 0.1 and journal.trim():
                self.promises.note(journal)
            self.look()
        journal.close()

    def write_group(self, journal: Journal, *, sync: bool) -> None:
        self.now += 1.0
        records = []
        for _ in range(self.rng.randint(1, 6)):
            number, self.next = self.next, self.next + 1
            if self.rng.random() < 0.15:
                self.late.append(number)
            else:
                records.append(self.record(number))
                if self.rng.random() < 0.1:
                    self.late.append(number)  # It is appended again with another payload.
        while self.late and self.rng.random() < 0.4:
            records.append(self.record(self.late.pop(self.rng.randrange(len(self.late)))))
        journal.append(records)
        if self.late and self.rng.random() < 0.3:
            number = self.late.pop()
            journal.lose(0, number, number)
        journal.commit(sync)
        if sync:
            self.promises.note(journal)

    def record(self, number: int) -> Record:
        payload = self.rng.randbytes(self.rng.choice((0, 3, 20)))
        self.promises.given.setdefault(number, set()).add(payload)
        return Record(STREAM, 0, number, int(self.now * 1e6), payload)

    def look(self) -> None:
        """Read in another process: every record seen once must be seen by all later readers."""
        reader = JournalReader(self.disk)
        bounds = reader.bounds(0)
        if bounds is not None:
            now: dict[int, bytes | None] = {**records_of(reader)}
            now |= dict.fromkeys(numbers_in(reader.losses(0, bounds.first, bounds.last)))
            assert set(now) == set(range(bounds.first, bounds.next))
            for number, payload in self.seen.items():
                assert number < bounds.first or (number in now and now[number] == payload), f"a reader saw {number}"
            self.seen |= now
        reader.close()


def crashed(life: Life, groups: int, cost: int | None) -> bool:
    """Run until ``cost`` more is spent; tell whether power was cut."""
    life.disk.power_cut_after = cost
    try:
        life.live(groups)
    except PowerCut:
        return True
    finally:
        life.disk.power_cut_after = None
    return False


@pytest.mark.parametrize("power", [True, False], ids=["power", "kill"])
def test_committed_records_survive_truncation_at_any_byte(power: bool) -> None:
    new, whole = Life(1), Life(1)
    new.live(0)
    assert not crashed(whole, 30, None)
    # Most of the first writes are the disk reserve.
    reserve, used = new.disk.spent, whole.disk.spent
    for cost in (*range(0, reserve, reserve // 10), *range(reserve, used, (used - reserve) // 150)):
        life = Life(1)
        life.disk = Disk(Random(f"{cost}/disk"))
        assert crashed(life, 30, cost), cost
        life.disk.power_lost() if power else life.disk.process_killed()
        life.live(3)


WAYS: list[dict[str, Any]] = [{}, {"every": 3}, {"retention": Retention(size=3_000)}]


def crash_again_and_again(seed: int, options: dict[str, Any]) -> None:
    life = Life(seed, **options)
    chance = Random(f"{seed}/crashes")
    try:
        life.live(0)  # Otherwise power would always fail while the reserve is written.
        for _ in range(12):
            crashed(life, 25, chance.randint(1, 9_000))
            life.disk.power_lost() if chance.random() < 0.6 else life.disk.process_killed()
        life.live(1)
        assert len(life.promises.given) > 100, "crashes left no time to write anything"
    except Exception as error:
        error.add_note(f"seed {seed}, {options}")
        raise


@pytest.mark.parametrize("options", WAYS, ids=str)
@seeds([0], more=range(7))
def test_a_journal_survives_repeated_crashes(options: dict[str, Any], seeds: Sequence[int]) -> None:
    for seed in seeds:
        crash_again_and_again(seed, options)


@pytest.mark.soak
def test_journal_survives_random_crashes(fresh_seed: int) -> None:
    until = time.monotonic() + float(os.environ.get("SOAK_SECONDS", "60"))
    seed = fresh_seed
    while time.monotonic() < until:
        for options in WAYS:
            crash_again_and_again(seed, options)
        seed += 1
    print(f"{len(WAYS) * (seed - fresh_seed)} lives with 12 crashes each")
