"""Notifications to the service manager."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic_ns

import pytest
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import capturedLogs

from fyrehose_twisted.process import sighup
from fyrehose_twisted.process.sd_notify import SystemdNotifier
from fyrehose_twisted.process.sighup import ReloadOnHup

Told = Callable[[], list[dict[str, str]]]


class Turning(MemoryReactorClock):
    """A running fake reactor."""

    def __init__(self) -> None:
        super().__init__()
        self.running = True

    def callFromThread(self, call: Callable[[], object]) -> None:  # noqa: N802
        self.callLater(0, call)


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "notify"))
        made.setblocking(False)
        yield made


@pytest.fixture
def told(listening: socket.socket) -> Told:
    """Return a function that returns the notifications since its last call."""

    def take() -> list[dict[str, str]]:
        found = []
        while True:
            try:
                text = listening.recv(4_096).decode()
            except BlockingIOError:
                return found
            found.append(dict(line.split("=", 1) for line in text.split("\n")))

    return take


@pytest.fixture(params=[signal.SIG_DFL, signal.SIG_IGN], ids=["default", "ignored"])
def hangup(request: pytest.FixtureRequest) -> Iterator[None]:
    """Restore the inherited disposition of SIGHUP, which nohup ignores."""
    before = signal.signal(signal.SIGHUP, request.param)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def environment(listening: socket.socket) -> dict[str, str]:
    return {"NOTIFY_SOCKET": listening.getsockname()}


def test_a_service_notifies_ready_reloading_and_stopping(environment: dict[str, str], told: Told) -> None:
    reactor, supervisor = Turning(), SystemdNotifier(environment)
    supervisor.ready(reactor, "listening on\n somewhere")
    assert told() == [{"READY": "1", "STATUS": "listening on somewhere"}]
    supervisor.ready(reactor, "another service of the process")
    assert told() == []
    before = monotonic_ns() // 1_000
    with supervisor.reloading():
        (reloading,) = told()
        assert reloading.pop("RELOADING") == "1"
        assert before <= int(reloading.pop("MONOTONIC_USEC")) <= monotonic_ns() // 1_000
    assert told() == [{"READY": "1"}]
    for call, arguments, keywords in reactor.triggers["before"]["shutdown"]:
        call(*arguments, **keywords)
    assert told() == [{"STOPPING": "1", "STATUS": "stopping"}]


def test_ready_is_notified_after_the_stop_trigger_is_set(environment: dict[str, str], told: Told) -> None:
    reactor = MemoryReactorClock()
    SystemdNotifier(environment).ready(reactor)
    assert told() == []
    reactor.run()
    assert len(told()) == 1


def test_a_failed_service_never_notifies_ready(environment: dict[str, str], told: Told) -> None:
    reactor, supervisor = MemoryReactorClock(), SystemdNotifier(environment)
    supervisor.ready(reactor)
    supervisor.failed()
    reactor.run()
    assert [*told()[0]] == ["STATUS"]
    assert reactor.triggers == {}


def test_a_failed_reload_notifies_ready_again(environment: dict[str, str], told: Told) -> None:
    supervisor = SystemdNotifier(environment)
    supervisor.ready(Turning())
    with pytest.raises(RuntimeError), supervisor.reloading():
        raise RuntimeError("a bug")
    assert [*told()[-1]] == ["READY"]


def test_a_reload_before_ready_notifies_nothing(environment: dict[str, str], told: Told) -> None:
    with SystemdNotifier(environment).reloading():
        pass
    assert told() == []


def test_the_watchdog_is_notified_at_half_its_interval(environment: dict[str, str], told: Told) -> None:
    reactor = Turning()
    SystemdNotifier({**environment, "WATCHDOG_USEC": "20000000", "WATCHDOG_PID": str(os.getpid())}).ready(reactor)
    assert [*told()[-1]] == ["WATCHDOG"]
    reactor.advance(9.9)
    assert told() == []
    reactor.advance(0.1)
    assert told() == [{"WATCHDOG": "1"}]


def test_watchdog_notifications_continue_after_an_exception(
    environment: dict[str, str], told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    reactor, supervisor = Turning(), SystemdNotifier({**environment, "WATCHDOG_USEC": "20000000"})
    supervisor.ready(reactor)
    told()

    def fail(**said: object) -> None:
        raise TypeError("a bug")

    with monkeypatch.context() as patch, capturedLogs() as logged:
        patch.setattr(supervisor, "notify", fail)
        reactor.advance(10)
    assert [event["what"] for event in logged] == ["the watchdog notification"]
    assert told() == []
    reactor.advance(10)
    assert told() == [{"WATCHDOG": "1"}]


@pytest.mark.parametrize("watchdog", [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "5", "WATCHDOG_PID": "1"}])
def test_no_watchdog_is_notified_without_an_interval_for_this_process(
    environment: dict[str, str], told: Told, watchdog: dict[str, str]
) -> None:
    reactor = Turning()
    SystemdNotifier({**environment, **watchdog}).ready(reactor)
    assert len(told()) == 1
    assert reactor.getDelayedCalls() == []


def test_an_abstract_notify_socket_is_supported() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(f"\0fyrehose-test-{os.getpid()}")
        made.setblocking(False)
        SystemdNotifier({"NOTIFY_SOCKET": f"@fyrehose-test-{os.getpid()}"}).notify(READY=1)
        assert made.recv(100) == b"READY=1"


def test_a_missing_notify_socket_is_logged(tmp_path: Path) -> None:
    reactor = Turning()
    with capturedLogs() as logs:
        SystemdNotifier({}).ready(reactor)
        assert reactor.triggers == {}
        assert logs == []
        SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready(reactor)
    assert "No such file" in str(logs[0]["error"])


@pytest.mark.usefixtures("hangup")
def test_a_reload_signal_is_notified_to_systemd(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], told: Told
) -> None:
    supervisor = SystemdNotifier(environment)
    monkeypatch.setattr(sighup, "systemd_notifier", supervisor)
    reactor = Turning()
    supervisor.ready(reactor)
    told()
    nothing: ReloadOnHup[None] = ReloadOnHup(None, lambda read: [], reactor)
    nothing.start()
    try:
        signal.raise_signal(signal.SIGHUP)
        assert told() == []
        reactor.advance(0)
    finally:
        nothing.stop()
    reactor.advance(0)
    assert [next(iter(one)) for one in told()] == ["RELOADING", "READY"]
