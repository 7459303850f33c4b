from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hydra.harness import Cohort, Net

from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.node.durable_state import DurableState
from fyrehose_twisted.hydra.wire.messages import (
    MAX_TERM,
    Call,
    Drop,
    Elect,
    Keepalive,
    Nominate,
    Ping,
    Pledge,
    Pong,
)


def nominated(cohort: Cohort) -> int:
    """Stop the leader's PINGs until the node nominates itself; return the term."""
    for _ in range(20):
        cohort.wait(2.0)
        found = [one for one in cohort.end.received if isinstance(one, Nominate)]
        if found:
            assert found[0].id == cohort.host.id
            return int(found[0].term)
    raise AssertionError("it never nominated itself")


def free(cohort: Cohort) -> None:
    """Let the promise to node 7 expire without an election."""
    cohort.node._components.election.next_nomination = cohort.net.now + 25.0
    cohort.wait(15.1)
    cohort.end.take()


def test_node_is_bound_for_15_seconds_after_its_pong(cohort: Cohort, net: Net) -> None:
    assert cohort.host.durable.promised == 7
    assert cohort.host.durable.until == pytest.approx(net.now + 15.0, abs=0.01)


def test_early_nomination_is_answered_when_the_promise_ends(cohort: Cohort, net: Net) -> None:
    until = cohort.host.durable.until
    cohort.wait(12.0)
    cohort.end.take()
    cohort.end.send(Nominate(2, 8))
    assert cohort.end.take(Pledge) == []
    assert cohort.node.counters["nominations_too_early"] == 1
    cohort.node._components.election.next_nomination = net.now + 20.0
    net.run(until - net.now - 0.01)
    assert cohort.end.take(Pledge) == []
    net.run(0.02)
    assert cohort.end.take(Pledge) == [Pledge(2, 8, cohort.host.id)]


def test_nomination_that_came_much_too_early_is_forgotten(cohort: Cohort, net: Net) -> None:
    cohort.end.send(Nominate(2, 8))
    cohort.node._components.election.next_nomination = net.now + 40.0
    cohort.wait(16.0)
    assert cohort.end.take(Pledge) == []


def test_ping_of_the_leader_discards_an_early_nomination(cohort: Cohort, net: Net) -> None:
    cohort.wait(12.0)
    cohort.end.send(Nominate(2, 8))
    cohort.ping()
    cohort.end.take()
    cohort.wait(4.0)
    assert cohort.end.take(Pledge) == []
    assert cohort.node.leader == 7


def test_own_drop_of_the_leader_ends_the_promise(cohort: Cohort, net: Net) -> None:
    cohort.end.send(Drop(7, "left"))
    assert cohort.host.durable.promised == 0
    assert cohort.node.leader is None
    # Nothing arrives on that link any more: it led to 7.
    assert cohort.end.closed_by_peer


def test_nomination_of_the_leader_ends_the_promise(cohort: Cohort) -> None:
    cohort.end.send(Nominate(2, 7))
    assert cohort.host.durable.promised == 0
    assert cohort.end.take(Pledge) == [Pledge(2, 7, cohort.host.id)]


def test_nomination_of_another_node_does_not_end_the_promise(cohort: Cohort) -> None:
    cohort.end.send(Nominate(2, 8))
    assert cohort.host.durable.promised == 7
    assert cohort.end.take(Pledge) == []


def test_drop_of_another_node_does_not_end_the_promise(cohort: Cohort) -> None:
    cohort.end.send(Drop(8, "no PONG"))
    assert cohort.host.durable.promised == 7
    assert cohort.node.leader == 7


def test_broken_link_does_not_end_the_promise(cohort: Cohort, net: Net) -> None:
    cohort.end.close()
    net.run(0.01)
    assert cohort.host.durable.promised == 7
    assert cohort.node.leader == 7


def test_new_leader_is_followed_but_not_answered_during_the_promise(cohort: Cohort, net: Net) -> None:
    until = cohort.host.durable.until
    cohort.ping(term=2, leader=8)
    assert cohort.node.leader == 8
    assert cohort.end.take(Pong) == []
    assert cohort.host.durable.promised == 7
    while net.now < until - 3.0:
        net.run(2.0)
        val = cohort.ping(term=2, leader=8)
        assert cohort.end.take(Pong) == []
    net.run(until - net.now + 0.01)
    assert cohort.end.take(Pong) == [Pong(val, cohort.host.id, 0, "cohort")]
    assert cohort.host.durable.promised == 8


