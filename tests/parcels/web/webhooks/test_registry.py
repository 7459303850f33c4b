"""Webhook registration over HTTP and deliveries on a manual clock."""

from __future__ import annotations

import hmac
import json
from collections import deque
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
import pytest_twisted
from parcels.web.harness import FakeSender, Memory, Serve, WaitUntil
from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.python.failure import Failure
from twisted.web.client import ResponseFailed

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.parcels.web import CallbackFile, Callbacks, WebConfig
from fyrehose_twisted.parcels.web.webhooks.callback import Callback
from fyrehose_twisted.parcels.web.webhooks.ssrf import AddressNotAllowed

inline = pytest_twisted.ensureDeferred

A, B = "http://a.example/hook", "https://b.example/"


class Setting:
    """Webhooks of an in-memory cluster."""

    def __init__(
        self, memory: Memory, sender: FakeSender, config: WebConfig | None = None, path: Path | None = None
    ) -> None:
        self.memory = memory
        self.sender = sender
        self.clock = Clock()
        self.clock.advance(1_000.5)
        self.letters: list[Any] = []
        self.callbacks = Callbacks(
            memory,
            sender,
            config or WebConfig(),
            self.clock,
            file=CallbackFile(path) if path else None,
            on_dead_letter=self.letters.append,
            rng=Random(1),
        )
        self.callbacks.start()

    def add(self, url: str = A, first: int | None = None, secret: str | None = None) -> Callback:
        found: list[Callback | Failure] = []
        self.callbacks.add(url, first, secret).addBoth(found.append)
        (added,) = found
        if isinstance(added, Failure):
            added.raiseException()
        return cast(Callback, added)


@pytest.fixture
def setting(memory: Memory, sender: FakeSender) -> Setting:
    return Setting(memory, sender)


def test_webhook_receives_events_in_order(setting: Setting) -> None:
    setting.memory.recreate_cluster("00c0ffee00c0ffee")
    setting.memory.order(b"before")
    callback = setting.add(secret="k\u00e9y")
    setting.memory.order(b"one", b"two", publisher="B\u00e4r\r\n%x")
    setting.memory.order(b"three")
    assert [body for _, _, body in setting.sender.posts] == [b"one", b"two", b"three"]
    url, headers, _ = setting.sender.posts[0]
    assert url == A
    signed = hmac.digest("k\u00e9y".encode(), b"1000.2.one", "sha256").hex()
    assert headers == {
        "Content-Type": "application/octet-stream",
        "User-Agent": "fyrehose-parcels",
        "Event-Sequence": "2",
        "Event-Publisher": "B%C3%A4r%0D%0A%25x",
        "Event-Cluster": "test",
        "Event-Cluster-Id": "00c0ffee00c0ffee",
        "Event-Founding": "00c0ffee00c0ffee",
        "Event-Timestamp": "1000",
        "Event-Signature": "sha256=" + signed,
    }
    assert (callback.next, callback.delivered, setting.callbacks.delivered) == (5, 3, 3)


def test_webhook_may_start_at_an_earlier_event(setting: Setting) -> None:
    setting.memory.order(*[b"x"] * 100)
    setting.add(first=40)
    setting.memory.order(b"y")
    assert setting.sender.sequences() == list(range(40, 102))
    setting.add(B, first=103)
    setting.memory.order(b"z", b"z")
    assert setting.sender.sequences(B) == [103]


def test_webhook_has_one_delivery_in_flight_and_blocks_no_other(setting: Setting) -> None:
    setting.add(A)
    setting.add(B)
    setting.sender.held[A] = deque()
    setting.memory.order(b"1", b"2")
    setting.memory.order(b"3")
    assert setting.sender.sequences(A) == [1]
    assert setting.sender.sequences(B) == [1, 2, 3]
    for count in (2, 3, 3):
        setting.sender.held[A].popleft().callback(200)
        assert setting.sender.sequences(A) == list(range(1, count + 1))


