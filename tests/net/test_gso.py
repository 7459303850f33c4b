"""Sending and receiving bursts, on real sockets and on sockets that refuse them."""

from __future__ import annotations

import json
import select
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from errno import EAGAIN, EHOSTUNREACH, EINVAL, EIO, EMSGSIZE, ENETUNREACH, ENOPROTOOPT, EOPNOTSUPP, EPERM
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address, Burst, Datagram
from fyrehose_twisted.net import gso
from fyrehose_twisted.net.gso import (
    MAX_BATCH_DATAGRAMS,
    MAX_DATAGRAM,
    MAX_SEGMENTS,
    RECEIVE_BYTES,
    SAFE_SEGMENTS,
    SegmentingSocket,
    coalesce,
)

Item = Datagram | Burst
PEER: Address = ("192.0.2.7", 2323)
UDP_SEGMENT, UDP_GRO = 103, 104
PATIENCE = 120.0
"""Seconds after which a datagram on loopback counts as lost."""

lengths = st.sampled_from([0, 1, 2, 2, 2, 3, 3]) | st.sampled_from([600, 20_000, 40_000, MAX_DATAGRAM])


class Pieces(NamedTuple):
    """Datagrams of one size, perhaps followed by a shorter one, as a burst or each alone."""

    size: int
    count: int
    rest: int
    kind: type[Datagram] | None


def pieces(longest: int) -> st.SearchStrategy[list[Pieces]]:
    """Draw compact descriptions for :func:`made`, since datagrams would be too long to print."""
    return st.lists(
        st.builds(
            lambda size, count, rest, kind: Pieces(
                size, min(count, 4) if size > 1_000 else count, rest if rest < size else 0, kind if size else None
            ),
            lengths | st.just(longest),
            st.integers(1, 9),
            st.integers(0, 2),
            st.sampled_from([None, None, bytes, bytearray, memoryview]),
        ),
        max_size=6,
    )


def made(found: list[Pieces]) -> list[Item]:
    """Make datagrams that begin with their number, as far as their size allows."""
    items: list[Item] = []
    number = 0
    for size, count, rest, kind in found:
        sizes = [size] * count + [rest] * (rest > 0)
        datagrams = [bytes([number + row]) * min(one, 1) + bytes(max(0, one - 1)) for row, one in enumerate(sizes)]
        number += len(datagrams)
        items += datagrams if kind is None else [Burst(kind(b"".join(datagrams)), size)]
    return items


def split_bursts(found: Sequence[Item]) -> list[bytes]:
    """Split bursts into datagrams; an empty burst is one empty datagram."""
    datagrams: list[bytes] = []
    for item in found:
        if isinstance(item, Burst):
            datagrams += map(bytes, item.iter_datagrams()) if len(item.data) else [b""]
        else:
            datagrams.append(bytes(item))
    return datagrams


