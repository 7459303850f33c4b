"""Live capture through a packet socket of Linux."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from select import select
from time import time_ns

from fyrehose_twisted.cli.dump.capture_file import MAX_FRAME, CapturedFrame
from fyrehose_twisted.cli.dump.headers import RAW_IP
from fyrehose_twisted.errors import OperationalError

ANY = "any"
"""Name that stands for all interfaces."""
RECEIVE_BUFFER = 8 * 2**20
"""Bytes of frames that the kernel buffers."""

_ETH_P_ALL, _ETH_P_IP, _ETH_P_IPV6 = 0x0003, 0x0800, 0x86DD
_PACKET_OUTGOING = 4
_ARPHRD_LOOPBACK = 772
# From <asm/socket.h> and <linux/if_packet.h>; Python lacks them.
_SO_TIMESTAMPNS, _SO_RCVBUFFORCE, _SOL_PACKET, _PACKET_STATISTICS = 35, 33, 263, 6
_TIMESPEC, _STATISTICS = struct.Struct("@ll"), struct.Struct("@II")


class CaptureRefused(OperationalError):
    """The system does not let this process capture."""


class LiveCapture:
    """Frames of an interface.

    :param interface: its name, or :data:`ANY`.
    :raises CaptureRefused: if there is no such interface, the process lacks ``CAP_NET_RAW``, or this is not Linux.
    """

    def __init__(self, interface: str) -> None:
        if sys.platform != "linux":
            raise CaptureRefused("live capture requires Linux; elsewhere, pipe into it: tcpdump -w - | fyrehose dump -")
        try:
            # A socket of this kind removes the header of the link layer, whatever it is. Unless it is bound, it
            # receives from all interfaces, and with protocol 0 from none.
            protocol = socket.htons(_ETH_P_ALL) if interface == ANY else 0
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, protocol)
        except PermissionError:
            raise CaptureRefused(
                "live capture requires the capability CAP_NET_RAW: run it as root, or pipe into it:"
                f" sudo tcpdump -i {interface} -w - | fyrehose dump -"
            ) from None
        try:
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER)
            except OSError:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            if interface != ANY:
                self._socket.bind((interface, _ETH_P_ALL))
        except OSError as error:
            self._socket.close()
            names = ", ".join(name for _, name in socket.if_nameindex())
            raise CaptureRefused(f"interface {interface}: {os.strerror(error.errno or 0)}; there are {names}") from None

    def __iter__(self) -> Iterator[CapturedFrame]:
        """Yield frames until interrupted."""
        while True:
            data, ancillary, _, address = self._socket.recvmsg(MAX_FRAME, 64)
            _, ethertype, direction, hardware, _ = address
            # On loopback, each packet is seen when it is sent and when it is received.
            if direction == _PACKET_OUTGOING and hardware == _ARPHRD_LOOPBACK:
                continue
            if ethertype in (_ETH_P_IP, _ETH_P_IPV6) and data:
                yield CapturedFrame(_time_of(ancillary), RAW_IP, data, len(data))

    def is_idle(self) -> bool:
        """Return whether no frame is waiting."""
        return not select([self._socket], [], [], 0)[0]

    def dropped(self) -> int:
        """Return the number of frames that the kernel dropped since the last call, because the buffer was full."""
        with suppress(OSError):
            statistics = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
            return int(_STATISTICS.unpack(statistics)[1])
        return 0

    def close(self) -> None:
        """Stop capturing."""
        self._socket.close()


def _time_of(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(data) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return int(seconds * 10**9 + nanoseconds)
    return time_ns()
