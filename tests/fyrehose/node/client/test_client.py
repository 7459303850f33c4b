from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zope.interface.verify import verifyObject

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError, MessageTooLarge, PublishQueueFull, SequenceRegressed
from fyrehose_twisted.fyrehose.config import ClientConfig, OutboxConfig, RepairConfig, Start, WindowConfig
from fyrehose_twisted.fyrehose.events import (
    ClientFailed,
    Connected,
    Disconnected,
    JournalsSynced,
    KeepaliveAcked,
    Message,
    MessagesDelivered,
    MessagesExpired,
    MessagesLost,
    MessagesPublished,
)
from fyrehose_twisted.fyrehose.node.client.client import Client, ClientState
from fyrehose_twisted.fyrehose.node.client.memory_store import MemoryStore
from fyrehose_twisted.fyrehose.node.client.publishing.linger import QUIET_TIME
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import MESSAGE_OVERHEAD
from fyrehose_twisted.fyrehose.node.client.repair import MAX_RANGE, MAX_SEARCH_ATTEMPTS
from fyrehose_twisted.fyrehose.node.client.repair_responder import BYTE_BURST, BYTE_RATE
from fyrehose_twisted.fyrehose.node.client.stream_head import (
    CONTRADICTIONS,
    REGRESSION_CONFIRMATIONS,
    UNCONFIRMED_TIMEOUT,
)
from fyrehose_twisted.fyrehose.node.client.subscription import MAX_PROBE_INTERVAL
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.envelope import wrap
from fyrehose_twisted.fyrehose.wire.packets import (
    MAX_SEQUENCE,
    Asked,
    Deliver,
    Dialect,
    Flags,
    Forward,
    Holding,
    Keepalive,
    KeepaliveAck,
    Packet,
    Push,
    Request,
    Status,
)
from fyrehose_twisted.fyrehose.wire.run_codec import VECTOR_MINIMUM
from fyrehose_twisted.interfaces import IDatagramNode

START = 1_700_000_000.0
BACKBONE: Address = ("10.0.0.1", 2323)
OTHER: Address = ("10.0.0.8", 4000)
STRANGER: Address = ("198.51.100.1", 666)
FIRST = ClientConfig(start=1)
ONE_ATTEMPT = ClientConfig(start=1, repair=RepairConfig(attempts=1))
PROBE = (1, MAX_RANGE)
"""What such a client asks for when it is connected: it may have missed what was sent before."""

PacketT = TypeVar("PacketT")


class Bench:
    """A client, a clock, and everything that the client sent and told."""

    def __init__(
        self,
        config: ClientConfig = FIRST,
        *,
        connect: bool = True,
        seed: int = 1,
        store: MemoryStore | None = None,
    ) -> None:
        self.now = START
        self.client = Client(BACKBONE, config, Random(seed), self.now, store=store)
        self.sent: list[tuple[float, Packet, Address]] = []
        self.events: list[tuple[float, Any]] = []
        self.answering = connect
        """Whether the backbone answers KEEPALIVEs."""
        if connect:
            self.tick()
            self.tick()

    def drain(self) -> None:
        drained = True
        while drained:
            _, effects, events = self.client.drain()
            for effect in effects:
                for datagram in effect.iter_datagrams():
                    for peer in effect.peers:
                        self.sent.append((self.now, decode(datagram), peer))
            self.events += [(self.now, event) for event in events]
            drained = bool(events)

    def tick(self) -> None:
        before = len(self.sent)
        self.client.tick(self.now)
        self.drain()
        if self.answering:
            for _, packet, _ in self.sent[before:]:
                if isinstance(packet, Keepalive):
                    self.receive(KeepaliveAck(packet.token))

    def run(self, seconds: float) -> None:
        """Let time pass; the client is ticked whenever it wants to be."""
        end = self.now + seconds
        for _ in range(100_000):
            deadline = self.client.next_deadline()
            if deadline is None or deadline > end:
                break
            self.now = max(self.now, deadline)
            self.tick()
        else:
            raise AssertionError("the client ticks without end")
        self.now = end

    def feed(self, arrivals: Iterable[tuple[Packet | bytes, Address]]) -> None:
        packed = [(packet if isinstance(packet, bytes) else encode(packet), peer) for packet, peer in arrivals]
        self.client.receive_batch(Batch.pack(packed), self.now)
        self.drain()

    def receive(self, *packets: Packet | bytes, peer: Address = BACKBONE) -> None:
        self.feed((packet, peer) for packet in packets)

    def deliver(self, *sequences: int, peer: Address = BACKBONE) -> None:
        self.receive(*(Deliver(sequence, data_of(sequence)) for sequence in sequences), peer=peer)

    def packets(self, kind: type[PacketT], since: float = START) -> list[PacketT]:
        return [packet for when, packet, _ in self.sent if isinstance(packet, kind) and when >= since]

    def times(self, kind: type[object]) -> list[float]:
        return [when - START for when, packet, _ in self.sent if isinstance(packet, kind)]

    def told(self, kind: type[PacketT]) -> list[PacketT]:
        return [event for _, event in self.events if isinstance(event, kind)]

    @property
    def requests(self) -> list[tuple[int, int]]:
        return [(request.first, request.last) for request in self.packets(Request)]

    @property
    def messages(self) -> list[Message]:
        return [message for delivered in self.told(MessagesDelivered) for message in delivered.messages]

    @property
    def sequences(self) -> list[int]:
        return [message.sequence for message in self.messages]

    @property
    def published(self) -> list[tuple[int, int]]:
        return [pair for event in self.told(MessagesPublished) for pair in event.messages]

    @property
    def drops(self) -> Counter[str]:
        return self.client.drops.counts


def data_of(sequence: int) -> bytes:
    return b"message %d" % sequence


def test_a_client_is_a_node() -> None:
    assert verifyObject(IDatagramNode, Client(BACKBONE, FIRST, Random(1), START))


class TestPresence:
    def test_keepalives_are_quick_until_the_first_is_answered(self) -> None:
        bench = Bench(connect=False)
        bench.run(2)
        assert bench.times(Keepalive) == pytest.approx([0.25 * index for index in range(9)])

    @pytest.mark.parametrize("interval", [0.1, 0.5, 0.9])
    def test_then_one_is_sent_each_interval(self, interval: float) -> None:
        bench = Bench(ClientConfig(start=1, keepalive_interval=interval))
        bench.run(10)
        times = bench.times(Keepalive)[1:]
        assert len(times) >= 9
        assert max(later - earlier for earlier, later in pairwise(times)) <= interval + 1e-6
        assert len(times) <= 10 / interval + 1

    @pytest.mark.parametrize(
        ("subscribe", "journal", "flags"),
        [(True, True, 0), (False, True, 3), (True, False, Flags.NOJOURNAL), (False, False, 3)],
    )
    def test_flags_say_what_the_client_wants(self, subscribe: bool, journal: bool, flags: int) -> None:
        # Who does not subscribe has nothing to journal, whatever the configuration says.
        bench = Bench(ClientConfig(subscribe=subscribe, journal=journal))
        assert bench.packets(Keepalive)[0].flags == flags | Flags.EXTENSIONS

    def test_it_is_connected_once_and_disconnected_after_five_seconds(self) -> None:
        bench = Bench(ClientConfig(start=1, keepalive_interval=0.7))
        bench.run(3.5)
        bench.answering = False
        bench.run(20)
        bench.answering = True
        bench.run(1)
        told = [
            (round(when - START, 2), type(event)) for when, event in bench.events if type(event) is not KeepaliveAcked
        ]
        last_answer = round(max(when for when, event in bench.events if when < START + 4) - START, 2)
        assert [kind for _, kind in told] == [Connected, Disconnected, Connected]
        assert told[1][0] == pytest.approx(last_answer + 5, abs=0.01)

    def test_the_round_trip_is_told(self) -> None:
        bench = Bench(connect=False)
        bench.tick()
        bench.now += 0.125
        bench.receive(KeepaliveAck(bench.packets(Keepalive)[0].token))
        assert bench.told(KeepaliveAcked) == [KeepaliveAcked(0.125)]

    @pytest.mark.parametrize(("token", "peer"), [(None, STRANGER), (bytes(16), BACKBONE), (b"", BACKBONE)])
    def test_an_ack_from_a_stranger_or_with_another_token_is_none(self, token: bytes | None, peer: Address) -> None:
        bench = Bench(connect=False)
        bench.tick()
        bench.receive(KeepaliveAck(bench.packets(Keepalive)[0].token if token is None else token), peer=peer)
        assert bench.told(Connected) == []
        assert bench.drops["stray_ack"] == 1

    def test_version_1_has_neither_flags_nor_a_token(self) -> None:
        bench = Bench(ClientConfig(start=1, dialect=Dialect.V1))
        assert bench.packets(Keepalive)[0] == Keepalive(token=b"", dialect=Dialect.V1)
        assert len(bench.told(Connected)) == 1

    @pytest.mark.parametrize(
        "wish", [{"subscribe": False}, {"journal": False}, {"secret": b"sixteen bytes and a few"}, {"watch": True}]
    )
    def test_version_1_cannot_say_what_needs_flags_or_a_token(self, wish: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError, match="v1"):
            ClientConfig(dialect=Dialect.V1, **wish)

    @pytest.mark.parametrize(
        "wish", [{"keepalive_interval": 0.09}, {"keepalive_interval": 1.1}, {"start": 0}, {"start": MAX_SEQUENCE + 1}]
    )
    def test_what_is_out_of_range_is_refused(self, wish: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError):
            ClientConfig(**wish)

    @pytest.mark.parametrize("dialect", Dialect)
    def test_who_has_left_keeps_itself_alive_no_more(self, dialect: Dialect) -> None:
        bench = Bench(ClientConfig(start=1, dialect=dialect))
        bench.client.leave(bench.now)
        bench.drain()
        since = len(bench.packets(Keepalive))
        bench.run(2)
        assert len(bench.packets(Keepalive)) == since

    def test_who_leaves_asks_for_nothing_more(self) -> None:
        bench = Bench()
        bench.client.leave(bench.now)
        bench.drain()
        assert bench.packets(Keepalive)[-1].flags == Flags.NOSUBSCRIBE | Flags.NOJOURNAL

    def test_version_1_cannot_say_goodbye(self) -> None:
        bench = Bench(ClientConfig(start=1, dialect=Dialect.V1))
        before = len(bench.sent)
        bench.client.leave(bench.now)
        bench.drain()
        assert len(bench.sent) == before


