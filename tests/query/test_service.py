"""Query service on a manual clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import capturedLogs

from fyrehose_twisted.framing import Unframed
from fyrehose_twisted.query.records.journals import JournalDirectory
from fyrehose_twisted.query.service import QueryService


def test_exception_does_not_stop_the_refresh_of_the_journal_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reactor = MemoryReactorClock()
    service = QueryService(
        JournalDirectory(tmp_path, lambda stream, payloads: Unframed(payloads)), "tcp:8480", reactor=reactor
    )
    look: Callable[[], object] = service.sources.refresh
    calls = 0

    def fail_once() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise TypeError("a bug")
        look()

    monkeypatch.setattr(service.sources, "refresh", fail_once)
    with capturedLogs() as logged:
        service.startService()
        reactor.pump([service.site.config.look_interval] * 3)
    assert calls == 5
    assert [event["what"] for event in logged if "log_failure" in event] == ["the overview"]
    stopped = service.stopService()
    reactor.advance(0.1)
    assert stopped.called
