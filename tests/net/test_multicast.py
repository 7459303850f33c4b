"""Ports that listen to a multicast group, on real sockets of loopback."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import DatagramProtocol
from zope.interface import implementer

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.interfaces import IBatchReceiver
from fyrehose_twisted.net.multicast import listen_to_group
from fyrehose_twisted.net.udp import DatagramPort, listen

reactor: Any = installed_reactor

GROUP = "239.83.1.3"
LOOPBACK = "127.0.0.1"
LAST = b"last"
DEADLINE = 120.0
"""Seconds after which a test fails."""


@implementer(IBatchReceiver)
class Silent(DatagramProtocol):
    """Protocol of a port that only sends."""

    noisy = False

    def batch_received(self, batch: Batch) -> None:
        raise AssertionError(f"nobody sends to this port: {batch}")


class Listener:
    """What a port that listens to the group has received, up to a datagram that says it is the last."""

    def __init__(self, port: int, source: str = LOOPBACK) -> None:
        self.datagrams: list[tuple[bytes, str]] = []
        self.done: Deferred[None] = Deferred()
        self.done.addTimeout(DEADLINE, reactor)
        self.port = listen_to_group(reactor, (GROUP, port), source, LOOPBACK, self._received)

    def _received(self, batch: Batch) -> None:
        for run in batch.runs:
            self.datagrams += [(bytes(one), run.peer[0]) for one in batch.datagrams(run)]
        if self.datagrams[-1][0] == LAST and not self.done.called:
            self.done.callback(None)


@pytest.fixture
def send() -> Iterator[Callable[[bytes, int, str], None]]:
    """Send a datagram to the group from a source address on loopback."""
    sockets: dict[str, socket.socket] = {}

    def sent(data: bytes, port: int, source: str = LOOPBACK) -> None:
        if source not in sockets:
            sockets[source] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sockets[source].bind((source, 0))
            sockets[source].setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(LOOPBACK))
        sockets[source].sendto(data, (GROUP, port))

    yield sent
    for one in sockets.values():
        one.close()


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels have another option for the source")
@pytest_twisted.ensureDeferred
async def test_what_others_send_to_the_group_is_discarded(
    free_port: Callable[[], int], send: Callable[..., None]
) -> None:
    port = free_port()
    listener, other = Listener(port), Listener(port, source="127.0.0.2")
    try:
        for source in (LOOPBACK, "127.0.0.2"):
            send(b"from " + source.encode(), port, source)
            send(LAST, port, source)
        await listener.done
        await other.done
    finally:
        await listener.port.stopListening()
        await other.port.stopListening()
    assert listener.datagrams == [(b"from 127.0.0.1", LOOPBACK), (LAST, LOOPBACK)]
    assert other.datagrams == [(b"from 127.0.0.2", "127.0.0.2"), (LAST, "127.0.0.2")]


@pytest_twisted.ensureDeferred
async def test_a_port_prepared_for_it_sends_to_all_listeners_of_its_host(free_port: Callable[[], int]) -> None:
    port = free_port()
    sender: DatagramPort = listen(reactor, 0, Silent())
    listeners = [Listener(port) for _ in range(2)]
    try:
        sender.send_to_groups(LOOPBACK, 1)
        sender.send([bytes(100) for _ in range(50)], [(GROUP, port)])
        sender.send([LAST], [(GROUP, port)])
        for listener in listeners:
            await listener.done
    finally:
        for listener in listeners:
            await listener.port.stopListening()
        await sender.stopListening()
    for listener in listeners:
        assert [len(datagram) for datagram, _ in listener.datagrams] == [100] * 50 + [len(LAST)]


def test_a_group_that_cannot_be_joined_leaves_no_socket_behind(free_port: Callable[[], int]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="No such device"):
        listen_to_group(reactor, (GROUP, free_port()), LOOPBACK, "192.0.2.77", lambda batch: None)
    assert len(os.listdir("/proc/self/fd")) == before
