"""Codec of parcels on a stream (document 004, "Protocol format").

A parcel is one byte with the length of the head, the head, and application data of the length given in the head.
"""

from __future__ import annotations

from functools import lru_cache

from zope.interface import classImplements

from fyrehose_twisted.effects import Datagram
from fyrehose_twisted.errors import RemoteError
from fyrehose_twisted.interfaces import IStreamCodec, IStreamDecoder
from fyrehose_twisted.parcels.wire.cbor import BadParcel, encode_integer
from fyrehose_twisted.parcels.wire.head import ParcelHead, empty_heads, read_head, read_neighbours, write_parcel
from fyrehose_twisted.parcels.wire.messages import MAX_DATA, MAX_HEAD, Message, NodeInfo, Parcel, ParcelType
from fyrehose_twisted.parcels.wire.payload import RESPONSES, WIRE_NAMES, PayloadWriter, is_extension_type, read_payload

__all__ = ["MAX_PARCEL", "BadParcel", "ParcelCodec", "ParcelDecoder"]

MAX_PARCEL = 1 + MAX_HEAD + MAX_DATA
"""Maximum size of a parcel in bytes."""


class ParcelDecoder:
    """See :class:`~fyrehose_twisted.interfaces.IStreamDecoder`. Between calls it buffers less than one parcel.

    If a malformed parcel follows valid ones, the valid ones are returned and the next call raises.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._needed = 1
        self._error: RemoteError | None = None

    @property
    def waiting(self) -> int:
        """Number of buffered bytes of an incomplete parcel."""
        return len(self._buffer)

    def feed(self, data: Datagram) -> list[Message]:
        """Feed bytes; return the messages that are complete.

        :raises BadParcel: if the bytes are malformed; every later call raises, too.
        """
        if self._error is not None:
            raise self._error
        if self._buffer:
            self._buffer += data
            # Copy only if the bytes can complete a parcel.
            if len(self._buffer) < self._needed:
                return []
            data = bytes(self._buffer)
            self._buffer.clear()
        found: list[Message] = []
        start, end = 0, len(data)
        try:
            while start < end:
                head_end = start + 1 + data[start]
                self._needed = head_end - start
                if head_end > end:
                    break
                head = _read_head(bytes(data[start + 1 : head_end]))
                stop = head_end + head.size
                self._needed = stop - start
                if stop > end:
                    break
                found.append(_to_message(head, bytes(data[head_end:stop])))
                start = stop
        except RemoteError as error:
            self._error = error
            if not found:
                raise
            return found
        self._buffer += data[start:]
        return found


classImplements(ParcelDecoder, IStreamDecoder)


class ParcelCodec:
    """Codec of the messages in :mod:`~fyrehose_twisted.parcels.wire.messages`.

    :param node_id: sender id for the heads of extension parcels; parcels of document 004 contain their own.
    """

    def __init__(self, node_id: int = 0) -> None:
        self.node_id = node_id
        self._payloads = PayloadWriter()
        self._head_cache: dict[type, tuple[tuple[bytes, ...], bytes]] = {}

    def encode(self, message: Message) -> bytes:
        """Encode ``message``. Entries of an AppendEntries must not be changed afterwards, because they are cached.

        :raises UnencodableMessage: if it does not fit into a parcel, or a field is out of range.
        """
        if isinstance(message, Parcel):
            head, data = write_parcel(message)
            return b"".join((bytes((len(head),)), head, data))
        data = self._payloads.write(message)
        kind = type(message)
        known = self._head_cache.get(kind)
        if known is None:
            known = self._head_cache[kind] = self._heads(kind)
        size = encode_integer(len(data))
        return b"".join((known[0][len(size)], size, known[1], data))

    def _heads(self, kind: type) -> tuple[tuple[bytes, ...], bytes]:
        """Return the head before the size field, for each width of that field, and the head after it."""
        start, end = empty_heads(kind in RESPONSES, WIRE_NAMES[kind], self.node_id)
        return tuple(bytes((len(start) + taken + len(end),)) + start for taken in range(4)), end

    def decoder(self) -> ParcelDecoder:
        """Return a decoder for one connection."""
        return ParcelDecoder()


classImplements(ParcelCodec, IStreamCodec)


@lru_cache(1_024)
def _read_head(data: bytes) -> ParcelHead:
    if not data:
        raise BadParcel("bad-cbor", "a parcel with a head of 0 bytes")
    head = read_head(data)
    if not isinstance(head.type, ParcelType):
        if not is_extension_type(head.type):
            raise BadParcel("unknown-type", f"parcel_type is {head.type[:40]!r}, which is not one of the protocol's")
        if head.body is not None:
            raise BadParcel("bad-value", f"the body of a {head.type} is not empty")
    return head


def _to_message(head: ParcelHead, data: bytes) -> Message:
    if not isinstance(head.type, ParcelType):
        return read_payload(head.type, data)
    body = head.body
    if data and head.type is ParcelType.DSC_RES and isinstance(body, tuple) and not isinstance(body, NodeInfo):
        body, data = body + read_neighbours(data), b""
    return Parcel(head.is_response, head.type, head.id, body, data)
