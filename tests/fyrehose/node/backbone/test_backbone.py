from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zope.interface import implementer

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address, Burst, Send
from fyrehose_twisted.fyrehose.config import AddressList, BackboneConfig
from fyrehose_twisted.fyrehose.events import (
    ClientExpired,
    ClientJoined,
    ExistingStreamDetected,
    NumbersExhausted,
    PacketDropped,
    StreamClaimRejected,
)
from fyrehose_twisted.fyrehose.node.backbone.backbone import (
    SETTLE_TIME,
    Backbone,
    BackboneState,
)
from fyrehose_twisted.fyrehose.node.backbone.client_table import CLIENT_LIFETIME, EXPIRY_GRACE
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward, RoundRobinForward
from fyrehose_twisted.fyrehose.node.backbone.push_backlog import DUPLICATE_WINDOW, HELD_BYTES, HELD_MESSAGES
from fyrehose_twisted.fyrehose.node.backbone.sequencer import BackboneStart, KnownClient, SequenceCheckpoint
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.envelope import wrap
from fyrehose_twisted.fyrehose.wire.packets import (
    ANY_ADDRESS,
    MAX_DELIVERABLE,
    MAX_SEQUENCE,
    Deliver,
    Dialect,
    Flags,
    Forward,
    Holding,
    Holds,
    Keepalive,
    KeepaliveAck,
    Packet,
    Push,
    Request,
    Status,
)
from fyrehose_twisted.fyrehose.wire.run_codec import VECTOR_MINIMUM
from fyrehose_twisted.fyrehose.wire.token import make_token
from fyrehose_twisted.interfaces import IForwardPolicy

Vector = dict[str, Any]

START = 1_700_000_000.0
OWN: Address = ("192.0.2.1", 2323)
ALICE: Address = ("192.0.2.7", 4001)
BOB: Address = ("192.0.2.8", 4002)
CAROL: Address = ("192.0.2.9", 4003)
STRANGER: Address = ("198.51.100.1", 5000)
TOKEN = bytes(range(16))
SECRET = b"sixteen bytes and a few"
V1_KEEPALIVE = Keepalive(token=b"", dialect=Dialect.V1)
NOTHING = Flags.NOSUBSCRIBE | Flags.NOJOURNAL
GIVEN = 1_000
"""Last number assigned, no longer in the retransmit buffer."""

SIZES = pytest.mark.parametrize("size", [1, VECTOR_MINIMUM + 8], ids=["per packet", "columnar"])
"""Copies of a datagram in a batch, for the scalar and the vectorised path."""


@implementer(IForwardPolicy)
class FirstForward:
    """A policy that chooses the first other journal and records the candidates."""

    def __init__(self) -> None:
        self.journals: Sequence[Address] = ()

    def choose(self, journals: Sequence[Address], requester: Address) -> Address | None:
        self.journals = journals
        return next((journal for journal in journals if journal != requester), None)


class Bench:
    """A backbone with a clock, recording its outputs."""

    def __init__(self, policy: IForwardPolicy | None = None, *, last: int = 0, bound: int = 0, **options: Any) -> None:
        settle: float | None = options.pop("settle", None)
        ask = options.pop("ask", settle is not None)
        known = options.pop("known", ())
        self.now = START
        self.node = Backbone(
            BackboneConfig(**options),
            FirstForward() if policy is None else policy,
            BackboneStart(
                last=last,
                bound=bound,
                settle_until=None if settle is None else START + settle,
                query_clients=ask,
                known_clients=known,
            ),
            own_address=lambda peer: OWN,
            is_own=lambda address: address == OWN,
            now=START,
        )
        self.stored = SequenceCheckpoint(last, max(last, bound))
        self.events: list[object] = []
        self.sent: defaultdict[Address, list[bytes]] = defaultdict(list)
        self.drain()

    def receive(self, *arrivals: tuple[bytes, Address], truncated: Sequence[int] = ()) -> None:
        """Receive datagrams as one batch."""
        batch = Batch.pack(arrivals, truncated=truncated)
        self.node.receive_batch(batch, self.now)
        self.drain()
        # The buffer is reused, so the node must not keep views of it.
        batch.buffer[:] = b"\xff" * len(batch.buffer)

    def hear(self, peer: Address, *packets: Packet) -> None:
        """Receive packets from one peer as one batch."""
        self.receive(*((encode(packet), peer) for packet in packets))

    def join(self, *peers: Address, flags: int = Flags.NONE) -> None:
        for peer in peers:
            self.hear(peer, Keepalive(flags=flags, token=TOKEN))
        self.forget()

    def drain(self) -> None:
        persist, effects, events = self.node.drain()
        if persist is not None:
            assert persist.clients or persist != self.stored
            self.stored = persist._replace(clients=())
        for effect in effects:
            for peer in effect.peers:
                self.sent[peer] += map(bytes, effect.iter_datagrams())
                for datagram in effect.iter_datagrams():
                    packet = decode(datagram)
                    assert not isinstance(packet, Deliver) or packet.sequence <= self.stored.last <= self.stored.bound
        self.events += events

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        deadline = self.node.next_deadline()
        while deadline is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.node.tick(self.now)
            deadline = self.node.next_deadline()
        self.leap(until - self.now)

    def leap(self, seconds: float) -> None:
        """Advance the clock without ticking the node."""
        self.now += seconds
        self.node.tick(self.now)
        self.drain()

    def forget(self) -> None:
        self.sent.clear()
        self.events.clear()

    def to(self, peer: Address) -> list[Packet]:
        """Return the packets sent to ``peer``."""
        return [decode(datagram) for datagram in self.sent.get(peer, ())]

    def sequences(self, peer: Address) -> list[int]:
        return [packet.sequence for packet in self.to(peer) if isinstance(packet, Deliver)]

    @property
    def addresses(self) -> list[Address]:
        return [client.address for client in self.node.clients]

    @property
    def drops(self) -> dict[str, int]:
        return dict(self.node.drops.counts)


def token_keepalive(
    address: Address, now: float, *, flags: int = 0, step: int = 0, secret: bytes = SECRET
) -> Keepalive:
    return Keepalive(address, flags, make_token(secret, address, flags, now, step=step))


class TestNumbersAndFanOut:
    @SIZES
    def test_numbers_start_at_1_and_have_no_gaps(self, size: int) -> None:
        bench = Bench()
        bench.join(ALICE)
        bench.hear(STRANGER, *[Push(b"a")] * size)
        bench.hear(BOB, *[Push(b"b", Dialect.V1)] * size)
        assert bench.to(ALICE) == [
            Deliver(number, b"a" if number <= size else b"b") for number in range(1, 2 * size + 1)
        ]

    @SIZES
    def test_numbers_go_on_after_the_last_one_given(self, size: int) -> None:
        bench = Bench(last=2**32 - 2, bound=2**33)
        bench.join(ALICE)
        bench.hear(STRANGER, *[Push(b"")] * size)
        assert bench.sequences(ALICE) == list(range(2**32 - 1, 2**32 - 1 + size))

    @SIZES
    @pytest.mark.parametrize("unused", [bytes(6), b"\xff" * 6])
    def test_the_unused_bytes_of_a_push_are_ignored(self, size: int, unused: bytes) -> None:
        bench = Bench()
        bench.join(ALICE)
        bench.receive(*[(b"\x02\x00\x01" + unused + b"x", BOB)] * size)
        assert bench.to(ALICE) == [Deliver(number + 1, b"x") for number in range(size)]

    @SIZES
    def test_every_message_goes_to_every_live_subscriber_and_no_other_client(self, size: int) -> None:
        bench = Bench()
        bench.join(ALICE, BOB)
        bench.join(CAROL, flags=Flags.NOSUBSCRIBE)
        bench.hear(STRANGER, *[Push(b"x")] * size)
        assert bench.sequences(ALICE) == bench.sequences(BOB) == list(range(1, size + 1))
        assert set(bench.sent) == {ALICE, BOB}

    @SIZES
    def test_a_message_is_numbered_without_subscribers(self, size: int) -> None:
        bench = Bench()
        bench.hear(STRANGER, *[Push(b"xyz")] * size)
        assert (bench.sent, bench.stored.last, bench.node.counters.published) == ({}, size, size)

    def test_both_dialects_share_a_port_a_batch_and_a_sequence(self) -> None:
        bench = Bench()
        bench.hear(ALICE, V1_KEEPALIVE)
        bench.join(BOB)
        bench.hear(CAROL, *[Push(b"one", Dialect.V1), Push(b"two", Dialect.V2)] * VECTOR_MINIMUM)
        assert bench.to(ALICE) == bench.to(BOB)
        assert bench.to(BOB) == [
            Deliver(number + 1, b"two" if number % 2 else b"one") for number in range(2 * VECTOR_MINIMUM)
        ]
        assert [client.dialect for client in bench.node.clients] == [Dialect.V1, Dialect.V2]

    def test_a_client_that_joins_within_a_batch_receives_the_following_messages(self) -> None:
        for size in (3, VECTOR_MINIMUM):
            bench = Bench()
            bench.join(ALICE)
            push = (encode(Push(b"x")), STRANGER)
            bench.receive(*[push] * size, (encode(Keepalive()), BOB), *[push] * size)
            assert bench.sequences(ALICE) == list(range(1, 2 * size + 1))
            assert bench.sequences(BOB) == list(range(size + 1, 2 * size + 1))

    @SIZES
    def test_an_ack_keeps_its_place_between_messages(self, size: int) -> None:
        bench = Bench()
        bench.join(ALICE)
        push = (encode(Push(b"x")), STRANGER)
        bench.receive(*[push] * size, (encode(Keepalive(token=TOKEN)), ALICE), *[push] * size)
        assert [type(packet) for packet in bench.to(ALICE)] == [*[Deliver] * size, KeepaliveAck, *[Deliver] * size]

    def test_earlier_messages_keep_their_receivers_when_a_client_expires(self) -> None:
        bench = Bench()
        bench.join(ALICE)
        bench.now += 1
        bench.join(BOB)
        for seconds in (0, 4):
            bench.now += seconds
            bench.node.receive_batch(Batch.pack([(encode(Push(b"")), STRANGER)]), bench.now)
        bench.drain()
        assert (bench.sequences(ALICE), bench.sequences(BOB)) == ([1], [1, 2])

    def test_an_empty_message_is_delivered(self) -> None:
        bench = Bench()
        bench.join(ALICE)
        bench.hear(BOB, Push(b"", Dialect.V1), Push(b""))
        assert bench.to(ALICE) == [Deliver(1, b""), Deliver(2, b"")]

    @SIZES
    def test_counters_of_messages_and_bytes(self, size: int) -> None:
        bench = Bench()
        bench.join(ALICE, BOB)
        bench.hear(STRANGER, *[Push(b"xyz")] * size)
        counters = bench.node.counters
        assert (counters.datagrams, counters.keepalives) == (2 + size, 2)
        assert (counters.published, counters.published_bytes) == (size, 3 * size)
        assert (counters.delivered, counters.delivered_bytes) == (2 * size, 6 * size)

    def test_a_checkpoint_is_persisted_only_after_new_numbers_or_keepalives(self) -> None:
        bench = Bench()
        bench.node.receive_batch(Batch.pack([(encode(Keepalive()), ALICE)]), START)
        alice = KnownClient(ALICE, ALICE, Flags.NONE, Dialect.V2, 0, START)
        assert bench.node.drain().persist == SequenceCheckpoint(0, 0, ((ALICE, alice),))
        bench.node.receive_batch(Batch.pack([(encode(Push(b"")), ALICE)]), START)
        mark = bench.node.drain().persist
        assert mark.last == 1 <= mark.bound
        assert bench.node.drain() == (None, [], [])


