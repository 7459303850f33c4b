"""Waits for durable journals, and the limit of unsynced bytes."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.frontend.journals import JournalProgress, TooFewJournals
from fyrehose_twisted.fyrehose.wire.packets import Holding


class Bench:
    """Journals whose synced position is set by a test.

    :ivar changes: how often somebody was told of it.
    """

    def __init__(self, **limits: Any) -> None:
        self.clock = Clock()
        self.changes = 0
        self.journals = JournalProgress(FrontendConfig(**limits), self.clock, self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def when_kept(self, sequences: Sequence[int], wanted: int) -> list[Any]:
        """Return a list that receives the outcome of the wait."""
        found: list[Any] = []
        self.waiting: Deferred[Any] = self.journals.when_kept(sequences, wanted)
        self.waiting.addBoth(found.append)
        return found

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.journals.tick(seconds)


def test_messages_are_kept_once_enough_journals_have_synced_all_of_them() -> None:
    bench = Bench()
    kept = bench.when_kept([4, 7, 6], 2)
    bench.journals.holdings_received([Holding(1, 7), Holding(1, 6)])
    assert (kept, len(bench.journals), bench.changes) == ([], 1, 1)
    bench.journals.holdings_received([Holding(1, 8), Holding(4, 7)])
    assert (kept, len(bench.journals)) == ([[4, 7, 6]], 0)
    assert bench.when_kept([7], 2) == [[7]]


def test_a_journal_that_lost_a_part_of_the_messages_does_not_count() -> None:
    bench = Bench()
    kept = bench.when_kept([4, 7], 1)
    bench.journals.holdings_received([Holding(5, 9)])
    bench.pass_time(30)
    [failure] = kept
    error = failure.value
    assert isinstance(error, TooFewJournals)
    assert (error.sequences, error.had, error.wanted) == ([4, 7], 0, 1)
    assert str(error) == "2 messages are published, and 0 of 1 durable journals had synced them in time"


def test_messages_on_both_sides_of_a_takeover_are_kept_by_the_two_holdings_of_a_journal() -> None:
    bench = Bench()
    kept = bench.when_kept([7, 20], 1)
    bench.journals.holdings_received([Holding(20, 19)])
    bench.journals.holdings_received([Holding(1, 6), Holding(20, 25)])
    assert kept == []
    bench.journals.holdings_received([Holding(1, 8), Holding(20, 25)])
    assert kept == [[7, 20]]


def test_a_wait_for_journals_fails_after_the_timeout() -> None:
    bench = Bench(keep_timeout=5.0)
    bench.journals.holdings_received([Holding(1, 9), Holding(1, 3)])
    kept, later = bench.when_kept([7], 2), bench.when_kept([1_000], 1)
    bench.pass_time(4)
    assert kept == []
    bench.pass_time(1)
    assert str(kept[0].value) == "message 7 is published, and 1 of 2 durable journals had synced it in time"
    assert str(later[0].value).startswith("message 1000 is published, and 0 of 1")
    assert (bench.journals.not_kept, len(bench.journals)) == (2, 0)
    bench.journals.holdings_received([Holding(1, 2_000)] * 2)
    assert bench.when_kept([7], 2) == [[7]]


def test_a_wait_for_journals_can_be_cancelled() -> None:
    bench = Bench()
    kept = bench.when_kept([7], 1)
    bench.waiting.cancel()
    assert isinstance(kept[0].value, CancelledError)
    bench.journals.holdings_received([Holding(1, 9)])
    bench.pass_time(30)
    assert (bench.journals.not_kept, len(bench.journals)) == (0, 0)


def test_stopping_fails_all_waits_for_journals() -> None:
    bench = Bench()
    kept = bench.when_kept([7], 1)
    bench.journals.stop()
    assert str(kept[0].value).endswith("0 of 1 durable journals had synced it when the service stopped")


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 3))),
    st.lists(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 20)), max_size=3)),
)
def test_a_message_is_kept_as_soon_as_enough_journals_report_it(
    messages: list[tuple[int, int]], told: list[list[tuple[int, int]]]
) -> None:
    bench = Bench()
    kept = [bench.when_kept([sequence], wanted) for sequence, wanted in messages]
    expected = [False] * len(messages)
    durable = [0] * 3
    for holdings in told:
        # The position of a journal only advances.
        durable = [max(a, b) for a, b in zip(durable, [last for _, last in holdings] + [0] * 3, strict=False)]
        heard = [Holding(1, last) for last in durable]
        bench.journals.holdings_received(heard)
        for row, (sequence, wanted) in enumerate(messages):
            expected[row] |= sum(holding.keeps(sequence) for holding in heard) >= wanted
        assert [bool(one) for one in kept] == expected


def test_publishing_is_not_limited_without_journals() -> None:
    bench = Bench(unsynced_bytes=100)
    bench.journals.published(7, 1_000)
    assert bench.journals.allowance(1_000) == inf


def test_publishing_stays_within_the_unsynced_bytes_limit() -> None:
    bench = Bench(unsynced_bytes=100)
    bench.journals.holdings_received([Holding(1, 6), Holding(1, 7)])
    bench.journals.published(6, 1_000)
    bench.journals.published(8, 50)
    bench.journals.published(7, 20)
    assert (bench.journals.unsynced_bytes, bench.journals.allowance(40)) == (70, -10)
    bench.journals.holdings_received([Holding(1, 9), Holding(1, 7)])
    assert (bench.journals.unsynced_bytes, bench.journals.allowance(40)) == (50, 10)
    bench.journals.holdings_received([Holding(1, 8), Holding(1, 9)])
    assert bench.journals.allowance(0) == 100


def test_a_journal_that_catches_up_does_not_limit_publishing() -> None:
    bench = Bench(unsynced_bytes=100)
    bench.journals.holdings_received([Holding(1, 500)])
    bench.journals.published(500, 90)
    bench.journals.holdings_received([Holding(1, 500), Holding(1, 3)])
    bench.journals.published(501, 90)
    bench.journals.holdings_received([Holding(1, 501), Holding(1, 4)])
    assert bench.journals.allowance(0) == 100
    bench.journals.holdings_received([Holding(1, 501), Holding(1, 501)])
    bench.journals.published(502, 90)
    bench.journals.holdings_received([Holding(1, 502), Holding(1, 501)])
    assert bench.journals.allowance(0) == 10


def test_a_stalled_journal_soon_does_not_limit_publishing() -> None:
    bench = Bench(unsynced_bytes=100, min_rate=30)
    bench.journals.holdings_received([Holding(1, 5), Holding(1, 5)])
    for sequence in (6, 7, 8):
        bench.journals.published(sequence, 40)
    bench.journals.holdings_received([Holding(1, 5), Holding(1, 8)])
    assert bench.journals.allowance(0) == -20
    bench.pass_time(1)
    assert bench.journals.allowance(0) == 100


def test_a_slow_journal_limits_publishing() -> None:
    bench = Bench(unsynced_bytes=100, min_rate=30)
    bench.journals.holdings_received([Holding(1, 5), Holding(1, 5)])
    bench.journals.published(5, 40)
    bench.journals.published(6, 40)
    for sequence in range(7, 100):
        bench.journals.published(sequence, 40)
        bench.journals.holdings_received([Holding(1, sequence), Holding(1, sequence - 2)])
        assert bench.journals.allowance(0) == 20
        bench.pass_time(1)


def test_the_minimum_rate_is_published_however_far_behind_journals_are() -> None:
    bench = Bench(unsynced_bytes=100, min_rate=30)
    bench.journals.holdings_received([Holding(1, 5)])
    for sequence in (6, 7, 8):
        bench.journals.published(sequence, 40)
    assert bench.journals.allowance(0) == -20
    bench.pass_time(1)
    assert bench.journals.allowance(0) == pytest.approx(10, abs=1)
    bench.pass_time(2)
    assert bench.journals.allowance(0) == pytest.approx(70, abs=2)
    bench.pass_time(9)
    assert bench.journals.allowance(0) == 100


def test_publishing_is_not_limited_after_all_journals_are_gone() -> None:
    bench = Bench(unsynced_bytes=100)
    bench.journals.holdings_received([Holding(1, 5)])
    bench.journals.published(6, 200)
    assert bench.journals.allowance(0) == -100
    bench.clock.advance(1)
    bench.journals.holdings_received([])
    assert bench.changes == 2
    bench.clock.advance(0.9)
    assert bench.journals.allowance(0) == -100  # A restarted backbone may not know the journals yet.
    bench.clock.advance(0.1)
    assert bench.journals.allowance(0) == inf
