"""What applications said, without what their protocols put around it."""

from __future__ import annotations

from collections.abc import Callable

from fyrehose_twisted.freenet.wire.signing import body
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, MAGIC, envelopes_of
from fyrehose_twisted.hydra.wire.lines import untag
from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.parcels.service.journal_history import unpack_event
from fyrehose_twisted.repeats import Envelopes


def bare(stream: str, payloads: list[bytes]) -> list[bytes]:
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
        return list(map(_event, payloads))
    if protocol == "hydra":
        return [untag(payload)[1] for payload in payloads]
    if protocol == "freenet":
        try:
            key = bytes.fromhex(name)
        except ValueError:
            return payloads
        return [body(key, payload) for payload in payloads]
    return payloads


def envelopes(stream: str) -> Callable[[Block], Envelopes] | None:
    """Return what finds the envelopes of a stream's records, ``None`` if its protocol has none.

    :param stream: URI, which says of which protocol it is.
    """
    return _envelopes if stream.startswith("fyrehose://") else None


def _envelopes(block: Block) -> Envelopes:
    return envelopes_of(block.positions, block.offsets, block.payload)


def _event(payload: bytes) -> bytes:
    try:
        return unpack_event(0, payload).data
    except ValueError:
        return payload