@pytest.mark.parametrize("status", [199, 300, 302, 400, 404, 410, 500, 503])
def test_failed_delivery_is_retried_with_backoff(setting: Setting, status: int) -> None:
    callback = setting.add()
    setting.sender.answers += [status] * 3
    setting.memory.order(b"1", b"2")
    assert setting.sender.sequences() == [1]
    assert callback.last_error == f"status {status}"
    pauses = []
    for count in (2, 3, 4):
        (call,) = setting.clock.getDelayedCalls()
        pauses.append(call.getTime() - setting.clock.seconds())
        setting.clock.advance(pauses[-1] - 0.001)
        assert len(setting.sender.posts) == count - 1
        setting.clock.advance(0.002)
    assert setting.sender.sequences() == [1, 1, 1, 1, 2]
    for pause, most in zip(pauses, (1, 2, 4), strict=True):
        assert most / 2 <= pause <= most
    assert len({round(pause / most, 6) for pause, most in zip(pauses, (1, 2, 4), strict=True)}) == 3
    assert (callback.next, callback.attempts, callback.last_error) == (3, 0, None)
    assert setting.callbacks.failed_attempts == 3


def test_exhausted_delivery_becomes_a_dead_letter(setting: Setting) -> None:
    callback = setting.add()
    setting.sender.answers += [500, TimeoutError(), ConnectionRefusedError("no"), *[500] * 5]
    setting.memory.order(b"lost", b"next")
    errors = [callback.last_error]
    while setting.sender.sequences()[-1] == 1:
        setting.clock.advance(0.5)
        errors += [callback.last_error] if callback.last_error != errors[-1] else []
    assert errors[:2] == ["status 500", "no answer in time"]
    assert errors[2].startswith("ConnectionRefusedError")
    assert setting.sender.sequences() == [1] * 8 + [2]
    (letter,) = setting.letters
    assert (letter.callback, letter.url, letter.first, letter.last) == (callback.id, A, 1, 1)
    assert (letter.reason, letter.attempts, letter.event.data) == ("status 500", 8, b"lost")
    assert (callback.next, callback.dead, callback.consecutive_dead_letters, setting.callbacks.dead) == (3, 1, 0, 1)
    assert setting.callbacks.delivered == 1


def test_retry_delay_of_a_delivery_is_limited(memory: Memory, sender: FakeSender) -> None:
    setting = Setting(memory, sender, WebConfig(callback_attempts=40))
    setting.add()
    sender.answers += [500] * 39
    memory.order(b"1")
    longest = 0.0
    while sender.answers:
        (call,) = setting.clock.getDelayedCalls()
        pause = call.getTime() - setting.clock.seconds()
        longest = max(longest, pause)
        setting.clock.advance(pause)
    assert 50 < longest <= 60


def test_webhook_that_always_fails_is_suspended(memory: Memory, sender: FakeSender) -> None:
    setting = Setting(memory, sender, WebConfig(callback_attempts=1, suspend_after=3, dead_letters=2))
    callback = setting.add()
    sender.answers += [500, 200, 500, 500, 500]
    memory.order(*[b"x"] * 9)
    assert sender.sequences() == [1, 2, 3, 4, 5]
    assert callback.suspended
    assert setting.callbacks.suspended == 1
    assert [letter.first for letter in callback.dead_letters] == [4, 5]
    memory.order(b"y")
    setting.clock.advance(100)
    assert len(sender.posts) == 5


def test_evicted_events_become_a_dead_letter(setting: Setting) -> None:
    callback = setting.add()
    setting.sender.held[A] = deque()
    setting.memory.order(*[b"x"] * 50)
    setting.memory.forget(45)
    setting.sender.held.pop(A).popleft().callback(200)
    # Some events were read before they were evicted.
    assert setting.sender.sequences() == [*range(1, 33), *range(45, 51)]
    (letter,) = setting.letters
    assert (letter.first, letter.last, letter.attempts, letter.event) == (33, 44, 0, None)
    assert (callback.skipped, callback.next, callback.public_fields()["dead_letters"][0]["last"]) == (12, 51, 44)
    setting.memory.jump(60)
    setting.memory.order(b"y")
    assert setting.sender.sequences()[-1] == 60
    assert (setting.letters[-1].first, setting.letters[-1].last) == (51, 59)


