"""HTTP resources of the frontend."""

from __future__ import annotations

import gzip
import json
import re
from typing import Any, NamedTuple

import pytest
from suite.frontend_bench import Frontend
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from fyrehose_twisted.errors import PublishTimeout
from fyrehose_twisted.fyrehose.frontend import service
from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.wire.envelope import MAX_ENVELOPED
from fyrehose_twisted.fyrehose.wire.message_key import add_key
from fyrehose_twisted.fyrehose.wire.packets import MAX_HOLDINGS, Holding
from fyrehose_twisted.web.site import WebSite
from fyrehose_twisted.web.tokens import Tokens

NDJSON = "application/x-ndjson"


class Response(NamedTuple):
    """An HTTP response."""

    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire(StringTransport):
    """An in-memory connection."""

    def setTcpNoDelay(self, enabled: bool) -> None:  # noqa: N802
        pass

    def abortConnection(self) -> None:
        self.disconnecting = True


class Client:
    """One connection to a frontend."""

    def __init__(self, site: WebSite, host: str) -> None:
        self.wire = Wire(IPv4Address("TCP", "127.0.0.1", 8481), IPv4Address("TCP", host, 40_000))
        self.channel = site.buildProtocol(self.wire.getPeer())
        self.channel.makeConnection(self.wire)

    def send(self, path: str, body: bytes | None, headers: dict[str, str]) -> Client:
        given = {"Host": "localhost", **headers}
        method = given.pop("Method", "GET" if body is None else "POST")
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
        lines += [f"Content-Length: {len(body or b'')}", "", ""]
        self.channel.dataReceived("\r\n".join(lines).encode() + (body or b""))
        return self

    @property
    def answered(self) -> bool:
        return bool(self.wire.value())

    @property
    def response(self) -> Response:
        head, _, body = self.wire.value().partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        return Response(int(status.split()[1]), headers, body)

    def hang_up(self) -> None:
        self.channel.connectionLost(Failure(ConnectionDone()))


class Site:
    """HTTP site of a frontend with a fake publisher."""

    def __init__(self, config: FrontendConfig | None = None, tokens: Tokens | None = None, kept: int = 0) -> None:
        frontend = Frontend(config, tokens, kept)
        self.clock, self.publish_queue, self.publisher = frontend.clock, frontend.publish_queue, frontend.publisher
        self.site = service._make_site(frontend.publish_queue, frontend.lines, frontend.config, tokens, frontend.clock)

    def begin(self, path: str, body: bytes | None = None, host: str = "127.0.0.1", **headers: str) -> Client:
        """Send a request; ``content_type=`` is a header."""
        names = {name.replace("_", "-").title(): value for name, value in headers.items()}
        return Client(self.site, host).send(path, body, names)

    def ask(self, path: str, body: bytes | None = None, **more: Any) -> Response:
        """Send a request and return its immediate response."""
        client = self.begin(path, body, **more)
        response = client.response
        client.hang_up()
        return response

    def put(self, body: bytes, **more: Any) -> Response:
        """Send a publish request."""
        return self.ask("/messages", body, **more)


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.mark.parametrize("kind", ["", "text/plain", "application/octet-stream", "application/x-www-form-urlencoded"])
def test_a_body_is_published_as_one_message(site: Site, kind: str) -> None:
    body = b"one\ntwo\r\n\x00\xff"
    response = site.put(body, **({"content_type": kind} if kind else {}))
    assert (response.code, response.json) == (201, {"sequence": 1})
    assert response.headers["content-type"] == "application/json"
    assert site.publisher.messages == [body]
    assert site.put(b"x").json == {"sequence": 2}


