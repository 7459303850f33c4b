"""A subscriber of the demo: digests what it receives and reports as JSON when it has what it is told to expect."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from typing import Any

from twisted.internet import stdio
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.task import react
from twisted.protocols.basic import LineReceiver

from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.envelope import unwrap
from fyrehose_twisted.fyrehose.events import Message
from fyrehose_twisted.fyrehose.protocol import SubscriberProtocol
from fyrehose_twisted.fyrehose.service import join


class DigestingSubscriber(SubscriberProtocol):
    """Hashes the stream in its own order, and in the order in which its one publisher published."""

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


class Orders(LineReceiver):
    """Each line is a number of messages to wait for; the answer is a line of JSON."""

    delimiter = b"\n"

    def __init__(self, subscriber: DigestingSubscriber) -> None:
        self.subscriber = subscriber
        self.closed: Deferred[None] = Deferred()

    def lineReceived(self, line: bytes) -> None:
        subscriber = self.subscriber
        subscriber.complete.addCallback(lambda _: self.sendLine(json.dumps(subscriber.report()).encode()))
        subscriber.expected = int(line)
        subscriber.check()

    def connectionLost(self, reason: object = None) -> None:
        self.closed.callback(None)


async def main(reactor: Any, backbone: str) -> None:
    subscriber = await join(reactor, DigestingSubscriber(ClientConfig(start=1)), backbone)
    orders = Orders(subscriber)
    stdio.StandardIO(orders, reactor=reactor)
    orders.sendLine(b'"ready"')
    await orders.closed


if __name__ == "__main__":
    react(lambda reactor, backbone: ensureDeferred(main(reactor, backbone)), sys.argv[1:])
