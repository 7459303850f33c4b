"""Reader of a journal that another process may be writing: durable records, up to the watermark."""

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
from fyrehose_twisted.journal.format.segment import Projection, Segment
from fyrehose_twisted.journal.format.segment_header import OPEN_SUFFIX, SegmentHeader, segment_name
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
from fyrehose_twisted.journal.tier.directory import open_directory
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.record import Record

MAX_TRIES = 10
"""Attempts to read the list of files while it changes."""


@implementer(ISegmentReader)
class JournalReader(Tabular):
    """Reader of a journal on disk; see :class:`~fyrehose_twisted.interfaces.IJournalReader`.

    It takes no lock and writes nothing. Apart from retention, a range below the watermark always reads the same.

    :param directory: directory of the journal.
    :ivar damages: damage and missing files found so far.
    :raises JournalError: if there is no journal, or it cannot be read.
    :raises JournalReplaced: later, if the directory holds another journal by then. The reader does not change.
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
            raise JournalError(f"{directory} holds no readable journal")

    @property
    def stream(self) -> str:
        """URI of the stream."""
        return self._catalog.stream

    @property
    def wrap(self) -> int:
        """Modulus of the sequence numbers; 0 if they do not wrap."""
        return self._catalog.wrap

    @property
    def segments(self) -> list[Segment]:
        """Durable segments of the journal."""
        return list(self._catalog.segments.values())

    @property
    def change_token(self) -> object:
        """Value that changes whenever the journal is written or trimmed."""
        return self._durable_position, tuple(self._suffixes.items())

    @property
    def tag(self) -> int:
        """Random tag that tells this journal from any other in the same directory."""
        return self._catalog.tag

    def limit_open_files(self, files: int) -> None:
        """Limit the number of files kept open."""
        self._catalog.open_files = files

    def known_ranges(self, epoch: int) -> tuple[RangeSet, RangeSet]:
        """Return the held and the lost positions of an epoch, also beyond the watermark. Do not modify them."""
        return self._catalog.held.get(epoch) or RangeSet(), self._catalog.lost.get(epoch) or RangeSet()

    def refresh(self) -> bool:
        """Load new writes; return whether anything has changed."""
        position = read_position(self.directory)
        if position == self._durable_position and position is not None:
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
        """Return the stored records, including replaced ones, as one list of blocks for each range of positions.

        The ranges ascend. The blocks of a list may overlap: where several hold a position, :meth:`read` returns the
        record of the last block, and the others are records that it replaced.

        :param on_damage: as for :meth:`read`, as are ``projection`` and the errors raised.
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
        """Close all files."""
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
            except FileNotFoundError:  # A segment was compacted, or removed by retention.
                tries = MAX_TRIES if len(found) > before else tries - 1
            except OSError as error:
                raise JournalError(f"{self.directory} cannot be read: {error.strerror}") from error
        raise JournalError(f"{self.directory} changes faster than it can be read")

    def _list(self) -> dict[int, str]:
        """Return the file suffix of each segment.

        A directory listing made during a rename may contain neither name. Two listings that agree are complete.
        """
        suffixes = segment_suffixes(self._names())
        for _ in range(MAX_TRIES):
            before, suffixes = suffixes, segment_suffixes(self._names())
            if before.keys() == suffixes.keys():
                return suffixes
        raise FileNotFoundError("the list of segments keeps changing")

    def _names(self) -> list[str]:
        try:
            names: list[str] = self.directory.names()
        except FileNotFoundError:
            raise JournalError(f"{self.directory} does not exist; give the directory of a journal") from None
        return names

    def _load_once(self, found: dict[str, Segment], *, last: bool) -> bool:
        """Load the journal once; return whether the result is consistent.

        :param found: segments opened by earlier attempts, by name.
        :param last: whether to accept missing numbers, which a concurrent retention may explain.
        """
        damages: list[Damage] = []
        written = read_position(self.directory, damages)  # First: the files that it covers exist by now.
        suffixes = self._list()
        if not suffixes:
            raise JournalError(f"{self.directory} holds no journal: there is no {segment_name(1, '.log')} or the like")
        position = written
        segments, bad = self._open(suffixes, found, position)
        header = agreed_header(segments.values(), self.directory)
        if header is not None and position is not None and position.tag != header.tag:
            damages.append(Damage(POSITION_NAME, 0, POSITION_BYTES, OTHER_JOURNAL))
            position = None
            segments, bad = self._open(suffixes, found, position)
        if header is not None:
            self._identify(header)
        self._release_replaced(segments)
        damages += bad
        if position is None and max(suffixes) not in segments and suffixes[max(suffixes)] == OPEN_SUFFIX:
            damages.append(Damage(segment_name(max(suffixes), OPEN_SUFFIX), 0, 0, UNKNOWN_EXTENT))
        if position is not None and is_file_missing(position, suffixes):
            damages.append(missing_file_damage(position))
        damages += self._load_frames(segments, position)
        catalog = self._catalog
        catalog.segments = segments
        catalog.published_watermarks = {} if position is None else dict(position.watermarks)
        catalog.rebuild()
        catalog.advance_watermarks()
        lost = find_missing(catalog, damages)
        if not last and not set(lost) <= set(self.damages) and read_position(self.directory) != written:
            return False  # Retention may have removed them, and has published that by now.
        self._durable_position, self._suffixes, self.damages = written, suffixes, damages + lost
        return True

    def _identify(self, header: SegmentHeader) -> None:
        """Take the properties of the journal from a header, or check that it is the same journal."""
        catalog = self._catalog
        if catalog.stream and header.tag != catalog.tag:
            raise JournalReplaced(self.directory, catalog.tag, header.tag)
        catalog.stream, catalog.wrap, catalog.tag = header.stream, header.wrap, header.tag

    def _release_replaced(self, segments: dict[int, Segment]) -> None:
        """Close the files of known segments that are not among ``segments``."""
        for number, segment in self._catalog.segments.items():
            if segments.get(number) is not segment:  # Another file may have the same name.
                self._catalog.release(segment.name)
                self._ends.pop(number, None)

    def _open(
        self, suffixes: dict[int, str], found: dict[str, Segment], durable_position: DurablePosition | None
    ) -> tuple[dict[int, Segment], list[Damage]]:
        """Return the segments with a known header, and the damage of files that have none."""
        durable = max(suffixes) - 1 if durable_position is None else durable_position.segment
        known = (
            self._catalog.segments if durable_position is not None and durable_position.tag == self._catalog.tag else {}
        )
        segments: dict[int, Segment] = {}
        damages: list[Damage] = []
        for number, suffix in suffixes.items():
            if number > durable and suffix == OPEN_SUFFIX:
                continue  # It is still being created.
            segment = known.get(number)
            if segment is None or segment.suffix != suffix:
                segment = found.get(segment_name(number, suffix))
            if segment is None:
                opened = open_segment(self.directory, number, suffix)
                if not isinstance(opened, OpenSegment):
                    damages.append(opened)
                    continue
                segment = opened.segment
                if segment.ordered:
                    load_segment(opened, keep_index=False)
                opened.file.close()
                found[segment.name] = segment
            segments[number] = segment
        return segments, damages

    def _load_frames(self, segments: dict[int, Segment], position: DurablePosition | None) -> list[Damage]:
        """Load the frames appended to the segments up to the durable position; return the damage in the segments."""
        damages: list[Damage] = []
        for number, segment in segments.items():
            if not segment.ordered:
                is_last = position is not None and position.segment == number
                damages += self._read_appended(segment, position if is_last else None)
            damages += segment.damages
        return damages

    def _read_appended(self, segment: Segment, durable_position: DurablePosition | None) -> list[Damage]:
        """Load the frames appended to a segment; return the damage after its last valid frame.

        :param durable_position: position up to which it is durable; ``None`` if all of it is.
        """
        file = self._catalog.file_of(segment)
        size = file.size()
        limit = size if durable_position is None else durable_position.offset
        seen = self._ends.get(segment.number)
        if seen is None or seen[0] is not segment or seen[1:3] != (size, limit):
            seen = self._ends[segment.number] = segment, size, limit, read_durable(segment, file, limit)
        return seen[3]


class _ReaderCatalog(Catalog):
    """Catalog of a journal that another process may be writing."""

    def __init__(self, reader: JournalReader, directory: IDirectory, stream: str, wrap: int, tag: int) -> None:
        super().__init__(directory, stream, wrap, tag)
        self._reader = reader

    def segment_missing(self, segment: Segment) -> None:
        """See :meth:`~fyrehose_twisted.journal.catalog.Catalog.segment_missing`."""
        self._reader._load()
        if self.segments.get(segment.number) is segment:
            super().segment_missing(segment)


def open_reader(path: Path) -> JournalReader:
    """Return a reader of the journal in directory ``path``.

    :raises JournalError: if there is no journal, or it cannot be read.
    """
    return JournalReader(open_directory(path))
