"""Message envelope of this library: publisher id and message counter, by which subscribers recognise repeats.

The protocol has no message identity, and a publisher retransmits messages that are not acknowledged.
The envelope precedes the payload in DATA: magic and version (4 bytes), publisher id (8), counter (8, big endian).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fyrehose_twisted.fyrehose.wire.message_key import KEY_MAGIC, may_have_keys
from fyrehose_twisted.fyrehose.wire.packets import MAX_DELIVERABLE
from fyrehose_twisted.fyrehose.wire.run_codec import NUMPY_MINIMUM
from fyrehose_twisted.repeats import NO_ENVELOPES, Envelopes, Numbers

MAGIC = b"\xf7FY\x01"
_HEADER = struct.Struct(">4s8sQ")
_HEADER_DTYPE = np.dtype([("magic", ">u4"), ("publisher", ">u8"), ("counter", ">u8")])
_KEYED_DTYPE = np.dtype([("magic", ">u4"), ("publisher", ">u8"), ("counter", ">u8"), ("after", ">u4")])
_MAGIC = int.from_bytes(MAGIC, "big")
_KEY_MAGIC = int.from_bytes(KEY_MAGIC, "big")
_MAX_COUNTER = 2**64 - 1
ENVELOPE_SIZE = _HEADER.size
MAX_ENVELOPED = MAX_DELIVERABLE - ENVELOPE_SIZE
"""Maximum payload in bytes of a message with an envelope: 65,478."""

COUNTER_WINDOW = 65_536
"""Number of messages whose envelopes are indexed. The counters in flight of a publisher never span more."""


class Envelope(NamedTuple):
    """Publisher id and counter of a message."""

    publisher: bytes
    counter: int


def wrap(publisher: bytes, counter: int, payload: bytes) -> bytes:
    """Return the DATA of a message: the envelope followed by ``payload``."""
    return _HEADER.pack(MAGIC, publisher, counter) + payload


def encode_envelope(publisher: bytes, counter: int) -> bytes:
    """Return the bytes of an envelope."""
    return _HEADER.pack(MAGIC, publisher, counter)


def unwrap(data: bytes) -> Envelope | None:
    """Return the envelope of ``data``, whose payload starts at :data:`ENVELOPE_SIZE`, or ``None`` if it has none."""
    if not data.startswith(MAGIC) or len(data) < ENVELOPE_SIZE:
        return None
    _, publisher, counter = _HEADER.unpack_from(data)
    return Envelope(publisher, counter)


def has_envelope(data: bytes) -> bool:
    """Return whether ``data`` begins with an envelope."""
    return data.startswith(MAGIC) and len(data) >= ENVELOPE_SIZE


def envelope_runs(messages: Sequence[bytes]) -> list[tuple[Envelope | None, int]]:
    """Split consecutive messages into runs of one publisher with consecutive counters.

    :return: the first envelope of each run, ``None`` for messages without envelopes, and the length of the run.
    """
    if len(messages) < 2:
        return [(unwrap(data), 1) for data in messages]
    return _split_runs(messages, _header_columns(messages) if len(messages) >= NUMPY_MINIMUM else None)


def keyed_envelope_runs(messages: Sequence[bytes]) -> tuple[list[tuple[Envelope | None, int]], bool]:
    """Return the result of :func:`envelope_runs`, and whether one of the messages may have a key."""
    if len(messages) < 2:
        return envelope_runs(messages), any(data.startswith(KEY_MAGIC, ENVELOPE_SIZE) for data in messages)
    headers = _header_columns(messages) if len(messages) >= NUMPY_MINIMUM else None
    if headers is None or headers.dtype is not _KEYED_DTYPE:
        return _split_runs(messages, headers), may_have_keys(messages, ENVELOPE_SIZE)
    return _split_runs(messages, headers), bool((headers["after"] == _KEY_MAGIC).any())


def _split_runs(messages: Sequence[bytes], headers: NDArray[np.void] | None) -> list[tuple[Envelope | None, int]]:
    if headers is not None:
        enveloped, publishers, counters = headers["magic"] == _MAGIC, headers["publisher"], headers["counter"]
        rises = (publishers[1:] == publishers[:-1]) & (counters[1:] - counters[:-1] == 1) & (counters[1:] != 0)
        if not enveloped.all():
            rises = np.where(enveloped[1:], rises & enveloped[:-1], ~enveloped[:-1] & ~enveloped[1:])
        starts = [0, *(np.flatnonzero(~rises) + 1).tolist()]
        ends = [*starts[1:], len(messages)]
        return [(unwrap(messages[start]), end - start) for start, end in zip(starts, ends, strict=True)]
    runs: list[tuple[Envelope | None, int]] = []
    first, start = unwrap(messages[0]), 0
    for row, data in enumerate(messages):
        if first is None:
            continues = unwrap(data) is None
        else:
            counter = first.counter + row - start
            continues = counter <= _MAX_COUNTER and data.startswith(_HEADER.pack(MAGIC, first.publisher, counter))
        if not continues:
            runs.append((first, row - start))
            first, start = unwrap(data), row
    runs.append((first, len(messages) - start))
    return runs


def _header_columns(messages: Sequence[bytes]) -> NDArray[np.void] | None:
    """Return the first bytes of messages as envelope columns, or ``None`` if a message is too short for an envelope.

    Unless a message is too short for it, the column ``after`` has the 4 bytes that follow.
    """
    sizes = set(map(len, messages))
    shortest = min(sizes)
    if shortest < ENVELOPE_SIZE:
        return None
    kind = _HEADER_DTYPE if shortest < _KEYED_DTYPE.itemsize else _KEYED_DTYPE
    if len(sizes) == 1:
        return np.ndarray((len(messages),), kind, b"".join(messages), 0, (shortest,))
    size = kind.itemsize
    return np.frombuffer(b"".join([data[:size] for data in messages]), kind)


def envelope_columns(positions: Numbers, offsets: NDArray[np.uint32], payload: memoryview) -> Envelopes:
    """Return the envelopes of messages, without the messages that have none.

    :param positions: numbers of the messages, ascending.
    :param offsets: boundaries of the messages: message ``i`` is ``payload[offsets[i] : offsets[i + 1]]``.
    """
    rows = np.flatnonzero(offsets[1:] - offsets[:-1] >= ENVELOPE_SIZE)
    if not len(rows):
        return NO_ENVELOPES
    data = np.frombuffer(payload, np.uint8)
    # A view with an envelope at each byte, of which only the starts of messages are used.
    heads = np.ndarray((len(data) - ENVELOPE_SIZE + 1,), _HEADER_DTYPE, data, 0, (1,))[offsets[rows]]
    chosen = heads["magic"] == _MAGIC
    heads = heads[chosen]
    publishers, counters = heads["publisher"].astype(np.uint64), heads["counter"].astype(np.uint64)
    return Envelopes(positions[rows[chosen]], publishers, counters)
