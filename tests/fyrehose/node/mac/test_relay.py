"""Relays with a secret for each side."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig, MacPolicy
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward
from fyrehose_twisted.fyrehose.node.mac.agreement import MacState
from fyrehose_twisted.fyrehose.node.relay.downstream import RelayDownstream
from fyrehose_twisted.fyrehose.node.relay.relay import Relay
from fyrehose_twisted.fyrehose.node.relay.upstream import RelayUpstream
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.mac import MacKey, make_stream_id
from fyrehose_twisted.fyrehose.wire.packets import (
    Deliver,
    Flags,
    Forward,
    Keepalive,
    KeepaliveAck,
    Packet,
    Request,
    Status,
)
from fyrehose_twisted.fyrehose.wire.token import make_token

START = 1_700_000_000.0
PARENT: Address = ("192.0.2.1", 2323)
OWN: Address = ("192.0.2.2", 2324)
ALICE: Address = ("192.0.2.7", 4001)
BOB: Address = ("192.0.2.8", 4002)
ABOVE, BELOW = b"the secret of the backbone", b"the secret of the relay's clients"
STREAM_ID = make_stream_id("fyrehose://prices")
ABOVE_KEY, BELOW_KEY = MacKey(ABOVE, STREAM_ID), MacKey(BELOW, STREAM_ID)
SIZES = pytest.mark.parametrize("count", [1, 20], ids=["singly", "in a run"])


class Bench:
    """A relay whose parent and clients have different secrets, driven by hand."""

    def __init__(self) -> None:
        policy = RandomForward(Random(1))
        config = BackboneConfig(secret=BELOW, stream="fyrehose://prices")
        self.below = RelayDownstream(config, policy, own_address=lambda peer: OWN, now=START)
        client = ClientConfig(raw=True, start=1, secret=ABOVE, mac=MacPolicy.REQUIRE, address=OWN)
        self.above = RelayUpstream(PARENT, client, self.below, Random(1), START)
        self.sent: defaultdict[Address, list[Packet]] = defaultdict(list)
        self.above.tick(START)
        self.drain()
        (keepalive,) = self.sent.pop(PARENT)
        assert isinstance(keepalive, Keepalive)
        token = keepalive.token
        self.hear_above(Status(token, 0, 0), KeepaliveAck(token, STREAM_ID, ABOVE_KEY.ack_mac(token)))
        assert self.above.macs.state is MacState.AGREED

    def join(self, peer: Address, flags: int = Flags.MAC) -> list[Packet]:
        self.hear_below(peer, Keepalive(peer, flags, make_token(BELOW, peer, flags, START)))
        return self.sent.pop(peer, [])

    def hear_above(self, *packets: Packet, peer: Address = PARENT) -> None:
        self.above.receive_batch(Batch.pack([(encode(packet), peer) for packet in packets]), START)
        self.drain()

    def hear_below(self, peer: Address, *packets: Packet) -> None:
        self.below.receive_batch(Batch.pack([(encode(packet), peer) for packet in packets]), START)
        self.drain()

    def drain(self) -> None:
        for _ in range(2):
            for node in (self.above, self.below):
                for effect in node.drain().effects:
                    for peer in effect.peers:
                        self.sent[peer] += [decode(bytes(one)) for one in effect.iter_datagrams()]


def with_macs(key: MacKey, count: int) -> list[Deliver]:
    return [Deliver(number, b"same", mac=key.deliver_mac(number, b"same")) for number in range(1, count + 1)]


@SIZES
def test_messages_of_the_parent_get_new_macs(count: int) -> None:
    bench = Bench()
    (ack,) = bench.join(ALICE)
    assert isinstance(ack, KeepaliveAck)
    assert BELOW_KEY.is_valid_ack(ack)
    bench.join(BOB, Flags.NONE)
    bench.hear_above(*with_macs(ABOVE_KEY, count))
    assert bench.sent[ALICE] == with_macs(BELOW_KEY, count)
    assert bench.sent[BOB] == [Deliver(number, b"same") for number in range(1, count + 1)]
    bench.sent.clear()
    bench.hear_below(ALICE, Request(ALICE, 1, count))
    assert bench.sent[ALICE] == with_macs(BELOW_KEY, count)


@SIZES
def test_messages_that_the_parent_did_not_send_are_not_passed_on(count: int) -> None:
    bench = Bench()
    bench.join(ALICE)
    bench.hear_above(*[Deliver(number, b"same") for number in range(1, count + 1)])
    bench.hear_above(*with_macs(BELOW_KEY, count))
    assert ALICE not in bench.sent
    assert dict(bench.above.drops.counts) == {"mac_missing": count, "mac_wrong": count}


def test_relay_asks_its_parent_and_passes_only_proven_answers_on() -> None:
    bench = Bench()
    bench.join(ALICE)
    bench.hear_above(Deliver(5, b"same", mac=ABOVE_KEY.deliver_mac(5, b"same")))
    bench.sent.clear()
    bench.hear_below(ALICE, Request(ALICE, 1, 2))
    forged, proven = Deliver(1, b"forged"), with_macs(ABOVE_KEY, 2)
    bench.hear_above(forged)
    assert ALICE not in bench.sent or all(not isinstance(packet, Deliver) for packet in bench.sent[ALICE])
    bench.hear_above(*proven)
    delivered = [packet for packet in bench.sent[ALICE] if isinstance(packet, Deliver)]
    assert delivered == with_macs(BELOW_KEY, 2)


@pytest.mark.parametrize(
    ("flags", "answer", "passed"),
    [
        (Flags.MAC, with_macs(BELOW_KEY, 1)[0], True),
        (Flags.MAC, with_macs(ABOVE_KEY, 1)[0], False),
        (Flags.MAC, Deliver(1, b"same"), False),
        (Flags.NONE, Deliver(1, b"same"), False),
    ],
)
def test_answer_of_a_client_is_passed_on_only_with_a_mac(flags: int, answer: Deliver, passed: bool) -> None:
    bench = Bench()
    bench.join(ALICE)
    bench.join(BOB, flags)
    bench.hear_above(Deliver(5, b"same", mac=ABOVE_KEY.deliver_mac(5, b"same")))
    bench.below.stream_began(5)
    bench.hear_below(ALICE, Request(ALICE, 1, 1))
    bench.sent.clear()
    bench.hear_below(BOB, answer)
    assert bench.sent[ALICE] == (with_macs(BELOW_KEY, 1) if passed else [])


def test_relay_with_one_socket_tells_the_types_with_macs_apart() -> None:
    client = ClientConfig(raw=True, start=1, secret=ABOVE, mac=MacPolicy.REQUIRE, address=OWN)
    config = BackboneConfig(secret=BELOW, stream="fyrehose://prices")
    relay = Relay(PARENT, config, client, RandomForward(Random(1)), Random(1), START)
    relay.tick(START)
    (send,) = relay.drain().effects
    keepalive = decode(bytes(next(iter(send.iter_datagrams()))))
    assert isinstance(keepalive, Keepalive)
    ack = KeepaliveAck(keepalive.token, STREAM_ID, ABOVE_KEY.ack_mac(keepalive.token))
    fetched = Deliver(2, b"same", True, ABOVE_KEY.deliver_mac(2, b"same"))
    packets = (ack, *with_macs(ABOVE_KEY, 1), fetched, Forward(ALICE, 1, 1, mac=True))
    relay.receive_batch(Batch.pack([(encode(packet), PARENT) for packet in packets]), START)
    assert relay.upstream.counters.received == 2
    assert dict(relay.downstream.drops.counts) == {}
    sends = [effect for effect in relay.drain().effects if effect.peers == (ALICE,)]
    assert [decode(bytes(one)) for effect in sends for one in effect.iter_datagrams()] == with_macs(ABOVE_KEY, 1)
