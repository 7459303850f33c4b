from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite.sealing import opener, ring, seal_one, sealer

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError, MessageTooLarge
from fyrehose_twisted.fyrehose.config import ClientConfig, OutboxConfig
from fyrehose_twisted.fyrehose.events import Message, MessagesDelivered, MessagesPublished, PacketDropped
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, MAX_ENVELOPED, encode_envelope, unwrap, wrap
from fyrehose_twisted.fyrehose.wire.packets import MAX_DELIVERABLE, Deliver, Keepalive, KeepaliveAck, Push
from fyrehose_twisted.sealing.outcome import Refusal
from fyrehose_twisted.sealing.payload import SEAL_OVERHEAD, decode_header

BACKBONE: Address = ("10.0.0.1", 2323)
NOW = 1_700_000_000.0
PUBLISHER = b"someones"


class Subject:
    """A connected client that seals and opens."""

    def __init__(self, *, allow_plain: bool = False, raw_outbox: bool = False, seed: int = 1) -> None:
        config = ClientConfig(start=1, outbox=OutboxConfig(raw=raw_outbox))
        self.opener = opener(allow_plain=allow_plain)
        self.sealer = sealer(seed=seed)
        self.client = Client(BACKBONE, config, Random(seed), NOW, sealer=self.sealer, opener=self.opener)
        self.pushed: list[bytes] = []
        self.events: list[Any] = []
        self.client.tick(NOW)
        self.receive(*(KeepaliveAck(packet.token) for packet in self._sent() if isinstance(packet, Keepalive)))

    def _sent(self) -> list[Any]:
        sent: list[Any] = []
        events: list[Any] = [self]
        while events:
            _, effects, events = self.client.drain()
            sent += [decode(datagram) for effect in effects for datagram in effect.iter_datagrams()]
            self.events += events
        self.pushed += [packet.data for packet in sent if isinstance(packet, Push)]
        return sent

    def receive(self, *packets: Any, split: Iterable[int] = ()) -> None:
        ends = sorted({*split, len(packets)})
        start = 0
        for end in ends:
            if end > start:
                self.client.receive_batch(Batch.pack([(encode(one), BACKBONE) for one in packets[start:end]]), NOW)
                start = end
        self.client.tick(NOW)
        self._sent()

    def publish(self, *payloads: bytes) -> list[bytes]:
        before = len(self.pushed)
        self.client.publish_many(payloads, NOW)
        self.client.tick(NOW)
        self._sent()
        return self.pushed[before:]

    @property
    def messages(self) -> list[Message]:
        return [one for event in self.events if isinstance(event, MessagesDelivered) for one in event.messages]

    @property
    def delivered(self) -> list[tuple[int, bytes]]:
        return [(message.sequence, message.data) for message in self.messages]


def sealed(counter: int, payload: bytes, *, made: Any = None) -> bytes:
    return seal_one(sealer() if made is None else made, payload, encode_envelope(PUBLISHER, counter))


def test_what_is_published_is_sealed_and_what_returns_is_opened() -> None:
    subject = Subject()
    pushed = subject.publish(b"one", b"two")
    assert [len(data) for data in pushed] == [ENVELOPE_SIZE + SEAL_OVERHEAD + 3] * 2
    assert not any(text in data for data in pushed for text in (b"one", b"two"))
    subject.receive(*(Deliver(number, data) for number, data in enumerate(pushed, 1)))
    assert subject.delivered == [(1, b"one"), (2, b"two")]
    assert [message.payload for message in subject.messages] == pushed
    assert [pair for event in subject.events if isinstance(event, MessagesPublished) for pair in event.messages] == [
        (0, 1),
        (1, 2),
    ]
    assert subject.client.counters.opened == 2


def test_messages_are_sealed_without_envelopes_too() -> None:
    subject = Subject(raw_outbox=True)
    pushed = subject.publish(b"same", b"same")
    assert pushed[0] != pushed[1]
    assert unwrap(pushed[0]) is None
    subject.receive(Deliver(1, pushed[1]), Deliver(2, pushed[0]))
    assert subject.delivered == [(1, b"same"), (2, b"same")]
    published = [pair for event in subject.events if isinstance(event, MessagesPublished) for pair in event.messages]
    assert sorted(published) == [(0, 2), (1, 1)]


@pytest.mark.parametrize("raw", [False, True])
def test_the_limit_of_a_message_leaves_room_for_the_seal(raw: bool) -> None:
    subject = Subject(raw_outbox=raw)
    limit = (MAX_DELIVERABLE if raw else MAX_ENVELOPED) - SEAL_OVERHEAD
    [data] = subject.publish(bytes(limit))
    assert len(data) == MAX_DELIVERABLE
    with pytest.raises(MessageTooLarge) as raised:
        subject.client.publish(bytes(limit + 1), NOW)
    assert raised.value.limit == limit


