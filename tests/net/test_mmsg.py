"""Reception of many datagrams per call, compared with one call per datagram."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from errno import ECONNREFUSED
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.datagrams import Batch, BatchBuilder
from fyrehose_twisted.net.gso import RECEIVE_BYTES, SegmentingSocket, socket_name
from fyrehose_twisted.net.mmsg import MANY, ManyReceiver, peer_address

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="needs recvmmsg of Linux")


def udp_socket(stack: ExitStack) -> socket.socket:
    made = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    made.bind(("127.0.0.1", 0))
    made.setblocking(False)
    return made


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def received(receiver: ManyReceiver, size: int, calls: int) -> tuple[Batch, list[bool]]:
    """Receive in ``calls`` calls that expect ``size`` bytes; return the batch, and of each whether more was pending."""
    buffer, runs, position, pending = bytearray(3 * RECEIVE_BYTES), BatchBuilder(), 7, []
    for _ in range(calls):
        position, more = receiver.receive(buffer, position, size, runs)
        pending.append(more)
    return Batch(buffer, runs.finish()), pending


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 5, 5, 5, 6, 300]), st.booleans()), min_size=1, max_size=20),
    st.sampled_from([1, 5, 6, 400]),
)
def test_datagrams_arrive_complete_and_in_order_whatever_their_size(sent: list[tuple[int, bool]], size: int) -> None:
    with ExitStack() as stack:
        to_here, senders = udp_socket(stack), (udp_socket(stack), udp_socket(stack))
        receiver, expected = ManyReceiver(to_here), []
        for number, (length, second) in enumerate(sent):
            datagram = bytes((number + at) % 256 for at in range(length))
            senders[second].sendto(datagram, to_here.getsockname())
            expected.append((datagram, senders[second].getsockname(), False))
        rounds = -(-len(sent) // 2)
        batch, pending = received(receiver, size, rounds)
        assert [(bytes(datagram), peer, cut) for datagram, peer, cut in batch] == expected
        assert pending == [True] * (rounds - 1) + [len(sent) % 2 == 0]
        assert receiver.is_alone


def test_datagrams_of_the_expected_size_are_one_run(stack: ExitStack) -> None:
    to_here, from_here = udp_socket(stack), udp_socket(stack)
    for number in range(2 * MANY):
        from_here.sendto(b"%03d" % number, to_here.getsockname())
    buffer, runs = bytearray((MANY + 1) * RECEIVE_BYTES), BatchBuilder()
    receiver = ManyReceiver(to_here)
    assert receiver.receive(buffer, 0, 3, runs) == (3 * MANY, True)
    assert receiver.receive(buffer, 3 * MANY, 3, runs) == (6 * MANY, True)
    [run] = runs.finish()
    assert (run.rows, run.size, run.peer) == (2 * MANY, 3, from_here.getsockname())
    assert buffer.startswith(b"".join(b"%03d" % number for number in range(2 * MANY)))


@pytest.mark.parametrize(
    ("name", "address"),
    [
        (("::1", 7, 0, 0), ("::1", 7)),
        (("::ffff:192.0.2.1", 7, 0, 0), ("192.0.2.1", 7)),
        (("fe80::1", 7, 0, 1), ("fe80::1%lo", 7)),
        (("192.0.2.1", 7), ("192.0.2.1", 7)),
    ],
)
def test_a_link_local_address_has_the_zone_in_which_it_can_be_answered(
    name: tuple[Any, ...], address: tuple[str, int]
) -> None:
    assert peer_address(name) == address
    if ":" in address[0]:
        assert (*socket_name(address), 0, 0)[:4] == name


@pytest.mark.parametrize(("zone", "number"), [("lo", 1), ("1", 1), ("77", 77)])
def test_a_zone_is_a_device_or_its_number(zone: str, number: int) -> None:
    assert socket_name((f"fe80::1%{zone}", 7)) == ("fe80::1", 7, 0, number)


def test_an_unknown_zone_is_an_error_of_the_system() -> None:
    # Python 3.14 has the system's words for it.
    with pytest.raises(OSError, match=r"no interface|No such device"):
        socket_name(("fe80::1%nowhere", 7))


def test_a_coalesced_burst_is_split_and_reported(stack: ExitStack) -> None:
    to_here, from_here = udp_socket(stack), udp_socket(stack)
    offload = SegmentingSocket(to_here), SegmentingSocket(from_here)
    if not (offload[0].receives_bursts and offload[1].segments > 1):
        pytest.skip("needs segmentation and receive offload")
    receiver = ManyReceiver(to_here)
    from_here.sendmsg([b"abcdefgh"], [(socket.IPPROTO_UDP, 103, (3).to_bytes(2, "little"))], 0, to_here.getsockname())
    batch, _ = received(receiver, 5, 1)
    assert [bytes(datagram) for datagram, _, _ in batch] == [b"abc", b"def", b"gh"]
    assert not receiver.is_alone


@pytest.mark.parametrize("has_recvmmsg", [True, False])
def test_a_batch_is_equal_with_and_without_recvmmsg(
    has_recvmmsg: bool, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_recvmmsg:
        monkeypatch.setattr(ctypes, "CDLL", lambda name, use_errno: SimpleNamespace())
    to_here, senders = udp_socket(stack), (udp_socket(stack), udp_socket(stack))
    receiver = SegmentingSocket(to_here)
    if not receiver.receives_bursts:
        pytest.skip("needs receive offload")
    assert (receiver._many is not None) == has_recvmmsg
    sent = []
    for number in range(3 * MANY):
        sender = senders[number % 20 == 0]
        data = b"%03d" % number + bytes(number % 7 == 0)
        sender.sendto(data, to_here.getsockname())
        sent.append((data, sender.getsockname(), False))
    buffer = bytearray((3 * MANY + 1) * RECEIVE_BYTES)
    assert [(bytes(data), peer, cut) for data, peer, cut in receiver.receive_batch(buffer)] == sent
    assert not receiver.receive_batch(buffer).runs
    to_here.connect(senders[0].getsockname())
    senders[0].close()
    to_here.send(b"refused")
    assert not receiver.receive_batch(buffer).runs
    assert receiver.errors == {"ECONNREFUSED": 1}


def test_errors_of_the_call_are_raised(stack: ExitStack) -> None:
    to_here = udp_socket(stack)
    receiver = ManyReceiver(to_here)
    with pytest.raises(BlockingIOError):
        received(receiver, 5, 1)
    closed = udp_socket(stack)
    to_here.connect(closed.getsockname())
    closed.close()
    to_here.send(b"refused")
    with pytest.raises(ConnectionRefusedError) as caught:
        received(receiver, 5, 1)
    assert caught.value.errno == ECONNREFUSED
