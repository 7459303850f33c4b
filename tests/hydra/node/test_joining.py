from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hydra.harness import Cohort, End, Host, Net

from fyrehose_twisted.hydra.config import TERMS_PER_SECOND
from fyrehose_twisted.hydra.events import IdChanged, OperatorWarning, Role
from fyrehose_twisted.hydra.node.durable_state import DurableState
from fyrehose_twisted.hydra.wire.messages import GUARDIAN_TAG, Drop, Hello, Keepalive, Knock, Meet, Ping, Pong, Welcome


def knocks(end: End) -> list[int]:
    return [one.ind for one in end.take(Knock)]


def pass_time(net: Net, seconds: float, *ends: Any) -> None:
    while seconds > 0:
        for end in ends:
            end.send(Keepalive())
        net.run(min(1.0, seconds))
        seconds -= 1.0


def test_outsider_knocks_at_one_link_after_the_other_and_starts_over(net: Net) -> None:
    one, other = net.play(2), net.play(3)
    host = net.node("out", 1, (2, 3))
    net.run(0.01)
    ends = [one.accepted[0], other.accepted[0]]
    first = [knocks(end) for end in ends]
    assert sorted(map(len, first)) == [0, 1]
    pass_time(net, 10.1, *ends)
    second = [knocks(end) for end in ends]
    assert [len(after) for after in second] == [1 - len(before) for before in first]
    pass_time(net, 30.0, *ends)
    assert sum(len(knocks(end)) for end in ends) >= 1
    assert host.node.counters["knocks_in_vain"] >= 3
    assert host.node.role is Role.OUTSIDER


def test_each_knock_has_a_new_nonzero_id(net: Net) -> None:
    played = net.play(2)
    net.node("out", 1, (2,))
    net.run(0.01)
    (end,) = played.accepted
    pass_time(net, 120.0, end)
    found = knocks(end)
    assert len(found) > 5
    assert len(set(found)) == len(found)
    assert 0 not in found


def test_outsider_becomes_a_node_by_meet_and_welcome_over_the_link_of_its_knock(net: Net) -> None:
    played = net.play(2)
    host = net.node("out", 1, (2,))
    net.run(0.01)
    (end,) = played.accepted
    (ind,) = knocks(end)
    end.send(Welcome(ind))
    assert host.node.role is Role.OUTSIDER
    end.send(Meet(ind + 1, 7), Welcome(ind))
    assert host.node.role is Role.OUTSIDER
    net.link(host).send(Meet(ind, 6), Welcome(ind))
    assert host.node.role is Role.OUTSIDER
    end.send(Meet(ind, 7), Meet(ind, 8), Welcome(ind))
    assert host.node.role is Role.COHORT
    assert host.of(IdChanged) == [IdChanged(ind)]
    # The first node to send a MEET is the mediator; the others only send HELLO.
    assert host.node._context.registry.ids() == {ind, 7}


def test_hello_from_a_node_with_the_same_id_makes_the_outsider_draw_another(net: Net) -> None:
    played = net.play(2)
    host = net.node("out", 1, (2,))
    net.run(0.01)
    (end,) = played.accepted
    (ind,) = knocks(end)
    end.send(Hello(ind, 7))
    assert host.node.counters["id_collisions"] == 1
    (other,) = knocks(end)
    assert other != ind


def test_ping_makes_an_outsider_knock_at_once(net: Net) -> None:
    played = net.play(2)
    host = net.node("out", 1, (2,))
    net.run(0.01)
    (end,) = played.accepted
    knocks(end)
    end.send(Ping(1, "v", 7))
    assert knocks(end) == []
    pass_time(net, 10.1, end)
    knocks(end)
    pass_time(net, 10.1, end)
    if host.node._components.joining.knocking is None:
        end.send(Ping(1, "w", 7))
        assert len(knocks(end)) == 1


def test_node_without_found_never_bootstraps(net: Net) -> None:
    host = net.node("out", 1)
    net.run(1_000.0)
    assert host.node.role is Role.OUTSIDER
    assert host.node.id is None