class TestTooLong:
    @pytest.mark.parametrize("dialect", Dialect)
    def test_the_longest_message_that_udp_carries_is_delivered(self, dialect: Dialect) -> None:
        bench = Bench()
        bench.join(ALICE)
        bench.hear(BOB, Push(bytes(MAX_DELIVERABLE), dialect))
        assert bench.to(ALICE) == [Deliver(1, bytes(MAX_DELIVERABLE))]

    def test_a_v1_push_whose_deliver_would_be_too_long_is_a_counted_drop(self, vectors: dict[str, Vector]) -> None:
        bench = Bench()
        bench.join(ALICE)
        bench.receive((vectors["push_65504_v1_not_deliverable"]["datagram"], BOB))
        assert (bench.sent, bench.drops) == ({}, {"too_long": 1})
        assert bench.stored.last == 0

    def test_a_push_that_is_too_long_takes_no_number_within_a_batch(self) -> None:
        bench = Bench()
        bench.join(ALICE)
        fits, long = Push(b"x"), Push(bytes(MAX_DELIVERABLE + 1), Dialect.V1)
        bench.hear(BOB, *[fits] * VECTOR_MINIMUM, long, fits)
        assert bench.sequences(ALICE) == list(range(1, VECTOR_MINIMUM + 2))
        assert bench.drops == {"too_long": 1}


class TestKeepalive:
    def test_v2_is_answered_with_its_token_and_v1_with_the_type_alone(self) -> None:
        bench = Bench()
        bench.hear(ALICE, Keepalive(token=TOKEN))
        bench.hear(BOB, V1_KEEPALIVE)
        assert bench.sent == {ALICE: [b"\x20" + TOKEN], BOB: [b"\x20"]}

    def test_every_keepalive_is_answered(self) -> None:
        bench = Bench()
        tokens = [bytes([number]) * 16 for number in range(VECTOR_MINIMUM)]
        bench.hear(ALICE, *(Keepalive(token=token) for token in tokens))
        assert bench.to(ALICE) == list(map(KeepaliveAck, tokens))

    @pytest.mark.parametrize("flags", [Flags.NOSUBSCRIBE, Flags.NOJOURNAL, NOTHING, 2**48 - 1])
    def test_a_keepalive_with_flags_is_answered(self, flags: int) -> None:
        bench = Bench()
        bench.hear(ALICE, Keepalive(flags=flags, token=TOKEN))
        status = [Status(TOKEN, 0, 0)] if flags & Flags.EXTENSIONS else []
        assert bench.to(ALICE) == [*status, KeepaliveAck(TOKEN)]

    def test_a_client_is_alive_for_5_seconds_and_then_not(self) -> None:
        bench = Bench()
        bench.join(ALICE)
        bench.now += CLIENT_LIFETIME - 0.001
        bench.hear(BOB, Push(b"early"))
        bench.now += 0.001
        bench.hear(BOB, Push(b"late"))
        assert bench.to(ALICE) == [Deliver(1, b"early")]
        assert [type(event) for event in bench.events] == [ClientExpired]

    def test_a_keepalive_renews_a_client(self) -> None:
        bench = Bench()
        bench.join(ALICE, BOB)
        bench.now += 4
        bench.join(ALICE)
        bench.wait(4)
        assert bench.addresses == [ALICE]
        assert bench.events == [ClientExpired(bench.events[0].client)]  # type: ignore[attr-defined]
        bench.hear(STRANGER, Push(b""))
        assert set(bench.sent) == {ALICE}

    def test_the_deadline_is_the_expiry_of_the_first_client(self) -> None:
        bench = Bench()
        assert bench.node.next_deadline() is None
        bench.join(ALICE)
        bench.now += 1
        bench.join(BOB)
        assert bench.node.next_deadline() == START + 5
        bench.join(ALICE)
        bench.wait(4.999)
        assert bench.addresses == [BOB, ALICE]
        assert bench.node.next_deadline() == START + 6
        bench.wait(0.001)
        assert (bench.addresses, bench.node.next_deadline()) == ([], None)

    def test_joining_and_expiring_are_reported_once(self) -> None:
        bench = Bench()
        bench.hear(ALICE, Keepalive(), Keepalive())
        (joined,) = bench.events
        assert isinstance(joined, ClientJoined)
        assert joined.client.address == ALICE
        bench.wait(60)
        bench.wait(60)
        assert [type(event) for event in bench.events] == [ClientJoined, ClientExpired]

    def test_a_client_can_stop_and_resume_its_subscription_by_nosubscribe(self) -> None:
        bench = Bench()
        bench.join(ALICE)
        bench.hear(BOB, Push(b""))
        bench.hear(ALICE, Keepalive(flags=Flags.NOSUBSCRIBE))
        bench.hear(BOB, Push(b""))
        bench.hear(ALICE, Keepalive())
        bench.hear(BOB, Push(b""))
        assert bench.sequences(ALICE) == [1, 3]

    def test_clients_get_a_grace_time_after_the_clock_was_set_forward(self) -> None:
        bench = Bench()
        bench.join(ALICE, BOB)
        bench.leap(1e6)
        bench.hear(STRANGER, Push(b""))
        assert set(bench.sent) == {ALICE, BOB}
        bench.wait(EXPIRY_GRACE)
        assert bench.addresses == []
        assert len(bench.events) == 2

    def test_clients_expire_after_5_seconds_although_the_clock_was_set_back(self) -> None:
        bench = Bench()
        bench.join(ALICE, BOB)
        bench.now -= 3_600
        bench.join(BOB)
        assert bench.addresses == [ALICE, BOB]
        bench.wait(4.999)
        assert bench.addresses == [ALICE, BOB]
        bench.now += 0.001
        bench.hear(CAROL, Push(b""))
        assert (bench.addresses, bench.sent) == ([], {})

    def test_a_client_from_before_a_clock_change_does_not_delay_the_expiry_of_others(self) -> None:
        bench = Bench()
        bench.join(ALICE)
        bench.now -= 3_600
        bench.join(BOB)
        for _ in range(6):
            bench.now += 1
            bench.join(BOB)
        assert bench.addresses == [BOB]
        bench.wait(5)
        assert bench.addresses == []

    def test_clients_expire_on_time_although_the_clock_was_set_back_a_little(self) -> None:
        bench = Bench()
        bench.join(ALICE)
        bench.now -= 4
        bench.join(BOB)
        bench.wait(5)
        assert bench.addresses == []


