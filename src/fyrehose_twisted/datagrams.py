"""Batches of datagrams received from one socket, contiguous in one buffer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from fyrehose_twisted.effects import Address, Datagram


class DatagramRun(NamedTuple):
    """Consecutive datagrams of equal size from one peer, ``buffer[start:stop]`` in order.

    :ivar size: bytes per datagram.
    :ivar rows: number of datagrams.
    :ivar truncated: the receive call reported a truncated datagram; the run then has only this one.
    """

    start: int
    stop: int
    size: int
    rows: int
    peer: Address
    truncated: bool = False


class Batch:
    """Datagrams in order of arrival.

    A receiver may modify the buffer until it returns, and must not keep views of it.
    """

    __slots__ = ("buffer", "runs", "view")

    def __init__(self, buffer: bytearray, runs: list[DatagramRun]) -> None:
        self.buffer = buffer
        self.view = memoryview(buffer)
        self.runs = runs

    @classmethod
    def pack(cls, datagrams: Iterable[tuple[Datagram, Address]], *, truncated: Collection[int] = ()) -> Batch:
        """Return a batch of copies of ``datagrams``, each with its source address.

        :param truncated: positions of truncated datagrams.
        """
        buffer, runs = bytearray(), BatchBuilder()
        for row, (datagram, peer) in enumerate(datagrams):
            start = len(buffer)
            buffer += datagram
            runs.add(start, len(buffer), len(datagram), peer, row in truncated)
        return cls(buffer, runs.finish())

    def __len__(self) -> int:
        rows = 0
        for run in self.runs:
            rows += run.rows
        return rows

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
    """Builder that groups contiguous datagrams into as few runs as possible.

    :ivar rows: number of datagrams added.
    """

    __slots__ = ("_count", "_peer", "_runs", "_size", "_start", "_stop", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self._runs: list[DatagramRun] = []
        self._start = self._stop = self._size = self._count = 0
        self._peer: Address = ("", 0)

    def add(self, start: int, stop: int, size: int, peer: Address, truncated: bool = False) -> None:
        """Add ``buffer[start:stop]``, received in one call: datagrams of ``size`` bytes, the last may be shorter."""
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