def test_node_bootstraps_at_once_without_reachable_links(net: Net) -> None:
    host = net.node("one", 1, (2,), bootstrap=True)
    net.run(0.5)
    assert host.node.role is Role.LEADER
    assert host.node.term == 1


def test_node_waits_for_an_answer_before_a_bootstrap_with_open_links(net: Net) -> None:
    played = net.play(2)
    host = net.node("one", 1, (2,), bootstrap=True)
    net.run(0.01)
    pass_time(net, 1.9, *played.accepted)
    assert host.node.role is Role.OUTSIDER
    pass_time(net, 1.0, *played.accepted)
    assert host.node.role is Role.LEADER


def test_outsider_knocks_only_where_its_promise_allows_answers(net: Net) -> None:
    one, other = net.play(2), net.play(3)
    net.node("out", 1, (2, 3), durable=DurableState(term=1, promised=7, until=net.now + 12.0))
    net.run(0.01)
    led_by_8, led_by_7 = one.accepted[0], other.accepted[0]
    led_by_8.send(Ping(1, "v", 8))
    pass_time(net, 5.0, led_by_8, led_by_7)
    assert knocks(led_by_8) == knocks(led_by_7) == []
    led_by_7.send(Ping(1, "v", 7))
    assert len(knocks(led_by_7)) == 1


def two_links(net: Net) -> tuple[Any, Any]:
    """Return the end at which a new node knocks, and the other end."""
    one, other = net.play(2), net.play(3)
    net.node("out", 1, (2, 3))
    net.run(0.01)
    ends = one.accepted[0], other.accepted[0]
    return ends if ends[0].received else ends[::-1]


def test_unanswered_knock_is_retried_over_a_link_that_reveals_a_network(net: Net) -> None:
    _, network = two_links(net)
    network.send(Ping(1, "v", 7))
    assert knocks(network) == []
    net.run(1.0)
    assert len(knocks(network)) == 1


def test_unanswered_knock_is_retried_over_the_same_link_when_a_network_appears(net: Net) -> None:
    end, _ = two_links(net)
    (first,) = knocks(end)
    net.run(0.5)
    end.send(Ping(1, "v", 7))
    assert knocks(end) == []
    net.run(0.6)
    (again,) = knocks(end)
    assert again != first


def test_unanswered_knock_is_retried_where_a_network_was_revealed_before(net: Net) -> None:
    one, other = net.play(2), net.play(3)
    net.node("out", 1, (2, 3), durable=DurableState(term=1, promised=99, until=net.now + 5.0))
    net.run(0.01)
    shown, silent = one.accepted[0], other.accepted[0]
    for end in (shown, silent):
        end.send(Ping(1, "v", 7))
    net.run(5.0)
    assert (len(knocks(shown)), len(knocks(silent))) == (0, 1)
    net.run(1.0)
    assert (len(knocks(shown)), len(knocks(silent))) == (1, 0)


def test_outsider_continues_with_one_knock_where_an_earlier_one_waited(net: Net) -> None:
    peers = [net.play(2), net.play(3)]
    host = net.node("one", 1, (2, 3))
    assert net.run(10.0, lambda: any(one.received for peer in peers for one in peer.accepted))
    first, second = (peer.accepted[0] for peer in peers)
    if not first.received:
        first, second = second, first
    (earlier,) = first.take(Knock)
    net.run(1.0)
    second.send(Ping(1, "v", 8))
    (pending,) = second.take(Knock)
    # Both nodes have a leader now, and begin with what waited.
    first.send(Meet(earlier.ind, 7))
    assert [one.ind for one in first.take(Knock)] == [pending.ind]
    second.send(Meet(pending.ind, 8))
    first.send(Meet(pending.ind, 7))
    assert first.take(Knock) == second.take(Knock) == []
    # Either may complete the induction, and the other one may introduce itself earlier.
    second.send(Hello(pending.ind, 8))
    assert host.node.counters["id_collisions"] == 0
    first.send(Welcome(pending.ind), Hello(pending.ind, 7))
    assert host.node.id == pending.ind


def test_outsider_waits_for_a_mediator_that_sent_a_meet(net: Net) -> None:
    mediator, network = two_links(net)
    (ind,) = knocks(mediator)
    mediator.send(Meet(ind, 7))
    network.send(Ping(1, "v", 7))
    net.run(3.0)
    network.send(Ping(1, "w", 7))
    assert knocks(network) == knocks(mediator) == []


