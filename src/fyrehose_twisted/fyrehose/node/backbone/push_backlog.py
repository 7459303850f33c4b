"""Messages that wait until a backbone may number them."""

from __future__ import annotations

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.wire.envelope import unwrap
from fyrehose_twisted.fyrehose.wire.packets import Push

HELD_MESSAGES, HELD_BYTES = 4_096, 8 * 2**20

DUPLICATE_WINDOW = 0.5
"""Seconds after which a publisher has what came of a message that had waited: who sends it again later has not."""


class PushBacklog:
    """PUSHes in order of arrival, up to 4,096 or 8 MiB of them."""

    def __init__(self) -> None:
        self._pushes: list[tuple[Push, Address]] = []
        self._bytes = 0
        self._known_messages: set[bytes] = set()

    @property
    def has_known_messages(self) -> bool:
        """Whether there are messages that may be repeated."""
        return bool(self._known_messages)

    def is_duplicate(self, data: bytes) -> bool:
        """Say whether this enveloped message waits already, or did until now: its publisher grew impatient, and one
        number is enough."""
        return data in self._known_messages

    def add(self, push: Push, peer: Address) -> bool:
        """Keep a PUSH; say whether there was room."""
        if len(self._pushes) >= HELD_MESSAGES or self._bytes + len(push.data) > HELD_BYTES:
            return False
        self._pushes.append((push, peer))
        self._bytes += len(push.data)
        if unwrap(push.data) is not None:
            self._known_messages.add(push.data)
        return True

    def release(self) -> list[tuple[Push, Address]]:
        """Return them, and hold none any more; which they were is known until :meth:`forget`."""
        pushes, self._pushes = self._pushes, []
        self._bytes = 0
        return pushes

    def forget(self) -> None:
        """Take what comes for new from now on."""
        self._known_messages.clear()
