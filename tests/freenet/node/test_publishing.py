from __future__ import annotations

from typing import Any

import pytest
from suite.freenet_bench import Bench
from suite.native import require_interpreted

from fyrehose_twisted.errors import MessageTooLarge, PublishQueueFull, UnencodableMessage
from fyrehose_twisted.freenet.events import (
    Packet,
    PacketNotPublished,
    PacketPublished,
    PacketsDelivered,
    PacketsMissed,
    StreamRenumbered,
)
from fyrehose_twisted.freenet.node import distribution
from fyrehose_twisted.freenet.node import publishing as publishing_module
from fyrehose_twisted.freenet.node.packet_window import MAX_JUMP, NUMBER_SPACE
from fyrehose_twisted.freenet.wire.messages import (
    MAX_DATA,
    MAX_PACKET,
    Dismissed,
    PublishCollision,
    PublishData,
    PublishFailed,
    PublishSucceeded,
    Recall,
    RejectedLoop,
    SubscribeData,
    SubscribeRestarted,
    SubscribeSucceeded,
    Unsubscribe,
)


def data(bench: Bench, uid: int, number: int, what: bytes = b"x", key: bytes = bytes(20)) -> PublishData:
    return PublishData(uid, key, number, bench.at(0.3), what, 5, True)


def numbers(bench: Bench) -> list[int]:
    """Return the numbers of the packets delivered to the application."""
    return [packet.number for told in bench.take_events(PacketsDelivered) for packet in told.packets]


@pytest.fixture
def relay(member: Bench) -> Any:
    """Node with parent 1, subscribers 3 and 4, and newest packet 9."""
    member.add_subscribers(3, 4)
    member.receive_packet(1, 9, b"nine")
    member.take()
    member.events.clear()
    return member


@pytest.fixture
def top(root: Bench) -> Any:
    """Root with subscribers 3 and 4, and newest packet 9."""
    root.add_subscribers(3, 4)
    root.receive(3, data(root, 900, 9, b"nine"))
    root.take()
    root.events.clear()
    return root


# The root


def test_the_root_accepts_a_packet_and_sends_it_to_all_other_subscribers(top: Bench) -> None:
    top.receive(3, data(top, 901, 10))
    assert top.take(3) == [PublishSucceeded(901)]
    assert top.take(4) == [SubscribeData(top.key, 10, b"x")]
    assert top.take_events(PacketsDelivered) == [PacketsDelivered(top.key, [Packet(10, b"x")])]


def test_the_root_accepts_packets_of_its_own_application(top: Bench) -> None:
    top.call("publish", top.key, b"own", "token")
    assert top.take_events(PacketPublished) == [PacketPublished("token", top.key, 10)]
    assert top.take() == [SubscribeData(top.key, 10, b"own")] * 2
    assert numbers(top) == [10]


def test_the_first_number_of_a_stream_is_random(make_bench: type[Bench]) -> None:
    drawn = set()
    for seed in range(5):
        bench = make_bench(0.1, {}, seed=seed)
        bench.call("subscribe", bench.key)
        bench.call("publish", bench.key, b"x", None)
        (told,) = bench.take_events(PacketPublished)
        drawn.add(told.number)
    assert len(drawn) == 5
    assert all(0 <= number < 2**62 for number in drawn)


def test_packet_numbers_wrap_around_to_0(make_bench: type[Bench]) -> None:
    bench = make_bench(0.1, {})
    bench.call("subscribe", bench.key)
    bench.call("publish", bench.key, b"x", 1, number=MAX_PACKET)
    bench.call("publish", bench.key, b"y", 2)
    assert [told.number for told in bench.take_events(PacketPublished)] == [MAX_PACKET, 0]
    assert numbers(bench) == [MAX_PACKET, 0]


@pytest.mark.parametrize(("number", "what"), [(9, b"other"), (9 - 32, b"old"), (9 + MAX_JUMP + 1, b"far")])
def test_the_root_refuses_another_packet_with_a_number_that_is_taken_or_absurd(
    top: Bench, number: int, what: bytes
) -> None:
    top.receive(3, data(top, 901, number % 2**63, what))
    assert top.take() == [PublishCollision(901, 10)]
    assert numbers(top) == []


def test_a_skipped_number_may_still_be_published(top: Bench) -> None:
    for uid, number in ((901, 11), (902, 10)):
        top.receive(3, data(top, uid, number))
    assert top.take(3) == [PublishSucceeded(901), PublishSucceeded(902)]


# Packets without subscribers


def test_a_packet_without_a_subscriber_other_than_its_publisher_is_not_published(root: Bench) -> None:
    root.call("publish", root.key, b"own", "token", need_subscriber=True)
    assert root.take_events(PacketNotPublished) == [PacketNotPublished("token", root.key, "no-subscribers")]
    assert (numbers(root), root.stream.packets.newest) == ([], None)
    root.call("publish", root.key, b"own", "again")
    assert len(root.take_events(PacketPublished)) == 1


