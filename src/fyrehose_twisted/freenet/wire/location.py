"""Places on the ring: numbers from 0 up to 1, behind which 0 follows (document 003, "Overall Architecture")."""

from __future__ import annotations

from hashlib import sha256

from fyrehose_twisted.errors import ConfigurationError

KEY_SIZE = 20
"""Bytes of a key."""
_KEY_TYPE = b"\x04\x01"
_MAX_INT64 = 2**63 - 1


def distance(a: float, b: float) -> float:
    """Return how far two locations are from one another, by the shorter way round: 0 to 0.5."""
    apart = abs(a - b)
    return apart if apart <= 0.5 else 1.0 - apart


def key_location(key: bytes) -> float:
    """Return where on the ring a key lies.

    It is the first 8 bytes of SHA-256 of the key and two bytes for its type, as a signed little-endian number without
    its sign, divided by the highest such number.
    """
    number = abs(int.from_bytes(sha256(key + _KEY_TYPE).digest()[:8], "little", signed=True))
    return number / _MAX_INT64 % 1.0


def check_key(key: object) -> None:
    """See whether something is a key. :raises ConfigurationError: if not."""
    if not isinstance(key, bytes) or len(key) != KEY_SIZE:
        raise ConfigurationError(f"{key!r:.80} is no key: that is {KEY_SIZE} bytes")


def is_location(value: object) -> bool:
    """Say whether ``value`` is a location."""
    return isinstance(value, float) and 0.0 <= value < 1.0