def test_events_missing_from_a_read_become_a_dead_letter(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    setting.add()
    events = setting.memory.events
    monkeypatch.setattr(setting.memory, "events", lambda first, last, limit: events(first, last, limit)[2:])
    setting.memory.order(b"1", b"2", b"3")
    assert setting.sender.sequences() == [3]
    assert [(letter.first, letter.last) for letter in setting.letters] == [(1, 2)]


def test_removed_webhook_cancels_its_delivery_and_retry(setting: Setting) -> None:
    one, two = setting.add(A), setting.add(B)
    setting.sender.held[A] = deque()
    setting.sender.answers += [500]
    setting.memory.order(b"1")
    with capturedLogs() as logs:
        assert setting.callbacks.remove(one.id)
        assert setting.callbacks.remove(two.id)
    assert not setting.callbacks.remove(two.id)
    assert setting.sender.cancelled == 1
    assert setting.clock.getDelayedCalls() == []
    setting.memory.order(b"2")
    assert len(setting.sender.posts) == 2
    assert logs == []


def test_webhooks_survive_a_restart(memory: Memory, sender: FakeSender, tmp_path: Path) -> None:
    path = tmp_path / "callbacks.json"
    setting = Setting(memory, sender, WebConfig(save_interval=5), path)
    callback = setting.add(A, secret="s")
    assert path.stat().st_mode & 0o777 == 0o600
    memory.order(b"1", b"2")
    assert json.loads(path.read_text())["callbacks"][0]["next"] == 1
    setting.clock.advance(5)
    assert json.loads(path.read_text())["callbacks"][0]["next"] == 3
    assert setting.clock.getDelayedCalls() == []
    memory.order(b"3")
    sender.held[A] = deque()
    memory.order(b"4")
    setting.callbacks.stop()
    assert (sender.closed, sender.cancelled, memory.listeners) == (True, 1, [])
    memory.order(b"5")
    del sender.held[A]
    again = Setting(memory, sender, None, path)
    assert sender.sequences() == [1, 2, 3, 4, 4, 5]
    (restored,) = again.callbacks.all()
    assert (restored.id, restored.secret, restored.next) == (callback.id, "s", 6)
    assert again.callbacks.remove(callback.id)
    assert CallbackFile(path).load() == []
    assert [item.name for item in tmp_path.iterdir()] == ["callbacks.json"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[" * 10_000,
        '{"format": "fyrehose parcels callbacks 2", "callbacks": []}',
        '{"format": "fyrehose parcels callbacks 1", "callbacks": [{}]}',
        '{"format": "fyrehose parcels callbacks 1", "callbacks": [{"id": "../0123456789abc", "url": "", "next": 1,'
        ' "secret": null, "suspended": false}]}',
    ],
)
def test_invalid_webhook_file_is_refused_and_left_unchanged(
    memory: Memory, sender: FakeSender, tmp_path: Path, content: str
) -> None:
    path = tmp_path / "callbacks.json"
    path.write_text(content)
    with pytest.raises(StateFileError, match=r"callbacks\.json"):
        Setting(memory, sender, None, path)
    assert path.read_text() == content


def test_webhook_that_cannot_be_saved_is_not_registered(memory: Memory, sender: FakeSender, tmp_path: Path) -> None:
    setting = Setting(memory, sender, None, tmp_path / "missing" / "callbacks.json")
    with pytest.raises(StateFileError, match=r"missing/callbacks\.json cannot be written"):
        setting.add()
    assert len(setting.callbacks) == 0


def test_internal_error_suspends_webhooks_and_is_logged(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    callback, other = setting.add(A), setting.add(B)
    monkeypatch.setattr(setting.memory, "events", lambda *arguments: 1 / 0)
    with capturedLogs() as logs:
        setting.memory.order(b"1")
    assert callback.suspended
    assert other.suspended
    assert len(logs) == 2


def test_read_error_delays_webhook_deliveries(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    callback = setting.add()

    def failing(*arguments: object) -> Any:
        raise StateFileError("the disk is slow")

    with monkeypatch.context() as patch:
        patch.setattr(setting.memory, "events", failing)
        setting.memory.order(b"1")
    assert (callback.last_error, callback.suspended) == ("the disk is slow", False)
    setting.clock.advance(61)
    assert setting.sender.sequences() == [1]


def test_delivery_error_text_is_truncated(setting: Setting) -> None:
    callback = setting.add()
    setting.sender.answers += [ResponseFailed([Failure(ConnectionRefusedError("x" * 900))])]
    setting.memory.order(b"1")
    assert callback.last_error is not None
    assert callback.last_error.startswith("ConnectionRefusedError")
    assert len(callback.last_error) <= 200


@inline
async def test_disconnect_during_the_lookup_registers_no_webhook(
    memory: Memory, sender: FakeSender, serve: Serve, reached: WaitUntil
) -> None:
    looked_up: Deferred[None] = Deferred()
    sender.check = lambda url: looked_up
    setting = Setting(memory, sender, WebConfig(max_callbacks=1))
    web = serve(memory, callbacks=setting.callbacks)
    body = json.dumps({"url": A}).encode()
    wire = await web.send(
        b"POST /callbacks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body), body
    )
    await reached(lambda: setting.callbacks._pending_additions == 1)
    assert (await web.ask("POST", "/callbacks", body)).code == 409
    wire.transport.loseConnection()
    await reached(lambda: web.site.connections <= 1)
    with capturedLogs() as logs:
        looked_up.callback(None)
    assert logs == []
    assert len(setting.callbacks) == 1


@inline
async def test_webhooks_are_managed_over_http(memory: Memory, sender: FakeSender, serve: Serve) -> None:
    setting = Setting(memory, sender, WebConfig(max_callbacks=2))
    web = serve(memory, callbacks=setting.callbacks)
    memory.order(b"1", b"2")

    async def add(**content: Any) -> Any:
        return await web.ask("POST", "/callbacks", json.dumps(content).encode())

    answer = await add(url=A, secret="hidden", **{"from": 2})
    assert answer.code == 201
    id = answer.json["id"]
    assert answer.headers["location"] == f"/callbacks/{id}"
    assert (answer.json["signed"], answer.json["next"]) == (True, 3)
    assert sender.sequences() == [2]
    assert b"hidden" not in answer.body
    shown = (await web.ask("GET", f"/callbacks/{id}")).json
    assert (await web.ask("GET", "/callbacks")).json == [shown]
    assert (await add(url=B)).json["signed"] is False
    assert (await add(url=B)).code == 409
    assert (await web.ask("GET", "/metrics")).body.count(b"fyrehose_parcels_web_callbacks 2.0") == 1
    assert (await web.ask("DELETE", f"/callbacks/{id}")).code == 204
    assert (await web.ask("DELETE", f"/callbacks/{id}")).code == 404
    assert (await web.ask("GET", f"/callbacks/{id}")).code == 404
    assert (await web.ask("GET", "/callbacks/%7Bid%7D")).code == 404
    memory.forget(2)
    assert (await add(url=A, **{"from": 1})).code == 410
    sender.refused = AddressNotAllowed()
    answer = await add(url=A)
    assert (answer.code, answer.json["error"]) == (403, "target-refused")
    sender.refused = None
    assert (await add(url="http://a:0/")).json == answer.json
    sender.refused = None
    for content in (
        {},
        {"url": 1},
        {"url": "ftp://a/"},
        {"url": "http://u:p@a/"},
        {"url": "http://a/#b"},
        {"url": "http://a/ b"},
        {"url": "http://\u00e4/"},
        {"url": "http:///x"},
        {"url": "http://a/" + "x" * 2000},
        {"url": A, "from": 0},
        {"url": A, "from": "1"},
        {"url": A, "from": True},
        {"url": A, "from": None},
        {"url": A, "secret": ""},
        {"url": A, "secret": "x" * 257},
        {"url": A, "secret": "\ud800"},
        {"url": A, "secret": None},
        {"url": A, "form": 1},
    ):
        answer = await add(**content)
        assert (answer.code, answer.json["error"]) == (400, "bad-request"), content
    for body in (b"", b"[]", b"{", b"\xff", b"[" * 9000):
        assert (await web.ask("POST", "/callbacks", body)).code == 400
    assert len(setting.callbacks) == 1
