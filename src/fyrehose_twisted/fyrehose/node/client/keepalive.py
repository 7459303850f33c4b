"""Keepalive session of a client with the backbone."""

from __future__ import annotations

from collections import OrderedDict, deque
from math import inf
from random import Random

from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.wire.codec import encode
from fyrehose_twisted.fyrehose.wire.packets import TOKEN_SIZE, Dialect, Flags, Keepalive
from fyrehose_twisted.fyrehose.wire.token import make_token

BACKBONE_TIMEOUT = 5.0
"""Seconds without a KEEPALIVE-ACK after which the client is disconnected; the backbone expires clients then, too."""

REMEMBERED_TOKENS = 8
"""Number of recent KEEPALIVEs whose tokens are accepted in extensions."""

UNANSWERED = 64
"""Maximum number of unanswered KEEPALIVEs."""

CONNECT_INTERVAL = 0.25
"""Seconds between KEEPALIVEs while the backbone does not answer."""


class KeepaliveSession:
    """Schedule and contents of the KEEPALIVEs of a client (000, client rule 1).

    :ivar connected: whether the backbone answers.
    :ivar extensions_supported: whether the backbone has sent an extension since it was last connected.
    :ivar token: token of the latest KEEPALIVE.
    :ivar round_trip: latest round trip time in seconds; ``None`` before the first answer.
    :param journals: whether this client answers FORWARDs.
    :param durable: whether it answers them from a durable journal.
    :param flags: FLAGS in addition to those that the other parameters imply.
    :ivar due_at: time of the next KEEPALIVE.
    """

    def __init__(
        self,
        config: ClientConfig,
        rng: Random,
        now: float,
        *,
        journals: bool = True,
        durable: bool = False,
        flags: Flags = Flags.NONE,
    ) -> None:
        self.connected = False
        self.extensions_supported = False
        self.token = b""
        self.round_trip: float | None = None
        self.due_at = now
        self._hears_group = False
        self._config = config
        self._rng = rng
        self._sent_at: OrderedDict[bytes, float] = OrderedDict()
        self._acked_at = now
        self._recent_tokens: deque[bytes] = deque(maxlen=REMEMBERED_TOKENS)
        self._watch_until = inf if config.watch else now
        self._flags = flags if config.subscribe else flags | Flags.NOSUBSCRIBE
        if not journals:
            self._flags |= Flags.NOJOURNAL
        if config.dialect is Dialect.V2:
            self._flags |= Flags.EXTENSIONS
            for version, flag in ((4, Flags.IPV4), (6, Flags.IPV6)):
                if version in config.ip_versions:
                    self._flags |= flag
            if config.wants_macs:
                self._flags |= Flags.MAC
            if durable:
                self._flags |= Flags.DURABLE
            if config.multicast:
                self._flags |= Flags.MULTICAST

    def next_keepalive(self, now: float) -> bytes:
        """Return the KEEPALIVE to send now and schedule the next."""
        self.due_at = now + (self._config.keepalive_interval if self.connected else CONNECT_INTERVAL)
        flags = self._flags | Flags.WATCHES if now < self._watch_until else self._flags
        token, datagram = self._encode(flags | Flags.HEARS if self._hears_group else flags, now)
        self.token = token
        self._recent_tokens.append(token)
        self._sent_at[token] = now
        self._sent_at.move_to_end(token)
        if len(self._sent_at) > UNANSWERED:
            self._sent_at.popitem(last=False)
        return datagram

    def set_hears_group(self, hears: bool, now: float) -> None:
        """Tell the backbone whether the client hears its multicast group: now, as it serves the client in the other way
        until it knows."""
        self._hears_group, self.due_at = hears, now

    def watch_journals(self, now: float, until: float) -> None:
        """Request immediate reports of journal progress until ``until``."""
        if now >= self._watch_until:
            self.due_at = now
        self._watch_until = max(self._watch_until, until)

    def is_recent_token(self, token: bytes) -> bool:
        """Return whether ``token`` belongs to a recent KEEPALIVE."""
        return token in self._recent_tokens

    def leader_changed(self, now: float) -> None:
        """Give another backbone time to answer."""
        self._acked_at = now

    def goodbye(self, now: float) -> bytes | None:
        """Return a last KEEPALIVE that ends the subscription; ``None`` if the dialect has no flags."""
        if self._config.dialect is Dialect.V1:
            return None
        token, datagram = self._encode(Flags.NOSUBSCRIBE | Flags.NOJOURNAL, now)
        self._recent_tokens.append(token)
        return datagram

    def acked(self, token: bytes, now: float) -> float | None:
        """Handle a KEEPALIVE-ACK. Return the round trip time in seconds, or ``None`` if the token is unknown.

        With a secret, a token is the same for 30 s, and version 1 has no token. The round trip is then measured from
        the last KEEPALIVE, and is too short if the answer took longer than the interval.
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
    def answered_at(self) -> float:
        """Time of the latest answer."""
        return self._acked_at

    @property
    def times_out_at(self) -> float:
        """Time at which the connection times out without another answer."""
        return self._acked_at + BACKBONE_TIMEOUT

    def timed_out(self, now: float) -> bool:
        """Return whether the backbone has not answered in time."""
        return now >= self.times_out_at

    def disconnect(self) -> None:
        """Assume nothing of the backbone until it answers again."""
        self.connected = False
        self.extensions_supported = False

    def _encode(self, flags: Flags, now: float) -> tuple[bytes, bytes]:
        config = self._config
        if config.dialect is Dialect.V1:
            return b"", encode(Keepalive(config.address, token=b"", dialect=Dialect.V1))
        if config.secret is None:
            token = self._rng.randbytes(TOKEN_SIZE)
        else:
            token = make_token(config.secret, config.address, flags, now)
        return token, encode(Keepalive(config.address, flags, token))
