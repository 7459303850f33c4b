from __future__ import annotations

from math import inf
from random import Random
from typing import Any

import pytest
from hydra.harness import Cohort, Host, Leader, Net
from zope.interface.verify import verifyObject

from fyrehose_twisted.effects import Peer, Write
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.hydra.config import NodeConfig, Quorum, Timers
from fyrehose_twisted.hydra.events import CloseIrc, LeaderChanged, LeftNetwork, NodeDropped, OpenIrc, Role, RoleChanged
from fyrehose_twisted.hydra.node.node import HydraNode
from fyrehose_twisted.hydra.wire.messages import (
    Call,
    Drop,
    Elect,
    Hello,
    Keepalive,
    Knock,
    Malformed,
    Meet,
    Nominate,
    Ping,
    Pledge,
    Pong,
    Recv,
    Send,
    Welcome,
)
from fyrehose_twisted.interfaces import ILinkNode


def test_hydra_node_implements_ilinknode() -> None:
    assert verifyObject(ILinkNode, HydraNode(NodeConfig(), Random(1), 0.0))


def test_three_nodes_are_one_network_with_one_lease(trio: tuple[Host, Host, Host], net: Net) -> None:
    assert [host.node.role for host in trio] == [Role.LEADER, Role.COHORT, Role.COHORT]
    assert [host.node.lease_until is not None for host in trio] == [True, False, False]
    assert len({host.node.term for host in trio}) == 1
    assert [len(host.of(OpenIrc)) for host in trio] == [1, 0, 0]
    net.run(300.0)
    assert [host.node.role for host in trio] == [Role.LEADER, Role.COHORT, Role.COHORT]
    assert all(host.node.counters["disagreements"] == 0 for host in trio)


def test_another_node_leads_within_the_promised_time_after_the_leader_dies(
    trio: tuple[Host, Host, Host], net: Net
) -> None:
    first, *rest = trio
    began = net.now
    first.kill()
    assert net.run(60.0, lambda: any(host.irc_online for host in rest))
    assert 10.0 <= net.now - began <= 55.0
    dead = first.id
    net.run(20.0)
    assert {host.node.leader for host in rest} == {next(host.id for host in rest if host.irc_online)}
    assert all(NodeDropped(dead, "no PONG") in host.of(NodeDropped) for host in rest)


def test_another_node_leads_at_once_after_the_leader_leaves(trio: tuple[Host, Host, Host], net: Net) -> None:
    first, *rest = trio
    first.call("leave")
    assert first.of(CloseIrc)
    assert net.run(2.0, lambda: any(host.irc_online for host in rest))
    assert first.of(LeftNetwork) == [LeftNetwork()]


def test_leader_without_answers_closes_irc_in_time(leader: Leader, net: Net) -> None:
    leader.silence(7, 8)
    until = leader.node.lease_until
    net.run(until - net.now - 0.001)
    assert leader.host.irc_online
    net.run(0.002)
    assert not leader.host.irc_online
    assert leader.node.role is Role.COHORT
    assert leader.node.lease_until is None
    assert leader.node.counters["leases_lost"] == 1
    for end in leader.ends.values():
        assert end.take(Drop) == []


def test_leader_keeps_its_lease_with_one_of_two_answers_and_drops_the_other(leader: Leader, net: Net) -> None:
    leader.silence(8)
    net.run(30.0)
    assert leader.host.irc_online
    assert leader.host.of(NodeDropped) == [NodeDropped(8, "no PONG")]
    assert leader.ends[7].take(Drop) == [Drop(8, "no PONG")]


def test_suspended_leader_loses_its_lease_before_it_handles_messages(leader: Leader, net: Net) -> None:
    val, at = leader.node._context.val, net.now + 60.0
    leader.node.receive(Pong(val, 8, 0), leader.ends[7].other.peer, at)
    assert leader.node.role is not Role.LEADER
    assert leader.node.lease_until is None


def test_late_pong_extends_the_lease_only_from_the_sending_of_its_ping(leader: Leader, net: Net) -> None:
    leader.silence(7, 8)
    before = leader.node._context.val
    assert net.run(5.1, lambda: leader.node._context.val != before)
    sent = net.now
    net.run(2.0)
    leader.ends[7].send(Pong(leader.node._context.val, 7, 0))
    assert leader.node.lease_until == pytest.approx(sent + 7.5, abs=0.001)


