"""Contents of the demo's journals."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, unwrap
from fyrehose_twisted.journal.reader import JournalReader

STREAM = "fyrehose://flights"


class Contents(NamedTuple):
    """Contents of a journal up to a sequence number."""

    records: int
    lost: int
    sha256: str
    """Hash of numbers and DATA, as on disk."""
    in_stream_order: str
    """Hash of the messages as delivered: without envelopes and repeats."""


def contents(reader: JournalReader, last: int) -> Contents:
    """Read and hash all records up to ``last``."""
    bounds = reader.bounds(0)
    assert bounds is not None
    kept, handed_over, records = hashlib.sha256(), hashlib.sha256(), 0
    seen: set[int] = set()
    for block in reader.read(0, bounds.first, last):
        for record in block.records():
            records += 1
            kept.update(b"%d:%b" % (record.sequence, record.payload))
            envelope = unwrap(record.payload)
            if envelope is not None and envelope.counter not in seen:
                seen.add(envelope.counter)
                handed_over.update(b"%d:%b" % (record.sequence, record.payload[ENVELOPE_SIZE:]))
    lost = sum(end - first + 1 for first, end in reader.losses(0, bounds.first, last))
    reader.close()
    return Contents(records, lost, kept.hexdigest(), handed_over.hexdigest())
