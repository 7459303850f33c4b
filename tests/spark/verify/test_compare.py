from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.journal.block import Block, integer_ranges
from fyrehose_twisted.journal.catalog import StoredBlock
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import Damage
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.spark.source.journal_locations import JournalLocation
from fyrehose_twisted.spark.verify import compare, planning, share_reader, tables
from fyrehose_twisted.spark.verify.compare import Comparison
from fyrehose_twisted.spark.verify.parts import ComparisonRange, Extent, Share
from fyrehose_twisted.spark.verify.payload_comparison import PayloadRows, differing_rows
from fyrehose_twisted.spark.verify.runs import FindingRun, FindingRunMerger, ShareEdge, clock_regression, merge_runs

STREAM, TOLERANCE = "test://stream", 100
BASE = 5
"""First number of fake journals."""
JUMP = 2**40


class Version(NamedTuple):
    payload: bytes
    received_at: int


class Made(NamedTuple):
    """A fake journal: the versions of each number, oldest first."""

    name: str
    first: int
    next: int
    versions: dict[int, list[Version]]
    lost: set[int]
    damaged: set[int]
    frames: list[list[tuple[int, Version]]]
    wrap: int = 0

    @property
    def held(self) -> dict[int, Version]:
        return {number: of[-1] for number, of in self.versions.items() if number not in self.damaged}


def block_of(rows: Sequence[tuple[int, Version]], wrap: int = 0) -> Block:
    payload = b"".join(version.payload for _, version in rows)
    return Block(
        STREAM,
        0,
        np.array([number for number, _ in rows], np.uint64),
        np.array([version.received_at for _, version in rows], np.int64),
        np.cumsum([0, *(len(version.payload) for _, version in rows)]).astype(np.uint32),
        memoryview(payload),
        wrap,
    )


class FakeReader(JournalReader):
    """A reader of a fake journal, in frames that may overlap."""

    def __init__(self, made: Made) -> None:
        self.made = made
        self.damages = []

    @property
    def wrap(self) -> int:
        return self.made.wrap

    @property
    def segments(self) -> list[Any]:
        return []

    def bounds(self, epoch: int) -> Bounds:
        return Bounds(self.made.first, self.made.next, self.made.next - 1)

    def held(self, epoch: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        return RangeSet((number, number) for number in self.made.versions).intersection(first, last)

    def losses(self, epoch: int, first: int, last: int) -> list[tuple[int, int]]:
        return list(RangeSet((number, number) for number in self.made.lost).intersection(first, last))

    def stored(self, epoch: int, first: int, last: int, on_damage: Any = None, **_: Any) -> Iterator[list[StoredBlock]]:
        frames = []
        for index, frame in enumerate(self.made.frames):
            inside = [row for row in frame if first <= row[0] <= last]
            good = [row for row in inside if row[0] not in self.made.damaged]
            for number, _ in inside:
                if number in self.made.damaged and on_damage is not None:
                    on_damage(Damage(f"{index}.log", number, 1, "bad", 0, number, number))
            if good:
                frames.append((index, good))
        frames.sort(key=lambda frame: frame[1][0][0])
        while frames:
            window = [frames.pop(0)]
            reach = window[0][1][-1][0]
            while frames and frames[0][1][0][0] <= reach:
                window.append(frames.pop(0))
                reach = max(reach, window[-1][1][-1][0])
            yield [StoredBlock(f"{index}.log", block_of(rows, self.made.wrap)) for index, rows in sorted(window)]


def made(
    name: str,
    records: Sequence[tuple[int, bytes, int]],
    *,
    first: int | None = None,
    next: int | None = None,
    lost: Sequence[int] = (),
    damaged: Sequence[int] = (),
    frame: int = 4,
    wrap: int = 0,
) -> Made:
    """Return a fake journal; repeated records replace earlier ones, and frames keep the given order."""
    versions: dict[int, list[Version]] = {}
    frames: list[list[tuple[int, Version]]] = []
    for low in range(0, len(records), frame):
        kept: dict[int, Version] = {}
        for number, payload, when in records[low : low + frame]:
            if number in kept:
                frames.append(sorted(kept.items()))
                kept = {}
            kept[number] = Version(payload, when)
            versions.setdefault(number, []).append(kept[number])
        frames.append(sorted(kept.items()))
    first = min([*versions, *lost], default=0) if first is None else first
    next = max([*versions, *lost], default=-1) + 1 if next is None else next
    return Made(name, first, next, versions, set(lost) - set(versions), set(damaged), frames, wrap)


def extent(journals: Sequence[Made], later: int | None = None) -> Extent:
    shares = tuple(
        Share(
            JournalLocation(one.name, STREAM, one.name),
            Bounds(one.first, one.next, one.next - 1),
            later_epoch_start=later,
        )
        for one in journals
    )
    first, next = min(one.first for one in journals), max(one.next for one in journals)
    return Extent(STREAM, 0, journals[0].wrap, first, next, shares)


def parts(journals: Sequence[Made], rows: int, later: int | None = None) -> list[ComparisonRange]:
    readers = {one.name: FakeReader(one) for one in journals}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "planned_reader", lambda origin: (readers[origin.journal], False))
        return list(planning.plan_ranges([extent(journals, later)], rows))


