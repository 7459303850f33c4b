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
from fyrehose_twisted.fyrehose.node.client.tail_probe import MAX_PROBE_INTERVAL
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
OTHER_HOST: Address = ("198.51.100.1", 666)
FIRST = ClientConfig(start=1)
ONE_ATTEMPT = ClientConfig(start=1, repair=RepairConfig(attempts=1))
PROBE = (1, MAX_RANGE)
"""The tail probe that such a client sends when it connects."""

PacketT = TypeVar("PacketT")


class Bench:
    """A client with a clock, recording its packets and events."""

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
        """Advance the clock, ticking the client at each of its deadlines."""
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


def test_client_provides_idatagramnode() -> None:
    assert verifyObject(IDatagramNode, Client(BACKBONE, FIRST, Random(1), START))


class TestKeepalives:
    def test_keepalives_are_sent_quickly_until_the_first_ack(self) -> None:
        bench = Bench(connect=False)
        bench.run(2)
        assert bench.times(Keepalive) == pytest.approx([0.25 * index for index in range(9)])

    @pytest.mark.parametrize("interval", [0.1, 0.5, 0.9])
    def test_after_the_first_ack_one_keepalive_is_sent_per_interval(self, interval: float) -> None:
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
    def test_keepalive_flags_follow_the_client_configuration(self, subscribe: bool, journal: bool, flags: int) -> None:
        # A client that does not subscribe has nothing to journal, whatever the configuration says.
        bench = Bench(ClientConfig(subscribe=subscribe, journal=journal))
        assert bench.packets(Keepalive)[0].flags == flags | Flags.EXTENSIONS

    def test_a_client_is_disconnected_five_seconds_after_the_last_ack_and_reconnects(self) -> None:
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

    def test_an_ack_reports_the_round_trip_time(self) -> None:
        bench = Bench(connect=False)
        bench.tick()
        bench.now += 0.125
        bench.receive(KeepaliveAck(bench.packets(Keepalive)[0].token))
        assert bench.told(KeepaliveAcked) == [KeepaliveAcked(0.125)]

    @pytest.mark.parametrize(("token", "peer"), [(None, OTHER_HOST), (bytes(16), BACKBONE), (b"", BACKBONE)])
    def test_an_ack_from_another_host_or_with_an_unknown_token_is_dropped(
        self, token: bytes | None, peer: Address
    ) -> None:
        bench = Bench(connect=False)
        bench.tick()
        bench.receive(KeepaliveAck(bench.packets(Keepalive)[0].token if token is None else token), peer=peer)
        assert bench.told(Connected) == []
        assert bench.drops["stray_ack"] == 1

    def test_a_v1_client_sends_keepalives_without_flags_or_token(self) -> None:
        bench = Bench(ClientConfig(start=1, dialect=Dialect.V1))
        assert bench.packets(Keepalive)[0] == Keepalive(token=b"", dialect=Dialect.V1)
        assert len(bench.told(Connected)) == 1

    @pytest.mark.parametrize(
        "options", [{"subscribe": False}, {"journal": False}, {"secret": b"sixteen bytes and a few"}, {"watch": True}]
    )
    def test_a_v1_client_refuses_options_that_need_flags_or_a_token(self, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError, match="v1"):
            ClientConfig(dialect=Dialect.V1, **options)

    @pytest.mark.parametrize(
        "options",
        [{"keepalive_interval": 0.09}, {"keepalive_interval": 1.1}, {"start": 0}, {"start": MAX_SEQUENCE + 1}],
    )
    def test_client_options_out_of_range_are_refused(self, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError):
            ClientConfig(**options)

    @pytest.mark.parametrize("dialect", Dialect)
    def test_a_client_sends_no_keepalives_after_leaving(self, dialect: Dialect) -> None:
        bench = Bench(ClientConfig(start=1, dialect=dialect))
        bench.client.leave(bench.now)
        bench.drain()
        since = len(bench.packets(Keepalive))
        bench.run(2)
        assert len(bench.packets(Keepalive)) == since

    def test_a_leaving_client_sends_nosubscribe_and_nojournal(self) -> None:
        bench = Bench()
        bench.client.leave(bench.now)
        bench.drain()
        assert bench.packets(Keepalive)[-1].flags == Flags.NOSUBSCRIBE | Flags.NOJOURNAL

    def test_a_leaving_v1_client_sends_nothing(self) -> None:
        bench = Bench(ClientConfig(start=1, dialect=Dialect.V1))
        before = len(bench.sent)
        bench.client.leave(bench.now)
        bench.drain()
        assert len(bench.sent) == before


class TestOrder:
    def test_disordered_and_repeated_messages_are_delivered_in_order_and_once(self) -> None:
        bench = Bench()
        bench.deliver(2, 1, 1, 4, 2)
        bench.deliver(3)
        bench.deliver(4, 5)
        assert bench.sequences == [1, 2, 3, 4, 5]
        assert [message.data for message in bench.messages] == [data_of(sequence) for sequence in range(1, 6)]
        assert bench.client.counters.duplicates == 3

    def test_a_message_has_its_receive_time_and_its_wire_payload(self) -> None:
        bench = Bench()
        bench.now = START + 0.5
        bench.deliver(1)
        message = bench.messages[0]
        assert message == Message(1, round((START + 0.5) * 1e6), data_of(1), data_of(1))
        assert tuple(message.record("fyrehose://x")) == ("fyrehose://x", 0, 1, message.received_at, data_of(1))

    @pytest.mark.parametrize("packet", [Push(b"x"), Request(OTHER, 1, 2), Keepalive()])
    def test_a_client_drops_packets_meant_for_a_backbone(self, packet: Packet) -> None:
        bench = Bench()
        bench.receive(packet)
        assert bench.drops["unexpected"] == 1

    def test_a_client_counts_malformed_packets_as_drops(self) -> None:
        bench = Bench()
        bench.receive(b"", b"\xff", b"\x01\x00\x05", encode(Deliver(1, b"abc"))[:-1])
        assert bench.drops == {"empty": 1, "unknown_type": 1, "size": 1, "length": 1}
        bench.client.receive_batch(Batch.pack([(encode(Deliver(1, b"x")), BACKBONE)], truncated=[0]), bench.now)
        assert bench.drops["truncated"] == 1
        assert bench.sequences == []

    def test_a_truncated_datagram_in_a_large_batch_is_dropped(self) -> None:
        bench = Bench()
        arrivals = [(encode(Deliver(sequence, b"x")), BACKBONE) for sequence in range(1, VECTOR_MINIMUM + 1)]
        bench.client.receive_batch(Batch.pack(arrivals, truncated=[VECTOR_MINIMUM - 1]), bench.now)
        bench.drain()
        assert bench.sequences == list(range(1, VECTOR_MINIMUM))
        assert bench.drops["truncated"] == 1

    def test_a_batch_of_duplicates_delivers_nothing(self) -> None:
        bench = Bench()
        bench.receive(Deliver(1, wrap(b"someones", 0, b"once")))
        bench.receive(Deliver(2, wrap(b"someones", 0, b"once")))
        assert [len(delivered.messages) for delivered in bench.told(MessagesDelivered)] == [1]


