"""Clients that want MACs from their backbone."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from fyrehose.by_hand import DrivenNode
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.config import ClientConfig, MacPolicy
from fyrehose_twisted.fyrehose.events import Connected, MacsAgreed, MacsNotOffered, MessagesDelivered
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.node.mac.agreement import MacState
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.mac import MacKey, make_stream_id
from fyrehose_twisted.fyrehose.wire.packets import (
    Deliver,
    Dialect,
    Flags,
    Forward,
    Keepalive,
    KeepaliveAck,
    Leader,
    Packet,
    Request,
)

START = 1_700_000_000.0
BACKBONE: Address = ("192.0.2.1", 2323)
OTHER: Address = ("192.0.2.2", 2323)
OWN: Address = ("192.0.2.8", 4002)
PEER: Address = ("192.0.2.9", 4003)
SECRET = b"sixteen bytes and a few"
KEY = MacKey(SECRET, make_stream_id("fyrehose://prices"))
ELSEWHERE = MacKey(SECRET, make_stream_id("fyrehose://orders"))
SIZES = pytest.mark.parametrize("count", [1, 20], ids=["singly", "in a run"])


class Bench(DrivenNode):
    """A client with a secret, driven by hand."""

    def __init__(self, backbones: tuple[Address, ...] = (BACKBONE,), **options: Any) -> None:
        self.now = START
        options = {"start": 1, "secret": SECRET, "address": OWN} | options
        self.node = Client(backbones, ClientConfig(**options), Random(1), START)
        self.sent: list[tuple[Packet, Address]] = []
        self.events: list[Any] = []
        self.delivered: list[int] = []
        self.wait(0.0)

    @property
    def keepalive(self) -> Keepalive:
        return [packet for packet, _ in self.sent if isinstance(packet, Keepalive)][-1]

    @property
    def token(self) -> bytes:
        return self.keepalive.token

    @property
    def drops(self) -> dict[str, int]:
        return dict(self.node.drops.counts)

    def ack(self, key: MacKey = KEY, peer: Address = BACKBONE, token: bytes | None = None) -> None:
        token = self.token if token is None else token
        self.hear(KeepaliveAck(token, key.stream_id, key.ack_mac(token)), peer=peer)

    def hear(self, *packets: Packet, peer: Address = BACKBONE) -> None:
        self.receive(peer, packets)

    def drain(self) -> None:
        while True:
            outputs = self.node.drain()
            for effect in outputs.effects:
                self.sent += [(decode(bytes(one)), peer) for one in effect.iter_datagrams() for peer in effect.peers]
            for event in outputs.events:
                if isinstance(event, MessagesDelivered):
                    self.delivered += [message.sequence for message in event.messages]
            self.events += outputs.events
            if not outputs.events:
                return

    def told(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def plain(first: int, count: int) -> list[Deliver]:
    return [Deliver(number, b"same") for number in range(first, first + count)]


def with_macs(first: int, count: int, key: MacKey = KEY) -> list[Deliver]:
    return [Deliver(number, b"same", mac=key.deliver_mac(number, b"same")) for number in range(first, first + count)]


class TestAgreement:
    def test_client_with_a_secret_asks_for_macs(self) -> None:
        assert Bench().keepalive.flags & Flags.MAC
        assert not Bench(mac=MacPolicy.OFF).keepalive.flags & Flags.MAC
        assert not Bench(secret=None).keepalive.flags & Flags.MAC

    @SIZES
    def test_nothing_is_accepted_before_the_backbone_answers(self, count: int) -> None:
        bench = Bench()
        bench.hear(*plain(1, count))
        bench.hear(*with_macs(1, count))
        assert (bench.delivered, bench.drops) == ([], {"mac_missing": count, "mac_wrong": count})

    @SIZES
    def test_after_an_ack_with_a_mac_only_messages_with_macs_are_accepted(self, count: int) -> None:
        bench = Bench()
        bench.ack()
        assert (bench.told(MacsAgreed), len(bench.told(Connected))) == ([MacsAgreed(BACKBONE)], 1)
        bench.hear(*plain(1, count))
        assert (bench.delivered, bench.drops) == ([], {"mac_missing": count})
        bench.hear(*with_macs(1, count))
        assert bench.delivered == list(range(1, count + 1))

    @SIZES
    def test_after_an_ack_without_a_mac_messages_need_none(self, count: int) -> None:
        bench = Bench()
        bench.hear(KeepaliveAck(bench.token))
        assert (bench.told(MacsNotOffered), len(bench.told(Connected))) == ([MacsNotOffered(BACKBONE)], 1)
        bench.hear(*plain(1, count))
        assert bench.delivered == list(range(1, count + 1))

    def test_agreement_cannot_be_undone(self) -> None:
        bench = Bench()
        bench.ack()
        bench.wait(1.0)
        bench.hear(KeepaliveAck(bench.token))
        assert bench.drops == {"mac_missing": 1}
        bench.wait(10.0)  # The backbone is silent, and the client is no longer connected.
        bench.hear(KeepaliveAck(bench.token))
        bench.hear(*plain(1, 1))
        assert (bench.delivered, bench.drops) == ([], {"mac_missing": 3})
        bench.ack()
        bench.hear(*with_macs(1, 1))
        assert bench.delivered == [1]

    def test_backbone_that_begins_to_offer_macs_is_believed(self) -> None:
        bench = Bench()
        bench.hear(KeepaliveAck(bench.token))
        bench.ack()
        bench.hear(*plain(1, 1))
        assert (bench.node.macs.state, bench.delivered) == (MacState.AGREED, [])

    def test_client_that_requires_macs_connects_to_no_backbone_without(self) -> None:
        bench = Bench(mac=MacPolicy.REQUIRE)
        bench.hear(KeepaliveAck(bench.token))
        bench.hear(*plain(1, 1))
        assert (bench.told(Connected), bench.delivered, bench.drops) == ([], [], {"mac_missing": 2})
        bench.ack()
        bench.hear(*with_macs(1, 1))
        assert bench.delivered == [1]

    @SIZES
    def test_client_that_wants_no_macs_accepts_none(self, count: int) -> None:
        bench = Bench(mac=MacPolicy.OFF)
        bench.hear(KeepaliveAck(bench.token))
        bench.hear(*with_macs(1, count))
        assert (bench.delivered, bench.drops) == ([], {"mac_wrong": count})
        bench.hear(*plain(1, count))
        assert bench.delivered == list(range(1, count + 1))

    def test_macs_without_a_secret_cannot_be_required(self) -> None:
        with pytest.raises(ConfigurationError, match="shared secret"):
            ClientConfig(mac=MacPolicy.REQUIRE)
        assert not ClientConfig(dialect=Dialect.V1).wants_macs


class TestForgeries:
    def test_plain_ack_with_another_token_does_not_downgrade(self) -> None:
        bench = Bench()
        bench.hear(KeepaliveAck(bytes(16)))
        bench.hear(*plain(1, 1))
        assert (bench.node.macs.state, bench.delivered) == (MacState.UNKNOWN, [])

    def test_plain_ack_of_a_stranger_does_not_downgrade(self) -> None:
        bench = Bench()
        bench.hear(KeepaliveAck(bench.token), peer=PEER)
        assert bench.node.macs.state is MacState.UNKNOWN

    def test_ack_of_another_stream_for_another_client_is_not_taken(self) -> None:
        bench = Bench()
        bench.ack(ELSEWHERE, token=bytes(16))
        assert bench.node.macs.state is MacState.UNKNOWN

    def test_ack_with_a_wrong_mac_is_dropped(self) -> None:
        bench = Bench()
        bench.hear(KeepaliveAck(bench.token, KEY.stream_id, bytes(16)))
        bench.hear(KeepaliveAck(bench.token, ELSEWHERE.stream_id, KEY.ack_mac(bench.token)))
        assert (bench.node.macs.state, bench.drops) == (MacState.UNKNOWN, {"mac_wrong": 2})

    def test_backbone_keeps_its_stream(self) -> None:
        bench = Bench()
        bench.ack()
        bench.ack(ELSEWHERE)
        bench.hear(*with_macs(1, 1, ELSEWHERE))
        assert (bench.delivered, bench.drops) == ([], {"mac_wrong": 2})

    @SIZES
    def test_messages_of_another_stream_with_the_same_secret_are_dropped(self, count: int) -> None:
        bench = Bench()
        bench.ack()
        bench.hear(*with_macs(1, count, ELSEWHERE))
        assert (bench.delivered, bench.drops) == ([], {"mac_wrong": count})

    @SIZES
    def test_forged_repair_is_dropped(self, count: int) -> None:
        bench = Bench()
        bench.ack()
        bench.hear(*with_macs(count + 1, 1))
        bench.wait(0.05)
        assert any(isinstance(packet, Request) for packet, _ in bench.sent)
        bench.hear(*plain(1, count), peer=PEER)
        bench.hear(*with_macs(1, count, ELSEWHERE), peer=PEER)
        assert bench.delivered == []
        bench.hear(*with_macs(1, count), peer=PEER)
        assert bench.delivered == list(range(1, count + 2))

    @given(st.lists(st.tuples(st.integers(1, 12), st.sampled_from("pwm"), st.booleans()), max_size=40), st.randoms())
    def test_result_does_not_depend_on_batches(self, arrivals: list[tuple[int, str, bool]], rng: Random) -> None:
        make = {"p": plain, "w": lambda first, count: with_macs(first, count, ELSEWHERE), "m": with_macs}
        packets = [(make[kind](number, 1)[0], PEER if is_repair else BACKBONE) for number, kind, is_repair in arrivals]
        together, singly = Bench(), Bench()
        together.ack()
        singly.ack()
        together.node.receive_batch(Batch.pack([(encode(packet), peer) for packet, peer in packets]), START)
        together.drain()
        for packet, peer in packets:
            singly.hear(packet, peer=peer)
        assert (together.delivered, together.drops) == (singly.delivered, singly.drops)


class TestRepairsOfOthers:
    @SIZES
    def test_forward_that_asks_for_macs_is_answered_with_macs(self, count: int) -> None:
        bench = Bench()
        bench.ack()
        bench.hear(*with_macs(1, count))
        bench.sent.clear()
        bench.hear(*[Forward(PEER, number, number, mac=True) for number in range(1, count + 1)])
        assert bench.sent == [(deliver, PEER) for deliver in with_macs(1, count)]

    @SIZES
    def test_forward_of_a_client_without_macs_is_answered_without(self, count: int) -> None:
        bench = Bench()
        bench.ack()
        bench.hear(*with_macs(1, count))
        bench.sent.clear()
        bench.hear(*[Forward(PEER, number, number) for number in range(1, count + 1)])
        assert bench.sent == [(deliver, PEER) for deliver in plain(1, count)]

    def test_client_that_has_not_agreed_cannot_answer_with_macs(self) -> None:
        bench = Bench()
        bench.hear(KeepaliveAck(bench.token))
        bench.hear(*plain(1, 1))
        bench.sent.clear()
        bench.hear(Forward(PEER, 1, 1, mac=True))
        assert bench.sent == []


class TestSeveralBackbones:
    def test_each_member_names_its_stream(self) -> None:
        bench = Bench((BACKBONE, OTHER))
        bench.ack()
        bench.hear(Leader(bench.token, 2, OTHER), peer=OTHER)
        bench.wait(1.0)
        bench.hear(*with_macs(1, 1), peer=OTHER)
        assert bench.delivered == []  # It follows a seam, which is open, so the message is held back.
        bench.hear(KeepaliveAck(bench.token), peer=OTHER)
        assert bench.drops["mac_missing"] == 1
        bench.ack(peer=OTHER)
        assert bench.node.macs.state is MacState.AGREED
