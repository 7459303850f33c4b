"""Planted bugs that the simulator must find, at least one per invariant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from random import Random
from typing import Any

import pytest
from suite.planted import Bug, Patch, check_seed, each, search

from fyrehose_twisted.hydra.config import Timers
from fyrehose_twisted.hydra.events import LineOutcome, LinesMissed, Outcome, Role, ToIrc
from fyrehose_twisted.hydra.irc.shared_state import SharedState
from fyrehose_twisted.hydra.node.context import NodeContext
from fyrehose_twisted.hydra.node.durable_state import DurableState
from fyrehose_twisted.hydra.node.handlers.heartbeat import HeartbeatRelay
from fyrehose_twisted.hydra.node.induction import Induction
from fyrehose_twisted.hydra.node.joining import JoinProcedure
from fyrehose_twisted.hydra.node.leader.election import Election
from fyrehose_twisted.hydra.node.leader.leadership import Leadership
from fyrehose_twisted.hydra.node.leader.lease import Lease
from fyrehose_twisted.hydra.node.lifecycle import Lifecycle
from fyrehose_twisted.hydra.node.link_table import LinkTable
from fyrehose_twisted.hydra.node.node import HydraNode
from fyrehose_twisted.hydra.node.output import NodeOutput
from fyrehose_twisted.hydra.node.registry import Registry
from fyrehose_twisted.hydra.node.registry_check import RegistryCheck
from fyrehose_twisted.hydra.node.relay.irc_writer import IrcWriter
from fyrehose_twisted.hydra.node.relay.line_relay import LineRelay
from fyrehose_twisted.hydra.node.relay.pending_replies import PendingReplies
from fyrehose_twisted.hydra.node.relay.received_lines import RecvRelay
from fyrehose_twisted.hydra.node.relay.send_queue import LineSendQueue
from fyrehose_twisted.hydra.simulation.invariants import (
    AtMostOnceSend,
    InductionsTerminate,
    IntroducedToAll,
    LineAgreement,
    LinksIdentified,
    MemoryBounded,
    MonotonicTerms,
    NetworkConverges,
    NoRebroadcastStorm,
    QuorumRequiredToDrop,
    RecoversAfterPartition,
    ReunitesAfterPartition,
    SilentServerDetected,
    SingleLeaderPerTerm,
    SingleLease,
    SingleVotePerTerm,
)
from fyrehose_twisted.hydra.simulation.participants import Participants
from fyrehose_twisted.hydra.simulation.scenarios import (
    Blackout,
    Calm,
    Deaf,
    Handovers,
    NetworkScenario,
    Partitions,
    RepeatedPartitions,
    Storm,
    UnsafeQuorum,
)
from fyrehose_twisted.hydra.simulation.state_agreement import StateAgreement
from fyrehose_twisted.hydra.wire.messages import Drop, Nominate, Send
from fyrehose_twisted.hydra.wire.state_lines import SnapshotAssembler
from fyrehose_twisted.lru_set import LruSet
from fyrehose_twisted.sim.crash_mode import CrashMode
from fyrehose_twisted.sim.faults.faults import PartitionFault
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.scenario import NO_EXCEPTIONS
from fyrehose_twisted.sim.schedule import FaultSchedule

pytestmark = pytest.mark.interpreted


class EverySeen(LruSet):
    """Set that reports every item as new."""

    def add(self, key: Any) -> bool:
        super().add(key)
        return True


def votes_twice(patch: Patch) -> None:
    original = Election._consider

    def consider(self: Any, message: Nominate, now: float) -> None:
        context = self._context
        context.durable = context.durable._replace(voted=min(context.durable.voted, message.term - 1))
        original(self, message, now)

    patch.setattr(Election, "_consider", consider)


def remembering(patch: Patch, change: Callable[[DurableState], DurableState], *, remembers: bool | None = None) -> None:
    original = HydraNode.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        if options.get("durable") is not None:
            options["durable"] = change(options["durable"])
        if remembers is not None:
            options["remembers"] = remembers
        original(self, *arguments, **options)

    patch.setattr(HydraNode, "__init__", init)


def loses_its_vote_in_a_crash(patch: Patch) -> None:
    remembering(patch, lambda state: state._replace(voted=0, nominee=0, voter=0))


def persists_nothing(patch: Patch) -> None:
    patch.setattr(NodeOutput, "persist", lambda self, state: None)


def nominates_itself_in_the_same_term_again(patch: Patch) -> None:
    original = Election.nominate

    def nominate(self: Any, now: float) -> None:
        context = self._context
        context.durable, self._highest = context.durable._replace(voted=context.durable.term), 0
        original(self, now)

    patch.setattr(Election, "nominate", nominate)


def wins_without_a_quorum(patch: Patch) -> None:
    patch.setattr(Election, "_known", lambda self, voters: self._context.quorum)


def bootstraps_in_the_same_term_again(patch: Patch) -> None:
    patch.setattr(Lifecycle, "_first_term", lambda self, now: 1)


def uses_the_quorum_of_the_document(patch: Patch) -> None:
    """Plant nothing; the scenario itself uses the weaker quorum of the source document."""


def takes_the_lease_without_a_quorum(patch: Patch) -> None:
    original = Lease.ponged

    def ponged(self: Any, val: str, node: int, since: float, quorum: int) -> None:
        original(self, val, node, since, max(1, quorum - 1))

    patch.setattr(Lease, "ponged", ponged)


def starts_the_lease_at_the_answer(patch: Patch) -> None:
    original = Leadership._answered

    def answered(self: Any, val: str, node: int, now: float) -> None:
        before = self.lease.until if self.lease else None
        original(self, val, node, now)
        if self.lease is not None and self.lease.until != before:
            self.lease.until = now + self._context.timers.lease

    patch.setattr(Leadership, "_answered", answered)


def holds_its_lease_forever(patch: Patch) -> None:
    original = Lease.ponged

    def ponged(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        self.until = None if self.until is None else inf

    patch.setattr(Lease, "ponged", ponged)


def keeps_leading_without_a_lease(patch: Patch) -> None:
    original = Leadership.tick

    def tick(self: Any, now: float) -> bool:
        again = original(self, now)
        if self.loss_reason is not None and self._ping_at <= now:
            self.loss_reason = None
            self.ping(now)
        self.loss_reason = None
        return bool(again)

    patch.setattr(Leadership, "tick", tick)
    patch.setattr(Leadership, "next_deadline", lambda self: inf if self.lease is None else self._ping_at)
    patch.setattr(IrcWriter, "send_due", send_due_until(inf))


def send_due_until(until: float) -> Callable[..., Any]:
    original = IrcWriter.send_due

    def take(self: Any, now: float, end: float) -> Any:
        return original(self, now, until)

    return take


def drops_others_without_a_quorum(patch: Patch) -> None:
    original = Leadership.tick

    def tick(self: Any, now: float) -> bool:
        again = original(self, now)
        if self.loss_reason is not None and not self._context.bootstrapping:
            for node in self._context.registry.ids() - {self._context.id}:
                self._context.registry.drop(node)
                self._context.flood(Drop(node, "no PONG"), now)
        return bool(again)

    patch.setattr(Leadership, "tick", tick)


def never_promises(patch: Patch) -> None:
    patch.setattr(NodeContext, "promise", lambda self, node, now: None)


def promises_too_short_a_time(patch: Patch) -> None:
    patch.setattr(Timers, "promise", property(lambda self: self.lease))


def holds_leases_beyond_the_clock_drift(patch: Patch) -> None:
    patch.setattr(Timers, "lease", property(lambda self: 0.95 * self.promise))


def promises_a_quick_lease_to_every_ping(patch: Patch) -> None:
    def promise(self: Any, node: int, now: float) -> None:
        until = now + self.timers.promise_for(self.timers.quick_lease)
        if self.durable.promised == node:
            until = max(until, self.durable.until)
        self.update_durable(promised=node, until=until)

    patch.setattr(NodeContext, "promise", promise)


def shortens_its_promise_at_a_quick_ping(patch: Patch) -> None:
    original = NodeContext.promise

    def promise(self: Any, node: int, now: float) -> None:
        self.durable = self.durable._replace(promised=0)
        original(self, node, now)

    patch.setattr(NodeContext, "promise", promise)


def takes_a_longer_lease_than_it_claims(patch: Patch) -> None:
    original = Lease.ping_sent

    def ping_sent(self: Any, val: str, now: float) -> None:
        original(self, val, now)
        self._sent_pings[-1].lease = self._timers.lease

    patch.setattr(Lease, "ping_sent", ping_sent)


def supports_nominees_despite_its_promise(patch: Patch) -> None:
    patch.setattr(NodeContext, "may_help", lambda self, node, now: True)


def takes_its_state_for_complete_after_a_gap(patch: Patch) -> None:
    patch.setattr(SharedState, "invalidate", lambda self: None)


def keeps_other_state_than_the_leaders(patch: Patch) -> None:
    patch.setattr(SharedState, "_compare", lambda self, found, mine: None)


def takes_over_a_damaged_snapshot(patch: Patch) -> None:
    original = SnapshotAssembler.feed

    def feed(self: Any, part: Any) -> Any:
        found = original(self, part)
        return None if found is None else found._replace(state=b"17 4")

    patch.setattr(SnapshotAssembler, "feed", feed)


def relays_a_snapshot_without_numbers(patch: Patch) -> None:
    def relay_state(self: Any, lines: Any, now: float) -> None:
        expected = self._recv_relay.expected
        for line in lines:
            self._recv_relay.originate(line, now)
        self._recv_relay.expected = expected

    patch.setattr(LineRelay, "relay_state", relay_state)


@contextmanager
def helping(context: Any) -> Iterator[None]:
    context.may_help = lambda node, now: True
    try:
        yield
    finally:
        vars(context).pop("may_help", None)


def joins_and_answers_despite_its_promise(patch: Patch) -> None:
    """Remove both safeguards, since either one keeps a lease from being taken twice."""
    patch.setattr(JoinProcedure, "_may_knock", lambda self, link, now: link.is_regular)
    original = NodeContext.answer_deferred_ping

    def answer_withheld(self: Any, now: float) -> None:
        with helping(self):
            original(self, now)

    patch.setattr(NodeContext, "answer_deferred_ping", answer_withheld)


def ends_its_promise_at_any_nomination(patch: Patch) -> None:
    original = Election.nominate_received

    def nominate_received(self: Any, message: Nominate, link: Any, now: float) -> None:
        self._context.release_promise(self._context.durable.promised)
        original(self, message, link, now)

    patch.setattr(Election, "nominate_received", nominate_received)


def loses_its_promise_in_a_crash(patch: Patch) -> None:
    remembering(patch, lambda state: state._replace(promised=0, until=0.0))


def does_not_wait_after_its_start(patch: Patch) -> None:
    remembering(patch, lambda state: state, remembers=True)


def drops_suspended_nodes(patch: Patch) -> None:
    def paused(self: Any, host: Any) -> None:
        guardian = self.guardians.get(host)
        if guardian is not None and guardian.up:
            guardian.perform(lambda watcher, now: watcher.died(now))

    patch.setattr(Participants, "paused", paused, raising=False)


def ends_its_promise_when_a_link_breaks(patch: Patch) -> None:
    original = Lifecycle.link_closed

    def ended(self: Any, link: Any, now: float) -> None:
        original(self, link, now)
        context = self._components.context
        if link.node is not None and link.node == context.leader:
            context.release_promise(link.node)
            self._components.election.leader_lost(now)

    patch.setattr(Lifecycle, "link_closed", ended)


def leads_beside_another_leader(patch: Patch) -> None:
    patch.setattr(Lifecycle, "stop_leading", lambda self, why, now: None)


def sends_the_welcome_before_all_meets(patch: Patch) -> None:
    original = Induction._complete

    def finish(self: Any, now: float, *, may_decide: bool) -> Any:
        if self._mediation is not None:
            self._mediation.awaited.clear()
        return original(self, now, may_decide=may_decide)

    patch.setattr(Induction, "_complete", finish)


def ignores_the_network_size(patch: Patch) -> None:
    patch.setattr(NodeContext, "has_room", lambda self: True)


def keeps_no_reservations(patch: Patch) -> None:
    patch.setattr(Registry, "places_taken", lambda self: len(self._members))


def keeps_dropped_nodes(patch: Patch) -> None:
    patch.setattr(Registry, "drop", lambda self, node: False)


def drops_no_silent_nodes(patch: Patch) -> None:
    patch.setattr(Leadership, "_drop_silent", lambda self, now: None)


def never_abandons_an_induction(patch: Patch) -> None:
    original = Induction._mediate

    def mediate(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        if self._mediation is not None:
            self._mediation.deadline = inf

    patch.setattr(Induction, "_mediate", mediate)


def never_consents_late(patch: Patch) -> None:
    patch.setattr(Induction, "_meet_late", lambda self, now: self._unmet.clear())


def mistakes_guardians_for_nodes(patch: Patch) -> None:
    original = Induction.unbound_knock

    def knocked(self: Any, message: Any, link: Any, *arguments: Any, **options: Any) -> None:
        original(self, message, link, *arguments, **options)
        link.guardian = link.guardian and link.node is not None

    patch.setattr(Induction, "unbound_knock", knocked)


def does_not_bind_links_that_knocked_early(patch: Patch) -> None:
    patch.setattr(Induction, "bind_knocked", lambda self, node, now: None)


def does_not_redial(patch: Patch) -> None:
    original = LinkTable._schedule_redial

    def later(self: Any, dialling: Any, now: float) -> None:
        original(self, dialling, now)
        dialling.due = inf

    patch.setattr(LinkTable, "_schedule_redial", later)


def does_not_hasten_its_nomination(patch: Patch) -> None:
    patch.setattr(Election, "hasten", lambda self, now: None)


def never_yields_to_another_network(patch: Patch) -> None:
    patch.setattr(HeartbeatRelay, "_is_stronger", lambda self, message: False)


def stays_in_a_network_without_a_leader(patch: Patch) -> None:
    patch.setattr(Lifecycle, "no_leader_deadline", lambda self: inf)


def never_nominates_itself(patch: Patch) -> None:
    patch.setattr(Election, "nominate", lambda self, now: self.postpone(now))


def never_checks_its_registry(patch: Patch) -> None:
    patch.setattr(RegistryCheck, "tick", lambda self, now: setattr(self, "_check_at", now + 10.0))


def accepts_lines_of_another_term(patch: Patch) -> None:
    original = RecvRelay.recv_received

    def recv_received(self: Any, message: Any, link: Any, now: float) -> bool:
        link.term = self._context.durable.term
        return original(self, message, link, now)

    patch.setattr(RecvRelay, "recv_received", recv_received)


def reports_no_gaps(patch: Patch) -> None:
    original = NodeOutput.emit

    def tell(self: Any, event: Any) -> None:
        if not isinstance(event, LinesMissed):
            original(self, event)

    patch.setattr(NodeOutput, "emit", tell)


def continues_numbers_in_the_next_term(patch: Patch) -> None:
    patch.setattr(RecvRelay, "begin_term", lambda self, was_member: None)


def delivers_lines_twice(patch: Patch) -> None:
    original = RecvRelay.recv_received

    def recv_received(self: Any, message: Any, link: Any, now: float) -> bool:
        if self.expected is not None and message.idx < self.expected:
            self.expected = message.idx
        return original(self, message, link, now)

    patch.setattr(RecvRelay, "recv_received", recv_received)


def says_repeated_lines_again(patch: Patch) -> None:
    original = LineRelay.relay

    def pass_on(self: Any, message: Send, link: Any, now: float) -> bool:
        if self._context.leader == self._context.id:
            self._seen_sends.discard(message)
        return original(self, message, link, now)

    patch.setattr(LineRelay, "relay", pass_on)
    original_init = IrcWriter.__init__

    def init(self: Any, context: Any) -> None:
        original_init(self, context)
        self._seen_line_ids = EverySeen(10)

    patch.setattr(IrcWriter, "__init__", init)


def resends_uncertain_lines(patch: Patch) -> None:
    original = LineSendQueue.leader_changed

    def leader_changed(self: Any) -> None:
        for wish in self._in_flight.values():
            wish.retry = True
        original(self)

    patch.setattr(LineSendQueue, "leader_changed", leader_changed)


def reports_lines_as_said_too_soon(patch: Patch) -> None:
    original = LineSendQueue.take_sendable

    def take(self: Any, now: float) -> Any:
        going = original(self, now)
        for name, send in going:
            self.line_relayed(name, send.line)
        return going

    patch.setattr(LineSendQueue, "take_sendable", take)


def acknowledges_lines_accepted_by_tcp(patch: Patch) -> None:
    original = HydraNode.irc_handed

    def irc_handed(self: Any, event: ToIrc, handed: bool, now: float) -> None:
        original(self, event, handed, now)
        if handed and event.line_id is not None:
            self._components.send_queue.line_relayed(event.line_id, event.line)

    patch.setattr(HydraNode, "irc_handed", irc_handed)


def never_gives_up_a_silent_server(patch: Patch) -> None:
    patch.setattr(IrcWriter, "_silent_at", inf)


def mistakes_a_refusal_for_an_answer(patch: Patch) -> None:
    patch.setattr(PendingReplies, "match_error", lambda self, line: True)


def attributes_errors_to_the_newest_line(patch: Patch) -> None:
    def refused(self: Any, line: bytes) -> bool:
        if self._lines:
            self._lines[-1].errors.append(line)
        return True

    patch.setattr(PendingReplies, "match_error", refused)


def reports_uncertain_lines_as_refused(patch: Patch) -> None:
    original = NodeOutput.emit

    def tell(self: Any, event: Any) -> None:
        if isinstance(event, LineOutcome) and event.outcome is Outcome.UNCERTAIN:
            event = event._replace(outcome=Outcome.REFUSED)
        original(self, event)

    patch.setattr(NodeOutput, "emit", tell)


def relays_each_acknowledgement_repeatedly(patch: Patch) -> None:
    original = HeartbeatRelay.__init__

    def init(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        self._seen_pongs = EverySeen(10)

    patch.setattr(HeartbeatRelay, "__init__", init)


class SmallIslands(RepeatedPartitions):
    """Three or four nodes in networks that are partitioned often."""

    sizes = (3, 4)


class _Struck(RepeatedPartitions):
    """Three nodes without guardians. The leader has a slow clock and the others have fast ones; from time to time the
    leader gets a fault.
    """

    sizes = (3,)
    guardian_probability = 0.0

    def draw_faults(self, rng: Any) -> FaultSchedule:
        return FaultSchedule()

    def arrange(self) -> None:
        for at in range(50, int(self.duration), 60):
            self.network.call_in(at + self.rng.uniform(0.0, 10.0), self._begin)

    def _begin(self) -> None:
        hosts = [host for host in self.participants.hosts if host.running]
        leaders = [host for host in hosts if host.node.role is Role.LEADER]
        if len(leaders) == 1 and len(hosts) == 3:
            leader = leaders[0]
            for host in hosts:
                host.set_clock(rate=0.7 if host is leader else 1.3)
            self.strike(leader, [host for host in hosts if host is not leader])

    def strike(self, leader: Host, others: list[Host]) -> None:
        raise NotImplementedError

    def change(self, sources: list[Host], to: list[Host], seconds: float, **what: Any) -> None:
        """Make links worse for a while."""
        changed = self.network.override_links([one.address for one in sources], [one.address for one in to], **what)
        self.network.call_in(seconds, partial(self.network.remove_override, changed))


class Reborn(_Struck):
    """The leader is partitioned and the others restart at once, still bound by their promises."""

    name = "hydra.reborn"
    state_file_probability = 1.0

    def strike(self, leader: Host, others: list[Host]) -> None:
        if leader is self.participants.hosts[0]:
            # Only the first node may bootstrap.
            self.participants.leave(leader, 5.0)
            return
        self.change([leader], others, 40.0, up=False)
        self.change(others, [leader], 40.0, up=False)
        for host in others:
            host.stop(CrashMode.KILLED)
            self.network.call_in(0.2, host.start)


class Forgetful(Reborn):
    """The same without state files."""

    name = "hydra.forgetful"
    state_file_probability = 0.0


class Awakened(_Struck):
    """The leader is partitioned and one node suspended; the other restarts and bootstraps, and the first joins it."""

    name = "hydra.awakened"
    state_file_probability = 1.0

    def strike(self, leader: Host, others: list[Host]) -> None:
        first = self.participants.hosts[0]
        if leader is first:
            self.participants.leave(leader, 5.0)
            return
        (sleeper,) = (host for host in others if host is not first)
        sleeper.stop(CrashMode.KILLED)
        self.network.call_in(25.0, partial(self._wake, leader, first, sleeper))

    def _wake(self, leader: Host, first: Host, sleeper: Host) -> None:
        self.change([leader], [first, sleeper], 30.0, up=False)
        self.change([first, sleeper], [leader], 30.0, up=False)
        if first.up:
            first.stop(CrashMode.KILLED)
        for host in (first, sleeper):
            self.network.call_in(0.2, host.start)


class Rebootstrapped(_Struck):
    """The bootstrapping node is suspended; the last node to answer the leader restarts in the leader's partition and
    joins the network that it bootstraps.
    """

    name = "hydra.rebootstrapped"
    state_file_probability = 1.0

    def strike(self, leader: Host, others: list[Host]) -> None:
        first = self.participants.hosts[0]
        if leader is first:
            self.participants.leave(leader, 5.0)
            return
        (other,) = (host for host in others if host is not first)
        first.stop(CrashMode.KILLED)
        self.network.call_in(25.0, partial(self._wake, leader, first, other))

    def _wake(self, leader: Host, first: Host, other: Host) -> None:
        self.change([leader], [first, other], 30.0, up=False)
        self.change([first, other], [leader], 30.0, up=False)
        if other.up:
            other.stop(CrashMode.KILLED)
        for host in (first, other):
            self.network.call_in(0.2, host.start)


class Naps(_Struck):
    """A node is suspended for an election timeout and considers the leader lost; then the leader is suspended."""

    name = "hydra.naps"

    def strike(self, leader: Host, others: list[Host]) -> None:
        one = self.rng.choice(others)
        lasts = self.rng.uniform(9.0, 13.9)
        if one.pause():
            self.network.call_in(lasts, one.resume)
            self.network.call_in(lasts - 0.05, leader.pause)
            self.network.call_in(lasts + 15.0, leader.resume)


class Interrupted(_Struck):
    """The leader is killed while lines of other nodes are in flight."""

    name = "hydra.interrupted"

    def strike(self, leader: Host, others: list[Host]) -> None:
        for host in others:
            self.operate(host, "say", lambda node, now, host=host: self.participants.say(host, node, now, retry=False))
        self.network.call_in(self.rng.uniform(0.0005, 0.006), partial(leader.stop, CrashMode.KILLED))
        self.network.call_in(5.0, leader.start)


class Severed(_Struck):
    """The leader is partitioned, with its connections closed or left open."""

    name = "hydra.severed"

    def strike(self, leader: Host, others: list[Host]) -> None:
        if self.rng.random() < 0.5:
            for host in others:
                self.network.streams.reset(leader, host)
        self.change([leader], others, 40.0, up=False)
        self.change(others, [leader], 40.0, up=False)


class Late(_Struck):
    """Answers reach the leader late, and then its messages reach no node."""

    name = "hydra.late"

    def strike(self, leader: Host, others: list[Host]) -> None:
        self.change(others, [leader], 45.0, delay=self.rng.uniform(2.0, 5.0))
        self.network.call_in(15.0, partial(self.change, [leader], others, 30.0, up=False))


class Successions(_Struck):
    """The leader leaves; the next one is partitioned right after its first quick PINGs, while its clock is slow."""

    name = "hydra.successions"
    sizes = (5,)
    quick_probability = 1.0

    def _begin(self) -> None:
        leaders = [host for host in self.participants.hosts if host.running and host.node.role is Role.LEADER]
        if len(leaders) == 1:
            self.participants.leave(leaders[0], 25.0)
            self.network.call_in(0.5, partial(self._watch, 200))

    def _watch(self, times: int) -> None:
        hosts = [host for host in self.participants.hosts if host.running]
        quick = [host for host in hosts if host.node._components.leadership._is_quick]
        if quick:
            self.network.call_in(self.rng.uniform(0.0, 2.0), partial(self._part, quick[0]))
        elif times:
            self.network.call_in(0.05, partial(self._watch, times - 1))

    def _part(self, leader: Host) -> None:
        hosts = self.participants.hosts
        for host in hosts:
            if host.running:
                host.set_clock(rate=0.7 if host is leader else 1.3)
        others = [host for host in hosts if host is not leader]
        self.change([leader], others, 20.0, up=False)
        self.change(others, [leader], 20.0, up=False)


class Apart(Partitions):
    """Five nodes are all separated for so long that each bootstraps a network or is an outsider."""

    name = "hydra.apart"
    sizes = (5,)

    def draw_faults(self, rng: Random) -> FaultSchedule:
        names = [host.name for host in self.participants.hosts]
        at, lasts = round(rng.uniform(60.0, 70.0), 2), round(rng.uniform(35.0, 80.0), 2)
        return FaultSchedule(
            [
                PartitionFault(at, lasts, (one,), tuple(names[:number]), True)
                for number, one in enumerate(names)
                if number
            ]
        )


class Twins(NetworkScenario):
    """On slow links two nodes restart at once while their former ids are still registered."""

    name = "hydra.twins"
    sizes = (5, 7)
    guardian_probability = state_file_probability = 0.0

    def make_network(self, split_seed: int) -> Network:
        return Network(self.seed, Link(delay=0.1, jitter=0.3), split_seed=split_seed)

    def arrange(self) -> None:
        for at in range(50, int(self.duration), 40):
            self.network.call_in(at, self._restart)

    def _restart(self) -> None:
        followers = [host for host in self.participants.hosts if host.running and host.node.role is Role.COHORT]
        if len(followers) < 2:
            return
        after = self.rng.uniform(1.0, 5.0)
        for host, later in zip(self.rng.sample(followers, 2), (0.0, after), strict=True):
            self.network.call_in(later, partial(host.stop, CrashMode.KILLED))
            self.network.call_in(after + self.rng.uniform(0.1, 0.5), host.start)


STRIKES = (Reborn, Awakened, Rebootstrapped, Naps, Severed, Late, Twins, Successions)
TWO = (SingleLeaderPerTerm.name, SingleLease.name)
VOTES = (SingleVotePerTerm.name, SingleLeaderPerTerm.name, MonotonicTerms.name)

BUGS = [
    Bug(votes_twice, VOTES, Storm, seed=0),
    Bug(loses_its_vote_in_a_crash, VOTES, Storm, seed=8),
    Bug(persists_nothing, (*VOTES, SingleLease.name), Storm, seed=8),
    Bug(nominates_itself_in_the_same_term_again, VOTES, Storm, seed=0),
    Bug(wins_without_a_quorum, (*VOTES, SingleLease.name, NetworkConverges.name), Storm, seed=0),
    Bug(bootstraps_in_the_same_term_again, (*TWO, LineAgreement.name), Blackout, seed=0),
    Bug(uses_the_quorum_of_the_document, TWO, UnsafeQuorum, seed=4),
    Bug(takes_the_lease_without_a_quorum, TWO, RepeatedPartitions, seed=4),
    Bug(starts_the_lease_at_the_answer, TWO, Late, seed=3),
    Bug(holds_its_lease_forever, TWO, RepeatedPartitions, seed=1),
    Bug(keeps_leading_without_a_lease, TWO, RepeatedPartitions, seed=0),
    Bug(drops_others_without_a_quorum, (QuorumRequiredToDrop.name,), RepeatedPartitions, seed=0),
    Bug(never_promises, TWO, Naps, seed=20),
    Bug(promises_too_short_a_time, TWO, Awakened, seed=1),
    Bug(promises_a_quick_lease_to_every_ping, TWO, Awakened, seed=1),
    Bug(shortens_its_promise_at_a_quick_ping, TWO, Successions, seed=2),
    Bug(takes_a_longer_lease_than_it_claims, TWO, Successions, seed=1),
    Bug(holds_leases_beyond_the_clock_drift, (*TWO, LineAgreement.name), Late, seed=1),
    Bug(supports_nominees_despite_its_promise, TWO, Naps, seed=5),
    Bug(joins_and_answers_despite_its_promise, TWO, Rebootstrapped, seed=1),
    Bug(ends_its_promise_at_any_nomination, (*TWO, InductionsTerminate.name), Naps, seed=6),
    Bug(loses_its_promise_in_a_crash, TWO, Reborn, seed=6),
    Bug(does_not_wait_after_its_start, TWO, Forgetful, seed=6),
    Bug(drops_suspended_nodes, TWO, Storm, seed=19),
    Bug(ends_its_promise_when_a_link_breaks, TWO, Severed, seed=1),
    Bug(leads_beside_another_leader, (*TWO, NetworkConverges.name, LineAgreement.name, NO_EXCEPTIONS), Storm, seed=0),
    Bug(sends_the_welcome_before_all_meets, (IntroducedToAll.name,), Storm, seed=0),
    Bug(ignores_the_network_size, (MemoryBounded.name,), Storm, seed=1),
    Bug(keeps_no_reservations, (MemoryBounded.name,), Twins, seed=22),
    Bug(keeps_dropped_nodes, (NetworkConverges.name, IntroducedToAll.name), Twins, seed=3),
    Bug(drops_no_silent_nodes, (NetworkConverges.name,), Storm, seed=20),
    Bug(never_abandons_an_induction, (InductionsTerminate.name,), Storm, seed=12),
    Bug(never_consents_late, (ReunitesAfterPartition.name,), Apart, seed=37),
    Bug(mistakes_guardians_for_nodes, (LinksIdentified.name,), Storm, seed=0),
    Bug(does_not_bind_links_that_knocked_early, (LinksIdentified.name,), Storm, seed=0),
    Bug(does_not_redial, (ReunitesAfterPartition.name, NetworkConverges.name), Partitions, seed=0),
    Bug(does_not_hasten_its_nomination, (ReunitesAfterPartition.name,), Partitions, seed=84),
    Bug(never_yields_to_another_network, (ReunitesAfterPartition.name, NetworkConverges.name), Partitions, seed=2),
    Bug(stays_in_a_network_without_a_leader, (NetworkConverges.name,), Storm, seed=8),
    Bug(
        never_nominates_itself,
        (ReunitesAfterPartition.name, NetworkConverges.name, RecoversAfterPartition.name),
        Partitions,
        seed=1,
    ),
    Bug(never_checks_its_registry, (NetworkConverges.name,), SmallIslands, seed=147),
    Bug(takes_its_state_for_complete_after_a_gap, (StateAgreement.name,), Handovers, seed=2),
    Bug(keeps_other_state_than_the_leaders, (StateAgreement.name,), Handovers, seed=1),
    Bug(takes_over_a_damaged_snapshot, (StateAgreement.name,), Handovers, seed=0),
    Bug(relays_a_snapshot_without_numbers, (LineAgreement.name, StateAgreement.name), Handovers, seed=0),
    Bug(accepts_lines_of_another_term, (LineAgreement.name,), RepeatedPartitions, seed=98),
    Bug(reports_no_gaps, (LineAgreement.name,), Storm, seed=0),
    Bug(continues_numbers_in_the_next_term, (LineAgreement.name,), Storm, seed=1),
    Bug(delivers_lines_twice, (LineAgreement.name, NoRebroadcastStorm.name, AtMostOnceSend.name), Storm, seed=1),
    Bug(says_repeated_lines_again, (AtMostOnceSend.name,), Storm, seed=3),
    Bug(resends_uncertain_lines, (AtMostOnceSend.name,), Interrupted, seed=10),
    Bug(reports_lines_as_said_too_soon, (AtMostOnceSend.name,), Storm, seed=0),
    Bug(reports_uncertain_lines_as_refused, (AtMostOnceSend.name,), Storm, seed=0),
    Bug(acknowledges_lines_accepted_by_tcp, (AtMostOnceSend.name,), Deaf, seed=0),
    Bug(never_gives_up_a_silent_server, (SilentServerDetected.name,), Deaf, seed=0),
    Bug(mistakes_a_refusal_for_an_answer, (AtMostOnceSend.name,), Calm, seed=0),
    Bug(attributes_errors_to_the_newest_line, (AtMostOnceSend.name,), Deaf, seed=0),
    Bug(relays_each_acknowledgement_repeatedly, (NoRebroadcastStorm.name,), Calm, seed=3),
]


@each(BUGS)
def test_recorded_seed_reveals_the_planted_bug(bug: Bug, monkeypatch: Patch) -> None:
    check_seed(bug, monkeypatch)


# The bug is in the simulator's code, not in the library's.
@pytest.mark.soak(seconds=300)
@each(BUGS)
def test_seed_search_reveals_the_planted_bug(bug: Bug, monkeypatch: Patch) -> None:
    search(bug, monkeypatch)


each_strike = pytest.mark.parametrize("scenario", STRIKES, ids=[scenario.name for scenario in STRIKES])


@each_strike
def test_recorded_seed_without_the_bug_violates_no_invariant(scenario: type[NetworkScenario]) -> None:
    assert_nothing_found(scenario, next((bug.seed for bug in BUGS if bug.scenario is scenario), 0))


@pytest.mark.extended
@each_strike
def test_seed_search_without_a_bug_finds_nothing(scenario: type[NetworkScenario]) -> None:
    for seed in range(15):
        assert_nothing_found(scenario, seed)


def assert_nothing_found(scenario: type[NetworkScenario], seed: int) -> None:
    violation = scenario(seed).run().violation
    assert violation is None, f"seed {seed}: {violation}"
