"""Reading of whole objects, to compare them with what was uploaded."""

from __future__ import annotations

from fyrehose_twisted.journal.tier.entry import BLOCK_BYTES, ContentDigest
from fyrehose_twisted.journal.tier.objects import Objects

VERIFIED_BYTES = 8 * BLOCK_BYTES
"""Bytes that one request reads back."""


def reads_back(objects: Objects, url: str, size: int, sha256: str) -> bool:
    """Return whether an object has ``size`` bytes with that SHA-256.

    :raises TierError: if it cannot be read.
    """
    reader = objects.open(url)
    content = ContentDigest()
    for offset in range(0, size, VERIFIED_BYTES):
        data = memoryview(reader.read(offset, min(VERIFIED_BYTES, size - offset)))
        for start in range(0, len(data), BLOCK_BYTES):
            content.add(data[start : start + BLOCK_BYTES])
    return (reader.size(), content.size, content.hexdigest()) == (size, size, sha256)
