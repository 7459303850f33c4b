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


def extensions(sequencer: Sequencer, *, rate: int, seconds: int, step: int = 100) -> list[int]:
    """Take ``rate`` numbers a second; return the reserve after each extension of the bound."""
    ahead = []
    for taken in range(0, rate * seconds, step):
        before = sequencer.bound
        sequencer.take(step, 1_000 + taken / rate)
        if sequencer.bound != before:
            ahead.append(sequencer.bound - sequencer.last)
    return ahead


class TestSequencer:
    @given(last=st.integers(0, MAX_SEQUENCE - 10_000), counts=st.lists(st.integers(1, 500), max_size=20))
    def test_assigned_numbers_are_contiguous(self, last: int, counts: list[int]) -> None:
        sequencer = Sequencer(last, last)
        expected = last + 1
        for count in counts:
            assert sequencer.take(count, 0.0) == expected
            expected += count
        assert sequencer.last == expected - 1
        assert sequencer.remaining == MAX_SEQUENCE - sequencer.last

    @given(
        last=st.integers(0, 3_000) | st.integers(MAX_SEQUENCE - 20_000, MAX_SEQUENCE - 10_000),
        reserved=st.integers(0, 3_000),
        takes=st.lists(st.tuples(st.integers(1, 500), st.floats(-5, 5)), max_size=20),
    )
    def test_the_bound_never_decreases_and_stays_between_the_last_and_the_maximum_number(
        self, last: int, reserved: int, takes: list[tuple[int, float]]
    ) -> None:
        sequencer = Sequencer(last, last + reserved)
        now = 1_000.0
        for count, seconds in takes:
            now += seconds
            before = sequencer.bound
            sequencer.take(count, now)
            assert max(before, sequencer.last) <= sequencer.bound <= MAX_SEQUENCE
            assert sequencer.checkpoint == (sequencer.last, sequencer.bound)

    def test_a_new_sequencer_has_assigned_and_reserved_nothing(self) -> None:
        sequencer = Sequencer(0, 0)
        assert sequencer.checkpoint == (0, 0)
        assert sequencer.remaining == MAX_SEQUENCE

    def test_a_bound_below_the_last_number_is_raised_to_it(self) -> None:
        assert Sequencer(10, 5).checkpoint == (10, 10)

    def test_the_bound_is_extended_before_it_is_reached(self) -> None:
        sequencer = Sequencer(0, 0)
        sequencer.take(1, 0.0)
        assert sequencer.bound == 1 + MINIMUM_RESERVE
        sequencer.take(MINIMUM_RESERVE // 2, 0.0)
        assert sequencer.bound == 1 + MINIMUM_RESERVE
        sequencer.take(1, 0.0)
        assert sequencer.bound == sequencer.last + MINIMUM_RESERVE

    @pytest.mark.parametrize("rate", [10_000, 200_000, 2_000_000])
    def test_the_reserve_covers_one_to_two_seconds_of_traffic(self, rate: int) -> None:
        settled = extensions(Sequencer(0, 0), rate=rate, seconds=8)[8:]
        assert settled
        assert all(rate <= ahead <= 2.5 * rate for ahead in settled)

    def test_the_bound_does_not_decrease_when_a_stream_slows_down(self) -> None:
        sequencer = Sequencer(0, 0)
        extensions(sequencer, rate=50_000, seconds=3)
        bound = sequencer.bound
        assert bound - sequencer.last > 2 * MINIMUM_RESERVE
        sequencer.take(bound - sequencer.last - MINIMUM_RESERVE, 100_000.0)
        assert sequencer.bound == bound

    @pytest.mark.parametrize("seed", range(5))
    def test_the_reserve_does_not_depend_on_the_batch_size(self, seed: int) -> None:
        rng = Random(seed)
        together, singly, now = Sequencer(0, 0), Sequencer(0, 0), 0.0
        for _ in range(60):
            now += rng.choice((0.0, 0.001, 0.3, 20.0))
            count = rng.choice((1, 7, 500, 3_000))
            first = together.take(count, now)
            assert [singly.take(1, now) for _ in range(count)] == list(range(first, first + count))
            assert together.checkpoint == singly.checkpoint

    def test_a_slow_stream_has_the_minimum_reserve(self) -> None:
        assert set(extensions(Sequencer(0, 0), rate=100, seconds=100, step=1)) == {MINIMUM_RESERVE}

    def test_the_reserve_is_limited_at_any_rate(self) -> None:
        sequencer = Sequencer(0, 0)
        sequencer.take(1, 0.0)
        sequencer.take(MINIMUM_RESERVE // 2 + 1, 1e-6)
        assert sequencer.bound == sequencer.last + MAXIMUM_RESERVE

    def test_the_bound_stops_at_the_maximum_sequence_number(self) -> None:
        sequencer = Sequencer(MAX_SEQUENCE - 100, MAX_SEQUENCE - 100)
        assert sequencer.take(99, 0.0) == MAX_SEQUENCE - 99
        assert (sequencer.checkpoint, sequencer.remaining) == ((MAX_SEQUENCE - 1, MAX_SEQUENCE), 1)
        assert sequencer.take(1, 0.0) == MAX_SEQUENCE
        assert (sequencer.checkpoint, sequencer.remaining) == ((MAX_SEQUENCE, MAX_SEQUENCE), 0)


class TestVolatileSequence:
    def test_a_volatile_sequence_store_keeps_its_checkpoint_in_memory(self) -> None:
        sequence = VolatileSequenceStore()
        assert (sequence.last, sequence.bound) == (0, 0)
        sequence.persist(SequenceCheckpoint(5, 9))
        sequence.close()
        assert (sequence.last, sequence.bound) == (5, 9)

    def test_a_volatile_sequence_store_with_a_start_is_not_fresh(self) -> None:
        sequence = VolatileSequenceStore(41)
        assert (sequence.last, sequence.bound, sequence.fresh) == (41, 41, False)
