"""Staying known to the backbone, and knowing whether it is there."""

from __future__ import annotations

from random import Random

from fyrehose_twisted.fyrehose.admission import make_token
from fyrehose_twisted.fyrehose.codec import TOKEN_SIZE, encode
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.messages import Dialect, Flags, Keepalive

SILENCE = 5.0
"""Seconds without a KEEPALIVE-ACK after which the backbone counts as gone, as it then counts this client."""

FIRST_RETRY = 0.25
"""Seconds between KEEPALIVEs until the first is answered."""


class Presence:
    """When to send which KEEPALIVE (000, client rule 1).

    :ivar connected: whether the backbone answered lately.
    :ivar due_at: when the next KEEPALIVE is due.
    """

    def __init__(self, config: ClientConfig, rng: Random, now: float) -> None:
        self.connected = False
        self.due_at = now
        self._config = config
        self._token = rng.randbytes(TOKEN_SIZE)
        self._sent_at = now
        self._answered_at = now
        self._flags = Flags.NONE if config.subscribe else Flags.NOSUBSCRIBE
        if not config.journal:
            self._flags |= Flags.NOJOURNAL

    def keepalive(self, now: float) -> bytes:
        """Return the KEEPALIVE to send now and plan the next."""
        self._sent_at = now
        self.due_at = now + (self._config.keepalive_interval if self.connected else FIRST_RETRY)
        return self._encode(self._flags, now)

    def farewell(self, now: float) -> bytes | None:
        """Return a KEEPALIVE that asks for nothing more; ``None`` where the dialect cannot say that."""
        if self._config.dialect is Dialect.V1:
            return None
        return self._encode(Flags.NOSUBSCRIBE | Flags.NOJOURNAL, now)

    def answered(self, token: bytes, now: float) -> float | None:
        """Take a KEEPALIVE-ACK; return the round-trip time in seconds, ``None`` if it answers none of ours."""
        if token != (self._token if self._config.dialect is Dialect.V2 else b""):
            return None
        self._answered_at = now
        return max(0.0, now - self._sent_at)

    @property
    def silent_at(self) -> float:
        """When the backbone has not answered for too long."""
        return self._answered_at + SILENCE

    def silent(self, now: float) -> bool:
        """Say whether the backbone has not answered for too long."""
        return now >= self.silent_at

    def _encode(self, flags: Flags, now: float) -> bytes:
        config = self._config
        if config.dialect is Dialect.V1:
            return encode(Keepalive(config.address, token=b"", dialect=Dialect.V1))
        if config.secret is not None:
            self._token = make_token(config.secret, config.address, flags, now)
        return encode(Keepalive(config.address, flags, self._token))
