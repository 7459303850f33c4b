"""Control connections of a freenet node: requests, limits and errors."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite.control_client import ControlClient, check_client_limit
from twisted.internet.defer import Deferred, fail, succeed

from fyrehose_twisted.errors import PublishRefused, TooManyStreams
from fyrehose_twisted.freenet.events import (
    Packet,
    ParentChanged,
    ParentLost,
    StreamDropped,
    StreamRenumbered,
    Subscribed,
    SubscribeFailed,
)
from fyrehose_twisted.freenet.service.control import CHANGE_NAMES, FreenetControl
from fyrehose_twisted.freenet.service.event_log import StreamChange
from fyrehose_twisted.freenet.wire.signing import KEY_PREFIX
from fyrehose_twisted.net.control.json_lines import MAX_REQUEST
from fyrehose_twisted.net.control.server import MAX_PENDING, ControlFactory

KEY, OTHER, FULL = bytes(20), bytes(range(20)), b"\xff" * 20
SIGNED = KEY_PREFIX + bytes(16)


class Service:
    """Fake service."""

    def __init__(self) -> None:
        self.listeners: list[Any] = []
        self.users: list[bytes] = []
        self.connecting: list[Deferred[None]] | None = None
        self.published: list[tuple[bytes, bytes, int | None]] = []
        self.publishing: list[Deferred[int]] = []
        self.after: list[int | None] = []
        self.allowed: list[bool] = []

    def status(self) -> dict[str, Any]:
        return {"node": "00"}

    def listen(self, listener: Any) -> None:
        self.listeners.append(listener)

    def unlisten(self, listener: Any) -> None:
        self.listeners.remove(listener)

    def is_local(self, key: bytes) -> bool:
        return key in self.users

    def retained_packets(self, key: bytes, last_seen: int) -> list[Packet]:
        return [Packet(last_seen + 1, b"kept")]

    def next_number(self, key: bytes) -> int:
        return 18

    def subscribe(self, key: bytes, *, last_seen: int | None = None, keep: bool = True) -> Deferred[None]:
        if key == FULL:
            return fail(TooManyStreams(1))
        self.users.append(key)
        self.after.append(last_seen)
        return self.when_connected(key)

    def when_connected(self, key: bytes) -> Deferred[None]:
        if self.connecting is None:
            return succeed(None)
        self.connecting.append(Deferred())
        return self.connecting[-1]

    def unsubscribe(self, key: bytes, *, keep: bool = True) -> None:
        self.users.remove(key)

    def publish(
        self, key: bytes, data: bytes, *, number: int | None = None, allow_no_subscribers: bool = False
    ) -> Deferred[int]:
        self.published.append((key, data, number))
        self.allowed.append(allow_no_subscribers)
        self.publishing.append(Deferred())
        return self.publishing[-1]


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def factory(service: Service) -> ControlFactory:
    return ControlFactory(lambda gone: FreenetControl(service, gone))


@pytest.fixture
def client(factory: ControlFactory) -> ControlClient:
    return ControlClient(factory)


def test_requests_of_a_client_are_answered(client: ControlClient, service: Service) -> None:
    assert client.ask({"ask": "status"}) == [{"status": {"node": "00"}}]
    assert client.ask({"ask": "next", "key": KEY.hex()}) == [{"next": 18}]
    assert service.users == [KEY]


def test_a_subscribed_client_receives_the_events_of_its_stream(client: ControlClient, service: Service) -> None:
    assert client.ask({"ask": "subscribe", "key": KEY.hex(), "after": 17}) == [{"following": KEY.hex()}]
    assert (service.users, service.after) == ([KEY], [17])
    assert client.ask({"ask": "subscribe", "key": SIGNED.hex()}) == [{"following": SIGNED.hex()}]
    (listener,) = service.listeners
    listener.packets_received(KEY, [Packet(18, b"a"), Packet(19, b"\xff")])
    listener.packets_received(SIGNED, [Packet(0, bytes(96) + b"signed")])
    listener.packets_received(OTHER, [Packet(0, b"not for it")])
    listener.packets_missed(KEY, 20, 22)
    listener.packets_missed(OTHER, 1, 2)
    listener.stream_changed(ParentLost(KEY, "parent-lost"))
    listener.stream_changed(ParentChanged(KEY, 255))
    listener.stream_changed(ParentChanged(OTHER, 255))
    assert client.read() == [
        {"key": KEY.hex(), "number": 18, "data": "a"},
        {"key": KEY.hex(), "number": 19, "data": "\udcff"},
        {"key": SIGNED.hex(), "number": 0, "data": "signed"},
        {"key": KEY.hex(), "missed": [20, 22]},
        {"key": KEY.hex(), "reason": "parent-lost", "change": "Restarting"},
        {"key": KEY.hex(), "parent": "00000000000000ff", "change": "Attached"},
    ]
    client.lose()
    assert (service.users, service.listeners) == ([], [])


def test_a_later_client_receives_retained_packets(
    client: ControlClient, service: Service, factory: ControlFactory
) -> None:
    client.ask({"ask": "subscribe", "key": KEY.hex()})
    late = ControlClient(factory)
    assert late.ask({"ask": "subscribe", "key": KEY.hex(), "after": 4}) == [
        {"following": KEY.hex()},
        {"key": KEY.hex(), "number": 5, "data": "kept"},
    ]
    assert service.users == [KEY, KEY]
    # Asking again changes nothing.
    assert late.ask({"ask": "subscribe", "key": KEY.hex(), "after": 4}) == [{"following": KEY.hex()}]
    late.lose()
    assert service.users == [KEY]
    assert service.listeners == [client.control]


def test_packets_are_published_once_the_node_is_connected_to_the_stream(
    client: ControlClient, service: Service
) -> None:
    service.connecting = []
    question = {"ask": "publish", "key": KEY.hex(), "data": "x \udcff"}
    assert client.ask({**question, "id": 1}, {**question, "number": 7, "id": 2}) == []
    assert service.published == []
    for connected in service.connecting:
        connected.callback(None)
    assert service.published == [(KEY, b"x \xff", None), (KEY, b"x \xff", 7)]
    service.publishing[1].errback(PublishRefused("collision", "it is taken", 8))
    service.publishing[0].callback(18)
    assert client.read() == [
        {"id": 2, "error": "it is taken", "why": "collision", "next": 8},
        {"id": 1, "number": 18},
    ]
    assert service.users == [KEY]
    client.control.close()
    assert service.users == []


def test_packets_of_a_disconnected_client_are_not_published(client: ControlClient, service: Service) -> None:
    service.connecting = []
    client.ask({"ask": "publish", "key": KEY.hex(), "data": "x", "id": 1})
    client.lose()
    service.connecting[0].callback(None)
    assert (service.published, service.users) == ([], [])


def test_invalid_requests_are_answered_with_an_error(client: ControlClient, service: Service) -> None:
    for question, complaint in (
        ({"ask": "subscribe", "key": "xyz"}, "'xyz' is not a key"),
        ({"ask": "next", "key": "name:"}, "'name:' is not a key"),
        ({"ask": "subscribe", "key": KEY.hex(), "after": "x"}, "after 'x' is not a packet number"),
        ({"ask": "subscribe", "key": KEY.hex(), "after": True}, "after True is not a packet number"),
        ({"ask": "dance"}, "unknown request"),
        ({}, "unknown request"),
        ({"ask": "publish", "key": "xyz", "data": "", "id": 1}, "'xyz' is not a key"),
        ({"ask": "publish", "key": KEY.hex(), "data": "", "number": 2**63, "id": 1}, "is not a packet number"),
        ({"ask": "publish", "key": FULL.hex(), "data": "", "id": 1}, "this node has 1 stream already"),
        ({"ask": "next", "key": FULL.hex()}, "this node has 1 stream already"),
    ):
        (answer,) = client.ask(question)
        assert complaint in answer["error"], question
    assert client.ask({"ask": "subscribe", "key": FULL.hex()})[1:] == [{"error": str(TooManyStreams(1))}]
    assert (service.users, service.published) == ([], [])


@pytest.mark.parametrize("data", [b"nonsense\n", b"[]\n", b"\xff\n", b"x" * (MAX_REQUEST + 1)])
def test_malformed_input_closes_the_connection(client: ControlClient, service: Service, data: bytes) -> None:
    client.ask({"ask": "subscribe", "key": KEY.hex()})
    client.control.dataReceived(data)
    assert client.transport.aborted
    assert (service.users, service.listeners) == ([], [])


def test_reading_from_a_flooding_client_pauses(client: ControlClient, service: Service) -> None:
    question = {"ask": "publish", "key": KEY.hex(), "data": "x"}
    client.ask(*({**question, "id": number} for number in range(MAX_PENDING - 1)))
    assert client.transport.producerState == "producing"
    client.ask({**question, "id": MAX_PENDING})
    assert client.transport.producerState == "paused"
    service.publishing[0].callback(1)
    assert client.transport.producerState == "producing"


def test_the_number_of_control_clients_is_limited(factory: ControlFactory) -> None:
    check_client_limit(factory)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=2)
)


@given(st.lists(st.dictionaries(st.sampled_from(["ask", "key", "data", "after", "number", "id"]), json_values)))
def test_arbitrary_requests_are_answered(questions: list[dict[str, Any]]) -> None:
    service = Service()
    client = ControlClient(ControlFactory(lambda gone: FreenetControl(service, gone)))
    for question in questions:
        assert len(client.ask(question)) == 1


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Subscribed(KEY, 0.5, True), {"change": "Subscribed", "root": 0.5, "is_root": True}),
        (SubscribeFailed(KEY, "overload"), {"change": "SubscribeFailed", "reason": "overload"}),
        (ParentLost(KEY, "cycle"), {"change": "Restarting", "reason": "cycle"}),
        (ParentChanged(KEY, 1), {"change": "Attached", "parent": "0000000000000001"}),
        (ParentChanged(KEY, None), {"change": "Attached", "parent": None}),
        (StreamDropped(KEY), {"change": "Dropped"}),
        (StreamRenumbered(KEY, 7), {"change": "Renumbered", "first": 7}),
    ],
)
def test_each_change_of_a_stream_reaches_a_client_under_a_fixed_name(
    event: StreamChange, line: dict[str, Any], client: ControlClient, service: Service
) -> None:
    client.ask({"ask": "subscribe", "key": KEY.hex()})
    (listener,) = service.listeners
    listener.stream_changed(event)
    assert client.read() == [{"key": KEY.hex(), **line}]


def test_every_change_of_a_stream_has_a_fixed_name() -> None:
    assert set(CHANGE_NAMES) == set(get_args(StreamChange))