def test_a_message_that_is_refused_by_the_queue_uses_no_nonce_twice() -> None:
    subject = Subject()
    with pytest.raises(MessageTooLarge):
        subject.client.publish_many([b"x", bytes(MAX_DELIVERABLE)], NOW)
    headers = [decode_header(data, ENVELOPE_SIZE) for data in subject.publish(b"x", b"y")]
    assert len({header.counter for header in headers if header is not None}) == 2


def test_a_forged_envelope_does_not_make_a_genuine_message_a_repeat() -> None:
    subject = Subject()
    genuine = sealed(0, b"genuine")
    subject.receive(Deliver(1, wrap(PUBLISHER, 0, b"forged")), Deliver(2, genuine))
    assert subject.delivered == [(2, b"genuine")]
    assert subject.client.drops.counts[Refusal.PLAIN] == 1


def test_a_forged_envelope_does_not_acknowledge_a_message() -> None:
    subject = Subject()
    one, two = subject.publish(b"one", b"two")
    publisher = subject.client.send_queue.publisher
    subject.receive(Deliver(1, wrap(publisher, 0, b"forged")), Deliver(2, two))
    assert len(subject.client.send_queue) == 1
    subject.receive(Deliver(3, one))
    assert len(subject.client.send_queue) == 0
    published = [pair for event in subject.events if isinstance(event, MessagesPublished) for pair in event.messages]
    assert sorted(published) == [(0, 3), (1, 2)]
    assert subject.delivered == [(2, b"two"), (3, b"one")]


def test_a_message_that_returns_twice_is_a_repeat_and_no_replay() -> None:
    subject = Subject()
    data = sealed(0, b"once")
    subject.receive(Deliver(1, data), Deliver(2, data))
    assert subject.delivered == [(1, b"once")]
    assert subject.client.counters.repeats == 1
    assert not subject.client.drops.counts


def test_a_resumed_publisher_seals_anew_and_repeats_its_envelope() -> None:
    subject = Subject()
    subject.receive(Deliver(1, sealed(0, b"once")), Deliver(2, sealed(0, b"once", made=sealer(seed=2))))
    assert subject.delivered == [(1, b"once")]
    assert subject.client.counters.repeats == 1


def test_a_replay_beyond_the_window_of_envelopes_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject()
    monkeypatch.setattr(subject.client.repeats, "_window", 4)
    made = sealer()
    data = [sealed(counter, b"%d" % counter, made=made) for counter in range(10)]
    subject.receive(*(Deliver(number, one) for number, one in enumerate([*data, data[0]], 1)))
    assert [number for number, _ in subject.delivered] == list(range(1, 11))
    assert subject.client.drops.counts == {Refusal.REPEATED: 1}


def test_refused_payloads_are_counted_and_reported_once() -> None:
    subject = Subject()
    subject.receive(*(Deliver(number, b"plain") for number in range(1, 6)))
    assert subject.delivered == []
    assert subject.client.drops.counts == {Refusal.PLAIN: 5}
    [report] = [event for event in subject.events if isinstance(event, PacketDropped)]
    assert (report.reason, report.peer, report.detail) == ("seal_missing", BACKBONE, "message 1: it is not sealed")


def test_plain_payloads_are_delivered_if_they_are_allowed() -> None:
    subject = Subject(allow_plain=True)
    subject.receive(Deliver(1, wrap(PUBLISHER, 0, b"plain")), Deliver(2, sealed(1, b"sealed")), Deliver(3, b"bare"))
    assert subject.delivered == [(1, b"plain"), (2, b"sealed"), (3, b"bare")]


def test_raw_messages_cannot_be_opened() -> None:
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        Client(BACKBONE, ClientConfig(raw=True), Random(1), NOW, opener=opener())


@given(st.data())
def test_the_outcome_does_not_depend_on_the_boundaries_of_batches(draw: st.DataObject) -> None:
    made, other = sealer(), sealer(ring(9))
    genuine = [sealed(counter, b"%d" % counter, made=made) for counter in range(6)]
    forged = [wrap(PUBLISHER, 3, b"plain"), sealed(2, b"?", made=other), genuine[1][:-1] + b"?", b"bare"]
    stream = draw.draw(st.lists(st.sampled_from(genuine + forged), min_size=1, max_size=24))
    split = draw.draw(st.lists(st.integers(1, len(stream))))
    outcomes = []
    for ends in ((), range(len(stream)), split):
        subject = Subject()
        subject.receive(*(Deliver(number, data) for number, data in enumerate(stream, 1)), split=ends)
        outcomes.append((subject.delivered, subject.client.drops.counts, subject.client.counters.repeats))
        assert {data for _, data in subject.delivered} == {
            b"%d" % genuine.index(one) for one in stream if one in genuine
        }
        assert len(subject.delivered) == len({one for one in stream if one in genuine})
    assert outcomes[0] == outcomes[1] == outcomes[2]
