"""Staying known to the backbone, and knowing whether it is there."""

from __future__ import annotations

from collections import OrderedDict, deque
from math import inf
from random import Random

from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.wire.codec import encode
from fyrehose_twisted.fyrehose.wire.packets import TOKEN_SIZE, Dialect, Flags, Keepalive
from fyrehose_twisted.fyrehose.wire.token import make_token

BACKBONE_TIMEOUT = 5.0
"""Seconds without a KEEPALIVE-ACK after which the backbone counts as gone, as it then counts this client."""

REMEMBERED_TOKENS = 8
"""KEEPALIVEs whose tokens are remembered, answered or not."""

UNANSWERED = 64
"""KEEPALIVEs to remember until they are answered."""

CONNECT_INTERVAL = 0.25
"""Seconds between KEEPALIVEs until the first is answered."""


class KeepaliveSession:
    """When to send which KEEPALIVE (000, client rule 1).

    :ivar connected: whether the backbone answered lately.
    :ivar token: that of the latest KEEPALIVE.
    :ivar round_trip: seconds until the latest answer came; ``None`` before the first.
    :param journals: whether this client answers FORWARDs.
    :param durable: whether it answers them from a durable journal.
    :ivar due_at: when the next KEEPALIVE is due.
    """

    def __init__(
        self, config: ClientConfig, rng: Random, now: float, *, journals: bool = True, durable: bool = False
    ) -> None:
        self.connected = False
        self.token = b""
        self.round_trip: float | None = None
        self.due_at = now
        self._config = config
        self._rng = rng
        self._sent_at: OrderedDict[bytes, float] = OrderedDict()
        self._acked_at = now
        self._recent_tokens: deque[bytes] = deque(maxlen=REMEMBERED_TOKENS)
        self._watch_until = inf if config.watch else now
        self._flags = Flags.NONE if config.subscribe else Flags.NOSUBSCRIBE
        if not journals:
            self._flags |= Flags.NOJOURNAL
        if config.dialect is Dialect.V2:
            self._flags |= Flags.EXTENSIONS
            if durable:
                self._flags |= Flags.DURABLE

    def next_keepalive(self, now: float) -> bytes:
        """Return the KEEPALIVE to send now and plan the next."""
        self.due_at = now + (self._config.keepalive_interval if self.connected else CONNECT_INTERVAL)
        token, datagram = self._encode(self._flags | (Flags.WATCHES if now < self._watch_until else 0), now)
        self.token = token
        self._recent_tokens.append(token)
        self._sent_at[token] = now
        self._sent_at.move_to_end(token)
        if len(self._sent_at) > UNANSWERED:
            self._sent_at.popitem(last=False)
        return datagram

    def watch_journals(self, now: float, until: float) -> None:
        """Ask to be told at once what becomes durable."""
        if now >= self._watch_until:
            self.due_at = now
        self._watch_until = max(self._watch_until, until)

    def is_recent_token(self, token: bytes) -> bool:
        """Say whether ``token`` is that of a KEEPALIVE sent lately."""
        return token in self._recent_tokens

    def goodbye(self, now: float) -> bytes | None:
        """Return a KEEPALIVE that asks for nothing more; ``None`` where the dialect cannot say that."""
        if self._config.dialect is Dialect.V1:
            return None
        return self._encode(Flags.NOSUBSCRIBE | Flags.NOJOURNAL, now)[1]

    def acked(self, token: bytes, now: float) -> float | None:
        """Take a KEEPALIVE-ACK; return the seconds since its KEEPALIVE was sent, ``None`` if it answers none of ours.

        A secret makes one token for 30 s, and version 1 has none; then the last KEEPALIVE counts, and the time
        is too short where an answer takes longer than the interval.
        """
        sent_at = self._sent_at.get(token)
        if sent_at is None:
            return None
        if self._config.secret is None and self._config.dialect is Dialect.V2:
            del self._sent_at[token]
        self._acked_at = now
        self.round_trip = max(0.0, now - sent_at)
        return self.round_trip

    @property
    def times_out_at(self) -> float:
        """When the backbone has not answered for too long."""
        return self._acked_at + BACKBONE_TIMEOUT

    def timed_out(self, now: float) -> bool:
        """Say whether the backbone has not answered for too long."""
        return now >= self.times_out_at

    def _encode(self, flags: Flags, now: float) -> tuple[bytes, bytes]:
        config = self._config
        if config.dialect is Dialect.V1:
            return b"", encode(Keepalive(config.address, token=b"", dialect=Dialect.V1))
        if config.secret is None:
            token = self._rng.randbytes(TOKEN_SIZE)
        else:
            token = make_token(config.secret, config.address, flags, now)
        return token, encode(Keepalive(config.address, flags, token))
