"""PUSHes that a relay has passed on, and the publishers that wait for their DELIVERs."""

from __future__ import annotations

from collections import OrderedDict

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, MAGIC

MAX_PUSHES = 65_536
"""Maximum number of remembered PUSHes. A publisher repeats a PUSH whose DELIVER it does not get."""

MAX_BYTES = 16 * 2**20
"""Maximum size of the DATA by which PUSHes without an envelope are remembered."""


class PushReturns:
    """Publishers by the envelope of their message, or by its DATA if it has none.

    Only those PUSHes are remembered whose DELIVERs their publisher might not get: it does not subscribe, or the message
    may have its number since an earlier attempt.
    """

    def __init__(self) -> None:
        self._publishers: OrderedDict[bytes, Address] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._publishers)

    def add(self, data: bytes, publisher: Address) -> None:
        """Remember the publisher of a message."""
        key = _key(data)
        if key not in self._publishers:
            self._size += len(key)
        self._publishers[key] = publisher
        while len(self._publishers) > MAX_PUSHES or self._size > MAX_BYTES:
            oldest, _ = self._publishers.popitem(last=False)
            self._size -= len(oldest)

    def take(self, data: bytes) -> Address | None:
        """Return the publisher that waits for a message, and forget it."""
        key = _key(data)
        publisher: Address | None = self._publishers.pop(key, None)
        if publisher is not None:
            self._size -= len(key)
        return publisher


def _key(data: bytes) -> bytes:
    return data[:ENVELOPE_SIZE] if data.startswith(MAGIC) else data