class TestAddresses:
    @pytest.mark.parametrize(
        "address", [ANY_ADDRESS, ALICE, (ALICE[0], 0), ("0.0.0.0", ALICE[1])], ids=lambda address: f"{address}"
    )
    def test_a_zero_address_means_the_source_of_the_keepalive(self, address: Address) -> None:
        bench = Bench()
        bench.hear(ALICE, Keepalive(address))
        assert bench.addresses == [ALICE]
        assert set(bench.sent) == {ALICE}

    def test_messages_go_to_the_announced_port_of_the_same_host(self) -> None:
        bench = Bench()
        elsewhere = (ALICE[0], 9999)
        bench.hear(ALICE, Keepalive(elsewhere, token=TOKEN))
        bench.hear(BOB, Push(b"x"))
        assert bench.sent.keys() == {elsewhere}
        assert bench.to(elsewhere) == [KeepaliveAck(TOKEN), Deliver(1, b"x")]

    @pytest.mark.parametrize("keepalive", [Keepalive(BOB), Keepalive(BOB, token=b"", dialect=Dialect.V1)])
    def test_a_keepalive_for_another_host_is_refused(self, keepalive: Keepalive) -> None:
        bench = Bench()
        bench.hear(ALICE, keepalive)
        bench.hear(ALICE, Push(b""))
        assert (bench.addresses, bench.sent, bench.drops) == ([], {}, {"foreign_address": 1})

    def test_trust_addresses_admits_a_keepalive_for_another_host(self) -> None:
        bench = Bench(trust_addresses=True)
        bench.hear(ALICE, Keepalive(BOB, token=TOKEN))
        bench.hear(STRANGER, Push(b"x"))
        assert bench.sent.keys() == {BOB}
        assert bench.to(BOB) == [KeepaliveAck(TOKEN), Deliver(1, b"x")]

    def test_a_refused_keepalive_does_not_remove_the_client_that_it_names(self) -> None:
        bench = Bench()
        bench.join(BOB)
        bench.hear(ALICE, Keepalive(BOB, flags=NOTHING))
        bench.hear(STRANGER, Push(b""))
        assert bench.sequences(BOB) == [1]


class TestRequest:
    def test_a_request_is_forwarded_to_another_client_with_the_requesters_address(self) -> None:
        bench = Bench(last=GIVEN)
        bench.join(ALICE, BOB)
        bench.hear(ALICE, Request(ALICE, 3, MAX_SEQUENCE))
        assert bench.sent.keys() == {BOB}
        assert bench.to(BOB) == [Forward(ALICE, 3, GIVEN)]
        assert (bench.node.counters.requests, bench.node.counters.forwards) == (1, 1)

    def test_a_zero_address_means_the_source_of_the_request(self, vectors: dict[str, Vector]) -> None:
        bench = Bench(last=GIVEN)
        bench.join(ALICE, BOB)
        bench.receive((vectors["request_addr_zero"]["datagram"], ALICE))
        assert bench.to(BOB) == [Forward(ALICE, 1, 2)]

    def test_the_policy_chooses_among_live_clients_without_nojournal(self) -> None:
        policy = FirstForward()
        bench = Bench(policy, last=GIVEN)
        bench.join(ALICE)
        bench.join(BOB, flags=Flags.NOJOURNAL)
        bench.join(CAROL, flags=Flags.NOSUBSCRIBE)
        bench.join(STRANGER, flags=NOTHING)
        bench.hear(ALICE, Request(ALICE, 1, 1))
        assert policy.journals == [ALICE, CAROL]
        assert set(bench.sent) == {CAROL}
        bench.now += 4
        bench.join(ALICE)
        bench.join(BOB, flags=Flags.NOJOURNAL)
        bench.now += 1
        bench.hear(BOB, Request(BOB, 1, 1))
        assert policy.journals == [ALICE]

    @given(seed=st.integers(0, 2**32), flags=st.lists(st.integers(0, 3), min_size=1, max_size=6), robin=st.booleans())
    def test_a_request_is_not_forwarded_to_the_requester_or_to_clients_with_nojournal(
        self, seed: int, flags: list[int], robin: bool
    ) -> None:
        bench = Bench(RoundRobinForward() if robin else RandomForward(Random(seed)), last=GIVEN)
        peers = [(f"192.0.2.{number + 1}", 4_000) for number in range(len(flags))]
        for peer, flag in zip(peers, flags, strict=True):
            bench.join(peer, flags=flag)
        for peer in peers * 3:
            bench.hear(peer, Request(ANY_ADDRESS, 1, 9))
            others = {
                other for other, flag in zip(peers, flags, strict=True) if other != peer and not flag & Flags.NOJOURNAL
            }
            assert bool(bench.sent) == bool(others)
            assert set(bench.sent) <= others
            bench.forget()

    def test_a_request_without_other_journals_is_a_counted_drop(self) -> None:
        bench = Bench(last=GIVEN)
        bench.join(ALICE)
        bench.join(BOB, flags=Flags.NOJOURNAL)
        bench.hear(ALICE, Request(ALICE, 1, 1))
        assert (bench.sent, bench.drops) == ({}, {"request_unanswerable": 1})

    @pytest.mark.parametrize(("one", "other"), [(4, 5), (5, 6), (6, 4), (6, 7)])
    def test_requests_for_numbers_that_are_not_remembered_are_handled_like_single_ones(
        self, one: int, other: int
    ) -> None:
        asked = [Request(ALICE, one, one), Request(ALICE, other, other)]
        sent = []
        for batches in ([asked], [[one] for one in asked]):
            bench = Bench(last=5)
            bench.join(ALICE, BOB)
            for batch in batches:
                bench.hear(ALICE, *batch)
            sent.append((bench.sent, dict(bench.node.drops.counts), bench.node.counters.requests))
        assert sent[0] == sent[1]

    def test_a_request_for_an_address_without_a_client_is_dropped(self, vectors: dict[str, Vector]) -> None:
        bench = Bench(last=GIVEN)
        bench.join(ALICE, BOB)
        bench.hear(STRANGER, Request(STRANGER, 1, 1))
        bench.hear(STRANGER, Request(ANY_ADDRESS, 1, 1))
        bench.hear(ALICE, Request((ALICE[0], 9), 1, 1))
        bench.receive((vectors["request_addr_is_a_third_party"]["datagram"], ALICE))
        assert (bench.sent, bench.drops) == ({}, {"request_for_stranger": 4})
        assert bench.node.counters.requests == 4

    def test_a_request_for_a_client_on_another_host_is_dropped(self) -> None:
        bench = Bench(last=GIVEN)
        bench.join(ALICE, BOB)
        bench.hear(STRANGER, Request(ALICE, 1, 1))
        bench.hear(BOB, Request(ALICE, 1, 1))
        assert (bench.sent, bench.drops) == ({}, {"request_for_stranger": 2})

    def test_a_client_may_request_from_another_port_of_its_host(self) -> None:
        bench = Bench(last=GIVEN)
        bench.join(ALICE, BOB)
        bench.hear((ALICE[0], 9), Request(ALICE, 1, 1))
        assert bench.to(BOB) == [Forward(ALICE, 1, 1)]

    def test_a_client_with_a_trusted_address_requests_from_its_keepalive_source(self) -> None:
        bench = Bench(last=GIVEN, trust_addresses=True)
        bench.join(BOB)
        bench.hear(ALICE, Keepalive(CAROL))
        bench.forget()
        bench.hear(CAROL, Request(CAROL, 1, 1))
        assert (bench.sent, bench.drops) == ({}, {"request_for_stranger": 1})
        bench.hear(ALICE, Request(CAROL, 1, 1))
        assert bench.to(BOB) == [Forward(CAROL, 1, 1)]

    def test_requests_of_an_expired_client_are_dropped(self) -> None:
        bench = Bench(last=GIVEN)
        bench.join(ALICE)
        bench.now += 5
        bench.join(BOB)
        bench.hear(ALICE, Request(ALICE, 1, 1))
        assert (bench.sent, bench.drops) == ({}, {"request_for_stranger": 1})

    @pytest.mark.parametrize("size", [10, VECTOR_MINIMUM + 10])
    def test_each_client_has_its_own_request_rate(self, size: int) -> None:
        bench = Bench(last=GIVEN, request_rate=2.0, request_burst=3.0)
        bench.join(ALICE, BOB)
        bench.hear(ALICE, *[Request(ALICE, 1, 1)] * size)
        assert len(bench.to(BOB)) == 3
        bench.hear(BOB, Request(BOB, 1, 1))
        assert len(bench.to(ALICE)) == 1
        assert bench.drops == {"request_rate": size - 3}
        bench.now += 1
        bench.hear(ALICE, *[Request(ALICE, 1, 1)] * size)
        assert len(bench.to(BOB)) == 5

    def test_dropped_requests_of_other_hosts_do_not_use_a_clients_rate(self) -> None:
        bench = Bench(last=GIVEN, request_rate=1.0, request_burst=1.0)
        bench.join(ALICE, BOB)
        bench.hear(STRANGER, *[Request(ALICE, 1, 1)] * 10)
        bench.hear(ALICE, Request(ALICE, 1, 1))
        assert len(bench.to(BOB)) == 1

    def test_requests_from_several_ports_share_one_rate(self) -> None:
        bench = Bench(last=GIVEN, request_rate=1.0, request_burst=3.0)
        bench.join(ALICE, BOB)
        for port in range(1, 11):
            bench.hear((ALICE[0], port), Request(ALICE, 1, 1))
        assert (len(bench.to(BOB)), bench.drops) == (3, {"request_rate": 7})

    def test_a_client_whose_source_changed_requests_from_the_new_source_only(self) -> None:
        bench = Bench(last=GIVEN, trust_addresses=True)
        bench.join(STRANGER)
        bench.hear(ALICE, Keepalive(BOB))
        bench.hear(CAROL, Keepalive(BOB))
        bench.forget()
        bench.hear(ALICE, Request(BOB, 1, 1))
        assert (bench.sent, bench.drops) == ({}, {"request_for_stranger": 1})
        bench.hear(CAROL, Request(BOB, 1, 1))
        assert bench.to(STRANGER) == [Forward(BOB, 1, 1)]


