"""Access control, limits and metrics of the query site."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from query.bench import Bench

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.format import layout
from fyrehose_twisted.query.config import QueryConfig
from fyrehose_twisted.query.monitoring.scraper import MalformedMetrics, ScrapeTarget, parse_metrics, parse_scrape_target
from fyrehose_twisted.query.records import journals
from fyrehose_twisted.web.tokens import Tokens

TOKENS = Tokens({"ann": b"a" * 16, "bob": b"b" * 16})


def with_token(token: str) -> str:
    return f"Bearer {token * 16}"


class TestTokens:
    def test_query_requests_without_a_token_are_unauthorized(self, bench: Bench, records: str) -> None:
        bench.make(tokens=TOKENS)
        bench.numbers(1)
        for path in ("/streams", "/streams/fyrehose-test", records, "/overview", "/metrics", "/nothing"):
            for headers in ({}, {"authorization": with_token("c")}, {"authorization": "Basic " + "a" * 16}):
                answer = bench.ask(path, **headers)
                assert (answer.code, answer.json["error"]) == (401, "unauthorized"), path
                assert answer.headers["www-authenticate"] == "Bearer"
        for token in "ab":
            assert bench.ask(records, authorization=with_token(token)).code == 200

    def test_health_and_description_require_no_token(self, bench: Bench) -> None:
        bench.make(tokens=TOKENS)
        for path in ("/health", "/openapi.json"):
            assert bench.ask(path).code == 200
        assert bench.ask("/openapi.json").json["security"] == [{"token": []}]

    def test_request_rate_is_limited_per_token(self, bench: Bench) -> None:
        bench.make(QueryConfig(burst_per_client=2, requests_per_client=1), tokens=TOKENS)
        assert [bench.ask("/streams", authorization=with_token("a")).code for _ in range(3)] == [200, 200, 429]
        assert bench.ask("/streams", authorization=with_token("b")).code == 200
        # A request without a token has a budget by address; other clients keep theirs.
        assert [bench.ask("/health").code for _ in range(3)] == [200, 200, 429]
        bench.clock.advance(1)
        assert bench.ask("/streams", authorization=with_token("a")).code == 200


def test_request_rate_of_a_client_is_limited(bench: Bench) -> None:
    bench.make(QueryConfig(burst_per_client=3, requests_per_client=0.5))
    assert [bench.ask("/streams").code for _ in range(4)] == [200, 200, 200, 429]
    answer = bench.ask("/streams")
    assert (answer.json["error"], answer.headers["retry-after"]) == ("too-many-requests", "2")
    other = bench.client(host="192.0.2.7")
    other.send("/streams")
    assert other.response().code == 200
    bench.clock.advance(2)
    assert bench.ask("/metrics").body.count(b'fyrehose_query_limited_total{what="requests"} 2.0') == 1


def test_only_the_allowed_origin_may_read(bench: Bench) -> None:
    bench.make(QueryConfig(allowed_origin="https://good.example"))
    assert bench.ask("/streams", origin="https://bad.example").code == 403
    answer = bench.ask("/streams", origin="https://good.example")
    assert answer.headers["access-control-allow-origin"] == "https://good.example"
    answer = bench.ask("/streams", "OPTIONS", origin="https://good.example")
    assert (answer.code, answer.headers["access-control-allow-methods"]) == (204, "GET, HEAD")


def test_cors_is_disabled_by_default(bench: Bench) -> None:
    answer = bench.ask("/streams")
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert bench.ask("/streams", "OPTIONS").code == 405


def test_health_reports_unreadable_journals(bench: Bench) -> None:
    bench.numbers(1)
    assert bench.ask("/health").json == {"streams": 1, "problems": 0}
    (bench.path / "fyrehose-bad").mkdir()
    (segment,) = (bench.path / "fyrehose-test").glob("*.log")
    (bench.path / "fyrehose-bad" / segment.name).write_bytes(b"no journal" * 100)
    bench.site.sources.refresh()
    answer = bench.ask("/health")
    assert (answer.code, answer.json["problems"]) == (503, 1)
    assert [one["name"] for one in bench.ask("/overview").json["streams"]] == ["fyrehose-test", "fyrehose-bad"]
    assert bench.ask("/overview").json["streams"][1]["problem"]


def test_created_and_removed_journals_are_detected(bench: Bench) -> None:
    assert bench.ask("/streams").json == []
    bench.numbers(2, stream="parcels://p")
    assert [one["stream"] for one in bench.ask("/streams").json] == ["parcels://p"]
    bench.journals.pop("parcels://p").close()
    for path in (bench.path / "parcels-p").iterdir():
        path.unlink()
    (bench.path / "parcels-p").rmdir()
    assert bench.ask("/streams").json == []


def test_metrics_of_the_query_service_are_exported(bench: Bench, records: str) -> None:
    bench.numbers(2)
    bench.ask(records)
    bench.follow(records)
    text = bench.ask("/metrics").body.decode()
    for line in (
        'fyrehose_query_requests_total{method="GET",route="/streams/{name}/records",status="200"} 1.0',
        'fyrehose_query_followers{stream="fyrehose://test"} 1.0',
        'fyrehose_query_next{stream="fyrehose://test"} 3.0',
        "fyrehose_query_sources 1.0",
        "fyrehose_query_streams 1.0",
        'fyrehose_info{service="query"',
    ):
        assert line in text, line


def test_every_path_of_the_openapi_description_exists(bench: Bench) -> None:
    described = bench.ask("/openapi.json").json
    for path, methods in described["paths"].items():
        assert set(methods) == {"get", "head"}
        answer = bench.ask(path.replace("{name}", "none"))
        assert answer.code in (200, 404), path
        if answer.code == 404:
            assert answer.json["error"] == "no-stream"


class TestWatching:
    def test_watch_option_is_parsed_as_name_and_url(self) -> None:
        assert parse_scrape_target("b=http://h:1/metrics") == ScrapeTarget("b", "http://h:1/metrics")

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "b",
            "=http://h/",
            "b=",
            "b=https://h/",
            "b=http:///x",
            "b=http://h:x/",
            "b=http://u:p@h/",
            "b=file:///etc",
        ],
    )
    def test_invalid_watch_option_is_refused(self, text: str) -> None:
        with pytest.raises(ConfigurationError):
            parse_scrape_target(text)

    def test_metrics_page_of_a_target_is_parsed(self) -> None:
        page = b"""# HELP fyrehose_x_things Things