def test_a_subscriber_below_its_publisher_makes_a_packet_wanted(root: Bench) -> None:
    root.add_subscribers(3)
    root.call("publish", root.key, b"own", "token", need_subscriber=True)
    assert len(root.take_events(PacketPublished)) == 1


def test_the_root_refuses_a_packet_whose_sender_is_its_only_subscriber(make_bench: type[Bench]) -> None:
    lone = make_bench(0.05, {3: 0.3, 4: -0.4})
    lone.request(3, best=0.3)
    number, request = lone.take_request()
    lone.receive(number, RejectedLoop(request.uid))
    assert lone.subscribers == [3]
    lone.take()
    lone.receive(3, data(lone, 900, 9)._replace(wanted=False))
    assert lone.take() == [PublishFailed(900, "no-subscribers")]
    # The publisher allows packets without subscribers.
    lone.receive(3, data(lone, 901, 9))
    assert lone.take() == [PublishSucceeded(901)]
    # A published packet stays published.
    lone.receive(3, data(lone, 902, 9)._replace(wanted=False))
    assert lone.take() == [PublishSucceeded(902)]
    lone.add_subscribers(4)
    lone.receive(3, data(lone, 903, 10)._replace(wanted=False))
    assert lone.take(3) == [PublishSucceeded(903)]


def test_the_application_of_a_root_makes_a_packet_wanted(root: Bench) -> None:
    root.add_subscribers(3)
    root.receive(3, data(root, 900, 9)._replace(wanted=False))
    assert root.take() == [PublishSucceeded(900)]


def test_a_relay_with_another_subscriber_sets_wanted(member: Bench) -> None:
    member.add_subscribers(3)
    member.call("publish", member.key, b"x", 1, need_subscriber=True)
    member.receive(3, data(member, 900, 9)._replace(wanted=False))
    member.call("unsubscribe", member.key)
    member.receive(3, data(member, 901, 9)._replace(wanted=False))
    sent = [message.wanted for message in member.take(1)]
    # With another subscriber; with its own application; with the sender only.
    assert sent == [True, True, False]


def test_a_packet_sent_to_a_lost_root_is_wanted(member: Bench) -> None:
    member.call("publish", member.key, b"x", "token", need_subscriber=True)
    (sent,) = member.take(1)
    assert not sent.wanted
    member.disconnect(1)
    member.wait(1.0)
    member.succeed()
    (again,) = [message for peer, message in member.sent if isinstance(message, PublishData)]
    assert again.wanted


@pytest.fixture
def regrowing(member: Bench) -> Any:
    """Node without subscribers that has just become the root after the loss of its parent, the old root."""
    member.disconnect(1)
    member.wait(1.0)
    uid = member.take_request_to(2).uid
    for number in (2, 3, 4):
        member.receive(number, RejectedLoop(uid))
    assert member.stream.is_root
    member.sent.clear()
    member.events.clear()
    return member


def test_a_new_root_accepts_a_packet_once_a_subscriber_of_the_old_one_has_found_it(regrowing: Bench) -> None:
    regrowing.call("publish", regrowing.key, b"own", "token", need_subscriber=True)
    regrowing.wait(8.0)
    assert regrowing.events == []
    regrowing.add_subscribers(3)
    regrowing.wait(0.5)
    assert [one.token for one in regrowing.take_events(PacketPublished)] == ["token"]
    assert [one.data for one in regrowing.take(3) if isinstance(one, SubscribeData)] == [b"own"]


def test_a_new_root_refuses_a_packet_that_no_subscriber_has_come_for(regrowing: Bench) -> None:
    regrowing.call("publish", regrowing.key, b"own", "token", need_subscriber=True)
    regrowing.wait(9.9)
    assert regrowing.events == []
    regrowing.wait(0.2)
    assert regrowing.take_events(PacketNotPublished) == [PacketNotPublished("token", regrowing.key, "no-subscribers")]
    assert not regrowing.stream.upstream
    regrowing.call("publish", regrowing.key, b"own", "later", need_subscriber=True)
    assert regrowing.take_events(PacketNotPublished) == [PacketNotPublished("later", regrowing.key, "no-subscribers")]


def test_packets_held_for_a_subscriber_precede_later_ones(regrowing: Bench) -> None:
    for token in range(3):
        regrowing.call("publish", regrowing.key, b"%d" % token, token, need_subscriber=True)
    regrowing.add_subscribers(3)
    regrowing.call("publish", regrowing.key, b"3", 3, need_subscriber=True)
    assert [one.data for one in regrowing.take(3)] == [b"0", b"1", b"2", b"3"]
    assert [one.token for one in regrowing.take_events(PacketPublished)] == [0, 1, 2, 3]


