from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from hydra.harness import Cohort, Net

from fyrehose_twisted.hydra.node.link_table import MAX_MALFORMED_LINES
from fyrehose_twisted.hydra.wire.messages import Hello, Keepalive, Knock, Malformed, Meet, Ping, Welcome


def test_failed_dial_is_retried_with_backoff(net: Net) -> None:
    host = net.node("one", 1, (2,))
    net.run(60.0)
    times = [at for at, _ in host.dialled]
    gaps = [after - before for before, after in pairwise(times)]
    assert 0.4 <= gaps[0] <= 0.7
    assert all(1.5 <= gap <= 2.5 for gap in gaps[5:])
    assert len(gaps) > 10


def test_link_that_was_open_is_redialled_without_backoff(net: Net) -> None:
    played = net.play(2)
    host = net.node("one", 1, (2,))
    net.run(0.01)
    for _ in range(5):
        host.dialled.clear()
        played.accepted[-1].close()
        assert net.run(1.0, lambda: bool(host.dialled))
        net.run(0.01)
    assert len(played.accepted) == 6


def test_silent_link_gets_keepalives_and_is_finally_closed(net: Net) -> None:
    host = net.node("one", 1)
    end = net.link(host)
    end.owner.arrived = lambda end, messages: end.received.extend(messages)
    net.run(14.9)
    assert not end.closed_by_peer
    assert len([one for one in end.received if isinstance(one, Keepalive)]) == 2
    net.run(0.2)
    assert end.closed_by_peer
    assert host.node.counters["links_silent"] == 1


def test_keepalives_keep_a_link_open(net: Net) -> None:
    host = net.node("one", 1)
    end = net.link(host)
    for _ in range(10):
        end.send(Keepalive())
        net.run(10.0)
    assert not end.closed_by_peer


def test_malformed_lines_are_counted_and_too_many_close_the_link(net: Net) -> None:
    host = net.node("one", 1)
    end, other = net.link(host), net.link(host)
    for _ in range(MAX_MALFORMED_LINES - 1):
        end.send(Malformed("number", b"PING x"))
    assert not end.closed_by_peer
    end.send(Malformed("number", b"PING x"))
    net.run(0.01)
    assert end.closed_by_peer
    assert not other.closed_by_peer
    assert host.node.counters["malformed"] == host.node.counters["malformed_number"] == MAX_MALFORMED_LINES


def test_number_of_accepted_links_is_limited(net: Net) -> None:
    host = net.node("one", 1, max_links=2)
    ends = [net.link(host) for _ in range(3)]
    net.run(0.01)
    assert [end.closed_by_peer for end in ends] == [False, False, True]
    assert host.node.counters["links_refused"] == 1


def test_primary_link_carries_flooded_messages_and_another_link_takes_over(cohort: Cohort, net: Net) -> None:
    first, second = net.join(cohort.host, 8), net.join(cohort.host, 8)
    for end in (first, second):
        end.take()
    cohort.ping()
    assert len(first.take(Ping)) == 1
    assert second.take(Ping) == []
    first.close()
    net.run(0.01)
    second.take()
    cohort.ping()
    assert len(second.take(Ping)) == 1


def test_new_primary_link_announces_its_term_first(cohort: Cohort, net: Net) -> None:
    first, second = net.join(cohort.host, 8), net.join(cohort.host, 8)
    second.take()
    first.close()
    net.run(0.01)
    (ping,) = second.take(Ping)
    assert (ping.term, ping.id) == (1, 7)


def test_status_lists_open_and_closed_links(net: Net) -> None:
    net.play(2)
    host = net.node("one", 1, (2, 3))
    net.run(0.01)
    assert {(view.name, view.open) for view in host.node.state(net.now).links} == {
        ("10.0.0.2:6174", True),
        ("10.0.0.3:6174", False),
    }


def test_new_connection_receives_the_last_ping(cohort: Cohort, net: Net) -> None:
    end = net.link(cohort.host)
    (ping,) = end.take(Ping)
    assert (ping.term, ping.id) == (1, 7)
    cohort.ping()
    assert len(end.take(Ping)) == 1


def test_node_names_itself_over_a_link_that_only_the_peer_considers_bound(cohort: Cohort, net: Net) -> None:
    end = net.link(cohort.host)
    end.send(Keepalive())
    assert end.take(Knock) == []  # HELLOs of other nodes may still be in flight.
    for _ in range(10):
        cohort.ping()
        net.run(1.0)
    end.take()
    end.send(Keepalive())
    assert [one.ind for one in end.take(Knock)] == [cohort.host.id]


def test_knock_of_a_peer_rebinds_a_link_bound_by_the_hello_of_another(
    make_cohort: Callable[..., Cohort], net: Net
) -> None:
    cohort = make_cohort(network_size=5)
    me, ties = cohort.host.id, cohort.node._context.links
    end = net.link(cohort.host)
    for _ in range(10):
        cohort.ping()
        net.run(1.0)
    end.send(Keepalive())
    assert [one.ind for one in end.take(Knock)] == [me]
    end.send(Hello(me, 9), Hello(me, 8))  # PINGs of node 9 itself, which is unregistered, and one that it relays.
    (tie,) = (tie for tie in ties if tie.peer_knock_id == 9)
    assert tie.node == 8
    cohort.end.send(Knock(9, "nine"), Meet(9, 7), Welcome(9))
    end.take()
    end.send(Knock(9, "nine"))
    assert tie.node == 9
    assert [one for one in end.take(Hello) if one.ind == 9] == [Hello(9, me)]
    end.send(Knock(7, "leader"))  # A relayed PING of another node.
    assert tie.node == 9


def test_unbound_peer_of_the_same_network_is_told_the_nodes_id(cohort: Cohort, net: Net) -> None:
    end = net.link(cohort.host)
    end.take()
    end.send(Ping(1, "x", 8), Ping(1, "y", 8))
    assert end.take(Knock) == [Knock(cohort.host.id, "cohort")]
