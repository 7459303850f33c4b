from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.events import ExistingStreamDetected, StreamClaimRejected, TakenOver
from fyrehose_twisted.fyrehose.node.backbone.authority import REPORTED_SEAMS, NumberingAuthority
from fyrehose_twisted.fyrehose.node.backbone.backbone import BackboneState
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward
from fyrehose_twisted.fyrehose.node.backbone.group_backbone import GroupBackbone
from fyrehose_twisted.fyrehose.node.backbone.sequencer import BackboneStart
from fyrehose_twisted.fyrehose.node.backbone.takeover import PATIENCE, REPEATS, Takeover
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.member_messages import Seam
from fyrehose_twisted.fyrehose.wire.packets import (
    ANY_ADDRESS,
    Deliver,
    Flags,
    Forward,
    Head,
    Holding,
    Holds,
    Keepalive,
    KeepaliveAck,
    Leader,
    Packet,
    Push,
    Request,
    Status,
)
from fyrehose_twisted.fyrehose.wire.term_start import TermStart, decode_term_start, encode_term_start

START = 1_700_000_000.0
OWN: Address = ("192.0.2.1", 2323)
OTHER: Address = ("192.0.2.2", 2323)
ALICE: Address = ("192.0.2.11", 4001)
BOB: Address = ("192.0.2.12", 4002)
TOKENS = {ALICE: b"a" * 16, BOB: b"b" * 16}


