"""Key of a message, for subscribers that select or compact messages by key.

The key header follows the envelope. In a sealed message, it is the start of what is sealed, so the key is encrypted and
authenticated. It has the magic and version ``F7 46 4B 01`` (4 bytes), the length of the key (1), the key, and then the
published data. Messages without a key have no header. The one exception is data that begins with the magic, which
publishers protect with a header of length 0. Messages without an envelope have no key.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.framing import KeyedPayload, check_key

KEY_MAGIC = b"\xf7FK\x01"
_MAGIC_SIZE = len(KEY_MAGIC)
KEY_OVERHEAD = _MAGIC_SIZE + 1
"""Bytes that a key adds to a message, besides its own: 5."""

_NO_KEY = KEY_MAGIC + b"\0"


def add_key(payload: bytes, key: bytes) -> KeyedPayload:
    """Return a payload with a key header.

    :raises ConfigurationError: if the key is empty or longer than :data:`~fyrehose_twisted.framing.MAX_KEY`.
    """
    check_key(key)
    return KeyedPayload(b"%b%c%b%b" % (KEY_MAGIC, len(key), key, payload))


def add_key_of_line(line: bytes, separator: bytes) -> KeyedPayload:
    """Return the payload of a line that has a key before ``separator``, and the data after it.

    :raises ConfigurationError: if there is no separator, or the key is empty or too long.
    """
    key, found, payload = line.partition(separator)
    if not found:
        raise ConfigurationError("the line has no key: the separator is missing")
    return add_key(payload, key)


def split_key(data: bytes, offset: int = 0) -> tuple[bytes | None, bytes]:
    """Return the key, or ``None``, and the published data, of ``data`` from ``offset`` on.

    A header that is cut off is data, as publishers that know nothing of keys may publish it.
    """
    if not data.startswith(KEY_MAGIC, offset):
        return None, data[offset:]
    start = offset + KEY_OVERHEAD
    if len(data) < start:
        return None, data[offset:]
    end = start + data[start - 1]
    if len(data) < end:
        return None, data[offset:]
    return data[start:end] or None, data[end:]


def escape_payloads(payloads: Sequence[bytes]) -> Sequence[bytes]:
    """Return the payloads to publish: those without a key that look as if they had one get an empty header."""
    if max(payloads, default=b"") < KEY_MAGIC:  # So none begins with it, as in all UTF-8. This is the fastest test.
        return payloads
    return [
        _NO_KEY + payload if payload.startswith(KEY_MAGIC) and type(payload) is not KeyedPayload else payload
        for payload in payloads
    ]


def check_unkeyed(payloads: Sequence[bytes]) -> None:
    """Check messages to publish without envelopes. :raises ConfigurationError: if one has a key."""
    if any(type(payload) is KeyedPayload for payload in payloads):
        raise ConfigurationError("a key requires an envelope; remove OutboxConfig(raw=True)")


def may_have_keys(messages: Sequence[bytes], offset: int) -> bool:
    """Return whether one of the messages has the magic of a key header at ``offset``."""
    return KEY_MAGIC in map(itemgetter(slice(offset, offset + _MAGIC_SIZE)), messages)
