"""Publish ticks at an interval, or print the ticks of all publishers: a minimal publisher and subscriber."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import count
from typing import Any

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.task import deferLater, react

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.fyrehose import DEFAULT_BACKBONE, Message, PublisherProtocol, SubscriberProtocol, join


class TickPublisher(PublisherProtocol):
    """Publishes numbered ticks, and waits for the number of each message."""

    async def tick(self, name: str, interval: float, ticks: int | None) -> None:
        for number in range(ticks) if ticks else count():
            sequence = await self.publish(json.dumps({"name": name, "tick": number}).encode())
            print(f"{name} tick {number} is message {sequence}", flush=True)
            await deferLater(self.reactor, interval)


class TickSubscriber(SubscriberProtocol):
    """Prints ticks and lost numbers. ``done`` fires after ``ticks`` messages."""

    def __init__(self, ticks: int | None) -> None:
        super().__init__()
        self.done: Deferred[None] = Deferred()
        self.left = ticks

    def messages_received(self, messages: Sequence[Message]) -> None:
        for message in messages[: self.left]:
            tick = json.loads(message.data)
            print(f"message {message.sequence}: {tick['name']} tick {tick['tick']}", flush=True)
        if self.left is not None:
            self.left = max(0, self.left - len(messages))
            if not self.left and not self.done.called:
                self.done.callback(None)

    def messages_lost(self, first: int, last: int) -> None:
        print(f"lost {first} to {last}", flush=True)


async def main(reactor: Any, options: argparse.Namespace) -> None:
    try:
        if options.role == "publish":
            publisher = await join(reactor, TickPublisher(), options.backbone)
            await publisher.tick(options.name, options.interval, options.count)
            await publisher.leave()
        else:
            subscriber = await join(reactor, TickSubscriber(options.count), options.backbone)
            await subscriber.done
            await subscriber.leave()
    except FyrehoseError as error:
        raise SystemExit(f"ticker: {error}") from None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=("publish", "subscribe"))
    parser.add_argument("--backbone", default=DEFAULT_BACKBONE, metavar="HOST:PORT", help="[%(default)s]")
    parser.add_argument("--name", default="ticker", help="of the publisher [%(default)s]")
    parser.add_argument("--interval", type=float, default=1.0, metavar="S", help="between ticks [%(default)g]")
    parser.add_argument("--count", type=int, metavar="N", help="stop after N ticks")
    arguments = parser.parse_args()
    react(lambda reactor: ensureDeferred(main(reactor, arguments)))
