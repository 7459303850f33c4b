from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import Random
from typing import Any

import pytest
from hydra.harness import Cohort, Leader, Net

from fyrehose_twisted.hydra.config import NodeConfig, OverlongPolicy
from fyrehose_twisted.hydra.events import AskIrc, CloseIrc, LineOutcome, OpenIrc, Outcome, Role, ToIrc
from fyrehose_twisted.hydra.node.context import NodeContext
from fyrehose_twisted.hydra.node.durable_state import DurableState
from fyrehose_twisted.hydra.node.relay.irc_writer import MAX_FAILED_CONNECTS, MAX_UNANSWERED, IrcWriter
from fyrehose_twisted.hydra.wire.line_splitting import IrcLimits
from fyrehose_twisted.hydra.wire.lines import add_tag, server_error_text, untag
from fyrehose_twisted.hydra.wire.messages import GUARDIAN_TAG, Drop, Knock, Ping, Recv, Send

UNTIL = 1e9


def make(**options: Any) -> tuple[IrcWriter, NodeContext]:
    config = NodeConfig(**{"irc_rate": 1.0, "irc_burst": 3, **options})
    standing = NodeContext(config, Random(1), 0.0, DurableState(), remembers=True)
    speaking = IrcWriter(standing)
    speaking.open(0.0)
    speaking.opened(b"bot!u@h", IrcLimits(), 0.0)
    standing.output.drain()
    return speaking, standing


def send(node: int, number: int) -> Send:
    return Send(node, add_tag(f"{node}.{number}", b"PRIVMSG #c :%d of %d" % (number, node)))


def taken(speaking: IrcWriter, standing: NodeContext, now: float, until: float = UNTIL) -> list[bytes]:
    speaking.send_due(now, until)
    return [event.line for event in standing.output.drain().events if isinstance(event, ToIrc)]


def told(speaking: IrcWriter, standing: NodeContext, now: float) -> list[Any]:
    """Return the numbers of the written lines, and the PINGs."""
    speaking.send_due(now, UNTIL)
    events = standing.output.drain().events
    return [event.number if isinstance(event, ToIrc) else event for event in events]


def test_lines_are_sent_at_the_configured_rate() -> None:
    speaking, standing = make(irc_burst=2)
    for number in range(10):
        assert speaking.enqueue(send(7, number), 0.0) is None
    assert told(speaking, standing, 0.0) == [1, 2]
    assert speaking.next_deadline() == 1.0
    assert told(speaking, standing, 0.5) == []
    assert speaking.next_deadline() == 1.0
    assert told(speaking, standing, 1.0) == [3]
    assert told(speaking, standing, 1.5) == []
    assert speaking.next_deadline() == 2.0


def test_ping_to_the_server_counts_as_a_line() -> None:
    speaking, standing = make(irc_burst=2)
    for number in range(10):
        speaking.enqueue(send(7, number), 0.0)
    assert told(speaking, standing, 0.0) == [1, 2]
    assert told(speaking, standing, 1.0) == [3]
    assert told(speaking, standing, 2.0) == [AskIrc(3)]
    speaking.answered(3, 2.1)
    assert told(speaking, standing, 2.5) == []
    assert told(speaking, standing, 3.0) == [4]


def test_ping_is_sent_when_the_queue_is_empty() -> None:
    speaking, standing = make(irc_burst=10)
    for number in range(3):
        speaking.enqueue(send(7, number), 0.0)
    assert told(speaking, standing, 0.0) == [1, 2, 3, AskIrc(3)]
    assert told(speaking, standing, 0.1) == []
    assert [one.line for one in speaking.answered(3, 0.1)] == [b"PRIVMSG #c :%d of 7" % number for number in range(3)]
    assert told(speaking, standing, 10.0) == []
    assert speaking.next_deadline() == inf


