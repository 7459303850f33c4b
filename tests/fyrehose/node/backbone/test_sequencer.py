from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.fyrehose.node.backbone.sequencer import (
    MAXIMUM_RESERVE,
    MINIMUM_RESERVE,
    SequenceCheckpoint,
    Sequencer,
    VolatileSequenceStore,
)
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE


def extensions(numbering: Sequencer, *, rate: int, seconds: int, step: int = 100) -> list[int]:
    """How far ahead the bound was after each of its moves, while ``rate`` numbers a second were taken."""
    ahead = []
    for taken in range(0, rate * seconds, step):
        before = numbering.bound
        numbering.take(step, 1_000 + taken / rate)
        if numbering.bound != before:
            ahead.append(numbering.bound - numbering.last)
    return ahead


class TestNumbering:
    @given(last=st.integers(0, MAX_SEQUENCE - 10_000), counts=st.lists(st.integers(1, 500), max_size=20))
    def test_numbers_are_continuous(self, last: int, counts: list[int]) -> None:
        numbering = Sequencer(last, last)
        expected = last + 1
        for count in counts:
            assert numbering.take(count, 0.0) == expected
            expected += count
        assert numbering.last == expected - 1
        assert numbering.remaining == MAX_SEQUENCE - numbering.last

    @given(
        last=st.integers(0, 3_000) | st.integers(MAX_SEQUENCE - 20_000, MAX_SEQUENCE - 10_000),
        reserved=st.integers(0, 3_000),
        takes=st.lists(st.tuples(st.integers(1, 500), st.floats(-5, 5)), max_size=20),
    )
    def test_the_bound_is_never_below_a_number_nor_above_the_last_nor_taken_back(
        self, last: int, reserved: int, takes: list[tuple[int, float]]
    ) -> None:
        numbering = Sequencer(last, last + reserved)
        now = 1_000.0
        for count, seconds in takes:
            now += seconds
            before = numbering.bound
            numbering.take(count, now)
            assert max(before, numbering.last) <= numbering.bound <= MAX_SEQUENCE
            assert numbering.checkpoint == SequenceCheckpoint(numbering.last, numbering.bound)

    def test_nothing_is_given_before_the_first(self) -> None:
        numbering = Sequencer(0, 0)
        assert numbering.checkpoint == SequenceCheckpoint(0, 0)
        assert numbering.remaining == MAX_SEQUENCE

    def test_a_bound_below_the_last_number_is_raised_to_it(self) -> None:
        assert Sequencer(10, 5).checkpoint == SequenceCheckpoint(10, 10)

    def test_the_bound_moves_before_it_is_reached(self) -> None:
        numbering = Sequencer(0, 0)
        numbering.take(1, 0.0)
        assert numbering.bound == 1 + MINIMUM_RESERVE
        numbering.take(MINIMUM_RESERVE // 2, 0.0)
        assert numbering.bound == 1 + MINIMUM_RESERVE
        numbering.take(1, 0.0)
        assert numbering.bound == numbering.last + MINIMUM_RESERVE

    @pytest.mark.parametrize("rate", [10_000, 200_000, 2_000_000])
    def test_it_keeps_a_second_or_two_of_traffic_ahead(self, rate: int) -> None:
        settled = extensions(Sequencer(0, 0), rate=rate, seconds=8)[8:]
        assert settled
        assert all(rate <= ahead <= 2.5 * rate for ahead in settled)

    def test_a_stream_that_slows_down_does_not_take_its_bound_back(self) -> None:
        numbering = Sequencer(0, 0)
        extensions(numbering, rate=50_000, seconds=3)
        bound = numbering.bound
        assert bound - numbering.last > 2 * MINIMUM_RESERVE
        numbering.take(bound - numbering.last - MINIMUM_RESERVE, 100_000.0)
        assert numbering.bound == bound

    @pytest.mark.parametrize("seed", range(5))
    def test_it_reserves_the_same_however_many_are_taken_at_once(self, seed: int) -> None:
        rng = Random(seed)
        together, singly, now = Sequencer(0, 0), Sequencer(0, 0), 0.0
        for _ in range(60):
            now += rng.choice((0.0, 0.001, 0.3, 20.0))
            count = rng.choice((1, 7, 500, 3_000))
            first = together.take(count, now)
            assert [singly.take(1, now) for _ in range(count)] == list(range(first, first + count))
            assert together.checkpoint == singly.checkpoint

    def test_a_slow_stream_has_the_smallest_reserve(self) -> None:
        assert set(extensions(Sequencer(0, 0), rate=100, seconds=100, step=1)) == {MINIMUM_RESERVE}

    def test_no_rate_makes_it_reserve_without_end(self) -> None:
        numbering = Sequencer(0, 0)
        numbering.take(1, 0.0)
        numbering.take(MINIMUM_RESERVE // 2 + 1, 1e-6)
        assert numbering.bound == numbering.last + MAXIMUM_RESERVE

    def test_the_bound_stops_at_the_last_number_of_all(self) -> None:
        numbering = Sequencer(MAX_SEQUENCE - 100, MAX_SEQUENCE - 100)
        assert numbering.take(99, 0.0) == MAX_SEQUENCE - 99
        assert (numbering.checkpoint, numbering.remaining) == (SequenceCheckpoint(MAX_SEQUENCE - 1, MAX_SEQUENCE), 1)
        assert numbering.take(1, 0.0) == MAX_SEQUENCE
        assert (numbering.checkpoint, numbering.remaining) == (SequenceCheckpoint(MAX_SEQUENCE, MAX_SEQUENCE), 0)


class TestVolatileSequence:
    def test_it_remembers_as_long_as_it_lives(self) -> None:
        sequence = VolatileSequenceStore()
        assert (sequence.last, sequence.bound) == (0, 0)
        sequence.persist(SequenceCheckpoint(5, 9))
        sequence.close()
        assert (sequence.last, sequence.bound) == (5, 9)

    def test_it_can_start_anywhere_and_asks_nobody(self) -> None:
        sequence = VolatileSequenceStore(41)
        assert (sequence.last, sequence.bound, sequence.fresh) == (41, 41, False)
