"""Links of the demo: prints its port, then its counters for each line of input."""

from __future__ import annotations

import sys
from typing import Any

from demo_orders import Orders
from lossy_relay import Relay
from twisted.internet.defer import ensureDeferred
from twisted.internet.task import react

DELAY = 0.003


async def main(reactor: Any, backbone: str, loss: str, seed: str) -> None:
    relay = Relay(reactor, ("127.0.0.1", int(backbone)), float(loss), float(loss), DELAY, int(seed))

    async def counts(_: str) -> dict[str, int]:
        return {"forwarded": relay.forwarded, "lost": relay.lost, "reordered": relay.reordered}

    await Orders(counts).serve(reactor, relay.listen())


if __name__ == "__main__":
    react(lambda reactor, *words: ensureDeferred(main(reactor, *words)), sys.argv[1:])
