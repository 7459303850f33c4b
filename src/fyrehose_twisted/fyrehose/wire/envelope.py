"""The library's envelope: who published a message and which of theirs it is, so that a repeat can be told.

The protocol has no message identity, and a publisher that does not see its message come back must send it again.
Inside DATA, before the payload: magic and version (4 bytes), publisher id (8), counter (8, big endian).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fyrehose_twisted.fyrehose.wire.packets import MAX_DELIVERABLE
from fyrehose_twisted.fyrehose.wire.run_codec import VECTOR_MINIMUM
from fyrehose_twisted.repeats import NO_ENVELOPES, Envelopes, Numbers

MAGIC = b"\xf7FY\x01"
_HEADER = struct.Struct(">4s8sQ")
_HEADER_DTYPE = np.dtype([("magic", ">u4"), ("publisher", ">u8"), ("counter", ">u8")])
_MAGIC = int.from_bytes(MAGIC, "big")
ENVELOPE_SIZE = _HEADER.size
MAX_ENVELOPED = MAX_DELIVERABLE - ENVELOPE_SIZE
"""Payload bytes that fit a message with an envelope: 65,478."""

COUNTER_WINDOW = 65_536
"""Messages for which envelopes are indexed; publishers never have a wider span of counters in flight."""


class Envelope(NamedTuple):
    """Who published a message, and which of theirs it is."""

    publisher: bytes
    counter: int


def wrap(publisher: bytes, counter: int, payload: bytes) -> bytes:
    """Return DATA: the envelope and ``payload``."""
    return _HEADER.pack(MAGIC, publisher, counter) + payload


def unwrap(data: bytes) -> Envelope | None:
    """Return the envelope of ``data``, whose payload starts at :data:`ENVELOPE_SIZE`, or ``None`` if it has none."""
    if not data.startswith(MAGIC) or len(data) < ENVELOPE_SIZE:
        return None
    _, publisher, counter = _HEADER.unpack_from(data)
    return Envelope(publisher, counter)


def envelope_runs(messages: Sequence[bytes]) -> list[tuple[Envelope | None, int]]:
    """Return who published consecutive messages: stretches by their length, each of one publisher with rising counters.

    :return: the first envelope of each stretch, ``None`` if its messages have none, and how many messages it has.
    """
    headers = _header_columns(messages) if len(messages) >= VECTOR_MINIMUM else None
    if headers is not None and (headers["magic"] == _MAGIC).all():
        publishers, counters = headers["publisher"], headers["counter"]
        rises = (publishers[1:] == publishers[:-1]) & (counters[1:] - counters[:-1] == 1) & (counters[1:] != 0)
        starts = [0, *(np.flatnonzero(~rises) + 1).tolist()]
        ends = [*starts[1:], len(messages)]
        return [(unwrap(messages[start]), end - start) for start, end in zip(starts, ends, strict=True)]
    stretches: list[tuple[Envelope | None, int]] = []
    following: Envelope | None = None
    for data in messages:
        envelope = unwrap(data)
        if stretches and envelope == following:
            stretches[-1] = stretches[-1][0], stretches[-1][1] + 1
        else:
            stretches.append((envelope, 1))
        following = None if envelope is None else Envelope(envelope.publisher, envelope.counter + 1)
    return stretches


def _header_columns(messages: Sequence[bytes]) -> NDArray[np.void] | None:
    """Return the first bytes of messages as envelopes, or ``None`` if one is too short to have one."""
    size = len(messages[0])
    if size >= ENVELOPE_SIZE and len(set(map(len, messages))) == 1:
        return np.ndarray((len(messages),), _HEADER_DTYPE, b"".join(messages), 0, (size,))
    heads = b"".join([data[:ENVELOPE_SIZE] for data in messages])
    return np.frombuffer(heads, _HEADER_DTYPE) if len(heads) == len(messages) * ENVELOPE_SIZE else None


def envelope_columns(positions: Numbers, offsets: NDArray[np.uint32], payload: memoryview) -> Envelopes:
    """Return the envelopes of messages; messages without one are left out.

    :param positions: the number of each message, ascending.
    :param offsets: one more than there are messages: message ``i`` is ``payload[offsets[i] : offsets[i + 1]]``.
    """
    rows = np.flatnonzero(offsets[1:] - offsets[:-1] >= ENVELOPE_SIZE)
    if not len(rows):
        return NO_ENVELOPES
    data = np.frombuffer(payload, np.uint8)
    # At each byte, as if an envelope began there; only those at which one may begin are looked at.
    heads = np.ndarray((len(data) - ENVELOPE_SIZE + 1,), _HEADER_DTYPE, data, 0, (1,))[offsets[rows]]
    chosen = heads["magic"] == _MAGIC
    heads = heads[chosen]
    publishers, counters = heads["publisher"].astype(np.uint64), heads["counter"].astype(np.uint64)
    return Envelopes(positions[rows[chosen]], publishers, counters)