class TestJournals:
    def keeps(self, bench: Bench, peer: Address, oldest: int, since: int, durable: int, token: bytes = TOKEN) -> None:
        bench.hear(peer, Holds(token, oldest, Holding(since, durable)))

    def test_only_watching_clients_receive_journal_progress(self) -> None:
        bench = Bench()
        bench.join(ALICE, flags=Flags.DURABLE | Flags.EXTENSIONS)
        bench.join(BOB, flags=Flags.EXTENSIONS | Flags.WATCHES)
        bench.join(CAROL, flags=Flags.EXTENSIONS)
        bench.hear(STRANGER, *[Push(b"x")] * 5)
        bench.forget()
        self.keeps(bench, ALICE, 1, 2, 5)
        assert bench.sent.keys() == {BOB}
        assert bench.to(BOB) == [Status(TOKEN, 1, 5, (Holding(2, 5),))]
        bench.forget()
        bench.now += 1
        self.keeps(bench, ALICE, 1, 2, 5)
        assert bench.sent == {}
        bench.hear(CAROL, Keepalive(flags=Flags.EXTENSIONS, token=TOKEN))
        assert bench.to(CAROL) == [Status(TOKEN, 1, 5), KeepaliveAck(TOKEN)]

    def test_holds_are_accepted_only_from_a_durable_journal_with_its_token(self) -> None:
        bench = Bench()
        bench.join(ALICE, flags=Flags.DURABLE)
        bench.join(BOB)
        self.keeps(bench, ALICE, 1, 1, 5, bytes(16))
        self.keeps(bench, BOB, 1, 1, 5)
        self.keeps(bench, STRANGER, 1, 1, 5)
        assert bench.drops == {"holds_of_stranger": 3}
        assert [client.holds for client in bench.node.clients] == [None, None]

    def test_a_restarted_backbone_reports_no_last_number_before_it_assigns_one(self) -> None:
        bench = Bench(last=GIVEN)
        keepalive = Keepalive(flags=Flags.EXTENSIONS, token=TOKEN)
        bench.hear(ALICE, keepalive)
        assert bench.to(ALICE)[0] == Status(TOKEN, 0, 0)
        bench.hear(ALICE, Push(b"x"))
        bench.forget()
        bench.hear(ALICE, keepalive)
        assert bench.to(ALICE)[0] == Status(TOKEN, 0, GIVEN + 1)


class TestBackpressure:
    SIZE, COUNT = 1_000, 100

    def waits_for_repair(
        self, *, early: bool = True, first: int = 60, flags: int = Flags.NONE, **options: Any
    ) -> Bench:
        """Request a message close to eviction from a retransmit buffer of about 50 messages."""
        bench = Bench(retransmit=60 * (self.SIZE + 137), **options)
        if early:
            bench.join(ALICE)
        bench.join(BOB, flags=flags)
        if flags:
            bench.hear(BOB, Holds(TOKEN, 1, Holding(1, self.COUNT), 2 * self.COUNT))
        for _ in range(self.COUNT):
            bench.hear(CAROL, Push(bytes(self.SIZE)))
        if not early:
            bench.join(ALICE)
        bench.hear(ALICE, Request(ANY_ADDRESS, first, first))
        return bench

    def slowed(self, bench: Bench) -> bool:
        for _ in range(self.COUNT):
            bench.hear(CAROL, Push(bytes(self.SIZE)))
        dropped = bench.drops.get("repairs_behind", 0)
        assert bench.node.sequencer.last == 2 * self.COUNT - dropped
        return dropped > 0

    def test_publishers_are_slowed_down_before_a_missing_message_leaves_the_buffer(self) -> None:
        assert self.slowed(self.waits_for_repair(min_rate=1.0))

    def test_publishers_are_not_slowed_down_for_a_recent_message(self) -> None:
        assert not self.slowed(self.waits_for_repair(min_rate=1.0, first=90))

    def test_publishers_are_not_slowed_down_for_a_client_that_joined_later(self) -> None:
        assert not self.slowed(self.waits_for_repair(min_rate=1.0, early=False))

    def test_publishers_are_not_slowed_down_for_a_message_in_a_durable_journal(self) -> None:
        assert not self.slowed(self.waits_for_repair(min_rate=1.0, flags=Flags.DURABLE))

    def test_publishers_are_not_slowed_down_without_a_minimum_rate(self) -> None:
        assert not self.slowed(self.waits_for_repair(min_rate=None))


class TestAheadOfJournals:
    """A retransmit buffer of 100 messages, of which 50 may be ahead of the most advanced journal."""

    SIZE = 1_000

    def bench(self, **options: Any) -> Bench:
        bench = Bench(retransmit=100 * (self.SIZE + 137), **options)
        bench.join(ALICE, flags=Flags.DURABLE | Flags.EXTENSIONS)
        return bench

    def numbered(self, bench: Bench, count: int = 200) -> int:
        """Push messages; return how many are numbered."""
        before = bench.node.sequencer.last
        for _ in range(count):
            bench.hear(CAROL, Push(bytes(self.SIZE)))
        return bench.node.sequencer.last - before

    def has(self, bench: Bench, reached: int, peer: Address = ALICE) -> None:
        bench.hear(peer, Holds(TOKEN, 1, Holding(1, 0), reached))

    def test_publishers_wait_for_the_only_journal(self) -> None:
        bench = self.bench(min_rate=1.0)
        assert 50 <= self.numbered(bench) <= 52
        assert bench.drops["repairs_behind"] == 200 - bench.node.sequencer.last
        self.has(bench, 40)
        assert 38 <= self.numbered(bench) <= 40
        self.has(bench, 10)  # A journal may report a lower position than before.
        assert self.numbered(bench) == 0

    def test_publishers_may_send_at_the_minimum_rate_while_the_journal_is_behind(self) -> None:
        bench = self.bench(min_rate=100.0 * self.SIZE)
        self.numbered(bench)
        bench.now += 10
        assert 10 <= self.numbered(bench) <= 12
        bench.wait(0.1)
        assert 9 <= self.numbered(bench) <= 12

    def test_publishers_wait_for_the_most_advanced_journal(self) -> None:
        bench = self.bench(min_rate=1.0)
        bench.join(BOB, flags=Flags.DURABLE | Flags.EXTENSIONS)
        for numbered in range(25, 500, 25):
            assert self.numbered(bench, 25) == 25
            self.has(bench, numbered, BOB)

    def test_a_journal_that_catches_up_does_not_slow_publishers_down(self) -> None:
        bench = Bench(retransmit=100 * (self.SIZE + 137), min_rate=1.0)
        assert self.numbered(bench) == 200
        bench.join(ALICE, flags=Flags.DURABLE | Flags.EXTENSIONS)
        assert 50 <= self.numbered(bench) <= 52
        bench.wait(CLIENT_LIFETIME)
        assert self.numbered(bench) == 200

    @pytest.mark.parametrize("options", [{"min_rate": None}, {"retransmit": 0}])
    def test_publishers_do_not_wait_for_journals_without_minimum_rate_or_buffer(self, options: dict[str, Any]) -> None:
        bench = Bench(**{"retransmit": 100_000, "min_rate": 1.0} | options)
        bench.join(ALICE, flags=Flags.DURABLE | Flags.EXTENSIONS)
        assert self.numbered(bench) == 200

    def test_publishers_do_not_wait_for_messages_numbered_before_a_restart(self) -> None:
        known = KnownClient(ALICE, ALICE, Flags.DURABLE | Flags.EXTENSIONS, Dialect.V2, 5, START - 1)
        bench = Bench(last=1_000, known=[known], retransmit=100 * (self.SIZE + 137), min_rate=1.0)
        assert 50 <= self.numbered(bench) <= 52


