"""Locations on the ring of numbers from 0 up to, not including, 1 (document 003, "Overall Architecture")."""

from __future__ import annotations

from hashlib import sha256

from fyrehose_twisted.errors import ConfigurationError

KEY_SIZE = 20
"""Size of a key in bytes."""
_KEY_TYPE = b"\x04\x01"
_MAX_INT64 = 2**63 - 1


def distance(a: float, b: float) -> float:
    """Return the distance between two locations around the ring, from 0 to 0.5."""
    apart = abs(a - b)
    return apart if apart <= 0.5 else 1.0 - apart


def key_location(key: bytes) -> float:
    """Return the location of a key.

    It is the absolute value of the first 8 bytes of SHA-256 over the key and its two-byte type, read as a signed
    little-endian integer and divided by 2**63 - 1.
    """
    number = abs(int.from_bytes(sha256(key + _KEY_TYPE).digest()[:8], "little", signed=True))
    return number / _MAX_INT64 % 1.0


def check_key(key: object) -> None:
    """Check that a value is a key.

    :raises ConfigurationError: if it is not.
    """
    if not isinstance(key, bytes) or len(key) != KEY_SIZE:
        raise ConfigurationError(f"{key!r:.80} is not a key: a key has {KEY_SIZE} bytes")


def is_location(value: object) -> bool:
    """Return True if ``value`` is a location."""
    return isinstance(value, float) and 0.0 <= value < 1.0