@pytest.mark.parametrize("offset", [0, -100_000, 2**61])
def test_a_packet_collides_with_one_that_waited_for_a_subscriber(regrowing: Bench, offset: int) -> None:
    regrowing.call("publish", regrowing.key, b"own", "token", need_subscriber=True)
    (own,) = regrowing.stream.upstream.values()
    regrowing.add_subscribers(3)
    regrowing.add_subscribers(4)
    regrowing.sent.clear()
    regrowing.receive(3, data(regrowing, 901, (own.number + offset) % NUMBER_SPACE, b"other"))
    first = SubscribeData(regrowing.key, own.number, b"own")
    assert regrowing.take(3) == [first, PublishCollision(901, own.number + 1)]
    assert regrowing.take(4) == [first]
    assert [one.token for one in regrowing.take_events(PacketPublished)] == ["token"]


def test_packets_that_need_no_subscriber_do_not_wait_for_one(regrowing: Bench) -> None:
    regrowing.call("publish", regrowing.key, b"needs one", 1, need_subscriber=True)
    regrowing.call("publish", regrowing.key, b"needs none", 2)
    assert [one.token for one in regrowing.take_events(PacketPublished)] == [2]
    assert len(regrowing.stream.upstream) == 1


def test_packets_that_wait_for_a_subscriber_go_to_a_new_parent(regrowing: Bench) -> None:
    regrowing.call("publish", regrowing.key, b"own", "token", need_subscriber=True)
    regrowing.connect(5, 0.01)
    number, request = regrowing.take_request()
    regrowing.receive(number, SubscribeSucceeded(regrowing.key, request.uid, regrowing.at(0.0)))
    (sent,) = [one for one in regrowing.take(number) if isinstance(one, PublishData)]
    assert not sent.wanted
    regrowing.receive(number, PublishCollision(sent.uid, 99))
    # No earlier parent had it, so it is not a resent packet.
    assert [one.packet for one in regrowing.take(number)] == [99]


# Relays


def test_a_relay_forwards_a_packet_and_distributes_it_once_the_root_accepted_it(relay: Bench) -> None:
    relay.receive(3, data(relay, 901, 10))
    assert relay.take() == [PublishData(901, relay.key, 10, relay.at(0.2), b"x", 10, True)]
    assert numbers(relay) == []
    relay.receive(1, PublishSucceeded(901))
    assert relay.take(3) == [PublishSucceeded(901)]
    assert relay.take(4) == [SubscribeData(relay.key, 10, b"x")]
    assert relay.take_events(PacketsDelivered) == [PacketsDelivered(relay.key, [Packet(10, b"x")])]


def test_a_known_packet_counts_as_published(relay: Bench) -> None:
    relay.receive(3, data(relay, 901, 9, b"nine"))
    assert relay.take() == [PublishSucceeded(901)]


def test_a_packet_whose_number_is_taken_at_a_relay_collides(relay: Bench) -> None:
    relay.receive(3, data(relay, 901, 9, b"other"))
    assert relay.take() == [PublishCollision(901, 10)]


def test_a_relay_leaves_old_numbers_to_the_root(relay: Bench) -> None:
    relay.receive_packet(1, 100)
    relay.take()
    relay.receive(3, data(relay, 901, 50))
    assert [type(one) for one in relay.take(1)] == [PublishData]


@pytest.mark.parametrize(
    ("answer", "passed_on"),
    [
        (PublishCollision(901, 44), PublishCollision(901, 44)),
        (PublishFailed(901, "bad-signature"), PublishFailed(901, "bad-signature")),
        (RejectedLoop(901), PublishFailed(901, "loop")),
    ],
)
def test_answers_of_the_root_are_returned_to_the_publisher(relay: Bench, answer: Any, passed_on: Any) -> None:
    relay.receive(3, data(relay, 901, 10))
    relay.take()
    relay.receive(1, answer)
    assert relay.take() == [passed_on]
    assert relay.stream.upstream == {}


def test_answers_of_neighbours_other_than_the_parent_are_ignored(relay: Bench) -> None:
    relay.receive(3, data(relay, 901, 10))
    relay.take()
    relay.receive(2, PublishSucceeded(901), PublishCollision(901, 44), PublishFailed(901, "no"), RejectedLoop(901))
    assert relay.take() == []
    assert list(relay.stream.upstream) == [901]


def test_an_unanswered_packet_fails_after_a_minute(relay: Bench) -> None:
    relay.receive(3, data(relay, 901, 10))
    relay.call("publish", relay.key, b"own", "token")
    relay.take()
    relay.wait(60.1)
    assert relay.take() == [PublishFailed(901, "timed-out")]
    assert relay.take_events(PacketNotPublished) == [PacketNotPublished("token", relay.key, "timed-out")]
    relay.receive(1, PublishSucceeded(901))
    assert relay.take() == []


def test_a_packet_for_an_unknown_stream_fails(bench: Bench) -> None:
    bench.receive(3, data(bench, 901, 10))
    assert bench.take() == [PublishFailed(901, "no-stream")]


def test_a_packet_of_a_neighbour_that_is_not_subscribed_fails(member: Bench) -> None:
    member.receive(3, data(member, 901, 10))
    assert member.take() == [PublishFailed(901, "not-subscribed")]
    assert member.node.counters["unsubscribed_publishers"] == 1


