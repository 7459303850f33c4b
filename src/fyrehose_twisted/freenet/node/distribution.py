"""Distribution of published packets down the tree (document 003, SubscribeData)."""

from __future__ import annotations

from fyrehose_twisted.freenet.events import Packet, PacketsDelivered, PacketsMissed, StreamRenumbered
from fyrehose_twisted.freenet.node.context import NodeContext
from fyrehose_twisted.freenet.node.neighbour import Neighbour
from fyrehose_twisted.freenet.node.packet_window import MAX_JUMP, PacketClass, packet_fingerprint, serial_difference
from fyrehose_twisted.freenet.node.stream import Stream
from fyrehose_twisted.freenet.wire.messages import SubscribeData
from fyrehose_twisted.freenet.wire.signing import can_verify, is_signed, verify


class PacketDistributor:
    """Stores published packets, and gives them to the subscribers and the application."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context

    def data_received(self, message: SubscribeData, neighbour: Neighbour, now: float) -> None:
        """Handle a packet from the parent."""
        core = self._context
        key, number, data = message
        stream = core.streams.get(key)
        if stream is None or stream.parent is not neighbour:
            core.counters["data_not_from_parent"] += 1
            core.deny_subscription(neighbour, key)
            return
        known = stream.packets.classify(number, data)
        newest = stream.packets.newest
        # The root's numbers may differ from the known ones. An old signed packet may be a replay.
        renumbered = known is PacketClass.CONFLICT or (known is PacketClass.OLD and not is_signed(key))
        if known is not PacketClass.NEW and not renumbered:
            core.counters[f"data_{known.value}"] += 1
            return
        # A forged number far ahead would make the subtree ignore all that follows, and a rollback discards packets.
        checked = stream.local or renumbered or (newest is not None and serial_difference(number, newest) > MAX_JUMP)
        if checked and not self.signature_is_valid(key, number, data):
            core.counters["bad_signatures"] += 1
            return
        if renumbered:
            self.roll_back(stream, number, data)
        self.distribute(stream, number, data, None)

    def roll_back(self, stream: Stream, number: int, data: bytes) -> PacketClass:
        """Discard the known numbers so that a packet fits."""
        stream.renumbered = True
        stream.packets.roll_back()
        if stream.packets.classify(number, data) is not PacketClass.NEW:
            stream.packets.roll_back()
        return stream.packets.classify(number, data)

    def signature_is_valid(self, key: bytes, number: int, data: bytes) -> bool:
        """Return True if a packet is signed by the holder of its key, or needs no signature, or cannot be verified."""
        if not is_signed(key):
            return True
        if not can_verify():
            # Subscribers that can verify signatures will check.
            self._context.counters["unverified"] += 1
            return True
        return verify(key, number, data)

    def distribute(self, stream: Stream, number: int, data: bytes, source: Neighbour | None) -> None:
        """Store a packet and send it to all subscribers except ``source``."""
        core, key = self._context, stream.key
        far = stream.packets.is_discontinuous(number)
        missed = stream.packets.add(number, data)
        if far or stream.renumbered:
            core.counters["renumbered"] += 1
            if stream.local:
                core.emit(StreamRenumbered(key, number))
            stream.renumbered = False
        message = SubscribeData(key, number, data)
        for subscriber in stream.subscribers:
            if subscriber is not source:
                core.send(subscriber, message)
        if stream.local:
            for first, last in missed:
                core.emit(PacketsMissed(key, first, last))
            if stream.delivered_ids.add(packet_fingerprint(number, data)):
                core.emit(PacketsDelivered(key, [Packet(number, data)]))
            else:
                core.counters["given_before"] += 1
