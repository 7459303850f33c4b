from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.token_bucket import KeyedTokenBuckets, TokenBucket

START = 1_700_000_000.0


class TestTokenBucket:
    def test_a_new_bucket_is_full(self) -> None:
        bucket = TokenBucket(10.0, 5.0, START)
        assert bucket.available(START) == 5
        assert [bucket.take(1, START) for _ in range(6)] == [True] * 5 + [False]

    def test_a_refused_amount_costs_nothing(self) -> None:
        bucket = TokenBucket(10.0, 5.0, START)
        assert not bucket.take(5.5, START)
        assert bucket.take(5, START)

    def test_a_bucket_refills_at_its_rate_up_to_the_burst(self) -> None:
        bucket = TokenBucket(4.0, 8.0, START)
        assert bucket.take(8, START)
        assert [bucket.available(START + seconds) for seconds in (0.5, 1.0, 2.0, 100.0)] == [2, 4, 8, 8]

    def test_a_debt_is_paid_before_anything_is_available(self) -> None:
        bucket = TokenBucket(4.0, 8.0, START)
        bucket.spend(12)
        assert bucket.available(START) == -4
        assert bucket.ready_at(2) == START + 1.5
        assert not bucket.take(1, START + 1.0)
        assert bucket.take(2, START + 1.5)

    def test_a_credit_is_added_up_to_the_burst(self) -> None:
        bucket = TokenBucket(4.0, 8.0, START)
        bucket.spend(10)
        bucket.credit(3)
        assert bucket.available(START) == 1
        bucket.credit(100)
        assert bucket.available(START) == 8

    def test_more_than_the_burst_is_ready_when_the_bucket_is_full(self) -> None:
        bucket = TokenBucket(4.0, 8.0, START)
        bucket.spend(8)
        assert bucket.ready_at(1_000) == START + 2

    def test_an_available_amount_is_ready_now(self) -> None:
        bucket = TokenBucket(4.0, 8.0, START)
        assert bucket.ready_at(8) == START

    def test_a_clock_that_was_set_back_neither_fills_nor_blocks_a_bucket(self) -> None:
        bucket = TokenBucket(4.0, 8.0, START)
        assert bucket.take(8, START)
        assert bucket.available(START - 3_600) == 0
        assert bucket.available(START - 3_599) == 4

    @given(
        rate=st.floats(0.5, 1e6),
        burst=st.floats(1.0, 1e6),
        steps=st.lists(st.tuples(st.floats(0, 3), st.floats(0, 1e6)), max_size=30),
    )
    def test_no_more_is_taken_than_the_burst_and_the_rate_allow(
        self, rate: float, burst: float, steps: list[tuple[float, float]]
    ) -> None:
        bucket, now, taken = TokenBucket(rate, burst, START), START, 0.0
        for seconds, amount in steps:
            now += seconds
            if bucket.take(amount, now):
                taken += amount
            assert taken <= (burst + rate * (now - START)) * (1 + 1e-9)

    @given(rate=st.floats(0.5, 1e7), burst=st.floats(1.0, 1e7), spent=st.floats(0, 1e7), part=st.floats(0, 1))
    def test_the_amount_is_available_at_the_ready_time(
        self, rate: float, burst: float, spent: float, part: float
    ) -> None:
        bucket = TokenBucket(rate, burst, START)
        bucket.spend(spent)
        ready = bucket.ready_at(part * burst)
        # Within float precision, since callers wait for slightly more than needed.
        assert bucket.available(ready) >= part * burst - rate * 1e-6 - burst * 1e-9


class TestBuckets:
    def test_each_key_has_its_own_bucket(self) -> None:
        buckets: KeyedTokenBuckets[str] = KeyedTokenBuckets(1.0, 2.0, 10)
        assert [buckets.bucket("a", START).take(1, START) for _ in range(3)] == [True, True, False]
        assert buckets.bucket("b", START).take(2, START)

    def test_only_the_most_recently_used_buckets_are_kept(self) -> None:
        buckets: KeyedTokenBuckets[str] = KeyedTokenBuckets(1.0, 2.0, 2)
        for key in "abac":
            buckets.bucket(key, START).take(1, START)
        assert len(buckets) == 2
        assert buckets.bucket("a", START).available(START) == 0
        assert buckets.bucket("b", START).available(START) == 2
        assert len(buckets) == 2

    @pytest.mark.parametrize("known", [True, False])
    def test_a_bucket_is_full_after_its_eviction(self, known: bool) -> None:
        buckets: KeyedTokenBuckets[str] = KeyedTokenBuckets(1.0, 2.0, 2)
        if known:
            buckets.bucket("a", START).spend(2)
        buckets.forget("a")
        assert len(buckets) == 0
        assert buckets.bucket("a", START).available(START) == 2


def test_a_new_rate_and_burst_apply_to_known_keys() -> None:
    buckets: KeyedTokenBuckets[str] = KeyedTokenBuckets(1.0, 2.0, 10)
    assert buckets.bucket("a", 0.0).take(2.0, 0.0)
    buckets.rate, buckets.burst = 4.0, 8.0
    assert buckets.bucket("a", 0.0).available(1.0) == 4.0
    assert buckets.bucket("a", 0.0).available(9.0) == 8.0
