from __future__ import annotations

from random import Random

import pytest

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig
from fyrehose_twisted.fyrehose.events import NumbersGivenUp
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward
from fyrehose_twisted.fyrehose.node.relay.downstream import RelayDownstream
from fyrehose_twisted.fyrehose.node.relay.other_side import OtherSideReady
from fyrehose_twisted.fyrehose.node.relay.relay import Relay
from fyrehose_twisted.fyrehose.node.relay.relay_delivery import MAX_DEPTH
from fyrehose_twisted.fyrehose.node.relay.upstream import PARENT_SILENCE
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.envelope import wrap
from fyrehose_twisted.fyrehose.wire.packets import (
    ANY_ADDRESS,
    Asked,
    Deliver,
    Depth,
    Dialect,
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
from fyrehose_twisted.fyrehose.wire.term_start import TermStart, encode_term_start

START = 1_700_000_000.0
OWN: Address = ("192.0.2.1", 2323)
PARENT: Address = ("192.0.2.2", 2323)
SPARE: Address = ("192.0.2.3", 2323)
STRANGER: Address = ("192.0.2.66", 6_666)
ALICE: Address = ("192.0.2.11", 4001)
BOB: Address = ("192.0.2.12", 4002)
TOKENS = {ALICE: b"a" * 16, BOB: b"b" * 16}
EXTENDED = Flags.EXTENSIONS


class Harness:
    """A relay on one socket, driven by hand."""

    def __init__(
        self,
        *parents: Address,
        retransmit: int = 2**20,
        connected: bool = True,
        start: int | None = 1,
        answer_repairs: bool = False,
    ) -> None:
        self.now = START
        client_config = ClientConfig(raw=True) if start is None else ClientConfig(raw=True, start=start)
        self.node = Relay(
            parents or (PARENT,),
            BackboneConfig(retransmit=retransmit),
            client_config,
            RandomForward(Random(1)),
            Random(2),
            START,
            answer_repairs=answer_repairs,
            own_address=lambda peer: OWN,
        )
        self.events: list[object] = []
        self.pass_time(0.0)
        if connected:
            self.answer(PARENT)

    def send(self, *packets: tuple[Packet | bytes, Address]) -> None:
        datagrams = [(one if isinstance(one, bytes) else encode(one), peer) for one, peer in packets]
        self.node.receive_batch(Batch.pack(datagrams), self.now)

    def deliver(self, *numbers: int, peer: Address = PARENT) -> None:
        self.send(*((Deliver(number, b"message %d" % number), peer) for number in numbers))

    def answer(self, parent: Address, *, last: int = 0, extended: bool = True, depth: int = 0, term: int = 0) -> None:
        """Answer the latest KEEPALIVE as a backbone, or as a relay of this depth."""
        token = self.node.upstream.keepalive.token
        if extended and term:
            self.send((Leader(token, term, parent), parent))
        if extended:
            self.send((Status(token, 0, last), parent))
        if depth:
            self.send((Depth(token, depth), parent))
        self.send((KeepaliveAck(token), parent))

    def join(self, *clients: Address, flags: int = EXTENDED) -> None:
        self.send(*((Keepalive(ANY_ADDRESS, flags, TOKENS[client]), client) for client in clients))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.node.tick(self.now)

    def sent(self, to: Address | None = None, kind: type[Packet] | tuple[type[Packet], ...] = ()) -> list[Packet]:
        """Return what was sent since the last call, without KEEPALIVEs unless they are asked for."""
        outputs = self.node.drain()
        assert outputs.persist is None, "a relay keeps nothing"
        self.events += outputs.events
        packets = [
            decode(bytes(datagram))
            for effect in outputs.effects
            if isinstance(effect, Send)
            for peer in effect.peers
            if to in (None, peer)
            for datagram in effect.iter_datagrams()
        ]
        return [one for one in packets if (isinstance(one, kind) if kind else not isinstance(one, Keepalive))]


@pytest.fixture
def relay() -> Harness:
    harness = Harness()
    harness.join(ALICE, BOB)
    harness.sent()
    return harness


# Messages


def test_messages_go_on_at_once_under_the_same_numbers(relay: Harness) -> None:
    relay.deliver(1, 2)
    assert relay.sent(ALICE) == [Deliver(1, b"message 1"), Deliver(2, b"message 2")]
    relay.deliver(4)
    assert relay.sent(BOB) == [Deliver(4, b"message 4")], "a gap holds nothing up"
    relay.deliver(3)
    assert relay.sent(ALICE) == [Deliver(3, b"message 3")]


def test_messages_of_strangers_are_not_passed_on(relay: Harness) -> None:
    relay.deliver(1, peer=STRANGER)
    assert relay.sent() == []
    relay.deliver(1)
    relay.send((Deliver(1, b"other"), STRANGER))
    assert relay.sent(ALICE) == [Deliver(1, b"message 1")]


def test_a_run_of_messages_leaves_as_it_came(relay: Harness) -> None:
    relay.send(*((Deliver(number, b"%06d" % number), PARENT) for number in range(1, 301)))
    assert relay.sent(BOB) == [Deliver(number, b"%06d" % number) for number in range(1, 301)]


def test_clients_are_acknowledged_only_while_a_parent_answers() -> None:
    relay = Harness(connected=False)
    relay.join(ALICE)
    assert relay.sent(ALICE, KeepaliveAck) == []
    relay.answer(PARENT)
    relay.join(ALICE)
    assert relay.sent(ALICE, KeepaliveAck) == [KeepaliveAck(TOKENS[ALICE])]
    relay.pass_time(PARENT_SILENCE - 0.1)
    relay.join(ALICE)
    assert relay.sent(ALICE, KeepaliveAck) != []
    relay.pass_time(0.2)
    relay.join(ALICE)
    assert relay.sent(ALICE, KeepaliveAck) == [], "its parent may be dead"


def test_a_relay_takes_another_parent_when_one_falls_silent() -> None:
    relay = Harness(PARENT, SPARE)
    relay.join(ALICE)
    relay.deliver(1)
    relay.sent()
    for _ in range(8):
        relay.pass_time(0.9)
        relay.join(ALICE)
    relay.answer(SPARE, last=3)
    relay.deliver(1, 2, 3, peer=SPARE)
    assert relay.sent(ALICE, Deliver) == [Deliver(2, b"message 2"), Deliver(3, b"message 3")], "nothing twice"
    assert relay.node.upstream.backbone == SPARE


def test_of_several_parents_the_others_are_told_to_stop() -> None:
    relay = Harness(PARENT, SPARE)
    relay.sent()
    relay.send((KeepaliveAck(relay.node.upstream.keepalive.token), SPARE))
    (farewell,) = relay.sent(SPARE, Keepalive)
    assert isinstance(farewell, Keepalive)
    assert farewell.flags == Flags.NOSUBSCRIBE | Flags.NOJOURNAL
    relay.send((KeepaliveAck(farewell.token), SPARE))
    relay.pass_time(0.9)
    assert relay.sent(SPARE, Keepalive) == [], "once is enough"
    assert len(relay.sent(PARENT, Keepalive)) == 0


def test_depth_is_passed_on_to_relays_and_bounded() -> None:
    relay = Harness(connected=False)
    relay.answer(PARENT, depth=2)
    relay.join(ALICE, flags=EXTENDED | Flags.RELAY)
    relay.join(BOB)
    assert relay.node.upstream.depth == 3
    output = relay.sent()
    assert [one for one in output if isinstance(one, Depth)] == [Depth(TOKENS[ALICE], 3)]
    relay.answer(PARENT, depth=MAX_DEPTH)
    relay.join(ALICE, flags=EXTENDED | Flags.RELAY)
    assert relay.sent(ALICE, KeepaliveAck) == [], "so that relays in a circle find out that no backbone is there"


def test_a_depth_of_a_stranger_is_ignored(relay: Harness) -> None:
    relay.send((Depth(relay.node.upstream.keepalive.token, 200), STRANGER))
    relay.send((Depth(b"x" * 16, 200), PARENT))
    assert relay.node.upstream.depth == 1


# Repairs


def test_requests_are_answered_from_the_history(relay: Harness) -> None:
    relay.deliver(1, 2, 3)
    relay.sent()
    relay.send((Request(ANY_ADDRESS, 2, 3), ALICE))
    assert relay.sent() == [Deliver(2, b"message 2"), Deliver(3, b"message 3")]


def test_requests_for_what_is_held_behind_a_gap_are_answered(relay: Harness) -> None:
    relay.deliver(1, 2, 4, 5)
    relay.sent()
    relay.send((Request(ANY_ADDRESS, 5, 5), ALICE))
    assert relay.sent(ALICE) == [Deliver(5, b"message 5")]


def test_requests_for_older_messages_go_up_once_and_the_answers_come_back_to_those_who_asked() -> None:
    relay = Harness(start=100)
    relay.join(ALICE, BOB)
    relay.deliver(100)
    relay.sent()
    relay.send((Request(ANY_ADDRESS, 98, 100), ALICE), (Request(ANY_ADDRESS, 99, 99), BOB))
    assert relay.sent(PARENT) == [Request(ANY_ADDRESS, 98, 99)]
    relay.deliver(98, peer=STRANGER)
    relay.deliver(99)
    outputs = relay.node.drain()
    found = {
        peer: [decode(bytes(one)) for one in effect.iter_datagrams()]
        for effect in outputs.effects
        for peer in effect.peers
    }
    assert found == {
        ALICE: [Deliver(98, b"message 98"), Deliver(99, b"message 99")],
        BOB: [Deliver(99, b"message 99")],
    }, "a client of the parent may have answered"
    relay.deliver(98)
    assert relay.sent() == [], "nobody waits any more"


def test_an_answer_that_the_parent_has_fetched_for_the_relay_is_passed_on() -> None:
    relay = Harness(start=100)
    relay.join(ALICE)
    relay.deliver(100)
    relay.send((Request(ANY_ADDRESS, 98, 98), ALICE))
    relay.sent()
    relay.send((Deliver(98, b"message 98", fetched=True), PARENT))
    assert relay.sent() == [Deliver(98, b"message 98")]


def test_an_answer_that_nobody_asked_for_is_not_passed_on(relay: Harness) -> None:
    relay.deliver(1, 2)
    relay.sent()
    relay.deliver(1, 2)
    relay.deliver(1, peer=STRANGER)
    assert relay.sent() == []


def test_without_a_history_everything_goes_up() -> None:
    relay = Harness(retransmit=0)
    relay.join(ALICE)
    relay.deliver(1, 3)
    relay.sent()
    relay.send((Request(ANY_ADDRESS, 1, 3), ALICE))
    requests = relay.sent(PARENT)
    assert requests == [Request(ANY_ADDRESS, 1, 1), Request(ANY_ADDRESS, 3, 3)], "it asks for 2 itself"


def test_a_client_is_told_to_be_patient_while_the_relay_itself_searches(relay: Harness) -> None:
    relay.deliver(1, 3)
    relay.sent()
    relay.send((Request(ANY_ADDRESS, 2, 2), ALICE))
    assert relay.sent(ALICE) == [Asked(TOKENS[ALICE], 2, 2, 1)]
    assert relay.node.downstream.relay_counters.requests_awaited == 1


def test_progress_of_a_search_is_passed_on_to_those_who_wait() -> None:
    relay = Harness(start=100)
    relay.join(ALICE, BOB)
    relay.deliver(100)
    relay.send((Request(ANY_ADDRESS, 50, 60), ALICE))
    relay.sent()
    relay.send((Asked(relay.node.upstream.keepalive.token, 50, 60, 7), PARENT))
    assert relay.sent() == [Asked(TOKENS[ALICE], 50, 60, 7)]


def test_numbers_that_the_relay_gave_up_are_requested_again_for_clients(relay: Harness) -> None:
    relay.deliver(1, 3, 4, 5, 6)
    for _ in range(12):
        relay.answer(PARENT, last=6)
        for _ in range(9):
            relay.pass_time(0.1)
    relay.sent()
    assert NumbersGivenUp(2, 2) in relay.events
    relay.join(ALICE)
    relay.sent()
    relay.send((Request(ANY_ADDRESS, 1, 3), ALICE))
    assert relay.sent() == [Request(ANY_ADDRESS, 2, 2), Deliver(1, b"message 1"), Deliver(3, b"message 3")]
    relay.deliver(2)
    assert relay.sent() == [Deliver(2, b"message 2")]


def test_a_search_for_the_oldest_message_goes_up_and_leaves_it_to_journals_if_there_are_any() -> None:
    relay = Harness(start=100)
    relay.join(ALICE)
    relay.deliver(*range(100, 104))
    relay.sent()
    relay.send((Request(ANY_ADDRESS, 1, 2**48 - 1), ALICE))
    assert relay.sent(PARENT) == [Request(ANY_ADDRESS, 1, 99)]
    relay.send((Status(relay.node.upstream.keepalive.token, 3, 200_000), PARENT))
    relay.pass_time(1.0)
    relay.sent()
    relay.send((Request(ANY_ADDRESS, 1, 2**48 - 1), ALICE))
    assert relay.sent(ALICE, Deliver) == []


def test_a_journal_among_the_clients_is_asked_for_what_it_reports_to_hold() -> None:
    for answer_repairs, address in ((False, ALICE), (True, OWN)):
        relay = Harness(start=100, answer_repairs=answer_repairs)
        relay.join(ALICE)
        relay.join(BOB, flags=EXTENDED | Flags.DURABLE)
        relay.deliver(100)
        relay.send((Holds(TOKENS[BOB], 1, Holding(1, 100), 100), BOB))
        relay.sent()
        relay.send((Request(ANY_ADDRESS, 50, 51), ALICE))
        assert relay.sent() == [Forward(address, 50, 51)], "the parent is spared"
        relay.pass_time(0.2)
        relay.sent()
        relay.send((Request(ANY_ADDRESS, 50, 51), ALICE))
        assert relay.sent(PARENT) == [Request(ANY_ADDRESS, 50, 51)], "the journal has not answered"


def test_an_answer_of_a_journal_to_the_port_for_clients_is_passed_on_if_it_was_asked_for() -> None:
    node = Harness(start=100)
    node.join(ALICE, BOB)
    node.deliver(100)
    node.send((Request(ANY_ADDRESS, 50, 51), ALICE))
    node.sent()
    side: RelayDownstream = node.node.downstream
    side.receive(Deliver(50, b"forged"), STRANGER, node.now)
    side.receive(Deliver(50, b"fifty"), BOB, node.now)
    side.receive(Deliver(49, b"not asked for"), BOB, node.now)
    assert node.sent(ALICE) == [Deliver(50, b"fifty")]
    assert side.drops.counts["unexpected"] == 2


def test_a_client_that_is_not_admitted_gets_nothing(relay: Harness) -> None:
    relay.deliver(1)
    relay.sent()
    relay.send((Request(ANY_ADDRESS, 1, 1), STRANGER))
    assert relay.sent() == []
    assert relay.node.downstream.drops.counts["request_for_stranger"] == 1


def test_a_repair_of_another_client_goes_to_those_who_ask_and_is_marked_as_such(relay: Harness) -> None:
    relay.join(ALICE, flags=EXTENDED | Flags.IPV4)
    relay.deliver(1, 4)
    relay.sent()
    relay.send((Request(ANY_ADDRESS, 2, 3), ALICE))
    relay.pass_time(0.05)
    assert Request(ANY_ADDRESS, 2, 3) in relay.sent(PARENT)
    relay.deliver(2, peer=STRANGER)
    assert relay.sent(ALICE) == [Deliver(2, b"message 2", fetched=True)]
    assert relay.sent(BOB) == [], "to the others it would be the word of their backbone"
    relay.deliver(3)
    assert relay.sent(BOB) == [Deliver(3, b"message 3")]
    relay.send((Request(ANY_ADDRESS, 1, 4), ALICE), (Request(ANY_ADDRESS, 2, 2), BOB))
    everything = [Deliver(number, b"message %d" % number, fetched=number == 2) for number in (1, 2, 3, 4)]
    outputs = relay.node.drain()
    sent = [
        (peer, decode(bytes(one))) for each in outputs.effects for peer in each.peers for one in each.iter_datagrams()
    ]
    assert sorted((packet for peer, packet in sent if peer == ALICE), key=lambda one: one.sequence) == everything
    assert [packet for peer, packet in sent if peer == BOB] == [Deliver(2, b"message 2")], "it does not know the mark"
    relay.send(*((Request(ANY_ADDRESS, number, number), ALICE) for number in (1, 2, 3)))
    again = sorted(relay.sent(ALICE), key=lambda one: getattr(one, "sequence", 0))
    assert again == everything[:3], "a run of REQUESTs is no shortcut"


def test_a_late_repair_goes_to_those_who_ask_only(relay: Harness) -> None:
    relay.deliver(1, 3)
    for number in range(4, 8):
        relay.pass_time(1.0)
        relay.join(ALICE, BOB)
        relay.answer(PARENT)
        relay.deliver(number)
    relay.send((Request(ANY_ADDRESS, 2, 2), BOB))
    relay.sent()
    relay.deliver(2)
    assert relay.sent(ALICE) == []
    relay.send((Request(ANY_ADDRESS, 2, 2), ALICE))
    assert relay.sent(ALICE) == [Deliver(2, b"message 2")]


def test_a_correction_of_the_parent_replaces_what_the_history_says(relay: Harness) -> None:
    relay.deliver(1, 3)
    relay.pass_time(0.05)
    relay.sent()
    relay.send((Deliver(2, b"false"), STRANGER))
    relay.sent()
    relay.deliver(2)
    assert relay.sent(ALICE) == [], "clients that have it would take it for a numbering that began anew"
    relay.send((Request(ANY_ADDRESS, 2, 2), ALICE))
    assert relay.sent(ALICE) == [Deliver(2, b"message 2")]


# Publishing


def test_pushes_go_up_with_one_hop_more_and_without_confirm(relay: Harness) -> None:
    relay.send((Push(b"one", confirm=True), ALICE), (Push(b"two", Dialect.V1), BOB), (Push(b"three", hops=3), BOB))
    assert relay.sent() == [Push(b"one", hops=1), Push(b"two", hops=1), Push(b"three", hops=4)]


def test_a_run_of_pushes_goes_up_as_one(relay: Harness) -> None:
    relay.send(*((Push(b"%06d" % number, hops=2), ALICE) for number in range(100)))
    assert relay.sent(PARENT) == [Push(b"%06d" % number, hops=3) for number in range(100)]
    relay.send(*((Push(b"%06d" % number, hops=number % 2), ALICE) for number in range(10)))
    assert relay.sent(PARENT) == [Push(b"%06d" % number, hops=number % 2 + 1) for number in range(10)]


def test_pushes_in_a_circle_of_relays_end(relay: Harness) -> None:
    relay.send(*((Push(b"%06d" % number, hops=MAX_DEPTH), ALICE) for number in range(5)))
    relay.send((Push(b"one", hops=MAX_DEPTH), ALICE))
    assert relay.sent() == []
    assert relay.node.downstream.drops.counts["push_loop"] == 6


def test_pushes_without_a_parent_are_counted() -> None:
    relay = Harness(connected=False)
    relay.join(ALICE)
    relay.send((Push(b"one"), ALICE), (Push(b"two"), ALICE), (Push(b"three!"), ALICE))
    assert relay.sent() == []
    assert relay.node.downstream.drops.counts["no_parent"] == 3


def test_a_retransmission_is_answered_from_the_history_or_goes_up_marked(relay: Harness) -> None:
    data = wrap(b"12345678", 1, b"payload")
    relay.send((Deliver(1, data), PARENT))
    relay.sent()
    relay.send((Push(data, again=True), ALICE))
    assert relay.sent() == [Deliver(1, data)]
    other = wrap(b"12345678", 2, b"payload")
    relay.send((Push(other, again=True), ALICE))
    assert relay.sent() == [Push(other, again=True, hops=1)]


def test_a_retransmission_is_not_marked_for_a_parent_that_does_not_know_the_mark() -> None:
    relay = Harness(connected=False)
    relay.answer(PARENT, extended=False)
    relay.join(ALICE)
    relay.sent()
    data = wrap(b"12345678", 1, b"payload")
    relay.send((Push(data, again=True), ALICE))
    assert relay.sent() == [Push(data, hops=1)]


def test_a_publisher_that_does_not_subscribe_gets_the_confirmation_that_it_asks_for() -> None:
    relay = Harness()
    relay.join(ALICE, flags=EXTENDED | Flags.NOSUBSCRIBE)
    relay.sent()
    data = wrap(b"12345678", 1, b"payload")
    relay.send((Push(data, confirm=True), ALICE))
    relay.sent()
    relay.send((Deliver(1, data), PARENT))
    assert relay.sent() == [Deliver(1, data)]
    relay.send((Deliver(1, data), PARENT))
    assert relay.sent() == []
    assert relay.node.downstream.relay_counters.returned == 1


def test_a_message_that_had_its_number_already_is_confirmed_to_the_publisher_that_repeats_it(relay: Harness) -> None:
    data = wrap(b"12345678", 1, b"payload")
    relay.deliver(1, 2, 3)
    relay.sent()
    relay.node.downstream.history.begin(4)
    relay.send((Push(data, again=True), ALICE))
    relay.sent()
    relay.send((Deliver(2, data), PARENT))
    assert relay.sent(ALICE) == [Deliver(2, data)]


# Reports


def test_status_tells_of_the_stream_and_of_journals_on_both_sides() -> None:
    relay = Harness(connected=False)
    relay.join(BOB, flags=EXTENDED | Flags.DURABLE)
    relay.send((Holds(TOKENS[BOB], 7, Holding(7, 20), 20), BOB))
    token = relay.node.upstream.keepalive.token
    relay.send((Status(token, 9, 40, (Holding(9, 33),)), PARENT), (KeepaliveAck(token), PARENT))
    relay.sent()
    relay.join(ALICE, flags=EXTENDED | Flags.WATCHES)
    status = next(one for one in relay.sent(ALICE) if isinstance(one, Status))
    assert status == Status(TOKENS[ALICE], 7, 40, (Holding(9, 33), Holding(7, 20)))


def test_progress_of_journals_is_passed_on_to_those_who_watch(relay: Harness) -> None:
    relay.join(ALICE, flags=EXTENDED | Flags.WATCHES)
    relay.pass_time(0.0)
    (watching,) = relay.sent(PARENT, Keepalive)
    assert isinstance(watching, Keepalive)
    assert watching.flags & Flags.WATCHES, "the relay watches for its client"
    relay.send((Status(watching.token, 1, 5, (Holding(1, 5),)), PARENT))
    assert relay.sent(ALICE, Status) == [Status(TOKENS[ALICE], 1, 5, (Holding(1, 5),))]


def test_a_new_term_is_told_before_its_messages() -> None:
    relay = Harness(connected=False)
    relay.answer(PARENT, term=4)
    relay.join(ALICE)
    relay.sent()
    relay.send((Leader(relay.node.upstream.keepalive.token, 5, PARENT), PARENT))
    relay.send((Deliver(1, encode_term_start(TermStart(5, 0, 1))), PARENT))
    leader, delivered = relay.sent(ALICE)
    assert leader == Leader(TOKENS[ALICE], 5, ANY_ADDRESS, True)
    assert isinstance(delivered, Deliver)
    relay.send((Head(TOKENS[ALICE], 5, 0), ALICE))
    assert relay.sent() == []
    assert not relay.node.downstream.drops.counts


# Two sockets


def test_each_side_reports_that_the_other_has_output(relay: Harness) -> None:
    up, down = relay.node.upstream, relay.node.downstream
    up.receive_batch(Batch.pack([(encode(Deliver(1, b"message 1")), PARENT)]), relay.now)
    assert OtherSideReady() in up.drain().events
    assert len(down.drain().effects) == 1
    down.receive_batch(Batch.pack([(encode(Push(b"new")), ALICE)]), relay.now)
    outputs = down.drain()
    assert OtherSideReady() in outputs.events
    assert outputs.effects == []
    assert len(up.drain().effects) == 1
    assert OtherSideReady() not in (*up.drain().events, *down.drain().events)


def test_a_client_that_is_early_is_served_once_there_is_a_parent() -> None:
    side = RelayDownstream(BackboneConfig(), RandomForward(Random(1)), now=START)
    packets = (Keepalive(ANY_ADDRESS, EXTENDED, TOKENS[ALICE]), Push(b"early"), Request(ANY_ADDRESS, 1, 9))
    side.receive_batch(Batch.pack([(encode(packet), ALICE) for packet in packets]), START)
    sent = [decode(bytes(one)) for effect in side.drain().effects for one in effect.iter_datagrams()]
    assert sent == []
    assert side.drops.counts["no_parent"] == 1


def test_the_sides_come_to_rest_although_a_report_has_to_wait(relay: Harness) -> None:
    relay.join(ALICE, flags=EXTENDED | Flags.WATCHES)
    up, down = relay.node.upstream, relay.node.downstream
    for durable in (5, 6):
        status = Status(up.keepalive.token, 1, 9, (Holding(1, durable),))
        up.receive_batch(Batch.pack([(encode(status), PARENT)]), relay.now)
        events = [OtherSideReady() in side.drain().events for side in (up, down, up, down)]
    assert events == [True, False, False, False], "the second report waits for the timer"
    assert down.next_deadline() == pytest.approx(relay.now, abs=0.001)
    relay.pass_time(0.001)
    assert relay.sent(ALICE, Status) == [Status(TOKENS[ALICE], 1, 9, (Holding(1, 6),))]
