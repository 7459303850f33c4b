"""Server-sent event streams of a node."""

from __future__ import annotations

import json
from typing import Any

import pytest
import pytest_twisted
from parcels.web.harness import Memory, Serve, Served, WaitUntil
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs

from fyrehose_twisted.parcels.web import WebConfig
from fyrehose_twisted.parcels.wire.messages import MAX_EVENT
from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.sse import FrameReader, MalformedStream

inline = pytest_twisted.ensureDeferred


def asking(query: str = "", *headers: str) -> bytes:
    # HTTP/1.0 streams are not chunked.
    lines = [f"GET /events{query} HTTP/1.0", "Accept: text/event-stream", *headers, "", ""]
    return "\r\n".join(lines).encode()


def frames(data: bytes) -> list[tuple[str, str, Any]]:
    """Return the frames that a client parses: event name, id and decoded data."""
    body = data.partition(b"\r\n\r\n")[2]
    found = FrameReader().feed(body)
    return [(item.event, item.id, json.loads(item.data)) for item in found if item.event in ("message", "skipped")]


def numbers(data: bytes) -> list[int]:
    return [content["sequence"] for event, _, content in frames(data) if event == "message"]


@inline
async def test_event_stream_delivers_new_events(web: Served) -> None:
    web.node.order(b"before")
    wire = await web.send(asking())
    data = await wire.read(b"id: 1\n\n")
    assert b"HTTP/1.1 200 OK" in data or b"HTTP/1.0 200 OK" in data
    assert b"Content-Type: text/event-stream\r\n" in data
    web.node.order(b'{"a":\n1}', b"\xff")
    assert frames(await wire.read(b"id: 3\n\n")) == [
        ("message", "2", {"sequence": 2, "publisher": "node-1", "json": {"a": 1}}),
        ("message", "3", {"sequence": 3, "publisher": "node-1", "data": "/w=="}),
    ]
    assert len(web.node.listeners) == 1


@inline
async def test_event_stream_resumes_after_the_last_event_id(web: Served, reached: WaitUntil) -> None:
    web.node.order(*[b"x"] * 200)
    for request, first in (
        (asking("", "Last-Event-ID: 150"), 151),
        (asking("?from=3", "Last-Event-ID: 150"), 151),
        (asking("?from=100"), 100),
        (asking("", "Last-Event-ID: 0"), 1),
    ):
        wire = await web.send(request)
        last = web.node.last
        assert numbers(await wire.read(b"id: %d\n\n" % last if first <= last else b"x")) == list(range(first, last + 1))
        web.node.order(b"live")
        assert numbers(await wire.read(b"id: %d\n\n" % (last + 1))) == list(range(first, last + 2))
        wire.transport.loseConnection()
        await reached(lambda: web.site.connections == 0)
    assert web.node.listeners == []


@inline
async def test_event_stream_from_beyond_the_end_is_refused_with_the_next_sequence(web: Served) -> None:
    web.node.order(*[b"x"] * 4)
    for headers, query in (({"Last-Event-ID": "5"}, ""), ({}, "?from=6"), ({"Last-Event-ID": "9"}, "?from=1")):
        answer = await web.ask("GET", f"/events{query}", accept="text/event-stream", **headers)
        assert answer.code == 409, query
        assert (answer.json["error"], answer.json["next"]) == ("beyond-end", 5)
    web.node.order(b"x")
    wire = await web.send(asking("", "Last-Event-ID: 5"))
    web.node.order(b"x")
    assert numbers(await wire.read(b"id: 6\n\n")) == [6]


@inline
async def test_event_stream_reports_skipped_events(web: Served) -> None:
    web.node.order(*[b"x"] * 9)
    web.node.forget(5)
    wire = await web.send(asking("?from=2"))
    assert frames(await wire.read(b"id: 9\n\n"))[0] == ("skipped", "4", {"first": 2, "last": 4})
    assert numbers(wire.data) == [5, 6, 7, 8, 9]
    web.node.jump(20)
    await wire.read(b"id: 19\n\n")
    web.node.order(b"y")
    assert frames(await wire.read(b"id: 20\n\n"))[-2:] == [
        ("skipped", "19", {"first": 10, "last": 19}),
        ("message", "20", {"sequence": 20, "publisher": "node-1", "data": "eQ=="}),
    ]