class TestRepair:
    def test_a_gap_is_requested_after_the_reorder_delay(self) -> None:
        bench = Bench()
        bench.deliver(1, 2, 6)
        bench.run(0.0199)
        assert bench.requests == [PROBE]
        bench.run(0.0002)
        assert bench.requests == [PROBE, (3, 5)]

    def test_late_messages_within_the_reorder_delay_are_not_requested(self) -> None:
        bench = Bench()
        bench.deliver(1, 6)
        bench.run(0.01)
        bench.deliver(2, 5, 4)
        bench.run(0.05)
        assert bench.requests == [PROBE, (3, 3)]

    def test_requests_cover_at_most_1024_numbers_lowest_first(self) -> None:
        bench = Bench()
        bench.deliver(2_501)
        bench.run(0.03)
        assert bench.requests == [PROBE, (1, 1_024), (1_025, 2_048), (2_049, 2_500)]

    def test_repair_attempts_back_off_with_jitter(self) -> None:
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

    def test_a_gap_is_reported_lost_after_the_last_attempt_and_later_repairs_are_dropped(self) -> None:
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

    def test_a_gap_partly_in_the_store_is_requested_as_one_range(self) -> None:
        store = MemoryStore()
        store.put(3, [data_of(3)])
        bench = Bench(FIRST, store=store)
        bench.deliver(1, 5)
        bench.run(0.05)
        assert (2, 4) in bench.requests

    def test_a_message_of_another_host_does_not_replace_the_backbones(self) -> None:
        store = MemoryStore()
        bench = Bench(ClientConfig(start=1, buffer_bytes=500), store=store)
        bench.client.pause()
        bench.deliver(*range(1, 11))
        bench.receive(Deliver(10, b"forged"), peer=OTHER_HOST)
        assert store.get(10) == data_of(10)

    def test_a_repair_that_overflows_the_buffer_is_requested_again(self) -> None:
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

    def test_a_repair_from_any_host_is_accepted_for_a_requested_number(self) -> None:
        bench = Bench()
        bench.deliver(1, 4)
        bench.run(0.03)
        bench.deliver(2, 3, peer=OTHER)
        assert bench.sequences == [1, 2, 3, 4]
        assert bench.client.counters.repaired == 2

    def test_messages_of_other_hosts_are_dropped_unless_requested(self) -> None:
        bench = Bench(ClientConfig(start=MAX_RANGE))
        bench.deliver(*range(MAX_RANGE, 3_001), 3_003)
        bench.deliver(3_002, peer=OTHER_HOST)  # Missing, but not requested yet.
        bench.run(0.03)
        bench.deliver(3_004, MAX_SEQUENCE, peer=OTHER_HOST)
        assert bench.sequences[-1] == 3_000
        assert bench.drops["unasked_repair"] == 3

    def test_unrequested_messages_of_other_hosts_in_a_large_batch_are_dropped(self) -> None:
        bench = Bench()
        strange = [(Deliver(2_000 + index, b""), OTHER_HOST) for index in range(VECTOR_MINIMUM)]
        bench.feed([(Deliver(1, b"x"), BACKBONE), *strange])
        assert bench.sequences == [1]
        assert bench.drops["unasked_repair"] == VECTOR_MINIMUM

    @pytest.mark.parametrize(("rate", "in_flight"), [(50.0, 10**6), (10_000.0, 5_000)])
    def test_a_huge_gap_keeps_the_request_rate_limit(self, rate: float, in_flight: int) -> None:
        bench = Bench(ClientConfig(start=1, repair=RepairConfig(rate=rate, in_flight=in_flight, attempts=4)))
        bench.deliver(1_000_000)
        bench.run(0.05)
        assert len(bench.requests) <= 1 + min(rate * 1.06, in_flight / MAX_RANGE + 1)
        bench.run(2)
        assert len(bench.requests) <= rate * 3.1

    def test_no_requests_are_sent_while_the_backbone_is_unresponsive(self) -> None:
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

    def test_tail_probes_of_an_idle_stream_back_off(self) -> None:
        bench = Bench()
        bench.deliver(1, 2, 3)
        bench.run(200)
        assert set(bench.requests[1:]) == {(4, 3 + MAX_RANGE)}
        times = bench.times(Request)[1:]
        waits = [later - earlier for earlier, later in pairwise(times)]
        interval = bench.client.config.keepalive_interval
        assert 0.75 * interval <= times[0] <= 1.25 * interval
        assert 0.75 * interval <= waits[0] <= 1.25 * interval
        assert all(wait <= MAX_PROBE_INTERVAL * 1.25 for wait in waits)
        assert sum(waits[:4]) > 10
        assert len(times) < 16

    def test_a_tail_probe_repairs_the_last_message_and_the_next_probe_follows_quickly(self) -> None:
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

    def test_a_client_far_behind_requests_the_next_range_as_soon_as_the_previous_arrived(self) -> None:
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

    def test_no_number_past_the_maximum_is_requested(self) -> None:
        bench = Bench(ClientConfig(start=MAX_SEQUENCE))
        bench.deliver(MAX_SEQUENCE)
        bench.run(5)
        assert bench.sequences == [MAX_SEQUENCE]
        assert set(bench.requests) <= {(MAX_SEQUENCE, MAX_SEQUENCE)}

    def test_repairs_alone_may_advance_the_stream_far_past_the_backbones_last_message(self) -> None:
        bench = Bench()
        bench.deliver(1)
        for first in range(2, 3_000, MAX_RANGE):
            bench.run(31)  # Until the next tail probe.
            bench.deliver(*range(first, first + MAX_RANGE), peer=OTHER)
        assert bench.sequences[-1] > 3_000
        assert bench.drops["implausible"] == 0

    def test_a_request_carries_the_configured_address(self) -> None:
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
    def test_start_live_begins_at_the_first_message(self) -> None:
        bench = Bench(ClientConfig())
        bench.run(3)
        assert bench.requests == []
        bench.deliver(500)
        bench.run(0.1)
        assert bench.sequences == [500]

    def test_start_oldest_keeps_requesting_everything_after_a_first_answer(self) -> None:
        bench = Bench(ClientConfig(start=Start.OLDEST))
        bench.deliver(300, peer=OTHER)
        bench.run(0.45)
        assert bench.requests == [(1, MAX_SEQUENCE)] * 5

    def test_start_live_waits_for_a_message_overtaken_by_the_first(self) -> None:
        bench = Bench(ClientConfig())
        bench.deliver(501)
        bench.run(0.01)
        bench.deliver(500, 503)
        assert bench.sequences == []
        bench.run(0.02)
        assert bench.sequences == [500, 501]
        bench.deliver(502)
        assert bench.sequences == [500, 501, 502, 503]

    def test_the_start_position_is_decided_on_a_tick_and_not_between_batches(self) -> None:
        bench = Bench(ClientConfig())
        bench.deliver(5)
        bench.now += 0.5  # The process was busy.
        bench.deliver(6)
        bench.deliver(4)
        bench.tick()
        assert bench.sequences == [4, 5, 6]

    def test_start_oldest_requests_several_times_and_begins_at_the_lowest_answer(self) -> None:
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

    def test_start_oldest_on_an_empty_stream_begins_at_the_first_message(self) -> None:
        bench = Bench(ClientConfig(start=Start.OLDEST))
        bench.run(5)
        assert set(bench.requests) == {(1, MAX_SEQUENCE)}
        bench.deliver(7)
        bench.run(0.1)
        assert bench.sequences == [7]

    def test_start_at_a_number_requests_it_at_once(self) -> None:
        bench = Bench(ClientConfig(start=40))
        bench.deliver(50, 39)
        bench.run(0.03)
        assert (40, 49) in bench.requests
        bench.deliver(*range(40, 50), peer=OTHER)
        assert bench.sequences == list(range(40, 51))
        assert bench.told(ClientFailed) == []

    def test_a_client_that_does_not_subscribe_sends_no_requests(self) -> None:
        bench = Bench(ClientConfig(start=Start.OLDEST, subscribe=False))
        bench.run(60)
        assert bench.requests == []