def test_only_one_ping_is_pending() -> None:
    speaking, standing = make(irc_burst=10)
    speaking.enqueue(send(7, 1), 0.0)
    assert told(speaking, standing, 0.0) == [1, AskIrc(1)]
    speaking.enqueue(send(7, 2), 0.1)
    assert told(speaking, standing, 0.1) == [2]
    speaking.answered(1, 0.2)
    assert told(speaking, standing, 0.2) == [AskIrc(2)]


@pytest.mark.parametrize(("rate", "most"), [(0.1, 3), (60.0, 3), (100.0, 5), (1e6, MAX_UNANSWERED)])
def test_number_of_unacknowledged_lines_is_limited(rate: float, most: int) -> None:
    speaking, standing = make(irc_burst=1_000, irc_rate=rate)
    for number in range(200):
        speaking.enqueue(send(7, number), 0.0)
    numbers = list(range(1, most + 1))
    assert told(speaking, standing, 0.0) == [*numbers, AskIrc(most)]
    assert told(speaking, standing, 0.9) == []
    speaking.answered(most, 1.0)
    numbers = [number + most for number in numbers]
    assert told(speaking, standing, 1.0) == [*numbers, AskIrc(2 * most)]


def test_no_line_is_sent_while_a_ping_is_overdue() -> None:
    speaking, standing = make(irc_burst=10)
    speaking.enqueue(send(7, 1), 0.0)
    assert told(speaking, standing, 0.0) == [1, AskIrc(1)]
    speaking.enqueue(send(7, 2), 2.0)
    assert told(speaking, standing, 2.0) == []
    for number in range(3, 8):
        speaking.enqueue(send(7, number), 2.0)
    speaking.answered(1, 2.1)
    # The server replies slowly, so fewer lines are sent.
    assert told(speaking, standing, 2.1) == [2, 3, AskIrc(3)]
    speaking.answered(3, 2.2)
    assert told(speaking, standing, 2.2) == [4, 5, 6, AskIrc(6)]


def silent_at(speaking: IrcWriter, now: float) -> bool:
    speaking.tick(now)
    return speaking.loss_reason is not None


def test_connection_to_an_unresponsive_server_is_given_up() -> None:
    speaking, standing = make()
    speaking.enqueue(send(7, 1), 0.0)
    taken(speaking, standing, 0.0)
    assert speaking.next_deadline() == 5.0
    assert not silent_at(speaking, 4.9)
    assert silent_at(speaking, 5.0)
    assert speaking.unreachable
    assert speaking.loss_reason == "IRC has not answered for lines sent 5.0 s ago"
    speaking.enqueue(send(7, 2), 5.0)
    speaking.close(speaking.loss_reason)
    assert list(standing.output.drain().events) == [
        CloseIrc("IRC has not answered for lines sent 5.0 s ago", graceful=False)
    ]
    speaking.closed("closed", 5.0)
    assert standing.counters["irc_silent"] == standing.counters["irc_unanswered"] == standing.counters["not_said"] == 1


def test_reply_timeout_is_configurable() -> None:
    speaking, standing = make(irc_patience=2.0)
    speaking.enqueue(send(7, 1), 0.0)
    taken(speaking, standing, 0.0)
    assert not silent_at(speaking, 1.9)
    assert silent_at(speaking, 2.0)


def test_suspended_process_reads_pending_replies_before_the_timeout_counts() -> None:
    speaking, standing = make()
    speaking.enqueue(send(7, 1), 0.0)
    taken(speaking, standing, 0.0)
    assert not silent_at(speaking, 20.0)
    assert speaking.next_deadline() == 20.5
    speaking.answered(1, 20.1)
    assert not silent_at(speaking, 20.5)
    speaking.enqueue(send(7, 2), 21.0)
    taken(speaking, standing, 21.0)
    assert not silent_at(speaking, 40.0)
    assert silent_at(speaking, 60.0)


def test_no_reply_is_awaited_without_lines() -> None:
    speaking, _ = make()
    assert speaking.next_deadline() == inf
    assert not silent_at(speaking, 1_000.0)


