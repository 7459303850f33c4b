"""Planted bugs that the simulator must find, at least one per invariant."""

from __future__ import annotations

from math import inf
from random import Random
from typing import Any

import pytest
from suite.planted import Bug, Patch, check_seed, each, search

from fyrehose_twisted.consensus.election_timer import ElectionTimer
from fyrehose_twisted.consensus.log import RaftLog
from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.consensus.messages import AppendEntries, MemberId, Membership, RequestVoteReply
from fyrehose_twisted.consensus.timers import RaftTimers
from fyrehose_twisted.effects import Peer
from fyrehose_twisted.parcels.events import PublishConfirmed
from fyrehose_twisted.parcels.node import node
from fyrehose_twisted.parcels.node.bootstrapping import ClusterBootstrap
from fyrehose_twisted.parcels.node.components import NodeComponents
from fyrehose_twisted.parcels.node.discovery.admission import NeighbourAdmission
from fyrehose_twisted.parcels.node.discovery.dial_target import DialResult, DialTarget
from fyrehose_twisted.parcels.node.discovery.dialler import Dialler
from fyrehose_twisted.parcels.node.discovery.neighbours import Neighbours
from fyrehose_twisted.parcels.node.discovery.table_shares import TableQuota
from fyrehose_twisted.parcels.node.members.membership_changes import MembershipChanges
from fyrehose_twisted.parcels.node.members.state_transfer import StateTransfer
from fyrehose_twisted.parcels.node.node import ClusterNode
from fyrehose_twisted.parcels.node.ordering import publish_tracker as publishing_module
from fyrehose_twisted.parcels.node.ordering import publisher_sessions as sessions_module
from fyrehose_twisted.parcels.node.ordering.application_state import ApplicationState
from fyrehose_twisted.parcels.node.ordering.cluster_state import ClusterState
from fyrehose_twisted.parcels.node.ordering.delivery import Delivery
from fyrehose_twisted.parcels.node.ordering.event_numbering import EventNumbering
from fyrehose_twisted.parcels.node.ordering.history import EventWindow
from fyrehose_twisted.parcels.node.ordering.pending import PendingRuns
from fyrehose_twisted.parcels.node.ordering.publisher_sessions import (
    ConditionFailed,
    PublisherSession,
    PublisherSessions,
    RunPlacement,
)
from fyrehose_twisted.parcels.node.persistent_state import PersistentState, StateChange
from fyrehose_twisted.parcels.simulation.invariants import (
    AcknowledgedDurability,
    ClusterRecovers,
    ConditionsHold,
    MemoryBounded,
    OneLeaderPerTerm,
    PublisherOrder,
    ReadsUpToDate,
    StatesAgree,
    TotalOrder,
    UniqueEventIds,
    ValidNeighbourNames,
)
from fyrehose_twisted.parcels.simulation.scenarios import (
    Blackout,
    Conditions,
    Crowd,
    KeyReuse,
    LaggingNodes,
    LinearizableReads,
    MinorityLoss,
    NewCluster,
    ReplicatedStates,
    Storm,
    Strangers,
    Unresponsive,
)
from fyrehose_twisted.sim import fault_generators
from fyrehose_twisted.sim.crash_mode import CrashMode
from fyrehose_twisted.sim.scenario import NO_EXCEPTIONS
from fyrehose_twisted.sim.schedule import FaultKinds

pytestmark = pytest.mark.interpreted


class Gale(Storm):
    """A short storm over three nodes with frequent leader changes."""

    sizes = (3,)
    duration = 100.0
    publish_interval = 0.5


class PowerCuts(Gale):
    """Power failures while disks work, and partitions."""

    fault_counts = (40, 80)

    def fault_kinds(self, names: list[str]) -> FaultKinds:
        return [
            (2.0, fault_generators.crashes(names, kinds=(CrashMode.POWER,), max_duration=3.0, after_persist=1.0)),
            (1.0, fault_generators.cuts(names, max_duration=3.0)),
        ]


def votes_twice(patch: Patch) -> None:
    original = RaftMember.request_vote_received

    def vote_asked(self: RaftMember, *arguments: Any) -> None:
        self.voted_for = None
        original(self, *arguments)

    patch.setattr(RaftMember, "request_vote_received", vote_asked)


