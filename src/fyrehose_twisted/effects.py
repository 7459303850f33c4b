"""What a node asks its driver to do. Plain data: the reactor and the simulator both carry it out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Address = tuple[str, int]
"""An IPv4 address in dotted form and a port number."""

Datagram = bytes | bytearray | memoryview


class Burst(NamedTuple):
    """Datagrams, at least one, back to back in one piece of memory, which one system call can send."""

    data: Datagram
    size: int
    """Bytes of each, at least 1; the last one may be shorter."""

    def iter_datagrams(self) -> Iterator[Datagram]:
        """Yield the datagrams."""
        return (self.data[start : start + self.size] for start in range(0, len(self.data) or 1, self.size))


class Send(NamedTuple):
    """Send every datagram, in order, to every peer.

    The datagrams may be views of the batch that was received last, so whoever carries this out sends
    or copies them before it feeds the node again.
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
    """One end of one stream connection. Two nodes may have several, each with a number of its own."""

    address: Address
    """Whom it leads to. For a connection that was accepted, where it came from: as with TCP, a port that was chosen for
    this connection alone, so that nobody who dials it is answered. Who wants to be dialled back says where."""
    number: int
    dialled: bool
    """Whether this side opened it."""


@dataclass(frozen=True, slots=True)
class Dial:
    """Open a stream connection: ``connected`` or ``dial_failed`` tells what became of it."""

    address: Address


@dataclass(frozen=True, slots=True)
class Write:
    """Write messages to a stream connection, in order. One that is gone takes them in silence."""

    messages: Sequence[Any]
    peer: Peer


@dataclass(frozen=True, slots=True)
class Close:
    """Close a stream connection once what was written has left; the node is not told ``disconnected`` for it."""

    peer: Peer


Effect = Send | Dial | Write | Close