class TestAgain:
    @SIZES
    def test_a_retransmitted_push_gets_no_second_number(self, size: int) -> None:
        bench = Bench()
        bench.join(CAROL)
        messages = [wrap(b"12345678", counter, b"x") for counter in range(size)]
        bench.hear(ALICE, *(Push(data, confirm=True) for data in messages))
        bench.forget()
        bench.hear(ALICE, *(Push(data, again=True) for data in messages))
        assert bench.to(ALICE) == [Deliver(number, data) for number, data in enumerate(messages, 1)]
        assert bench.to(CAROL) == []
        assert (bench.node.sequencer.last, bench.node.counters.repeated) == (size, size)

    def test_a_retransmitted_push_without_a_number_is_numbered(self) -> None:
        bench = Bench()
        bench.join(ALICE)
        bench.hear(ALICE, Push(wrap(b"12345678", 1, b"x"), again=True))
        bench.hear(ALICE, Push(wrap(b"12345678", 1, b"another"), again=True))
        assert bench.sequences(ALICE) == [1, 2]

    def test_a_retransmitted_push_without_an_envelope_is_numbered_again(self) -> None:
        bench = Bench()
        bench.join(ALICE)
        bench.hear(ALICE, Push(b"short"), Push(b"short", again=True), Push(bytes(100)), Push(bytes(100), again=True))
        assert bench.sequences(ALICE) == [1, 2, 3, 4]

    def test_a_retransmitted_push_of_a_dropped_message_gets_a_new_number(self) -> None:
        bench = Bench(retransmit=2_000)
        bench.join(ALICE)
        messages = [wrap(b"12345678", counter, bytes(100)) for counter in range(50)]
        for data in messages:
            bench.hear(ALICE, Push(data))
        bench.forget()
        bench.hear(ALICE, Push(messages[0], again=True), Push(messages[-1], again=True))
        assert bench.sequences(ALICE) == [51, 50]


class TestConfirm:
    @SIZES
    @pytest.mark.parametrize("dialect", Dialect)
    def test_a_confirmed_push_is_returned_to_a_publisher_that_does_not_subscribe(
        self, size: int, dialect: Dialect
    ) -> None:
        bench = Bench()
        bench.join(ALICE)
        bench.join(BOB, flags=Flags.NOSUBSCRIBE)
        for peer in (STRANGER, BOB):
            bench.hear(peer, *[Push(b"x", dialect, confirm=True)] * size)
        assert bench.sequences(STRANGER) == list(range(1, size + 1))
        assert bench.sequences(BOB) == list(range(size + 1, 2 * size + 1))
        assert bench.sequences(ALICE) == list(range(1, 2 * size + 1))

    @SIZES
    def test_a_confirmed_push_is_delivered_once_to_a_subscribing_publisher(self, size: int) -> None:
        bench = Bench()
        bench.join(ALICE)
        bench.hear(ALICE, *[Push(b"x", confirm=True)] * size)
        assert bench.sequences(ALICE) == list(range(1, size + 1))

    def test_a_confirmed_push_is_returned_to_its_source_address(self) -> None:
        bench = Bench()
        elsewhere = (ALICE[0], 9999)
        bench.hear(ALICE, Keepalive(elsewhere))
        bench.forget()
        bench.hear(ALICE, Push(b"x", confirm=True))
        assert bench.to(ALICE) == bench.to(elsewhere) == [Deliver(1, b"x")]

    @SIZES
    def test_only_pushes_with_confirm_are_returned(self, size: int) -> None:
        bench = Bench()
        bench.hear(STRANGER, *[Push(b"a"), Push(b"b", confirm=True), Push(b"c", Dialect.V1)] * size)
        assert bench.to(STRANGER) == [Deliver(2 + 3 * number, b"b") for number in range(size)]

    @SIZES
    def test_each_publisher_gets_its_own_message_back(self, size: int) -> None:
        bench = Bench()
        pushes = [(encode(Push(b"x", confirm=True)), peer) for peer in (ALICE, BOB)]
        bench.receive((encode(Keepalive(flags=NOTHING)), CAROL), *pushes * size)
        assert bench.sequences(ALICE) == list(range(1, 2 * size, 2))
        assert bench.sequences(BOB) == list(range(2, 2 * size + 1, 2))


class TestNarrowing:
    def test_any_host_may_push_by_default(self) -> None:
        bench = Bench()
        bench.hear(STRANGER, Push(b""))
        assert (bench.stored.last, bench.drops) == (1, {})

    @SIZES
    def test_allow_restricts_keepalives_and_pushes(self, size: int) -> None:
        bench = Bench(allow=AddressList(["192.0.2.0/24"]))
        bench.join(ALICE)
        bench.hear(STRANGER, Keepalive(), *[Push(b"no")] * size)
        bench.hear(BOB, *[Push(b"yes")] * size)
        assert bench.to(ALICE) == [Deliver(number + 1, b"yes") for number in range(size)]
        assert set(bench.sent) == {ALICE}
        assert bench.drops == {"not_allowed": 1, "push_not_allowed": size}

    def test_allow_applies_to_the_source_and_not_to_the_announced_address(self) -> None:
        bench = Bench(allow=AddressList(["192.0.2.0/24"]), trust_addresses=True)
        bench.hear(STRANGER, Keepalive(ALICE))
        assert (bench.addresses, bench.drops) == ([], {"not_allowed": 1})

    @SIZES
    def test_allow_push_restricts_pushes(self, size: int) -> None:
        bench = Bench(allow_push=AddressList(["192.0.2.8/32"]))
        bench.join(ALICE)
        pushes = [(encode(Push(b"yes")), BOB), (encode(Push(b"no")), ALICE)]
        bench.receive(*pushes * size)
        assert bench.to(ALICE) == [Deliver(number + 1, b"yes") for number in range(size)]
        assert bench.drops == {"push_not_allowed": size}

    @SIZES
    def test_allow_push_does_not_extend_allow(self, size: int) -> None:
        bench = Bench(allow=AddressList(["192.0.2.0/24"]), allow_push=AddressList(["192.0.2.8/32", "198.51.100.0/24"]))
        for peer in (ALICE, BOB, STRANGER):
            bench.hear(peer, *[Push(b"")] * size)
        assert (bench.stored.last, bench.drops) == (size, {"push_not_allowed": 2 * size})


