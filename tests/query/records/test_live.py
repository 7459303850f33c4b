"""Live record streams."""

from __future__ import annotations

import json
from typing import Any

import pytest
from query.bench import Bench
from twisted.logger import LogLevel, capturedLogs

from fyrehose_twisted.journal.errors import JournalError
from fyrehose_twisted.query.config import QueryConfig
from fyrehose_twisted.query.records.journals import JournalSource


def test_stream_begins_with_the_next_record_by_default(bench: Bench, records: str) -> None:
    bench.numbers(3)
    client = bench.follow(records)
    assert client.response().headers["content-type"] == "text/event-stream"
    assert (client.told, client.id) == ([], "3")
    bench.put(b"a", b"b")
    bench.advance()
    assert (client.told, client.id) == ([4, 5], "5")


def test_stream_begins_at_the_from_parameter(bench: Bench, records: str) -> None:
    bench.numbers(2_000)
    client = bench.follow(f"{records}?from=5")
    bench.put(b"a")
    bench.advance()
    assert client.told == list(range(5, 2_002))


def test_stream_begins_with_the_newest_records(bench: Bench, records: str) -> None:
    bench.numbers(20)
    bench.journal().lose(0, 21, 25)
    bench.numbers(3, first=26)
    client = bench.follow(f"{records}?last=5")
    assert client.told == [19, 20, 26, 27, 28]
    assert bench.follow(f"{records}?last=1000").told == [*range(1, 21), 26, 27, 28]


def test_stream_begins_at_the_since_parameter(bench: Bench, records: str) -> None:
    bench.put(b"x", first=1, at=1_700_000_001)
    bench.put(b"x", first=3, at=1_700_000_003)
    bench.put(b"x", first=2, at=1_700_000_009)
    bench.put(b"x", first=4, at=1_700_000_004)
    client = bench.follow(f"{records}?since=1700000004")
    assert (client.told, client.skipped) == ([2, 4], [])
    assert bench.follow(f"{records}?since=1700000010").told == []


@pytest.mark.parametrize("cut", range(1, 12))
def test_reconnecting_client_resumes_exactly(bench: Bench, records: str, cut: int) -> None:
    bench.numbers(6)
    bench.journal().lose(0, 7, 8)
    bench.numbers(3, first=9)
    whole = bench.follow(f"{records}?from=1")
    frames = whole.frames()
    client = bench.follow(records, last_event_id=frames[min(cut, len(frames)) - 1].id)
    assert [(frame.event, frame.id) for frame in frames[cut:]] == [
        (frame.event, frame.id) for frame in client.frames()[1:]
    ]


def test_id_parameter_replaces_last_event_id(bench: Bench, records: str) -> None:
    bench.numbers(6)
    assert bench.follow(f"{records}?id=4").told == [5, 6]


@pytest.mark.parametrize(
    ("query", "seen", "named"),
    [
        ("?from=5", None, "from, 5,"),
        ("?from=1:0", None, "from, 1:0,"),
        ("?id=4", None, "the position after Last-Event-ID, 5,"),
        ("?from=1", "4", "the position after Last-Event-ID, 5,"),
        ("", "1:2", "the position after Last-Event-ID, 1:3,"),
        ("", str(2**64 - 2), f"the position after Last-Event-ID, {2**64 - 1},"),
    ],
)
def test_start_beyond_the_end_is_rejected(bench: Bench, records: str, query: str, seen: str | None, named: str) -> None:
    bench.numbers(3)
    answer = bench.follow(records + query, **({} if seen is None else {"last_event_id": seen})).response()
    assert answer.code == 409
    assert answer.json["error"] == "beyond-end"
    assert answer.json["next"] == "4"
    assert answer.json["message"] == f"{named} lies beyond the end; the next one will be 4"


def test_stream_waits_for_the_next_number(bench: Bench, records: str) -> None:
    bench.numbers(3)
    clients = [bench.follow(f"{records}?from=4"), bench.follow(records, last_event_id="3")]
    assert [client.told for client in clients] == [[], []]
    bench.put(b"a")
    bench.advance()
    assert [client.told for client in clients] == [[4], [4]]


def test_stream_waits_for_the_first_number_of_an_empty_journal(bench: Bench, records: str) -> None:
    bench.journal()
    bench.site.sources.refresh()
    assert bench.follow(f"{records}?from=2").response().code == 409
    client = bench.follow(f"{records}?from=1")
    bench.numbers(2)
    bench.advance()
    assert client.told == [1, 2]


