"""MACs that a backbone, or a relay, adds to what it sends."""

from __future__ import annotations

from collections.abc import Iterable

from fyrehose_twisted.effects import Burst, Datagram
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.wire.mac import MacKey, make_stream_id
from fyrehose_twisted.fyrehose.wire.packets import Deliver, Flags, KeepaliveAck

# As a number, because operators of IntFlag are slow.
_MAC = int(Flags.MAC)


class MacOffer:
    """MACs for those clients of a backbone that want them.

    Without a shared secret there are none, whatever clients want.

    :param config: settings of the backbone.
    """

    def __init__(self, config: BackboneConfig) -> None:
        self._stream_id = make_stream_id(config.stream)
        self._secret: bytes | None = None
        self._key: MacKey | None = None
        self.set_secret(config.secret)

    @property
    def is_open(self) -> bool:
        """Whether clients can have MACs."""
        return self._key is not None

    def set_secret(self, secret: bytes | None) -> None:
        """Replace the shared secret."""
        if secret != self._secret:
            self._secret = secret
            self._key = None if secret is None else MacKey(secret, self._stream_id)

    def is_taken(self, flags: int) -> bool:
        """Return whether a client with these FLAGS gets MACs."""
        return self._key is not None and bool(flags & _MAC)

    def add_macs(self, datagrams: Iterable[Datagram | Burst]) -> list[Datagram | Burst]:
        """Return ``datagrams`` with MACs; those that get too large are left out."""
        return list(datagrams) if self._key is None else self._key.add_macs(datagrams)

    def make_ack(self, token: bytes, flags: int) -> KeepaliveAck:
        """Return the answer to a KEEPALIVE, which names the stream if the client gets MACs."""
        key = self._key
        if key is None or not flags & _MAC:
            return KeepaliveAck(token)
        return KeepaliveAck(token, key.stream_id, key.ack_mac(token))

    def refusal_reason(self, deliver: Deliver, flags: int) -> str | None:
        """Return the reason to drop a DELIVER of a client with these FLAGS, 0 for one that is unknown."""
        if not deliver.mac:
            return "mac_missing" if self.is_taken(flags) else None
        return None if self._key is not None and self._key.is_valid(deliver) else "mac_wrong"