def test_pong_of_the_old_leader_to_the_new_one_ends_the_promise(cohort: Cohort) -> None:
    val = cohort.ping(term=2, leader=8)
    cohort.end.take()
    cohort.end.send(Pong(val, 7, 0))
    assert [one.id for one in cohort.end.take(Pong)] == [cohort.host.id]
    assert cohort.host.durable.promised == 8


def test_old_pong_of_the_old_leader_does_not_end_the_promise(cohort: Cohort) -> None:
    cohort.ping(term=2, leader=8)
    cohort.end.take()
    cohort.end.send(Pong("v0", 7, 0))
    assert cohort.end.take(Pong) == []
    assert cohort.host.durable.promised == 7


def test_node_without_stored_promises_helps_no_node_for_the_promise_time(
    make_cohort: Callable[..., Any], net: Net
) -> None:
    # The node does not even knock before.
    began = net.now
    cohort = make_cohort(remembers=False)
    assert net.now >= began + 15.0
    assert cohort.host.durable.promised == 7


def test_stored_promise_binds_after_a_restart(make_cohort: Callable[..., Any], net: Net) -> None:
    began = net.now
    cohort = make_cohort(durable=DurableState(term=1, promised=99, until=began + 12.0))
    assert net.now >= began + 12.0
    assert cohort.host.durable.promised == 7


def test_pong_to_a_network_without_a_quorum_makes_no_promise(make_cohort: Callable[..., Any]) -> None:
    cohort = make_cohort(durable=DurableState(term=1))
    cohort.ping()
    before = cohort.host.durable
    cohort.end.take()
    cohort.end.send(Ping(1, "~v", 7))
    assert [one.val for one in cohort.end.take(Pong)] == ["~v"]
    assert cohort.host.durable == before
    cohort.wait(1.0)
    cohort.ping()
    assert cohort.host.durable.until > before.until


def test_node_nominates_itself_soon_after_a_silent_link_recovers(cohort: Cohort, net: Net) -> None:
    free(cohort)
    cohort.node._context.follow(None, 1, net.now)
    cohort.node._components.election.next_nomination = net.now + 30.0
    net.cuts.append({cohort.end.owner})
    net.run(8.0)  # Longer than a lease.
    net.cuts.clear()
    cohort.end.send(Keepalive())
    net.run(1.0)
    assert [one.id for one in cohort.end.take(Nominate)] == [cohort.host.id]


def test_node_nominates_itself_soon_after_a_link_is_bound(cohort: Cohort, net: Net) -> None:
    free(cohort)
    cohort.node._context.follow(None, 1, net.now)
    cohort.node._components.election.next_nomination = net.now + 15.0
    end = net.join(cohort.host, 8)
    net.run(1.0)
    assert [one.id for one in end.take(Nominate)] == [cohort.host.id]


def test_nominations_keep_a_minimum_interval(cohort: Cohort, net: Net) -> None:
    free(cohort)
    cohort.node._context.follow(None, 1, net.now)
    times = []
    for _ in range(200):
        cohort.node._components.election.hasten(net.now)
        cohort.end.send(Keepalive())
        net.run(0.05)
        times += [net.now for _ in cohort.end.take(Nominate)]
    assert len(times) > 2
    assert all(after - before > 1.5 for before, after in pairwise(times))


def test_node_pledges_once_per_term(cohort: Cohort) -> None:
    free(cohort)
    cohort.end.send(Nominate(2, 8))
    assert cohort.end.take(Pledge) == [Pledge(2, 8, cohort.host.id)]
    cohort.end.send(Nominate(2, 7), Nominate(2, 8))
    assert cohort.end.take(Pledge) == []
    cohort.end.send(Nominate(3, 7))
    assert cohort.end.take(Pledge) == [Pledge(3, 7, cohort.host.id)]


def test_stored_vote_counts_after_a_restart(make_cohort: Callable[..., Any]) -> None:
    cohort = make_cohort(durable=DurableState(term=1, voted=5, nominee=3, voter=4))
    free(cohort)
    cohort.end.send(Nominate(5, 8))
    assert cohort.end.take(Pledge) == []
    cohort.end.send(Call(5))
    assert cohort.end.take(Elect) == []
    cohort.end.send(Nominate(6, 8))
    assert len(cohort.end.take(Pledge)) == 1