@pytest.mark.parametrize("method", ["POST", "HEAD"])
def test_a_response_is_one_write_and_has_a_date(site: Site, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []
    monkeypatch.setattr(Wire, "write", lambda wire, data: writes.append(data))
    monkeypatch.setattr(Wire, "writeSequence", lambda wire, pieces: writes.extend(pieces))
    path, body = ("/messages", b"x") if method == "POST" else ("/health", None)
    site.begin(path, body, method=method)
    (response,) = writes
    head, _, content = response.partition(b"\r\n\r\n")
    assert (b'"sequence":1' in content) == (method == "POST")
    assert re.search(rb"\r\nDate: \w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT\r\n", head)
    assert re.search(rb"\r\nContent-Length: [1-9]", head)


def test_a_gzip_body_is_published_decompressed_and_other_codings_are_refused(site: Site) -> None:
    packed = gzip.compress(b'{"n": 1}\n{"n": 2}\n')
    assert site.put(packed, content_type=NDJSON, content_encoding="gzip").json == {"sequences": [1, 2]}
    assert site.put(gzip.compress(b"x"), content_encoding="gzip").json == {"sequence": 3}
    assert site.publisher.messages == [b'{"n": 1}', b'{"n": 2}', b"x"]
    unknown = site.put(b"x", content_encoding="br")
    assert (unknown.code, unknown.json["error"], unknown.headers["accept-encoding"]) == (415, "unknown-coding", "gzip")
    assert site.put(b"x", content_encoding="gzip").code == 400
    assert site.put(gzip.compress(bytes(2**24)), content_encoding="gzip").code == 413
    assert len(site.publisher.messages) == 3


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8"])
def test_an_invalid_json_body_is_refused(site: Site, kind: str) -> None:
    body = b' {"a":  [1, 2]}\n'
    assert site.put(body, content_type=kind).code == 201
    assert site.publisher.messages == [body]
    for wrong in (b'{"a": 1', b"NaN", b"\xff", b'"' + b"x" * 10, b"[" * 65 + b"]" * 65, b"{} {}"):
        response = site.put(wrong, content_type=kind)
        assert (response.code, response.json["error"]) == (400, "bad-request"), wrong
        assert response.json["message"].startswith("the body is not JSON: ")
    assert len(site.publisher.messages) == 1


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/ndjson;charset=utf-8", "application/jsonl"])
def test_each_line_of_an_ndjson_body_is_a_message(site: Site, kind: str) -> None:
    response = site.put(b'{"n": 1}\n 2 \r\n"3"\n', content_type=kind)
    assert (response.code, response.json) == (201, {"sequences": [1, 2, 3]})
    assert site.publisher.messages == [b'{"n": 1}', b" 2 ", b'"3"']
    assert site.put(b"4\n5", content_type=kind).json == {"sequences": [4, 5]}
    assert site.put(b"6", content_type=kind).json == {"sequences": [6]}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"1\n{\n3\n", "line 2 is not JSON: "),
        (b"1\n\n3\n", "line 2 is not JSON: "),
        (b"1\n\xff\n", "line 2 is not JSON: "),
        (b"\n", "line 1 is not JSON: "),
        (b"1\n" * 11, "there are 11 lines; one request may have 10"),
    ],
)
def test_an_invalid_line_refuses_the_whole_ndjson_body(body: bytes, said: str) -> None:
    site = Site(FrontendConfig(batch_messages=10))
    response = site.put(body, content_type=NDJSON)
    assert (response.code, response.json["error"]) == (400, "bad-request")
    assert response.json["message"].startswith(said)
    assert site.publisher.messages == []
    assert site.publish_queue.rate_limiter.wait_time("127.0.0.1") == 0
    assert site.put(b"1\n" * 10, content_type=NDJSON).code == 201


@pytest.mark.parametrize("kind", ["text/plain", "application/json", NDJSON])
def test_an_empty_body_is_refused(site: Site, kind: str) -> None:
    response = site.put(b"", content_type=kind)
    assert (response.code, response.json["message"]) == (400, "a message must not be empty")
    assert site.publisher.messages == []


def test_a_body_or_line_that_is_too_large_is_refused() -> None:
    site = Site(FrontendConfig(max_body=200_000))
    longest = b'"' + b"x" * (MAX_ENVELOPED - 2) + b'"'
    assert site.put(longest).code == 201
    assert site.put(longest + b"\n" + longest + b"\r\n", content_type=NDJSON).code == 201
    published = len(site.publisher.messages)
    refused = [
        (b"x" * (MAX_ENVELOPED + 1), "text/plain", MAX_ENVELOPED),
        (b"1\n" + longest[:-1] + b'x"', NDJSON, MAX_ENVELOPED),
        (b"x" * 200_001, NDJSON, 200_000),
    ]
    for body, kind, limit in refused:
        response = site.put(body, content_type=kind)
        assert (response.code, response.json["error"], response.json["limit"]) == (413, "too-large", limit)
    assert len(site.publisher.messages) == published


