"""Control of the demo's processes: each reads commands from standard input and answers with lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet import stdio
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.protocols.basic import LineReceiver


class Orders(LineReceiver):
    """Protocol that answers each line with the result of ``carry_out``. Call :meth:`say` for further lines.

    :ivar closed: fires when nobody has any more orders, or one of them failed.
    """

    delimiter = b"\n"
    MAX_LENGTH = 2**20

    def __init__(self, carry_out: Callable[[str], Awaitable[Any]]) -> None:
        self.closed: Deferred[None] = Deferred()
        self._carry_out = carry_out

    def serve(self, reactor: Any, greeting: object) -> Deferred[None]:
        """Write ``greeting`` and start; return :attr:`closed`."""
        stdio.StandardIO(self, reactor=reactor)
        self.say(greeting)
        return self.closed

    def say(self, what: object) -> None:
        """Write a line of JSON."""
        self.sendLine(json.dumps(what).encode())

    def lineReceived(self, line: bytes) -> None:
        """Twisted: a command arrived."""
        ensureDeferred(self._answer(line.decode())).addErrback(self._end)

    async def _answer(self, order: str) -> None:
        self.say(await self._carry_out(order))

    def connectionLost(self, reason: object = None) -> None:
        """Twisted: standard input was closed."""
        self._end(None)

    def _end(self, result: Any) -> None:
        if not self.closed.called:
            self.closed.callback(result)
