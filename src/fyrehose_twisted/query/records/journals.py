"""Journals in a directory, followed while other processes write them."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from twisted.logger import Logger

from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.framing import StripFraming
from fyrehose_twisted.journal.block import Block, merge_blocks
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import Damage, JournalError, NotInJournal
from fyrehose_twisted.journal.format.layout import journal_directories
from fyrehose_twisted.journal.format.watermark import read_position
from fyrehose_twisted.journal.reader import JournalReader, open_reader
from fyrehose_twisted.journal.repeat_marking import FindEnvelopes, RepeatMarker
from fyrehose_twisted.query.records.query_params import EpochPosition

MIN_WINDOW, MAX_WINDOW = 2**10, 2**14
"""Positions looked up at once. The window grows where frames are large, so that each is read only once."""

GATHERED_BLOCKS, GATHERED_RECORDS, GATHERED_BYTES = 64, 1_024, 64 * 2**10
"""Limits of small blocks that are read together: blocks, records and bytes."""

CACHED_BLOCKS, CACHED_BYTES = 64, 64 * 2**20
"""Cached blocks of all streams, and their payload bytes, shared by clients that read the same records."""

OPEN_FILES = 4
"""Open files of each journal. There may be thousands of journals."""

MAX_DAMAGES = 1_000
"""Damaged places remembered for each journal, so that each is counted and logged once."""

MANY_JOURNALS, LOOK_INTERVAL = 100, 0.8
"""Refreshing more journals than this is limited to once in this many seconds, less than the interval of the service."""


class BlockSpan(NamedTuple):
    """A block and the positions that it covers."""

    first: int
    last: int
    block: Block | None
    """``None`` if none of these positions is held."""


class JournalSource:
    """Journal of one stream, with its state for clients.

    :ivar name: name of its directory, which is its name in paths.
    :ivar problem: reason why it cannot be read; empty if it can.
    :ivar damages: number of damaged places encountered.
    :ivar marker: marker of its repeats.
    :ivar cached_description: last description, with its :meth:`change_token`.
    """

    log = Logger()

    def __init__(
        self, path: Path, reader: JournalReader, cache: BlockCache, envelopes: FindEnvelopes | None = None
    ) -> None:
        self.path = path
        self.name = path.name
        self.reader = reader
        self.problem = ""
        self.damages = 0
        self.marker = RepeatMarker(reader, envelopes)
        self.cached_description: tuple[object, dict[str, Any]] | None = None
        self._cache = cache
        self._window = MIN_WINDOW
        self._damaged: OrderedDict[tuple[str, int, int | None, int | None], None] = OrderedDict()
        for damage in reader.damages:
            self._note_damage(damage)

    @property
    def stream(self) -> str:
        """URI of the stream."""
        return self.reader.stream

    def refresh(self) -> bool:
        """Load new writes; return whether there are any."""
        try:
            changed = self.reader.refresh()
        except (JournalError, OSError) as error:
            self.mark_failed(error)
            return False
        self.problem = ""
        for damage in self.reader.damages:
            self._note_damage(damage)
        return changed

    def mark_failed(self, error: Exception) -> None:
        """Record that the journal cannot be read. Log it once."""
        if not self.problem:
            self.log.error("{stream}: {error}", stream=self.stream, error=error)
        self.problem = str(error)

    def bounds(self, epoch: int) -> Bounds | None:
        """Return the bounds of an epoch, or ``None`` if the epoch is unknown."""
        return self.reader.bounds(epoch)

    def end(self) -> EpochPosition:
        """Return the position after the newest readable record."""
        epoch = max(self.reader.epochs(), default=0)
        bounds = self.bounds(epoch)
        return EpochPosition(epoch, 0 if bounds is None else bounds.next)

    def beginning(self, since: int = 0) -> EpochPosition:
        """Return a position before which no record was received at ``since`` or later.

        :param since: UTC microseconds since 1970.
        """
        for epoch in self.reader.epochs():
            bounds = self.bounds(epoch)
            indexes = [
                segment.frame_indexes[epoch] for segment in self.reader.segments if epoch in segment.frame_indexes
            ]
            base = min((frame.base for index in indexes for frame in index if frame.newest >= since), default=None)
            if base is not None and bounds is not None:
                return EpochPosition(epoch, min(max(base, bounds.first), bounds.next))
        return self.end()

    def before_end(self, count: int) -> EpochPosition:
        """Return the position of the ``count``-th newest record, or of the first one."""
        place = self.end()
        for epoch in reversed(self.reader.epochs()):
            bounds = self.bounds(epoch)
            if bounds is None:
                continue
            for first, last in reversed(list(self.reader.held(epoch, bounds.first, bounds.next - 1))):
                if last - first + 1 >= count:
                    return EpochPosition(epoch, last - count + 1)
                count -= last - first + 1
                place = EpochPosition(epoch, first)
        return place

    def next_epoch(self, epoch: int) -> int | None:
        """Return the first epoch after ``epoch``, or ``None`` if there is none yet."""
        return min((one for one in self.reader.epochs() if one > epoch), default=None)

    def read_span(self, epoch: int, position: int, since: int = 0, *, keep: bool = True) -> BlockSpan | None:
        """Return the records from ``position`` on that are stored together; ``None`` at the end of the epoch.

        :param since: UTC microseconds since 1970. Older records may be left out.
        :param keep: whether to cache the block for other clients.
        """
        for _ in range(3):
            bounds = self.bounds(epoch)
            if bounds is None or position >= bounds.next:
                return None
            if position < bounds.first:
                return BlockSpan(position, bounds.first - 1, None)
            kept = self._cache.find(self.name, epoch, position)
            if kept is not None:
                return kept
            held = next(self.reader.held(epoch, position, bounds.next - 1), None)
            if held is None:
                return BlockSpan(position, bounds.next - 1, None)
            if held[0] > position:
                return BlockSpan(position, held[0] - 1, None)
            last = min(bounds.next - 1, position + self._window - 1)
            try:
                block = self._gather(epoch, position, last, since)
            except NotInJournal:
                continue  # Retention has removed it.
            except OSError as error:
                raise OperationalError(f"{self.stream} cannot be read: {error.strerror}") from error
            if block is None:
                return BlockSpan(position, last, None)
            found = BlockSpan(position, block.last, block)
            if keep and not since:
                self._cache.keep(self.name, epoch, found)
            return found
        raise OperationalError(f"{self.stream} loses records faster than they can be read; try again")

    def _gather(self, epoch: int, first: int, last: int, since: int) -> Block | None:
        """Return the first blocks of a window, merged, within limits; ``None`` if there is no record."""
        blocks: list[Block] = []
        records = size = 0
        for block in self.reader.read(epoch, first, last, self._note_damage, since):
            blocks.append(block)
            records += len(block)
            size += len(block.payload)
            if records >= GATHERED_RECORDS or size >= GATHERED_BYTES or len(blocks) == GATHERED_BLOCKS:
                break
        if not blocks:
            return None
        end = blocks[-1].last
        if end >= last:  # The last block may continue, and would be read again.
            self._window = min(MAX_WINDOW, 4 * self._window)
        elif 4 * (end - first + 1) < self._window:
            self._window = max(MIN_WINDOW, self._window // 4)
        return blocks[0] if len(blocks) == 1 else merge_blocks(blocks)

    def is_replaced(self) -> bool:
        """Return whether the directory now holds another journal."""
        try:
            durable = read_position(self.reader.directory)
        except OSError:
            return False
        return durable is not None and durable.tag != self.reader.tag

    def change_token(self) -> object:
        """Return a value that changes whenever the contents do."""
        return self.reader.change_token, self.damages

    def size(self) -> int:
        """Return the total size of its files in bytes."""
        try:
            return sum(entry.stat().st_size for entry in os.scandir(self.path) if entry.is_file())
        except OSError:
            return 0

    def close(self) -> None:
        """Close its files."""
        self._cache.forget(self.name)
        self.reader.close()

    def _note_damage(self, damage: Damage) -> None:
        place = damage.name, damage.offset, damage.epoch, damage.first
        if place in self._damaged:
            return
        self._damaged[place] = None
        if len(self._damaged) > MAX_DAMAGES:
            self._damaged.popitem(last=False)
        self.damages += 1
        self.log.error("{stream}: damaged records left out: {damage}", stream=self.stream, damage=damage)


class BlockCache:
    """Cache of recently read blocks."""

    def __init__(self) -> None:
        self._spans: OrderedDict[tuple[str, int, int], BlockSpan] = OrderedDict()
        self._bytes = 0

    def find(self, name: str, epoch: int, position: int) -> BlockSpan | None:
        """Return the cached block that covers ``position``, from there on."""
        for key, span in reversed(self._spans.items()):
            if key[:2] == (name, epoch) and span.first <= position <= span.last:
                self._spans.move_to_end(key)
                assert span.block is not None
                return BlockSpan(position, span.last, span.block.within(position, span.last))
        return None

    def keep(self, name: str, epoch: int, span: BlockSpan) -> None:
        """Add a block."""
        assert span.block is not None
        key = name, epoch, span.first
        if key in self._spans:
            self._drop(key)
        self._spans[key] = span
        self._bytes += len(span.block.payload)
        while len(self._spans) > 1 and (len(self._spans) > CACHED_BLOCKS or self._bytes > CACHED_BYTES):
            self._drop(next(iter(self._spans)))

    def forget(self, name: str) -> None:
        """Drop all blocks of one journal."""
        for key in [key for key in self._spans if key[0] == name]:
            self._drop(key)

    def _drop(self, key: tuple[str, int, int]) -> None:
        block = self._spans.pop(key).block
        assert block is not None
        self._bytes -= len(block.payload)


class JournalDirectory:
    """Journals in a directory.

    :param directory: directory with one subdirectory for each stream, or directory of one journal.
    :param strip_framing: strips the protocol's framing from payloads.
    :param open: opens a reader.
    :param envelope_finder: returns the function that finds the envelopes of a stream, by which repeats are detected.
    :ivar dropped: called with a source that is no longer available.
    :ivar problems: reason why a journal could not be opened, by directory name.
    """

    log = Logger()

    def __init__(
        self,
        directory: Path,
        strip_framing: StripFraming,
        open: Callable[[Path], JournalReader] = open_reader,
        envelope_finder: Callable[[str], FindEnvelopes | None] = lambda stream: None,
    ) -> None:
        self.directory = directory
        self.strip_framing = strip_framing
        self.problems: dict[str, str] = {}
        self.dropped: Callable[[JournalSource], object] = lambda source: None
        self._open = open
        self._envelopes = envelope_finder
        self._sources: dict[str, JournalSource] = {}
        self._cache = BlockCache()
        self._refreshed_at = 0.0

    def refresh_all(self) -> None:
        """Rescan the directory and refresh all journals; at most about once a second if there are many."""
        now = monotonic()
        if len(self) > MANY_JOURNALS and now < self._refreshed_at + LOOK_INTERVAL:
            return
        self._refreshed_at = now
        self.refresh()
        for source in self:
            source.refresh()

    def refresh(self) -> None:
        """Rescan the directory for journals."""
        try:
            paths = journal_directories(self.directory)
        except OSError as error:
            self._log_problem(self.directory.name, f"{self.directory} cannot be read: {error.strerror}")
            return
        self.problems.pop(self.directory.name, None)
        names = {path.name for path in paths}
        for path in paths:
            source = self._sources.get(path.name)
            if source is not None and source.is_replaced():
                self._drop(source, "was replaced by another journal")
            if path.name not in self._sources:
                self._add(path)
        for name in [name for name in self._sources if name not in names]:
            self._drop(self._sources[name], "is gone")
        for name in [name for name in self.problems if name not in names]:
            del self.problems[name]

    def get(self, name: str) -> JournalSource | None:
        """Return the source with a name, or ``None``."""
        return self._sources.get(name)

    def __iter__(self) -> Iterator[JournalSource]:
        return iter([source for _, source in sorted(self._sources.items())])

    def __len__(self) -> int:
        return len(self._sources)

    def close(self) -> None:
        """Close all journals."""
        while self._sources:
            self._sources.popitem()[1].close()

    def _drop(self, source: JournalSource, reason: str) -> None:
        self.log.info("{stream} {why}", stream=source.stream, why=reason)
        del self._sources[source.name]
        self.dropped(source)
        source.close()

    def _add(self, path: Path) -> None:
        try:
            reader = self._open(path)
        except (JournalError, OSError) as error:
            self._log_problem(path.name, str(error))
            return
        self.problems.pop(path.name, None)
        reader.limit_open_files(OPEN_FILES)
        source = self._sources[path.name] = JournalSource(path, reader, self._cache, self._envelopes(reader.stream))
        self.log.info("serves {stream} from {path}", stream=source.stream, path=path)

    def _log_problem(self, name: str, problem: str) -> None:
        if self.problems.get(name) != problem:
            self.problems[name] = problem
            self.log.error("{problem}", problem=problem)
