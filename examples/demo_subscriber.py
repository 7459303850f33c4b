"""Subscriber of the demo: hashes received messages and reports as JSON when it has the expected ones."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from demo_metrics import serve_metrics
from demo_orders import Orders
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.task import react

from fyrehose_twisted.fyrehose import SubscriberProtocol, join
from fyrehose_twisted.fyrehose.config import ClientConfig, RepairConfig
from fyrehose_twisted.fyrehose.events import Message
from fyrehose_twisted.fyrehose.wire.envelope import unwrap

PATIENCE = 120.0
"""Timeout in seconds of the first answer of the backbone, and of the last message, on two slow cores."""
ATTEMPTS = 30
"""Repairs for minutes. The default gives up after seconds, which an overloaded machine may take."""


class DigestingSubscriber(SubscriberProtocol):
    """Subscriber that hashes the stream in its order, and in the order of its one publisher."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config)
        self.in_stream_order = hashlib.sha256()
        self.in_publishing_order = hashlib.sha256()
        self.messages = 0
        self.twice = 0
        self.lost: list[tuple[int, int]] = []
        self.expected: int | None = None
        self.complete: Deferred[None] = Deferred()
        self._next_counter = 0
        self._ahead: dict[int, bytes] = {}

    def messages_received(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.messages += 1
            self.in_stream_order.update(b"%d:%b" % (message.sequence, message.data))
            envelope = unwrap(message.payload)
            if envelope is None or envelope.counter < self._next_counter or envelope.counter in self._ahead:
                self.twice += 1
                continue
            self._ahead[envelope.counter] = message.data
            while self._next_counter in self._ahead:
                self.in_publishing_order.update(self._ahead.pop(self._next_counter) + b"\n")
                self._next_counter += 1
        self.check()

    def messages_lost(self, first: int, last: int) -> None:
        self.lost.append((first, last))

    def check(self) -> None:
        if self.expected is not None and self.messages >= self.expected:
            complete, self.complete, self.expected = self.complete, Deferred(), None
            complete.callback(None)

    def report(self) -> dict[str, Any]:
        node = self.node
        assert node is not None
        return {
            "messages": self.messages,
            "twice": self.twice,
            "missing": len(self._ahead),
            "in_stream_order": self.in_stream_order.hexdigest(),
            "in_publishing_order": self.in_publishing_order.hexdigest(),
            "repaired": node.counters.repaired,
            "repeats": node.counters.repeats,
            "lost": self.lost,
        }


async def main(reactor: Any, backbone: str, metrics: str) -> None:
    config = ClientConfig(start=1, repair=RepairConfig(attempts=ATTEMPTS))
    subscriber = await join(reactor, DigestingSubscriber(config), backbone, timeout=PATIENCE)
    serve_metrics(reactor, metrics, subscriber, backbone)

    async def report(order: str) -> dict[str, Any]:
        subscriber.expected = int(order)
        complete = subscriber.complete
        subscriber.check()
        with suppress(DeferredTimeout):  # Then what is there has to tell what is wrong.
            await complete.addTimeout(PATIENCE, reactor)
        return subscriber.report()

    await Orders(report).serve(reactor, "ready")


if __name__ == "__main__":
    react(lambda reactor, *words: ensureDeferred(main(reactor, *words)), sys.argv[1:])
