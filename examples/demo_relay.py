"""The links of the demo: prints its port, then its counts for each line that it is sent."""

from __future__ import annotations

import json
import sys
from typing import Any

from lossy_relay import Relay
from twisted.internet import stdio
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.task import react
from twisted.protocols.basic import LineReceiver


class Counts(LineReceiver):
    """Answers each line with the counts."""

    delimiter = b"\n"

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.closed: Deferred[None] = Deferred()

    def lineReceived(self, line: bytes) -> None:
        relay = self.relay
        counts = {"forwarded": relay.forwarded, "lost": relay.lost, "reordered": relay.reordered}
        self.sendLine(json.dumps(counts).encode())

    def connectionLost(self, reason: object = None) -> None:
        self.closed.callback(None)


async def main(reactor: Any, port: str, loss: str, seed: str) -> None:
    relay = Relay(reactor, ("127.0.0.1", int(port)), loss=float(loss), reorder=float(loss), delay=0.003, seed=int(seed))
    counts = Counts(relay)
    listening = relay.listen()
    stdio.StandardIO(counts, reactor=reactor)
    counts.sendLine(b"%d" % listening)
    await counts.closed


if __name__ == "__main__":
    react(lambda reactor, *words: ensureDeferred(main(reactor, *words)), sys.argv[1:])