def test_heartbeat_is_a_comment_unless_a_filter_has_skipped_records(bench: Bench, records: str) -> None:
    bench.numbers(3)
    keepalive = QueryConfig().keepalive + 0.5
    clients = [bench.follow(f"{records}?from=1"), bench.follow(f"{records}?from=1&where=none")]
    before = [client.response().body.decode() for client in clients]
    bench.advance(keepalive)
    assert clients[0].response().body.decode().removeprefix(before[0]) == ": alive\n"
    assert (
        clients[1].response().body.decode().removeprefix(before[1])
        == 'event: position\ndata: {"position":"3"}\nid: 3\n\n'
    )
    before = [client.response().body.decode() for client in clients]
    bench.advance(keepalive)
    assert [client.response().body.decode().removeprefix(old) for client, old in zip(clients, before, strict=True)] == [
        ": alive\n"
    ] * 2


@pytest.mark.extended
@pytest.mark.parametrize("path", ["/streams/fyrehose-test/records?from=2&where=n", "/overview"])
def test_every_event_parsed_by_httpx_sse_has_json_data(bench: Bench, path: str) -> None:
    httpx, httpx_sse = pytest.importorskip("httpx"), pytest.importorskip("httpx_sse")
    bench.numbers(3)
    client = bench.follow(path)
    bench.advance(QueryConfig().keepalive + 0.5)
    bench.put(b"passed over")
    bench.advance(QueryConfig().keepalive + 0.5)
    answer = client.response()
    response = httpx.Response(200, headers={"Content-Type": answer.headers["content-type"]}, content=answer.body)
    events = [(event.event, event.json()) for event in httpx_sse.EventSource(response).iter_sse()]
    assert answer.body.count(b": alive\n") == (1 if "records" in path else 2)
    if "records" in path:
        assert [data["sequence"] for name, data in events if name == "message"] == [2, 3]
        assert [data for name, data in events if name == "position"] == [{"position": "1"}, {"position": "4"}]


def test_stream_of_an_empty_journal_delivers_its_first_records(bench: Bench, records: str) -> None:
    bench.journal().begin(0, 5)
    bench.journal().commit()
    bench.site.sources.refresh()
    client = bench.follow(records)
    bench.numbers(2)
    bench.advance()
    assert client.told[-1] == bench.journal().bounds(0).last


def test_lost_numbers_are_reported_as_skipped(bench: Bench, records: str) -> None:
    bench.numbers(2)
    client = bench.follow(f"{records}?from=1")
    bench.numbers(2, first=6)
    bench.advance()
    assert (client.told, client.skipped) == ([1, 2], [])
    bench.journal().lose(0, 3, 5)
    bench.journal().commit()
    bench.advance()
    assert (client.told, client.skipped) == ([1, 2, 6, 7], [(3, 5)])
    assert [frame.id for frame in client.frames() if frame.event == "skipped"] == ["5"]


def test_numbers_removed_by_retention_are_reported_as_skipped(bench: Bench, records: str) -> None:
    bench.journal().begin(0, 10)
    bench.numbers(2, first=10)
    client = bench.follow(f"{records}?from=4")
    assert (client.told, client.skipped) == ([10, 11], [(4, 9)])


def test_stream_continues_in_the_next_epoch(bench: Bench) -> None:
    stream = {"stream": "hydra://net"}
    bench.numbers(2, epoch=3, **stream)
    client = bench.follow("/streams/hydra-net/records?from=3:1")
    bench.numbers(1, epoch=3, first=5, **stream)
    bench.advance()
    assert client.id == "3:2"
    bench.numbers(2, epoch=4, **stream)
    bench.advance()
    assert client.told == [1, 2, 1, 2]
    # Neither the gap nor anything after it can arrive in order any more.
    assert client.skipped == [(3, 5)]
    assert client.id == "4:2"
    again = bench.follow("/streams/hydra-net/records", last_event_id="3:2")
    assert (again.told, again.skipped) == ([1, 2], [(3, 5)])


def test_filter_skips_other_records(bench: Bench, records: str) -> None:
    bench.numbers(10)
    client = bench.follow(f"{records}?from=1&where=n%3E%608%60")
    assert client.told == [9, 10]
    bench.numbers(3)
    bench.advance()
    assert client.told == [9, 10]
    # A reconnecting client does not scan those records again.
    bench.advance(16)
    assert client.id == "13"


def test_stream_encodes_payloads_as_base64(bench: Bench, records: str) -> None:
    bench.put(b"{}")
    client = bench.follow(f"{records}?from=1&encoding=base64")
    (frame,) = (frame for frame in client.frames() if frame.event == "message")
    assert json.loads(frame.data)["data"] == "e30="


