"""Messages on a stream, each preceded by its length in four bytes, big endian."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from zope.interface import classImplements

from fyrehose_twisted._native import mypyc_attr
from fyrehose_twisted.errors import MalformedPacket, RemoteError
from fyrehose_twisted.interfaces import IStreamDecoder

Message = TypeVar("Message")

_LENGTH_SIZE = 4


def frame(data: bytes) -> bytes:
    """Return one encoded message with its length."""
    return len(data).to_bytes(_LENGTH_SIZE, "big") + data


@mypyc_attr(allow_interpreted_subclasses=True)
class LengthFrameDecoder(Generic[Message]):
    """Decoder of one connection. It buffers less than one message between two calls.

    If a malformed message follows valid ones, the valid ones are returned, and the next call raises.

    :param decode: returns the message in a frame, or raises :class:`~fyrehose_twisted.errors.RemoteError` if it is
        malformed.
    :param limit: maximum number of bytes in a frame, without its length.
    """

    def __init__(self, decode: Callable[[bytes], Message], limit: int) -> None:
        self._decode = decode
        self._limit = limit
        self._buffer = bytearray()
        self._needed = _LENGTH_SIZE
        self._error: RemoteError | None = None

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that ``data`` completes.

        :raises RemoteError: if the input is malformed; every later call raises it again.
        """
        if self._error is not None:
            raise self._error
        if self._buffer:
            self._buffer += data
            # Copied only if the bytes can complete a message.
            if len(self._buffer) < self._needed:
                return []
            data = bytes(self._buffer)
            self._buffer.clear()
        decoded: list[Message] = []
        start, end = 0, len(data)
        self._needed = _LENGTH_SIZE
        try:
            while end - start >= _LENGTH_SIZE:
                size = int.from_bytes(data[start : start + _LENGTH_SIZE], "big")
                if not 0 < size <= self._limit:
                    raise MalformedPacket("size", f"message of {size:,} bytes; the limit is 1 to {self._limit:,}")
                self._needed = _LENGTH_SIZE + size
                if start + self._needed > end:
                    break
                decoded.append(self._decode(data[start + _LENGTH_SIZE : start + self._needed]))
                start += self._needed
                self._needed = _LENGTH_SIZE
        except RemoteError as error:
            self._error = error
            if not decoded:
                raise
            return decoded
        self._buffer += data[start:]
        return decoded


classImplements(LengthFrameDecoder, IStreamDecoder)
