"""The library's envelope: who published a message and which of theirs it is, so that a repeat can be told.

The protocol has no message identity, and a publisher that does not see its message come back must send it again.
Inside DATA, before the payload: magic and version (4 bytes), publisher id (8), counter (8, big endian).
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fyrehose_twisted.fyrehose.batch import VECTOR_MINIMUM
from fyrehose_twisted.fyrehose.messages import MAX_DELIVERABLE
from fyrehose_twisted.ranges import RangeSet

MAGIC = b"\xf7FY\x01"
_HEADER = struct.Struct(">4s8sQ")
_HEADERS = np.dtype([("magic", ">u4"), ("publisher", ">u8"), ("counter", ">u8")])
_MAGIC = int.from_bytes(MAGIC, "big")
ENVELOPE_SIZE = _HEADER.size
MAX_ENVELOPED = MAX_DELIVERABLE - ENVELOPE_SIZE
"""Payload bytes that fit a message with an envelope: 65,478."""

COUNTER_WINDOW = 65_536
"""How far behind a publisher's highest counter a repeat is recognised; publishers never have a wider span in flight."""

PUBLISHERS_REMEMBERED = 4_096

MAX_RANGES = 1_024
"""Separate ranges of counters that one publisher may cost."""


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


def enveloped(messages: Sequence[bytes]) -> list[tuple[Envelope | None, int]]:
    """Return who published consecutive messages: stretches by their length, each of one publisher with rising counters.

    :return: the first envelope of each stretch, ``None`` if its messages have none, and how many messages it has.
    """
    headers = _headers(messages) if len(messages) >= VECTOR_MINIMUM else None
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


def _headers(messages: Sequence[bytes]) -> NDArray[np.void] | None:
    """Return the first bytes of messages as envelopes, or ``None`` if one is too short to have one."""
    size = len(messages[0])
    if size >= ENVELOPE_SIZE and len(set(map(len, messages))) == 1:
        return np.ndarray((len(messages),), _HEADERS, b"".join(messages), 0, (size,))
    heads = b"".join([data[:ENVELOPE_SIZE] for data in messages])
    return np.frombuffer(heads, _HEADERS) if len(heads) == len(messages) * ENVELOPE_SIZE else None


class Seen:
    """Which counters of which publishers were delivered, within :data:`COUNTER_WINDOW` of the highest of each."""

    def __init__(self, publishers: int = PUBLISHERS_REMEMBERED) -> None:
        self._limit = publishers
        self._suspect: Envelope | None = None
        self._counters: OrderedDict[bytes, RangeSet] = OrderedDict()

    def add(self, envelope: Envelope) -> bool:
        """Remember a message; say whether it is new. One from below the window was seen before."""
        publisher, counter = envelope
        counters = self._counters.get(publisher)
        if counters is None:
            counters = self._counters[publisher] = RangeSet()
            if len(self._counters) > self._limit:
                self._counters.popitem(last=False)
        else:
            self._counters.move_to_end(publisher)
            if counter in counters or counter <= counters.last - COUNTER_WINDOW:
                return False
            if counter > counters.last + COUNTER_WINDOW and not self._confirmed(envelope):
                return True
        counters.add(counter)
        self._trim(counters)
        return True

    def add_run(self, envelope: Envelope, count: int) -> bool:
        """Remember ``count`` messages, of which the first has ``envelope``, if all are new and follow what is known.

        :return: whether they were; if not, nothing has changed, and :meth:`add` knows more.
        """
        publisher, counter = envelope
        counters = self._counters.get(publisher)
        if counters is None or not 0 < counter - counters.last <= COUNTER_WINDOW:
            return False
        self._counters.move_to_end(publisher)
        counters.add(counter, counter + count - 1)
        self._trim(counters)
        return True

    def _trim(self, counters: RangeSet) -> None:
        if len(counters) > 1 and counters.last > COUNTER_WINDOW:
            counters.discard(0, counters.last - COUNTER_WINDOW)
        if len(counters) > MAX_RANGES:
            counters.discard(counters.first, next(iter(counters))[1])

    def _confirmed(self, envelope: Envelope) -> bool:
        # A publisher that was not heard of for long may be far ahead; one message alone may as well be forged, and
        # would make all that its publisher really sends look like repeats.
        suspect, self._suspect = self._suspect, envelope
        return (
            suspect is not None
            and suspect.publisher == envelope.publisher
            and 0 < envelope.counter - suspect.counter <= COUNTER_WINDOW
        )