class TestForgedNumbers:
    @pytest.mark.parametrize("peer", [BACKBONE, OTHER_HOST])
    @pytest.mark.parametrize("start", [Start.LIVE, Start.OLDEST, 1])
    def test_one_forged_sequence_number_loses_nothing(self, start: Start | int, peer: Address) -> None:
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

    def test_a_slightly_too_high_sequence_number_loses_nothing_while_the_stream_continues(self) -> None:
        bench = Bench(FIRST)
        bench.deliver(*range(1, 11))
        bench.deliver(1_000)
        for sequence in range(11, 1_011):
            bench.run(1)
            bench.deliver(sequence)
        assert bench.sequences == list(range(1, 1_011))
        assert bench.told(MessagesLost) == []

    def test_a_jump_is_delivered_once_following_messages_confirm_it(self) -> None:
        bench = Bench(ClientConfig(start=1, repair=RepairConfig(attempts=1)))
        bench.deliver(1)
        bench.deliver(5_000)
        bench.run(1)
        assert bench.sequences == [1]
        bench.deliver(5_001, 5_002)
        bench.run(UNCONFIRMED_TIMEOUT + 5)
        assert bench.sequences == [1, 5_000, 5_001, 5_002]
        assert (bench.told(MessagesLost)[0].first, bench.told(MessagesLost)[-1].last) == (2, 4_999)

    def test_a_jump_without_contradiction_is_delivered_after_the_timeout(self) -> None:
        bench = Bench(ClientConfig(start=1, repair=RepairConfig(attempts=1)))
        bench.deliver(1)
        bench.deliver(5_000)
        bench.run(3 * UNCONFIRMED_TIMEOUT)
        assert bench.sequences == [1, 5_000]

    def test_two_backbones_numbering_one_stream_stop_the_client(self) -> None:
        bench = Bench(FIRST)
        for sequence in range(1, 10):
            bench.deliver(sequence)
            bench.receive(Deliver(sequence, b"of the other %d" % sequence))
        assert len(bench.told(ClientFailed)) == 1

    def test_start_live_begins_with_a_message_of_the_backbone_not_a_repair(self) -> None:
        bench = Bench(ClientConfig())
        bench.deliver(5_000)
        bench.run(0.05)
        bench.deliver(*range(4_985, 5_001), peer=OTHER)
        bench.run(0.1)
        assert bench.sequences == [5_000]

    def test_a_message_of_the_backbone_replaces_a_buffered_one_of_the_same_number(self) -> None:
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
        assert store.get(9) != data_of(9)  # Only the backbone may replace a message.

    def test_forged_repairs_past_the_end_do_not_count_as_a_second_backbone(self) -> None:
        bench = Bench(FIRST)
        bench.deliver(1, 2)
        bench.run(3)
        made_up = range(3, 3 + CONTRADICTIONS)
        bench.receive(
            *(Deliver(number, b"made up") for number in made_up), peer=OTHER_HOST
        )  # Within the range of a tail probe.
        bench.deliver(*made_up)
        bench.deliver(made_up.stop)
        assert bench.told(ClientFailed) == []
        assert bench.sequences == list(range(1, made_up.stop + 1))
        assert bench.drops["false_repair"] == CONTRADICTIONS
        bench.receive(*(Deliver(number, b"of another backbone") for number in made_up))
        assert len(bench.told(ClientFailed)) == 1, "messages of the backbone after its own are a contradiction"

    def test_forged_repairs_are_forgotten_once_the_backbone_has_passed_them(self) -> None:
        bench = Bench(FIRST)
        bench.deliver(1, 2)
        bench.run(3)
        made_up = range(3, 3 + CONTRADICTIONS)
        bench.receive(*(Deliver(number, b"made up") for number in made_up), peer=OTHER_HOST)
        for number in range(made_up.stop, 300):
            bench.deliver(number)
            bench.run(0.1)
        bench.deliver(*made_up)
        assert len(bench.told(ClientFailed)) == 1
        assert bench.drops["false_repair"] == 0

    def test_a_message_of_the_backbone_replaces_a_forged_repair(self) -> None:
        store = MemoryStore()
        bench = Bench(FIRST, store=store)
        bench.deliver(1, 2, 5)
        bench.run(0.1)
        bench.receive(Deliver(4, b"made up"), Deliver(3, b"made up"), peer=OTHER_HOST)
        bench.deliver(3, 4)
        assert [store.get(number) for number in (3, 4)] == [data_of(3), data_of(4)]
        assert bench.drops["false_repair"] == 2

    def test_a_suspected_gap_is_requested_slowly_and_given_up_on_an_idle_stream(self) -> None:
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

    def test_a_contradicted_jump_is_discarded(self) -> None:
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

    def test_an_implausibly_large_jump_is_never_confirmed_by_silence(self) -> None:
        bench = Bench(FIRST)
        bench.deliver(1)
        bench.deliver(2**30)
        bench.run(3 * UNCONFIRMED_TIMEOUT)
        bench.deliver(2, 3)
        assert bench.sequences == [1, 2, 3]

    def test_only_the_latest_jump_can_be_confirmed(self) -> None:
        bench = Bench(ONE_ATTEMPT)
        bench.deliver(1)
        bench.deliver(2**30)
        bench.deliver(5_000)
        bench.deliver(5_001, 5_002)
        bench.run(2)
        assert bench.sequences == [1, 5_000, 5_001, 5_002]

    def test_a_confirmed_jump_counts_as_a_confirmation(self) -> None:
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
        bench.deliver(1_000, peer=OTHER_HOST)  # Within the range of a tail probe.
        bench.deliver(2)
        bench.run(1)
        assert bench.requests
        assert all(last <= 1_000 + MAX_RANGE for _, last in bench.requests)

    def test_repairs_do_not_advance_the_stream_head(self) -> None:
        bench = Bench(FIRST)
        bench.deliver(1)
        bench.run(1.5)
        bench.deliver(1_000, peer=OTHER_HOST)
        bench.deliver(2_000)
        assert bench.drops["implausible"] == 1

    def test_the_gap_before_a_jump_is_requested_as_soon_as_the_jump_is_settled(self) -> None:
        bench = Bench(FIRST)
        bench.deliver(1)
        bench.run(0.3)
        bench.deliver(5_000)
        bench.run(UNCONFIRMED_TIMEOUT + 0.05)
        assert (1_026, 2_049) in bench.requests

    def test_silence_of_an_unresponsive_backbone_confirms_no_jump(self) -> None:
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

    def test_silence_of_an_unresponsive_backbone_confirms_no_loss(self) -> None:
        bench = Bench(ONE_ATTEMPT)
        bench.deliver(1, 2, 1_000)
        bench.answering = False
        bench.run(2 * UNCONFIRMED_TIMEOUT)
        bench.answering = True
        bench.run(UNCONFIRMED_TIMEOUT - 2)
        assert bench.told(MessagesLost) == []

    @pytest.mark.parametrize("start", [Start.LIVE, Start.OLDEST, 5])
    def test_one_damaged_sequence_number_among_the_first_loses_nothing(self, start: Start | int) -> None:
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

    def test_a_jump_among_the_first_messages_is_accepted_if_confirmed(self) -> None:
        bench = Bench(ClientConfig(repair=RepairConfig(attempts=1)))
        bench.deliver(5, 6, 5_000, 5_001, 5_002)
        bench.run(2)
        assert bench.sequences == [5, 6, 5_000, 5_001, 5_002]

    def test_a_jump_in_a_repair_among_the_first_messages_is_dropped(self) -> None:
        bench = Bench(ClientConfig(start=Start.OLDEST))
        bench.deliver(1, 2)
        bench.deliver(100_000, peer=OTHER_HOST)
        bench.run(2)
        bench.deliver(3)
        assert bench.sequences == [1, 2, 3]
        assert bench.drops["implausible"] == 1

    def test_a_single_message_after_a_gap_is_delivered_once_it_is_settled(self) -> None:
        bench = Bench(FIRST)
        bench.deliver(1, 2)
        bench.run(20)
        bench.deliver(1_000)
        bench.run(UNCONFIRMED_TIMEOUT - 0.01)
        assert bench.sequences == [1, 2]
        bench.run(0.75)
        assert bench.sequences == [1, 2, 1_000]

    @pytest.mark.parametrize("peer", [BACKBONE, OTHER_HOST])
    @pytest.mark.parametrize("start", [Start.LIVE, Start.OLDEST])
    def test_a_forged_first_sequence_number_does_not_set_the_start_position(self, start: Start, peer: Address) -> None:
        bench = Bench(ClientConfig(start=start))
        bench.deliver(MAX_SEQUENCE, peer=peer)
        bench.deliver(1, 2)
        bench.run(2)
        bench.deliver(3)
        bench.run(20)
        assert bench.sequences == [1, 2, 3]
        assert bench.told(MessagesLost) == []
        assert bench.client.next_sequence == 4

    def test_two_messages_after_a_large_jump_confirm_it(self) -> None:
        bench = Bench(ClientConfig(start=1, repair=RepairConfig(attempts=1)))
        bench.deliver(1)
        bench.deliver(2**40)
        bench.deliver(2**40 + 1)
        assert bench.client.state is ClientState.FOLLOWING
        assert bench.drops["implausible"] == 1
        bench.run(0.05)
        assert bench.requests[-1][0] > 1

    def test_sequence_number_0_is_dropped(self) -> None:
        bench = Bench()
        bench.deliver(0)
        assert bench.drops["implausible"] == 1


