"""First message of a term: the marker by which a new leader of a group of backbones tells where its numbers start.

The marker is the DATA of the message ``first``: magic and version (4 bytes), term, the highest number that a client
held when the term began, and ``first`` (8 bytes each, big endian). A client that knows nothing of it sees one message.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fyrehose_twisted.errors import UnencodableMessage
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE
from fyrehose_twisted.repeats import Numbers

MAGIC = b"\xf7FY\x02"
_MARKER = struct.Struct(">4sQQQ")
TERM_START_SIZE = _MARKER.size
_MAX_TERM = 2**64 - 1


class TermStart(NamedTuple):
    """Start of a term.

    :ivar term: the term, at least 1.
    :ivar held_up_to: highest number that a client held. No number between it and ``first`` was given and is still held.
    :ivar first: number of the marker itself, at least ``held_up_to + 1``.
    """

    term: int
    held_up_to: int
    first: int

    @property
    def skipped(self) -> range:
        """Numbers that are not part of the stream."""
        return range(self.held_up_to + 1, self.first)


def encode_term_start(start: TermStart) -> bytes:
    """Return the DATA of the marker. :raises UnencodableMessage: if a field is out of range."""
    if not _is_valid(start):
        raise UnencodableMessage(f"{start} is not the start of a term")
    return _MARKER.pack(MAGIC, *start)


def decode_term_start(sequence: int, data: bytes) -> TermStart | None:
    """Return the start of a term in message ``sequence``, or ``None`` if the message is not a marker.

    A marker that names another number than its own is a message of a publisher.
    """
    if len(data) != TERM_START_SIZE or not data.startswith(MAGIC):
        return None
    start = TermStart(*_MARKER.unpack(data)[1:])
    return start if start.first == sequence and _is_valid(start) else None


def may_start_terms(messages: Sequence[bytes]) -> bool:
    """Return quickly whether any of the messages looks like the start of a term; ``False`` is certain."""
    return TERM_START_SIZE in map(len, messages) and MAGIC in b"".join(messages)


def term_start_numbers(positions: Numbers, offsets: NDArray[np.uint32], payload: memoryview) -> Numbers:
    """Return the numbers of the messages that start a term.

    :param positions: numbers of the messages, ascending.
    :param offsets: boundaries of the messages: message ``i`` is ``payload[offsets[i] : offsets[i + 1]]``.
    """
    rows = np.flatnonzero(offsets[1:] - offsets[:-1] == TERM_START_SIZE)
    if len(rows):
        data = np.frombuffer(payload, np.uint8)
        # A view with a magic at each byte, of which only the starts of messages are used.
        magics = np.ndarray((len(data) - len(MAGIC) + 1,), ">u4", data, 0, (1,))
        rows = rows[magics[offsets[rows]] == int.from_bytes(MAGIC)]
    starts = [
        number
        for row, number in zip(rows.tolist(), positions[rows].tolist(), strict=True)
        if decode_term_start(number, bytes(payload[offsets[row] : offsets[row + 1]])) is not None
    ]
    return np.array(starts, np.uint64)


def _is_valid(start: TermStart) -> bool:
    return 1 <= start.term <= _MAX_TERM and 0 <= start.held_up_to < start.first <= MAX_SEQUENCE