def test_a_packet_with_a_known_uid_is_rejected_as_a_loop(relay: Bench) -> None:
    relay.receive(3, data(relay, 901, 10))
    relay.take()
    relay.receive(4, data(relay, 901, 10))
    assert relay.take() == [RejectedLoop(901)]


def test_at_most_32_packets_wait_for_the_root(relay: Bench) -> None:
    for uid in range(901, 901 + 33):
        relay.receive(3, data(relay, uid, uid))
    assert relay.take(3) == [PublishFailed(933, "queue-full")]
    assert len(relay.take(1)) == 32


# Packets of the application


def test_a_packet_gets_the_next_number(relay: Bench) -> None:
    for token in range(3):
        relay.call("publish", relay.key, b"%d" % token, token)
    sent = relay.take(1)
    assert [(one.packet, one.data) for one in sent] == [(10, b"0"), (11, b"1"), (12, b"2")]
    relay.receive(1, *(PublishSucceeded(one.uid) for one in sent))
    assert relay.take_events(PacketPublished) == [PacketPublished(token, relay.key, 10 + token) for token in range(3)]


def test_the_suggested_number_is_tried_after_a_collision(relay: Bench) -> None:
    relay.call("publish", relay.key, b"own", "token")
    (first,) = relay.take()
    relay.receive(1, PublishCollision(first.uid, 31))
    (second,) = relay.take()
    assert second.packet == 31
    assert second.uid != first.uid
    relay.receive(1, PublishSucceeded(second.uid))
    assert relay.take_events(PacketPublished) == [PacketPublished("token", relay.key, 31)]


def test_a_packet_fails_after_too_many_collisions(relay: Bench) -> None:
    relay.call("publish", relay.key, b"own", "token")
    tries = 0
    while sent := relay.take():
        tries += 1
        relay.receive(1, PublishCollision(sent[0].uid, 100 + tries))
    assert tries == publishing_module.MAX_NUMBER_ATTEMPTS + 1
    assert relay.take_events(PacketNotPublished) == [PacketNotPublished("token", relay.key, "collision", 100 + tries)]


def test_a_number_required_by_the_application_is_kept(relay: Bench) -> None:
    relay.call("publish", relay.key, b"own", "token", number=9)
    assert relay.take_events(PacketNotPublished) == [PacketNotPublished("token", relay.key, "collision", 10)]


def test_a_number_required_by_the_application_is_tried_once(relay: Bench) -> None:
    relay.call("publish", relay.key, b"own", "token", number=20)
    (sent,) = relay.take()
    relay.receive(1, PublishCollision(sent.uid, 31))
    assert relay.take() == []
    assert relay.take_events(PacketNotPublished) == [PacketNotPublished("token", relay.key, "collision", 31)]


def test_a_packet_is_signed_for_its_number(relay: Bench) -> None:
    relay.call("publish", relay.key, b"", "token", sign=lambda number: b"signed %d" % number)
    (first,) = relay.take()
    assert first.data == b"signed 10"
    relay.receive(1, PublishCollision(first.uid, 31))
    assert relay.take()[0].data == b"signed 31"


def test_a_packet_that_its_signature_makes_too_large_fails(relay: Bench) -> None:
    relay.call("publish", relay.key, b"", "token", sign=lambda number: bytes(MAX_DATA + 1))
    assert relay.take_events(PacketNotPublished) == [PacketNotPublished("token", relay.key, "too-large")]
    assert relay.take() == []


def test_publishing_without_a_subscription_fails(bench: Bench) -> None:
    bench.call("publish", bench.key, b"x", "token")
    bench.request(3)
    bench.succeed()
    bench.call("publish", bench.key, b"x", "token")
    assert bench.take_events(PacketNotPublished) == [PacketNotPublished("token", bench.key, "no-stream")] * 2


def test_packets_of_the_application_are_queued_beyond_the_window(relay: Bench) -> None:
    for token in range(40):
        relay.call("publish", relay.key, b"x", token)
    sent = relay.take()
    assert len(sent) == 32
    for answer in (PublishSucceeded(sent[0].uid), PublishFailed(sent[1].uid, "no"), RejectedLoop(sent[2].uid)):
        relay.receive(1, answer)
    assert [one.packet for one in relay.take(1)] == [42, 43, 44]


def test_publishing_raises_when_the_queue_is_full(relay: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing_module, "MAX_QUEUED_PACKETS", 3)
    for token in range(35):
        relay.call("publish", relay.key, b"x", token)
    with pytest.raises(PublishQueueFull, match="wait"):
        relay.call("publish", relay.key, b"x", 35)


def test_a_packet_has_1058_bytes_at_most(relay: Bench) -> None:
    relay.call("publish", relay.key, bytes(MAX_DATA), 1)
    with pytest.raises(MessageTooLarge):
        relay.call("publish", relay.key, bytes(MAX_DATA + 1), 2)


@pytest.mark.parametrize("number", [-1, 2**63])
def test_an_invalid_packet_number_is_refused(relay: Bench, number: int) -> None:
    with pytest.raises(UnencodableMessage, match="number"):
        relay.call("publish", relay.key, b"x", 1, number=number)


