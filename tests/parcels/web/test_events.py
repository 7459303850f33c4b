"""Publishing and reading events over HTTP."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import deque
from typing import Any

import pytest
import pytest_twisted
from parcels.web.harness import Memory, Serve, Served, WaitUntil
from twisted.internet.defer import ensureDeferred, fail
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs

from fyrehose_twisted.errors import KeyReused, MessageTooLarge, NotOrdered, PublishQueueFull, StateFileError
from fyrehose_twisted.parcels.web import WebConfig

inline = pytest_twisted.ensureDeferred


@inline
async def test_posted_event_returns_its_sequence_number(web: Served) -> None:
    answer = await web.ask("POST", "/events", b"\x00\xffone")
    assert (answer.code, answer.json) == (201, {"sequence": 1, "cluster_id": "", "founding": ""})
    assert answer.headers["location"] == "/events?from=1&to=1"
    assert web.node.log[0].data == b"\x00\xffone"


@inline
async def test_posted_json_is_stored_verbatim(web: Served) -> None:
    text = b'{"a":\r\n 1.000, "b": 12345678901234567890123}'
    answer = await web.ask("POST", "/events", text, content_type="application/json; charset=utf-8")
    assert answer.code == 201
    assert web.node.log[0].data == text
    read = await web.ask("GET", "/events")
    assert b"1.000" in read.body
    assert read.json == [{"sequence": 1, "publisher": "node-1", "json": json.loads(text)}]


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"NaN",
        b"[1,]",
        b"\xff",
        b"\xef\xbb\xbf1",
        b"[" * 65 + b"]" * 65,
        b"[" * 40_000,
        b'"\n"',
        b"9" * 5_000,
        b" ",
    ],
)
@inline
async def test_invalid_json_is_refused_only_with_a_json_content_type(web: Served, text: bytes) -> None:
    answer = await web.ask("POST", "/events", text, content_type="application/json")
    assert (answer.code, answer.json["error"]) == (400, "bad-request")
    assert web.node.log == []
    assert (await web.ask("POST", "/events", text)).code == 201
    assert "data" in (await web.ask("GET", "/events")).json[0]


@inline
async def test_brackets_in_json_strings_do_not_count_as_nesting(web: Served) -> None:
    text = b'{"\\"[[": "' + b"[{" * 100 + b'"}'
    assert (await web.ask("POST", "/events", text, content_type="application/json")).code == 201


@pytest.mark.parametrize("name", ["Publisher", "Idempotency-Key"])
@inline
async def test_publisher_and_key_headers_are_printable_and_short(web: Served, name: str) -> None:
    head = b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n" + name.encode() + b": "
    for value in (b"", b"\xe4", b"a" * 65, b"a\x01b", b"\x7f", b"a\r\n" + name.encode() + b": b"):
        (answer,) = await (await web.send(head + value + b"\r\n\r\nx")).responses(1)
        assert (answer.code, answer.json["error"]) == (400, "bad-request"), value
    assert web.node.log == []
    for value in (b"a", b"~" * 64, b"a b"):
        (answer,) = await (await web.send(head + value + b"\r\n\r\nx")).responses(1)
        assert answer.code == 201, value


@inline
async def test_post_with_a_repeated_key_is_ordered_once(web: Served) -> None:
    headers = {"publisher": "me", "idempotency_key": "k-1"}
    assert (await web.ask("POST", "/events", b"x", **headers)).json["sequence"] == 1
    assert (await web.ask("POST", "/events", b"x", **headers)).json["sequence"] == 1
    assert (await web.ask("POST", "/events", b"x", publisher="you", idempotency_key="k-1")).json["sequence"] == 2
    assert [event.publisher for event in web.node.log] == ["me", "you"]


@inline
async def test_post_is_ordered_only_behind_the_expected_event(web: Served) -> None:
    assert (await web.ask("POST", "/events?expect=0", b"a")).json["sequence"] == 1
    headers = {"publisher": "me", "idempotency_key": "k-1"}
    answer = await web.ask("POST", "/events?expect=0", b"b", **headers)
    message = "the last event has number 1, not 0"
    assert (answer.code, answer.json) == (409, {"error": "sequence-changed", "message": message, "last": 1})
    for _ in range(2):
        assert (await web.ask("POST", "/events?expect=1", b"b", **headers)).json["sequence"] == 2
    for query in ("expect=-1", "expect=", "expect=x", "expect=1&expect=1", "expected=1"):
        answer = await web.ask("POST", f"/events?{query}", b"c")
        assert (answer.code, answer.json["error"]) == (400, "bad-request")
    assert [event.data for event in web.node.log] == [b"a", b"b"]


@inline
async def test_post_to_a_minority_is_refused_with_retry_after(web: Served) -> None:
    web.node.no_quorum()
    answer = await web.ask("POST", "/events", b"x")
    assert answer.code == 503
    assert answer.json == {"error": "no-quorum", "message": "1 of 3 members can be reached", "unknown": False}
    assert answer.headers["retry-after"] == "1"
    web.node.refusing = NotOrdered("forgotten", "too old", unknown=True)
    assert (await web.ask("POST", "/events", b"x")).json["unknown"] is True
    web.node.refusing = PublishQueueFull("8 MiB wait")
    answer = await web.ask("POST", "/events", b"x")
    assert (answer.code, answer.json["error"], answer.headers["retry-after"]) == (503, "queue-full", "1")
    web.node.refusing = KeyReused("used before")
    answer = await web.ask("POST", "/events", b"x")
    assert (answer.code, answer.json) == (422, {"error": "key-reused", "message": "used before"})
    web.node.refusing = MessageTooLarge(5, 4)
    answer = await web.ask("POST", "/events", b"x")
    assert (answer.code, answer.json["error"], answer.json["limit"]) == (413, "too-large", 4)


@inline
async def test_publish_error_raised_by_the_node_is_returned(web: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*arguments: object) -> Any:
        raise NotOrdered("shutting-down", "it is shutting down", unknown=False)

    monkeypatch.setattr(web.node, "publish", raising)
    assert (await web.ask("POST", "/events", b"x")).json["error"] == "shutting-down"


@inline
async def test_read_error_is_answered_with_unavailable(web: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: object) -> Any:
        raise StateFileError("the disk is slow")

    web.node.order(b"x")
    monkeypatch.setattr(web.node, "events", failing)
    answer = await web.ask("GET", "/events")
    assert (answer.code, answer.json["error"]) == (503, "unavailable")


@inline
async def test_internal_error_is_logged_and_not_disclosed(web: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for broken in (lambda *arguments: fail(ZeroDivisionError("private")), lambda *arguments: 1 / 0):
        monkeypatch.setattr(web.node, "publish", broken)
        with capturedLogs() as logs:
            answer = await web.ask("POST", "/events", b"x")
        assert (answer.code, answer.json["error"]) == (500, "internal")
        assert b"private" not in answer.body
        assert [log["log_level"] for log in logs if log["log_level"] >= LogLevel.warn] == [LogLevel.critical]


@inline
async def test_client_that_disconnects_during_a_post_causes_no_error(web: Served, reached: WaitUntil) -> None:
    web.node.held = deque()
    request = b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"
    with capturedLogs() as logs:
        for _ in range(2):
            wire = await web.send(request)
            await reached(lambda: bool(web.node.held))
            wire.transport.loseConnection()
            await wire.closed()
            await reached(lambda: web.site.connections == 0)
            web.node.held.pop()()
    assert [log for log in logs if log["log_level"] >= LogLevel.warn] == []


@inline
async def test_post_times_out_with_an_uncertain_outcome(memory: Memory, serve: Serve, reached: WaitUntil) -> None:
    clock = Clock()
    web = serve(memory, WebConfig(publish_timeout=10), clock=clock)
    memory.held = deque()
    wires = [
        await web.send(b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx") for _ in range(2)
    ]
    await reached(lambda: len(memory.held) == 2)
    clock.pump([1.0] * 11)
    for wire in wires:
        (answer,) = await wire.responses(1)
        assert (answer.code, answer.json["error"], answer.json["unknown"]) == (503, "timeout", True)
    with capturedLogs() as logs:
        while memory.held:
            memory.held.pop()()
    assert logs == []
    for wire in wires:
        memory.held = None
        wire.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert [answer.code for answer in await wire.responses(2)] == [503, 200]


@inline
async def test_event_range_returns_json_or_base64_items(web: Served) -> None:
    assert (await web.ask("GET", "/events")).json == []
    web.node.order(b"1", b"\x80", b'"3"', b"{}")
    page = (await web.ask("GET", "/events")).json
    assert [item["sequence"] for item in page] == [1, 2, 3, 4]
    assert [item.get("json") for item in page] == [1, None, "3", {}]
    assert page[1]["data"] == b64encode(b"\x80").decode()
    assert all(("data" in item) != ("json" in item) for item in page)
    plain = (await web.ask("GET", "/events?encoding=base64&from=3")).json
    assert [item["data"] for item in plain] == [b64encode(data).decode() for data in (b'"3"', b"{}")]
    for query, numbers in {
        "from=2": [2, 3, 4],
        "to=2": [1, 2],
        "from=2&to=3": [2, 3],
        "from=4&to=9": [4],
        "from=5": [],
        "from=9": [],
        "from=3&to=2": [],
    }.items():
        answer = await web.ask("GET", f"/events?{query}")
        assert [item["sequence"] for item in answer.json] == numbers, query
        assert "link" not in answer.headers


@inline
async def test_linearizable_range_waits_until_the_node_is_up_to_date(web: Served, reached: WaitUntil) -> None:
    web.node.order(b"a")
    web.node.held = []
    reading = ensureDeferred(web.ask("GET", "/events?linearizable=1&encoding=base64"))
    await reached(lambda: web.node.held)
    web.node.order(b"b")
    web.node.held.pop()()
    assert [one["sequence"] for one in (await reading).json] == [1, 2]
    assert [one["sequence"] for one in (await web.ask("GET", "/events?linearizable=0&from=2")).json] == [2]


@inline
async def test_linearizable_range_is_refused_if_the_node_may_lag(web: Served) -> None:
    web.node.refusing = NotOrdered("no-quorum", "1 of 3 members can be reached", unknown=True)
    answer = await web.ask("GET", "/events?linearizable=1")
    assert (answer.code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json == {"error": "no-quorum", "message": "1 of 3 members can be reached"}
    for query, accept in (("linearizable=2", "*/*"), ("linearizable=1", "text/event-stream")):
        answer = await web.ask("GET", f"/events?{query}", accept=accept)
        assert (answer.code, answer.json["error"]) == (400, "bad-request")


@inline
async def test_long_event_range_is_paged(memory: Memory, serve: Serve) -> None:
    web = serve(memory, WebConfig(page_events=3, page_bytes=250))
    memory.order(*[b"x"] * 7, b"y" * 200, b"y" * 200, b"y" * 200)
    found, pages, path = [], 0, "/events?from=2&to=10&encoding=base64"
    while path:
        answer = await web.ask("GET", path)
        found += [item["sequence"] for item in answer.json]
        pages += 1
        link = answer.headers.get("link", "")
        assert not link or link.endswith('>; rel="next"')
        path = link.partition(">")[0][1:]
    assert found == list(range(2, 11))
    assert pages == 4


@inline
async def test_range_of_evicted_events_is_gone(web: Served) -> None:
    web.node.order(*[b"x"] * 9)
    web.node.forget(5)
    for query in ("from=4", "from=1&to=2"):
        answer = await web.ask("GET", f"/events?{query}")
        assert answer.code == 410
        assert {key: answer.json[key] for key in ("error", "oldest", "last")} == {
            "error": "not-held",
            "oldest": 5,
            "last": 9,
        }
    assert [item["sequence"] for item in (await web.ask("GET", "/events?to=6")).json] == [5, 6]


@pytest.mark.parametrize(
    "query",
    [
        "from=0",
        "from=-1",
        "from=",
        "from=x",
        "from=1.0",
        "from=%201",
        "from=1_0",
        "from=9223372036854775808",
        "from=" + "9" * 5_000,
        "from=%D9%A1",
        "to=0",
        "from=1&from=2",
        "encoding=utf-8",
        "encoding=",
        "form=1",
        "%FF%FE=1",
    ],
)
@inline
async def test_invalid_event_query_is_refused(web: Served, query: str) -> None:
    (answer,) = await (await web.send(f"GET /events?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())).responses(1)
    assert (answer.code, answer.json["error"]) == (400, "bad-request")


@inline
async def test_head_of_events_has_no_body(web: Served) -> None:
    web.node.order(b"1")
    wire = await web.send(
        b"HEAD /events HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    data = await wire.read(b'"why"')
    head, _, rest = data.partition(b"\r\n\r\n")
    assert b"Content-Length: 46" in head
    assert rest.startswith(b"HTTP/1.1 200")
