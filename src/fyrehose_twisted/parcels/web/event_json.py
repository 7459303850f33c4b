"""Events as JSON objects, with either ``json``, if the event is a JSON text, or ``data``."""

from __future__ import annotations

from base64 import b64encode

from fyrehose_twisted.parcels.wire.messages import Event
from fyrehose_twisted.web.request import parse_json
from fyrehose_twisted.web.response import encode_json

_LINES = bytes.maketrans(b"\r\n", b"  ")


def event_json(event: Event, plain: bool = False) -> bytes:
    """Return an event as JSON on one line.

    :param plain: encode every event as base64 ``data``.
    """
    head = b'{"sequence":%d,"publisher":%s,' % (event.sequence, encode_json(event.publisher))
    if not plain and is_json(event.data):
        # Embed the original text, so that numbers keep all digits. Line ends in JSON are only whitespace.
        return head + b'"json":%s}' % event.data.translate(_LINES)
    return head + b'"data":"%s"}' % b64encode(event.data)


def is_json(data: bytes) -> bool:
    """Return whether an event is a JSON text."""
    try:
        parse_json(data)
    except ValueError:
        return False
    return True