def test_quit_is_preceded_by_a_ping() -> None:
    speaking, standing = make(irc_burst=10)
    speaking.enqueue(send(7, 1), 0.0)
    taken(speaking, standing, 0.0)
    speaking.answered(1, 0.1)
    speaking.enqueue(send(7, 2), 0.1)
    speaking.enqueue(send(7, 3), 0.1)
    assert told(speaking, standing, 0.1) == [2, 3, AskIrc(3)]
    speaking.close("over")
    assert list(standing.output.drain().events) == [AskIrc(3), CloseIrc("over")]
    assert [one.line_id for one in speaking.answered(3, 0.2)] == ["7.2", "7.3"]


def test_long_message_is_split_into_several_lines() -> None:
    speaking, standing = make(irc_burst=10)
    text = b"word " * 99
    speaking.enqueue(Send(7, add_tag("7.1", b"PRIVMSG #c :" + text)), 0.0)
    speaking.enqueue(send(8, 1), 0.0)
    speaking.send_due(0.0, UNTIL)
    events = [event for event in standing.output.drain().events if isinstance(event, ToIrc)]
    assert [event.line_id for event in events] == ["7.1/1", "7.1", "8.1"]
    parts = [event.line.partition(b" :")[2] for event in events[:2]]
    assert b" ".join(parts) == text
    assert standing.counters["irc_split"] == 1


def test_rest_of_a_split_message_is_sent_before_other_lines() -> None:
    speaking, standing = make(irc_burst=1)
    speaking.enqueue(Send(7, add_tag("x" * 32, b"PRIVMSG #c :" + b"word " * 99)), 0.0)
    assert told(speaking, standing, 0.0) == [1]
    assert len(speaking) == 1
    assert speaking.pending_replies.acknowledge(1)[0].line_id == "x" * 30 + "/1"
    assert told(speaking, standing, 1.0) == [2]
    speaking.enqueue(Send(7, add_tag("7.2", b"PRIVMSG #c :" + b"word " * 99)), 1.0)
    speaking.answered(2, 1.1)
    assert told(speaking, standing, 2.0) == [3]
    speaking.close("over")
    assert standing.counters["not_said"] == 1
    assert len(speaking) == 0


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"PRIVMSG #c :" + b"x" * 490, b"the line has 502 bytes; only 501 fit after its sender"),
        (b"TOPIC #c :" + b"x" * 21, b"the text of a TOPIC has 21 bytes; 20 fit"),
    ],
)
def test_line_that_irc_would_truncate_is_refused(line: bytes, why: bytes) -> None:
    speaking, standing = make(irc_long=OverlongPolicy.REFUSE)
    speaking.limits = IrcLimits(topic=20)
    speaking.enqueue(Send(7, add_tag("7.1", line)), 0.0)
    (refused,) = speaking.send_due(0.0, UNTIL)
    assert refused.line_id == "7.1"
    assert refused.errors == [b":hydra 417 bot %s :%s" % (line.split()[0], why)]
    assert not [event for event in standing.output.drain().events if isinstance(event, ToIrc)]
    assert not len(speaking)


def test_idle_time_accumulates_at_most_one_burst() -> None:
    speaking, standing = make(max_wait=1e6)
    for number in range(20):
        speaking.enqueue(send(7, number), 0.0)
    taken(speaking, standing, 0.0)
    speaking.answered(3, 0.0)
    assert len(taken(speaking, standing, 1_000.0)) == 3


def test_nodes_are_served_round_robin() -> None:
    speaking, standing = make(irc_burst=4)
    for number in range(100):
        speaking.enqueue(send(7, number), 0.0)
    speaking.enqueue(send(8, 0), 0.0)
    speaking.enqueue(send(9, 0), 0.0)
    texts = taken(speaking, standing, 0.0)
    speaking.answered(3, 0.0)
    assert texts + taken(speaking, standing, 1.0) == [
        b"PRIVMSG #c :0 of 7",
        b"PRIVMSG #c :0 of 8",
        b"PRIVMSG #c :0 of 9",
        b"PRIVMSG #c :1 of 7",
    ]


