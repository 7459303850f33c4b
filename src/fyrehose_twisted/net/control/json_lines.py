"""JSON lines codec of the control port."""

from __future__ import annotations

import json
from typing import Any

from zope.interface import implementer

from fyrehose_twisted.errors import MalformedPacket, UnencodableMessage
from fyrehose_twisted.interfaces import IStreamCodec, IStreamDecoder

MAX_REQUEST = 16_384
"""Maximum size of a request, in bytes."""
MAX_REPLY = 4 * 2**20
"""Maximum size of a reply, in bytes. The status of a node is the longest."""


@implementer(IStreamCodec)
class JsonLines:
    """Codec for JSON objects, one per line.

    :param limit: maximum bytes of a line.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def encode(self, message: dict[str, Any]) -> bytes:
        """Encode an object as one line."""
        try:
            return json.dumps(message, separators=(",", ":")).encode() + b"\n"
        except (TypeError, ValueError) as error:
            raise UnencodableMessage(f"cannot be encoded as JSON: {error}") from error

    def decoder(self) -> JsonDecoder:
        """Return a decoder for one connection."""
        return JsonDecoder(self._limit)


@implementer(IStreamDecoder)
class JsonDecoder:
    """See :class:`~fyrehose_twisted.interfaces.IStreamDecoder`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = b""

    def feed(self, data: bytes) -> list[Any]:
        """Return the objects that ``data`` completes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > self._limit or any(len(line) > self._limit for line in lines):
            raise MalformedPacket("overlong-line", f"a line has more than {self._limit:,} bytes")
        return [_parse(line) for line in lines if line.strip()]


def _parse(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise MalformedPacket("no-json", f"{line[:40]!r} is not a line of JSON") from None
    if not isinstance(message, dict):
        raise MalformedPacket("no-object", f"{line[:40]!r} is not a JSON object")
    return message