class TestOrder:
    def test_messages_come_in_order_and_once(self) -> None:
        bench = Bench()
        bench.deliver(2, 1, 1, 4, 2)
        bench.deliver(3)
        bench.deliver(4, 5)
        assert bench.sequences == [1, 2, 3, 4, 5]
        assert [message.data for message in bench.messages] == [data_of(sequence) for sequence in range(1, 6)]
        assert bench.client.counters.duplicates == 3

    def test_a_message_knows_when_it_was_received_and_what_was_on_the_wire(self) -> None:
        bench = Bench()
        bench.now = START + 0.5
        bench.deliver(1)
        message = bench.messages[0]
        assert message == Message(1, round((START + 0.5) * 1e6), data_of(1), data_of(1))
        assert tuple(message.record("fyrehose://x")) == ("fyrehose://x", 0, 1, message.received_at, data_of(1))

    @pytest.mark.parametrize("packet", [Push(b"x"), Request(OTHER, 1, 2), Keepalive()])
    def test_what_is_for_a_backbone_is_dropped(self, packet: Packet) -> None:
        bench = Bench()
        bench.receive(packet)
        assert bench.drops["unexpected"] == 1

    def test_bad_packets_are_dropped_and_counted(self) -> None:
        bench = Bench()
        bench.receive(b"", b"\xff", b"\x01\x00\x05", encode(Deliver(1, b"abc"))[:-1])
        assert bench.drops == {"empty": 1, "unknown_type": 1, "size": 1, "length": 1}
        bench.client.receive_batch(Batch.pack([(encode(Deliver(1, b"x")), BACKBONE)], truncated=[0]), bench.now)
        assert bench.drops["truncated"] == 1
        assert bench.sequences == []

    def test_what_was_cut_on_receipt_is_dropped_in_a_large_batch_too(self) -> None:
        bench = Bench()
        arrivals = [(encode(Deliver(sequence, b"x")), BACKBONE) for sequence in range(1, VECTOR_MINIMUM + 1)]
        bench.client.receive_batch(Batch.pack(arrivals, truncated=[VECTOR_MINIMUM - 1]), bench.now)
        bench.drain()
        assert bench.sequences == list(range(1, VECTOR_MINIMUM))
        assert bench.drops["truncated"] == 1

    def test_where_nothing_but_repeats_came_nothing_is_handed_over(self) -> None:
        bench = Bench()
        bench.receive(Deliver(1, wrap(b"someones", 0, b"once")))
        bench.receive(Deliver(2, wrap(b"someones", 0, b"once")))
        assert [len(delivered.messages) for delivered in bench.told(MessagesDelivered)] == [1]


class TestRepair:
    def test_a_gap_is_asked_for_after_the_reorder_delay(self) -> None:
        bench = Bench()
        bench.deliver(1, 2, 6)
        bench.run(0.0199)
        assert bench.requests == [PROBE]
        bench.run(0.0002)
        assert bench.requests == [PROBE, (3, 5)]

    def test_what_comes_by_itself_is_not_asked_for(self) -> None:
        bench = Bench()
        bench.deliver(1, 6)
        bench.run(0.01)
        bench.deliver(2, 5, 4)
        bench.run(0.05)
        assert bench.requests == [PROBE, (3, 3)]

    def test_ranges_hold_at_most_1024_lowest_first(self) -> None:
        bench = Bench()
        bench.deliver(2_501)
        bench.run(0.03)
        assert bench.requests == [PROBE, (1, 1_024), (1_025, 2_048), (2_049, 2_500)]

    def test_attempts_come_more_and_more_slowly_and_not_in_step(self) -> None:
        config = RepairConfig(reorder_delay=0.02, first_retry=0.1, last_retry=0.5, attempts=8)
        waits = []
        for seed in range(30):
            bench = Bench(ClientConfig(start=1, repair=config), seed=seed)
            bench.deliver(1, 3)
            bench.run(0.9)  # Before a tail probe.
            times = [when for when, packet, _ in bench.sent if packet == Request(packet.address, 2, 2)]  # type: ignore[union-attr]
            assert times[0] - START == pytest.approx(0.02)
            waits.append([later - earlier for earlier, later in pairwise(times)])
        for index, expected in enumerate([0.1, 0.2]):
            drawn = [wait[index] for wait in waits]
            assert min(drawn) >= 0.75 * expected - 1e-6
            assert max(drawn) <= 1.25 * expected + 1e-6
            assert len({round(wait, 4) for wait in drawn}) > 20

    def test_it_is_given_up_once_after_the_last_attempt_and_what_comes_then_is_dropped(self) -> None:
        bench = Bench(ClientConfig(start=1, repair=RepairConfig(attempts=3)))
        bench.deliver(1, 2, 5, 6, 7)
        bench.run(3)
        assert [request for request in bench.requests if request == (3, 4)] == [(3, 4)] * 3
        assert bench.told(MessagesLost) == [MessagesLost(3, 4)]
        assert bench.sequences == [1, 2, 5, 6, 7]
        bench.deliver(3, peer=OTHER)
        bench.deliver(4)
        bench.run(5)
        assert bench.sequences == [1, 2, 5, 6, 7]
        assert bench.told(MessagesLost) == [MessagesLost(3, 4)]
        assert bench.client.counters.lost == 2
        assert bench.told(ClientFailed) == []

    def test_what_is_half_held_is_asked_for_too(self) -> None:
        store = MemoryStore()
        store.put(3, [data_of(3)])
        bench = Bench(FIRST, store=store)
        bench.deliver(1, 5)
        bench.run(0.05)
        assert (2, 4) in bench.requests

    def test_what_others_say_does_not_replace_what_the_backbone_sent(self) -> None:
        store = MemoryStore()
        bench = Bench(ClientConfig(start=1, buffer_bytes=500), store=store)
        bench.client.pause()
        bench.deliver(*range(1, 11))
        bench.receive(Deliver(10, b"forged"), peer=STRANGER)
        assert store.get(10) == data_of(10)

    def test_a_repair_that_finds_no_room_is_none_yet(self) -> None:
        room = 3 * len(data_of(1)) + 3 * MESSAGE_OVERHEAD
        config = ClientConfig(start=1, buffer_bytes=room, journal=False, repair=RepairConfig(attempts=1))
        bench = Bench(config)
        bench.deliver(1, 3, 7)
        bench.run(0.03)
        bench.deliver(4, 5, 6, peer=OTHER)
        assert bench.client.counters.repaired == 2
        bench.deliver(8, 9, 10)
        bench.run(0.05)
        bench.deliver(2, peer=OTHER)
        for _ in range(100):
            before = len(bench.requests)
            bench.run(0.02)
            for first, last in bench.requests[before:]:
                bench.deliver(*range(first, min(last, 10) + 1), peer=OTHER)
        assert bench.sequences == list(range(1, 11))
        assert bench.told(MessagesLost) == []

    def test_a_repair_from_anyone_is_taken_inside_what_was_asked_for(self) -> None:
        bench = Bench()
        bench.deliver(1, 4)
        bench.run(0.03)
        bench.deliver(2, 3, peer=OTHER)
        assert bench.sequences == [1, 2, 3, 4]
        assert bench.client.counters.repaired == 2

    def test_a_stranger_is_not_listened_to_otherwise(self) -> None:
        bench = Bench(ClientConfig(start=MAX_RANGE))
        bench.deliver(*range(MAX_RANGE, 3_001), 3_003)
        bench.deliver(3_002, peer=STRANGER)  # Missing, but not asked for yet.
        bench.run(0.03)
        bench.deliver(3_004, MAX_SEQUENCE, peer=STRANGER)
        assert bench.sequences[-1] == 3_000
        assert bench.drops["unasked_repair"] == 3

    def test_nor_in_a_large_batch(self) -> None:
        bench = Bench()
        strange = [(Deliver(2_000 + index, b""), STRANGER) for index in range(VECTOR_MINIMUM)]
        bench.feed([(Deliver(1, b"x"), BACKBONE), *strange])
        assert bench.sequences == [1]
        assert bench.drops["unasked_repair"] == VECTOR_MINIMUM

    @pytest.mark.parametrize(("rate", "in_flight"), [(50.0, 10**6), (10_000.0, 5_000)])
    def test_a_huge_gap_makes_no_storm(self, rate: float, in_flight: int) -> None:
        bench = Bench(ClientConfig(start=1, repair=RepairConfig(rate=rate, in_flight=in_flight, attempts=4)))
        bench.deliver(1_000_000)
        bench.run(0.05)
        assert len(bench.requests) <= 1 + min(rate * 1.06, in_flight / MAX_RANGE + 1)
        bench.run(2)
        assert len(bench.requests) <= rate * 3.1

    def test_nothing_is_asked_for_of_a_backbone_that_does_not_answer(self) -> None:
        bench = Bench()
        bench.answering = False
        bench.run(6)
        before = len(bench.requests)
        bench.deliver(1, 4)
        bench.run(10)
        assert len(bench.requests) == before
        bench.answering = True
        bench.run(1)
        assert (2, 3) in bench.requests[before:]

    def test_the_tail_is_probed_when_the_stream_is_idle_and_more_and_more_slowly(self) -> None:
        bench = Bench()
        bench.deliver(1, 2, 3)
        bench.run(200)
        assert set(bench.requests[1:]) == {(4, 3 + MAX_RANGE)}
        times = bench.times(Request)[1:]
        waits = [later - earlier for earlier, later in pairwise(times)]
        interval = bench.client.config.keepalive_interval
        assert times[0] == pytest.approx(interval)
        assert 0.75 * interval <= waits[0] <= 1.25 * interval
        assert all(wait <= MAX_PROBE_INTERVAL * 1.25 for wait in waits)
        assert sum(waits[:4]) > 10
        assert len(times) < 16

    def test_a_probe_finds_the_lost_last_message_and_goes_on_quickly(self) -> None:
        bench = Bench()
        bench.deliver(1)
        bench.run(20)
        bench.deliver(2, peer=OTHER)
        assert bench.sequences == [1, 2]
        before = bench.now
        bench.run(1.4)
        asked = [(packet.first, when - before) for when, packet, _ in bench.sent if isinstance(packet, Request)]
        assert asked[-2] == (3, pytest.approx(bench.client.config.repair.first_retry))
        assert (asked[-1][0], 0.7 < asked[-1][1] < 1.3) == (3, True)

    def test_who_is_far_behind_on_an_idle_stream_asks_on_as_soon_as_the_last_that_was_asked_for_is_there(self) -> None:
        bench = Bench()
        bench.deliver(1)
        bench.run(31)
        began = bench.now
        for first in range(2, 10_000, MAX_RANGE):
            assert (first, first + MAX_RANGE - 1) in bench.requests
            bench.deliver(*range(first, first + MAX_RANGE), peer=OTHER)
            bench.run(0.001)
        assert bench.sequences[-1] >= 10_000
        assert bench.now - began < 0.1

    def test_nothing_is_asked_for_past_the_last_number(self) -> None:
        bench = Bench(ClientConfig(start=MAX_SEQUENCE))
        bench.deliver(MAX_SEQUENCE)
        bench.run(5)
        assert bench.sequences == [MAX_SEQUENCE]
        assert set(bench.requests) <= {(MAX_SEQUENCE, MAX_SEQUENCE)}

    def test_repairs_alone_may_lead_far_beyond_what_the_backbone_itself_sent(self) -> None:
        bench = Bench()
        bench.deliver(1)
        for first in range(2, 3_000, MAX_RANGE):
            bench.run(31)  # Until the tail is probed again.
            bench.deliver(*range(first, first + MAX_RANGE), peer=OTHER)
        assert bench.sequences[-1] > 3_000
        assert bench.drops["implausible"] == 0

    def test_a_request_names_the_address_that_the_client_was_given(self) -> None:
        address = ("10.0.0.7", 4_711)
        bench = Bench(ClientConfig(start=1, address=address))
        bench.deliver(1, 3)
        bench.run(0.1)
        assert {request.address for request in bench.packets(Request)} == {address}

    def test_requests_and_pushes_are_counted(self) -> None:
        bench = Bench()
        bench.deliver(1, 3, 5)
        bench.client.publish(b"x", bench.now)
        bench.run(3)
        counters = bench.client.counters
        assert counters.requests == len(bench.requests) > 2
        assert counters.pushes == len(bench.packets(Push)) > 1


