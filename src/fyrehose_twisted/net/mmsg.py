"""Reception of many datagrams in one system call, where neither the kernel nor the device coalesces them.

Python has no ``recvmmsg``, so this module calls it in the C library.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from contextlib import suppress
from mmap import mmap
from typing import Any

from fyrehose_twisted.datagrams import BatchBuilder
from fyrehose_twisted.effects import Address
from fyrehose_twisted.host_addresses import address_from_socket

MANY = 32
"""Maximum number of datagrams per call."""

MAX_BYTES = 65_536
"""Buffer size of a datagram or burst."""

_NAME_BYTES = {socket.AF_INET: 16, socket.AF_INET6: 28}
"""Size of a socket address by family."""
_CONTROL_BYTES = 32
_CONTROL_HEADER_BYTES = socket.CMSG_LEN(0)
_MSG_DONTWAIT, _MSG_TRUNC = int(socket.MSG_DONTWAIT), int(socket.MSG_TRUNC)


class _Piece(ctypes.Structure):
    """``struct iovec``."""

    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _Header(ctypes.Structure):
    """``struct msghdr``."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_size", ctypes.c_uint32),
        ("pieces", ctypes.c_void_p),
        ("piece_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_size", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Message(ctypes.Structure):
    """``struct mmsghdr``, which only Linux has."""

    _fields_ = (("header", _Header), ("size", ctypes.c_uint))


class ManyReceiver:
    """Receiver of up to :data:`MANY` datagrams at once from one UDP socket.

    Each datagram has two pieces of memory: one in a row with those of the others, of the size that most datagrams are
    expected to have, and one for what exceeds it. Datagrams of that size from one peer thus lie in a row, and one
    comparison tells whether they all are.

    :ivar is_alone: whether all datagrams of the last call were received uncoalesced.
    """

    def __init__(self, sock: socket.socket) -> None:
        """:raises AttributeError: if the C library has no ``recvmmsg``."""
        self._receive: Any = ctypes.CDLL(None, use_errno=True).recvmmsg
        self._receive.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p)
        self._socket = sock
        self.is_alone = True
        self._is_ipv6 = sock.family == socket.AF_INET6
        self._name_bytes = _NAME_BYTES[sock.family]
        self._names, self._controls = bytearray(self._name_bytes * MANY), bytearray(_CONTROL_BYTES * MANY)
        self._row, self._rest = mmap(-1, MAX_BYTES * MANY), mmap(-1, MAX_BYTES * MANY)
        self._pieces: Any = (_Piece * (2 * MANY))()
        self._headers = bytearray(ctypes.sizeof(_Message) * MANY)
        self._messages: Any = (_Message * MANY).from_buffer(self._headers)
        self._size = 0
        self._row_address, self._rest_address = map(_address_of, (self._row, self._rest))
        names, controls, pieces = _address_of(self._names), _address_of(self._controls), ctypes.addressof(self._pieces)
        for number, header in enumerate(message.header for message in self._messages):
            header.name, header.name_size = names + self._name_bytes * number, self._name_bytes
            header.pieces, header.piece_count = pieces + 2 * ctypes.sizeof(_Piece) * number, 2
            header.control, header.control_size = controls + _CONTROL_BYTES * number, _CONTROL_BYTES
        self._empty = bytes(self._headers)
        self._expected = b""

    def receive(self, buffer: bytearray, position: int, size: int, runs: BatchBuilder) -> tuple[int, bool]:
        """Receive datagrams, most of them of ``size`` bytes, to ``buffer`` and ``runs``.

        :return: the position after them, and whether more may be pending.
        :raises OSError: if there are none, or for an earlier send.
        """
        if size != self._size:
            self._lay_out(size)
        room = min(MANY, (len(buffer) - position) // MAX_BYTES)
        self._headers[:] = self._empty
        count = self._receive(self._socket.fileno(), ctypes.addressof(self._messages), room, _MSG_DONTWAIT, None)
        if count < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        used, names = ctypes.sizeof(_Message) * count, self._names[: self._name_bytes * count]
        self.is_alone = True
        if self._headers[:used] == self._expected[:used] and names == names[: self._name_bytes] * count:
            stop = position + count * size
            buffer[position:stop] = self._row[: count * size]
            runs.add(position, stop, size, self._peer(0))
            return stop, count == room
        for number in range(count):
            position = self._take(number, buffer, position, runs)
        return position, count == room

    def _take(self, number: int, buffer: bytearray, position: int, runs: BatchBuilder) -> int:
        message = self._messages[number]
        length: int = message.size
        start = number * self._size
        near = min(length, self._size)
        buffer[position : position + near] = self._row[start : start + near]
        rest = number * MAX_BYTES
        stop = position + length
        buffer[position + near : stop] = self._rest[rest : rest + length - near]
        size = length
        if message.header.control_size:
            at = number * _CONTROL_BYTES + _CONTROL_HEADER_BYTES
            size = int.from_bytes(self._controls[at : at + 4], sys.byteorder)
            self.is_alone = False
        runs.add(position, stop, size, self._peer(number), bool(message.header.flags & _MSG_TRUNC))
        return stop

    def _peer(self, number: int) -> Address:
        at = number * self._name_bytes
        port = int.from_bytes(self._names[at + 2 : at + 4], "big")
        if not self._is_ipv6:
            return socket.inet_ntoa(self._names[at + 4 : at + 8]), port
        host = socket.inet_ntop(socket.AF_INET6, self._names[at + 8 : at + 24])
        return peer_address((host, port, 0, int.from_bytes(self._names[at + 24 : at + 28], sys.byteorder)))

    def _lay_out(self, size: int) -> None:
        """Set the expected size of datagrams."""
        self._size = size
        self._headers[:] = self._empty
        for number, message in enumerate(self._messages):
            near, rest = self._pieces[2 * number], self._pieces[2 * number + 1]
            near.base, near.size = self._row_address + number * size, size
            rest.base, rest.size = self._rest_address + number * MAX_BYTES, MAX_BYTES
            message.size, message.header.control_size = size, 0
        self._expected = bytes(self._headers)


def peer_address(name: tuple[Any, ...]) -> Address:
    """Return the address in a socket address of Python, with its zone if it is link-local."""
    host, port = address_from_socket(name)
    if len(name) == 4 and name[3]:
        with suppress(OSError):  # The device may be gone.
            host = f"{host}%{socket.if_indextoname(name[3])}"
    return host, port


def _address_of(memory: bytearray | mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
