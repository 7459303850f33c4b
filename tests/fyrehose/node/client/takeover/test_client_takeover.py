"""Rules of a client of several backbones, without sockets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import ClientConfig, OutboxConfig, RepairConfig, Start
from fyrehose_twisted.fyrehose.events import (
    ClientFailed,
    Connected,
    Disconnected,
    LeaderChanged,
    MessagesDelivered,
    MessagesLost,
    MessagesPublished,
    NumbersSkipped,
    TermStarted,
)
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.node.client.keepalive import CONNECT_INTERVAL
from fyrehose_twisted.fyrehose.node.client.repair import MAX_RANGE
from fyrehose_twisted.fyrehose.node.client.stream_head import LATE_AFTER, MAX_JUMP
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.envelope import unwrap, wrap
from fyrehose_twisted.fyrehose.wire.packets import (
    ANY_ADDRESS,
    Deliver,
    Forward,
    Head,
    Keepalive,
    KeepaliveAck,
    Leader,
    Packet,
    Push,
    Request,
    Status,
)
from fyrehose_twisted.fyrehose.wire.term_start import TermStart, encode_term_start

START = 1_700_000_000.0
A: Address = ("10.0.0.1", 2323)
B: Address = ("10.0.0.2", 2323)
C: Address = ("10.0.0.3", 2323)
MEMBERS = (A, B, C)
OTHER: Address = ("10.0.0.8", 4000)
STRANGER: Address = ("198.51.100.1", 666)

PacketT = TypeVar("PacketT")


def data_of(sequence: int) -> bytes:
    return b"message %d" % sequence


def marker(term: int, held_up_to: int, first: int) -> Deliver:
    return Deliver(first, encode_term_start(TermStart(term, held_up_to, first)))


class Group:
    """A client of three backbones with a clock; the member at ``leader`` answers as the leader, the others stand by."""

    def __init__(
        self,
        config: ClientConfig | None = None,
        *,
        backbones: Address | Sequence[Address] = MEMBERS,
        leader: Address = A,
        connect: bool = True,
    ) -> None:
        self.now = START
        self.client = Client(backbones, config or ClientConfig(start=1), Random(1), self.now)
        self.sent: list[tuple[float, Packet, Address]] = []
        self.events: list[Any] = []
        self.term, self.leader = 5, leader
        self.last = 0
        self.alive = set(MEMBERS)
        if connect:
            self.tick()
            self.tick()

    def drain(self) -> None:
        drained = True
        while drained:
            _, effects, events = self.client.drain()
            for effect in effects:
                for datagram in effect.iter_datagrams():
                    self.sent += [(self.now, decode(datagram), peer) for peer in effect.peers]
            self.events += events
            drained = bool(events)

    def tick(self) -> None:
        before = len(self.sent)
        self.client.tick(self.now)
        self.drain()
        for _, packet, peer in self.sent[before:]:
            if isinstance(packet, Keepalive) and peer in self.alive:
                self.answer(packet.token, peer)

    def answer(self, token: bytes, peer: Address) -> None:
        report = Leader(token, self.term, self.leader, False, MEMBERS)
        if peer == self.leader:
            self.receive(Status(token, 0, self.last), report, KeepaliveAck(token), peer=peer)
        else:
            self.receive(report, peer=peer)

    def run(self, seconds: float) -> None:
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

    def receive(self, *packets: Packet, peer: Address) -> None:
        self.client.receive_batch(Batch.pack([(encode(packet), peer) for packet in packets]), self.now)
        self.drain()

    def deliver(self, *sequences: int, peer: Address | None = None) -> None:
        packets = [Deliver(sequence, data_of(sequence)) for sequence in sequences]
        self.receive(*packets, peer=self.leader if peer is None else peer)

    def take_over(self, leader: Address, *, asks_head: bool = True, term: int | None = None) -> None:
        """Let another member lead, and report it to the client."""
        self.term, self.leader = self.term + 1 if term is None else term, leader
        tokens = [packet.token for _, packet, peer in self.sent if isinstance(packet, Keepalive) and peer == leader]
        report = Leader(tokens[-1], self.term, leader, asks_head, MEMBERS)
        self.receive(report, peer=leader)

    def start_term(self, held_up_to: int, first: int) -> None:
        self.last = first
        self.receive(marker(self.term, held_up_to, first), peer=self.leader)

    def packets(self, kind: type[PacketT], since: float = START) -> list[tuple[PacketT, Address]]:
        return [(packet, peer) for when, packet, peer in self.sent if isinstance(packet, kind) and when >= since]

    def told(self, kind: type[PacketT]) -> list[PacketT]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def heads(self) -> list[tuple[int, int]]:
        return [(head.term, head.highest) for head, _ in self.packets(Head)]

    @property
    def sequences(self) -> list[int]:
        return [message.sequence for event in self.told(MessagesDelivered) for message in event.messages]

    @property
    def order(self) -> list[object]:
        """Delivered numbers, losses, skipped numbers and starts of terms, in order."""
        order: list[object] = []
        for event in self.events:
            if isinstance(event, MessagesDelivered):
                order += [message.sequence for message in event.messages]
            elif isinstance(event, (MessagesLost, NumbersSkipped, TermStarted)):
                order.append(event)
        return order

    @property
    def drops(self) -> Counter[str]:
        return self.client.drops.counts


class TestConnecting:
    @pytest.mark.parametrize("leader", MEMBERS)
    def test_keepalives_go_to_all_members_and_the_one_that_leads_is_followed(self, leader: Address) -> None:
        group = Group(leader=leader)
        assert {peer for _, peer in group.packets(Keepalive)} == set(MEMBERS)
        assert group.client.backbone == leader
        assert len(group.told(Connected)) == 1
        assert group.told(LeaderChanged) == [LeaderChanged(5, leader)]
        group.deliver(1, 2)
        assert group.sequences == [1, 2]
        assert not group.drops

    @pytest.mark.parametrize("order", ["status first", "leader first", "acknowledgement only"])
    def test_the_first_answer_of_a_leader_connects(self, order: str) -> None:
        group = Group(connect=False, leader=B)
        group.alive.clear()
        group.tick()
        token = group.client.keepalive.token
        packets: list[Packet] = [Status(token, 0, 7), Leader(token, 5, B), KeepaliveAck(token)]
        if order == "leader first":
            packets[:2] = packets[1::-1]
        elif order == "acknowledgement only":
            del packets[:2]
        group.receive(*packets, peer=B)
        assert group.client.backbone == B
        assert len(group.told(Connected)) == 1
        assert group.client.reported_last == (0 if order == "acknowledgement only" else 7)

    def test_one_member_tells_the_addresses_of_the_others(self) -> None:
        group = Group(backbones=C)
        group.run(1.0)
        assert group.client.backbone == A
        assert {peer for when, packet, peer in group.sent if isinstance(packet, Keepalive) and when == START} == {
            A,
            B,
            C,
        }
        assert len(group.told(Connected)) == 1

    def test_a_member_that_stands_by_does_not_connect(self) -> None:
        group = Group(connect=False)
        group.alive.remove(A)
        group.run(1.0)
        assert group.told(Connected) == []
        assert group.client.backbone == A
        times = sorted({when for when, packet, _ in group.sent if isinstance(packet, Keepalive)})
        assert times[1] - times[0] == pytest.approx(CONNECT_INTERVAL)

    def test_a_client_without_a_leader_for_five_seconds_is_disconnected(self) -> None:
        group = Group()
        group.alive.remove(A)
        group.run(7.0)
        assert len(group.told(Disconnected)) == 1
        group.leader, group.term = B, 6
        group.run(1.0)
        assert len(group.told(Connected)) == 2
        assert group.client.backbone == B

    def test_a_replaced_leader_does_not_connect_a_client_again(self) -> None:
        group = Group()
        group.take_over(B)
        group.alive.clear()
        group.run(2.0)
        token = group.client.keepalive.token
        group.receive(Status(token, 0, 9), Leader(token, 5, A), KeepaliveAck(token), peer=A)
        assert group.client.backbone == B

    def test_a_group_that_was_bootstrapped_anew_is_followed_although_its_terms_are_lower(self) -> None:
        group = Group()
        group.take_over(B)
        group.alive.clear()
        group.run(7.0)
        assert len(group.told(Disconnected)) == 1
        token = group.client.keepalive.token
        group.receive(Status(token, 0, 9), Leader(token, 1, A), KeepaliveAck(token), peer=A)
        assert len(group.told(Connected)) == 2
        assert group.client.backbone == A

    def test_a_new_leader_has_five_seconds_to_answer(self) -> None:
        group = Group()
        group.alive.clear()
        group.run(4.5)
        group.take_over(B)
        group.run(4.9)
        assert group.told(Disconnected) == []
        group.run(0.2)
        assert len(group.told(Disconnected)) == 1

    def test_a_client_without_flags_follows_the_member_that_answers(self) -> None:
        group = Group(connect=False)
        group.alive.clear()
        group.tick()
        group.receive(KeepaliveAck(group.client.keepalive.token), peer=C)
        group.receive(KeepaliveAck(group.client.keepalive.token), peer=A)
        assert group.client.backbone == C
        assert group.drops == {"former_leader": 1}

    def test_the_farewell_goes_to_all_members(self) -> None:
        group = Group()
        before = len(group.sent)
        group.client.leave(group.now)
        group.drain()
        assert {peer for _, packet, peer in group.sent[before:] if isinstance(packet, Keepalive)} == set(MEMBERS)


class TestSwitching:
    def test_a_client_answers_the_new_leader_with_its_highest_number(self) -> None:
        group = Group()
        group.deliver(1, 2, 3, 6)
        group.take_over(B)
        assert group.heads == [(6, 6)]
        head, peer = group.packets(Head)[0]
        assert (head.token, peer) == (group.client.keepalive.token, B)
        assert group.client.backbone == B
        assert group.told(LeaderChanged) == [LeaderChanged(5, A), LeaderChanged(6, B)]
        assert group.client.counters.leader_changes == 1

    def test_a_keepalive_precedes_the_first_head_of_a_term(self) -> None:
        group = Group()
        group.run(0.5)
        group.take_over(B)
        group.take_over(B, term=6)
        to_leader = [packet for when, packet, peer in group.sent if peer == B and when == group.now]
        assert [type(packet) for packet in to_leader] == [Keepalive, Head, Head]
        assert {packet.token for packet in to_leader} == {group.client.keepalive.token}  # type: ignore[union-attr]

    def test_a_repeated_head_has_the_token_that_the_leader_knows(self) -> None:
        group = Group()
        group.run(0.5)
        asked = Leader(group.client.keepalive.token, 6, B, True, MEMBERS)
        group.receive(asked, peer=B)
        group.receive(asked, peer=B)  # The KEEPALIVE was lost.
        first, second = [head.token for head, _ in group.packets(Head)]
        assert second == asked.token
        assert first == group.client.keepalive.token != asked.token

    @given(st.integers(0, 6), st.integers(0, 6))
    def test_a_head_counts_what_came_before_it_however_batches_are_split(self, first: int, second: int) -> None:
        group = Group()
        arrivals: list[tuple[Packet, Address]] = [
            (Deliver(1, b"one"), A),
            (Deliver(2, b"two"), A),
            (Leader(group.client.keepalive.token, 6, B, True), B),
            (Deliver(3, b"three"), A),
            (marker(6, 2, 9), B),
            (Deliver(10, b"ten"), B),
        ]
        cuts = sorted({0, first, second, len(arrivals)})
        for start, end in pairwise(cuts):
            packed = [(encode(packet), peer) for packet, peer in arrivals[start:end]]
            group.client.receive_batch(Batch.pack(packed), group.now)
            group.drain()
        assert group.heads == [(6, 2)]
        assert group.order == [1, 2, NumbersSkipped(3, 8), TermStarted(6, 2, 9), 10]

    def test_the_head_of_a_publisher_that_does_not_subscribe_is_its_highest_acknowledged_number(self) -> None:
        group = Group(ClientConfig(subscribe=False))
        group.client.publish(b"x", group.now)
        group.deliver(41)
        group.take_over(B)
        assert group.heads == [(6, 41)]

    def test_the_head_of_a_joining_subscriber_is_the_highest_message_that_it_collected(self) -> None:
        group = Group(ClientConfig(start=Start.OLDEST))
        group.deliver(7, 8)
        group.take_over(B)
        assert group.heads == [(6, 8)]

    def test_reported_numbers_that_were_not_received_do_not_count_as_held(self) -> None:
        group = Group()
        group.deliver(1)
        group.last = 50
        group.run(1.0)
        assert group.client.reported_last == 50
        group.take_over(B)
        assert group.heads == [(6, 1)]

    def test_repaired_numbers_count_as_held(self) -> None:
        group = Group()
        group.deliver(1)
        group.last = 3
        group.run(1.0)
        group.deliver(3, peer=OTHER)
        group.take_over(B)
        assert group.heads == [(6, 3)]

    def test_a_standby_that_names_another_leader_switches_the_client(self) -> None:
        group = Group()
        group.alive.remove(A)
        group.term, group.leader = 6, C
        group.alive.remove(C)
        group.run(1.0)
        assert group.client.backbone == C
        assert group.heads == []

    def test_the_former_leader_is_ignored(self) -> None:
        group = Group()
        group.deliver(1)
        group.take_over(B)
        token = group.client.keepalive.token
        group.receive(
            Status(token, 0, 99), Leader(token, 5, A, True), KeepaliveAck(token), Forward(OTHER, 1, 1), peer=A
        )
        assert group.client.backbone == B
        assert group.client.reported_last == 0
        assert group.heads == [(6, 1)]
        assert group.drops == {"former_leader": 4}
        group.deliver(2, peer=A)
        assert group.sequences == [1]
        assert group.drops == {"former_leader": 5}

    @pytest.mark.parametrize(("token", "peer"), [(bytes(16), B), (None, STRANGER)])
    def test_a_leader_packet_without_our_token_or_from_a_stranger_is_dropped(
        self, token: bytes | None, peer: Address
    ) -> None:
        group = Group()
        report = Leader(group.client.keepalive.token if token is None else token, 9, STRANGER, True)
        group.receive(report, peer=peer)
        assert group.client.backbone == A
        assert group.heads == []
        assert group.drops == {"stray_extension": 1}

    def test_messages_of_another_member_cause_a_keepalive_at_once_but_not_each_time(self) -> None:
        group = Group()
        group.run(0.1)
        before = len(group.packets(Keepalive))
        for sequence in range(5_000, 5_009):
            group.deliver(sequence, peer=B)
            group.tick()
        assert len(group.packets(Keepalive)) - before == len(MEMBERS)
        group.run(CONNECT_INTERVAL)
        group.deliver(5_009, peer=B)
        group.tick()
        assert len(group.packets(Keepalive)) - before == 2 * len(MEMBERS)

    def test_requests_go_to_the_new_leader(self) -> None:
        group = Group()
        group.take_over(B)
        group.start_term(3, 4)
        group.run(0.1)
        assert {peer for request, peer in group.packets(Request) if request.last == 3} == {B}

    def test_forwards_of_the_new_leader_are_answered(self) -> None:
        group = Group()
        group.deliver(1)
        group.take_over(B)
        group.receive(Forward(OTHER, 1, 1), peer=B)
        assert group.packets(Deliver) == [(Deliver(1, data_of(1)), OTHER)]


class TestPublishing:
    CONFIG = ClientConfig(start=1, outbox=OutboxConfig(timeout=60.0))

    def pushes(self, group: Group, peer: Address) -> list[tuple[int, bool]]:
        return [
            (envelope.counter, push.again)
            for push, to in group.packets(Push)
            if to == peer and (envelope := unwrap(push.data)) is not None
        ]

    def test_unacknowledged_messages_are_sent_to_the_new_leader_at_once_and_in_order(self) -> None:
        group = Group(self.CONFIG)
        group.client.publish_many([b"%d" % number for number in range(5)], group.now)
        group.drain()
        publisher = group.client.send_queue.publisher
        group.receive(Deliver(1, wrap(publisher, 2, b"2")), peer=A)
        assert self.pushes(group, A) == [(number, False) for number in range(5)]
        group.take_over(B)
        group.tick()
        assert self.pushes(group, B) == [(number, True) for number in (0, 1, 3, 4)]
        assert len(self.pushes(group, A)) == 5

    def test_messages_already_lost_or_retransmitted_are_sent_in_order_too(self) -> None:
        group = Group(self.CONFIG)
        group.client.publish_many([b"%d" % number for number in range(3)], group.now)
        group.run(3.0)
        group.client.publish(b"3", group.now)
        group.drain()
        assert len(self.pushes(group, A)) > 4
        timeout = group.client.send_queue.window.timeout
        group.take_over(B)
        assert group.client.send_queue.window.timeout < timeout
        group.tick()
        assert [counter for counter, _ in self.pushes(group, B)] == [0, 1, 2, 3]

    def test_the_same_leader_in_a_new_term_receives_unacknowledged_messages_again(self) -> None:
        group = Group(self.CONFIG)
        group.client.publish(b"x", group.now)
        group.drain()
        group.take_over(A)
        group.tick()
        assert self.pushes(group, A) == [(0, False), (0, True)]

    def test_messages_are_published_by_the_new_leader(self) -> None:
        group = Group(self.CONFIG)
        ticket = group.client.publish(b"x", group.now)
        group.drain()
        group.take_over(B)
        group.tick()
        group.start_term(0, 100)
        group.receive(Deliver(101, wrap(group.client.send_queue.publisher, ticket, b"x")), peer=B)
        assert [pair for event in group.told(MessagesPublished) for pair in event.messages] == [(ticket, 101)]


class TestSeam:
    def test_unused_numbers_are_skipped_at_once_and_the_marker_is_not_delivered(self) -> None:
        group = Group()
        group.deliver(1, 2, 3)
        group.take_over(B)
        group.start_term(3, 5_000)
        group.deliver(5_001)
        assert group.order == [1, 2, 3, NumbersSkipped(4, 4_999), TermStarted(6, 3, 5_000), 5_001]
        assert group.client.counters.skipped == 4_996
        assert group.client.counters.lost == 0
        assert group.client.missing_count == 0

    def test_nothing_is_skipped_after_a_transfer(self) -> None:
        group = Group()
        group.deliver(1, 2, 3)
        group.take_over(B)
        group.start_term(3, 4)
        group.deliver(5)
        assert group.order == [1, 2, 3, TermStarted(6, 3, 4), 5]

    def test_a_marker_amid_consecutive_messages_is_not_delivered(self) -> None:
        group = Group()
        group.deliver(1)
        group.take_over(A)
        group.receive(Deliver(2, data_of(2)), marker(6, 2, 3), Deliver(4, data_of(4)), peer=A)
        assert group.order == [1, 2, TermStarted(6, 2, 3), 4]

    @pytest.mark.parametrize("raw", [False, True])
    def test_a_marker_whose_leader_packet_was_lost_is_not_delivered(self, raw: bool) -> None:
        group = Group(ClientConfig(start=1, raw=raw))
        group.deliver(1)
        group.receive(marker(6, 1, 2), Deliver(3, data_of(3)), peer=A)
        assert group.order == [1, TermStarted(6, 1, 2), 3]

    def test_a_marker_that_arrives_as_a_repair_before_the_change_is_known_skips_numbers_too(self) -> None:
        group = Group()
        group.deliver(1)
        group.run(1.0)
        group.receive(marker(6, 1, 9), peer=B)
        assert group.order == [1, NumbersSkipped(2, 8), TermStarted(6, 1, 9)]
        group.take_over(B)
        group.deliver(10)
        assert group.sequences == [1, 10]

    def test_numbers_that_other_clients_held_are_repaired(self) -> None:
        group = Group()
        group.deliver(1, 2)
        group.take_over(B)
        group.start_term(4, 900)
        group.deliver(901)
        group.run(0.1)
        assert (Request(ANY_ADDRESS, 3, 4), B) in group.packets(Request)
        group.deliver(3, 4, peer=OTHER)
        assert group.order == [1, 2, 3, 4, NumbersSkipped(5, 899), TermStarted(6, 4, 900), 901]

    def test_numbers_that_other_clients_held_and_lost_are_reported_as_lost(self) -> None:
        group = Group(ClientConfig(start=1, repair=RepairConfig(attempts=2)))
        group.deliver(1, 2)
        group.take_over(B)
        group.start_term(4, 900)
        group.deliver(901, 902, 903)
        group.run(5.0)
        lost = [MessagesLost(3, 4), NumbersSkipped(5, 899), TermStarted(6, 4, 900)]
        assert group.order == [1, 2, *lost, 901, 902, 903]

    def test_messages_that_the_former_leader_still_sends_are_no_repairs(self) -> None:
        group = Group()
        group.deliver(1)
        group.run(1.0)
        assert (Request(ANY_ADDRESS, 2, MAX_RANGE + 1), A) in group.packets(Request)
        group.take_over(B)
        group.deliver(2, 3, peer=A)
        assert group.client.drops.counts["former_leader"] == 2
        group.start_term(1, 50)
        assert group.order == [1, NumbersSkipped(2, 49), TermStarted(6, 1, 50)]
        group.deliver(4, peer=A)
        assert group.sequences == [1]

    def test_messages_of_the_leader_before_the_last_are_no_repairs_either(self) -> None:
        group = Group()
        group.deliver(1)
        group.run(1.0)
        group.take_over(B)
        group.deliver(8)
        group.take_over(C)
        group.deliver(3, peer=A)
        group.receive(marker(7, 8, 20), peer=C)
        group.deliver(4, peer=A)
        group.receive(marker(6, 1, 7), peer=OTHER)
        assert group.order == [
            1,
            NumbersSkipped(2, 6),
            TermStarted(6, 1, 7),
            8,
            NumbersSkipped(9, 19),
            TermStarted(7, 8, 20),
        ]

    def test_late_messages_of_a_member_that_leads_again_are_not_accepted(self) -> None:
        group = Group()
        group.deliver(1)
        group.take_over(B)
        group.deliver(8)
        group.take_over(A)
        keepalives = len(group.packets(Keepalive))
        group.deliver(3, peer=A)
        group.receive(marker(7, 8, 20), peer=A)
        group.deliver(4, peer=A)
        group.tick()
        assert len(group.packets(Keepalive)) == keepalives
        group.receive(marker(6, 1, 7), peer=OTHER)
        assert group.sequences == [1, 8]
        assert group.drops == {"former_leader": 2}

    def test_a_term_that_was_not_used_does_not_delay_repairs(self) -> None:
        group = Group()
        group.deliver(1, 4)
        group.run(0.05)
        group.take_over(B)
        group.take_over(C)
        group.start_term(4, 9)
        group.deliver(11)
        group.run(0.05)
        group.deliver(2, 3, 10, peer=OTHER)
        assert group.sequences == [1, 2, 3, 4, 10, 11]

    def test_repairs_of_numbers_held_before_the_takeover_are_accepted_at_once(self) -> None:
        group = Group()
        group.deliver(1, 4)
        group.run(0.05)
        group.take_over(B)
        group.deliver(2, 3, peer=OTHER)
        assert group.sequences == [1, 2, 3, 4]

    def test_repairs_are_accepted_again_when_the_marker_does_not_come(self) -> None:
        group = Group()
        group.deliver(1)
        group.take_over(B)
        group.deliver(5)
        group.run(LATE_AFTER + 0.5)
        group.deliver(2, 3, 4, peer=OTHER)
        assert group.sequences == [1, 2, 3, 4, 5]

    def test_a_client_that_was_disconnected_accepts_repairs_at_once(self) -> None:
        group = Group()
        group.deliver(1)
        group.alive.clear()
        group.run(7.0)
        group.take_over(B)
        group.answer(group.client.keepalive.token, B)
        group.deliver(51)
        group.run(0.05)
        group.deliver(2, peer=OTHER)
        assert group.sequences == [1, 2]

    def test_a_lost_marker_is_requested_as_any_number_and_repaired_by_another_client(self) -> None:
        group = Group()
        group.deliver(1)
        group.take_over(B)
        group.deliver(51, 52, 53)
        group.run(0.05)
        assert (Request(ANY_ADDRESS, 2, 50), B) in group.packets(Request)
        group.receive(marker(6, 1, 50), peer=OTHER)
        assert group.order == [1, NumbersSkipped(2, 49), TermStarted(6, 1, 50), 51, 52, 53]

    def test_a_lost_marker_behind_many_unused_numbers_is_found_with_one_request(self) -> None:
        group = Group()
        group.deliver(1)
        group.take_over(B)
        group.deliver(50_001, 50_002)
        group.tick()
        assert [request for request in group.packets(Request) if request[0].last == 50_002] == [
            (Request(ANY_ADDRESS, 2, 50_002), B)
        ]
        group.receive(marker(6, 1, 50_000), peer=B)
        assert group.order == [1, NumbersSkipped(2, 49_999), TermStarted(6, 1, 50_000), 50_001, 50_002]
        before = len(group.packets(Request))
        group.run(2.0)
        assert all(request.first > 50_000 for request, _ in group.packets(Request)[before:])

    def test_requests_for_a_lost_marker_are_repeated_at_growing_intervals(self) -> None:
        group = Group()
        group.deliver(1)
        group.take_over(B)
        group.deliver(99_001, 99_002)
        group.run(2.0)
        probes = [
            (packet.first, round(when - START, 3))
            for when, packet, _ in group.sent
            if isinstance(packet, Request) and packet.last == 99_002 and packet.first < 90_000
        ]
        assert probes == [(99_002 - 65_534, at) for at in (0, 0.05, 0.15, 0.35, 0.75)]

    def test_the_marker_of_an_earlier_term_does_not_end_the_wait_for_the_latest(self) -> None:
        group = Group()
        group.deliver(1)
        group.run(1.0)
        group.take_over(B)
        group.receive(marker(5, 0, 1), peer=B)
        group.deliver(2, peer=A)
        assert group.sequences == [1]

    def test_repairs_are_accepted_after_a_marker_amid_other_messages(self) -> None:
        group = Group()
        group.deliver(1)
        group.take_over(A)
        group.receive(Deliver(2, data_of(2)), marker(6, 2, 3), Deliver(4, data_of(4)), Deliver(6, data_of(6)), peer=A)
        group.run(0.05)
        group.deliver(5, peer=OTHER)
        assert group.sequences == [1, 2, 4, 5, 6]

    def test_a_marker_behind_unused_numbers_whose_leader_packet_was_lost_skips_them(self) -> None:
        group = Group()
        group.deliver(1)
        group.receive(marker(6, 1, 9), Deliver(10, data_of(10)), peer=A)
        assert group.order == [1, NumbersSkipped(2, 8), TermStarted(6, 1, 9), 10]

    def test_a_joining_subscriber_accepts_the_first_message_of_a_new_term_far_ahead(self) -> None:
        group = Group(ClientConfig(start=Start.OLDEST))
        group.run(0.05)
        group.deliver(1, 2, peer=OTHER)
        group.take_over(B)
        group.start_term(2, 5_000)
        group.run(1.0)
        assert group.order == [1, 2, NumbersSkipped(3, 4_999), TermStarted(6, 2, 5_000)]
        assert not group.drops["implausible"]

    def test_a_status_that_overtakes_the_marker_does_no_harm(self) -> None:
        group = Group()
        group.deliver(1)
        group.take_over(B)
        group.last = 30_000
        group.answer(group.client.keepalive.token, B)
        group.start_term(1, 30_000)
        assert group.order == [1, NumbersSkipped(2, 29_999), TermStarted(6, 1, 30_000)]

    def test_a_marker_of_an_unknown_term_far_ahead_needs_confirmation_as_any_message(self) -> None:
        group = Group()
        group.deliver(1)
        group.receive(marker(9, 1, 2 + 2 * MAX_JUMP), peer=A)
        assert group.order == [1]
        assert group.drops == {"implausible": 1}

    def test_a_second_marker_of_a_term_far_ahead_is_not_accepted(self) -> None:
        group = Group()
        group.deliver(1)
        group.take_over(B)
        group.start_term(1, 10)
        group.receive(marker(6, 10, 90_000), peer=B)
        assert group.client.next_sequence == 11
        assert group.drops == {"implausible": 1}

    def test_a_marker_beyond_all_plausible_numbers_is_not_accepted_at_once(self) -> None:
        group = Group()
        group.deliver(1)
        group.take_over(B)
        group.start_term(1, 2**25)
        assert group.order == [1]
        assert group.drops == {"implausible": 1}

    @pytest.mark.parametrize("near", [False, True])
    def test_a_jump_of_the_former_leader_is_no_evidence_for_another(self, near: bool) -> None:
        group = Group()
        group.deliver(1)
        group.receive(Deliver(700_000, b"forged"), peer=A)
        group.take_over(B)
        if near:
            group.receive(Deliver(700_001, b"forged too"), peer=B)
        assert group.client.missing_count == 0
        group.run(12.0 - 3.0 * near)
        assert group.client.missing_count == 0

    def test_a_forged_jump_of_the_former_leader_is_forgotten(self) -> None:
        group = Group()
        group.deliver(1)
        group.receive(Deliver(700_000, b"forged"), peer=A)
        group.take_over(B)
        group.start_term(1, 10)
        group.deliver(11)
        group.run(15.0)
        assert group.order == [1, NumbersSkipped(2, 9), TermStarted(6, 1, 10), 11]

    def test_a_term_without_messages_leaves_no_trace(self) -> None:
        group = Group()
        group.deliver(1)
        group.take_over(B)
        group.take_over(C)
        group.start_term(1, 300)
        assert group.order == [1, NumbersSkipped(2, 299), TermStarted(7, 1, 300)]

    def test_markers_of_two_terms_may_arrive_in_any_order(self) -> None:
        group = Group()
        group.deliver(1)
        group.take_over(B)
        group.take_over(C)
        group.receive(marker(7, 101, 300), peer=C)
        group.run(0.1)
        group.receive(marker(6, 1, 100), peer=C)
        group.deliver(101, peer=OTHER)
        assert group.order == [
            1,
            NumbersSkipped(2, 99),
            TermStarted(6, 1, 100),
            101,
            NumbersSkipped(102, 299),
            TermStarted(7, 101, 300),
        ]

    def test_a_late_joiner_skips_the_numbers_between_earlier_terms(self) -> None:
        group = Group(ClientConfig(start=Start.OLDEST), connect=False)
        group.last = 5_003
        group.tick()
        group.run(0.05)
        token = group.client.keepalive.token
        group.receive(Status(token, 1, 5_003), peer=A)
        group.run(0.05)
        group.deliver(1, 2, peer=OTHER)
        group.receive(marker(4, 2, 5_000), peer=OTHER)
        group.deliver(5_001, 5_002, 5_003, peer=OTHER)
        assert group.order == [1, 2, NumbersSkipped(3, 4_999), TermStarted(4, 2, 5_000), 5_001, 5_002, 5_003]

    def test_a_subscriber_that_starts_live_may_start_with_a_marker(self) -> None:
        group = Group(ClientConfig(start=Start.LIVE), connect=False)
        group.tick()
        group.start_term(40, 50)
        group.deliver(51)
        group.run(0.1)
        assert group.order == [TermStarted(5, 40, 50), 51]

    def test_a_subscriber_that_starts_within_the_unused_numbers_skips_the_rest(self) -> None:
        group = Group(ClientConfig(start=45))
        group.start_term(40, 50)
        assert group.order == [NumbersSkipped(45, 49), TermStarted(5, 40, 50)]

    def test_a_client_of_a_single_backbone_delivers_such_data_as_a_message(self) -> None:
        group = Group(backbones=A, connect=False)
        group.alive.clear()
        group.tick()
        group.receive(KeepaliveAck(group.client.keepalive.token), peer=A)
        group.receive(marker(1, 0, 1), peer=A)
        group.receive(marker(2, 1, 3), peer=A)
        assert group.sequences == [1]
        group.run(0.05)
        assert (Request(ANY_ADDRESS, 2, 2), A) in group.packets(Request)

    def test_the_application_may_pause_across_a_takeover(self) -> None:
        group = Group()
        group.client.pause()
        group.deliver(1)
        group.take_over(B)
        group.start_term(1, 50)
        group.deliver(51)
        assert group.order == []
        group.client.resume(group.now)
        group.drain()
        assert group.order == [1, NumbersSkipped(2, 49), TermStarted(6, 1, 50), 51]

    def test_messages_that_this_client_alone_received_are_kept(self) -> None:
        group = Group()
        group.deliver(1, 2, 3)
        group.take_over(B, asks_head=False)
        group.start_term(1, 50)
        group.deliver(51)
        assert group.order == [1, 2, 3, NumbersSkipped(4, 49), TermStarted(6, 1, 50), 51]
        assert group.told(ClientFailed) == []


def test_requests_that_no_leader_answered_do_not_count_as_attempts() -> None:
    config = ClientConfig(start=1, repair=RepairConfig(attempts=14))
    group = Group(config)
    group.deliver(1, 3)
    group.alive = {B, C}
    group.run(5.5)
    assert len(group.packets(Request)) >= 10
    group.alive, before = set(MEMBERS), group.now
    group.take_over(B)
    group.start_term(3, 4)
    for sequence in range(5, 30):
        group.deliver(sequence)
        group.run(0.1)
    assert len([request for request, _ in group.packets(Request, before) if request.first == 2]) >= 5
    assert group.told(MessagesLost) == []
    group.deliver(2)
    assert [one.sequence for told in group.told(MessagesDelivered) for one in told.messages][:2] == [1, 2]