class TestStart:
    def test_live_begins_at_the_first_message(self) -> None:
        bench = Bench(ClientConfig())
        bench.run(3)
        assert bench.requests == []
        bench.deliver(500)
        bench.run(0.1)
        assert bench.sequences == [500]

    def test_oldest_asks_for_all_although_somebody_has_answered(self) -> None:
        bench = Bench(ClientConfig(start=Start.OLDEST))
        bench.deliver(300, peer=OTHER)
        bench.run(0.45)
        assert bench.requests == [(1, MAX_SEQUENCE)] * 5

    def test_live_waits_for_one_that_the_first_overtook(self) -> None:
        bench = Bench(ClientConfig())
        bench.deliver(501)
        bench.run(0.01)
        bench.deliver(500, 503)
        assert bench.sequences == []
        bench.run(0.02)
        assert bench.sequences == [500, 501]
        bench.deliver(502)
        assert bench.sequences == [500, 501, 502, 503]

    def test_it_begins_when_it_is_ticked_and_not_between_two_batches(self) -> None:
        bench = Bench(ClientConfig())
        bench.deliver(5)
        bench.now += 0.5  # The process was busy.
        bench.deliver(6)
        bench.deliver(4)
        bench.tick()
        assert bench.sequences == [4, 5, 6]

    def test_oldest_asks_several_times_and_takes_the_lowest_answer(self) -> None:
        bench = Bench(ClientConfig(start=Start.OLDEST))
        bench.deliver(900)
        for lowest in (300, 200, 250):
            bench.run(0.1)
            bench.deliver(lowest, lowest + 1, peer=OTHER)
        bench.run(0.9)
        asked = [request for request in bench.requests if request[0] == 1]
        assert len(asked) == 5
        assert asked[1:] == [(1, 900)] * 4
        assert bench.sequences[:2] == [200, 201]
        assert (202, 249) in bench.requests

    def test_oldest_of_an_empty_stream_is_the_first_that_comes(self) -> None:
        bench = Bench(ClientConfig(start=Start.OLDEST))
        bench.run(5)
        assert set(bench.requests) == {(1, MAX_SEQUENCE)}
        bench.deliver(7)
        bench.run(0.1)
        assert bench.sequences == [7]

    def test_a_number_is_asked_for_at_once(self) -> None:
        bench = Bench(ClientConfig(start=40))
        bench.deliver(50, 39)
        bench.run(0.03)
        assert (40, 49) in bench.requests
        bench.deliver(*range(40, 50), peer=OTHER)
        assert bench.sequences == list(range(40, 51))
        assert bench.told(ClientFailed) == []

    def test_who_does_not_subscribe_asks_for_nothing(self) -> None:
        bench = Bench(ClientConfig(start=Start.OLDEST, subscribe=False))
        bench.run(60)
        assert bench.requests == []


