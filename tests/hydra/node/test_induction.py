from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hydra.harness import Cohort, End, Host, Leader, Net

from fyrehose_twisted.hydra.config import Quorum
from fyrehose_twisted.hydra.events import NodeDropped, NodeRegistered, Role
from fyrehose_twisted.hydra.node.induction import MAX_WAITING_KNOCKS
from fyrehose_twisted.hydra.wire.messages import (
    GUARDIAN_TAG,
    NOT_INDUCTED,
    Drop,
    Hello,
    Keepalive,
    Knock,
    Meet,
    Nominate,
    Ping,
    Welcome,
)

FOUR = {"network_size": 4}


def kinds(messages: list[Any]) -> list[str]:
    return [type(message).__name__ for message in messages]


def test_knock_is_answered_with_meet_welcome_and_hello_in_this_order(net: Net) -> None:
    host = net.node("one", 1, bootstrap=True)
    net.run(0.01)
    end = net.join(host, 7)
    answers = end.take()
    assert answers[:3] == [Meet(7, host.id), Welcome(7), Hello(7, host.id)]
    assert set(kinds(answers[3:])) == {"Ping", "Pong"}
    assert host.of(NodeRegistered)[-1] == NodeRegistered(7)


def test_mediator_sends_the_welcome_after_all_nodes_sent_a_meet(make_leader: Callable[..., Leader], net: Net) -> None:
    leader = make_leader(**FOUR)
    me = leader.host.id
    end = net.join(leader.host, 9)
    assert end.take() == [Meet(9, me)]
    for node in (7, 8):
        assert kinds(leader.ends[node].take(Knock, Meet)) == ["Knock", "Meet"]
    leader.ends[7].send(Meet(9, 7))
    assert end.take() == [Meet(9, 7)]
    assert 9 not in leader.node._context.registry
    leader.ends[8].send(Meet(9, 8))
    assert kinds(end.take())[:3] == ["Meet", "Welcome", "Hello"]
    assert kinds(leader.ends[7].take(Welcome, Hello)) == ["Welcome", "Hello"]
    assert 9 in leader.node._context.registry


def test_meet_for_another_inductee_does_not_count(make_leader: Callable[..., Leader], net: Net) -> None:
    leader = make_leader(**FOUR)
    net.join(leader.host, 9)
    leader.ends[7].send(Meet(9, 7), Meet(9, 7), Meet(10, 8), Meet(9, 99))
    assert 9 not in leader.node._context.registry


def test_induction_does_not_wait_for_a_node_dropped_meanwhile(make_leader: Callable[..., Leader], net: Net) -> None:
    leader = make_leader(**FOUR)
    net.join(leader.host, 9)
    leader.ends[7].send(Meet(9, 7))
    leader.ends[7].send(Drop(8, "no PONG"))
    assert 9 in leader.node._context.registry


def test_induction_times_out_and_releases_its_reservations(make_leader: Callable[..., Leader], net: Net) -> None:
    leader = make_leader(**FOUR)
    end = net.join(leader.host, 9)
    assert leader.node._context.registry.places_taken() == 4
    for _ in range(3):
        end.send(Keepalive())
        net.run(3.4)
    assert leader.node._context.registry.places_taken() == 3
    assert [one.id for one in leader.ends[7].take(Drop)] == [9]
    assert leader.node.counters["inductions_failed"] == 1
    assert leader.node._components.induction.mediating is None
    leader.ends[7].send(Meet(9, 7))
    leader.ends[8].send(Meet(9, 8))
    assert 9 not in leader.node._context.registry


def test_induction_is_abandoned_when_the_inductee_disconnects(make_leader: Callable[..., Leader], net: Net) -> None:
    leader = make_leader(**FOUR)
    end = net.join(leader.host, 9)
    end.close()
    net.run(0.01)
    assert leader.node._components.induction.mediating is None
    assert [one.id for one in leader.ends[8].take(Drop)] == [9]


