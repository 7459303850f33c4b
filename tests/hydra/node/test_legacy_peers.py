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


def test_legacy_peer_is_welcomed_at_once_and_not_registered(leader: Leader, net: Net) -> None:
    end = guest(net, leader.host)
    me = leader.host.id
    assert end.take() == [Meet(HEBI, me), Welcome(HEBI), Hello(HEBI, me)]
    assert HEBI not in leader.node._context.registry
    assert leader.ends[7].take(Knock) == []


def test_legacy_peer_receives_pings_and_lines(leader: Leader, net: Net) -> None:
    end = guest(net, leader.host)
    end.take()
    leader.host.call("irc_received", [LINE])
    net.run(5.1)
    assert {type(one) for one in end.take()} == {Ping, Recv}


def test_legacy_peer_receives_no_overlong_line(leader: Leader, net: Net) -> None:
    end = guest(net, leader.host)
    end.take()
    leader.host.call("irc_received", [b":a!b@c PRIVMSG #c :" + b"x" * LEGACY_MAX_LINE, LINE])
    net.run(0.01)
    assert end.take(Recv) == [Recv(1, LINE)]


def test_ping_of_a_legacy_peer_is_answered_but_not_followed(leader: Leader, net: Net) -> None:
    end = guest(net, leader.host)
    end.take()
    end.send(Ping(99, "1", HEBI))
    assert end.take() == [Pong("1", leader.host.id, 0, "leader")]
    assert leader.node.role is Role.LEADER
    assert leader.ends[7].take(Ping) == []


def test_legacy_peer_has_no_vote(leader: Leader, net: Net) -> None:
    end = guest(net, leader.host)
    me = leader.host.id
    before = leader.node._context.registry.ids()
    end.send(Nominate(99, HEBI), Pledge(99, HEBI, 7), Call(99), Elect(99, HEBI, 8), Drop(7), Drop(me), Knock(9, "x"))
    assert leader.node.role is Role.LEADER
    assert leader.node._context.registry.ids() == before
    assert leader.ends[7].take(Nominate, Pledge, Call, Elect, Drop, Knock) == []


def test_two_legacy_peers_with_the_same_id_are_both_welcomed(leader: Leader, net: Net) -> None:
    for _ in range(2):
        assert Welcome(HEBI) in guest(net, leader.host).take()


def test_legacy_peer_may_submit_lines(leader: Leader, net: Net) -> None:
    end = guest(net, leader.host)
    end.send(Send(HEBI, add_tag("h.1", b"PRIVMSG #c :hi")))
    assert [line for _, line in leader.host.irc_lines] == [b"PRIVMSG #c :hi"]


def test_legacy_peer_may_not_submit_lines_before_its_knock(leader: Leader, net: Net) -> None:
    end = guest(net, leader.host, leader.host.id)
    end.send(Send(HEBI, b"PRIVMSG #c :hi"))
    assert leader.host.irc_lines == []


def test_node_knocks_at_a_dialled_legacy_peer_once_it_is_a_member(net: Net) -> None:
    played = net.play(2)
    host = net.node("one", 1, (2,), legacy=(2,), bootstrap=True)
    net.run(0.01)
    (end,) = played.accepted
    assert host.node.role is Role.LEADER
    end.send(Knock(HEBI, LEGACY_TAG))
    end.take()
    end.send(Ping(0, "1", HEBI), Ping(0, "2", HEBI))
    assert end.take(Knock) == [Knock(host.id, "one")]
