"""Writes that do not wait for a turn of the reactor."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.tcp import Connection
from twisted.internet.testing import MemoryReactor, StringTransport

from fyrehose_twisted.tcp_write import write_at_once


class Link(Connection):
    """Connection whose socket takes at most ``room`` bytes at once."""

    room = 1_000

    def writeSomeData(self, data: bytes) -> Any:
        """Write as much as there is room for."""
        return super().writeSomeData(data[: self.room]) if self.room else 0


@pytest.fixture
def pair() -> Iterator[tuple[Link, socket.socket]]:
    """Return a connection and the socket of its peer."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    link = Link(ours, None, MemoryReactor())
    link.connected = True
    with ours, theirs:
        yield link, theirs


def received(peer: socket.socket) -> bytes:
    try:
        return peer.recv(1_000)
    except BlockingIOError:
        return b""


def test_data_leaves_at_once(pair: tuple[Link, socket.socket]) -> None:
    link, peer = pair
    write_at_once(link, b"now")
    assert received(peer) == b"now"
    assert not link.reactor.getWriters()


def test_what_the_socket_does_not_take_is_written_later_in_order(pair: tuple[Link, socket.socket]) -> None:
    link, peer = pair
    link.room = 2
    write_at_once(link, b"first")
    assert received(peer) == b"fi"
    link.room = 1_000
    write_at_once(link, b" second")
    assert received(peer) == b""
    assert link.reactor.getWriters() == [link]
    link.doWrite()
    assert received(peer) == b"rst second"
    write_at_once(link, b"third")
    assert received(peer) == b"third"


def test_a_full_socket_and_one_that_is_reset_are_left_to_the_reactor(pair: tuple[Link, socket.socket]) -> None:
    link, peer = pair
    link.room = 0
    write_at_once(link, b"full")
    assert link.reactor.getWriters() == [link]
    link.doWrite()
    link.room = 1_000
    link.doWrite()
    assert received(peer) == b"full"
    peer.close()
    write_at_once(link, b"reset")
    assert link.reactor.getWriters() == [link]


def test_nothing_is_written_on_a_connection_that_closes_or_encrypts(pair: tuple[Link, socket.socket]) -> None:
    link, peer = pair
    link.disconnecting = True
    write_at_once(link, b"late")
    assert received(peer) == b""


def test_other_transports_are_written_to_as_usual() -> None:
    transport = StringTransport()
    write_at_once(transport, b"data")
    assert transport.value() == b"data"