def test_mediator_handles_one_induction_at_a_time(make_leader: Callable[..., Leader], net: Net) -> None:
    leader = make_leader(network_size=5)
    first, second = net.join(leader.host, 9), net.join(leader.host, 10)
    assert len(first.take()) == 1
    assert second.take() == []
    for node in (7, 8):
        leader.ends[node].send(Meet(9, node))
    assert Welcome(9) in first.take()
    assert second.take(Meet) == [Meet(10, leader.host.id)]


def test_network_size_is_never_exceeded_and_a_queued_knock_gets_a_free_place(leader: Leader, net: Net) -> None:
    end = net.join(leader.host, 9)
    net.run(1.0)
    assert end.take(Meet) == []
    assert leader.ends[7].take(Knock) == []
    leader.ends[7].send(Drop(8, "no PONG"))
    assert end.take(Meet) == [Meet(9, leader.host.id)]


def test_queued_knock_expires_without_an_answer(leader: Leader, net: Net) -> None:
    net.join(leader.host, 9)
    net.run(10.1)
    assert leader.node.counters["knocks_unanswered"] == 1
    leader.ends[7].send(Drop(8, "no PONG"))
    assert leader.node._components.induction.mediating is None


def test_induction_does_not_wait_for_a_node_that_the_mediator_drops(
    make_leader: Callable[..., Leader], net: Net
) -> None:
    leader = make_leader(network_size=5)
    other = net.join(leader.host, 10)
    other.owner.pongs_as = 10
    leader.ends[7].send(Meet(10, 7), Meet(10, 8))
    leader.silence(8)
    net.run(8.0)
    net.join(leader.host, 9)
    leader.ends[7].send(Meet(9, 7), Meet(9, 10))
    assert 9 not in leader.node._context.registry
    net.run(8.0)
    assert NodeDropped(8, "no PONG") in leader.host.events
    assert 9 in leader.node._context.registry


def test_node_without_links_to_other_nodes_does_not_mediate(make_cohort: Callable[..., Cohort], net: Net) -> None:
    cohort = make_cohort(**FOUR)
    cohort.end.close()
    end = net.join(cohort.host, 9)
    assert cohort.node.leader is not None
    assert end.take(Meet) == []
    other = net.join(cohort.host, 8)
    assert other.take(Knock) == [Knock(9, "played-9")]
    assert end.take(Meet) == [Meet(9, cohort.host.id)]


def test_number_of_queued_knocks_is_limited(leader: Leader, net: Net) -> None:
    for ind in range(100, 100 + MAX_WAITING_KNOCKS + 3):
        net.join(leader.host, ind)
    assert leader.node.counters["knocks_unanswered"] == 3


def test_network_without_a_size_inducts_all(net: Net) -> None:
    host = net.node("one", 1, bootstrap=True, network_size=None, quorum=Quorum.REGISTRY)
    net.run(0.01)
    net.join(host, 7)
    assert 7 in host.node._context.registry


def test_knock_with_a_dropped_id_is_answered_with_a_drop(leader: Leader, net: Net) -> None:
    leader.ends[7].send(Drop(8, "no PONG"))
    assert leader.host.of(NodeDropped) == [NodeDropped(8, "no PONG")]
    assert net.join(leader.host, 8).take() == [Drop(8, "dropped before")]


def test_relayed_knock_with_a_dropped_id_is_answered_with_a_drop(make_cohort: Callable[..., Cohort]) -> None:
    cohort = make_cohort(**FOUR)
    cohort.end.send(Knock(9), Welcome(9), Drop(9, "no PONG"))
    cohort.end.take()
    cohort.end.send(Knock(9))
    assert cohort.end.take() == [Drop(9, "dropped before")]
    assert cohort.node._context.registry.places_taken() == 3


def test_mediator_passes_the_drop_of_a_former_id_on(make_leader: Callable[..., Leader], net: Net) -> None:
    leader = make_leader(**FOUR)
    end = net.join(leader.host, 9)
    leader.ends[7].send(Drop(9, "dropped before"))
    assert end.take(Drop) == [Drop(9, "dropped before")]
    assert leader.ends[8].take(Drop) == [Drop(9, "dropped before")]
    assert leader.node._components.induction.mediating is None
    assert leader.node._context.registry.places_taken() == 3