def test_queued_packets_fail_when_the_stream_is_left(relay: Bench) -> None:
    for token in range(33):
        relay.call("publish", relay.key, b"x", token)
    relay.receive(3, Unsubscribe(relay.key))
    relay.receive(4, Unsubscribe(relay.key))
    relay.call("unsubscribe", relay.key)
    assert [told.token for told in relay.take_events(PacketNotPublished)] == list(range(33))
    assert not relay.node.busy


# Packets without a parent


def test_packets_wait_for_a_parent(relay: Bench) -> None:
    relay.disconnect(1)
    relay.take()
    relay.receive(3, data(relay, 901, 20))
    relay.call("publish", relay.key, b"own", "token")
    assert relay.take() == []
    relay.wait(1.0)
    relay.succeed()
    sent = [one for one in relay.take(2) if isinstance(one, PublishData)]
    assert [(one.packet, one.data) for one in sent] == [(20, b"x"), (10, b"own")]


def test_unanswered_packets_are_resent_to_a_new_parent_under_another_uid(relay: Bench) -> None:
    relay.receive(3, data(relay, 901, 10))
    relay.disconnect(1)
    relay.wait(1.0)
    request = relay.take_request_to(2)
    relay.receive(2, SubscribeSucceeded(relay.key, request.uid, relay.at(0.0)))
    (sent,) = (one for one in relay.take(2) if one.packet == 10)
    assert sent.uid != 901
    relay.take()
    relay.receive(2, PublishSucceeded(sent.uid))
    assert relay.take(3) == [PublishSucceeded(901)]


def test_a_new_root_accepts_unanswered_packets_itself(relay: Bench) -> None:
    relay.call("publish", relay.key, b"own", "token")
    relay.disconnect(1)
    relay.wait(1.0)
    uid = relay.take_request_to(2).uid
    for number in (2, 3, 4):
        relay.receive(number, RejectedLoop(uid))
    assert relay.take_events(PacketPublished) == [PacketPublished("token", relay.key, 10)]
    assert relay.take(4)[-1:] == [SubscribeData(relay.key, 10, b"own")]


def test_a_packet_that_waits_for_a_parent_fails_after_a_minute(relay: Bench) -> None:
    relay.call("publish", relay.key, b"own", "token")
    relay.wait(30.0)
    relay.disconnect(1)
    relay.wait(1.0)
    relay.succeed()
    relay.wait(29.1)
    assert relay.take_events(PacketNotPublished) == [PacketNotPublished("token", relay.key, "timed-out")]


def test_the_answer_to_a_lost_publisher_is_dropped(relay: Bench) -> None:
    relay.receive(3, data(relay, 901, 10))
    relay.disconnect(3)
    relay.receive(1, PublishSucceeded(901))
    assert relay.take(3) == []
    assert numbers(relay) == [10]


# Packets resent to another parent


@pytest.fixture
def repeated(relay: Bench) -> Any:
    """The same relay after the loss of parent 1: it resent a packet of its own, and packet 901 of 3, to parent 2.

    Its attributes ``own`` and ``theirs`` are the uids.
    """
    relay.call("publish", relay.key, b"own", "token")
    relay.receive(3, data(relay, 901, 20))
    relay.disconnect(1)
    relay.wait(1.0)
    relay.succeed()
    sent = relay.take(2)
    assert [(one.packet, one.data) for one in sent] == [(10, b"own"), (20, b"x")]
    relay.own, relay.theirs = (one.uid for one in sent)
    relay.sent.clear()
    relay.events.clear()
    return relay


def test_a_resent_packet_gets_no_other_number(repeated: Bench) -> None:
    repeated.receive(2, PublishCollision(repeated.own, 99))
    assert repeated.take() == []
    assert repeated.take_events(PacketNotPublished) == [PacketNotPublished("token", repeated.key, "uncertain")]
    assert repeated.node.counters["uncertain"] == 1


def test_the_publisher_of_a_packet_that_a_relay_resent_gets_no_other_number(repeated: Bench) -> None:
    repeated.receive(2, PublishCollision(repeated.theirs, 99))
    assert repeated.take() == [PublishFailed(901, "uncertain")]


def test_a_collision_of_a_resent_packet_with_a_required_number_is_uncertain(relay: Bench) -> None:
    relay.call("publish", relay.key, b"own", "token", number=20)
    relay.disconnect(1)
    relay.wait(1.0)
    relay.succeed()
    (sent,) = relay.take(2)
    relay.receive(2, PublishCollision(sent.uid, 31))
    # A free number would invite the application to sign the packet again.
    assert relay.take_events(PacketNotPublished) == [PacketNotPublished("token", relay.key, "uncertain", None)]


@pytest.mark.parametrize("reason", ["no-stream", "not-subscribed", "queue-full", "no-subscribers", "loop"])
def test_a_refusal_of_a_resent_packet_is_uncertain(repeated: Bench, reason: str) -> None:
    for uid in (repeated.own, repeated.theirs):
        repeated.receive(2, RejectedLoop(uid) if reason == "loop" else PublishFailed(uid, reason))
    assert repeated.take_events(PacketNotPublished) == [PacketNotPublished("token", repeated.key, "uncertain")]
    assert repeated.take() == [PublishFailed(901, "uncertain")]