def fewest(datagrams: list[bytes], segments: int) -> int:
    """Return the minimum number of calls for these datagrams in order."""
    calls, room, size = 0, 0, 0
    for datagram in datagrams:
        if room and 0 < len(datagram) <= size:
            room = room - 1 if len(datagram) == size else 0
        else:
            calls, size = calls + 1, len(datagram)
            room = max(1, min(segments, MAX_DATAGRAM // size)) - 1 if size else 0
    return calls


class TestCoalesce:
    @given(pieces(MAX_DATAGRAM + 1), st.sampled_from([1, 2, 5, SAFE_SEGMENTS, MAX_SEGMENTS]))
    def test_coalesced_bursts_keep_order_and_limits(self, parts: list[Pieces], segments: int) -> None:
        found = made(parts)
        gathered = coalesce(found, segments)
        assert split_bursts(gathered) == split_bursts(found)
        for data, size in gathered:
            count = max(1, -(-len(data) // size))
            assert size >= 1
            assert count <= segments
            assert count == 1 or len(data) <= MAX_DATAGRAM

    @given(pieces(MAX_DATAGRAM + 1), st.sampled_from([1, 2, 5, SAFE_SEGMENTS, MAX_SEGMENTS]))
    def test_datagrams_are_coalesced_into_as_few_bursts_as_possible(self, parts: list[Pieces], segments: int) -> None:
        datagrams = split_bursts(made(parts))
        assert len(coalesce(datagrams, segments)) == fewest(datagrams, segments)

    @pytest.mark.parametrize(("size", "most"), [(1, 64), (1_000, 64), (1_024, 63), (32_753, 2), (32_754, 1)])
    @pytest.mark.parametrize("joined", [False, True])
    def test_coalesced_bursts_reach_the_maximum_of_one_call(self, size: int, most: int, joined: bool) -> None:
        datagrams = [bytes([row % 256]) * size for row in range(3 * most)]
        found: list[Item] = [Burst(b"".join(datagrams), size)] if joined else [*datagrams]
        gathered = coalesce(found, 64)
        assert [len(burst.data) for burst in gathered] == [most * size] * 3
        assert split_bursts(gathered) == datagrams

    def test_only_the_last_datagram_of_a_burst_is_shorter(self) -> None:
        found: list[Item] = [b"aa", b"b", b"c", Burst(b"ddeef", 2), b"gg", Burst(b"hhi", 2), b"jj", Burst(b"k", 2)]
        assert coalesce(found, 64) == [(b"aab", 2), (b"c", 1), (b"ddeef", 2), (b"gghhi", 2), (b"jjk", 2)]

    @pytest.mark.parametrize(
        ("count", "size"), [(64, 1_000), (65, 1_000), (66, 1_000), (64, 1_024), (65, 1), (2, 32_754)]
    )
    def test_a_burst_is_split_only_at_the_limit(self, count: int, size: int) -> None:
        burst = Burst(bytes(count * size), size)
        gathered = coalesce([burst], 64)
        most = min(64, MAX_DATAGRAM // size)
        assert [len(data) // size for data, _ in gathered] == [most] * (count // most) + [count % most] * (
            count % most > 0
        )

    def test_the_rest_of_a_split_burst_is_coalesced_with_following_datagrams(self) -> None:
        found: list[Item] = [Burst(b"aabbccddee", 2), b"ff", b"gg"]
        assert coalesce(found, 3) == [(b"aabbcc", 2), (b"ddeeff", 2), (b"gg", 2)]
        assert coalesce([Burst(b"aabbccdde", 2), b"ff"], 3) == [(b"aabbcc", 2), (b"dde", 2), (b"ff", 2)]

    @pytest.mark.parametrize("alone", [b"", bytes(MAX_DATAGRAM + 1)])
    def test_empty_and_oversized_datagrams_are_not_coalesced(self, alone: bytes) -> None:
        gathered = coalesce([alone, alone, b"x", alone, b"x", b"x"], 64)
        assert [data for data, _ in gathered] == [alone, alone, b"x", alone, b"xx"]

    def test_a_burst_that_one_call_can_send_is_not_copied(self) -> None:
        found: list[Item] = [Burst(b"aabb", 2), b"ccc", Burst(memoryview(bytearray(b"dddd")), 1), memoryview(b"ee")]
        gathered = coalesce(found, 64)
        assert len(gathered) == len(found)
        for burst, item in zip(gathered, found, strict=True):
            assert burst.data is (item.data if isinstance(item, Burst) else item)

    def test_splitting_a_view_does_not_copy_it(self) -> None:
        buffer = bytearray(b"aabbccd")
        gathered = coalesce([Burst(memoryview(buffer), 2)], 2)
        buffer[:] = b"AABBCCD"
        assert split_bursts(gathered) == [b"AA", b"BB", b"CC", b"D"]

    def test_coalescing_no_datagrams_returns_no_bursts(self) -> None:
        assert coalesce([], 64) == []


class Scripted:
    """A proxy of a socket, or of none, that counts calls and refuses on request.

    :param real: carries out what is not refused; without, all of it is as good as sent.
    :param refuses: the error that sending so many bytes as datagrams of such a size to a host gives, or ``None``.
    :ivar sent: the number of datagrams that each call sent, in order.
    """

    def __init__(
        self, real: socket.socket | None = None, refuses: Callable[[int, int, str], int | None] = lambda *_: None
    ) -> None:
        self.calls: Counter[str] = Counter()
        self.sent: list[int] = []
        self.passed: list[bytes] = []
        self.refuses = refuses
        self._real: Any = real

    def sendto(self, data: Datagram, peer: Address) -> None:
        self._send("sendto", data, max(1, len(data)), peer)
        if self._real is not None:
            self._real.sendto(data, peer)

    def sendmsg(self, buffers: Sequence[Datagram], control: Any, flags: int, peer: Address) -> None:
        [data], [(level, kind, size)] = buffers, control
        assert (level, kind) == (socket.IPPROTO_UDP, UDP_SEGMENT)
        self._send("sendmsg", data, *struct.unpack("=H", size), peer)
        if self._real is not None:
            self._real.sendmsg(buffers, control, flags, peer)

    def _send(self, name: str, data: Datagram, size: int, peer: Address) -> None:
        self.calls[name] += 1
        error = self.refuses(len(data), size, peer[0])
        if error is not None:
            raise OSError(error, "refused")  # Python raises BlockingIOError for EAGAIN.
        self.sent.append(max(1, -(-len(data) // size)))
        self.passed += split_bursts([Burst(data, size)])

    def recvfrom_into(self, view: memoryview) -> Any:
        self.calls["recvfrom_into"] += 1
        return self._real.recvfrom_into(view)

    def recvmsg_into(self, buffers: Sequence[memoryview], room: int) -> Any:
        self.calls["recvmsg_into"] += 1
        return self._real.recvmsg_into(buffers, room)

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Accept the option, like a kernel with offload."""


@pytest.fixture
def sockets() -> Iterator[Callable[..., socket.socket]]:
    """Return a factory of sockets that are closed afterwards."""
    with ExitStack() as opened:

        def make(host: str = "127.0.0.1") -> socket.socket:
            return opened.enter_context(bound(host))

        yield make


def bound(host: str = "127.0.0.1") -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    made.bind((host, 0))
    return made


def wait_for(sock: socket.socket) -> None:
    assert select.select([sock], [], [], PATIENCE)[0], "no datagram arrived"


def received(receiving: SegmentingSocket, real: socket.socket, count: int) -> list[tuple[bytes, Address]]:
    """Receive ``count`` datagrams."""
    found: list[tuple[bytes, Address]] = []
    buffer = bytearray(4 * RECEIVE_BYTES)
    while len(found) < count:
        wait_for(real)
        batch = receiving.receive_batch(buffer)
        assert not any(run.truncated for run in batch.runs)
        found += [(bytes(datagram), peer) for datagram, peer, _ in batch]
    assert not receiving.receive_batch(buffer).runs, "more datagrams arrived than were sent"
    return found


def has_bursts() -> bool:
    with bound() as sock:
        tried = SegmentingSocket(sock)
        return tried.segments > 1 and tried.receives_bursts


needs_bursts = pytest.mark.skipif(not has_bursts(), reason="this kernel has no UDP segmentation and receive offload")


class TestOnTheLoopback:
    # Not shrunk, since each failing example waits for the whole timeout.
    @settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])
    @given(pieces(MAX_DATAGRAM), st.booleans(), st.booleans())
    def test_bursts_are_received_in_order(self, parts: list[Pieces], sends: bool, receives: bool) -> None:
        with bound() as from_here, bound() as to_here:
            sending, receiving = SegmentingSocket(from_here, offload=sends), SegmentingSocket(to_here, offload=receives)
            for burst in coalesce(made(parts), sending.segments):
                assert sending.send(burst, to_here.getsockname()) is None
                # Received one by one, since all together might overflow the receive buffer.
                came = received(receiving, to_here, len(split_bursts([burst])))
                assert came == [(datagram, from_here.getsockname()) for datagram in split_bursts([burst])]
            assert not sending.errors
            assert not receiving.errors

    @needs_bursts
    @pytest.mark.parametrize("size", [1, 300, 1_000])
    def test_one_system_call_carries_many_datagrams(self, sockets: Callable[..., socket.socket], size: int) -> None:
        from_here, to_here = sockets(), sockets()
        sending, receiving = SegmentingSocket(from_here), SegmentingSocket(to_here)
        sending.socket, receiving.socket = Scripted(from_here), Scripted(to_here)
        datagrams = [bytes([row]) * size for row in range(64)]
        [burst] = coalesce(datagrams, sending.segments)
        assert sending.send(burst, to_here.getsockname()) is None
        wait_for(to_here)
        batch = receiving.receive_batch(bytearray(2 * RECEIVE_BYTES))
        assert [bytes(datagram) for datagram, _, _ in batch] == datagrams
        assert [(run.rows, run.size, run.peer) for run in batch.runs] == [(64, size, from_here.getsockname())]
        assert sending.socket.calls == {"sendmsg": 1}
        assert receiving.socket.calls == {"recvmsg_into": 2}, "one for all of them, one that finds no more"

    @needs_bursts
    def test_the_last_received_datagram_of_a_burst_may_be_shorter(self, sockets: Callable[..., socket.socket]) -> None:
        from_here, to_here = sockets(), sockets()
        sending, receiving = SegmentingSocket(from_here), SegmentingSocket(to_here)
        assert sending.send(Burst(b"aabbccd", 2), to_here.getsockname()) is None
        wait_for(to_here)
        batch = receiving.receive_batch(bytearray(RECEIVE_BYTES))
        assert [(run.rows, run.size) for run in batch.runs] == [(3, 2), (1, 1)]
        assert [bytes(datagram) for datagram, _, _ in batch] == [b"aa", b"bb", b"cc", b"d"]

    @needs_bursts
    def test_a_receiver_without_offload_gets_single_datagrams(self, sockets: Callable[..., socket.socket]) -> None:
        from_here, to_here = sockets(), sockets()
        datagrams = [bytes([row]) * 100 for row in range(64)] + [b"end"]
        for burst in coalesce(datagrams, SAFE_SEGMENTS):
            assert SegmentingSocket(from_here).send(burst, to_here.getsockname()) is None
        for datagram in datagrams:
            wait_for(to_here)
            assert to_here.recvfrom(RECEIVE_BYTES) == (datagram, from_here.getsockname())
        with pytest.raises(BlockingIOError):
            to_here.recvfrom(RECEIVE_BYTES)

    def test_without_offload_each_datagram_is_one_system_call(self, sockets: Callable[..., socket.socket]) -> None:
        from_here, to_here = sockets(), sockets()
        sending, receiving = SegmentingSocket(from_here, offload=False), SegmentingSocket(to_here, offload=False)
        assert (sending.segments, receiving.receives_bursts) == (1, False)
        sending.socket, receiving.socket = Scripted(from_here), Scripted(to_here)
        datagrams = [bytes([row]) * 20 for row in range(30)]
        for burst in coalesce([Burst(b"".join(datagrams), 20)], sending.segments):
            assert sending.send(burst, to_here.getsockname()) is None
        wait_for(to_here)
        batch = receiving.receive_batch(bytearray(2 * RECEIVE_BYTES))
        assert [bytes(datagram) for datagram, _, _ in batch] == datagrams
        assert [run.rows for run in batch.runs] == [30], "they are one run all the same"
        assert sending.socket.calls == {"sendto": 30}
        assert receiving.socket.calls == {"recvfrom_into": 31}

    @needs_bursts
    def test_received_bursts_of_several_sizes_and_peers_are_separated(
        self, sockets: Callable[..., socket.socket]
    ) -> None:
        senders, to_here = [sockets(), sockets()], sockets()
        expected = []
        for turn, size in enumerate([5, 7, 7, 5, 5]):
            from_here = senders[turn % 2]
            burst = Burst(b"".join(b"%0*d" % (size, row) for row in range(10)), size)
            assert SegmentingSocket(from_here).send(burst, to_here.getsockname()) is None
            expected += [(datagram, from_here.getsockname()) for datagram in split_bursts([burst])]
        assert received(SegmentingSocket(to_here), to_here, 50) == expected

    def test_a_send_error_of_a_datagram_is_counted(self, sockets: Callable[..., socket.socket]) -> None:
        from_here, to_here = sockets(), sockets()
        errors: Counter[str] = Counter()
        sending = SegmentingSocket(from_here, errors=errors)
        too_long = bytes(MAX_DATAGRAM + 1)
        for burst in coalesce([too_long, b"x", too_long], sending.segments):
            assert sending.send(burst, to_here.getsockname()) is None
        assert errors == {"EMSGSIZE": 2}
        assert received(SegmentingSocket(to_here), to_here, 1) == [(b"x", from_here.getsockname())]


def burst_of(count: int, size: int = 3) -> Burst:
    """Return a burst whose last datagram is shorter."""
    return Burst(b"".join(b"%0*d" % (size, row) for row in range(count))[:-1], size)


class TestRefusedBursts:
    def test_the_segment_limit_is_reduced_for_an_older_kernel(self, sockets: Callable[..., socket.socket]) -> None:
        from_here, to_here = sockets(), sockets()
        older = Scripted(from_here, lambda length, size, _: EINVAL if length > SAFE_SEGMENTS * size else None)
        sending, burst = SegmentingSocket(older), burst_of(150)  # type: ignore[arg-type]
        assert sending.segments == MAX_SEGMENTS
        assert sending.send(burst, to_here.getsockname()) is None
        assert [datagram for datagram, _ in received(SegmentingSocket(to_here), to_here, 150)] == split_bursts([burst])
        assert older.sent == [64, 64, 22]
        assert sending.segments == SAFE_SEGMENTS
        older.calls.clear()
        for more in coalesce([burst], sending.segments):
            assert sending.send(more, to_here.getsockname()) is None
        assert older.calls == {"sendmsg": 3}, "nothing larger is tried again"
        assert not sending.errors

    @pytest.mark.parametrize("error", [EMSGSIZE, EIO, EINVAL, EOPNOTSUPP, ENOPROTOOPT])
    def test_a_refused_burst_is_sent_as_single_datagrams(
        self, sockets: Callable[..., socket.socket], error: int
    ) -> None:
        from_here, to_here = sockets("0.0.0.0"), sockets()
        narrow = Scripted(
            from_here, lambda length, size, host: error if length > size and host == "127.0.0.1" else None
        )
        sending, burst = SegmentingSocket(narrow), burst_of(20)  # type: ignore[arg-type]
        assert sending.send(burst, to_here.getsockname()) is None
        assert sending.send(burst, to_here.getsockname()) is None
        assert [datagram for datagram, _ in received(SegmentingSocket(to_here), to_here, 40)] == 2 * split_bursts(
            [burst]
        )
        assert narrow.calls == {"sendmsg": 1, "sendto": 40}, "the second burst is not tried"
        assert not sending.errors
        assert sending.segments == MAX_SEGMENTS

    @pytest.mark.parametrize("error", [EMSGSIZE, EIO])
    def test_a_burst_refused_by_a_route_does_not_disable_offload(self, error: int) -> None:
        narrow = Scripted(refuses=lambda length, size, _: error if length > size else None)
        sending = SegmentingSocket(narrow)  # type: ignore[arg-type]
        assert sending.send(burst_of(100), PEER) is None
        assert narrow.calls == {"sendmsg": 1, "sendto": 100}
        assert sending.segments == MAX_SEGMENTS

    def test_only_datagrams_of_the_refused_size_are_sent_singly(self) -> None:
        narrow = Scripted(refuses=lambda length, size, host: EMSGSIZE if length > size > 9 and host == "a" else None)
        sending = SegmentingSocket(narrow)  # type: ignore[arg-type]
        for size, host, sent in [
            (10, "a", [1] * 5),
            (12, "a", [1] * 5),
            (9, "a", [5]),
            (10, "b", [5]),
            (10, "a", [1] * 5),
        ]:
            narrow.sent.clear()
            assert sending.send(burst_of(5, size), (host, 9)) is None
            assert narrow.sent == sent, (size, host)
        assert narrow.calls["sendmsg"] == 3

    def test_sizes_above_a_refused_one_are_not_tried_as_bursts(self) -> None:
        narrow = Scripted(refuses=lambda length, size, _: EMSGSIZE if length > size >= 9 else None)
        sending = SegmentingSocket(narrow)  # type: ignore[arg-type]
        for size in (20, 10, 15, 20, 10):
            assert sending.send(burst_of(5, size), PEER) is None
        assert narrow.calls["sendmsg"] == 2

    def test_refused_bursts_are_retried_after_an_interval(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gso, "_SMALL_MTU_RETRY_BURSTS", 4)
        narrow = Scripted(refuses=lambda length, size, _: EMSGSIZE if length > size else None)
        sending = SegmentingSocket(narrow)  # type: ignore[arg-type]
        tried = []
        for _ in range(14):
            narrow.calls.clear()
            assert sending.send(burst_of(3), PEER) is None
            tried.append(narrow.calls["sendmsg"])
        assert tried == [1, 0, 0, 0, 0] * 2 + [1, 0, 0, 0]
        narrow.refuses = lambda *_: None
        for _ in range(3):
            narrow.sent.clear()
            assert sending.send(burst_of(3), PEER) is None
        assert narrow.sent == [3], "bursts are accepted again"

    def test_the_memory_of_hosts_with_a_small_mtu_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gso, "_MAX_SMALL_MTU_HOSTS", 5)
        narrow = Scripted(refuses=lambda length, size, _: EMSGSIZE if length > size else None)
        sending = SegmentingSocket(narrow)  # type: ignore[arg-type]
        for host in range(40):
            assert sending.send(burst_of(3), (f"192.0.2.{host}", 9)) is None
            assert 0 < len(sending._small_mtu_hosts) <= 5
        assert narrow.passed == 40 * split_bursts([burst_of(3)])

    @pytest.mark.parametrize(("error", "name"), [(EPERM, "EPERM"), (ENETUNREACH, "ENETUNREACH"), (99_999, "unknown")])
    def test_a_send_error_of_a_burst_is_counted_per_datagram(self, error: int, name: str) -> None:
        refusing = Scripted(refuses=lambda *_: error)
        sending = SegmentingSocket(refusing)  # type: ignore[arg-type]
        for burst, errors in [(burst_of(7), 7), (Burst(b"abc", 3), 8), (Burst(b"", 1), 9), (burst_of(150), 159)]:
            assert sending.send(burst, PEER) is None
            assert sending.errors == {name: errors}
        assert refusing.calls == {"sendmsg": 2, "sendto": 2}

    def test_single_send_errors_after_a_refused_burst_are_counted(self) -> None:
        sending = SegmentingSocket(Scripted(refuses=lambda *_: EMSGSIZE))  # type: ignore[arg-type]
        assert sending.send(burst_of(7), PEER) is None
        assert sending.send(burst_of(7), PEER) is None
        assert sending.errors == {"EMSGSIZE": 14}

    @given(
        count=st.integers(1, 150),
        size=st.integers(1, 4),
        whole=st.booleans(),
        room=st.integers(0, 6) | st.integers(0, 150),
        refusal=st.sampled_from([(1, EIO), (1, EINVAL), (SAFE_SEGMENTS, EINVAL), (MAX_SEGMENTS, EINVAL)]),
    )
    def test_the_unsent_rest_of_a_burst_is_returned(
        self, count: int, size: int, whole: bool, room: int, refusal: tuple[int, int]
    ) -> None:
        """The returned rest begins with the first unsent datagram, after any number of calls."""
        data = b"".join(b"%0*d" % (size, row) for row in range(count))[-count * size :]
        burst = Burst(data if whole or len(data) == 1 else data[:-1], size)
        calls, (most, error) = 0, refusal

        def refuses(length: int, segment: int, _: str) -> int | None:
            nonlocal calls
            if length > most * segment:
                return error
            calls += 1
            return EAGAIN if calls > room else None

        full = Scripted(refuses=refuses)
        sending = SegmentingSocket(full)  # type: ignore[arg-type]
        left = sending.send(burst, PEER)
        assert full.passed + (split_bursts([left]) if left is not None else []) == split_bursts([burst])
        assert len(full.sent) <= room
        assert left is None or left.size == size
        room = 10**6
        assert left is None or sending.send(left, PEER) is None
        assert full.passed == split_bursts([burst])
        assert not sending.errors

    def test_a_kernel_without_offload_is_detected_at_the_start(self) -> None:
        class Old(Scripted):
            def setsockopt(self, level: int, option: int, value: int) -> None:
                raise OSError(ENOPROTOOPT, "Protocol not available")

        old = SegmentingSocket(Old())  # type: ignore[arg-type]
        assert (old.segments, old.receives_bursts) == (1, False)

    def test_offload_is_probed_per_direction(self) -> None:
        class OneWay(Scripted):
            def setsockopt(self, level: int, option: int, value: int) -> None:
                if option == UDP_GRO:
                    raise OSError(ENOPROTOOPT, "Protocol not available")

        one_way = SegmentingSocket(OneWay())  # type: ignore[arg-type]
        assert (one_way.segments, one_way.receives_bursts) == (MAX_SEGMENTS, False)


class Arriving:
    """A socket that returns one item per call: bytes, segment size and flags, or an error."""

    def __init__(self, arrives: Iterator[tuple[bytes, int | None, int] | OSError]) -> None:
        self._arrives = arrives
        self.smallest_room = 2 * RECEIVE_BYTES

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Accept the option, like a kernel with offload."""

    def recvmsg_into(self, buffers: Sequence[memoryview], room: int) -> Any:
        [view] = buffers
        assert room >= socket.CMSG_SPACE(4)
        self.smallest_room = min(self.smallest_room, len(view))
        item = next(self._arrives, None)
        if item is None:
            raise BlockingIOError
        if isinstance(item, OSError):
            raise item
        data, size, flags = item
        view[: len(data)] = data
        control = [] if size is None else [(socket.IPPROTO_UDP, UDP_GRO, struct.pack("=i", size))]
        return len(data), control, flags, PEER


def arriving(*items: tuple[bytes, int | None, int] | OSError) -> SegmentingSocket:
    return SegmentingSocket(Arriving(iter(items)))  # type: ignore[arg-type]


def rows(batch: Batch) -> list[tuple[bytes, bool]]:
    return [(bytes(datagram), truncated) for datagram, _, truncated in batch]


class TestReceiving:
    @pytest.mark.parametrize("room", [0, 1, 60])
    def test_a_truncated_datagram_is_flagged(self, sockets: Callable[..., socket.socket], room: int) -> None:
        class Narrow(Scripted):
            def recvmsg_into(self, buffers: Sequence[memoryview], control_room: int) -> Any:
                return super().recvmsg_into([buffers[0][:room]], control_room)

        from_here, to_here = sockets(), sockets()
        receiving = SegmentingSocket(to_here)
        if not receiving.receives_bursts:
            pytest.skip("flags come only with what may be a burst")
        receiving.socket = Narrow(to_here)
        from_here.sendto(b"x" * 61, to_here.getsockname())
        wait_for(to_here)
        assert rows(receiving.receive_batch(bytearray(RECEIVE_BYTES))) == [(b"x" * room, True)]

    @pytest.mark.parametrize(
        ("length", "expected"), [(5, [2, 2, 1]), (4, [2, 2]), (2, [2]), (1, [1])], ids=["rest", "whole", "one", "less"]
    )
    def test_the_last_datagram_of_a_truncated_burst_is_flagged(self, length: int, expected: list[int]) -> None:
        receiving = arriving((b"zz", None, 0), (b"x" * length, 2, socket.MSG_TRUNC), (b"zz", None, 0))
        found = rows(receiving.receive_batch(bytearray(2 * RECEIVE_BYTES)))
        assert [len(data) for data, _ in found] == [2, *expected, 2]
        assert [truncated for _, truncated in found] == [False] * len(expected) + [True, False]

    def test_other_receive_flags_are_ignored(self) -> None:
        others = 0x7FFF & ~socket.MSG_TRUNC
        assert rows(arriving((b"abc", 2, others)).receive_batch(bytearray(RECEIVE_BYTES))) == [
            (b"ab", False),
            (b"c", False),
        ]

    def test_segment_sizes_over_one_byte_are_parsed(self) -> None:
        batch = arriving((bytes(3 * 513), 513, 0)).receive_batch(bytearray(RECEIVE_BYTES))
        assert [(run.rows, run.size) for run in batch.runs] == [(3, 513)]

    @pytest.mark.parametrize(("size", "batches"), [(10, [7, 3]), (20_000, [4, 4, 2]), (MAX_DATAGRAM, [2] * 5)])
    def test_every_receive_has_buffer_space_for_a_full_burst(self, size: int, batches: list[int]) -> None:
        items = iter([(bytes(size), None, 0)] * 10)
        socket_ = Arriving(items)
        receiving = SegmentingSocket(socket_)  # type: ignore[arg-type]
        # The space that seven small datagrams leave.
        buffer = bytearray(RECEIVE_BYTES + 65) if size == 10 else bytearray(2 * RECEIVE_BYTES)
        found = []
        while batch := len(receiving.receive_batch(buffer)):
            found.append(batch)
        assert found == batches
        assert socket_.smallest_room >= RECEIVE_BYTES

    def test_a_receive_batch_ends_at_its_datagram_limit(self) -> None:
        burst = bytes(1_000), 10, 0
        receiving = arriving(*[burst] * 50)
        assert len(receiving.receive_batch(bytearray(4 * RECEIVE_BYTES))) == -(-MAX_BATCH_DATAGRAMS // 100) * 100
        assert len(receiving.receive_batch(bytearray(4 * RECEIVE_BYTES))) == 5_000 - 4_100

    def test_a_single_receive_call_returns_all_datagrams_of_a_burst(self) -> None:
        cut = socket.MSG_TRUNC
        receiving = arriving(
            (b"aab", 2, 0),
            (b"c", None, 0),
            (b"", None, 0),
            (b"d", None, cut),
            OSError(EHOSTUNREACH, ""),
            (b"e", None, 0),
        )
        found = [receiving.receive_one(bytearray(RECEIVE_BYTES)) for _ in range(7)]
        assert [None if batch is None else rows(batch) for batch in found] == [
            [(b"aa", False), (b"b", False)],
            [(b"c", False)],
            [(b"", False)],
            [(b"d", True)],
            None,
            [(b"e", False)],
            None,
        ]
        assert receiving.errors == {"EHOSTUNREACH": 1}

    def test_a_receive_error_ends_a_batch_without_loss(self) -> None:
        receiving = arriving((b"1", None, 0), OSError(EHOSTUNREACH, "No route to host"), (b"2", None, 0))
        found = [rows(receiving.receive_batch(bytearray(2 * RECEIVE_BYTES))) for _ in range(3)]
        assert found == [[(b"1", False)], [(b"2", False)], []]
        assert receiving.errors == {"EHOSTUNREACH": 1}

    def test_an_interrupted_receive_is_no_error(self) -> None:
        receiving = arriving((b"1", None, 0), InterruptedError(), (b"2", None, 0))
        assert [rows(receiving.receive_batch(bytearray(2 * RECEIVE_BYTES))) for _ in range(2)] == [
            [(b"1", False)],
            [(b"2", False)],
        ]
        assert not receiving.errors


NARROW_LINK = """
import fcntl, json, select, socket, struct, sys
from fyrehose_twisted.effects import Burst
from fyrehose_twisted.net.gso import RECEIVE_BYTES, SegmentingSocket

MTU, HEADERS = 1_400, 28

class Counting:
    def __init__(self, real):
        self.real, self.calls = real, []

    def sendto(self, data, peer):
        self.calls.append("sendto")
        self.real.sendto(data, peer)

    def sendmsg(self, buffers, control, flags, peer):
        self.calls.append("sendmsg")
        self.real.sendmsg(buffers, control, flags, peer)

from_here, to_here = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
fcntl.ioctl(to_here, 0x8922, struct.pack("16si20x", b"lo", MTU))  # SIOCSIFMTU
fcntl.ioctl(to_here, 0x8914, struct.pack("16sH22x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
to_here.setblocking(False)
to_here.bind(("127.0.0.1", 0))
sending, receiving = SegmentingSocket(from_here), SegmentingSocket(to_here)
counting = sending.socket = Counting(from_here)
buffer, steps = bytearray(4 * RECEIVE_BYTES), []
for size in (MTU - HEADERS, MTU - HEADERS + 1, 3_000, 1_200):
    datagrams, found = [bytes([row]) * size for row in range(20)], []
    left = sending.send(Burst(b"".join(datagrams), size), to_here.getsockname())
    while len(found) < len(datagrams) and select.select([to_here], [], [], 120)[0]:
        found += [bytes(datagram) for datagram, _, _ in receiving.receive_batch(buffer)]
    calls = {name: counting.calls.count(name) for name in ("sendmsg", "sendto")}
    counting.calls.clear()
    steps.append({"size": size, "complete": left is None and found == datagrams, **calls})
print(json.dumps({"steps": steps, "errors": sending.errors, "segments": sending.segments}))
"""


@needs_bursts
def test_bursts_over_a_link_with_a_smaller_mtu_are_sent_singly(program: Callable[[str, str], Path]) -> None:
    """Run in a network namespace whose loopback has a small MTU, so that the kernel refuses bursts."""
    unshare = str(program("unshare", "util-linux"))
    tried = subprocess.run([unshare, "-n", "true"], capture_output=True, text=True, timeout=PATIENCE)
    if tried.returncode:
        pytest.skip(f"no network of our own here, which needs root: {tried.stderr.strip()}")
    ran = subprocess.run(
        [unshare, "-n", sys.executable, "-c", NARROW_LINK], capture_output=True, text=True, timeout=2 * PATIENCE
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["steps"] == [
        {"size": 1_372, "complete": True, "sendmsg": 1, "sendto": 0},
        {"size": 1_373, "complete": True, "sendmsg": 1, "sendto": 20},
        {"size": 3_000, "complete": True, "sendmsg": 0, "sendto": 20},
        {"size": 1_200, "complete": True, "sendmsg": 1, "sendto": 0},
    ]
    assert found["errors"] == {}
    assert found["segments"] == MAX_SEGMENTS


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this host has no IPv6 loopback address")
class TestIPv6:
    """Sockets of IPv6, and of both families, with the peers of either."""

    @staticmethod
    def dual(stack: ExitStack) -> socket.socket:
        made = stack.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind(("::", 0))
        return made

    @settings(phases=[Phase.explicit, Phase.reuse, Phase.generate], max_examples=25)
    @given(pieces(MAX_DATAGRAM), st.booleans(), st.booleans(), st.sampled_from(["127.0.0.1", "::1"]))
    def test_bursts_are_received_in_order_from_peers_of_either_family(
        self, parts: list[Pieces], sends: bool, receives: bool, host: str
    ) -> None:
        with ExitStack() as stack:
            from_here, to_here = self.dual(stack), self.dual(stack)
            sending, receiving = SegmentingSocket(from_here, offload=sends), SegmentingSocket(to_here, offload=receives)
            for burst in coalesce(made(parts), sending.segments):
                assert sending.send(burst, (host, to_here.getsockname()[1])) is None
                came = received(receiving, to_here, len(split_bursts([burst])))
                assert came == [(datagram, (host, from_here.getsockname()[1])) for datagram in split_bursts([burst])]
            assert not sending.errors
            assert not receiving.errors

    @needs_bursts
    @pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
    def test_one_system_call_carries_many_datagrams(self, host: str) -> None:
        with ExitStack() as stack:
            from_here, to_here = self.dual(stack), self.dual(stack)
            sending, receiving = SegmentingSocket(from_here), SegmentingSocket(to_here)
            sending.socket, receiving.socket = Scripted(from_here), Scripted(to_here)
            datagrams = [bytes([row]) * 1_000 for row in range(64)]
            [burst] = coalesce(datagrams, sending.segments)
            assert sending.send(burst, (host, to_here.getsockname()[1])) is None
            wait_for(to_here)
            batch = receiving.receive_batch(bytearray(2 * RECEIVE_BYTES))
            assert [bytes(datagram) for datagram, _, _ in batch] == datagrams
            assert [run.peer for run in batch.runs] == [(host, from_here.getsockname()[1])]
            assert sending.socket.calls == {"sendmsg": 1}
            assert receiving.socket.calls == {"recvmsg_into": 2}

    def test_uncoalesced_datagrams_of_both_families_are_received_together(self) -> None:
        with ExitStack() as stack:
            to_here = self.dual(stack)
            receiving = SegmentingSocket(to_here)
            senders = [stack.enter_context(bound()), self.dual(stack)]
            expected = []
            for row in range(30):
                sender, host = (senders[row % 2], ("127.0.0.1", "::1")[row % 2])
                sender.sendto(b"%04d" % row, (host, to_here.getsockname()[1]))
                expected.append((b"%04d" % row, (host, sender.getsockname()[1])))
            assert received(receiving, to_here, 30) == expected

    def test_an_ipv4_socket_counts_datagrams_to_ipv6_hosts_as_errors(self) -> None:
        with bound() as sock:
            sending = SegmentingSocket(sock)
            assert sending.send(Burst(b"aabbc", 2), ("::1", 9)) is None
            assert sending.errors == {"EAFNOSUPPORT": 3}
