"""State of a simulated application: a checksum of all events, in their order."""

from __future__ import annotations

from zlib import crc32

from zope.interface import implementer

from fyrehose_twisted.interfaces import IReplicatedState
from fyrehose_twisted.parcels.node.members.state_transfer import PART_BYTES
from fyrehose_twisted.parcels.wire.messages import Event

SNAPSHOT_MARKS = PART_BYTES
"""Copies of the checksum in a snapshot, so that its parts are four, and those of different snapshots differ."""


@implementer(IReplicatedState)
class EventChain:
    """Checksum of all events, in their order.

    :ivar mark: the checksum.
    """

    def __init__(self) -> None:
        self.mark = 0

    def apply(self, event: Event) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IReplicatedState.apply`."""
        self.mark = crc32(b"%d %s %s" % (event.sequence, event.publisher.encode(), event.data), self.mark)

    def snapshot(self) -> bytes:
        """See :meth:`~fyrehose_twisted.interfaces.IReplicatedState.snapshot`."""
        return self.mark.to_bytes(4, "big") * SNAPSHOT_MARKS

    def restore(self, data: bytes) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IReplicatedState.restore`."""
        if data != data[:4] * SNAPSHOT_MARKS:
            raise ValueError("parts of different snapshots")
        self.mark = int.from_bytes(data[:4], "big")
