from __future__ import annotations

from typing import Any

from hydra.harness import Host, Leader, Net

from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.wire.lines import add_tag
from fyrehose_twisted.hydra.wire.messages import (
    LEGACY_MAX_LINE,
    LEGACY_TAG,
    Call,
    Drop,
    Elect,
    Hello,
    Knock,
    Meet,
    Nominate,
    Ping,
    Pledge,
    Pong,
    Recv,
    Send,
    Welcome,
)

LINE = b":a!b@c PRIVMSG #c :hi"
HEBI = 1804289383


def guest(net: Net, host: Host, ind: int = HEBI) -> Any:
    end = net.link(host)
    end.take()
    end.send(Knock(ind, LEGACY_TAG))
    return end


def test_the_reference_is_welcomed_at_once_and_is_no_node(leader: Leader, net: Net) -> None:
    end = guest(net, leader.host)
    me = leader.host.id
    assert end.take() == [Meet(HEBI, me), Welcome(HEBI), Hello(HEBI, me)]
    assert HEBI not in leader.node._context.registry
    assert leader.ends[7].take(Knock) == []


def test_it_hears_pings_and_lines(leader: Leader, net: Net) -> None:
    end = guest(net, leader.host)
    end.take()
    leader.host.call("irc_received", [LINE])
    net.run(5.1)
    assert {type(one) for one in end.take()} == {Ping, Recv}


def test_it_hears_no_line_that_would_be_torn_apart(leader: Leader, net: Net) -> None:
    end = guest(net, leader.host)
    end.take()
    leader.host.call("irc_received", [b":a!b@c PRIVMSG #c :" + b"x" * LEGACY_MAX_LINE, LINE])
    net.run(0.01)
    assert end.take(Recv) == [Recv(1, LINE)]


def test_its_pings_are_answered_and_not_believed(leader: Leader, net: Net) -> None:
    end = guest(net, leader.host)
    end.take()
    end.send(Ping(99, "1", HEBI))
    assert end.take() == [Pong("1", leader.host.id, 0, "leader")]
    assert leader.node.role is Role.LEADER
    assert leader.ends[7].take(Ping) == []


def test_it_has_no_say(leader: Leader, net: Net) -> None:
    end = guest(net, leader.host)
    me = leader.host.id
    before = leader.node._context.registry.ids()
    end.send(Nominate(99, HEBI), Pledge(99, HEBI, 7), Call(99), Elect(99, HEBI, 8), Drop(7), Drop(me), Knock(9, "x"))
    assert leader.node.role is Role.LEADER
    assert leader.node._context.registry.ids() == before
    assert leader.ends[7].take(Nominate, Pledge, Call, Elect, Drop, Knock) == []


def test_two_with_the_same_id_are_both_welcome(leader: Leader, net: Net) -> None:
    for _ in range(2):
        assert Welcome(HEBI) in guest(net, leader.host).take()


def test_it_may_have_lines_said(leader: Leader, net: Net) -> None:
    end = guest(net, leader.host)
    end.send(Send(HEBI, add_tag("h.1", b"PRIVMSG #c :hi")))
    assert [line for _, line in leader.host.irc_lines] == [b"PRIVMSG #c :hi"]


def test_before_it_knocked_it_may_not(leader: Leader, net: Net) -> None:
    end = guest(net, leader.host, leader.host.id)
    end.send(Send(HEBI, b"PRIVMSG #c :hi"))
    assert leader.host.irc_lines == []


def test_whoever_is_told_that_it_dials_the_reference_knocks_there_when_it_is_a_node(net: Net) -> None:
    played = net.play(2)
    host = net.node("one", 1, (2,), legacy=(2,), found=True)
    net.run(0.01)
    (end,) = played.accepted
    assert host.node.role is Role.LEADER
    end.send(Knock(HEBI, LEGACY_TAG))
    end.take()
    end.send(Ping(0, "1", HEBI), Ping(0, "2", HEBI))
    assert end.take(Knock) == [Knock(host.id, "one")]
