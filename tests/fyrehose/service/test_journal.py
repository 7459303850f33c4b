"""Journal service on a fake reactor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.address import UNIXAddress
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import CannotListenError, ReactorNotRunning
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs

from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.protocol.journal import JournalProtocol
from fyrehose_twisted.fyrehose.service.journal import JournalService
from fyrehose_twisted.journal.errors import JournalError, JournalFull
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.store import Journal, open_journal
from fyrehose_twisted.net.listening import ListeningEndpoint
from fyrehose_twisted.record import Record

STREAM = "fyrehose://test"


class Reactor(Clock):
    """A running reactor with controlled name lookups that counts its stops."""

    def __init__(self) -> None:
        super().__init__()
        self.running = True
        self.stops = 0
        self.triggers: list[tuple[str, str]] = []
        self.answer: Deferred[str] = Deferred(lambda answer: None)

    def resolve(self, name: str) -> Deferred[str]:
        return self.answer

    def stop(self) -> None:
        self.stops += 1
        if self.stops > 1:
            raise ReactorNotRunning("it is stopping already")

    def addSystemEventTrigger(self, phase: str, event: str, *what: object) -> None:  # noqa: N802
        self.triggers.append((phase, event))


class Protocol(JournalProtocol):
    def __init__(self, **options: Any) -> None:
        super().__init__(ClientConfig(start=1), **options)
        self.options = options


class Endpoint:
    def __init__(self, port: Deferred[Any]) -> None:
        self._port = port
        self.factories: list[Any] = []

    def listen(self, factory: Any) -> Deferred[Any]:
        self.factories.append(factory)
        return self._port


class ListeningPort:
    def __init__(self) -> None:
        self.stopped: Deferred[None] = Deferred()
        self.stopping = False

    def getHost(self) -> Any:
        return UNIXAddress(b"somewhere")

    def stopListening(self) -> Deferred[None]:
        self.stopping = True
        return self.stopped


class Running:
    """A started service and its log."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.reactor = Reactor()
        options = {"open_journal": lambda: open_journal(path, STREAM), **options}
        opening, backbone = options.pop("open_journal"), options.pop("backbone", "backbone.example:2323")
        self.service = JournalService(opening, Protocol, backbone, reactor=self.reactor, **options)
        with capturedLogs() as self.logged:
            starting: Any = self.service
            starting.startService()

    @property
    def journal(self) -> Journal:
        assert self.service.journal is not None
        return self.service.journal

    def said(self, level: LogLevel) -> list[str]:
        found = [event for event in self.logged if event["log_level"] is level]
        return [event["log_format"].format(**event) for event in found]

    def stop(self) -> list[object]:
        ended: list[object] = []
        stopping: Any = self.service
        with capturedLogs() as logged:
            stopping.stopService().addBoth(ended.append)
        self.logged += logged
        return ended


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Running]:
    return lambda **options: Running(tmp_path, **options)


Run = Callable[..., Running]


def is_free(path: Path) -> bool:
    try:
        LocalDirectory(path / "fyrehose-test").lock().close()
    except BlockingIOError:
        return False
    return True


def test_a_journal_service_logs_its_contents_and_releases_the_lock_on_stop(run: Run, tmp_path: Path) -> None:
    first = run()
    assert first.said(LogLevel.info) == [f"journal of {STREAM} in {tmp_path}/fyrehose-test is empty"]
    assert not is_free(tmp_path)
    first.journal.append([Record(STREAM, 0, number, 1, b"") for number in range(7, 2_007)])
    assert first.stop() == [None]
    assert is_free(tmp_path)
    second = run()
    assert second.said(LogLevel.info) == [
        f"journal of {STREAM} in {tmp_path}/fyrehose-test begins at 7 and is complete up to 2,006"
    ]
    assert second.stop() == [None]
    assert first.reactor.stops == second.reactor.stops == 0


def test_repairs_at_the_opening_of_a_journal_are_logged(run: Run, tmp_path: Path) -> None:
    first = run()
    first.journal.append([Record(STREAM, 0, 1, 1, b"")])
    first.stop()
    file = next((tmp_path / "fyrehose-test").glob("*.log"))
    file.write_bytes(file.read_bytes() + b"torn")
    second = run()
    found = second.said(LogLevel.warn)
    assert len(found) == 1
    assert found[0].endswith("fyrehose-test: cut off 4 bytes that were incomplete after the last stop")
    second.stop()


@pytest.mark.parametrize("interval", [None, 0.5])
def test_a_sync_interval_commits_on_the_timer(interval: float | None, run: Run) -> None:
    running = run(sync_interval=interval)
    protocol: Any = running.service.protocol
    assert protocol.sync is (interval is None)
    assert protocol.journal is running.journal
    running.journal.append([Record(STREAM, 0, 1, 1, b"")])
    running.journal.commit(sync=False)
    running.reactor.advance(0.5)
    bounds = running.journal.bounds(0)
    assert bounds is not None
    assert bounds.next == (1 if interval is None else 2)
    running.stop()