def test_line_is_written_to_irc_before_the_lease_ends(leader: Leader, net: Net) -> None:
    leader.host.call("say", b"PRIVMSG #c :hi", 1)
    assert leader.host.irc_lines[-1][0] < leader.node.lease_until


def test_lines_are_queued_while_irc_is_opening_and_sent_once_open(net: Net) -> None:
    host = net.node("alone", 1, network_size=1, bootstrap=True)
    host.irc = "waits"
    host.call("say", b"PRIVMSG #c :hi", 1)
    net.run(1.0)
    assert len(host.of(OpenIrc)) == 1
    assert host.irc_lines == []
    host.irc_online = True
    host.node.irc_opened(net.now, b"")
    host.flush()
    assert [line for _, line in host.irc_lines] == [b"PRIVMSG #c :hi"]


def test_nomination_in_a_higher_term_makes_the_leader_close_irc(leader: Leader, net: Net) -> None:
    leader.ends[7].send(Nominate(leader.node.term + 1, 7))
    # Its own promise is the same as that of the others.
    assert leader.node.role is Role.LEADER
    leader.ends[8].send(Ping(leader.node.term + 1, "v", 8))
    assert leader.node.role is Role.COHORT
    assert not leader.host.irc_online
    assert leader.node.leader == 8


def test_rival_leader_in_the_same_term_causes_an_election(leader: Leader, net: Net) -> None:
    term = leader.node.term
    leader.ends[8].send(Ping(term, "v", 8))
    assert leader.node.role is Role.LEADER
    assert net.run(5.1, lambda: leader.node.role is Role.NOMINEE)
    assert not leader.host.irc_online
    net.run(0.01)
    assert Nominate(term + 1, leader.host.id) in leader.ends[7].take(Nominate)


def test_leaving_cohort_sends_its_drop(cohort: Cohort, net: Net) -> None:
    me = cohort.host.id
    cohort.host.call("leave")
    net.run(0.01)
    assert cohort.end.take() == [Drop(me, "left")]
    assert cohort.host.of(LeftNetwork) == [LeftNetwork()]
    assert cohort.node.next_deadline() is None
    assert cohort.node.id is None


def test_node_that_left_sends_nothing(cohort: Cohort, net: Net) -> None:
    cohort.host.call("leave")
    cohort.host.call("leave")
    net.run(0.01)
    cohort.end.take()
    cohort.ping()
    cohort.end.send(Knock(9), Nominate(9, 8))
    net.run(30.0)
    assert cohort.end.take() == []
    assert cohort.host.of(LeftNetwork) == [LeftNetwork()]


def test_node_that_left_ignores_messages(cohort: Cohort, net: Net) -> None:
    cohort.node._components.election.next_nomination = net.now + 25.0
    net.run(15.1)  # No promise binds it against another leader any more.
    cohort.host.call("leave")
    net.run(0.01)
    cohort.end.take()
    vow, told = cohort.host.durable, list(cohort.host.events)
    # No peer has answered its DROP yet, so its links are open.
    messages = [
        *(Nominate(9, 8), Pledge(9, 8, 7), Call(9), Elect(9, 8, 7), Knock(5), Meet(5, 8), Welcome(5), Hello(5, 8)),
        *(Ping(9, "v", 8), Pong("v", 8, 1), Drop(8, "left"), Keepalive(), Malformed("unknown-command", b"X")),
        *(Recv(1, b":a PRIVMSG #c :b"), Send(8, b"PRIVMSG #c :b")),
    ]
    for message in messages:
        cohort.end.send(message)
    assert cohort.node.counters["came_after_leaving"] == len(messages)
    assert cohort.end.take() == []
    assert (cohort.host.durable, cohort.host.events) == (vow, told)
    assert cohort.node.next_deadline() is None


def test_outsider_leaves_at_once(net: Net) -> None:
    host = net.node("out", 1)
    host.call("leave")
    assert host.of(LeftNetwork) == [LeftNetwork()]
    assert host.node.role is Role.GONE


