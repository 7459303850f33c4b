"""Publisher that prints its requests and their results: ``fyrehose_publisher.py HOST:PORT NAME KEPT PERIOD``.

It publishes a message every PERIOD seconds, which KEPT durable journals must sync, until its standard input ends.
"""

from __future__ import annotations

import json
import sys
from itertools import count
from time import monotonic
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.stdio import StandardIO
from twisted.internet.task import LoopingCall, react
from twisted.python.failure import Failure

from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
from fyrehose_twisted.fyrehose.service.connect import join

UNDER_WAY = 200
"""Maximum number of unacknowledged messages."""


def tell(what: str, **more: Any) -> None:
    print(json.dumps({"time": monotonic(), "what": what, **more}), flush=True)


class Input(Protocol):
    def __init__(self) -> None:
        self.ended: Deferred[None] = Deferred()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.ended.callback(None)


async def run(reactor: Any, backbone: str, name: str, kept: str, period: str) -> None:
    publisher = await join(reactor, PublisherProtocol(), backbone, timeout=60)
    numbers = count(1)
    waiting: set[str] = set()

    def publish() -> None:
        if len(waiting) >= UNDER_WAY:
            return
        line = f"{name}-{next(numbers)}"
        waiting.add(line)
        tell("asked", line=line)

        def told(sequence: int) -> None:
            tell("told", line=line, sequence=sequence, kept=int(kept))

        def failed(failure: Failure) -> None:
            tell("failed", line=line, why=failure.getErrorMessage())

        publisher.publish(line.encode(), kept=int(kept)).addCallbacks(told, failed).addBoth(
            lambda _: waiting.discard(line)
        )

    publishing = LoopingCall(publish)
    publishing.start(float(period))
    given = Input()
    StandardIO(given)
    await given.ended
    publishing.stop()
    while waiting:
        pause: Deferred[None] = Deferred()
        reactor.callLater(0.05, pause.callback, None)
        await pause
    tell("done")
    await publisher.leave()


if __name__ == "__main__":
    react(lambda reactor: Deferred.fromCoroutine(run(reactor, *sys.argv[1:])))
