"""Backbones that add MACs to what they send."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from fyrehose.by_hand import DrivenNode

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.node.backbone.backbone import Backbone, BackboneState
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward
from fyrehose_twisted.fyrehose.node.backbone.sequencer import BackboneStart
from fyrehose_twisted.fyrehose.wire.codec import decode
from fyrehose_twisted.fyrehose.wire.mac import MAX_WITH_MAC, MacKey, make_stream_id
from fyrehose_twisted.fyrehose.wire.packets import (
    MAC_SIZE,
    MAX_DELIVERABLE,
    MAX_SEQUENCE,
    Beacon,
    Deliver,
    Flags,
    Forward,
    Group,
    Keepalive,
    KeepaliveAck,
    Packet,
    Push,
    Request,
)
from fyrehose_twisted.fyrehose.wire.token import make_token

START = 1_700_000_000.0
OWN: Address = ("192.0.2.1", 2323)
ALICE: Address = ("192.0.2.7", 4001)
BOB: Address = ("192.0.2.8", 4002)
CAROL: Address = ("192.0.2.9", 4003)
DORA: Address = ("2001:db8::4", 4004)
GROUP: Address = ("239.1.1.1", 2324)
SECRET = b"sixteen bytes and a few"
STREAM = "fyrehose://prices"
KEY = MacKey(SECRET, make_stream_id(STREAM))
MAC, NONE = Flags.MAC, Flags.NONE
SIZES = pytest.mark.parametrize("count", [1, 20], ids=["singly", "in a run"])


class Bench(DrivenNode):
    """A backbone with a secret, driven by hand."""

    def __init__(self, *, last: int = 0, settle: float | None = None, **options: Any) -> None:
        self.now = START
        options = {"secret": SECRET, "stream": STREAM} | options
        start = BackboneStart(
            last=last, bound=last, settle_until=None if settle is None else START + settle, query_clients=bool(settle)
        )
        self.node = Backbone(
            BackboneConfig(**options), RandomForward(Random(1)), start, own_address=lambda peer: OWN, now=START
        )
        self.sent: defaultdict[Address, list[Packet]] = defaultdict(list)
        self.raw: list[bytes] = []
        self.sends = 0

    def join(self, peer: Address, flags: int = MAC) -> list[Packet]:
        self.sent.clear()
        self.hear(peer, Keepalive(peer, flags, make_token(SECRET, peer, flags, self.now)))
        return self.sent.pop(peer, [])

    def hear(self, peer: Address, *packets: Packet) -> None:
        self.receive(peer, packets)

    def drain(self) -> None:
        for effect in self.node.drain().effects:
            self.sends += 1
            for peer in effect.peers:
                self.raw += map(bytes, effect.iter_datagrams())
                self.sent[peer] += [decode(bytes(one)) for one in effect.iter_datagrams()]

    def take(self, peer: Address) -> list[Packet]:
        return self.sent.pop(peer, [])

    @property
    def drops(self) -> dict[str, int]:
        return dict(self.node.drops.counts)


def deliver(number: int, data: bytes = b"a", *, fetched: bool = False) -> Deliver:
    return Deliver(number, data, fetched, KEY.deliver_mac(number, data))


class TestAgreement:
    def test_ack_of_a_client_that_wants_macs_names_the_stream_and_has_a_mac(self) -> None:
        bench = Bench()
        token = make_token(SECRET, ALICE, MAC, START)
        assert bench.join(ALICE) == [KeepaliveAck(token, KEY.stream_id, KEY.ack_mac(token))]

    def test_others_get_what_they_always_got(self) -> None:
        bench = Bench()
        assert bench.join(ALICE, NONE) == [KeepaliveAck(make_token(SECRET, ALICE, NONE, START))]
        bench.hear(ALICE, Push(b"a"))
        assert bench.raw[-1] == b"\x01\x00\x01\x00\x00\x00\x00\x00\x01a"

    def test_without_a_secret_nobody_gets_macs(self) -> None:
        bench = Bench(secret=None)
        assert not any(packet.mac for packet in bench.join(ALICE) if isinstance(packet, KeepaliveAck))
        bench.hear(ALICE, Push(b"a"))
        assert (bench.take(ALICE), bench.node.mac_clients) == ([Deliver(1, b"a")], 0)

    def test_new_secret_makes_other_macs(self) -> None:
        bench = Bench()
        bench.join(ALICE)
        new = b"another secret of enough bytes"
        bench.node.reconfigure(BackboneConfig(secret=new, stream=STREAM))
        bench.hear(ALICE, Push(b"a"))
        mac = MacKey(new, make_stream_id(STREAM)).deliver_mac(1, b"a")
        assert bench.take(ALICE) == [Deliver(1, b"a", mac=mac)]


class TestDelivery:
    @SIZES
    def test_each_gets_what_it_wants(self, count: int) -> None:
        bench = Bench()
        for peer, flags in ((ALICE, MAC), (BOB, NONE), (CAROL, MAC)):
            bench.join(peer, flags)
        bench.hear(BOB, *[Push(b"a")] * count)
        numbers = range(1, count + 1)
        assert bench.take(ALICE) == bench.take(CAROL) == [deliver(number) for number in numbers]
        assert bench.take(BOB) == [Deliver(number, b"a") for number in numbers]
        assert (bench.node.counters.delivered, bench.node.mac_clients) == (3 * count, 2)

    @SIZES
    def test_a_batch_is_sent_once_to_each_kind(self, count: int) -> None:
        bench = Bench()
        bench.join(ALICE)
        bench.join(BOB, NONE)
        bench.sends = 0
        bench.hear(BOB, *[Push(b"a" * (1 + row % 2)) for row in range(count)])
        assert bench.sends == 2
        assert [packet.sequence for packet in bench.take(ALICE) if isinstance(packet, Deliver)] == [
            *range(1, count + 1)
        ]

    def test_replies_stay_between_the_messages(self) -> None:
        bench = Bench()
        bench.join(ALICE)
        bench.join(BOB, NONE)
        for peer, flags in ((ALICE, MAC), (BOB, NONE)):
            again = Keepalive(peer, flags, make_token(SECRET, peer, flags, START))
            bench.sent.clear()
            first = len(bench.raw)
            bench.hear(peer, Push(b"a"), again, Push(b"b"))
            kinds = [type(packet) for packet in bench.take(peer)]
            assert kinds == [Deliver, KeepaliveAck, Deliver], bench.raw[first:]

    def test_client_may_change_its_mind(self) -> None:
        bench = Bench()
        bench.join(ALICE)
        bench.join(ALICE, NONE)
        bench.hear(ALICE, Push(b"a"))
        bench.join(ALICE)
        bench.hear(ALICE, Push(b"a"))
        assert bench.take(ALICE) == [deliver(2)]
        assert bench.node.counters.delivered == 2

    def test_expired_client_gets_nothing(self) -> None:
        bench = Bench()
        bench.join(ALICE)
        bench.now += 5.5
        bench.join(BOB, NONE)
        bench.hear(BOB, Push(b"a"))
        assert (bench.take(ALICE), bench.node.mac_clients) == ([], 0)

    def test_confirmation_has_a_mac(self) -> None:
        bench = Bench()
        bench.join(ALICE, MAC | Flags.NOSUBSCRIBE)
        bench.hear(ALICE, Push(b"a", confirm=True))
        assert bench.take(ALICE) == [deliver(1)]

    def test_only_subscribers_that_want_macs_lower_the_limit_of_a_message(self) -> None:
        bench = Bench()
        bench.join(BOB, NONE)
        bench.hear(BOB, Push(bytes(MAX_DELIVERABLE)))
        assert len(bench.take(BOB)) == 1
        bench.join(ALICE)
        for count in (1, 2):
            bench.hear(BOB, *[Push(bytes(MAX_WITH_MAC + 1))] * count)
        bench.hear(BOB, Push(bytes(MAX_WITH_MAC)))
        assert (len(bench.take(ALICE)), bench.drops) == (1, {"too_long": 3})
        assert max(map(len, bench.raw)) == 65_507

    def test_retransmission_of_what_is_too_large_is_left_out(self) -> None:
        bench = Bench()
        bench.join(BOB, NONE)
        bench.hear(BOB, Push(bytes(MAX_WITH_MAC + 1)), Push(b"a"))
        bench.join(ALICE)
        bench.hear(ALICE, Request(ALICE, 1, 2))
        assert bench.take(ALICE) == [deliver(2)]


class TestMulticast:
    def test_group_gets_macs_and_only_clients_that_want_them_listen(self) -> None:
        bench = Bench(multicast=GROUP)
        listens = Flags.MULTICAST | Flags.EXTENSIONS
        assert any(isinstance(packet, Group) for packet in bench.join(ALICE, MAC | listens))
        assert not any(isinstance(packet, Group) for packet in bench.join(BOB, listens))
        bench.join(ALICE, MAC | listens | Flags.HEARS)
        bench.join(BOB, listens | Flags.HEARS)
        bench.join(CAROL)
        bench.hear(CAROL, Push(b"a"))
        group = [packet for packet in bench.take(GROUP) if not isinstance(packet, Beacon)]
        assert (group, bench.take(CAROL), bench.take(ALICE)) == ([deliver(1)], [deliver(1)], [])
        assert (bench.take(BOB), bench.node.counters.delivered) == ([Deliver(1, b"a")], 3)

    def test_repair_for_all_has_macs(self) -> None:
        bench = Bench(multicast=GROUP)
        flags = MAC | Flags.MULTICAST | Flags.EXTENSIONS | Flags.HEARS
        bench.join(ALICE, flags)
        bench.join(CAROL, flags)
        bench.hear(ALICE, Push(b"a"))
        bench.sent.clear()
        bench.hear(ALICE, Request(ALICE, 1, 1))
        bench.hear(CAROL, Request(CAROL, 1, 1))
        assert (bench.take(ALICE), bench.take(GROUP)) == ([deliver(1)], [deliver(1)])


class TestRepairs:
    @SIZES
    def test_retransmissions_have_macs_for_those_who_want_them(self, count: int) -> None:
        bench = Bench()
        bench.join(ALICE)
        bench.join(BOB, NONE)
        bench.hear(BOB, *[Push(b"a")] * count)
        bench.sent.clear()
        for peer in (ALICE, BOB):
            bench.hear(peer, *[Request(peer, number, number) for number in range(1, count + 1)])
        assert bench.take(ALICE) == [deliver(number) for number in range(1, count + 1)]
        assert bench.take(BOB) == [Deliver(number, b"a") for number in range(1, count + 1)]

    @pytest.mark.parametrize(
        ("requester", "repairer", "expected"),
        [
            (MAC, MAC, Forward(ALICE, 1, 5, mac=True)),
            (NONE, MAC, Forward(ALICE, 1, 5)),
            (NONE, NONE, Forward(ALICE, 1, 5)),
            (MAC, NONE, None),
        ],
    )
    def test_client_is_asked_to_repair_as_the_requester_wants_it(
        self, requester: int, repairer: int, expected: Forward | None
    ) -> None:
        bench = Bench(last=5)
        bench.join(ALICE, requester)
        bench.join(BOB, repairer)
        bench.hear(ALICE, Request(ALICE, 1, 5))
        assert bench.take(BOB) == ([] if expected is None else [expected])

    def test_client_with_macs_is_chosen_among_many_without(self) -> None:
        bench = Bench(last=5, max_per_host=100)
        bench.join(ALICE)
        bench.join(CAROL)
        for port in range(20):
            bench.join(("192.0.2.100", port + 1), NONE)
        bench.sent.clear()
        bench.hear(ALICE, Request(ALICE, 1, 5))
        assert dict(bench.sent) == {CAROL: [Forward(ALICE, 1, 5, mac=True)]}

    def test_client_that_makes_macs_no_longer_has_left_those_that_want_them(self) -> None:
        bench = Bench()
        bench.join(ALICE)
        before = bench.node._client_table.departures
        bench.join(ALICE, NONE)
        assert bench.node._client_table.departures == before + 1

    def _fetch(self, requester: int, repairer: int) -> Bench:
        """Have the backbone ask a client of another IP version, which cannot send to the requester."""
        bench = Bench(last=5)
        bench.node._own_address = lambda peer: ("2001:db8::1", 2323)
        bench.node.repair_dispatcher.fetcher._own_address = bench.node._own_address
        bench.join(ALICE, requester | Flags.IPV4)
        bench.join(DORA, repairer | Flags.IPV6)
        bench.hear(ALICE, Request(ALICE, 1, 5))
        return bench

    def test_fetched_message_keeps_its_mac(self) -> None:
        bench = self._fetch(MAC, MAC)
        assert bench.take(DORA) == [Forward(("2001:db8::1", 2323), 1, 5, mac=True)]
        bench.hear(DORA, deliver(1), deliver(2))
        assert bench.take(ALICE) == [deliver(1, fetched=True), deliver(2, fetched=True)]

    @pytest.mark.parametrize(
        ("answer", "reason"),
        [(Deliver(1, b"a"), "mac_missing"), (Deliver(1, b"a", mac=bytes(MAC_SIZE)), "mac_wrong")],
    )
    def test_forged_answer_to_the_backbone_gets_no_mac(self, answer: Deliver, reason: str) -> None:
        bench = self._fetch(MAC, MAC)
        bench.hear(DORA, answer)
        assert (bench.take(ALICE), bench.drops) == ([], {reason: 1})

    def test_answer_without_a_mac_does_not_get_one_of_the_backbone(self) -> None:
        bench = self._fetch(MAC | Flags.NOJOURNAL, NONE)
        assert bench.take(DORA) == []
        bench.join(BOB, Flags.IPV4 | Flags.NOJOURNAL)
        bench.hear(BOB, Request(BOB, 1, 5))
        bench.node.repair_dispatcher.fetcher.fetch(DORA, ALICE, 1, 5, bench.now)
        bench.hear(DORA, Deliver(1, b"a"))
        assert (bench.take(BOB), bench.take(ALICE)) == ([Deliver(1, b"a", fetched=True)], [])

    def test_deliver_with_a_mac_of_an_unknown_sender_is_not_believed(self) -> None:
        bench = self._fetch(MAC, MAC)
        bench.hear(("198.51.100.1", 1), Deliver(1, b"a", mac=bytes(MAC_SIZE)))
        assert (bench.take(ALICE), bench.drops) == ([], {"mac_wrong": 1})

    @pytest.mark.parametrize("answer", [Deliver(1, b"a"), Deliver(1, b"a", mac=bytes(MAC_SIZE))])
    def test_forged_claim_does_not_stop_the_stream(self, answer: Deliver) -> None:
        bench = Bench(settle=2.0)
        assert Forward(OWN, 1, MAX_SEQUENCE, mac=True) in bench.join(ALICE)
        bench.hear(ALICE, answer)
        assert bench.node.state is BackboneState.SETTLING
        bench.hear(ALICE, deliver(1))
        assert bench.node.state is BackboneState.REFUSING


def test_flags_of_all_sorts_give_each_client_each_message_once() -> None:
    rng, bench, peers = Random(1), Bench(multicast=GROUP, max_per_host=100), list[Address]()
    flags: dict[Address, int] = {}
    listens = int(Flags.MULTICAST | Flags.HEARS)
    numbers: Sequence[int] = range(1, 41)
    for number in numbers:
        peer = ("192.0.2.100", rng.randrange(1, 12))
        peers.append(peer)
        flags[peer] = (
            rng.choice((0, 0, listens)) | rng.choice((0, int(MAC))) | rng.choice((0, 0, int(Flags.NOSUBSCRIBE)))
        )
        bench.join(peer, flags[peer])
        bench.sent.clear()
        bench.hear(peer, Push(b"a"))
        group = [packet for packet in bench.take(GROUP) if isinstance(packet, Deliver)]
        assert group in ([], [deliver(number)])
        for one, wants in flags.items():
            hears = bool(wants & listens and wants & MAC)
            expected = deliver(number) if wants & MAC else Deliver(number, b"a")
            is_served = not wants & Flags.NOSUBSCRIBE
            assert bench.take(one) == ([expected] if is_served and not hears else [])
            assert not (is_served and hears) or group