@inline
async def test_event_stream_is_chunked_and_encodes_data_as_base64(web: Served) -> None:
    wire = await web.send(
        b"GET /events?encoding=base64&from=1 HTTP/1.1\r\nHost: localhost\r\naccept: text/event-stream\r\n\r\n"
    )
    web.node.order(b"1")
    assert b"Transfer-Encoding: chunked" in await wire.read(b'"data":"MQ=="}\nid: 1\n\n\r\n')


@inline
async def test_request_that_does_not_accept_an_event_stream_gets_a_page_or_an_error(web: Served) -> None:
    for headers, query, code in (
        ({"accept": "text/event-stream;q=0"}, "", 200),
        ({"accept": "application/json, text/*"}, "", 200),
        ({"accept": "text/event-stream"}, "?to=4", 400),
        ({"accept": "text/event-stream", "Last-Event-ID": "x"}, "", 400),
        ({"Last-Event-ID": "-1"}, "", 400),
    ):
        answer = await web.ask("GET", f"/events{query}", **headers)
        assert (answer.code, answer.headers["content-type"]) == (code, "application/json"), headers
    wire = await web.send(asking().replace(b"GET", b"HEAD"))
    assert b"text/event-stream" in await wire.closed()


@inline
async def test_event_stream_sends_heartbeats_with_the_mode(memory: Memory, serve: Serve) -> None:
    clock = Clock()
    web = serve(memory, clock=clock)
    wire = await web.send(asking())
    await wire.read(b"id: 0\n\n")
    clock.advance(14.9)
    clock.advance(0.2)
    await wire.read(b": mode Wrk\n")
    memory.no_quorum()
    clock.pump([1.0] * 15)
    data = await wire.read(b": mode Err\n")
    assert data.count(b": mode") == 2
    wire.transport.loseConnection()
    await wire.closed()


class StalledClient:
    """A client that stops reading, with small buffers at both ends."""

    def __init__(self, web: Served, wire: Any) -> None:
        self.web = web
        self.wire = wire
        wire.transport.pauseProducing()

    def fill(self) -> None:
        """Order 4 MB."""
        for _ in range(100):
            self.web.node.order(b"\xff" * 40_000)


def buffered(web: Served) -> int:
    (channel,) = web.site._channels
    return len(channel.transport.dataBuffer) + channel.transport._tempDataLen


@inline
async def test_burst_of_events_is_buffered_within_a_bound(memory: Memory, serve: Serve) -> None:
    web = serve(memory)
    live = await web.send(asking())
    await live.read(b"id: 0\n\n")
    memory.order(*[b"\xff" * 40_000] * 60)
    assert buffered(web) < 65_536 + 2 * MAX_EVENT
    assert numbers(await live.read(b"id: 60\n\n")) == list(range(1, 61))
    live.transport.loseConnection()
    await live.closed()
    most = []
    write = WebRequest.write

    def watched(request: Any, data: bytes) -> None:
        write(request, data)
        transport = request.transport
        most.append(len(transport.dataBuffer) + transport._tempDataLen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WebRequest, "write", watched)
        late = await web.send(asking("?from=1"))
        assert numbers(await late.read(b"id: 60\n\n")) == list(range(1, 61))
    assert max(most) < 65_536 + 2 * MAX_EVENT


@inline
async def test_events_for_a_slow_client_are_buffered_within_a_bound(
    memory: Memory, serve: Serve, reached: WaitUntil
) -> None:
    web = serve(memory)
    wire = await web.send(asking())
    await wire.read(b"id: 0\n\n")
    slow = StalledClient(web, wire)
    for _ in range(2):
        slow.fill()
        assert buffered(web) < 65_536 + 2 * MAX_EVENT
    wire.transport.resumeProducing()
    assert numbers(await wire.read(b"id: 200\n\n")) == list(range(1, 201))
    memory.order(b"live")
    await wire.read(b"id: 201\n\n")


