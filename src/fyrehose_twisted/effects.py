"""What a node asks its driver to do. Plain data: the reactor and the simulator both carry it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Address = tuple[str, int]
"""An IPv4 address in dotted form and a port number."""

Datagram = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Send:
    """Send every datagram, in order, to every peer.

    The datagrams may be views of the batch that was received last, so whoever carries this out sends
    or copies them before it feeds the node again.
    """

    datagrams: Sequence[Datagram]
    peers: Sequence[Address]
