"""Base class of backbone and client nodes: datagram decoding and drop counting."""

from __future__ import annotations

from fyrehose_twisted._native import mypyc_attr
from fyrehose_twisted.effects import Address, Datagram, Send
from fyrehose_twisted.errors import MalformedPacket
from fyrehose_twisted.fyrehose.node.drop_log import DropLog
from fyrehose_twisted.fyrehose.wire.codec import decode
from fyrehose_twisted.fyrehose.wire.packets import Packet


class NodeOutput:
    """Effects and events of a node since it was last drained."""

    __slots__ = ("effects", "events")

    def __init__(self) -> None:
        self.effects: list[Send] = []
        self.events: list[object] = []

    def take(self) -> tuple[list[Send], list[object]]:
        """Remove and return all effects and events."""
        effects, self.effects = self.effects, []
        events, self.events = self.events, []
        return effects, events


def earliest(*deadlines: float | None) -> float | None:
    """Return the first of the deadlines that are set."""
    first: float | None = None
    for deadline in deadlines:
        if deadline is not None and (first is None or deadline < first):
            first = deadline
    return first


@mypyc_attr(allow_interpreted_subclasses=True)
class DatagramNode:
    """Node that decodes datagrams and counts those that it drops.

    :ivar drops: dropped packets, by reason.
    """

    def __init__(self) -> None:
        self.drops = DropLog()
        self._output = NodeOutput()

    def receive(self, packet: Packet, peer: Address, now: float) -> None:
        """Handle a packet from ``peer``."""
        raise NotImplementedError(f"{type(self).__name__} does not implement receive(); cannot handle {packet!r}")

    def _receive_datagram(self, datagram: Datagram, peer: Address, truncated: bool, now: float) -> None:
        try:
            packet = decode(datagram, truncated=truncated)
        except MalformedPacket as error:
            self._drop(error.reason, peer, str(error), now)
            return
        if self._admits(packet, peer, now):
            self.receive(packet, peer, now)

    def _admits(self, packet: Packet, peer: Address, now: float) -> bool:
        """Return whether to handle a packet, as far as its MAC is concerned; drop it if not."""
        return True

    def _drop(self, reason: str, peer: Address, detail: str, now: float) -> None:
        event = self.drops.record(reason, peer, detail, now)
        if event is not None:
            self._output.events.append(event)