class TestSecret:
    @pytest.mark.parametrize("step", [-1, 0, 1])
    def test_a_token_of_the_current_or_a_neighbouring_step_is_admitted(self, step: int) -> None:
        bench = Bench(secret=SECRET)
        keepalive = token_keepalive(ALICE, bench.now, flags=Flags.NOJOURNAL, step=step)
        bench.hear(ALICE, keepalive)
        assert bench.to(ALICE) == [KeepaliveAck(keepalive.token)]
        assert bench.addresses == [ALICE]

    @pytest.mark.parametrize(
        ("make", "reason"),
        [
            (lambda: token_keepalive(ALICE, START, step=2), "token"),
            (lambda: token_keepalive(ALICE, START, step=-2), "token"),
            (lambda: token_keepalive(ALICE, START, secret=b"another secret, as long"), "token"),
            (lambda: Keepalive(ALICE, 1, token_keepalive(ALICE, START).token), "token"),
            (lambda: Keepalive(ALICE, 0, token_keepalive(BOB, START).token), "token"),
            (lambda: Keepalive(ALICE, token=b"", dialect=Dialect.V1), "token"),
            (lambda: token_keepalive(ANY_ADDRESS, START), "foreign_address"),
            (lambda: token_keepalive((ALICE[0], 0), START), "foreign_address"),
            (lambda: token_keepalive(("0.0.0.0", ALICE[1]), START), "foreign_address"),
            (lambda: token_keepalive((ALICE[0], 9), START), "foreign_address"),
            (lambda: token_keepalive(BOB, START), "foreign_address"),
        ],
        ids=[
            "too new",
            "too old",
            "other secret",
            "other flags",
            "other address",
            "v1",
            "zeros",
            "no port",
            "no address",
            "other port",
            "other host",
        ],
    )
    def test_an_invalid_token_is_refused_without_an_answer(self, make: Callable[[], Keepalive], reason: str) -> None:
        bench = Bench(secret=SECRET)
        bench.hear(ALICE, make())
        assert (bench.sent, bench.addresses, bench.drops) == ({}, [], {reason: 1})

    def test_a_token_is_refused_from_another_address(self) -> None:
        bench = Bench(secret=SECRET)
        bench.hear(BOB, token_keepalive(ALICE, bench.now))
        assert (bench.sent, bench.drops) == ({}, {"foreign_address": 1})

    @SIZES
    def test_only_admitted_clients_may_push_with_a_secret(self, size: int) -> None:
        bench = Bench(secret=SECRET)
        bench.hear(ALICE, *[Push(b"before")] * size)
        bench.hear(ALICE, token_keepalive(ALICE, bench.now))
        bench.forget()
        bench.hear((ALICE[0], 9), *[Push(b"another port")] * size)
        bench.hear(ALICE, *[Push(b"admitted")] * size)
        assert bench.to(ALICE) == [Deliver(number + 1, b"admitted") for number in range(size)]
        assert bench.drops == {"push_not_allowed": 2 * size}
        bench.now += 5
        bench.hear(ALICE, *[Push(b"expired")] * size)
        assert bench.drops == {"push_not_allowed": 3 * size}

    def test_only_admitted_clients_may_request_with_a_secret(self) -> None:
        bench = Bench(last=GIVEN, secret=SECRET)
        for peer in (ALICE, BOB):
            bench.hear(peer, token_keepalive(peer, bench.now))
        bench.forget()
        bench.hear(CAROL, Request(CAROL, 1, 1))
        bench.hear((ALICE[0], 9), Request(ALICE, 1, 1))
        assert (bench.sent, bench.drops) == ({}, {"request_for_stranger": 2})
        bench.hear(ALICE, Request(ALICE, 1, 1))
        assert bench.to(BOB) == [Forward(ALICE, 1, 1)]

    def test_with_trusted_addresses_the_admitted_source_may_push(self) -> None:
        bench = Bench(secret=SECRET, trust_addresses=True)
        bench.hear(ALICE, token_keepalive(BOB, bench.now))
        bench.hear(ALICE, Push(b"yes"))
        bench.hear(BOB, Push(b"no"))
        assert (bench.sequences(BOB), bench.drops) == ([1], {"push_not_allowed": 1})

    @pytest.mark.parametrize("address", [ANY_ADDRESS, (ALICE[0], 0), ("0.0.0.0", ALICE[1])])
    def test_with_trusted_addresses_and_a_secret_the_address_must_be_explicit(self, address: Address) -> None:
        bench = Bench(secret=SECRET, trust_addresses=True)
        bench.hear(ALICE, token_keepalive(address, bench.now))
        assert (bench.sent, bench.drops) == ({}, {"foreign_address": 1})

    def test_a_client_that_changes_its_source_moves_only_its_own_right_to_push(self) -> None:
        bench = Bench(secret=SECRET, trust_addresses=True)
        for source, address in ((ALICE, ALICE), (ALICE, BOB), (CAROL, ALICE)):
            bench.hear(source, token_keepalive(address, bench.now))
        bench.hear(ALICE, Push(b"for Bob"))
        bench.hear(CAROL, Push(b"for Alice"))
        assert bench.stored.last == 2
        bench.hear(CAROL, token_keepalive(BOB, bench.now))
        bench.hear(ALICE, Push(b"for nobody"))
        assert (bench.stored.last, bench.drops) == (2, {"push_not_allowed": 1})

    def test_an_expired_client_keeps_the_right_to_push_of_others_with_the_same_source(self) -> None:
        bench = Bench(secret=SECRET, trust_addresses=True)
        bench.hear(CAROL, token_keepalive(ALICE, bench.now))
        bench.now += 1
        bench.hear(CAROL, token_keepalive(BOB, bench.now))
        bench.wait(4)
        assert bench.addresses == [BOB]
        bench.hear(CAROL, Push(b"for Bob"))
        assert (bench.sequences(BOB), bench.drops) == ([1], {})


class TestOwnAddress:
    def test_the_backbone_is_no_client_of_its_own(self) -> None:
        bench = Bench(trust_addresses=True)
        bench.hear(ALICE, Keepalive(OWN, token=TOKEN))
        bench.hear(OWN, Keepalive(token=TOKEN))
        assert (bench.sent, bench.node.clients, bench.drops) == ({}, [], {"own_address": 2})


class TestTableFull:
    def test_a_client_beyond_the_table_limit_gets_no_ack_and_no_messages(self) -> None:
        bench = Bench(max_clients=2)
        bench.join(ALICE, BOB)
        bench.hear(CAROL, Keepalive())
        bench.hear(STRANGER, Push(b""))
        assert set(bench.sent) == {ALICE, BOB}
        assert bench.drops == {"table_full": 1}

    def test_clients_in_a_full_table_are_renewed(self) -> None:
        bench = Bench(max_clients=1)
        bench.join(ALICE)
        bench.hear(ALICE, Keepalive(token=TOKEN))
        assert (bench.to(ALICE), bench.drops) == ([KeepaliveAck(TOKEN)], {})

    def test_an_expired_client_makes_room_in_a_full_table(self) -> None:
        bench = Bench(max_clients=1)
        bench.join(ALICE)
        bench.now += 5
        bench.hear(BOB, Keepalive())
        assert bench.addresses == [BOB]


class TestExhaustion:
    @pytest.mark.parametrize("size", [5, VECTOR_MINIMUM, VECTOR_MINIMUM + 20])
    @pytest.mark.parametrize("left", [1, 3, 5, VECTOR_MINIMUM])
    def test_no_message_is_numbered_after_the_last_number(self, size: int, left: int) -> None:
        bench = Bench(last=MAX_SEQUENCE - left, bound=MAX_SEQUENCE)
        bench.join(ALICE)
        bench.hear(BOB, *[Push(b"x", confirm=True)] * size)
        given_ = min(size, left)
        assert bench.sequences(ALICE) == bench.sequences(BOB)
        assert bench.sequences(ALICE) == list(range(MAX_SEQUENCE - left + 1, MAX_SEQUENCE - left + 1 + given_))
        exhausted = size >= left
        assert bench.node.state is (BackboneState.EXHAUSTED if exhausted else BackboneState.SERVING)
        assert bench.events.count(NumbersExhausted()) == exhausted
        assert bench.drops == ({"not_numbering": size - left} if size > left else {})
        assert bench.stored.bound == MAX_SEQUENCE

    def test_a_push_after_the_last_number_is_a_counted_drop(self) -> None:
        bench = Bench(last=MAX_SEQUENCE - 1)
        bench.join(ALICE)
        bench.hear(BOB, Push(b""))
        bench.forget()
        bench.hear(BOB, *[Push(b"")] * 50)
        bench.hear(BOB, Push(b""))
        assert (bench.sent, bench.drops) == ({}, {"not_numbering": 51})
        assert bench.node.sequencer.last == MAX_SEQUENCE

    def test_a_backbone_that_starts_after_the_last_number_reports_exhaustion(self) -> None:
        node = Backbone(BackboneConfig(), FirstForward(), BackboneStart(last=MAX_SEQUENCE, settle_until=START))
        assert (node.state, node.drain().events) == (BackboneState.EXHAUSTED, [NumbersExhausted()])
        assert node.next_deadline() is None