def test_http_messages_per_client_are_rate_limited() -> None:
    site = Site(FrontendConfig(messages_per_client=10, burst=1))
    assert site.put(b"1\n" * 35, content_type=NDJSON).code == 201
    response = site.put(b"x")
    assert (response.code, response.json["error"]) == (429, "too-many-messages")
    assert response.headers["retry-after"] == "3"
    assert site.put(b"x", host="127.0.0.2").code == 201
    site.clock.advance(2.6)
    assert site.put(b"x").code == 201


def test_queued_bytes_per_http_client_are_limited() -> None:
    site = Site(FrontendConfig(waiting_bytes=1_000, waiting_bytes_per_client=600))
    site.publisher.full = True
    for _ in range(2):
        assert not site.begin("/messages", b"x" * 200).answered
    own = site.put(b"x" * 200)
    assert (own.code, own.json["error"], own.headers["retry-after"]) == (429, "too-much-waits", "1")
    assert not site.begin("/messages", b"x" * 200, host="127.0.0.2").answered
    all_ = site.put(b"x" * 200, host="127.0.0.3")
    assert (all_.code, all_.json["error"], all_.headers["retry-after"]) == (503, "busy", "1")
    assert all_.json["unknown"] is False


def test_http_requests_per_client_are_rate_limited() -> None:
    site = Site(FrontendConfig(requests_per_client=1))
    assert [site.put(b"x").code for _ in range(3)] == [201, 201, 429]
    assert site.put(b"x").json["error"] == "too-many-requests"


def test_a_request_is_answered_when_its_message_is_published(site: Site) -> None:
    site.publisher.held = []
    one, many = site.begin("/messages", b"x"), site.begin("/messages", b"1\n2", content_type=NDJSON)
    assert (one.answered, many.answered) == (False, False)
    site.publisher.answer()
    assert (one.response.json, many.response.json) == ({"sequence": 1}, {"sequences": [2, 3]})


def test_a_message_that_was_not_sent_is_reported_as_not_published(site: Site) -> None:
    site.publish_queue.connection_changed(False)
    client = site.begin("/messages", b"x")
    site.clock.pump([1] * 31)
    response = client.response
    assert (response.code, response.headers["retry-after"]) == (503, "1")
    assert (response.json["error"], response.json["unknown"]) == ("timeout", False)
    assert "the backbone does not answer" in response.json["message"]
    site.publish_queue.connection_changed(True)
    assert site.publisher.messages == []


def test_the_outcome_of_an_unacknowledged_message_is_unknown(site: Site) -> None:
    site.publisher.held = []
    client = site.begin("/messages", b"1\n2\n", content_type=NDJSON)
    site.publisher.answer(PublishTimeout("late"))
    response = client.response
    assert (response.code, response.json["error"], response.json["unknown"]) == (503, "timeout", True)


def test_a_request_is_answered_when_enough_journals_have_synced_its_message() -> None:
    site = Site(kept=1)
    one, two = site.begin("/messages", b"x"), site.begin("/messages", b"1\n2", content_type=NDJSON, kept="2")
    assert not one.answered
    site.publish_queue.journals.holdings_received([Holding(1, 2), Holding(1, 0)])
    assert (one.response.code, one.response.json, two.answered) == (201, {"sequence": 1}, False)
    site.publish_queue.journals.holdings_received([Holding(1, 3), Holding(1, 3)])
    assert (two.response.code, two.response.json) == (201, {"sequences": [2, 3]})


def test_a_message_with_too_few_journals_is_answered_with_its_number(site: Site) -> None:
    site.publish_queue.journals.holdings_received([Holding(1, 9), Holding(1, 0)])
    one = site.begin("/messages", b"x", kept="2")
    many = site.begin("/messages", b"1\n2", content_type=NDJSON, kept="16")
    site.clock.pump([1] * 31)
    assert (one.response.code, many.response.code) == (504, 504)
    said = "message 1 is published, and 1 of 2 durable journals had synced it in time"
    assert one.response.json == {"error": "not-kept", "message": said, "had": 1, "wanted": 2, "sequence": 1}
    assert (many.response.json["sequences"], many.response.json["wanted"]) == ([2, 3], 16)
    assert "\nfyrehose_frontend_unkept_total 3.0\n" in site.ask("/metrics").body.decode()


