"""Replies to CTCP requests, which clients and server operators expect."""

from __future__ import annotations

from collections.abc import Callable

from fyrehose_twisted.hydra.wire.messages import MAX_IRC
from fyrehose_twisted.token_bucket import TokenBucket

CTCP_RATE = 0.5
"""Replies per second."""
CTCP_BURST = 3
"""Replies at once after a pause."""
MAX_ECHO = 128
"""Largest text of a PING that is echoed, in characters."""


class CtcpResponder:
    """Replies to CTCP VERSION, PING and CLIENTINFO at a limited rate, for all users together.

    :param version: text of the reply to VERSION.
    :param clock: returns the time in seconds.
    :ivar answered: number of replies.
    :ivar limited: number of requests that were not answered because of the rate.
    """

    def __init__(self, version: str, clock: Callable[[], float]) -> None:
        self.answered = 0
        self.limited = 0
        self._version = version
        self._clock = clock
        self._bucket = TokenBucket(CTCP_RATE, CTCP_BURST, clock())

    def reply(self, nick: str, text: str) -> str | None:
        """Return the line that answers a PRIVMSG; ``None`` if it is no request, or the rate is exceeded.

        :param nick: sender of the PRIVMSG; servers have none that can be answered.
        """
        if len(text) < 2 or text[0] != "\x01" or not nick or "." in nick:
            return None
        command, _, argument = text.replace("\x01", "").partition(" ")
        match command.upper():
            case "VERSION":
                answer = f"VERSION {self._version}"
            case "PING":
                answer = f"PING {argument[:MAX_ECHO]}"
            case "CLIENTINFO":
                answer = "CLIENTINFO CLIENTINFO PING VERSION"
            case _:
                return None
        if not self._bucket.take(1, self._clock()):
            self.limited += 1
            return None
        line = f"NOTICE {nick} :\x01{answer.rstrip()}\x01"
        if len(line.encode("utf-8", "surrogateescape")) > MAX_IRC:
            return None
        self.answered += 1
        return line