def test_ping_of_a_network_prevents_a_bootstrap(net: Net) -> None:
    played = net.play(2)
    host = net.node("one", 1, (2,), bootstrap=True)
    net.run(0.01)
    (end,) = played.accepted
    for number in range(20):
        end.send(Ping(1, f"v{number}", 7))
        net.run(5.0)
    assert host.node.role is Role.OUTSIDER


def test_bootstrapping_leader_without_a_quorum_does_not_connect_to_irc(net: Net) -> None:
    host = net.node("one", 1, bootstrap=True)
    net.run(100.0)
    assert host.node.role is Role.LEADER
    assert host.node.lease_until is None
    assert not host.irc_online


@pytest.mark.parametrize(
    ("vow", "size", "term"), [(DurableState(), 3, 1), (DurableState(), 1, 1), (DurableState(term=5, voted=9), 1, 10)]
)
def test_first_bootstrap_increments_the_known_term(net: Net, vow: DurableState, size: int, term: int) -> None:
    host = net.node("one", 1, bootstrap=True, durable=vow, network_size=size)
    net.run(0.01)
    assert host.node.term == term


@pytest.mark.parametrize(
    ("vow", "first", "known"),
    [(DurableState(term=5), 1, 5), (DurableState(term=5, voted=9), 1, 9), (DurableState(term=10**9), 10**6, 10**9)],
)
def test_later_bootstrap_draws_a_random_higher_term(net: Net, vow: DurableState, first: int, known: int) -> None:
    terms = set()
    for number in range(1, 4):
        host = net.node(str(number), number, bootstrap=True, durable=vow, first_term=first)
        net.run(0.01)
        terms.add(host.node.term)
    assert len(terms) == 3  # The other members may have continued and elect a leader in that term.
    assert all(known < term <= known + TERMS_PER_SECOND for term in terms)


def test_nodes_without_state_bootstrap_in_different_terms(net: Net) -> None:
    first = 1_000_000
    hosts = [net.node(str(number), number, bootstrap=True, first_term=first) for number in (1, 2, 3)]
    net.run(0.01)
    terms = {host.node.term for host in hosts}
    assert len(terms) == 3
    assert all(first <= term < first + 65_536 for term in terms)


def test_second_bootstrap_without_state_uses_a_later_term(net: Net) -> None:
    host = net.node("one", 1, bootstrap=True, first_term=1_000_000)
    net.run(0.01)
    before = host.node.term
    host.node._lifecycle.leave_network("to see", net.now)
    host.flush()
    assert net.run(60.0, lambda: host.node.role is Role.LEADER)
    assert host.node.term > before


def test_promise_before_a_restart_delays_the_bootstrap(net: Net) -> None:
    host = net.node("one", 1, bootstrap=True, durable=DurableState(term=1, promised=7, until=net.now + 9.0))
    net.run(0.01)
    end = net.join(host, 8)
    end.owner.pongs_as = 8
    net.run(8.0)
    assert host.node.lease_until is None or host.node.lease_until <= net.now


def test_dropped_node_rejoins_with_another_id(cohort: Cohort, net: Net) -> None:
    before = cohort.host.id
    cohort.end.send(Drop(before, "no PONG"))
    assert cohort.node.role is Role.OUTSIDER
    assert cohort.host.of(IdChanged)[-1] == IdChanged(None)
    net.run(0.9)
    assert not [one for end in cohort.played.accepted for one in end.received if isinstance(one, Knock)]
    assert net.run(25.0, lambda: any(isinstance(one, Knock) for end in cohort.played.accepted for one in end.received))
    assert cohort.node._context.durable.until <= net.now or cohort.node._context.durable.promised == 0
    assert before not in {one.ind for end in cohort.played.accepted for one in end.take(Knock)}


def test_node_leaves_a_network_that_has_no_leader_for_too_long(cohort: Cohort, net: Net) -> None:
    heard = net.now
    cohort.wait(29.0)
    assert cohort.node.role is not Role.OUTSIDER
    cohort.wait(31.0 - (net.now - heard))
    assert cohort.node.role is Role.OUTSIDER
    assert "no leader for too long" in cohort.node.state(net.now).why


