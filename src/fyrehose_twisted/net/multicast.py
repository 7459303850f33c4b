"""IPv4 multicast: ports that listen to a group."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IReactorFDSet
from twisted.internet.protocol import DatagramProtocol
from zope.interface import implementer

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address
from fyrehose_twisted.interfaces import IBatchReceiver
from fyrehose_twisted.net.udp import KERNEL_BUFFER, DatagramPort

# From <linux/in.h>; Python lacks them.
_IP_ADD_SOURCE_MEMBERSHIP, _IP_MULTICAST_ALL = 39, 49


def listen_to_group(
    reactor: IReactorFDSet, group: Address, source: str, interface: str, receive: Callable[[Batch], None]
) -> DatagramPort:
    """Listen to a multicast group, as other sockets of this host may do, too. Return the port, which only receives.

    :param source: IP address of the sender; where the kernel can, it discards what others send.
    :param interface: IPv4 address of the network interface to listen on.
    :param receive: called with what is received.
    :raises OSError: if the group cannot be joined.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        _join(sock, group, source, interface)
    except OSError:
        sock.close()
        raise
    port = DatagramPort(group[1], _GroupReceiver(receive), group[0], reactor, activated_socket=sock)
    port.startListening()
    return port


def _join(sock: socket.socket, group: Address, source: str, interface: str) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER)
    members = socket.inet_aton(group[0]), socket.inet_aton(interface)
    if sys.platform == "linux":
        sock.bind(group)  # With any address, datagrams to other groups and to this host would arrive, too.
        sock.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
        sock.setsockopt(socket.IPPROTO_IP, _IP_ADD_SOURCE_MEMBERSHIP, b"".join((*members, socket.inet_aton(source))))
    else:
        sock.bind(("", group[1]))
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, b"".join(members))


@implementer(IBatchReceiver)
class _GroupReceiver(DatagramProtocol):
    """Protocol that hands over what is received."""

    noisy = False

    def __init__(self, receive: Callable[[Batch], None]) -> None:
        self._receive = receive

    def batch_received(self, batch: Batch) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IBatchReceiver.batch_received`."""
        self._receive(batch)

    def datagramReceived(self, datagram: bytes, addr: Any) -> None:
        """Twisted: never called, because the port hands over batches."""
        raise NotImplementedError("a group is received in batches")
