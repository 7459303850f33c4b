"""Capture files, with packets of all protocols in them, as ``fyrehose dump`` prints them."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

from fuzz.seeds import draw
from fuzz.targets import freenet_codec, fyrehose_codec, hydra_codec, parcels_codec
from fyrehose_twisted.cli.dump.capture_file import InvalidCapture, read_capture
from fyrehose_twisted.cli.dump.output import format_json, format_line
from fyrehose_twisted.cli.dump.ports import port_map
from fyrehose_twisted.cli.dump.traffic import Line, TrafficReader
from fyrehose_twisted.fyrehose.wire.codec import encode
from fyrehose_twisted.parcels.wire.codec import ParcelCodec

LONGEST = 8_192

_RAW_IP, _TCP, _UDP = 101, 6, 17
_LOSS = Path(__file__).parents[2] / "examples" / "loss.pcap"


def _packet(protocol: int, port: int, payload: bytes) -> bytes:
    if protocol == _UDP:
        content = struct.pack(">HHHxx", 4_000, port, 8 + len(payload)) + payload
    else:
        content = struct.pack(">HHLLBBHHH", 4_000, port, 1, 0, 0x50, 0x10, 0, 0, 0) + payload
    return struct.pack(">BxHHHBBxx", 0x45, 20 + len(content), 1, 0, 64, protocol) + bytes(8) + content


def _pcap(packets: Iterable[bytes]) -> bytes:
    head = struct.pack("<LHHLLLL", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, _RAW_IP)
    return head + b"".join(struct.pack("<LLLL", 1, 2, len(each), len(each)) + each for each in packets)


def _pcapng(packets: Iterable[bytes]) -> bytes:
    blocks = [(0x0A0D0D0A, struct.pack("<LHHq", 0x1A2B3C4D, 1, 0, -1)), (1, struct.pack("<HHL", _RAW_IP, 0, 0))]
    blocks += [(6, struct.pack("<LLLLL", 0, 0, 9, len(each), len(each)) + each) for each in packets]
    found = b""
    for kind, body in blocks:
        body += bytes(-len(body) % 4)
        size = struct.pack("<L", len(body) + 12)
        found += struct.pack("<L", kind) + size + body + size
    return found


def seeds() -> Iterable[bytes]:
    """Return captures of both formats."""
    parcel = ParcelCodec(parcels_codec.OUR_ID).encode
    packets = [_packet(_UDP, 2_323, encode(each)) for each in draw(fyrehose_codec.PACKETS, 20)]
    packets += [_packet(_TCP, 6_174, hydra_codec.CODEC.encode(each)) for each in draw(hydra_codec.MESSAGES, 20)]
    packets += [_packet(_TCP, 6_180, freenet_codec.CODEC.encode(each)) for each in draw(freenet_codec.MESSAGES, 20)]
    packets += [_packet(_TCP, 7_878, parcel(each)) for each in draw(parcels_codec.MESSAGES, 20)]
    packets += [_packet(_UDP, 6_174, bytes((kind,)) + bytes(40)) for kind in range(1, 10)]
    yield _LOSS.read_bytes()
    for start in range(0, len(packets), 8):
        yield _pcap(packets[start : start + 8])
        yield _pcapng(packets[start : start + 8])


def one(data: bytes) -> None:
    """Print a capture as text and as JSON."""
    reader = TrafficReader(port_map({}), with_data=True, gaps=True)
    lines: list[Line] = []
    try:
        for frame in read_capture(BytesIO(data)):
            lines += reader.read(frame)
    except InvalidCapture:
        pass
    for line in (*lines, *reader.finish()):
        assert format_line(line).isprintable()
        json.loads(format_json(line))
