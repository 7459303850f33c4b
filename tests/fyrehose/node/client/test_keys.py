"""Keys of messages in a client."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from fyrehose.node.client.test_sealed_client import BACKBONE, NOW, PUBLISHER, Subject, sealed
from hypothesis import given
from hypothesis import strategies as st
from suite.sealing import sealer

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.errors import ConfigurationError, MessageTooLarge
from fyrehose_twisted.fyrehose.config import ClientConfig, OutboxConfig
from fyrehose_twisted.fyrehose.events import Message, MessagesDelivered
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.wire.codec import encode
from fyrehose_twisted.fyrehose.wire.envelope import MAX_ENVELOPED, wrap
from fyrehose_twisted.fyrehose.wire.message_key import KEY_MAGIC, KEY_OVERHEAD, add_key
from fyrehose_twisted.fyrehose.wire.packets import Deliver


def received(messages: Sequence[bytes], *, raw: bool = False) -> list[Message]:
    """Return what a client delivers of these DATA."""
    client = Client(BACKBONE, ClientConfig(start=1, raw=raw), Random(1), NOW)
    packets = [(encode(Deliver(number, data)), BACKBONE) for number, data in enumerate(messages, 1)]
    client.receive_batch(Batch.pack(packets), NOW)
    _, _, events = client.drain()
    return [one for event in events if isinstance(event, MessagesDelivered) for one in event.messages]


def shown(messages: Sequence[Any]) -> list[tuple[bytes | None, bytes]]:
    return [(message.key, message.data) for message in messages]


published = st.lists(
    st.tuples(
        st.none() | st.sampled_from([b"k", b"key" * 85]), st.sampled_from([b"", b"x", b"y" * 9, KEY_MAGIC + b"z"])
    ),
    min_size=1,
    max_size=20,
)


@given(published)
def test_messages_are_delivered_with_the_keys_that_they_were_published_with(
    messages: list[tuple[bytes | None, bytes]],
) -> None:
    queue = Client(BACKBONE, ClientConfig(), Random(2), NOW).send_queue
    tickets = queue.add([data if key is None else add_key(data, key) for key, data in messages], NOW)
    assert shown(received([queue._pending[ticket] for ticket in tickets])) == messages


@given(published)
def test_keys_of_sealed_messages_are_sealed(messages: list[tuple[bytes | None, bytes]]) -> None:
    subject = Subject()
    pushed = subject.publish(*(data if key is None else add_key(data, key) for key, data in messages))
    assert not any(KEY_MAGIC in data for data in pushed)
    subject.receive(*(Deliver(number, data) for number, data in enumerate(pushed, 1)))
    assert shown(subject.messages) == messages
    assert [message.payload for message in subject.messages] == pushed


def test_a_key_outside_the_seal_is_not_one() -> None:
    subject = Subject(allow_plain=True)
    made = sealer(seed=9)
    data = [sealed(1, b"plain", made=made), sealed(2, add_key(b"keyed", b"k"), made=made)]
    subject.receive(*(Deliver(number, one) for number, one in enumerate(data, 1)))
    assert shown(subject.messages) == [(None, b"plain"), (b"k", b"keyed")]
    forged = sealed(3, b"text")
    inside = Subject()
    inside.receive(Deliver(1, forged[:20] + add_key(forged[20:], b"forged")))
    assert inside.messages == []


def test_messages_without_envelopes_have_no_key() -> None:
    keyed = add_key(b"x", b"k")
    assert shown(received([keyed])) == [(None, bytes(keyed))]
    assert shown(received([wrap(PUBLISHER, 1, keyed)], raw=True)) == [(None, wrap(PUBLISHER, 1, keyed))]
    queue = Client(BACKBONE, ClientConfig(outbox=OutboxConfig(raw=True)), Random(2), NOW).send_queue
    with pytest.raises(ConfigurationError, match="a key requires an envelope"):
        queue.add([b"plain", keyed], NOW)
    assert not len(queue)


def test_repeats_with_keys_are_dropped() -> None:
    first, second = (wrap(PUBLISHER, counter, add_key(b"%d" % counter, b"k")) for counter in (1, 2))
    assert shown(received([first, second, first, second])) == [(b"k", b"1"), (b"k", b"2")]


def test_a_key_counts_towards_the_size_of_a_message() -> None:
    queue = Client(BACKBONE, ClientConfig(), Random(2), NOW).send_queue
    most = MAX_ENVELOPED - KEY_OVERHEAD - 3
    assert len(queue.add([add_key(bytes(most), b"key")], NOW)) == 1
    with pytest.raises(MessageTooLarge):
        queue.add([add_key(bytes(most + 1), b"key")], NOW)


def test_a_keyed_message_keeps_its_key_in_copies() -> None:
    [message] = received([wrap(PUBLISHER, 1, add_key(b"x", b"k"))])
    sequence, _, data, payload = message
    assert (sequence, data, payload) == (1, b"x", wrap(PUBLISHER, 1, add_key(b"x", b"k")))
    assert message._replace(sequence=2).key == b"k"
    assert message._replace(sequence=2).sequence == 2
