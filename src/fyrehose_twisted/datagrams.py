"""Many datagrams, as they came off one socket, back to back in one buffer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from fyrehose_twisted.effects import Address, Datagram


class DatagramRun(NamedTuple):
    """Datagrams of one size that one peer sent one after the other: ``buffer[start:stop]``, in order.

    :ivar size: bytes of each.
    :ivar rows: how many there are.
    :ivar truncated: the receive call reported this datagram as cut; it is alone then.
    """

    start: int
    stop: int
    size: int
    rows: int
    peer: Address
    truncated: bool = False


class Batch:
    """Datagrams in order of arrival.

    Whoever is handed a batch may write into it until it returns, and keeps nothing that points into it.
    """

    __slots__ = ("buffer", "runs", "view")

    def __init__(self, buffer: bytearray, runs: list[DatagramRun]) -> None:
        self.buffer = buffer
        self.view = memoryview(buffer)
        self.runs = runs

    @classmethod
    def pack(cls, datagrams: Iterable[tuple[Datagram, Address]], *, truncated: Collection[int] = ()) -> Batch:
        """Return a batch of copies of ``datagrams``, each with the address that it came from.

        :param truncated: positions of those that were cut.
        """
        buffer, runs = bytearray(), BatchBuilder()
        for row, (datagram, peer) in enumerate(datagrams):
            start = len(buffer)
            buffer += datagram
            runs.add(start, len(buffer), len(datagram), peer, row in truncated)
        return cls(buffer, runs.finish())

    def __len__(self) -> int:
        return sum(run.rows for run in self.runs)

    def datagrams(self, run: DatagramRun) -> Iterator[memoryview]:
        """Yield the datagrams of ``run``."""
        view, size = self.view, run.size
        if run.rows == 1:
            yield view[run.start : run.stop]
            return
        for start in range(run.start, run.stop, size):
            yield view[start : start + size]

    def __iter__(self) -> Iterator[tuple[memoryview, Address, bool]]:
        """Yield ``(datagram, peer, truncated)``."""
        for run in self.runs:
            for datagram in self.datagrams(run):
                yield datagram, run.peer, run.truncated


class BatchBuilder:
    """Puts what arrives, back to back in one buffer, into as few runs as possible.

    :ivar rows: datagrams that have arrived.
    """

    __slots__ = ("_count", "_peer", "_runs", "_size", "_start", "_stop", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self._runs: list[DatagramRun] = []
        self._start = self._stop = self._size = self._count = 0
        self._peer: Address = ("", 0)

    def add(self, start: int, stop: int, size: int, peer: Address, truncated: bool = False) -> None:
        """``buffer[start:stop]`` arrived in one piece: ``size`` bytes each, the last may be shorter."""
        length = stop - start
        if size <= 0 or size >= length:
            size, count = length, 1
        else:
            count, rest = divmod(length, size)
            if rest or truncated:
                last = stop - (rest or size)
                self.add(start, last, size, peer)
                self.add(last, stop, stop - last, peer, truncated)
                return
        self.rows += count
        if truncated:
            self._close()
            self._runs.append(DatagramRun(start, stop, size, count, peer, True))
        elif size == self._size and size and start == self._stop and peer == self._peer:
            self._stop = stop
            self._count += count
        else:
            self._close()
            self._start, self._stop, self._size, self._count, self._peer = start, stop, size, count, peer

    def finish(self) -> list[DatagramRun]:
        """Return the runs, in order."""
        self._close()
        return self._runs

    def _close(self) -> None:
        if self._count:
            self._runs.append(DatagramRun(self._start, self._stop, self._size, self._count, self._peer))
            self._count = self._size = 0