class TestSequenceRegression:
    def stream(self, config: ClientConfig = FIRST, last: int = 200) -> Bench:
        bench = Bench(config)
        for sequence in range(1, last + 1):
            bench.deliver(sequence)
            bench.run(0.1)
        bench.run(90)  # Recorded requests expire meanwhile.
        return bench

    @pytest.mark.parametrize(
        "config",
        [FIRST, ClientConfig(start=1, history_bytes=2_000), ClientConfig(start=1, journal=False)],
        ids=["held", "evicted", "nojournal"],
    )
    def test_a_sequence_regression_stops_the_client_once(self, config: ClientConfig) -> None:
        bench, enough = self.stream(config), CONTRADICTIONS if config is FIRST else REGRESSION_CONFIRMATIONS
        bench.receive(*(Deliver(number, b"something else") for number in range(1, enough)))
        assert bench.told(ClientFailed) == []  # A single one may be a late duplicate or damaged.
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

    def test_an_old_message_with_the_same_payload_is_a_late_duplicate(self) -> None:
        bench = self.stream()
        bench.deliver(1, 100, 200)
        assert bench.told(ClientFailed) == []

    def test_a_recent_duplicate_of_an_evicted_message_is_no_regression(self) -> None:
        bench = Bench(ClientConfig(start=1, journal=False))
        bench.deliver(*range(1, 50))
        bench.run(4)
        bench.deliver(10, 49)
        assert bench.told(ClientFailed) == []

    def test_repeated_repairs_from_the_backbones_address_are_no_regression(self) -> None:
        bench = Bench(ClientConfig(start=1, journal=False))
        bench.deliver(1, 2, 5)
        bench.run(0.5)
        bench.deliver(3, 4)
        bench.run(15)
        bench.deliver(3, 4)
        assert bench.sequences == [1, 2, 3, 4, 5]
        assert bench.told(ClientFailed) == []

    def test_three_repairs_from_the_backbones_address_are_no_regression(self) -> None:
        bench = Bench(ClientConfig(start=1, journal=False))
        bench.deliver(1, 2, 6)
        bench.run(0.5)
        bench.deliver(3, 4, 5, 7, 8, 9, 10)
        bench.run(15)
        bench.deliver(3, 4, 5)
        assert REGRESSION_CONFIRMATIONS == 3
        assert bench.told(ClientFailed) == []

    def test_a_stopped_client_counts_messages_as_drops(self) -> None:
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

    def test_held_messages_of_a_forwarded_range_are_sent_to_the_requester(self) -> None:
        bench = self.holding(1, 2, 3, 5)
        bench.receive(Forward(OTHER, 2, 9))
        assert bench.packets(Deliver) == [Deliver(sequence, data_of(sequence)) for sequence in (2, 3, 5)]
        assert self.answers(bench) == [2, 3, 5]

    def test_a_long_forwarded_range_is_answered_with_its_lowest_1024_messages(self) -> None:
        bench = self.holding(*range(1, 2_001))
        bench.receive(Forward(OTHER, 1, MAX_SEQUENCE))
        bench.run(0.5)
        assert self.answers(bench) == list(range(1, 1_025))

    def test_a_forward_for_messages_not_held_is_a_counted_drop(self) -> None:
        bench = self.holding(1, 2)
        bench.receive(Forward(OTHER, 3, 9))
        assert self.answers(bench) == []
        assert bench.drops["forward_not_held"] == 1

    @pytest.mark.parametrize("peer", [OTHER_HOST, ("10.0.0.1", 2324)])
    def test_a_forward_from_another_address_than_the_backbones_is_dropped(self, peer: Address) -> None:
        bench = self.holding(1)
        bench.receive(Forward(OTHER, 1, 1), peer=peer)
        assert self.answers(bench) == []
        assert bench.drops["foreign_forward"] == 1

    def test_a_forward_for_port_0_is_not_answered(self) -> None:
        bench = self.holding(1)
        bench.receive(Forward(("10.0.0.8", 0), 1, 1))
        assert bench.packets(Deliver) == []

    def test_a_client_with_nojournal_answers_no_forwards(self) -> None:
        history = MemoryStore()
        history.put(1, [data_of(1)])
        bench = Bench(ClientConfig(start=1, journal=False), store=history)
        bench.deliver(2)
        bench.receive(Forward(OTHER, 1, 2))
        assert bench.packets(Deliver) == []
        assert history.get(2) is None

    @pytest.mark.parametrize("size", [0, 1_000, 60_000])
    def test_answers_to_a_requester_stay_within_its_byte_budget(self, size: int) -> None:
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

    def test_repaired_and_buffered_messages_are_sent_to_a_requester(self) -> None:
        bench = self.holding(1, 4)
        bench.run(0.03)
        bench.deliver(3, peer=OTHER)
        bench.receive(Forward(OTHER, 1, 9))
        assert self.answers(bench) == [1, 3, 4]

    def test_a_client_that_does_not_subscribe_answers_from_its_store(self) -> None:
        history = MemoryStore()
        history.put(1, [data_of(1)])
        bench = Bench(ClientConfig(subscribe=False), store=history)
        assert bench.packets(Keepalive)[0].flags == Flags.NOSUBSCRIBE | Flags.EXTENSIONS
        bench.receive(Forward(OTHER, 1, 9))
        assert self.answers(bench) == [1]


