"""Staying known to the backbone, and knowing whether it is there."""

from __future__ import annotations

from collections import OrderedDict
from random import Random

from fyrehose_twisted.fyrehose.admission import make_token
from fyrehose_twisted.fyrehose.codec import TOKEN_SIZE, encode
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.messages import Dialect, Flags, Keepalive

SILENCE = 5.0
"""Seconds without a KEEPALIVE-ACK after which the backbone counts as gone, as it then counts this client."""

UNANSWERED = 64
"""KEEPALIVEs to remember until they are answered."""

FIRST_RETRY = 0.25
"""Seconds between KEEPALIVEs until the first is answered."""


class Presence:
    """When to send which KEEPALIVE (000, client rule 1).

    :ivar connected: whether the backbone answered lately.
    :param journals: whether this client answers FORWARDs.
    :ivar due_at: when the next KEEPALIVE is due.
    :ivar round_trip: seconds that the answer took that came last, ``None`` if that cannot be told.
    """

    def __init__(self, config: ClientConfig, rng: Random, now: float, *, journals: bool = True) -> None:
        self.connected = False
        self.due_at = now
        self.round_trip: float | None = None
        self._config = config
        self._rng = rng
        self._unanswered: OrderedDict[bytes, list[float]] = OrderedDict()
        self._answered_at = now
        self._flags = Flags.NONE if config.subscribe else Flags.NOSUBSCRIBE
        if not journals:
            self._flags |= Flags.NOJOURNAL

    def keepalive(self, now: float) -> bytes:
        """Return the KEEPALIVE to send now and plan the next."""
        self.due_at = now + (self._config.keepalive_interval if self.connected else FIRST_RETRY)
        token, datagram = self._encode(self._flags, now)
        self._unanswered.setdefault(token, []).append(now)
        if sum(map(len, self._unanswered.values())) > UNANSWERED:
            oldest = next(iter(self._unanswered))
            self._unanswered[oldest].pop(0)
            if not self._unanswered[oldest]:
                del self._unanswered[oldest]
        return datagram

    def farewell(self, now: float) -> bytes | None:
        """Return a KEEPALIVE that asks for nothing more; ``None`` where the dialect cannot say that."""
        if self._config.dialect is Dialect.V1:
            return None
        return self._encode(Flags.NOSUBSCRIBE | Flags.NOJOURNAL, now)[1]

    def answered(self, token: bytes, now: float) -> bool:
        """Take a KEEPALIVE-ACK; say whether it answers one of ours.

        :attr:`round_trip` is then how long that took in seconds, or ``None`` if several with this token were under way:
        a secret makes one token for 30 s, and version 1 has none.
        """
        sent = self._unanswered.get(token)
        if sent is None:
            return False
        self.round_trip = max(0.0, now - sent[0]) if len(sent) == 1 else None
        sent.pop(0)
        if not sent:
            del self._unanswered[token]
        self._answered_at = now
        return True

    @property
    def silent_at(self) -> float:
        """When the backbone has not answered for too long."""
        return self._answered_at + SILENCE

    def silent(self, now: float) -> bool:
        """Say whether the backbone has not answered for too long."""
        return now >= self.silent_at

    def _encode(self, flags: Flags, now: float) -> tuple[bytes, bytes]:
        config = self._config
        if config.dialect is Dialect.V1:
            return b"", encode(Keepalive(config.address, token=b"", dialect=Dialect.V1))
        if config.secret is None:
            token = self._rng.randbytes(TOKEN_SIZE)
        else:
            token = make_token(config.secret, config.address, flags, now)
        return token, encode(Keepalive(config.address, flags, token))
