"""Bounded set of recently seen keys."""

from __future__ import annotations

import pytest

from fyrehose_twisted.lru_set import LruSet


def test_a_key_is_new_only_the_first_time_it_is_added() -> None:
    keys = LruSet(10)
    assert [keys.add(7), keys.add(7), keys.add(8)] == [True, False, True]
    assert (len(keys), 7 in keys, 9 in keys) == (2, True, False)


def test_the_oldest_key_is_evicted_first() -> None:
    keys = LruSet(3)
    for key in range(4):
        keys.add(key)
    assert [key in keys for key in range(4)] == [False, True, True, True]
    assert keys.add(0)


def test_adding_a_key_again_does_not_renew_it() -> None:
    keys = LruSet(2)
    for key in (1, 2, 1, 3):
        keys.add(key)
    assert [key in keys for key in (1, 2, 3)] == [False, True, True]


@pytest.mark.parametrize("limit", [1, 256, 10_000])
def test_exactly_as_many_keys_as_the_limit_are_kept(limit: int) -> None:
    keys = LruSet(limit)
    for key in range(limit):
        keys.add(key)
    assert (len(keys), keys.add(0)) == (limit, False)
    keys.add(limit)
    assert (len(keys), keys.add(0)) == (limit, True)


def test_a_discarded_key_is_new_again() -> None:
    keys = LruSet(10)
    keys.add(7)
    keys.discard(7)
    keys.discard(8)
    assert (len(keys), keys.add(7)) == (0, True)
