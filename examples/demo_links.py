"""Links of the demo: prints a port for each server, then their counters for each line of input."""

from __future__ import annotations

import sys
from typing import Any

from demo_orders import Orders
from lossy_relay import Relay
from twisted.internet.defer import ensureDeferred
from twisted.internet.task import react

DELAY = 0.003
FAR_SIDE = "127.0.0.2"
"""Host of the far ends. They have the ports of the clients, so the dashboard finds these in the lists of servers."""


async def main(reactor: Any, loss: str, seed: str, *servers: str) -> None:
    links = [
        Relay(reactor, ("127.0.0.1", int(port)), float(loss), float(loss), DELAY, int(seed) + number, FAR_SIDE)
        for number, port in enumerate(servers)
    ]

    async def counts(_: str) -> dict[str, int]:
        return {name: sum(getattr(link, name) for link in links) for name in ("forwarded", "lost", "reordered")}

    await Orders(counts).serve(reactor, [link.listen() for link in links])


if __name__ == "__main__":
    react(lambda reactor, *words: ensureDeferred(main(reactor, *words)), sys.argv[1:])