def test_a_repeated_request_waits_for_the_same_message_to_be_kept(site: Site) -> None:
    site.publish_queue.journals.holdings_received([Holding(1, 0)])
    first = site.begin("/messages", b"x", kept="1", idempotency_key="k")
    site.clock.pump([1] * 31)
    assert first.response.code == 504
    again = site.begin("/messages", b"x", kept="1", idempotency_key="k")
    assert not again.answered
    site.publish_queue.journals.holdings_received([Holding(1, 1)])
    assert (again.response.code, again.response.json) == (201, {"sequence": 1})
    assert site.put(b"x", idempotency_key="k").json == {"sequence": 1}
    assert site.publisher.messages == [b"x"]
    assert "\nfyrehose_frontend_keys 1.0\n" in site.ask("/metrics").body.decode()


def test_a_wait_for_journals_ends_when_the_client_disconnects(site: Site) -> None:
    client = site.begin("/messages", b"x", kept="1")
    assert len(site.publish_queue) == 1
    client.hang_up()
    assert len(site.publish_queue) == 0


def test_a_request_may_ask_for_more_journals_and_not_for_fewer() -> None:
    site = Site(kept=2)
    site.publish_queue.journals.holdings_received([Holding(1, 99)] * 16)
    for kept in ("1", "0", "17", "-1", "two", ""):
        response = site.put(b"x", kept=kept)
        assert (response.code, response.json["message"][:34]) == (400, "Kept must be a number from 2 to 16"), kept
    assert site.publisher.messages == []
    assert [site.put(b"x", kept=kept).code for kept in ("2", "16")] == [201, 201]
    described = site.ask("/openapi.json").json["paths"]["/messages"]["post"]["parameters"][0]
    pattern = described["schema"]["pattern"]
    taken = [number for number in range(100) if re.search(pattern, str(number))]
    assert (described["name"], taken) == ("Kept", list(range(2, MAX_HOLDINGS + 1)))


def test_invalid_and_conflicting_idempotency_keys_are_refused(site: Site) -> None:
    assert site.put(b"x", idempotency_key="k").code == 201
    other = site.put(b"y", idempotency_key="k")
    assert (other.code, other.json["error"]) == (422, "key-reused")
    assert site.put(b"1", content_type=NDJSON, idempotency_key="l").json == {"sequences": [2]}
    assert site.put(b"1", idempotency_key="l").code == 422  # Its response would have another form.
    site.publisher.held = []
    unknown = site.begin("/messages", b"z", idempotency_key="m")
    site.publisher.answer(PublishTimeout("late"))
    assert (unknown.response.code, unknown.response.json["unknown"]) == (503, True)
    again = site.put(b"z", idempotency_key="m")
    assert (again.code, again.json["error"], again.json["unknown"]) == (409, "outcome-unknown", True)
    assert site.put(b"x", idempotency_key="").code == site.put(b"x", idempotency_key="\x7f").code == 400
    assert site.publisher.messages == [b"x", b"1", b"z"]


def test_stopping_answers_pending_requests(site: Site) -> None:
    site.publisher.full = True
    client = site.begin("/messages", b"x")
    site.publish_queue.stop()
    assert (client.response.code, client.response.json["error"]) == (503, "stopping")
    assert client.response.json["unknown"] is False


def test_messages_of_a_disconnected_client_are_not_sent(site: Site) -> None:
    site.publisher.full = True
    client = site.begin("/messages", b"x")
    client.hang_up()
    assert len(site.publish_queue) == 0
    site.publisher.make_room()
    assert site.publisher.messages == []
    site.publisher.held = []
    late = site.begin("/messages", b"y")
    late.hang_up()
    site.publisher.answer()
    assert not late.answered
    assert site.publish_queue.published == 1  # The message is published and counted nevertheless.


def test_a_client_that_disconnects_after_the_answer_abandons_nothing(site: Site) -> None:
    site.publisher.held = []
    client = site.begin("/messages", b"x")
    site.publisher.answer()
    before = client.wire.value()
    client.hang_up()
    assert client.wire.value() == before
    assert site.publish_queue.failed == {}


def test_health_reports_whether_the_backbone_answers(site: Site) -> None:
    assert site.ask("/health").json == {"backbone": True, "waiting_bytes": 0}
    site.publish_queue.connection_changed(False)
    site.begin("/messages", b"x" * 36)
    response = site.ask("/health")
    assert (response.code, response.headers["retry-after"]) == (503, "1")
    assert response.json == {"backbone": False, "waiting_bytes": 100}