def test_node_votes_once_for_the_nominee_it_pledged_to(cohort: Cohort) -> None:
    free(cohort)
    cohort.end.send(Nominate(2, 8))
    assert cohort.end.take(Elect) == []
    cohort.end.send(Call(2), Call(2))
    assert cohort.end.take(Elect) == [Elect(2, 8, cohort.host.id)]
    cohort.end.send(Call(3))
    assert cohort.end.take(Elect) == []


def test_later_promise_prevents_a_vote(cohort: Cohort) -> None:
    free(cohort)
    cohort.end.send(Nominate(2, 8))
    cohort.ping()
    cohort.end.take()
    cohort.end.send(Call(2))
    assert cohort.end.take(Elect) == []


@pytest.mark.parametrize("term", [0, 1])
def test_nominations_for_past_terms_are_ignored(cohort: Cohort, term: int) -> None:
    free(cohort)
    cohort.end.send(Nominate(term, 8))
    assert cohort.end.take(Pledge) == []
    assert cohort.node.role is Role.COHORT


def test_pledge_is_durable_before_it_is_sent(cohort: Cohort) -> None:
    free(cohort)
    before = len(cohort.host.outputs)
    cohort.end.send(Nominate(2, 8))
    (drained,) = [
        one
        for one in cohort.host.outputs[before:]
        if any(isinstance(message, Pledge) for effect in one.effects for message in getattr(effect, "messages", ()))
    ]
    assert drained.persist is not None
    assert (drained.persist.voted, drained.persist.nominee, drained.persist.voter) == (2, 8, cohort.host.id)


def test_promise_is_durable_before_the_pong_is_sent(cohort: Cohort) -> None:
    before = len(cohort.host.outputs)
    cohort.net.run(3.0)
    cohort.ping()
    (drained,) = [
        one
        for one in cohort.host.outputs[before:]
        if any(isinstance(message, Pong) for effect in one.effects for message in getattr(effect, "messages", ()))
    ]
    assert drained.persist is not None
    assert drained.persist.until == pytest.approx(cohort.net.now + 15.0, abs=0.01)


def test_node_nominates_itself_only_after_15_seconds_of_silence(cohort: Cohort, net: Net) -> None:
    heard = net.now
    term = nominated(cohort)
    assert term == 2
    assert net.now >= heard + 15.0
    assert cohort.host.durable.nominee == cohort.host.id
    assert cohort.node.role is Role.NOMINEE


def test_nominee_calls_with_a_quorum_of_pledges_and_leads_with_a_quorum_of_votes(cohort: Cohort, net: Net) -> None:
    me, term = None, nominated(cohort)
    me = cohort.host.id
    cohort.end.take()
    cohort.end.send(Elect(term, me, 8))
    assert cohort.node.role is Role.NOMINEE
    cohort.end.send(Pledge(term, me, 7))
    assert cohort.end.take() == [Call(term), Elect(term, me, me)]
    assert cohort.node.role is Role.NOMINEE
    cohort.end.send(Elect(term, me, 7))
    assert cohort.node.role is Role.LEADER
    (ping,) = cohort.end.take(Ping)
    assert (ping.term, ping.id) == (term, me)
    assert cohort.node.lease_until is None
    cohort.end.send(Pong(ping.val, 7, 0))
    assert cohort.node.lease_until == pytest.approx(net.now + 7.5, abs=0.01)


@pytest.mark.parametrize(
    "votes",
    [
        lambda term, me: [Pledge(term, me, me)],
        lambda term, me: [Pledge(term, me, 99)],
        lambda term, me: [Pledge(term, 8, 7)],
        lambda term, me: [Pledge(term + 1, me, 7)],
        lambda term, me: [Pledge(term, 8, 7), Pledge(term, me, 7)],
        lambda term, me: [Call(term)],
    ],
)
def test_pledge_for_another_nominee_or_term_does_not_count(cohort: Cohort, votes: Any) -> None:
    term = nominated(cohort)
    me = cohort.host.id
    cohort.end.take()
    cohort.end.send(*votes(term, me))
    assert Elect(term, me, me) not in cohort.end.take()