def test_a_journal_that_cannot_be_opened_is_logged_in_one_line_and_ends_the_process(run: Run) -> None:
    def opening() -> Journal:
        raise JournalError("it is another stream's")

    running = run(open_journal=opening)
    assert running.said(LogLevel.critical) == ["stopping: it is another stream's"]
    assert running.reactor.stops == 1
    assert running.reactor.triggers == [("after", "shutdown")]
    assert running.stop() == [None]


def test_a_journal_service_stopped_during_name_lookup_opens_no_port(run: Run, tmp_path: Path) -> None:
    running = run()
    assert running.stop() == [None]
    assert running.reactor.answer.called, "the lookup is cancelled"
    protocol: Any = running.service.protocol
    assert protocol.transport is None
    assert is_free(tmp_path)
    assert running.said(LogLevel.critical) == []


def test_an_unknown_backbone_name_ends_the_process(run: Run) -> None:
    running = run()
    with capturedLogs() as logged:
        running.reactor.answer.errback(OSError("no such name"))
    running.logged += logged
    assert running.said(LogLevel.critical) == ["stopping: 'backbone.example' has no IP address (no such name)"]
    assert running.reactor.stops == 1
    assert running.stop() == [None]


def test_a_journal_that_fails_before_the_port_is_bound_ends_the_process(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = run()

    def full() -> int:
        raise JournalFull("no room for more; make some")

    with monkeypatch.context() as patch, capturedLogs() as logged:
        patch.setattr(running.journal, "trim", full)
        running.reactor.advance(5)
    running.logged += logged
    assert running.said(LogLevel.critical) == ["stopping: no room for more; make some"]
    assert running.reactor.stops == 1
    assert running.stop() == [None]


def test_a_failed_commit_on_stop_is_logged_and_exits_with_status_1(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = run()
    running.reactor.stops = 1  # The service is stopping.
    journal = running.journal

    def full(*arguments: object) -> None:
        raise JournalFull("no room for more; make some")

    monkeypatch.setattr(journal, "commit", full)
    assert running.stop() == [None]
    assert running.said(LogLevel.critical) == ["stopping: no room for more; make some"]
    assert running.reactor.triggers == [("after", "shutdown")]
    assert is_free(tmp_path)


def test_remote_readers_are_disconnected_before_the_journal_is_closed(run: Run, tmp_path: Path) -> None:
    port: Any = ListeningPort()
    endpoint = Endpoint(succeed(port))
    running = run(serve=lambda journal: ListeningEndpoint("serve", "tcp:1", endpoint, journal))
    assert endpoint.factories == [running.journal]
    assert running.said(LogLevel.info)[-1] == "--serve: listening on somewhere"
    ended = running.stop()
    assert port.stopping
    assert ended == []
    assert not is_free(tmp_path), "readers still use the files"
    port.stopped.callback(None)
    assert ended == [None]
    assert is_free(tmp_path)


def test_a_restarted_journal_service_serves_readers_again(run: Run) -> None:
    ports: list[Any] = []

    class Endpoints:
        def listen(self, factory: Any) -> Deferred[Any]:
            port: Any = ListeningPort()
            port.stopped.callback(None)
            ports.append((port, factory))
            return succeed(port)

    running = run(serve=lambda journal: ListeningEndpoint("serve", "tcp:1", Endpoints(), journal))
    for starts in (1, 2, 3):
        assert [factory for _, factory in ports[starts - 1 :]] == [running.journal]
        assert running.stop() == [None]
        assert all(port.stopping for port, _ in ports)
        starting: Any = running.service
        starting.startService()
    running.stop()


def test_stopping_waits_for_a_running_compaction(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = run()
    at_work: Deferred[None] = Deferred()
    upkeep: Any = running.service._maintenance
    monkeypatch.setattr(upkeep, "stop", lambda: at_work)
    ended = running.stop()
    assert ended == []
    assert not is_free(tmp_path)
    at_work.callback(None)
    assert ended == [None]
    assert is_free(tmp_path)
    monkeypatch.undo()
    upkeep.stop()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (CannotListenError("127.0.0.1", 1, OSError(98, "Address already in use")), "Address already in use"),
        (OperationalError("another reason"), "another reason"),
    ],
)
def test_a_serve_endpoint_that_cannot_listen_ends_the_process(error: Exception, reason: str, run: Run) -> None:
    running = run(serve=lambda journal: ListeningEndpoint("serve", "tcp:1", Endpoint(fail(error)), journal))
    assert running.said(LogLevel.critical) == [f"stopping: --serve: cannot listen on tcp:1: {reason}"]
    assert running.reactor.stops == 1
    running.stop()
