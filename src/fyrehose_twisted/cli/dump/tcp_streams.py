"""Bytes of TCP connections in order, from captured segments."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from fyrehose_twisted.cli.dump.headers import Transport
from fyrehose_twisted.effects import Address

MAX_STREAMS = 1_024
"""Directions of connections that are followed. A new one beyond evicts the one that was silent for longest."""
MAX_BUFFERED = 262_144
"""Bytes of segments after a gap that are buffered for one direction."""
MAX_SEGMENTS = 1_024
"""Segments after a gap that are buffered for one direction."""

FIN, SYN, RST, ACK = 1, 2, 4, 16
_HALF, _MASK = 2**31, 2**32 - 1

Key = tuple[Address, Address]
"""Source and destination."""


class Gap(NamedTuple):
    """Bytes of a stream that the capture does not have."""

    size: int


class TcpStream:
    """One direction of a connection.

    :param new_decoder: makes what reads the stream.
    :ivar decoder: what reads the stream, for the caller; a new connection at the same addresses gets a new one.
    :ivar is_aligned: whether the decoder began at the start of a message, as far as known.
    :ivar is_encrypted: for the caller; ``None`` while that is not known.
    """

    def __init__(self, new_decoder: Callable[[], object]) -> None:
        self._new_decoder = new_decoder
        self.decoder = new_decoder()
        self.is_aligned = False
        self.is_encrypted: bool | None = None
        self._start: int | None = None
        self._expected: int | None = None
        self._waiting: dict[int, bytes] = {}
        self._buffered = 0

    def _restart(self, expected: int, *, from_start: bool) -> None:
        self.decoder, self._start, self._expected = self._new_decoder(), expected, expected
        self.is_aligned, self.is_encrypted = from_start, None
        self._waiting.clear()
        self._buffered = 0

    def resynchronize(self) -> None:
        """Begin anew with the decoder, somewhere within the stream."""
        self.decoder, self.is_aligned = self._new_decoder(), False

    def add(self, segment: Transport) -> list[bytes | Gap]:
        """Return the bytes of the stream that a segment makes available, in order, and gaps between them.

        A retransmission returns nothing.
        """
        sequence, payload, missing = segment.sequence, segment.payload, segment.missing
        if segment.flags & SYN:
            sequence = sequence + 1 & _MASK
            if self._start != sequence:  # Otherwise it is a retransmission.
                self._restart(sequence, from_start=True)
        if self._expected is None:
            if not payload and not missing:
                return []
            self._restart(sequence, from_start=False)
        found: list[bytes | Gap] = []
        if payload or missing:
            self._insert(sequence, payload, found)
            if missing:
                self._skip(found, missing, sequence + len(payload) & _MASK)
        if segment.flags & (FIN | RST) and self._waiting:
            self._give_up(found)
        return found

    def acknowledged(self, sequence: int) -> list[bytes | Gap]:
        """Return what becomes available because the receiver has acknowledged the bytes before ``sequence``.

        It has received what the capture lacks, so that does not come any more.
        """
        found: list[bytes | Gap] = []
        while self._waiting and min(map(self._distance, self._waiting)) <= self._distance(sequence):
            self._give_up(found)
        return found

    def _insert(self, sequence: int, payload: bytes, found: list[bytes | Gap]) -> None:
        assert self._expected is not None, "the caller has seen to it"
        ahead = sequence - self._expected & _MASK
        if ahead >= _HALF:  # A retransmission, at least in part.
            payload, ahead = payload[_MASK + 1 - ahead :], 0
        if not payload:
            return
        if ahead == 0:
            self._take(payload, found)
            return
        place = self._expected + ahead & _MASK
        if len(payload) > len(self._waiting.get(place, b"")):
            self._buffered += len(payload) - len(self._waiting.get(place, b""))
            self._waiting[place] = payload
        if self._buffered > MAX_BUFFERED or len(self._waiting) > MAX_SEGMENTS:
            self._give_up(found)

    def _take(self, payload: bytes, found: list[bytes | Gap]) -> None:
        assert self._expected is not None, "the caller has seen to it"
        found.append(payload)
        self._expected = self._expected + len(payload) & _MASK
        while self._waiting:
            place = min(self._waiting, key=self._distance)
            ahead = self._distance(place)
            if ahead > 0:
                break
            more = self._waiting.pop(place)
            self._buffered -= len(more)
            if more := more[-ahead:]:
                found.append(more)
                self._expected = self._expected + len(more) & _MASK

    def _distance(self, place: int) -> int:
        assert self._expected is not None, "the caller has seen to it"
        ahead = place - self._expected & _MASK
        return ahead - _MASK - 1 if ahead >= _HALF else ahead

    def _give_up(self, found: list[bytes | Gap]) -> None:
        """Continue after the first gap, the bytes of which are not expected any more."""
        place = min(self._waiting, key=self._distance)
        payload = self._waiting.pop(place)
        self._buffered -= len(payload)
        found.append(Gap(self._distance(place)))
        self._expected = place
        self._take(payload, found)

    def _skip(self, found: list[bytes | Gap], missing: int, start: int) -> None:
        """Skip bytes that the capture has cut off the end of a segment."""
        if self._distance(start) == 0:
            found.append(Gap(missing))
            self._expected = start + missing & _MASK


class TcpStreams:
    """Directions of connections, by addresses."""

    def __init__(self) -> None:
        self._streams: OrderedDict[Key, TcpStream] = OrderedDict()

    def reverse(self, segment: Transport) -> TcpStream | None:
        """Return the direction that a segment acknowledges, if it is followed."""
        return self._streams.get((segment.destination, segment.source)) if segment.flags & ACK else None

    def get(self, segment: Transport, new_decoder: Callable[[], object]) -> TcpStream:
        """Return the direction of a segment."""
        key = segment.source, segment.destination
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) >= MAX_STREAMS:
                self._streams.popitem(last=False)
            stream = self._streams[key] = TcpStream(new_decoder)
        else:
            self._streams.move_to_end(key)
        return stream
