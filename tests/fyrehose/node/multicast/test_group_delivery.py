"""A backbone with a multicast group: whom it serves how, and what it sends again to all."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from fyrehose.by_hand import DrivenNode

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.node.backbone.backbone import Backbone
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RoundRobinForward
from fyrehose_twisted.fyrehose.node.backbone.sequencer import BackboneStart, KnownClient
from fyrehose_twisted.fyrehose.node.multicast.audience import BEACON_INTERVAL
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
    Packet,
    Push,
    Request,
    Status,
)

START = 1_700_000_000.0
GROUP: Address = ("239.1.1.1", 2324)
PUBLISHER: Address = ("192.0.2.200", 1)
PLAIN = Flags.NOJOURNAL | Flags.EXTENSIONS
WANTS = PLAIN | Flags.MULTICAST
HEARS = WANTS | Flags.HEARS


def client(number: int) -> Address:
    return f"192.0.2.{number}", 4_000


class Bench(DrivenNode):
    """A backbone, driven by hand."""

    def __init__(self, *, group: Address | None = GROUP, **options: Any) -> None:
        self.now = START
        config = BackboneConfig(multicast=group, **options)
        self.node = Backbone(config, RoundRobinForward(), BackboneStart(), now=START)
        self.sent: defaultdict[Address, list[Packet]] = defaultdict(list)

    def hear(self, peer: Address, *packets: Packet) -> None:
        self.receive(peer, packets)

    def join(self, number: int, flags: int) -> None:
        self.hear(client(number), Keepalive(flags=flags))

    def publish(self, *texts: bytes) -> None:
        self.hear(PUBLISHER, *(Push(text) for text in texts))

    def drain(self) -> None:
        for effect in self.node.drain().effects:
            for peer in effect.peers:
                self.sent[peer] += [decode(bytes(one)) for one in effect.iter_datagrams()]

    def delivered(self) -> dict[Address, list[int]]:
        """Remove and return the numbers of the DELIVERs sent, by destination."""
        sent, self.sent = self.sent, defaultdict(list)
        numbers = {peer: [one.sequence for one in some if isinstance(one, Deliver)] for peer, some in sent.items()}
        return {peer: some for peer, some in numbers.items() if some}

    def beacons(self) -> list[int]:
        return [one.listeners for one in self.sent[GROUP] if isinstance(one, Beacon)]


def test_one_deliver_for_all_that_hear_the_group_and_one_for_each_other_subscriber() -> None:
    bench = Bench()
    for number, flags in enumerate((HEARS, PLAIN, WANTS, HEARS, HEARS | Flags.NOSUBSCRIBE), 1):
        bench.join(number, flags)
    bench.publish(b"one", b"two")
    assert bench.delivered() == {GROUP: [1, 2], client(2): [1, 2], client(3): [1, 2]}
    counters = bench.node.counters
    assert (counters.published, counters.delivered, counters.multicast) == (2, 8, 2)
    assert counters.delivered_bytes == 24


def test_a_client_is_served_in_the_way_that_its_latest_keepalive_says() -> None:
    bench = Bench()
    for flags, destination in ((WANTS, client(1)), (HEARS, GROUP), (WANTS, client(1)), (HEARS, GROUP)):
        bench.join(1, flags)
        bench.publish(b"x")
        assert list(bench.delivered()) == [destination]
    bench.join(1, HEARS | Flags.NOSUBSCRIBE)
    bench.publish(b"x")
    assert bench.delivered() == {}


def test_a_client_that_has_expired_is_no_listener() -> None:
    bench = Bench()
    bench.join(1, HEARS)
    bench.join(2, PLAIN)
    bench.wait(3.0)
    bench.join(2, PLAIN)
    bench.wait(3.0)
    bench.publish(b"x")
    assert bench.delivered() == {client(2): [1]}
    assert bench.node.listener_count == 0
    assert bench.node.next_deadline() is not None


def test_a_backbone_without_a_group_serves_those_that_hear_one_too() -> None:
    bench = Bench(group=None)
    bench.join(1, HEARS)
    bench.publish(b"x")
    bench.wait(1.0)
    assert not bench.beacons()
    assert bench.delivered() == {client(1): [1]}


@pytest.mark.parametrize(
    ("flags", "announced"),
    [
        (WANTS, True),
        (HEARS, False),
        (PLAIN, False),
        (WANTS | Flags.NOSUBSCRIBE, False),
        (Flags.MULTICAST, True),
    ],
)
def test_the_group_is_announced_to_those_who_want_to_listen_and_do_not_hear_it(flags: int, announced: bool) -> None:
    bench = Bench()
    token = bytes(range(16))
    bench.hear(client(1), Keepalive(flags=flags, token=token))
    packets = bench.sent[client(1)]
    assert packets[-1] == KeepaliveAck(token)
    assert (Group(token, GROUP) in packets) == announced


def test_the_group_is_not_announced_over_ipv6() -> None:
    bench = Bench()
    bench.hear(("2001:db8::1", 4_000), Keepalive(flags=WANTS))
    assert [type(one) for one in bench.sent["2001:db8::1", 4_000]] == [Status, KeepaliveAck]


def test_beacons_are_sent_while_anyone_wants_to_listen() -> None:
    bench = Bench()
    bench.join(1, PLAIN)
    bench.wait(2.0)
    assert bench.beacons() == []
    bench.join(2, WANTS)
    bench.wait(0.0)
    assert bench.beacons() == [0], "at once"
    bench.join(3, HEARS)
    bench.wait(4 * BEACON_INTERVAL)
    assert bench.beacons() == [0, 1, 1, 1, 1]
    bench.wait(10.0)
    sent = len(bench.beacons())
    bench.wait(10.0)
    assert len(bench.beacons()) == sent, "all have left"


def test_a_clock_that_is_set_back_does_not_stop_the_beacons() -> None:
    bench = Bench()
    bench.join(1, WANTS)
    bench.wait(1.0)
    bench.sent.clear()
    bench.now -= 3_600.0
    bench.join(1, WANTS)
    bench.wait(1.0)
    assert len(bench.beacons()) >= 2


def test_clients_of_the_former_process_are_served_as_they_were() -> None:
    known = [
        KnownClient(client(number), client(number), flags, Dialect.V2, 0, START)
        for number, flags in ((1, int(HEARS)), (2, int(PLAIN)))
    ]
    bench = Bench()
    config, start = BackboneConfig(multicast=GROUP), BackboneStart(known_clients=known)
    bench.node = Backbone(config, RoundRobinForward(), start, now=START)
    bench.publish(b"x")
    assert bench.delivered() == {GROUP: [1], client(2): [1]}


def test_a_loss_that_200_share_is_repaired_for_the_first_and_once_for_all() -> None:
    bench = Bench(max_per_host=1_000)
    for number in range(1, 201):
        bench.join(number, HEARS)
    bench.publish(*(b"%d" % number for number in range(10)))
    bench.delivered()
    for number in range(1, 201):
        bench.hear(client(number), Request(ANY_ADDRESS, 3, 4))
        bench.now += 0.00002
    assert bench.delivered() == {**{client(number): [3, 4] for number in range(1, 6)}, GROUP: [3, 4]}
    counters = bench.node.counters
    assert (counters.repaired_for_all, counters.gathered, counters.requests) == (2, 2 * 194, 200)
    assert bench.node.repair_dispatcher.retransmitted == 12


def test_losses_of_single_clients_are_repaired_for_these_alone() -> None:
    bench = Bench()
    for number in (1, 2, 3):
        bench.join(number, HEARS)
    bench.join(4, PLAIN)
    bench.publish(*(b"%d" % number for number in range(10)))
    bench.delivered()
    for number in (1, 2, 3, 4):
        bench.hear(client(number), Request(ANY_ADDRESS, number, number), Request(ANY_ADDRESS, 4 + number, 4 + number))
    assert bench.delivered() == {client(number): [number, 4 + number] for number in (1, 2, 3, 4)}
    bench.hear(client(1), Request(ANY_ADDRESS, 4, 4))
    assert bench.delivered() == {client(1): [4]}, "the first that hears the group and asks for it"


def test_messages_from_before_a_client_joined_are_not_sent_to_the_group() -> None:
    bench = Bench()
    bench.publish(*(b"%d" % number for number in range(10)))
    for number in (1, 2, 3):
        bench.join(number, HEARS)
    bench.publish(*(b"%d" % number for number in range(10)))
    bench.delivered()
    for number in (1, 2, 3):
        bench.hear(client(number), Request(ANY_ADDRESS, 8, 12))
    sent = bench.delivered()
    assert sent.pop(GROUP) == [11, 12]
    assert sent == {client(1): [8, 9, 10, 11, 12], client(2): [8, 9, 10], client(3): [8, 9, 10]}


def test_requests_in_one_batch_are_answered_as_one_by_one() -> None:
    bench = Bench()
    bench.join(1, HEARS)
    bench.join(2, HEARS)
    bench.publish(*(b"%d" % number for number in range(10)))
    bench.delivered()
    asked = [Request(ANY_ADDRESS, number, number) for number in (2, 4, 6)]
    bench.hear(client(1), *asked)
    bench.hear(client(2), *asked)
    assert bench.delivered() == {client(1): [2, 4, 6], GROUP: [2, 4, 6]}


def test_a_publisher_that_hears_the_group_gets_its_confirmation_there() -> None:
    bench = Bench()
    bench.join(1, HEARS)
    bench.hear(client(1), Push(b"x", confirm=True))
    assert bench.delivered() == {GROUP: [1]}
    bench.hear(client(2), Push(b"y", confirm=True))
    assert bench.delivered() == {GROUP: [2], client(2): [2]}


@pytest.mark.parametrize(
    "group",
    [("192.0.2.1", 2324), ("224.0.0.251", 5353), ("ff15::1", 2324), ("239.1.1.1", 0), ("multicast.example", 2324)],
)
def test_an_address_that_is_no_group_of_a_site_is_refused(group: Address) -> None:
    with pytest.raises(ConfigurationError, match="not an IPv4 multicast group and a port"):
        BackboneConfig(multicast=group)


def test_destinations_are_the_same_object_until_they_change() -> None:
    bench = Bench()
    bench.join(1, HEARS)
    bench.join(2, PLAIN)
    table = bench.node._client_table
    assert table.subscribers is table.subscribers
    before = table.subscribers
    bench.join(3, HEARS)
    assert table.subscribers is before
    bench.join(4, PLAIN)
    assert Counter(table.subscribers) == Counter([GROUP, client(2), client(4)])