def test_flooding_node_is_limited_and_others_are_still_queued() -> None:
    speaking, standing = make(max_queue=10)
    why = [speaking.enqueue(send(7, number), 0.0) for number in range(30)]
    assert why.count("queue-full") == 24
    assert standing.counters["send_flooded"] == 24
    assert speaking.enqueue(send(8, 0), 0.0) is None
    assert b"PRIVMSG #c :0 of 8" in taken(speaking, standing, 0.0)
    for node in range(10, 30):
        speaking.enqueue(send(node, 0), 0.0)
    assert len(speaking) <= 10


def test_line_refused_for_a_full_queue_may_be_resent() -> None:
    speaking, standing = make(max_queue=2)
    for number in range(3):
        speaking.enqueue(send(7, number), 0.0)
    assert speaking.enqueue(send(7, 2), 0.0) == "queue-full"
    taken(speaking, standing, 0.0)
    assert speaking.enqueue(send(7, 2), 0.0) is None


def test_repeated_line_is_said_once() -> None:
    speaking, standing = make()
    assert speaking.enqueue(send(7, 1), 0.0) is None
    assert speaking.enqueue(send(7, 1), 0.0) is None
    assert speaking.enqueue(Send(8, send(7, 1).line), 0.0) is None
    assert taken(speaking, standing, 0.0) == [b"PRIVMSG #c :1 of 7"]
    assert standing.counters["send_repeated"] == 2


def test_line_relayed_by_another_leader_is_not_said_again() -> None:
    speaking, standing = make()
    assert speaking.line_relayed(add_tag("7.1", b":bot!u@h PRIVMSG #c :1 of 7")) == "7.1"
    speaking.enqueue(send(7, 1), 0.0)
    assert taken(speaking, standing, 0.0) == []


def test_equal_untagged_lines_are_both_said() -> None:
    speaking, standing = make()
    for _ in range(2):
        speaking.enqueue(Send(7, b"PRIVMSG #c :hi"), 0.0)
    assert taken(speaking, standing, 0.0) == [b"PRIVMSG #c :hi"] * 2


@pytest.mark.parametrize("line", [b"QUIT :bye", b":x PRIVMSG #c :hi", b"PRIVMSG #c :a\rQUIT", b"WHO x", b""])
def test_disallowed_line_of_another_node_is_refused(line: bytes) -> None:
    speaking, standing = make()
    assert speaking.enqueue(Send(7, add_tag("7.1", line)), 0.0) == "not-allowed"
    assert standing.counters["send_refused"] == 1
    assert not len(speaking)


def test_no_line_is_sent_after_the_lease() -> None:
    speaking, standing = make()
    speaking.enqueue(send(7, 1), 0.0)
    assert taken(speaking, standing, 5.0, until=5.0) == []
    assert taken(speaking, standing, 5.0, until=5.1) == [b"PRIVMSG #c :1 of 7"]


def test_line_queued_for_too_long_is_not_said() -> None:
    speaking, standing = make(max_wait=10.0, irc_burst=1, irc_rate=0.05)
    for number in range(3):
        speaking.enqueue(send(7, number), 0.0)
    assert len(taken(speaking, standing, 0.0)) == 1
    assert taken(speaking, standing, 20.0) == []
    assert standing.counters["not_said"] == 2


def test_no_line_is_sent_without_a_connection() -> None:
    speaking, standing = make()
    speaking.close("over")
    speaking.enqueue(send(7, 1), 0.0)
    assert taken(speaking, standing, 0.0) == []


def test_close_discards_the_queue() -> None:
    speaking, standing = make()
    speaking.enqueue(send(7, 1), 0.0)
    speaking.close("over")
    assert not len(speaking)
    assert list(standing.output.drain().events) == [CloseIrc("over")]
    assert speaking.state == "closing"
    speaking.closed("closed", 1.0)
    assert (speaking.state, speaking.loss_reason) == ("closed", None)


def test_new_lease_waits_for_the_old_connection_to_close() -> None:
    speaking, standing = make()
    speaking.close("over")
    speaking.open(1.0)
    assert not [event for event in standing.output.drain().events if isinstance(event, OpenIrc)]
    speaking.closed("closed", 2.0)
    assert [event for event in standing.output.drain().events if isinstance(event, OpenIrc)]


