from __future__ import annotations

from random import Random
from typing import Any

import pytest

from fyrehose_twisted.hydra.config import NodeConfig
from fyrehose_twisted.hydra.events import CloseIrc, OpenIrc, Outcome, Role, Said, ToIrc
from fyrehose_twisted.hydra.fitting import IrcLimits
from fyrehose_twisted.hydra.lines import with_tag
from fyrehose_twisted.hydra.messages import Drop, Recv, Send
from fyrehose_twisted.hydra.promises import Vow
from fyrehose_twisted.hydra.speaking import MAX_TRIES, Speaking
from fyrehose_twisted.hydra.standing import Standing

UNTIL = 1e9


def make(**options: Any) -> tuple[Speaking, Standing]:
    config = NodeConfig(**{"irc_rate": 1.0, "irc_burst": 3, **options})
    standing = Standing(config, Random(1), 0.0, Vow(), remembers=True)
    speaking = Speaking(standing)
    speaking.want(0.0)
    speaking.opened(b"bot!u@h", IrcLimits(), 0.0)
    standing.out.drain()
    return speaking, standing


def send(node: int, number: int) -> Send:
    return Send(node, with_tag(f"{node}.{number}", b"PRIVMSG #c :%d of %d" % (number, node)))


def taken(speaking: Speaking, standing: Standing, now: float, until: float = UNTIL) -> list[bytes]:
    speaking.take(now, until)
    return [event.line for event in standing.out.drain().events if isinstance(event, ToIrc)]


def test_lines_go_as_fast_as_irc_may_have_them() -> None:
    speaking, standing = make()
    for number in range(10):
        assert speaking.put(send(7, number), 0.0) is None
    assert len(taken(speaking, standing, 0.0)) == 3
    assert speaking.next_deadline() == 1.0
    assert taken(speaking, standing, 0.5) == []
    assert speaking.next_deadline() == 1.0
    assert taken(speaking, standing, 1.0) == [b"PRIVMSG #c :3 of 7"]
    assert len(taken(speaking, standing, 3.0)) == 2
    assert speaking.next_deadline() == 4.0


def test_a_pause_gives_no_more_than_one_burst() -> None:
    speaking, standing = make(max_wait=1e6)
    for number in range(20):
        speaking.put(send(7, number), 0.0)
    taken(speaking, standing, 0.0)
    assert len(taken(speaking, standing, 1_000.0)) == 3


def test_who_says_much_leaves_room_for_others() -> None:
    speaking, standing = make(irc_burst=4)
    for number in range(100):
        speaking.put(send(7, number), 0.0)
    speaking.put(send(8, 0), 0.0)
    speaking.put(send(9, 0), 0.0)
    assert taken(speaking, standing, 0.0) == [
        b"PRIVMSG #c :0 of 7",
        b"PRIVMSG #c :0 of 8",
        b"PRIVMSG #c :0 of 9",
        b"PRIVMSG #c :1 of 7",
    ]


def test_a_flood_is_cut_off_and_others_still_get_in() -> None:
    speaking, standing = make(max_queue=10)
    why = [speaking.put(send(7, number), 0.0) for number in range(30)]
    assert why.count("queue-full") == 24
    assert standing.counts["send_flooded"] == 24
    assert speaking.put(send(8, 0), 0.0) is None
    assert b"PRIVMSG #c :0 of 8" in taken(speaking, standing, 0.0)
    for node in range(10, 30):
        speaking.put(send(node, 0), 0.0)
    assert len(speaking) <= 10


def test_what_was_cut_off_may_come_again() -> None:
    speaking, standing = make(max_queue=2)
    for number in range(3):
        speaking.put(send(7, number), 0.0)
    assert speaking.put(send(7, 2), 0.0) == "queue-full"
    taken(speaking, standing, 0.0)
    assert speaking.put(send(7, 2), 0.0) is None


def test_a_line_is_said_once_however_often_it_comes() -> None:
    speaking, standing = make()
    assert speaking.put(send(7, 1), 0.0) is None
    assert speaking.put(send(7, 1), 0.0) is None
    assert speaking.put(Send(8, send(7, 1).line), 0.0) is None
    assert taken(speaking, standing, 0.0) == [b"PRIVMSG #c :1 of 7"]
    assert standing.counts["send_repeated"] == 2


def test_what_another_leader_said_is_not_said_again() -> None:
    speaking, standing = make()
    assert speaking.heard(with_tag("7.1", b":bot!u@h PRIVMSG #c :1 of 7")) == "7.1"
    speaking.put(send(7, 1), 0.0)
    assert taken(speaking, standing, 0.0) == []


