"""Application data of payloads, without protocol framing."""

from __future__ import annotations

from collections.abc import Callable

from fyrehose_twisted.freenet.wire.signing import strip_signature
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, MAGIC, envelope_columns
from fyrehose_twisted.fyrehose.wire.term_start import term_start_numbers
from fyrehose_twisted.hydra.wire.lines import untag
from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.parcels.service.journal_history import unpack_event
from fyrehose_twisted.repeats import Envelopes


def strip_framing(stream: str, payloads: list[bytes]) -> list[bytes]:
    """Return the payloads of a stream without the framing of its protocol, if present.

    :param stream: URI that names the protocol; payloads of other protocols are returned unchanged.
    """
    protocol, _, name = stream.partition("://")
    if protocol == "fyrehose":
        # Like unwrap(), without creating an object per payload.
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
    """Return a function that extracts the envelopes of a block; ``None`` if the protocol has none.

    :param stream: URI that names the protocol.
    """
    return _find_envelopes if stream.startswith("fyrehose://") else None


def _find_envelopes(block: Block) -> Envelopes:
    columns = block.positions, block.offsets, block.payload
    return envelope_columns(*columns)._replace(unpublished=term_start_numbers(*columns))


def _event_data(payload: bytes) -> bytes:
    try:
        return unpack_event(0, payload).data
    except ValueError:
        return payload
