"""Publisher of the demo: publishes a given number of flights, and answers with their numbers."""

from __future__ import annotations

import sys
import time
from itertools import islice
from typing import Any

from demo_metrics import serve_metrics
from demo_orders import Orders
from flights import flights
from twisted.internet.defer import ensureDeferred
from twisted.internet.task import LoopingCall, deferLater, react
from twisted.python.failure import Failure

from fyrehose_twisted.fyrehose import PublisherProtocol, join
from fyrehose_twisted.fyrehose.config import ClientConfig, OutboxConfig

BURST = 200
PATIENCE = 3_600.0
"""Timeout of a message in seconds. The demo itself ends after some minutes without a confirmation."""
REPORT_INTERVAL = 0.1


class FlightPublisher:
    """Publisher of the first flights, repeatedly."""

    def __init__(self, reactor: Any, publisher: PublisherProtocol) -> None:
        self.orders = Orders(self.publish)
        self._reactor = reactor
        self._publisher = publisher
        self._numbers: list[int] = []
        self._told = 0
        self._failure: Failure | None = None

    async def publish(self, order: str) -> dict[str, Any]:
        """Publish a number of flights, report confirmations meanwhile, and return the numbers."""
        self._numbers, self._told, count, waiting = [], 0, int(order), flights(int(order))
        started = time.monotonic()
        telling = LoopingCall(self._tell)
        telling.start(REPORT_INTERVAL)
        while len(self._numbers) < count and self._failure is None:
            await self._publisher.when_room()
            for message in islice(waiting, BURST):
                self._publisher.publish(message).addCallbacks(self._numbers.append, self._failed)
            await deferLater(self._reactor, 0.001)
        telling.stop()
        if self._failure is not None:
            self._failure.raiseException()
        return {"numbers": self._numbers, "seconds": time.monotonic() - started}

    def _tell(self) -> None:
        # Nothing is said while nothing comes back, so a network that stands still is noticed.
        if len(self._numbers) > self._told:
            self._told = len(self._numbers)
            self.orders.say({"published": self._told})

    def _failed(self, failure: Failure) -> None:
        self._failure = failure


async def main(reactor: Any, backbone: str, metrics: str) -> None:
    config = ClientConfig(outbox=OutboxConfig(timeout=PATIENCE))
    publisher = await join(reactor, PublisherProtocol(config), backbone, timeout=PATIENCE)
    serve_metrics(reactor, metrics, publisher, backbone)
    await FlightPublisher(reactor, publisher).orders.serve(reactor, "ready")


if __name__ == "__main__":
    react(lambda reactor, *words: ensureDeferred(main(reactor, *words)), sys.argv[1:])
