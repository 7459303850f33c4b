"""Reading a journal while another process writes it: only what is durable, and only up to the watermark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from zope.interface import implementer

from fyrehose_twisted.interfaces import IDirectory, ISegmentReader
from fyrehose_twisted.journal.arrow.tabular import Tabular
from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.journal.catalog import Catalog, StoredBlock
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import Damage, JournalError, JournalReplaced
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.format.segment import Projection, Segment
from fyrehose_twisted.journal.format.segment_header import OPEN_SUFFIX, segment_name
from fyrehose_twisted.journal.format.watermark import POSITION_BYTES, POSITION_NAME, DurablePosition, read_position
from fyrehose_twisted.journal.segment_loader import (
    OTHER_JOURNAL,
    UNKNOWN_EXTENT,
    OpenSegment,
    agreed_header,
    find_missing,
    is_file_missing,
    load_segment,
    missing_file_damage,
    open_segment,
    read_durable,
    segment_suffixes,
)
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.record import Record

MAX_TRIES = 10
"""How often the list of files may change while it is read."""


@implementer(ISegmentReader)
class JournalReader(Tabular):
    """See :class:`~fyrehose_twisted.interfaces.IJournalReader`. It needs no lock and changes nothing.

    What it gives stays the same for ever, but for retention: a range below the watermark reads the same each time.

    :param directory: where the files of the journal are.
    :ivar damages: what was found that is damaged or gone.
    :raises JournalError: if there is no journal there, or it cannot be read.
    :raises JournalReplaced: later, if another journal lies there by then; this reader stays as it was.
    """

    def __init__(self, directory: IDirectory) -> None:
        self.directory = directory
        self.damages: list[Damage] = []
        self._durable_position: DurablePosition | None = None
        self._suffixes: dict[int, str] = {}
        self._ends: dict[int, tuple[Segment, int, int, list[Damage]]] = {}
        self._catalog = _ReaderCatalog(self, directory, "", 0, 0)
        self._load()
        if not self._catalog.stream:
            raise JournalError(f"{directory} holds no journal that can be read")

    @property
    def stream(self) -> str:
        """URI of the stream."""
        return self._catalog.stream

    @property
    def wrap(self) -> int:
        """How many sequence numbers there are before they begin anew; 0 if they never do."""
        return self._catalog.wrap

    @property
    def segments(self) -> list[Segment]:
        """The segments of the journal, as far as they are durable."""
        return list(self._catalog.segments.values())

    @property
    def change_token(self) -> object:
        """What changes whenever something was written, or dropped."""
        return self._durable_position, tuple(self._suffixes.items())

    @property
    def tag(self) -> int:
        """The journal's own number, which no other that lies there later has."""
        return self._catalog.tag

    def limit_open_files(self, files: int) -> None:
        """Keep at most so many files open."""
        self._catalog.open_files = files

    def known_ranges(self, epoch: int) -> tuple[RangeSet, RangeSet]:
        """Return what of an epoch is held, and what is declared lost, also beyond the watermark; not to be changed."""
        return self._catalog.held.get(epoch) or RangeSet(), self._catalog.lost.get(epoch) or RangeSet()

    def refresh(self) -> bool:
        """Look what has been written since; say whether anything has changed."""
        mark = read_position(self.directory)
        if mark == self._durable_position and mark is not None:
            return False
        self._load()
        return True

    def epochs(self) -> list[int]:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalContents.epochs`."""
        return self._catalog.epochs()

    def bounds(self, epoch: int) -> Bounds | None:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalContents.bounds`."""
        return self._catalog.bounds(epoch)

    def read(
        self,
        epoch: int,
        first: int,
        last: int,
        on_damage: Callable[[Damage], object] | None = None,
        since: int = 0,
        *,
        projection: Projection = Projection.ALL,
    ) -> Iterator[Block]:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalReader.read`; nothing beyond the watermark.

        :param since: see :meth:`~fyrehose_twisted.journal.catalog.Catalog.read`; ``projection`` as well.
        """
        last = min(last, self._catalog.watermarks.get(epoch, 0) - 1)
        return self._catalog.read(epoch, first, last, on_damage, since, projection=projection)

    def stored(
        self,
        epoch: int,
        first: int,
        last: int,
        on_damage: Callable[[Damage], object] | None = None,
        *,
        projection: Projection = Projection.ALL,
    ) -> Iterator[list[StoredBlock]]:
        """Return what stands in the segments, a list for each stretch of positions, ascending.

        The blocks of one list may overlap, and a position may be in several: the last of them is what :meth:`read`
        gives, and the others are what it replaced.

        :param on_damage: as for :meth:`read`; so are ``projection`` and what is raised.
        """
        last = min(last, self._catalog.watermarks.get(epoch, 0) - 1)
        return self._catalog.stored(epoch, first, last, on_damage, projection=projection)

    def get(self, epoch: int, position: int) -> Record | None:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalReader.get`; nothing beyond the watermark."""
        return self._catalog.get(epoch, position) if position < self._catalog.watermarks.get(epoch, 0) else None

    def held(self, epoch: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalContents.held`; nothing beyond the watermark."""
        return self._catalog.held_ranges(epoch, first, min(last, self._catalog.watermarks.get(epoch, 0) - 1))

    def losses(self, epoch: int, first: int, last: int) -> list[tuple[int, int]]:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalContents.losses`; nothing beyond the watermark."""
        return self._catalog.losses(epoch, first, min(last, self._catalog.watermarks.get(epoch, 0) - 1))

    def close(self) -> None:
        """Let go of all files."""
        self._catalog.close()

    def _load(self) -> None:
        found: dict[str, Segment] = {}
        tries = MAX_TRIES
        while tries:
            before = len(found)
            try:
                if self._load_once(found, last=tries == 1):
                    return
                tries -= 1
            except FileNotFoundError:  # A segment was written anew, or retention took it.
                tries = MAX_TRIES if len(found) > before else tries - 1
            except OSError as error:
                raise JournalError(f"{self.directory} cannot be read: {error.strerror}") from error
        raise JournalError(f"{self.directory} changes faster than it can be read")

    def _list(self) -> dict[int, str]:
        """Return the suffix of each segment's file.

        A list that is made while a file gets its new name can have neither name; two that agree cannot lack the same.
        """
        suffixes = segment_suffixes(self._names())
        for _ in range(MAX_TRIES):
            before, suffixes = suffixes, segment_suffixes(self._names())
            if before.keys() == suffixes.keys():
                return suffixes
        raise FileNotFoundError("the list of segments changes all the time")

    def _names(self) -> list[str]:
        try:
            names: list[str] = self.directory.names()
        except FileNotFoundError:
            raise JournalError(f"{self.directory} does not exist: there is no journal to read") from None
        return names

    def _load_once(self, found: dict[str, Segment], *, last: bool) -> bool:
        """Look once; say whether that was enough.

        :param found: segments that were opened before, by name.
        :param last: it has to be, even if numbers are gone and retention may be why.
        """
        damages: list[Damage] = []
        written = read_position(self.directory, damages)  # First: what it speaks of is there by now.
        suffixes = self._list()
        if not suffixes:
            raise JournalError(f"{self.directory} holds no journal: there is no file like {segment_name(1, '.log')}")
        mark = written
        segments, bad = self._open(suffixes, found, mark)
        header = agreed_header(segments.values(), self.directory)
        catalog = self._catalog
        if header is not None and mark is not None and mark.tag != header.tag:
            damages.append(Damage(POSITION_NAME, 0, POSITION_BYTES, OTHER_JOURNAL))
            mark = None
            segments, bad = self._open(suffixes, found, mark)
        if header is not None:
            if catalog.stream and header.tag != catalog.tag:
                raise JournalReplaced(self.directory, catalog.tag, header.tag)
            catalog.stream, catalog.wrap, catalog.tag = header.stream, header.wrap, header.tag
        for number, segment in catalog.segments.items():
            if segments.get(number) is not segment:  # Another file may have its name.
                catalog.release(segment.name)
                self._ends.pop(number, None)
        damages += bad
        if mark is None and max(suffixes) not in segments and suffixes[max(suffixes)] == OPEN_SUFFIX:
            damages.append(Damage(segment_name(max(suffixes), OPEN_SUFFIX), 0, 0, UNKNOWN_EXTENT))
        if mark is not None and is_file_missing(mark, suffixes):
            damages.append(missing_file_damage(mark))
        for number, segment in segments.items():
            if not segment.ordered:
                damages += self._read_appended(segment, mark if mark is not None and mark.segment == number else None)
            damages += segment.damages
        catalog.segments = segments
        catalog.published_watermarks = {} if mark is None else dict(mark.watermarks)
        catalog.rebuild()
        catalog.advance_watermarks()
        lost = find_missing(catalog, damages)
        if not last and not set(lost) <= set(self.damages) and read_position(self.directory) != written:
            return False  # Retention may have taken what held them, and says so by now.
        self._durable_position, self._suffixes, self.damages = written, suffixes, damages + lost
        return True

    def _open(
        self, suffixes: dict[int, str], found: dict[str, Segment], durable_position: DurablePosition | None
    ) -> tuple[dict[int, Segment], list[Damage]]:
        """Return the segments whose headers are known, and what is damaged so that it is none."""
        durable = max(suffixes) - 1 if durable_position is None else durable_position.segment
        known = (
            self._catalog.segments if durable_position is not None and durable_position.tag == self._catalog.tag else {}
        )
        segments: dict[int, Segment] = {}
        damages: list[Damage] = []
        for number, suffix in suffixes.items():
            if number > durable and suffix == OPEN_SUFFIX:
                continue  # It is only being made.
            segment = known.get(number)
            if segment is None or segment.suffix != suffix:
                segment = found.get(segment_name(number, suffix))
            if segment is None:
                one = open_segment(self.directory, number, suffix)
                if not isinstance(one, OpenSegment):
                    damages.append(one)
                    continue
                segment = one.segment
                if segment.ordered:
                    load_segment(one, keep_index=False)
                one.file.close()
                found[segment.name] = segment
            segments[number] = segment
        return segments, damages

    def _read_appended(self, segment: Segment, durable_position: DurablePosition | None) -> list[Damage]:
        """Take in what was added to a segment that is not in order; return what is damaged after its last good frame.

        :param durable_position: how far it is durable; ``None`` if all of it is.
        """
        file = self._catalog.file_of(segment)
        size = file.size()
        limit = size if durable_position is None else durable_position.offset
        seen = self._ends.get(segment.number)
        if seen is None or seen[0] is not segment or seen[1:3] != (size, limit):
            seen = self._ends[segment.number] = segment, size, limit, read_durable(segment, file, limit)
        return seen[3]


class _ReaderCatalog(Catalog):
    """The catalog of a journal that another process writes."""

    def __init__(self, reader: JournalReader, directory: IDirectory, stream: str, wrap: int, tag: int) -> None:
        super().__init__(directory, stream, wrap, tag)
        self._reader = reader

    def segment_missing(self, segment: Segment) -> None:
        """See :meth:`~fyrehose_twisted.journal.catalog.Catalog.segment_missing`."""
        self._reader._load()
        if self.segments.get(segment.number) is segment:
            super().segment_missing(segment)


def open_reader(path: Path) -> JournalReader:
    """Return a reader of the journal whose files lie in directory ``path``.

    :raises JournalError: if there is none, or it cannot be read.
    """
    return JournalReader(LocalDirectory(path))
