"""Messages that wait until a backbone may number them."""

from __future__ import annotations

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.envelope import unwrap
from fyrehose_twisted.fyrehose.messages import Push

HELD_MESSAGES, HELD_BYTES = 4_096, 8 * 2**20


class HeldPushes:
    """PUSHes in order of arrival, up to 4,096 or 8 MiB of them."""

    def __init__(self) -> None:
        self._pushes: list[tuple[Push, Address]] = []
        self._bytes = 0
        self._enveloped: set[bytes] = set()

    def repeats(self, push: Push) -> bool:
        """Say whether this enveloped message waits already: its publisher grew impatient, and one number is enough."""
        return push.data in self._enveloped

    def add(self, push: Push, peer: Address) -> bool:
        """Keep a PUSH; say whether there was room."""
        if len(self._pushes) >= HELD_MESSAGES or self._bytes + len(push.data) > HELD_BYTES:
            return False
        self._pushes.append((push, peer))
        self._bytes += len(push.data)
        if unwrap(push.data) is not None:
            self._enveloped.add(push.data)
        return True

    def release(self) -> list[tuple[Push, Address]]:
        """Return them, and hold none any more."""
        pushes, self._pushes = self._pushes, []
        self._enveloped.clear()
        self._bytes = 0
        return pushes