class TestStartAhead:
    def test_a_publisher_with_a_start_ahead_of_the_stream_is_acknowledged(self) -> None:
        bench = Bench(ClientConfig(start=1_000))
        bench.run(1)
        bench.client.publish(b"early", bench.now)
        bench.drain()
        bench.receive(Deliver(7, bench.packets(Push)[-1].data))
        assert [sequence for _, sequence in bench.published] == [7]
        assert bench.sequences == []


class TestForgedFirstNumber:
    @pytest.mark.parametrize("start", [Start.OLDEST, Start.LIVE, 5])
    def test_one_forged_first_message_does_not_begin_the_stream(self, start: Start | int) -> None:
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
    def test_buffered_messages_are_corrected_while_paused(self) -> None:
        bench = Bench()
        bench.client.pause()
        bench.receive(Deliver(1, b"damaged"))
        bench.deliver(1)
        assert bench.client.buffered_bytes > 0
        bench.client.resume(bench.now)
        bench.drain()
        assert [message.payload for message in bench.messages] == [data_of(1)]

    def test_a_paused_client_delivers_nothing_until_resume(self) -> None:
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
    def test_messages_beyond_the_buffer_of_a_paused_client_are_requested_again(self, journal: bool, size: int) -> None:
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
    def test_a_batch_far_beyond_the_buffer_of_a_paused_client_is_requested_again(self, journal: bool) -> None:
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

    def test_messages_recalled_after_a_pause_keep_their_receive_time(self) -> None:
        bench = Bench(ClientConfig(start=1, buffer_bytes=2_000))
        bench.client.pause()
        bench.deliver(*range(1, 101))
        came = int(bench.now * 1_000_000)
        bench.run(60)
        bench.client.resume(bench.now)
        bench.run(5)
        assert bench.sequences == list(range(1, 101))
        assert {message.received_at for message in bench.messages} == {came}

    def test_a_pause_in_an_event_handler_takes_effect_at_the_next_run(self) -> None:
        bench = Bench()
        bench.deliver(1, 2, 3, 5, 6, 7)

        class PauseOnLoss(list[tuple[float, object]]):
            def __iadd__(self, told: Iterable[tuple[float, object]]) -> PauseOnLoss:  # type: ignore[override,misc]
                self.extend(told)
                if any(isinstance(event, MessagesLost) for _, event in self):
                    bench.client.pause()
                return self

        bench.events = PauseOnLoss(bench.events)
        bench.run(30)
        assert (bench.told(MessagesLost), bench.sequences) == ([MessagesLost(4, 4)], [1, 2, 3])
        bench.events = list(bench.events)
        bench.client.resume(bench.now)
        bench.drain()
        assert bench.sequences == [1, 2, 3, 5, 6, 7]

    def test_a_full_buffer_behind_an_unrepairable_gap_loses_only_the_gap(self) -> None:
        bench = Bench(ClientConfig(start=1, buffer_bytes=3_000))
        bench.deliver(1)
        for sequence in range(3, 201):
            bench.deliver(sequence)
            bench.run(0.005)
        bench.run(30)
        assert bench.told(MessagesLost) == [MessagesLost(2, 2)]
        assert bench.sequences == [1, *range(3, 201)]

    def test_a_batch_larger_than_the_buffer_is_delivered_without_overflow(self) -> None:
        bench = Bench(ClientConfig(start=1, buffer_bytes=3_000, journal=False))
        bench.deliver(*range(1, 201))
        assert bench.sequences == list(range(1, 201))
        assert bench.drops["buffer_full"] == 0

    def test_pending_deliveries_of_a_slow_application_stay_within_the_buffer(self) -> None:
        bench = Bench(ClientConfig(start=1, buffer_bytes=10_000, journal=False, repair=RepairConfig(attempts=1)))

        class PauseOnMessages(list[tuple[float, object]]):
            def __iadd__(self, told: Iterable[tuple[float, object]]) -> PauseOnMessages:  # type: ignore[override,misc]
                news = list(told)
                self.extend(news)
                if any(isinstance(event, MessagesDelivered) for _, event in news):
                    bench.client.pause()
                return self

        bench.events = PauseOnMessages(bench.events)
        for first in range(1, 1_000, 20):
            bench.deliver(*range(first, first + 9), *range(first + 10, first + 20))
            bench.run(12)  # The gap between the runs is given up.
            bench.client.resume(bench.now)
            bench.drain()
        told = [event for event in bench.client._delivery_queue._pending if isinstance(event, MessagesDelivered)]
        waiting = [message for event in told for message in event.messages]
        assert sum(len(message.payload) + MESSAGE_OVERHEAD for message in waiting) <= 10_000
        assert bench.sequences == sorted(set(bench.sequences))


