"""Layout of a sealed payload.

Integers are big-endian. The payload follows the envelope in DATA, if there is one.

======  =====  ==================================================================
offset  bytes  content
======  =====  ==================================================================
0       3      magic ``F7 46 53``
3       1      1: sealed; 2: sealed and signed
4       4      id of the key
8       16     publisher id, random and new at each start of a publisher
24      8      counter of the messages sealed under this publisher id, from 0
32      8      time of sealing, UTC microseconds since 1970
40      ...    ciphertext
...     16     authentication tag
======  =====  ==================================================================

The nonce is 4 zero bytes and the counter, under a key of the publisher id. The associated data are the header, the
length of the stream's URI (2 bytes), the URI, and the envelope.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from fyrehose_twisted.errors import ConfigurationError

MAGIC = b"\xf7FS"
SEALED, SIGNED = 1, 2
"""Values of the byte after the magic."""

PUBLISHER_ID_SIZE = 16
KEY_ID_SIZE = 4
TAG_SIZE = 16
_HEADER = struct.Struct(">3sB4s16sQQ")
HEADER_SIZE = _HEADER.size
SEAL_OVERHEAD = HEADER_SIZE + TAG_SIZE
"""Bytes that sealing adds to a payload, without a signature: 56."""

MAX_STREAM_BYTES = 255
NONCE_PREFIX = bytes(4)


class SealHeader(NamedTuple):
    """Header of a sealed payload."""

    kind: int
    """:data:`SEALED` or :data:`SIGNED`; other values are of later versions."""
    key_id: bytes
    publisher: bytes
    counter: int
    sealed_at: int
    """UTC microseconds since 1970."""


def encode_header(header: SealHeader) -> bytes:
    """Return the bytes of a header."""
    return _HEADER.pack(MAGIC, *header)


def is_sealed(payload: bytes, offset: int = 0) -> bool:
    """Return whether a payload that starts at ``offset`` claims to be sealed."""
    return payload.startswith(MAGIC, offset)


def decode_header(payload: bytes, offset: int = 0) -> SealHeader | None:
    """Return the header of a payload that claims to be sealed; ``None`` if the payload is too short."""
    if len(payload) - offset < SEAL_OVERHEAD:
        return None
    return SealHeader._make(_HEADER.unpack_from(payload, offset)[1:])


def stream_context(stream: str) -> bytes:
    """Return the part of the associated data that names the stream.

    :raises ConfigurationError: if the name is empty or too long.
    """
    name = stream.encode()
    if not 0 < len(name) <= MAX_STREAM_BYTES:
        raise ConfigurationError(f"stream name of {len(name)} bytes; give 1 to {MAX_STREAM_BYTES} bytes")
    return len(name).to_bytes(2, "big") + name


def nonce(counter: int) -> bytes:
    """Return the nonce of the message with a counter."""
    return NONCE_PREFIX + counter.to_bytes(8, "big")
