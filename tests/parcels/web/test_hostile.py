"""Malformed, oversize, slow and hostile HTTP requests."""

from __future__ import annotations

import random

import pytest
import pytest_twisted
from parcels.web.harness import Memory, Serve, Served, WaitUntil
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.parcels.web import WebConfig, site

inline = pytest_twisted.ensureDeferred

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /events HTTP/1.1\r\nHost: localhost\r\n"


@inline
async def test_oversize_body_is_refused_by_its_declared_length(memory: Memory, serve: Serve) -> None:
    web = serve(memory, WebConfig(max_body=1_000))
    wire = await web.send(POST + b"Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n")
    (answer,) = await wire.responses(1)
    assert (answer.code, answer.json["error"], answer.json["limit"]) == (413, "too-large", 1000)
    assert answer.headers["connection"] == "close"
    wire.send(b"x" * 1001 + GET)
    assert len(await wire.closed()) == len(wire.data)
    assert wire.data.count(b"HTTP/1.1") == 1
    assert memory.log == []
    (answer,) = await (await web.send(POST + b"Content-Length: 1000\r\n\r\n" + b"x" * 1000)).responses(1)
    assert answer.code == 201


@inline
async def test_chunked_body_is_limited(memory: Memory, serve: Serve) -> None:
    web = serve(memory, WebConfig(max_body=1_000))
    chunk = b"1f4\r\n" + b"x" * 500 + b"\r\n"
    wire = await web.send(POST + b"Transfer-Encoding: chunked\r\n\r\n", chunk, chunk, b"0\r\n\r\n" + GET)
    assert [answer.code for answer in await wire.responses(2)] == [201, 200]
    wire = await web.send(POST + b"Transfer-Encoding: chunked\r\n\r\n", chunk, chunk, b"1\r\nx\r\n")
    (answer,) = await wire.responses(1)
    assert answer.code == 413
    wire.send(b"0\r\n\r\n" + GET)
    await wire.closed()
    assert wire.data.count(b"HTTP/1.1") == 1
    assert [len(event.data) for event in memory.log] == [1000]


@inline
async def test_endless_body_is_answered_and_disconnected(memory: Memory, serve: Serve) -> None:
    web = serve(memory, WebConfig(max_body=1_000))
    wire = await web.send(POST + b"Content-Length: 1000000000\r\n\r\n", *[b"x" * 65_536] * 40)
    assert b" 413 " in await wire.closed()


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/2.0\r\n\r\n",
        b"GET /\x01 HTTP/1.1\r\n\r\n",
        b"G(T / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nno header\r\n\r\n",
        b"GET / HTTP/1.1\r\n: x\r\n\r\n",
        b"GET / HTTP/1.1\r\na: b\x00c\r\n\r\n",
        b"GET / HTTP/1.1\r\na: " + b"b" * 20_000 + b"\r\n\r\n",
        b"GET /" + b"b" * 20_000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 600 + b"\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: " + b"b" * 9_000 + b"\r\nc: " + b"b" * 9_000 + b"\r\n\r\n",
        POST + b"Content-Length: -1\r\n\r\n",
        POST + b"Content-Length: 0x1\r\n\r\n",
        POST + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\n",
        POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx",
        POST + b"Transfer-Encoding: gzip\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    ],
)
@inline
async def test_malformed_http_request_is_answered_and_disconnected(web: Served, request_: bytes) -> None:
    with capturedLogs() as logs:
        wire = await web.send(request_)
        await wire.closed()
    (answer,) = await wire.responses(1)
    assert (answer.code, answer.json["error"]) == (400, "bad-request")
    assert web.node.log == []
    assert [log for log in logs if log["log_level"] >= LogLevel.warn] == []