class TestForgeries:
    @pytest.mark.parametrize("peer", [BACKBONE, STRANGER])
    @pytest.mark.parametrize("start", [Start.LIVE, Start.OLDEST, 1])
    def test_one_forged_number_does_not_ruin_a_stream(self, start: Start | int, peer: Address) -> None:
        bench = Bench(ClientConfig(start=start))
        bench.deliver(1)
        bench.run(2)
        bench.deliver(MAX_SEQUENCE, peer=peer)
        bench.deliver(2, 3)
        bench.run(0.1)
        bench.deliver(*range(4, 100))
        bench.run(10)
        assert bench.sequences == list(range(1, 100))
        assert bench.told(MessagesLost) == []
        assert bench.told(ClientFailed) == []
        assert all(last < 2_000 or first == 1 for first, last in bench.requests)

    def test_one_damaged_number_a_little_too_high_costs_nothing_while_the_stream_goes_on(self) -> None:
        bench = Bench(FIRST)
        bench.deliver(*range(1, 11))
        bench.deliver(1_000)
        for sequence in range(11, 1_011):
            bench.run(1)
            bench.deliver(sequence)
        assert bench.sequences == list(range(1, 1_011))
        assert bench.told(MessagesLost) == []

    def test_a_message_far_ahead_is_handed_over_once_the_stream_is_seen_to_be_there(self) -> None:
        bench = Bench(ClientConfig(start=1, repair=RepairConfig(attempts=1)))
        bench.deliver(1)
        bench.deliver(5_000)
        bench.run(1)
        assert bench.sequences == [1]
        bench.deliver(5_001, 5_002)
        bench.run(UNCONFIRMED_TIMEOUT + 5)
        assert bench.sequences == [1, 5_000, 5_001, 5_002]
        assert (bench.told(MessagesLost)[0].first, bench.told(MessagesLost)[-1].last) == (2, 4_999)

    def test_a_message_far_ahead_that_nothing_contradicts_is_believed_in_the_end(self) -> None:
        bench = Bench(ClientConfig(start=1, repair=RepairConfig(attempts=1)))
        bench.deliver(1)
        bench.deliver(5_000)
        bench.run(3 * UNCONFIRMED_TIMEOUT)
        assert bench.sequences == [1, 5_000]

    def test_two_backbones_at_once_are_noticed(self) -> None:
        bench = Bench(FIRST)
        for sequence in range(1, 10):
            bench.deliver(sequence)
            bench.receive(Deliver(sequence, b"of the other %d" % sequence))
        assert len(bench.told(ClientFailed)) == 1

    def test_live_begins_with_what_came_live(self) -> None:
        bench = Bench(ClientConfig())
        bench.deliver(5_000)
        bench.run(0.05)
        bench.deliver(*range(4_985, 5_001), peer=OTHER)
        bench.run(0.1)
        assert bench.sequences == [5_000]

    def test_what_the_backbone_itself_sends_takes_the_place_of_what_waits_under_its_number(self) -> None:
        store = MemoryStore()
        bench = Bench(FIRST, store=store)
        bench.deliver(1, 2)
        bench.receive(Deliver(5, b"of another number, and damaged"))
        bench.deliver(5, 3, 4)
        assert [(message.sequence, message.payload) for message in bench.messages[2:]] == [
            (sequence, data_of(sequence)) for sequence in (3, 4, 5)
        ]
        assert store.get(5) == data_of(5)
        bench.receive(Deliver(9, b"of another number, and damaged"), peer=BACKBONE)
        bench.deliver(9, peer=OTHER)
        assert store.get(9) != data_of(9)  # Anybody may say so, and only the backbone knows.

    def test_what_others_made_up_at_the_end_of_the_stream_says_nothing_about_the_backbone(self) -> None:
        bench = Bench(FIRST)
        bench.deliver(1, 2)
        bench.run(3)
        made_up = range(3, 3 + CONTRADICTIONS)
        bench.receive(*(Deliver(number, b"made up") for number in made_up), peer=STRANGER)  # A tail probe asked for it.
        bench.deliver(*made_up)
        bench.deliver(made_up.stop)
        assert bench.told(ClientFailed) == []
        assert bench.sequences == list(range(1, made_up.stop + 1))
        assert bench.drops["false_repair"] == CONTRADICTIONS
        bench.receive(*(Deliver(number, b"of another backbone") for number in made_up))
        assert len(bench.told(ClientFailed)) == 1, "what the backbone has said since is its own word"

    def test_what_others_made_up_is_forgotten_once_the_backbone_is_beyond_it(self) -> None:
        bench = Bench(FIRST)
        bench.deliver(1, 2)
        bench.run(3)
        made_up = range(3, 3 + CONTRADICTIONS)
        bench.receive(*(Deliver(number, b"made up") for number in made_up), peer=STRANGER)
        for number in range(made_up.stop, 300):
            bench.deliver(number)
            bench.run(0.1)
        bench.deliver(*made_up)
        assert len(bench.told(ClientFailed)) == 1
        assert bench.drops["false_repair"] == 0

    def test_what_the_backbone_says_takes_the_place_of_what_others_made_up(self) -> None:
        store = MemoryStore()
        bench = Bench(FIRST, store=store)
        bench.deliver(1, 2, 5)
        bench.run(0.1)
        bench.receive(Deliver(4, b"made up"), Deliver(3, b"made up"), peer=STRANGER)
        bench.deliver(3, 4)
        assert [store.get(number) for number in (3, 4)] == [data_of(3), data_of(4)]
        assert bench.drops["false_repair"] == 2

    def test_what_is_in_doubt_is_asked_for_slowly_and_given_up_when_the_stream_stands_still(self) -> None:
        bench = Bench(FIRST)
        bench.deliver(1, 2, 1_000)
        for sequence in range(3, 8):
            bench.run(UNCONFIRMED_TIMEOUT - 1)
            bench.deliver(sequence)
        before = len(bench.requests)
        bench.run(UNCONFIRMED_TIMEOUT - 1)
        in_doubt = [request for request in bench.requests[before:] if request == (8, 999)]
        assert 2 <= len(in_doubt) <= 4
        assert bench.told(MessagesLost) == []
        bench.run(5)
        assert bench.told(MessagesLost) == [MessagesLost(8, 999)]
        assert bench.sequences == [*range(1, 8), 1_000]

    def test_a_jump_that_is_contradicted_is_forgotten(self) -> None:
        bench = Bench(FIRST)
        bench.deliver(1)
        bench.deliver(100_000)
        for sequence in range(2, 40):
            bench.deliver(sequence)
            bench.run(0.5)
        assert bench.sequences == list(range(1, 40))
        assert all(last < 2_000 for _, last in bench.requests)
        bench.deliver(100_001)
        bench.deliver(40)
        assert bench.drops["implausible"] == 2

    def test_no_silence_makes_a_jump_beyond_all_measure_true(self) -> None:
        bench = Bench(FIRST)
        bench.deliver(1)
        bench.deliver(2**30)
        bench.run(3 * UNCONFIRMED_TIMEOUT)
        bench.deliver(2, 3)
        assert bench.sequences == [1, 2, 3]

    def test_the_last_jump_is_the_one_to_be_confirmed(self) -> None:
        bench = Bench(ONE_ATTEMPT)
        bench.deliver(1)
        bench.deliver(2**30)
        bench.deliver(5_000)
        bench.deliver(5_001, 5_002)
        bench.run(2)
        assert bench.sequences == [1, 5_000, 5_001, 5_002]

    def test_a_jump_that_was_confirmed_is_a_witness_too(self) -> None:
        bench = Bench(ONE_ATTEMPT)
        bench.deliver(1)
        bench.deliver(5_000)
        bench.deliver(5_001, 5_002)
        bench.run(UNCONFIRMED_TIMEOUT / 2)
        assert bench.sequences == [1, 5_000, 5_001, 5_002]

    def test_repairs_neither_confirm_a_jump_nor_contradict_it(self) -> None:
        bench = Bench(ONE_ATTEMPT)
        bench.deliver(1, 2, 4)
        bench.run(0.05)
        bench.deliver(5_000)
        bench.deliver(3, peer=OTHER)
        bench.run(UNCONFIRMED_TIMEOUT - 1)
        assert bench.sequences == [1, 2, 3, 4]
        bench.run(2 * UNCONFIRMED_TIMEOUT)
        assert bench.sequences == [1, 2, 3, 4, 5_000]

    def test_a_repair_near_a_jump_does_not_confirm_it(self) -> None:
        bench = Bench(FIRST)
        bench.deliver(1)
        bench.run(1.5)
        bench.deliver(1_500)
        bench.deliver(1_000, peer=STRANGER)  # Within what a tail probe asked for.
        bench.deliver(2)
        bench.run(1)
        assert bench.requests
        assert all(last <= 1_000 + MAX_RANGE for _, last in bench.requests)

    def test_repairs_do_not_raise_the_tide(self) -> None:
        bench = Bench(FIRST)
        bench.deliver(1)
        bench.run(1.5)
        bench.deliver(1_000, peer=STRANGER)
        bench.deliver(2_000)
        assert bench.drops["implausible"] == 1

    def test_a_jump_is_believed_as_soon_as_doubts_end(self) -> None:
        bench = Bench(FIRST)
        bench.deliver(1)
        bench.run(0.3)
        bench.deliver(5_000)
        bench.run(UNCONFIRMED_TIMEOUT + 0.05)
        assert (1_026, 2_049) in bench.requests

    def test_silence_while_the_backbone_is_gone_confirms_no_jump(self) -> None:
        bench = Bench(FIRST)
        bench.deliver(1)
        bench.deliver(100_000)
        bench.answering = False
        bench.run(UNCONFIRMED_TIMEOUT + 2)
        bench.answering = True
        bench.run(0.5)
        assert bench.told(Connected)[1:]
        bench.deliver(2, 3)
        bench.run(UNCONFIRMED_TIMEOUT + 5)
        bench.deliver(4, 5)
        assert bench.sequences == [1, 2, 3, 4, 5]

    def test_silence_while_the_backbone_is_gone_makes_no_loss_certain(self) -> None:
        bench = Bench(ONE_ATTEMPT)
        bench.deliver(1, 2, 1_000)
        bench.answering = False
        bench.run(2 * UNCONFIRMED_TIMEOUT)
        bench.answering = True
        bench.run(UNCONFIRMED_TIMEOUT - 2)
        assert bench.told(MessagesLost) == []

    @pytest.mark.parametrize("start", [Start.LIVE, Start.OLDEST, 5])
    def test_one_damaged_number_among_the_first_costs_nothing(self, start: Start | int) -> None:
        bench = Bench(ClientConfig(start=start))
        bench.deliver(5)
        bench.deliver(1_000_000)
        bench.deliver(6)
        bench.run(1.5)
        for sequence in range(7, 20):
            bench.deliver(sequence)
            bench.run(0.5)
        bench.run(3 * UNCONFIRMED_TIMEOUT)
        bench.deliver(20, 21, 22, 23)
        bench.run(1)
        assert bench.sequences == list(range(5, 24))

    def test_a_jump_among_the_first_is_taken_where_others_confirm_it(self) -> None:
        bench = Bench(ClientConfig(repair=RepairConfig(attempts=1)))
        bench.deliver(5, 6, 5_000, 5_001, 5_002)
        bench.run(2)
        assert bench.sequences == [5, 6, 5_000, 5_001, 5_002]

    def test_a_jump_of_others_among_the_first_is_not(self) -> None:
        bench = Bench(ClientConfig(start=Start.OLDEST))
        bench.deliver(1, 2)
        bench.deliver(100_000, peer=STRANGER)
        bench.run(2)
        bench.deliver(3)
        assert bench.sequences == [1, 2, 3]
        assert bench.drops["implausible"] == 1

    def test_a_lone_message_after_a_hole_is_handed_over_as_soon_as_doubts_end(self) -> None:
        bench = Bench(FIRST)
        bench.deliver(1, 2)
        bench.run(20)
        bench.deliver(1_000)
        bench.run(UNCONFIRMED_TIMEOUT - 0.01)
        assert bench.sequences == [1, 2]
        bench.run(0.75)
        assert bench.sequences == [1, 2, 1_000]

    @pytest.mark.parametrize("peer", [BACKBONE, STRANGER])
    @pytest.mark.parametrize("start", [Start.LIVE, Start.OLDEST])
    def test_not_even_while_it_is_joined(self, start: Start, peer: Address) -> None:
        bench = Bench(ClientConfig(start=start))
        bench.deliver(MAX_SEQUENCE, peer=peer)
        bench.deliver(1, 2)
        bench.run(2)
        bench.deliver(3)
        bench.run(20)
        assert bench.sequences == [1, 2, 3]
        assert bench.told(MessagesLost) == []
        assert bench.client.next_sequence == 4

    def test_a_stream_may_really_jump(self) -> None:
        bench = Bench(ClientConfig(start=1, repair=RepairConfig(attempts=1)))
        bench.deliver(1)
        bench.deliver(2**40)
        bench.deliver(2**40 + 1)
        assert bench.client.state is ClientState.FOLLOWING
        assert bench.drops["implausible"] == 1
        bench.run(0.05)
        assert bench.requests[-1][0] > 1

    def test_number_0_is_none(self) -> None:
        bench = Bench()
        bench.deliver(0)
        assert bench.drops["implausible"] == 1