class TestEnvelopes:
    def enveloped(self, sequence: int, counter: int, payload: bytes = b"p", publisher: bytes = b"someones") -> Deliver:
        return Deliver(sequence, wrap(publisher, counter, payload))

    def test_envelopes_are_removed_and_duplicates_dropped(self) -> None:
        bench = Bench()
        bench.receive(*(self.enveloped(sequence, counter) for sequence, counter in enumerate([0, 1, 0, 2, 1, 3], 1)))
        assert bench.sequences == [1, 2, 4, 6]
        assert {message.data for message in bench.messages} == {b"p"}
        assert bench.messages[0].payload == wrap(b"someones", 0, b"p")
        assert bench.client.counters.repeats == 2

    def test_each_publisher_is_deduplicated_by_its_own_counters(self) -> None:
        bench = Bench()
        bench.receive(self.enveloped(1, 0), self.enveloped(2, 0, publisher=b"anothers"))
        assert bench.sequences == [1, 2]

    def test_a_raw_client_delivers_duplicates_with_their_envelopes(self) -> None:
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

    def test_a_message_is_published_once_it_returns(self) -> None:
        bench = self.publisher()
        (ticket,) = self.publish(bench, b"hello")
        (push,) = bench.packets(Push)
        assert push == Push(wrap(bench.client.send_queue.publisher, 0, b"hello"))
        assert bench.published == []
        bench.receive(Deliver(1, push.data))
        bench.receive(Deliver(2, push.data))
        assert bench.published == [(ticket, 1)]
        assert [message.data for message in bench.messages] == [b"hello"]

    def test_messages_are_not_sent_before_the_backbone_answers(self) -> None:
        bench = self.publisher(connect=False)
        self.publish(bench, b"hello")
        bench.run(1)
        assert bench.packets(Push) == []
        bench.answering = True
        bench.run(1)
        assert len(bench.packets(Push)) >= 1

    def test_messages_of_other_publishers_acknowledge_nothing(self) -> None:
        bench = self.publisher()
        self.publish(bench, b"hello")
        bench.receive(Deliver(1, b"hello"), Deliver(2, wrap(b"someones", 0, b"hello")))
        assert bench.published == []

    def test_a_repair_acknowledges_a_published_message(self) -> None:
        bench = self.publisher()
        self.publish(bench, b"hello")
        bench.deliver(1, 3)
        bench.run(0.03)
        bench.receive(Deliver(2, bench.packets(Push)[0].data), peer=OTHER)
        assert bench.published == [(0, 2)]

    def test_a_raw_publisher_sends_payloads_without_envelopes(self) -> None:
        bench = self.publisher(raw=True, outbox=OutboxConfig(raw=True))
        self.publish(bench, b"same", b"same", b"other")
        bench.tick()
        assert bench.packets(Push) == [Push(b"same"), Push(b"same"), Push(b"other")]
        bench.receive(Deliver(1, b"same"), Deliver(2, b"other"), Deliver(3, b"same"), Deliver(4, b"same"))
        assert bench.published == [(0, 1), (2, 2), (1, 3)]

    def test_a_publisher_that_does_not_subscribe_requests_confirmation(self) -> None:
        bench = self.publisher(subscribe=False)
        self.publish(bench, b"hello")
        (push,) = bench.packets(Push)
        assert push.confirm
        bench.receive(Deliver(7, push.data), peer=OTHER_HOST)
        assert bench.published == []
        bench.receive(Deliver(7, push.data))
        assert bench.published == [(0, 7)]
        assert bench.messages == []

    def test_a_v1_publisher_sends_v1_pushes(self) -> None:
        bench = self.publisher(dialect=Dialect.V1)
        self.publish(bench, b"hello")
        assert bench.packets(Push)[0].dialect is Dialect.V1

    @pytest.mark.parametrize(("raw", "limit"), [(False, 65_478), (True, 65_498)])
    def test_publishing_a_message_larger_than_a_datagram_is_refused(self, raw: bool, limit: int) -> None:
        bench = self.publisher(outbox=OutboxConfig(raw=raw))
        self.publish(bench, bytes(limit))
        assert len(bench.packets(Push)[0].data) == 65_498
        with pytest.raises(MessageTooLarge, match=f"{limit + 1:,} bytes is over the limit of {limit:,}"):
            self.publish(bench, bytes(limit + 1))

    @pytest.mark.parametrize("limits", [{"queue_messages": 10}, {"queue_bytes": 10 * 30}])
    def test_a_full_send_queue_refuses_messages_until_an_ack(self, limits: dict[str, int]) -> None:
        bench = self.publisher(outbox=OutboxConfig(**limits))
        self.publish(bench, *[bytes(10)] * 10)
        with pytest.raises(PublishQueueFull):
            self.publish(bench, bytes(10))
        bench.receive(Deliver(1, bench.packets(Push)[0].data))
        self.publish(bench, bytes(10))

    @pytest.mark.parametrize("alive", [True, False])
    def test_an_unacknowledged_message_expires_once(self, alive: bool) -> None:
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

    def test_one_sequence_number_acknowledges_one_of_two_equal_raw_messages(self) -> None:
        bench = Bench(ClientConfig(start=1, raw=True, outbox=OutboxConfig(raw=True)))
        for _ in range(2):
            bench.client.publish(b"same", bench.now)
        bench.drain()
        bench.receive(Deliver(1, b"same"), Deliver(1, b"same"))
        assert bench.published == [(0, 1)]

    def test_a_message_expires_at_its_timeout_and_not_at_the_next_keepalive(self) -> None:
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
            self.return_push(bench, bench.packets(Push)[-1])

    def return_push(self, bench: Bench, push: Push) -> None:
        bench.receive(Deliver((bench.client.next_sequence or 0), push.data))

    def test_the_first_retransmission_timeout_is_one_second_and_doubles(self) -> None:
        bench = self.publisher()
        bench.client.publish(b"x", bench.now)
        bench.drain()
        bench.run(20)
        times = bench.times(Push)
        assert times[:5] == pytest.approx([0, 1, 3, 7, 11])  # Not over the limit of 4 s.

    def test_the_retransmission_timeout_follows_the_round_trip(self) -> None:
        bench = self.publisher()
        self.exchange(bench, 30, 0.3)
        window = bench.client.send_queue.window
        assert window.smoothed_rtt == pytest.approx(0.3, abs=0.001)
        assert 0.3 < window.timeout < 0.35
        assert bench.client.send_queue.retransmissions == 0

    def test_a_retransmitted_message_gives_no_round_trip_sample(self) -> None:
        bench = self.publisher()
        self.exchange(bench, 30, 0.01)
        window = bench.client.send_queue.window
        before = window.smoothed_rtt
        bench.client.publish(b"x", bench.now)
        bench.drain()
        bench.run(0.3)  # Retransmitted after 0.2 s.
        assert bench.client.send_queue.retransmissions == 1
        self.return_push(bench, bench.packets(Push)[-1])
        assert window.smoothed_rtt == before

    def test_a_round_trip_longer_than_the_first_timeout_is_measured(self) -> None:
        bench = self.publisher()
        self.exchange(bench, 10, 1.5)
        assert bench.client.send_queue.window.smoothed_rtt == pytest.approx(1.5, abs=0.01)
        assert bench.client.send_queue.retransmissions <= 2

    def test_a_message_overtaken_by_more_than_the_reordering_window_is_retransmitted_early(self) -> None:
        bench = self.publisher()
        self.exchange(bench, 30, 0.05)
        bench.client.publish(b"lost", bench.now)
        bench.drain()
        bench.run(0.04)
        bench.client.publish(b"later", bench.now)
        bench.drain()
        bench.run(0.05)
        pushes = bench.packets(Push)
        self.return_push(bench, pushes[-1])
        bench.run(0)
        assert bench.packets(Push)[len(pushes) :] == [pushes[-2]]

    def test_a_message_overtaken_within_the_reordering_window_is_not_retransmitted(self) -> None:
        bench = self.publisher()
        self.exchange(bench, 30, 0.05)
        bench.client.publish(b"slow", bench.now)
        bench.client.publish(b"fast", bench.now)
        bench.drain()
        bench.run(0.05)
        pushes = bench.packets(Push)
        self.return_push(bench, pushes[-1])
        bench.run(0)
        assert bench.packets(Push) == pushes

    def test_a_spurious_retransmission_of_a_client_widens_its_reordering_window(self) -> None:
        bench = self.publisher()
        self.exchange(bench, 30, 0.05)
        bench.client.publish(b"x", bench.now)
        bench.run(1)
        before = bench.client.send_queue.window.reordering_window
        again = bench.packets(Push)[-1]
        bench.client.publish(b"y", bench.now)
        self.return_push(bench, again)
        assert bench.client.send_queue.window.reordering_window == before
        self.return_push(bench, again)
        assert bench.client.send_queue.window.reordering_window > before

    def test_the_congestion_window_limits_messages_in_flight(self) -> None:
        bench = self.publisher(window=WindowConfig(initial=20))
        for _ in range(100):
            bench.client.publish(b"x", bench.now)
        bench.drain()
        assert len(bench.packets(Push)) == 1
        bench.tick()
        assert len(bench.packets(Push)) == 20

    def test_messages_published_one_by_one_are_sent_in_bursts(self) -> None:
        bench = self.publisher()
        for _ in range(10):
            bench.client.publish(b"x", bench.now)
        assert bench.client.next_deadline() == bench.now
        bench.client.tick(bench.now)
        first, rest = (effect for effect in bench.client.drain().effects if effect.peers == (BACKBONE,))
        assert (len(list(first.iter_datagrams())), len(first.datagrams)) == (1, 1)
        assert (len(list(rest.iter_datagrams())), len(rest.datagrams)) == (9, 1)

    def test_memory_of_acknowledged_messages_is_bounded(self) -> None:
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
    def test_every_message_is_published_over_a_lossy_path(self, lost: float) -> None:
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