@pytest.mark.parametrize("knocked", [True, False], ids=["over this link", "not at all"])
def test_node_that_knocked_over_an_accepted_link_may_be_told_there_that_it_was_dropped(
    cohort: Cohort, net: Net, *, knocked: bool
) -> None:
    me = cohort.host.id
    end = net.link(cohort.host)
    if knocked:
        end.send(Ping(1, "v0", Cohort.LEADER))
        assert Knock(me, "cohort") in end.take()
    end.send(Drop(me, "dropped before"))
    assert (cohort.node.role is Role.OUTSIDER) is knocked


def test_leader_without_a_lease_inducts_no_node(make_leader: Callable[..., Leader], net: Net) -> None:
    leader = make_leader(**FOUR)
    end = net.join(leader.host, 9)
    leader.silence(7, 8)
    net.run(7.5)
    for node in (7, 8):
        leader.ends[node].send(Meet(9, node))
    assert end.take(Welcome) == []
    assert 9 not in leader.node._context.registry


def test_second_link_of_a_node_is_bound_without_flooding(leader: Leader, net: Net) -> None:
    end = net.join(leader.host, 7)
    assert end.take()[0] == Hello(7, leader.host.id)
    assert leader.ends[8].take() == []


def test_knock_with_the_nodes_own_id_is_not_answered(leader: Leader, net: Net) -> None:
    assert net.join(leader.host, leader.host.id).take() == []


def test_node_answers_a_relayed_knock_with_a_meet(make_cohort: Callable[..., Cohort]) -> None:
    cohort = make_cohort(**FOUR)
    cohort.end.send(Knock(9, "new"), Knock(9, "new"))
    assert cohort.end.take() == [Meet(9, cohort.host.id)]
    cohort.end.send(Welcome(9), Hello(9, 7))
    assert cohort.end.take() == [Hello(9, cohort.host.id)]
    member = cohort.node._context.registry.get(9)
    assert member is not None
    assert member.tag == "new"


def test_node_reserves_no_place_beyond_the_network_size_for_two_mediators(make_cohort: Callable[..., Cohort]) -> None:
    cohort = make_cohort(**FOUR)
    cohort.end.send(Knock(9, "new"), Knock(10, "newer"))
    assert cohort.end.take(Meet) == [Meet(9, cohort.host.id)]
    assert cohort.node.counters["not_met"] == 1
    cohort.end.send(Welcome(10))
    assert 10 not in cohort.node._context.registry


def newcomer(net: Net, size: int = 4) -> tuple[Host, End]:
    """Start a node that 7 inducts, that knows 8, and that has no leader yet."""
    played = net.play(9)
    host = net.node("new", 1, (9,), network_size=size)
    net.run(0.01)
    (end,) = played.accepted
    (ind,) = (one.ind for one in end.take(Knock))
    end.send(Meet(ind, 7), Welcome(ind), Hello(ind, 7), Hello(ind, 8))
    assert host.node.leader is None
    end.take()
    return host, end


def test_newly_inducted_node_consents_once_it_follows_a_leader(net: Net) -> None:
    host, end = newcomer(net)
    # The mediator begins the next induction before the new node has heard the leader.
    end.send(Knock(9, "next"))
    assert end.take(Meet) == []
    end.send(Ping(1, "v", 7))
    assert end.take(Meet) == [Meet(9, host.id)]
    end.send(Welcome(9))
    member = host.node._context.registry.get(9)
    assert member is not None
    assert member.tag == "next"


def test_node_does_not_consent_once_there_is_a_place(net: Net) -> None:
    host, end = newcomer(net, size=3)
    end.send(Knock(9), Ping(1, "v", 7), Knock(10), Drop(8, "no PONG"))
    assert end.take(Meet) == []
    assert host.node._context.registry.places_taken() == 2