def comparisons(journals: Sequence[Made], rows: int = 1_000, later: int | None = None) -> Iterator[Comparison]:
    for part in parts(journals, rows, later):
        readers = {one.name: FakeReader(one) for one in journals}
        yield Comparison(part, TOLERANCE, lambda share, epoch, readers=readers: readers[share.location.journal])


def runs(journals: Sequence[Made], rows: int = 1_000, later: int | None = None) -> list[FindingRun]:
    """Return all findings, with edges between ranges compared like the window function."""
    found: list[FindingRun] = []
    edges: dict[str, ShareEdge] = {}
    whole = FindingRunMerger()
    for comparison in comparisons(journals, rows, later):
        for some in comparison.runs():
            for one in some:
                if isinstance(one, FindingRun):
                    found.append(one)
                    continue
                before = edges.get(one.journal)
                if before is not None and before.last_time - one.first_time > TOLERANCE:
                    detail = clock_regression(before.last_time - one.first_time)
                    whole.add("clock", "backwards", one.journal, one.first, one.first, detail)
                edges[one.journal] = one
    return list(merge_runs([*found, *whole.close()]))


def without_detail(found: Sequence[FindingRun]) -> list[tuple[Any, ...]]:
    return [tuple(run[:6]) for run in found]


def numbers_of(found: Sequence[FindingRun]) -> dict[tuple[str, str, str | None], list[int]]:
    """Return findings per number, for narrow ranges."""
    said: dict[tuple[str, str, str | None], list[int]] = {}
    for run in found:
        said.setdefault(run[:3], []).extend(range(run.first, run.last + 1))
    return said


def oracle(journals: Sequence[Made], later: int | None) -> dict[tuple[str, str, str | None], list[int]]:
    """Compute the findings number by number."""
    low, high = min(one.first for one in journals), max(one.next for one in journals)
    said: dict[tuple[str, str, str | None], list[int]] = {}
    for number in range(low, high):
        payloads: set[bytes] = set()
        for one in journals:
            versions = [version.payload for version in one.versions.get(number, ()) if number not in one.damaged]
            there = one.first <= number < one.next
            payloads |= set(versions) if there else set()
            if there and len(versions) > 1 and len(set(versions)) == 1:
                said.setdefault(("duplicate", "stored-twice", one.name), []).append(number)
            if there and versions:
                if later is not None and one.held[number].received_at > later + TOLERANCE:
                    said.setdefault(("order", "epoch", one.name), []).append(number)
                continue
            if number < one.first:
                reason = "before"
            elif number >= one.next:
                reason = "after"
            else:
                reason = "lost" if number in one.lost else "damaged"
            said.setdefault(("missing", reason, one.name), []).append(number)
        if not payloads:
            said.setdefault(("missing", "nobody", None), []).append(number)
        if len(payloads) > 1:
            said.setdefault(("divergence", "payload", None), []).append(number)
    for one in journals:
        times = [version.received_at for number, version in sorted(one.held.items()) if one.first <= number < one.next]
        numbers = [number for number in sorted(one.held) if one.first <= number < one.next]
        for row in range(1, len(numbers)):
            if times[row - 1] - times[row] > TOLERANCE:
                said.setdefault(("clock", "backwards", one.name), []).append(numbers[row])
    return said