# TYPE fyrehose_x_things counter
fyrehose_x_things_total{a="1"} 2.0
fyrehose_x_things_total{a="2"} 3.0
# TYPE other gauge
other 1.0
# TYPE fyrehose_x_odd gauge
fyrehose_x_odd NaN
"""
        assert parse_metrics(page) == {"fyrehose_x_things_total": [({"a": "1"}, 2.0), ({"a": "2"}, 3.0)]}

    @pytest.mark.parametrize("page", [b"\xff", b"fyrehose_a{ 1", b"fyrehose_a x\n", b"<html>", b"fyrehose_a\n"])
    def test_malformed_metrics_page_is_refused(self, page: bytes) -> None:
        with pytest.raises(MalformedMetrics):
            parse_metrics(page)

    def test_metrics_page_with_too_many_samples_is_refused(self) -> None:
        page = "# TYPE fyrehose_a gauge\n" + "".join(f'fyrehose_a{{b="{n}"}} 1\n' for n in range(4_097))
        with pytest.raises(MalformedMetrics, match="more than 4,096"):
            parse_metrics(page.encode())


def test_dashboard_policy_allows_no_other_origin(bench: Bench) -> None:
    answer = bench.ask("/")
    assert answer.code == 200
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_journal_that_becomes_unreadable_is_reported(bench: Bench, records: str) -> None:
    bench.numbers(2)
    source = bench.site.sources.get("fyrehose-test")
    moved = Path(f"{bench.path}-moved")
    (bench.path / "fyrehose-test").rename(moved)
    try:
        assert source.refresh() is False
        assert "fyrehose-test" in source.problem
        assert json.loads(bench.ask("/streams").body) == []
    finally:
        moved.rename(bench.path / "fyrehose-test")


def test_unreadable_unrelated_directory_hides_no_journal(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.numbers(1)
    for name in ("lost+found", "fyrehose-closed"):
        (bench.path / name).mkdir()
    original = layout._holds_segments

    def holds_segments(path: Path) -> bool:
        if path.name in ("lost+found", "fyrehose-closed"):
            raise PermissionError(13, "Permission denied")
        return original(path)

    monkeypatch.setattr(layout, "_holds_segments", holds_segments)
    bench.site.sources.refresh()
    assert [one["name"] for one in bench.ask("/streams").json] == ["fyrehose-test"]
    assert list(bench.site.sources.problems) == ["fyrehose-closed"]


def test_journal_recovers_from_a_read_error(bench: Bench, records: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.numbers(1)
    source = bench.site.sources.get("fyrehose-test")
    monkeypatch.setattr(source.reader, "refresh", lambda: (_ for _ in ()).throw(OSError(24, "Too many open files")))
    assert source.refresh() is False
    assert "Too many open files" in source.problem
    assert bench.ask("/health").code == 503
    monkeypatch.undo()
    assert bench.ask(records).numbers == [1]
    assert bench.ask("/health").code == 200


def test_many_journals_are_refreshed_at_most_once_a_second(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(
        journals, "MANY_JOURNALS", 10
    )  # Each journal is open, and a process may have no more than 256 open files.
    monkeypatch.setattr(journals, "monotonic", lambda: now)
    for number in range(journals.MANY_JOURNALS + 1):
        bench.numbers(1, stream=f"fyrehose://{number:03}")

    def records(path: str) -> int:
        told = bench.ask(path).json
        return sum(stream["records"] for stream in (told["streams"] if path == "/overview" else told))

    assert records("/streams") == records("/overview") == journals.MANY_JOURNALS + 1
    bench.numbers(5, first=2, stream="fyrehose://007")
    assert records("/streams") == records("/overview") == journals.MANY_JOURNALS + 1
    # A single journal is refreshed at once.
    assert bench.ask("/streams/fyrehose-007").json["records"] == 6
    now += journals.LOOK_INTERVAL
    assert records("/overview") == records("/streams") == journals.MANY_JOURNALS + 6


def test_periodic_refresh_of_many_journals_is_never_skipped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    now, look = 1_000.0, journals.JournalDirectory.refresh
    monkeypatch.setattr(journals, "MANY_JOURNALS", 10)
    monkeypatch.setattr(journals, "monotonic", lambda: now)

    def slow(every: Any) -> None:
        nonlocal now
        look(every)
        now += 0.3

    for count in (1, 2, 3, 4):
        for number in range(journals.MANY_JOURNALS + 1 if count == 1 else 1):
            bench.numbers(1, first=count, stream=f"fyrehose://{number:03}")
        with monkeypatch.context() as patched:
            patched.setattr(journals.JournalDirectory, "refresh", slow)
            streams = bench.ask("/overview").json["streams"]
        assert sum(stream["records"] for stream in streams) == journals.MANY_JOURNALS + count
        now += QueryConfig().look_interval - 0.3
