"""Stable envelopes of rows for deduplication."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from fyrehose_twisted.fyrehose.wire.envelope import wrap

CHUNK_ROWS = 1_024
"""Rows per publisher id."""


def encode_scope(*parts: object) -> bytes:
    """Return bytes that differ wherever one of ``parts``, as text, differs."""
    encoded = [str(part).encode() for part in parts]
    return b"".join(len(part).to_bytes(4, "big") + part for part in encoded)


def wrap_by_position(scope: bytes, chunk: int, payloads: Sequence[bytes]) -> list[bytes]:
    """Return DATA of rows that are known by where they stand: publisher is the chunk, counter the row in it.

    The publisher id depends on what the chunk holds. If a task that runs again has its rows in another order, they get
    other envelopes and are published twice; by place alone they would be taken for others and dropped.

    :param scope: of the partition.
    :param chunk: which one of the partition.
    """
    digest = blake2b(scope, digest_size=8, person=b"fyrehose place")
    digest.update(chunk.to_bytes(8, "big"))
    for payload in payloads:
        digest.update(len(payload).to_bytes(4, "big"))
        digest.update(payload)
    publisher = digest.digest()
    return [wrap(publisher, counter, payload) for counter, payload in enumerate(payloads)]


def wrap_by_id(scope: bytes, ids: Sequence[bytes], payloads: Sequence[bytes]) -> list[bytes]:
    """Return DATA of rows that have an id each: the id is the publisher, and the row its only message.

    :param scope: within which ids are unique.
    """
    seed = blake2b(scope, digest_size=8, person=b"fyrehose id")
    messages = []
    for row_id, payload in zip(ids, payloads, strict=True):
        digest = seed.copy()
        digest.update(row_id)
        messages.append(wrap(digest.digest(), 0, payload))
    return messages