class TestRegress:
    def stream(self, config: ClientConfig = FIRST, last: int = 200) -> Bench:
        bench = Bench(config)
        for sequence in range(1, last + 1):
            bench.deliver(sequence)
            bench.run(0.1)
        bench.run(90)  # What was asked for meanwhile is forgotten.
        return bench

    @pytest.mark.parametrize(
        "config",
        [FIRST, ClientConfig(start=1, history_bytes=2_000), ClientConfig(start=1, journal=False)],
        ids=["held", "evicted", "nojournal"],
    )
    def test_numbers_that_fall_stop_the_client_once(self, config: ClientConfig) -> None:
        bench, enough = self.stream(config), CONTRADICTIONS if config is FIRST else REGRESSION_CONFIRMATIONS
        bench.receive(*(Deliver(number, b"something else") for number in range(1, enough)))
        assert bench.told(ClientFailed) == []  # One may be a late duplicate, or damaged.
        bench.receive(Deliver(enough, b"and more"))
        bench.receive(Deliver(enough + 1, b"and more of that"))
        failures = bench.told(ClientFailed)
        assert len(failures) == 1
        assert isinstance(failures[0].error, SequenceRegressed)
        assert f"message {enough} again" in str(failures[0].error)
        assert "200" in str(failures[0].error)
        bench.deliver(201)
        bench.run(10)
        assert bench.sequences[-1] == 200
        assert len(bench.told(ClientFailed)) == 1

    def test_the_same_message_again_is_a_late_duplicate(self) -> None:
        bench = self.stream()
        bench.deliver(1, 100, 200)
        assert bench.told(ClientFailed) == []

    def test_a_duplicate_of_what_is_no_longer_held_is_no_regress_while_it_may_be_late(self) -> None:
        bench = Bench(ClientConfig(start=1, journal=False))
        bench.deliver(*range(1, 50))
        bench.run(4)
        bench.deliver(10, 49)
        assert bench.told(ClientFailed) == []

    def test_repairs_that_seem_to_come_from_the_backbone_are_none(self) -> None:
        bench = Bench(ClientConfig(start=1, journal=False))
        bench.deliver(1, 2, 5)
        bench.run(0.5)
        bench.deliver(3, 4)
        bench.run(15)
        bench.deliver(3, 4)
        assert bench.sequences == [1, 2, 3, 4, 5]
        assert bench.told(ClientFailed) == []

    def test_three_of_them_are_none_either(self) -> None:
        bench = Bench(ClientConfig(start=1, journal=False))
        bench.deliver(1, 2, 6)
        bench.run(0.5)
        bench.deliver(3, 4, 5, 7, 8, 9, 10)
        bench.run(15)
        bench.deliver(3, 4, 5)
        assert REGRESSION_CONFIRMATIONS == 3
        assert bench.told(ClientFailed) == []

    def test_what_comes_after_the_failure_is_a_counted_drop(self) -> None:
        bench = self.stream()
        bench.receive(*(Deliver(number, b"something else") for number in range(1, CONTRADICTIONS + 1)))
        received = bench.client.counters.duplicates
        bench.deliver(201, 202)
        assert (bench.drops["stopped"], bench.client.counters.duplicates) == (2, received)
        assert bench.client.buffered_bytes == 0


class TestForwards:
    def holding(self, *sequences: int, config: ClientConfig = FIRST) -> Bench:
        bench = Bench(config)
        bench.deliver(*sequences)
        bench.sent.clear()
        return bench

    def answers(self, bench: Bench) -> list[int]:
        assert all(peer == OTHER for _, packet, peer in bench.sent if isinstance(packet, Deliver))
        return [packet.sequence for packet in bench.packets(Deliver)]

    def test_what_is_held_is_sent_to_the_requester(self) -> None:
        bench = self.holding(1, 2, 3, 5)
        bench.receive(Forward(OTHER, 2, 9))
        assert bench.packets(Deliver) == [Deliver(sequence, data_of(sequence)) for sequence in (2, 3, 5)]
        assert self.answers(bench) == [2, 3, 5]

    def test_of_a_long_range_the_lowest_1024(self) -> None:
        bench = self.holding(*range(1, 2_001))
        bench.receive(Forward(OTHER, 1, MAX_SEQUENCE))
        bench.run(0.5)
        assert self.answers(bench) == list(range(1, 1_025))

    def test_nothing_is_answered_if_nothing_is_held(self) -> None:
        bench = self.holding(1, 2)
        bench.receive(Forward(OTHER, 3, 9))
        assert self.answers(bench) == []
        assert bench.drops["forward_not_held"] == 1

    @pytest.mark.parametrize("peer", [STRANGER, ("10.0.0.1", 2324)])
    def test_a_forward_from_anyone_but_the_backbone_is_dropped(self, peer: Address) -> None:
        bench = self.holding(1)
        bench.receive(Forward(OTHER, 1, 1), peer=peer)
        assert self.answers(bench) == []
        assert bench.drops["foreign_forward"] == 1

    def test_port_0_cannot_be_answered(self) -> None:
        bench = self.holding(1)
        bench.receive(Forward(("10.0.0.8", 0), 1, 1))
        assert bench.packets(Deliver) == []

    def test_nojournal_answers_nothing(self) -> None:
        history = MemoryStore()
        history.put(1, [data_of(1)])
        bench = Bench(ClientConfig(start=1, journal=False), store=history)
        bench.deliver(2)
        bench.receive(Forward(OTHER, 1, 2))
        assert bench.packets(Deliver) == []
        assert history.get(2) is None

    @pytest.mark.parametrize("size", [0, 1_000, 60_000])
    def test_a_requester_gets_no_more_bytes_than_its_budget(self, size: int) -> None:
        bench = Bench()
        bench.receive(*(Deliver(sequence, bytes(size)) for sequence in range(1, 1_025)))
        bench.sent.clear()
        began = bench.now
        for _ in range(4):
            bench.receive(Forward(OTHER, 1, 1_024))
        previous = 0
        for _ in range(40):
            sent = sum(9 + len(packet.data) for packet in bench.packets(Deliver))
            assert sent <= BYTE_BURST + BYTE_RATE * (bench.now - began) + size + 9
            previous = sent
            bench.run(0.05)
        assert previous > 0
        if size < 60_000:
            assert len(self.answers(bench)) == 4 * 1_024

    def test_what_was_repaired_and_what_still_waits_is_answered_too(self) -> None:
        bench = self.holding(1, 4)
        bench.run(0.03)
        bench.deliver(3, peer=OTHER)
        bench.receive(Forward(OTHER, 1, 9))
        assert self.answers(bench) == [1, 3, 4]

    def test_who_does_not_subscribe_answers_from_a_store_of_its_own(self) -> None:
        history = MemoryStore()
        history.put(1, [data_of(1)])
        bench = Bench(ClientConfig(subscribe=False), store=history)
        assert bench.packets(Keepalive)[0].flags == Flags.NOSUBSCRIBE | Flags.EXTENSIONS
        bench.receive(Forward(OTHER, 1, 9))
        assert self.answers(bench) == [1]


class TestStartAhead:
    def test_a_publisher_that_starts_ahead_of_the_stream_is_acknowledged(self) -> None:
        bench = Bench(ClientConfig(start=1_000))
        bench.run(1)
        bench.client.publish(b"early", bench.now)
        bench.drain()
        bench.receive(Deliver(7, bench.packets(Push)[-1].data))
        assert [sequence for _, sequence in bench.published] == [7]
        assert bench.sequences == []


class TestForgedFirst:
    @pytest.mark.parametrize("start", [Start.OLDEST, Start.LIVE, 5])
    def test_one_forged_number_begins_no_stream(self, start: Start | int) -> None:
        bench = Bench(ClientConfig(start=start))
        bench.run(1)
        bench.receive(Deliver(MAX_SEQUENCE, b"forged"), peer=OTHER if start is Start.OLDEST else BACKBONE)
        bench.run(2)
        for sequence in range(5, 15):
            bench.deliver(sequence)
            bench.run(0.1)
        bench.run(10)
        assert (bench.sequences, bench.told(MessagesLost), bench.told(ClientFailed)) == (list(range(5, 15)), [], [])


