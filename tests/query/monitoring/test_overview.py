"""Overview and one-hour history of the query site."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from query.bench import Bench
from twisted.internet.testing import MemoryReactorClock

from fyrehose_twisted.framing import Unframed
from fyrehose_twisted.query.config import QueryConfig
from fyrehose_twisted.query.monitoring.trends import STEP, STEPS
from fyrehose_twisted.query.records.journals import JournalDirectory
from fyrehose_twisted.query.service import QueryService

STREAM = "fyrehose://test"


def overview(bench: Bench) -> Any:
    return bench.ask("/overview").json


def texts(told: Any) -> list[str]:
    return [event["text"] for event in told["events"]]


def test_overview_without_problems_is_ok(bench: Bench) -> None:
    bench.numbers(3)
    told = overview(bench)
    assert (told["state"], told["findings"], told["events"], told["clusters"]) == ("ok", [], [], [])
    (stream,) = told["streams"]
    assert (stream["state"], stream["reasons"], stream["behind"]) == ("ok", [], 0)
    assert 0 < told["disk"]["free"] <= told["disk"]["total"]


def test_lost_messages_need_attention_and_make_an_event(bench: Bench) -> None:
    bench.numbers(3)
    overview(bench)
    bench.clock.advance(2)
    journal = bench.journal()
    journal.lose(0, 4, 6_612)
    journal.commit()
    told = overview(bench)
    assert told["state"] == "attention"
    assert [(one["subject"], one["what"]) for one in told["findings"]] == [(STREAM, "lost")]
    assert told["streams"][0]["reasons"] == ["6,609 messages lost for good"]
    assert "lost 6,609 messages for good" in texts(told)
    for _ in range(STEPS + 1):
        bench.clock.advance(STEP)
        told = overview(bench)
    assert told["state"] == "ok"
    assert texts(told)[0] == "is OK again"


def test_unreadable_journal_is_down_until_it_is_readable(bench: Bench) -> None:
    bench.numbers(1)
    (segment,) = (bench.path / "fyrehose-test").glob("*.log")
    bad = bench.path / "fyrehose-bad"
    bad.mkdir()
    (bad / segment.name).write_bytes(b"no journal" * 100)
    told = overview(bench)
    assert (told["state"], [one["state"] for one in told["streams"]]) == ("down", ["ok", "down"])
    (bad / segment.name).unlink()
    bad.rmdir()
    told = overview(bench)
    assert (told["state"], texts(told)[0]) == ("ok", "is back")


def test_nearly_full_disk_needs_attention(bench: Bench) -> None:
    found = os.statvfs(bench.path)
    bench.make(QueryConfig(min_free_bytes=found.f_blocks * found.f_frsize + 1))
    told = overview(bench)
    assert [(one["subject"], one["level"]) for one in told["findings"]] == [("this service", "attention")]


def test_history_is_complete_for_a_client_that_asks_late(bench: Bench) -> None:
    for _ in range(30):
        bench.numbers(50)
        overview(bench)
        bench.clock.advance(STEP)
    history = bench.ask("/history").json
    assert history["step"] == STEP
    (rates,) = history["series"].values()
    assert len(rates) == STEPS
    # The last step has no sample yet, and the first one no predecessor.
    assert rates[-30:-1] == [5.0] * 29
    assert set(rates[:-31]) == {None}


def test_history_is_collected_without_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reactor, looks = MemoryReactorClock(), list[float]()
    service = QueryService(
        JournalDirectory(tmp_path, lambda stream, payloads: Unframed(payloads)), "tcp:8480", reactor=reactor
    )
    look = service.site.overview.collect

    def noted() -> None:
        looks.append(reactor.seconds())
        look()

    monkeypatch.setattr(service.site.overview, "collect", noted)
    reactor.advance(1_000)
    service.startService()
    reactor.pump([1.0] * 30)
    assert looks == [1_000, 1_010, 1_020, 1_030]
    stopped = service.stopService()
    reactor.advance(0.1)
    assert stopped.called
