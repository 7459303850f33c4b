"""Many datagrams, as they came off one socket, back to back in one buffer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fyrehose_twisted.effects import Address, Datagram


class Batch:
    """Datagrams in order of arrival. Row ``i`` is ``view[offsets[i] : offsets[i] + sizes[i]]``, from ``peers[i]``.

    Whoever is handed a batch may write into it until it returns, and keeps nothing that points into it.
    """

    __slots__ = ("buffer", "offsets", "peers", "sizes", "truncated", "view")

    def __init__(
        self,
        buffer: bytearray,
        offsets: list[int],
        sizes: list[int],
        peers: list[Address],
        truncated: Sequence[int] = (),
    ) -> None:
        self.buffer = buffer
        self.view = memoryview(buffer)
        self.offsets = offsets
        self.sizes = sizes
        self.peers = peers
        self.truncated = list(truncated)
        """Rows that the receive call reported as cut."""

    @classmethod
    def pack(cls, datagrams: Iterable[tuple[Datagram, Address]], *, truncated: Sequence[int] = ()) -> Batch:
        """Return a batch of copies of ``datagrams``, each with the address that it came from."""
        buffer = bytearray()
        offsets, sizes, peers = [], [], []
        for datagram, peer in datagrams:
            offsets.append(len(buffer))
            sizes.append(len(datagram))
            peers.append(peer)
            buffer += datagram
        return cls(buffer, offsets, sizes, peers, truncated)

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, row: int) -> memoryview:
        offset = self.offsets[row]
        return self.view[offset : offset + self.sizes[row]]

    def __iter__(self) -> Iterator[tuple[memoryview, Address, bool]]:
        """Yield ``(datagram, peer, truncated)``."""
        cut = set(self.truncated)
        for row, peer in enumerate(self.peers):
            yield self[row], peer, row in cut
