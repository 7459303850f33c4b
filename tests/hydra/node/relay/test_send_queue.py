from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hydra.harness import Cohort, Host, Leader, Net

from fyrehose_twisted.errors import PublishQueueFull, UnencodableMessage
from fyrehose_twisted.hydra.events import LineOutcome, Outcome
from fyrehose_twisted.hydra.wire.lines import add_tag, untag
from fyrehose_twisted.hydra.wire.messages import Ping, Recv, Send

LINE = b"PRIVMSG #c :hi"


def said(host: Host) -> list[tuple[Any, Outcome, str]]:
    return [tuple(one) for one in host.of(LineOutcome)]


def sent(cohort: Cohort) -> list[tuple[str | None, bytes]]:
    return [untag(one.line) for one in cohort.end.take(Send)]


def test_line_is_sent_to_the_leader_and_acknowledged_by_its_relay(cohort: Cohort, net: Net) -> None:
    cohort.host.call("say", LINE, "token")
    net.run(0.01)
    ((name, line),) = sent(cohort)
    assert line == LINE
    assert said(cohort.host) == []
    cohort.end.send(Recv(0, add_tag(name, b":bot!u@h " + LINE)))
    assert said(cohort.host) == [("token", Outcome.SAID, "")]
    assert len(cohort.node._components.send_queue) == 0


def test_equal_lines_are_sent_with_different_tokens(cohort: Cohort, net: Net) -> None:
    for token in (1, 2):
        cohort.host.call("say", LINE, token)
    net.run(0.01)
    names = [name for name, _ in sent(cohort)]
    assert len(set(names)) == 2
    cohort.end.send(Recv(0, add_tag(names[1], LINE)))
    assert said(cohort.host) == [(2, Outcome.SAID, "")]


def test_line_ids_differ_between_runs_of_a_node(net: Net) -> None:
    nonces = {net.node(f"n{seed}", seed, seed=seed).node._components.send_queue._nonce for seed in range(1, 20)}
    assert len(nonces) == 19


@pytest.mark.parametrize(
    "line", [b"PRIVMSG #c :a\r\nQUIT", b"PRIVMSG #c :a\nQUIT", b"QUIT", b"PRIVMSG #c :" + b"x" * 500, b"", b"@a b"]
)
def test_invalid_irc_line_is_refused_at_once(cohort: Cohort, line: bytes, net: Net) -> None:
    with pytest.raises(UnencodableMessage):
        cohort.host.call("say", line, "token")
    net.run(0.01)
    assert sent(cohort) == []
    assert len(cohort.node._components.send_queue) == 0


def test_send_queue_is_limited(net: Net) -> None:
    host = net.node("alone", 1, max_queue=3)
    for token in range(3):
        host.call("say", LINE, token)
    with pytest.raises(PublishQueueFull, match=r"send queue is full \(3 lines\)"):
        host.call("say", LINE, 3)
    assert host.node.state(net.now).waiting == 3


def test_lines_wait_for_a_leader_and_then_expire(net: Net) -> None:
    host = net.node("alone", 1, max_wait=20.0)
    host.call("say", LINE, "token")
    net.run(19.9)
    assert said(host) == []
    net.run(0.2)
    assert said(host) == [("token", Outcome.REFUSED, "no-leader")]


def test_unacknowledged_line_becomes_uncertain(make_cohort: Callable[..., Any], net: Net) -> None:
    cohort = make_cohort(max_wait=20.0)
    cohort.host.call("say", LINE, "token")
    for _ in range(5):
        cohort.ping()
        net.run(4.9)
    assert said(cohort.host) == [("token", Outcome.UNCERTAIN, "no-answer")]
    assert len(sent(cohort)) == 1


def test_line_in_flight_at_a_leader_change_is_uncertain(cohort: Cohort, net: Net) -> None:
    cohort.host.call("say", LINE, "token")
    net.run(0.01)
    sent(cohort)
    cohort.ping(term=2, leader=8)
    assert said(cohort.host) == [("token", Outcome.UNCERTAIN, "leader-changed")]
    assert sent(cohort) == []


def test_line_with_retry_is_resent_with_the_same_id(cohort: Cohort, net: Net) -> None:
    cohort.node.say(LINE, "token", net.now, retry=True)
    cohort.host.flush()
    net.run(0.01)
    first = sent(cohort)
    cohort.ping(term=2, leader=8)
    assert said(cohort.host) == []
    assert sent(cohort) == first
    assert len(first) == 1


def test_late_relay_acknowledges_a_resent_line(cohort: Cohort, net: Net) -> None:
    cohort.node.say(LINE, "token", net.now, retry=True)
    cohort.host.flush()
    net.run(0.01)
    ((name, _),) = sent(cohort)
    cohort.node._components.send_queue.leader_changed()
    cohort.node._components.send_queue.line_relayed(name, LINE)
    cohort.host.flush()
    assert said(cohort.host) == [("token", Outcome.SAID, "")]
    assert len(cohort.node._components.send_queue) == 0


def test_line_in_flight_at_the_stop_of_the_node_is_reported(cohort: Cohort, net: Net) -> None:
    cohort.host.call("say", LINE, "under way")
    cohort.host.call("leave")
    net.run(0.01)
    assert said(cohort.host) == [("under way", Outcome.UNCERTAIN, "leader-changed")]


def test_unsent_line_at_the_stop_of_the_node_is_refused(net: Net) -> None:
    host = net.node("alone", 1)
    host.call("say", LINE, "token")
    host.call("leave")
    assert said(host) == [("token", Outcome.REFUSED, "stopped")]


def test_leader_says_its_own_lines(leader: Leader, net: Net) -> None:
    leader.host.call("say", LINE, "token")
    net.run(0.01)
    assert [line for _, line in leader.host.irc_lines] == [LINE]
    assert said(leader.host) == [("token", Outcome.SAID, "")]
    (echo,) = leader.ends[7].take(Recv)
    assert untag(echo.line)[1] == b":bot!u@h " + LINE


def test_line_returned_over_another_link_is_not_relayed(leader: Leader, net: Net) -> None:
    wish = Send(7, add_tag("x.1", LINE))
    for end in leader.ends.values():
        end.send(wish)
    assert len(leader.host.irc_lines) == 1


def test_line_without_a_known_leader_is_dropped_and_counted(cohort: Cohort, net: Net) -> None:
    cohort.wait(26.0)
    assert cohort.node.leader is None
    cohort.end.send(Send(8, LINE))
    assert cohort.node.counters["send_without_leader"] == 1


def test_line_of_another_term_is_dropped_and_counted(leader: Leader, net: Net) -> None:
    other = net.join(leader.host, 7)
    other.owner.pongs_as = None
    other.send(Ping(0, "v", 7), Send(7, LINE))
    assert leader.host.irc_lines == []
    assert leader.node.counters["send_of_another_term"] == 1


def test_lines_in_flight_are_limited_to_the_leaders_queue_per_node(
    make_cohort: Callable[..., Cohort], net: Net
) -> None:
    cohort = make_cohort(max_queue=6, network_size=3)
    for number in range(5):
        cohort.host.call("say", b"PRIVMSG #c :%d" % number, number)
    net.run(0.01)
    first = sent(cohort)
    assert [text for _, text in first] == [b"PRIVMSG #c :0", b"PRIVMSG #c :1"]
    cohort.end.send(Recv(0, add_tag(first[0][0], b":bot!u@h PRIVMSG #c :0")))
    net.run(0.01)
    assert [text for _, text in sent(cohort)] == [b"PRIVMSG #c :2"]
    assert said(cohort.host) == [(0, Outcome.SAID, "")]
