from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.freenet.events import Packet
from fyrehose_twisted.freenet.node.packet_window import FAR, NUMBERS, Arrival, Packets, ahead, identity
from fyrehose_twisted.freenet.wire.messages import MAX_PACKET


class Naive:
    """Packets whose numbers never begin anew, the plain way."""

    def __init__(self, kept: int) -> None:
        self.kept = kept
        self.first: int | None = None
        self.newest = 0
        self.held: dict[int, bytes] = {}

    def look(self, number: int, data: bytes) -> Arrival:
        if number in self.held:
            return Arrival.SAME if self.held[number] == data else Arrival.CONFLICT
        return Arrival.NEW if self.first is None or number > self.newest - self.kept else Arrival.OLD

    def put(self, number: int, data: bytes) -> list[int]:
        missed: list[int] = []
        if self.first is None:
            self.first = self.newest = number
        elif number - self.newest > FAR:
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


steps = st.one_of(st.integers(-12, 12), st.sampled_from([-FAR, 40, FAR, FAR + 1, FAR + 7, 5_000]))


@given(
    kept=st.one_of(st.integers(1, 12), st.just(3_000)),
    start=st.one_of(st.just(0), st.integers(0, MAX_PACKET), st.integers(MAX_PACKET - 20, MAX_PACKET)),
    moves=st.lists(st.tuples(steps, st.sampled_from([b"a", b"b"])), max_size=40),
)
def test_packets_do_what_a_plain_model_does(kept: int, start: int, moves: list[tuple[int, bytes]]) -> None:
    packets, naive, at = Packets(kept), Naive(kept), start
    for step, data in moves:
        at = (at if naive.first is None else naive.newest) + step
        arrival = packets.look(at % NUMBERS, data)
        assert arrival is naive.look(at, data)
        if arrival is not Arrival.NEW:
            continue
        ranges = packets.put(at % NUMBERS, data)
        missed = [one % NUMBERS for first, last in ranges for one in range(first, first + (last - first) % NUMBERS + 1)]
        assert missed == [one % NUMBERS for one in naive.put(at, data)]
        everything = [Packet(one % NUMBERS, what) for one, what in sorted(naive.held.items())]
        assert packets.after(-1) == everything
        assert len(packets) == len(everything) <= kept
        assert packets.newest == naive.newest % NUMBERS
        assert packets.next == (naive.newest + 1) % NUMBERS
        assert packets.last_seen == naive.last_seen % NUMBERS
        assert packets.after(packets.last_seen) == [
            Packet(one % NUMBERS, what) for one, what in sorted(naive.held.items()) if one > naive.last_seen
        ]


@pytest.mark.parametrize(
    ("number", "of", "by"),
    [(5, 3, 2), (3, 5, -2), (0, MAX_PACKET, 1), (MAX_PACKET, 0, -1), (7, 7, 0), (2**62 - 1, 0, 2**62 - 1)],
)
def test_numbers_begin_anew_and_are_compared_the_shorter_way_round(number: int, of: int, by: int) -> None:
    assert ahead(number, of) == by


def test_nothing_is_known_before_the_first_packet() -> None:
    packets = Packets(4)
    assert (packets.newest, packets.next, packets.last_seen, packets.after(-1)) == (None, None, -1, [])
    assert not packets.is_far(5_000)


def test_a_hole_is_missed_when_it_makes_room() -> None:
    packets = Packets(3)
    missed = [packets.put(number, b"") for number in (10, 11, 13, 15, 16, 20)]
    assert missed == [[], [], [], [(12, 12)], [], [(14, 14), (17, 17)]]


def test_what_was_missing_before_and_after_the_highest_is_told_as_one() -> None:
    packets = Packets(8)
    packets.resume(9)
    packets.reopen()
    packets.put(5, b"")
    assert packets.put(30, b"") == [(6, 22)]


def test_a_number_that_is_far_ahead_says_nothing_of_what_is_between() -> None:
    packets = Packets(4)
    packets.put(5, b"")
    assert packets.is_far(5 + FAR + 1)
    assert packets.put(5 + FAR + 1, b"") == []
    assert packets.after(-1) == [Packet(5 + FAR + 1, b"")]


def test_retreat_goes_back_to_what_was_before_a_number_that_was_far_ahead() -> None:
    packets = Packets(4)
    packets.put(5, b"")
    packets.put(90_000, b"")
    packets.retreat()
    assert (packets.newest, packets.last_seen, len(packets)) == (5, 5, 0)
    assert packets.look(6, b"") is Arrival.NEW
    assert packets.look(5, b"") is Arrival.OLD
    packets.retreat()
    assert packets.newest is None


def test_who_resumes_takes_only_what_comes_after() -> None:
    packets = Packets(4)
    packets.resume(9)
    assert (packets.newest, packets.next, packets.last_seen) == (9, 10, 9)
    assert packets.look(9, b"") is Arrival.OLD
    assert packets.look(10, b"") is Arrival.NEW
    assert packets.put(11, b"") == []
    assert packets.last_seen == 9
    packets.reopen()
    assert packets.look(9, b"") is Arrival.NEW


def test_who_has_packets_does_not_resume() -> None:
    packets = Packets(4)
    packets.put(3, b"")
    packets.resume(50)
    packets.resume(-1)
    assert packets.newest == 3


def test_who_is_older_than_what_is_kept_is_not_taken() -> None:
    packets = Packets(8)
    packets.put(100, b"x")
    with pytest.raises(ValueError, match="packet 92 is older than the 8 that are kept up to 100"):
        packets.put(92, b"y")
    assert packets.after(-1) == [Packet(100, b"x")]
    packets.put(93, b"y")
    assert packets.after(-1) == [Packet(93, b"y"), Packet(100, b"x")]


def test_identity_tells_number_and_data() -> None:
    assert len({identity(1, b"a"), identity(1, b"b"), identity(2, b"a")}) == 3