def test_stream_is_compressed(bench: Bench, records: str) -> None:
    bench.numbers(3)
    client = bench.follow(f"{records}?from=1", accept_encoding="gzip")
    assert client.response().headers["content-encoding"] == "gzip"
    assert client.told == [1, 2, 3]
    bench.numbers(2)
    bench.advance()
    assert client.told == [1, 2, 3, 4, 5]


def test_slow_client_does_not_delay_others(bench: Bench, records: str) -> None:
    bench.put(*[b"x" * 1_000] * 100)
    slow, quick = bench.follow(f"{records}?from=1"), bench.follow(f"{records}?from=1")
    slow.wire.producer.pauseProducing()
    for _ in range(5):
        bench.put(*[b"x" * 1_000] * 100)
        bench.advance()
    assert quick.told == list(range(1, 601))
    assert slow.told == list(range(1, 101))
    before = len(slow.wire.value())
    slow.wire.producer.resumeProducing()
    slow.settle()
    assert slow.told == list(range(1, 601))
    assert len(slow.wire.value()) > before


def test_stalled_client_is_disconnected(bench: Bench, records: str) -> None:
    bench.numbers(3)
    slow = bench.follow(f"{records}?from=1")
    slow.wire.producer.pauseProducing()
    bench.advance(29)
    assert not slow.wire.aborted
    bench.advance(2)
    assert slow.wire.aborted
    assert bench.site.live_streams.ended == {"stalled": 1}
    assert bench.site.live_streams.follower_count("fyrehose-test") == 0


def test_paused_stream_gets_no_records(bench: Bench, records: str) -> None:
    bench.numbers(1)
    client = bench.follow(records)
    client.wire.producer.pauseProducing()
    before = client.wire.value()
    bench.numbers(3)
    bench.advance(20)
    assert client.wire.value() == before


def test_streams_take_turns(bench: Bench, records: str) -> None:
    bench.put(*[b"x" * 1_000] * 600)
    clients = [bench.client() for _ in range(3)]
    for client in clients:
        client.send(f"{records}?from=1", headers={"Accept": "text/event-stream"})
    most = 0
    told = [0]
    while min(told) < 600:
        bench.clock.turn()
        told = [len(client.told) for client in clients]
        most = max(most, max(told) - min(told))
    assert most <= 256


def test_number_of_streams_is_limited_in_total_and_per_client(bench: Bench, records: str) -> None:
    bench.make(QueryConfig(max_streams=3, streams_per_client=2))
    bench.numbers(1)
    clients = [bench.follow(records) for _ in range(2)]
    refused = bench.follow(records).response()
    assert (refused.code, json.loads(refused.body)["error"]) == (429, "too-many-streams")
    other = bench.client(host="127.0.0.2")
    other.send(records, headers={"Accept": "text/event-stream"})
    assert other.response().code == 200
    third = bench.client(host="127.0.0.3")
    third.send(records, headers={"Accept": "text/event-stream"})
    assert third.response().code == 503
    clients[0].hang_up()
    assert bench.follow(records).response().code == 200
    assert bench.site.live_streams.ended == {"gone": 1}


def test_journal_without_followers_is_not_polled(bench: Bench, records: str) -> None:
    bench.numbers(1)
    client = bench.follow(records)
    calls = len(bench.clock.getDelayedCalls())
    client.hang_up()
    assert len(bench.clock.getDelayedCalls()) < calls
    again = bench.follow(records)
    bench.numbers(1)
    bench.advance()
    assert again.told == [2]


def test_streams_end_when_the_site_closes(bench: Bench, records: str) -> None:
    bench.numbers(1)
    clients = [bench.follow(records), bench.follow("/overview")]
    bench.site.close()
    assert all(client.wire.disconnecting and not client.wire.aborted for client in clients)
    assert bench.site.live_streams.ended == {"closed": 1}


