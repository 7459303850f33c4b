"""The library's envelope: who published a message and which of theirs it is, so that a repeat can be told.

The protocol has no message identity, and a publisher that does not see its message come back must send it again.
Inside DATA, before the payload: magic and version (4 bytes), publisher id (8), counter (8, big endian).
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from typing import NamedTuple

from fyrehose_twisted.fyrehose.messages import MAX_DELIVERABLE
from fyrehose_twisted.ranges import RangeSet

MAGIC = b"\xf7FY\x01"
_HEADER = struct.Struct(">4s8sQ")
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
        if len(counters) > 1 and counters.last > COUNTER_WINDOW:
            counters.discard(0, counters.last - COUNTER_WINDOW)
        if len(counters) > MAX_RANGES:
            counters.discard(counters.first, next(iter(counters))[1])
        return True

    def _confirmed(self, envelope: Envelope) -> bool:
        # A publisher that was not heard of for long may be far ahead; one message alone may as well be forged, and
        # would make all that its publisher really sends look like repeats.
        suspect, self._suspect = self._suspect, envelope
        return (
            suspect is not None
            and suspect.publisher == envelope.publisher
            and 0 < envelope.counter - suspect.counter <= COUNTER_WINDOW
        )