def table(journals: Sequence[Made], rows: int, what: Any) -> list[dict[str, Any]]:
    return [
        row for comparison in comparisons(journals, rows) for batch in what(comparison) for row in batch.to_pylist()
    ]


def healed_by_oracle(journals: Sequence[Made]) -> list[tuple[int, bytes | None, str, str | None]]:
    said = oracle(journals, None)
    quarantined = set(said.get(("divergence", "payload", None), ()))
    rows: list[tuple[int, bytes | None, str, str | None]] = []
    for number in range(min(one.first for one in journals), max(one.next for one in journals)):
        holders = [one for one in journals if number in one.held and one.first <= number < one.next]
        sequence = number % journals[0].wrap if journals[0].wrap else number
        if number in quarantined:
            rows.append((sequence, None, "quarantined", None))
        elif holders:
            rows.append((sequence, holders[0].held[number].payload, "ok", holders[0].name))
        else:
            rows.append((sequence, None, "lost", None))
    return rows


PAYLOADS = st.sampled_from([b"", b"a", b"b", b"\xff\x00\xfe", b"longer than the others"])


@st.composite
def journal(draw: st.DrawFn, name: str, truth: dict[int, bytes], wrap: int) -> Made:
    records: list[tuple[int, bytes, int]] = []
    lost, damaged = [], []
    low = draw(st.sampled_from([BASE, BASE, BASE + 3]))
    high = draw(st.sampled_from([BASE + 25, BASE + 25, BASE + 19]))
    for number in range(low, high):
        fate = draw(st.sampled_from(["ok"] * 8 + ["lost", "damaged", "other", "twice", "changed", "late"]))
        when = 1_000 + 10 * number - (500 if fate == "late" else 0)
        payload = draw(PAYLOADS) if fate == "other" else truth[number]
        if fate == "lost":
            lost.append(number)
            continue
        if fate == "damaged":
            damaged.append(number)
        records.append((number, payload, when))
        if fate in ("twice", "changed"):
            records.append((number, payload if fate == "twice" else draw(PAYLOADS), when + 1))
    order = draw(st.permutations(range(len(records)))) if draw(st.booleans()) else range(len(records))
    frame = draw(st.integers(1, 9))
    found = made(name, [records[row] for row in order], first=low, next=high, lost=lost, damaged=damaged, frame=frame)
    return found._replace(wrap=wrap)


@st.composite
def replicas(draw: st.DrawFn) -> list[Made]:
    truth = {number: draw(PAYLOADS) for number in range(BASE, BASE + 25)}
    wrap = draw(st.sampled_from([0, 0, 13]))
    return [draw(journal(name, truth, wrap)) for name in "abc"[: draw(st.integers(1, 3))]]


