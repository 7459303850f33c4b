"""Base class of services that run a node on stream connections."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import LogLevel, capturedLogs
from zope.interface import Interface, implementer

from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.net.connection import ConnectionLimits
from fyrehose_twisted.net.listening import ListeningPorts
from fyrehose_twisted.net.node_service import NodeService, Observers
from fyrehose_twisted.net.service_config import ServiceConfig


class IListener(Interface):
    def heard(text: str) -> None:  # noqa: N805
        """Handle text."""


@implementer(IListener)
class RecordingListener:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def heard(self, text: str) -> None:
        self.texts.append(text)


@implementer(IListener)
class RaisingListener:
    def heard(self, text: str) -> None:
        raise RuntimeError("deaf")


class Plain(NodeService):
    """A service that records its calls instead of running a node."""

    observed = IListener

    def __init__(self, **options: Any) -> None:
        reactor = MemoryReactorClock()
        self.happened: list[Any] = []
        super().__init__(
            ServiceConfig(limits=ConnectionLimits(max_accepted=1, max_per_source=1)),
            ListeningPorts(reactor, "tcp:1", "plain"),
            protocol=lambda codec: codec,
            codec=object(),
            failed=options.get("failed"),
            rng=None,
            reactor=reactor,
        )

    def _start_node(self) -> None:
        self.happened.append("start")

    async def _stop_node(self) -> None:
        self.happened.append("stop")

    def _halt(self, error: Exception) -> None:
        self.happened.append(("halt", error))

    def _fail_pending(self, error: Exception | None) -> None:
        self.happened.append(("pending", error))


def test_an_observer_that_raises_is_logged_and_the_others_are_notified() -> None:
    observers, listener = Observers(IListener), RecordingListener()
    observers.add(RaisingListener())
    observers.add(listener)
    with capturedLogs() as logs:
        observers.notify("heard", "one")
    assert listener.texts == ["one"]
    [event] = [log for log in logs if log["log_level"] is LogLevel.critical]
    assert "RaisingListener" in repr(event["listener"])
    assert event["method"] == "heard"


def test_an_observer_has_to_provide_the_interface() -> None:
    with pytest.raises(TypeError, match="Could not adapt"):
        Observers(IListener).add(object())


def test_a_discarded_observer_is_not_notified_and_an_unknown_one_is_ignored() -> None:
    observers, listener = Observers(IListener), RecordingListener()
    observers.add(listener)
    observers.discard(listener)
    observers.discard(listener)
    observers.notify("heard", "one")
    assert listener.texts == []


def test_a_service_starts_and_stops_its_node() -> None:
    service = Plain()
    service.startService()
    assert service.happened == ["start"]
    assert service.running
    done: list[None] = []
    service.stopService().addCallback(done.append)
    assert (service.happened, done) == (["start", "stop"], [None])


def test_a_failure_halts_the_node_is_reported_and_fails_pending_calls() -> None:
    failures: list[Exception] = []
    service = Plain(failed=lambda error: (failures.append(error), service.happened.append("reported")))
    error = OSError("no space")
    service.fail(error)
    service.fail(OSError("again"))
    assert failures == [error]
    assert service.happened == [("halt", error), "reported", ("pending", error)]


@pytest.mark.parametrize(("error", "logged"), [(OperationalError("no state"), 0), (ValueError("a bug"), 1)])
def test_a_node_that_cannot_start_fails_its_service(error: Exception, logged: int) -> None:
    class Broken(Plain):
        def _start_node(self) -> None:
            raise error

    failures: list[Exception] = []
    service = Broken(failed=failures.append)
    with capturedLogs() as logs:
        service.startService()
    assert failures == [error]
    service.stopService()
    assert service.happened == [("halt", error), ("pending", error), "stop"]
    assert [log["log_format"] for log in logs].count("the node cannot start") == logged


@pytest.mark.parametrize("name", ["_start_node", "_halt", "_fail_pending"])
def test_a_subclass_without_a_required_method_is_reported(name: str) -> None:
    service = Plain()
    with pytest.raises(NotImplementedError, match=rf"Plain does not override {name}\(\)"):
        getattr(NodeService, name)(service, *([] if name == "_start_node" else [None]))


def test_an_error_at_the_close_of_storage_fails_the_service() -> None:
    class Storage:
        async def close(self) -> None:
            raise OperationalError("the disk is gone")

    failures: list[Exception] = []
    service = Plain(failed=failures.append)
    with pytest.raises(StopIteration):
        service._close_storage(Storage()).send(None)
    assert [str(error) for error in failures] == ["the disk is gone"]
    with pytest.raises(StopIteration):
        service._close_storage(None).send(None)
