"""Application data of extension messages, of each type."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.checks import attempt, check_size
from fuzz.seeds import draw
from fuzz.targets.parcels_codec import MESSAGES
from fyrehose_twisted.parcels.wire.cbor import BadParcel
from fyrehose_twisted.parcels.wire.payload import WIRE_NAMES, PayloadWriter, read_payload

KINDS = sorted(WIRE_NAMES.values())


def seeds() -> Iterable[bytes]:
    """Return application data with a prefix byte for its type."""
    for message in draw(MESSAGES, 120):
        yield bytes((KINDS.index(WIRE_NAMES[type(message)]),)) + PayloadWriter().write(message)


def one(data: bytes) -> None:
    """Decode application data; it survives a round trip."""
    if not data:
        return
    name, payload = KINDS[data[0] % len(KINDS)], data[1:]
    message, error = attempt(lambda: read_payload(name, payload), BadParcel)
    if error is None:
        check_size(message, len(payload), factor=8)
        assert read_payload(name, PayloadWriter().write(message)) == message
