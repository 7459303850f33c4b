from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward, RoundRobinForward
from fyrehose_twisted.interfaces import IForwardPolicy

JOURNALS: list[Address] = [(f"192.0.2.{number}", 2323) for number in range(1, 6)]
OTHER_HOST: Address = ("198.51.100.1", 5000)


def policies(seed: int) -> list[IForwardPolicy]:
    return [RandomForward(Random(seed)), RoundRobinForward()]


@given(seed=st.integers(0, 2**32), count=st.integers(0, 5), requests=st.lists(st.integers(0, 5), max_size=20))
def test_a_policy_chooses_a_journal_other_than_the_requester(seed: int, count: int, requests: list[int]) -> None:
    journals = JOURNALS[:count]
    for policy in policies(seed):
        for number in requests:
            requester = [*JOURNALS, OTHER_HOST][number]
            others = [journal for journal in journals if journal != requester]
            chosen = policy.choose(journals, requester)
            assert chosen in others if others else chosen is None


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("position", [0, 1, -1, None])
def test_random_forward_chooses_uniformly(count: int, position: int | None) -> None:
    journals = JOURNALS[:count]
    requester = OTHER_HOST if position is None else journals[position]
    policy = RandomForward(Random(7))
    draws = 20_000
    counts = Counter(policy.choose(journals, requester) for _ in range(draws))
    others = set(journals) - {requester}
    assert set(counts) == others
    expected = draws / len(others)
    # Five standard deviations at most, and the seed is fixed.
    assert all(abs(count - expected) < 5 * expected**0.5 for count in counts.values())


def test_random_forward_is_reproducible_with_equal_seeds() -> None:
    first, second = (RandomForward(Random(3)) for _ in range(2))
    assert [first.choose(JOURNALS, OTHER_HOST) for _ in range(50)] == [
        second.choose(JOURNALS, OTHER_HOST) for _ in range(50)
    ]


class TestRoundRobin:
    @pytest.mark.parametrize("count", [2, 3, 5])
    @pytest.mark.parametrize("position", [0, 1, -1, None])
    def test_round_robin_chooses_each_journal_equally_often(self, count: int, position: int | None) -> None:
        journals = JOURNALS[:count]
        requester = OTHER_HOST if position is None else journals[position]
        others = [journal for journal in journals if journal != requester]
        policy = RoundRobinForward()
        chosen = [policy.choose(journals, requester) for _ in range(3 * len(others))]
        assert chosen == others * 3

    def test_round_robin_continues_after_the_list_of_journals_changed(self) -> None:
        policy = RoundRobinForward()
        chosen = [policy.choose(JOURNALS[:count], OTHER_HOST) for count in (5, 5, 5, 5, 2, 1, 5, 5)]
        assert None not in chosen
        assert {policy.choose(JOURNALS, OTHER_HOST) for _ in JOURNALS} == set(JOURNALS)

    @pytest.mark.parametrize("requester", [JOURNALS[0], OTHER_HOST])
    def test_round_robin_chooses_none_without_another_journal(self, requester: Address) -> None:
        policy = RoundRobinForward()
        assert policy.choose([], requester) is None
        assert policy.choose(JOURNALS[:1], JOURNALS[0]) is None
        assert policy.choose(JOURNALS[:1], OTHER_HOST) == JOURNALS[0]
