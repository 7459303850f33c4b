"""Application data of records: data and key of a message, without the framing of its protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fyrehose_twisted.errors import ConfigurationError

MAX_KEY = 255
"""Maximum size of a key in bytes."""


class KeyedPayload(bytes):
    """Payload that begins with a key header, which :func:`~fyrehose_twisted.fyrehose.wire.message_key.add_key` wrote.

    Publishers take it wherever they take a payload.
    """

    __slots__ = ()


class Unframed(NamedTuple):
    """Application data of records, without framing."""

    data: Sequence[bytes | None]
    """Data of each record; ``None`` for one that must not be shown."""
    keys: Sequence[bytes | None] | None = None
    """Key of each record, ``None`` for one without; ``None`` if no record has a key."""


StripFraming = Callable[[str, list[bytes]], Unframed]
"""Given a stream's URI and payloads, returns their application data."""


class KeyFilter(NamedTuple):
    """Selection of messages by their keys. Messages without a key match no filter."""

    key: bytes | None = None
    """The key to select; ``None`` for any."""
    prefix: bytes | None = None
    """Start of the keys to select; ``None`` for any."""

    def matches(self, key: bytes | None) -> bool:
        """Return whether a message with this key, or without a key, is selected."""
        return (
            key is not None
            and (self.key is None or key == self.key)
            and (self.prefix is None or key.startswith(self.prefix))
        )


def make_key_filter(key: bytes | None, prefix: bytes | None) -> KeyFilter | None:
    """Return the filter for a key, a prefix of keys, or both; ``None`` without either.

    :raises ConfigurationError: if one is empty or longer than :data:`MAX_KEY`.
    """
    if key is None and prefix is None:
        return None
    for given in (key, prefix):
        if given is not None:
            check_key(given)
    return KeyFilter(key, prefix)


def check_key(key: bytes) -> None:
    """Check the size of a key. :raises ConfigurationError: if it is empty or longer than :data:`MAX_KEY`."""
    if not 0 < len(key) <= MAX_KEY:
        raise ConfigurationError(f"key of {len(key):,} bytes; give 1 to {MAX_KEY} bytes")
