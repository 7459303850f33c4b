"""JSON lines between commands and nodes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from fuzz.checks import attempt, check_stream
from fyrehose_twisted.errors import MalformedPacket, UnencodableMessage
from fyrehose_twisted.net.control.json_lines import JsonLines

CODEC = JsonLines(1_024)


def seeds() -> Iterable[bytes]:
    """Return streams."""
    yield b'\x05{"ask":"status"}\n{"a":[1,2.5,null,true,"\\u00fc"]}\n'
    yield b"\xff[1]\n"
    yield b"\x03\n\n{}\n" + b"[" * 900
    yield b"\x20" + b'{"a":' * 100 + b"1" + b"}" * 100 + b"\n"
    yield b'\x20{"a":NaN,"b":1e999,"c":' + b"9" * 800 + b"}\n"
    yield b"\xff" + '{"a":1}'.encode("utf-16") + b"\n"


def one(data: bytes) -> None:
    """Decode a stream; messages survive a round trip."""
    for message in check_stream(CODEC.decoder, data, MalformedPacket, keeps=False)[0]:
        line, error = attempt(partial(CODEC.encode, message), UnencodableMessage)
        if error is None and len(line) <= 1_024:
            assert repr(CODEC.decoder().feed(line)) == repr([message])
