"""Quick leases: short leases of a leader that a quorum answers within a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hydra.harness import Cohort, Host, Leader, Net
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.hydra.config import Timers
from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.wire.messages import MAX_ID, MAX_VAL, Ping, Pong
from fyrehose_twisted.hydra.wire.ping_val import claimed_lease, format_val

TIMERS = Timers()


def quick_trio(net: Net, **options: Any) -> tuple[Host, Host, Host]:
    """Return three fully linked nodes, of which the first leads with quick leases."""
    hosts = (
        net.node("one", 1, bootstrap=True, quick_lease=True, **options),
        net.node("two", 2, (1,), **options),
        net.node("three", 3, (1, 2), **options),
    )
    assert net.run(60.0, lambda: hosts[0].irc_online and all(host.node.leader == hosts[0].node.id for host in hosts))
    net.run(20.0)
    return hosts


def pings(leader: Leader) -> list[tuple[float | None, str]]:
    return [(claimed_lease(ping.val), ping.val) for ping in leader.ends[7].take(Ping)]


@given(
    st.integers(1, MAX_ID),
    st.integers(1, 99_999_999),
    st.none() | st.sampled_from([0.001, 0.35, 3.5, 7.5, 350.0]),
    st.booleans(),
)
def test_val_tells_its_lease_and_fits(leader: int, number: int, lease: float | None, has_quorum: bool) -> None:
    val = format_val(leader, number, "/abcd.64", lease=lease, has_quorum=has_quorum)
    assert claimed_lease(val) == lease
    assert len(val) <= MAX_VAL
    assert val.endswith("/abcd.64")
    assert val.startswith("~") is not has_quorum


@pytest.mark.parametrize("val", ["", "x", "1267.17/abcd.3", "~1267.17/abcd.3", "1267.17l/abcd.3", "1267.17ldac"])
def test_val_without_a_claim_stands_for_the_timers_of_the_document(val: str) -> None:
    assert claimed_lease(val) is None


def test_timers_of_quick_leases_keep_the_ratio_and_the_pause_of_the_document() -> None:
    assert TIMERS.promise_for(TIMERS.lease) == TIMERS.promise
    assert TIMERS.promise_for(TIMERS.quick_lease) / TIMERS.quick_lease > 1.3 / 0.7
    assert TIMERS.quick_lease - TIMERS.quick_ping_interval == TIMERS.lease - TIMERS.ping_interval


def test_leader_takes_quick_leases_once_a_quorum_answers_in_time(make_leader: Callable[..., Leader], net: Net) -> None:
    leader = make_leader(quick_lease=True)
    net.run(20.0)
    claims = [claim for claim, _ in pings(leader)]
    assert claims == [3.5] * len(claims)
    assert 19 <= len(claims) <= 21
    until = leader.node.lease_until
    assert until is not None
    assert 2.4 < until - net.now <= 3.5


def test_leader_without_quick_leases_sends_the_vals_of_earlier_versions(leader: Leader, net: Net) -> None:
    net.run(20.0)
    assert len(found := pings(leader)) == 4
    assert all(claim is None and val.count("l") == 0 for claim, val in found)


def test_first_ping_of_a_leader_claims_no_quick_lease(make_leader: Callable[..., Leader], net: Net) -> None:
    host = net.node("alone", 5, bootstrap=True, quick_lease=True, network_size=1)
    net.run(20.0)
    assert (host.node.role, claimed_lease(host.node._context.val)) == (Role.LEADER, None)


def test_leader_returns_to_slow_leases_before_it_loses_a_quick_one(
    make_leader: Callable[..., Leader], net: Net
) -> None:
    leader = make_leader(quick_lease=True)
    net.run(10.0)
    leader.silence(7, 8)
    leader.ends[7].take()
    net.run(2.2)
    val = leader.ends[7].take(Ping)[-1].val
    assert claimed_lease(val) is None
    leader.ends[7].send(Pong(val, 7, 0))
    for node in (7, 8):
        leader.ends[node].owner.pongs_as = node  # type: ignore[attr-defined]
    net.run(25.0)
    assert (leader.node.role, leader.node.counters["leases_slowed"]) == (Role.LEADER, 1)
    assert {claim for claim, _ in pings(leader)} == {None}
    net.run(15.0)
    assert 3.5 in {claim for claim, _ in pings(leader)}


def test_leader_that_loses_its_quorum_stops_within_a_quick_lease(make_leader: Callable[..., Leader], net: Net) -> None:
    leader = make_leader(quick_lease=True)
    net.run(10.0)
    leader.silence(7, 8)
    net.run(3.6)
    assert leader.node.role is not Role.LEADER


def test_promise_is_twice_the_claimed_lease_and_is_never_shortened(cohort: Cohort) -> None:
    node, net = cohort.node, cohort.net
    cohort.ping()
    slow = net.now + TIMERS.promise
    assert node._context.durable.until == pytest.approx(slow, abs=0.1)
    net.run(1.0)
    cohort.end.send(Ping(1, "7.18ldac/abcd.3".replace("/abcd.3", node._context.val_suffix), 7))
    assert node._context.durable.until == pytest.approx(slow, abs=0.1)
    for _ in range(12):
        net.run(1.0)
        cohort.end.send(Ping(1, format_val(7, round(net.now * 10), node._context.val_suffix, lease=3.5), 7))
    assert node._context.durable.until == pytest.approx(net.now + 7.0, abs=0.1)


def test_ping_that_claims_more_than_the_longest_lease_is_not_answered(cohort: Cohort) -> None:
    node = cohort.node
    cohort.end.take()
    cohort.end.send(Ping(1, format_val(7, 99, node._context.val_suffix, lease=7.501), 7))
    assert cohort.end.take(Pong) == []
    assert node.counters["leases_too_long"] == 1
    cohort.end.send(Ping(1, format_val(7, 100, node._context.val_suffix, lease=7.5), 7))
    assert [pong.id for pong in cohort.end.take(Pong)] == [node.id]


@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_silent_leader_is_replaced_within_ten_seconds(net: Net, scale: float) -> None:
    first, *others = quick_trio(net, timers=Timers(scale))
    began = net.now
    first.kill()
    assert net.run(10.0 * scale, lambda: any(host.irc_online for host in others))
    assert net.now - began >= 6.0 * scale


@pytest.mark.interpreted  # A compiled class has no attributes to replace.
def test_slow_link_carries_no_more_pings_than_without_quick_leases(net: Net) -> None:
    first, second, third = quick_trio(net)
    links = [link for link in third.node._context.links if link.node == first.id]
    links += [link for link in first.node._context.links if link.node == third.id]
    for link in links:
        link.line_rate = 1.0
    sent: list[Any] = []
    write = first.node._context.links.write
    first.node._context.links.write = lambda link, message, now: (  # type: ignore[method-assign]
        sent.append((link.node, message)),
        write(link, message, now),
    )[1]
    net.run(60.0)
    counts = [sum(isinstance(message, Ping) for node, message in sent if node == host.id) for host in (second, third)]
    assert 58 <= counts[0] <= 61
    assert counts[1] <= 13
    assert sum(isinstance(message, Pong) for node, message in sent if node == third.id) <= 2 * counts[1]
    assert [host.node.leader for host in (first, second, third)] == [first.id] * 3
    assert third.node.counters["nominated"] == 0
