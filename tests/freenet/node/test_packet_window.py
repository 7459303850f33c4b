from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.freenet.events import Packet
from fyrehose_twisted.freenet.node.packet_window import (
    MAX_JUMP,
    NUMBER_SPACE,
    PacketClass,
    PacketWindow,
    packet_fingerprint,
    serial_difference,
)
from fyrehose_twisted.freenet.wire.messages import MAX_PACKET


class Naive:
    """Simple model of a packet window, without wraparound."""

    def __init__(self, kept: int) -> None:
        self.kept = kept
        self.first: int | None = None
        self.newest = 0
        self.held: dict[int, bytes] = {}

    def look(self, number: int, data: bytes) -> PacketClass:
        if number in self.held:
            return PacketClass.SAME if self.held[number] == data else PacketClass.CONFLICT
        return PacketClass.NEW if self.first is None or number > self.newest - self.kept else PacketClass.OLD

    def put(self, number: int, data: bytes) -> list[int]:
        missed: list[int] = []
        if self.first is None:
            self.first = self.newest = number
        elif number - self.newest > MAX_JUMP:
            self.held.clear()
            self.first = self.newest = number
        elif number > self.newest:
            edge = number - self.kept + 1
            missed = [one for one in range(self.first, edge) if one not in self.held]
            self.held = {one: what for one, what in self.held.items() if one >= edge}
            self.first, self.newest = max(self.first, edge), number
        else:
            self.first = min(self.first, number)
        self.held[number] = data
        return missed

    @property
    def last_seen(self) -> int:
        assert self.first is not None
        gaps = (one for one in range(self.first, self.newest + 1) if one not in self.held)
        return next(gaps, self.newest + 1) - 1


steps = st.one_of(st.integers(-12, 12), st.sampled_from([-MAX_JUMP, 40, MAX_JUMP, MAX_JUMP + 1, MAX_JUMP + 7, 5_000]))


@given(
    kept=st.one_of(st.integers(1, 12), st.just(3_000)),
    start=st.one_of(st.just(0), st.integers(0, MAX_PACKET), st.integers(MAX_PACKET - 20, MAX_PACKET)),
    moves=st.lists(st.tuples(steps, st.sampled_from([b"a", b"b"])), max_size=40),
)
def test_the_packet_window_behaves_like_a_simple_model(kept: int, start: int, moves: list[tuple[int, bytes]]) -> None:
    packets, naive, at = PacketWindow(kept), Naive(kept), start
    for step, data in moves:
        at = (at if naive.first is None else naive.newest) + step
        arrival = packets.classify(at % NUMBER_SPACE, data)
        assert arrival is naive.look(at, data)
        if arrival is not PacketClass.NEW:
            continue
        ranges = packets.add(at % NUMBER_SPACE, data)
        missed = [
            one % NUMBER_SPACE
            for first, last in ranges
            for one in range(first, first + (last - first) % NUMBER_SPACE + 1)
        ]
        assert missed == [one % NUMBER_SPACE for one in naive.put(at, data)]
        everything = [Packet(one % NUMBER_SPACE, what) for one, what in sorted(naive.held.items())]
        assert packets.packets_after(-1) == everything
        assert len(packets) == len(everything) <= kept
        assert packets.newest == naive.newest % NUMBER_SPACE
        assert packets.next_number == (naive.newest + 1) % NUMBER_SPACE
        assert packets.last_seen == naive.last_seen % NUMBER_SPACE
        assert packets.packets_after(packets.last_seen) == [
            Packet(one % NUMBER_SPACE, what) for one, what in sorted(naive.held.items()) if one > naive.last_seen
        ]


@pytest.mark.parametrize(
    ("number", "of", "by"),
    [(5, 3, 2), (3, 5, -2), (0, MAX_PACKET, 1), (MAX_PACKET, 0, -1), (7, 7, 0), (2**62 - 1, 0, 2**62 - 1)],
)
def test_packet_numbers_wrap_around_and_are_compared_in_serial_arithmetic(number: int, of: int, by: int) -> None:
    assert serial_difference(number, of) == by


def test_an_empty_window_has_no_numbers() -> None:
    packets = PacketWindow(4)
    assert (packets.newest, packets.next_number, packets.last_seen, packets.packets_after(-1)) == (None, None, -1, [])
    assert not packets.is_discontinuous(5_000)


def test_a_gap_is_reported_when_it_leaves_the_window() -> None:
    packets = PacketWindow(3)
    missed = [packets.add(number, b"") for number in (10, 11, 13, 15, 16, 20)]
    assert missed == [[], [], [], [(12, 12)], [], [(14, 14), (17, 17)]]


def test_gaps_before_and_after_the_highest_number_are_reported_as_one() -> None:
    packets = PacketWindow(8)
    packets.start_after(9)
    packets.clear_floor()
    packets.add(5, b"")
    assert packets.add(30, b"") == [(6, 22)]


def test_a_discontinuous_number_reports_no_gap() -> None:
    packets = PacketWindow(4)
    packets.add(5, b"")
    assert packets.is_discontinuous(5 + MAX_JUMP + 1)
    assert packets.add(5 + MAX_JUMP + 1, b"") == []
    assert packets.packets_after(-1) == [Packet(5 + MAX_JUMP + 1, b"")]


def test_roll_back_returns_to_the_numbers_before_a_discontinuity() -> None:
    packets = PacketWindow(4)
    packets.add(5, b"")
    packets.add(90_000, b"")
    packets.roll_back()
    assert (packets.newest, packets.last_seen, len(packets)) == (5, 5, 0)
    assert packets.classify(6, b"") is PacketClass.NEW
    assert packets.classify(5, b"") is PacketClass.OLD
    packets.roll_back()
    assert packets.newest is None


def test_a_window_that_starts_after_a_number_accepts_only_later_packets() -> None:
    packets = PacketWindow(4)
    packets.start_after(9)
    assert (packets.newest, packets.next_number, packets.last_seen) == (9, 10, 9)
    assert packets.classify(9, b"") is PacketClass.OLD
    assert packets.classify(10, b"") is PacketClass.NEW
    assert packets.add(11, b"") == []
    assert packets.last_seen == 9
    packets.clear_floor()
    assert packets.classify(9, b"") is PacketClass.NEW


def test_a_window_with_packets_ignores_a_start() -> None:
    packets = PacketWindow(4)
    packets.add(3, b"")
    packets.start_after(50)
    packets.start_after(-1)
    assert packets.newest == 3


def test_a_packet_older_than_the_window_is_refused() -> None:
    packets = PacketWindow(8)
    packets.add(100, b"x")
    with pytest.raises(ValueError, match="packet 92 is older than the window of 8 up to 100"):
        packets.add(92, b"y")
    assert packets.packets_after(-1) == [Packet(100, b"x")]
    packets.add(93, b"y")
    assert packets.packets_after(-1) == [Packet(93, b"y"), Packet(100, b"x")]


def test_a_fingerprint_distinguishes_number_and_data() -> None:
    assert len({packet_fingerprint(1, b"a"), packet_fingerprint(1, b"b"), packet_fingerprint(2, b"a")}) == 3