def test_leader_that_loses_its_lease_while_leaving_still_leaves(leader: Leader, net: Net) -> None:
    leader.host.irc = "waits"
    leader.host.call("leave")
    leader.silence(7, 8)
    net.run(20.0)
    leader.host.call("irc_closed", "closed")
    net.run(0.01)
    assert leader.host.of(LeftNetwork) == [LeftNetwork()]


def test_status_of_a_node_is_complete(leader: Leader, cohort: Cohort, net: Net) -> None:
    state = leader.node.state(net.now)
    assert (state.network, state.tag, state.role, state.leader) == ("test", "leader", Role.LEADER, leader.host.id)
    assert (state.size, state.quorum, state.irc, state.promised) == (3, 2, "open", leader.host.id)
    assert 0.0 < state.lease <= 7.5
    assert {view.id: view.tag for view in state.nodes} == {leader.host.id: "leader", 7: "played", 8: "played"}
    assert {view.id: view.hops for view in state.nodes}[7] == 1
    assert {view.node for view in state.links} == {7, 8}
    other = cohort.node.state(net.now)
    assert (other.role, other.leader, other.lease, other.irc, other.promised) == (Role.COHORT, 7, None, "closed", 7)
    assert other.why == "7 inducted it"


def test_outsider_has_a_status(net: Net) -> None:
    state = net.node("out", 1, (2,)).node.state(net.now)
    assert (state.id, state.leader, state.role, state.nodes) == (None, None, Role.OUTSIDER, ())
    assert [view.open for view in state.links] == [False]


def test_events_are_emitted_in_order(cohort: Cohort) -> None:
    told = [one for one in cohort.host.events if isinstance(one, RoleChanged | LeaderChanged)]
    assert [type(one) for one in told] == [RoleChanged, LeaderChanged]
    assert told[1] == LeaderChanged(1, 7, "")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"network": ""}, "network"),
        ({"network": "a b"}, "network"),
        ({"tag": "a b"}, "tag"),
        ({"tag": "~guardian"}, "tag"),
        ({"tag": "x" * 65}, "bytes"),
        ({"network_size": None}, "size"),
        ({"network_size": 0}, "outside"),
        ({"network_size": 65}, "outside"),
        ({"irc_rate": 0.0}, "lines per second"),
        ({"irc_burst": 0}, "lines per second"),
    ],
)
def test_invalid_configuration_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        NodeConfig(**options)


def test_registry_quorum_needs_no_network_size() -> None:
    NodeConfig(network_size=None, quorum=Quorum.REGISTRY)
    with pytest.raises(ConfigurationError):
        Timers(0.0)


def random_message(rng: Random, ids: list[int]) -> Any:
    one, other, third = (rng.choice(ids) for _ in range(3))
    term = rng.choice((0, 1, 2, 3, 5, 2**62, 2**63 - 1))
    line = rng.choice((b"PRIVMSG #c :hi", b":a!b@c PRIVMSG #c :hi", b"@+hydra/n=1 PRIVMSG #c :hi", b"", b"QUIT"))
    return rng.choice(
        (
            Ping(term, f"r{rng.randrange(50)}", one),
            Pong(f"r{rng.randrange(50)}", one, rng.randrange(5), "tag"),
            Recv(rng.choice((0, 1, 2, 50, 2**63 - 1)), line),
            Send(one, line),
            Drop(one, "because"),
            Nominate(term, one),
            Pledge(term, other, one),
            Call(term),
            Elect(term, other, one),
            Knock(one, rng.choice(("x", "Hebi", "~guardian", ""))),
            Meet(one, other),
            Welcome(one),
            Hello(one, third),
            Keepalive(),
            Malformed("number", b"x"),
        )
    )


@pytest.mark.parametrize("seed", range(40))
def test_random_messages_cause_neither_exceptions_nor_busy_loops(seed: int, net: Net) -> None:
    print(f"seed {seed}")
    rng = Random(seed)
    played = net.play(9)
    hosts = [net.node("one", 1, (9,), bootstrap=seed % 2 == 0), net.node("two", 2, (1, 9)), net.node("three", 3, (1,))]
    net.run(20.0)
    for _ in range(300):
        ends = [end for end in played.accepted if end.open]
        ids = [0, 7, 8, 2**32 - 1] + [host.node.id for host in hosts if host.node.id is not None]
        if not ends or rng.random() < 0.02:
            played.accepted.append(net.link(rng.choice(hosts)))
            continue
        rng.choice(ends).put(*(random_message(rng, ids) for _ in range(rng.randrange(1, 4))))
        # The simulated network fails the test if a node asks to be called at the same moment again and again.
        net.run(rng.choice((0.001, 0.1, 1.0, 5.0)))
    for host in hosts:
        assert 0 not in host.node._context.registry
        assert host.node._context.registry.places_taken() <= 3
        host.node.state(net.now)