def test_internal_error_ends_only_one_stream(bench: Bench, records: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.numbers(3)
    good = bench.follow(records)
    original = JournalSource.read_span

    def stretch(self: JournalSource, *arguments: Any, **more: Any) -> Any:
        if arguments[1] == 1:
            raise ZeroDivisionError
        return original(self, *arguments, **more)

    monkeypatch.setattr(JournalSource, "read_span", stretch)
    with capturedLogs() as logs:
        bad = bench.follow(f"{records}?from=1")
    assert [log["log_level"] for log in logs if log["log_level"] >= LogLevel.warn] == [LogLevel.critical]
    assert bad.wire.disconnecting
    bench.numbers(1)
    bench.advance()
    assert good.told == [4]
    assert bench.site.live_streams.ended == {"failed": 1}


def test_burst_larger_than_the_tail_cache_is_delivered_completely(bench: Bench, records: str) -> None:
    bench.make(QueryConfig(tail_records=10))
    bench.numbers(1)
    client = bench.follow(records)
    bench.numbers(50)
    bench.advance()
    bench.numbers(5)
    bench.advance()
    assert client.told == list(range(2, 57))


def test_tail_cache_is_bounded_in_bytes(bench: Bench, records: str) -> None:
    bench.make(QueryConfig(tail_bytes=2_000))
    bench.numbers(1)
    client = bench.follow(records)
    for _ in range(4):
        bench.put(*[b"x" * 900] * 3)
        bench.advance()
    assert client.told == list(range(2, 14))
    tail = bench.site.live_streams._tails["fyrehose-test"]
    assert sum(len(item.payload) for item in tail.records) <= 2_000


def test_stream_runs_beside_range_requests(bench: Bench, records: str) -> None:
    bench.numbers(1)
    client = bench.follow(records)
    bench.numbers(1)
    assert bench.ask(records).numbers == [1, 2]  # The range request refreshes the journal, too.
    bench.advance()
    assert client.told == [2]


def test_overview_stream_reports_changes(bench: Bench) -> None:
    bench.numbers(3)
    client = bench.follow("/overview")
    (told,) = (json.loads(frame.data) for frame in client.frames() if frame.event == "message")
    assert [one["name"] for one in told["streams"]] == ["fyrehose-test"]
    bench.numbers(2)
    bench.site.overviews.send_all()
    *_, told = (json.loads(frame.data) for frame in client.frames() if frame.event == "message")
    assert told["streams"][0]["epochs"][0]["next"] == 6
    client.wire.producer.pauseProducing()
    bench.site.overviews.send_all()
    bench.site.overviews.send_all()
    before = len(client.frames())
    client.wire.producer.resumeProducing()
    assert len(client.frames()) == before + 1  # Only the newest overview is sent.
    client.hang_up()
    assert bench.site.overviews.ended == {"gone": 1}
    assert bench.site.clients._streams == {}


def test_client_that_reconnects_after_a_new_epoch_resumes_exactly(bench: Bench) -> None:
    stream = {"stream": "hydra://net"}
    bench.numbers(3, epoch=0, **stream)
    path = "/streams/hydra-net/records?from=1"
    client = bench.follow(path)
    assert client.id == "3"
    bench.numbers(2, epoch=1, **stream)
    again = bench.follow(path, last_event_id="3")
    assert (again.response().code, again.told) == (200, [1, 2])


def test_client_ahead_of_the_journal_is_refused_until_the_journal_caught_up(bench: Bench, records: str) -> None:
    bench.numbers(5)
    assert bench.follow(records, last_event_id="7").response().json["next"] == "6"
    bench.numbers(4)
    client = bench.follow(records, last_event_id="7")
    assert (client.told, client.skipped) == ([8, 9], [])


def test_streams_end_when_the_journal_is_replaced(bench: Bench, records: str) -> None:
    bench.numbers(5)
    client = bench.follow(f"{records}?from=1")
    bench.journals.pop("fyrehose://test").close()
    (bench.path / "fyrehose-test").rename(bench.path / "old")
    bench.numbers(2)
    assert bench.site.live_streams.ended == {"replaced": 1}
    assert client.wire.disconnecting
    assert bench.ask(records).numbers == [1, 2]
    again = bench.follow(f"{records}?from=1")
    bench.numbers(1)
    bench.advance()
    assert again.told == [1, 2, 3]


def test_stream_recovers_from_a_read_error(bench: Bench, records: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.numbers(3)
    original = JournalSource.read_span
    left = [OSError(24, "Too many open files"), JournalError("not now")]

    def stretch(self: JournalSource, *arguments: Any, **more: Any) -> Any:
        if left:
            raise left.pop()
        return original(self, *arguments, **more)

    monkeypatch.setattr(JournalSource, "read_span", stretch)
    client = bench.follow(f"{records}?from=1")
    assert client.told == []
    bench.advance(3)
    assert client.told == [1, 2, 3]


def test_overviews_count_as_streams(bench: Bench, records: str) -> None:
    bench.make(QueryConfig(max_streams=2))
    bench.numbers(1)
    assert bench.follow("/overview").response().code == 200
    assert bench.follow(records).response().code == 200
    assert bench.follow(records).response().code == 503
    assert bench.follow("/overview").response().code == 503
