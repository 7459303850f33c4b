"""What applications said, without what their protocols put around it."""

from __future__ import annotations

from collections.abc import Callable

from fyrehose_twisted.freenet.wire.signing import strip_signature
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, MAGIC, envelope_columns
from fyrehose_twisted.hydra.wire.lines import untag
from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.parcels.service.journal_history import unpack_event
from fyrehose_twisted.repeats import Envelopes


def strip_framing(stream: str, payloads: list[bytes]) -> list[bytes]:
    """Return payloads of a stream without what its protocol put around them, where that is there.

    :param stream: URI, which says of which protocol it is; payloads of others are left as they are.
    """
    protocol, _, name = stream.partition("://")
    if protocol == "fyrehose":
        # As unwrap() would, but that makes an object of each.
        return [
            payload[ENVELOPE_SIZE:] if payload.startswith(MAGIC) and len(payload) >= ENVELOPE_SIZE else payload
            for payload in payloads
        ]
    if protocol == "parcels":
        return list(map(_event_data, payloads))
    if protocol == "hydra":
        return [untag(payload)[1] for payload in payloads]
    if protocol == "freenet":
        try:
            key = bytes.fromhex(name)
        except ValueError:
            return payloads
        return [strip_signature(key, payload) for payload in payloads]
    return payloads


def envelope_finder(stream: str) -> Callable[[Block], Envelopes] | None:
    """Return what finds the envelopes of a stream's records, ``None`` if its protocol has none.

    :param stream: URI, which says of which protocol it is.
    """
    return _find_envelopes if stream.startswith("fyrehose://") else None


def _find_envelopes(block: Block) -> Envelopes:
    return envelope_columns(block.positions, block.offsets, block.payload)


def _event_data(payload: bytes) -> bytes:
    try:
        return unpack_event(0, payload).data
    except ValueError:
        return payload
