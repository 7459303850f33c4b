from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from consensus import lease_model
from consensus.group import A, B, C, D, E, view_of
from consensus.lease_model import Host, LeaseModel
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.consensus.election_timer import ElectionTimer
from fyrehose_twisted.consensus.lease import LeaderLease
from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.consensus.messages import MemberId, Membership

Patch = pytest.MonkeyPatch
THREE, FIVE = view_of(A, B, C), view_of(A, B, C, D, E)


def lease_with_rounds(*times: float) -> LeaderLease:
    lease = LeaderLease(0.8)
    for number, now in enumerate(times, 1):
        assert lease.start_round(now) == number
    return lease


def test_a_lease_lasts_from_the_time_at_which_a_quorum_was_asked() -> None:
    lease = lease_with_rounds(10.0, 10.2)
    assert lease.until(THREE, A) == -inf
    lease.round_answered(B, 1)
    assert lease.until(THREE, A) == 10.8
    lease.round_answered(C, 2)
    assert lease.until(THREE, A) == 11.0
    lease.round_answered(C, 1)
    assert lease.until(THREE, A) == 11.0


def test_a_lease_of_five_needs_two_others() -> None:
    lease = lease_with_rounds(10.0, 10.2, 10.4)
    lease.round_answered(E, 3)
    assert lease.until(FIVE, A) == -inf
    lease.round_answered(B, 1)
    assert lease.until(FIVE, A) == 10.8
    lease.round_answered(C, 2)
    assert lease.until(FIVE, A) == 11.0


def test_only_answers_of_other_members_count() -> None:
    lease = lease_with_rounds(10.0)
    for member in (A, D, E):
        lease.round_answered(member, 1)
    assert lease.until(THREE, A) == -inf


def test_a_leader_outside_of_the_membership_has_no_lease() -> None:
    lease = lease_with_rounds(10.0)
    for member in (B, C):
        lease.round_answered(member, 1)
    assert lease.until(THREE, A) == 10.8
    assert lease.until(view_of(B, C), A) == -inf


def test_a_single_member_needs_no_answer() -> None:
    assert LeaderLease(0.8).until(view_of(A), A) == -inf
    assert lease_with_rounds(10.0, 10.2).until(view_of(A), A) == 11.0


def test_answers_to_rounds_of_a_previous_term_do_not_count() -> None:
    lease = lease_with_rounds(10.0)
    lease.round_answered(B, 1)
    lease.reset()
    assert lease.until(THREE, A) == -inf
    assert lease.start_round(10.1) == 2
    lease.round_answered(B, 1)
    assert lease.until(THREE, A) == -inf
    lease.round_answered(B, 2)
    assert lease.until(THREE, A) == pytest.approx(10.9)


def test_a_lease_that_was_given_up_stays_so_for_the_term() -> None:
    lease = lease_with_rounds(10.0)
    lease.round_answered(B, 1)
    lease.give_up()
    lease.round_answered(C, lease.start_round(10.2))
    assert lease.until(THREE, A) == lease.until(view_of(A), A) == -inf
    lease.reset()
    lease.round_answered(C, lease.start_round(10.4))
    assert lease.until(THREE, A) == pytest.approx(11.2)


def test_rounds_whose_lease_would_be_over_are_forgotten() -> None:
    lease = LeaderLease(0.8)
    for tick in range(1_000):
        lease.start_round(tick / 10)
    assert len(lease._rounds) <= 9
    lease.round_answered(B, 1)
    assert lease.until(THREE, A) == -inf
    lease.round_answered(B, 1_000)
    assert lease.until(THREE, A) == pytest.approx(99.9 + 0.8)


@given(st.integers(0, 2**32))
def test_leases_do_not_overlap_if_clock_rates_differ_by_less_than_a_tenth(seed: int) -> None:
    LeaseModel(seed).run(15.0)


def test_the_model_has_what_leases_must_withstand() -> None:
    counts: Counter[str] = Counter()
    for seed in range(30):
        model = LeaseModel(seed)
        model.run(15.0)
        counts.update(model.counts)
    assert counts["leaders"] > 90
    assert counts["leases"] > 90
    assert min(counts[name] for name in ("transfers", "crashes", "changes")) > 15