class Member:
    """A backbone of a group, driven by hand."""

    def __init__(self, config: BackboneConfig | None = None, start: BackboneStart | None = None) -> None:
        self.now = START
        self.authority = NumberingAuthority()
        self.authority.term, self.authority.leader, self.authority.members = 4, OTHER, (OWN, OTHER)
        self.node = GroupBackbone(
            BackboneConfig() if config is None else config, RandomForward(Random(1)), self.authority, start, now=START
        )
        self.events: list[object] = []

    def send(self, *packets: tuple[Packet, Address]) -> None:
        self.node.receive_batch(Batch.pack([(encode(packet), peer) for packet, peer in packets]), self.now)

    def join(self, *clients: Address, flags: int = Flags.EXTENSIONS) -> None:
        self.send(*((Keepalive(client, flags, TOKENS[client]), client) for client in clients))

    def grant(self, bound: int, *, lease: float = 0.8) -> None:
        self.authority.bound, self.authority.lease_until = bound, self.now + lease
        self.authority.leader = OWN

    def lead(self, first: int, bound: int) -> None:
        self.grant(bound)
        self.node.lead(first, self.now)

    def record_seam(self) -> None:
        """Record the seam that the backbone wants its group to record."""
        seam = self.node.seam_to_record
        assert seam is not None, "the backbone asks for it"
        assert self.node.drain().effects == [], "nobody is told before it is recorded"
        self.authority.seams = (*self.authority.seams, seam)
        self.node.authority_changed(self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.node.tick(self.now)

    def sent(self, to: Address | None = None) -> list[Packet]:
        """Return what was sent since the last call."""
        outputs = self.node.drain()
        self.events += outputs.events
        return [
            decode(bytes(datagram))
            for effect in outputs.effects
            if isinstance(effect, Send)
            for peer in effect.peers
            if to in (None, peer)
            for datagram in effect.iter_datagrams()
        ]


@pytest.fixture
def member() -> Member:
    return Member()


def numbers(packets: Sequence[Packet]) -> list[int]:
    return [packet.sequence for packet in packets if isinstance(packet, Deliver)]


@pytest.mark.parametrize(
    ("flags", "leader", "members"),
    [
        (Flags.EXTENSIONS, ANY_ADDRESS, (OWN,)),
        (Flags.EXTENSIONS | Flags.IPV4, ("2001:db8::2", 2323), (OWN, ("2001:db8::2", 2323))),
        (Flags.EXTENSIONS | Flags.IPV6, ("2001:db8::2", 2323), (OWN, ("2001:db8::2", 2323))),
    ],
)
def test_only_clients_that_know_them_are_told_ipv6_addresses_of_members(
    member: Member, flags: Flags, leader: Address, members: Sequence[Address]
) -> None:
    other = "2001:db8::2", 2323
    member.authority.leader, member.authority.members = other, (OWN, other)
    member.join(ALICE, flags=flags)
    assert member.sent(ALICE) == [Leader(TOKENS[ALICE], 4, leader, False, tuple(members))]


def test_a_client_whose_address_no_packet_carries_is_repaired_by_the_leader_alone(member: Member) -> None:
    client = "fe80::7%eth0", 4001
    member.send((Keepalive(flags=Flags.EXTENSIONS), client))
    member.grant(20_000)
    member.node.lead(11, member.now, exact=True)
    member.pass_time(PATIENCE + 2.0)
    member.grant(20_000)
    member.pass_time(0.1)
    member.send((Keepalive(flags=Flags.EXTENSIONS), client))
    member.sent()
    member.send((Request(ANY_ADDRESS, 1, 10), client))
    assert not any(isinstance(packet, Forward) for packet in member.sent(OTHER))


def test_standby_tells_who_leads_and_acknowledges_nothing(member: Member) -> None:
    member.join(ALICE)
    assert member.sent(ALICE) == [Leader(TOKENS[ALICE], 4, OTHER, False, (OWN, OTHER))]


def test_standby_is_silent_to_clients_of_other_implementations(member: Member) -> None:
    member.join(ALICE, flags=Flags.NONE)
    assert member.sent() == []


def test_standby_numbers_and_repairs_nothing(member: Member) -> None:
    member.join(ALICE)
    member.sent()
    member.send((Push(b"x"), ALICE), (Request(ALICE, 1, 1), ALICE))
    assert member.sent() == []
    assert member.node.drops.counts["not_leading"] == 2


def test_new_leader_asks_every_client_and_begins_once_all_have_answered(member: Member) -> None:
    member.join(ALICE, BOB)
    member.sent()
    member.lead(101, 200)
    assert member.sent(ALICE) == [Leader(TOKENS[ALICE], 4, OWN, True, (OWN, OTHER))]
    member.send((Push(b"waits"), ALICE), (Head(TOKENS[ALICE], 4, 57), ALICE))
    assert member.sent() == []
    member.send((Head(TOKENS[BOB], 4, 60), BOB))
    member.record_seam()
    sent = member.sent(BOB)
    assert numbers(sent) == [101, 102]
    marker, waited = sent
    assert isinstance(marker, Deliver)
    assert isinstance(waited, Deliver)
    assert decode_term_start(101, marker.data) == TermStart(4, 60, 101)
    assert waited.data == b"waits"
    assert member.events[-1] == TakenOver(4, 60, 101, 2, 0.0)


def test_new_leader_begins_without_a_client_that_does_not_answer(member: Member) -> None:
    member.join(ALICE, BOB)
    member.lead(101, 200)
    member.sent()
    member.send((Head(TOKENS[ALICE], 4, 57), ALICE))
    for delay in REPEATS:
        member.pass_time(START + delay - member.now)
        assert [type(packet) for packet in member.sent(BOB)] == [Leader]
        assert member.sent(ALICE) == []
    member.pass_time(START + PATIENCE - member.now)
    member.record_seam()
    assert numbers(member.sent(ALICE)) == [101]


def test_former_leader_that_may_not_be_dead_is_waited_for_unless_all_clients_answered(member: Member) -> None:
    member.join(ALICE, BOB)
    member.grant(200, lease=2.0)
    member.node.lead(101, member.now, wait_until=START + 0.9)
    member.send((Head(TOKENS[ALICE], 4, 57), ALICE))
    member.pass_time(0.89)
    assert member.node.seam_to_record is None
    member.pass_time(0.01)
    assert member.node.seam_to_record == (57, 101)


def test_numbers_in_a_seam_that_was_told_stay_in_it(member: Member) -> None:
    member.authority.seams = (Seam(40, 81),)
    member.join(ALICE)
    member.lead(101, 200)
    member.send((Head(TOKENS[ALICE], 4, 57), ALICE))
    assert member.node.seam_to_record == (40, 101)


def test_nobody_is_told_of_a_seam_before_it_is_recorded(member: Member) -> None:
    member.join(ALICE)
    member.lead(101, 200)
    member.send((Head(TOKENS[ALICE], 4, 57), ALICE))
    member.sent()
    member.node.authority_changed(member.now)
    assert member.sent() == []
    member.record_seam()
    assert numbers(member.sent(ALICE)) == [101]


def test_number_in_a_seam_is_never_recorded_as_kept(member: Member) -> None:
    member.authority.seams = (Seam(40, 81),)
    member.node.follow_stream(90)
    member.lead(101, 200)
    member.record_seam()
    member.join(BOB, flags=Flags.EXTENSIONS | Flags.DURABLE)
    member.join(ALICE, flags=Flags.EXTENSIONS | Flags.WATCHES)
    member.send((Holds(TOKENS[BOB], 1, Holding(1, 60), 60), BOB))
    assert member.node.highest_durable == 40


def test_term_after_a_transfer_begins_without_a_seam(member: Member) -> None:
    member.join(ALICE)
    member.grant(200)
    member.node.lead(101, member.now, exact=True)
    member.send((Head(TOKENS[ALICE], 4, 90), ALICE), (Push(b"next"), ALICE))
    marker, following = (packet for packet in member.sent(ALICE) if isinstance(packet, Deliver))
    assert decode_term_start(101, marker.data) == TermStart(4, 100, 101)
    assert following == Deliver(102, b"next")


def test_member_that_handed_over_repairs_what_it_numbered(member: Member) -> None:
    member.lead(1, 100)
    member.join(ALICE, BOB)
    member.send((Push(b"one"), BOB), (Push(b"two"), BOB))
    member.sent()
    member.node.stand_by(handed_over=True)
    member.send((Forward(ALICE, 2, 9), OTHER))
    assert member.sent(ALICE) == [Deliver(2, b"one"), Deliver(3, b"two")]
    member.send((Forward(ALICE, 1, 9), BOB), (Forward(("192.0.2.99", 1), 1, 9), OTHER))
    assert member.sent() == []


def test_start_of_a_term_is_repaired_although_the_memory_is_empty() -> None:
    member = Member(BackboneConfig(retransmit=0))
    member.join(ALICE)
    member.lead(41, 100)
    member.sent()
    member.send((Head(TOKENS[ALICE], 4, 30), ALICE))
    member.record_seam()
    (start,) = (packet for packet in member.sent(ALICE) if isinstance(packet, Deliver))
    member.send((Request(ALICE, 40, 41), ALICE))
    assert [packet for packet in member.sent(ALICE) if isinstance(packet, Deliver)] == [start]
    member.send((Request(ALICE, 40, 40), ALICE), (Request(ALICE, 42, 42), ALICE))
    assert not [packet for packet in member.sent(ALICE) if isinstance(packet, Deliver)]


def test_member_that_was_deposed_repairs_nothing(member: Member) -> None:
    member.lead(1, 100)
    member.join(ALICE)
    member.send((Push(b"one"), ALICE))
    member.sent()
    member.node.stand_by()
    member.send((Forward(ALICE, 1, 9), OTHER))
    assert member.sent() == []


def test_leader_asks_the_member_that_handed_over_for_repairs(member: Member) -> None:
    member.join(ALICE)
    member.grant(200)
    member.node.lead(101, member.now, exact=True)
    member.send((Head(TOKENS[ALICE], 4, 90), ALICE))
    member.sent()
    member.send((Request(ALICE, 91, 300), ALICE))
    assert member.sent(OTHER) == [Forward(ALICE, 91, 100)]
    assert member.sent(OWN) == []


def test_leader_whose_lease_ended_names_no_leader_and_acknowledges_nothing(member: Member) -> None:
    member.lead(1, 100)
    member.now += 0.8
    member.join(ALICE)
    assert member.sent(ALICE) == [Leader(TOKENS[ALICE], 4, ANY_ADDRESS, False, (OWN, OTHER))]


def test_nothing_is_skipped_where_clients_hold_all(member: Member) -> None:
    member.join(ALICE)
    member.lead(101, 200)
    member.send((Head(TOKENS[ALICE], 4, 100), ALICE), (Push(b"next"), ALICE))
    marker, following = (packet for packet in member.sent(ALICE) if isinstance(packet, Deliver))
    assert decode_term_start(101, marker.data) == TermStart(4, 100, 101)
    assert following == Deliver(102, b"next")


@pytest.mark.parametrize(
    ("head", "peer"),
    [(Head(b"z" * 16, 4, 99), ALICE), (Head(TOKENS[ALICE], 3, 99), ALICE), (Head(TOKENS[ALICE], 4, 99), BOB)],
    ids=["wrong token", "earlier term", "other address"],
)
def test_answer_of_a_stranger_or_to_an_earlier_term_does_not_count(member: Member, head: Head, peer: Address) -> None:
    member.join(ALICE)
    member.lead(101, 200)
    member.sent()
    member.send((head, peer))
    member.sent()
    member.pass_time(PATIENCE)
    member.sent()
    member.record_seam()
    marker = next(packet for packet in member.sent(ALICE) if isinstance(packet, Deliver))
    assert decode_term_start(101, marker.data) == TermStart(4, 0, 101)
    assert member.node.drops.counts["head_of_stranger"] + member.node.drops.counts["head_too_late"] == 1


def test_what_publishers_were_told_to_be_kept_is_never_given_up(member: Member) -> None:
    member.authority.kept = 80
    member.join(ALICE)
    member.lead(101, 200)
    member.sent()
    member.send((Head(TOKENS[ALICE], 4, 57), ALICE))
    member.record_seam()
    marker = next(packet for packet in member.sent(ALICE) if isinstance(packet, Deliver))
    assert decode_term_start(101, marker.data) == TermStart(4, 80, 101)


def test_leader_gives_no_number_above_the_bound_and_goes_on_when_it_rises(member: Member) -> None:
    member.lead(1, 4)
    member.join(ALICE)
    member.sent()
    member.send(*((Push(b"%d" % index), ALICE) for index in range(5)))
    assert numbers(member.sent(ALICE)) == [2, 3, 4]
    member.grant(5)
    member.node.authority_changed(member.now)
    member.send((Push(b"5"), ALICE))
    assert numbers(member.sent(ALICE)) == [5]
    member.grant(100)
    member.node.authority_changed(member.now)
    delivered = [packet for packet in member.sent(ALICE) if isinstance(packet, Deliver)]
    assert delivered == [Deliver(6, b"4"), Deliver(7, b"5")]


def test_long_run_of_messages_stops_at_the_bound(member: Member) -> None:
    member.lead(1, 20)
    member.join(ALICE)
    member.sent()
    member.send(*((Push(b"%03d" % index), ALICE) for index in range(64)))
    assert numbers(member.sent(ALICE)) == list(range(2, 21))


def test_leader_that_wakes_up_after_its_lease_sends_nothing(member: Member) -> None:
    member.lead(1, 100)
    member.join(ALICE)
    member.sent()
    member.now += 0.8
    member.send(*((Push(b"%03d" % index), ALICE) for index in range(32)))
    assert member.sent() == []
    member.node.stand_by()
    member.grant(100)
    member.node.authority_changed(member.now)
    assert member.sent() == []
    assert member.node.drops.counts["not_leading"] == 32


def test_marker_of_a_stranger_is_not_published(member: Member) -> None:
    member.lead(1, 1_000)
    member.join(ALICE)
    member.sent()
    forged = encode_term_start(TermStart(9, 0, 2))
    member.send(*((Push(forged), ALICE) for _ in range(32)), (Push(b"x" * len(forged)), ALICE))
    assert member.sent(ALICE) == [Deliver(2, b"x" * len(forged))]
    assert member.node.drops.counts["marker_push"] == 32


def test_watchers_learn_only_what_the_group_has_recorded_as_kept(member: Member) -> None:
    member.lead(1, 1_000)
    member.join(BOB, flags=Flags.EXTENSIONS | Flags.DURABLE)
    member.send(*((Push(b"x"), ALICE) for _ in range(9)))
    member.join(ALICE, flags=Flags.EXTENSIONS | Flags.WATCHES)
    member.sent()
    member.send((Holds(TOKENS[BOB], 1, Holding(1, 9), 9), BOB))
    assert member.node.highest_durable == 9
    assert [status.holdings for status in member.sent(ALICE) if isinstance(status, Status)] == [(Holding(1, 0),)]
    member.authority.kept = 9
    member.pass_time(1e-3)
    member.node.authority_changed(member.now, kept=True)
    assert [status.holdings for status in member.sent(ALICE) if isinstance(status, Status)] == [(Holding(1, 9),)]


@pytest.mark.parametrize(
    ("kept", "reported"),
    [
        (300, (Holding(5, 40), Holding(81, 90), Holding(101, 250))),
        (120, (Holding(5, 40), Holding(81, 90), Holding(101, 120))),
        (30, (Holding(5, 30),)),
        (0, (Holding(101, 100),)),
    ],
)
def test_nothing_in_a_seam_is_reported_as_durable(kept: int, reported: tuple[Holding, ...]) -> None:
    authority = NumberingAuthority()
    authority.kept, authority.seams = kept, (Seam(40, 81), Seam(90, 101))
    assert authority.reported(Holding(5, 250)) == reported


def test_progress_is_not_reported_below_the_seams_that_are_checked() -> None:
    authority = NumberingAuthority()
    authority.kept = 10_000
    authority.seams = tuple(Seam(100 * count - 50, 100 * count) for count in range(1, REPORTED_SEAMS + 3))
    first, *others = authority.reported(Holding(5, 10_000))
    assert first == Holding(200, 250), "the first two seams are left out, and what is older than them"
    assert len(others) == REPORTED_SEAMS


def test_member_that_knows_no_clients_yet_waits_for_them() -> None:
    member = Member(start=BackboneStart(settle_until=START + 2))
    member.grant(200, lease=2.0)
    member.node.lead(101, member.now)
    member.pass_time(1.0)
    member.join(ALICE)
    assert [packet.asks_head for packet in member.sent(ALICE) if isinstance(packet, Leader)] == [True]
    member.send((Head(TOKENS[ALICE], 4, 57), ALICE))
    assert numbers(member.sent(ALICE)) == []
    member.grant(200, lease=2.0)
    member.pass_time(1.0)
    member.record_seam()
    assert numbers(member.sent(ALICE)) == [101]


def test_group_that_lost_its_state_does_not_number_a_known_stream_again(member: Member) -> None:
    member.join(ALICE, BOB)
    member.lead(1, 100)
    member.send((Head(TOKENS[ALICE], 4, 500), ALICE), (Head(TOKENS[BOB], 4, 500), BOB), (Push(b"x"), ALICE))
    assert numbers(member.sent()) == []
    assert member.node.state is BackboneState.REFUSING
    assert ExistingStreamDetected(ALICE, 500) in member.events


def test_single_claim_without_a_secret_does_not_stop_the_stream(member: Member) -> None:
    member.join(ALICE, BOB)
    member.lead(1, 100)
    member.send((Head(TOKENS[ALICE], 4, 500), ALICE), (Head(TOKENS[BOB], 4, 0), BOB), (Push(b"x"), ALICE))
    assert numbers(member.sent(BOB)) == [1, 2]
    assert StreamClaimRejected(ALICE, 500, 1) in member.events


def test_claim_of_the_only_client_counts(member: Member) -> None:
    member.join(ALICE)
    member.lead(1, 100)
    member.send((Head(TOKENS[ALICE], 4, 500), ALICE), (Push(b"x"), ALICE))
    assert numbers(member.sent()) == []
    assert member.node.state is BackboneState.REFUSING


def test_claims_do_not_stop_a_group_that_knows_its_stream(member: Member) -> None:
    member.authority.given = 60
    member.join(ALICE, BOB)
    member.lead(101, 200)
    member.send((Head(TOKENS[ALICE], 4, 500), ALICE), (Head(TOKENS[BOB], 4, 500), BOB))
    assert member.node.seam_to_record == (60, 101)


def test_takeover_that_ends_before_its_first_number_leaves_the_seam_to_the_next(member: Member) -> None:
    member.node.follow_stream(77)
    member.join(ALICE)
    member.lead(101, 200)
    assert member.node.last_given == 77
    member.node.stand_by()
    assert member.node.last_given == 77
    member.lead(301, 400)
    member.send((Head(TOKENS[ALICE], 4, 60), ALICE))
    assert member.node.seam_to_record == (77, 301)


def test_numbers_of_a_state_file_that_may_be_a_bound_do_not_count_as_given() -> None:
    member = Member(start=BackboneStart(last=5_000, bound=5_000))
    member.lead(6_001, 7_000)
    assert member.node.seam_to_record == (0, 6_001)


def test_head_that_no_leader_can_have_given_is_dropped(member: Member) -> None:
    member.authority.given = 60
    member.join(ALICE)
    member.lead(101, 200)
    member.send((Head(TOKENS[ALICE], 4, 500), ALICE))
    assert member.node.drops.counts["implausible"] == 1
    assert not any(isinstance(event, StreamClaimRejected) for event in member.node.drain().events)


def test_former_leader_is_asked_for_repairs_only_for_a_while(member: Member) -> None:
    member.join(ALICE)
    member.grant(200, lease=9.0)
    member.node.lead(101, member.now, exact=True)
    member.send((Head(TOKENS[ALICE], 4, 90), ALICE))
    member.sent()
    member.pass_time(4.9)
    member.send((Request(ALICE, 91, 300), ALICE))
    assert member.sent(OTHER) == [Forward(ALICE, 91, 100)]
    member.join(ALICE)
    member.sent()
    member.pass_time(0.1)
    member.send((Request(ALICE, 91, 300), ALICE))
    assert member.sent(OTHER) == []


def test_what_another_member_is_known_to_have_given_is_in_no_seam(member: Member) -> None:
    member.node.follow_stream(77)
    member.lead(101, 200)
    assert member.node.seam_to_record == (77, 101)


def test_leader_answers_keepalives_with_leader_status_and_ack(member: Member) -> None:
    member.lead(1, 100)
    member.join(ALICE)
    assert [type(packet) for packet in member.sent(ALICE)] == [Leader, Status, KeepaliveAck]


def test_takeover_waits_for_no_client_that_left() -> None:
    takeover = Takeover(101, 0, START, START)
    takeover.due_questions([ALICE, BOB], START)
    takeover.head_received(ALICE, 5)
    assert not takeover.is_over(START)
    takeover.forget(BOB)
    assert takeover.is_over(START)


def test_standby_says_so_when_no_leader_is_known(member: Member) -> None:
    member.authority.leader = None
    member.join(ALICE)
    assert member.sent(ALICE) == [Leader(TOKENS[ALICE], 4, ANY_ADDRESS, False, (OWN, OTHER))]
