"""Stable row envelopes for deduplication."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from fyrehose_twisted.fyrehose.wire.envelope import wrap

CHUNK_ROWS = 1_024
"""Rows per publisher id."""


def encode_scope(*parts: object) -> bytes:
    """Encode the text of ``parts`` unambiguously."""
    encoded = [str(part).encode() for part in parts]
    return b"".join(len(part).to_bytes(4, "big") + part for part in encoded)


def wrap_by_position(scope: bytes, chunk: int, payloads: Sequence[bytes], key: bytes = b"") -> list[bytes]:
    """Wrap rows identified by position: the publisher id denotes the chunk, the counter the row in the chunk.

    The publisher id depends on the contents of the chunk. If a retried task has its rows in another order, they get
    other envelopes and are published twice. With ids from position alone, subscribers would drop them as duplicates.

    :param scope: scope of the partition.
    :param chunk: index of the chunk in the partition.
    :param key: secret key of the hash, if the payloads are to be sealed.
    """
    digest = blake2b(scope, digest_size=8, person=b"fyrehose place", key=key)
    digest.update(chunk.to_bytes(8, "big"))
    for payload in payloads:
        digest.update(len(payload).to_bytes(4, "big"))
        digest.update(payload)
    publisher = digest.digest()
    return [wrap(publisher, counter, payload) for counter, payload in enumerate(payloads)]


def wrap_by_id(scope: bytes, ids: Sequence[bytes], payloads: Sequence[bytes], key: bytes = b"") -> list[bytes]:
    """Wrap rows identified by an id: each id is a publisher with a single message.

    :param scope: scope within which ids are unique.
    :param key: secret key of the hash, if the payloads are to be sealed.
    """
    seed = blake2b(scope, digest_size=8, person=b"fyrehose id", key=key)
    messages = []
    for row_id, payload in zip(ids, payloads, strict=True):
        digest = seed.copy()
        digest.update(row_id)
        messages.append(wrap(digest.digest(), 0, payload))
    return messages
