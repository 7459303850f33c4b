"""The columnar form of the codec: many datagrams in one buffer, their header fields as arrays.

:func:`scan` says of each datagram exactly what :func:`~fyrehose_twisted.fyrehose.codec.decode` would, without an
object for each; :func:`number` turns PUSH into DELIVER where it lies, because both have one layout in dialect v2.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fyrehose_twisted.effects import Datagram
from fyrehose_twisted.fyrehose.codec import (
    ACK_V2_SIZE,
    DATA_HEADER,
    KEEPALIVE_V1,
    KEEPALIVE_V2,
    PUSH_V1_HEADER,
    RANGE,
    encode_deliver,
)
from fyrehose_twisted.fyrehose.messages import CONFIRM, MAX_DATA, PacketType
from fyrehose_twisted.net.batch import Batch

MALFORMED = 0
"""In :attr:`Columns.kinds`: not a packet; ``decode`` names the reason."""

VECTOR_MINIMUM = 32
"""From how many datagrams on arrays are faster than one packet at a time; numpy costs microseconds a call."""

_SEQUENCE_SHIFTS = np.array([40, 32, 24, 16, 8, 0], dtype=np.int64)
_HEADER_BYTES = np.arange(DATA_HEADER.size, dtype=np.int64)
_RANGE_BYTES = np.arange(7, RANGE.size, dtype=np.int64)


class Columns(NamedTuple):
    """Header fields of a batch, one row a datagram."""

    kinds: NDArray[np.uint8]
    """Type byte without CONFIRM, or :data:`MALFORMED`."""
    confirms: NDArray[np.bool_]
    """PUSH only: whether CONFIRM is set."""
    starts: NDArray[np.int64]
    """DELIVER and PUSH: where DATA begins in the buffer; else 0."""
    lengths: NDArray[np.int64]
    """DELIVER and PUSH: LENGTH in bytes; else 0."""
    sequences: NDArray[np.int64]
    """DELIVER: SEQUENCE; else 0."""


def scan(batch: Batch) -> Columns:
    """Return the header columns of ``batch``. Bad datagrams are marked, nothing is raised."""
    buffer = np.frombuffer(batch.buffer, dtype=np.uint8)
    offsets = np.array(batch.offsets, dtype=np.int64)
    sizes = np.array(batch.sizes, dtype=np.int64)
    if not len(buffer):
        buffer = np.zeros(1, dtype=np.uint8)
    # A short datagram's row reads on into its neighbour; the size checks make such bytes count for nothing.
    header = buffer[np.minimum(offsets[:, None] + _HEADER_BYTES, len(buffer) - 1)].astype(np.int64)
    kinds = header[:, 0]
    confirms = kinds == (PacketType.PUSH | CONFIRM)
    kinds = np.where(confirms, PacketType.PUSH, kinds)
    lengths = header[:, 1] << 8 | header[:, 2]

    is_deliver, is_push = kinds == PacketType.DELIVER, kinds == PacketType.PUSH
    within = lengths <= MAX_DATA
    long_header = (sizes - DATA_HEADER.size == lengths) & within
    short_header = is_push & (sizes - PUSH_V1_HEADER.size == lengths) & within
    valid = (is_deliver | is_push) & long_header | short_header
    for kind, allowed in (
        (PacketType.KEEPALIVE, (KEEPALIVE_V1.size, KEEPALIVE_V2.size)),
        (PacketType.KEEPALIVE_ACK, (1, ACK_V2_SIZE)),
    ):
        valid |= (kinds == kind) & ((sizes == allowed[0]) | (sizes == allowed[1]))
    ranges = np.flatnonzero(((kinds == PacketType.REQUEST) | (kinds == PacketType.FORWARD)) & (sizes == RANGE.size))
    if len(ranges):
        limits = buffer[offsets[ranges, None] + _RANGE_BYTES].astype(np.int64)
        firsts = (limits[:, :6] << _SEQUENCE_SHIFTS).sum(axis=1)
        lasts = (limits[:, 6:] << _SEQUENCE_SHIFTS).sum(axis=1)
        valid[ranges] = firsts <= lasts
    if batch.truncated:
        valid[batch.truncated] = False

    carries_data = valid & (is_deliver | is_push)
    starts = offsets + np.where(long_header, DATA_HEADER.size, PUSH_V1_HEADER.size)
    sequences = (header[:, 3:] << _SEQUENCE_SHIFTS).sum(axis=1)
    return Columns(
        np.where(valid, kinds, MALFORMED).astype(np.uint8),
        confirms & valid,
        np.where(carries_data, starts, 0),
        np.where(carries_data, lengths, 0),
        np.where(valid & is_deliver, sequences, 0),
    )


def number(batch: Batch, columns: Columns, start: int, stop: int, first_sequence: int) -> list[Datagram]:
    """Turn the PUSHes in rows ``start`` to ``stop`` (exclusive) into DELIVERs and return them in order.

    PUSHes of version 2 are rewritten in place and returned as views; those of version 1 have no room for a
    SEQUENCE and are copied. Every row must be a valid PUSH, and the numbers must not pass 2**48 - 1.
    """
    view, offsets, sizes = batch.view, batch.offsets, batch.sizes
    long_header = columns.starts[start:stop] - np.array(offsets[start:stop], dtype=np.int64) == DATA_HEADER.size
    if stop - start >= VECTOR_MINIMUM and long_header.all():
        _number_vectorised(batch, start, stop, first_sequence)
        return [view[offsets[row] : offsets[row] + sizes[row]] for row in range(start, stop)]
    datagrams: list[Datagram] = []
    pack = struct.Struct(">HI").pack_into
    for row, in_place in zip(range(start, stop), long_header.tolist(), strict=True):
        offset, sequence = offsets[row], first_sequence + row - start
        if in_place:
            view[offset] = PacketType.DELIVER
            pack(view, offset + 3, sequence >> 32, sequence & 0xFFFFFFFF)
            datagrams.append(view[offset : offset + sizes[row]])
        else:
            datagrams.append(encode_deliver(sequence, view[offset + PUSH_V1_HEADER.size : offset + sizes[row]]))
    return datagrams


def _number_vectorised(batch: Batch, start: int, stop: int, first_sequence: int) -> None:
    buffer = np.frombuffer(batch.buffer, dtype=np.uint8)
    offsets = np.array(batch.offsets[start:stop], dtype=np.int64)
    sequences = np.arange(first_sequence, first_sequence + stop - start, dtype=np.int64)
    buffer[offsets] = PacketType.DELIVER
    buffer[offsets[:, None] + np.arange(3, 9)] = sequences[:, None] >> _SEQUENCE_SHIFTS & 0xFF
