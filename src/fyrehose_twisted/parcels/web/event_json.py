"""Events as JSON. Each is an object with exactly one of ``json``, for those that are a JSON text, and ``data``."""

from __future__ import annotations

from base64 import b64encode

from fyrehose_twisted.parcels.wire.messages import Event
from fyrehose_twisted.web.request import parse_json
from fyrehose_twisted.web.response import encode_json

_LINES = bytes.maketrans(b"\r\n", b"  ")


def event_json(event: Event, plain: bool = False) -> bytes:
    """Return an event as JSON on one line.

    :param plain: give every event as ``data``, which is base64, whatever it is.
    """
    head = b'{"sequence":%d,"publisher":%s,' % (event.sequence, encode_json(event.publisher))
    if not plain and is_json(event.data):
        # As it was written, so that no number loses digits on the way. In JSON line ends only separate.
        return head + b'"json":%s}' % event.data.translate(_LINES)
    return head + b'"data":"%s"}' % b64encode(event.data)


def is_json(data: bytes) -> bool:
    """Return whether the bytes of an event are a JSON text."""
    try:
        parse_json(data)
    except ValueError:
        return False
    return True
