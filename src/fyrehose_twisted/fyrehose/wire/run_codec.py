"""Columnar codec for runs of datagrams of one size, which is cheaper than one call per datagram.

Each function gives the same result for a run as :func:`~fyrehose_twisted.fyrehose.wire.codec.decode` for its datagrams.
If a run has other contents than expected, the caller decodes its datagrams one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from socket import inet_ntoa
from typing import NamedTuple

import numpy as np

from fyrehose_twisted.datagrams import Batch, DatagramRun
from fyrehose_twisted.effects import Address, Burst
from fyrehose_twisted.fyrehose.wire.address import pack_address
from fyrehose_twisted.fyrehose.wire.codec import (
    DATA_HEADER,
    PUSH_V1_HEADER,
    RANGE,
    encode_deliver,
    push_header,
    range_layout,
)
from fyrehose_twisted.fyrehose.wire.packets import AGAIN, CONFIRM, MAX_DATA, PUSH_HOPS, WITH_MAC, Dialect, PacketType

VECTOR_MINIMUM = 12
"""Minimum number of datagrams for which columns are faster than one header after the other."""

NUMPY_MINIMUM = 128
"""The same for numpy, whose calls have a higher fixed cost."""

_PUSHES = tuple(int(PacketType.PUSH | confirm | again) for confirm in (0, CONFIRM) for again in (0, AGAIN))
_DELIVER = int(PacketType.DELIVER)
_RANGES = int(PacketType.REQUEST), int(PacketType.FORWARD), int(PacketType.FORWARD | WITH_MAC)
_SEQUENCE = struct.Struct(">HI")
_SEQUENCE_OFFSET = 3
_TYPE_AND_LENGTH = PUSH_V1_HEADER

# What the last two bytes of rising numbers are. Slices of these are there at once; numpy takes 100 microseconds in a
# process that has just woken up and has none of its code in the caches.
_CYCLE = 2**16
_SECOND_BYTES = bytes(number >> 8 for number in range(_CYCLE))
_LAST_BYTES = bytes(range(256)) * 256


def split_types(buffer: bytearray, run: DatagramRun) -> list[DatagramRun]:
    """Return the parts of a run whose datagrams have the same first byte."""
    start, stop, size, count, _, _ = run
    if count == 1:
        return [run]
    kinds = buffer[start:stop:size]
    if kinds.count(kinds[0]) == count:
        return [run]
    parts = []
    for _, equal in groupby(kinds):
        rows = len(list(equal))
        parts.append(run._replace(start=start, stop=start + rows * size, rows=rows))
        start += rows * size
    return parts


def encode_ranges(kind: PacketType, address: Address, ranges: Sequence[tuple[int, int]]) -> Burst:
    """Return a burst of REQUESTs or FORWARDs for ``address``, one for each of ``ranges``."""
    host, port = pack_address(address)
    layout, kind = range_layout(kind, host)
    mask = 0xFFFFFFFF
    rows = [layout.pack(kind, host, port, a >> 32, a & mask, b >> 32, b & mask) for a, b in ranges]
    return Burst(b"".join(rows), layout.size)


def decode_ranges(buffer: bytearray, run: DatagramRun) -> tuple[Address, list[tuple[int, int]]] | None:
    """Return the address and the ranges of a run of REQUESTs or FORWARDs with an IPv4 address.

    :return: ``None`` if they are malformed, or have different types or addresses.
    """
    start, stop, size, _, _, truncated = run
    if truncated or size != RANGE.size or buffer[start] not in _RANGES:
        return None
    rows = list(RANGE.iter_unpack(memoryview(buffer)[start:stop]))
    (_, host, port), *others = {row[:3] for row in rows}
    ranges = [(row[3] << 32 | row[4], row[5] << 32 | row[6]) for row in rows]
    if others or any(first > last for first, last in ranges):
        return None
    return (inet_ntoa(host), port), ranges


def count_leading_pushes(buffer: bytearray, run: DatagramRun) -> int:
    """Return the number of version 2 PUSHes at the start of a run, all with the same CONFIRM and AGAIN."""
    start, stop, size, count, _, truncated = run
    if truncated or size < DATA_HEADER.size:
        return 0
    kind, length = _TYPE_AND_LENGTH.unpack_from(buffer, start)
    if kind not in _PUSHES or length != size - DATA_HEADER.size or length > MAX_DATA:
        return 0
    return _count_uniform(buffer, start, stop, size, count)


def number_pushes(buffer: bytearray, start: int, stop: int, size: int, first: int) -> None:
    """Convert PUSHes of version 2, ``size`` bytes each, in place into DELIVERs, starting with number ``first``."""
    count = (stop - start) // size
    if count < VECTOR_MINIMUM:
        for sequence, position in enumerate(range(start, stop, size), first):
            buffer[position] = _DELIVER
            _SEQUENCE.pack_into(buffer, position + _SEQUENCE_OFFSET, sequence >> 32, sequence & 0xFFFFFFFF)
        return
    near = first % _CYCLE
    if near + count > _CYCLE:
        middle = start + (_CYCLE - near) * size
        number_pushes(buffer, start, middle, size, first)
        number_pushes(buffer, middle, stop, size, first + _CYCLE - near)
        return
    buffer[start:stop:size] = bytes((_DELIVER,)) * count
    position = start + _SEQUENCE_OFFSET
    for value in (first // _CYCLE).to_bytes(4, "big"):
        buffer[position:stop:size] = bytes((value,)) * count
        position += 1
    buffer[position:stop:size] = _SECOND_BYTES[near : near + count]
    buffer[position + 1 : stop : size] = _LAST_BYTES[near : near + count]


def relay_pushes(batch: Batch, run: DatagramRun, count: int) -> tuple[bytearray, int] | None:
    """Return a copy of the first ``count`` PUSHes of version 2 of a run as a relay passes them on, and their hops.

    They count one hop more, and ask for no confirmation, because a relay subscribes.

    :return: ``None`` if some have been passed on by more relays than others, or by 255.
    """
    size = run.size
    pushes = bytearray(batch.view[run.start : run.start + count * size])
    columns = [pushes[at::size] for at in range(_SEQUENCE_OFFSET, DATA_HEADER.size)]
    unused = int.from_bytes(bytes(column[0] for column in columns))
    hops = unused - PUSH_HOPS if PUSH_HOPS <= unused <= PUSH_HOPS + 255 else 0
    if hops == 255 or any(column.count(column[0]) < count for column in columns):
        return None
    pushes[::size] = bytes((pushes[0] & ~CONFIRM,)) * count
    for at, value in enumerate((PUSH_HOPS + hops + 1).to_bytes(6), _SEQUENCE_OFFSET):
        pushes[at::size] = bytes((value,)) * count
    return pushes, hops


def encode_delivers(first: int, messages: Sequence[bytes]) -> list[Burst]:
    """Return a burst of DELIVERs for each run of ``messages`` of equal length, with numbers from ``first`` on."""
    if len(messages) == 1:
        datagram = encode_deliver(first, messages[0])
        return [Burst(datagram, len(datagram))]
    bursts = []
    for length, equal in groupby(messages, len):
        header = push_header(length, Dialect.V2, confirm=False)
        datagrams, size = bytearray(header.join((b"", *equal))), len(header) + length
        number_pushes(datagrams, 0, len(datagrams), size, first)
        bursts.append(Burst(bytes(datagrams), size))
        first += len(datagrams) // size
    return bursts


def encode_pushes(messages: Sequence[bytes], dialect: Dialect, confirm: bool, again: bool = False) -> list[Burst]:
    """Return a burst of PUSHes for each run of ``messages`` of equal length. Each message must fit a datagram."""
    if len(messages) == 1:
        data = push_header(len(messages[0]), dialect, confirm, again) + messages[0]
        return [Burst(data, len(data))]
    bursts = []
    for length, equal in groupby(messages, len):
        header = push_header(length, dialect, confirm, again)
        bursts.append(Burst(header.join((b"", *equal)), len(header) + length))
    return bursts


def split_delivers(
    buffer: bytearray, run: DatagramRun, *, kind: int = _DELIVER, trailer: int = 0
) -> list[tuple[int, list[bytes]]] | None:
    """Return copies of the DATA of a run of DELIVERs, each stretch of rising numbers with its first number.

    :param kind: type byte that they must have.
    :param trailer: number of bytes after DATA.
    :return: ``None`` if anything in the run is no DELIVER.
    """
    start, stop, size, count, _, truncated = run
    if truncated or size < DATA_HEADER.size + trailer:
        return None
    found, length, high, low = DATA_HEADER.unpack_from(buffer, start)
    if found != kind or length != size - DATA_HEADER.size - trailer or length > MAX_DATA:
        return None
    first = high << 32 | low
    if count == 1:
        return [(first, [bytes(buffer[start + DATA_HEADER.size : stop - trailer])])]
    if _count_uniform(buffer, start, stop, size, count) != count:
        return None
    # The fastest way in Python to split a buffer into pieces of equal size.
    pieces = struct.iter_unpack(f"{DATA_HEADER.size}x{length}s{trailer}x", memoryview(buffer)[start:stop])
    data: list[bytes] = [piece for (piece,) in pieces]
    if _is_consecutive(buffer, start, stop, size, count, first):
        return [(first, data)]
    if count < NUMPY_MINIMUM:
        halves = struct.iter_unpack(f">{_SEQUENCE_OFFSET}xHI{length + trailer}x", memoryview(buffer)[start:stop])
        numbers = [upper << 32 | lower for upper, lower in halves]
        starts = [0, *(row for row, (one, other) in enumerate(pairwise(numbers), 1) if other != one + 1)]
        return [(numbers[row], data[row:end]) for row, end in zip(starts, [*starts[1:], count], strict=True)]
    highs = np.ndarray((count,), ">u2", buffer, start + _SEQUENCE_OFFSET, (size,))
    lows = np.ndarray((count,), ">u4", buffer, start + _SEQUENCE_OFFSET + 2, (size,))
    sequences = highs.astype(np.int64) << 32 | lows
    starts = [0, *(np.flatnonzero(np.diff(sequences) != 1) + 1).tolist()]
    ends = [*starts[1:], count]
    return [(int(sequences[row]), data[row:end]) for row, end in zip(starts, ends, strict=True)]


class DeliverRun(NamedTuple):
    """DELIVERs with consecutive numbers from one peer."""

    peer: Address
    first: int
    data: list[bytes]
    """DATA of each message."""


RunSplitter = Callable[[bytearray, DatagramRun], list[tuple[int, list[bytes]]] | None]
"""Function with the parameters and the result of :func:`split_delivers`."""


def split_batch(batch: Batch, split: RunSplitter = split_delivers) -> Iterator[DeliverRun | DatagramRun]:
    """Yield the contents of a batch in order: its DELIVERs as runs that are as long as possible, and all else.

    :param split: finds the DELIVERs.
    """
    pending: DeliverRun | None = None
    for run in batch.runs:
        delivers = split(batch.buffer, run)
        if delivers is None:
            if pending is not None:
                yield pending
            pending = None
            yield run
            continue
        for sequence, data in delivers:
            if pending is not None:
                if sequence == pending.first + len(pending.data) and run.peer == pending.peer:
                    pending.data.extend(data)
                    continue
                yield pending
            pending = DeliverRun(run.peer, sequence, data)
    if pending is not None:
        yield pending


def _is_consecutive(buffer: bytearray, start: int, stop: int, size: int, count: int, first: int) -> bool:
    """Return whether the SEQUENCEs of a run are consecutive numbers, starting with ``first``."""
    near, position = first % _CYCLE, start + _SEQUENCE_OFFSET
    if near + count > _CYCLE:
        return False  # Or not as far as this can tell.
    upper = (first // _CYCLE).to_bytes(4, "big")
    return (
        buffer[position + 5 : stop : size] == _LAST_BYTES[near : near + count]
        and buffer[position + 4 : stop : size] == _SECOND_BYTES[near : near + count]
        and all(buffer[position + at : stop : size].count(value) == count for at, value in enumerate(upper))
    )


def _count_uniform(buffer: bytearray, start: int, stop: int, size: int, count: int) -> int:
    """Return the number of datagrams at the start of a run that have the type and LENGTH of the first one."""
    if count > 1:
        for position in range(start, start + _TYPE_AND_LENGTH.size):
            column, value = buffer[position:stop:size], buffer[position]
            if column.count(value) < len(column):
                count = min(count, len(column) - len(column.lstrip(bytes((value,)))))
    return count