@pytest.mark.parametrize("reason", ["bad-signature", "timed-out"])
def test_a_final_reason_for_a_resent_packet_is_passed_on(repeated: Bench, reason: str) -> None:
    repeated.receive(2, PublishFailed(repeated.own, reason), PublishFailed(repeated.theirs, reason))
    assert repeated.take_events(PacketNotPublished) == [PacketNotPublished("token", repeated.key, reason)]
    assert repeated.take() == [PublishFailed(901, reason)]


def test_a_resent_packet_that_the_root_has_is_published(repeated: Bench) -> None:
    repeated.receive(2, PublishSucceeded(repeated.own), PublishSucceeded(repeated.theirs))
    assert repeated.take_events(PacketPublished) == [PacketPublished("token", repeated.key, 10)]
    assert PublishSucceeded(901) in repeated.take(3)


def test_a_packet_remains_resent_at_a_third_parent(repeated: Bench) -> None:
    repeated.connect(5, 0.12)
    repeated.disconnect(2)
    repeated.wait(1.0)
    repeated.succeed()
    own, theirs = repeated.take(5)
    repeated.sent.clear()
    repeated.receive(5, PublishCollision(own.uid, 99), PublishCollision(theirs.uid, 99))
    assert repeated.take_events(PacketNotPublished) == [PacketNotPublished("token", repeated.key, "uncertain")]
    assert repeated.take() == [PublishFailed(901, "uncertain")]


@pytest.mark.parametrize("newest", [10, 10 + 32])
def test_a_new_root_does_not_renumber_a_resent_packet_whose_number_it_assigned(relay: Bench, newest: int) -> None:
    relay.call("publish", relay.key, b"own", "token")
    relay.receive(3, data(relay, 901, 10, b"theirs"))
    relay.receive_packet(1, newest, b"other")
    relay.disconnect(1)
    relay.wait(1.0)
    uid = relay.take_request_to(2).uid
    for number in (2, 3, 4):
        relay.receive(number, RejectedLoop(uid))
    assert relay.stream.is_root
    assert relay.take_events(PacketNotPublished) == [PacketNotPublished("token", relay.key, "uncertain")]
    assert PublishFailed(901, "uncertain") in relay.take(3)
    assert relay.stream.packets.newest == newest


def test_a_packet_that_waited_for_its_first_parent_may_get_another_number(relay: Bench) -> None:
    relay.disconnect(1)
    relay.call("publish", relay.key, b"own", "token")
    relay.receive(3, data(relay, 901, 20))
    relay.wait(1.0)
    relay.succeed()
    theirs, own = sorted(relay.take(2), key=lambda one: -one.packet)
    relay.sent.clear()
    relay.receive(2, PublishCollision(own.uid, 99), PublishCollision(theirs.uid, 99))
    assert [one.packet for one in relay.take(2)] == [99]
    assert relay.take(3) == [PublishCollision(901, 99)]


def test_a_packet_in_flight_is_uncertain_when_the_stream_is_left(relay: Bench) -> None:
    relay.call("publish", relay.key, b"sent", 1)
    relay.disconnect(1)
    relay.call("publish", relay.key, b"not sent", 2)
    relay.call("leave")
    reasons = {told.token: told.reason for told in relay.take_events(PacketNotPublished)}
    assert reasons == {1: "uncertain", 2: "no-stream"}


def test_a_leaving_relay_does_not_answer_packets_that_their_publisher_will_resend(relay: Bench) -> None:
    relay.receive(3, data(relay, 901, 20))
    relay.disconnect(1)
    relay.receive(4, data(relay, 902, 21))
    relay.take()
    relay.call("leave")
    assert relay.take(3) == [Dismissed(relay.key)]
    assert relay.take(4) == [Dismissed(relay.key), PublishFailed(902, "no-stream")]


# Packets going down


def test_a_packet_of_the_parent_is_sent_to_all_subscribers(relay: Bench) -> None:
    relay.receive_packet(1, 10)
    assert relay.sent == [(3, SubscribeData(relay.key, 10, b"x")), (4, SubscribeData(relay.key, 10, b"x"))]
    assert relay.take_events(PacketsDelivered) == [PacketsDelivered(relay.key, [Packet(10, b"x")])]


def test_a_packet_of_a_neighbour_other_than_the_parent_is_answered_with_unsubscribe(relay: Bench) -> None:
    relay.receive_packet(2, 10)
    assert relay.take() == [Unsubscribe(relay.key)]
    assert numbers(relay) == []
    assert relay.node.counters["data_not_from_parent"] == 1


def test_a_packet_of_an_unknown_stream_is_answered_with_unsubscribe(bench: Bench) -> None:
    bench.receive_packet(1, 10)
    assert bench.take() == [Unsubscribe(bench.key)]