def former_node(cohort: Cohort, net: Net) -> int:
    """Make a node leave its network while no other node hears it, and return its former id."""
    me = cohort.host.id
    cohort.end.close()
    net.listening.pop(net.address(9))
    net.run(31.0)
    assert cohort.node.role is Role.OUTSIDER
    return me


def test_node_that_left_unheard_repeats_its_drop_before_its_knock(cohort: Cohort, net: Net) -> None:
    me = former_node(cohort, net)
    end = net.link(cohort.host)
    net.run(1.0)
    guardian, drop, knock = end.take()
    assert (guardian, drop) == (Knock(me, GUARDIAN_TAG), Drop(me, "left before"))
    assert knock.ind != me
    # Once is enough. A KNOCK of the former id would end an induction over this link.
    end.send(Ping(2, "v", Cohort.OTHER))
    pass_time(net, 30.0, end)
    assert set(map(type, end.take(Knock, Drop))) == {Knock}


@pytest.mark.parametrize(("leader", "repeats"), [(Cohort.OTHER, True), (99, False)], ids=["former", "another"])
def test_drop_is_repeated_only_to_the_former_network(cohort: Cohort, net: Net, leader: int, *, repeats: bool) -> None:
    me = former_node(cohort, net)
    cohort.node._components.joining.restart(net.now, 1.0)
    end = net.link(cohort.host)
    end.send(Ping(2, "v", leader))
    pass_time(net, 3.0, end)
    messages = end.take(Knock, Drop)
    assert messages[-1].ind != me
    assert (Drop(me, "left before") in messages) is repeats


def test_node_that_was_dropped_does_not_repeat_its_drop(cohort: Cohort, net: Net) -> None:
    net.listening.pop(net.address(9))
    cohort.end.send(Drop(cohort.host.id, "no PONG"))
    assert cohort.node.role is Role.OUTSIDER
    end = net.link(cohort.host)
    pass_time(net, 16.0, end)
    assert set(map(type, end.take(Knock, Drop))) == {Knock}


def test_two_concurrent_bootstraps_merge_into_one_network(net: Net) -> None:
    one = net.node("one", 1, (2,), bootstrap=True)
    net.run(0.01)
    other = net.node("two", 2, bootstrap=True)
    net.run(0.01)
    assert one.node.role is other.node.role is Role.LEADER
    assert net.run(120.0, lambda: one.node.leader is not None and one.node.leader == other.node.leader)
    assert net.run(10.0, lambda: one.node.lease_until is not None or other.node.lease_until is not None)


@pytest.mark.parametrize(
    ("val", "term", "leader", "parts"),
    [("v", -1, -1, True), ("~v", 1, -1, True), ("~v", 0, 1, True), ("~v", 0, -1, False), ("~v", -1, 1, False)],
    ids=["a quorum", "later term", "higher leader", "lower leader", "earlier term"],
)
def test_all_nodes_agree_which_of_two_networks_yields(
    net: Net, val: str, term: int, leader: int, *, parts: bool
) -> None:
    host = net.node("one", 1, bootstrap=True, durable=DurableState(term=5))
    net.run(0.01)
    assert host.node.role is Role.LEADER
    net.link(host).send(Ping(host.node.term + term, val, host.id + leader))
    assert (host.node.role is Role.OUTSIDER) is parts


def test_bootstrapping_leader_that_yields_releases_its_nodes(net: Net) -> None:
    host = net.node("one", 1, bootstrap=True, network_size=5)
    net.run(0.01)
    leader, end = host.id, net.join(host, 7)
    end.take()
    net.link(host).send(Ping(host.node.term + 1, "v", 99))
    assert [one.id for one in end.take(Drop)] == [leader]