def observed_outcome(bench: Bench) -> tuple[Any, ...]:
    """Return the application's view of a run, independent of the split into batches."""
    items = [event for _, event in bench.events if isinstance(event, MessagesDelivered | MessagesLost)]
    flat: list[Any] = [
        one for item in items for one in (item.messages if isinstance(item, MessagesDelivered) else [item])
    ]
    if bench.drops["buffer_full"]:  # Receive times then depend on the jitter of later attempts.
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
    """Return a stream with reordering, gaps, duplicates, other hosts and malformed datagrams."""
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
    def test_events_do_not_depend_on_the_split_into_batches(
        self, seed: int, length: int, config: ClientConfig, sizes: Sequence[int], pauses: Sequence[int]
    ) -> None:
        arrivals = arrivals_of(Random(seed), length)
        pause_points = sorted({min(pause, length) for pause in pauses} | {length})
        outcomes = []
        for split in ([length], [1], sizes):
            bench = Bench(config)
            position = 0
            for pause_point in pause_points:
                turn = 0
                while position < pause_point:
                    end = min(pause_point, position + split[turn % len(split)])
                    bench.feed(arrivals[position:end])
                    position, turn = end, turn + 1
                bench.run(0.07)
            bench.run(20)
            outcomes.append(observed_outcome(bench))
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
    def test_the_deadline_of_a_client_is_in_the_future_after_a_tick(
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

    def test_a_publisher_measures_the_round_trip_while_it_searches_the_start_position(self) -> None:
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
    def test_the_timeout_of_a_publisher_is_in_the_future_despite_rounding(self, offset: int, round_trip: int) -> None:
        # The clock is coarser than a round trip, so deadline and check must round alike.
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


class TestLinger:
    def publish(self, bench: Bench, kept: int) -> None:
        """Publish a message and return it with the number of its ticket plus one."""
        ticket = bench.client.publish(b"x", bench.now, kept=kept)
        bench.tick()
        bench.receive(Deliver(ticket + 1, wrap(bench.client.send_queue.publisher, ticket, b"x")))

    def test_a_publisher_without_journals_lingers_after_an_ack(self) -> None:
        bench = Bench(ClientConfig(start=1))
        assert bench.client.may_leave_at == 0
        self.publish(bench, 0)
        assert bench.client.may_leave_at == bench.now + QUIET_TIME

    def test_a_publisher_does_not_linger_for_messages_that_journals_must_keep(self) -> None:
        bench = Bench(ClientConfig(start=1))
        self.publish(bench, 1)
        assert bench.client.may_leave_at == 0
        self.publish(bench, 0)
        assert bench.client.may_leave_at == bench.now + QUIET_TIME

    def test_a_message_published_while_leaving_does_not_extend_the_linger(self) -> None:
        bench = Bench(ClientConfig(start=1))
        first = bench.client.publish(b"x", bench.now)
        bench.client.prepare_to_leave()
        second = bench.client.publish(b"x", bench.now)
        bench.tick()
        bench.receive(Deliver(1, wrap(bench.client.send_queue.publisher, second, b"x")))
        assert bench.client.may_leave_at == 0
        bench.receive(Deliver(2, wrap(bench.client.send_queue.publisher, first, b"x")))
        assert bench.client.may_leave_at == bench.now + QUIET_TIME

    def test_a_publisher_lingers_for_messages_that_too_few_journals_kept(self) -> None:
        bench = Bench(ClientConfig(start=1, outbox=OutboxConfig(timeout=3.0)))
        self.publish(bench, 1)
        bench.run(3)
        assert bench.client.may_leave_at == bench.now + QUIET_TIME

    def test_a_publisher_lingers_until_its_repair_queue_is_sent(self) -> None:
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
    def test_numbers_reported_in_a_status_are_requested_at_once(self) -> None:
        bench = Bench(ClientConfig(start=1))
        bench.receive(Status(bench.client.keepalive.token, 0, 500))
        bench.run(0.1)
        assert (1, 500) in bench.requests

    @pytest.mark.parametrize("watch", [True, False])
    def test_a_watching_client_reports_journal_progress(self, watch: bool) -> None:
        bench = Bench(ClientConfig(start=1, watch=watch))
        assert all(bool(sent.flags & Flags.WATCHES) is watch for sent in bench.packets(Keepalive))
        holdings = (Holding(1, 500), Holding(3, 400))
        bench.receive(Status(bench.client.keepalive.token, 0, 500, holdings))
        assert bench.told(JournalsSynced) == ([JournalsSynced(holdings)] if watch else [])

    def test_a_status_with_an_unknown_token_is_dropped(self) -> None:
        bench = Bench(ClientConfig(start=1))
        bench.receive(Status(bytes(16), 0, 500), Asked(bytes(16), 1, 2, 3))
        bench.receive(Status(bench.client.keepalive.token, 0, 500), peer=OTHER)
        assert bench.client.drops.counts["stray_extension"] == 3
        assert bench.client.missing_count == 0

    @pytest.mark.parametrize(("left", "attempts"), [(3, MAX_SEARCH_ATTEMPTS), (0, RepairConfig().attempts)])
    def test_a_gap_is_not_given_up_while_clients_remain_to_be_asked(self, left: int, attempts: int) -> None:
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
