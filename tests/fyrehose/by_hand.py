"""Nodes driven by hand: packets arrive and time passes when a test says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.wire.codec import encode
from fyrehose_twisted.fyrehose.wire.packets import Packet


class DrivenNode:
    """A node and its clock.

    :ivar node: the node.
    :ivar now: time of the node.
    """

    node: Any
    now: float

    def receive(self, peer: Address, packets: Iterable[Packet]) -> None:
        """Let packets arrive together."""
        self.node.receive_batch(Batch.pack([(encode(packet), peer) for packet in packets]), self.now)
        self.drain()

    def wait(self, seconds: float) -> None:
        """Let time pass, and tick whenever a tick is due."""
        until = self.now + seconds
        while (due := self.node.next_deadline()) is not None and due <= until:
            self.now = max(due, self.now)
            self.node.tick(self.now)
            self.drain()
        self.now = until

    def drain(self) -> None:
        """Take the outputs of the node."""
        raise NotImplementedError