@pytest.mark.parametrize(
    ("options", "text"),
    [({"network": "other"}, "is of another network"), ({"network_size": 5}, "says --network-size")],
    ids=["another name", "another size"],
)
def test_node_of_another_network_or_size_is_rejected(
    trio: tuple[Host, Host, Host], net: Net, options: dict[str, Any], text: str
) -> None:
    before = trio[0].node._context.registry.ids()
    host = net.node("stray", 9, (1, 2), **options)
    assert net.run(10.0, lambda: any(text in one.text for one in host.of(OperatorWarning)))
    net.run(60.0)
    assert host.node.role is Role.OUTSIDER
    assert host.node.counters["other_network"]
    assert all(one.node._context.registry.ids() == before for one in trio)
    assert all(one.node.leader == trio[0].node.id for one in trio)


def test_node_leaves_a_network_that_turns_out_to_be_another(cohort: Cohort) -> None:
    cohort.end.send(Ping(1, "v/0000.3", 7))
    assert cohort.node.role is Role.OUTSIDER
    assert "is of another network" in cohort.node.state(cohort.net.now).why


def test_node_of_another_network_is_not_inducted(make_cohort: Callable[..., Cohort], net: Net) -> None:
    cohort = make_cohort(network_size=5)
    end = net.link(cohort.host)
    end.send(Ping(1, "v/0000.3", 9), Knock(99, "stray"))
    assert end.take(Meet) == []
    assert len(net.join(cohort.host, 98).take(Meet)) == 1


def test_operator_is_warned_once_per_host_of_another_network(cohort: Cohort, net: Net) -> None:
    for _ in range(3):
        net.link(cohort.host).send(Ping(1, "v/0000.3", 7))
    assert cohort.node.counters["other_network"] == 3
    assert ["is of another network" in one.text for one in cohort.host.of(OperatorWarning)] == [True]


def test_outsider_welcomed_by_another_network_sends_its_drop(net: Net) -> None:
    end, _ = two_links(net)
    (ind,) = knocks(end)
    end.send(Ping(1, "v/0000.3", 7), Meet(ind, 7), Welcome(ind))
    assert [one.id for one in end.take(Drop)] == [ind]


def test_ping_without_network_suffix_is_accepted(cohort: Cohort) -> None:
    cohort.end.send(Ping(1, "v/of/the.document", 7))
    assert cohort.node.leader == 7


def test_isolated_node_leaves_its_network_when_an_outsider_knocks(cohort: Cohort, net: Net) -> None:
    heard = net.now
    cohort.end.close()
    cohort.node._context.follow(None, 1, net.now)
    net.run(14.0)
    net.join(cohort.host, 99)
    assert cohort.node.id is not None
    net.run(heard + 15.0 - net.now)
    net.join(cohort.host, 99)
    assert cohort.node.role is Role.OUTSIDER
    assert "can be reached" in cohort.node.state(net.now).why


def test_pong_to_a_ping_before_the_registration_gives_no_lease(net: Net) -> None:
    host = net.node("one", 1, bootstrap=True)
    net.run(0.01)
    before = host.node._context.val
    end = net.join(host, 7)
    assert host.node.lease_until is None
    # An answer sent before the registration does not count.
    end.send(Pong(before, 7, 0))
    assert host.node.lease_until is None
    end.send(Pong(end.take(Ping)[-1].val, 7, 0))
    assert host.node.lease_until is not None


def test_newly_inducted_node_does_not_mistake_its_own_network_for_another(net: Net) -> None:
    mediator, leader = net.play(9), net.play(7)
    host = net.node("new", 1, (9, 7), network_size=5)
    assert net.run(60.0, lambda: bool(mediator.accepted and leader.accepted))
    mediating, leading = mediator.accepted[0], leader.accepted[0]
    assert net.run(60.0, lambda: any(isinstance(one, Knock) for one in mediating.received))
    (ind,) = {one.ind for one in mediating.take(Knock)}
    mediating.send(Meet(ind, 9), Welcome(ind), Hello(ind, 9))
    assert host.node.id == ind
    for number in range(50):
        leading.send(Ping(5, f"v{number}", 7))
    assert host.node.id == ind

    # Later it would know the leader.
    pass_time(net, host.node.config.timers.max_ping, mediating, leading)
    for number in range(50, 100):
        if host.node.id is not None:
            leading.send(Ping(5, f"v{number}", 7))
    assert host.node.id is None
    assert host.node.counters["foreign_ping"]