def test_two_equal_lines_without_a_token_are_two() -> None:
    speaking, standing = make()
    for _ in range(2):
        speaking.put(Send(7, b"PRIVMSG #c :hi"), 0.0)
    assert taken(speaking, standing, 0.0) == [b"PRIVMSG #c :hi"] * 2


@pytest.mark.parametrize("line", [b"QUIT :bye", b":x PRIVMSG #c :hi", b"PRIVMSG #c :a\rQUIT", b"NICK x", b""])
def test_what_others_must_not_say_is_refused(line: bytes) -> None:
    speaking, standing = make()
    assert speaking.put(Send(7, with_tag("7.1", line)), 0.0) == "not-allowed"
    assert standing.counts["send_refused"] == 1
    assert not len(speaking)


def test_nothing_goes_once_the_lease_is_over() -> None:
    speaking, standing = make()
    speaking.put(send(7, 1), 0.0)
    assert taken(speaking, standing, 5.0, until=5.0) == []
    assert taken(speaking, standing, 5.0, until=5.1) == [b"PRIVMSG #c :1 of 7"]


def test_what_waited_for_too_long_is_not_said() -> None:
    speaking, standing = make(max_wait=10.0, irc_burst=1, irc_rate=0.05)
    for number in range(3):
        speaking.put(send(7, number), 0.0)
    assert len(taken(speaking, standing, 0.0)) == 1
    assert taken(speaking, standing, 20.0) == []
    assert standing.counts["not_said"] == 2


def test_nothing_goes_while_there_is_no_connection() -> None:
    speaking, standing = make()
    speaking.give_up("over")
    speaking.put(send(7, 1), 0.0)
    assert taken(speaking, standing, 0.0) == []


def test_giving_up_forgets_what_was_to_be_said() -> None:
    speaking, standing = make()
    speaking.put(send(7, 1), 0.0)
    speaking.give_up("over")
    assert not len(speaking)
    assert list(standing.out.drain().events) == [CloseIrc("over")]
    assert speaking.state == "closing"
    speaking.closed("closed", 1.0)
    assert (speaking.state, speaking.lost) == ("closed", None)


def test_who_leads_again_waits_for_the_old_connection_to_close() -> None:
    speaking, standing = make()
    speaking.give_up("over")
    speaking.want(1.0)
    assert not [event for event in standing.out.drain().events if isinstance(event, OpenIrc)]
    speaking.closed("closed", 2.0)
    assert [event for event in standing.out.drain().events if isinstance(event, OpenIrc)]


# Within a node


def test_three_failures_in_a_row_and_somebody_else_shall_try(net: Any) -> None:
    host = net.node("alone", 1, network_size=1, found=True)
    host.irc = "fails"
    assert net.run(60.0, lambda: host.node.role is Role.LEADER)
    assert net.run(60.0, lambda: host.node.role is Role.OUTSIDER)
    assert len(host.of(OpenIrc)) == MAX_TRIES
    assert host.node.counts["irc_failed"] == MAX_TRIES
    assert "IRC cannot be reached" in host.node.state(net.now).why


def test_a_lost_connection_makes_the_leader_resign_and_tell_the_others(leader: Any, net: Any) -> None:
    host, me = leader.host, leader.host.id
    host.online = False
    host.call("irc_closed", "reset by peer")
    net.run(0.01)
    for end in leader.ends.values():
        (drop,) = end.take(Drop)
        assert drop.id == me
        assert "reset by peer" in drop.reason
    assert host.node.role is Role.OUTSIDER
    assert host.node.lease_until is None


def test_the_others_are_told_only_once_irc_is_closed(leader: Any, net: Any) -> None:
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


def test_a_line_is_echoed_to_all_once_it_was_handed_over(leader: Any, net: Any) -> None:
    leader.ends[7].send(Send(7, with_tag("x.1", b"PRIVMSG #c :hi")))
    assert [line for _, line in leader.host.said] == [b"PRIVMSG #c :hi"]
    for end in leader.ends.values():
        assert end.take(Recv) == [Recv(0, with_tag("x.1", b":bot!u@h PRIVMSG #c :hi"))]


def test_what_came_too_late_is_not_echoed_but_refused(leader: Any, net: Any) -> None:
    host = leader.host
    host.online = False
    host.call("say", b"PRIVMSG #c :hi", "mine")
    net.run(0.01)
    assert host.of(Said) == [Said("mine", Outcome.REFUSED, "too-late")]
    assert leader.ends[7].take(Recv) == []
    assert host.node.counts["too_late"] == 1