@inline
async def test_unknown_path_is_not_found(web: Served) -> None:
    for path in ("/x", "/events/", "/events/1", "//events", "/callbacks", "/callbacks/0", "/%00", "/../events", "/*"):
        answer = await web.ask("GET", path)
        assert (answer.code, answer.json["error"]) == (404, "not-found"), path
    for path in (b"http://a/events", b"/\xb0"):
        (answer,) = await (await web.send(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")).responses(1)
        assert (answer.code, answer.json["error"]) == (404, "not-found"), path


@inline
async def test_unsupported_method_is_refused_with_the_allowed_ones(web: Served) -> None:
    for path, allowed in (("/events", "GET, HEAD, POST"), ("/health", "GET, HEAD")):
        for method in ("DELETE", "PUT", "PATCH", "TRACE", "CONNECT", "QUERY", "OPTIONS", "get"):
            wire = await web.send(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            (answer,) = await wire.responses(1)
            assert (answer.code, answer.json["error"]) == (405, "method-not-allowed")
            assert answer.headers["allow"] == allowed
    assert 'method="other"' in (await web.ask("GET", "/metrics")).body.decode()


@inline
async def test_pipelined_posts_are_answered_in_order(web: Served) -> None:
    request = POST + b"Content-Length: 2\r\n\r\n"
    wire = await web.send(b"".join(request + b"%02d" % number for number in range(50)))
    assert [answer.json["sequence"] for answer in await wire.responses(50)] == list(range(1, 51))
    assert [event.data for event in web.node.log] == [b"%02d" % number for number in range(50)]


@inline
async def test_slow_request_times_out(memory: Memory, serve: Serve, reached: WaitUntil) -> None:
    clock = Clock()
    web = serve(memory, WebConfig(request_timeout=30), clock=clock)
    head, body, idle = (
        await web.send(b"GET /hea"),
        await web.send(POST + b"Content-Length: 90\r\n\r\nx"),
        await web.wire(),
    )
    await reached(lambda: sum(channel._since is not None for channel in web.site._channels) == 2)
    clock.pump([1.0] * 29)
    for wire in (head, body):
        wire.send(b"x")
    idle.send(GET)
    await idle.responses(1)
    clock.pump([1.0] * 2)
    for wire in (head, body):
        await wire.closed()
        (answer,) = await wire.responses(1)
        assert (answer.code, answer.json["error"]) == (408, "timeout")
    idle.send(POST + b"Content-Length: 1\r\n\r\nx")
    await idle.responses(2)
    clock.pump([1.0] * 59)
    idle.send(GET)
    assert [answer.code for answer in await idle.responses(3)] == [200, 201, 200]
    clock.pump([1.0] * 62)
    await idle.closed()
    assert len(memory.log) == 1


@inline
async def test_slow_body_of_a_refused_request_times_out(memory: Memory, serve: Serve) -> None:
    clock = Clock()
    web = serve(memory, WebConfig(request_timeout=30, max_body=10), clock=clock)
    wire = await web.send(POST + b"Content-Length: 90\r\n\r\nx")
    await wire.responses(1)
    clock.pump([1.0] * 32)
    assert (await wire.closed()).count(b"HTTP/1.1") == 1


@inline
async def test_number_of_http_connections_is_limited(memory: Memory, serve: Serve) -> None:
    web = serve(memory, WebConfig(max_connections=2))
    stream = b"GET /events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
    wires = [await web.send(stream) for _ in range(2)]
    for wire in wires:
        await wire.read(b"id: 0")
    assert await (await web.wire()).closed() == b""
    assert (web.site.refused, web.site.connections) == (1, 2)


@inline
async def test_idle_http_connection_is_evicted_at_the_limit(memory: Memory, serve: Serve) -> None:
    web = serve(memory, WebConfig(max_connections=3))
    stream = await web.send(b"GET /events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
    await stream.read(b"id: 0")
    first, second = [await web.send(b"GET /health HTTP/1.1\r\nHost:") for _ in range(2)]
    await (await web.send(GET)).responses(1)
    assert await first.closed() == b""
    memory.order(b"x")
    await stream.read(b"id: 1")
    second.send(b" localhost\r\n\r\n")
    await second.responses(1)
    assert (web.site.refused, web.site.connections) == (1, 3)


@inline
async def test_requests_without_the_token_are_unauthorized(memory: Memory, serve: Serve) -> None:
    web = serve(memory, token=b"s3cret")
    with capturedLogs() as logs:
        for path in ("/", "/events", "/cluster", "/metrics", "/nothing"):
            for given in (
                {},
                {"authorization": "Bearer s3cre"},
                {"authorization": "Basic s3cret"},
                {"authorization": ""},
            ):
                answer = await web.ask("GET", path, **given)
                assert (answer.code, answer.json["error"]) == (401, "unauthorized"), (path, given)
                assert answer.headers["www-authenticate"] == "Bearer"
        for path in ("/", "/events", "/cluster", "/metrics"):
            assert (await web.ask("GET", path, authorization="Bearer s3cret")).code == 200
        twice = b"GET / HTTP/1.1\r\nAuthorization: Bearer s3cret\r\nAuthorization: Bearer x\r\n\r\n"
        (answer,) = await (await web.send(twice)).responses(1)
        assert answer.code == 400
        assert (await web.ask("POST", "/events", b"x")).code == 401
        for path in ("/health", "/openapi.json"):
            assert (await web.ask("GET", path)).code == 200
    assert "s3cret" not in repr(logs)
    assert memory.log == []
    with pytest.raises(ConfigurationError):
        site(memory, reactor=Clock(), token=b"")


@inline
async def test_requests_from_other_origins_are_refused_by_the_node_site(memory: Memory, serve: Serve) -> None:
    web = serve(memory)
    answer = await web.ask("POST", "/events", b"x", origin="http://evil.example")
    assert (answer.code, answer.json["error"]) == (403, "cross-origin")
    assert memory.log == []
    assert (await web.ask("POST", "/events", b"x", origin=web.url)).code == 201
    assert "access-control-allow-origin" not in (await web.ask("GET", "/events", origin="http://evil.example")).headers
    web = serve(memory, WebConfig(allowed_origin="https://page.example"), token=b"t")
    answer = await web.ask("OPTIONS", "/events", origin="https://page.example")
    assert answer.headers["access-control-allow-origin"] == "https://page.example"
    assert "Authorization" in answer.headers["access-control-allow-headers"]
    answer = await web.ask("POST", "/events", b"x", origin="https://page.example", authorization="Bearer t")
    assert (answer.code, answer.headers["access-control-allow-origin"]) == (201, "https://page.example")


@pytest.mark.parametrize("seed", range(8))
@inline
async def test_mutated_http_requests_leave_no_trace(
    memory: Memory, serve: Serve, reached: WaitUntil, seed: int
) -> None:
    """Mutated requests are answered or end their connection, log nothing and leave no connection behind."""
    rng = random.Random(seed)
    web = serve(memory, WebConfig(max_body=5_000))
    pieces = [
        GET,
        POST + b"Content-Length: 5\r\n\r\n12345",
        b"GET /events?from=1&to=2 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ]
    pieces += [POST + b"Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n2\r\n{}\r\n0\r\n\r\n"]
    with capturedLogs() as logs:
        for _ in range(25):
            data = bytearray(b"".join(rng.choices(pieces, k=rng.randint(1, 4))))
            for _ in range(rng.randint(0, 6)):
                at = rng.randrange(len(data))
                data[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
            wire = await web.wire()
            cut = rng.randrange(len(data))
            wire.send(bytes(data[:cut]), bytes(data[cut:]))
            wire.transport.loseWriteConnection()
            wire.transport.loseConnection() if rng.random() < 0.3 else None
            await reached(lambda wire=wire: wire.lost or b"HTTP/1.1" in wire.data or web.site.connections == 0)
            wire.transport.abortConnection()
            await wire.closed()
    await reached(lambda: web.site.connections == 0)
    assert [log for log in logs if log["log_level"] >= LogLevel.warn] == []
    assert (await web.ask("GET", "/health")).code == 200