class _Faulty:
    """Variants of the model that break a rule of :class:`LeaderLease`."""

    class NotQuiet(LeaseModel):
        quiet = -inf

    class BelievesSilence(LeaseModel):
        believes_silence = True

    class KeepsItsLease(LeaseModel):
        class host_type(Host):  # noqa: N801  # It takes the place of an attribute.
            def give_up_lease(self) -> None:
                pass

    class CountsFromTheAnswer(LeaseModel):
        class host_type(Host):  # noqa: N801  # It takes the place of an attribute.
            def round_answered(self, sender: MemberId, number: int) -> None:
                super().round_answered(sender, number)
                self.lease._promised[sender] = self.now


def with_any_clocks(_: Patch) -> Callable[[int], LeaseModel]:
    return lambda seed: LeaseModel(seed, drift=1.2)


def forgets_its_promises_in_a_restart(_: Patch) -> Callable[[int], LeaseModel]:
    return _Faulty.NotQuiet


def takes_silence_for_death(_: Patch) -> Callable[[int], LeaseModel]:
    return _Faulty.BelievesSilence


def transfers_with_a_lease(_: Patch) -> Callable[[int], LeaseModel]:
    return _Faulty.KeepsItsLease


def counts_from_the_answer(_: Patch) -> Callable[[int], LeaseModel]:
    return _Faulty.CountsFromTheAnswer


def promises_nothing(patch: Patch) -> Callable[[int], LeaseModel]:
    patch.setattr(ElectionTimer, "may_vote_for", lambda self, candidate, now: True)
    return LeaseModel


def promises_too_little(patch: Patch) -> Callable[[int], LeaseModel]:
    patch.setattr(lease_model, "TIMERS", replace(lease_model.TIMERS, stickiness=0.7))
    return LeaseModel


def needs_no_quorum(patch: Patch) -> Callable[[int], LeaseModel]:
    def until(self: LeaderLease, membership: Membership, me: MemberId) -> float:
        return self._rounds[-1][1] + 0.8 if self._rounds and not self._given_up else -inf

    patch.setattr(LeaderLease, "until", until)
    return LeaseModel


def witness_starts_elections_early(patch: Patch) -> Callable[[int], LeaseModel]:
    def tick(self: RaftMember, now: float) -> None:
        if not self.may_lead and not self._leads and now >= self._timer.deadline:
            self._start_pre_vote(now)
        else:
            original(self, now)

    def refused(self: RaftMember, message: Any, sender: MemberId, now: float) -> None:
        request(self, message, sender, now)
        if not self.may_lead:
            self._timer.deadline = min(self._timer.deadline, now + 0.2)

    original, request = RaftMember.tick, RaftMember.request_vote_received
    patch.setattr(RaftMember, "tick", tick)
    patch.setattr(RaftMember, "request_vote_received", refused)
    return LeaseModel


def run(model_of: Callable[[int], LeaseModel], first_seed: int, seeds: int = 300) -> None:
    for seed in range(first_seed, first_seed + seeds):
        model_of(seed).run(20.0)


# Each bug with a seed that shows it, so that the search is short as long as the model stays the same.
@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("bug", "seed"),
    [
        (with_any_clocks, 60),
        (forgets_its_promises_in_a_restart, 17),
        (takes_silence_for_death, 5),
        (transfers_with_a_lease, 26),
        (counts_from_the_answer, 42),
        (promises_nothing, 6),
        (promises_too_little, 8),
        (needs_no_quorum, 16),
        (witness_starts_elections_early, 16),
    ],
)
def test_the_model_finds_the_overlap_that_a_bug_causes(
    bug: Callable[[Patch], Callable[[int], LeaseModel]], seed: int, monkeypatch: Patch
) -> None:
    model_of = bug(monkeypatch)
    with pytest.raises(AssertionError, match="have leases at"):
        run(model_of, seed)
