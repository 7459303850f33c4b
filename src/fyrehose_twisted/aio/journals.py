"""Journal of records, for an asyncio application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TypeVar

from fyrehose_twisted.journal.block import Block, position_ranges
from fyrehose_twisted.journal.reader import JournalReader, open_reader
from fyrehose_twisted.record import Record

POLL_INTERVAL = 0.1
"""Seconds between looks for new records."""
LAST_POSITION = 2**64 - 1

OnGap = Callable[[int, int, int], object]

T = TypeVar("T")

_log = logging.getLogger(__name__)


def _log_gap(epoch: int, first: int, last: int) -> None:
    _log.warning("epoch %d lacks records %d to %d, which are lost, or were removed by retention", epoch, first, last)


async def journal(
    path: str | PathLike[str],
    *,
    epoch: int | None = None,
    first: int = 0,
    last: int = LAST_POSITION,
    follow: bool = False,
    on_gap: OnGap = _log_gap,
) -> AsyncGenerator[Record, None]:
    """Yield the durable records of a journal, in order, while another process may be writing it.

        async for record in aio.journal("journal/", follow=True):
            print(record.sequence, record.payload)

    A thread of its own reads, one block ahead, so that the event loop never waits for the disk.

    :param path: directory of the journal.
    :param epoch: epoch to read; by default, all of them, lowest first.
    :param first: position of the first record, in each epoch; by default, the first that the journal holds.
    :param last: position of the last record, in each epoch.
    :param follow: wait for new records at the end, until ``last`` if there is but one epoch to read.
    :param on_gap: called with epoch, first and last position of records that are missing between others; by default,
        they are logged as a warning.
    :raises JournalError: if there is no journal, or it cannot be read.
    :raises JournalDamaged: if records are damaged.
    """
    reading = _Reading(Path(path), epoch, first, last, on_gap)
    try:
        await reading.open()
        while True:
            async for record in reading.available():
                yield record
            if not follow or reading.is_complete:
                return
            while not await reading.refresh():
                await asyncio.sleep(POLL_INTERVAL)
    finally:
        reading.close()


class _Reading:
    """One reader, and the thread in which everything that it does takes place."""

    def __init__(self, path: Path, epoch: int | None, first: int, last: int, on_gap: OnGap) -> None:
        self._path = path
        self._epoch = epoch
        self._first, self._last = first, last
        self._on_gap = on_gap
        self._next: dict[int, int] = {}
        """Next position to read in each epoch; only the thread writes it."""
        self._expected: dict[int, int] = {}
        """Position after the last record that was yielded in each epoch."""
        self._reader: JournalReader | None = None
        self._thread = ThreadPoolExecutor(1, "fyrehose-journal")

    @property
    def is_complete(self) -> bool:
        """Whether the last record that was asked for has been read."""
        return self._epoch is not None and self._next.get(self._epoch, 0) > self._last

    async def open(self) -> None:
        await self._run(self._open)

    async def refresh(self) -> bool:
        assert self._reader is not None, "open() comes first"
        return await self._run(self._reader.refresh)

    async def available(self) -> AsyncGenerator[Record, None]:
        """Yield the records that are durable and were not yielded before."""
        blocks = await self._run(self._blocks)
        following = self._submit(partial(next, blocks, None))
        while (block := await following) is not None:
            following = self._submit(partial(next, blocks, None))
            self._report_gaps(block)
            for record in block.records():
                yield record

    def close(self) -> None:
        """Close the reader after what it is doing."""
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def _open(self) -> None:
        self._reader = open_reader(self._path)

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def _blocks(self) -> Iterator[Block]:
        assert self._reader is not None, "open() comes first"
        ranges: list[tuple[int, int, int]] = []
        for epoch in self._reader.epochs():
            bounds = self._reader.bounds(epoch)
            if self._epoch in (None, epoch) and bounds is not None:
                start = max(self._next.get(epoch, self._first), bounds.first)
                if start <= min(self._last, bounds.next - 1):
                    ranges.append((epoch, start, min(self._last, bounds.next - 1)))
        return self._read(self._reader, ranges)

    def _read(self, reader: JournalReader, ranges: list[tuple[int, int, int]]) -> Iterator[Block]:
        for epoch, start, end in ranges:
            yield from reader.read(epoch, start, end)
            self._next[epoch] = end + 1

    def _report_gaps(self, block: Block) -> None:
        expected = self._expected.get(block.epoch)
        for low, high in position_ranges(block.positions):
            if expected is not None and low > expected:
                self._on_gap(block.epoch, expected, low - 1)
            expected = high + 1
        if expected is not None:
            self._expected[block.epoch] = expected

    def _submit(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _run(self, work: Callable[[], T]) -> T:
        return await self._submit(work)