def test_leader_resigns_after_three_failed_connects(net: Net) -> None:
    host = net.node("alone", 1, network_size=1, bootstrap=True)
    host.irc = "fails"
    assert net.run(60.0, lambda: host.node.role is Role.LEADER)
    assert net.run(60.0, lambda: host.node.role is Role.OUTSIDER)
    assert len(host.of(OpenIrc)) == MAX_FAILED_CONNECTS
    assert host.node.counters["irc_failed"] == MAX_FAILED_CONNECTS
    assert "IRC cannot be reached" in host.node.state(net.now).why


def test_lost_irc_connection_makes_the_leader_resign_and_send_its_drop(leader: Leader, net: Net) -> None:
    host, me = leader.host, leader.host.id
    host.irc_online = False
    host.call("irc_closed", "reset by peer")
    net.run(0.01)
    for end in leader.ends.values():
        (drop,) = end.take(Drop)
        assert drop.id == me
        assert "reset by peer" in drop.reason
    assert host.node.role is Role.OUTSIDER
    assert host.node.lease_until is None


def test_former_leader_repeats_its_drop_to_a_peer_that_still_follows_it(leader: Leader, net: Net) -> None:
    host, me = leader.host, leader.host.id
    host.irc_online = False
    host.call("irc_closed", "reset by peer")
    net.run(0.01)
    end = net.link(host)
    end.send(Ping(1, "v1", me))
    assert end.take(Knock, Drop) == [Knock(me, GUARDIAN_TAG), Drop(me, "left before")]
    end.send(Ping(2, "v2", 8))
    assert end.take(Drop) == []


def test_repeated_drop_of_the_leader_counts_over_a_new_link(cohort: Cohort, net: Net) -> None:
    end = net.link(cohort.host)
    assert [one.id for one in end.take(Ping)] == [Cohort.LEADER]
    end.send(Knock(Cohort.LEADER, GUARDIAN_TAG), Drop(Cohort.LEADER, "left before"))
    assert cohort.node.leader is None
    assert cohort.host.durable is not None
    assert cohort.host.durable.promised == 0
    assert end.closed_by_peer


def test_resignation_is_announced_only_after_irc_is_closed(leader: Leader, net: Net) -> None:
    host = leader.host
    host.irc = "waits"
    host.call("leave")
    net.run(0.5)
    assert len(host.of(CloseIrc)) == 1
    assert leader.ends[7].take(Drop) == []
    assert host.node.lease_until is None
    me = host.id
    host.call("irc_closed", "closed")
    net.run(0.01)
    assert [one.id for one in leader.ends[7].take(Drop)] == [me]
    assert host.node.role is Role.GONE


def test_line_is_relayed_to_all_once_irc_acknowledged_it(leader: Leader, net: Net) -> None:
    host = leader.host
    host.answers = False
    leader.ends[7].send(Send(7, add_tag("x.1", b"PRIVMSG #c :hi")))
    assert [line for _, line in host.irc_lines] == [b"PRIVMSG #c :hi"]
    net.run(0.1)
    assert leader.ends[8].take(Recv) == []
    assert host.node.counters["said"] == 0
    (question,) = host.of(AskIrc)
    host.node.irc_received([b":anna!a@b PRIVMSG #c :before"], net.now)
    host.call("irc_answered", question.number)
    net.run(0.01)
    for end in leader.ends.values():
        assert end.take(Recv) == [
            Recv(0, b":anna!a@b PRIVMSG #c :before"),
            Recv(1, add_tag("x.1", b":bot!u@h PRIVMSG #c :hi")),
        ]
    assert host.node.counters["said"] == 1