class TestPause:
    def test_what_waits_is_corrected_meanwhile(self) -> None:
        bench = Bench()
        bench.client.pause()
        bench.receive(Deliver(1, b"damaged"))
        bench.deliver(1)
        assert bench.client.buffered_bytes > 0
        bench.client.resume(bench.now)
        bench.drain()
        assert [message.payload for message in bench.messages] == [data_of(1)]

    def test_nothing_is_handed_over_until_resume(self) -> None:
        bench = Bench()
        bench.client.pause()
        bench.deliver(1, 2)
        bench.run(1)
        assert bench.sequences == []
        bench.client.resume(bench.now)
        bench.drain()
        assert bench.sequences == [1, 2]

    @pytest.mark.parametrize("journal", [True, False])
    @pytest.mark.parametrize("size", [10, 333, 2_000])
    def test_what_exceeds_the_buffer_is_asked_for_again_and_nothing_is_lost(self, journal: bool, size: int) -> None:
        bench = Bench(ClientConfig(start=1, buffer_bytes=10_000, journal=journal))
        bench.client.pause()
        for sequence in range(1, 201):
            bench.receive(Deliver(sequence, bytes(size)))
            bench.run(0.001)
        assert bench.client.buffered_bytes <= 10_000
        bench.run(60)  # Longer than all attempts take.
        bench.client.resume(bench.now)
        bench.drain()
        for _ in range(200):
            before = len(bench.requests)
            bench.run(0.1)
            for first, last in bench.requests[before:]:
                for sequence in range(first, min(last, 200) + 1):
                    bench.receive(Deliver(sequence, bytes(size)), peer=OTHER)
                    assert bench.client.buffered_bytes <= 10_000 + size + 128
        assert bench.told(MessagesLost) == []
        assert bench.sequences == list(range(1, 201))

    @pytest.mark.parametrize("journal", [True, False])
    def test_nor_if_it_came_all_at_once_and_far_exceeds_the_buffer(self, journal: bool) -> None:
        bench = Bench(ClientConfig(start=1, buffer_bytes=2_000, journal=journal))
        bench.client.pause()
        bench.deliver(*range(1, 301))
        bench.run(20)
        bench.client.resume(bench.now)
        bench.drain()
        for _ in range(600):
            before = len(bench.requests)
            bench.run(0.1)
            for first, last in bench.requests[before:]:
                if not journal and first <= 300:
                    bench.deliver(*range(first, min(last, 300) + 1), peer=OTHER)
        assert bench.told(MessagesLost) == []
        assert bench.sequences == list(range(1, 301))

    def test_what_is_recalled_after_a_pause_was_received_when_it_came(self) -> None:
        bench = Bench(ClientConfig(start=1, buffer_bytes=2_000))
        bench.client.pause()
        bench.deliver(*range(1, 101))
        came = int(bench.now * 1_000_000)
        bench.run(60)
        bench.client.resume(bench.now)
        bench.run(5)
        assert bench.sequences == list(range(1, 101))
        assert {message.received_at for message in bench.messages} == {came}

    def test_a_pause_from_within_holds_from_the_next_run_on(self) -> None:
        bench = Bench()
        bench.deliver(1, 2, 3, 5, 6, 7)

        class PausesAtLoss(list[tuple[float, object]]):
            def __iadd__(self, told: Iterable[tuple[float, object]]) -> PausesAtLoss:  # type: ignore[override,misc]
                self.extend(told)
                if any(isinstance(event, MessagesLost) for _, event in self):
                    bench.client.pause()
                return self

        bench.events = PausesAtLoss(bench.events)
        bench.run(30)
        assert (bench.told(MessagesLost), bench.sequences) == ([MessagesLost(4, 4)], [1, 2, 3])
        bench.events = list(bench.events)
        bench.client.resume(bench.now)
        bench.drain()
        assert bench.sequences == [1, 2, 3, 5, 6, 7]

    def test_a_full_buffer_behind_a_gap_that_nobody_fills_loses_only_the_gap(self) -> None:
        bench = Bench(ClientConfig(start=1, buffer_bytes=3_000))
        bench.deliver(1)
        for sequence in range(3, 201):
            bench.deliver(sequence)
            bench.run(0.005)
        bench.run(30)
        assert bench.told(MessagesLost) == [MessagesLost(2, 2)]
        assert bench.sequences == [1, *range(3, 201)]

    def test_a_batch_larger_than_the_buffer_is_no_overflow(self) -> None:
        bench = Bench(ClientConfig(start=1, buffer_bytes=3_000, journal=False))
        bench.deliver(*range(1, 201))
        assert bench.sequences == list(range(1, 201))
        assert bench.drops["buffer_full"] == 0

    def test_who_takes_one_delivery_at_a_time_costs_no_more_than_the_buffer(self) -> None:
        bench = Bench(ClientConfig(start=1, buffer_bytes=10_000, journal=False, repair=RepairConfig(attempts=1)))

        class PausesAtMessages(list[tuple[float, object]]):
            def __iadd__(self, told: Iterable[tuple[float, object]]) -> PausesAtMessages:  # type: ignore[override,misc]
                news = list(told)
                self.extend(news)
                if any(isinstance(event, MessagesDelivered) for _, event in news):
                    bench.client.pause()
                return self

        bench.events = PausesAtMessages(bench.events)
        for first in range(1, 1_000, 20):
            bench.deliver(*range(first, first + 9), *range(first + 10, first + 20))
            bench.run(12)  # The one between them is given up.
            bench.client.resume(bench.now)
            bench.drain()
        told = [event for event in bench.client._delivery_queue._pending if isinstance(event, MessagesDelivered)]
        waiting = [message for event in told for message in event.messages]
        assert sum(len(message.payload) + MESSAGE_OVERHEAD for message in waiting) <= 10_000
        assert bench.sequences == sorted(set(bench.sequences))


class TestEnvelopes:
    def enveloped(self, sequence: int, counter: int, payload: bytes = b"p", publisher: bytes = b"someones") -> Deliver:
        return Deliver(sequence, wrap(publisher, counter, payload))

    def test_the_envelope_is_taken_off_and_repeats_are_dropped(self) -> None:
        bench = Bench()
        bench.receive(*(self.enveloped(sequence, counter) for sequence, counter in enumerate([0, 1, 0, 2, 1, 3], 1)))
        assert bench.sequences == [1, 2, 4, 6]
        assert {message.data for message in bench.messages} == {b"p"}
        assert bench.messages[0].payload == wrap(b"someones", 0, b"p")
        assert bench.client.counters.repeats == 2

    def test_two_publishers_have_each_their_own_counters(self) -> None:
        bench = Bench()
        bench.receive(self.enveloped(1, 0), self.enveloped(2, 0, publisher=b"anothers"))
        assert bench.sequences == [1, 2]

    def test_raw_hands_over_everything_as_it_is(self) -> None:
        bench = Bench(ClientConfig(start=1, raw=True))
        bench.receive(self.enveloped(1, 0), self.enveloped(2, 0))
        assert [message.data for message in bench.messages] == [wrap(b"someones", 0, b"p")] * 2


class TestPublishing:
    def publisher(self, *, connect: bool = True, **options: Any) -> Bench:
        return Bench(ClientConfig(start=1, **options), connect=connect)

    def publish(self, bench: Bench, *payloads: bytes) -> list[int]:
        tickets = [bench.client.publish(payload, bench.now) for payload in payloads]
        bench.drain()
        return tickets

    def test_it_is_published_when_it_comes_back(self) -> None:
        bench = self.publisher()
        (ticket,) = self.publish(bench, b"hello")
        (push,) = bench.packets(Push)
        assert push == Push(wrap(bench.client.send_queue.publisher, 0, b"hello"))
        assert bench.published == []
        bench.receive(Deliver(1, push.data))
        bench.receive(Deliver(2, push.data))
        assert bench.published == [(ticket, 1)]
        assert [message.data for message in bench.messages] == [b"hello"]

    def test_it_waits_for_the_backbone(self) -> None:
        bench = self.publisher(connect=False)
        self.publish(bench, b"hello")
        bench.run(1)
        assert bench.packets(Push) == []
        bench.answering = True
        bench.run(1)
        assert len(bench.packets(Push)) >= 1

    def test_what_is_no_return_of_ours_publishes_nothing(self) -> None:
        bench = self.publisher()
        self.publish(bench, b"hello")
        bench.receive(Deliver(1, b"hello"), Deliver(2, wrap(b"someones", 0, b"hello")))
        assert bench.published == []

    def test_a_repair_can_bring_it_back(self) -> None:
        bench = self.publisher()
        self.publish(bench, b"hello")
        bench.deliver(1, 3)
        bench.run(0.03)
        bench.receive(Deliver(2, bench.packets(Push)[0].data), peer=OTHER)
        assert bench.published == [(0, 2)]

    def test_raw_is_the_bare_document(self) -> None:
        bench = self.publisher(raw=True, outbox=OutboxConfig(raw=True))
        self.publish(bench, b"same", b"same", b"other")
        bench.tick()
        assert bench.packets(Push) == [Push(b"same"), Push(b"same"), Push(b"other")]
        bench.receive(Deliver(1, b"same"), Deliver(2, b"other"), Deliver(3, b"same"), Deliver(4, b"same"))
        assert bench.published == [(0, 1), (2, 2), (1, 3)]

    def test_who_does_not_subscribe_asks_for_confirmation(self) -> None:
        bench = self.publisher(subscribe=False)
        self.publish(bench, b"hello")
        (push,) = bench.packets(Push)
        assert push.confirm
        bench.receive(Deliver(7, push.data), peer=STRANGER)
        assert bench.published == []
        bench.receive(Deliver(7, push.data))
        assert bench.published == [(0, 7)]
        assert bench.messages == []

    def test_version_1_has_its_own_push(self) -> None:
        bench = self.publisher(dialect=Dialect.V1)
        self.publish(bench, b"hello")
        assert bench.packets(Push)[0].dialect is Dialect.V1

    @pytest.mark.parametrize(("raw", "limit"), [(False, 65_478), (True, 65_498)])
    def test_a_message_that_fits_no_datagram_is_refused(self, raw: bool, limit: int) -> None:
        bench = self.publisher(outbox=OutboxConfig(raw=raw))
        self.publish(bench, bytes(limit))
        assert len(bench.packets(Push)[0].data) == 65_498
        with pytest.raises(MessageTooLarge, match=f"{limit + 1:,} bytes is over the limit of {limit:,}"):
            self.publish(bench, bytes(limit + 1))

    @pytest.mark.parametrize("limits", [{"queue_messages": 10}, {"queue_bytes": 10 * 30}])
    def test_a_full_queue_refuses_more_until_something_came_back(self, limits: dict[str, int]) -> None:
        bench = self.publisher(outbox=OutboxConfig(**limits))
        self.publish(bench, *[bytes(10)] * 10)
        with pytest.raises(PublishQueueFull):
            self.publish(bench, bytes(10))
        bench.receive(Deliver(1, bench.packets(Push)[0].data))
        self.publish(bench, bytes(10))

    @pytest.mark.parametrize("alive", [True, False])
    def test_what_never_comes_back_fails_once(self, alive: bool) -> None:
        bench = self.publisher(outbox=OutboxConfig(timeout=3.0))
        bench.answering = alive
        tickets = self.publish(bench, b"one", b"two")
        bench.run(2.99)
        assert bench.told(MessagesExpired) == []
        bench.run(60)
        assert bench.told(MessagesExpired) == [MessagesExpired(tickets)]
        pushes = len(bench.packets(Push))
        bench.receive(Deliver(1, bench.packets(Push)[0].data))
        bench.run(5)
        assert bench.published == []
        assert len(bench.packets(Push)) == pushes

    def test_without_envelopes_one_number_acknowledges_one_of_two_equal_messages(self) -> None:
        bench = Bench(ClientConfig(start=1, raw=True, outbox=OutboxConfig(raw=True)))
        for _ in range(2):
            bench.client.publish(b"same", bench.now)
        bench.drain()
        bench.receive(Deliver(1, b"same"), Deliver(1, b"same"))
        assert bench.published == [(0, 1)]

    def test_it_fails_in_time_and_not_only_with_the_next_keepalive(self) -> None:
        bench = self.publisher(outbox=OutboxConfig(timeout=2.6))
        bench.run(0.05)
        bench.answering = False
        self.publish(bench, b"x")
        published_at = bench.now
        bench.run(10)
        assert [when for when, event in bench.events if isinstance(event, MessagesExpired)] == [published_at + 2.6]


