"""Clients over IPv6: what they tell the backbone, and how they take what is new to the documents."""

from __future__ import annotations

from random import Random

import pytest

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import MessagesDelivered
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.packets import (
    Deliver,
    Dialect,
    Flags,
    Forward,
    Keepalive,
    KeepaliveAck,
    Packet,
    Request,
)
from fyrehose_twisted.fyrehose.wire.token import token_is_valid

START = 1_700_000_000.0
BACKBONE: Address = ("2001:db8::1", 2323)
REQUESTER: Address = ("2001:db8::7", 4001)
OWN: Address = ("2001:db8::8", 4002)
SECRET = b"sixteen bytes and a few"


class Bench:
    """A client, driven by hand."""

    def __init__(self, config: ClientConfig | None = None, *, joined: bool = True) -> None:
        self.now = START
        self.node = Client(BACKBONE, ClientConfig(start=1) if config is None else config, Random(1), START)
        self.sent: dict[Address, list[Packet]] = {}
        self.numbers: list[int] = []
        self.node.tick(self.now)
        self.drain()
        (keepalive,) = self.sent.pop(BACKBONE)
        assert isinstance(keepalive, Keepalive)
        self.keepalive = keepalive
        if joined:
            self.hear(BACKBONE, KeepaliveAck(keepalive.token))

    def hear(self, peer: Address, *packets: Packet) -> None:
        self.node.receive_batch(Batch.pack([(encode(packet), peer) for packet in packets]), self.now)
        self.drain()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.node.tick(self.now)
        self.drain()

    def drain(self) -> None:
        outputs = self.node.drain()
        for effect in outputs.effects:
            for peer in effect.peers:
                self.sent.setdefault(peer, []).extend(decode(bytes(one)) for one in effect.iter_datagrams())
        for event in outputs.events:
            if isinstance(event, MessagesDelivered):
                self.numbers += [message.sequence for message in event.messages]


@pytest.mark.parametrize(
    ("versions", "flags"),
    [((), Flags.NONE), ((4,), Flags.IPV4), ((6,), Flags.IPV6), ((4, 6), Flags.IPV4 | Flags.IPV6)],
)
def test_a_client_tells_to_which_ip_versions_it_can_send(versions: tuple[int, ...], flags: Flags) -> None:
    assert Bench(ClientConfig(ip_versions=versions)).keepalive.flags == Flags.EXTENSIONS | flags


def test_a_client_of_version_1_has_no_flags_over_ipv6_either() -> None:
    bench = Bench(ClientConfig(dialect=Dialect.V1, ip_versions=(4, 6)), joined=False)
    assert bench.keepalive == Keepalive(token=b"", dialect=Dialect.V1)


def test_with_a_secret_keepalives_and_requests_have_the_explicit_ipv6_address() -> None:
    bench = Bench(ClientConfig(start=1, secret=SECRET, address=OWN))
    assert bench.keepalive.address == OWN
    assert token_is_valid(SECRET, bench.keepalive, bench.now)
    bench.hear(BACKBONE, Deliver(1, b"1"), Deliver(3, b"3"))
    bench.wait(0.1)
    assert Request(OWN, 2, 2) in bench.sent[BACKBONE]


def test_a_forward_with_an_ipv6_address_is_answered_there() -> None:
    bench = Bench()
    bench.hear(BACKBONE, *(Deliver(number, b"%d" % number) for number in range(1, 6)))
    bench.sent.clear()
    bench.hear(BACKBONE, *(Forward(REQUESTER, number, number) for number in (2, 4, 9)))
    assert bench.sent == {REQUESTER: [Deliver(2, b"2"), Deliver(4, b"4")]}
    bench.hear(REQUESTER, Forward(REQUESTER, 1, 1))
    assert bench.node.drops.counts["foreign_forward"] == 1


def test_a_fetched_message_repairs_a_gap_but_is_not_the_word_of_the_backbone() -> None:
    bench = Bench()
    bench.hear(BACKBONE, Deliver(1, b"1"), Deliver(4, b"4"))
    bench.hear(BACKBONE, Deliver(2, b"unasked", fetched=True), Deliver(9, b"far", fetched=True))
    assert bench.numbers == [1]
    bench.wait(0.1)
    assert Request(("0.0.0.0", 0), 2, 3) in bench.sent[BACKBONE]
    bench.hear(BACKBONE, Deliver(2, b"2", fetched=True), Deliver(3, b"forged", fetched=True))
    assert bench.numbers == [1, 2, 3, 4]
    bench.hear(BACKBONE, Deliver(3, b"3"))
    assert bench.node.drops.counts["false_repair"] == 1, "the backbone itself is right"
    bench.hear(BACKBONE, *(Deliver(number, b"another", fetched=True) for number in (1, 2, 3, 4)))
    assert bench.node.drops.counts["false_repair"] == 1
    bench.hear(BACKBONE, Deliver(5, b"5"))
    assert bench.numbers == [1, 2, 3, 4, 5], "and nothing that was fetched can stop the stream"