class TestSettling:
    def test_a_settling_backbone_queries_each_journal_for_all_messages(self) -> None:
        bench = Bench(settle=SETTLE_TIME)
        bench.hear(ALICE, Keepalive(token=TOKEN))
        bench.hear(BOB, V1_KEEPALIVE)
        bench.hear(CAROL, Keepalive(flags=Flags.NOJOURNAL, token=TOKEN))
        everything = Forward(OWN, 1, MAX_SEQUENCE)
        assert bench.to(ALICE) == [KeepaliveAck(TOKEN), everything]
        assert bench.to(BOB) == [KeepaliveAck(b""), everything]
        assert bench.to(CAROL) == [KeepaliveAck(TOKEN)]

    def test_a_settling_backbone_without_queries_only_waits(self) -> None:
        bench = Bench(settle=SETTLE_TIME, ask=False, last=7)
        bench.hear(ALICE, Keepalive(token=TOKEN))
        assert bench.to(ALICE) == [KeepaliveAck(TOKEN)]
        bench.hear(ALICE, Deliver(7, b""), Push(b"x"))
        assert bench.drops == {"unexpected": 1}
        bench.wait(SETTLE_TIME)
        assert bench.sequences(ALICE) == [8]

    def test_an_answer_to_the_query_makes_the_backbone_refuse_to_number(self) -> None:
        bench = Bench(settle=SETTLE_TIME)
        bench.hear(ALICE, Push(b"held"))
        bench.hear(ALICE, Keepalive())
        bench.forget()
        bench.hear(ALICE, Deliver(4_711, b"old"), Deliver(4_712, b"old"))
        assert (bench.node.state, bench.events) == (BackboneState.SETTLING, [])
        bench.wait(SETTLE_TIME)
        assert bench.events == [ExistingStreamDetected(ALICE, 4_711)]
        bench.hear(ALICE, *[Push(b"")] * 50)
        assert (bench.node.state, bench.sequences(ALICE), bench.stored.last) == (BackboneState.REFUSING, [], 0)
        assert bench.drops == {"not_numbering": 51}

    def test_a_single_claim_among_several_clients_is_rejected_and_reported(self) -> None:
        bench = Bench(settle=SETTLE_TIME)
        for peer in (ALICE, BOB, CAROL):
            bench.hear(peer, Keepalive())
        bench.hear(BOB, Deliver(2**40, b"made up"))
        bench.hear(ALICE, Push(b"x"))
        bench.forget()
        bench.wait(SETTLE_TIME)
        assert bench.events == [StreamClaimRejected(BOB, 2**40, 2)]
        assert (bench.node.state, bench.sequences(ALICE)) == (BackboneState.SERVING, [1])

    def test_two_claims_are_accepted_at_once(self) -> None:
        bench = Bench(settle=SETTLE_TIME)
        for peer in (ALICE, BOB, CAROL):
            bench.hear(peer, Keepalive())
        bench.forget()
        bench.hear(BOB, Deliver(5, b"old"))
        bench.hear(CAROL, Deliver(7, b"old"))
        assert (bench.node.state, bench.events) == (BackboneState.REFUSING, [ExistingStreamDetected(CAROL, 7)])

    def test_two_claims_of_one_host_are_rejected_if_another_host_was_queried(self) -> None:
        bench = Bench(settle=SETTLE_TIME)
        liars = ALICE, (ALICE[0], 9)
        for peer in (*liars, BOB):
            bench.hear(peer, Keepalive())
        bench.forget()
        for peer in liars:
            bench.hear(peer, Deliver(2**40, b"made up"))
        bench.wait(SETTLE_TIME)
        assert (bench.node.state, bench.events) == (BackboneState.SERVING, [StreamClaimRejected(ALICE, 2**40, 1)])

    def test_two_claims_are_accepted_if_all_clients_are_on_one_host(self) -> None:
        bench = Bench(settle=SETTLE_TIME)
        peers = [(ALICE[0], port) for port in (1, 2, 3)]
        for peer in peers:
            bench.hear(peer, Keepalive())
        for peer in peers[:2]:
            bench.hear(peer, Deliver(5, b"old"))
        assert bench.node.state is BackboneState.REFUSING

    def test_a_single_claim_is_accepted_with_a_secret(self) -> None:
        bench = Bench(settle=SETTLE_TIME, secret=SECRET)
        for peer in (ALICE, BOB):
            bench.hear(peer, Keepalive(peer, 0, make_token(SECRET, peer, 0, START)))
        bench.forget()
        bench.hear(BOB, Deliver(5, b"old"))
        assert (bench.node.state, bench.events) == (BackboneState.REFUSING, [ExistingStreamDetected(BOB, 5)])

    def test_claims_of_clients_that_were_not_queried_are_dropped(self) -> None:
        bench = Bench(settle=SETTLE_TIME)
        bench.hear(BOB, Keepalive(flags=Flags.NOJOURNAL))
        bench.hear(ALICE, Keepalive())
        for peer in (STRANGER, BOB, (ALICE[0], 9)):
            bench.hear(peer, Deliver(1, b""))
        assert (bench.node.state, bench.drops) == (BackboneState.SETTLING, {"unexpected": 3})
        bench.wait(SETTLE_TIME)
        assert bench.node.state is BackboneState.SERVING

    def test_waiting_pushes_are_numbered_in_order_without_a_claim(self) -> None:
        bench = Bench(settle=SETTLE_TIME)
        bench.hear(STRANGER, *(Push(bytes([number]), confirm=number == 0) for number in range(50)))
        bench.join(ALICE)
        bench.hear(STRANGER, Push(b"v1", Dialect.V1))
        assert (bench.sequences(ALICE), bench.stored.last) == ([], 0)
        assert bench.node.next_deadline() == START + SETTLE_TIME
        bench.wait(SETTLE_TIME - 0.001)
        assert bench.node.state is BackboneState.SETTLING
        bench.wait(0.001)
        assert bench.node.state is BackboneState.SERVING
        held = [Deliver(number + 1, bytes([number])) for number in range(50)]
        assert bench.to(ALICE) == [*held, Deliver(51, b"v1")]
        assert bench.to(STRANGER) == held[:1]
        bench.hear(STRANGER, Push(b"next"))
        assert bench.sequences(ALICE)[-1] == 52

    def test_the_deadline_while_settling_is_the_earliest_event(self) -> None:
        bench = Bench(settle=60)
        bench.join(ALICE)
        assert bench.node.next_deadline() == START + CLIENT_LIFETIME
        bench.wait(CLIENT_LIFETIME)
        assert bench.node.next_deadline() == START + 60

    def test_a_settled_backbone_sends_no_queries(self) -> None:
        bench = Bench(settle=SETTLE_TIME)
        bench.wait(SETTLE_TIME)
        bench.hear(ALICE, Keepalive(token=TOKEN))
        assert bench.to(ALICE) == [KeepaliveAck(TOKEN)]
        bench.hear(ALICE, Deliver(1, b""))
        assert (bench.node.state, bench.drops) == (BackboneState.SERVING, {"unexpected": 1})

    def test_the_backlog_is_limited_in_messages(self) -> None:
        bench = Bench(settle=SETTLE_TIME)
        bench.join(ALICE)
        bench.hear(BOB, *[Push(b"")] * (HELD_MESSAGES + 3))
        assert bench.drops == {"not_numbering": 3}
        bench.wait(SETTLE_TIME)
        assert bench.sequences(ALICE) == list(range(1, HELD_MESSAGES + 1))

    def test_the_backlog_is_limited_in_bytes(self) -> None:
        bench = Bench(settle=SETTLE_TIME)
        size = 2**15
        bench.hear(BOB, *[Push(bytes(size))] * (HELD_BYTES // size))
        assert bench.drops == {}
        bench.hear(BOB, Push(b"x"))
        assert bench.drops == {"not_numbering": 1}
        bench.wait(SETTLE_TIME)
        assert bench.stored.last == HELD_BYTES // size

    def test_a_push_retransmitted_while_settling_gets_one_number(self) -> None:
        bench = Bench(settle=SETTLE_TIME)
        first, second = (Push(wrap(b"publish!", counter, b"x")) for counter in (1, 2))
        bench.hear(BOB, first, first, Push(b"raw"), second, Push(b"raw"), first)
        assert bench.drops == {"held_already": 2}
        bench.join(ALICE)
        bench.wait(SETTLE_TIME)
        assert [packet.data for packet in bench.to(ALICE) if isinstance(packet, Deliver)] == [
            first.data,
            b"raw",
            second.data,
            b"raw",
        ]
        # A retransmission soon after the first push may have crossed its return.
        bench.wait(DUPLICATE_WINDOW - 0.01)
        new = [Push(wrap(b"publish!", counter, b"x")) for counter in (3, 4)]
        bench.hear(BOB, first, second, Push(b"raw"))
        bench.hear(BOB, new[0], first, new[1])
        assert bench.drops == {"held_already": 5}
        told = [packet.data for packet in bench.to(ALICE) if isinstance(packet, Deliver)]
        assert told[4:] == [b"raw", *(push.data for push in new)]
        bench.wait(0.01)
        bench.hear(BOB, first)
        assert bench.sequences(ALICE)[-1] == 8

    def test_a_push_that_is_not_allowed_does_not_enter_the_backlog(self) -> None:
        bench = Bench(settle=SETTLE_TIME, allow_push=AddressList(["192.0.2.8/32"]))
        bench.hear(ALICE, Push(b""))
        bench.hear(BOB, Push(bytes(MAX_DELIVERABLE + 1), Dialect.V1))
        assert bench.drops == {"push_not_allowed": 1, "too_long": 1}

    def test_the_backlog_may_exhaust_the_numbers(self) -> None:
        bench = Bench(settle=SETTLE_TIME, ask=False, last=MAX_SEQUENCE - 2)
        bench.join(ALICE)
        bench.hear(BOB, *[Push(b"")] * 3)
        bench.wait(SETTLE_TIME)
        assert bench.sequences(ALICE) == [MAX_SEQUENCE - 1, MAX_SEQUENCE]
        assert (bench.drops, bench.events.count(NumbersExhausted())) == ({"not_numbering": 1}, 1)

    def test_restored_clients_are_served_at_once(self) -> None:
        known = KnownClient(ALICE, ALICE, Flags.NONE, Dialect.V2, 5, START - 1)
        bench = Bench(last=7, known=[known])
        assert [event.client.address for event in bench.events if isinstance(event, ClientJoined)] == [ALICE]
        bench.hear(BOB, Push(b"x"))
        assert bench.sequences(ALICE) == [8]
        bench.wait(CLIENT_LIFETIME)
        assert [type(event) for event in bench.events] == [ClientJoined, ClientExpired]

    def test_a_restored_client_receives_no_status_before_it_has_sent_a_token(self) -> None:
        flags = Flags.EXTENSIONS | Flags.WATCHES
        bench = Bench(last=7, known=[KnownClient(ALICE, ALICE, flags, Dialect.V2, 5, START - 1)])
        bench.join(CAROL, flags=Flags.DURABLE | Flags.EXTENSIONS)
        bench.hear(CAROL, Holds(TOKEN, 1, Holding(1, 7)))
        bench.hear(ALICE, Request(ANY_ADDRESS, 1, 3))
        bench.hear(ALICE, Request(ANY_ADDRESS, 1, 3))
        assert bench.to(ALICE) == []
        bench.hear(ALICE, Keepalive(flags=flags, token=TOKEN))
        assert [type(packet) for packet in bench.to(ALICE)] == [Status, KeepaliveAck]

    def test_queries_are_repeated_with_each_keepalive(self) -> None:
        bench = Bench(settle=SETTLE_TIME)
        for _ in range(2):
            bench.forget()
            bench.hear(ALICE, Keepalive(token=TOKEN))
            assert bench.to(ALICE) == [KeepaliveAck(TOKEN), Forward(OWN, 1, MAX_SEQUENCE)]


class TestDrops:
    @pytest.mark.parametrize("padding", [0, VECTOR_MINIMUM], ids=["per packet", "columnar"])
    def test_every_malformed_datagram_is_counted_and_reported_once_a_minute(
        self, vectors: dict[str, Vector], padding: int
    ) -> None:
        malformed = [
            vector["datagram"] for vector in vectors.values() if vector["kind"] in ("malformed", "contradiction")
        ]
        assert len(malformed) > 20
        for datagram in malformed:
            bench = Bench()
            rest = [(encode(Push(b"")), BOB)] * padding
            for times in (1, 2):
                bench.receive((datagram, STRANGER), *rest, (datagram, STRANGER))
                (reason,) = bench.drops
                assert bench.drops == {reason: 2 * times}
                (event,) = bench.events
                assert isinstance(event, PacketDropped)
                assert (event.reason, event.peer) == (reason, STRANGER)
                assert event.detail
            bench.receive((datagram, ALICE))
            bench.now += 60
            bench.receive((datagram, STRANGER))
            assert [event.peer for event in bench.events if isinstance(event, PacketDropped)] == [
                STRANGER,
                ALICE,
                STRANGER,
            ]
            assert (bench.sent, bench.stored.last) == ({}, 2 * padding)

    @SIZES
    def test_a_truncated_datagram_is_malformed_although_it_looks_complete(
        self, vectors: dict[str, Vector], size: int
    ) -> None:
        bench = Bench()
        cut = [vectors["push_v2_cut_to_a_valid_v1"]["datagram"], encode(V1_KEEPALIVE), encode(Request(ALICE, 1, 1))]
        bench.receive(*[(datagram, ALICE) for datagram in cut] * size, truncated=range(3 * size))
        assert (bench.sent, bench.drops) == ({}, {"truncated": 3 * size})

    @SIZES
    @pytest.mark.parametrize(
        "packet", [Deliver(1, b"x"), Forward(ALICE, 1, 2), KeepaliveAck(TOKEN), KeepaliveAck(b"")], ids=repr
    )
    def test_packets_for_clients_are_counted_drops(self, packet: Packet, size: int) -> None:
        bench = Bench()
        bench.join(ALICE)
        bench.hear(ALICE, *[packet] * size)
        assert (bench.sent, bench.drops, bench.stored.last) == ({}, {"unexpected": size}, 0)
        assert len(bench.events) == 1

    @given(st.lists(st.binary(max_size=40), max_size=80))
    def test_arbitrary_datagrams_do_not_raise(self, datagrams: list[bytes]) -> None:
        bench = Bench()
        bench.receive(*((datagram, ALICE) for datagram in datagrams))


Arrival = tuple[bytes, Address, bool]
"""A datagram, its source, and its truncation flag."""

PEERS: list[Address] = [ALICE, BOB, CAROL, STRANGER]
TYPE_BYTES = [0x01, 0x02, 0x82, 0x04, 0x08, 0x10, 0x20, 0x03]


@st.composite
def runs(draw: st.DrawFn) -> list[Arrival]:
    """A few equal datagrams in a row, to exercise the columnar path for runs of PUSHes."""
    peer = draw(st.sampled_from(PEERS))
    first, last = sorted((draw(st.integers(0, 60)), draw(st.integers(0, 60))))
    flags = draw(st.sampled_from([0, 0, 0, 1, 2, 3]))
    packet: st.SearchStrategy[bytes] = st.one_of(
        st.builds(Push, st.binary(max_size=4), st.sampled_from(Dialect), st.booleans()).map(encode),
        st.just(encode(Keepalive(ANY_ADDRESS, flags, TOKEN))),
        st.just(encode(token_keepalive(peer, START, flags=flags))),
        st.just(encode(V1_KEEPALIVE)),
        st.just(encode(Keepalive(draw(st.sampled_from(PEERS)), token=TOKEN))),
        st.just(encode(Request(draw(st.sampled_from([*PEERS, ANY_ADDRESS])), first, last))),
        st.just(encode(Push(bytes(MAX_DELIVERABLE + 1), Dialect.V1))),
        st.builds(lambda kind, rest: bytes([kind]) + rest, st.sampled_from(TYPE_BYTES), st.binary(max_size=30)),
        st.binary(max_size=9),
    )
    kind = draw(st.sampled_from(["push", "any", "any"]))
    if kind == "push":
        packet = st.builds(Push, st.binary(max_size=4), st.sampled_from(Dialect), st.booleans()).map(encode)
        return [(draw(packet), peer, False)] * draw(st.integers(1, VECTOR_MINIMUM + 3))
    return [(draw(packet), peer, draw(st.integers(0, 9)) == 9)] * draw(st.integers(1, 3))


@st.composite
def repairs(draw: st.DrawFn) -> list[Arrival]:
    """A client that publishes, retransmits and requests, to exercise the columnar paths for these."""
    peer = draw(st.sampled_from(PEERS[:2]))
    counters = st.lists(st.integers(0, 9), min_size=1, max_size=12)
    data = [wrap(b"someones", counter, b"x" * draw(st.integers(0, 1))) for counter in draw(counters)]
    pushes = [encode(Push(each, again=again)) for again in draw(st.lists(st.booleans(), max_size=3)) for each in data]
    pairs = draw(st.lists(st.tuples(st.integers(0, 40), st.sampled_from([0, 0, 0, 1, 5])), max_size=12))
    if draw(st.booleans()):
        pairs.sort()
    requests = [encode(Request(ANY_ADDRESS, first, first + more)) for first, more in pairs]
    return [(datagram, peer, False) for datagram in [encode(Keepalive(token=TOKEN)), *pushes, *requests]]


streams = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.4, 2.5, 5.0, -7.0]),
        st.lists(runs() | repairs(), max_size=12).map(lambda groups: list(chain.from_iterable(groups))),
    ),
    min_size=1,
    max_size=4,
)
"""Delay in seconds, and the datagrams that arrive after it."""

