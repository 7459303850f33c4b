"""What an operator or an application decides about a node."""

from __future__ import annotations

from dataclasses import dataclass, field
from zlib import crc32

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.parcels.wire.messages import MAX_EVENT, MAX_NAME
from fyrehose_twisted.process.secret import check_secret


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """What a node is told.

    :ivar name: unlike that of any other node of the cluster, at most 64 bytes.
    :ivar cluster: name of the cluster, at most 64 bytes; whoever is of another one is refused.
    :ivar advertise: where others reach this node.
    :ivar neighbours: whom to ask first; the rest is learned from them.
    :ivar bootstrap: begin a cluster if none of the neighbours is in one.
    :ivar secret: shared secret of the cluster; with one, whoever does not know it has no part in the order.
    :ivar max_event: bytes of one event.
    :ivar window_bytes: memory for events that are kept for whoever comes late.
    :ivar pending_bytes: memory for events that wait to be ordered; one who publishes more is refused.
    :ivar max_neighbours: how many nodes to know at once.
    :ivar max_links: connections that others may have opened to this node at once.
    :raises ConfigurationError: if something is out of range.
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
    max_neighbours: int = 64
    max_links: int = 256

    def __post_init__(self) -> None:
        for what, text in (("name", self.name), ("cluster", self.cluster)):
            check_text(what, text, MAX_NAME)
        if not 1 <= self.max_event <= MAX_EVENT:
            raise ConfigurationError(f"events of {self.max_event:,} bytes; choose 1 to {MAX_EVENT:,}")
        for name in ("window_bytes", "pending_bytes"):
            if getattr(self, name) < 2 * self.max_event:
                raise ConfigurationError(
                    f"{name} of {getattr(self, name):,}; it needs {2 * self.max_event:,}, two events, at least"
                )
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
    """Return ``text``. :raises ConfigurationError: if it is empty, too long, or cannot be printed."""
    size = len(text.encode(errors="replace"))
    if not text or size > limit or not text.isprintable():
        raise ConfigurationError(f"{label} {text[:80]!r} of {size:,} bytes: use 1 to {limit} bytes of printable text")
    return text
