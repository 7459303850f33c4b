"""Receive buffer of one end of a stream connection."""

from __future__ import annotations

from collections import deque
from itertools import zip_longest
from typing import Any, Protocol

from fyrehose_twisted.errors import RemoteError
from fyrehose_twisted.interfaces import IStreamCodec, IStreamDecoder
from fyrehose_twisted.sim.network_core import NetworkCore
from fyrehose_twisted.sim.observer import SimPacket
from fyrehose_twisted.sim.tcp.segments import NO_VALUE, ControlSegment, TcpSegment, split_for_reading


class InboxEnd(Protocol):
    """Interface of a connection end to its receive buffer."""

    @property
    def network(self) -> NetworkCore:
        """Network of the connection."""

    @property
    def codec(self) -> IStreamCodec | None:
        """Codec of the messages."""

    @property
    def is_gone(self) -> bool:
        """Whether the kernel has dropped the connection."""

    @property
    def is_reading(self) -> bool:
        """Whether the node currently reads from it."""

    def bytes_read(self, size: int) -> None:
        """Handle bytes read by the node."""

    def deliver(self, message: Any, packet: Any) -> None:
        """Deliver a message that arrived as ``packet``."""

    def handshake_done(self) -> None:
        """Complete the handshake."""

    def peer_closed(self) -> None:
        """Handle a close by the peer after all its data was read."""

    def decode_failed(self, error: RemoteError) -> None:
        """Handle malformed bytes."""


class ReceiveBuffer:
    """Receive buffer that holds segments until the node of ``end`` reads them, and decodes messages."""

    __slots__ = ("_decoded", "_decoder", "_unread", "end")

    def __init__(self, end: InboxEnd) -> None:
        self.end = end
        self._unread: list[TcpSegment] = []
        self._decoder: IStreamDecoder | None = None
        self._decoded: deque[tuple[Any, Any]] | None = None

    @property
    def has_state(self) -> bool:
        """Whether it holds segments or a partial message."""
        return bool(self._unread or self._decoded or self._decoder)

    @property
    def readable(self) -> bool:
        """Whether there are segments and the node currently reads."""
        return bool(self._unread or self._decoded) and self.end.is_reading

    def add(self, segments: list[TcpSegment]) -> None:
        """Add arrived segments."""
        self._unread += segments

    def discard(self, reason: str) -> bool:
        """Drop all segments; return whether the sender had closed the connection."""
        network, said_bye = self.end.network, False
        decoded, self._decoded = self._decoded, None
        unread, self._unread = self._unread, []
        for _, packet in decoded or ():
            if packet is not NO_VALUE:
                network.drop(packet, reason)
        for segment in unread:
            said_bye = said_bye or segment.data is ControlSegment.BYE
            if not self.end.is_gone:
                self.end.bytes_read(segment.size)
            for packet in segment.packets:
                network.drop(packet, reason)
        return said_bye

    def read(self) -> None:
        """Deliver the segments to the node."""
        while self.readable:
            self.read_some()

    def read_some(self, *, once: bool = False) -> int:
        """Deliver part of the buffer to the node, with ``once`` a single segment; return the number of bytes read.

        Requires :attr:`readable`.
        """
        if self._decoded:
            self._deliver_decoded()
            return 0
        segment = self._unread[0]
        data = segment.data
        if isinstance(data, bytes):
            return self._read_bytes(1 if once else len(self._unread))
        del self._unread[0]
        if isinstance(data, SimPacket):
            self.end.bytes_read(segment.size)
            self.end.deliver(data.data, data)
        elif data is ControlSegment.HELLO:
            self.end.handshake_done()
        else:
            self.end.peer_closed()
        return segment.size

    def _read_bytes(self, max_segments: int) -> int:
        """Read up to ``max_segments`` segments, up to the first that is not bytes."""
        pieces: list[bytes] = []
        packets: list[SimPacket] = []
        for segment in self._unread[:max_segments]:
            if not isinstance(segment.data, bytes):
                break
            pieces.append(segment.data)
            packets += segment.completed_packets
        del self._unread[: len(pieces)]
        data = b"".join(pieces)
        self.end.bytes_read(len(data))
        try:
            messages = self._decode(data)
        except RemoteError as error:
            for packet in packets:
                self.end.network.drop(packet, "reset")
            self.end.decode_failed(error)
            return len(data)
        # A message and its packet are complete with the last byte.
        self._decoded = deque(zip_longest(messages, packets, fillvalue=NO_VALUE))
        self._deliver_decoded()
        return len(data)

    def _decode(self, data: bytes) -> list[Any]:
        """Decode all of ``data`` before the node receives any message.

        The received messages must not depend on read boundaries, but these determine which messages a decoder has
        returned when it fails.
        """
        if self._decoder is None:
            codec = self.end.codec
            assert codec is not None, "the handshake requires a codec at both ends or at neither"
            self._decoder = codec.decoder()
        network = self.end.network
        if not network.split:
            return list(self._decoder.feed(data))
        return [
            message for piece in split_for_reading(data, network.split_rng) for message in self._decoder.feed(piece)
        ]

    def _deliver_decoded(self) -> None:
        while self.readable and self._decoded:
            self.end.deliver(*self._decoded.popleft())
        if not self._decoded:
            self._decoded = None
