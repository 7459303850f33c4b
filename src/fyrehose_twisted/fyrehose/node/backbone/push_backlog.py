"""Backlog of PUSHes that wait until the backbone may number messages."""

from __future__ import annotations

from fyrehose_twisted.datagrams import Batch, DatagramRun
from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.wire.codec import DATA_HEADER
from fyrehose_twisted.fyrehose.wire.envelope import unwrap
from fyrehose_twisted.fyrehose.wire.packets import Push

HELD_MESSAGES, HELD_BYTES = 4_096, 8 * 2**20

DUPLICATE_WINDOW = 0.5
"""Seconds within which the result of a released message reaches its publisher. A later retransmission means that the
result was lost."""


class PushBacklog:
    """PUSHes in order of arrival, at most 4,096 messages or 8 MiB."""

    def __init__(self) -> None:
        self._pushes: list[tuple[Push, Address]] = []
        self._bytes = 0
        self._known_messages: set[bytes] = set()

    @property
    def has_known_messages(self) -> bool:
        """True while duplicates of PUSHes are recognised."""
        return bool(self._known_messages)

    @property
    def has_pushes(self) -> bool:
        """Whether PUSHes wait."""
        return bool(self._pushes)

    def put_back(self, pushes: list[tuple[Push, Address]]) -> None:
        """Let released PUSHes wait again, in front of all others."""
        self._pushes[:0] = pushes
        self._bytes += sum(len(push.data) for push, _ in pushes)

    def is_duplicate(self, data: bytes) -> bool:
        """Return whether this enveloped message is or was in the backlog, so that it must not get a second number."""
        return data in self._known_messages

    def has_duplicate(self, batch: Batch, run: DatagramRun) -> bool:
        """Return whether any of a run of PUSHes is a duplicate."""
        if not self._known_messages:
            return False
        return any(self.is_duplicate(bytes(datagram[DATA_HEADER.size :])) for datagram in batch.datagrams(run))

    def add(self, push: Push, peer: Address) -> bool:
        """Add a PUSH. Return ``False`` if the backlog is full."""
        if len(self._pushes) >= HELD_MESSAGES or self._bytes + len(push.data) > HELD_BYTES:
            return False
        self._pushes.append((push, peer))
        self._bytes += len(push.data)
        if unwrap(push.data) is not None:
            self._known_messages.add(push.data)
        return True

    def release(self) -> list[tuple[Push, Address]]:
        """Remove and return all PUSHes. Their duplicates are recognised until :meth:`forget`."""
        pushes, self._pushes = self._pushes, []
        self._bytes = 0
        return pushes

    def forget(self) -> None:
        """Stop recognising duplicates of earlier PUSHes."""
        self._known_messages.clear()