configurations = st.sampled_from(
    [
        {},
        {"settle": 2.0},
        {"last": MAX_SEQUENCE - 40, "bound": MAX_SEQUENCE - 30},
        {"secret": SECRET},
        {"allow_push": AddressList(["192.0.2.0/29"]), "allow": AddressList(["192.0.2.0/24"])},
        {"request_rate": 1.0, "request_burst": 6.0},
        {"max_clients": 2, "trust_addresses": True, "request_rate": 1.0, "request_burst": 3.0},
    ]
)


def batches(arrivals: list[Arrival], cuts: Iterable[int]) -> list[list[Arrival]]:
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(arrivals)}), len(arrivals)]
    return [arrivals[start:stop] for start, stop in pairwise(edges) if start < stop]


def outcome(options: dict[str, Any], stream: list[tuple[float, list[Arrival]]], cuts: list[int]) -> dict[str, Any]:
    """Feed a backbone ``stream``, split into batches at ``cuts``; return its observable outcome."""
    bench = Bench(RoundRobinForward(), **options)
    for seconds, arrivals in stream:
        bench.wait(seconds)
        for batch in batches(arrivals, cuts):
            bench.receive(
                *((datagram, peer) for datagram, peer, _ in batch),
                truncated=[row for row, (_, _, cut) in enumerate(batch) if cut],
            )
    return {
        "sent": dict(bench.sent),
        "last": bench.stored.last,
        "counters": bench.node.counters,
        "drops": bench.drops,
        "events": list(map(repr, bench.events)),
        "clients": list(map(repr, bench.node.clients)),
        "phase": bench.node.state,
        "deadline": bench.node.next_deadline(),
    }


class TestBatches:
    @given(options=configurations, stream=streams, cuts=st.lists(st.integers(1, 200), max_size=6))
    def test_the_outcome_does_not_depend_on_how_a_stream_is_split(
        self, options: dict[str, Any], stream: list[tuple[float, list[Arrival]]], cuts: list[int]
    ) -> None:
        # `Bench.drain` checks that each DELIVER was made durable first.
        singly = outcome(options, stream, list(range(500)))
        assert outcome(options, stream, cuts) == singly
        assert outcome(options, stream, []) == singly

    def test_a_run_of_pushes_is_sent_as_one_burst_without_a_copy(self) -> None:
        bench = Bench()
        bench.join(ALICE)
        batch = Batch.pack([(encode(Push(b"abc")), BOB)] * 100)
        bench.node.receive_batch(batch, START)
        (effect,) = bench.node.drain().effects
        assert isinstance(effect, Send)
        (burst,) = effect.datagrams
        assert isinstance(burst, Burst)
        assert (burst.size, len(burst.data)) == (12, 1_200)
        batch.buffer[:] = bytes(len(batch.buffer))
        assert set(bytes(burst.data)) == {0}
