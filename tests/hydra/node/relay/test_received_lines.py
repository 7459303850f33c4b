from __future__ import annotations

import pytest
from hydra.harness import Cohort, Host, Leader

from fyrehose_twisted.hydra.events import LeftNetwork, LinesMissed, LinesReceived
from fyrehose_twisted.hydra.wire.messages import MAX_LINE, Hello, Meet, Ping, Recv

LINE = b":a!b@c PRIVMSG #c :hi"


def heard(host: Host) -> list[tuple[int, int, list[bytes]]]:
    return [(one.term, one.first, list(one.lines)) for one in host.of(LinesReceived)]


def test_lines_are_delivered_in_order_and_consecutive_ones_together(cohort: Cohort) -> None:
    cohort.end.send(Recv(0, b"a"))
    host = cohort.host
    for line in (Recv(1, b"b"), Recv(2, b"c")):
        host.node.receive(line, next(iter(host.ends.values())).peer, cohort.net.now)
    host.flush()
    assert heard(host) == [(1, 0, [b"a"]), (1, 1, [b"b", b"c"])]


def test_new_node_starts_at_the_first_line_it_receives(cohort: Cohort) -> None:
    cohort.end.send(Recv(41, b"a"), Recv(42, b"b"))
    assert [first for _, first, _ in heard(cohort.host)] == [41, 42] or heard(cohort.host)[0][1] == 41
    assert cohort.host.of(LinesMissed) == []


def test_gap_is_reported_before_later_lines(cohort: Cohort) -> None:
    cohort.end.send(Recv(0, b"a"), Recv(3, b"d"))
    told = [one for one in cohort.host.events if isinstance(one, LinesMissed | LinesReceived)]
    assert told == [LinesReceived(1, 0, [b"a"]), LinesMissed(1, 1, 2), LinesReceived(1, 3, [b"d"])]
    assert cohort.node.counters["recv_missed"] == 2


def test_member_of_the_previous_term_reports_missing_first_lines(cohort: Cohort) -> None:
    cohort.ping(term=2, leader=8)
    cohort.end.send(Recv(2, b"c"))
    assert cohort.host.of(LinesMissed) == [LinesMissed(2, 0, 1)]


def test_repeated_line_is_delivered_once(cohort: Cohort) -> None:
    cohort.end.send(Recv(0, b"a"), Recv(0, b"a"), Recv(1, b"b"), Recv(0, b"a"), Recv(1, b"b"))
    assert [one for _, _, lines in heard(cohort.host) for one in lines] == [b"a", b"b"]


def test_lines_of_another_term_are_dropped_and_counted(cohort: Cohort) -> None:
    cohort.ping(term=2, leader=8)
    other = cohort.net.join(cohort.host, 8)
    other.send(Ping(1, "old", 7), Recv(0, b"a"))
    assert heard(cohort.host) == []
    assert cohort.node.counters["recv_of_another_term"] == 1
    other.send(Ping(2, "new", 8), Recv(0, b"a"))
    assert heard(cohort.host) == [(2, 0, [b"a"])]


def test_lines_over_an_unbound_link_are_dropped_and_counted(cohort: Cohort) -> None:
    stranger = cohort.net.link(cohort.host)
    stranger.send(Ping(1, "v", 7), Recv(0, b"a"))
    assert heard(cohort.host) == []
    assert cohort.node.counters["unbound_recv"] == 1


def test_lines_are_relayed_but_not_to_their_source(cohort: Cohort) -> None:
    other = cohort.net.join(cohort.host, 8)
    other.take()
    cohort.end.send(Recv(0, b"a"), Recv(0, b"a"))
    assert other.take(Recv) == [Recv(0, b"a")]
    assert cohort.end.take(Recv) == []


def test_line_is_relayed_once_over_two_links_to_one_node(leader: Leader) -> None:
    second = leader.net.join(leader.host, 7)
    second.take()
    leader.host.call("irc_received", [LINE])
    leader.net.run(0.01)
    assert len(leader.ends[7].take(Recv) + second.take(Recv)) == 1


def test_slow_reader_misses_lines(leader: Leader) -> None:
    ours = leader.ends[7].other.peer
    leader.node.blocked(ours, leader.net.now)
    leader.host.call("irc_received", [LINE])
    leader.node.unblocked(ours, leader.net.now)
    leader.host.call("irc_received", [LINE])
    leader.net.run(0.01)
    assert leader.ends[7].take(Recv) == [Recv(1, LINE)]
    assert leader.ends[8].take(Recv) == [Recv(0, LINE), Recv(1, LINE)]
    assert leader.node.counters["lines_held_back"] == 1


def test_leader_numbers_lines_from_irc(leader: Leader) -> None:
    leader.host.call("irc_received", [LINE, b":x 001 bot :welcome", b"PING :x", b":a!b@c QUIT :bye"])
    leader.net.run(0.01)
    assert leader.ends[7].take(Recv) == [Recv(0, LINE), Recv(1, b":a!b@c QUIT :bye")]
    assert heard(leader.host)[-1][1:] == (0, [LINE, b":a!b@c QUIT :bye"])
    assert leader.node.counters["irc_not_relayed"] == 2


@pytest.mark.parametrize("line", [b":a PRIVMSG #c :" + b"x" * MAX_LINE, b":a PRIVMSG #c :\r", b":a PRIVMSG #c :\0"])
def test_line_that_fits_no_recv_is_dropped_and_counted(leader: Leader, line: bytes) -> None:
    leader.host.call("irc_received", [line])
    leader.net.run(0.01)
    assert leader.ends[7].take(Recv) == []
    assert leader.node.counters["irc_too_long"] == 1


def test_leader_without_a_lease_relays_no_line(cohort: Cohort) -> None:
    cohort.host.call("irc_received", [LINE])
    assert heard(cohort.host) == []
    assert cohort.node.counters["irc_without_lease"] == 1


def test_leaving_leader_relays_until_irc_is_closed(leader: Leader) -> None:
    leader.host.irc = "waits"
    leader.host.call("leave")
    leader.host.call("irc_received", [LINE])
    leader.host.call("irc_closed", "left")
    leader.host.call("irc_received", [LINE])
    leader.net.run(0.01)
    assert leader.ends[7].take(Recv) == [Recv(0, LINE)]
    assert leader.node.counters["irc_without_lease"] == 1
    assert leader.host.of(LeftNetwork) == [LeftNetwork()]


def test_leaving_leader_relays_no_longer_than_its_lease(leader: Leader) -> None:
    leader.host.irc = "waits"
    leader.host.call("leave")
    leader.net.now += 10.0
    leader.host.call("irc_received", [LINE])
    leader.net.run(0.01)
    assert leader.ends[7].take(Recv) == []
    assert leader.node.counters["irc_without_lease"] == 1


def test_leader_accepts_no_lines_from_other_nodes(leader: Leader) -> None:
    leader.ends[7].send(Recv(0, LINE))
    assert heard(leader.host) == []
    assert leader.node.counters["recv_from_others"] == 1


def test_node_that_joins_later_receives_later_lines(leader: Leader) -> None:
    # The buffer has room for three lines, so 8 is dropped first.
    leader.silence(8)
    assert leader.net.run(30.0, lambda: 8 not in leader.node._context.registry)
    leader.host.call("irc_received", [LINE])
    end = leader.net.join(leader.host, 9)
    leader.ends[7].send(Meet(9, 7), Hello(9, 7))
    end.take()
    leader.host.call("irc_received", [LINE])
    leader.net.run(0.01)
    assert end.take(Recv) == [Recv(1, LINE)]