def test_node_does_not_consent_after_the_time_of_an_induction(net: Net) -> None:
    _, end = newcomer(net)
    end.send(Knock(9))
    for _ in range(3):
        end.send(Keepalive())
        net.run(3.4)
    end.send(Ping(1, "v", 7))
    assert end.take(Meet) == []


@pytest.mark.parametrize("reason", [f"{NOT_INDUCTED}: its link closed", "dropped before"])
def test_abandoned_induction_is_forgotten_everywhere_and_gets_no_late_consent(net: Net, reason: str) -> None:
    host, end = newcomer(net)
    other = net.join(host, 8)
    end.send(Knock(9))
    other.take()
    end.send(Drop(9, reason))
    assert other.take(Drop) == [Drop(9, reason)]
    end.send(Ping(1, "v", 7))
    assert end.take(Meet) == []


def test_number_of_inductions_that_wait_for_a_consent_is_limited(net: Net) -> None:
    host, end = newcomer(net, size=64)
    end.send(*(Knock(ind) for ind in range(100, 100 + MAX_WAITING_KNOCKS + 3)), Ping(1, "v", 7))
    assert len(end.take(Meet)) == MAX_WAITING_KNOCKS
    assert host.node.counters["not_met"] == MAX_WAITING_KNOCKS + 3


def test_inductions_that_timed_out_keep_no_other_from_a_consent(net: Net) -> None:
    host, end = newcomer(net, size=64)
    end.send(*(Knock(ind) for ind in range(100, 100 + MAX_WAITING_KNOCKS)))
    for _ in range(3):
        end.send(Keepalive())
        net.run(3.4)
    end.send(Knock(9), Ping(1, "v", 7))
    assert end.take(Meet) == [Meet(9, host.id)]


def test_two_concurrent_mediators_both_succeed_within_the_network_size(make_cohort: Callable[..., Cohort]) -> None:
    cohort = make_cohort(network_size=5)
    cohort.end.send(Knock(9), Knock(10), Welcome(10), Welcome(9))
    assert {9, 10} <= cohort.node._context.registry.ids()


def test_reservation_is_kept_until_the_inductee_is_dropped(make_cohort: Callable[..., Cohort]) -> None:
    cohort = make_cohort(**FOUR)
    cohort.end.send(Knock(9))
    assert cohort.node._context.registry.places_taken() == 4
    cohort.end.send(Drop(9, "some nodes did not send MEET"))
    assert cohort.node._context.registry.places_taken() == 3
    cohort.end.send(Welcome(9))
    assert 9 not in cohort.node._context.registry


def test_reservation_expires(make_cohort: Callable[..., Cohort]) -> None:
    cohort = make_cohort(**FOUR)
    cohort.end.send(Knock(9))
    for _ in range(6):
        cohort.ping()
        cohort.net.run(4.0)
    assert cohort.node._context.registry.places_taken() == 4
    cohort.ping()
    cohort.net.run(1.1)
    assert cohort.node._context.registry.places_taken() == 3


def test_no_meet_is_sent_during_an_election(make_cohort: Callable[..., Cohort]) -> None:
    cohort = make_cohort(**FOUR)
    cohort.node._components.election.next_nomination = cohort.net.now + 25.0
    cohort.wait(15.1)
    cohort.end.send(Nominate(2, 8))
    assert cohort.node.role is Role.VOTER
    cohort.end.take()
    cohort.end.send(Knock(9))
    assert cohort.end.take(Meet) == []
    cohort.ping(3)
    assert cohort.end.take(Meet) == [Meet(9, cohort.host.id)]


def test_unbound_meet_welcome_and_hello_are_ignored_and_counted(cohort: Cohort, net: Net) -> None:
    stranger = net.link(cohort.host)
    stranger.send(Meet(9, 7), Welcome(9), Hello(9, 7))
    for count in ("unbound_meet", "unbound_welcome", "unbound_hello"):
        assert cohort.node.counters[count] == 1
    assert 9 not in cohort.node._context.registry