def test_error_of_irc_is_relayed_in_place_of_the_line(leader: Leader, net: Net) -> None:
    host = leader.host
    host.answers = False
    host.call("say", b"PRIVMSG #c :one", "one")
    host.call("say", b"KICK #c anna", "two")
    host.call("say", b"PRIVMSG #c :three", "three")
    net.run(0.1)
    numeric = b":irc.x 482 bot #c :You're not channel operator"
    host.node.irc_received([numeric, b":irc.x 433 bot other :Nickname is already in use"], net.now)
    host.call("irc_answered", host.of(AskIrc)[-1].number)
    while len(host.of(LineOutcome)) < 3:
        host.call("irc_answered", 3)
    net.run(0.01)
    texts = [untag(one.line)[1] for one in leader.ends[7].take(Recv)]
    assert texts == [b":bot!u@h PRIVMSG #c :one", numeric, b":bot!u@h PRIVMSG #c :three"]
    assert host.of(LineOutcome) == [
        LineOutcome("one", Outcome.SAID, ""),
        LineOutcome("two", Outcome.REFUSED, "482 #c You're not channel operator"),
        LineOutcome("three", Outcome.SAID, ""),
    ]
    counts = host.node.counters
    assert (counts["said"], counts["irc_refused"], counts["irc_not_relayed"]) == (2, 1, 1)


def test_submitting_node_reports_a_relayed_refusal(cohort: Cohort, net: Net) -> None:
    cohort.host.call("say", b"PRIVMSG #d :hi", "mine")
    net.run(0.01)
    (wanted,) = cohort.end.take(Send)
    name, _ = untag(wanted.line)
    cohort.end.send(Recv(0, add_tag(f"{name}/1", b":irc.x 404 bot #d :Cannot send to channel")))
    cohort.end.send(Recv(1, add_tag(name, b":bot!u@h PRIVMSG #d :the rest")))
    assert cohort.host.of(LineOutcome) == [LineOutcome("mine", Outcome.REFUSED, "404 #d Cannot send to channel")]


def test_long_line_is_refused_when_splitting_is_disabled(make_leader: Callable[..., Leader], net: Net) -> None:
    leader = make_leader(irc_long=OverlongPolicy.REFUSE)
    leader.ends[7].send(Send(7, add_tag("x.1", b"PRIVMSG #c :" + b"x" * 490)))
    net.run(0.01)
    (recv,) = leader.ends[8].take(Recv)
    assert untag(recv.line)[0] == "x.1"
    assert server_error_text(untag(recv.line)[1]) == "417 PRIVMSG the line has 502 bytes; only 501 fit after its sender"
    assert leader.host.irc_lines == []


def test_unresponsive_server_makes_the_leader_resign(leader: Leader, net: Net) -> None:
    host = leader.host
    host.answers = False
    host.call("say", b"PRIVMSG #c :hi", "mine")
    net.run(4.9)
    assert host.node.role is Role.LEADER
    net.run(0.2)
    assert host.node.role is Role.OUTSIDER
    assert host.of(LineOutcome) == [LineOutcome("mine", Outcome.UNCERTAIN, "leader-changed")]
    (drop,) = leader.ends[7].take(Drop)
    assert "IRC has not answered" in drop.reason
    (close,) = host.of(CloseIrc)
    assert not close.graceful


def test_reply_after_the_lease_is_not_relayed(leader: Leader, net: Net) -> None:
    host = leader.host
    host.answers = False
    leader.ends[7].send(Send(7, add_tag("x.1", b"PRIVMSG #c :hi")))
    net.run(0.01)
    host.node._components.leadership.lease.until = net.now
    host.call("irc_answered", host.of(AskIrc)[-1].number)
    assert leader.ends[8].take(Recv) == []
    assert host.node.counters["irc_without_lease"] == 1


def test_line_written_too_late_is_refused_and_not_relayed(leader: Leader, net: Net) -> None:
    host = leader.host
    host.irc_online = False
    host.call("say", b"PRIVMSG #c :hi", "mine")
    net.run(0.01)
    assert host.of(LineOutcome) == [LineOutcome("mine", Outcome.REFUSED, "too-late")]
    assert leader.ends[7].take(Recv) == []
    assert host.node.counters["too_late"] == 1