class TestRetransmission:
    def publisher(self, **options: Any) -> Bench:
        return Bench(ClientConfig(start=1, outbox=OutboxConfig(**options)))

    def exchange(self, bench: Bench, count: int, round_trip: float) -> None:
        for _ in range(count):
            bench.client.publish(b"x", bench.now)
            bench.drain()
            bench.run(round_trip)
            self.bring_back(bench, bench.packets(Push)[-1])

    def bring_back(self, bench: Bench, push: Push) -> None:
        bench.receive(Deliver((bench.client.next_sequence or 0), push.data))

    def test_the_first_timer_is_a_second_and_doubles(self) -> None:
        bench = self.publisher()
        bench.client.publish(b"x", bench.now)
        bench.drain()
        bench.run(20)
        times = bench.times(Push)
        assert times[:5] == pytest.approx([0, 1, 3, 7, 11])  # Not over the limit of 4 s.

    def test_the_timer_follows_the_round_trip(self) -> None:
        bench = self.publisher()
        self.exchange(bench, 30, 0.3)
        window = bench.client.send_queue.window
        assert window.smoothed_rtt == pytest.approx(0.3, abs=0.001)
        assert 0.3 < window.timeout < 0.35
        assert bench.client.send_queue.retransmissions == 0

    def test_what_was_sent_twice_measures_nothing(self) -> None:
        bench = self.publisher()
        self.exchange(bench, 30, 0.01)
        window = bench.client.send_queue.window
        before = window.smoothed_rtt
        bench.client.publish(b"x", bench.now)
        bench.drain()
        bench.run(0.3)  # Sent again after 0.2.
        assert bench.client.send_queue.retransmissions == 1
        self.bring_back(bench, bench.packets(Push)[-1])
        assert window.smoothed_rtt == before

    def test_a_way_longer_than_the_first_timer_is_learnt(self) -> None:
        bench = self.publisher()
        self.exchange(bench, 10, 1.5)
        assert bench.client.send_queue.window.smoothed_rtt == pytest.approx(1.5, abs=0.01)
        assert bench.client.send_queue.retransmissions <= 2

    def test_what_a_later_message_overtook_by_far_is_sent_again_before_the_timer(self) -> None:
        bench = self.publisher()
        self.exchange(bench, 30, 0.05)
        bench.client.publish(b"lost", bench.now)
        bench.drain()
        bench.run(0.04)
        bench.client.publish(b"later", bench.now)
        bench.drain()
        bench.run(0.05)
        pushes = bench.packets(Push)
        self.bring_back(bench, pushes[-1])
        bench.run(0)
        assert bench.packets(Push)[len(pushes) :] == [pushes[-2]]

    def test_what_it_overtook_by_little_is_not(self) -> None:
        bench = self.publisher()
        self.exchange(bench, 30, 0.05)
        bench.client.publish(b"slow", bench.now)
        bench.client.publish(b"fast", bench.now)
        bench.drain()
        bench.run(0.05)
        pushes = bench.packets(Push)
        self.bring_back(bench, pushes[-1])
        bench.run(0)
        assert bench.packets(Push) == pushes

    def test_a_message_sent_again_too_early_makes_it_more_patient(self) -> None:
        bench = self.publisher()
        self.exchange(bench, 30, 0.05)
        bench.client.publish(b"x", bench.now)
        bench.run(1)
        before = bench.client.send_queue.window.reordering_window
        again = bench.packets(Push)[-1]
        bench.client.publish(b"y", bench.now)
        self.bring_back(bench, again)
        assert bench.client.send_queue.window.reordering_window == before
        self.bring_back(bench, again)
        assert bench.client.send_queue.window.reordering_window > before

    def test_the_window_limits_what_is_under_way(self) -> None:
        bench = self.publisher(window=WindowConfig(initial=20))
        for _ in range(100):
            bench.client.publish(b"x", bench.now)
        bench.drain()
        assert len(bench.packets(Push)) == 1
        bench.tick()
        assert len(bench.packets(Push)) == 20

    def test_what_is_published_one_by_one_leaves_in_bursts(self) -> None:
        bench = self.publisher()
        for _ in range(10):
            bench.client.publish(b"x", bench.now)
        assert bench.client.next_deadline() == bench.now
        bench.client.tick(bench.now)
        first, rest = (effect for effect in bench.client.drain().effects if effect.peers == (BACKBONE,))
        assert (len(list(first.iter_datagrams())), len(first.datagrams)) == (1, 1)
        assert (len(list(rest.iter_datagrams())), len(rest.datagrams)) == (9, 1)

    def test_memory_of_what_came_back_does_not_grow(self) -> None:
        for options in ({"subscribe": False}, {"raw": True}, {"raw": True, "outbox": OutboxConfig(raw=True)}):
            bench = Bench(ClientConfig(start=1, **options))
            for number in range(300):
                bench.client.publish(b"%d" % number, bench.now)
                bench.drain()
                bench.tick()
                bench.receive(Deliver(number + 1, bench.packets(Push)[-1].data))
                bench.sent.clear()
            assert len(bench.published) == 300
            assert len(bench.client.send_queue._acked_sent_at) < 10

    @pytest.mark.parametrize("lost", [0.0, 0.3])
    def test_everything_gets_published_over_a_bad_way(self, lost: float) -> None:
        rng = Random(5)
        bench = self.publisher()
        sequence = 0
        tickets = set()
        for number in range(300):
            tickets.add(bench.client.publish(b"%d" % number, bench.now))
        done = 0
        for _ in range(3_000):
            bench.drain()
            pushes = bench.packets(Push)
            for push in pushes[done:]:
                if rng.random() >= lost:
                    sequence += 1
                    bench.receive(Deliver(sequence, push.data))
            done = len(pushes)
            bench.run(0.01)
            if len(bench.published) == 300:
                break
        assert sorted(ticket for ticket, _ in bench.published) == sorted(tickets)
        assert [message.data for message in bench.messages].count(b"7") == 1
        assert len(bench.messages) == 300


def outcome(bench: Bench) -> tuple[Any, ...]:
    """What the application was told, whatever the batches were that it came in."""
    items = [event for _, event in bench.events if isinstance(event, MessagesDelivered | MessagesLost)]
    flat: list[Any] = [
        one for item in items for one in (item.messages if isinstance(item, MessagesDelivered) else [item])
    ]
    if bench.drops["buffer_full"]:  # Then it is up to the jitter of later attempts when a message finds room.
        flat = [one if isinstance(one, MessagesLost) else one._replace(received_at=0) for one in flat]
    counters = bench.client.counters
    return (
        flat,
        sorted(bench.published),
        bench.told(Connected),
        [str(failed.error) for failed in bench.told(ClientFailed)],
        bench.drops,
        (counters.received, counters.delivered, counters.duplicates, counters.repeats, counters.lost),
        sorted((packet.sequence, peer) for _, packet, peer in bench.sent if isinstance(packet, Deliver)),
    )


