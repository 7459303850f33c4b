"""Fuzz target: packet window with arbitrary numbers."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.choices import Choices
from fyrehose_twisted.freenet.node.packet_window import (
    MAX_JUMP,
    NUMBER_SPACE,
    PacketClass,
    PacketWindow,
    packet_fingerprint,
    serial_difference,
)
from fyrehose_twisted.freenet.wire.messages import MAX_PACKET

KEPT = (1, 3, 40)


def _steps(*numbers: int) -> bytes:
    return b"".join(b"\0" + (number % NUMBER_SPACE).to_bytes(8, "big") + b"\x05" for number in numbers)


def seeds() -> Iterable[bytes]:
    """Return seed inputs: encoded steps."""
    yield b"\0" + _steps(1, 2, 3, 5, 4)
    yield b"\x01" + _steps(-2, -1, 0, 1, 3) + b"\xff" + b"\xfe" + bytes(8)
    yield b"\x02" + _steps(10, 11, MAX_JUMP + 12, 5, 2**62, 13) + b"\xff" + _steps(12) + b"\xfd"


def one(data: bytes) -> None:
    """Add packets, roll back or restart elsewhere; the window must stay bounded and ordered."""
    choices = Choices(data)
    kept = choices.one_of(KEPT)
    packets = PacketWindow(kept)
    while choices:
        step = choices.number()
        if step == 255:
            packets.roll_back()
        elif step == 254:
            packets.start_after(choices.number(8) % (MAX_PACKET + 1) - 1)
        elif step == 253:
            packets.clear_floor()
        else:
            newest = packets.newest or 0
            number = choices.number(8) if not step else (newest + step - 126) % NUMBER_SPACE
            number, content = number % NUMBER_SPACE, bytes((choices.number(),))
            arrival = packets.classify(number, content)
            if arrival is PacketClass.NEW:
                missed = packets.add(number, content)
                assert all(serial_difference(last, first) >= 0 for first, last in missed)
                assert sum(serial_difference(last, first) + 1 for first, last in missed) <= MAX_JUMP + kept
                assert packets.classify(number, content) in (PacketClass.SAME, PacketClass.OLD)
            packet_fingerprint(number, content)
        assert len(packets) <= kept
        after = packets.packets_after(-1)
        assert len(after) == len(packets)
        assert -1 <= packets.last_seen <= MAX_PACKET
        assert packets.next_number is None or 0 <= packets.next_number <= MAX_PACKET
        assert len(packets.packets_after(packets.last_seen)) <= len(after)