def test_openapi_describes_the_resources() -> None:
    content = Site().ask("/openapi.json").json
    assert content["openapi"] == "3.1.0"
    assert set(content["paths"]) == {"/messages", "/health", "/metrics", "/openapi.json"}
    assert "security" not in content
    with_token = Site(tokens=Tokens({"ann": b"a" * 16})).ask("/openapi.json").json
    assert with_token["security"] == [{"token": []}]
    assert "401" in with_token["paths"]["/messages"]["post"]["responses"]
    assert with_token["paths"]["/health"]["get"]["security"] == []


def test_metrics_of_the_frontend_and_its_site(site: Site) -> None:
    site.put(b"12345")
    site.publish_queue.connection_changed(False)
    site.begin("/messages", b"x").hang_up()
    text = site.ask("/metrics").body.decode()
    for line in (
        "fyrehose_frontend_published_total 1.0",
        "fyrehose_frontend_published_bytes_total 5.0",
        'fyrehose_frontend_failed_total{reason="abandoned"} 1.0',
        "fyrehose_frontend_backbone 0.0",
        'fyrehose_frontend_web_requests_total{method="POST",route="/messages",status="201"} 1.0',
    ):
        assert f"\n{line}\n" in text


def test_invalid_requests_are_refused(site: Site) -> None:
    assert site.put(b"x", method="GET").code == 405
    assert site.ask("/messages").headers["allow"] == "POST"
    assert site.ask("/").code == 404
    assert site.ask("/messages?x=1", b"x").code == 400
    assert site.publisher.messages == []


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", NDJSON])
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:81"},
        {"host": "evil.example", "origin": "http://evil.example"},
        {"host": "evil.example"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors"},
    ],
)
def test_cross_origin_requests_of_browsers_are_refused(site: Site, headers: dict[str, str], kind: str) -> None:
    host = {"Host": headers["host"]} if "host" in headers else {}
    names = {name.replace("_", "-").title(): value for name, value in headers.items() if name != "host"}
    client = Client(site.site, "127.0.0.1").send("/messages", b"1\n", {"Content-Type": kind, **names, **host})
    assert client.response.code == (421 if host else 403)
    assert site.publisher.messages == []


def test_pages_of_the_allowed_origin_may_publish() -> None:
    site = Site(FrontendConfig(allowed_origin="https://good.example"))
    asked = site.ask("/messages", method="OPTIONS", origin="https://good.example")
    assert (asked.code, asked.headers["access-control-allow-methods"]) == (204, "POST")
    response = site.put(b"x", origin="https://good.example")
    assert (response.code, response.headers["access-control-allow-origin"]) == (201, "https://good.example")
    assert site.put(b"x", origin="https://evil.example").code == 403


def test_requests_need_a_valid_token() -> None:
    site = Site(FrontendConfig(messages_per_client=10, burst=1), Tokens({"ann": b"a" * 16, "bob": b"b" * 16}))
    for wrong in ({}, {"authorization": "Bearer " + "c" * 16}, {"authorization": "Basic " + "a" * 16}):
        assert site.put(b"x", **wrong).code == 401
    assert site.ask("/metrics").code == 401
    assert site.ask("/health").code == 200
    assert site.publisher.messages == []
    assert site.put(b"1\n" * 20, content_type=NDJSON, authorization="Bearer " + "a" * 16).code == 201
    assert site.put(b"x", authorization="Bearer " + "a" * 16).code == 429  # Limits apply per token, not per address.
    assert site.put(b"x", authorization="Bearer " + "b" * 16).code == 201


def test_a_key_is_added_to_each_message_of_a_request(site: Site) -> None:
    assert site.ask("/messages?key=a%FF", b"x").code == 201
    assert site.ask("/messages?key=b", b"1\n2\n", content_type="application/x-ndjson").code == 201
    assert site.publisher.messages == [add_key(b"x", b"a\xff"), add_key(b"1", b"b"), add_key(b"2", b"b")]
    for key in ("", "k" * 256):
        response = site.ask(f"/messages?key={key}", b"x")
        assert (response.code, response.json["message"]) == (400, f"key of {len(key)} bytes; give 1 to 255 bytes")


def test_the_key_of_a_message_is_part_of_an_idempotent_request(site: Site) -> None:
    codes = [
        site.ask(path, b"x", idempotency_key="once").code
        for path in ("/messages?key=a", "/messages?key=a", "/messages?key=b", "/messages")
    ]
    assert codes == [201, 201, 422, 422]
    assert site.publisher.messages == [add_key(b"x", b"a")]
