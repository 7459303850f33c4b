from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.effects import Burst, Datagram, Send


@given(st.binary(min_size=1, max_size=60), st.integers(1, 70), st.sampled_from([bytes, bytearray, memoryview]))
def test_a_burst_is_split_at_its_segment_size(data: bytes, size: int, kind: type[bytes]) -> None:
    pieces = list(map(bytes, Burst(kind(data), size).iter_datagrams()))
    assert b"".join(pieces) == data
    assert [len(piece) for piece in pieces[:-1]] == [size] * (len(pieces) - 1)
    assert 0 < len(pieces[-1]) <= size


def test_the_datagrams_of_a_burst_in_a_view_are_not_copied() -> None:
    buffer = bytearray(b"aabbc")
    datagrams = list(Burst(memoryview(buffer), 2).iter_datagrams())
    buffer[:] = b"AABBC"
    assert datagrams == [b"AA", b"BB", b"C"]


@pytest.mark.parametrize(
    ("items", "datagrams"),
    [
        ([], []),
        ([b"", b"one", b""], [b"", b"one", b""]),
        ([Burst(b"aabbc", 2)], [b"aa", b"bb", b"c"]),
        ([Burst(b"", 1)], [b""]),
        ([b"x", Burst(b"aab", 2), b"", Burst(b"dd", 2)], [b"x", b"aa", b"b", b"", b"dd"]),
    ],
)
def test_a_send_has_the_datagrams_of_its_bursts_and_the_others_in_order(
    items: list[Datagram | Burst], datagrams: list[bytes]
) -> None:
    effect = Send(items, (("192.0.2.1", 1),))
    assert list(effect.iter_datagrams()) == datagrams
    assert list(effect.iter_datagrams()) == datagrams, "they can be had again"