def arrivals_of(rng: Random, length: int) -> list[tuple[Packet | bytes, Address]]:
    """A stream as it may arrive: disordered, with gaps, repeats, strangers and rubbish."""
    arrivals: list[tuple[Packet | bytes, Address]] = []
    for index in range(length):
        sequence = max(1, index // 2 + rng.randrange(-3, 8))
        data = wrap(b"someones", sequence // 2, bytes(sequence % 50)) if sequence % 3 else data_of(sequence)
        peer = BACKBONE if rng.random() < 0.8 else OTHER
        match rng.randrange(20):
            case 0:
                arrivals.append((rng.randbytes(rng.randrange(12)), peer))
            case 1:
                arrivals.append((Forward(OTHER, sequence, sequence + 5), peer))
            case 2:
                arrivals.append((Deliver(MAX_SEQUENCE, b"forged"), peer))
            case 3:
                arrivals.append((Keepalive(), peer))
            case _:
                arrivals.append((Deliver(sequence, data), peer))
    return arrivals


class TestProperties:
    @given(
        st.integers(0, 2**32),
        st.integers(VECTOR_MINIMUM, 150),
        st.sampled_from([FIRST, ClientConfig(), ClientConfig(start=1, buffer_bytes=2_000, raw=True)]),
        st.lists(st.integers(1, 60), min_size=1, max_size=12),
        st.lists(st.integers(1, 200), min_size=0, max_size=5),
    )
    def test_the_split_into_batches_changes_nothing(
        self, seed: int, length: int, config: ClientConfig, sizes: Sequence[int], pauses: Sequence[int]
    ) -> None:
        arrivals = arrivals_of(Random(seed), length)
        moments = sorted({min(pause, length) for pause in pauses} | {length})
        outcomes = []
        for split in ([length], [1], sizes):
            bench = Bench(config)
            position = 0
            for moment in moments:
                turn = 0
                while position < moment:
                    end = min(moment, position + split[turn % len(split)])
                    bench.feed(arrivals[position:end])
                    position, turn = end, turn + 1
                bench.run(0.07)
            bench.run(20)
            outcomes.append(outcome(bench))
        assert outcomes[0] == outcomes[1] == outcomes[2]

    @given(
        st.integers(0, 2**32),
        st.sampled_from([FIRST, ClientConfig(), ClientConfig(start=Start.OLDEST), ClientConfig(subscribe=False)]),
        st.lists(
            st.tuples(
                st.sampled_from(["publish", "deliver", "return", "answer", "silence", "pause", "resume", "forward"]),
                st.floats(0, 3),
            ),
            max_size=25,
        ),
    )
    def test_after_a_tick_the_next_one_is_in_the_future(
        self, seed: int, config: ClientConfig, history: Sequence[tuple[str, float]]
    ) -> None:
        bench = Bench(config, seed=seed)
        rng = Random(seed)
        for what, wait in history:
            match what:
                case "publish":
                    bench.client.publish(b"x" * rng.randrange(100), bench.now)
                case "deliver":
                    bench.deliver(*(rng.randrange(1, 300) for _ in range(rng.randrange(40))))
                case "return":
                    bench.receive(*(Deliver(rng.randrange(1, 300), push.data) for push in bench.packets(Push)[-3:]))
                case "pause":
                    bench.client.pause()
                case "resume":
                    bench.client.resume(bench.now)
                case "forward":
                    bench.receive(Forward(OTHER, 1, 400))
                case _:
                    bench.answering = what == "answer"
            bench.drain()
            self.run(bench, wait)
        self.run(bench, 20)

    def test_a_publisher_that_joins_knows_at_once_how_long_a_return_takes(self) -> None:
        bench = Bench(ClientConfig())
        bench.client.publish(b"lost", bench.now)
        self.run(bench, 0.5)
        bench.client.publish(b"returns", bench.now)
        bench.deliver(5)
        bench.receive(Deliver(7, bench.packets(Push)[-1].data))
        self.run(bench, 0.1)
        lost, _, again = bench.packets(Push)
        assert lost == again

    def run(self, bench: Bench, seconds: float) -> None:
        end = bench.now + seconds
        while (deadline := bench.client.next_deadline()) is not None and deadline <= end:
            bench.now = max(bench.now, deadline)
            bench.client.tick(bench.now)
            after = bench.client.next_deadline()
            assert after is None or after > bench.now
            before = len(bench.sent)
            bench.drain()
            if bench.answering:
                for _, packet, _ in bench.sent[before:]:
                    if isinstance(packet, Keepalive):
                        bench.receive(KeepaliveAck(packet.token))
        bench.now = end

    @given(st.integers(1, 10**6), st.integers(2_100, 10**5).map(lambda number: 8 * number + 4))
    def test_no_timer_of_a_publisher_rounds_to_now(self, offset: int, round_trip: int) -> None:
        # The grain of the clock is coarser than that of a round trip: what is due must be due by the same sum.
        bench = Bench(ClientConfig(start=1, outbox=OutboxConfig(window=WindowConfig(minimum_timeout=1e-7))))
        bench.answering = False
        bench.now += offset * 2.0**-22
        window = bench.client.send_queue.window
        window.acknowledged(round_trip * 2.0**-25)
        bench.client.publish(b"x", bench.now)
        bench.now = bench.client.send_queue.next_timeout() or 0.0
        bench.tick()
        after = bench.client.send_queue.next_timeout()
        assert after is not None
        assert after > bench.now


class TestStaying:
    def publish(self, bench: Bench, kept: int) -> None:
        """Publish a message, and let it come back under the number of its ticket plus one."""
        ticket = bench.client.publish(b"x", bench.now, kept=kept)
        bench.tick()
        bench.receive(Deliver(ticket + 1, wrap(bench.client.send_queue.publisher, ticket, b"x")))

    def test_one_that_published_stays_for_a_while(self) -> None:
        bench = Bench(ClientConfig(start=1))
        assert bench.client.may_leave_at == 0
        self.publish(bench, 0)
        assert bench.client.may_leave_at == bench.now + QUIET_TIME

    def test_one_whose_messages_journals_are_to_keep_does_not_stay_for_them(self) -> None:
        bench = Bench(ClientConfig(start=1))
        self.publish(bench, 1)
        assert bench.client.may_leave_at == 0
        self.publish(bench, 0)
        assert bench.client.may_leave_at == bench.now + QUIET_TIME

    def test_what_is_published_while_it_leaves_does_not_keep_it(self) -> None:
        bench = Bench(ClientConfig(start=1))
        first = bench.client.publish(b"x", bench.now)
        bench.client.prepare_to_leave()
        second = bench.client.publish(b"x", bench.now)
        bench.tick()
        bench.receive(Deliver(1, wrap(bench.client.send_queue.publisher, second, b"x")))
        assert bench.client.may_leave_at == 0
        bench.receive(Deliver(2, wrap(bench.client.send_queue.publisher, first, b"x")))
        assert bench.client.may_leave_at == bench.now + QUIET_TIME

    def test_one_whose_messages_were_not_kept_stays(self) -> None:
        bench = Bench(ClientConfig(start=1, outbox=OutboxConfig(timeout=3.0)))
        self.publish(bench, 1)
        bench.run(3)
        assert bench.client.may_leave_at == bench.now + QUIET_TIME

    def test_one_that_answers_slowly_stays_until_it_has(self) -> None:
        bench = Bench(ClientConfig(start=1))
        for _ in range(200):
            ticket = bench.client.publish(bytes(60_000), bench.now)
            bench.run(0.01)
            bench.receive(Deliver(ticket + 1, wrap(bench.client.send_queue.publisher, ticket, bytes(60_000))))
        bench.receive(Forward(OTHER, 1, 120))
        asked_at = bench.now
        bench.run(0.4)
        assert len(bench.packets(Deliver)) > 90
        assert bench.client.may_leave_at > asked_at + QUIET_TIME + 0.3


class TestStatus:
    def test_numbers_that_the_backbone_has_given_are_asked_for_at_once(self) -> None:
        bench = Bench(ClientConfig(start=1))
        bench.receive(Status(bench.client.keepalive.token, 0, 500))
        bench.run(0.1)
        assert (1, 500) in bench.requests

    @pytest.mark.parametrize("watch", [True, False])
    def test_a_client_that_watches_tells_what_journals_have_synced(self, watch: bool) -> None:
        bench = Bench(ClientConfig(start=1, watch=watch))
        assert all(bool(sent.flags & Flags.WATCHES) is watch for sent in bench.packets(Keepalive))
        holdings = (Holding(1, 500), Holding(3, 400))
        bench.receive(Status(bench.client.keepalive.token, 0, 500, holdings))
        assert bench.told(JournalsSynced) == ([JournalsSynced(holdings)] if watch else [])

    def test_one_that_answers_no_keepalive_of_ours_is_dropped(self) -> None:
        bench = Bench(ClientConfig(start=1))
        bench.receive(Status(bytes(16), 0, 500), Asked(bytes(16), 1, 2, 3))
        bench.receive(Status(bench.client.keepalive.token, 0, 500), peer=OTHER)
        assert bench.client.drops.counts["stray_extension"] == 3
        assert bench.client.missing_count == 0

    @pytest.mark.parametrize(("left", "attempts"), [(3, MAX_SEARCH_ATTEMPTS), (0, RepairConfig().attempts)])
    def test_what_other_clients_have_yet_to_be_asked_for_is_not_given_up(self, left: int, attempts: int) -> None:
        bench = Bench(ClientConfig(start=1))
        bench.deliver(1, 3, 4, 5, 6)
        bench.receive(Asked(bench.client.keepalive.token, 2, 2, 3), Asked(bench.client.keepalive.token, 2, 2, left))
        latest = 6
        while not bench.told(MessagesLost):
            assert latest < 200
            bench.run(0.5)
            latest += 1
            bench.deliver(latest)
        assert bench.requests.count((2, 2)) == attempts