@pytest.mark.parametrize("seed", range(20))
def test_tick_at_the_deadline_advances_the_deadline(seed: int) -> None:
    node = HydraNode(NodeConfig(bootstrap=seed % 2 == 0, network_size=1 + seed % 3), Random(seed), 0.0, remembers=True)
    now, same = 0.0, 0
    for _ in range(2_000):
        due = node.next_deadline()
        if due is None:
            return
        same = same + 1 if due <= now else 0
        assert same < 20, now
        now = max(now, due)
        if now == inf:
            return
        node.tick(now)
        node.drain()


@pytest.mark.parametrize("seed", range(20))
def test_timing_of_drain_does_not_affect_behaviour(seed: int) -> None:
    print(f"seed {seed}")
    outcomes = []
    for together in (False, True):
        rng = Random(seed)
        node = HydraNode(NodeConfig(bootstrap=True), Random(1), 0.0, remembers=True)
        peers = [Peer(("10.0.0.9", number), number, False) for number in range(3)]
        node.tick(0.0)
        for number, peer in enumerate(peers):
            node.connected(peer, 0.0)
            node.receive(Knock(7 + number), peer, 0.0)
        writes: dict[Peer, list[Any]] = {peer: [] for peer in peers}
        events: list[Any] = []
        now = 0.0
        for _ in range(100):
            now += rng.choice((0.0, 0.01, 1.0))
            ids = [7, 8, 9, node.id or 3]
            for _ in range(5):
                node.receive(random_message(rng, ids), rng.choice(peers), now)
                if not together:
                    take(node, writes, events)
            take(node, writes, events)
        outcomes.append((writes, joined(events), node.role, node.term, node._context.durable, node.counters))
    assert outcomes[0] == outcomes[1]


def take(node: HydraNode, writes: dict[Peer, list[Any]], events: list[Any]) -> None:
    drained = node.drain()
    for effect in drained.effects:
        if isinstance(effect, Write):
            writes[effect.peer].extend(effect.messages)
    events.extend(drained.events)


def joined(events: list[Any]) -> list[Any]:
    """Return events with one line each."""
    return [
        one
        for event in events
        for one in (
            [(event.term, event.first + at, line) for at, line in enumerate(event.lines)]
            if hasattr(event, "lines")
            else [event]
        )
    ]


def summary(host: Host) -> str:
    text: str = host.node.state(host.net.now).summary
    return text


def test_status_says_in_words_what_each_node_waits_for(net: Net) -> None:
    lone = net.node("lone", 9)
    assert summary(lone) == "in no network and without a link"
    first = net.node("a", 1, bootstrap=True, network_size=5)
    net.run(1.0)
    assert summary(first) == "founder, waits for 2 more"
    second = net.node("b", 2, (1,), network_size=5)
    assert net.run(30.0, lambda: second.node.leader == first.id)
    assert [summary(first), summary(second)] == [
        "founder, waits for 1 more",
        "member, but 1 more must join before a leader can be elected",
    ]
    third = net.node("c", 3, (1, 2), network_size=5)
    assert net.run(30.0, lambda: first.irc_online and third.node.leader == first.id)
    net.run(6.0)
    assert [summary(host) for host in (first, second, third)] == ["leader, on IRC", *["member, follows a"] * 2]
    first.kill()
    assert net.run(60.0, lambda: second.node.role is not Role.COHORT)
    assert summary(second) in (
        "voter, waits for the outcome of an election",
        "candidate, waits for the votes of a quorum",
    )


def test_node_that_left_says_so(trio: tuple[Host, Host, Host], net: Net) -> None:
    trio[1].node.leave(net.now)
    assert summary(trio[1]) == "stopped"