@given(replicas(), st.integers(1, 30), st.sampled_from([None, 1_150]), st.sampled_from([1, 7, 16_384]))
def test_comparing_ranges_equals_comparing_number_by_number(
    journals: list[Made], rows: int, later: int | None, together: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(share_reader, "GATHERED_ROWS", together)
        patch.setattr(compare, "LISTED_AT_ONCE", together)
        patch.setattr(tables, "BATCH_BYTES", together)
        found = runs(journals, rows, later)
        assert numbers_of(found) == oracle(journals, later)
        assert all(run.numbers == run.last - run.first + 1 for run in found)
        assert found == runs(journals, 1_000, later)
        healed = table(journals, rows, tables.healed_batches)
        assert [(row["sequence"], row["payload"], row["status"], row["journal"]) for row in healed] == healed_by_oracle(
            journals
        )
        quarantined = table(journals, rows, tables.quarantine_batches)
    wrap = journals[0].wrap
    disputed = oracle(journals, None).get(("divergence", "payload", None), [])
    assert [(row["sequence"], row["journal"], row["payload"]) for row in quarantined] == [
        (number % wrap if wrap else number, one.name, version.payload)
        for number in disputed
        for one in journals
        if one.first <= number < one.next and number not in one.damaged
        for version in one.versions.get(number, ())
    ]


@given(st.lists(st.tuples(PAYLOADS, PAYLOADS, st.booleans()), max_size=30), st.integers(0, 3))
def test_payloads_are_compared_byte_for_byte(pairs: list[tuple[bytes, bytes, bool]], skipped: int) -> None:
    rows = [(number, Version(one, 0)) for number, (one, _, _) in enumerate(pairs)]
    others = [(number, Version(one if same else other, 0)) for number, (one, other, same) in enumerate(pairs)]
    here, there = (PayloadRows.of(block_of(of)) for of in (rows, others))
    picked = np.arange(skipped % (len(pairs) + 1), len(pairs))
    expected = [rows[row][1].payload != others[row][1].payload for row in picked]
    assert differing_rows(here.take(picked), there.take(picked)).tolist() == expected


def test_agreeing_journals_have_no_differences() -> None:
    records = [(number, b"%d" % number, number) for number in range(1, 101)]
    assert runs([made("a", records), made("b", records, frame=7)]) == []


def test_a_difference_names_the_differing_journals() -> None:
    records = [(number, b"x%d" % number, number) for number in range(10)]
    changed = [*records[:4], (4, b"y4", 4), (5, b"y5", 5), *records[6:]]
    found = runs([made("a", records), made("b", changed), made("c", changed)])
    assert found == [FindingRun("divergence", "payload", None, 4, 5, 2, "b, c differ from a")]
    found = runs([made("a", [*records, (9, b"again", 9)]), made("b", records)])
    assert found == [
        FindingRun("divergence", "payload", None, 9, 9, 1, "b differs from a; a stores more than one payload")
    ]


def test_a_large_gap_is_compared_as_one_range_with_two_rows() -> None:
    records = [(1, b"one", 1), (JUMP, b"far", 2), (JUMP + 1, b"further", 3)]
    one = made("a", records, lost=[])._replace(lost=set())
    pieces = parts([one], 10)
    assert [(part.first, part.last) for part in pieces] == [(1, 1), (2, JUMP - 1), (JUMP, JUMP + 1)]
    found = runs([one], 10)
    assert [run[:6] for run in found] == [
        ("missing", "damaged", "a", 2, JUMP - 1, JUMP - 2),
        ("missing", "nobody", None, 2, JUMP - 1, JUMP - 2),
    ]
    for rows in (1, 10, 2**45):
        healed = table([one], rows, tables.healed_batches)
        assert [(row["sequence"], row["status"]) for row in healed] == [
            (1, "ok"),
            (2, "lost"),
            (JUMP - 1, "lost"),
            (JUMP, "ok"),
            (JUMP + 1, "ok"),
        ]


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 100])
def test_listed_losses_do_not_depend_on_the_split_into_ranges(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "LONGEST_LISTED", 4)
    monkeypatch.setattr("fyrehose_twisted.spark.verify.compare.LONGEST_LISTED", 4)
    numbers = [1, 2, 7, 13, 14, 20]
    one = made("a", [(number, b"", number) for number in numbers])
    healed = table([one], rows, tables.healed_batches)
    lost = [row["sequence"] for row in healed if row["status"] == "lost"]
    assert lost == [3, 4, 5, 6, 8, 12, 15, 19]
    assert [row["sequence"] for row in healed if row["status"] == "ok"] == numbers


def test_large_payloads_are_compared_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "BATCH_BYTES", 1_000)
    records = [(number, bytes([number % 256]) * 700, number) for number in range(20)]
    batches = [batch for one in comparisons([made("a", records)]) for batch in tables.healed_batches(one)]
    assert [len(batch) for batch in batches] == [1] * 20
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [(row["sequence"], row["payload"]) for row in rows] == [(number, payload) for number, payload, _ in records]


def test_a_clock_regression_within_the_tolerance_is_no_finding() -> None:
    records = [(1, b"", 1_000), (2, b"", 1_000 - TOLERANCE), (3, b"", 1_000 - 2 * TOLERANCE - 1)]
    for rows in (1, 10):
        assert runs([made("a", records)], rows) == [FindingRun("clock", "backwards", "a", 3, 3, 1, "by 0.000101 s")]


@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from([None, "x"])), unique_by=lambda one: one[0]))
def test_runs_of_findings_are_joined_for_any_split(numbers: list[tuple[int, str | None]]) -> None:
    found = list(merge_runs(FindingRun("missing", "lost", "a", at, at, 1, detail) for at, detail in numbers))
    expected = []
    for detail in (None, "x"):
        expected += [
            (first, last, detail) for first, last in integer_ranges(sorted(at for at, of in numbers if of == detail))
        ]
    assert sorted(((run.first, run.last, run.detail) for run in found), key=str) == sorted(expected, key=str)
