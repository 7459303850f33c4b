"""Choice of repairers by the IP versions that they can send to, and messages that the backbone fetches for others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.node.backbone.backbone import SETTLE_TIME, Backbone
from fyrehose_twisted.fyrehose.node.backbone.client_table import ClientTable
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RoundRobinForward
from fyrehose_twisted.fyrehose.node.backbone.repair_fetching import FETCH_TIME, MAX_PEERS, MAX_RANGES, RepairFetcher
from fyrehose_twisted.fyrehose.node.backbone.sequencer import BackboneStart
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.packets import (
    ANY_ADDRESS,
    MAX_SEQUENCE,
    Deliver,
    Dialect,
    Flags,
    Forward,
    Keepalive,
    Packet,
    Request,
)
from fyrehose_twisted.fyrehose.wire.token import make_token

START = 1_700_000_000.0
OWN4, OWN6 = ("192.0.2.1", 2323), ("2001:db8::1", 2323)
GIVEN = 1_000
"""Last number assigned, no longer in the retransmit buffer."""
SECRET = b"sixteen bytes and a few"
FOUR, SIX, BOTH = Flags.IPV4, Flags.IPV6, Flags.IPV4 | Flags.IPV6
MUTE = Flags.NOSUBSCRIBE | Flags.NOJOURNAL

REQUESTERS: dict[str, Address] = {"v4": ("192.0.2.7", 1), "v6": ("2001:db8::7", 1), "link": ("fe80::7%eth0", 1)}
HOLDERS: dict[str, tuple[Address, Flags]] = {
    "documents v4": (("192.0.2.20", 4), Flags.NONE),
    "documents v6": (("2001:db8::20", 6), Flags.NONE),
    "v4": (("192.0.2.21", 4), FOUR),
    "v6": (("2001:db8::21", 6), SIX),
    "both over v4": (("192.0.2.22", 4), BOTH),
    "both over v6": (("2001:db8::22", 6), BOTH),
}
DIRECT = {("v4", name) for name in ("documents v4", "v4", "both over v4", "both over v6")} | {
    ("v6", name) for name in ("v6", "both over v4", "both over v6")
}
"""Requesters with the holders that can send to them."""


def own_address(peer: Address) -> Address:
    return OWN6 if ":" in peer[0] else OWN4


class Bench:
    """A backbone that has no messages in memory."""

    def __init__(self, *, settle: float | None = None, **options: object) -> None:
        self.now = START
        start = BackboneStart(
            last=GIVEN if settle is None else 0,
            bound=2 * GIVEN,
            settle_until=None if settle is None else START + settle,
            query_clients=settle is not None,
        )
        config = BackboneConfig(**options)  # type: ignore[arg-type]
        self.node = Backbone(config, RoundRobinForward(), start, own_address=own_address, now=START)
        self.sent: defaultdict[Address, list[bytes]] = defaultdict(list)

    def hear(self, peer: Address, *packets: Packet) -> None:
        self.node.receive_batch(Batch.pack([(encode(packet), peer) for packet in packets]), self.now)
        for effect in self.node.drain().effects:
            for to in effect.peers:
                self.sent[to] += map(bytes, effect.iter_datagrams())

    def join(self, peer: Address, flags: int = Flags.NONE) -> None:
        self.hear(peer, Keepalive(flags=flags))
        self.sent.clear()

    def to(self, peer: Address) -> list[Packet]:
        return [decode(datagram) for datagram in self.sent.pop(peer, ())]


@pytest.mark.parametrize(("requester", "holder"), [*product(REQUESTERS, HOLDERS)])
def test_a_holder_repairs_directly_or_through_the_backbone(requester: str, holder: str) -> None:
    bench, asker, (peer, flags) = Bench(), REQUESTERS[requester], HOLDERS[holder]
    bench.join(asker, MUTE)
    bench.join(peer, flags)
    bench.hear(asker, Request(ANY_ADDRESS, 5, 6))
    if (requester, holder) in DIRECT:
        assert bench.to(peer) == [Forward(asker, 5, 6)]
        bench.hear(peer, Deliver(5, b"five"))
        assert not bench.sent
        assert bench.node.drops.counts == {"unexpected": 1}
    elif holder == "documents v6":
        assert not bench.sent, "it understands no FORWARD for any host that it can reach"
        assert bench.node.drops.counts == {"request_unanswerable": 1}
    else:
        assert bench.to(peer) == [Forward(own_address(peer), 5, 6)]
        bench.hear(peer, Deliver(5, b"five"))
        assert bench.to(asker) == [Deliver(5, b"five")], "as a client of the documents understands it"
        assert bench.node.counters.fetched == 1
    assert not bench.sent


def test_a_client_of_the_documents_never_receives_the_types_of_ipv6() -> None:
    bench = Bench()
    for address, _ in HOLDERS.values():
        bench.join(address)
    for number, (name, asker) in enumerate(REQUESTERS.items()):
        bench.join(asker)
        for attempt in range(20):
            bench.now += 0.5
            bench.hear(asker, Request(ANY_ADDRESS, 5 + number, 5 + number))
            for peer, datagrams in bench.sent.items():
                assert {datagram[0] for datagram in datagrams} <= {0x01, 0x08}, (name, attempt, peer)
            for peer in list(bench.sent):
                bench.hear(peer, Deliver(5 + number, b"x"))
            bench.sent.clear()
            for address in (*REQUESTERS.values(), *(address for address, _ in HOLDERS.values())):
                bench.hear(address, Keepalive())
            bench.sent.clear()


def test_a_client_that_knows_the_types_of_ipv6_can_tell_fetched_messages_from_those_of_the_backbone() -> None:
    bench, asker, (peer, flags) = Bench(), REQUESTERS["v6"], HOLDERS["v4"]
    bench.join(asker, MUTE | Flags.IPV6)
    bench.join(peer, flags)
    bench.hear(asker, Request(ANY_ADDRESS, 5, 5))
    bench.hear(peer, Deliver(5, b"five"), Deliver(5, b"again"))
    assert bench.to(asker) == [Deliver(5, b"five", fetched=True)]


@pytest.mark.parametrize("durable", [False, True])
def test_those_that_can_send_to_the_requester_come_first(durable: bool) -> None:
    bench, asker = Bench(), REQUESTERS["v6"]
    bench.join(asker, MUTE)
    extra = Flags.DURABLE if durable else Flags.NONE
    for peer, flags in HOLDERS.values():
        bench.join(peer, flags | extra)
    asked: list[Address] = []
    for _ in range(3):
        bench.hear(asker, Request(ANY_ADDRESS, 5, 5))
        asked += bench.sent
        bench.sent.clear()
    names = [name for one in asked for name, (peer, _) in HOLDERS.items() if peer == one]
    assert sorted(names[:3]) == ["both over v4", "both over v6", "v6"]
    assert sorted(names[3:]) == ["documents v4", "v4"]


@pytest.mark.parametrize(
    ("requester", "holder", "direct"),
    [
        ("127.0.0.1", "127.0.0.2", True),
        ("127.0.0.1", "::1", True),
        ("::1", "127.0.0.1", True),
        ("127.0.0.1", "192.0.2.20", False),
        ("192.0.2.20", "127.0.0.1", False),
        ("2001:db8::7", "::1", False),
        ("::1", "2001:db8::7", False),
    ],
)
def test_clients_on_loopback_repair_others_through_the_backbone(requester: str, holder: str, direct: bool) -> None:
    bench, asker, peer = Bench(), (requester, 1), (holder, 2)
    bench.join(asker, MUTE)
    bench.join(peer, BOTH)
    bench.hear(asker, Request(ANY_ADDRESS, 5, 5))
    assert bench.to(peer) == [Forward(asker if direct else own_address(peer), 5, 5)]


@pytest.mark.parametrize("requester", REQUESTERS)
def test_the_backbone_repairs_from_memory_over_any_ip_version(requester: str) -> None:
    bench, asker = Bench(), REQUESTERS[requester]
    bench.join(asker)
    bench.hear(("192.0.2.99", 9), *(Keepalive() for _ in range(1)))
    bench.node.receive_batch(Batch.pack([(b"\x02\x00\x01" + bytes(6) + b"x", ("192.0.2.99", 9))]), bench.now)
    bench.node.drain()
    bench.hear(asker, Request(ANY_ADDRESS, GIVEN + 1, GIVEN + 1))
    assert bench.to(asker) == [Deliver(GIVEN + 1, b"x")]


def test_only_what_was_asked_of_a_client_is_passed_on() -> None:
    bench, asker, (peer, flags) = Bench(), REQUESTERS["v6"], HOLDERS["v4"]
    other = ("192.0.2.30", 4)
    bench.join(asker, MUTE)
    bench.join(peer, flags)
    bench.hear(asker, Request(ANY_ADDRESS, 5, 6))
    bench.join(other, flags)
    bench.hear(other, Deliver(5, b"forged"))
    bench.hear(("192.0.2.31", 4), Deliver(5, b"forged"))
    bench.hear(peer, Deliver(7, b"not asked for"), Deliver(0, b"no number"))
    assert not bench.sent
    assert bench.node.drops.counts == {"unexpected": 4}
    bench.hear(peer, Deliver(6, b"six"), Deliver(5, b"five"))
    assert bench.to(asker) == [Deliver(6, b"six"), Deliver(5, b"five")]


def test_one_answer_serves_all_that_asked_and_none_that_has_left() -> None:
    bench, (peer, flags) = Bench(), HOLDERS["v4"]
    askers = [(f"2001:db8::{number}", 1) for number in range(1, 4)]
    for asker in askers:
        bench.join(asker, MUTE)
        bench.join(peer, flags)
        bench.hear(asker, Request(ANY_ADDRESS, 5, 6))
    bench.sent.clear()
    bench.now += 4.0
    for asker in askers[1:]:
        bench.join(asker, MUTE)
    bench.join(peer, flags)
    bench.now += 1.5
    bench.hear(peer, Deliver(5, b"five"))
    assert set(bench.sent) == set(askers[1:])


def test_an_answer_that_comes_too_late_is_not_passed_on() -> None:
    bench, asker, (peer, flags) = Bench(), REQUESTERS["v6"], HOLDERS["v4"]
    bench.join(asker, MUTE)
    bench.join(peer, flags)
    bench.hear(asker, Request(ANY_ADDRESS, 5, 6))
    bench.sent.clear()
    for _ in range(5):
        bench.now += 2 * FETCH_TIME / 4
        bench.join(asker, MUTE)
        bench.join(peer, flags)
    bench.hear(peer, Deliver(5, b"five"))
    assert not bench.sent


def test_a_requester_gets_no_more_fetched_bytes_than_its_budget_allows() -> None:
    bench, asker, (peer, flags) = Bench(), REQUESTERS["v6"], HOLDERS["v4"]
    bench.join(asker, MUTE)
    bench.join(peer, flags)
    bench.hear(asker, Request(ANY_ADDRESS, 1, GIVEN))
    bench.sent.clear()
    bench.hear(peer, *(Deliver(number, bytes(60_000)) for number in range(1, 21)))
    assert len(bench.to(asker)) == -(-256 * 1_024 // 60_000)
    bench.now += 1.0
    bench.hear(peer, Deliver(20, bytes(60_000)))
    assert bench.to(asker) == [Deliver(20, bytes(60_000))], "it was not marked as passed on"


def test_while_settling_clients_are_queried_at_an_address_of_their_own_ip_version() -> None:
    bench = Bench(settle=SETTLE_TIME)
    for peer, flags in HOLDERS.values():
        bench.hear(peer, Keepalive(flags=flags))
    queries = {peer: [packet for packet in bench.to(peer) if isinstance(packet, Forward)] for peer in list(bench.sent)}
    expected = {peer: [Forward(own_address(peer), 1, MAX_SEQUENCE)] for peer, _ in HOLDERS.values()}
    expected[HOLDERS["documents v6"][0]] = []
    assert queries == expected


def test_a_secret_admits_a_client_at_its_explicit_ipv6_address() -> None:
    bench, asker = Bench(secret=SECRET), REQUESTERS["v6"]
    token = make_token(SECRET, asker, 0, START)
    bench.hear(asker, Keepalive(asker, 0, token))
    assert [client.address for client in bench.node.clients] == [asker]
    bench.hear(("2001:db8::8", 1), Keepalive(asker, 0, token))
    bench.hear(asker, Keepalive(token=token))
    assert bench.node.drops.counts == {"foreign_address": 2}


def test_a_client_may_request_for_its_explicit_ipv6_address_and_no_other() -> None:
    bench, asker, (peer, flags) = Bench(), REQUESTERS["v6"], HOLDERS["v6"]
    bench.join(asker, MUTE)
    bench.join(peer, flags)
    bench.hear(asker, Request(asker, 5, 5), Request(("2001:db8::8", 1), 5, 5))
    assert bench.to(peer) == [Forward(asker, 5, 5)]
    assert bench.node.drops.counts == {"request_for_stranger": 1}


def test_the_clients_of_a_64_count_as_one_host() -> None:
    clients = ClientTable(BackboneConfig(max_per_host=3))
    hosts = [("2001:db8::1", 1), ("2001:db8::2", 1), ("2001:db8::ffff:1", 1), ("2001:db8:0:1::1", 1), ("192.0.2.1", 1)]
    for host in hosts:
        assert clients.refusal_reason(Keepalive(), host, host, START) is None
        clients.renew(Keepalive(), host, host, START)
    assert clients.refusal_reason(Keepalive(), ("2001:db8::9", 1), ("2001:db8::9", 1), START) == "host_full"
    assert clients.refusal_reason(Keepalive(), ("2001:db8:0:1::2", 1), ("2001:db8:0:1::2", 1), START) is None
    clients.expire(START + 5.0)
    assert clients.refusal_reason(Keepalive(), ("2001:db8::9", 1), ("2001:db8::9", 1), START) is None


def test_version_1_over_ipv6_subscribes_at_its_source() -> None:
    bench, peer = Bench(), ("2001:db8::7", 1)
    bench.hear(peer, Keepalive(token=b"", dialect=Dialect.V1))
    assert [client.address for client in bench.node.clients] == [peer]


# The fetcher alone


def fetcher() -> RepairFetcher:
    return RepairFetcher(own_address, START)


def numbered(number: int) -> Address:
    return f"192.0.2.{number % 250}", 1_000 + number


def test_the_ranges_of_a_requester_and_of_a_client_are_limited() -> None:
    fetching, asker = fetcher(), REQUESTERS["v6"]
    granted = [fetching.fetch(numbered(number), asker, 3 * number, 3 * number, START) for number in range(MAX_RANGES)]
    assert sum(one is not None for one in granted) == MAX_PEERS
    fetching = fetcher()
    for number in range(MAX_RANGES):
        assert fetching.fetch(numbered(0), asker, 3 * number, 3 * number + 1, START) is not None
    assert fetching.fetch(numbered(0), asker, 9_999, 9_999, START) is None
    assert fetching.fetch(numbered(0), asker, 9_999, 9_999, START + FETCH_TIME) is not None
    assert len(fetching) <= 4 * MAX_RANGES


def test_splitting_a_range_does_not_exceed_the_limit() -> None:
    fetching, asker = fetcher(), REQUESTERS["v6"]
    fetching.fetch(numbered(0), asker, 1, MAX_SEQUENCE, START)
    for number in range(3 * MAX_RANGES):
        assert fetching.received(numbered(0), Deliver(2 * number + 2, b""), START) == [asker]
    assert len(fetching) <= 2 * MAX_RANGES + 1


def test_requesters_beyond_the_limit_wait_until_others_are_forgotten() -> None:
    fetching = fetcher()
    for number in range(MAX_PEERS):
        assert fetching.fetch(numbered(0), (f"2001:db8::{number:x}", 1), 1, 1, START) is not None
    late = ("2001:db8::ffff", 1)
    assert fetching.fetch(numbered(0), late, 1, 1, START) is None
    assert fetching.fetch(numbered(0), late, 1, 1, START + 2 * FETCH_TIME) is not None


@pytest.mark.parametrize("own", [ANY_ADDRESS, ("fe80::1%eth0", 2323), ("2001:db8::1", 2323)])
def test_without_an_address_that_the_client_can_send_to_nothing_is_fetched(own: Address) -> None:
    fetching = RepairFetcher(lambda peer: own, START)
    assert fetching.fetch(numbered(0), REQUESTERS["v6"], 1, 1, START) is None
    assert len(fetching) == 0


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 12), st.integers(0, 3), st.floats(0, 4)),
        max_size=30,
    ),
    st.data(),
)
def test_a_message_is_passed_on_only_to_those_that_wanted_it_and_once_a_request(
    steps: Sequence[tuple[int, int, int, int, float]], data: st.DataObject
) -> None:
    """A model with a set of numbers for each pair, without limits and with exact times."""
    fetching, now = fetcher(), START
    asked: dict[tuple[Address, int], float] = {}
    wanted: dict[tuple[Address, int], float] = {}
    for client_number, asker_number, first, more, pause in steps:
        now += pause
        client, asker = numbered(client_number), (f"2001:db8::{asker_number}", 1)
        fetching.fetch(client, asker, first, first + more, now)
        for number in range(first, first + more + 1):
            asked[client, number] = wanted[asker, number] = now
        sequence = data.draw(st.integers(1, 16))
        got = fetching.received(client, Deliver(sequence, b""), now)
        since_asked = now - asked.get((client, sequence), -1e9)
        if since_asked < FETCH_TIME:
            assert got is not None
        elif since_asked >= 2 * FETCH_TIME:
            assert got is None
        for other in {one for one, _ in wanted}:
            age = now - wanted.get((other, sequence), -1e9)
            if got is not None and age < FETCH_TIME:
                assert other in got
            if age >= 2 * FETCH_TIME:
                assert other not in (got or ())
        for other in got or ():
            del wanted[other, sequence]