def test_a_packet_of_a_neighbour_with_a_pending_request_is_ignored(bench: Bench) -> None:
    bench.request(3)
    bench.take()
    bench.receive_packet(1, 10)
    assert bench.take() == []


def test_the_packet_that_the_root_accepted_replaces_one_with_the_same_number(relay: Bench) -> None:
    relay.receive(3, data(relay, 901, 10, b"x"))
    relay.receive_packet(1, 10, b"y")
    relay.take()
    relay.receive(1, PublishSucceeded(901))
    assert relay.sent == [(4, SubscribeData(relay.key, 10, b"x")), (3, PublishSucceeded(901))]
    assert [told.packets[0].data for told in relay.take_events(PacketsDelivered)] == [b"y", b"x"]


def test_a_packet_is_delivered_once(relay: Bench) -> None:
    relay.receive_packet(1, 10)
    relay.receive_packet(1, 10)
    assert numbers(relay) == [10]
    assert relay.node.counters["data_same"] == 1


def test_a_relay_retains_packets_for_later_subscribers(bench: Bench) -> None:
    bench.request(3)
    bench.succeed()
    for number in range(40):
        bench.receive_packet(1, number)
    bench.take()
    bench.request(4)
    assert [one.packet for one in bench.take(4)[1:]] == list(range(8, 40))
    assert bench.take_events(PacketsDelivered) == []


def test_missed_packets_are_reported(relay: Bench) -> None:
    relay.receive_packet(1, 12)
    relay.receive_packet(1, 45)
    assert relay.take_events(PacketsMissed) == [PacketsMissed(relay.key, 10, 11), PacketsMissed(relay.key, 13, 13)]


def test_a_discontinuity_of_numbers_is_reported(relay: Bench) -> None:
    relay.receive_packet(1, 50_000)
    assert relay.events == [StreamRenumbered(relay.key, 50_000), PacketsDelivered(relay.key, [Packet(50_000, b"x")])]
    assert relay.take_events(PacketsMissed) == []


def test_a_relay_adopts_the_numbers_of_the_root(relay: Bench) -> None:
    relay.receive_packet(1, 9, b"another nine")
    assert relay.take_events(StreamRenumbered) == [StreamRenumbered(relay.key, 9)]
    assert relay.take_events(PacketsDelivered) == [PacketsDelivered(relay.key, [Packet(9, b"another nine")])]
    assert len(relay.take()) == 2


@pytest.mark.parametrize("number", [10, 5])
def test_numbers_may_return_after_a_discontinuity(relay: Bench, number: int) -> None:
    relay.receive_packet(1, 50_000)
    relay.receive_packet(1, number)
    assert relay.take_events(StreamRenumbered) == [
        StreamRenumbered(relay.key, 50_000),
        StreamRenumbered(relay.key, number),
    ]
    assert numbers(relay) == [50_000, number]


def test_a_packet_that_was_delivered_before_the_numbers_changed_is_not_delivered_again(relay: Bench) -> None:
    relay.receive_packet(1, 9, b"another nine")
    relay.receive_packet(1, 9, b"nine")
    assert numbers(relay) == [9]
    assert relay.node.counters["given_before"] == 1


def test_a_packet_that_arrived_before_its_answer_is_delivered_once(relay: Bench) -> None:
    relay.receive(3, data(relay, 901, 10))
    relay.receive_packet(1, 10)
    relay.receive(1, PublishSucceeded(901))
    assert numbers(relay) == [10]
    assert relay.take(3) == [SubscribeData(relay.key, 10, b"x"), PublishSucceeded(901)]


# Merging trees


def test_a_node_resends_the_packets_of_its_old_tree_to_a_new_parent(relay: Bench) -> None:
    relay.disconnect(1)
    relay.wait(1.0)
    request = relay.take_request_to(2)
    assert request.last_seen == 9
    relay.receive(3, data(relay, 901, 10))
    relay.receive(2, SubscribeSucceeded(relay.key, request.uid, relay.at(0.0)))
    assert [one.packet for one in relay.take(2)] == [10]


def test_a_root_recalls_the_packets_that_it_lacks_from_a_new_subscriber(root: Bench) -> None:
    root.request(3, last_seen=20)
    recall = Recall(root.key, -1)
    assert root.take(3)[-1:] == [recall]
    root.receive(3, data(root, 901, 20, b"twenty"))
    assert numbers(root) == [20]
    root.take()
    root.request(4, last_seen=25)
    assert root.take(4)[-1:] == [Recall(root.key, 20)]


@pytest.mark.parametrize("last_seen", [-1, 5, 9, 9 + MAX_JUMP + 1])
def test_a_root_recalls_nothing_from_a_subscriber_without_later_packets(top: Bench, last_seen: int) -> None:
    top.connect(5, 0.4)
    top.request(5, last_seen=last_seen)
    assert not any(isinstance(one, Recall) for one in top.take())


def test_recalled_packets_are_sent_up_once(relay: Bench) -> None:
    relay.receive_packet(1, 10)
    relay.take()
    relay.receive(1, Recall(relay.key, 9), Recall(relay.key, 8))
    assert [one.packet for one in relay.take()] == [10]
    assert relay.node.counters["strays"] == 1


