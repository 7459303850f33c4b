"""Planted bugs of groups of backbones that the simulator must find, at least one per invariant."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from suite.planted import Bug, Patch, check_seed, each, persist_after_sending, search

from fyrehose_twisted.consensus.election_timer import ElectionTimer
from fyrehose_twisted.consensus.lease import LeaderLease
from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.consensus.messages import Membership
from fyrehose_twisted.fyrehose.node.backbone.authority import NumberingAuthority
from fyrehose_twisted.fyrehose.node.backbone.group_backbone import GroupBackbone
from fyrehose_twisted.fyrehose.node.backbone.takeover import Takeover
from fyrehose_twisted.fyrehose.node.client.takeover.connection import Connection
from fyrehose_twisted.fyrehose.node.client.takeover.seam import Seam
from fyrehose_twisted.fyrehose.node.member.group import Group
from fyrehose_twisted.fyrehose.node.member.leadership import Leadership
from fyrehose_twisted.fyrehose.node.member.member import BackboneMember
from fyrehose_twisted.fyrehose.node.member.peers import PeerLinks
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import StreamProgress
from fyrehose_twisted.fyrehose.simulation.invariants.leadership import LeaderElected
from fyrehose_twisted.fyrehose.simulation.invariants.numbering import (
    BoundsDurableFirst,
    GroupMessages,
    OneMemberNumbers,
)
from fyrehose_twisted.fyrehose.simulation.invariants.seams import HeldNumbersKept, KeptMessagesStay
from fyrehose_twisted.fyrehose.simulation.takeover_scenarios import CLIENTS, FiveTakeovers, Takeovers

pytestmark = pytest.mark.interpreted


class Brief:
    """Limits a scenario to a tenth of its length."""

    duration = 60.0
    messages = 60
    fault_counts = (5, 12)
    pause_count = 1
    blackouts = 1
    unheard_deaths = 0
    mean_handover_interval = 10.0
    mean_restart_interval = 15.0
    mean_disk_loss_interval = 25.0
    profiles = tuple(role for role in CLIENTS if not role.start_delay and role.must_follow)


class BriefTakeovers(Brief, Takeovers):
    """Takeovers, briefly."""


class BriefFiveTakeovers(Brief, FiveTakeovers):
    """Takeovers among five members, briefly."""


class Isolated(BriefTakeovers):
    """Members that are cut off from others one by one, together with some clients."""

    messages = 100
    large_share = 0.0
    isolations = 8
    rush = 100
    profiles = tuple(role for role in CLIENTS if role.name in ("journal-1", "subscriber") or "publisher" in role.name)
    fault_counts = (0, 4)
    blackouts = 0
    mean_handover_interval = 1_000.0
    mean_restart_interval = 1_000.0
    mean_disk_loss_interval = 1_000.0


class Unheard(BriefTakeovers):
    """Members that die while their last packets are still on their way to the clients."""

    messages = 100
    large_share = 0.0
    isolations = 0
    unheard_deaths = 8
    rush = 100
    fault_counts = (0, 4)
    blackouts = 0
    mean_handover_interval = 1_000.0
    mean_restart_interval = 1_000.0
    mean_disk_loss_interval = 1_000.0


# Numbers


def numbers_before_a_majority_has_the_bound(patch: Patch) -> None:
    original = Leadership._propose

    def propose(self: Any, bounds: Any) -> None:
        original(self, bounds)
        self._authority.bound = bounds.bound

    patch.setattr(Leadership, "_propose", propose)


def starts_at_the_bound(patch: Patch) -> None:
    original = Leadership._begin_term

    def begin(self: Any, now: float) -> None:
        original(self, now)
        self._first_number = max(1, self._first_number - 1)

    patch.setattr(Leadership, "_begin_term", begin)


def ignores_uncommitted_bounds(patch: Patch) -> None:
    original = Leadership._begin_term

    def begin(self: Any, now: float) -> None:
        original(self, now)
        self._first_number, self._proposed = self.bounds.bound + 1, self.bounds

    patch.setattr(Leadership, "_begin_term", begin)


def persists_after_sending(patch: Patch) -> None:
    persist_after_sending(patch, BackboneMember)


def numbers_while_it_hands_over(patch: Patch) -> None:
    original = Leadership.transfer

    def transfer(self: Any, name: str | None, now: float) -> str:
        authority = self._authority
        granted = authority.bound, authority.lease_until
        target = original(self, name, now)
        authority.bound, authority.lease_until = granted
        return target

    patch.setattr(Leadership, "transfer", transfer)


def bootstraps_again(patch: Patch) -> None:
    def bootstrap(self: Any, hello: Any, links: PeerLinks, now: float) -> None:
        if self._config.bootstrap and not self.has_state:
            self.has_state = True
            self._raft.bootstrap(self._config.data, now)

    patch.setattr(Group, "bootstrap", bootstrap)
    patch.setattr(Leadership, "_may_extend", property(lambda self: self._raft.is_leader and self._transfer is None))


def counts_half_of_the_members_as_a_majority(patch: Patch) -> None:
    patch.setattr(Membership, "quorum", property(lambda self: max(1, len(self.members) // 2)))


def forgets_its_log(patch: Patch) -> None:
    original = BackboneMember.__init__

    def init(
        self: Any, config: Any, policy: Any, start: Any, member: Any, state: Any, *others: Any, **more: Any
    ) -> None:
        if state is not None and state.entries:
            kept = state.entries[:-1]
            state = state._replace(entries=kept, commit_index=min(state.commit_index, state.snapshot.index + len(kept)))
        original(self, config, policy, start, member, state, *others, **more)

    patch.setattr(BackboneMember, "__init__", init)


# Leases


def ignores_the_lease(patch: Patch) -> None:
    patch.setattr(NumberingAuthority, "room", lambda self, last, now: max(0, self.bound - last))


def holds_its_lease_for_too_long(patch: Patch) -> None:
    original, since = LeaderLease.__init__, RaftMember.seconds_since_leader
    patch.setattr(LeaderLease, "__init__", lambda self, duration: original(self, 3.0))
    # Otherwise it gives up before its lease ends.
    patch.setattr(RaftMember, "seconds_since_leader", lambda self, now: 0.0 if self.is_leader else since(self, now))


def breaks_its_promises(patch: Patch) -> None:
    patch.setattr(ElectionTimer, "may_vote_for", lambda self, candidate, now: now >= self.quiet_until)
    patch.setattr(ElectionTimer, "promised_until", property(lambda self: self.quiet_until))


def numbers_although_its_term_is_over(patch: Patch) -> None:
    def resign(self: Any) -> None:
        self._round_at, self._first_number, self._transfer = inf, None, None
        self.lease.reset()

    patch.setattr(Leadership, "_resign", resign)
    patch.setattr(NumberingAuthority, "room", lambda self, last, now: max(0, self.bound - last))


# Seams


def ignores_what_clients_hold(patch: Patch) -> None:
    original = Takeover.head_received
    patch.setattr(Takeover, "head_received", lambda self, client, highest: original(self, client, 0))


def waits_for_no_client(patch: Patch) -> None:
    patch.setattr(Takeover, "is_over", lambda self, now: True)


def waits_for_the_first_client_only(patch: Patch) -> None:
    patch.setattr(Takeover, "is_over", lambda self, now: bool(self.answered) or now >= self._ends_at)


def claims_all_numbers_as_held(patch: Patch) -> None:
    original = GroupBackbone._continue_takeover

    def proceed(self: Any, now: float) -> None:
        if self._takeover is not None:
            self._takeover.held_up_to = self._takeover.first - 1
        original(self, now)

    patch.setattr(GroupBackbone, "_continue_takeover", proceed)


def claims_too_few_numbers_as_held(patch: Patch) -> None:
    original = NumberingAuthority.clip
    patch.setattr(NumberingAuthority, "clip", lambda self, held_up_to: max(0, original(self, held_up_to) - 3))


def leaves_numbers_out_after_a_transfer(patch: Patch) -> None:
    original = GroupBackbone.lead

    def lead(self: Any, first: int, now: float, *, exact: bool = False, **options: Any) -> None:
        original(self, first + 3 if exact else first, now, **options)

    patch.setattr(GroupBackbone, "lead", lead)


def tells_a_seam_before_it_is_recorded(patch: Patch) -> None:
    original = GroupBackbone._continue_takeover

    def proceed(self: Any, now: float) -> None:
        original(self, now)
        if self._seam is not None:
            self._begin_numbering(now)

    patch.setattr(GroupBackbone, "_continue_takeover", proceed)


def accepts_messages_of_a_former_leader(patch: Patch) -> None:
    patch.setattr(Seam, "permits", lambda self, sequence, data, *, live: True)


# Kept messages


def reports_progress_that_is_not_recorded(patch: Patch) -> None:
    def reported(self: Any, holding: Any) -> tuple[Any, ...]:
        return (holding,)

    patch.setattr(NumberingAuthority, "reported", reported)


def reports_numbers_in_a_seam_as_kept(patch: Patch) -> None:
    patch.setattr(
        NumberingAuthority,
        "reported",
        lambda self, holding: (holding._replace(durable=min(holding.durable, self.kept)),),
    )


# Availability


def never_stands_for_election(patch: Patch) -> None:
    original = RaftMember._start_pre_vote

    def start(self: Any, now: float) -> None:
        if self.me.name == "a":
            original(self, now)
        else:
            self._timer.postpone(now)

    patch.setattr(RaftMember, "_start_pre_vote", start)


def ignores_leaders(patch: Patch) -> None:
    patch.setattr(Connection, "leader_received", lambda self, report, peer, highest, now: None)


BUGS = [
    Bug(numbers_before_a_majority_has_the_bound, (BoundsDurableFirst.name,), BriefTakeovers, seed=7),
    Bug(starts_at_the_bound, (GroupMessages.name,), BriefTakeovers, seed=0),
    Bug(ignores_uncommitted_bounds, (HeldNumbersKept.name,), BriefTakeovers, seed=0),
    Bug(
        persists_after_sending,
        (GroupMessages.name,),
        BriefTakeovers,
        seed=0,
        message="no member has recorded it",
    ),
    Bug(
        numbers_while_it_hands_over,
        (BoundsDurableFirst.name,),
        BriefTakeovers,
        seed=1,
        message="had been lowered",
    ),
    Bug(bootstraps_again, (GroupMessages.name,), BriefFiveTakeovers, seed=5),
    Bug(counts_half_of_the_members_as_a_majority, (GroupMessages.name,), BriefTakeovers, seed=0),
    Bug(forgets_its_log, (GroupMessages.name,), BriefTakeovers, seed=7),
    Bug(ignores_the_lease, (OneMemberNumbers.name,), BriefTakeovers, seed=0, message="after the lease had ended"),
    Bug(holds_its_lease_for_too_long, (OneMemberNumbers.name,), BriefTakeovers, seed=5, message="in term"),
    Bug(breaks_its_promises, (OneMemberNumbers.name,), Isolated, seed=8, message="in term"),
    Bug(numbers_although_its_term_is_over, (OneMemberNumbers.name,), BriefTakeovers, seed=0),
    Bug(ignores_what_clients_hold, (HeldNumbersKept.name,), BriefTakeovers, seed=2, message="began without"),
    Bug(waits_for_no_client, (HeldNumbersKept.name,), BriefTakeovers, seed=4),
    Bug(waits_for_the_first_client_only, (HeldNumbersKept.name,), BriefTakeovers, seed=3),
    Bug(claims_all_numbers_as_held, (HeldNumbersKept.name,), BriefTakeovers, seed=0, message="the last number"),
    Bug(claims_too_few_numbers_as_held, (HeldNumbersKept.name,), BriefTakeovers, seed=0),
    Bug(
        leaves_numbers_out_after_a_transfer,
        (HeldNumbersKept.name,),
        BriefTakeovers,
        seed=0,
        message="was handed over",
    ),
    Bug(tells_a_seam_before_it_is_recorded, (KeptMessagesStay.name,), Isolated, seed=10, message="as kept"),
    Bug(accepts_messages_of_a_former_leader, (HeldNumbersKept.name,), Unheard, seed=8),
    Bug(
        reports_progress_that_is_not_recorded,
        (KeptMessagesStay.name,),
        Isolated,
        seed=10,
        message="as kept",
    ),
    Bug(reports_numbers_in_a_seam_as_kept, (KeptMessagesStay.name,), Isolated, seed=10, message="as kept"),
    Bug(never_stands_for_election, (LeaderElected.name,), BriefTakeovers, seed=1),
    Bug(ignores_leaders, (StreamProgress.name,), BriefTakeovers, seed=2, message="waiting for"),
]


@each(BUGS)
def test_the_recorded_seed_shows_the_planted_bug(bug: Bug, monkeypatch: Patch) -> None:
    check_seed(bug, monkeypatch)


# This searches for gaps in the simulator, not in the product.
@pytest.mark.soak(seconds=300)
@each(BUGS)
def test_a_seed_search_finds_the_planted_bug(bug: Bug, monkeypatch: Patch) -> None:
    search(bug, monkeypatch)
