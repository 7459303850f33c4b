"""Effects: plain data by which a node asks its driver for I/O, on a reactor or in the simulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Address = tuple[str, int]
"""IP address and port number: IPv4 in dotted form, or IPv6 in its shortest form, with the zone of a link-local one."""

Datagram = bytes | bytearray | memoryview


class Burst(NamedTuple):
    """One or more contiguous datagrams that one system call can send."""

    data: Datagram
    size: int
    """Bytes per datagram, at least 1; the last one may be shorter."""

    def iter_datagrams(self) -> Iterator[Datagram]:
        """Yield the datagrams."""
        return (self.data[start : start + self.size] for start in range(0, len(self.data) or 1, self.size))


class Send(NamedTuple):
    """Send every datagram, in order, to every peer.

    The datagrams may be views of the last received batch: send or copy them before the next input to the node.
    """

    datagrams: Sequence[Datagram | Burst]
    peers: Sequence[Address]

    def iter_datagrams(self) -> Iterator[Datagram]:
        """Yield the datagrams one by one."""
        for item in self.datagrams:
            if isinstance(item, Burst):
                yield from item.iter_datagrams()
            else:
                yield item


class Peer(NamedTuple):
    """One end of a stream connection. Several connections between two nodes have different numbers."""

    address: Address
    """Remote address. For an accepted connection its port is ephemeral, as with TCP, and cannot be dialled: a peer that
    accepts connections announces its own address."""
    number: int
    dialled: bool
    """True if this node opened the connection."""


@dataclass(frozen=True, slots=True)
class Dial:
    """Open a stream connection. The node gets ``connected`` or ``dial_failed``."""

    address: Address


@dataclass(frozen=True, slots=True)
class Write:
    """Write messages to a stream connection, in order. A closed connection discards them silently."""

    messages: Sequence[Any]
    peer: Peer


@dataclass(frozen=True, slots=True)
class Close:
    """Close a stream connection after its pending writes. The node does not get ``disconnected``."""

    peer: Peer


Effect = Send | Dial | Write | Close