@pytest.mark.parametrize(
    "votes",
    [
        lambda term, me: [Elect(term, me, me)],
        lambda term, me: [Elect(term, me, 99)],
        lambda term, me: [Elect(term, 8, 7), Elect(term, me, 7)],
        lambda term, me: [Elect(term - 1, me, 7), Elect(term + 1, me, 7)],
    ],
)
def test_vote_for_another_nominee_or_term_does_not_count(cohort: Cohort, votes: Any) -> None:
    term = nominated(cohort)
    me = cohort.host.id
    cohort.end.send(Pledge(term, me, 7))
    cohort.end.send(*votes(term, me))
    assert cohort.node.role is Role.NOMINEE


def test_failed_election_is_followed_by_a_nomination_in_a_higher_term(cohort: Cohort) -> None:
    term = nominated(cohort)
    cohort.end.take()
    cohort.node._components.election.next_nomination = cohort.net.now + 5.0
    assert nominated(cohort) == term + 1


def test_term_seen_in_messages_is_not_reused(cohort: Cohort) -> None:
    cohort.end.send(Nominate(40, 8))
    assert nominated(cohort) == 41


def test_term_far_ahead_is_not_followed(cohort: Cohort) -> None:
    cohort.end.send(Nominate(MAX_TERM, 8), Pledge(MAX_TERM, 8, 8), Elect(MAX_TERM, 8, 8), Call(MAX_TERM))
    assert nominated(cohort) == 2


def test_node_nominates_itself_soon_after_the_leader_left(cohort: Cohort, net: Net) -> None:
    other = net.join(cohort.host, 8)
    other.take()
    cohort.end.send(Drop(7, "left"))
    net.run(0.51)
    assert [one.id for one in other.take(Nominate)] == [cohort.host.id]


def test_election_messages_are_relayed_once(cohort: Cohort, net: Net) -> None:
    other = net.join(cohort.host, 8)
    cohort.end.take()
    for message in (Nominate(5, 8), Pledge(5, 8, 7), Call(5), Elect(5, 8, 7)):
        other.send(message, message)
        cohort.end.send(message)
        assert cohort.end.take(type(message)) == [message]
        assert other.take(type(message)) == []


@pytest.mark.parametrize(
    ("message", "count"),
    [
        (Nominate(2, 99), "unregistered_nominate"),
        (Pledge(2, 8, 99), "unregistered_pledge"),
        (Elect(2, 8, 99), "unregistered_elect"),
        (Ping(2, "v", 99), "unregistered_ping"),
        (Pong("v", 99, 0), "unregistered_pong"),
    ],
)
def test_election_messages_of_unregistered_nodes_are_ignored_and_counted(
    cohort: Cohort, net: Net, message: Any, count: str
) -> None:
    other = net.join(cohort.host, 8)
    other.take()
    free(cohort)
    vow = cohort.host.durable
    cohort.end.send(message)
    assert cohort.node.counters[count] == 1
    assert (cohort.host.durable, cohort.node.leader, cohort.node.role) == (vow, 7, Role.COHORT)
    if not isinstance(message, Pong):
        assert other.take(type(message)) == []


@pytest.mark.parametrize(
    ("message", "count"),
    [
        (Nominate(2, 8), "unbound_nominate"),
        (Pledge(2, 8, 8), "unbound_pledge"),
        (Call(2), "unbound_call"),
        (Elect(2, 8, 8), "unbound_elect"),
        (Drop(8, "x"), "unbound_drop"),
        (Ping(2, "v", 8), "unbound_ping"),
        (Pong("v", 8, 0), "unbound_pong"),
    ],
)
def test_election_messages_over_an_unbound_link_do_not_count(
    cohort: Cohort, net: Net, message: Any, count: str
) -> None:
    stranger = net.link(cohort.host)
    free(cohort)
    vow = cohort.host.durable
    stranger = net.link(cohort.host)
    stranger.send(Keepalive(), message)
    assert cohort.node.counters[count] == 1
    assert (cohort.host.durable, cohort.node.leader, cohort.node.role) == (vow, 7, Role.COHORT)
    assert cohort.end.take(type(message)) == []
    assert 8 in cohort.node._context.registry


def test_ping_of_an_earlier_term_is_not_followed(cohort: Cohort) -> None:
    cohort.ping(term=5, leader=8)
    cohort.ping(term=4, leader=7)
    assert (cohort.node.leader, cohort.node.term) == (8, 5)
    assert cohort.node.counters["ping_of_the_past"] == 1


def test_first_of_two_leaders_in_one_term_is_kept(cohort: Cohort) -> None:
    cohort.ping(term=1, leader=8)
    assert cohort.node.leader == 7
    assert cohort.node.counters["ping_of_a_rival"] == 1
