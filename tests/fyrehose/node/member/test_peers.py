from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from fyrehose_twisted.consensus.messages import AppendEntries, MemberId
from fyrehose_twisted.effects import Address, Close, Dial, Peer, Write
from fyrehose_twisted.fyrehose.node.member.peers import (
    DIAL_INTERVALS,
    EAGER_DIALS,
    PING_INTERVAL,
    SILENCE_LIMIT,
    PeerLinks,
)
from fyrehose_twisted.fyrehose.wire.member_messages import MemberData, MemberHello, Ping, Pong

B: Address = ("192.0.2.2", 2324)
C: Address = ("192.0.2.3", 2324)
APPEND = AppendEntries(1, 0, 0, 0, ())


def hello(name: str, *, stream: str = "ticks", process: int = 1, incarnation: int = 1) -> MemberHello:
    data = MemberData(("192.0.2.9", 2323), ("192.0.2.9", 2324), False)
    return MemberHello(stream, MemberId(name, incarnation), data, False, False, 0, process)


class Links:
    """Connections of member a, which record what they tell."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.links = PeerLinks(
            "ticks",
            [B, C],
            0.0,
            hello=lambda: hello("a"),
            on_connected=lambda other, now: self.told.append(("connected", other.member.name)),
            on_disconnected=lambda member: self.told.append(("disconnected", member.name)),
            on_dead=lambda member, now: self.told.append(("dead", member.name)),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.links, name)

    def dials(self, now: float) -> list[Address]:
        self.tick(now)
        return [effect.address for effect in self.take_effects() if isinstance(effect, Dial)]

    def connect(self, other: MemberHello, number: int = 1, now: float = 0.0) -> Peer:
        self.dials(now)
        peer = Peer(B, number, True)
        self.connected_to(peer, now)
        self.received(other, peer, now)
        self.take_effects()
        return peer


@pytest.fixture
def links() -> Links:
    return Links()


def test_every_member_is_dialled_and_greeted(links: Links) -> None:
    assert links.dials(0.0) == [B, C]
    assert links.dials(1.0) == []
    links.connected_to(Peer(B, 1, True), 1.0)
    links.connected_to(Peer(("192.0.2.3", 40_000), 2, False), 1.0)
    assert [effect.messages for effect in links.take_effects() if isinstance(effect, Write)] == [[hello("a")]] * 2


def test_dials_slow_down(links: Links) -> None:
    now, times = 0.0, []
    while len(times) < EAGER_DIALS + 3:
        now = links.next_deadline()
        if B in links.dials(now):
            times.append(now)
        links.dial_failed(B, "refused", now)
        links.dial_failed(C, "refused", now)
    waits = [round(after - before, 3) for before, after in pairwise(times)]
    assert waits == [DIAL_INTERVALS[1]] * EAGER_DIALS + [DIAL_INTERVALS[2]] * 2
    assert links.told == []


def test_messages_go_only_over_dialled_connections(links: Links) -> None:
    peer = links.connect(hello("b"))
    assert links.told == [("connected", "b")]
    links.send(MemberId("b", 1), APPEND)
    links.send(MemberId("c", 1), APPEND)
    assert links.take_effects() == [Write([APPEND], peer)]
    assert links.counters["unsendable"] == 1


def test_messages_are_heard_only_from_who_was_introduced(links: Links) -> None:
    accepted = Peer(("192.0.2.2", 40_000), 7, False)
    links.connected_to(accepted, 0.0)
    assert links.received(APPEND, accepted, 0.0) is None
    assert links.counters["not_introduced"] == 1
    links.received(hello("b"), accepted, 0.0)
    links.received(hello("c"), accepted, 0.0)
    assert links.received(APPEND, accepted, 0.0) == MemberId("b", 1)


def test_member_that_no_longer_listens_is_dead(links: Links) -> None:
    peer = links.connect(hello("b"))
    links.disconnected(peer, 5.0)
    assert links.dials(5.0) == [B]
    links.dial_failed(B, "refused", 5.1)
    links.dial_failed(B, "refused", 5.2)
    assert links.told == [("connected", "b"), ("disconnected", "b"), ("dead", "b")]


def test_member_that_cannot_be_reached_may_live(links: Links) -> None:
    peer = links.connect(hello("b"))
    links.disconnected(peer, 5.0)
    links.dials(5.0)
    links.dial_failed(B, "timed out", 5.1)
    assert ("dead", "b") not in links.told


def test_member_may_close_its_connections_before_its_listener_as_it_dies(links: Links) -> None:
    peer = links.connect(hello("b"))
    links.disconnected(peer, 5.0)
    assert links.dials(5.0) == [B]
    links.dial_failed(B, "closed", 5.0)
    assert links.dials(5.0 + DIAL_INTERVALS[0]) == [B]
    links.dial_failed(B, "refused", 5.02)
    assert links.told[-1] == ("dead", "b")


def test_member_that_hangs_up_is_not_dialled_at_once(links: Links) -> None:
    links.dials(0.0)
    peer = Peer(B, 1, True)
    links.connected_to(peer, 0.0)
    links.disconnected(peer, 0.0)
    assert links.dials(0.0) == []
    assert links.dials(DIAL_INTERVALS[1]) == [B]


def test_member_in_another_process_has_died(links: Links) -> None:
    peer = links.connect(hello("b"))
    links.disconnected(peer, 5.0)
    links.connect(hello("b", process=2), 2, 5.0)
    assert links.told == [("connected", "b"), ("disconnected", "b"), ("dead", "b"), ("connected", "b")]


def test_same_process_behind_a_new_connection_lives(links: Links) -> None:
    peer = links.connect(hello("b"))
    links.disconnected(peer, 5.0)
    links.connect(hello("b"), 2, 5.0)
    assert ("dead", "b") not in links.told


def test_silent_connection_is_given_up_without_a_claim_of_death(links: Links) -> None:
    peer = links.connect(hello("b"))
    links.tick(PING_INTERVAL)
    assert Write([Ping()], peer) in links.take_effects()
    links.received(Pong(), peer, 2.0)
    links.tick(2.0 + SILENCE_LIMIT - 0.001)
    assert Close(peer) not in links.take_effects()
    links.tick(2.0 + SILENCE_LIMIT)
    assert Close(peer) in links.take_effects()
    links.dials(2.0 + SILENCE_LIMIT)
    links.dial_failed(B, "refused", 6.0)
    assert links.told == [("connected", "b"), ("disconnected", "b")]


def test_ping_is_answered_on_its_connection(links: Links) -> None:
    accepted = Peer(("192.0.2.2", 40_000), 7, False)
    links.connected_to(accepted, 0.0)
    links.received(Ping(), accepted, 0.0)
    assert links.take_effects() == [Write([hello("a"), Pong()], accepted)]


def test_member_of_another_stream_is_turned_away(links: Links) -> None:
    links.connect(hello("b", stream="other"))
    assert links.told == []
    assert links.counters["other_stream"] == 1


def test_own_address_is_not_dialled_again(links: Links) -> None:
    links.connect(hello("a"))
    links.learn([B], 9.0)
    assert links.dials(9.0) == []
    assert links.dialled_addresses == [C]


def test_learned_members_are_limited(links: Links) -> None:
    links.learn([("192.0.2.77", port) for port in range(1, 1_000)], 0.0)
    assert len(links.dialled_addresses) == 14
