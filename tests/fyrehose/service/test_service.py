from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from fyrehose_twisted.fyrehose.protocol.client import SubscriberProtocol
from fyrehose_twisted.fyrehose.service.client import ClientService


class Resolving(Clock):
    """A reactor with a pending name lookup."""

    def __init__(self) -> None:
        super().__init__()
        self.cancelled = False
        self.answer: Deferred[str] = Deferred(self._cancel)

    def resolve(self, name: str) -> Deferred[str]:
        return self.answer

    def _cancel(self, answer: Deferred[str]) -> None:
        self.cancelled = True


def test_a_client_stopped_during_name_lookup_opens_no_port() -> None:
    reactor = Resolving()
    subscriber = SubscriberProtocol(reactor=reactor)
    service: Any = ClientService(subscriber, "backbone.example:2323", reactor=reactor)
    service.startService()
    service.stopService()
    assert reactor.cancelled
    assert subscriber.transport is None