def test_the_outcome_of_resent_packets_is_not_reported(relay: Bench) -> None:
    relay.receive(1, Recall(relay.key, -1))
    (sent,) = relay.take()
    relay.receive(1, PublishCollision(sent.uid, 20))
    assert relay.take() == relay.events == []


def test_a_recall_is_passed_on_by_a_node_without_the_packets(relay: Bench) -> None:
    relay.receive(1, Recall(relay.key, 9))
    assert relay.sent == [(3, Recall(relay.key, 9)), (4, Recall(relay.key, 9))]


def test_a_recall_of_a_neighbour_other_than_the_parent_is_ignored(relay: Bench) -> None:
    relay.receive(3, Recall(relay.key, 8))
    assert relay.take() == []


# Signed streams


SIGNED = b"\xed\x25\x51\x9f" + bytes(16)


@pytest.fixture
def signed(make_bench: type[Bench], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Root of a signed stream with subscribers 3 and 4; signatures of packets that begin with "right" are valid."""
    require_interpreted()
    monkeypatch.setattr(distribution, "verify", lambda key, number, what: what.startswith(b"right"))
    bench = make_bench(0.1, {})
    bench.key = SIGNED
    bench.call("subscribe", SIGNED)
    for number in (3, 4):
        bench.connect(number, 0.4)
        bench.request(number, key=SIGNED)
    bench.receive(3, data(bench, 900, 9, b"right", SIGNED))
    bench.sent.clear()
    bench.events.clear()
    return bench


def test_the_root_refuses_a_packet_with_a_bad_signature(signed: Bench) -> None:
    signed.receive(3, data(signed, 901, 10, b"wrong", SIGNED))
    assert signed.take() == [PublishFailed(901, "bad-signature")]
    assert signed.node.counters["bad_signatures"] == 1
    signed.receive(3, data(signed, 902, 10, b"right", SIGNED))
    assert signed.take(4) == [SubscribeData(SIGNED, 10, b"right")]


def test_a_node_without_signature_support_forwards_and_counts_signed_packets(
    signed: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distribution, "can_verify", lambda: False)
    signed.receive(3, data(signed, 901, 10, b"wrong", SIGNED))
    assert signed.take(3) == [PublishSucceeded(901)]
    assert signed.node.counters["unverified"] == 1


@pytest.fixture
def signed_relay(signed: Bench) -> Any:
    """The same node with parent 3."""
    signed.wait(2.2)
    uid = signed.take_request_to(3).uid
    signed.receive(3, Unsubscribe(SIGNED), SubscribeSucceeded(SIGNED, uid, signed.at(0.0)))
    signed.sent.clear()
    signed.events.clear()
    return signed


@pytest.mark.parametrize(
    ("number", "what"),
    [(10, b"wrong"), (9, b"wrong"), (9 + MAX_JUMP + 1, b"wrong"), (9 - 32 + 2**63, b"right, but old")],
)
def test_a_packet_with_a_bad_signature_is_not_delivered(signed_relay: Bench, number: int, what: bytes) -> None:
    signed_relay.receive_packet(3, number, what, SIGNED)
    assert signed_relay.take() == signed_relay.events == []
    # The window does not change either.
    assert signed_relay.stream.packets.packets_after(-1) == [Packet(9, b"right")]


def test_a_packet_with_a_valid_signature_may_replace_another(signed_relay: Bench) -> None:
    signed_relay.receive_packet(3, 9, b"right, too", SIGNED)
    assert numbers(signed_relay) == [9]


@pytest.mark.parametrize("number", [10, 11])
def test_an_answer_of_the_parent_does_not_replace_a_valid_signature(signed_relay: Bench, number: int) -> None:
    signed_relay.receive(4, data(signed_relay, 901, number, b"wrong", SIGNED))
    signed_relay.receive_packet(3, 11, b"right", SIGNED)
    signed_relay.take()
    signed_relay.receive(3, PublishSucceeded(901))
    assert signed_relay.take() == [PublishFailed(901, "bad-signature")]
    assert numbers(signed_relay) == [11]
    assert signed_relay.stream.packets.newest == 11


def test_a_relay_verifies_only_packets_that_would_change_the_numbers(signed_relay: Bench) -> None:
    signed_relay.stream.local = False
    for number, what in ((9, b"wrong"), (9 + MAX_JUMP + 1, b"wrong"), (10, b"anything")):
        signed_relay.receive_packet(3, number, what, SIGNED)
    assert [one.packet for one in signed_relay.take()] == [10]
    assert signed_relay.node.counters["bad_signatures"] == 2


def test_packets_reach_the_subtree_during_a_restart(relay: Bench) -> None:
    relay.receive(1, SubscribeRestarted(relay.key, 77, relay.at(0.1)))
    relay.take()
    relay.receive_packet(1, 10)
    assert relay.take() == [SubscribeData(relay.key, 10, b"x")] * 2