@inline
async def test_slow_client_behind_the_window_is_told_the_skipped_events(
    memory: Memory, serve: Serve, reached: WaitUntil
) -> None:
    web = serve(memory)
    wire = await web.send(asking())
    await wire.read(b"id: 0\n\n")
    slow = StalledClient(web, wire)
    slow.fill()
    memory.forget(99)
    wire.transport.resumeProducing()
    await wire.read(b"id: 100\n\n")
    found = [item for item in frames(wire.data) if item[0] == "skipped"]
    assert len(found) == 1
    assert found[0][2]["last"] == 98
    got = numbers(wire.data)
    assert got == [*range(1, found[0][2]["first"]), 99, 100]


@inline
async def test_stalled_event_stream_client_is_disconnected(memory: Memory, serve: Serve, reached: WaitUntil) -> None:
    clock = Clock()
    web = serve(memory, WebConfig(stall_timeout=20), clock=clock)
    wire = await web.send(asking())
    await wire.read(b"id: 0\n\n")
    StalledClient(web, wire).fill()
    clock.advance(19)
    assert web.site.connections == 1
    clock.advance(2)
    await reached(lambda: web.site.connections == 0)
    wire.transport.resumeProducing()
    await wire.closed()
    metrics = (await web.ask("GET", "/metrics")).body.decode()
    assert 'fyrehose_parcels_web_streams_ended_total{reason="stalled"} 1.0' in metrics
    assert "fyrehose_parcels_web_streams 0.0" in metrics
    assert memory.listeners == []


@inline
async def test_read_error_ends_only_the_event_stream_that_read(web: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    good = await web.send(asking())
    await good.read(b"id: 0\n\n")
    web.node.order(b"x")
    ahead = await web.send(asking("", "Last-Event-ID: 1"))
    await ahead.read(b"id: 1\n\n")
    monkeypatch.setattr(web.node, "events", lambda *arguments: 1 / 0)
    with capturedLogs() as logs:
        await (await web.send(asking("?from=1"))).closed()
        web.node.order(b"y")
    assert [log["log_level"] for log in logs if log["log_level"] >= LogLevel.warn] == [LogLevel.critical]
    assert numbers(await good.read(b"id: 2\n\n")) == [1, 2]
    assert numbers(await ahead.read(b"id: 2\n\n")) == [2]
    with capturedLogs() as logs:
        web.node.jump(9)
    assert [log["log_level"] for log in logs] == [LogLevel.critical] * 2
    await good.closed()
    await ahead.closed()
    assert web.site.streams.ended == {"failed": 3}


@inline
async def test_number_of_event_streams_is_limited(memory: Memory, serve: Serve) -> None:
    web = serve(memory, WebConfig(max_streams=2))
    for _ in range(2):
        await (await web.send(asking())).read(b"id: 0\n\n")
    answer = await web.ask("GET", "/events", accept="text/event-stream")
    assert (answer.code, answer.json["error"]) == (503, "too-many-streams")


@inline
async def test_event_streams_end_when_the_site_closes(web: Served) -> None:
    wire = await web.send(asking())
    await wire.read(b"id: 0\n\n")
    web.site.close()
    await wire.closed()


def test_frame_reader_parses_frames_independently_of_chunking() -> None:
    text = b": c\r\n\r\nevent: a\rid: 7\r\ndata: 1\ndata:2\n\nid: 8\n\ndata: \xc3\xa4\n\nretry: 5\n\n"
    for size in range(1, len(text)):
        reader = FrameReader()
        found = []
        for start in range(0, len(text), size):
            found += reader.feed(text[start : start + size])
        assert [tuple(item) for item in found] == [
            ("comment", "", "c"),
            ("a", "7", "1\n2"),
            ("position", "8", ""),
            ("message", "8", "\xe4"),
        ]


def test_frame_reader_refuses_unbounded_or_invalid_frames() -> None:
    for piece in (b"data: " + b"x" * 1000 + b"\n", b"x" * 1000, b"data: \xff\n"):
        reader = FrameReader()
        fed = 0
        try:
            while fed < 2**22:
                reader.feed(piece)
                fed += len(piece)
        except MalformedStream:
            continue
        raise AssertionError(piece[:20])
