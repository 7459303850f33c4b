"""Clients that listen to a multicast group."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from fyrehose.by_hand import DrivenNode

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import (
    GroupAbandoned,
    GroupAnnounced,
    GroupHeard,
    GroupSilent,
    LeaderChanged,
    MessagesDelivered,
)
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.node.multicast.listening import ANSWER_AGE, MAX_SPREAD, SILENCE, SPREAD_PER_LISTENER
from fyrehose_twisted.fyrehose.wire.codec import decode
from fyrehose_twisted.fyrehose.wire.packets import (
    ANY_ADDRESS,
    Beacon,
    Deliver,
    Dialect,
    Flags,
    Group,
    Keepalive,
    KeepaliveAck,
    Leader,
    Packet,
    Request,
    Status,
)
from fyrehose_twisted.fyrehose.wire.token import token_is_valid

START = 1_700_000_000.0
BACKBONE: Address = ("192.0.2.1", 2323)
OTHER: Address = ("192.0.2.2", 2323)
OWN: Address = ("192.0.2.8", 4002)
GROUP: Address = ("239.1.1.1", 2324)
SECRET = b"sixteen bytes and a few"
WANTS, HEARS = Flags.MULTICAST | Flags.EXTENSIONS, Flags.HEARS


class Bench(DrivenNode):
    """A client that wants to listen to the group of its backbone, driven by hand."""

    def __init__(
        self,
        config: ClientConfig | None = None,
        backbones: tuple[Address, ...] = (BACKBONE,),
        rng: Random | None = None,
    ) -> None:
        self.now = START
        config = ClientConfig(start=1, multicast=True) if config is None else config
        self.node = Client(backbones, config, Random(1) if rng is None else rng, START)
        self.keepalives: list[Keepalive] = []
        self.requests: list[Request] = []
        self.events: list[Any] = []
        self.numbers: list[int] = []
        self.wait(0.0)
        self.hear(KeepaliveAck(self.token))
        self.hear(Status(self.token, 0, 0))

    @property
    def token(self) -> bytes:
        return self.keepalives[-1].token

    def hear(self, *packets: Packet, peer: Address = BACKBONE) -> None:
        self.receive(peer, packets)

    def listen(self) -> None:
        self.hear(Group(self.token, GROUP))
        self.hear(Beacon(0))
        self.wait(0.0)

    def drain(self) -> None:
        outputs = self.node.drain()
        for effect in outputs.effects:
            for datagram in effect.iter_datagrams():
                packet = decode(bytes(datagram))
                if isinstance(packet, Keepalive):
                    self.keepalives.append(packet)
                elif isinstance(packet, Request):
                    self.requests.append(packet)
        for event in outputs.events:
            if isinstance(event, MessagesDelivered):
                self.numbers += [message.sequence for message in event.messages]
            elif isinstance(event, (GroupAbandoned, GroupAnnounced, GroupHeard, GroupSilent, LeaderChanged)):
                self.events.append(event)

    def take_events(self) -> list[Any]:
        events, self.events = self.events, []
        return events


def test_a_client_listens_to_the_group_of_its_backbone_and_tells_at_once_that_it_hears_it() -> None:
    bench = Bench()
    assert bench.keepalives[-1].flags == WANTS
    bench.hear(Group(bench.token, GROUP))
    assert bench.take_events() == [GroupAnnounced(GROUP, BACKBONE)]
    bench.wait(1.0)
    assert bench.keepalives[-1].flags == WANTS, "nothing has come yet"
    before = len(bench.keepalives)
    bench.hear(Beacon(5))
    bench.wait(0.0)
    assert [one.flags for one in bench.keepalives[before:]] == [WANTS | HEARS]
    assert bench.take_events() == [GroupHeard(GROUP)]
    bench.hear(Group(bench.token, GROUP), Beacon(5))
    bench.wait(0.5)
    assert bench.take_events() == [], "known"


def test_a_client_that_does_not_want_to_listen_ignores_the_group() -> None:
    bench = Bench(ClientConfig(start=1))
    bench.listen()
    assert (bench.events, bench.keepalives[-1].flags) == ([], Flags.EXTENSIONS)


def test_a_group_that_brings_nothing_is_reported_once() -> None:
    bench = Bench()
    bench.hear(Group(bench.token, GROUP))
    bench.take_events()
    bench.wait(SILENCE - 0.01)
    bench.hear(KeepaliveAck(bench.token))
    assert bench.take_events() == []
    bench.wait(0.02)
    assert bench.take_events() == [GroupSilent(GROUP, False)]
    for _ in range(20):
        bench.wait(0.5)
        bench.hear(KeepaliveAck(bench.token))
        bench.hear(Group(bench.token, GROUP))
    assert bench.take_events() == []
    assert bench.keepalives[-1].flags == WANTS


def test_a_backbone_that_does_not_answer_says_nothing_about_the_group() -> None:
    bench = Bench()
    bench.listen()
    bench.take_events()
    bench.wait(60.0)
    assert bench.take_events() == []
    bench.hear(KeepaliveAck(bench.token))
    bench.wait(ANSWER_AGE)
    assert bench.take_events() == [GroupSilent(GROUP, True)]


def test_a_group_that_falls_silent_is_left_at_once_and_taken_again() -> None:
    bench = Bench()
    bench.listen()
    bench.take_events()
    before = len(bench.keepalives)
    bench.wait(SILENCE - 0.5)
    bench.hear(KeepaliveAck(bench.token))
    bench.wait(0.5)
    assert bench.take_events() == [GroupSilent(GROUP, True)]
    assert bench.keepalives[-1].flags == WANTS
    assert {one.flags for one in bench.keepalives[before:-1]} == {WANTS | HEARS}
    bench.hear(Beacon(1))
    bench.wait(0.0)
    assert bench.take_events() == [GroupHeard(GROUP)]
    assert bench.keepalives[-1].flags == WANTS | HEARS


def test_only_the_backbone_announces_a_group_and_sends_beacons() -> None:
    bench = Bench()
    bench.hear(Group(bench.token, GROUP), peer=OTHER)
    bench.hear(Group(b"x" * 16, GROUP))
    assert bench.node.drops.counts["stray_extension"] == 2
    bench.hear(Beacon(1))
    assert bench.take_events() == [], "it listens to no group"
    bench.hear(Group(bench.token, GROUP))
    bench.take_events()
    bench.hear(Beacon(1), peer=OTHER)
    assert bench.node.drops.counts["foreign_beacon"] == 1
    assert bench.take_events() == []


def test_with_a_secret_the_tokens_cover_that_the_group_is_heard() -> None:
    bench = Bench(ClientConfig(start=1, multicast=True, secret=SECRET, address=OWN))
    bench.listen()
    assert bench.keepalives[-1].flags & HEARS
    assert token_is_valid(SECRET, bench.keepalives[-1], bench.now)


def first_request_after(seed: int, listeners: int) -> float:
    """Return the seconds until a client asks for a gap, if so many hear the group."""
    bench = Bench(rng=Random(seed))
    bench.hear(Group(bench.token, GROUP))
    bench.hear(Beacon(listeners))
    bench.wait(0.0)
    bench.hear(Deliver(1, b"1"), Deliver(3, b"3"))
    began = bench.now
    while Request(ANY_ADDRESS, 2, 2) not in bench.requests:
        bench.wait(0.001)
    return bench.now - began


def test_requests_for_a_loss_that_others_may_share_are_spread() -> None:
    alone, few, many = ([first_request_after(seed, listeners) for seed in range(20)] for listeners in (0, 20, 10_000))
    assert max(alone) - min(alone) <= 0.002
    assert 0.002 <= max(few) - min(few) <= 20 * SPREAD_PER_LISTENER + 0.002
    assert MAX_SPREAD / 2 <= max(many) - min(many) <= MAX_SPREAD + 0.002


def test_a_client_that_hears_the_group_no_longer_does_not_wait_with_requests() -> None:
    bench = Bench()
    bench.listen()
    bench.hear(Beacon(10_000))
    bench.wait(SILENCE - 0.5)
    bench.hear(KeepaliveAck(bench.token))
    bench.wait(0.5)
    assert bench.node.listening.spread == 0.0


def test_another_leader_has_another_group() -> None:
    bench = Bench(backbones=(BACKBONE, OTHER))
    bench.hear(Leader(bench.token, 1, BACKBONE))
    bench.listen()
    assert bench.keepalives[-1].flags & HEARS
    bench.take_events()
    bench.hear(Leader(bench.token, 2, OTHER), peer=OTHER)
    bench.wait(0.0)
    assert bench.take_events() == [GroupAbandoned(), LeaderChanged(2, OTHER)]
    assert not bench.keepalives[-1].flags & HEARS
    bench.hear(Beacon(3))
    assert bench.take_events() == [], "of the former leader"
    bench.hear(Group(bench.token, GROUP), peer=OTHER)
    assert bench.take_events() == [GroupAnnounced(GROUP, OTHER)]


def test_messages_of_the_group_are_those_of_the_backbone() -> None:
    bench = Bench()
    bench.listen()
    bench.hear(Deliver(1, b"1"), Deliver(2, b"2"))
    assert bench.numbers == [1, 2]


@pytest.mark.parametrize("options", [{"dialect": Dialect.V1}, {"subscribe": False}])
def test_only_subscribers_of_version_2_can_listen(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="only subscribers with dialect v2"):
        ClientConfig(multicast=True, **options)
