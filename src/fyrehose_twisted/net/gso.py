"""UDP segmentation and receive offload of Linux: many datagrams in one system call.

Kernel versions are not checked. Datagrams that the kernel or the path to a peer rejects as a burst are sent one at a
time.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections import Counter
from collections.abc import Sequence
from errno import EAFNOSUPPORT, EINVAL, EIO, EMSGSIZE, ENOPROTOOPT, EOPNOTSUPP, errorcode
from typing import Any

from fyrehose_twisted.datagrams import Batch, BatchBuilder, DatagramRun
from fyrehose_twisted.effects import Address, Burst, Datagram
from fyrehose_twisted.host_addresses import mapped_host
from fyrehose_twisted.net.mmsg import MAX_BYTES, ManyReceiver, peer_address

MAX_DATAGRAM = 65_507
"""Maximum payload of UDP over IPv4, per datagram and per burst, in bytes. IPv6 carries 20 more, which are not used."""

RECEIVE_BYTES = MAX_BYTES
"""Buffer size of a receive call. With less, the kernel silently truncates bursts."""

MAX_SEGMENTS, SAFE_SEGMENTS = 128, 64
"""Maximum datagrams per send call: on newer kernels, and on all kernels with segmentation offload."""

MAX_BATCH_DATAGRAMS = 4_096
"""Datagrams after which a batch is complete."""

_UDP_SEGMENT, _UDP_GRO = 103, 104  # From <linux/udp.h>; Python lacks them.
_MSG_TRUNC = int(socket.MSG_TRUNC)  # An enum is slow.
_ANCILLARY_BYTES = 32
_SEGMENTATION_ERRNOS = frozenset((EINVAL, EIO, EMSGSIZE, ENOPROTOOPT, EOPNOTSUPP))
_MAX_SMALL_MTU_HOSTS, _SMALL_MTU_RETRY_BURSTS = 1_024, 10_000

_Control = list[tuple[int, int, bytes]]


class SegmentingSocket:
    """Non-blocking UDP socket that sends and receives bursts.

    An IPv6 socket may serve both families: addresses of IPv4 peers are converted from and to IPv4-mapped ones.

    :param offload: whether to use offload; without it, each datagram takes one call.
    :param errors: counter for errors.
    :ivar segments: maximum datagrams per send call; 1 without segmentation offload.
    :ivar is_ipv6: whether the socket is an IPv6 socket.
    :ivar receives_bursts: whether one call may receive several datagrams.
    :ivar errors: datagrams that failed to send, by errno name such as ``ENETUNREACH``.
    """

    def __init__(self, sock: socket.socket, *, offload: bool = True, errors: Counter[str] | None = None) -> None:
        self.socket: Any = sock
        self.is_ipv6 = getattr(sock, "family", socket.AF_INET) == socket.AF_INET6
        offload = offload and sys.platform == "linux"
        self.segments = MAX_SEGMENTS if offload and _accepts_option(sock, _UDP_SEGMENT, 0) else 1
        self.receives_bursts = offload and _accepts_option(sock, _UDP_GRO, 1)
        self.errors: Counter[str] = Counter() if errors is None else errors
        self._many = _make_many_receiver(sock) if self.receives_bursts else None
        self._size = 0
        self._control: _Control = []
        self._small_mtu_hosts: dict[str, int] = {}
        self._small_mtu_bursts = 0

    def receive_batch(self, buffer: bytearray) -> Batch:
        """Receive pending datagrams, up to the size of a batch.

        Stops when ``buffer`` has less than :data:`RECEIVE_BYTES` left.
        """
        runs, view, position, plain_size = BatchBuilder(), memoryview(buffer), 0, 0
        last = len(buffer) - RECEIVE_BYTES
        while position <= last and runs.rows < MAX_BATCH_DATAGRAMS:
            try:
                if plain_size and self._many is not None:
                    position, more = self._many.receive(buffer, position, plain_size, runs)
                    if not more:
                        break
                    plain_size = plain_size if self._many.is_alone else 0
                    continue
                length, size, truncated, peer = self._receive(view[position:])
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                # ICMP error for an earlier send; datagrams may be queued behind it.
                self._count_error(error, 1)
                break
            runs.add(position, position + length, size, peer, truncated)
            position += length
            # More of them are received together, unless the kernel coalesces them.
            plain_size = length if size == length else 0
        return Batch(buffer, runs.finish())

    def receive_one(self, buffer: bytearray) -> Batch | None:
        """Receive once; return a batch, or ``None`` if nothing is pending. The quickest way if only one datagram is."""
        try:
            length, size, truncated, peer = self._receive(memoryview(buffer))
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            self._count_error(error, 1)
            return None
        if 0 < length <= size and not truncated:
            return Batch(buffer, [DatagramRun(0, length, length, 1, peer)])
        runs = BatchBuilder()
        runs.add(0, length, size, peer, truncated)
        return Batch(buffer, runs.finish())

    def _receive(self, view: memoryview) -> tuple[int, int, bool, Address]:
        """Receive once; return the number of bytes, bytes per datagram, truncation flag and source address."""
        if not self.receives_bursts:
            length, peer = self.socket.recvfrom_into(view)
            return length, length, False, peer_address(peer) if self.is_ipv6 else peer
        length, control, flags, peer = self.socket.recvmsg_into((view,), _ANCILLARY_BYTES)
        size = int.from_bytes(control[0][2], sys.byteorder) if control else length
        if self.is_ipv6:
            peer = peer_address(peer)
        return length, size, bool(flags & _MSG_TRUNC), peer

    def send(self, burst: Burst, peer: Address) -> Burst | None:
        """Send a burst; return the unsent part if the kernel buffer is full. Errors are counted."""
        data, size = burst
        to: tuple[Any, ...] = peer
        if not self.is_ipv6 and ":" in peer[0]:
            self.errors[errorcode[EAFNOSUPPORT]] += max(1, -(-len(data) // size))
            return None
        try:
            if self.is_ipv6:
                to = socket_name(peer)
            if len(data) <= size:
                self.socket.sendto(data, to)
            elif self._small_mtu_hosts and self._has_small_mtu(peer[0], size):
                return self._send_parts(burst, 1, peer)
            else:
                if size != self._size:
                    self._size = size
                    self._control = [(socket.IPPROTO_UDP, _UDP_SEGMENT, struct.pack("=H", size))]
                self.socket.sendmsg((data,), self._control, 0, to)
        except BlockingIOError:
            return burst
        except OSError as error:
            return self._handle_send_error(burst, peer, error)
        return None

    def _handle_send_error(self, burst: Burst, peer: Address, error: OSError) -> Burst | None:
        count = -(-len(burst.data) // burst.size)
        if count <= 1 or error.errno not in _SEGMENTATION_ERRNOS:
            self._count_error(error, max(1, count))
            return None
        if error.errno == EINVAL and count > SAFE_SEGMENTS:
            before = self.errors.total()
            left = self._send_parts(burst, SAFE_SEGMENTS, peer)
            if self.errors.total() == before and peer[0] not in self._small_mtu_hosts:
                self.segments = SAFE_SEGMENTS  # The error was due to the number of segments, not to the peer.
            return left
        # The path has a smaller MTU, or a device or tunnel lacks segmentation.
        if len(self._small_mtu_hosts) >= _MAX_SMALL_MTU_HOSTS:
            self._small_mtu_hosts.clear()
        self._small_mtu_hosts[peer[0]] = burst.size
        return self._send_parts(burst, 1, peer)

    def _count_error(self, error: OSError, datagrams: int) -> None:
        self.errors[errorcode.get(error.errno or 0, "unknown")] += datagrams

    def _has_small_mtu(self, host: str, size: int) -> bool:
        if size < self._small_mtu_hosts.get(host, RECEIVE_BYTES):
            return False
        self._small_mtu_bursts += 1
        if self._small_mtu_bursts >= _SMALL_MTU_RETRY_BURSTS:  # The route may have changed.
            self._small_mtu_hosts.clear()
            self._small_mtu_bursts = 0
        return True

    def _send_parts(self, burst: Burst, count: int, peer: Address) -> Burst | None:
        data, size = memoryview(burst.data), burst.size
        step = count * size
        for start in range(0, len(data), step):
            left = self.send(Burst(data[start : start + step], size), peer)
            if left is not None:
                return Burst(data[min(start + step, len(data)) - len(left.data) :], size)
        return None


def socket_name(address: Address) -> tuple[Any, ...]:
    """Return an address as an IPv6 socket expects it: IPv4-mapped, or with the number of its zone, if any.

    :raises OSError: if this host has no such zone.
    """
    host, port = address
    if "%" not in host:
        return mapped_host(host), port
    host, _, zone = host.partition("%")
    return host, port, 0, int(zone) if zone.isdecimal() else socket.if_nametoindex(zone)


def coalesce(datagrams: Sequence[Datagram | Burst], segments: int) -> list[Burst]:
    """Join adjacent datagrams into bursts: at most ``segments`` of equal size, the last may be shorter."""
    if len(datagrams) == 1:
        item = datagrams[0]
        if not isinstance(item, Burst):
            return [Burst(item, max(1, len(item)))]
        if len(item.data) <= min(segments * item.size, MAX_DATAGRAM):
            return [item]
    bursts: list[Burst] = []
    near: list[Datagram] = []
    near_size = room = 0
    for item in datagrams:
        data, size = item if isinstance(item, Burst) else (item, len(item))
        length = len(data)
        count = 1 if length <= size else -(-length // size)
        if near and count <= room and (size == near_size or (count == 1 and 0 < length < near_size)):
            near.append(data)
            room = room - count if length == count * near_size else 0
            continue
        if near:
            bursts.append(_join(near, near_size))
        limit = max(1, min(segments, MAX_DATAGRAM // size)) if size else 1
        if count > limit:
            step = limit * size
            whole = length - length % step
            bursts += [Burst(data[start : start + step], size) for start in range(0, whole, step)]
            data = data[whole:]
            count = -(-len(data) // size)
        near, near_size = [data] if count else [], size
        room = limit - count if len(data) == count * size else 0
    if near:
        bursts.append(_join(near, near_size))
    return bursts


def _join(near: list[Datagram], size: int) -> Burst:
    return Burst(near[0] if len(near) == 1 else b"".join(near), max(1, size))


def _make_many_receiver(sock: socket.socket) -> ManyReceiver | None:
    """Return a receiver of many datagrams per call; ``None`` without ``recvmmsg``."""
    try:
        return ManyReceiver(sock) if sock.family in (socket.AF_INET, socket.AF_INET6) else None
    except AttributeError:
        return None


def _accepts_option(sock: socket.socket, option: int, value: int) -> bool:
    try:
        sock.setsockopt(socket.IPPROTO_UDP, option, value)
    except OSError:
        return False
    return True