def votes_for_candidates_with_older_logs(patch: Patch) -> None:
    original = RaftMember.request_vote_received

    def vote_asked(self: RaftMember, message: Any, *arguments: Any) -> None:
        original(self, message._replace(last_term=2**62), *arguments)

    patch.setattr(RaftMember, "request_vote_received", vote_asked)


def loses_its_vote_in_a_crash(patch: Patch) -> None:
    original = PersistentState.apply

    def take(self: PersistentState, change: StateChange) -> None:
        original(self, change)
        self.voted_for, self.term = None, max(0, self.term - 1)

    patch.setattr(PersistentState, "apply", take)


def acknowledges_entries_that_are_not_durable(patch: Patch) -> None:
    patch.setattr(node, "_are_entries", bool)
    patch.setattr(ClusterState, "followers_may_go_first", True)


def tells_what_it_decides_alone_before_it_is_durable(patch: Patch) -> None:
    patch.setattr(ClusterState, "followers_may_go_first", True)


def loses_entries_in_a_crash(patch: Patch) -> None:
    original = PersistentState.record_start

    def begin(self: PersistentState, member: MemberId) -> None:
        self.entries.clear()
        original(self, member)

    patch.setattr(PersistentState, "record_start", begin)


def commits_without_a_quorum(patch: Patch) -> None:
    patch.setattr(Membership, "quorum", property(lambda self: max(1, len(self.members) // 2)))


def former_incarnation_keeps_its_vote(patch: Patch) -> None:
    original = ClusterNode.__init__

    def init(self: ClusterNode, config: Any, rng: Any, now: float, **options: Any) -> None:
        class Same:
            def __getattr__(self, name: str) -> Any:
                return getattr(rng, name)

            def getrandbits(self, bits: int) -> int:
                return 7 if bits == 63 else int(rng.getrandbits(bits))

        original(self, config, Same(), now, **options)

    patch.setattr(ClusterNode, "__init__", init)


def appends_entries_that_leave_a_gap(patch: Patch) -> None:
    original = RaftMember.append_entries_received

    def append_received(self: RaftMember, message: AppendEntries, *arguments: Any) -> Any:
        previous = min(message.previous, self.log.last_index)
        term = self.log.term_at(previous)
        fitting = message._replace(previous=previous, previous_term=0 if term is None else term)
        return original(self, fitting, *arguments)

    patch.setattr(RaftMember, "append_entries_received", append_received)


def keeps_conflicting_entries(patch: Patch) -> None:
    patch.setattr(RaftLog, "truncate_from", lambda self, index: None)


def accepts_any_commit_index(patch: Patch) -> None:
    original = RaftMember.append_entries_received

    def append_received(self: RaftMember, message: AppendEntries, *arguments: Any) -> Any:
        taken = original(self, message, *arguments)
        if self.log.last_index > self.commit_index and not self.is_leader:
            self._commit_up_to(self.log.last_index)
        return taken

    patch.setattr(RaftMember, "append_entries_received", append_received)


def numbers_repeats_again(patch: Patch) -> None:
    original = PublisherSessions.place

    def place(self: PublisherSessions, run: Any, sequence: int) -> Any:
        if run.first == 1:
            self._sessions.pop(run.publisher, None)
        return original(self, run, sequence)

    patch.setattr(PublisherSessions, "place", place)


def forgets_the_body_of_a_key(patch: Patch) -> None:
    patch.setattr(sessions_module, "event_digest", lambda event: b"")


def acknowledges_another_body_of_the_key(patch: Patch) -> None:
    patch.setattr(publishing_module, "same_events", lambda one, other: True)


def orders_whatever_is_expected(patch: Patch) -> None:
    original = PublisherSessions.place
    patch.setattr(
        PublisherSessions, "place", lambda self, run, number: original(self, run._replace(expect=None), number)
    )


def refuses_repeats_whose_condition_held(patch: Patch) -> None:
    original = PublisherSessions.place

    def place(self: PublisherSessions, run: Any, sequence: int) -> Any:
        late = run.expect is not None and run.expect < sequence - 1
        return ConditionFailed(sequence - 1) if late else original(self, run, sequence)

    patch.setattr(PublisherSessions, "place", place)


def places_what_it_refused_before(patch: Patch) -> None:
    patch.setattr(PublisherSessions, "_end_epoch", lambda self, publisher, epoch: None)


def answers_reads_from_what_it_has(patch: Patch) -> None:
    def mark(self: ClusterNode, token: Any, now: float) -> None:
        self._drain_needed, self._now = True, now
        self.components.tracker.events.append(PublishConfirmed(token, ((self.sequence + 1, 0),)))

    patch.setattr(ClusterNode, "mark", mark)


def takes_marks_of_others_for_its_own(patch: Patch) -> None:
    original = ClusterNode.mark

    def mark(self: ClusterNode, token: Any, now: float) -> None:
        self._first_mark = self._first_mark._replace(publisher="marks", epoch=0)
        original(self, token, now)

    patch.setattr(ClusterNode, "mark", mark)


def applies_again_what_a_state_contains(patch: Patch) -> None:
    original = ApplicationState.restore

    def restore(self: ApplicationState, sequence: int, data: bytes) -> None:
        original(self, max(sequence - 1, 0), data)

    patch.setattr(ApplicationState, "restore", restore)


def asks_only_once_for_the_state(patch: Patch) -> None:
    original = StateTransfer._ask_next

    def ask_next(self: StateTransfer, now: float) -> None:
        if self._source is None:
            original(self, now)
        else:
            self.deadline = inf

    patch.setattr(StateTransfer, "_ask_next", ask_next)


def joins_again_after_its_first_events(patch: Patch) -> None:
    original = Delivery._deliver

    def deliver(self: Delivery, stretches: Any) -> None:
        joined = self._joined
        original(self, stretches)
        self._joined = joined

    patch.setattr(Delivery, "_deliver", deliver)


def ignores_gaps_of_a_publisher(patch: Patch) -> None:
    original = PublisherSessions.place

    def place(self: PublisherSessions, run: Any, sequence: int) -> Any:
        session = self._sessions.get(run.publisher)
        if session is not None and run.epoch == session.epoch and run.first > session.last + 1:
            session.last = run.first - 1
        return original(self, run, sequence)

    patch.setattr(PublisherSessions, "place", place)
    original_runs = PendingRuns.runs
    patch.setattr(PendingRuns, "runs", lambda self: iter(list(original_runs(self))[1:]))


def answers_repeats_with_the_wrong_number(patch: Patch) -> None:
    original = PublisherSession.find_sequences

    def numbers(self: PublisherSession, first: int, count: int) -> Any:
        found = original(self, first, count)
        return None if found is None else tuple((max(1, number - 1), size) for number, size in found)

    patch.setattr(PublisherSession, "find_sequences", numbers)


def acknowledges_before_the_commit(patch: Patch) -> None:
    original = NodeComponents.__init__

    def init(self: NodeComponents, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        append = self.publishing._propose

        def propose(runs: Any) -> None:
            sequence = self.delivery.numbering.sequence
            append(runs)
            for run in runs:
                placed = RunPlacement(len(run.events), ((sequence + 1, len(run.events)),))
                sequence += len(run.events)
                self.tracker.run_applied(run, placed, sequence)

        patch.setattr(self.publishing, "_propose", propose)

    patch.setattr(NodeComponents, "__init__", init)


def skips_missing_events_without_a_fetch(patch: Patch) -> None:
    original = Delivery.install_numbering

    def install(self: Delivery, replica: EventNumbering) -> None:
        original(self, replica)
        self.last = replica.sequence

    patch.setattr(Delivery, "install_numbering", install)


def delivers_events_twice(patch: Patch) -> None:
    original = Delivery.backfill_received

    def fetched(self: Delivery, message: Any, sender: Any) -> None:
        original(self, message, sender)
        if self.last > 2:
            self.last -= 1

    patch.setattr(Delivery, "backfill_received", fetched)


def discards_publisher_sessions_when_it_joins(patch: Patch) -> None:
    original = EventNumbering.load

    def load(self: EventNumbering, data: bytes) -> Membership:
        view = original(self, data)
        self.sessions = PublisherSessions()
        return view

    patch.setattr(EventNumbering, "load", load)


def starts_at_the_wrong_sequence(patch: Patch) -> None:
    original = EventNumbering.load

    def load(self: EventNumbering, data: bytes) -> Membership:
        view = original(self, data)
        self.sequence = max(0, self.sequence - 1)
        return view

    patch.setattr(EventNumbering, "load", load)


def never_removes_members(patch: Patch) -> None:
    patch.setattr(MembershipChanges, "is_responsive", lambda self, member, now: True)
    patch.setattr(MembershipChanges, "member_leaving", lambda self, member: None)
    original = MembershipChanges.propose_change

    def review(self: MembershipChanges, now: float) -> bool:
        return original(self, now) if len(self._raft.members) < 3 else False

    patch.setattr(MembershipChanges, "propose_change", review)


def never_requests_votes(patch: Patch) -> None:
    patch.setattr(RaftMember, "_start_pre_vote", lambda self, now: setattr(self._timer, "deadline", now + 1.0))


def does_not_redial(patch: Patch) -> None:
    original = Dialler._attempt_failed

    def failed(self: Dialler, target: DialTarget, why: str, now: float) -> None:
        original(self, target, why, now)
        target.next_at = float("inf")

    patch.setattr(Dialler, "_attempt_failed", failed)


def accepts_any_node(patch: Patch) -> None:
    patch.setattr(Neighbours, "conflict", lambda self, info, now: None)


def accepts_any_name(patch: Patch) -> None:
    patch.setattr(NeighbourAdmission, "name_problem", lambda self, info: None)


def sends_extension_parcels_to_every_peer(patch: Patch) -> None:
    original = Dialler.connected

    def connected(self: Dialler, peer: Peer, now: float) -> None:
        if self._links.targets[peer.address].result is DialResult.DOCUMENT_ONLY:
            self._output.write(peer, RequestVoteReply(1, True, True))
        original(self, peer, now)

    patch.setattr(Dialler, "connected", connected)


def gives_every_cluster_the_same_id(patch: Patch) -> None:
    original = ClusterBootstrap.bootstrap

    def bootstrap(self: ClusterBootstrap, now: float) -> int:
        drawn, self._rng = self._rng, Random(7)
        cluster_id = original(self, now)
        self._rng = drawn
        return cluster_id

    patch.setattr(ClusterBootstrap, "bootstrap", bootstrap)


def does_not_limit_unauthenticated_neighbours(patch: Patch) -> None:
    original = TableQuota.__init__

    def begin(self: TableQuota, limit: int, *, secret: bool) -> None:
        original(self, limit, secret=secret)
        self.max_untrusted = self.max_per_source = limit

    patch.setattr(TableQuota, "__init__", begin)


def lets_unauthenticated_peers_keep_a_name(patch: Patch) -> None:
    original = Neighbours.__init__

    def begin(self: Neighbours, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        self._secret = False

    patch.setattr(Neighbours, "__init__", begin)


def never_evicts_events(patch: Patch) -> None:
    original = EventWindow.__init__
    patch.setattr(EventWindow, "__init__", lambda self, limit, last=0: original(self, 2**40, last))


def keeps_leading_without_a_quorum(patch: Patch) -> None:
    original = MembershipChanges.propose_change

    def review(self: MembershipChanges, now: float) -> bool:
        due = original(self, now)
        raft = self._raft
        if raft.membership and raft.is_voter and not raft.is_leader and raft.seconds_since_leader(now) > 8.0:
            raft.membership = Membership(tuple(pair for pair in raft.membership.members if pair[0] == raft.me))
        return due

    patch.setattr(MembershipChanges, "propose_change", review)


def never_replaces_a_lost_leader(patch: Patch) -> None:
    original = ElectionTimer.__init__
    timers = RaftTimers(election=(1e9, 2e9))
    patch.setattr(ElectionTimer, "__init__", lambda self, rng, now, *_: original(self, rng, now, timers))
    patch.setattr(RaftMember, "leader_lost", lambda self, now: None)


ORDER = (TotalOrder.name, AcknowledgedDurability.name, PublisherOrder.name)

BUGS = [
    Bug(votes_twice, (OneLeaderPerTerm.name, *ORDER), Storm, seed=7),
    Bug(votes_for_candidates_with_older_logs, (*ORDER, ClusterRecovers.name), Gale, seed=6),
    Bug(loses_its_vote_in_a_crash, (OneLeaderPerTerm.name, *ORDER, NO_EXCEPTIONS), Blackout, seed=0),
    Bug(acknowledges_entries_that_are_not_durable, (*ORDER, NO_EXCEPTIONS, ClusterRecovers.name), PowerCuts, seed=3),
    Bug(tells_what_it_decides_alone_before_it_is_durable, (*ORDER, ClusterRecovers.name), PowerCuts, seed=30),
    Bug(loses_entries_in_a_crash, (*ORDER, NO_EXCEPTIONS, ClusterRecovers.name), Blackout, seed=0),
    Bug(commits_without_a_quorum, (OneLeaderPerTerm.name, *ORDER), Storm, seed=1),
    Bug(
        former_incarnation_keeps_its_vote,
        (OneLeaderPerTerm.name, *ORDER, NO_EXCEPTIONS, ClusterRecovers.name),
        Storm,
        seed=0,
    ),
    Bug(appends_entries_that_leave_a_gap, (*ORDER, UniqueEventIds.name, NO_EXCEPTIONS), Storm, seed=0),
    Bug(keeps_conflicting_entries, (*ORDER, NO_EXCEPTIONS), Storm, seed=0),
    Bug(accepts_any_commit_index, (*ORDER, NO_EXCEPTIONS), Storm, seed=0),
    Bug(numbers_repeats_again, ORDER, Gale, seed=3),
    Bug(forgets_the_body_of_a_key, (AcknowledgedDurability.name,), KeyReuse, seed=0),
    Bug(acknowledges_another_body_of_the_key, (AcknowledgedDurability.name,), KeyReuse, seed=0),
    Bug(orders_whatever_is_expected, (ConditionsHold.name,), Conditions, seed=0),
    Bug(refuses_repeats_whose_condition_held, (ConditionsHold.name,), Conditions, seed=5),
    Bug(places_what_it_refused_before, (ConditionsHold.name,), Conditions, seed=46),
    Bug(answers_reads_from_what_it_has, (ReadsUpToDate.name,), LinearizableReads, seed=0),
    Bug(takes_marks_of_others_for_its_own, (ReadsUpToDate.name,), LinearizableReads, seed=3),
    Bug(applies_again_what_a_state_contains, (StatesAgree.name,), ReplicatedStates, seed=0),
    Bug(asks_only_once_for_the_state, (StatesAgree.name,), ReplicatedStates, seed=2),
    Bug(joins_again_after_its_first_events, ORDER, ReplicatedStates, seed=118),
    Bug(ignores_gaps_of_a_publisher, ORDER, Gale, seed=3),
    Bug(answers_repeats_with_the_wrong_number, ORDER, Storm, seed=0),
    Bug(acknowledges_before_the_commit, (*ORDER, NO_EXCEPTIONS), Storm, seed=0),
    Bug(skips_missing_events_without_a_fetch, ORDER, LaggingNodes, seed=1),
    Bug(delivers_events_twice, (*ORDER, NO_EXCEPTIONS), Storm, seed=0),
    Bug(discards_publisher_sessions_when_it_joins, ORDER, Storm, seed=0),
    Bug(starts_at_the_wrong_sequence, (*ORDER, NO_EXCEPTIONS), Storm, seed=0),
    Bug(never_removes_members, (ClusterRecovers.name,), Gale, seed=17),
    Bug(never_requests_votes, (ClusterRecovers.name,), MinorityLoss, seed=4),
    Bug(does_not_redial, (ClusterRecovers.name,), Gale, seed=6),
    Bug(accepts_any_node, (ClusterRecovers.name, OneLeaderPerTerm.name, *ORDER, NO_EXCEPTIONS), Strangers, seed=0),
    Bug(accepts_any_name, (ValidNeighbourNames.name,), Strangers, seed=0),
    Bug(sends_extension_parcels_to_every_peer, (NO_EXCEPTIONS,), Strangers, seed=0),
    Bug(gives_every_cluster_the_same_id, (UniqueEventIds.name,), NewCluster, seed=0),
    Bug(does_not_limit_unauthenticated_neighbours, (ClusterRecovers.name,), Crowd, seed=0),
    Bug(lets_unauthenticated_peers_keep_a_name, (ClusterRecovers.name,), Crowd, seed=0),
    Bug(never_evicts_events, (MemoryBounded.name,), Storm, seed=1),
    Bug(keeps_leading_without_a_quorum, (OneLeaderPerTerm.name, *ORDER, ClusterRecovers.name), Unresponsive, seed=0),
    Bug(never_replaces_a_lost_leader, (ClusterRecovers.name, AcknowledgedDurability.name), MinorityLoss, seed=5),
]


@each(BUGS)
def test_recorded_seed_reveals_the_planted_bug(bug: Bug, monkeypatch: Patch) -> None:
    check_seed(bug, monkeypatch)


# The bug is in the simulator's code, not in the library's.
@pytest.mark.soak(seconds=300)
@each(BUGS)
def test_seed_search_reveals_the_planted_bug(bug: Bug, monkeypatch: Patch) -> None:
    search(bug, monkeypatch)
