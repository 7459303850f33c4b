"""Application data of payloads, without protocol framing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.framing import Unframed
from fyrehose_twisted.freenet.wire.signing import strip_signature
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, envelope_columns, has_envelope
from fyrehose_twisted.fyrehose.wire.message_key import may_have_keys, split_key
from fyrehose_twisted.fyrehose.wire.term_start import may_start_terms, term_start_numbers
from fyrehose_twisted.hydra.wire.lines import untag
from fyrehose_twisted.interfaces import IPayloadOpener
from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.parcels.service.journal_history import unpack_event
from fyrehose_twisted.repeats import Envelopes
from fyrehose_twisted.sealing.key_source import KeySource
from fyrehose_twisted.sealing.outcome import OpenedPayload, Refusal


def strip_framing(stream: str, payloads: list[bytes]) -> Unframed:
    """Return the data of a stream's payloads without the framing of its protocol, if present, and their keys.

    :param stream: URI that names the protocol; payloads of other protocols are returned unchanged.
    """
    if stream.startswith("fyrehose://"):
        if may_have_keys(payloads, ENVELOPE_SIZE):
            return _split_keys(
                [
                    split_key(payload, ENVELOPE_SIZE) if has_envelope(payload) else (None, payload)
                    for payload in payloads
                ]
            )
        # Like unwrap(), without creating an object per payload.
        return Unframed([payload[ENVELOPE_SIZE:] if has_envelope(payload) else payload for payload in payloads])
    return Unframed(_strip_other_framing(stream, payloads))


def _split_keys(parts: Sequence[tuple[bytes | None, bytes | None]]) -> Unframed:
    keys = [key for key, _ in parts]
    return Unframed([data for _, data in parts], keys if any(keys) else None)


def _strip_other_framing(stream: str, payloads: list[bytes]) -> list[bytes]:
    protocol, _, name = stream.partition("://")
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


class PayloadReader:
    """Reader of the application data of records, which opens those of sealed streams.

    :param keys: keys of the sealed streams.
    :ivar refused: number of records that were read and refused, by stream and reason.
    :raises ConfigurationError: if two key files are for one stream.
    """

    def __init__(self, keys: Sequence[KeySource] = ()) -> None:
        self.refused: Counter[tuple[str, str]] = Counter()
        self._openers = {source.stream: source.opener for source in keys}
        if len(self._openers) < len(keys):
            streams = [source.stream for source in keys]
            twice = next(stream for stream in streams if streams.count(stream) > 1)
            raise ConfigurationError(f"two seal key files are for {twice}; put its keys into one file")

    def __call__(self, stream: str, payloads: list[bytes]) -> Unframed:
        """Return the data and the keys of records of a stream; ``None`` is the data of records that are refused."""
        opener = self._openers.get(stream)
        if opener is None:
            return strip_framing(stream, payloads)
        found: list[tuple[bytes | None, bytes | None]] = []
        for payload, opened in zip(payloads, open_payloads(opener, payloads), strict=True):
            if isinstance(opened, Refusal):
                found.append((None, None))
                # No publisher published the start of a term, so it is not sealed.
                if opened is not Refusal.PLAIN or not may_start_terms([payload]):
                    self.refused[stream, opened.value] += 1
            else:
                found.append(split_key(opened.data) if has_envelope(payload) else (None, opened.data))
        return _split_keys(found)


def open_payloads(opener: IPayloadOpener, payloads: Sequence[bytes]) -> list[OpenedPayload | Refusal]:
    """Open DATA of a fyrehose stream, with or without envelopes."""
    return [opener.open(data, ENVELOPE_SIZE if has_envelope(data) else 0) for data in payloads]


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
