"""Configuration of a node."""

from __future__ import annotations

from dataclasses import dataclass, field
from zlib import crc32

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.parcels.wire.messages import MAX_EVENT, MAX_NAME
from fyrehose_twisted.process.secret import check_secret

JOIN_EVENTS = 100_000
"""Default of :attr:`NodeConfig.join_events`."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Settings of one node.

    :ivar name: name of the node, unique in the cluster, at most 64 bytes.
    :ivar cluster: name of the cluster, at most 64 bytes; nodes of other clusters are refused.
    :ivar advertise: address at which other nodes reach this node.
    :ivar neighbours: nodes to contact first; others are discovered through them.
    :ivar bootstrap: bootstrap a cluster if no neighbour is in one.
    :ivar secret: shared secret of the cluster; peers that cannot prove it are excluded from the order.
    :ivar max_event: maximum size of an event in bytes.
    :ivar window_bytes: memory for recent events, kept for readers and nodes that catch up.
    :ivar pending_bytes: memory for events not ordered yet; further events are refused.
    :ivar join_events: events before the present that a new node fetches when it joins, for its readers.
    :ivar max_neighbours: maximum number of known nodes.
    :ivar max_links: maximum number of inbound connections.
    :raises ConfigurationError: if a value is out of range.
    """

    name: str
    cluster: str = "default"
    advertise: Address = ("127.0.0.1", 7878)
    neighbours: tuple[Address, ...] = ()
    bootstrap: bool = False
    secret: bytes | None = field(default=None, repr=False)
    max_event: int = MAX_EVENT
    window_bytes: int = 64 * 2**20
    pending_bytes: int = 8 * 2**20
    join_events: int = JOIN_EVENTS
    max_neighbours: int = 64
    max_links: int = 256

    def __post_init__(self) -> None:
        for label, text in (("name", self.name), ("cluster", self.cluster)):
            check_text(label, text, MAX_NAME)
        if not 1 <= self.max_event <= MAX_EVENT:
            raise ConfigurationError(f"events of {self.max_event:,} bytes; choose 1 to {MAX_EVENT:,}")
        for name in ("window_bytes", "pending_bytes"):
            if getattr(self, name) < 2 * self.max_event:
                raise ConfigurationError(
                    f"{name} of {getattr(self, name):,}; give at least {2 * self.max_event:,}, the size of two events"
                )
        if self.join_events < 0:
            raise ConfigurationError(f"join_events of {self.join_events}; choose 0 or more")
        for name in ("max_neighbours", "max_links"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} of {getattr(self, name)}; choose 1 or more")
        if self.secret is not None:
            check_secret(self.secret)

    @property
    def cluster_tag(self) -> int:
        """CRC-32 of the cluster's name."""
        return crc32(self.cluster.encode())


def check_text(label: str, text: str, limit: int) -> str:
    """Return ``text`` if it is valid.

    :raises ConfigurationError: if it is empty, longer than ``limit`` bytes, or not printable.
    """
    size = len(text.encode(errors="replace"))
    if not text or size > limit or not text.isprintable():
        raise ConfigurationError(f"{label} {text[:80]!r} of {size:,} bytes: use 1 to {limit} bytes of printable text")
    return text