def test_node_that_knocks_before_its_hello_is_registered(net: Net) -> None:
    played = net.play(9)
    host = net.node("new", 1, (9,))
    net.run(0.01)
    (end,) = played.accepted
    (ind,) = (one.ind for one in end.take(Knock))
    end.send(Meet(ind, 7), Welcome(ind), Hello(ind, 7), Ping(1, "v", 7))
    # Node 8 is registered and linked to the inductee; its flooded messages arrive later over another link.
    other = net.join(host, 8)
    end.send(Hello(ind, 8))
    assert host.node._context.registry.ids() == {ind, 7, 8}
    assert host.node._components.induction.mediating is None
    assert Hello(8, ind) in other.take()


def test_new_node_learns_of_all_three_existing_nodes(trio: tuple[Host, Host, Host], net: Net) -> None:
    ids = {host.id for host in trio}
    for host in trio:
        assert host.node._context.registry.ids() == ids
        assert {view.id for view in host.node.state(net.now).nodes} == ids


def guarded(cohort: Cohort, net: Net) -> Any:
    end = net.link(cohort.host)
    end.take()
    end.send(Knock(7, GUARDIAN_TAG))
    assert end.take() == [Hello(7, cohort.host.id)]
    return end


def test_guardian_may_drop_its_node(cohort: Cohort, net: Net) -> None:
    end = guarded(cohort, net)
    end.send(Drop(7, "guardian"))
    assert 7 not in cohort.node._context.registry
    assert cohort.host.durable.promised == 0


def test_guardian_may_not_drop_another_node(cohort: Cohort, net: Net) -> None:
    end = guarded(cohort, net)
    end.send(Drop(8, "guardian"), Drop(cohort.host.id, "guardian"))
    assert 8 in cohort.node._context.registry
    assert cohort.node.role is Role.COHORT
    assert cohort.node.counters["unbound_drop"] == 2


def test_guardian_may_only_send_drop_and_receives_nothing(cohort: Cohort, net: Net) -> None:
    end = guarded(cohort, net)
    end.send(Nominate(2, 7), Ping(2, "v", 7), Knock(8, GUARDIAN_TAG), Knock(9, "x"))
    assert cohort.node.counters["unbound_nominate"] == cohort.node.counters["unbound_ping"] == 1
    assert cohort.node.counters["unbound_knock"] == 2
    cohort.ping()
    assert end.take() == []


def test_guardian_of_an_unregistered_node_is_not_answered(cohort: Cohort, net: Net) -> None:
    end = net.link(cohort.host)
    end.take()
    end.send(Knock(99, GUARDIAN_TAG))
    assert end.take() == []
    assert cohort.end.take(Knock) == []


def test_guardian_that_connects_before_its_node_is_registered_is_not_a_link_to_it(cohort: Cohort, net: Net) -> None:
    end = net.link(cohort.host)
    end.take()
    end.send(Knock(9, GUARDIAN_TAG))
    assert end.take() == []
    cohort.end.send(Drop(8, "to make room"), Knock(9, "late"), Meet(9, 7), Welcome(9), Hello(9, 7))
    assert 9 in cohort.node._context.registry
    assert end.take() == [Hello(9, cohort.host.id)]
    assert 9 not in cohort.node._context.links.primary
    end.send(Drop(9, "guardian"))
    assert 9 not in cohort.node._context.registry


def test_mediator_recognizes_a_guardian_that_connected_before_its_node(net: Net) -> None:
    host = net.node("one", 1, bootstrap=True)
    net.run(0.01)
    guardian = net.link(host)
    guardian.take()
    guardian.send(Knock(7, GUARDIAN_TAG))
    assert guardian.take() == []
    net.join(host, 7)
    assert guardian.take() == [Hello(7, host.id)]
    guardian.send(Drop(7, "guardian"))
    assert 7 not in host.node._context.registry


@pytest.mark.parametrize("tag", [GUARDIAN_TAG, "x"])
def test_guardian_link_does_not_become_the_primary_link_of_its_node(cohort: Cohort, net: Net, tag: str) -> None:
    end = net.link(cohort.host)
    end.send(Knock(8, tag))
    assert (8 in cohort.node._context.links.primary) is (tag == "x")
