from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.datagrams import Batch, BatchBuilder, DatagramRun
from fyrehose_twisted.effects import Address

PEERS: list[Address] = [("192.0.2.1", 1), ("192.0.2.1", 2), ("192.0.2.2", 1)]
Row = tuple[bytes, Address, bool]

rows = st.lists(
    st.tuples(
        # Lengths and peers change rarely, as in real traffic.
        st.sampled_from([b"", b"a", b"b", b"cc", b"dd", b"ee", b"fff"]),
        st.sampled_from([*PEERS[:1] * 3, *PEERS]),
        st.integers(0, 9).map(lambda chance: chance == 9),
    ),
    max_size=20,
)


class Piece(NamedTuple):
    """Draw the result of one receive call: datagrams of one size, perhaps followed by a shorter one."""

    size: int
    count: int
    rest: int
    peer: Address
    truncated: bool

    @property
    def lengths(self) -> list[int]:
        return [self.size] * self.count + [self.rest] * (self.rest > 0)


pieces = st.lists(
    st.builds(
        lambda size, count, rest, peer, chance: Piece(size, count, rest if rest < size else 0, peer, chance == 5),
        st.sampled_from([1, 2, 2, 3]),
        st.integers(1, 3),
        st.integers(0, 2),
        st.sampled_from(PEERS[:2]),
        st.integers(0, 5),
    ),
    max_size=10,
)


def pack(found: list[Row]) -> Batch:
    truncated = {row for row, (_, _, cut) in enumerate(found) if cut}
    return Batch.pack([(datagram, peer) for datagram, peer, _ in found], truncated=truncated)


def unpacked(batch: Batch) -> list[Row]:
    return [(bytes(datagram), peer, truncated) for datagram, peer, truncated in batch]


def check_runs(runs: list[DatagramRun]) -> None:
    """Check that runs are consistent and as few as possible."""
    for run in runs:
        assert run.stop - run.start == run.size * run.rows
        assert run.rows == 1 or (run.size > 0 and not run.truncated)
    for run, following in pairwise(runs):
        assert (
            run.size != following.size
            or run.size == 0
            or run.peer != following.peer
            or run.truncated
            or following.truncated
            or run.stop != following.start
        )


@given(rows)
def test_packed_datagrams_are_split_into_as_few_runs_as_possible(found: list[Row]) -> None:
    batch = pack(found)
    assert unpacked(batch) == unpacked(batch) == found
    assert len(batch) == len(found)
    assert batch.buffer == b"".join(datagram for datagram, _, _ in found)
    check_runs(batch.runs)


@given(pieces)
def test_received_pieces_are_joined_into_as_few_runs_as_possible(arrived: list[Piece]) -> None:
    runs, buffer, expected = BatchBuilder(), bytearray(), list[Row]()
    for piece in arrived:
        start = len(buffer)
        for length in piece.lengths:
            datagram = bytes([len(expected) % 256]) * length
            buffer += datagram
            expected.append((datagram, piece.peer, False))
        if piece.truncated:
            expected[-1] = *expected[-1][:2], True
        runs.add(start, len(buffer), piece.size, piece.peer, piece.truncated)
        assert runs.rows == len(expected)
    batch = Batch(buffer, runs.finish())
    assert unpacked(batch) == expected
    check_runs(batch.runs)


@pytest.mark.parametrize("size", [0, 5, 6, 65_507])
def test_a_segment_size_of_at_least_the_length_means_one_datagram(size: int) -> None:
    runs = BatchBuilder()
    runs.add(0, 5, size, PEERS[0])
    assert runs.finish() == [DatagramRun(0, 5, 5, 1, PEERS[0])]


def test_datagrams_that_are_not_adjacent_are_separate_runs() -> None:
    runs = BatchBuilder()
    runs.add(0, 4, 2, PEERS[0])
    runs.add(10, 14, 2, PEERS[0])
    runs.add(14, 16, 2, PEERS[0])
    assert runs.finish() == [DatagramRun(0, 4, 2, 2, PEERS[0]), DatagramRun(10, 16, 2, 3, PEERS[0])]


@pytest.mark.parametrize(("length", "last"), [(10, 1), (9, 3), (3, 3), (2, 2)])
def test_only_the_last_datagram_of_a_receive_call_is_truncated(length: int, last: int) -> None:
    runs = BatchBuilder()
    runs.add(0, length, 3, PEERS[0], True)
    found = runs.finish()
    assert found[-1] == DatagramRun(length - last, length, last, 1, PEERS[0], True)
    assert [run.truncated for run in found[:-1]] == [False] * (length > last)


@pytest.mark.parametrize("cut", [b"", b"c"])
def test_a_truncated_datagram_separates_two_runs(cut: bytes) -> None:
    found: list[Row] = [
        (b"a", PEERS[0], False),
        (cut, PEERS[0], True),
        (b"b", PEERS[0], False),
        (b"c", PEERS[0], False),
    ]
    batch = pack(found)
    assert unpacked(batch) == found
    assert [run.rows for run in batch.runs] == [1, 1, 2]


def test_a_packed_batch_is_a_writable_copy() -> None:
    source = bytearray(b"abc")
    batch = Batch.pack([(memoryview(source), PEERS[0])])
    source[:] = b"???"
    [(datagram, _, _)] = batch
    assert datagram == b"abc"
    datagram[:] = b"xyz"
    assert batch.buffer == b"xyz"


def test_a_batch_may_be_empty() -> None:
    batch = Batch.pack([])
    assert (len(batch), list(batch), batch.runs) == (0, [], [])
