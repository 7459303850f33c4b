"""Record streams over WebSockets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from query.bench import Bench
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    Request,
    TextMessage,
)

from fyrehose_twisted.query.config import QueryConfig


class Socket:
    """WebSocket client."""

    def __init__(self, bench: Bench, path: str) -> None:
        self.client = bench.client()
        self._socket = WSConnection(ConnectionType.CLIENT)
        self._seen = 0
        self.events: list[Any] = []
        self.client.channel.dataReceived(self._socket.send(Request(host="localhost", target=path)))
        self.client.settle()

    def look(self) -> Socket:
        data = self.client.wire.value()
        self._socket.receive_data(data[self._seen :])
        self._seen = len(data)
        self.events += self._socket.events()
        return self

    def send(self, event: Any) -> Socket:
        self.look()
        self.client.channel.dataReceived(self._socket.send(event))
        return self

    @property
    def messages(self) -> list[Any]:
        self.look()
        return [json.loads(event.data) for event in self.events if isinstance(event, TextMessage)]

    @property
    def told(self) -> list[int]:
        return [message["sequence"] for message in self.messages if "sequence" in message]


def test_websocket_delivers_stored_and_live_records(bench: Bench, records: str) -> None:
    bench.numbers(3)
    bench.journal().lose(0, 4, 5)
    bench.numbers(1, first=6)
    client = Socket(bench, f"{records}?from=2")
    assert isinstance(client.look().events[0], AcceptConnection)
    assert client.messages[0] == {"position": "1"}
    assert client.told == [2, 3, 6]
    assert {"skipped": {"epoch": 0, "first": 4, "last": 5}} in client.messages
    bench.numbers(2)
    bench.advance()
    assert client.told == [2, 3, 6, 7, 8]
    bench.advance(16)
    assert client.messages[-1] == {"position": "8"}


def test_websocket_resumes_exactly(bench: Bench, records: str) -> None:
    bench.numbers(5)
    assert Socket(bench, f"{records}?id=3").told == [4, 5]
    assert Socket(bench, f"{records}?last=2&where=n").told == [4, 5]


def test_invalid_query_is_rejected_before_the_upgrade(bench: Bench, records: str) -> None:
    bench.numbers(1)
    for path, code in ((f"{records}?to=5", 400), ("/streams/none/records", 404)):
        (event,) = (event for event in Socket(bench, path).look().events if isinstance(event, RejectConnection))
        assert event.status_code == code


def test_websocket_from_another_site_is_refused(bench: Bench, records: str) -> None:
    bench.numbers(1)
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    headers["Sec-WebSocket-Key"] = "MDEyMzQ1Njc4OTAxMjM0NQ=="
    client = bench.client()
    client.send(records, headers={**headers, "Origin": "http://evil.example"})
    assert client.response().code == 403
    assert bench.site.live_streams.follower_count("fyrehose-test") == 0


@pytest.mark.parametrize("left_out", ["Connection", "Sec-WebSocket-Version", "Sec-WebSocket-Key"])
def test_invalid_handshake_is_rejected(bench: Bench, records: str, left_out: str) -> None:
    bench.numbers(1)
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    headers["Sec-WebSocket-Key"] = "MDEyMzQ1Njc4OTAxMjM0NQ=="
    del headers[left_out]
    answer = bench.ask(records, **{name.lower().replace("-", "_"): value for name, value in headers.items()})
    assert (answer.code, answer.json["error"]) == (400, "bad-request")
    assert bench.site.clients._streams == {}


def test_pings_are_answered_only_while_the_client_reads(bench: Bench, records: str) -> None:
    bench.numbers(1)
    client = Socket(bench, records)
    client.send(Ping(b"one")).look()
    assert [event.payload for event in client.events if isinstance(event, Pong)] == [b"one"]
    client.client.wire.producer.pauseProducing()
    before = client.client.wire.value()
    for _ in range(100):
        client.send(Ping(b"two"))
    assert client.client.wire.value() == before


@pytest.mark.parametrize("event", [TextMessage("x"), BytesMessage(b"x"), TextMessage("x", message_finished=False)])
def test_client_message_ends_the_websocket(bench: Bench, records: str, event: Any) -> None:
    bench.numbers(1)
    client = Socket(bench, records).send(event).look()
    assert client.events[-1].code == 1003
    assert client.client.wire.disconnecting
    assert bench.site.live_streams.ended == {"said something": 1}


def test_garbage_ends_the_websocket(bench: Bench, records: str) -> None:
    bench.numbers(1)
    client = Socket(bench, records)
    client.client.channel.dataReceived(b"\xff" * 100)
    assert client.client.wire.disconnecting


def test_websocket_closes_with_a_handshake_from_either_end(bench: Bench, records: str) -> None:
    bench.numbers(1)
    ours, theirs = Socket(bench, records), Socket(bench, records)
    theirs.send(CloseConnection(1000)).look()
    assert (theirs.events[-1].code, theirs.client.wire.disconnecting) == (1000, True)
    bench.site.close()
    ours.look()
    assert (ours.events[-1].code, ours.client.wire.disconnecting) == (1001, True)
    assert bench.site.live_streams.ended == {"gone": 1, "closed": 1}
    assert bench.site.clients._streams == {}


def test_stalled_websocket_is_disconnected(bench: Bench, records: str) -> None:
    bench.make(QueryConfig(stall_timeout=5))
    bench.numbers(1)
    client = Socket(bench, records)
    client.client.wire.producer.pauseProducing()
    bench.advance(6)
    assert client.client.wire.aborted


def test_disconnected_websocket_is_removed(bench: Bench, records: str) -> None:
    bench.numbers(1)
    client = Socket(bench, records)
    client.client.hang_up()
    assert len(bench.site.live_streams) == 0
    assert bench.site.connections == 0
